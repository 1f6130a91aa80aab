//! What the requests look like: the fields of Kafka's `common/message/<Name>Request.json` (4.4) in
//! their order, by type and version, without their names.

/// The body of one API's requests.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) key: i16,
    pub(super) versions: (i16, i16),
    /// The first version with compact lengths and tagged fields.
    pub(super) flexible: i16,
    pub(super) body: &'static [Field],
}

/// A field, and the versions that have it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) kind: Kind,
    since: i16,
    until: i16,
    null_since: i16,
    /// In flexible versions the field is tagged so.
    pub(super) tag: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// A number, flag or id of so many bytes.
    Fixed(usize),
    String,
    /// Bytes or records.
    Bytes,
    /// An array of structures.
    List(&'static [Field]),
    /// An array of values.
    Items(&'static Field),
    /// A structure of its own.
    Group(&'static [Field]),
}

const NEVER: i16 = i16::MAX;

const fn field(kind: Kind) -> Field {
    Field {
        kind,
        since: 0,
        until: i16::MAX,
        null_since: NEVER,
        tag: None,
    }
}

const I8: Field = field(Kind::Fixed(1));
const I16: Field = field(Kind::Fixed(2));
const I32: Field = field(Kind::Fixed(4));
const I64: Field = field(Kind::Fixed(8));
const UUID: Field = field(Kind::Fixed(16));
const STRING: Field = field(Kind::String);
const BYTES: Field = field(Kind::Bytes);

const fn list(fields: &'static [Field]) -> Field {
    field(Kind::List(fields))
}

const fn items(item: &'static Field) -> Field {
    field(Kind::Items(item))
}

const fn group(fields: &'static [Field]) -> Field {
    field(Kind::Group(fields))
}

impl Field {
    /// The first version that has the field.
    const fn since(self, since: i16) -> Self {
        Self { since, ..self }
    }

    /// The last version that has the field.
    const fn until(self, until: i16) -> Self {
        Self { until, ..self }
    }

    /// The first version in which the field may be null.
    const fn null(self, null_since: i16) -> Self {
        Self { null_since, ..self }
    }

    const fn tag(self, tag: u32) -> Self {
        Self {
            tag: Some(tag),
            ..self
        }
    }

    pub(super) fn is_in(&self, version: i16) -> bool {
        self.since <= version && version <= self.until
    }

    pub(super) fn is_nullable(&self, version: i16) -> bool {
        self.null_since <= version
    }
}

const fn schema(key: i16, versions: (i16, i16), flexible: i16, body: &'static [Field]) -> Schema {
    Schema {
        key,
        versions,
        flexible,
        body,
    }
}

/// Every request that a broker may be sent and the codec can decode, by key.
#[rustfmt::skip]
pub(super) const SCHEMAS: &[Schema] = &[
    // Produce
    schema(0, (3, 13), 9, &[
        STRING.null(3), I16, I32, list(&[STRING.until(12), UUID.since(13), list(&[I32,
        BYTES.null(3)])])
    ]),
    // Fetch
    schema(1, (4, 18), 12, &[
        STRING.since(12).null(12).tag(0), I32.until(14), group(&[I32, I64]).since(15).tag(1), I32,
        I32, I32, I8, I32.since(7), I32.since(7), list(&[STRING.until(12), UUID.since(13),
        list(&[I32, I32.since(9), I64, I32.since(12), I64.since(5), I32, UUID.since(17).tag(0),
        I64.since(18).tag(1)])]), list(&[STRING.until(12), UUID.since(13), items(&I32)]).since(7),
        STRING.since(11)
    ]),
    // ListOffsets
    schema(2, (1, 11), 6, &[
        I32, I8.since(2), list(&[STRING, list(&[I32, I32.since(4), I64])]), I32.since(10)
    ]),
    // Metadata
    schema(3, (0, 13), 9, &[
        list(&[UUID.since(10), STRING.null(10)]).null(1), I8.since(4), I8.since(8).until(10),
        I8.since(8)
    ]),
    // OffsetCommit
    schema(8, (2, 10), 8, &[
        STRING, I32, STRING, STRING.since(7).null(7), I64.until(4), list(&[STRING.until(9),
        UUID.since(10), list(&[I32, I64, I32.since(6), STRING.null(2)])])
    ]),
    // OffsetFetch
    schema(9, (1, 10), 6, &[
        STRING.until(7), list(&[STRING, items(&I32)]).until(7).null(2), list(&[STRING,
        STRING.since(9).null(9), I32.since(9), list(&[STRING.until(9), UUID.since(10),
        items(&I32)]).null(8)]).since(8), I8.since(7)
    ]),
    // FindCoordinator
    schema(10, (0, 6), 3, &[
        STRING.until(3), I8.since(1), items(&STRING).since(4)
    ]),
    // JoinGroup
    schema(11, (0, 9), 6, &[
        STRING, I32, I32.since(1), STRING, STRING.since(5).null(5), STRING, list(&[STRING,
        BYTES]), STRING.since(8).null(8)
    ]),
    // Heartbeat
    schema(12, (0, 4), 4, &[STRING, I32, STRING, STRING.since(3).null(3)]),
    // LeaveGroup
    schema(13, (0, 5), 4, &[
        STRING, STRING.until(2), list(&[STRING, STRING.null(3), STRING.since(5).null(5)]).since(3)
    ]),
    // SyncGroup
    schema(14, (0, 5), 4, &[
        STRING, I32, STRING, STRING.since(3).null(3), STRING.since(5).null(5),
        STRING.since(5).null(5), list(&[STRING, BYTES])
    ]),
    // DescribeGroups
    schema(15, (0, 6), 5, &[items(&STRING), I8.since(3)]),
    // ListGroups
    schema(16, (0, 5), 3, &[items(&STRING).since(4), items(&STRING).since(5)]),
    // SaslHandshake
    schema(17, (0, 1), NEVER, &[STRING]),
    // ApiVersions
    schema(18, (0, 5), 3, &[
        STRING.since(3), STRING.since(3), STRING.since(5).null(5), I32.since(5)
    ]),
    // CreateTopics
    schema(19, (2, 7), 5, &[
        list(&[STRING, I32, I16, list(&[I32, items(&I32)]), list(&[STRING, STRING.null(2)])]),
        I32, I8
    ]),
    // DeleteTopics
    schema(20, (1, 6), 4, &[
        list(&[STRING.null(6), UUID]).since(6), items(&STRING).until(5), I32
    ]),
    // DeleteRecords
    schema(21, (0, 2), 2, &[list(&[STRING, list(&[I32, I64])]), I32]),
    // InitProducerId
    schema(22, (0, 6), 2, &[
        STRING.null(0), I32, I64.since(3), I16.since(3), I8.since(6), I8.since(6)
    ]),
    // OffsetForLeaderEpoch
    schema(23, (2, 4), 4, &[
        I32.since(3), list(&[STRING, list(&[I32, I32, I32])])
    ]),
    // AddPartitionsToTxn
    schema(24, (0, 5), 3, &[
        list(&[STRING, I64, I16, I8, list(&[STRING, items(&I32)])]).since(4), STRING.until(3),
        I64.until(3), I16.until(3), list(&[STRING, items(&I32)]).until(3)
    ]),
    // AddOffsetsToTxn
    schema(25, (0, 4), 3, &[STRING, I64, I16, STRING]),
    // EndTxn
    schema(26, (0, 5), 3, &[STRING, I64, I16, I8]),
    // WriteTxnMarkers
    schema(27, (1, 2), 1, &[
        list(&[I64, I16, I8, list(&[STRING, items(&I32)]), I32, I8.since(2)])
    ]),
    // TxnOffsetCommit
    schema(28, (0, 6), 3, &[
        STRING, STRING, I64, I16, I32.since(3), STRING.since(3), STRING.since(3).null(3),
        list(&[STRING.until(5), UUID.since(6), list(&[I32, I64, I32.since(2), STRING.null(0)])])
    ]),
    // DescribeAcls
    schema(29, (1, 3), 2, &[
        I8, STRING.null(1), I8, STRING.null(1), STRING.null(1), I8, I8
    ]),
    // CreateAcls
    schema(30, (1, 3), 2, &[list(&[I8, STRING, I8, STRING, STRING, I8, I8])]),
    // DeleteAcls
    schema(31, (1, 3), 2, &[
        list(&[I8, STRING.null(1), I8, STRING.null(1), STRING.null(1), I8, I8])
    ]),
    // DescribeConfigs
    schema(32, (1, 4), 4, &[
        list(&[I8, STRING, items(&STRING).null(1)]), I8, I8.since(3)
    ]),
    // AlterConfigs
    schema(33, (0, 2), 2, &[
        list(&[I8, STRING, list(&[STRING, STRING.null(0)])]), I8
    ]),
    // AlterReplicaLogDirs
    schema(34, (1, 2), 2, &[list(&[STRING, list(&[STRING, items(&I32)])])]),
    // DescribeLogDirs
    schema(35, (1, 5), 2, &[list(&[STRING, items(&I32)]).null(1)]),
    // SaslAuthenticate
    schema(36, (0, 2), 2, &[BYTES]),
    // CreatePartitions
    schema(37, (0, 3), 2, &[
        list(&[STRING, I32, list(&[items(&I32)]).null(0)]), I32, I8
    ]),
    // CreateDelegationToken
    schema(38, (1, 3), 2, &[
        STRING.since(3).null(3), STRING.since(3).null(3), list(&[STRING, STRING]), I64
    ]),
    // RenewDelegationToken
    schema(39, (1, 2), 2, &[BYTES, I64]),
    // ExpireDelegationToken
    schema(40, (1, 2), 2, &[BYTES, I64]),
    // DescribeDelegationToken
    schema(41, (1, 3), 2, &[list(&[STRING, STRING]).null(1)]),
    // DeleteGroups
    schema(42, (0, 3), 2, &[items(&STRING)]),
    // ElectLeaders
    schema(43, (0, 2), 2, &[
        I8.since(1), list(&[STRING, items(&I32)]).null(0), I32
    ]),
    // IncrementalAlterConfigs
    schema(44, (0, 1), 1, &[
        list(&[I8, STRING, list(&[STRING, I8, STRING.null(0)])]), I8
    ]),
    // AlterPartitionReassignments
    schema(45, (0, 1), 0, &[
        I32, I8.since(1), list(&[STRING, list(&[I32, items(&I32).null(0)])])
    ]),
    // ListPartitionReassignments
    schema(46, (0, 0), 0, &[
        I32, list(&[STRING, items(&I32)]).null(0)
    ]),
    // OffsetDelete
    schema(47, (0, 0), NEVER, &[STRING, list(&[STRING, list(&[I32])])]),
    // DescribeClientQuotas
    schema(48, (0, 1), 1, &[list(&[STRING, I8, STRING.null(0)]), I8]),
    // AlterClientQuotas
    schema(49, (0, 1), 1, &[
        list(&[list(&[STRING, STRING.null(0)]), list(&[STRING, I64, I8])]), I8
    ]),
    // DescribeUserScramCredentials
    schema(50, (0, 0), 0, &[list(&[STRING]).null(0)]),
    // AlterUserScramCredentials
    schema(51, (0, 0), 0, &[
        list(&[STRING, I8]), list(&[STRING, I8, I32, BYTES, BYTES])
    ]),
    // DescribeQuorum
    schema(55, (0, 2), 0, &[list(&[STRING, list(&[I32])])]),
    // UpdateFeatures
    schema(57, (0, 2), 0, &[
        I32, list(&[STRING, I16, I8.until(0), I8.since(1)]), I8.since(1)
    ]),
    // DescribeCluster
    schema(60, (0, 2), 0, &[I8, I8.since(1), I8.since(2)]),
    // DescribeProducers
    schema(61, (0, 0), 0, &[list(&[STRING, items(&I32)])]),
    // UnregisterBroker
    schema(64, (0, 0), 0, &[I32]),
    // DescribeTransactions
    schema(65, (0, 0), 0, &[items(&STRING)]),
    // ListTransactions
    schema(66, (0, 2), 0, &[
        items(&STRING), items(&I64), I64.since(1), STRING.since(2).null(2)
    ]),
    // ConsumerGroupHeartbeat
    schema(68, (0, 1), 0, &[
        STRING, STRING, I32, STRING.null(0), STRING.null(0), I32, items(&STRING).null(0),
        STRING.since(1).null(1), STRING.null(0), list(&[UUID, items(&I32)]).null(0)
    ]),
    // ConsumerGroupDescribe
    schema(69, (0, 1), 0, &[items(&STRING), I8]),
    // GetTelemetrySubscriptions
    schema(71, (0, 0), 0, &[UUID]),
    // PushTelemetry
    schema(72, (0, 0), 0, &[UUID, I32, I8, I8, BYTES]),
    // ListConfigResources
    schema(74, (0, 1), 0, &[items(&I8).since(1)]),
    // DescribeTopicPartitions
    schema(75, (0, 0), 0, &[
        list(&[STRING]), I32, group(&[STRING, I32]).null(0)
    ]),
    // ShareGroupHeartbeat
    schema(76, (1, 1), 0, &[
        STRING, STRING, I32, STRING.null(1), items(&STRING).null(1)
    ]),
    // ShareGroupDescribe
    schema(77, (1, 1), 0, &[items(&STRING), I8]),
    // ShareFetch
    schema(78, (1, 2), 0, &[
        STRING.null(1), STRING.null(1), I32, I32, I32, I32, I32, I32, I8.since(2), I8.since(2),
        list(&[UUID, list(&[I32, list(&[I64, I64, items(&I8)])])]), list(&[UUID, items(&I32)])
    ]),
    // ShareAcknowledge
    schema(79, (1, 2), 0, &[
        STRING.null(1), STRING.null(1), I32, I8.since(2), list(&[UUID, list(&[I32, list(&[I64,
        I64, items(&I8)])])])
    ]),
    // AddRaftVoter
    schema(80, (0, 1), 0, &[
        STRING.null(0), I32, I32, UUID, list(&[STRING, STRING, I16]), I8.since(1)
    ]),
    // RemoveRaftVoter
    schema(81, (0, 0), 0, &[STRING.null(0), I32, UUID]),
    // InitializeShareGroupState
    schema(83, (0, 0), 0, &[
        STRING, list(&[UUID, list(&[I32, I32, I64])])
    ]),
    // ReadShareGroupState
    schema(84, (0, 0), 0, &[STRING, list(&[UUID, list(&[I32, I32])])]),
    // WriteShareGroupState
    schema(85, (0, 1), 0, &[
        STRING, list(&[UUID, list(&[I32, I32, I32, I64, I32.since(1), list(&[I64, I64, I8,
        I16])])])
    ]),
    // DeleteShareGroupState
    schema(86, (0, 0), 0, &[STRING, list(&[UUID, list(&[I32])])]),
    // ReadShareGroupStateSummary
    schema(87, (0, 1), 0, &[
        STRING, list(&[UUID, list(&[I32, I32])])
    ]),
    // DescribeShareGroupOffsets
    schema(90, (0, 1), 0, &[
        list(&[STRING, list(&[STRING, items(&I32)]).null(0)])
    ]),
    // AlterShareGroupOffsets
    schema(91, (0, 0), 0, &[STRING, list(&[STRING, list(&[I32, I64])])]),
    // DeleteShareGroupOffsets
    schema(92, (0, 0), 0, &[STRING, list(&[STRING])]),
];
