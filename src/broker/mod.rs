//! The composition root: builds the parts, starts them in order, stops them in the reverse order.
//!
//! Start: listeners are bound (so that a port that is taken is known at once, and port 0 gets its
//! number), the directories locked, the registry opened, the broker registered, the image loaded, and
//! only then is anybody served. Partitions open when they are asked for.

mod dynamic;
mod lag;
mod readiness;
mod registration;
mod scrape;
mod seen;
mod service;

pub use registration::etcd_config;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{BrokerConfig, Listener, LoadedConfig, is_of_the_quorum, nearest};
use crate::controller::{Admin, Controller, SessionHandle};
use crate::coordinator::GroupCoordinator;
use crate::handlers::Context;
use crate::log::{Callers, LogManager, LogManagerConfig};
use crate::metadata::{Image, MetadataCache, Resolver, Watcher};
use crate::net::{
    BoundListener, Budgets, ConnectionLimits, FrameBuffers, MemoryBudget, NetConfig, RequestSlots,
    SocketOptions,
};
use crate::registry::Registry;
use crate::replication::{
    FetcherSettings, IsrPublisher, LogDirState, ReplicaFetchers, Replicas, ReplicasConfig,
};
use crate::telemetry::{BrokerState, Metrics, PageLimits};
use crate::time::{Clock, SystemClock};
use crate::types::BrokerId;

/// How long answers that are under way may take at a stop.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// How long the others may take to take over what this broker leads.
const HAND_OVER_PATIENCE: Duration = Duration::from_secs(30);
/// How long a broker that has handed over goes on telling clients who leads now. Who loses the connection
/// instead asks another broker, which may not have heard yet, and asks again a second later (librdkafka).
const NEW_LEADERS_TOLD: Duration = Duration::from_millis(200);
/// Newest batches kept in memory, for the whole broker.
const TAIL_CACHE_BYTES: usize = 4 << 20;
/// Answers outstanding on one connection.
const IN_FLIGHT_MAX: usize = 100;
/// Requests held at once where `queued.max.request.bytes` sets no limit: a part of the memory.
const REQUEST_MEMORY_DIVISOR: u64 = 4;

/// A running broker.
#[derive(Debug)]
pub struct Broker {
    addresses: Vec<(Listener, SocketAddr)>,
    metrics: Arc<Metrics>,
    replicas: Arc<Replicas>,
    groups: Arc<GroupCoordinator>,
    logs: Arc<LogManager>,
    registry: Arc<dyn Registry>,
    session: SessionHandle,
    metadata: Arc<MetadataCache>,
    config: Arc<BrokerConfig>,
    /// Stops taking connections and requests.
    closing: CancellationToken,
    connections: TaskTracker,
    /// Stops everything else.
    stopping: CancellationToken,
    background: TaskTracker,
    /// Gives up the place in the cluster, last.
    leaving: CancellationToken,
    membership: TaskTracker,
}

impl Broker {
    /// Starts and serves. The error says what is in the way, in words for an operator.
    pub async fn start(loaded: LoadedConfig) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let metrics = Arc::new(Metrics::new());
        metrics.set_state(BrokerState::Starting);
        report(&loaded);
        let mut config = loaded.config;
        let bound = bind(&mut config)?;
        let config = Arc::new(config);
        let metrics_listeners = bind_metrics(&config).await?;

