"""kafka-python (pure Python) against a broker: kafka-python.py BOOTSTRAP"""

import sys
import threading
import uuid

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, OffsetSpec
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from checks import BASE, FULL, REPLICAS, Checks, background, equal, eventually, raises, record

bootstrap = sys.argv[1]
checks = Checks("python/kafka-python")
admin = KafkaAdminClient(bootstrap_servers=bootstrap)


def make_topic(what, partitions=3, configs=None):
    topic = checks.topic(what)
    admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": REPLICAS, "configs": configs or {}}}, wait_for_metadata=True)
    return topic


def make_producer(**settings):
    return KafkaProducer(**{"bootstrap_servers": bootstrap, "linger_ms": 5, "reconnect_backoff_max_ms": 500, **settings})


def make_consumer(group=None, **settings):
    return KafkaConsumer(**{
        "bootstrap_servers": bootstrap, "group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False,
        "fetch_max_wait_ms": 100, "session_timeout_ms": 10000, "heartbeat_interval_ms": 500, "reconnect_backoff_max_ms": 500, **settings})


class Sender:
    """Sends test records and remembers where each was acknowledged."""

    def __init__(self, producer, topic, partitions=3):
        self.producer, self.topic, self.partitions = producer, topic, partitions
        self.futures, self.acknowledged = {}, {}

    def send(self, numbers):
        for i in numbers:
            key, value, headers = record(i)
            self.futures[i] = self.producer.send(self.topic, key=key, value=value, headers=headers, partition=i % self.partitions, timestamp_ms=BASE + i)
        return self

    def flush(self, seconds=40):
        self.producer.flush(seconds)
        for i, future in self.futures.items():
            done = future.get(seconds)
            self.acknowledged[i] = (done.partition, done.offset)
        self.futures.clear()
        return self


def poll_until(consumer, count, seconds=30):
    received = []

    def poll():
        for records in consumer.poll(200, max_records=1000).values():
            received.extend(records)
        return len(received) >= count

    eventually(poll, f"{count} records", seconds)
    return received


def verify(messages, numbers, acknowledged, partitions=3):
    """Exactly the records `numbers`, each at its acknowledged offset, in offset order per partition, unchanged."""
    wanted = {acknowledged[i]: i for i in numbers}
    last = {}
    for message in messages:
        place = (message.partition, message.offset)
        if place not in wanted:
            raise AssertionError(f"a record at {place} that nobody was acknowledged, or twice: {message.value!r:.60}")
        i = wanted.pop(place)
        key, value, headers = record(i)
        got = (message.key, message.value, [tuple(h) for h in message.headers or []], message.timestamp, message.timestamp_type, message.partition)
        equal(got, (key, value, headers, BASE + i, 0, i % partitions), f"record {i}")
        if last.get(place[0], -1) >= place[1]:
            raise AssertionError(f"offset {place[1]} after {last[place[0]]} in partition {place[0]}")
        last[place[0]] = place[1]
    equal(wanted, {}, "records that were not received")


def read_all(topic, partitions=3, **settings):
    consumer = make_consumer(**settings)
    parts = [TopicPartition(topic, p) for p in range(partitions)]
    consumer.assign(parts)
    consumer.seek_to_beginning(*parts)
    return consumer


def configs_of(kind, name):
    return admin.describe_configs([ConfigResource(kind, name)], config_filter="all")[kind.lower()][name]


