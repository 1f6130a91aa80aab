//! Logging, every metric's name, and the HTTP port that shows them.

/// Handles of every metric.
#[derive(Debug)]
pub struct Metrics {}
