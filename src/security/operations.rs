//! The bit fields of `authorized_operations` (KIP-430): bit n stands for `AclOperation` n.

const READ: i32 = 1 << 3;
const WRITE: i32 = 1 << 4;
const CREATE: i32 = 1 << 5;
const DELETE: i32 = 1 << 6;
const ALTER: i32 = 1 << 7;
const DESCRIBE: i32 = 1 << 8;
const CLUSTER_ACTION: i32 = 1 << 9;
const DESCRIBE_CONFIGS: i32 = 1 << 10;
const ALTER_CONFIGS: i32 = 1 << 11;
const IDEMPOTENT_WRITE: i32 = 1 << 12;

/// What a response carries when the request did not ask for the operations.
pub const NOT_ASKED: i32 = i32::MIN;

/// Every operation on a topic (Kafka's `AclEntry.supportedOperations`).
pub const TOPIC_OPERATIONS: i32 =
    READ | WRITE | CREATE | DELETE | ALTER | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS;

/// Every operation on a group.
pub const GROUP_OPERATIONS: i32 = READ | DESCRIBE | DELETE | DESCRIBE_CONFIGS | ALTER_CONFIGS;

/// Every operation on the cluster.
pub const CLUSTER_OPERATIONS: i32 = CREATE
    | CLUSTER_ACTION
    | DESCRIBE_CONFIGS
    | ALTER_CONFIGS
    | IDEMPOTENT_WRITE
    | ALTER
    | DESCRIBE;