def topics():
    name = make_topic("topics", 3, {"retention.ms": "7200000", "cleanup.policy": "compact"})
    raises(lambda: admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1}}), "TopicAlreadyExists")
    raises(lambda: admin.create_topics({name + "-0": {"num_partitions": 0, "replication_factor": 1}}), "InvalidPartitions")
    raises(lambda: admin.create_topics({name + "-c": {"configs": {"no.such.config": "1"}}}), "InvalidConfig")
    described = admin.describe_topics([name])[0]
    equal(sorted(p["partition_index"] for p in described["partitions"]), [0, 1, 2], "partitions")
    equal(name in admin.list_topics(), True, "the topic is listed")
    by_id = admin.describe_topics([uuid.UUID(str(described["topic_id"]))])[0]
    equal(by_id["name"], name, "the topic described by its id")
    config = configs_of("TOPIC", name)
    equal((config["retention.ms"]["value"], config["cleanup.policy"]["value"], config["segment.bytes"]["value"]), ("7200000", "compact", "1073741824"), "configs")
    admin.alter_configs([ConfigResource("TOPIC", name, {"retention.ms": "3600000"})])
    eventually(lambda: configs_of("TOPIC", name)["retention.ms"]["value"] == "3600000", "the altered config")
    equal(configs_of("TOPIC", name)["cleanup.policy"]["value"], "compact", "the other config is untouched")
    admin.alter_configs([ConfigResource("TOPIC", name, {"retention.ms": "3500000"})], incremental=False)  # the old API: completes missing keys itself
    eventually(lambda: configs_of("TOPIC", name)["retention.ms"]["value"] == "3500000", "the config altered with AlterConfigs")
    admin.reset_configs([ConfigResource("TOPIC", name, ["retention.ms"])])
    eventually(lambda: configs_of("TOPIC", name)["retention.ms"]["value"] == "604800000", "the config's default")
    admin.create_partitions({name: 5})
    admin.wait_for_topics([name])
    eventually(lambda: len(admin.describe_topics([name])[0]["partitions"]) == 5, "5 partitions")
    raises(lambda: admin.create_partitions({name: 2}), "InvalidPartitions")
    producer = make_producer()
    equal(producer.send(name, key=b"key", value=b"", partition=4).get(20).offset, 0, "a record to a new partition")
    admin.delete_topics([name])
    eventually(lambda: name not in admin.list_topics(), "the topic to be gone")
    raises(lambda: admin.delete_topics([name]), "UnknownTopicOrPartition")


def cluster():
    described = admin.describe_cluster()
    equal((len(described["brokers"]) >= 1, bool(described["cluster_id"])), (True, True), "cluster")
    topic = make_topic("log-dirs", 1)
    Sender(make_producer(), topic, 1).send(range(100)).flush()
    partition = [p for d in admin.describe_log_dirs([topic]) for l in d["log_dirs"] for t in l["topics"] if t["name"] == topic for p in t["partitions"]]
    equal((len(partition), max(p["partition_size"] for p in partition) > 5000), (REPLICAS, True), "the partition in the log directories")
    parts = admin.describe_topic_partitions([topic])
    equal("log-dirs" in str(parts), True, "DescribeTopicPartitions")
    equal(admin.list_partition_reassignments(), {}, "reassignments")


