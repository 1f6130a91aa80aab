//! One broker: its disk, and the parts that run on it in one life.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::post::{Connections, Handle, Part, Post, Spawner, Tasks, Who};
use crate::config::{BrokerConfig, BrokerValues};
use crate::controller::{Controller, MachineConfig, Session, SessionConfig, SessionHandle};
use crate::log::tests::crash::disk::CrashDisk;
use crate::log::tests::crash::image::Image as DiskImage;
use crate::log::{Log, LogManager, LogManagerConfig, incarnation_in};
use crate::metadata::{Image, MetadataCache, Resolver, Watcher};
use crate::registry::Registry;
use crate::registry::value::EndpointValue;
use crate::replication::{
    FetcherSettings, IsrPublisher, Partition, ReplicaFetchers, Replicas, ReplicasConfig,
};
use crate::telemetry::Metrics;
use crate::time::Clock;
use crate::types::{BrokerId, TimestampMs};

/// Milliseconds of a lease.
pub(super) const TTL: u64 = 3_000;
const HEARTBEAT: Duration = Duration::from_millis(600);
const LAG_MAX: Duration = Duration::from_millis(1_500);
const BALANCE_EVERY: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(500);
const WALL_START: TimestampMs = 1_700_000_000_000;

/// The world's time, as a broker sees it.
#[derive(Debug)]
pub(super) struct SimClock {
    pub(super) start: Instant,
    pub(super) now: Arc<AtomicU64>,
    /// Of the wall clock alone, milliseconds.
    pub(super) skew: AtomicI64,
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        self.start + self.boot()
    }

    fn boot(&self) -> Duration {
        Duration::from_millis(self.now.load(Ordering::Relaxed))
    }

    fn wall_ms(&self) -> TimestampMs {
        let now = TimestampMs::try_from(self.now.load(Ordering::Relaxed)).unwrap();
        WALL_START + now + self.skew.load(Ordering::Relaxed)
    }
}

/// What is the same in all lives of a broker.
pub(super) struct Node {
    pub(super) index: usize,
    pub(super) life: u32,
    pub(super) paused_until: u64,
    /// How long its syncs take, at most.
    pub(super) sync_ms: u64,
    pub(super) clock: Arc<SimClock>,
    post: Arc<Post>,
    carriers: Arc<Spawner>,
    metrics: Arc<Metrics>,
    config: Arc<BrokerConfig>,
    /// While it is down.
    pub(super) disk: Option<DiskImage>,
    pub(super) running: Option<Running>,
}

/// A life.
pub(super) struct Running {
    disk: CrashDisk,
    pub(super) logs: Arc<LogManager>,
    pub(super) replicas: Arc<Replicas>,
    /// Once it is registered.
    pub(super) place: Arc<Mutex<Option<Place>>>,
    pub(super) tasks: Tasks,
    /// Ends all but the registration, and then that.
    pub(super) stopping: CancellationToken,
    pub(super) leaving: CancellationToken,
    /// Logs whose sync is under way.
    pub(super) syncing: Vec<Arc<Log>>,
    /// Something has happened since it was looked at.
    pub(super) touched: bool,
    /// By number, those that it has.
    pub(super) partitions: Vec<Option<Arc<Partition>>>,
}

#[derive(Clone)]
pub(super) struct Place {
    pub(super) cache: Arc<MetadataCache>,
    pub(super) session: SessionHandle,
}

impl Node {
    pub(super) fn new(
        index: usize,
        clock: SimClock,
        post: &Arc<Post>,
        carriers: &Arc<Spawner>,
        metrics: &Arc<Metrics>,
    ) -> Self {
        Self {
            index,
            life: 0,
            paused_until: 0,
            sync_ms: 3,
            clock: Arc::new(clock),
            post: Arc::clone(post),
            carriers: Arc::clone(carriers),
            metrics: Arc::clone(metrics),
            config: config(index),
            disk: Some(DiskImage::default()),
            running: None,
        }
    }

    pub(super) fn id(&self) -> BrokerId {
        BrokerId(i32::try_from(self.index).unwrap())
    }

