"""Kafka's protocol by hand, where a client library would hide the answer, try again, or go to another broker.

    wire.py whole SECONDS NUMBER=HOST:PORT...    wait until all replicas are in the ISR and all these brokers say the same"""

import pathlib
import socket
import struct
import sys
import time
from collections import namedtuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "faults"))
from lib import record_batch  # noqa: E402

Partition = namedtuple("Partition", "error leader epoch replicas isr offline")

NONE, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, NOT_LEADER, TIMED_OUT = 0, 1, 3, 5, 6, 7
NOT_ENOUGH_REPLICAS, OFFSET_NOT_AVAILABLE = 19, 78
# A Produce that gets one of these was refused before anything was written. (NOT_LEADER also comes from a leader that wrote, waited, and
# leads no more.)
REFUSED = {UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, NOT_ENOUGH_REPLICAS}


class Closed(ConnectionError):
    pass


class Answer:
    """Reads an answer's fields, one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        value = struct.unpack_from(">" + form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def text(self):
        length = self.number("h")
        value = self.data[self.at:self.at + max(length, 0)]
        self.at += max(length, 0)
        return value.decode() if length >= 0 else None

    def bytes(self):
        length = self.number("i")
        value = self.data[self.at:self.at + max(length, 0)]
        self.at += max(length, 0)
        return value

    def list(self, item):
        return [item() for _ in range(max(self.number("i"), 0))]

    def varint(self):
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


class Cluster(namedtuple("Cluster", "brokers controller topics errors")):
    def partitions(self, topic):
        return self.topics.get(topic, {})


def text(value):
    return struct.pack(">h", len(value)) + value.encode()


class Connection:
    """One request at a time, each with a deadline; after an error the connection is of no use."""

    def __init__(self, host, port, seconds=5):
        self.socket = socket.create_connection((host, port), seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(seconds)
        self.correlation = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def ask(self, key, version, body, flexible=False):
        self.correlation += 1
        header = struct.pack(">hhi", key, version, self.correlation) + text("raw") + (b"\0" if flexible else b"")
        self.socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        answer = self.take(struct.unpack(">i", self.take(4))[0])
        if struct.unpack_from(">i", answer)[0] != self.correlation:
            raise Closed("an answer to something else")
        return Answer(answer[5 if flexible else 4:])

    def take(self, count):
        data = bytearray()
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise Closed("closed")
            data += more
        return bytes(data)

    def metadata(self, topics=None):
        """Metadata 7; None: all topics."""
        names = struct.pack(">i", -1) if topics is None else struct.pack(">i", len(topics)) + b"".join(map(text, topics))
        a = self.ask(3, 7, names + b"\0")
        a.number("i")
        brokers = {}
        for _ in range(a.number("i")):
            number = a.number("i")
            brokers[number] = (a.text(), a.number("i"), a.text())[:2]
        a.text()
        controller, found, errors = a.number("i"), {}, {}
        for _ in range(a.number("i")):
            error, name = a.number("h"), a.text()
            a.number("b")
            errors[name] = error
            found[name] = {}
            for _ in range(a.number("i")):
                error, index, leader, epoch = a.number("h"), a.number("i"), a.number("i"), a.number("i")
                found[name][index] = Partition(error, leader, epoch, *(a.list(lambda: a.number("i")) for _ in range(3)))
        return Cluster(brokers, controller, found, errors)

    def quorum_leader(self):
        """DescribeQuorum 0: who leads Kafka's metadata."""
        name = b"__cluster_metadata"
        a = self.ask(55, 0, b"\x02" + bytes([len(name) + 1]) + name + b"\x02" + struct.pack(">i", 0) + b"\0\0\0", flexible=True)
        if a.number("h") or a.varint() != 2:
            return None
        length = a.varint() - 1
        a.at += length
        a.varint(), a.number("i"), a.number("h")
        leader = a.number("i")
        return leader if leader >= 0 else None

    def produce(self, topic, partition, value, acks=-1, timeout_ms=3000):
        """Produce 3 of one record; the partition's error code and base offset."""
        batch = record_batch(value)
        body = struct.pack(">hhi", -1, acks, timeout_ms) + struct.pack(">i", 1) + text(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch
        a = self.ask(0, 3, body)
        a.number("i"), a.text(), a.number("i"), a.number("i")
        return a.number("h"), a.number("q")

    def fetch(self, topic, positions, wait_ms=100, bytes_max=1 << 20):
        """Fetch 4: per partition the error, the high watermark and [(offset, value)] from the position on."""
        body = struct.pack(">iiiib", -1, wait_ms, 1, 16 << 20, 0) + struct.pack(">i", 1) + text(topic) + struct.pack(">i", len(positions))
        body += b"".join(struct.pack(">iqi", index, offset, bytes_max) for index, offset in positions.items())
        a = self.ask(1, 4, body)
        a.number("i")
        found = {}
        for _ in range(a.number("i")):
            a.text()
            for _ in range(a.number("i")):
                index, error, high = a.number("i"), a.number("h"), a.number("q")
                a.number("q"), a.list(lambda: (a.number("q"), a.number("q")))
                found[index] = (error, high, [(o, v) for o, v in records(a.bytes()) if o >= positions[index]])
        return found

    def end(self, topic, partition, timestamp=-1):
        """ListOffsets 1 of the latest (-1) or earliest (-2); error code and offset."""
        a = self.ask(2, 1, struct.pack(">ii", -1, 1) + text(topic) + struct.pack(">iiq", 1, partition, timestamp))
        a.number("i"), a.text(), a.number("i"), a.number("i")
        error = a.number("h")
        a.number("q")
        return error, a.number("q")


def records(data):
    """(offset, value) of each record of uncompressed batches; what is compressed is an error."""
    at = 0
    while at + 61 <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        if at + 12 + length > len(data):
            return  # cut off at the end of what was asked for
        attributes, = struct.unpack_from(">h", data, at + 21)
        if attributes & 7:
            raise ValueError("a compressed batch")
        count, = struct.unpack_from(">i", data, at + 57)
        reader = Signed(data, at + 61)
        for _ in range(count):
            size = reader.varint()
            end = reader.at + size
            reader.at += 1
            reader.varint()
            offset = base + reader.varint()
            key = reader.varint()
            reader.at += max(key, 0)
            length_of_value = reader.varint()
            if not attributes & 0x20:
                yield offset, data[reader.at:reader.at + max(length_of_value, 0)]
            reader.at = end
        at += 12 + length


class Signed(Answer):
    def __init__(self, data, at):
        super().__init__(data)
        self.at = at

    def varint(self):
        value = super().varint()
        return (value >> 1) ^ -(value & 1)


def unwell(brokers):
    """What keeps a cluster from being whole, in words. `brokers`: number -> (host, port)."""
    views, found, said = {}, [], {}
    for number, address in brokers.items():
        try:
            with Connection(*address, 3) as asked:
                views[number] = asked.metadata()
        except OSError:
            found.append(f"no answer from {number}")
    for number, view in views.items():
        if set(view.brokers) != set(brokers):
            found.append(f"{number} knows the brokers {sorted(view.brokers)}")
        for topic, partitions in view.topics.items():
            for index, p in partitions.items():
                if p.error or sorted(p.isr) != sorted(p.replicas) or p.leader not in p.replicas:
                    found.append(f"{number}: {topic}-{index} error {p.error}, leader {p.leader}, isr {p.isr} of {p.replicas}")
                if said.setdefault((topic, index), (p.leader, p.epoch)) != (p.leader, p.epoch):
                    found.append(f"{number}: {topic}-{index} led by {(p.leader, p.epoch)}, elsewhere {said[topic, index]}")
    return found


def main(what, seconds, *brokers):
    assert what == "whole", what
    brokers = {int(number): (address.split(":")[0], int(address.split(":")[1])) for number, address in (b.split("=") for b in brokers)}
    end = time.monotonic() + float(seconds)
    while found := unwell(brokers):
        if time.monotonic() > end:
            sys.exit(f"not whole after {seconds} s: {'; '.join(found[:3])} ({len(found)} in all)")
        time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
