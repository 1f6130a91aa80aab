#!/usr/bin/env python3
"""Are the logs of all replicas the same, byte for byte, up to the high watermark?

    replicas.py DIR DIR...    the data directories of stopped brokers
    replicas.py --self-test

Segments may begin at different offsets on different replicas; their batches may not differ."""

import functools
import pathlib
import re
import struct
import sys
import tempfile


def batches(directory):
    """(base offset, next offset, bytes) of each batch of a partition's log, in order."""
    for segment in sorted(directory.glob("*.log")):
        data, at = segment.read_bytes(), 0
        while at + 61 <= len(data):
            base, length = struct.unpack_from(">qi", data, at)
            if length < 49 or at + 12 + length > len(data):
                raise ValueError(f"{segment} is damaged at {at}")
            last, = struct.unpack_from(">i", data, at + 23)
            yield base, base + last + 1, data[at:at + 12 + length]
            at += 12 + length
        if any(data[at:]):
            raise ValueError(f"{segment} ends with {len(data) - at} bytes that are no batch")


def high_watermarks(directory):
    """topic-partition -> the high watermark that the broker wrote down when it stopped."""
    found, path = {}, directory / "replication-offset-checkpoint"
    for line in path.read_text().splitlines()[2:] if path.exists() else ():
        topic, partition, offset = line.split(" ")
        found[f"{topic}-{partition}"] = int(offset)
    return found


def compare(directories, replicated=lambda name: True):
    """(sentences about what differs, partitions compared, batches compared)"""
    wrong, partitions, compared = [], 0, 0
    names = {p.name for d in directories for p in d.iterdir() if p.is_dir() and re.search(r"-\d+$", p.name) and replicated(p.name)}
    marks = [high_watermarks(d) for d in directories]
    for name in sorted(names):
        high = max((mark.get(name, 0) for mark in marks), default=0)
        logs = []
        for directory in directories:
            try:
                logs.append([b for b in batches(directory / name) if b[0] < high])
            except (OSError, ValueError) as error:
                wrong.append(f"{name}: {error}")
        partitions += 1
        for directory, log in zip(directories[1:], logs[1:]):
            compared += len(log)
            difference = next((i for i, (a, b) in enumerate(zip(logs[0], log)) if a != b), None)
            if difference is not None:
                wrong.append(f"{name}: {directory} differs from {directories[0]} at offset {logs[0][difference][0]}: {what(logs[0][difference], log[difference])}")
            elif len(log) != len(logs[0]):
                ends = [entries[-1][1] if entries else 0 for entries in (logs[0], log)]
                wrong.append(f"{name}: {directories[0]} ends at {ends[0]}, {directory} at {ends[1]}, the high watermark is {high}")
        for directory, mark in zip(directories, marks):
            if mark.get(name, high) != high:
                wrong.append(f"{name}: {directory} stopped with high watermark {mark[name]}, others with {high}")
    return wrong, partitions, compared


def what(a, b):
    """How two batches differ, in words."""
    fields = {"base offset": (0, 8), "length": (8, 12), "leader epoch": (12, 16), "crc": (17, 21), "producer": (43, 57)}
    return ", ".join(name for name, (start, end) in fields.items() if a[2][start:end] != b[2][start:end]) or "the records"


def self_test():
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "faults"))
    from lib import record_batch

    batch_of = functools.cache(record_batch)  # a batch holds the time

    def make(root, name, values, split, high):
        directory = root / name / "t-0"
        directory.mkdir(parents=True)
        for index, value in enumerate(values):
            batch = bytearray(batch_of(value))
            batch[:8] = struct.pack(">q", index)
            with open(directory / f"{0 if index < split else split:020}.log", "ab") as log:
                log.write(batch)
        (root / name / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {high}\n")
        return root / name
    good, values = True, [b"%d" % n for n in range(10)]
    with tempfile.TemporaryDirectory() as root:
        root = pathlib.Path(root)
        a = make(root, "a", values, 5, 9)
        cases = {
            "same, other segments": (make(root, "b", values, 7, 9), None),
            "differs beyond the high watermark": (make(root, "c", [*values[:9], b"x"], 5, 9), None),
            "another record": (make(root, "d", [*values[:4], b"x", *values[5:]], 5, 9), "differs"),
            "shorter": (make(root, "e", values[:8], 5, 9), "ends at"),
            "lower high watermark": (make(root, "f", values, 5, 8), "stopped with"),
        }
        cut = make(root, "g", values, 5, 9)
        segment = max((cut / "t-0").glob("*.log"))
        segment.write_bytes(segment.read_bytes()[:-3])
        cases["cut off"] = (cut, "damaged")
        for case, (other, words) in cases.items():
            found, *_ = compare([a, other])
            right = any(words in w for w in found) if words else not found
            good &= right
            print(f"{'ok ' if right else 'FAIL'} replicas control: {case} {found[:1]}")
    return good


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(not self_test())
    wrong, partitions, compared = compare([pathlib.Path(d) for d in sys.argv[1:]])
    print("\n".join(wrong) or f"{partitions} partitions, {compared} batches: the same")
    sys.exit(bool(wrong))
