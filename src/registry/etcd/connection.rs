//! One connection at a time, to one of the endpoints, and another one when it fails.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{
    Certificate, Client, ConnectOptions, Error, Identity, KvClient, LeaseClient, TlsOptions,
    WatchClient,
};
use parking_lot::Mutex;

use super::EtcdConfig;
use crate::registry::RegistryError;

/// Above gRPC's default of 4 MiB: the deletion of a topic with very many partitions is one message.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// R12: a connection that does not answer pings is given up after both.
const PING_INTERVAL: Duration = Duration::from_secs(2);
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// The clients on one connection.
#[derive(Clone)]
pub(super) struct Clients {
    pub(super) kv: KvClient,
    pub(super) lease: LeaseClient,
    pub(super) watch: WatchClient,
}

/// The endpoints, and the connection to one of them.
pub(super) struct Connection {
    config: EtcdConfig,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Counts connections.
    number: u64,
    clients: Option<Arc<Clients>>,
    /// The endpoint to be tried next.
    endpoint: usize,
}

impl Connection {
    pub(super) fn new(config: EtcdConfig) -> Self {
        Self {
            config,
            state: Mutex::default(),
        }
    }

    pub(super) fn endpoints(&self) -> usize {
        self.config.endpoints.len()
    }

    /// Lets `call` run on the connection, for so long; one that fails is not used again.
    pub(super) async fn ask<T, F>(
        &self,
        timeout: Duration,
        call: impl FnOnce(Clients) -> F,
    ) -> Result<T, RegistryError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut used = None;
        let asking = async {
            let (number, clients) = self.clients().await?;
            used = Some(number);
            call(Clients::clone(&clients)).await.map_err(translate)
        };
        let answer = match tokio::time::timeout(timeout, asking).await {
            Ok(answer) => answer,
            Err(_) => Err(RegistryError::Unavailable(format!(
                "no answer within {timeout:?}"
            ))),
        };
        if let Err(RegistryError::Unavailable(_)) = &answer {
            self.give_up(used);
        }
        answer
    }

    async fn clients(&self) -> Result<(u64, Arc<Clients>), RegistryError> {
        let (number, endpoint) = {
            let state = self.state.lock();
            if let Some(clients) = &state.clients {
                return Ok((state.number, Arc::clone(clients)));
            }
            (state.number, state.endpoint)
        };
        let clients = Arc::new(self.connect(endpoint).await?);
        let mut state = self.state.lock();
        if state.number == number && state.clients.is_none() {
            state.number += 1;
            state.clients = Some(Arc::clone(&clients));
        }
        Ok((state.number, clients))
    }

    /// The next call goes to the next endpoint. `number`: the connection that failed; `None`: there was
    /// none yet.
    pub(super) fn give_up(&self, number: Option<u64>) {
        let mut state = self.state.lock();
        let is_current = match number {
            Some(number) => state.number == number && state.clients.is_some(),
            None => state.clients.is_none(),
        };
        if is_current {
            state.clients = None;
            state.endpoint = (state.endpoint + 1) % self.config.endpoints.len().max(1);
        }
    }

    async fn connect(&self, endpoint: usize) -> Result<Clients, RegistryError> {
        let config = &self.config;
        let Some(endpoint) = config.endpoints.get(endpoint) else {
            return Err(RegistryError::Storage("no endpoint".to_owned()));
        };
        let mut options = ConnectOptions::new()
            .with_connect_timeout(config.connect_timeout)
            .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
            .with_keep_alive_while_idle(true)
            .with_tcp_keepalive(PING_INTERVAL)
            .with_require_leader(true);
        let has_scheme = endpoint.contains("://");
        let is_tls = endpoint.starts_with("https://") || !has_scheme && config.tls.ca.is_some();
        if is_tls {
            options = options.with_tls(self.tls());
        }
        if let Some((user, password)) = &config.user {
            options = options
                .with_user(user, password)
                .with_auto_token_refresh(true);
        }
        let client = Client::connect([endpoint], Some(options))
            .await
            .map_err(translate)?;
        Ok(Clients {
            kv: client
                .kv_client()
                .max_decoding_message_size(MESSAGE_BYTES_MAX),
            lease: client.lease_client(),
            watch: client
                .watch_client()
                .max_decoding_message_size(MESSAGE_BYTES_MAX),
        })
    }

    fn tls(&self) -> TlsOptions {
        let tls = &self.config.tls;
        let mut options = TlsOptions::new();
        options = match &tls.ca {
            Some(ca) => options.ca_certificate(Certificate::from_pem(ca)),
            None => options.with_native_roots(),
        };
        if let Some((certificate, key)) = &tls.identity {
            options = options.identity(Identity::from_pem(certificate, key));
        }
        options
    }
}

/// Sorts etcd's errors by what the caller can do.
pub(super) fn translate(error: Error) -> RegistryError {
    if let Error::GRpcStatus(status) = &error {
        let message = status.message();
        if message.contains("has been compacted") {
            return RegistryError::Compacted { oldest: 0 };
        }
        if message.contains("lease not found") {
            return RegistryError::LeaseNotFound;
        }
        // etcd prefixes what it refuses for good with "etcdserver: "; its own timeouts, a missing
        // leader, a token that has run out and the transport's faults can pass.
        let passing = [
            "timed out",
            "no leader",
            "leader changed",
            "stopped",
            "too many requests",
            "invalid auth token",
            "not capable", // while a member starts
        ];
        if message.contains("etcdserver: ") && !passing.iter().any(|part| message.contains(part)) {
            return RegistryError::Storage(message.to_owned());
        }
    }
    match error {
        // Its own text repeats itself and the addresses at length.
        Error::GRpcStatus(status) => {
            RegistryError::Unavailable(format!("{}: {}", status.code(), status.message()))
        }
        Error::LeaseKeepAliveError(message) if message.contains("not found") => {
            RegistryError::LeaseNotFound
        }
        Error::InvalidArgs(_) | Error::InvalidUri(_) => RegistryError::Storage(error.to_string()),
        error => RegistryError::Unavailable(error.to_string()),
    }
}
