"""What a journal costs: pushes to a table of each durability, one after the other in alternating rounds, beside the rate
at which the same disk takes the same bytes with an fdatasync after each push's; then kill -9 and the time until the
server is ready again, with its journal, and with a snapshot of --snapshot-rows rows. durability.py [--dir DIRECTORY] [--batch N] [--in-flight N] [--rounds N] [--seconds S]
[--snapshot-rows N] [--followed]"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time

import wire
from embd_process import Embd

KINDS = ("snapshot", "buffered", "durable")
FOLLOWED = ("buffered", "replicated", "replicated_durable", "durable")
BENCH = os.path.join(os.environ["EMBD_BIN"], "embd-bench")
EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")


def bench(server, kind, o):
    """Keys a second, and the p99 of a push in ms."""
    said = subprocess.run([BENCH, "--servers", server.addresses[0], "--mix", "push", "--durability", kind, "--keys", o.keys,
                           "--dim", str(o.dim), "--batch", str(o.batch), "--in-flight", str(o.in_flight),
                           "--rounds", "1", "--seconds", str(o.seconds), "-o", "json"],
                          check=True, capture_output=True, text=True)
    row = next(row for row in json.loads(said.stdout)["results"] if row["what"] == "embd")
    return row["keys_per_s"], row["p99_us"] / 1000


def disk(directory, o):
    """Keys a second that the disk alone would take."""
    piece = os.urandom(o.batch * (8 + 4 * o.dim))
    path = os.path.join(directory, "sequential")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    n, begin = 0, time.monotonic()
    while time.monotonic() - begin < o.seconds:
        os.write(fd, piece)
        os.fdatasync(fd)
        n += 1
    took = time.monotonic() - begin
    os.close(fd)
    os.unlink(path)
    return n * o.batch / took


def used_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return sum(map(int, stat.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def show(name, rates, of):
    print(f"{name:10} {statistics.median(rates) / 1e6:8.3f} M keys/s  {min(rates) / 1e6:8.3f} - {max(rates) / 1e6:.3f}  {of}")


def restore(data, o):
    """A start from a snapshot alone, whose bytes were just written: they are in the kernel's memory."""
    server = Embd("--data-dir", data, ready_s=600)
    try:
        with wire.connect(server, timeout=600) as peer:
            table = wire.create(peer, "big", o.dim, durability="snapshot")
            for first in range(0, o.snapshot_rows, o.batch):
                some = range(first, min(first + o.batch, o.snapshot_rows))
                peer.call("push", {"parts": [{"table": table, "keys": len(some)}]}, wire.keys(some),
                          wire.floats([1.0]) * (o.dim * len(some)))
        subprocess.run([EMBCTL, "snapshot", "s"], check=True, capture_output=True,
                       env={**os.environ, "EMBD_SERVERS": server.addresses[0]})
    finally:
        server.kill()
    begin = time.monotonic()
    with Embd("--data-dir", data, ready_s=600) as server:
        took, used = time.monotonic() - begin, used_s(server.pid)
        rows, size, load = re.search(r"restored .* rows=(\d+) bytes=(\d+) seconds=(\S+)", server.log()).groups()
    gib = int(size) / 2**30
    print(f"start with a snapshot of {rows} rows, dim {o.dim}: {gib:.2f} GiB in {took:.1f} s, {took / gib:.1f} s a GiB "
          f"({used / gib:.1f} s of processors); {float(load):.1f} s of it to load them, the rest to verify them first")


def measure_followed(data, o):
    """Pushes to a server with a follower on the same host and disk, by durability, one after the other in each round."""
    dirs = [os.path.join(data, name) for name in ("primary", "follower", "admin")]
    for name in dirs:
        os.mkdir(name)
    rates, p99s = {kind: [] for kind in FOLLOWED}, {kind: [] for kind in FOLLOWED}
    server = follower = None
    try:
        server = Embd("--data-dir", dirs[0], "--journal-limit", "0", admin=dirs[2])
        follower = Embd("--data-dir", dirs[1], "--journal-limit", "0", "--follow", server.admin_path(0), admin=dirs[2], waits=False)
        follower.wait_log("follow_has_base shard=0")
        for _ in range(o.rounds):
            for kind in FOLLOWED:
                rate, p99 = bench(server, kind, o)
                rates[kind].append(rate)
                p99s[kind].append(p99)
    finally:
        for one in (server, follower):
            if one is not None:
                one.kill()
    print(f"with a follower on the same host and disk, {o.batch} keys a push, {o.in_flight} under way")
    for kind in FOLLOWED:
        shares = [a / b for a, b in zip(rates[kind], rates["buffered"])]
        show(kind, rates[kind], f"{statistics.median(rates[kind]) / o.batch:.0f} pushes/s, p99 {statistics.median(p99s[kind]):.2f} ms; "
             f"of buffered {statistics.median(shares):.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir")
    parser.add_argument("--keys", default="1M")
    for name, kind, value in (("dim", int, 16), ("batch", int, 65536), ("in-flight", int, 4), ("rounds", int, 5),
                              ("snapshot-rows", int, 8 << 20),
                              ("seconds", float, 1.0)):
        parser.add_argument(f"--{name}", type=kind, default=value)
    parser.add_argument("--followed", action="store_true", help="with a follower, and nothing else")
    o = parser.parse_args()
    data = tempfile.mkdtemp(prefix="embd-durability-", dir=o.dir)
    try:
        if o.followed:
            measure_followed(data, o)
            return
        measure(data, o)
        shutil.rmtree(data)
        os.mkdir(data)
        restore(data, o)
    finally:
        shutil.rmtree(data)


def measure(data, o):
    rates, p99s, disks = {kind: [] for kind in KINDS}, {kind: [] for kind in KINDS}, []
    server = Embd("--data-dir", data, "--journal-limit", "0")
    try:
        for _ in range(o.rounds):
            for kind in KINDS:
                rate, p99 = bench(server, kind, o)
                rates[kind].append(rate)
                p99s[kind].append(p99)
            disks.append(disk(data, o))
    finally:
        server.kill()
    journal = sum(os.path.getsize(os.path.join(data, name)) for name in os.listdir(data) if name.startswith("journal."))
    begin = time.monotonic()
    with Embd("--data-dir", data, "--journal-limit", "0", ready_s=600):
        took = time.monotonic() - begin
    print(f"push, {o.keys} rows, dim {o.dim}, {o.batch} keys, {o.in_flight} under way, medians of {o.rounds} rounds of {o.seconds} s")
    show("disk", disks, "the same bytes and an fdatasync for each push")
    for kind in KINDS:
        shares = [a / b for a, b in zip(rates[kind], rates["snapshot"])]
        bound = [a / min(b, c) for a, b, c in zip(rates[kind], rates["snapshot"], disks)]
        show(kind, rates[kind], f"p99 {statistics.median(p99s[kind]):.1f} ms; of snapshot {statistics.median(shares):.2f}, "
             f"of the lesser of snapshot and disk {statistics.median(bound):.2f}")
    print(f"recovery: {journal / 2**30:.2f} GiB in {took:.1f} s, {took / (journal / 2**30):.1f} s a GiB")


if __name__ == "__main__":
    main()
