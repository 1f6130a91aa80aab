//! Listeners, sockets, limits, quotas, metrics.

use super::keys;

keys! { NETWORK:
    LIST "advertised.listeners" = null, Any, Y, ReadOnly,
        "Addresses that clients are told to connect to, where they differ from those that are bound.";
    INT "alter.log.dirs.replication.quota.window.num" = "11", AtLeast(1), I, ReadOnly,
        "Windows over which moves between log directories are counted.";
    INT "alter.log.dirs.replication.quota.window.size.seconds" = "1", AtLeast(1), I, ReadOnly,
        "Length of each window over which moves between log directories are counted.";
    INT "background.threads" = "10", AtLeast(1), A, Dynamic,
        "Threads for background work in Kafka; a runtime shared by all work takes their place.";
    CLASS "client.quota.callback.class" = null, Any, I, ReadOnly,
        "Java class that computes quotas; none can be loaded here.";
    LONG "connections.max.idle.ms" = "600000", Any, Y, ReadOnly,
        "Time without a request after which a connection is closed.";
    INT "controller.quota.window.num" = "11", AtLeast(1), I, ReadOnly,
        "Windows over which changes of metadata are counted against quotas.";
    INT "controller.quota.window.size.seconds" = "1", AtLeast(1), I, ReadOnly,
        "Length of each such window.";
    INT "delete.records.purgatory.purge.interval.requests" = "1", Any, I, ReadOnly,
        "How often Kafka clears finished waits of DeleteRecords.";
    LIST "early.start.listeners" = null, Any, I, ReadOnly,
        "Listeners that Kafka opens before its authorizer is ready.";
    INT "fetch.max.bytes" = "57671680", AtLeast(1024), Y, ReadOnly,
        "Bytes that one fetch returns at most, beyond the first batch.";
    INT "fetch.purgatory.purge.interval.requests" = "1000", Any, I, ReadOnly,
        "How often Kafka clears finished waits of Fetch.";
    STRING "inter.broker.listener.name" = null, Any, Y, ReadOnly,
        "Listener by which brokers reach each other.";
    STRING "inter.broker.protocol.version" = null, Any, A, Internal,
        "Protocol between brokers in Kafka before 4.0; accepted for old files.";
    INT "kafka.metrics.polling.interval.secs" = "10", AtLeast(1), I, ReadOnly,
        "How often Java metrics reporters poll; there are none here.";
    LIST "kafka.metrics.reporters" = "", Any, I, ReadOnly,
        "Java metrics reporters of the old kind; none can be loaded here.";
    STRING "listener.security.protocol.map" = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", Any, Y, ReadOnly,
        "Security protocol of each listener, as NAME:PROTOCOL pairs.";
    LIST "listeners" = "PLAINTEXT://:9092", Any, Y, ReadOnly,
        "Addresses that are bound, as NAME://host:port; an empty host means all interfaces.";
    INT "max.connection.creation.rate" = "2147483647", AtLeast(0), Y, Dynamic,
        "Connections that are taken up per second at most; more wait for their turn.";
    INT "max.connections" = "2147483647", AtLeast(0), Y, Dynamic,
        "Connections that are open at most.";
    INT "max.connections.per.ip" = "2147483647", AtLeast(0), Y, Dynamic,
        "Connections that are open from one address at most.";
    STRING "max.connections.per.ip.overrides" = "", Any, Y, Dynamic,
        "Other bounds for single addresses, as host:count pairs.";
    INT "max.incremental.fetch.session.cache.slots" = "1000", AtLeast(0), Y, ReadOnly,
        "Incremental fetch sessions that are kept at most.";
    INT "max.request.partition.size.limit" = "2000", AtLeast(1), Y, ReadOnly,
        "Partitions that one answer of DescribeTopicPartitions holds at most.";
    LIST "metric.reporters" = "org.apache.kafka.common.metrics.JmxReporter", Any, I, Dynamic,
        "Java metrics reporters; metrics are served at metrics.listeners instead.";
    LIST "metrics.listeners" = "127.0.0.1:9404", Any, Y, ReadOnly,
        "Addresses at which metrics and health are served over HTTP, as host:port; empty for none.";
    INT "metrics.num.samples" = "2", AtLeast(1), I, ReadOnly,
        "Samples from which Kafka computes rates.";
    LONG "metrics.page.bytes.max" = "8388608", AtLeast(65536), Y, ReadOnly,
        "Bytes of a page of metrics: families of topics, partitions or groups that do not fit are left out whole, and counted.";
    STRING "metrics.recording.level" = "INFO", Any, I, ReadOnly,
        "Which metrics Kafka records: INFO, DEBUG or TRACE.";
    LONG "metrics.sample.window.ms" = "30000", AtLeast(1), I, ReadOnly,
        "Time over which Kafka takes a sample of a metric.";
    INT "metrics.series.max" = "100000", AtLeast(1000), Y, ReadOnly,
        "Series with labels on a page of metrics: families of topics, partitions or groups that do not fit are left out whole, and counted.";
    INT "num.io.threads" = "8", AtLeast(1), A, Dynamic,
        "Threads that handle requests in Kafka; a runtime shared by all work takes their place.";
    INT "num.network.threads" = "3", AtLeast(1), A, Dynamic,
        "Threads that read and write sockets in Kafka; a runtime shared by all work takes their place.";
    INT "producer.purgatory.purge.interval.requests" = "1000", Any, I, ReadOnly,
        "How often Kafka clears finished waits of Produce.";
    LONG "queued.max.request.bytes" = "-1", Any, Y, ReadOnly,
        "Bytes of requests that are read and not yet answered at most; -1 for no bound.";
    INT "queued.max.requests" = "500", AtLeast(1), Y, ReadOnly,
        "Requests of all connections that are handled at once; more wait for their turn, and their connections are not read.";
    INT "quota.window.num" = "11", AtLeast(1), A, ReadOnly,
        "Windows over which clients are counted against quotas.";
    INT "quota.window.size.seconds" = "1", AtLeast(1), A, ReadOnly,
        "Length of each window over which clients are counted against quotas.";
    INT "replication.quota.window.num" = "11", AtLeast(1), I, ReadOnly,
        "Windows over which replication is counted against its quota.";
    INT "replication.quota.window.size.seconds" = "1", AtLeast(1), I, ReadOnly,
        "Length of each window over which replication is counted against its quota.";
    INT "request.timeout.ms" = "30000", Any, A, ReadOnly,
        "Timeout of requests from broker to broker.";
    LONG "socket.connection.setup.timeout.max.ms" = "30000", Any, I, ReadOnly,
        "Longest time for which a connection to another broker is tried.";
    LONG "socket.connection.setup.timeout.ms" = "10000", Any, I, ReadOnly,
        "First time for which a connection to another broker is tried.";
    INT "socket.listen.backlog.size" = "50", AtLeast(1), Y, ReadOnly,
        "Connections that wait to be accepted at most.";
    INT "socket.receive.buffer.bytes" = "102400", Any, Y, ReadOnly,
        "Receive buffer of client connections; -1 for the system's default.";
    INT "socket.request.max.bytes" = "104857600", AtLeast(1), Y, ReadOnly,
        "Largest request that is read.";
    INT "socket.send.buffer.bytes" = "102400", Any, Y, ReadOnly,
        "Send buffer of client connections; -1 for the system's default.";
    INT "telemetry.max.bytes" = "1048576", AtLeast(1), I, ReadOnly,
        "Largest push of client metrics.";
}
