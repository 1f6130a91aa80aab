//! The log: `tracing` events as text lines, or as JSON.

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Which events are written: `RUST_LOG` as it is, or else what Kafka's image takes
/// (`KAFKA_LOG4J_ROOT_LOGLEVEL` and `KAFKA_LOG4J_LOGGERS`), or else INFO.
pub fn filter(variable: impl Fn(&str) -> Option<String>) -> Targets {
    if let Some(targets) = variable("RUST_LOG").and_then(|text| text.parse().ok()) {
        return targets;
    }
    let root = variable("KAFKA_LOG4J_ROOT_LOGLEVEL").and_then(|level| log4j_level(&level));
    let mut targets = Targets::new().with_default(root.unwrap_or(Some(Level::INFO)).map_or(
        tracing::level_filters::LevelFilter::OFF,
        tracing::level_filters::LevelFilter::from_level,
    ));
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
    Some(match logger {
        "kafka" | "org.apache.kafka" | "kafka.server" => "ottla",
        "kafka.controller" | "org.apache.kafka.controller" => "ottla::controller",
        "kafka.log" | "kafka.log.LogCleaner" | "org.apache.kafka.storage.internals.log" => {
            "ottla::log"
        }
        "kafka.network" | "kafka.network.RequestChannel$" | "kafka.network.Processor" => {
            "ottla::net"
        }
        "kafka.request.logger" | "kafka.server.KafkaApis" => "ottla::handlers",
        "kafka.coordinator" | "kafka.coordinator.group" | "org.apache.kafka.coordinator" => {
            "ottla::coordinator"
        }
        "state.change.logger" | "kafka.cluster" => "ottla::replication",
        "kafka.authorizer.logger" => "ottla::security",
        _ => return None,
    })
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

/// Installs the log, on standard error: human lines, or JSON lines with `OTTLA_LOG_FORMAT=json`.
/// The second call of a process has no effect.
pub fn init(variable: impl Fn(&str) -> Option<String>) {
    let filter = filter(&variable);
    let registry = tracing_subscriber::registry().with(filter);
    let json = variable("OTTLA_LOG_FORMAT").is_some_and(|format| format == "json");
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_span_events(FmtSpan::NONE);
    // A test, or a program around the library, may have a subscriber already.
    let _ = match json {
        true => registry.with(lines.json()).try_init(),
        false => registry
            .with(lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())))
            .try_init(),
    };
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
}
