"""Runs embctl for the tests, and what they share: cases that are run by name, and servers of tests/integration."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from embd_process import Embd  # noqa: E402

EMBCTL = os.path.join(os.environ.get("EMBD_BIN", "build/release/bin"), "embctl")
OK, FAILED, USAGE, UNREACHABLE, NOT_FOUND, REFUSED, DAMAGED = range(7)


def environment(server, **more):
    kept = {k: v for k, v in os.environ.items() if k not in ("EMBD_SERVERS", "COLUMNS")}
    if server is not None:
        kept["EMBD_SERVERS"] = server.addresses[0]
    return {**kept, "LC_ALL": "C.UTF-8", **more}


def embctl(server, *arguments, code=OK, says=None, timeout=30):
    """Runs embctl to its end and checks its exit code; `says` must stand on stderr. Returns stdout."""
    done = subprocess.run([EMBCTL, *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
                          env=environment(server), check=False)
    told = f"embctl {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    assert done.returncode == code, f"wanted exit {code}; {told}"
    assert (code == OK) == (done.stderr == ""), f"stderr is for errors only; {told}"
    if says is not None:
        assert says in done.stderr, f"wanted {says!r}; {told}"
    return done.stdout


def embctl_json(server, *arguments, **more):
    return json.loads(embctl(server, *arguments, "-o", "json", **more))


def start(server, *arguments, **more):
    return subprocess.Popen([EMBCTL, *map(str, arguments)], env=environment(server), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, **more)


class Scratch:
    """A directory that is gone afterwards."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="embctl-test-")
        return lambda name: os.path.join(self.path, name)

    def __exit__(self, kind, value, trace):
        shutil.rmtree(self.path, ignore_errors=True)


def run_cases(names, *arguments):
    """Runs the functions of a module that are called case_..., in their order."""
    cases = [(name, fn) for name, fn in names.items() if name.startswith("case_")]
    for name, case in cases:
        began = time.monotonic()
        case(*arguments)
        print(f"ok {name[5:].replace('_', ' ')} ({time.monotonic() - began:.2f} s)", flush=True)


__all__ = ["Embd", "embctl", "embctl_json", "start", "environment", "Scratch", "run_cases", "EMBCTL", "OK", "FAILED",
           "USAGE", "UNREACHABLE", "NOT_FOUND", "REFUSED", "DAMAGED"]
