"""confluent-kafka (librdkafka) against a broker: confluent.py BOOTSTRAP"""

import sys
import threading

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition, ConsumerGroupTopicPartitions, OFFSET_BEGINNING, OFFSET_END
from confluent_kafka.admin import (
    AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType,
)

from checks import BASE, FULL, REPLICAS, Checks, background, equal, eventually, raises, record

bootstrap = sys.argv[1]
checks = Checks("python/confluent")
admin = AdminClient({"bootstrap.servers": bootstrap})


def make_topic(what, partitions=3, config=None):
    topic = checks.topic(what)
    admin.create_topics([NewTopic(topic, partitions, REPLICAS, config=config or {})])[topic].result(20)
    return topic


def make_producer(**settings):
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "sticky.partitioning.linger.ms": 0, **{k.replace("_", "."): v for k, v in settings.items()}})


def make_consumer(group, **settings):
    return Consumer({
        "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
        "fetch.wait.max.ms": 100, "session.timeout.ms": 10000, "heartbeat.interval.ms": 500,
        **{k.replace("_", "."): v for k, v in settings.items()},
    })


class Sender:
    """Sends test records and remembers where each was acknowledged."""

    def __init__(self, producer, topic, partitions=3):
        self.producer, self.topic, self.partitions = producer, topic, partitions
        self.acknowledged, self.errors = {}, []  # record number -> (partition, offset)

    def send(self, numbers):
        for i in numbers:
            key, value, headers = record(i)
            self.producer.produce(self.topic, key=key, value=value, headers=headers, partition=i % self.partitions, timestamp=BASE + i,
                                  on_delivery=lambda error, message, i=i: self.done(i, error, message))
            self.producer.poll(0)
        return self

    def done(self, i, error, message):
        if error:
            self.errors.append(error)
        else:
            self.acknowledged[i] = (message.partition(), message.offset())

    def flush(self, seconds=40):
        left = self.producer.flush(seconds)
        equal((left, self.errors), (0, []), "records not acknowledged and errors")
        return self


def poll_until(consumer, count, received=None, seconds=30):
    """Polls until `count` messages were received in all; an error is a failure."""
    received = [] if received is None else received

    def poll():
        for message in consumer.consume(500, 0.2):
            if message.error():
                raise KafkaException(message.error())
            received.append(message)
        return len(received) >= count

    eventually(poll, f"{count} records", seconds)
    return received


def verify(messages, numbers, acknowledged, partitions=3):
    """Exactly the records `numbers`, each at its acknowledged offset, in offset order per partition, unchanged."""
    wanted = {}
    for i in numbers:
        wanted[acknowledged[i]] = i
    last = {}
    for message in messages:
        place = (message.partition(), message.offset())
        if place not in wanted:
            raise AssertionError(f"a record at {place} that nobody was acknowledged, or twice: {message.value()!r:.60}")
        i = wanted.pop(place)
        key, value, headers = record(i)
        got = (message.key(), message.value(), message.headers() or [], message.timestamp(), message.partition())
        equal(got, (key, value, headers, (1, BASE + i), i % partitions), f"record {i}")
        if last.get(place[0], -1) >= place[1]:
            raise AssertionError(f"offset {place[1]} after {last[place[0]]} in partition {place[0]}")
        last[place[0]] = place[1]
    equal(wanted, {}, "records that were not received")


def read_all(topic, partitions=3, **settings):
    consumer = make_consumer(checks.topic("reader"), **settings)
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
    return consumer