    /// A new life, with what is on the disk.
    pub(super) fn boot(&mut self, seed: u64) {
        self.life += 1;
        let image = self.disk.take().expect("it is down");
        let disk = CrashDisk::new(image, seed, None);
        let stopped = incarnation_in(&disk, Path::new("/data"));
        let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as _;
        let logs = LogManager::open_still(
            LogManagerConfig {
                node_id: self.id().0,
                tail_cache_bytes: 0,
                initial_task_delay_ms: 1_000,
                flush_offset_checkpoint_interval_ms: 7_000,
                ..LogManagerConfig::for_tests(PathBuf::from("/data"))
            },
            Arc::clone(&clock),
            Arc::new(disk.clone()),
        );
        let logs = logs.expect("a disk that works");
        let replicas = Arc::new(Replicas::inline(
            ReplicasConfig {
                lag_time_max: LAG_MAX,
                fetch_wait_max: Duration::from_millis(200),
                ..ReplicasConfig::new(self.id())
            },
            Arc::clone(&logs),
            Arc::clone(&self.metrics),
            clock,
        ));
        logs.set_flush_listener(replicas.flush_listener());
        let tasks = Tasks::default();
        let life = Life {
            who: Who {
                node: self.index,
                life: self.life,
                part: Part::Session,
            },
            post: Arc::clone(&self.post),
            clock: Arc::clone(&self.clock) as _,
            config: Arc::clone(&self.config),
            metrics: Arc::clone(&self.metrics),
            replicas: Arc::clone(&replicas),
            connections: Arc::new(Connections {
                from: self.index,
                post: Arc::clone(&self.post),
                carriers: Arc::clone(&self.carriers),
                tasks: Arc::clone(&tasks.spawner),
            }),
            stopped,
            place: Arc::default(),
            stopping: CancellationToken::new(),
            leaving: CancellationToken::new(),
        };
        self.running = Some(Running {
            disk,
            logs,
            replicas,
            place: Arc::clone(&life.place),
            stopping: life.stopping.clone(),
            leaving: life.leaving.clone(),
            syncing: Vec::new(),
            touched: true,
            partitions: Vec::new(),
            tasks,
        });
        let tasks = &self.running.as_ref().expect("just now").tasks;
        tasks.spawner.spawn(life.begin());
    }

    /// Ends the life at once: `Some` takes what was not synced, as the seed says.
    pub(super) fn crash(&mut self, power: Option<u64>) {
        let Some(running) = self.running.take() else {
            return;
        };
        self.disk = Some(match power {
            Some(seed) => running.disk.after_power_cut(seed),
            None => running.disk.image().after_kill(),
        });
        running.disk.power_off_after(Some(0));
        self.paused_until = 0;
    }

    /// Ends the life as a stop does that is not interrupted.
    pub(super) fn close(&mut self) {
        if let Some(running) = &mut self.running {
            running.stopping.cancel();
            running.tasks.run();
            running.replicas.checkpoint_high_watermarks();
            let place = running.place.lock();
            if let Some(place) = &*place {
                running.logs.name_incarnation(place.session.incarnation());
            }
            running.logs.close();
            if let Some(place) = &*place {
                place.session.stopped_cleanly();
            }
            drop(place);
            running.leaving.cancel();
        }
    }

    pub(super) fn image(&self) -> Option<Arc<Image>> {
        let running = self.running.as_ref()?;
        let place = running.place.lock();
        Some(place.as_ref()?.cache.current())
    }

    /// As it was told; 0: it is not registered.
    pub(super) fn broker_epoch(&self) -> i64 {
        let Some(running) = &self.running else {
            return 0;
        };
        let place = running.place.lock();
        place
            .as_ref()
            .map_or(0, |place| place.session.lease().broker_epoch())
    }

    pub(super) fn partition(&self, topic: &str, index: i32) -> Option<Arc<Partition>> {
        let running = self.running.as_ref()?;
        running.replicas.partition(topic, index).ok()
    }
}

