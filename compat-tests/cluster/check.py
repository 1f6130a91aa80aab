#!/usr/bin/env python3
"""Judges a history of what clients did and saw: what contradicts the promises that they were given. Pure: events in, sentences out.

    check.py HISTORY...      a line per kind of anomaly; exit status 1 if there is one
    check.py --self-test     each anomaly in a history made for it must be found, and none in a clean one

A history is a file of JSON arrays, one a line:

    ["promise", topic, promise]                               idempotent | all | one | nothing (below)
    ["producer", producer, topic, in_order]                   does it send the next record only after the last (or idempotently)?
    ["send", t, producer, partition, number]                  numbers count per producer and partition
    ["ack", t, producer, partition, number, offset]           offset null: it is there already, nobody says where
    ["fail", t, producer, partition, number, error]           certainly not written
    ["unknown", t, producer, partition, number, error]        maybe written, now or later
    ["start", t, reader, topic, partition, offset]            from where a reader reads
    ["read", t, reader, topic, partition, [[offset, producer, number]...]]
    ["refused", t, reader, topic, partition, error]           a reader is told that its place does not exist (any more)
    ["end", t, reader, topic, partition, low, high]           a reader of the whole, after all faults: it read from low up to high
    ["fault", t, what]                                        for who reads the history
    ["commit", began, ended, group, topic, partition, offset, outcome]     outcome: ok | again | fail | unknown; again: acknowledged, and sent
                                                              more than once: what was given up may still come in, behind newer ones
    ["fetched", began, ended, group, topic, partition, offset]             what OffsetFetch said

Times are seconds of one monotonic clock. What a topic promises: `idempotent`: each acknowledged record is there exactly once, at
its acknowledged offset, in order. `all` (acks=all without idempotence): it may be there twice, and later than those after it. `one` (acks=1): it may be lost, but
what a consumer saw stays. `nothing`: only counted, as a contrast.
"""

import json
import sys
from collections import Counter, defaultdict

# Which anomalies break which promise; the rest is counted as tolerated.
ALWAYS = {"diverged", "taken back", "skipped", "refused", "stranger", "failed and read", "unfinished", "hole"}
KEPT = ALWAYS | {"lost", "acknowledged elsewhere"}
BROKEN_BY = {"idempotent": KEPT | {"reordered", "duplicated"}, "all": KEPT, "one": ALWAYS, "nothing": {"stranger"}}
OFFSETS = {"offset lost", "offset moved back", "offset never committed"}


class Partition:
    def __init__(self):
        self.sent, self.failed = set(), set()
        self.acknowledged = {}            # record -> offset
        self.seen = {}                    # offset -> record, as who came first saw it
        self.first_reader = {}            # offset -> reader
        self.final = None                 # offset -> record, of the first reader of the whole
        self.low = self.high = None


class Group:
    def __init__(self):
        self.commits, self.fetched, self.late = [], [], set()


