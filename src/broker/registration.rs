//! The way into the cluster: the registry is reached, and this broker takes its place in it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::config::BrokerConfig;
use crate::controller::{MachineConfig, Session, SessionConfig, SessionError};
use crate::log::{
    ClaimedDirectory, cluster_id_of, directory_ids, has_partitions, stopped_incarnation,
};
use crate::metadata::Resolver;
use crate::registry::value::EndpointValue;
use crate::registry::{Counted, Embedded, Etcd, EtcdConfig, Registry, RegistryError};
use crate::telemetry::RegistryTraffic;
use crate::time::Clock;

/// Pause between two attempts to register.
const RETRY: Duration = Duration::from_millis(500);
/// Of the embedded registry's lease: nobody else looks at it.
const EMBEDDED_TTL: Duration = Duration::from_secs(3600);

/// Opens the registry and registers. An etcd that does not answer is asked again until
/// `initial.broker.registration.timeout.ms` is over.
pub(super) async fn register(
    config: &BrokerConfig,
    directories: &[ClaimedDirectory],
    clock: &Arc<dyn Clock>,
    traffic: &Arc<RegistryTraffic>,
) -> anyhow::Result<(Arc<dyn Registry>, Session)> {
    let mut session_config = session_config(config, new_cluster_id(config, directories)?);
    let counted = |registry: Arc<dyn Registry>| -> Arc<dyn Registry> {
        let (traffic, clock) = (Arc::clone(traffic), Arc::clone(clock));
        Arc::new(Counted::new(registry, traffic, clock))
    };
    if config.etcd_endpoints.is_empty() {
        let registry = counted(open_embedded(config, clock).await?);
        let clock = Arc::clone(clock);
        let session = Session::start(Arc::clone(&registry), session_config, clock).await;
        return Ok((registry, session.context("register this broker")?));
    }
    let etcd = etcd_config(config)?;
    session_config.has_data = has_partitions(directories);
    session_config.directories = directory_ids(directories);
    session_config.stopped_incarnation = stopped_incarnation(directories);
    session_config.seen = super::seen::remembered(directories);
    let patience = Duration::from_millis(u64::from(
        config.initial_broker_registration_timeout_ms.unsigned_abs(),
    ));
    let deadline = clock.now() + patience;
    let mut told = false;
    loop {
        let attempt = register_in_etcd(&etcd, &session_config, clock, counted);
        let error = match tokio::time::timeout_at(deadline.into(), attempt).await {
            Ok(Ok(registered)) => return Ok(registered),
            Ok(Err(SessionError::Registry(error @ RegistryError::Unavailable(_)))) => error,
            Ok(Err(error)) => return Err(error).context("register this broker"),
            Err(_) => RegistryError::Unavailable("no answer in time".to_owned()),
        };
        let endpoints = config.etcd_endpoints.join(",");
        if is_over(deadline, clock.as_ref()) {
            return Err(error).with_context(|| {
                format!(
                    "etcd.endpoints={endpoints}: could not register within \
                     initial.broker.registration.timeout.ms={}; see that etcd runs there",
                    patience.as_millis()
                )
            });
        }
        if !std::mem::replace(&mut told, true) {
            tracing::warn!(etcd = endpoints, %error, "cannot register yet; trying again");
        }
        tokio::time::sleep(RETRY).await;
    }
}

fn is_over(deadline: Instant, clock: &dyn Clock) -> bool {
    clock.now() + RETRY >= deadline
}

/// Where the registry is, with the certificates that it needs.
pub fn etcd_config(config: &BrokerConfig) -> anyhow::Result<EtcdConfig> {
    let read = |key: &str, path: &Option<PathBuf>| {
        let Some(path) = path else { return Ok(None) };
        let bytes = std::fs::read(path).with_context(|| {
            format!("{key}={}: cannot be read; name a PEM file", path.display())
        })?;
        anyhow::Ok(Some(bytes))
    };
    let mut etcd = EtcdConfig::new(config.etcd_endpoints.clone(), config.etcd_prefix.clone());
    etcd.user = config.etcd_user.clone().zip(config.etcd_password.clone());
    etcd.tls.ca = read("etcd.tls.ca.file", &config.etcd_tls_ca_file)?;
    let certificate = read(
        "etcd.tls.certificate.file",
        &config.etcd_tls_certificate_file,
    )?;
    let key = read("etcd.tls.key.file", &config.etcd_tls_key_file)?;
    etcd.tls.identity = certificate.zip(key);
    Ok(etcd)
}

async fn register_in_etcd(
    etcd: &EtcdConfig,
    session_config: &SessionConfig,
    clock: &Arc<dyn Clock>,
    counted: impl Fn(Arc<dyn Registry>) -> Arc<dyn Registry>,
) -> Result<(Arc<dyn Registry>, Session), SessionError> {
    let registry = counted(Arc::new(Etcd::connect(etcd).await?));
    let session = Session::start(
        Arc::clone(&registry),
        session_config.clone(),
        Arc::clone(clock),
    )
    .await?;
    Ok((registry, session))
}

