//! The log: `tracing` events as text lines, or as JSON.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use parking_lot::Mutex;
use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

/// Which events are written: `RUST_LOG` as it is, or else what Kafka's image takes
/// (`KAFKA_LOG4J_ROOT_LOGLEVEL` and `KAFKA_LOG4J_LOGGERS`), or else INFO.
pub fn filter(variable: impl Fn(&str) -> Option<String>) -> Targets {
    if let Some(targets) = variable("RUST_LOG").and_then(|text| text.parse().ok()) {
        return targets;
    }
    let root = variable("KAFKA_LOG4J_ROOT_LOGLEVEL").and_then(|level| log4j_level(&level));
    let mut targets = Targets::new().with_default(
        root.unwrap_or(Some(Level::INFO))
            .map_or(LevelFilter::OFF, LevelFilter::from_level),
    );
    let loggers = variable("KAFKA_LOG4J_LOGGERS").unwrap_or_default();
    for logger in loggers.split(',') {
        let Some((name, level)) = logger.split_once('=') else {
            continue;
        };
        if let (Some(target), Some(Some(level))) = (target_of(name.trim()), log4j_level(level)) {
            targets = targets.with_target(target, level);
        }
    }
    targets
}

/// Our modules behind Kafka's loggers; others are not known.
fn target_of(logger: &str) -> Option<&'static str> {
    let found = LOGGERS.iter().find(|(name, _)| *name == logger);
    found.map(|(_, target)| *target)
}

/// `Some(None)` is OFF; `None` is no level at all.
fn log4j_level(text: &str) -> Option<Option<Level>> {
    Some(match text.trim().to_ascii_uppercase().as_str() {
        "OFF" => None,
        "FATAL" | "ERROR" => Some(Level::ERROR),
        "WARN" => Some(Level::WARN),
        "INFO" => Some(Level::INFO),
        "DEBUG" => Some(Level::DEBUG),
        "TRACE" | "ALL" => Some(Level::TRACE),
        _ => return None,
    })
}

/// Kafka's loggers that stand for a part of this broker, with that part: those of its own logging configuration,
/// of this version and of earlier ones, and the classes that are most asked about. `root` stands for the rest.
const LOGGERS: [(&str, &str); 31] = [
    ("kafka", "ottla"),
    ("kafka.authorizer.logger", "ottla::security"),
    ("kafka.cluster.Partition", "ottla::replication"),
    ("kafka.controller", "ottla::controller"),
    ("kafka.coordinator", "ottla::coordinator"),
    ("kafka.coordinator.group", "ottla::coordinator"),
    ("kafka.log", "ottla::log"),
    ("kafka.log.LogCleaner", "ottla::log"),
    ("kafka.network", "ottla::net"),
    ("kafka.network.Processor", "ottla::net"),
    ("kafka.network.RequestChannel$", "ottla::net"),
    ("kafka.network.SocketServer", "ottla::net"),
    ("kafka.request.logger", "ottla::handlers"),
    ("kafka.server", "ottla"),
    ("kafka.server.BrokerServer", "ottla::broker"),
    ("kafka.server.KafkaApis", "ottla::handlers"),
    (
        "kafka.server.ReplicaFetcherManager",
        "ottla::replication::fetcher",
    ),
    ("kafka.server.ReplicaManager", "ottla::replication"),
    ("org.apache.kafka", "ottla"),
    ("org.apache.kafka.controller", "ottla::controller"),
    (
        "org.apache.kafka.controller.QuorumController",
        "ottla::controller",
    ),
    ("org.apache.kafka.coordinator.group", "ottla::coordinator"),
    (
        "org.apache.kafka.coordinator.group.GroupCoordinatorService",
        "ottla::coordinator",
    ),
    (
        "org.apache.kafka.coordinator.group.GroupMetadataManager",
        "ottla::coordinator",
    ),
    (
        "org.apache.kafka.image.loader.MetadataLoader",
        "ottla::metadata",
    ),
    (
        "org.apache.kafka.server.BrokerLifecycleManager",
        "ottla::controller::session",
    ),
    ("org.apache.kafka.storage.internals.log", "ottla::log"),
    (
        "org.apache.kafka.storage.internals.log.LogCleaner",
        "ottla::log",
    ),
    (
        "org.apache.kafka.storage.internals.log.LogManager",
        "ottla::log",
    ),
    (
        "org.apache.kafka.storage.internals.log.UnifiedLog",
        "ottla::log",
    ),
    ("state.change.logger", "ottla::replication"),
];
/// The logger that all others fall back to.
pub const ROOT: &str = "root";

