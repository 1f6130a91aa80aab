//! Ottla: a Kafka broker in one small native binary. `ARCHITECTURE.md` has the map.

/// Builds, starts and stops all of the above.
pub mod broker;
/// Arguments and subcommands.
pub mod cli;
/// A small Kafka client for the tools.
pub mod client;
/// `server.properties`, `KAFKA_*` and flags become one validated configuration.
pub mod config;
/// Who leads what, and the admin transactions.
pub mod controller;
/// Groups: state kept in an internal topic.
pub mod coordinator;
/// One file per Kafka API.
pub mod handlers;
/// One partition's bytes on one disk. Synchronous.
pub mod log;
/// What this broker believes about the cluster.
pub mod metadata;
/// Sockets.
pub mod net;
/// The wire protocol around the `kafka-protocol` codec.
pub mod protocol;
/// Record batches as bytes: header, validation, compression.
pub mod record;
/// The strongly consistent store behind the cluster: etcd or embedded.
pub mod registry;
/// One replica of one partition, and all of them.
pub mod replication;
/// Who may do what.
pub mod security;
/// Logging, every metric's name, and the HTTP port that shows them.
pub mod telemetry;
/// The clock seam and a deadline queue.
pub mod time;
/// Ids, offsets, epochs, error codes.
pub mod types;