def produce_consume(codec):
    topic = make_topic(codec, 3)
    count = 9000 if FULL else 1500
    sender = Sender(make_producer(compression_type=None if codec == "none" else codec), topic).send(range(count)).flush()
    consumer = read_all(topic)
    verify(poll_until(consumer, count), range(count), sender.acknowledged)
    parts = [TopicPartition(topic, p) for p in range(3)]
    equal(list(consumer.end_offsets(parts).values()), [count // 3] * 3, "end offsets")
    equal(list(consumer.beginning_offsets(parts).values()), [0] * 3, "beginning offsets")
    consumer.close()


def idempotent():
    topic = make_topic("idempotent", 3)
    for producer in make_producer(enable_idempotence=True, compression_type="gzip"), make_producer(enable_idempotence=False, acks=1):
        equal(len(Sender(producer, topic).send(range(900)).flush().acknowledged), 900, "acknowledged records")
    received = poll_until(read_all(topic), 1800)
    equal(sorted((m.partition, m.offset) for m in received), [(p, o) for p in range(3) for o in range(600)], "offsets of both producers")
    described = admin.describe_producers([TopicPartition(topic, 0)])
    equal("producer_id" in str(described), True, "DescribeProducers")


def offsets_by_time():
    topic = make_topic("times", 1)
    sender = Sender(make_producer(compression_type="gzip", batch_size=2000), topic, 1).send(range(500)).flush()
    consumer, partition = read_all(topic, 1), TopicPartition(topic, 0)
    for i in (0, 1, 49, 50, 333, 499):
        found = consumer.offsets_for_times({partition: BASE + i})[partition]
        equal((found.offset, found.timestamp), (sender.acknowledged[i][1], BASE + i), f"offset at {i}")
    equal(consumer.offsets_for_times({partition: BASE - 5})[partition].offset, 0, "before the first")
    equal(consumer.offsets_for_times({partition: BASE + 9999})[partition], None, "after the last")
    specs = {s: admin.list_partition_offsets({partition: s})[partition] for s in (OffsetSpec.EARLIEST, OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP)}
    equal([s.offset for s in specs.values()], [0, 500, 499], "ends and maximum")
    equal(specs[OffsetSpec.MAX_TIMESTAMP].timestamp, BASE + 499, "maximum timestamp")


def seek():
    topic = make_topic("seek", 1)
    sender, partition = Sender(make_producer(), topic, 1).send(range(600)).flush(), TopicPartition(topic, 0)
    consumer = read_all(topic, 1)
    verify(poll_until(consumer, 600), range(600), sender.acknowledged, 1)
    for start in (500, 0, 317, 599):
        consumer.seek(partition, start)
        verify(poll_until(consumer, 600 - start), range(start, 600), sender.acknowledged, 1)
    consumer.seek(partition, 5000)  # out of range: auto_offset_reset
    verify(poll_until(consumer, 600), range(600), sender.acknowledged, 1)
    consumer.seek_to_end(partition)
    equal(consumer.position(partition), 600, "position at the end")
    consumer.close()


class Member(threading.Thread):
    """A group member that consumes until it is told to leave; the client commits by itself before a rebalance and at the end."""

    def __init__(self, group, topic, **settings):
        super().__init__(daemon=True)
        self.received, self.assigned, self.error = [], set(), None
        self.leaving, self.commit_now = threading.Event(), threading.Event()
        self.group, self.topic, self.settings = group, topic, settings
        self.start()

    def run(self):
        try:
            self.consumer = make_consumer(self.group, enable_auto_commit=True, auto_commit_interval_ms=600000, **self.settings)
            self.consumer.subscribe([self.topic])
            while not self.leaving.is_set():
                # Not shorter: when a poll ends before a slow join is answered, this client may lose the answer and fall silent.
                for records in self.consumer.poll(1000).values():
                    self.received.extend(records)
                self.assigned = {p.partition for p in self.consumer.assignment()}
                if self.commit_now.is_set():
                    self.consumer.commit()
                    self.commit_now.clear()
            self.consumer.close()
        except Exception as error:
            self.error = error
            background.append(error)

    def leave(self):
        self.leaving.set()
        self.join(30)
        if self.is_alive() or self.error:
            raise AssertionError(f"member ended with {self.error!r}")


def rebalance(name, assignor):
    """One member, a second joins and leaves; records flow all the time; each is received once."""
    topic, group = make_topic(name, 4), checks.topic(name)
    settings = {"partition_assignment_strategy": [assignor]}
    sender = Sender(make_producer(), topic, 4).send(range(400)).flush()
    first = Member(group, topic, **settings)
    eventually(lambda: len(first.assigned) == 4, "the first member to have all partitions")
    eventually(lambda: len(first.received) >= 400, "the first 400 records")
    second = Member(group, topic, **settings)
    eventually(lambda: len(first.assigned) == 2 and len(second.assigned) == 2, "two partitions each")
    equal(first.assigned | second.assigned, {0, 1, 2, 3}, "assigned partitions")
    sender.send(range(400, 800)).flush()
    eventually(lambda: len(first.received) + len(second.received) >= 800, "800 records")
    equal(len(second.received), 200, "records of the second member")
    members = admin.describe_groups([group])[group]
    equal((members["group_state"], members["protocol_type"], len(members["members"])), ("Stable", "consumer", 2), "the described group")
    second.leave()
    eventually(lambda: len(first.assigned) == 4, "all partitions to be with the first again")
    sender.send(range(800, 1200)).flush()
    eventually(lambda: len(first.received) + len(second.received) >= 1200, "1200 records")
    first.leave()
    verify(sorted(first.received + second.received, key=lambda m: m.offset), range(1200), sender.acknowledged, 4)
    # What was committed is where the next member starts.
    sender.send(range(1200, 1300)).flush()
    third = Member(group, topic, **settings)
    eventually(lambda: len(third.received) >= 100, "the last 100 records")
    third.leave()
    verify(third.received, range(1200, 1300), sender.acknowledged, 4)


def static_members():
    topic, group = make_topic("static", 2), checks.topic("static")
    sender = Sender(make_producer(), topic, 2).send(range(100)).flush()
    one, two = Member(group, topic, group_instance_id="one"), Member(group, topic, group_instance_id="two")
    eventually(lambda: len(one.assigned) == 1 and len(two.assigned) == 1, "a partition each")
    eventually(lambda: len(one.received) + len(two.received) >= 100, "100 records")
    one.leave()  # a static member that closes does not leave the group
    sender.send(range(100, 200)).flush()
    again = Member(group, topic, group_instance_id="one")
    eventually(lambda: len(again.received) >= 50, "50 records of the returned member")
    described = admin.describe_groups([group])[group]
    equal(sorted(m["group_instance_id"] for m in described["members"]), ["one", "two"], "group instance ids")
    again.leave(), two.leave()
    verify(sorted(one.received + two.received + again.received, key=lambda m: m.offset), range(200), sender.acknowledged, 2)


def commits():
    topic, group = make_topic("commits", 2), checks.topic("commits")
    Sender(make_producer(), topic, 2).send(range(100)).flush()
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer = make_consumer(group)
    consumer.assign([zero, one])
    consumer.commit({zero: OffsetAndMetadata(20, "some metadata", -1), one: OffsetAndMetadata(30, "", -1)})
    equal((consumer.committed(zero, metadata=True).metadata, consumer.committed(one)), ("some metadata", 30), "committed")
    consumer.close()
    consumer = make_consumer(group)
    consumer.subscribe([topic])
    got = poll_until(consumer, 50)
    equal(sorted((m.partition, m.offset) for m in got), [(0, o) for o in range(20, 50)] + [(1, o) for o in range(30, 50)], "resumed at")
    consumer.commit()
    equal("NonEmptyGroup" in str(admin.delete_groups([group])), True, "a group with members cannot be deleted")
    consumer.close()
    eventually(lambda: [g for g in admin.list_groups() if g["group_id"] == group and g["group_state"] == "Empty"], "the empty group in the list")
    equal({p: o.offset for p, o in admin.list_group_offsets({group: None})[group].items()}, {zero: 50, one: 50}, "the group's offsets")
    admin.alter_group_offsets(group, {zero: OffsetAndMetadata(7, "", -1)})
    admin.delete_group_offsets(group, [one])
    equal({p: o.offset for p, o in admin.list_group_offsets({group: None})[group].items()}, {zero: 7}, "altered and deleted offsets")
    admin.delete_groups([group])
    eventually(lambda: group not in [g["group_id"] for g in admin.list_groups()], "the group to be gone")


def delete_records():
    topic = make_topic("delete-records", 1)
    sender, partition = Sender(make_producer(), topic, 1).send(range(100)).flush(), TopicPartition(topic, 0)
    equal(admin.delete_records({partition: 40})[partition]["low_watermark"], 40, "low watermark")
    verify(poll_until(read_all(topic, 1), 60), range(40, 100), sender.acknowledged, 1)
    equal(read_all(topic, 1).beginning_offsets([partition])[partition], 40, "beginning offset")


def restart(again, how):
    """The broker restarts under an idempotent producer and a group member; nothing is lost or duplicated."""
    global admin
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)  # the old one waits longer before it connects again
    topic, group = make_topic("restart-" + how, 3), checks.topic("restart-" + how)
    sender = Sender(make_producer(enable_idempotence=True, delivery_timeout_ms=90000), topic)
    member = Member(group, topic, session_timeout_ms=45000)
    sender.send(range(600)).flush()
    eventually(lambda: len(member.received) >= 600, "600 records before the restart")
    member.commit_now.set()
    eventually(lambda: not member.commit_now.is_set(), "the commit")
    stop, sent = threading.Event(), [600]

    def load():
        while not stop.is_set():
            sender.send(range(sent[0], sent[0] + 5))
            sent[0] += 5
            stop.wait(0.01)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        again()
        stop.wait(0.3)
    finally:
        stop.set()
        thread.join()
    sender.flush(90)
    total = sent[0]
    eventually(lambda: len(member.received) >= total or member.error, "the records after the restart", 60)
    member.leave()
    verify(member.received, range(total), sender.acknowledged)
    verify(poll_until(read_all(topic), total), range(total), sender.acknowledged)
    reader = make_consumer(group)
    equal(sum(reader.committed(TopicPartition(topic, p)) for p in range(3)), total, "committed offsets")


checks.check("topics", topics)
checks.check("cluster", cluster)
for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    checks.check(f"produce-consume {codec}", produce_consume, codec)
checks.check("idempotent", idempotent)
checks.check("offsets-by-time", offsets_by_time)
checks.check("seek", seek)
checks.check("rebalance eager", rebalance, "eager", RangePartitionAssignor)
checks.check("rebalance cooperative", rebalance, "cooperative", CooperativeStickyAssignor)
checks.check("static-members", static_members)
checks.check("commits-and-groups", commits)
checks.check("delete-records", delete_records)
for how in ("term", "kill"):
    checks.check_with_restart(f"restart {how}", lambda again, how=how: restart(again, how), how)
checks.exit()