/// The filter in use, where [`init`] installed one.
static CONTROL: OnceLock<Control> = OnceLock::new();

#[derive(Debug)]
struct Control {
    handle: reload::Handle<Targets, Registry>,
    filter: Mutex<Targets>,
    /// Targets (or the root) that were set to FATAL, which is ERROR here.
    fatal: Mutex<BTreeSet<&'static str>>,
}

/// The level of every logger that can be changed, as Kafka writes levels, sorted by name.
pub fn levels() -> Vec<(&'static str, &'static str)> {
    let filter = CONTROL.get().map_or_else(
        || Targets::new().with_default(Level::INFO),
        |control| control.filter.lock().clone(),
    );
    let fatal = CONTROL
        .get()
        .map(|control| control.fatal.lock().clone())
        .unwrap_or_default();
    let level = |target: &str| {
        let level = [
            (Level::TRACE, "TRACE"),
            (Level::DEBUG, "DEBUG"),
            (Level::INFO, "INFO"),
            (Level::WARN, "WARN"),
            (Level::ERROR, "ERROR"),
        ];
        let enabled = level
            .iter()
            .find(|(level, _)| filter.would_enable(target, level));
        match enabled {
            Some((Level::ERROR, _)) if fatal.contains(target) => "FATAL",
            enabled => enabled.map_or("OFF", |(_, name)| *name),
        }
    };
    let mut levels: Vec<_> = LOGGERS
        .iter()
        .map(|(logger, target)| (*logger, level(target)))
        .chain([(ROOT, level(ROOT))])
        .collect();
    levels.sort_unstable();
    levels
}

/// Why the level of a logger stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LevelError {
    UnknownLogger,
    UnknownLevel,
    /// The root has nothing to fall back to.
    RootNeedsLevel,
}

/// Checks that `logger` can get `level`; `None` gives it that of the root.
pub fn check_level(logger: &str, level: Option<&str>) -> Result<(), LevelError> {
    let is_level =
        |text: &str| ["DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN"].contains(&text);
    if logger != ROOT && target_of(logger).is_none() {
        return Err(LevelError::UnknownLogger);
    }
    match level {
        Some(text) if !is_level(text) => Err(LevelError::UnknownLevel),
        None if logger == ROOT => Err(LevelError::RootNeedsLevel),
        _ => Ok(()),
    }
}

/// Gives `logger` another level, until the broker stops.
pub fn set_level(logger: &str, level: Option<&str>) -> Result<(), LevelError> {
    check_level(logger, level)?;
    let Some(control) = CONTROL.get() else {
        return Ok(());
    };
    let mut filter = control.filter.lock();
    *filter = changed(&filter, logger, level);
    let target = target_of(logger).unwrap_or(ROOT);
    match level {
        Some("FATAL") => control.fatal.lock().insert(target),
        _ => control.fatal.lock().remove(target),
    };
    // Fails only where the subscriber is gone, with the process.
    let _ = control.handle.reload(filter.clone());
    Ok(())
}

/// `filter` with another level for `logger`.
fn changed(filter: &Targets, logger: &str, level: Option<&str>) -> Targets {
    let level = level.and_then(log4j_level).flatten();
    let level_filter = level.map_or(LevelFilter::OFF, LevelFilter::from_level);
    if logger == ROOT {
        let targets = filter
            .iter()
            .map(|(target, level)| (target.to_string(), level));
        return Targets::new()
            .with_targets(targets.collect::<Vec<_>>())
            .with_default(level_filter);
    }
    let target = target_of(logger).unwrap_or("ottla");
    let others = filter
        .iter()
        .filter(|(other, _)| *other != target)
        .map(|(target, level)| (target.to_string(), level))
        .collect::<Vec<_>>();
    let kept = Targets::new()
        .with_targets(others)
        .with_default(filter.default_level().unwrap_or(LevelFilter::OFF));
    match level {
        Some(_) => kept.with_target(target, level_filter),
        None => kept,
    }
}