        let claimed = LogManager::claim(&config.log_dirs)?;
        let (registry, session) =
            registration::register(&config, &claimed, &clock, &metrics.registry).await?;
        // Side by side: of many partitions each of them takes its time.
        let loading = Watcher::load(Arc::clone(&registry), Resolver::new(&config));
        let loading = tokio::spawn(loading);
        let logs = LogManager::open_claimed(
            log_config(&config, session.cluster_id()),
            claimed,
            Arc::clone(&clock),
        )?;
        logs.name_incarnation(session.handle().incarnation());
        let watcher = loading.await.context("read the registry")?;
        let watcher = watcher.context("read the registry")?;
        session.remove_orphans(&watcher.unattached_topics()).await?;
        let metadata = watcher.cache();
        let admin = Admin::new(
            Arc::clone(&registry),
            Arc::clone(&metadata),
            Arc::clone(&config),
            session.producer_ids(),
        );
        let admin = Arc::new(admin.under(session.handle().lease()));
        let memory = (!config.etcd_endpoints.is_empty())
            .then(|| seen::Memory::new(&session, Arc::clone(&metadata), Arc::clone(&logs)));
        let replicas = Arc::new(Replicas::new(
            ReplicasConfig::from(&*config),
            Arc::clone(&logs),
            Arc::clone(&metrics),
            Arc::clone(&clock),
        ));
        session.handle().lease().keep(Arc::clone(replicas.lease()));
        logs.set_flush_listener(replicas.flush_listener());
        append_on_runtime_threads(&logs, &clock).context("start to watch appends")?;
        metadata.add_listener(Arc::clone(&replicas) as _);
        let (background, stopping) = (TaskTracker::new(), CancellationToken::new());
        let images = Arc::clone(&metadata);
        replicas.remove_strays(move || images.current());
        replicas.miss_dead_directories();
        let at_a_time = usize::try_from(config.num_recovery_threads_per_data_dir).unwrap_or(1);
        replicas.recover_in_background(at_a_time);
        if let Ok(ms @ 1..) = u64::try_from(config.log_scrub_interval_ms) {
            logs.start_scrub(Duration::from_millis(ms))
                .context("start to scrub the log directories")?;
        }
        metadata.add_listener(Arc::new(ReplicaFetchers::new(
            FetcherSettings::from(&*config),
            Arc::clone(&replicas),
            Arc::clone(&clock),
            background.clone(),
            stopping.clone(),
        )));
        let groups = Arc::new(GroupCoordinator::new(
            &config,
            Arc::clone(&metadata),
            Arc::clone(&replicas),
            Arc::clone(&clock),
        ));
        metadata.add_listener(Arc::clone(&groups) as _);
        let limits = Arc::new(ConnectionLimits::new(dynamic::limits(&config)));
        metadata.add_listener(Arc::new(dynamic::DynamicConfig::new(
            Arc::clone(&config),
            Arc::clone(&limits),
            Arc::clone(&logs),
        )));
        let context = Arc::new(Context {
            config: Arc::clone(&config),
            metadata: Arc::clone(&metadata),
            replicas: Arc::clone(&replicas),
            groups: Arc::clone(&groups),
            admin,
            metrics: Arc::clone(&metrics),
            clock: Arc::clone(&clock),
        });

