//! The cluster as a client sees it: who its brokers are, a connection to each that was needed, and calls that are
//! tried again until they succeed, cannot succeed, or time is over.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kafka_protocol::messages::find_coordinator_request::FindCoordinatorRequest;
use kafka_protocol::protocol::{Request, StrBytes};

use super::connection::{CallError, Connection};
use super::errors::checked;
use super::{ClientConfig, ClientError, Result};
use crate::time::{Clock, SystemClock};

/// The id of a broker that is known by its bootstrap address only.
pub(super) const BOOTSTRAP: i32 = -1;
/// Between two attempts: first and longest pause.
const BACKOFF: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
const LATEST: i16 = i16::MAX;

/// Who shall answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Any,
    Broker(i32),
}

/// A cluster and the connections to it.
#[derive(Debug)]
pub struct Client {
    pub(super) config: ClientConfig,
    pub(super) brokers: BTreeMap<i32, (String, u16)>,
    connections: BTreeMap<i32, Connection>,
    /// By group.
    pub(super) coordinators: BTreeMap<String, i32>,
    /// Of all bootstrap addresses, the one to begin with.
    next_bootstrap: usize,
}

/// A time-out and the pauses within it.
#[derive(Debug)]
pub(super) struct Attempts {
    deadline: Instant,
    pause: Duration,
}

impl Attempts {
    pub(super) fn within(timeout: Duration) -> Self {
        Self {
            deadline: SystemClock.now() + timeout,
            pause: BACKOFF,
        }
    }

    /// Waits a moment. False if the time is over.
    pub(super) async fn again(&mut self) -> bool {
        let left = self.deadline.saturating_duration_since(SystemClock.now());
        if left.is_zero() {
            return false;
        }
        tokio::time::sleep(self.pause.min(left)).await;
        self.pause = (self.pause * 2).min(BACKOFF_MAX);
        true
    }
}

impl Client {
    /// Connects when something is asked for.
    pub fn new(config: ClientConfig) -> Self {
        Self {
            config,
            brokers: BTreeMap::new(),
            connections: BTreeMap::new(),
            coordinators: BTreeMap::new(),
            next_bootstrap: 0,
        }
    }

    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    pub(super) fn attempts(&self) -> Attempts {
        Attempts::within(self.config.api_timeout)
    }

    /// Sends a request in its newest version.
    pub(super) async fn send<R: Request>(
        &mut self,
        node: Node,
        call: &str,
        build: impl Fn(i16) -> R,
    ) -> Result<R::Response> {
        self.send_up_to(node, call, LATEST, build).await
    }

    /// Sends a request, in a version up to `max`; again over another connection where one breaks.
    pub(super) async fn send_up_to<R: Request>(
        &mut self,
        node: Node,
        call: &str,
        max: i16,
        build: impl Fn(i16) -> R,
    ) -> Result<R::Response> {
        let mut attempts = self.attempts();
        loop {
            match self.try_once(node, max, &build, Duration::ZERO).await {
                Ok(answer) => return Ok(answer),
                Err(CallError::Final(error)) => return Err(error),
                Err(CallError::Io(_)) => {}
            }
            if !attempts.again().await {
                return Err(ClientError::TimedOut(format!(
                    "Timed out waiting for a node assignment. Call: {call}"
                )));
            }
        }
    }

    /// Sends a request once; whoever asks handles what fails.
    pub(super) async fn try_once<R: Request>(
        &mut self,
        node: Node,
        max: i16,
        build: impl Fn(i16) -> R,
        more: Duration,
    ) -> std::result::Result<R::Response, CallError> {
        let id = self.connect(node).await?;
        let mut connection = self.taken(id)?;
        let outcome = connection.call(max, build, more).await;
        if !matches!(outcome, Err(CallError::Io(_))) {
            self.connections.insert(id, connection);
        }
        outcome
    }

    /// The connection goes out of the map while it is in use: one that was left half way is gone.
    fn taken(&mut self, id: i32) -> std::io::Result<Connection> {
        let connection = self.connections.remove(&id);
        connection.ok_or_else(|| std::io::ErrorKind::NotConnected.into())
    }

    /// Sends a request that is never answered.
    pub(super) async fn tell<R: Request + Clone>(
        &mut self,
        node: Node,
        max: i16,
        request: R,
    ) -> std::result::Result<(), CallError> {
        let id = self.connect(node).await?;
        let mut connection = self.taken(id)?;
        let outcome = connection.tell(max, request).await;
        if outcome.is_ok() {
            self.connections.insert(id, connection);
        }
        outcome
    }

    /// Sends one request to each of several brokers at a time.
    pub(super) async fn send_each<R: Request + Clone>(
        &mut self,
        requests: Vec<(i32, R)>,
        max: i16,
        more: Duration,
    ) -> Vec<(i32, std::result::Result<R::Response, CallError>)> {
        let mut outcomes = Vec::new();
        let mut ready = Vec::new();
        for (broker, request) in requests {
            match self.connect(Node::Broker(broker)).await {
                Ok(id) => match self.taken(id) {
                    Ok(connection) => ready.push((broker, connection, request)),
                    Err(error) => outcomes.push((broker, Err(error.into()))),
                },
                Err(error) => outcomes.push((broker, Err(error))),
            }
        }
        let calls = ready.into_iter().map(|(broker, mut connection, request)| {
            let build = move |_| request.clone();
            async move {
                let outcome = connection.call(max, build, more).await;
                (broker, connection, outcome)
            }
        });
        for (broker, connection, outcome) in futures_util::future::join_all(calls).await {
            if !matches!(outcome, Err(CallError::Io(_))) {
                self.connections.insert(broker, connection);
            }
            outcomes.push((broker, outcome));
        }
        outcomes
    }

