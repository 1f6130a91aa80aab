//! The wire protocol around the `kafka-protocol` codec.
