"""Hosts of a test cluster on one machine: network namespaces on a bridge, links that can be cut in either direction, disks that
fail, an etcd and brokers on them.

All of it lives in namespaces (processes, mounts, network) of the script that imports this: `enclose()` starts the script anew
inside them. When it ends, however it ends, the kernel ends its processes, unmounts its disks and removes its networks."""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "faults"))
from lib import Disk, run, say, until  # noqa: E402
import wire  # noqa: E402

HUB, ETCD, CLIENTS = "10.77.0.254", "10.77.0.10", "10.77.0.20"
INSIDE = "OTTLA_CLUSTER_INSIDE"


def enclose():
    """Runs this script again in namespaces of its own, the first time that it is called."""
    if os.environ.get(INSIDE):
        run("mount", "-t", "tmpfs", "none", "/run/netns")  # the names of our networks are nobody else's
        return
    missing = [tool for tool in ("unshare", "nsenter", "ip", "nft", "mkfs.ext4", "etcd", "etcdctl") if not shutil.which(tool)]
    if missing or os.geteuid() != 0:
        sys.exit(f"FAIL cluster needs root and these commands: {', '.join(missing) or 'all there'} (Debian: iproute2 nftables e2fsprogs etcd-server)")
    pathlib.Path("/run/netns").mkdir(parents=True, exist_ok=True)
    os.environ[INSIDE] = "1"
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--net"]
    os.execvp(command[0], [*command, sys.executable, *sys.argv])


class Net:
    """Hosts are names with addresses; this process is the hub, whom nothing is cut off from."""

    def __init__(self):
        self.addresses = {}
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "br0", "type", "bridge")
        run("ip", "addr", "add", f"{HUB}/24", "dev", "br0")
        run("ip", "link", "set", "br0", "up")

    def host(self, name, address):
        self.addresses[name] = address
        run("ip", "netns", "add", name)
        run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "link", "add", f"v-{name}", "type", "veth", "peer", "name", "e0", "netns", name)
        run("ip", "link", "set", f"v-{name}", "master", "br0", "up")
        run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "e0")
        run("ip", "-n", name, "link", "set", "e0", "up")
        self.nft(name, "add table ip cut; add chain ip cut in { type filter hook input priority 0; policy accept; }")

    def nft(self, name, rules):
        run("ip", "netns", "exec", name, "nft", rules)

    def deafen(self, name, to):
        """`name` receives nothing from `to` any more: one direction of a link."""
        self.nft(name, f"add rule ip cut in ip saddr {self.addresses[to]} drop")

    def cut(self, name, others):
        """Both directions between a host and others."""
        for other in others:
            self.deafen(name, other)
            self.deafen(other, name)

    def heal(self):
        for name in self.addresses:
            self.nft(name, "flush chain ip cut in")

    def popen(self, name, command, **more):
        """A process on a host, with our mounts: one that has a copy of them (`ip netns exec`) would keep failed disks mounted."""
        return subprocess.Popen(["nsenter", f"--net=/run/netns/{name}", *map(str, command)], stdin=more.pop("stdin", subprocess.DEVNULL), **more)


class Loopback(Net):
    """The same names without hosts: all of them are on this machine's loopback, where the network costs least and is never cut."""

    def __init__(self):
        self.addresses = {}
        run("ip", "link", "set", "lo", "up")

    def host(self, name, address):
        self.addresses[name] = "127.0.77." + address.rsplit(".", 1)[1]

    def popen(self, name, command, **more):
        return subprocess.Popen([*map(str, command)], stdin=more.pop("stdin", subprocess.DEVNULL), **more)


class Process:
    """Something that runs on a host, with a log, and that can be killed, paused and started again."""

    def __init__(self, net, name, state):
        self.net, self.name, self.state = net, name, pathlib.Path(state)
        self.state.mkdir(parents=True, exist_ok=True)
        self.address = net.addresses[name]
        self.log, self.process, self.paused = self.state / "log", None, False
        self.foreseen = True  # whether its end is our doing

    def launch(self):
        """Starts it, unless it runs: what undoes two faults may want it twice."""
        if self.alive():
            return
        with open(self.log, "ab") as log:
            self.process = self.net.popen(self.name, self.command(), stdout=log, stderr=log, start_new_session=True, env=self.environment())
        self.foreseen = self.paused = False

    def environment(self):
        return os.environ

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        self.foreseen = True
        if self.alive():
            self.process.kill()
            self.process.wait(60)

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)
        self.paused = True

    def resume(self):
        if self.alive():
            self.process.send_signal(signal.SIGCONT)
        self.paused = False

    def stop(self, seconds=60):
        """The exit status after SIGTERM."""
        self.foreseen = True
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def tail(self):
        return " | ".join(self.log.read_text(errors="replace").splitlines()[-3:])


