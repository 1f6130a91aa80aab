import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Apache Kafka's own Java clients against a broker: Clients NAME BOOTSTRAP. The same source for each version of kafka-clients. */
public final class Clients {
    static final long BASE = (System.currentTimeMillis() / 1000 - 3600) * 1000;
    static final boolean FULL = System.getenv("COMPAT_FULL") != null && !System.getenv("COMPAT_FULL").isEmpty();
    static Check check;
    static String bootstrap;
    static Admin admin;

    // ---- what is sent ----

    static byte[] bytes(String s) { return s.getBytes(StandardCharsets.UTF_8); }
    static byte[] key(int i) { return i % 10 == 3 ? null : bytes("key-" + i); }
    static byte[] value(int i) { return i % 10 == 7 ? null : bytes("value-" + i + "-" + "x".repeat(i * 37 % 500)); }
    static String headers(Iterable<Header> headers) {
        StringBuilder text = new StringBuilder();
        for (Header h : headers) text.append(h.key()).append('=').append(h.value() == null ? "null" : new String(h.value(), StandardCharsets.UTF_8)).append(';');
        return text.toString();
    }
    static ProducerRecord<byte[], byte[]> record(String topic, int partitions, int i) {
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, i % partitions, BASE + i, key(i), value(i));
        if (i % 3 == 0) record.headers().add("n", bytes("" + i)).add("n", bytes("again")).add("empty", new byte[0]).add("null", null);
        return record;
    }
    static String wantedHeaders(int i) { return i % 3 == 0 ? "n=" + i + ";n=again;empty=;null=null;" : ""; }

    static Properties properties(Object... settings) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("reconnect.backoff.max.ms", "500");
        for (int i = 0; i < settings.length; i += 2) p.put(settings[i], settings[i + 1].toString());
        return p;
    }
    static KafkaProducer<byte[], byte[]> producer(Object... settings) {
        Properties p = properties("linger.ms", 5, "enable.idempotence", false, "request.timeout.ms", 15000, "delivery.timeout.ms", 40000);
        p.putAll(properties(settings));
        return new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
    }
    static KafkaConsumer<byte[], byte[]> consumer(String group, Object... settings) {
        Properties p = properties("auto.offset.reset", "earliest", "enable.auto.commit", false, "fetch.max.wait.ms", 100,
            "session.timeout.ms", 10000, "heartbeat.interval.ms", 500);
        if (group != null) p.put("group.id", group);
        p.putAll(properties(settings));
        return new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Sends test records and remembers where each was acknowledged. */
    static final class Sender implements AutoCloseable {
        final KafkaProducer<byte[], byte[]> producer;
        final String topic;
        final int partitions;
        final Map<Integer, Future<RecordMetadata>> pending = new HashMap<>();
        final Map<Integer, String> acknowledged = new HashMap<>();   // record number -> partition@offset

        Sender(KafkaProducer<byte[], byte[]> producer, String topic, int partitions) { this.producer = producer; this.topic = topic; this.partitions = partitions; }
        Sender send(int from, int to) {
            for (int i = from; i < to; i++) pending.put(i, producer.send(record(topic, partitions, i)));
            return this;
        }
        Sender flush() throws Exception {
            producer.flush();
            for (Map.Entry<Integer, Future<RecordMetadata>> e : pending.entrySet()) {
                RecordMetadata m = e.getValue().get();
                acknowledged.put(e.getKey(), m.partition() + "@" + m.offset());
            }
            pending.clear();
            return this;
        }
        @Override public void close() { producer.close(Duration.ofSeconds(10)); }
    }

    /** Exactly the records from..to, each at its acknowledged offset, in offset order per partition, unchanged. */
    static void verify(Collection<ConsumerRecord<byte[], byte[]>> records, int from, int to, Sender sender) {
        Map<String, Integer> wanted = new HashMap<>();
        for (int i = from; i < to; i++) wanted.put(sender.acknowledged.get(i), i);
        Map<Integer, Long> last = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> r : records) {
            String place = r.partition() + "@" + r.offset();
            Integer i = wanted.remove(place);
            if (i == null) throw new AssertionError("a record at " + place + " that nobody was acknowledged, or twice");
            Check.that(Arrays.equals(r.key(), key(i)), "the key of record " + i);
            Check.that(Arrays.equals(r.value(), value(i)), "the value of record " + i);
            Check.equal(headers(r.headers()), wantedHeaders(i), "the headers of record " + i);
            Check.equal(r.timestampType() + " " + r.timestamp() + " " + r.partition(), TimestampType.CREATE_TIME + " " + (BASE + i) + " " + i % sender.partitions, "timestamp and partition of record " + i);
            Check.that(last.getOrDefault(r.partition(), -1L) < r.offset(), "offset " + r.offset() + " after " + last.get(r.partition()) + " in partition " + r.partition());
            last.put(r.partition(), r.offset());
        }
        Check.equal(wanted, "{}", "records that were not received");
    }
    static List<ConsumerRecord<byte[], byte[]>> byOffset(Collection<ConsumerRecord<byte[], byte[]>> records) {
        List<ConsumerRecord<byte[], byte[]>> sorted = new ArrayList<>(records);
        sorted.sort(Comparator.comparingLong(ConsumerRecord::offset));
        return sorted;
    }
    static List<ConsumerRecord<byte[], byte[]>> poll(KafkaConsumer<byte[], byte[]> consumer, int count) throws Exception {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        Check.eventually(count + " records", 30, () -> {
            consumer.poll(Duration.ofMillis(100)).forEach(records::add);
            return records.size() >= count;
        });
        return records;
    }
    static List<TopicPartition> partitions(String topic, int count) {
        return IntStream.range(0, count).mapToObj(p -> new TopicPartition(topic, p)).collect(Collectors.toList());
    }
    static KafkaConsumer<byte[], byte[]> reader(String topic, int partitions, Object... settings) {
        KafkaConsumer<byte[], byte[]> consumer = consumer(null, settings);
        consumer.assign(partitions(topic, partitions));
        consumer.seekToBeginning(partitions(topic, partitions));
        return consumer;
    }
    static String topic(String what, int partitions, String... configs) throws Exception {
        Map<String, String> map = new HashMap<>();
        for (int i = 0; i < configs.length; i += 2) map.put(configs[i], configs[i + 1]);
        String topic = check.topic(what);
        admin.createTopics(List.of(new NewTopic(topic, partitions, Check.REPLICAS).configs(map))).all().get();
        Check.eventually("the topic's leaders", 20, () -> {
            try {
                return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().stream().allMatch(p -> p.leader() != null);
            } catch (java.util.concurrent.ExecutionException e) {
                if (e.getCause() instanceof UnknownTopicOrPartitionException) return false;
                throw e;
            }
        });
        return topic;
    }

    // ---- the checks ----

    static void alter(String topic, String key, String value, AlterConfigOp.OpType op) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry(key, value), op)))).all().get();
    }
    static ConfigEntry config(String topic, String key) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(key);
    }

    static void topics() throws Exception {
        String topic = topic("topics", 3, "retention.ms", "7200000", "cleanup.policy", "compact");
        Check.raises(TopicExistsException.class, () -> admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get());
        Check.raises(InvalidReplicationFactorException.class, () -> admin.createTopics(List.of(new NewTopic(topic + "-rf", 1, (short) 9))).all().get());
        Check.raises(InvalidPartitionsException.class, () -> admin.createTopics(List.of(new NewTopic(topic + "-0", 0, (short) 1))).all().get());
        Check.raises(InvalidTopicException.class, () -> admin.createTopics(List.of(new NewTopic("bad name", 1, (short) 1))).all().get());
        Check.raises(InvalidConfigurationException.class, () -> admin.createTopics(List.of(new NewTopic(topic + "-c", 1, (short) 1).configs(Map.of("retention.ms", "soon")))).all().get());
        CreateTopicsResult validated = admin.createTopics(List.of(new NewTopic(topic + "-v", 2, (short) 1)), new CreateTopicsOptions().validateOnly(true));
        validated.all().get();
        Check.equal(validated.numPartitions(topic + "-v").get(), 2, "partitions of a validated topic");
        Check.that(!admin.listTopics().names().get().contains(topic + "-v"), "validateOnly creates nothing");
        TopicDescription described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        Check.equal(described.partitions().size(), 3, "partitions");
        Check.equal(admin.describeTopics(TopicCollection.ofTopicIds(List.of(described.topicId()))).allTopicIds().get().get(described.topicId()).name(), topic, "the topic described by its id");
        Check.equal(config(topic, "retention.ms").value() + " " + config(topic, "retention.ms").source(), "7200000 DYNAMIC_TOPIC_CONFIG", "a config");
        Check.equal(config(topic, "segment.bytes").value() + " " + config(topic, "segment.bytes").isDefault(), "1073741824 true", "a default config");
        alter(topic, "retention.ms", "3600000", AlterConfigOp.OpType.SET);
        alter(topic, "cleanup.policy", "delete", AlterConfigOp.OpType.APPEND);
        Check.eventually("the altered config", 20, () -> config(topic, "retention.ms").value().equals("3600000") && config(topic, "cleanup.policy").value().equals("compact,delete"));
        alter(topic, "cleanup.policy", "compact", AlterConfigOp.OpType.SUBTRACT);
        alter(topic, "retention.ms", null, AlterConfigOp.OpType.DELETE);
        Check.eventually("the config's default", 20, () -> config(topic, "retention.ms").value().equals("604800000") && config(topic, "cleanup.policy").value().equals("delete"));
        Check.raises(InvalidConfigurationException.class, () -> { alter(topic, "retention.ms", "x", AlterConfigOp.OpType.SET); return null; });
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
        Check.eventually("5 partitions", 20, () -> admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() == 5);
        Check.raises(InvalidPartitionsException.class, () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get());
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            Check.equal(producer.send(new ProducerRecord<>(topic, 4, bytes("key"), bytes(""))).get().offset(), 0, "a record to a new partition");
        }
        admin.deleteTopics(List.of(topic)).all().get();
        Check.eventually("the topic to be gone", 20, () -> !admin.listTopics().names().get().contains(topic));
        Check.raises(UnknownTopicOrPartitionException.class, () -> admin.deleteTopics(List.of(topic)).all().get());
        String again = topic("topics", 1);
        Check.that(!admin.describeTopics(List.of(again)).allTopicNames().get().get(again).topicId().equals(described.topicId()), "a topic of the same name has a new id");
        admin.deleteTopics(TopicCollection.ofTopicIds(List.of(admin.describeTopics(List.of(again)).allTopicNames().get().get(again).topicId()))).all().get();
    }

    static void cluster() throws Exception {
        DescribeClusterResult described = admin.describeCluster();
        Check.that(described.nodes().get().size() >= 1 && !described.clusterId().get().isEmpty() && described.controller().get() != null, "the cluster");
        int node = described.nodes().get().iterator().next().id();
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "" + node);
        Config config = admin.describeConfigs(List.of(broker), new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true)).all().get().get(broker);
        Check.that(config.get("num.partitions") != null && config.get("log.retention.ms") != null, "broker configs");
        String topic = topic("log-dirs", 1);
        try (Sender sender = new Sender(producer(), topic, 1)) { sender.send(0, 100).flush(); }
        long size = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).values().stream()
            .filter(d -> d.replicaInfos().containsKey(new TopicPartition(topic, 0))).mapToLong(d -> d.replicaInfos().get(new TopicPartition(topic, 0)).size()).sum();
        Check.that(size > 5000, "the size of the partition is " + size);
        Check.that(admin.describeMetadataQuorum().quorumInfo().get().leaderId() >= 0, "the quorum has a leader");
        Check.that(admin.describeFeatures().featureMetadata().get() != null, "features");
        Check.equal(admin.listPartitionReassignments().reassignments().get(), "{}", "reassignments");
    }

    static void produceConsume(String codec) throws Exception {
        String topic = topic(codec, 3);
        int count = FULL ? 60000 : 6000;
        try (Sender sender = new Sender(producer("compression.type", codec), topic, 3); KafkaConsumer<byte[], byte[]> consumer = reader(topic, 3)) {
            sender.send(0, count).flush();
            verify(poll(consumer, count), 0, count, sender);
            Check.equal(new TreeSet<>(consumer.endOffsets(partitions(topic, 3)).values()), "[" + count / 3 + "]", "end offsets");
            Check.equal(new TreeSet<>(consumer.beginningOffsets(partitions(topic, 3)).values()), "[0]", "beginning offsets");
        }
    }

    static void idempotent() throws Exception {
        String topic = topic("idempotent", 3);
        try (Sender sender = new Sender(producer("enable.idempotence", true, "acks", "all", "compression.type", "lz4"), topic, 3);
             KafkaConsumer<byte[], byte[]> consumer = reader(topic, 3, "isolation.level", "read_committed")) {
            sender.send(0, 3000).flush();
            verify(poll(consumer, 3000), 0, 3000, sender);
            TopicPartition zero = new TopicPartition(topic, 0);
            List<ProducerState> producers = admin.describeProducers(List.of(zero)).partitionResult(zero).get().activeProducers();
            Check.equal(producers.size() + " " + producers.get(0).lastSequence(), "1 999", "the partition's producers");
        }
    }

    static void largeRecords() throws Exception {
        String topic = topic("large", 1);
        try (KafkaProducer<byte[], byte[]> producer = producer("max.request.size", 3000000); KafkaConsumer<byte[], byte[]> consumer = reader(topic, 1, "max.partition.fetch.bytes", 1000)) {
            for (int i = 0; i < 8; i++) {
                byte[] value = new byte[900_000];
                Arrays.fill(value, (byte) i);
                producer.send(new ProducerRecord<>(topic, value));
            }
            producer.flush();
            List<ConsumerRecord<byte[], byte[]>> records = poll(consumer, 8);
            for (int i = 0; i < 8; i++) Check.that(records.get(i).value().length == 900_000 && records.get(i).value()[899_999] == i, "large record " + i);
            Check.raises(RecordTooLargeException.class, () -> producer.send(new ProducerRecord<>(topic, new byte[2_000_000])).get());
            Check.raises(InvalidTimestampException.class, () -> producer.send(new ProducerRecord<>(topic, 0, System.currentTimeMillis() + 86_400_000L, null, bytes("tomorrow"))).get());
        }
    }

    static void offsetsByTime() throws Exception {
        String topic = topic("times", 1);
        TopicPartition zero = new TopicPartition(topic, 0);
        try (Sender sender = new Sender(producer("compression.type", "gzip", "batch.size", 2000), topic, 1); KafkaConsumer<byte[], byte[]> consumer = reader(topic, 1)) {
            sender.send(0, 500).flush();
            for (int i : new int[] {0, 1, 49, 50, 333, 499}) {
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(zero, BASE + i)).get(zero);
                Check.equal(found.offset() + " " + found.timestamp(), i + " " + (BASE + i), "the offset at " + i);
            }
            Check.equal(consumer.offsetsForTimes(Map.of(zero, BASE - 5)).get(zero).offset(), 0, "before the first");
            Check.equal(consumer.offsetsForTimes(Map.of(zero, BASE + 9999)).get(zero), null, "after the last");
            Map<String, OffsetSpec> specs = Map.of("0 -1", OffsetSpec.earliest(), "500 -1", OffsetSpec.latest(), "499 " + (BASE + 499), OffsetSpec.maxTimestamp(), "0 -1 local", OffsetSpec.earliestLocal(), "-1 -1", OffsetSpec.latestTiered());
            for (Map.Entry<String, OffsetSpec> e : specs.entrySet()) {
                ListOffsetsResult.ListOffsetsResultInfo info = admin.listOffsets(Map.of(zero, e.getValue())).partitionResult(zero).get();
                Check.equal(info.offset() + " " + info.timestamp(), e.getKey().replace(" local", ""), "ListOffsets of " + e.getValue().getClass().getSimpleName());
            }
        }
    }

    static void seek() throws Exception {
        String topic = topic("seek", 1);
        TopicPartition zero = new TopicPartition(topic, 0);
        try (Sender sender = new Sender(producer(), topic, 1); KafkaConsumer<byte[], byte[]> consumer = reader(topic, 1, "max.poll.records", 100)) {
            sender.send(0, 1000).flush();
            verify(poll(consumer, 1000), 0, 1000, sender);
            for (int start : new int[] {900, 0, 517, 999}) {
                consumer.seek(zero, start);
                verify(poll(consumer, 1000 - start), start, 1000, sender);
            }
            consumer.seek(zero, 5000);   // out of range: auto.offset.reset
            verify(poll(consumer, 1000), 0, 1000, sender);
            consumer.seekToEnd(List.of(zero));
            Check.equal(consumer.position(zero), 1000, "the position at the end");
        }
    }

    /** A group member that consumes and commits until it is told to leave. */
    static final class Member extends Thread implements ConsumerRebalanceListener {
        final KafkaConsumer<byte[], byte[]> consumer;
        final List<ConsumerRecord<byte[], byte[]>> received = new CopyOnWriteArrayList<>();
        final Set<Integer> assigned = ConcurrentHashMap.newKeySet();
        volatile boolean leaving, commitNow;
        volatile Throwable error;

        Member(String group, String topic, Object... settings) {
            consumer = consumer(group, settings);
            consumer.subscribe(List.of(topic), this);
            setDaemon(true);
            start();
        }
        @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) { partitions.forEach(p -> assigned.add(p.partition())); }
        @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            consumer.commitSync();
            partitions.forEach(p -> assigned.remove(p.partition()));
        }
        @Override public void onPartitionsLost(Collection<TopicPartition> partitions) { error = new AssertionError("partitions lost: " + partitions); }
        @Override public void run() {
            try {
                while (!leaving) {
                    List<ConsumerRecord<byte[], byte[]>> batch = new ArrayList<>();
                    consumer.poll(Duration.ofMillis(100)).forEach(batch::add);
                    received.addAll(batch);
                    if (commitNow) { consumer.commitSync(); commitNow = false; }
                }
                consumer.commitSync();
                consumer.close(Duration.ofSeconds(10));
            } catch (Throwable e) { error = e; }
        }
        void leave() throws Exception {
            leaving = true;
            join(30_000);
            if (isAlive() || error != null) throw new AssertionError("a member ended with " + error, error);
        }
    }

    static void rebalance(String name, String assignor) throws Exception {
        String topic = topic(name, 4), group = check.topic(name);
        String setting = "partition.assignment.strategy", strategy = "org.apache.kafka.clients.consumer." + assignor;
        try (Sender sender = new Sender(producer(), topic, 4)) {
            sender.send(0, 1000).flush();
            Member first = new Member(group, topic, setting, strategy);
            Check.eventually("the first 1000 records", 20, () -> first.assigned.size() == 4 && first.received.size() >= 1000);
            Member second = new Member(group, topic, setting, strategy);
            Check.eventually("two partitions each", 20, () -> first.assigned.size() == 2 && second.assigned.size() == 2);
            Set<Integer> all = new TreeSet<>(first.assigned);
            all.addAll(second.assigned);
            Check.equal(all, "[0, 1, 2, 3]", "assigned partitions");
            sender.send(1000, 2000).flush();
            Check.eventually("2000 records", 20, () -> first.received.size() + second.received.size() >= 2000);
            Check.equal(second.received.size(), 500, "records of the second member");
            ConsumerGroupDescription described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            Check.equal(described.members().size() + " " + described.partitionAssignor(), "2 " + name, "the described group");
            second.leave();
            Check.eventually("all partitions to be with the first again", 20, () -> first.assigned.size() == 4);
            sender.send(2000, 3000).flush();
            Check.eventually("3000 records", 20, () -> first.received.size() + second.received.size() >= 3000);
            first.leave();
            List<ConsumerRecord<byte[], byte[]>> received = new ArrayList<>(first.received);
            received.addAll(second.received);
            verify(byOffset(received), 0, 3000, sender);
            // What was committed is where the next member starts.
            sender.send(3000, 3100).flush();
            Member third = new Member(group, topic, setting, strategy);
            Check.eventually("the last 100 records", 20, () -> third.received.size() >= 100);
            third.leave();
            verify(third.received, 3000, 3100, sender);
        }
    }

    static void staticMembers() throws Exception {
        String topic = topic("static", 2), group = check.topic("static");
        try (Sender sender = new Sender(producer(), topic, 2)) {
            sender.send(0, 100).flush();
            Member one = new Member(group, topic, "group.instance.id", "one"), two = new Member(group, topic, "group.instance.id", "two");
            Check.eventually("100 records", 20, () -> one.assigned.size() == 1 && two.assigned.size() == 1 && one.received.size() + two.received.size() >= 100);
            one.leave();   // a static member that closes does not leave the group
            sender.send(100, 200).flush();
            Member again = new Member(group, topic, "group.instance.id", "one");
            Check.eventually("50 records of the returned member", 20, () -> again.received.size() >= 50);
            Set<String> ids = admin.describeConsumerGroups(List.of(group)).all().get().get(group).members().stream().map(m -> m.groupInstanceId().orElse("")).collect(Collectors.toCollection(TreeSet::new));
            Check.equal(ids, "[one, two]", "group instance ids");
            again.leave();
            two.leave();
            List<ConsumerRecord<byte[], byte[]>> received = new ArrayList<>(one.received);
            received.addAll(two.received);
            received.addAll(again.received);
            verify(byOffset(received), 0, 200, sender);
            admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("one"), new MemberToRemove("two")))).all().get();
            Check.equal(admin.describeConsumerGroups(List.of(group)).all().get().get(group).members().size(), 0, "members after their removal");
        }
    }

    static void commits() throws Exception {
        String topic = topic("commits", 2), group = check.topic("commits");
        TopicPartition zero = new TopicPartition(topic, 0), one = new TopicPartition(topic, 1);
        try (Sender sender = new Sender(producer(), topic, 2)) { sender.send(0, 100).flush(); }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(group)) {
            consumer.assign(List.of(zero, one));
            consumer.commitSync(Map.of(zero, new OffsetAndMetadata(20, "some metadata"), one, new OffsetAndMetadata(30)));
            Check.equal(consumer.committed(Set.of(zero)).get(zero).metadata(), "some metadata", "committed metadata");
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(group)) {
            consumer.subscribe(java.util.regex.Pattern.compile(topic.substring(0, topic.length() - 2) + ".."));
            Map<Integer, Long> first = new TreeMap<>();
            for (ConsumerRecord<byte[], byte[]> r : poll(consumer, 50)) first.merge(r.partition(), r.offset(), Math::min);
            Check.equal(first, "{0=20, 1=30}", "resumed at");
            consumer.commitSync();
            Check.raises(GroupNotEmptyException.class, () -> admin.deleteConsumerGroups(List.of(group)).all().get());
            Check.raises(GroupSubscribedToTopicException.class, () -> admin.deleteConsumerGroupOffsets(group, Set.of(zero)).all().get());
        }
        Check.that(admin.listConsumerGroups().all().get().stream().anyMatch(g -> g.groupId().equals(group)), "the group is listed");
        admin.alterConsumerGroupOffsets(group, Map.of(zero, new OffsetAndMetadata(7))).all().get();
        admin.deleteConsumerGroupOffsets(group, Set.of(one)).all().get();
        Map<TopicPartition, OffsetAndMetadata> offsets = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        Check.equal(offsets.size() + " " + offsets.get(zero).offset(), "1 7", "altered and deleted offsets");
        admin.deleteConsumerGroups(List.of(group)).all().get();
        Check.raises(GroupIdNotFoundException.class, () -> admin.deleteConsumerGroups(List.of(group)).all().get());
    }

    static void deleteRecords() throws Exception {
        String topic = topic("delete-records", 1);
        TopicPartition zero = new TopicPartition(topic, 0);
        try (Sender sender = new Sender(producer(), topic, 1); KafkaConsumer<byte[], byte[]> consumer = reader(topic, 1)) {
            sender.send(0, 100).flush();
            Check.equal(admin.deleteRecords(Map.of(zero, RecordsToDelete.beforeOffset(40))).lowWatermarks().get(zero).get().lowWatermark(), 40, "the low watermark");
            Check.equal(consumer.beginningOffsets(List.of(zero)).get(zero), 40, "the beginning");
            verify(poll(consumer, 60), 40, 100, sender);
            Check.raises(org.apache.kafka.common.errors.OffsetOutOfRangeException.class, () -> admin.deleteRecords(Map.of(zero, RecordsToDelete.beforeOffset(101))).all().get());
        }
    }

    /** The broker restarts under an idempotent producer and a group member; nothing is lost or duplicated. */
    static void restart(String how) throws Exception {
        String topic = topic("restart-" + how, 3), group = check.topic("restart-" + how);
        try (Sender sender = new Sender(producer("enable.idempotence", true, "acks", "all", "delivery.timeout.ms", 90000), topic, 3)) {
            Member member = new Member(group, topic, "session.timeout.ms", 45000);
            sender.send(0, 1000).flush();
            Check.eventually("1000 records before the restart", 20, () -> member.received.size() >= 1000);
            member.commitNow = true;
            Check.eventually("the commit", 20, () -> !member.commitNow);
            boolean[] stop = {false};
            int[] sent = {1000};
            Thread load = new Thread(() -> {
                for (; !stop[0]; sent[0] += 10) {
                    sender.send(sent[0], sent[0] + 10);
                    try { Thread.sleep(5); } catch (InterruptedException e) { return; }
                }
            });
            load.start();
            try {
                Check.restart(how);
                Thread.sleep(300);
            } finally { stop[0] = true; load.join(); }
            sender.flush();
            int total = sent[0];
            Check.eventually("the records after the restart", 60, () -> member.received.size() >= total || member.error != null);
            member.leave();
            verify(member.received, 0, total, sender);
            try (KafkaConsumer<byte[], byte[]> consumer = reader(topic, 3)) { verify(poll(consumer, total), 0, total, sender); }
            long committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().values().stream().mapToLong(OffsetAndMetadata::offset).sum();
            Check.equal(committed, total, "committed offsets");
        }
    }

    public static void main(String[] arguments) throws Exception {
        check = new Check(arguments[0]);
        bootstrap = arguments[1];
        admin = Admin.create(properties());
        check.check("topics", Clients::topics);
        check.check("cluster", Clients::cluster);
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) check.check("produce-consume " + codec, () -> produceConsume(codec));
        check.check("idempotent", Clients::idempotent);
        check.check("large-records", Clients::largeRecords);
        check.check("offsets-by-time", Clients::offsetsByTime);
        check.check("seek", Clients::seek);
        check.check("rebalance eager", () -> rebalance("roundrobin", "RoundRobinAssignor"));
        check.check("rebalance cooperative", () -> rebalance("cooperative-sticky", "CooperativeStickyAssignor"));
        check.check("static-members", Clients::staticMembers);
        check.check("commits-and-groups", Clients::commits);
        check.check("delete-records", Clients::deleteRecords);
        for (String how : List.of("term", "kill")) check.checkWithRestart("restart " + how, () -> restart(how));
        check.exit();
    }
}
