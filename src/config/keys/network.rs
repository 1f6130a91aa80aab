//! Listeners, sockets, limits, quotas, metrics.

use super::keys;

keys! { NETWORK:
    LIST "advertised.listeners" = null, Any, Y, ReadOnly,
        "";
    INT "alter.log.dirs.replication.quota.window.num" = "11", AtLeast(1), I, ReadOnly,
        "";
    INT "alter.log.dirs.replication.quota.window.size.seconds" = "1", AtLeast(1), I, ReadOnly,
        "";
    INT "background.threads" = "10", AtLeast(1), A, Dynamic,
        "";
    CLASS "client.quota.callback.class" = null, Any, I, ReadOnly,
        "";
    LONG "connections.max.idle.ms" = "600000", Any, Y, ReadOnly,
        "";
    INT "controller.quota.window.num" = "11", AtLeast(1), I, ReadOnly,
        "";
    INT "controller.quota.window.size.seconds" = "1", AtLeast(1), I, ReadOnly,
        "";
    INT "delete.records.purgatory.purge.interval.requests" = "1", Any, I, ReadOnly,
        "";
    LIST "early.start.listeners" = null, Any, I, ReadOnly,
        "";
    INT "fetch.max.bytes" = "57671680", AtLeast(1024), Y, ReadOnly,
        "";
    INT "fetch.purgatory.purge.interval.requests" = "1000", Any, I, ReadOnly,
        "";
    STRING "inter.broker.listener.name" = null, Any, Y, ReadOnly,
        "";
    STRING "inter.broker.protocol.version" = null, Any, A, Internal,
        "";
    INT "kafka.metrics.polling.interval.secs" = "10", AtLeast(1), I, ReadOnly,
        "";
    LIST "kafka.metrics.reporters" = "", Any, I, ReadOnly,
        "";
    STRING "listener.security.protocol.map" = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", Any, Y, PerBroker,
        "";
    LIST "listeners" = "PLAINTEXT://:9092", Any, Y, PerBroker,
        "";
    INT "max.connection.creation.rate" = "2147483647", AtLeast(0), Y, Dynamic,
        "";
    INT "max.connections" = "2147483647", AtLeast(0), Y, Dynamic,
        "";
    INT "max.connections.per.ip" = "2147483647", AtLeast(0), Y, Dynamic,
        "";
    STRING "max.connections.per.ip.overrides" = "", Any, Y, Dynamic,
        "";
    INT "max.incremental.fetch.session.cache.slots" = "1000", AtLeast(0), Y, ReadOnly,
        "";
    INT "max.request.partition.size.limit" = "2000", AtLeast(1), Y, ReadOnly,
        "";
    LIST "metric.reporters" = "org.apache.kafka.common.metrics.JmxReporter", Any, I, Dynamic,
        "";
    LIST "metrics.listeners" = "127.0.0.1:9404", Any, Y, ReadOnly,
        "";
    INT "metrics.num.samples" = "2", AtLeast(1), I, ReadOnly,
        "";
    STRING "metrics.recording.level" = "INFO", Any, I, ReadOnly,
        "";
    LONG "metrics.sample.window.ms" = "30000", AtLeast(1), I, ReadOnly,
        "";
    INT "num.io.threads" = "8", AtLeast(1), A, Dynamic,
        "";
    INT "num.network.threads" = "3", AtLeast(1), A, Dynamic,
        "";
    INT "producer.purgatory.purge.interval.requests" = "1000", Any, I, ReadOnly,
        "";
    LONG "queued.max.request.bytes" = "-1", Any, Y, ReadOnly,
        "";
    INT "queued.max.requests" = "500", AtLeast(1), A, ReadOnly,
        "";
    INT "quota.window.num" = "11", AtLeast(1), A, ReadOnly,
        "";
    INT "quota.window.size.seconds" = "1", AtLeast(1), A, ReadOnly,
        "";
    INT "replication.quota.window.num" = "11", AtLeast(1), I, ReadOnly,
        "";
    INT "replication.quota.window.size.seconds" = "1", AtLeast(1), I, ReadOnly,
        "";
    INT "request.timeout.ms" = "30000", Any, A, ReadOnly,
        "";
    LONG "socket.connection.setup.timeout.max.ms" = "30000", Any, I, ReadOnly,
        "";
    LONG "socket.connection.setup.timeout.ms" = "10000", Any, I, ReadOnly,
        "";
    INT "socket.listen.backlog.size" = "50", AtLeast(1), Y, ReadOnly,
        "";
    INT "socket.receive.buffer.bytes" = "102400", Any, Y, ReadOnly,
        "";
    INT "socket.request.max.bytes" = "104857600", AtLeast(1), Y, ReadOnly,
        "";
    INT "socket.send.buffer.bytes" = "102400", Any, Y, ReadOnly,
        "";
    INT "telemetry.max.bytes" = "1048576", AtLeast(1), I, ReadOnly,
        "";
}