class Etcd(Process):
    def __init__(self, net, state, disk):
        super().__init__(net, "etcd", state)
        self.disk, self.endpoint = disk, f"http://{self.address}:2379"

    def command(self):
        peer = "http://127.0.0.1:2380"
        return ["etcd", "--data-dir", self.disk.path / "data", "--listen-client-urls", self.endpoint, "--advertise-client-urls", self.endpoint,
                "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
                "--logger", "zap", "--log-level", "warn"]

    def start(self):
        self.launch()
        until("etcd serves", self.healthy, 30)

    def ctl(self, *arguments):
        """What etcdctl prints, asked from the hub."""
        return run("env", "ETCDCTL_API=3", "etcdctl", "--endpoints", self.endpoint, *arguments)

    def revision(self):
        return json.loads(self.ctl("endpoint", "status", "-w", "json"))[0]["Status"]["header"]["revision"]

    def healthy(self):
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            with urllib.request.urlopen(f"{self.endpoint}/health", timeout=2) as answer:
                return json.load(answer)["health"] == "true"
        return False


class Node(Process):
    """A broker: number 1, 2 or 3 of its cluster, on a disk of its own."""

    port = 9092

    def __init__(self, net, number, state, disk, settings):
        super().__init__(net, f"b{number}", state)
        self.number, self.disk, self.settings = number, disk, settings
        self.bootstrap = f"{self.address}:{self.port}"

    def data(self):
        return self.disk.path / "data"

    def connection(self, seconds=5):
        return wire.Connection(self.address, self.port, seconds)


class Ottla(Node):
    def __init__(self, net, number, state, disk, settings, etcd):
        super().__init__(net, number, state, disk, {
            "node.id": number, "listeners": f"PLAINTEXT://{net.addresses[f'b{number}']}:{self.port}", "log.dirs": disk.path / "data",
            "metrics.listeners": f"{net.addresses[f'b{number}']}:9404", "etcd.endpoints": etcd.endpoint, **settings,
        })
        self.binary = os.environ.get("OTTLA", str(ROOT / "target/release/ottla"))

    def command(self):
        return [self.binary, *(part for key, value in self.settings.items() for part in ("--override", f"{key}={value}"))]

    def ready(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            with urllib.request.urlopen(f"http://{self.address}:9404/readyz", timeout=2) as answer:
                return answer.read().startswith(b"ready")
        return False


class Kafka(Node):
    """Apache Kafka, to compare with: combined nodes, as many controllers as brokers. The jars are those of compat-tests/differential."""

    def __init__(self, net, number, state, disk, settings, count):
        super().__init__(net, number, state, disk, settings)
        address = net.addresses[f"b{number}"]
        settings = {
            "process.roles": "broker,controller", "node.id": number, "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{n}@{net.addresses[f'b{n}']}:9093" for n in range(1, count + 1)),
            "listeners": f"PLAINTEXT://{address}:{self.port},CONTROLLER://{address}:9093", "advertised.listeners": f"PLAINTEXT://{address}:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT", "log.dirs": disk.path / "data", **settings,
        }
        self.file = self.state / "server.properties"
        self.file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.jars = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "ottla-compat/kafka-4.4.0"
        if not self.data().exists():
            # The class loader wants the log directory's parent only.
            subprocess.run([*self.java("256M"), "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", self.file],
                           check=True, stdout=subprocess.DEVNULL)

    def java(self, heap):
        return ["java", f"-Xmx{heap}", f"-Dlog4j2.configurationFile={HERE.parent}/differential/log4j2.properties", "-cp", f"{self.jars}/*"]

    def command(self):
        return [*self.java(os.environ.get("KAFKA_HEAP", "512M")), "kafka.Kafka", self.file]

    def ready(self):
        with contextlib.suppress(OSError, wire.Closed):
            with self.connection(2) as asked:
                return any(number == self.number for number in asked.metadata([]).brokers)
        return False


