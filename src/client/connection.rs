//! A connection to one broker that knows which versions it speaks.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::BytesMut;
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Message, Request, StrBytes};

use super::{ApiRange, ClientConfig, ClientError};
use crate::net::{FrameBuffers, Peer, PeerConfig, PeerHeaders, PeerRequest};
use crate::types::ErrorCode;

const API_VERSIONS: i16 = 18;
const API_VERSIONS_VERSION: i16 = 4;
/// A longer answer is not believed.
const RESPONSE_BYTES_MAX: usize = 256 << 20;

/// How a call over one connection failed.
#[derive(Debug)]
pub(super) enum CallError {
    /// The connection is of no use any more; another may do.
    Io(io::Error),
    /// It would fail again.
    Final(ClientError),
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    peer: Peer,
    versions: BTreeMap<i16, (i16, i16)>,
    timeout: Duration,
}

impl Connection {
    /// Connects and asks which versions there are.
    pub(super) async fn open(
        host: &str,
        port: u16,
        config: &ClientConfig,
    ) -> Result<Self, CallError> {
        let peer_config = PeerConfig {
            client_id: config.client_id.clone(),
            connect_timeout: config.request_timeout.min(Duration::from_secs(10)),
            receive_buffer_bytes: -1,
            response_bytes_max: RESPONSE_BYTES_MAX,
        };
        let peer = Peer::connect(host, port, peer_config, FrameBuffers::default()).await?;
        let mut connection = Self {
            peer,
            versions: BTreeMap::new(),
            timeout: config.request_timeout,
        };
        let answered = connection.api_versions(API_VERSIONS_VERSION).await?;
        let answered = match answered.error_code {
            // An older broker says which it has; version 0 is one of them.
            code if code == ErrorCode::UnsupportedVersion.code() => {
                connection.api_versions(0).await?
            }
            _ => answered,
        };
        let range = |api: &kafka_protocol::messages::api_versions_response::ApiVersion| {
            (api.api_key, (api.min_version, api.max_version))
        };
        connection.versions = answered.api_keys.iter().map(range).collect();
        Ok(connection)
    }

    async fn api_versions(&mut self, version: i16) -> Result<ApiVersionsResponse, CallError> {
        let mut request = ApiVersionsRequest::default();
        if version >= 3 {
            request.client_software_name = StrBytes::from_static_str("ottla");
            request.client_software_version = StrBytes::from_static_str(env!("CARGO_PKG_VERSION"));
        }
        let mut body = BytesMut::new();
        request
            .encode(&mut body, version)
            .map_err(|error| malformed(&error))?;
        let headers = match ApiVersionsRequest::header_version(version) {
            2 => PeerHeaders::PlainAnswer,
            _ => PeerHeaders::Plain,
        };
        let request = PeerRequest {
            api_key: API_VERSIONS,
            api_version: version,
            headers,
            body,
            timeout: self.timeout,
        };
        let mut answer = self.peer.call(request).await?;
        // An unknown version is answered in the oldest.
        let answered_in = match answer.first_chunk() {
            Some(code) if i16::from_be_bytes(*code) != 0 => 0,
            _ => version,
        };
        ApiVersionsResponse::decode(&mut answer, answered_in).map_err(|error| malformed(&error))
    }

    /// The ranges that the broker told of, by API key.
    pub(super) fn ranges(&self) -> Vec<ApiRange> {
        let range = |(&api_key, &(min, max)): (&i16, &(i16, i16))| ApiRange { api_key, min, max };
        self.versions.iter().map(range).collect()
    }

    /// The highest version of an API, up to `max`, that both sides speak.
    pub(super) fn version<R: Request>(&self, max: i16) -> Result<i16, ClientError> {
        let (low, high) = self.versions.get(&R::KEY).copied().unwrap_or((0, -1));
        let ours = <R as Message>::VERSIONS;
        let theirs = <R::Response as Message>::VERSIONS;
        let version = high.min(max).min(ours.max).min(theirs.max);
        if version < low.max(ours.min) {
            return Err(ClientError::UnsupportedVersion(format!(
                "The broker does not support an API of this tool (api key {})",
                R::KEY
            )));
        }
        Ok(version)
    }

    /// Sends a request in the version that fits, and returns its answer. `more` is added to the time-out, for
    /// requests that ask the broker to wait.
    pub(super) async fn call<R: Request>(
        &mut self,
        max: i16,
        build: impl Fn(i16) -> R,
        more: Duration,
    ) -> Result<R::Response, CallError> {
        let (version, request) = self.request(max, build, more)?;
        let mut answer = self.peer.call(request).await?;
        R::Response::decode(&mut answer, version).map_err(|error| malformed(&error))
    }

    /// Sends a request that is never answered.
    pub(super) async fn tell<R: Request + Clone>(
        &mut self,
        max: i16,
        request: R,
    ) -> Result<(), CallError> {
        let (_, request) = self.request(max, |_| request.clone(), Duration::ZERO)?;
        Ok(self.peer.tell(request).await?)
    }

    fn request<R: Request>(
        &self,
        max: i16,
        build: impl Fn(i16) -> R,
        more: Duration,
    ) -> Result<(i16, PeerRequest), CallError> {
        let version = self.version::<R>(max).map_err(CallError::Final)?;
        let request = build(version);
        let mut body = BytesMut::new();
        request
            .encode(&mut body, version)
            .map_err(|error| malformed(&error))?;
        let headers = match R::header_version(version) {
            2 => PeerHeaders::Flexible,
            _ => PeerHeaders::Plain,
        };
        let request = PeerRequest {
            api_key: R::KEY,
            api_version: version,
            headers,
            body,
            timeout: self.timeout + more,
        };
        Ok((version, request))
    }
}

fn malformed(error: &impl ToString) -> CallError {
    CallError::Final(ClientError::Malformed(error.to_string()))
}
