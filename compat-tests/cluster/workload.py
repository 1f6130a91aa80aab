#!/usr/bin/env python3
"""What clients do while the cluster breaks, written down as a history that check.py judges.

    workload.py BOOTSTRAP HISTORY SEED NUMBER=HOST:PORT...

Producers of every promise, readers (one that goes where the leaders are, one pinned to each broker, which takes what that one
gives), a group and a lone committer. Producers and readers pinned to a broker speak the protocol themselves: no hidden retry, and
a broker that believes to lead when it does not is asked all the same. Commands come as lines on stdin, each is answered by a line
of JSON: `counts`, `quiet` (producers stop, what is under way ends), `whole` (read everything, by two kinds of readers), `end`."""

import contextlib
import itertools
import json
import os
import pathlib
import random
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import wire  # noqa: E402
from lib import FAST, Consumer, KafkaError, KafkaException, Producer, TopicPartition, say  # noqa: E402

# topic: (promise, partitions, settings)
TOPICS = {
    "exactly": ("idempotent", 6, {}),
    # With several requests in flight librdkafka takes a new epoch when one is refused (NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR) and
    # the next is out of order, and sends again what an earlier attempt may have written: twice is no fault of the broker's.
    "piped": ("all", 4, {}),
    "all": ("all", 4, {}),
    "cached": ("idempotent", 4, {"flush.messages": "1000000"}),
    "one": ("one", 3, {}),
    "pinned": ("all", 4, {}),
}
SOCKET_TIMEOUT_MS = 5000
PADDING = random.Random(1).randbytes(1 << 12).hex().encode()
now = time.monotonic


def value_of(producer, number):
    return b"%d %d " % (producer, number) + PADDING[: number * 7919 % 300]


def record_of(value):
    """(producer, number), or (-1, what it is) if nobody wrote this."""
    try:
        producer, number, _ = value.split(b" ", 2)
        if value_of(int(producer), int(number)) == value:
            return int(producer), int(number)
    except (ValueError, AttributeError):
        pass
    return -1, repr(value[:40])


class History:
    def __init__(self, path):
        self.file, self.lock = open(path, "w"), threading.Lock()

    def __call__(self, *event):
        line = json.dumps(event, separators=(",", ":"))
        with self.lock:
            self.file.write(line + "\n")

    def flush(self):
        with self.lock:
            self.file.flush()


class Worker(threading.Thread):
    def __init__(self, world, name):
        super().__init__(daemon=True, name=name)
        self.world, self.history, self.over = world, world.history, threading.Event()
        self.chance = random.Random(f"{world.seed} {name}")

    def run(self):
        while not self.over.is_set():
            try:
                self.step()
            except (KafkaException, OSError):
                self.over.wait(0.1)
            except KafkaError as error:  # raised by a producer that failed for good
                self.broken = error.str()
        self.finish()

    def finish(self):
        pass


