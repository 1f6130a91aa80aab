//! Kafka's own formats of the keys and values in `__consumer_offsets`. Pure.
//!
//! A key starts with an `int16` that names the kind: 0 and 1 an offset commit, 2 a group's metadata; larger
//! numbers belong to group types that do not exist here and are passed over. A value starts with the `int16`
//! of its own version; a null value is a tombstone. Written are the versions that Kafka 4.4 writes: offset
//! commits 4 (1 with an expiry), group metadata 3. All that Kafka ever wrote are read.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use crate::types::{TimestampMs, TopicId, TopicName};

/// Longest string that the keys can hold (their lengths are `int16`).
pub const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// One record of `__consumer_offsets`. `value: None` is a tombstone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupRecord {
    Offset {
        group: Arc<str>,
        topic: TopicName,
        partition: i32,
        value: Option<OffsetValue>,
    },
    Group {
        group: Arc<str>,
        value: Option<GroupValue>,
    },
}

/// `OffsetCommitValue`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetValue {
    pub offset: i64,
    /// −1: not known.
    pub leader_epoch: i32,
    pub metadata: Arc<str>,
    pub commit_timestamp: TimestampMs,
    /// Only where the client asked for a retention of its own (OffsetCommit v2–4).
    pub expire_timestamp: Option<TimestampMs>,
    /// Zero: not known.
    pub topic_id: TopicId,
}

/// `GroupMetadataValue`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupValue {
    /// Empty: a group without members that only stores offsets.
    pub protocol_type: Arc<str>,
    pub generation: i32,
    pub protocol: Option<Arc<str>>,
    pub leader: Option<Arc<str>>,
    /// When the group reached its state; −1: written by an old broker.
    pub current_state_timestamp: TimestampMs,
    pub members: Vec<MemberValue>,
}

impl GroupValue {
    fn bytes_max(&self) -> usize {
        const FIXED: usize = 32;
        let text = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
        let member = |member: &MemberValue| {
            FIXED
                + member.member_id.len()
                + text(&member.instance_id)
                + member.client_id.len()
                + member.client_host.len()
                + member.subscription.len()
                + member.assignment.len()
        };
        FIXED
            + self.protocol_type.len()
            + text(&self.protocol)
            + text(&self.leader)
            + self.members.iter().map(member).sum::<usize>()
    }
}

/// `MemberMetadata` of a group's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberValue {
    pub member_id: Arc<str>,
    pub instance_id: Option<Arc<str>>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    pub subscription: Bytes,
    pub assignment: Bytes,
}

/// Bytes that are no record of `__consumer_offsets`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a record of __consumer_offsets: {0}")]
pub struct MalformedRecord(&'static str);

impl GroupRecord {
    /// The record's key. Strings longer than [`STRING_BYTES_MAX`] must have been refused before.
    pub fn encode_key(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Self::Offset {
                group,
                topic,
                partition,
                ..
            } => {
                out.put_i16(1);
                put_string(&mut out, group);
                put_string(&mut out, topic);
                out.put_i32(*partition);
            }
            Self::Group { group, .. } => {
                out.put_i16(2);
                put_string(&mut out, group);
            }
        }
        out.freeze()
    }

    /// The record's value; `None` for a tombstone.
    pub fn encode_value(&self) -> Option<Bytes> {
        let mut out = BytesMut::new();
        match self {
            Self::Offset { value, .. } => put_offset_value(&mut out, value.as_ref()?),
            Self::Group { value, .. } => put_group_value(&mut out, value.as_ref()?),
        }
        Some(out.freeze())
    }

    /// No fewer bytes than the record takes in a batch.
    pub fn bytes_max(&self) -> usize {
        const FIXED: usize = 80; // numbers, lengths, tags, and the record around them
        match self {
            Self::Offset {
                group,
                topic,
                value,
                ..
            } => {
                let metadata = value.as_ref().map_or(0, |value| value.metadata.len());
                FIXED + group.len() + topic.len() + metadata
            }
            Self::Group { group, value } => {
                let value = value.as_ref().map_or(0, GroupValue::bytes_max);
                FIXED + group.len() + value
            }
        }
    }

    /// Reads a record; `None` for one of another kind of group.
    pub fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Option<Self>, MalformedRecord> {
        let mut key = Reader(key);
        match key.i16()? {
            0 | 1 => Ok(Some(Self::Offset {
                group: key.string()?,
                topic: key.string()?,
                partition: key.i32()?,
                value: value.map(read_offset_value).transpose()?,
            })),
            2 => Ok(Some(Self::Group {
                group: key.string()?,
                value: value.map(read_group_value).transpose()?,
            })),
            _ => Ok(None),
        }
    }
}