        let broker = Self {
            addresses: bound
                .iter()
                .map(|(listener, bound)| (listener.clone(), bound.address))
                .collect(),
            metrics: Arc::clone(&metrics),
            replicas,
            groups,
            logs,
            registry: Arc::clone(&registry),
            session: session.handle(),
            metadata: Arc::clone(&metadata),
            config: Arc::clone(&config),
            closing: CancellationToken::new(),
            connections: TaskTracker::new(),
            stopping,
            background,
            leaving: CancellationToken::new(),
            membership: TaskTracker::new(),
        };
        broker
            .background
            .spawn(watcher.run(Arc::clone(&clock), broker.stopping.clone()));
        let controller = Controller::new(
            registry,
            Arc::clone(&metadata),
            session.handle(),
            clock,
            registration::machine_config(&config),
            Arc::clone(&metrics),
        );
        broker
            .background
            .spawn(controller.run(broker.stopping.clone()));
        let publisher =
            IsrPublisher::new(Arc::clone(&broker.replicas), Arc::clone(&broker.registry));
        broker
            .background
            .spawn(publisher.run(broker.stopping.clone()));
        if let Some(memory) = memory {
            broker.background.spawn(memory.run(broker.stopping.clone()));
        }
        broker.membership.spawn(session.run(broker.leaving.clone()));
        let shown_at = broker.serve_metrics(metrics_listeners, &context);
        broker.serve(bound, &config, &limits, context);
        metrics.set_state(BrokerState::Running);
        broker.announce(&config, &metadata, &shown_at);
        Ok(broker)
    }

    fn serve(
        &self,
        bound: Vec<(Listener, BoundListener)>,
        config: &BrokerConfig,
        limits: &Arc<ConnectionLimits>,
        context: Arc<Context>,
    ) {
        let net = NetConfig {
            request_bytes_max: usize::try_from(config.socket_request_max_bytes).unwrap_or(0),
            idle_max: Duration::from_millis(config.connections_max_idle_ms.unsigned_abs()),
            in_flight_max: IN_FLIGHT_MAX,
        };
        let budgets = Budgets {
            memory: MemoryBudget::new(request_memory(config)),
            requests: RequestSlots::new(usize::try_from(config.queued_max_requests).unwrap_or(1)),
            frames: FrameBuffers::default(),
        };
        let names = bound.iter().map(|(listener, _)| &listener.name);
        let service = Arc::new(service::KafkaService::new(context, names));
        for (_, listener) in bound {
            self.background.spawn(listener.serve(
                Arc::clone(&service) as _,
                net,
                Arc::clone(limits),
                budgets.clone(),
                self.connections.clone(),
                self.closing.clone(),
            ));
        }
    }

    /// Returns where that is.
    fn serve_metrics(
        &self,
        listeners: Vec<tokio::net::TcpListener>,
        context: &Arc<Context>,
    ) -> Vec<String> {
        let addresses = listeners.iter().filter_map(|one| one.local_addr().ok());
        let addresses = addresses.map(|address| format!("http://{address}"));
        let addresses = addresses.collect();
        let lease = self.session.lease();
        let (tasks, stop) = (self.background.clone(), self.stopping.clone());
        let lags = lag::Lags::new(Arc::clone(context), tasks, stop);
        let source = Arc::new(scrape::Source::new(Arc::clone(context), lease, lags));
        for listener in listeners {
            let pages = crate::telemetry::http::Pages {
                metrics: Arc::clone(&self.metrics),
                source: Arc::clone(&source) as _,
                clock: Arc::clone(&context.clock),
                limits: PageLimits {
                    series: usize::try_from(context.config.metrics_series_max).unwrap_or(0),
                    bytes: usize::try_from(context.config.metrics_page_bytes_max).unwrap_or(0),
                },
            };
            let stopping = self.stopping.clone();
            self.background.spawn(async move {
                crate::telemetry::http::serve(listener, pages, stopping.cancelled()).await;
            });
        }
        addresses
    }

    fn announce(&self, config: &BrokerConfig, metadata: &MetadataCache, metrics: &[String]) {
        let image = metadata.current();
        let listeners: Vec<String> = self
            .addresses
            .iter()
            .map(|(listener, address)| format!("{}://{address}", listener.name))
            .collect();
        tracing::info!(
            node_id = config.node_id.0,
            cluster_id = %image.cluster_id,
            listeners = listeners.join(","),
            metrics = metrics.join(","),
            log_dirs = ?config.log_dirs,
            topics = image.topics.len(),
            "serving"
        );
    }

    /// Resolves when every log directory has failed: there is nothing left to serve, and Kafka's broker
    /// ends itself then too.
    pub async fn failed(&self) {
        self.replicas.all_offline().await;
    }

    /// Kafka's controlled shutdown: the controller moves what this broker leads to others and takes it out
    /// of the ISRs, while it goes on serving.
    async fn hand_over(&self) {
        let me = self.config.node_id;
        let others = |image: &Image| {
            let mut brokers = image.brokers.values();
            brokers.any(|broker| broker.id != me && !broker.shutting_down)
        };
        let image = self.metadata.current();
        if !others(&image) || !self.config.controlled_shutdown_enable {
            return;
        }
        let had_places = holds_a_place(&image, me);
        if let Err(error) = self.session.announce_shutdown().await {
            tracing::warn!(%error, "stopping without handing over: the registry does not answer");
            return;
        }
        let handed_over = async {
            loop {
                let image = self.metadata.current();
                if !holds_a_place(&image, me) || !others(&image) {
                    break;
                }
                self.metadata.changed_since(image.revision).await;
            }
        };
        let handed_over = tokio::time::timeout(HAND_OVER_PATIENCE, handed_over);
        match handed_over.await {
            Ok(()) => {
                tracing::info!("everything that this broker led is handed over");
                if had_places {
                    tokio::time::sleep(NEW_LEADERS_TOLD).await;
                }
            }
            Err(_) => tracing::warn!("stopping though not everything was handed over in time"),
        }
    }

    /// Refuses new work, answers what is in flight, flushes and writes the checkpoints.
    pub async fn stop(self) {
        tracing::info!("stopping");
        self.metrics
            .set_state(BrokerState::PendingControlledShutdown);
        self.hand_over().await;
        self.closing.cancel();
        self.replicas.release_waiting_fetches();
        self.connections.close();
        let quiet = async {
            self.groups.shutdown().await;
            self.connections.wait().await;
        };
        if tokio::time::timeout(STOP_PATIENCE, quiet).await.is_err() {
            tracing::warn!("some connections were cut off");
        }
        self.metrics.set_state(BrokerState::ShuttingDown);
        self.stopping.cancel();
        self.background.close();
        if tokio::time::timeout(STOP_PATIENCE, self.background.wait())
            .await
            .is_err()
        {
            tracing::warn!("some background work was cut off");
        }
        self.replicas.checkpoint_high_watermarks();
        self.logs.close();
        let dead = |(_, state): &(_, LogDirState)| *state == LogDirState::Offline;
        if !self.replicas.log_dir_states().iter().any(dead) {
            self.session.stopped_cleanly();
        }
        self.leaving.cancel();
        self.membership.close();
        if tokio::time::timeout(STOP_PATIENCE, self.membership.wait())
            .await
            .is_err()
        {
            tracing::warn!("the registry was not told of the stop");
        }
        if let Err(error) = self.registry.close().await {
            tracing::warn!(%error, "the registry was not closed");
        }
        self.metrics.set_state(BrokerState::NotRunning);
        tracing::info!("stopped");
    }
}

