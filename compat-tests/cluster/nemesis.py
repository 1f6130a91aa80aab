"""The faults. Each picks its victim by role when it strikes, says what it did, and leaves what undoes it."""

import contextlib
import os
import pathlib
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "faults"))
from lib import Injected, until  # noqa: E402


class Nemesis:
    def __init__(self, cluster, chance, lease, topic):
        self.cluster, self.chance, self.lease, self.topic = cluster, chance, lease, topic
        self.undo = []       # what heals, newest last
        self.struck = set()  # brokers that something was done to since the last healing
        self.lossy = set()   # those whose disks lost what was not synced
        self.lost_power = False

    # ---- whom

    def role(self, role):
        """A broker that runs and that nothing was done to yet, of this role; any, where there is none."""
        free = [n for n in self.cluster.nodes if n not in self.struck and self.cluster.nodes[n].alive()]
        leaders = set(self.cluster.leaders(self.topic).values()) if role in ("leader", "follower") else set()
        index = self.chance.randrange(6)
        if role == "leader":
            some = [n for n in (self.cluster.leaders(self.topic).get(index),) if n in free]
        elif role == "follower":
            leader = self.cluster.leaders(self.topic).get(index)
            some = [n for n in free if n != leader]
        else:
            some = [n for n in (self.cluster.controller(),) if n in free]
        some = some or free
        if not some:
            raise Spared("no broker is left to strike")
        number = self.chance.choice(some)
        self.struck.add(number)
        notes = [name for name, holds in (("controller", self.cluster.controller() == number), ("leader", number in leaders)) if holds]
        return self.cluster.nodes[number], f"b{number}" + (f" ({', '.join(notes)})" if notes else "")

    def others(self, node):
        return [other.name for other in self.cluster.nodes.values() if other is not node]

    def heal(self):
        while self.undo:
            self.undo.pop()()
        self.struck.clear()
        self.lossy.clear()

    def hold(self, least, most):
        """How long a fault lasts, in seconds: some for less, some for longer than a lease."""
        return self.chance.uniform(least, most)

    # ---- processes

    def kill(self, role, least, most):
        node, who = self.role(role)
        node.kill()
        self.undo.append(node.launch)
        return f"kill -9 {who}", self.hold(least, most)

    def kill_all(self):
        nodes = [node for node in self.cluster.nodes.values() if node.alive()]
        for node in nodes:
            node.pause()
        for node in nodes:
            node.kill()
            self.struck.add(node.number)
        self.chance.shuffle(nodes)
        self.undo += [lambda node=node: (node.launch(), time.sleep(self.chance.choice((0, 0.3, 2)))) for node in nodes]
        return "kill -9 all brokers", self.hold(0, self.lease + 1)

    def pause(self, role, least, most):
        node, who = self.role(role)
        node.pause()
        self.undo.append(node.resume)
        return f"SIGSTOP {who}", self.hold(least, most)

    def shutdown(self):
        node, who = self.role("leader")
        status = node.stop()
        if status not in (0, 143):
            raise AssertionError(f"{who} ended with {status} after SIGTERM: {node.tail()}")
        self.undo.append(node.launch)
        return f"controlled shutdown of {who}", self.hold(0, self.lease + 1)

    def rolling(self):
        for node in self.cluster.nodes.values():
            if not node.alive():
                continue
            node.stop()
            node.launch()
            self.cluster.wait_ready(node)
            until(f"b{node.number} is in every ISR again", lambda: not self.cluster.unwell(), 60, 0.1)
        return "controlled restart of each broker in turn", 0

    # ---- etcd

    def etcd_runs(self):
        if not self.cluster.etcd.alive() or self.cluster.etcd.paused:
            raise Spared("etcd does not run")

    def etcd_kill(self):
        self.etcd_runs()
        self.cluster.etcd.kill()
        self.undo.append(self.cluster.etcd.start)
        return "kill -9 etcd", self.hold(0, self.lease * 2)

    def etcd_pause(self):
        self.etcd_runs()
        self.cluster.etcd.pause()
        self.undo.append(self.cluster.etcd.resume)
        return "SIGSTOP etcd", self.hold(1, self.lease * 2)

    def etcd_cut(self):
        self.cluster.net.cut("etcd", [node.name for node in self.cluster.nodes.values()])
        self.undo.append(self.cluster.net.heal)
        return "etcd is cut off from all brokers", self.hold(1, self.lease * 2)

    def etcd_answers(self):
        if self.cluster.etcd.paused or not self.cluster.etcd.healthy():
            raise Spared("etcd does not answer")

    def etcd_slow(self):
        self.etcd_runs()
        injected = Injected(self.cluster.etcd, "fdatasync", f"delay_exit={self.chance.choice((100, 500, 1000))}000")
        self.undo.append(injected.end)
        return "the disk of etcd is slow", self.hold(1, self.lease * 2)

    def lease_revoke(self):
        """A lease ends under a broker that is well."""
        self.etcd_answers()
        leases = [line for line in self.cluster.etcd.ctl("lease", "list").splitlines()[1:] if line.strip()]
        if not leases:
            raise Spared("there is no lease")
        self.cluster.etcd.ctl("lease", "revoke", self.chance.choice(leases))
        return "a lease is revoked", self.hold(0.2, self.lease)

    def etcd_compact(self, role):
        """A watcher that was away comes back, and what it missed has been compacted away."""
        self.etcd_answers()
        node, who = self.role(role)
        self.undo.append(self.cluster.net.heal)
        self.cluster.net.cut(node.name, ["etcd"])
        time.sleep(self.lease + 1.5)  # its leaders move meanwhile
        self.cluster.etcd.ctl("compact", str(self.cluster.etcd.revision()))
        self.cluster.etcd.ctl("defrag")
        return f"{who} is cut off from etcd, which is compacted", self.hold(0, 1)

    # ---- the network

    def network(self, role, shape):
        node, who = self.role(role)
        others, net = self.others(node), self.cluster.net
        self.undo.append(net.heal)
        peer = self.chance.choice(others)
        if shape == "all":
            net.cut(node.name, [*others, "etcd", "clients"])
            what = f"{who} is cut off from everybody"
        elif shape == "etcd":
            net.cut(node.name, ["etcd"])
            what = f"{who} is cut off from etcd"
        elif shape == "etcd-answers":
            net.deafen(node.name, "etcd")
            what = f"{who} does not hear etcd"
        elif shape == "etcd-questions":
            net.deafen("etcd", node.name)
            what = f"etcd does not hear {who}"
        elif shape == "peers":
            net.cut(node.name, others)
            what = f"{who} is cut off from the other brokers"
        elif shape == "one":
            net.cut(node.name, [peer])
            what = f"{who} and {peer} are cut off from each other"
        elif shape == "deaf":
            for other in others:
                net.deafen(node.name, other)
            what = f"{who} does not hear the other brokers"
        elif shape == "mute":
            for other in others:
                net.deafen(other, node.name)
            what = f"the other brokers do not hear {who}"
        elif shape == "one-way":
            net.deafen(node.name, peer)
            what = f"{who} does not hear {peer}"
        else:
            net.cut("clients", [node.name])
            what = f"{who} is cut off from the clients"
        return what, self.hold(1, self.lease * 2.5)

    def clients_cut(self):
        self.cluster.net.cut("clients", [node.name for node in self.cluster.nodes.values()])
        self.undo.append(self.cluster.net.heal)
        return "the clients are cut off from all brokers", self.hold(1, self.lease * 2)

    def two_halves(self):
        """Two brokers that cannot see each other and both see the third."""
        numbers = self.chance.sample(sorted(self.cluster.nodes), 2)
        a, b = (self.cluster.nodes[n].name for n in numbers)
        self.cluster.net.cut(a, [b])
        self.undo.append(self.cluster.net.heal)
        time.sleep(self.hold(0.5, self.lease))
        self.cluster.net.heal()
        c = next(node.name for node in self.cluster.nodes.values() if node.name not in (a, b))
        self.cluster.net.cut(b, [c])
        return f"{a} and {b} are cut off from each other, then {b} and {c}", self.hold(0.5, self.lease * 2)

    def clog(self):
        """One after the other loses all others, then they come back in another order."""
        nodes = list(self.cluster.nodes.values())
        self.chance.shuffle(nodes)
        self.undo.append(self.cluster.net.heal)
        for node in nodes:
            self.cluster.net.cut(node.name, [*self.others(node), "etcd"])
            time.sleep(self.hold(0.1, 1.5))
        return f"{', '.join(n.name for n in nodes)} are cut off from the others and etcd one after the other", self.hold(0.5, self.lease * 1.5)

    # ---- disks

    def disk_full(self, role):
        node, who = self.role(role)
        junk = node.disk.path / "junk"
        with open(junk, "wb") as file:
            at = 0
            for size in (64 << 20, 1 << 20, 4096):
                with contextlib.suppress(OSError):
                    while True:
                        os.posix_fallocate(file.fileno(), at, size)
                        at += size
        self.undo.append(lambda: junk.unlink(missing_ok=True))
        return f"the disk of {who} is full", self.hold(1, self.lease * 2)

    def restart_on_new_power(self, node):
        node.kill()
        node.disk.remount()
        node.launch()

    def disk_dead(self, role):
        node, who = self.role(role)
        node.foreseen = True  # that it ends: it has one log directory
        self.lose([node])
        node.disk.cut()
        self.undo.append(lambda: self.restart_on_new_power(node))
        return f"the disk of {who} fails", self.hold(1, self.lease * 1.5)

    def fsync_fails(self, role):
        node, who = self.role(role)
        node.foreseen = True
        injected = Injected(node, "fdatasync,fsync,syncfs", "error=EIO:when=1..3")
        time.sleep(1)
        injected.end()
        self.undo.append(lambda: (node.kill(), node.launch()))
        return f"three syncs of {who} fail", self.hold(0, self.lease)

    def fsync_slow(self, role):
        node, who = self.role(role)
        injected = Injected(node, "fdatasync", f"delay_exit={self.chance.choice((200, 1000, 3000))}000")
        self.undo.append(injected.end)
        return f"the disk of {who} is slow", self.hold(1, self.lease * 2)

    def lose(self, nodes):
        self.lossy |= {node.number for node in nodes}
        if len(self.lossy) > 1:
            self.lost_power = True  # more than min.insync.replicas - 1 of them: page cache is no promise any more

    def power_one(self, role):
        node, who = self.role(role)
        node.pause()
        time.sleep(0.005)
        self.lose([node])
        node.disk.cut()
        node.kill()
        node.disk.remount()
        self.undo.append(node.launch)
        return f"{who} loses its power", self.hold(0, self.lease + 1)

    def power_all(self):
        self.heal()
        processes = [process for process in self.cluster.processes() if process.alive()]
        for process in processes:
            process.pause()
        time.sleep(0.005)
        self.lose([process for process in processes if process in self.cluster.nodes.values()])
        for process in processes:
            process.disk.cut()
        for process in processes:
            process.kill()
            process.disk.remount()
        self.struck |= set(self.cluster.nodes)
        self.chance.shuffle(processes)
        # Brokers may come up before etcd: they wait for it or end, and whoever ended is started again by what watches over it.
        processes.sort(key=lambda process: process.name != "etcd")
        self.undo += [process.start if process.name == "etcd" else process.launch for process in reversed(processes)]
        return "all lose their power", 0