fn put_offset_value(out: &mut BytesMut, value: &OffsetValue) {
    if let Some(expire_timestamp) = value.expire_timestamp {
        out.put_i16(1);
        out.put_i64(value.offset);
        put_string(out, &value.metadata);
        out.put_i64(value.commit_timestamp);
        out.put_i64(expire_timestamp);
        return;
    }
    out.put_i16(4);
    out.put_i64(value.offset);
    out.put_i32(value.leader_epoch);
    put_varint(out, value.metadata.len() + 1);
    out.put_slice(value.metadata.as_bytes());
    out.put_i64(value.commit_timestamp);
    if value.topic_id == TopicId::ZERO {
        put_varint(out, 0);
    } else {
        put_varint(out, 1);
        put_varint(out, 0);
        put_varint(out, value.topic_id.0.len());
        out.put_slice(&value.topic_id.0);
    }
}

fn put_group_value(out: &mut BytesMut, value: &GroupValue) {
    out.put_i16(3);
    put_string(out, &value.protocol_type);
    out.put_i32(value.generation);
    put_nullable(out, value.protocol.as_deref());
    put_nullable(out, value.leader.as_deref());
    out.put_i64(value.current_state_timestamp);
    out.put_i32(saturating_i32(value.members.len()));
    for member in &value.members {
        put_string(out, &member.member_id);
        put_nullable(out, member.instance_id.as_deref());
        put_string(out, &member.client_id);
        put_string(out, &member.client_host);
        out.put_i32(member.rebalance_timeout_ms);
        out.put_i32(member.session_timeout_ms);
        put_bytes(out, &member.subscription);
        put_bytes(out, &member.assignment);
    }
}

fn read_offset_value(bytes: &[u8]) -> Result<OffsetValue, MalformedRecord> {
    let mut value = Reader(bytes);
    let version = value.i16()?;
    if !(0..=4).contains(&version) {
        return Err(MalformedRecord("unknown version of an offset"));
    }
    let offset = value.i64()?;
    let leader_epoch = if version >= 3 { value.i32()? } else { -1 };
    let metadata = if version >= 4 {
        value.compact_string()?
    } else {
        value.string()?
    };
    let commit_timestamp = value.i64()?;
    let expire_timestamp = if version == 1 { value.i64()? } else { -1 };
    let mut topic_id = TopicId::ZERO;
    if version >= 4 {
        value.tagged_fields(|tag, bytes| {
            if let (0, Ok(id)) = (tag, <[u8; 16]>::try_from(bytes)) {
                topic_id = TopicId(id);
            }
        })?;
    }
    Ok(OffsetValue {
        offset,
        leader_epoch,
        metadata,
        commit_timestamp,
        expire_timestamp: (expire_timestamp != -1).then_some(expire_timestamp),
        topic_id,
    })
}