/// Whether a broker leads anything, or is in sync with anything.
fn holds_a_place(image: &Image, id: BrokerId) -> bool {
    let partitions = image.topics.values().flat_map(|topic| &topic.partitions);
    let mut held =
        partitions.filter(|partition| partition.leader == Some(id) || partition.isr.contains(&id));
    held.next().is_some()
}

/// One line for each kind of thing in the configuration that has no effect.
fn report(loaded: &LoadedConfig) {
    if !loaded.unknown.is_empty() {
        let meant = |key: &String| match nearest(key) {
            Some(known) => format!("{key} (is {known} meant?)"),
            None => key.clone(),
        };
        let keys: Vec<String> = loaded.unknown.iter().map(meant).collect();
        tracing::warn!(keys = keys.join(", "), "unknown configuration keys");
    }
    let statics = loaded.config.values.statics().keys();
    let quorum: Vec<&str> = statics
        .map(String::as_str)
        .filter(|key| is_of_the_quorum(key))
        .collect();
    if !quorum.is_empty() {
        tracing::info!(
            keys = quorum.join(", "),
            "keys of Kafka's quorum have no effect: the registry is in its place"
        );
    }
    let ignored = loaded.ignored.iter().map(String::as_str);
    let ignored: Vec<&str> = ignored.filter(|key| !is_of_the_quorum(key)).collect();
    if !ignored.is_empty() {
        tracing::warn!(
            keys = ignored.join(", "),
            "configuration keys that have no use here"
        );
    }
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
}