/// Installs the log, on standard error: human lines, or JSON lines with `OTTLA_LOG_FORMAT=json`.
/// The second call of a process has no effect.
pub fn init(variable: impl Fn(&str) -> Option<String>) {
    let filter = filter(&variable);
    let (layer, handle) = reload::Layer::new(filter.clone());
    let registry = tracing_subscriber::registry().with(layer);
    let json = variable("OTTLA_LOG_FORMAT").is_some_and(|format| format == "json");
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    // A test, or a program around the library, may have a subscriber already.
    let installed = match json {
        true => registry.with(lines.json()).try_init(),
        false => {
            let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
            registry.with(lines.with_ansi(ansi)).try_init()
        }
    };
    if installed.is_ok() {
        let filter = Mutex::new(filter);
        let fatal = Mutex::default();
        let _ = CONTROL.set(Control {
            handle,
            filter,
            fatal,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Targets {
        filter(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| value.to_string())
        })
    }

    #[test]
    fn levels_come_from_rust_log_or_else_from_kafkas_variables() {
        let info = with(&[]);
        assert!(info.would_enable("ottla::net", &Level::INFO));
        assert!(!info.would_enable("ottla::net", &Level::DEBUG));
        let kafka = with(&[
            ("KAFKA_LOG4J_ROOT_LOGLEVEL", "ERROR"),
            (
                "KAFKA_LOG4J_LOGGERS",
                "kafka.controller=DEBUG,kafka.log.LogCleaner=WARN,com.example=TRACE,",
            ),
        ]);
        assert!(!kafka.would_enable("ottla::net", &Level::WARN));
        assert!(kafka.would_enable("ottla::controller::task", &Level::DEBUG));
        assert!(kafka.would_enable("ottla::log", &Level::WARN));
        assert!(!kafka.would_enable("com.example", &Level::WARN));
        let off = with(&[("KAFKA_LOG4J_ROOT_LOGLEVEL", "OFF")]);
        assert!(!off.would_enable("ottla", &Level::ERROR));
        let rust = with(&[
            ("RUST_LOG", "warn,ottla::log=trace"),
            ("KAFKA_LOG4J_ROOT_LOGLEVEL", "OFF"),
        ]);
        assert!(rust.would_enable("ottla::log", &Level::TRACE));
        assert!(!rust.would_enable("ottla::net", &Level::INFO));
    }

    #[test]
    fn a_logger_gets_a_level_and_loses_it_again() {
        let quiet = with(&[("KAFKA_LOG4J_ROOT_LOGLEVEL", "WARN")]);
        let loud = changed(&quiet, "kafka.log", Some("TRACE"));
        assert!(loud.would_enable("ottla::log::cleaner", &Level::TRACE));
        assert!(!loud.would_enable("ottla::net", &Level::INFO));
        let root = changed(&loud, ROOT, Some("INFO"));
        assert!(root.would_enable("ottla::log", &Level::TRACE));
        assert!(root.would_enable("ottla::net", &Level::INFO));
        let back = changed(&root, "kafka.log", None);
        assert!(!back.would_enable("ottla::log", &Level::DEBUG));
        assert_eq!(
            check_level("x.y", Some("INFO")),
            Err(LevelError::UnknownLogger)
        );
        assert_eq!(
            check_level(ROOT, Some("LOUD")),
            Err(LevelError::UnknownLevel)
        );
        assert_eq!(check_level(ROOT, None), Err(LevelError::RootNeedsLevel));
        assert_eq!(check_level("kafka", None), Ok(()));
        assert!(levels().iter().any(|(logger, _)| *logger == ROOT));
    }
}
