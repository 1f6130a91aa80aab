//! Identity, the registry, replication, the controller.

use super::keys;

keys! { CLUSTER:
    CLASS "alter.config.policy.class.name" = null, Any, I, ReadOnly,
        "Java class that judges changes of configurations; none can be loaded here.";
    BOOLEAN "auto.create.topics.enable" = "true", Any, Y, ReadOnly,
        "Whether asking for the metadata of an unknown topic creates it.";
    BOOLEAN "auto.leader.rebalance.enable" = "true", Any, Y, ReadOnly,
        "Whether leadership returns to each partition's first replica by itself.";
    INT "broker.heartbeat.interval.ms" = "2000", Any, Y, ReadOnly,
        "How often the broker renews its registration, at most a third of broker.session.timeout.ms.";
    INT "broker.id" = "-1", Any, Y, ReadOnly,
        "Old name of node.id; both must agree where both are set.";
    BOOLEAN "broker.id.generation.enable" = null, Any, A, Internal,
        "Whether a broker without an id is given one; ids are always set here.";
    STRING "broker.rack" = null, Any, Y, ReadOnly,
        "Rack or zone of this broker: replicas are spread over racks, and clients may read nearby.";
    INT "broker.session.timeout.ms" = "9000", Any, Y, ReadOnly,
        "Time without renewal after which the registration of a broker has lapsed; from 6 s on others lead by then what it led.";
    STRING "cluster.id" = null, Any, Y, ReadOnly,
        "Id of a new cluster, as kafka-storage format sets it; one is chosen at random where it is not set.";
    LIST "config.providers" = "", Any, Y, Dynamic,
        "Names of the providers that values of the form ${name:path:key} are looked up with: Kafka's env, file and directory providers are understood.";
    STRING "control.plane.listener.name" = null, Any, I, Internal,
        "Listener of the controller in ZooKeeper times; there is none here.";
    BOOLEAN "controlled.shutdown.enable" = "true", Any, Y, ReadOnly,
        "Whether a broker hands its leaderships over before it stops.";
    INT "controlled.shutdown.max.retries" = null, Any, A, Internal,
        "How often handing over leaderships was retried in ZooKeeper times.";
    LONG "controlled.shutdown.retry.backoff.ms" = null, Any, A, Internal,
        "Pause between such retries in ZooKeeper times.";
    LIST "controller.listener.names" = null, Any, A, ReadOnly,
        "Listeners of Kafka's controllers: they are not bound here and not shown to clients.";
    LONG "controller.performance.always.log.threshold.ms" = "2000", AtLeast(0), I, Internal,
        "Duration above which events of Kafka's controller are logged.";
    LONG "controller.performance.sample.period.ms" = "60000", AtLeast(100), I, Internal,
        "Period of the log of slow events of Kafka's controller.";
    INT "controller.quorum.append.linger.ms" = "25", AtLeast(0), I, ReadOnly,
        "Batching delay of Kafka's metadata quorum, which this broker does not have.";
    BOOLEAN "controller.quorum.auto.join.enable" = "false", Any, I, ReadOnly,
        "Whether controllers join Kafka's metadata quorum by themselves; there is no such quorum here.";
    LIST "controller.quorum.bootstrap.servers" = "", Any, I, ReadOnly,
        "Addresses of Kafka's metadata quorum; the registry takes its place.";
    INT "controller.quorum.election.backoff.max.ms" = "1000", AtLeast(0), I, ReadOnly,
        "Longest pause between elections in Kafka's metadata quorum.";
    INT "controller.quorum.election.timeout.ms" = "1000", AtLeast(0), I, ReadOnly,
        "Time after which an election in Kafka's metadata quorum is repeated.";
    INT "controller.quorum.fetch.max.bytes" = "1048576", AtLeast(1), I, ReadOnly,
        "Largest fetch of metadata records from Kafka's metadata quorum.";
    INT "controller.quorum.fetch.snapshot.max.bytes" = "1048576", AtLeast(1), I, ReadOnly,
        "Largest fetch of a snapshot from Kafka's metadata quorum.";
    INT "controller.quorum.fetch.timeout.ms" = "2000", AtLeast(0), I, ReadOnly,
        "Time without a fetch after which a voter of Kafka's metadata quorum starts an election.";
    INT "controller.quorum.request.timeout.ms" = "2000", AtLeast(0), I, ReadOnly,
        "Timeout of requests inside Kafka's metadata quorum.";
    INT "controller.quorum.retry.backoff.ms" = "20", AtLeast(0), I, ReadOnly,
        "Pause between retries inside Kafka's metadata quorum.";
    LIST "controller.quorum.voters" = "", Any, I, ReadOnly,
        "Voters of Kafka's metadata quorum; the registry takes its place.";
    INT "controller.socket.timeout.ms" = "30000", Any, I, ReadOnly,
        "Timeout of requests between brokers and Kafka's controller.";
    CLASS "create.topic.policy.class.name" = null, Any, I, ReadOnly,
        "Java class that judges new topics; none can be loaded here.";
    INT "default.replication.factor" = "1", Any, Y, ReadOnly,
        "Replicas of a topic that is created without saying how many.";
    BOOLEAN "delete.topic.enable" = "true", Any, Y, ReadOnly,
        "Whether topics may be deleted.";
    LIST "etcd.endpoints" = "", Any, Y, ReadOnly,
        "Addresses of the etcd cluster that holds the registry; where none is set the registry is kept in the data directory.";
    PASSWORD "etcd.password" = null, Any, Y, ReadOnly,
        "Password of etcd.user.";
    STRING "etcd.prefix" = "/ottla", Any, Y, ReadOnly,
        "What the keys of this cluster in etcd begin with.";
    STRING "etcd.tls.ca.file" = null, Any, Y, ReadOnly,
        "PEM file with the certificates that etcd's is checked against; without it those that the machine trusts. TLS is used for endpoints that begin with https://.";
    STRING "etcd.tls.certificate.file" = null, Any, Y, ReadOnly,
        "PEM file with the certificate chain by which this broker shows etcd who it is; needs etcd.tls.key.file.";
    STRING "etcd.tls.key.file" = null, Any, Y, ReadOnly,
        "PEM file with the private key of etcd.tls.certificate.file.";
    STRING "etcd.user" = null, Any, Y, ReadOnly,
        "User that this broker logs in to etcd as, with etcd.password.";
    LONG "follower.replication.throttled.rate" = null, AtLeast(0), I, InternalDynamic,
        "Bytes per second that throttled replicas of this broker fetch at most.";
    INT "initial.broker.registration.timeout.ms" = "60000", Any, Y, ReadOnly,
        "How long the broker tries to register at the start before it gives up.";
    LONG "internal.metadata.delete.delay.millis" = "60000", Any, I, Internal,
        "Delay of deleting old metadata files of Kafka's metadata log.";
    INT "internal.metadata.log.segment.bytes" = null, Any, I, Internal,
        "Segment size of Kafka's metadata log, for tests.";
    INT "internal.metadata.max.batch.size.in.bytes" = "8388608", Any, I, Internal,
        "Largest batch of Kafka's metadata log, for tests.";
    LONG "leader.imbalance.check.interval.seconds" = "300", AtLeast(1), Y, ReadOnly,
        "How often leadership is compared with the preferred replicas.";
    INT "leader.imbalance.per.broker.percentage" = null, Any, A, Internal,
        "Imbalance that a broker was allowed in ZooKeeper times.";
    LONG "leader.replication.throttled.rate" = null, AtLeast(0), I, InternalDynamic,
        "Bytes per second that this broker serves to throttled replicas at most.";
    STRING "metadata.log.dir" = null, Any, I, ReadOnly,
        "Directory of Kafka's metadata log, which this broker does not have.";
    LONG "metadata.log.max.record.bytes.between.snapshots" = "20971520", AtLeast(1), I, ReadOnly,
        "Bytes of metadata records after which Kafka writes a snapshot.";
    LONG "metadata.log.max.snapshot.interval.ms" = "3600000", AtLeast(0), I, ReadOnly,
        "Time after which Kafka writes a snapshot of its metadata.";
    INT "metadata.log.segment.bytes" = "1073741824", AtLeast(8388608), I, ReadOnly,
        "Segment size of Kafka's metadata log.";
    LONG "metadata.log.segment.ms" = "604800000", Any, I, ReadOnly,
        "Age at which a segment of Kafka's metadata log is closed.";
    INT "metadata.max.idle.interval.ms" = "500", AtLeast(0), I, ReadOnly,
        "How often Kafka's controller writes a record that says nothing else has happened.";
    LONG "metadata.max.retention.bytes" = "104857600", Any, I, ReadOnly,
        "Size up to which Kafka's metadata log is kept.";
    LONG "metadata.max.retention.ms" = "604800000", Any, I, ReadOnly,
        "Age up to which Kafka's metadata log is kept.";
    INT "node.id" = null, AtLeast(0), Y, ReadOnly,
        "Number of this broker, unique in its cluster.";
    INT "num.partitions" = "1", AtLeast(1), Y, ReadOnly,
        "Partitions of a topic that is created without saying how many.";
    INT "num.replica.alter.log.dirs.threads" = null, Any, I, ReadOnly,
        "Threads that move replicas between log directories.";
    INT "num.replica.fetchers" = "1", AtLeast(1), Y, Dynamic,
        "Connections by which a broker fetches from each leader.";
    LIST "process.roles" = null, EachOf(&["broker", "controller"]), A, ReadOnly,
        "Whether this process is a broker, a controller, or both; it is a broker here in any case.";
    LONG "replica.alter.log.dirs.io.max.bytes.per.second" = null, AtLeast(0), I, InternalDynamic,
        "Bytes per second that moves between log directories may take.";
    INT "replica.fetch.backoff.ms" = "1000", AtLeast(0), Y, ReadOnly,
        "Pause of a replica fetcher after an error.";
    INT "replica.fetch.max.bytes" = "1048576", AtLeast(0), Y, ReadOnly,
        "Bytes that a replica fetches of one partition at once, beyond the first batch.";
    INT "replica.fetch.min.bytes" = "1", Any, Y, ReadOnly,
        "Bytes for which a replica's fetch waits.";
    INT "replica.fetch.response.max.bytes" = "10485760", AtLeast(0), Y, ReadOnly,
        "Bytes that a replica fetches at once, beyond the first batch.";
    INT "replica.fetch.wait.max.ms" = "500", Any, Y, ReadOnly,
        "Longest time that a replica's fetch waits for bytes.";
    LONG "replica.high.watermark.checkpoint.interval.ms" = "5000", Any, Y, ReadOnly,
        "How often the high watermarks are written to disk.";
    LONG "replica.lag.time.max.ms" = "30000", Any, Y, ReadOnly,
        "Time after which a replica that has not caught up leaves the in-sync replicas.";
    STRING "replica.selector.class" = null, Any, A, ReadOnly,
        "How the replica that a consumer reads from is chosen; Kafka's rack-aware selector is known by its name.";
    INT "replica.socket.receive.buffer.bytes" = "65536", Any, Y, ReadOnly,
        "Receive buffer of connections to leaders.";
    INT "replica.socket.timeout.ms" = "30000", Any, Y, ReadOnly,
        "Timeout of fetches from leaders.";
    INT "reserved.broker.max.id" = null, AtLeast(0), A, Internal,
        "Largest id that may be set by hand beside generated ones, in ZooKeeper times.";
    LONG "server.max.startup.time.ms" = "9223372036854775807", AtLeast(0), A, Internal,
        "How long the start may take.";
    BOOLEAN "unstable.api.versions.enable" = "false", Any, I, Internal,
        "Whether versions of APIs are served that Kafka still develops.";
    BOOLEAN "unstable.feature.versions.enable" = "false", Any, I, Internal,
        "Whether features are enabled that Kafka still develops.";
    STRING "zookeeper.connect" = null, Any, I, Internal,
        "Addresses of ZooKeeper; nothing connects to it.";
}