def topics():
    name = checks.topic("topics")
    make_topic("topics", 3, {"retention.ms": "7200000", "cleanup.policy": "compact"})
    raises(lambda: admin.create_topics([NewTopic(name, 1, 1)])[name].result(20), "TOPIC_ALREADY_EXISTS")
    raises(lambda: admin.create_topics([NewTopic(name + "-rf", 1, 9)])[name + "-rf"].result(20), "INVALID_REPLICATION_FACTOR")
    raises(lambda: admin.create_topics([NewTopic("bad name", 1, 1)])["bad name"].result(20), "TOPIC_EXCEPTION")
    raises(lambda: admin.create_topics([NewTopic(name + "-c", 1, 1, config={"retention.ms": "soon"})])[name + "-c"].result(20), "INVALID_CONFIG")
    described = admin.list_topics(name, 10).topics[name]
    equal(sorted(described.partitions), [0, 1, 2], "partitions")
    equal([(p.leader in p.replicas, p.replicas == p.isrs) for p in described.partitions.values()], [(True, True)] * 3, "leaders and ISRs")
    resource = ConfigResource(ResourceType.TOPIC, name)
    config = admin.describe_configs([resource])[resource].result(20)
    equal((config["retention.ms"].value, config["cleanup.policy"].value, config["segment.bytes"].value, config["segment.bytes"].is_default),
          ("7200000", "compact", "1073741824", True), "configs")
    change = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[
        ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.APPEND),
        ConfigEntry("max.message.bytes", "2000000", incremental_operation=AlterConfigOpType.SET)])
    admin.incremental_alter_configs([change])[change].result(20)
    config = eventually(lambda: (c := admin.describe_configs([resource])[resource].result(20))["retention.ms"].value == "3600000" and c, "the altered config")
    equal((config["cleanup.policy"].value, config["max.message.bytes"].value), ("compact,delete", "2000000"), "altered configs")
    change = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)])
    admin.incremental_alter_configs([change])[change].result(20)
    eventually(lambda: admin.describe_configs([resource])[resource].result(20)["retention.ms"].value == "604800000", "the config's default")
    bad = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[ConfigEntry("retention.ms", "x", incremental_operation=AlterConfigOpType.SET)])
    raises(lambda: admin.incremental_alter_configs([bad])[bad].result(20), "INVALID_CONFIG")
    admin.create_partitions([NewPartitions(name, 5)])[name].result(20)
    eventually(lambda: len(admin.list_topics(name, 10).topics[name].partitions) == 5, "5 partitions")
    raises(lambda: admin.create_partitions([NewPartitions(name, 4)])[name].result(20), "INVALID_PARTITIONS")
    producer = make_producer()
    producer.produce(name, b"", b"key", partition=4)
    equal(producer.flush(30), 0, "a record to a new partition")
    admin.delete_topics([name])[name].result(20)
    eventually(lambda: name not in admin.list_topics(timeout=10).topics, "the topic to be gone")
    raises(lambda: admin.delete_topics([name])[name].result(20), "UNKNOWN_TOPIC_OR_PART")
    make_topic("topics", 1)  # the same name again is a new, empty topic
    equal(read_all(name, 1).get_watermark_offsets(TopicPartition(name, 0), 10), (0, 0), "watermarks of the new topic")


def cluster():
    described = admin.describe_cluster().result(20)
    equal((len(described.nodes) >= 1, described.controller.id in [n.id for n in described.nodes], bool(described.cluster_id)), (True, True, True), "cluster")
    node = described.nodes[0].id
    resource = ConfigResource(ResourceType.BROKER, str(node))
    config = admin.describe_configs([resource])[resource].result(20)
    equal(config["log.retention.ms"].name, "log.retention.ms", "a broker config")


