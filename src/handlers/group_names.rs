//! Between the codec's strings and the coordinator's.

use std::sync::Arc;

use kafka_protocol::protocol::StrBytes;

use super::RequestInfo;

/// Copies: what a group keeps must not keep the frame that it came in.
pub(super) fn arc(text: &StrBytes) -> Arc<str> {
    Arc::from(text.as_str())
}

pub(super) fn str_bytes(text: &Arc<str>) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

pub(super) fn client_id(request: &RequestInfo) -> Arc<str> {
    request.client_id.clone().unwrap_or_else(|| Arc::from(""))
}

/// As `InetAddress.toString()` of Java shows an address.
pub(super) fn client_host(request: &RequestInfo) -> Arc<str> {
    Arc::from(format!("/{}", request.peer.ip()))
}
