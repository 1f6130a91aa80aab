//! Every metric's name, type and help, in one place.
//!
//! The names are those that Kafka's MBeans get from the JMX exporter's and Strimzi's rules, and those
//! of `kafka_exporter`, so that their dashboards and alerts work. Labels are in snake_case here; a page for
//! Prometheus spells those of Kafka's names as Kafka's exporters do ([`super::Format`]).

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Counter,
    Gauge,
    Summary,
    /// A gauge whose inherited name ends like a part of a summary.
    Untyped,
}

/// One metric: a name, and the series that differ in labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    pub name: &'static str,
    pub kind: Type,
    pub help: &'static str,
}

macro_rules! families {
    ($($constant:ident $kind:ident $name:literal $help:literal;)*) => {
        $(pub const $constant: Family = Family {
            name: $name,
            kind: Type::$kind,
            help: $help,
        };)*
        /// All of them, for tests and documentation.
        pub const FAMILIES: &[Family] = &[$($constant),*];
    };
}

families! {
    MESSAGES_IN Counter "kafka_server_brokertopicmetrics_messagesin_total" "Records appended by producers.";
    BYTES_IN Counter "kafka_server_brokertopicmetrics_bytesin_total" "Bytes of record batches received from producers.";
    BYTES_OUT Counter "kafka_server_brokertopicmetrics_bytesout_total" "Bytes of record batches sent to consumers.";
    BYTES_REJECTED Counter "kafka_server_brokertopicmetrics_bytesrejected_total" "Bytes of record batches that were larger than the topic allows.";
    FAILED_PRODUCE Counter "kafka_server_brokertopicmetrics_failedproducerequests_total" "Produce requests that failed for the topic.";
    FAILED_FETCH Counter "kafka_server_brokertopicmetrics_failedfetchrequests_total" "Fetch requests that failed for the topic.";
    TOTAL_PRODUCE Counter "kafka_server_brokertopicmetrics_totalproducerequests_total" "Produce requests that named the topic.";
    TOTAL_FETCH Counter "kafka_server_brokertopicmetrics_totalfetchrequests_total" "Fetch requests that named the topic.";
    REPLICATION_BYTES_IN Counter "kafka_server_brokertopicmetrics_replicationbytesin_total" "Bytes of record batches fetched from leaders.";
    REPLICATION_BYTES_OUT Counter "kafka_server_brokertopicmetrics_replicationbytesout_total" "Bytes of record batches sent to followers.";
    PRODUCE_CONVERSIONS Counter "kafka_server_brokertopicmetrics_producemessageconversions_total" "Records that were rewritten in another compression at append.";
    FETCH_CONVERSIONS Counter "kafka_server_brokertopicmetrics_fetchmessageconversions_total" "Records that were rewritten in an older format for a consumer.";

    PARTITION_COUNT Gauge "kafka_server_replicamanager_partitioncount" "Partitions with a replica on this broker.";
    LEADER_COUNT Gauge "kafka_server_replicamanager_leadercount" "Partitions that this broker leads.";
    UNDER_REPLICATED Gauge "kafka_server_replicamanager_underreplicatedpartitions" "Partitions led here whose in-sync replicas are fewer than their replicas.";
    UNDER_MIN_ISR Gauge "kafka_server_replicamanager_underminisrpartitioncount" "Partitions led here with fewer in-sync replicas than min.insync.replicas.";
    AT_MIN_ISR Gauge "kafka_server_replicamanager_atminisrpartitioncount" "Partitions led here with exactly min.insync.replicas in-sync replicas.";
    OFFLINE_REPLICAS Gauge "kafka_server_replicamanager_offlinereplicacount" "Replicas here whose log directory failed.";
    REASSIGNING Gauge "kafka_server_replicamanager_reassigningpartitions" "Partitions led here that are being moved.";
    ISR_SHRINKS Counter "kafka_server_replicamanager_isrshrinks_total" "In-sync replica sets that lost a member.";
    ISR_EXPANDS Counter "kafka_server_replicamanager_isrexpands_total" "In-sync replica sets that gained a member.";
    FAILED_ISR_UPDATES Counter "kafka_server_replicamanager_failedisrupdates_total" "Changes of in-sync replica sets that the registry refused.";

    PARTITION_UNDER_MIN_ISR Gauge "kafka_cluster_partition_underminisr" "1 while the partition has fewer in-sync replicas than min.insync.replicas.";
    PARTITION_AT_MIN_ISR Gauge "kafka_cluster_partition_atminisr" "1 while the partition has exactly min.insync.replicas in-sync replicas.";
    PARTITION_REPLICAS Gauge "kafka_cluster_partition_replicascount" "Replicas of the partition.";
    PARTITION_ISR Gauge "kafka_cluster_partition_insyncreplicascount" "In-sync replicas of the partition.";
    PARTITION_UNDER_REPLICATED Gauge "kafka_cluster_partition_underreplicated" "1 while the partition has fewer in-sync replicas than replicas.";

    ACTIVE_CONTROLLER Gauge "kafka_controller_kafkacontroller_activecontrollercount" "1 on the broker that is the controller.";
    OFFLINE_PARTITIONS Gauge "kafka_controller_kafkacontroller_offlinepartitionscount" "Partitions of the cluster without a leader.";
    GLOBAL_TOPICS Gauge "kafka_controller_kafkacontroller_globaltopiccount" "Topics of the cluster.";
    GLOBAL_PARTITIONS Gauge "kafka_controller_kafkacontroller_globalpartitioncount" "Partitions of the cluster.";
    PREFERRED_IMBALANCE Gauge "kafka_controller_kafkacontroller_preferredreplicaimbalancecount" "Partitions of the cluster that another than their first replica leads.";
    ACTIVE_BROKERS Gauge "kafka_controller_kafkacontroller_activebrokercount" "Brokers that are registered and serve.";
    FENCED_BROKERS Gauge "kafka_controller_kafkacontroller_fencedbrokercount" "Brokers that are known and do not serve.";
    METADATA_ERRORS Gauge "kafka_controller_kafkacontroller_metadataerrorcount" "Values of the registry that could not be understood.";
    UNCLEAN_ELECTIONS Counter "kafka_controller_controllerstats_uncleanleaderelections_total" "Leaders that were elected here without being in sync.";
    LEADER_ELECTIONS Summary "kafka_controller_controllerstats_leaderelectionrateandtimems" "Leaders that were elected here, by the time of writing them down, in milliseconds.";
    CLUSTER_UNDER_REPLICATED Gauge "ottla_cluster_under_replicated_partitions" "Partitions of the cluster whose in-sync replicas are fewer than their replicas; told by the controller.";
    CLUSTER_UNDER_MIN_ISR Gauge "ottla_cluster_under_min_isr_partitions" "Partitions of the cluster with fewer in-sync replicas than min.insync.replicas; told by the controller.";

    RAFT_STATE Gauge "kafka_server_raftmetrics_current_state" "1, with what this broker is to the cluster: leader is the controller.";
    RAFT_LEADER Gauge "kafka_server_raftmetrics_current_leader" "The controller, or -1.";
    RAFT_EPOCH Gauge "kafka_server_raftmetrics_current_epoch" "Revision of the registry at which the controller took its seat.";
    RAFT_HIGH_WATERMARK Gauge "kafka_server_raftmetrics_high_watermark" "Revision of the registry that this broker has seen.";
    RAFT_LOG_END Gauge "kafka_server_raftmetrics_log_end_offset" "Revision of the registry that this broker has seen.";

    RAFT_VOTE Gauge "kafka_server_raftmetrics_current_vote" "This broker while it is the controller, or -1: who takes the seat first has it.";
    RAFT_APPEND_RATE Gauge "kafka_server_raftmetrics_append_records_rate" "Keys of the registry that this broker writes per second.";
    RAFT_FETCH_RATE Gauge "kafka_server_raftmetrics_fetch_records_rate" "Changes of the registry's keys that this broker hears of per second.";
    RAFT_COMMIT_LATENCY Gauge "kafka_server_raftmetrics_commit_latency_avg" "Time of what this broker has lately written to the registry, in milliseconds.";
    REGISTRY_REQUESTS Counter "kafka_server_raftchannelmetrics_request_total" "Requests of this broker to the registry.";
    REGISTRY_ANSWERS Counter "kafka_server_raftchannelmetrics_response_total" "Answers of the registry to this broker, and changes that it told of.";
    REGISTRY_BYTES_OUT Counter "kafka_server_raftchannelmetrics_outgoing_byte_total" "Bytes of keys and values that this broker sent to the registry.";
    REGISTRY_BYTES_IN Counter "kafka_server_raftchannelmetrics_incoming_byte_total" "Bytes of keys and values that this broker got from the registry.";
    METADATA_OFFSET Gauge "kafka_server_brokermetadatametrics_last_applied_record_offset" "Revision of the registry that this broker has seen.";
    METADATA_LOAD_ERRORS Untyped "kafka_server_brokermetadatametrics_metadata_load_error_count" "Values of the registry that could not be understood.";

    LOG_SIZE Gauge "kafka_log_log_size" "Bytes of the partition's log on this broker.";
    LOG_START_OFFSET Gauge "kafka_log_log_logstartoffset" "First offset of the partition's log on this broker.";
    LOG_END_OFFSET Gauge "kafka_log_log_logendoffset" "Offset that the next record of the partition gets on this broker.";
    LOG_SEGMENTS Gauge "kafka_log_log_numlogsegments" "Segments of the partition's log on this broker.";
    LOG_DAMAGED Gauge "ottla_log_damaged_places" "Damaged places of the partition's log on this broker, which are not served; only where there are any.";
    DAMAGE_FOUND Counter "ottla_log_damage_found_total" "Damaged places that were found in logs: when they were opened, read or scrubbed.";
    OFFLINE_LOG_DIRS Gauge "kafka_log_logmanager_offlinelogdirectorycount" "Log directories that failed.";
    FULL_LOG_DIRS Gauge "ottla_log_directories_full" "Log directories to which produce is refused because their disk is full.";
    CLEANER_DIRTY Gauge "kafka_log_logcleanermanager_max_dirty_percent" "Largest uncleaned part of a compacted log, in percent.";
    CLEANER_UNCLEANABLE Gauge "kafka_log_logcleanermanager_uncleanable_partitions_count_total_partitions" "Compacted logs that the cleaner gave up.";
    LOG_FLUSH Summary "kafka_log_logflushstats_logflushrateandtimems" "Time of bringing what was appended to a partition to disk, in milliseconds.";

    REQUESTS Counter "kafka_network_requestmetrics_requests_total" "Requests by API and version.";
    REQUEST_ERRORS Counter "kafka_network_requestmetrics_errors_total" "Error codes of answers by API, one for each topic, partition or group that has its own.";
    TOTAL_TIME Summary "kafka_network_requestmetrics_totaltimems" "Time from a whole request to a whole answer, in milliseconds.";
    QUEUE_TIME Summary "kafka_network_requestmetrics_requestqueuetimems" "Time of waiting for its turn while queued.max.requests others are handled, in milliseconds.";
    LOCAL_TIME Summary "kafka_network_requestmetrics_localtimems" "Time in the handler, in milliseconds.";
    REMOTE_TIME Summary "kafka_network_requestmetrics_remotetimems" "Time of waiting for other brokers, the disk, or bytes, in milliseconds.";
    RESPONSE_QUEUE_TIME Summary "kafka_network_requestmetrics_responsequeuetimems" "Time of waiting for the answers before it on its connection, in milliseconds.";
    RESPONSE_SEND_TIME Summary "kafka_network_requestmetrics_responsesendtimems" "Time of sending the answer, in milliseconds.";

    NETWORK_IDLE Gauge "kafka_network_socketserver_networkprocessoravgidle_percent" "Part of the processor time that this process has lately left unused, 0 to 1.";
    REQUEST_QUEUE Gauge "kafka_network_requestchannel_requestqueuesize" "Requests that wait for their turn while queued.max.requests others are handled.";
    RESPONSE_QUEUE Gauge "kafka_network_requestchannel_responsequeuesize" "Answers that are being sent.";
    HANDLER_IDLE Gauge "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent" "Part of the processor time that this process has lately left unused, 0 to 1.";
    CONNECTIONS Untyped "kafka_server_socket_server_metrics_connection_count" "Open client connections.";
    CONNECTION_RATE Gauge "kafka_server_socket_server_metrics_connection_creation_rate" "Connections accepted per second.";
    CLOSE_RATE Gauge "kafka_server_socket_server_metrics_connection_close_rate" "Connections closed per second.";
    SOFTWARE Gauge "kafka_server_socket_server_metrics_connections_software" "Open client connections by the software that the client names.";
    CLIENT_VERSIONS Counter "ottla_client_connections_total" "Connections that have used a version of an API, by the software that the client names.";
    CLIENT_TOO_OLD Counter "ottla_client_too_old_for_kafka_4_requests_total" "Refused requests in versions that Kafka 4 does not serve any more (KIP-896), by client.";
    TLS_INFO Gauge "kafka_server_socket_server_metrics_connections_tls_info" "Open client connections by cipher and protocol.";
    CONNECTIONS_REFUSED Counter "ottla_connections_refused_total" "Connections that were closed at once because of a limit.";

    READY Gauge "ottla_ready" "1 while /readyz says yes.";
    BROKER_STATE Gauge "kafka_server_kafkaserver_brokerstate" "What the broker is doing: 1 starting, 2 recovering, 3 running, 6 and 7 stopping.";
    DISK_READ Gauge "kafka_server_kafkaserver_linux_disk_read_bytes" "Bytes that this process made the disks read.";
    DISK_WRITE Gauge "kafka_server_kafkaserver_linux_disk_write_bytes" "Bytes that this process made the disks write.";
    PURGATORY Gauge "kafka_server_delayedoperationpurgatory_purgatorysize" "Requests that wait for something, by what they are.";
    FETCH_SESSIONS Gauge "kafka_server_fetchsessioncache_numincrementalfetchsessions" "Incremental fetch sessions.";
    FETCH_SESSION_PARTITIONS Gauge "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached" "Partitions in incremental fetch sessions.";
    FETCH_SESSION_EVICTIONS Counter "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total" "Incremental fetch sessions that had to make room.";

    GROUPS Gauge "kafka_coordinator_group_groupmetadatamanager_numgroups" "Groups that this broker coordinates.";
    GROUP_OFFSETS Gauge "kafka_coordinator_group_groupmetadatamanager_numoffsets" "Offsets that groups coordinated here have committed.";
    GROUPS_STABLE Gauge "kafka_coordinator_group_groupmetadatamanager_numgroupsstable" "Groups in state Stable.";
    GROUPS_EMPTY Gauge "kafka_coordinator_group_groupmetadatamanager_numgroupsempty" "Groups in state Empty.";
    GROUPS_DEAD Gauge "kafka_coordinator_group_groupmetadatamanager_numgroupsdead" "Groups in state Dead.";
    GROUPS_PREPARING Gauge "kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance" "Groups in state PreparingRebalance.";
    GROUPS_COMPLETING Gauge "kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance" "Groups in state CompletingRebalance.";
    FETCHER_LAG Gauge "kafka_server_replicafetchermanager_maxlag" "Largest distance of a follower here to its leader, in records.";
    FETCHER_RATE Gauge "kafka_server_replicafetchermanager_minfetchrate" "Fetches per second of the slowest replica fetcher.";

    EXPORTER_BROKERS Gauge "kafka_brokers" "Brokers of the cluster.";
    EXPORTER_BROKER_INFO Gauge "kafka_broker_info" "Brokers of the cluster with their addresses.";
    EXPORTER_PARTITIONS Gauge "kafka_topic_partitions" "Partitions of the topic.";
    EXPORTER_CURRENT_OFFSET Gauge "kafka_topic_partition_current_offset" "Offset that consumers of the partition can read up to.";
    EXPORTER_OLDEST_OFFSET Gauge "kafka_topic_partition_oldest_offset" "First offset of the partition.";
    EXPORTER_LEADER Gauge "kafka_topic_partition_leader" "Broker that leads the partition.";
    EXPORTER_PREFERRED Gauge "kafka_topic_partition_leader_is_preferred" "1 while the partition's first replica leads it.";
    EXPORTER_REPLICAS Gauge "kafka_topic_partition_replicas" "Replicas of the partition.";
    EXPORTER_IN_SYNC Gauge "kafka_topic_partition_in_sync_replica" "In-sync replicas of the partition.";
    EXPORTER_UNDER_REPLICATED Gauge "kafka_topic_partition_under_replicated_partition" "1 while the partition has fewer in-sync replicas than replicas.";
    GROUP_OFFSET Gauge "kafka_consumergroup_current_offset" "Offset that the group has committed for the partition.";
    GROUP_LAG Gauge "kafka_consumergroup_lag" "Records of the partition that the group has not committed yet.";
    GROUP_OFFSET_SUM Untyped "kafka_consumergroup_current_offset_sum" "Offsets that the group has committed for the topic, added up.";
    GROUP_LAG_SUM Untyped "kafka_consumergroup_lag_sum" "Records of the topic that the group has not committed yet.";
    GROUP_MEMBERS Gauge "kafka_consumergroup_members" "Members of the group.";
    GROUP_LAG_SECONDS Gauge "ottla_consumergroup_lag_seconds" "Age of the first record of the partition that the group has not committed yet.";
    GROUP_LAG_SECONDS_MAX Gauge "ottla_consumergroup_lag_seconds_max" "Age of the oldest record that the group has not committed yet.";

    LEFT_OUT Gauge "ottla_metrics_series_left_out" "Series of a family that this page leaves out (metrics.series.max, metrics.page.bytes.max).";
    BUILD_INFO Gauge "ottla_build_info" "1, with the version of the broker.";
    PROCESS_CPU Counter "process_cpu_seconds_total" "Processor time that the process has used, in seconds.";
    PROCESS_RESIDENT Gauge "process_resident_memory_bytes" "Memory of the process that is in RAM.";
    PROCESS_VIRTUAL Gauge "process_virtual_memory_bytes" "Address space of the process.";
    PROCESS_OPEN_FDS Gauge "process_open_fds" "File descriptors that are open.";
    PROCESS_MAX_FDS Gauge "process_max_fds" "File descriptors that may be open.";
    PROCESS_START Gauge "process_start_time_seconds" "When the process started, in seconds since 1970.";
    JVM_MEMORY Gauge "jvm_memory_used_bytes" "Memory of the process that is in RAM, for boards that ask a JVM.";
    JVM_GC Summary "jvm_gc_collection_seconds" "Nothing: there is no garbage collector, for boards that ask a JVM.";
    JVM_THREADS Gauge "jvm_threads_current" "Threads of the process, for boards that ask a JVM.";
}