class Spared(Exception):
    """There is nobody to strike."""


def catalogue(lease):
    """name -> what it does, by kind."""
    long = lease + 2
    return {
        "process": {
            "kill-leader": lambda n: n.kill("leader", 0.5, long), "kill-follower": lambda n: n.kill("follower", 0.5, long),
            "kill-controller": lambda n: n.kill("controller", 0.5, long), "kill-quick": lambda n: n.kill("leader", 0, 0),
            "kill-all": Nemesis.kill_all,
            "pause-leader": lambda n: n.pause("leader", lease + 0.5, 2 * lease), "pause-follower": lambda n: n.pause("follower", lease + 0.5, 2 * lease),
            "pause-controller": lambda n: n.pause("controller", lease + 0.5, 2 * lease), "pause-short": lambda n: n.pause("leader", 0.2, 1.5),
            "shutdown": Nemesis.shutdown, "rolling": Nemesis.rolling,
        },
        "etcd": {"etcd-kill": Nemesis.etcd_kill, "etcd-pause": Nemesis.etcd_pause, "etcd-cut": Nemesis.etcd_cut, "etcd-slow": Nemesis.etcd_slow,
                 "lease-revoke": Nemesis.lease_revoke, "etcd-compact": lambda n: n.etcd_compact("follower")},
        "net": {
            **{f"cut-{shape}": (lambda n, shape=shape: n.network("leader", shape))
               for shape in ("all", "etcd", "etcd-answers", "etcd-questions", "peers", "one", "deaf", "mute", "one-way", "clients")},
            "cut-follower": lambda n: n.network("follower", "all"), "cut-controller": lambda n: n.network("controller", "etcd"),
            "cut-all-clients": Nemesis.clients_cut, "two-halves": Nemesis.two_halves, "clog": Nemesis.clog,
        },
        "disk": {
            "disk-full-leader": lambda n: n.disk_full("leader"), "disk-full-follower": lambda n: n.disk_full("follower"),
            "disk-dead-leader": lambda n: n.disk_dead("leader"), "disk-dead-follower": lambda n: n.disk_dead("follower"),
            "fsync-fails": lambda n: n.fsync_fails("leader"), "fsync-slow": lambda n: n.fsync_slow("leader"),
        },
        "power": {"power-leader": lambda n: n.power_one("leader"), "power-follower": lambda n: n.power_one("follower"), "power-all": Nemesis.power_all},
    }


# Of these no two at a time: each takes disks or everything.
ALONE = {"rolling", "kill-all", "power-all", "power-leader", "power-follower", "disk-dead-leader", "disk-dead-follower"}