def produce_consume(codec):
    topic = make_topic(codec, 3)
    count = 30000 if FULL else 3000
    sender = Sender(make_producer(compression_type=codec), topic).send(range(count)).flush()
    consumer = read_all(topic)
    verify(poll_until(consumer, count), range(count), sender.acknowledged)
    for p in range(3):
        equal(consumer.get_watermark_offsets(TopicPartition(topic, p), 10), (0, count // 3), "watermarks")
    consumer.close()


def idempotent():
    topic = make_topic("idempotent", 3)
    sender = Sender(make_producer(enable_idempotence=True, compression_type="lz4"), topic).send(range(3000)).flush()
    equal(sorted(sender.acknowledged.values()), [(p, o) for p in range(3) for o in range(1000)], "acknowledged offsets")
    verify(poll_until(read_all(topic), 3000), range(3000), sender.acknowledged)


def large_records():
    topic = make_topic("large", 1)
    producer = make_producer(message_max_bytes=3000000)
    values = [bytes([i]) * 900_000 for i in range(8)]
    for value in values:
        producer.produce(topic, value)
    equal(producer.flush(30), 0, "records not acknowledged")
    got = poll_until(read_all(topic, 1, max_partition_fetch_bytes=1000), 8)
    equal([m.value() == v for m, v in zip(got, values)], [True] * 8, "values")
    errors = []
    producer.produce(topic, b"x" * 2_000_000, on_delivery=lambda error, _: errors.append(error and error.name()))
    producer.flush(30)
    equal(errors, ["MSG_SIZE_TOO_LARGE"], "a record larger than max.message.bytes")


def acks():
    for level in ("0", "1", "all"):
        topic = make_topic(f"acks-{level}", 1)
        producer = make_producer(acks=level)
        for i in range(500):
            producer.produce(topic, b"%d" % i)
        equal(producer.flush(30), 0, "records not acknowledged")
        equal([m.value() for m in poll_until(read_all(topic, 1), 500)], [b"%d" % i for i in range(500)], f"acks={level}")


def offsets_by_time():
    topic = make_topic("times", 1)
    sender = Sender(make_producer(compression_type="gzip", batch_num_messages=50), topic, 1).send(range(500)).flush()
    partition = TopicPartition(topic, 0)

    def offset(spec):
        result = admin.list_offsets({partition: spec})[partition].result(20)
        return result.offset, result.timestamp

    consumer = read_all(topic, 1)
    for i in (0, 1, 49, 50, 333, 499):
        equal(consumer.offsets_for_times([TopicPartition(topic, 0, BASE + i)], 10)[0].offset, sender.acknowledged[i][1], f"offset at {i}")
        equal(offset(OffsetSpec.for_timestamp(BASE + i)), (i, BASE + i), f"ListOffsets at {i}")
    equal(consumer.offsets_for_times([TopicPartition(topic, 0, BASE - 5)], 10)[0].offset, 0, "before the first")
    equal(consumer.offsets_for_times([TopicPartition(topic, 0, BASE + 9999)], 10)[0].offset, OFFSET_END, "after the last")
    equal((offset(OffsetSpec.earliest())[0], offset(OffsetSpec.latest())[0], offset(OffsetSpec.max_timestamp())), (0, 500, (499, BASE + 499)), "ends")


def seek():
    topic = make_topic("seek", 1)
    sender = Sender(make_producer(), topic, 1).send(range(1000)).flush()
    consumer = read_all(topic, 1)
    verify(poll_until(consumer, 1000), range(1000), sender.acknowledged, 1)
    for start in (900, 0, 517, 999):
        consumer.seek(TopicPartition(topic, 0, start))
        got = poll_until(consumer, 1000 - start)
        verify(got, range(start, 1000), sender.acknowledged, 1)
    consumer.seek(TopicPartition(topic, 0, 5000))  # out of range: auto.offset.reset
    verify(poll_until(consumer, 1000), range(1000), sender.acknowledged, 1)
    consumer.close()


class Member(threading.Thread):
    """A group member that consumes and commits until it is told to leave."""

    def __init__(self, group, topic, **settings):
        super().__init__(daemon=True)
        self.consumer, self.received, self.assigned, self.error = make_consumer(group, **settings), [], set(), None
        self.incremental = settings.get("partition_assignment_strategy") == "cooperative-sticky"
        self.leaving, self.commit_now = threading.Event(), threading.Event()
        self.consumer.subscribe([topic], on_assign=self.on_assign, on_revoke=self.on_revoke)
        self.start()

    def on_assign(self, consumer, partitions):
        (consumer.incremental_assign if self.incremental else consumer.assign)(partitions)
        self.assigned |= {p.partition for p in partitions}

    def on_revoke(self, consumer, partitions):
        self.commit()
        (consumer.incremental_unassign(partitions) if self.incremental else consumer.unassign())
        self.assigned -= {p.partition for p in partitions}

    def commit(self):
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].name() != "_NO_OFFSET":  # nothing new to commit
                raise

    def run(self):
        try:
            while not self.leaving.is_set():
                if self.commit_now.is_set():
                    self.commit()
                    self.commit_now.clear()
                message = self.consumer.poll(0.1)
                if message is None:
                    continue
                if message.error():
                    raise KafkaException(message.error())
                self.received.append(message)
            self.commit()
            self.consumer.close()
        except KafkaException as error:
            self.error = error
            background.append(error)

    def leave(self):
        self.leaving.set()
        self.join(30)
        if self.is_alive() or self.error:
            raise AssertionError(f"member ended with {self.error or 'nothing: it hangs'}")


def rebalance(**settings):
    """One member, a second joins and leaves; records flow all the time; each is received once."""
    name = "-".join(["group", *settings.values()])
    topic, group = make_topic(name, 4), checks.topic(name)
    sender = Sender(make_producer(), topic, 4).send(range(1000)).flush()
    first = Member(group, topic, **settings)
    eventually(lambda: len(first.assigned) == 4, "the first member to have all partitions")
    eventually(lambda: len(first.received) >= 1000, "the first 1000 records")
    second = Member(group, topic, **settings)
    eventually(lambda: len(first.assigned) == 2 and len(second.assigned) == 2, "two partitions each")
    equal(first.assigned | second.assigned, {0, 1, 2, 3}, "assigned partitions")
    sender.send(range(1000, 2000)).flush()
    eventually(lambda: len(first.received) + len(second.received) >= 2000, "2000 records")
    equal(len(second.received), 500, "records of the second member")
    second.leave()
    eventually(lambda: len(first.assigned) == 4, "all partitions to be with the first again")
    sender.send(range(2000, 3000)).flush()
    eventually(lambda: len(first.received) + len(second.received) >= 3000, "3000 records")
    first.leave()
    verify(sorted(first.received + second.received, key=lambda m: m.offset()), range(3000), sender.acknowledged, 4)
    # What was committed is where the next member starts.
    sender.send(range(3000, 3100)).flush()
    third = Member(group, topic, **settings)
    eventually(lambda: len(third.received) >= 100, "the last 100 records")
    third.leave()
    verify(third.received, range(3000, 3100), sender.acknowledged, 4)


def static_members():
    topic, group = make_topic("static", 2), checks.topic("static")
    sender = Sender(make_producer(), topic, 2).send(range(100)).flush()
    one, two = Member(group, topic, group_instance_id="one"), Member(group, topic, group_instance_id="two")
    eventually(lambda: len(one.assigned) == 1 and len(two.assigned) == 1, "a partition each")
    eventually(lambda: len(one.received) + len(two.received) >= 100, "100 records")
    owned = set(one.assigned)
    one.leave()  # a static member that closes does not leave the group
    equal(len(two.assigned), 1, "no rebalance")
    sender.send(range(100, 200)).flush()
    again = Member(group, topic, group_instance_id="one")
    eventually(lambda: len(again.received) >= 50, "50 records of the returned member")
    equal((set(again.assigned), len(two.assigned)), (owned, 1), "the returned member's partitions")
    described = admin.describe_consumer_groups([group])[group].result(20)
    equal(sorted(m.group_instance_id for m in described.members), ["one", "two"], "group instance ids")
    again.leave(), two.leave()
    verify(sorted(one.received + two.received + again.received, key=lambda m: m.offset()), range(200), sender.acknowledged, 2)


def commits():
    topic, group = make_topic("commits", 2), checks.topic("commits")
    Sender(make_producer(), topic, 2).send(range(100)).flush()
    consumer = make_consumer(group)
    parts = [TopicPartition(topic, 0, 20, "some metadata"), TopicPartition(topic, 1, 30)]
    consumer.commit(offsets=parts, asynchronous=False)
    equal([(p.offset, p.metadata) for p in consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], 10)], [(20, "some metadata"), (30, None)], "committed")
    consumer.subscribe([topic])
    got = poll_until(consumer, 50)
    equal(sorted((m.partition(), m.offset()) for m in got), [(0, o) for o in range(20, 50)] + [(1, o) for o in range(30, 50)], "resumed at")
    consumer.commit(asynchronous=False)
    raises(lambda: admin.delete_consumer_groups([group])[group].result(20), "NON_EMPTY_GROUP")
    consumer.close()
    listed = admin.list_consumer_groups().result(20)
    equal([(g.group_id, g.state.name) for g in listed.valid if g.group_id == group], [(group, "EMPTY")], "the listed group")
    described = admin.describe_consumer_groups([group])[group].result(20)
    equal((described.state.name, described.members), ("EMPTY", []), "the described group")
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])
    admin.alter_consumer_group_offsets([request])[group].result(20)
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0), TopicPartition(topic, 1)])
    equal([p.offset for p in admin.list_consumer_group_offsets([request])[group].result(20).topic_partitions], [7, 50], "altered offsets")
    admin.delete_consumer_groups([group])[group].result(20)
    eventually(lambda: group not in [g.group_id for g in admin.list_consumer_groups().result(20).valid], "the group to be gone")
    raises(lambda: admin.delete_consumer_groups([group])[group].result(20), "GROUP_ID_NOT_FOUND")