/// The families of [`super::TopicMetrics`], in its order.
pub const TOPIC_COUNTERS: [Family; 12] = [
    MESSAGES_IN,
    BYTES_IN,
    BYTES_OUT,
    BYTES_REJECTED,
    FAILED_PRODUCE,
    FAILED_FETCH,
    TOTAL_PRODUCE,
    TOTAL_FETCH,
    REPLICATION_BYTES_IN,
    REPLICATION_BYTES_OUT,
    PRODUCE_CONVERSIONS,
    FETCH_CONVERSIONS,
];

/// The lowest version of an API that Kafka 4 serves (KIP-896, with what 4.0.1 and 4.1 took back).
pub(super) fn kafka_4_floor(api_key: i16) -> i16 {
    match api_key {
        0 => 3,                                             // Produce
        1 => 4,                                             // Fetch
        8 | 19 | 23 => 2, // OffsetCommit, CreateTopics, OffsetForLeaderEpoch
        2 | 9 | 20 | 27 | 29..=32 | 34 | 35 | 38..=41 => 1, // ListOffsets, OffsetFetch, DeleteTopics …
        _ => 0,
    }
}

/// The name of an API in Kafka's request metrics.
pub(super) fn request_name(api_key: i16) -> &'static str {
    let index = usize::try_from(api_key).ok();
    index
        .and_then(|index| API_NAMES.get(index).copied())
        .unwrap_or("Unknown")
}

