"""How many keys a second go over a link of a given rate, by the dtype on the wire. Server and client live in network
namespaces of their own, joined by a veth pair that `tc` limits both ways. Needs root and tc; exits with 77 without them.

usage: link.py [--rate 1gbit] [--dim 64] [--batch 65536] [--in-flight 2] [--rounds 5] [--seconds 1] [--mix pull,push]

Shown are medians, the bytes of a row on the wire, and the ratio to f32; beside it the ratio that the bytes of keys and rows
alone allow: a pull's rows come one way, while its keys go the other."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from certificates import Tokens  # noqa: E402
from embd_process import BIN, Embd  # noqa: E402

BENCH = os.path.join(os.environ["EMBD_BIN"], "embd-bench")
WIRES = {"f32": lambda dim: 4 * dim, "f16": lambda dim: 2 * dim, "bf16": lambda dim: 2 * dim,
         "i8": lambda dim: dim + 4, "i4": lambda dim: (dim + 1) // 2 + 4}


def call(*command):
    subprocess.run(command, check=True, capture_output=True)


class Host:
    """A network namespace, as long as its process lives."""

    def __init__(self, address):
        self.address = address
        self.process = subprocess.Popen(["unshare", "--net", "sleep", "3600"])
        self.enter = ["nsenter", "--net", "--target", str(self.process.pid)]
        ours = os.readlink("/proc/self/ns/net")
        while self.process.poll() is None and os.readlink(f"/proc/{self.process.pid}/ns/net") == ours:
            time.sleep(0.01)

    def connect(self, rate):
        for command in (["ip", "address", "add", f"{self.address}/24", "dev", "eth0"], ["ip", "link", "set", "eth0", "up"],
                        ["ip", "link", "set", "lo", "up"],
                        ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "128kb", "latency", "50ms"]):
            call(*self.enter, *command)

    def close(self):
        self.process.kill()
        self.process.wait()


def join(one, other, rate):
    call("ip", "link", "add", "eth0", "netns", str(one.process.pid), "type", "veth", "peer", "name", "eth0", "netns",
         str(other.process.pid))
    one.connect(rate)
    other.connect(rate)


def program(host, path):
    """The server's program, run there."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\nexec {' '.join(host.enter)} {BIN} \"$@\"\n")
    os.chmod(path, 0o700)
    return path


def measure(host, address, o, mix, wire):
    done = subprocess.run([*host.enter, BENCH, "--servers", address, "--keys", o.keys, "--dim", str(o.dim), "--batch", str(o.batch),
                           "--in-flight", str(o.in_flight), "--rounds", str(o.rounds), "--seconds", str(o.seconds),
                           "--mix", mix, "--plan", "pooled", "--wire", wire, "-o", "json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["results"][-1]["keys_per_s"]


def allowed(mix, row, wide):
    """The ratio of the busier direction's bytes; a key has 8."""
    return max(8, wide) / max(8, row) if mix == "pull" else (8 + wide) / (8 + row)


def compare(server, client, o, folder):
    tokens = Tokens(folder)
    tokens.add("trainer", "trainer")
    os.environ.update(EMBD_TOKEN_FILE=tokens.file("trainer"), EMBD_PLAIN_TOKEN="yes")
    address = f"{server.address}:7700"
    process = Embd("--tokens", tokens.path, "--http", "off", listen=address, program=program(server, os.path.join(folder, "embd.sh")))
    print(f"{o.rate}, {o.dim} columns, {o.batch} keys a request, {o.in_flight} in flight; medians of {o.rounds} rounds")
    for mix in o.mix.split(","):
        first = None
        for wire, row_bytes in WIRES.items():
            keys = measure(client, address, o, mix, wire)
            first = first or keys
            row = row_bytes(o.dim)
            print(f"{mix:5} {wire:5} {row:5} bytes a row  {keys / 1e6:8.3f} M keys/s  {keys / first:5.2f} x f32"
                  f"  (bytes allow {allowed(mix, row, 4 * o.dim):.2f})", flush=True)
    process.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--keys", default="200K")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--batch", type=int, default=65536)
    parser.add_argument("--in-flight", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--mix", default="pull,push")
    o = parser.parse_args()
    hosts = []
    try:
        for number in (1, 2):
            hosts.append(Host(f"10.78.0.{number}"))
        try:
            join(*hosts, o.rate)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"skipped: no network namespaces or no tc: {error}")
            return 77
        with tempfile.TemporaryDirectory() as folder:
            compare(*hosts, o, folder)
    finally:
        for host in hosts:
            host.close()
    return 0


sys.exit(main())