/// What begins a life.
struct Life {
    who: Who,
    post: Arc<Post>,
    clock: Arc<dyn Clock>,
    config: Arc<BrokerConfig>,
    metrics: Arc<Metrics>,
    replicas: Arc<Replicas>,
    connections: Arc<Connections>,
    place: Arc<Mutex<Option<Place>>>,
    /// What its directory says of the last stop.
    stopped: Option<String>,
    stopping: CancellationToken,
    leaving: CancellationToken,
}

impl Life {
    fn registry(&self, part: Part) -> Arc<dyn Registry> {
        Arc::new(Handle {
            who: Who { part, ..self.who },
            post: Arc::clone(&self.post),
        })
    }

    /// As `Broker::start` does.
    async fn begin(self) {
        let id = self.config.node_id;
        let resolver = Resolver::new(&self.config);
        let config = SessionConfig {
            broker: id,
            endpoints: vec![EndpointValue {
                listener: self.config.inter_broker_listener.to_string(),
                host: format!("broker-{id}"),
                port: 9092,
            }],
            rack: None,
            cluster_id: None,
            new_cluster_id: None,
            has_data: false,
            directories: Vec::new(),
            stopped_incarnation: self.stopped.clone(),
            seen: Vec::new(),
            ttl: Duration::from_millis(TTL),
            heartbeat: HEARTBEAT,
            shared: Some(resolver.clone()),
        };
        let session = loop {
            let registry = self.registry(Part::Session);
            let started = Session::start(registry, config.clone(), Arc::clone(&self.clock));
            match started.await {
                Ok(session) => break session,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        };
        let watcher = loop {
            match Watcher::load(self.registry(Part::Watcher), resolver.clone()).await {
                Ok(watcher) => break watcher,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        };
        let cache = watcher.cache();
        let handle = session.handle();
        handle.lease().keep(Arc::clone(self.replicas.lease()));
        cache.add_listener(Arc::clone(&self.replicas) as _);
        cache.add_listener(Arc::new(ReplicaFetchers::simulated(
            FetcherSettings::from(&*self.config),
            Arc::clone(&self.replicas),
            Arc::clone(&self.clock),
            Arc::clone(&self.connections) as _,
            self.stopping.clone(),
        )));
        *self.place.lock() = Some(Place {
            cache: Arc::clone(&cache),
            session: handle.clone(),
        });
        let tasks = &self.connections.tasks;
        let stop = &self.stopping;
        tasks.spawn(watcher.run(Arc::clone(&self.clock), stop.clone()));
        let machine = MachineConfig {
            broker: id,
            ttl: Duration::from_millis(TTL),
            balance_interval: Some(BALANCE_EVERY),
        };
        let registry = self.registry(Part::Controller);
        let clock = Arc::clone(&self.clock);
        let metrics = Arc::clone(&self.metrics);
        let controller = Controller::new(registry, cache, handle, clock, machine, metrics);
        tasks.spawn(controller.run(stop.clone()));
        let registry = self.registry(Part::Publisher);
        let publisher = IsrPublisher::new(Arc::clone(&self.replicas), registry);
        tasks.spawn(publisher.run(stop.clone()));
        tasks.spawn(session.run(self.leaving.clone()));
    }
}

fn config(index: usize) -> Arc<BrokerConfig> {
    let pairs = [
        ("node.id", index.to_string()),
        ("listeners", "PLAINTEXT://127.0.0.1:9092".to_owned()),
        ("log.dirs", "/data".to_owned()),
        ("replica.fetch.wait.max.ms", "200".to_owned()),
        ("replica.lag.time.max.ms", LAG_MAX.as_millis().to_string()),
        ("replica.socket.timeout.ms", "900".to_owned()),
        ("replica.fetch.backoff.ms", "300".to_owned()),
    ];
    let pairs = pairs.map(|(key, value)| (key.to_owned(), value));
    let values = BrokerValues::new(pairs.into_iter().collect());
    Arc::new(BrokerConfig::from_values(values).expect("a configuration"))
}