/// How Kafka calls a Fetch of a follower.
pub(super) const FETCH_FOLLOWER: &str = "FetchFollower";

/// The APIs by key, as Kafka's request metrics call them.
pub(super) const API_NAMES: [&str; 93] = [
    "Produce",
    "FetchConsumer",
    "ListOffsets",
    "Metadata",
    "LeaderAndIsr",
    "StopReplica",
    "UpdateMetadata",
    "ControlledShutdown",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "DescribeGroups",
    "ListGroups",
    "SaslHandshake",
    "ApiVersions",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "WriteTxnMarkers",
    "TxnOffsetCommit",
    "DescribeAcls",
    "CreateAcls",
    "DeleteAcls",
    "DescribeConfigs",
    "AlterConfigs",
    "AlterReplicaLogDirs",
    "DescribeLogDirs",
    "SaslAuthenticate",
    "CreatePartitions",
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
    "DescribeDelegationToken",
    "DeleteGroups",
    "ElectLeaders",
    "IncrementalAlterConfigs",
    "AlterPartitionReassignments",
    "ListPartitionReassignments",
    "OffsetDelete",
    "DescribeClientQuotas",
    "AlterClientQuotas",
    "DescribeUserScramCredentials",
    "AlterUserScramCredentials",
    "Vote",
    "BeginQuorumEpoch",
    "EndQuorumEpoch",
    "DescribeQuorum",
    "AlterPartition",
    "UpdateFeatures",
    "Envelope",
    "FetchSnapshot",
    "DescribeCluster",
    "DescribeProducers",
    "BrokerRegistration",
    "BrokerHeartbeat",
    "UnregisterBroker",
    "DescribeTransactions",
    "ListTransactions",
    "AllocateProducerIds",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
    "ControllerRegistration",
    "GetTelemetrySubscriptions",
    "PushTelemetry",
    "AssignReplicasToDirs",
    "ListConfigResources",
    "DescribeTopicPartitions",
    "ShareGroupHeartbeat",
    "ShareGroupDescribe",
    "ShareFetch",
    "ShareAcknowledge",
    "AddRaftVoter",
    "RemoveRaftVoter",
    "UpdateRaftVoter",
    "InitializeShareGroupState",
    "ReadShareGroupState",
    "WriteShareGroupState",
    "DeleteShareGroupState",
    "ReadShareGroupStateSummary",
    "StreamsGroupHeartbeat",
    "StreamsGroupDescribe",
    "DescribeShareGroupOffsets",
    "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets",
];