class LibraryProducer(Worker):
    """librdkafka; `rate` records a second over all partitions."""

    def __init__(self, world, number, topic, rate, **settings):
        super().__init__(world, f"producer-{number}")
        self.number, self.topic, self.rate, self.settings = number, topic, rate, settings
        self.partitions = TOPICS[topic][1]
        self.next = [0] * self.partitions
        self.acknowledged, self.unknown, self.last = 0, 0, [0.0] * self.partitions
        # librdkafka's max.in.flight counts per broker: a retry may come in after what was sent to the next leader.
        self.in_order = "enable.idempotence" in settings
        world.history("producer", number, topic, self.in_order)
        self.producer = self.broken = None
        self.due = now()

    def open(self):
        self.producer = Producer({
            "bootstrap.servers": self.world.bootstrap, "acks": "all", "linger.ms": 5, "message.timeout.ms": 600000, "request.timeout.ms": 5000,
            "socket.timeout.ms": 5000, "socket.connection.setup.timeout.ms": 2000, "log_level": 1,
            "queue.buffering.max.messages": 3000, **FAST, **self.settings, "error_cb": self.failed,
            **({"debug": "eos", "log_level": 7} if os.environ.get("WORKLOAD_DEBUG") == str(self.number) else {})})

    def failed(self, error):
        if error.fatal():
            self.broken = error.str()

    def begin_anew(self):
        """An idempotent producer whose records were lost cannot go on. With `cached` that may be: another takes its place."""
        if self.topic != "cached":
            self.world.trouble.append(f"producer {self.number} of {self.topic}: {self.broken}")
            self.over.set()
            return
        with contextlib.suppress(KafkaException, KafkaError):
            self.producer.purge()
            self.producer.flush(5)
        self.number, self.next, self.broken, self.producer = self.world.number(), [0] * self.partitions, None, None
        self.history("producer", self.number, self.topic, True)

    def step(self):
        if self.broken:
            return self.begin_anew()
        if self.producer is None:
            self.open()
        partition = self.chance.randrange(self.partitions)
        number = self.next[partition]
        self.history("send", round(now(), 4), self.number, partition, number)
        try:
            self.producer.produce(self.topic, value_of(self.number, number), partition=partition,
                                  on_delivery=lambda e, m, me=self.number, p=partition, n=number: self.done(e, m, me, p, n))
            self.next[partition] += 1
        except BufferError:
            self.due = now() + 0.1
        except KafkaException as error:
            self.broken = error.args[0].str()
            return
        self.due += self.chance.expovariate(self.rate)
        self.producer.poll(max(0, min(0.2, self.due - now())))
        self.due = max(self.due, now() - 0.5)

    def done(self, error, message, me, partition, number):
        t = round(now(), 4)
        if error:
            self.unknown += 1
            self.history("unknown", t, me, partition, number, error.str())
        else:
            self.acknowledged += 1
            self.last[partition] = t
            self.history("ack", t, me, partition, number, message.offset())

    def finish(self):
        left = self.producer.flush(60) if self.producer else 0
        if left:
            self.world.trouble.append(f"producer {self.number} of {self.topic}: {left} records were never answered")