class Checker:
    def __init__(self):
        self.promises, self.producers = {}, {}
        self.partitions = defaultdict(Partition)
        self.groups = defaultdict(Group)
        self.place = {}                   # (reader, topic, partition) -> the offset that comes next
        self.whole = defaultdict(dict)    # (reader, topic, partition) -> {offset: record}, of readers of the whole
        self.found = defaultdict(list)    # (anomaly, topic) -> sentences
        self.counts = Counter()

    def wrong(self, anomaly, topic, sentence):
        self.found[anomaly, topic].append(sentence)

    # ---- events

    def feed(self, event):
        self.counts[event[0]] += 1
        getattr(self, "on_" + event[0])(*event[1:])

    def on_promise(self, topic, promise):
        self.promises[topic] = promise

    def on_producer(self, producer, topic, in_order):
        self.producers[producer] = topic, in_order

    def of(self, producer, partition):
        return self.partitions[self.producers[producer][0], partition]

    def on_send(self, _t, producer, partition, number):
        self.of(producer, partition).sent.add((producer, number))

    def on_ack(self, _t, producer, partition, number, offset):
        self.of(producer, partition).acknowledged[producer, number] = offset

    def on_fail(self, _t, producer, partition, number, _error):
        self.of(producer, partition).failed.add((producer, number))

    def on_unknown(self, *_):
        pass

    def on_fault(self, _t, _what):
        pass

    def on_start(self, _t, reader, topic, partition, offset):
        self.place[reader, topic, partition] = offset

    def on_read(self, _t, reader, topic, partition, records):
        this, key = self.partitions[topic, partition], (reader, topic, partition)
        expected, whole = self.place.get(key), self.whole[key] if reader.startswith("whole") else None
        for offset, producer, number in records:
            record = (producer, number)
            if expected is not None and offset != expected:
                what = "goes back" if offset < expected else "skips"
                self.wrong("skipped", topic, f"{topic}-{partition}: {reader} {what} from {expected} to {offset}")
            expected = offset + 1
            known = this.seen.setdefault(offset, record)
            if known != record:
                self.wrong("diverged", topic, f"{topic}-{partition}: offset {offset} is {show(known)} for {this.first_reader[offset]} and {show(record)} for {reader}")
            this.first_reader.setdefault(offset, reader)
            if whole is not None:
                whole[offset] = record
        self.place[key] = expected
        self.counts["records read"] += len(records)

    def on_refused(self, t, reader, topic, partition, error):
        self.wrong("refused", topic, f"{topic}-{partition}: {reader} is refused at {self.place.get((reader, topic, partition))} at {t:.3f}: {error}")

    def on_end(self, _t, reader, topic, partition, low, high):
        this, whole = self.partitions[topic, partition], self.whole[reader, topic, partition]
        missing = [offset for offset in range(low, high) if offset not in whole]
        if missing:
            reached = max(whole, default=low - 1) + 1
            anomaly = "unfinished" if missing[0] >= reached else "hole"
            self.wrong(anomaly, topic, f"{topic}-{partition}: {reader} read from {low} to {high} and did not get {len(missing)} offsets, the first {missing[0]}")
        if this.final is None:
            this.final, this.low, this.high = whole, low, high
        elif high < this.high:
            self.wrong("taken back", topic, f"{topic}-{partition}: ended at {this.high}, for {reader} later at {high}")

    def on_commit(self, began, ended, group, topic, partition, offset, outcome):
        group = self.groups[group, topic, partition]
        if outcome != "fail":
            group.commits.append((began, None if outcome == "unknown" else ended, offset))
        if outcome == "again":
            group.late.add(offset)
        self.counts["commits acknowledged"] += outcome in ("ok", "again")

    def on_fetched(self, began, ended, group, topic, partition, offset):
        self.groups[group, topic, partition].fetched.append((began, ended, offset))

    # ---- the verdict

    def judge(self):
        for (topic, partition), this in sorted(self.partitions.items()):
            self.judge_partition(topic, partition, this)
        for (group, topic, partition), this in sorted(self.groups.items()):
            self.judge_group(f"{group} of {topic}-{partition}", this)
        return self

    def judge_partition(self, topic, partition, this):
        where = f"{topic}-{partition}"
        for offset, record in this.seen.items():
            if record not in this.sent:
                self.wrong("stranger", topic, f"{where}: offset {offset} is {show(record)}, which nobody sent")
            if record in this.failed:
                self.wrong("failed and read", topic, f"{where}: offset {offset} is {show(record)}, which was refused")
        by_offset = {}
        for record, offset in this.acknowledged.items():
            other = by_offset.setdefault(offset, record)
            if other != record and offset is not None:
                self.wrong("acknowledged elsewhere", topic, f"{where}: {show(other)} and {show(record)} were both acknowledged at {offset}")
        if this.final is None:
            if this.acknowledged:
                self.wrong("unfinished", topic, f"{where}: nobody read it to its end")
            return
        places = defaultdict(list)
        for offset in sorted(this.final):
            places[this.final[offset]].append(offset)
        for record, offset in this.acknowledged.items():
            if offset is None:  # the answer said: it is there already
                if record not in places:
                    self.wrong("lost", topic, f"{where}: {show(record)}, acknowledged as a duplicate, is lost")
            elif this.final.get(offset) == record or offset < this.low:
                continue
            elif record in places:
                self.wrong("acknowledged elsewhere", topic, f"{where}: {show(record)} was acknowledged at {offset} and is at {places[record]}")
            else:
                self.wrong("lost", topic, f"{where}: {show(record)}, acknowledged at {offset}, is lost; {show(this.final.get(offset))} is there")
        for record, offsets in places.items():
            if len(offsets) > 1:
                self.wrong("duplicated", topic, f"{where}: {show(record)} is at {offsets}")
        for offset, record in this.seen.items():
            if offset >= this.low and this.final.get(offset) != record:
                self.wrong("taken back", topic, f"{where}: {this.first_reader[offset]} saw {show(record)} at {offset}; in the end {show(this.final.get(offset))} is there")
        last = {}
        for (producer, number), (offset, *_) in places.items():  # by first appearance
            if producer in self.producers and self.producers[producer][1] and number < last.get(producer, -1):
                self.wrong("reordered", topic, f"{where}: {show((producer, number))} at {offset} comes after {show((producer, last[producer]))}")
            last[producer] = max(number, last.get(producer, -1))

    def judge_group(self, where, this):
        """What OffsetFetch may say: the newest commit that had been acknowledged before it was asked, or one that can have come after
        that one: what was begun after it or beside it, what was never answered, and what was sent again (the network may hold the first
        attempt for long: a commit without a generation has nothing by which a broker could tell)."""
        answered_by = {}
        for _, ended, offset in this.fetched:  # what was seen is there, whoever was told
            answered_by[offset] = min(ended, answered_by.get(offset, ended))
        commits = [(began, answered_by.get(offset) if ended is None else ended, offset) for began, ended, offset in this.commits]
        tried = {offset for _, _, offset in commits}
        for began, ended, offset in sorted(this.fetched):
            newest = max((c for c in commits if c[1] is not None and c[1] <= began), default=None)
            self.counts["commits looked at"] += 1
            if newest is None and offset < 0:
                continue
            if offset < 0:
                self.wrong("offset lost", where, f"{where}: {newest[2]} was acknowledged, OffsetFetch says {offset} at {began:.3f}")
            elif offset not in tried:
                self.wrong("offset never committed", where, f"{where}: OffsetFetch says {offset}, which nobody committed")
            elif newest is not None and not any(c[2] == offset and c[0] < ended and (c == newest or c[1] is None or c[1] > newest[0] or offset in this.late) for c in commits):
                self.wrong("offset moved back", where, f"{where}: {newest[2]} was acknowledged, OffsetFetch says {offset} at {began:.3f}")

    def broken(self):
        """anomaly -> sentences, of those that break a promise; the other ones are `tolerated`."""
        found = defaultdict(list)
        for (anomaly, topic), sentences in self.found.items():
            if anomaly in OFFSETS or anomaly in BROKEN_BY[self.promises.get(topic, "idempotent")]:
                found[anomaly] += sentences
        return dict(found)

    def tolerated(self):
        return {f"{anomaly} ({topic}, {self.promises[topic]})": len(sentences) for (anomaly, topic), sentences in self.found.items()
                if anomaly not in OFFSETS and anomaly not in BROKEN_BY[self.promises.get(topic, "idempotent")]}

    def acknowledged(self):
        """promise -> how many records were acknowledged under it."""
        counted = Counter()
        for (topic, _), this in self.partitions.items():
            counted[self.promises.get(topic, "idempotent")] += len(this.acknowledged)
        return dict(counted)