class Cluster:
    """Brokers and what they need. `system` is ottla or kafka; disks have `disk_mib` each, or are plain directories without it."""

    def __init__(self, path, system="ottla", settings=None, count=3, disk_mib=1024, net=None):
        self.path, self.system, self.net = pathlib.Path(path), system, net or Net()
        self.net.host("etcd", ETCD)
        self.net.host("clients", CLIENTS)
        for number in range(1, count + 1):
            self.net.host(f"b{number}", f"10.77.0.{number}")
        settings, self.etcd, self.nodes = settings or {}, None, {}
        if system == "ottla":
            self.etcd = Etcd(self.net, self.path / "etcd", self.disk("etcd-disk", disk_mib))
        for number in range(1, count + 1):
            state, disk = self.path / f"b{number}", self.disk(f"disk{number}", disk_mib)
            if system == "ottla":
                self.nodes[number] = Ottla(self.net, number, state, disk, settings, self.etcd)
            else:
                self.nodes[number] = Kafka(self.net, number, state, disk, settings, count)
        self.bootstrap = ",".join(node.bootstrap for node in self.nodes.values())

    def disk(self, name, mib):
        if mib:
            return Disk(self.path / name, mib)
        (self.path / name).mkdir(parents=True)
        return Directory(self.path / name)

    def processes(self):
        return [*([self.etcd] if self.etcd else []), *self.nodes.values()]

    def start(self, seconds=60):
        if self.etcd:
            self.etcd.start()
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            self.wait_ready(node, seconds)
        self.wait_whole(seconds)  # they know each other
        return self

    def wait_ready(self, node, seconds=60):
        def ready():
            if not node.alive():
                raise AssertionError(f"{node.name} ended with {node.process.poll()}: {node.tail()}")
            return node.ready()
        until(f"{node.name} serves", ready, seconds)

    def view(self, number, topics=None, seconds=3):
        """What one broker says of the cluster, or None where it does not answer."""
        with contextlib.suppress(OSError, wire.Closed), self.nodes[number].connection(seconds) as asked:
            return asked.metadata(topics)
        return None

    def views(self, topics=None):
        found = {number: self.view(number, topics) for number in self.nodes if not self.nodes[number].paused}
        return {number: view for number, view in found.items() if view}

    def controller(self):
        """The number of the broker that is the controller, or None."""
        for number, view in self.views([]).items():
            if self.system == "ottla":
                if view.controller in self.nodes:
                    return view.controller
                continue
            with contextlib.suppress(OSError, wire.Closed), self.nodes[number].connection() as asked:
                return asked.quorum_leader()
        return None

    def leaders(self, topic):
        """partition -> leader, as the most recent of all views has it."""
        newest = {}
        for view in self.views([topic]).values():
            for index, found in view.partitions(topic).items():
                newest[index] = max(newest.get(index, (-1, -1)), (found.epoch, found.leader))
        return {index: leader for index, (_, leader) in newest.items()}

    def unwell(self):
        """What keeps the cluster from being whole, in words; nothing: all replicas are in the ISR, and all brokers say the same."""
        return wire.unwell({number: (node.address, node.port) for number, node in self.nodes.items()})

    def wait_whole(self, seconds=60):
        last = []

        def whole():
            last[:] = self.unwell()
            return not last
        try:
            until("the cluster is whole", whole, seconds, 0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}: {'; '.join(last[:3])} ({len(last)} in all)") from None

    def died(self):
        """Those that ended and were not ended by us."""
        return [process for process in self.processes() if not process.foreseen and not process.alive()]

    def close(self):
        for process in self.processes():
            process.kill()
        for disk in self.disks():
            disk.destroy()

    def disks(self):
        return [process.disk for process in self.processes()]


class Directory:
    """In place of a disk, where none has to fail."""

    def __init__(self, path):
        self.path = path

    def destroy(self):
        shutil.rmtree(self.path, ignore_errors=True)