class Pinned(Worker):
    """Has a connection to one broker, and asks nobody else."""

    def __init__(self, world, name, broker):
        super().__init__(world, name)
        self.broker, self.connection = broker, None

    def connected(self):
        if self.connection is None:
            self.connection = wire.Connection(*self.world.brokers[self.broker], 4)
        return self.connection

    def drop(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def finish(self):
        self.drop()


class PinnedProducer(Pinned):
    """acks=all to one broker, whether it leads or not. What it refused is written nowhere; what was not answered may be."""

    def __init__(self, world, number, broker):
        super().__init__(world, f"pinned-producer-{number}", broker)
        self.number, self.topic, self.next = number, "pinned", [0] * TOPICS["pinned"][1]
        self.acknowledged = self.unknown = 0
        world.history("producer", number, self.topic, False)

    def step(self):
        partition = self.chance.randrange(len(self.next))
        try:
            connection = self.connected()
        except OSError:
            self.over.wait(0.2)
            return
        number = self.next[partition]
        self.next[partition] += 1
        self.history("send", round(now(), 4), self.number, partition, number)
        try:
            error, offset = connection.produce(self.topic, partition, value_of(self.number, number), timeout_ms=2000)
        except OSError as failure:
            self.drop()
            self.unknown += 1
            self.history("unknown", round(now(), 4), self.number, partition, number, str(failure))
            return
        t = round(now(), 4)
        if error == 0:
            self.acknowledged += 1
            self.history("ack", t, self.number, partition, number, offset)
        else:
            self.history("fail" if error in wire.REFUSED else "unknown", t, self.number, partition, number, error)
        self.over.wait(self.chance.expovariate(20))


class PinnedReader(Pinned):
    """Takes what one broker gives, wherever the leaders are."""

    def __init__(self, world, broker):
        super().__init__(world, f"pinned-{broker}", broker)
        self.places = {topic: dict.fromkeys(range(TOPICS[topic][1]), 0) for topic in TOPICS}
        for topic, places in self.places.items():
            for partition in places:
                self.history("start", 0, self.name, topic, partition, 0)

    def step(self):
        for topic, places in self.places.items():
            try:
                found = self.connected().fetch(topic, places, wait_ms=20, bytes_max=1 << 18)
            except OSError:
                self.drop()
                self.over.wait(0.2)
                return
            for partition, (error, _, records) in found.items():
                if error == wire.OFFSET_OUT_OF_RANGE:
                    self.history("refused", round(now(), 4), self.name, topic, partition, error)
                    self.history("start", round(now(), 4), self.name, topic, partition, 0)
                    places[partition] = 0
                if records:
                    self.history("read", round(now(), 4), self.name, topic, partition, [(offset, *record_of(value)) for offset, value in records])
                    places[partition] = records[-1][0] + 1
        self.over.wait(self.chance.uniform(0.02, 0.3))


class LibraryReader(Worker):
    """Follows the leaders; now and then it begins anew somewhere in the past."""

    def __init__(self, world, name="tail", topics=TOPICS):
        super().__init__(world, name)
        self.places = {(topic, p): 0 for topic in topics for p in range(TOPICS[topic][1])}
        self.consumer, self.again = None, 0

    def open(self):
        self.consumer = library_consumer(self.world, f"reader-{self.name}")

    def begin(self):
        for (topic, partition), offset in self.places.items():
            self.history("start", round(now(), 4), self.name, topic, partition, offset)
        self.consumer.assign([TopicPartition(*where, offset) for where, offset in self.places.items()])

    def step(self):
        if self.consumer is None:
            self.open()
        if now() > self.again:
            if self.again:
                self.places = {where: max(0, offset - self.chance.choice((0, 10, 1000))) for where, offset in self.places.items()}
            self.begin()
            self.again = now() + self.chance.uniform(5, 20)
        self.take(self.consumer.consume(500, 0.1))

    def take(self, messages):
        found = {}
        for m in messages:
            if m.error():
                if m.error().name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION"):
                    self.history("refused", round(now(), 4), self.name, m.topic(), m.partition(), m.error().str())
                    self.places[m.topic(), m.partition()], self.again = 0, now()
                continue
            found.setdefault((m.topic(), m.partition()), []).append((m.offset(), *record_of(m.value())))
            self.places[m.topic(), m.partition()] = m.offset() + 1
        for (topic, partition), records in found.items():
            self.history("read", round(now(), 4), self.name, topic, partition, records)

    def finish(self):
        if self.consumer:
            self.consumer.close()


def library_consumer(world, group, **more):
    return Consumer({"bootstrap.servers": world.bootstrap, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "error",
                     "fetch.wait.max.ms": 50, "check.crcs": True, "log_level": 1, "socket.timeout.ms": SOCKET_TIMEOUT_MS,
                     "socket.connection.setup.timeout.ms": 2000, **FAST, **more})


class Member(Worker):
    """Reads in a group and commits where it is; when partitions come to it, it goes on from what OffsetFetch says."""

    def __init__(self, world, number):
        super().__init__(world, f"member-{number}")
        self.consumer, self.places, self.due = None, {}, 0

    def open(self):
        self.consumer = library_consumer(self.world, "readers", **{"session.timeout.ms": 6000, "heartbeat.interval.ms": 500})
        self.consumer.subscribe(["exactly"], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.revoked)

    def assigned(self, consumer, partitions):
        self.places = {}
        while not self.over.is_set():
            began = round(now(), 4)
            try:
                found = consumer.committed(partitions, 5)
                break
            except KafkaException:
                time.sleep(0.1)
        else:
            return
        for tp in found:
            offset = tp.offset if tp.offset >= 0 else -1
            self.history("fetched", began, round(now(), 4), "readers", tp.topic, tp.partition, offset)
            self.places[tp.topic, tp.partition] = max(offset, 0)
            self.history("start", round(now(), 4), self.name, tp.topic, tp.partition, max(offset, 0))
        consumer.assign([TopicPartition(*where, offset) for where, offset in self.places.items()])

    def revoked(self, consumer, partitions):
        self.places = {}

    def step(self):
        if self.consumer is None:
            self.open()
        found = {}
        for m in self.consumer.consume(200, 0.1):
            where = m.topic(), m.partition()
            if m.error() or where not in self.places:
                continue
            found.setdefault(where, []).append((m.offset(), *record_of(m.value())))
            self.places[where] = m.offset() + 1
        for (topic, partition), records in found.items():
            self.history("read", round(now(), 4), self.name, topic, partition, records)
        if now() > self.due and self.places:
            commit(self.world, self.consumer, "readers", dict(self.places))
            self.due = now() + 0.3

    def finish(self):
        if self.consumer:
            self.consumer.close()


def commit(world, consumer, group, places):
    began, outcome = round(now(), 4), "ok"
    try:
        answered = consumer.commit(offsets=[TopicPartition(*where, offset) for where, offset in places.items()], asynchronous=False)
        failed = {(tp.topic, tp.partition) for tp in answered if tp.error}
    except KafkaException:
        failed = set(places)
    ended = round(now(), 4)
    # The library gives an attempt up after its socket timeout, closes the connection and sends it again.
    done = "again" if ended - began >= SOCKET_TIMEOUT_MS / 1000 - 0.1 else "ok"
    for (topic, partition), offset in places.items():
        outcome = "unknown" if (topic, partition) in failed else done
        world.history("commit", began, ended, group, topic, partition, offset, outcome)
        world.commits += outcome != "unknown"
    return not failed


class Committer(Worker):
    """Commits growing offsets, in several groups (several coordinators), and asks for them."""

    def __init__(self, world, number):
        super().__init__(world, f"committer-{number}")
        self.group, self.consumer, self.tried = f"group-{number}", None, 0

    def step(self):
        if self.consumer is None:
            self.consumer = library_consumer(self.world, self.group)
        self.tried += 1
        commit(self.world, self.consumer, self.group, {("exactly", 0): self.tried})
        if self.chance.random() < 0.4:
            self.ask()
        self.over.wait(self.chance.uniform(0.02, 0.2))

    def ask(self, seconds=5):
        began = round(now(), 4)
        found = self.consumer.committed([TopicPartition("exactly", 0)], seconds)[0]
        if not found.error:
            self.history("fetched", began, round(now(), 4), self.group, "exactly", 0, max(found.offset, -1))

    def finish(self):
        for _ in range(20):
            try:
                return self.ask()
            except KafkaException:
                time.sleep(0.3)
        self.world.trouble.append(f"{self.group}: nobody says what it committed")


class World:
    def __init__(self, bootstrap, history, seed, brokers):
        self.bootstrap, self.history, self.seed, self.brokers = bootstrap, History(history), seed, brokers
        self.trouble, self.commits, self.last_number = [], 0, 100
        for topic, (promise, _, _) in TOPICS.items():
            self.history("promise", topic, promise)
        idempotent, one_at_a_time = {"enable.idempotence": True}, {"max.in.flight": 1}
        self.producers = [
            LibraryProducer(self, 1, "exactly", 80, **idempotent, **one_at_a_time),
            LibraryProducer(self, 2, "exactly", 50, **idempotent, **one_at_a_time, **{"linger.ms": 0}),
            LibraryProducer(self, 3, "all", 60, **one_at_a_time),
            LibraryProducer(self, 4, "cached", 80, **idempotent, **one_at_a_time),
            LibraryProducer(self, 5, "one", 50, **one_at_a_time, **{"acks": "1", "retries": 0}),
            LibraryProducer(self, 6, "piped", 60, **idempotent, **{"linger.ms": 0}),
            *(PinnedProducer(self, 10 + broker, broker) for broker in brokers),
        ]
        self.readers = [LibraryReader(self), *(PinnedReader(self, broker) for broker in brokers)]
        self.group = [Member(self, 1), Member(self, 2), *(Committer(self, number) for number in range(4))]

    def number(self):
        self.last_number += 1
        return self.last_number

    def start(self):
        for worker in self.workers():
            worker.start()

    def workers(self):
        return [*self.producers, *self.readers, *self.group]

    def counts(self):
        self.history.flush()
        oldest = min(((last, f"{p.topic}-{index}") for p in self.producers if isinstance(p, LibraryProducer) for index, last in enumerate(p.last)), default=(0, ""))
        return {"acknowledged": sum(p.acknowledged for p in self.producers), "unknown": sum(p.unknown for p in self.producers),
                "commits": self.commits, "slowest": oldest[1], "slowest_at": oldest[0], "trouble": self.trouble}

    def quiet(self):
        self.end(self.producers)
        return self.counts()

    def end(self, workers):
        for worker in workers:
            worker.over.set()
        for worker in workers:
            worker.join(90)
            if worker.is_alive():
                self.trouble.append(f"{worker.name} does not end")

    def whole(self):
        """Everything, from start to end, once as clients read and once from each leader by hand."""
        self.end([*self.readers, *self.group])
        for topic, (_, count, _) in TOPICS.items():
            for partition in range(count):
                low, high = self.bounds(topic, partition)
                for reader in ("whole-library", "whole-leader"):
                    self.history("start", round(now(), 4), reader, topic, partition, low)
                    getattr(self, "read_" + reader.split("-")[1])(reader, topic, partition, low, high)
                    self.history("end", round(now(), 4), reader, topic, partition, low, high)
        self.history.flush()
        return self.counts()

    def leader(self, topic, partition):
        for number in itertools.cycle(self.brokers):
            try:
                with wire.Connection(*self.brokers[number], 4) as asked:
                    found = asked.metadata([topic]).partitions(topic)
                    if partition in found and found[partition].leader in self.brokers:
                        return wire.Connection(*self.brokers[found[partition].leader], 4)
            except OSError:
                time.sleep(0.1)

    def bounds(self, topic, partition, seconds=30):
        end = now() + seconds
        while now() < end:
            try:
                with self.leader(topic, partition) as asked:
                    (error, high), (other, low) = asked.end(topic, partition), asked.end(topic, partition, -2)
                if not error and not other:
                    return low, high
            except OSError:
                pass
            time.sleep(0.1)
        self.trouble.append(f"{topic}-{partition}: nobody says where it ends")
        return 0, 0

    def read_library(self, reader, topic, partition, low, high, seconds=60):
        consumer, position, end = library_consumer(self, "whole"), low, now() + seconds
        consumer.assign([TopicPartition(topic, partition, low)])
        while position < high and now() < end:
            records = [(m.offset(), *record_of(m.value())) for m in consumer.consume(2000, 0.5) if not m.error()]
            records = [r for r in records if r[0] < high]
            if records:
                self.history("read", round(now(), 4), reader, topic, partition, records)
                position = records[-1][0] + 1
        consumer.close()

    def read_leader(self, reader, topic, partition, low, high, seconds=60):
        position, end = low, now() + seconds
        while position < high and now() < end:
            try:
                with self.leader(topic, partition) as asked:
                    while position < high and now() < end:
                        error, _, records = asked.fetch(topic, {partition: position})[partition]
                        records = [(offset, *record_of(value)) for offset, value in records if offset < high]
                        if error:
                            break
                        if records:
                            self.history("read", round(now(), 4), reader, topic, partition, records)
                            position = records[-1][0] + 1
            except OSError:
                time.sleep(0.1)


def main():
    bootstrap, history, seed, *brokers = sys.argv[1:]
    brokers = {int(number): (address.split(":")[0], int(address.split(":")[1])) for number, address in (b.split("=") for b in brokers)}
    world = World(bootstrap, history, seed, brokers)
    world.start()
    for line in sys.stdin:
        command = line.strip()
        if command == "end":
            break
        print(json.dumps(getattr(world, command)()), flush=True)
    world.history.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
