"""What both Python programs share: check lines, the records they send, the restart of the broker."""

import os
import random
import subprocess
import sys
import time
import traceback

# How many replicas the topics have: --cluster asks for 3.
REPLICAS = int(os.environ.get("COMPAT_REPLICAS") or 1)
FULL = bool(os.environ.get("COMPAT_FULL"))
BASE = (int(time.time()) - 3600) * 1000  # timestamps of test records, ms


background = []  # what failed in other threads since the check began


class Checks:
    """Runs checks and prints a line for each; the process's exit status is whether one failed."""

    def __init__(self, name):
        self.name, self.failed = name, False
        self.run_id = "%06x" % random.randrange(1 << 24)

    def topic(self, what):
        return f"{self.name.replace('/', '-')}-{what}-{self.run_id}"

    def check(self, what, function, *arguments):
        if os.environ.get("COMPAT_ONLY", "") not in what:
            return
        background.clear()
        try:
            function(*arguments)
            print(f"ok  {self.name} {what}", flush=True)
        except Exception as error:  # any failure of a check is a line, and the next check runs
            traceback.print_exc()
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            print(f"FAIL {self.name} {what}: {reason}", flush=True)
            self.failed = True

    def check_with_restart(self, what, function, how):
        command = os.environ.get("OTTLA_RESTART")
        if not command and os.environ.get("COMPAT_ONLY", "") in what:
            print(f"skip {self.name} {what}: OTTLA_RESTART names no command that restarts the broker", flush=True)
            return
        self.check(what, function, lambda: subprocess.run([command, how], check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL))

    def exit(self):
        sys.stdout.flush()
        os._exit(1 if self.failed else 0)  # a client thread that hangs must not hold the run


def record(i):
    """(key, value, headers) of test record i: nulls, empty and repeated headers, sizes from nothing to 500 bytes."""
    key = None if i % 10 == 3 else b"key-%d" % i
    value = None if i % 10 == 7 else b"value-%d-" % i + b"x" * (i * 37 % 500)
    if i % 10 == 7 and key is None:
        value = b""
    headers = [("n", b"%d" % i), ("n", b"again"), ("empty", b"")] if i % 3 == 0 else []
    return key, value, headers


def equal(got, wanted, what):
    if got != wanted:
        raise AssertionError(f"{what}: got {got!r:.200}, wanted {wanted!r:.200}")


def eventually(function, what, seconds=20):
    """Calls `function` until it returns something true; an error that a thread left in `background` ends it."""
    end = time.monotonic() + seconds
    while True:
        if background:
            raise AssertionError(f"{what}: {background[0]!r}") from background[0]
        got = function()
        if got:
            return got
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.05)


def raises(function, name):
    """Calls `function`, which must fail with an error that names `name`."""
    try:
        function()
    except Exception as error:
        if name not in f"{type(error).__name__} {error} {getattr(error, 'args', '')}":
            raise AssertionError(f"failed with {error!r}, wanted {name}") from error
        return
    raise AssertionError(f"succeeded, wanted {name}")
