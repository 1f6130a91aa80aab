//! How Produce and Fetch name a topic.

use super::wire::{Cursor, MalformedBody, Writer};
use crate::types::{TopicId, TopicName};

/// By name up to version 12, by id from 13 on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopicKey {
    Name(TopicName),
    Id(TopicId),
}

/// The version of Produce and Fetch from which on topics are named by id.
const ID_VERSION: i16 = 13;

impl TopicKey {
    pub(super) fn read(cursor: &mut Cursor<'_>, version: i16) -> Result<Self, MalformedBody> {
        if version >= ID_VERSION {
            Ok(Self::Id(TopicId(cursor.uuid()?)))
        } else {
            Ok(Self::Name(cursor.string()?.into()))
        }
    }

    /// Answers as the request asked; what the version cannot say becomes empty.
    pub(super) fn write(&self, writer: &mut Writer, version: i16) {
        match self {
            Self::Id(id) if version >= ID_VERSION => {
                writer.buffer.extend_from_slice(&id.0);
            }
            Self::Name(_) if version >= ID_VERSION => {
                writer.buffer.extend_from_slice(&TopicId::ZERO.0);
            }
            Self::Name(name) => writer.string(name),
            Self::Id(_) => writer.string(""),
        }
    }
}

/// The leader that a client should turn to instead (KIP-951).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CurrentLeader {
    pub leader_id: i32,
    pub leader_epoch: i32,
}

impl CurrentLeader {
    /// As the content of a tagged field.
    pub(super) fn encode(self) -> [u8; 9] {
        let mut bytes = [0; 9];
        bytes[..4].copy_from_slice(&self.leader_id.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.leader_epoch.to_be_bytes());
        bytes
    }
}

/// Where a [`CurrentLeader`] listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEndpoint {
    pub node_id: i32,
    pub host: String,
    pub port: i32,
    pub rack: Option<String>,
}

/// Writes the endpoints as the only tagged field (0) of a response, from `version_min` on.
pub(super) fn write_endpoints(writer: &mut Writer, endpoints: &[NodeEndpoint], allowed: bool) {
    if endpoints.is_empty() || !allowed {
        writer.no_tags();
        return;
    }
    let mut content = Writer::new(32 * endpoints.len(), true);
    content.count(endpoints.len());
    for endpoint in endpoints {
        content
            .buffer
            .extend_from_slice(&endpoint.node_id.to_be_bytes());
        content.string(&endpoint.host);
        content
            .buffer
            .extend_from_slice(&endpoint.port.to_be_bytes());
        content.nullable_string(endpoint.rack.as_deref());
        content.no_tags();
    }
    writer.varint(1);
    writer.tag(0, &content.buffer);
}