fn read_group_value(bytes: &[u8]) -> Result<GroupValue, MalformedRecord> {
    let mut value = Reader(bytes);
    let version = value.i16()?;
    if !(0..=4).contains(&version) {
        return Err(MalformedRecord("unknown version of a group"));
    }
    let flexible = version >= 4;
    let protocol_type = value.string_of(flexible)?;
    let generation = value.i32()?;
    let protocol = value.nullable_of(flexible)?;
    let leader = value.nullable_of(flexible)?;
    let current_state_timestamp = if version >= 2 { value.i64()? } else { -1 };
    let count = if flexible {
        value.varint()?.saturating_sub(1)
    } else {
        usize::try_from(value.i32()?).unwrap_or(0)
    };
    let mut members = Vec::new();
    for _ in 0..count {
        members.push(read_member(&mut value, version)?);
    }
    if flexible {
        value.tagged_fields(|_, _| {})?;
    }
    Ok(GroupValue {
        protocol_type,
        generation,
        protocol,
        leader,
        current_state_timestamp,
        members,
    })
}

fn read_member(value: &mut Reader<'_>, version: i16) -> Result<MemberValue, MalformedRecord> {
    let flexible = version >= 4;
    let member_id = value.string_of(flexible)?;
    let instance_id = if version >= 3 {
        value.nullable_of(flexible)?
    } else {
        None
    };
    let client_id = value.string_of(flexible)?;
    let client_host = value.string_of(flexible)?;
    let rebalance_timeout_ms = if version >= 1 { value.i32()? } else { -1 };
    let session_timeout_ms = value.i32()?;
    let subscription = value.bytes_of(flexible)?;
    let assignment = value.bytes_of(flexible)?;
    if flexible {
        value.tagged_fields(|_, _| {})?;
    }
    Ok(MemberValue {
        member_id,
        instance_id,
        client_id,
        client_host,
        // The first version knew one timeout for both.
        rebalance_timeout_ms: if rebalance_timeout_ms == -1 {
            session_timeout_ms
        } else {
            rebalance_timeout_ms
        },
        session_timeout_ms,
        subscription,
        assignment,
    })
}

fn saturating_i32(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

fn put_string(out: &mut BytesMut, text: &str) {
    debug_assert!(text.len() <= STRING_BYTES_MAX, "refused at the door");
    // Never reached with a longer one; a cut at a character keeps what is written readable.
    let mut length = text.len().min(STRING_BYTES_MAX);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    out.put_i16(i16::try_from(length).unwrap_or(i16::MAX));
    out.put_slice(&text.as_bytes()[..length]);
}

fn put_nullable(out: &mut BytesMut, text: Option<&str>) {
    match text {
        Some(text) => put_string(out, text),
        None => out.put_i16(-1),
    }
}

fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    out.put_i32(saturating_i32(bytes.len()));
    out.put_slice(bytes);
}