async fn open_embedded(
    config: &BrokerConfig,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Arc<dyn Registry>> {
    let directory = config
        .log_dirs
        .first()
        .context("log.dirs names no directory")?;
    let path = directory.join("registry.redb");
    let registry = Embedded::open(path, Arc::clone(clock))
        .await
        .with_context(|| format!("log.dirs={}: open the registry", directory.display()))?;
    Ok(Arc::new(registry))
}

/// How the controller's machine works on this broker.
pub(super) fn machine_config(config: &BrokerConfig) -> MachineConfig {
    let seconds = config
        .leader_imbalance_check_interval_seconds
        .max(1)
        .unsigned_abs();
    MachineConfig {
        broker: config.node_id,
        ttl: session_times(config).0,
        balance_interval: config
            .auto_leader_rebalance_enable
            .then(|| Duration::from_secs(seconds)),
    }
}

/// What a registry that is new is to call the cluster: what the data says. Known before anything is
/// written, so that a wrong `cluster.id` leaves no trace.
fn new_cluster_id(
    config: &BrokerConfig,
    directories: &[ClaimedDirectory],
) -> anyhow::Result<Option<String>> {
    let found = cluster_id_of(directories);
    if let (Some(configured), Some((path, found))) = (&config.cluster_id, &found)
        && configured != found
    {
        anyhow::bail!(
            "cluster.id={configured}: the data in {} belongs to the cluster {found}; give that id, or \
             this broker a directory of its own",
            path.display()
        );
    }
    Ok(found.map(|(_, id)| id))
}

fn session_config(config: &BrokerConfig, new_cluster_id: Option<String>) -> SessionConfig {
    let endpoints = config.listeners.iter().map(|listener| EndpointValue {
        listener: listener.name.to_string(),
        host: listener.advertised_host.clone(),
        port: listener.advertised_port,
    });
    let is_embedded = config.etcd_endpoints.is_empty();
    let (ttl, heartbeat) = session_times(config);
    SessionConfig {
        broker: config.node_id,
        endpoints: endpoints.collect(),
        rack: config.rack.clone(),
        cluster_id: config.cluster_id.clone(),
        new_cluster_id,
        has_data: false,
        directories: Vec::new(),
        ttl,
        heartbeat,
        shared: (!is_embedded).then(|| Resolver::new(config)),
        stopped_incarnation: None,
        seen: Vec::new(),
    }
}

/// So long after a lease has ended others may lead what its broker led: etcd looks for ended leases twice a
/// second, and what follows takes a quarter. The lease ends earlier by that, so that all is over when the session
/// is, and in whole seconds, as etcd has them. A short one does not: a broker must be able to miss a heartbeat
/// or two.
const NOTICED_AFTER: Duration = Duration::from_secs(1);
const SHORTENED_MIN: Duration = Duration::from_secs(5);

/// A lease's time, and how often it is renewed.
fn session_times(config: &BrokerConfig) -> (Duration, Duration) {
    if config.etcd_endpoints.is_empty() {
        return (EMBEDDED_TTL, EMBEDDED_TTL / 3);
    }
    let ms = |value: i32| Duration::from_millis(u64::from(value.max(1).unsigned_abs()));
    let session = ms(config.broker_session_timeout_ms);
    let shortened = Duration::from_secs(session.saturating_sub(NOTICED_AFTER).as_secs());
    let ttl = session.min(shortened.max(SHORTENED_MIN));
    // A heartbeat that is lost must not be the end.
    (ttl, ms(config.broker_heartbeat_interval_ms).min(ttl / 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_so_early_that_all_is_over_with_the_session() {
        let mut config = BrokerConfig::for_tests("/data");
        let mut times = |session_ms, heartbeat_ms, etcd: &[&str]| {
            config.etcd_endpoints = etcd.iter().map(|&url| url.to_owned()).collect();
            config.broker_session_timeout_ms = session_ms;
            config.broker_heartbeat_interval_ms = heartbeat_ms;
            let (ttl, heartbeat) = session_times(&config);
            (ttl.as_millis(), heartbeat.as_millis())
        };
        let etcd = &["http://127.0.0.1:2379"];
        assert_eq!(times(9_000, 2_000, etcd), (8_000, 2_000));
        assert_eq!(times(7_500, 2_000, etcd), (6_000, 2_000));
        assert_eq!(times(6_000, 2_000, etcd), (5_000, 1_666));
        assert_eq!(times(5_500, 2_000, etcd), (5_000, 1_666));
        assert_eq!(times(3_000, 2_000, etcd), (3_000, 1_000));
        assert_eq!(times(3_000, 500, etcd), (3_000, 500));
        assert_eq!(times(9_000, 2_000, &[]), (3_600_000, 1_200_000));
    }
}
