"""What the fault scripts share: a broker process, small real disks, clients with sharp timeouts, check lines."""

import contextlib
import fcntl
import http.client
import os
import pathlib
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
VENV = HERE.parent / "target/venv/bin/python"
if pathlib.Path(sys.prefix) != VENV.parent.parent and VENV.exists():
    os.execv(VENV, [str(VENV), *sys.argv])
# Clients that wait for a broker that is down say so again and again.
os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition  # noqa: E402
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType  # noqa: E402

STORAGE_ERROR = KafkaError.KAFKA_STORAGE_ERROR
EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2


# ---- lines

class Checks:
    """A line per check, as the other runners print them; the exit status says whether one failed."""

    def __init__(self, name):
        self.name, self.failed, self.details = name, False, []

    def check(self, what, good, details=""):
        details = " ".join(str(details).split())[:400]
        if good:
            print(f"ok  {self.name} {what}" + (f" ({details})" if details else ""), flush=True)
        else:
            print(f"FAIL {self.name} {what}: {details or 'see above'}", flush=True)
            self.failed = True
        return good

    def run(self, what, function, *arguments):
        """What goes wrong in whatever way is a line, and the next check runs. `False`: it prints its own lines."""
        try:
            details = function(*arguments)
            return details is False or self.check(what, True, details or "")
        except Exception as error:
            import traceback
            traceback.print_exc()
            return self.check(what, False, f"{type(error).__name__}: {error}")

    def skip(self, what, why):
        """What this machine cannot do. In CI that is a failure: set OTTLA_FAULTS_MAY_SKIP=1 to allow it."""
        if os.environ.get("OTTLA_FAULTS_MAY_SKIP"):
            print(f"skip {self.name} {what}: {why}", flush=True)
        else:
            self.check(what, False, f"cannot be checked here: {why} (OTTLA_FAULTS_MAY_SKIP=1 allows that)")

    def exit(self):
        sys.stdout.flush()
        os._exit(1 if self.failed else 0)  # a client thread that hangs must not hold the run


def say(text):
    print(f"# {text}", file=sys.stderr, flush=True)


def until(what, holds, seconds=30, pause=0.02):
    looked = time.monotonic()
    end = looked + seconds
    while True:
        found = holds()
        if found:
            return found
        now = time.monotonic()
        if now - looked > 15 + pause:
            end += now - looked  # all of us stood still: a machine that was suspended
        if now > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        looked = now
        time.sleep(pause)


# ---- the broker