/// Binds the listeners; where a port is 0 the one that was given is advertised.
fn bind(config: &mut BrokerConfig) -> anyhow::Result<Vec<(Listener, BoundListener)>> {
    let explicit = |key, value| config.values.explicit(key).map_or(-1, |_| value);
    let options = SocketOptions {
        send_buffer_bytes: explicit("socket.send.buffer.bytes", config.socket_send_buffer_bytes),
        receive_buffer_bytes: explicit(
            "socket.receive.buffer.bytes",
            config.socket_receive_buffer_bytes,
        ),
        backlog: config.socket_listen_backlog_size,
    };
    let mut all = Vec::with_capacity(config.listeners.len());
    for listener in &mut config.listeners {
        let bound = crate::net::bind(&listener.name, &listener.host, listener.port, options)
            .with_context(|| {
                let Listener {
                    name, host, port, ..
                } = &*listener;
                format!("listeners={name}://{host}:{port}: cannot bind; choose a free address")
            })?;
        if listener.advertised_port == 0 {
            listener.advertised_port = bound.address.port();
        }
        all.push((listener.clone(), bound));
    }
    Ok(all)
}

/// A port that was asked for must be free; the default one may be taken by another broker.
async fn bind_metrics(config: &BrokerConfig) -> anyhow::Result<Vec<tokio::net::TcpListener>> {
    let mut bound = Vec::new();
    for address in &config.metrics_listeners {
        let host = if address.host.is_empty() {
            "0.0.0.0"
        } else {
            &address.host
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match tokio::net::TcpListener::bind((host, address.port)).await {
            Ok(listener) => bound.push(listener),
            Err(error) if config.metrics_listeners_configured => {
                return Err(error).with_context(|| {
                    let port = address.port;
                    format!("metrics.listeners={host}:{port}: cannot bind; choose a free address")
                });
            }
            Err(error) => {
                tracing::warn!(host, port = address.port, %error, "no metrics: cannot bind");
            }
        }
    }
    Ok(bound)
}

fn log_config(config: &BrokerConfig, cluster_id: &str) -> LogManagerConfig {
    LogManagerConfig {
        directories: config.log_dirs.clone(),
        cluster_id: cluster_id.to_owned(),
        node_id: config.node_id.0,
        tail_cache_bytes: TAIL_CACHE_BYTES,
        initial_task_delay_ms: config.log_initial_task_delay_ms,
        flush_offset_checkpoint_interval_ms: i64::from(
            config.log_flush_offset_checkpoint_interval_ms,
        ),
        flush_start_offset_checkpoint_interval_ms: i64::from(
            config.log_flush_start_offset_checkpoint_interval_ms,
        ),
        high_watermark_checkpoint_interval_ms: config.replica_high_watermark_checkpoint_interval_ms,
        flush_scheduler_interval_ms: config.log_flush_scheduler_interval_ms,
        retention_check_interval_ms: config.log_retention_check_interval_ms,
        producer_id_expiration_ms: i64::from(config.producer_id_expiration_ms),
        producer_id_expiration_check_interval_ms: i64::from(
            config.producer_id_expiration_check_interval_ms,
        ),
        reserved_bytes: u64::try_from(config.log_dir_reserved_bytes).unwrap_or(0),
        recovery_threads: usize::try_from(config.num_recovery_threads_per_data_dir).unwrap_or(1),
    }
}

/// Threads of the runtime may append as long as there is another one that looks after what they leave.
fn append_on_runtime_threads(logs: &LogManager, clock: &Arc<dyn Clock>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Handle::current();
    if runtime.metrics().num_workers() < 2 {
        return Ok(());
    }
    let send_stand_in = move || drop(runtime.spawn(std::future::ready(())));
    let callers = Callers::new(Arc::clone(clock), send_stand_in)?;
    logs.use_callers(&Arc::new(callers));
    Ok(())
}

/// `queued.max.request.bytes`, or a part of the machine's memory.
fn request_memory(config: &BrokerConfig) -> usize {
    if let Ok(bytes @ 1..) = usize::try_from(config.queued_max_request_bytes) {
        return bytes;
    }
    let total = std::fs::read_to_string(Path::new("/proc/meminfo"))
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        });
    let bytes = total.unwrap_or(4 << 20) * 1024 / REQUEST_MEMORY_DIVISOR;
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