fn put_varint(out: &mut BytesMut, mut value: usize) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Reads front to back; never past the end, never by a claimed size.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], MalformedRecord> {
        let (taken, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(MalformedRecord("cut off"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedRecord> {
        let (taken, rest) = self
            .0
            .split_first_chunk()
            .ok_or(MalformedRecord("cut off"))?;
        self.0 = rest;
        Ok(*taken)
    }

    fn i16(&mut self) -> Result<i16, MalformedRecord> {
        self.array().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Result<i32, MalformedRecord> {
        self.array().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Result<i64, MalformedRecord> {
        self.array().map(i64::from_be_bytes)
    }

    fn varint(&mut self) -> Result<usize, MalformedRecord> {
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value as usize);
            }
        }
        Err(MalformedRecord("a varint without end"))
    }

    fn text(&mut self, length: usize) -> Result<Arc<str>, MalformedRecord> {
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes)
            .map(Arc::from)
            .map_err(|_| MalformedRecord("text that is not UTF-8"))
    }

    fn string(&mut self) -> Result<Arc<str>, MalformedRecord> {
        let length = usize::try_from(self.i16()?).map_err(|_| MalformedRecord("null string"))?;
        self.text(length)
    }

    fn compact_string(&mut self) -> Result<Arc<str>, MalformedRecord> {
        let length = self.varint()?;
        self.text(
            length
                .checked_sub(1)
                .ok_or(MalformedRecord("null string"))?,
        )
    }

    fn string_of(&mut self, flexible: bool) -> Result<Arc<str>, MalformedRecord> {
        if flexible {
            self.compact_string()
        } else {
            self.string()
        }
    }

    fn nullable_of(&mut self, flexible: bool) -> Result<Option<Arc<str>>, MalformedRecord> {
        let length = if flexible {
            self.varint()?.checked_sub(1)
        } else {
            usize::try_from(self.i16()?).ok()
        };
        length.map(|length| self.text(length)).transpose()
    }

    fn bytes_of(&mut self, flexible: bool) -> Result<Bytes, MalformedRecord> {
        let length = if flexible {
            self.varint()?.checked_sub(1)
        } else {
            usize::try_from(self.i32()?).ok()
        };
        let length = length.ok_or(MalformedRecord("null bytes"))?;
        self.take(length).map(Bytes::copy_from_slice)
    }

    fn tagged_fields(
        &mut self,
        mut field: impl FnMut(usize, &[u8]),
    ) -> Result<(), MalformedRecord> {
        for _ in 0..self.varint()? {
            let tag = self.varint()?;
            let length = self.varint()?;
            field(tag, self.take(length)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn offset(value: Option<OffsetValue>) -> GroupRecord {
        GroupRecord::Offset {
            group: "g".into(),
            topic: "t".into(),
            partition: 3,
            value,
        }
    }

    #[test]
    fn an_offset_is_written_as_kafka_writes_it() {
        let record = offset(Some(OffsetValue {
            offset: 5,
            leader_epoch: 2,
            metadata: "m".into(),
            commit_timestamp: 7,
            expire_timestamp: None,
            topic_id: TopicId::ZERO,
        }));
        assert_eq!(
            &record.encode_key()[..],
            b"\0\x01\0\x01g\0\x01t\0\0\0\x03",
            "key version 1"
        );
        assert_eq!(
            &record.encode_value().unwrap()[..],
            b"\0\x04\0\0\0\0\0\0\0\x05\0\0\0\x02\x02m\0\0\0\0\0\0\0\x07\0"
        );
    }

    #[test]
    fn an_offset_that_expires_is_version_1() {
        let record = offset(Some(OffsetValue {
            offset: 5,
            leader_epoch: -1,
            metadata: "m".into(),
            commit_timestamp: 7,
            expire_timestamp: Some(9),
            topic_id: TopicId::ZERO,
        }));
        let value = record.encode_value().unwrap();
        assert_eq!(
            &value[..],
            b"\0\x01\0\0\0\0\0\0\0\x05\0\x01m\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x09"
        );
        assert_eq!(
            GroupRecord::decode(&record.encode_key(), Some(&value)),
            Ok(Some(record))
        );
    }

    #[test]
    fn older_versions_are_read() {
        let key = b"\0\0\0\x01g\0\x01t\0\0\0\x03";
        let expected = |leader_epoch| {
            Ok(Some(offset(Some(OffsetValue {
                offset: 5,
                leader_epoch,
                metadata: "".into(),
                commit_timestamp: 7,
                expire_timestamp: None,
                topic_id: TopicId::ZERO,
            }))))
        };
        let v0 = b"\0\0\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\0\0\x07";
        assert_eq!(GroupRecord::decode(key, Some(v0)), expected(-1));
        let v2 = b"\0\x02\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\0\0\x07";
        assert_eq!(GroupRecord::decode(key, Some(v2)), expected(-1));
        let v3 = b"\0\x03\0\0\0\0\0\0\0\x05\0\0\0\x04\0\0\0\0\0\0\0\0\0\x07";
        assert_eq!(GroupRecord::decode(key, Some(v3)), expected(4));
        let group_v0 = b"\0\0\0\x08consumer\0\0\0\x01\0\x01p\0\x01a\0\0\0\x01\0\x01a\0\x01c\0\x01h\0\0\0\x09\0\0\0\x01s\0\0\0\0";
        let Ok(Some(GroupRecord::Group {
            value: Some(value), ..
        })) = GroupRecord::decode(b"\0\x02\0\x01g", Some(group_v0))
        else {
            panic!("not read")
        };
        assert_eq!(value.current_state_timestamp, -1);
        assert_eq!(value.members[0].rebalance_timeout_ms, 9);
    }

    #[test]
    fn other_kinds_are_passed_over_and_damage_is_named() {
        assert_eq!(GroupRecord::decode(b"\0\x03\0\x01g", None), Ok(None));
        assert!(GroupRecord::decode(b"\0", None).is_err());
        assert!(GroupRecord::decode(b"\0\x02\x7f\xffg", None).is_err());
        let huge = b"\0\x03\0\0\0\0\0\x01\xff\xff\xff\xff\0\0\0\0\0\0\0\0\x7f\xff\xff\xff";
        assert!(GroupRecord::decode(b"\0\x02\0\x01g", Some(huge)).is_err());
    }

    prop_compose! {
        fn any_text()(text in "[a-zä0-9-]{0,12}") -> Arc<str> { Arc::from(text) }
    }

    prop_compose! {
        fn any_member()(
            (member_id, client_id, client_host) in (any_text(), any_text(), any_text()),
            instance_id in proptest::option::of(any_text()),
            (rebalance_timeout_ms, session_timeout_ms) in (0..i32::MAX, 0..i32::MAX),
            subscription in proptest::collection::vec(any::<u8>(), 0..9),
            assignment in proptest::collection::vec(any::<u8>(), 0..9),
        ) -> MemberValue {
            MemberValue {
                member_id, instance_id, client_id, client_host, rebalance_timeout_ms, session_timeout_ms,
                subscription: subscription.into(), assignment: assignment.into(),
            }
        }
    }

    proptest! {
        #[test]
        fn decode_reads_what_encode_wrote(
            members in proptest::collection::vec(any_member(), 0..4),
            (group, protocol_type) in (any_text(), any_text()),
            (protocol, leader) in (proptest::option::of(any_text()), proptest::option::of(any_text())),
            (generation, current_state_timestamp) in (any::<i32>(), any::<i64>()),
            (offset, leader_epoch, partition) in (any::<i64>(), any::<i32>(), any::<i32>()),
            (metadata, topic) in (any_text(), any_text()),
            id in any::<[u8; 16]>(),
        ) {
            let value = GroupValue {
                protocol_type, generation, protocol, leader, current_state_timestamp, members,
            };
            let record = GroupRecord::Group { group: group.clone(), value: Some(value) };
            let read = GroupRecord::decode(&record.encode_key(), record.encode_value().as_deref());
            prop_assert_eq!(read, Ok(Some(record)));
            let value = OffsetValue {
                offset, leader_epoch, metadata, commit_timestamp: current_state_timestamp,
                expire_timestamp: None, topic_id: TopicId(id),
            };
            let record = GroupRecord::Offset { group, topic, partition, value: Some(value) };
            let read = GroupRecord::decode(&record.encode_key(), record.encode_value().as_deref());
            prop_assert_eq!(read, Ok(Some(record)));
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            key in proptest::collection::vec(any::<u8>(), 0..40),
            value in proptest::collection::vec(any::<u8>(), 0..80),
            kind in 0i16..3,
        ) {
            let _ = GroupRecord::decode(&key, Some(&value));
            let mut named = kind.to_be_bytes().to_vec();
            named.extend_from_slice(b"\0\x01g\0\x01t\0\0\0\x03");
            let _ = GroupRecord::decode(&named, Some(&value));
        }
    }
}