def free_port():
    """Below the ephemeral range, so that no outgoing connection takes it meanwhile."""
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class Broker:
    """One process on directories of ours. `settings` are configuration keys with their values."""

    def __init__(self, state, directories, **settings):
        self.state, self.directories = pathlib.Path(state), [pathlib.Path(d) for d in directories]
        self.port, self.metrics_port = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.binary = os.environ.get("OTTLA", str(HERE.parent.parent / "target/release/ottla"))
        self.log = self.state / "broker.log"
        self.process = self.one_admin = None
        self.settings = {
            "listeners": f"PLAINTEXT://{self.address}", "metrics.listeners": f"127.0.0.1:{self.metrics_port}",
            "log.dirs": ",".join(map(str, self.directories)), "offsets.topic.num.partitions": "4",
            **{key.replace("_", "."): str(value) for key, value in settings.items()},
        }

    def command(self):
        return [self.binary, *(part for key, value in self.settings.items() for part in ("--override", f"{key}={value}"))]

    def start(self, seconds=30):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        until("the broker serves", self.serves, seconds, 0.005)
        return self

    def serves(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the broker ended with {self.process.returncode}: {self.tail()}")
        # Its sockets are bound long before it is known whether it can start.
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.get("/readyz").startswith("ready")
        return False

    def refusal(self):
        """The last line of a start that must fail."""
        done = subprocess.run(self.command(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
        assert done.returncode == 1, f"exit status {done.returncode}: {done.stderr}"
        return done.stderr.strip().splitlines()[-1]

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(0.005)  # a thread in a system call stops at its end, the others at once

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait(60)

    def stop(self, seconds=60):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def tail(self):
        return " | ".join(self.log.read_text(errors="replace").splitlines()[-3:])

    def said(self, text):
        """How many lines of the log have the words."""
        return sum(text in line for line in self.log.read_text(errors="replace").splitlines())

    def get(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}{path}", timeout=5) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as answer:  # /readyz says why not
            return answer.read().decode()

    def metric(self, name):
        return float(next(line.split()[-1] for line in self.get("/metrics").splitlines() if line.startswith(name + " ")))

    # -- clients

    def admin(self):
        """One for all: its futures die with it."""
        if self.one_admin is None:
            self.one_admin = AdminClient({"bootstrap.servers": self.address, "log_level": 2, **FAST})
        return self.one_admin

    def producer(self, **more):
        return Producer({"bootstrap.servers": self.address, "acks": "all", "linger.ms": 2, "log_level": 2, **FAST,
                         **dotted(more)})

    def consumer(self, group="reader", **more):
        return Consumer({"bootstrap.servers": self.address, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "error",
                         "fetch.wait.max.ms": 20, "log_level": 2, "check.crcs": True, **FAST,
                         **dotted(more)})

    def create(self, topic, partitions=1, **configs):
        configs = {key.replace("_", "."): str(value) for key, value in configs.items()}
        self.admin().create_topics([NewTopic(topic, partitions, 1, config=configs)], operation_timeout=10)[topic].result(20)
        return topic

    def delete(self, topic):
        self.admin().delete_topics([topic], operation_timeout=10)[topic].result(20)

    def configure(self, topic, key, value):
        entry = ConfigEntry(key, str(value), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self.admin().incremental_alter_configs([resource])[resource].result(20)

    def config(self, topic, key):
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return self.admin().describe_configs([resource])[resource].result(20)[key].value

    def delete_records(self, topic, partition, offset):
        asked = TopicPartition(topic, partition, offset)
        return self.admin().delete_records([asked], request_timeout=20)[asked].result(25).low_watermark

    def topics(self):
        return self.admin().list_topics(timeout=20).topics

    def raw(self):
        return Raw(self.port)


def dotted(settings):
    return {key if key.endswith("_cb") else key.replace("_", "."): value for key, value in settings.items()}


FAST = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "retry.backoff.max.ms": 200,
        "topic.metadata.refresh.fast.interval.ms": 20}


class Raw:
    """A few requests by hand, where a client library would hide the answer."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        self.socket.settimeout(20)

    def ask(self, key, version, body):
        header = struct.pack(">hhih", key, version, 1, 3) + b"raw"
        self.socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        size = struct.unpack(">i", self.take(4))[0]
        return self.take(size)[4:]

    def take(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return data

    def producer_id(self):
        """InitProducerId 0."""
        answer = self.ask(22, 0, struct.pack(">hi", -1, 60000))
        _, error, producer_id, _ = struct.unpack(">ihqh", answer)
        assert error == 0, f"InitProducerId answers {error}"
        return producer_id

    def produce(self, topic, partition, payload_bytes=100, acks=-1, timeout_ms=10000):
        """Produce 3 of one record; the partition's error code and base offset."""
        batch = record_batch(b"x" * payload_bytes)
        body = struct.pack(">hhi", -1, acks, timeout_ms) + struct.pack(">ih", 1, len(topic)) + topic.encode()
        body += struct.pack(">iii", 1, partition, len(batch)) + batch
        answer = self.ask(0, 3, body)
        at = 4 + 2 + len(topic) + 4
        _, error, offset = struct.unpack(">ihq", answer[at:at + 14])
        return error, offset

    def fetch(self, topic, partition, offset):
        """Fetch 4; error code and number of bytes."""
        body = struct.pack(">iiiib", -1, 10, 1, 1 << 20, 0) + struct.pack(">ih", 1, len(topic)) + topic.encode()
        body += struct.pack(">iiqi", 1, partition, offset, 1 << 20)
        answer = self.ask(1, 4, body)
        at = 4 + 4 + 2 + len(topic) + 4
        _, error, _, _, aborted = struct.unpack(">ihqqi", answer[at:at + 26])
        return error, struct.unpack(">i", answer[at + 26 + 16 * max(aborted, 0):][:4])[0]

    def latest(self, topic, partition):
        """ListOffsets 1; error code and offset."""
        body = struct.pack(">iih", -1, 1, len(topic)) + topic.encode() + struct.pack(">iiq", 1, partition, -1)
        answer = self.ask(2, 1, body)
        at = 4 + 2 + len(topic) + 4
        _, error, _, offset = struct.unpack(">ihqq", answer[at:at + 22])
        return error, offset

    def coordinator(self, group):
        """FindCoordinator 0; the error code."""
        return struct.unpack(">h", self.ask(10, 0, struct.pack(">h", len(group)) + group.encode())[:2])[0]

    def heartbeat(self, group):
        """Heartbeat 0 of a member that nobody knows; the error code."""
        member = b"nobody"
        body = struct.pack(">h", len(group)) + group.encode() + struct.pack(">ih", 1, len(member)) + member
        return struct.unpack(">h", self.ask(12, 0, body)[:2])[0]

    def metadata(self, topic):
        """Metadata 5; per partition (error, leader, isr, offline)."""
        answer = self.ask(3, 5, struct.pack(">ih", 1, len(topic)) + topic.encode() + b"\0")
        at = 4
        def number(format):
            nonlocal at
            value = struct.unpack_from(">" + format, answer, at)[0]
            at += struct.calcsize(format)
            return value
        def text():
            nonlocal at
            length = number("h")
            at += max(length, 0)
        for _ in range(number("i")):
            number("i"), text(), number("i"), text()
        text(), number("i")
        assert number("i") == 1
        number("h"), text(), number("b")
        found = {}
        for _ in range(number("i")):
            error, index, leader = number("h"), number("i"), number("i")
            lists = [[number("i") for _ in range(number("i"))] for _ in range(3)]
            found[index] = (error, leader, lists[1], lists[2])
        return found


def crc32c_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC32C = crc32c_table()


def record_batch(value):
    def varint(number):
        number = number << 1 ^ number >> 63
        out = b""
        while number > 0x7F:
            out += bytes([number & 0x7F | 0x80])
            number >>= 7
        return out + bytes([number])
    record = b"\0" + varint(0) + varint(0) + varint(-1) + varint(len(value)) + value + varint(0)
    record = varint(len(record)) + record
    now = int(time.time() * 1000)
    rest = struct.pack(">hiqqqhii", 0, 0, now, now, -1, -1, -1, 1) + record
    crc = 0xFFFFFFFF
    for byte in rest:
        crc = CRC32C[(crc ^ byte) & 0xFF] ^ crc >> 8
    return struct.pack(">qiibI", 0, 9 + len(rest) - 0, 0, 2, crc ^ 0xFFFFFFFF) + rest


# ---- disks

class Disk:
    """An ext4 file system of its own on a loop device, mounted at `path`. No block is kept back for root."""

    def __init__(self, path, mib, mounted=True):
        self.path, self.image = pathlib.Path(path), pathlib.Path(f"{path}.img")
        self.path.mkdir(parents=True)
        with open(self.image, "wb") as image:
            image.truncate(mib << 20)
        run("mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.image)
        if mounted:
            self.mount()

    def mount(self, *options):
        run("mount", "-o", ",".join(("loop", *options)), self.image, self.path)

    def unmount(self):
        run("umount", self.path)

    def cut(self):
        """The power goes: the file system stops at once, and what was not synced is gone for good."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(handle)

    def remount(self):
        """The power is back: the journal is replayed."""
        until("the disk is unmounted", lambda: subprocess.run(["umount", self.path], capture_output=True).returncode == 0, 10)
        self.mount()

    def fill_up(self):
        """To the last byte, with a file of a stranger's, which is returned."""
        junk = self.path / "junk"
        with open(junk, "ab", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"x" * size)
        assert self.free() == 0
        return junk

    def free(self):
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def destroy(self):
        subprocess.run(["umount", "-l", self.path], capture_output=True)
        self.image.unlink(missing_ok=True)


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def why_no_disks():
    """Why there are no loop devices here, or None."""
    if os.geteuid() != 0:
        return "loop mounts need root"
    for tool in ("mkfs.ext4", "mount", "umount"):
        if not shutil.which(tool):
            return f"there is no {tool}"
    with tempfile.TemporaryDirectory(prefix="ottla-probe.") as directory:
        try:
            disk = Disk(pathlib.Path(directory) / "disk", 16)
            disk.destroy()
        except (OSError, RuntimeError) as error:
            return str(error)
    return None


def why_no_strace():
    """Why no system call can be made to fail here, or None."""
    if not shutil.which("strace"):
        return "there is no strace"
    probe = subprocess.run(["strace", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO", "true"],
                           capture_output=True, text=True)
    return probe.stderr.strip() or None if probe.returncode else None


class Injected:
    """System calls of a running process fail or wait, as strace's `inject` says; `path` limits it to one file."""

    def __init__(self, broker, calls, what, path=None):
        command = ["strace", "-f", "-qq", "-o", "/dev/null", "-p", str(broker.process.pid),
                   "-e", f"trace={calls}", "-e", f"inject={calls}:{what}"]
        self.process = subprocess.Popen(command + (["-P", str(path)] if path else []), stderr=subprocess.PIPE)
        until("strace is attached", lambda: broker.process.poll() is not None or all(traced(broker.process.pid)), 10)

    def end(self):
        self.process.terminate()
        self.process.wait(30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def traced(pid):
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            yield "TracerPid:\t0\n" not in (task / "status").read_text()


class Room(contextlib.ExitStack):
    """A directory for a script's state and disks; kept and named when something failed."""

    def __init__(self, checks):
        super().__init__()
        self.checks = checks
        self.path = pathlib.Path(tempfile.mkdtemp(prefix=f"ottla-{checks.name}."))
        self.disks, self.brokers = [], []

    def disk(self, name, mib, **more):
        disk = Disk(self.path / name, mib, **more)
        self.disks.append(disk)
        return disk

    def broker(self, directories, name="broker", **settings):
        state = self.path / name
        state.mkdir(exist_ok=True)
        broker = Broker(state, directories, **settings)
        self.brokers.append(broker)
        return broker

    def __exit__(self, *error):
        for broker in self.brokers:
            broker.kill()
            if broker.log.exists() and broker.said("panicked at"):
                self.checks.check("the broker does not panic", False, broker.log)
        for disk in self.disks:
            if self.checks.failed and os.environ.get("OTTLA_FAULTS_KEEP"):
                shutil.copytree(disk.path, f"{disk.path}.kept", dirs_exist_ok=True)
            disk.destroy()
        if self.checks.failed or any(error):
            say(f"{self.checks.name}: the brokers' logs: {self.path}")
        else:
            shutil.rmtree(self.path, ignore_errors=True)
        return super().__exit__(*error)