def delete_records():
    topic = make_topic("delete-records", 1)
    sender = Sender(make_producer(), topic, 1).send(range(100)).flush()
    partition = TopicPartition(topic, 0, 40)
    equal(admin.delete_records([partition])[partition].result(20).low_watermark, 40, "low watermark")
    verify(poll_until(read_all(topic, 1, auto_offset_reset="earliest"), 60), range(40, 100), sender.acknowledged, 1)
    equal(read_all(topic, 1).get_watermark_offsets(TopicPartition(topic, 0), 10), (40, 100), "watermarks")


def restart(again):
    """The broker restarts under an idempotent producer and a group member; nothing is lost or duplicated."""
    topic, group = make_topic("restart-" + again.__name__, 3), checks.topic("restart-" + again.__name__)
    sender = Sender(make_producer(enable_idempotence=True, message_timeout_ms=60000, reconnect_backoff_max_ms=500), topic)
    member = Member(group, topic, reconnect_backoff_max_ms=500, session_timeout_ms=45000)
    sender.send(range(1000)).flush()
    eventually(lambda: len(member.received) >= 1000, "1000 records before the restart")
    member.commit_now.set()
    eventually(lambda: not member.commit_now.is_set(), "the commit")
    stop, sent = threading.Event(), [1000]

    def load():
        while not stop.is_set():
            sender.send(range(sent[0], sent[0] + 10))
            sent[0] += 10
            stop.wait(0.005)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        again()
        stop.wait(0.3)
    finally:
        stop.set()
        thread.join()
    sender.flush(60)
    total = sent[0]
    eventually(lambda: len(member.received) >= total, "the records after the restart", 60)
    member.leave()
    verify(member.received, range(total), sender.acknowledged)
    verify(poll_until(read_all(topic), total), range(total), sender.acknowledged)
    offsets = make_consumer(group).committed([TopicPartition(topic, p) for p in range(3)], 20)
    equal(sum(p.offset for p in offsets), total, "committed offsets")


checks.check("topics", topics)
checks.check("cluster", cluster)
for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    checks.check(f"produce-consume {codec}", produce_consume, codec)
checks.check("idempotent", idempotent)
checks.check("large-records", large_records)
checks.check("acks 0 1 all", acks)
checks.check("offsets-by-time", offsets_by_time)
checks.check("seek", seek)
checks.check("rebalance eager", rebalance)
checks.check("rebalance cooperative", lambda: rebalance(partition_assignment_strategy="cooperative-sticky"))
checks.check("static-members", static_members)
checks.check("commits-and-groups", commits)
checks.check("delete-records", delete_records)
for how in ("term", "kill"):
    def once(again, how=how):
        again.__name__ = how
        restart(again)
    checks.check_with_restart(f"restart {how}", once, how)
checks.exit()