    /// The id under which a connection is there afterwards.
    async fn connect(&mut self, node: Node) -> std::result::Result<i32, CallError> {
        match node {
            Node::Any => match self.connections.keys().next() {
                Some(id) => Ok(*id),
                None => self.connect_any().await,
            },
            Node::Broker(id) if self.connections.contains_key(&id) => Ok(id),
            Node::Broker(id) => {
                let (host, port) = match self.brokers.get(&id) {
                    Some(address) => address.clone(),
                    None => return Err(std::io::Error::from(std::io::ErrorKind::NotFound).into()),
                };
                self.open(id, &host, port).await?;
                Ok(id)
            }
        }
    }

    /// The brokers that are known, then the bootstrap servers in turn.
    async fn connect_any(&mut self) -> std::result::Result<i32, CallError> {
        let mut failed = None;
        for (id, (host, port)) in self.brokers.clone() {
            match self.open(id, &host, port).await {
                Ok(()) => return Ok(id),
                Err(error) => failed = Some(error),
            }
        }
        let count = self.config.bootstrap.len();
        for step in 0..count {
            let index = (self.next_bootstrap + step) % count;
            let (host, port) = self.config.bootstrap[index].clone();
            match self.open(BOOTSTRAP, &host, port).await {
                Ok(()) => {
                    self.next_bootstrap = index;
                    return Ok(BOOTSTRAP);
                }
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(|| CallError::Io(std::io::ErrorKind::NotFound.into())))
    }

    async fn open(&mut self, id: i32, host: &str, port: u16) -> std::result::Result<(), CallError> {
        match Connection::open(host, port, &self.config).await {
            Ok(connection) => {
                self.connections.insert(id, connection);
                Ok(())
            }
            Err(error) => {
                if let CallError::Io(error) = &error {
                    (self.config.unreachable)(id, host, port, &error.to_string());
                }
                Err(error)
            }
        }
    }

    /// A connection of one broker, for what it says of itself.
    pub(super) async fn connection(
        &mut self,
        node: Node,
    ) -> std::result::Result<&Connection, CallError> {
        let id = self.connect(node).await?;
        let connection = self.connections.get(&id);
        connection.ok_or_else(|| CallError::Io(std::io::ErrorKind::NotConnected.into()))
    }

    /// The broker that coordinates a group, asked for once.
    pub(super) async fn coordinator(&mut self, group: &str, call: &str) -> Result<i32> {
        if let Some(id) = self.coordinators.get(group) {
            return Ok(*id);
        }
        let mut attempts = self.attempts();
        loop {
            match self.find_coordinator(group, call).await {
                Err(error) if error.is_retriable() => {
                    if !attempts.again().await {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
    }

    async fn find_coordinator(&mut self, group: &str, call: &str) -> Result<i32> {
        let key = StrBytes::from_string(group.to_owned());
        let build = |version| {
            let request = FindCoordinatorRequest::default();
            match version {
                ..4 => request.with_key(key.clone()),
                _ => request.with_coordinator_keys(vec![key.clone()]),
            }
        };
        let answer = self.send(Node::Any, call, build).await?;
        let (id, host, port) = match answer.coordinators.into_iter().next() {
            Some(found) => {
                checked(found.error_code, found.error_message)?;
                (found.node_id.0, found.host.to_string(), found.port)
            }
            None => {
                checked(answer.error_code, answer.error_message)?;
                (answer.node_id.0, answer.host.to_string(), answer.port)
            }
        };
        let port = u16::try_from(port).unwrap_or(0);
        self.brokers.insert(id, (host, port));
        self.coordinators.insert(group.to_owned(), id);
        Ok(id)
    }

    /// Sends a request to a group's coordinator until it answers with something final.
    pub(super) async fn send_to_coordinator<R: Request, T>(
        &mut self,
        group: &str,
        call: &str,
        max: i16,
        build: impl Fn(i16) -> R,
        read: impl Fn(R::Response) -> Result<T>,
    ) -> Result<T> {
        let mut attempts = self.attempts();
        loop {
            let coordinator = self.coordinator(group, call).await?;
            let sent = self.try_once(Node::Broker(coordinator), max, &build, Duration::ZERO);
            let outcome = match sent.await {
                Ok(answer) => read(answer),
                Err(CallError::Final(error)) => return Err(error),
                Err(CallError::Io(error)) => Err(ClientError::api(
                    crate::types::ErrorCode::NetworkException.code(),
                    Some(error),
                )),
            };
            match outcome {
                Err(error) if error.is_retriable() => {
                    self.coordinators.remove(group);
                    if !attempts.again().await {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
    }
}