def show(record):
    return "nothing" if record is None else f"record {record[1]} of producer {record[0]}"


def check(events):
    checker = Checker()
    for event in events:
        checker.feed(event)
    return checker.judge()


def read(paths):
    for path in paths:
        with open(path) as lines:
            for line in lines:
                if line.endswith("\n"):  # a writer that was killed leaves half a line
                    yield json.loads(line)


# ---- positive controls

def clean():
    """Two producers, one partition, interleaved; a reader, two readers of the whole, a group."""
    events = [["promise", "t", "idempotent"], ["producer", 1, "t", True], ["producer", 2, "t", True], ["start", 0, "tail", "t", 0, 0]]
    log = [[offset, 1 + offset % 2, offset // 2] for offset in range(20)]
    for offset, producer, number in log:
        events += [["send", offset, producer, 0, number], ["ack", offset + 0.5, producer, 0, number, offset]]
    events += [["read", 30, "tail", "t", 0, log[:9]], ["read", 31, "tail", "t", 0, log[9:]]]
    for reader in ("whole-1", "whole-2"):
        events += [["start", 40, reader, "t", 0, 0], ["read", 40, reader, "t", 0, [list(r) for r in log]], ["end", 41, reader, "t", 0, 0, 20]]
    for offset in (5, 10, 15):
        events += [["commit", offset, offset + 1, "g", "t", 0, offset, "ok"], ["fetched", offset + 2, offset + 3, "g", "t", 0, offset]]
    return events


def pick(events, *start, nth=0):
    """The nth event that begins like this."""
    return [e for e in events if all(a is None or a == b for a, b in zip(start, e))][nth]


def final(events, reader):
    return pick(events, "read", None, reader)[5]


def everywhere(events, change):
    for event in events:
        if event[0] == "read":
            change(event[5])


def cut(events, high):
    for event in events:
        if event[0] == "end":
            event[6] = high
    for reader in ("whole-1", "whole-2"):
        del final(events, reader)[high:]


def lost(events):
    cut(events, 19)
    del pick(events, "read", None, "tail", nth=1)[5][-1]


def lost_duplicate(events):
    lost(events)
    pick(events, "ack", None, 2, 0, 9)[5] = None


def lost_and_replaced(events):
    events.insert(4, ["send", 0, 1, 0, 77])
    everywhere(events, lambda records: [r.__setitem__(2, 77) for r in records if r[0] == 18])


def duplicated(events):
    for reader in ("whole-1", "whole-2"):
        final(events, reader).append([20, 1, 3])
        pick(events, "end", None, reader)[6] = 21


def reordered(events):
    a, b = pick(events, "ack", None, 1, 0, 3), pick(events, "ack", None, 1, 0, 4)
    a[5], b[5] = b[5], a[5]
    everywhere(events, lambda records: [r.__setitem__(2, 7 - r[2]) for r in records if r[1] == 1 and r[2] in (3, 4)])


def diverged(events):
    pick(events, "read", None, "tail")[5][4][2] = 7


def taken_back(events):
    # Not acknowledged, seen, and gone: the log ends before it.
    del events[events.index(pick(events, "ack", None, 2, 0, 9))]
    cut(events, 19)


def ended_earlier(events):
    pick(events, "end", None, "whole-2")[6] = 19
    del final(events, "whole-2")[19]


def elsewhere(events):
    pick(events, "ack", None, 1, 0, 9)[5] = 17


def skipped(events):
    del pick(events, "read", None, "tail")[5][4]


def went_back(events):
    pick(events, "read", None, "tail", nth=1)[5].insert(0, [3, 2, 1])


def hole(events):
    for reader in ("whole-1", "whole-2"):
        del final(events, reader)[5]


def unfinished(events):
    del final(events, "whole-1")[15:]


def stranger(events):
    events.remove(pick(events, "send", None, 2, 0, 9))


def failed_and_read(events):
    ack = pick(events, "ack", None, 2, 0, 9)
    ack[:] = ["fail", ack[1], 2, 0, 9, "refused"]


def refused(events):
    events.append(["refused", 35, "tail", "t", 0, "OFFSET_OUT_OF_RANGE"])


def offset_lost(events):
    pick(events, "fetched", nth=2)[6] = -1


def offset_back(events):
    pick(events, "fetched", nth=2)[6] = 10


def offset_seen_and_back(events):
    pick(events, "commit", nth=2)[7], pick(events, "commit", nth=2)[2] = "unknown", None
    events.append(["fetched", 20, 21, "g", "t", 0, 10])


def offset_unheard(events):
    pick(events, "fetched", nth=2)[6] = 12


CONTROLS = {
    "lost": lost, "lost, a duplicate": lost_duplicate, "lost, another in its place": lost_and_replaced, "duplicated": duplicated, "reordered": reordered, "diverged": diverged,
    "taken back": taken_back, "taken back, the end": ended_earlier, "acknowledged elsewhere": elsewhere, "skipped": skipped,
    "skipped, back": went_back, "hole": hole, "unfinished": unfinished, "stranger": stranger, "failed and read": failed_and_read,
    "refused": refused, "offset lost": offset_lost, "offset moved back": offset_back,
    "offset moved back, seen": offset_seen_and_back, "offset never committed": offset_unheard,
}


def legal():
    """Histories that look strange and break nothing."""
    unanswered = clean()
    unanswered.remove(pick(unanswered, "ack", None, 2, 0, 9))           # written, and nobody was told
    unanswered.insert(4, ["send", 3, 1, 0, 50])                          # sent, and never seen again
    unanswered.append(["unknown", 50, 1, 0, 50, "timed out"])
    late = clean()
    late.append(["commit", 6, None, "g", "t", 0, 7, "unknown"])          # comes in after the ones that were acknowledged
    pick(late, "fetched", nth=2)[6] = 7
    beside = clean()
    beside.append(["commit", 16.5, 20, "g", "t", 0, 18, "ok"])           # while the fetch is under way
    pick(beside, "fetched", nth=2)[6] = 18
    again = clean()
    pick(again, "commit", nth=0)[7] = "again"                            # sent twice, and the first attempt came in last
    pick(again, "fetched", nth=2)[6] = 5
    weak = clean()
    weak[0] = ["promise", "t", "one"]
    lost(weak)
    twice = clean()
    twice[0] = ["promise", "t", "all"]
    duplicated(twice)
    return {"clean": clean(), "never answered": unanswered, "a late commit": late, "a commit beside": beside, "a commit sent again": again, "acks=1 lost": weak, "acks=all twice": twice}


def self_test():
    good = True
    for name, events in legal().items():
        found = check(events).broken()
        good &= not found
        print(f"{'FAIL' if found else 'ok '} check legal: {name}" + (f": {found}" if found else ""))
    for name, damage in CONTROLS.items():
        events, anomaly = clean(), name.split(",")[0]
        damage(events)
        found = check(json.loads(json.dumps(events))).broken()
        good &= anomaly in found
        print(f"ok  check control: {name} ({found[anomaly][0]})" if anomaly in found else f"FAIL check control: {name}: not found, but {found}")
    return good


def main():
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(not self_test())
    if not sys.argv[1:] or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    checker = check(read(sys.argv[1:]))
    for anomaly, sentences in checker.broken().items():
        print(f"FAIL check {anomaly}: {len(sentences)}: " + "; ".join(sentences[:3]))
    print(f"# {dict(checker.counts)}; acknowledged {checker.acknowledged()}; tolerated {checker.tolerated()}")
    sys.exit(bool(checker.broken()))


if __name__ == "__main__":
    main()
