"""What a live move costs: half of a table goes from two shards to four while a trainer pushes and pulls as fast as it can; then many
small moves, for how long pushes are held. Beside it a dump of the same rows, which reads and writes them once, and a copy of as many
bytes over a socket of this host. The trainer counts; at the end each row has what was acknowledged.
move_keys.py [--rows N] [--dim N] [--moves N]"""
import argparse
import os
import socket
import statistics
import subprocess
import tempfile
import threading
import time

import numpy as np

import embd
from listed import Listed

EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
BATCH = 65536


class Trainer(threading.Thread):
    """Adds 1 to `batch` keys, then pulls them, again and again."""

    def __init__(self, address, o):
        super().__init__(daemon=True)
        self.client, self.o, self.error, self.stops = embd.connect(address, deadline=60), o, None, False
        self.counts, self.pushes, self.pulls = np.ones(o.rows), [], []

    def run(self):
        table, rng = self.client.table("rows"), np.random.default_rng(1)
        gradients = np.full((self.o.batch, self.o.dim), -1.0, np.float32)
        try:
            while not self.stops:
                keys = np.unique(rng.integers(0, self.o.rows, self.o.batch, dtype=np.uint64))
                began = time.monotonic()
                table.push(keys, gradients[:len(keys)])
                pushed = time.monotonic()
                table.pull(keys)
                self.counts[keys] += 1
                self.pushes.append((pushed, pushed - began))
                self.pulls.append((pushed, time.monotonic() - pushed))
        except embd.Error as error:
            self.error = error

    def between(self, what, begin, end):
        took = sorted(t for at, t in what if begin <= at <= end)
        return took or [0.0]


def quantile(took, q):
    return took[min(int(q * len(took)), len(took) - 1)]


def socket_rate(n_bytes):
    """Bytes a second from one thread to another, through a socket."""
    a, b = socket.socketpair()
    block, left = bytes(1 << 20), [n_bytes]

    def send():
        for _ in range(n_bytes >> 20):
            a.sendall(block)
        a.close()

    began = time.monotonic()
    threading.Thread(target=send, daemon=True).start()
    view = bytearray(1 << 20)
    while n := b.recv_into(view):
        left[0] -= n
    return n_bytes / (time.monotonic() - began)


def fill(table, o):
    for first in range(0, o.rows, BATCH):
        keys = np.arange(first, min(first + BATCH, o.rows), dtype=np.uint64)
        table.push(keys, np.full((len(keys), o.dim), -1.0, np.float32))


def check(table, counts):
    for first in range(0, len(counts), BATCH):
        rows = table.pull(np.arange(first, min(first + BATCH, len(counts)), dtype=np.uint64))
        np.testing.assert_array_equal(rows[:, 0], counts[first:first + BATCH])


def tell(text, trainer, begin, end):
    pushes, pulls = trainer.between(trainer.pushes, begin, end), trainer.between(trainer.pulls, begin, end)
    print(f"{text:28} {len(pushes) / (end - begin):7.0f} pushes/s  push p50 {1e3 * quantile(pushes, 0.5):6.2f} p99 "
          f"{1e3 * quantile(pushes, 0.99):6.2f} ms  pull p50 {1e3 * quantile(pulls, 0.5):6.2f} p99 {1e3 * quantile(pulls, 0.99):6.2f} ms")


def measure(cluster, o):
    address = cluster.address("a")
    client = embd.connect(address, deadline=120)
    table = client.create_table("rows", o.dim, combiner="concat", optimizer=embd.Optimizer("sgd", lr=1.0),
                                initializer=embd.Initializer("constant", 0.0))
    fill(table, o)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([EMBCTL, "--servers", address, "dump", "rows", os.path.join(folder, "d")], check=True, stdout=subprocess.DEVNULL)
    dump_s = time.monotonic() - began
    trainer = Trainer(address, o)
    trainer.start()
    time.sleep(o.seconds)
    begin = time.monotonic()
    tell("before", trainer, begin - o.seconds / 2, begin)
    report = client.rebalance([1, 1, 1, 1])
    end = time.monotonic()
    tell("half of the rows move", trainer, begin, end)
    row_bytes = 8 + 4 * o.dim
    rate, wire = report.bytes / report.elapsed, socket_rate(256 << 20)
    print(f"{report.rows} rows of {row_bytes} bytes copied ({o.rows // 2} move) in {report.elapsed:.2f} s: {rate / 1e6:.0f} MB/s; a socket "
          f"{wire / 1e6:.0f}, a dump {o.rows * row_bytes / dump_s / 1e6:.0f} MB/s; pushes held {1e3 * report.pause:.1f} ms")
    time.sleep(2)
    tell("after", trainer, end + 0.5, time.monotonic())
    pauses, begin = [], time.monotonic()
    for i in range(o.moves):
        pauses.append(client.rebalance([256, 256, 252 + 8 * (i % 2), 260 - 8 * (i % 2)]).pause)
    tell(f"{o.moves} moves of 4 vshards", trainer, begin, time.monotonic())
    pauses.sort()
    print(f"pushes held: median {1e3 * statistics.median(pauses):.1f} ms, p99 {1e3 * quantile(pauses, 0.99):.1f}, longest "
          f"{1e3 * pauses[-1]:.1f}")
    trainer.stops = True
    trainer.join()
    if trainer.error is not None:
        raise trainer.error
    check(table, trainer.counts)
    client.close()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rows", type=int, default=1000000)
    p.add_argument("--dim", type=int, default=16)
    p.add_argument("--batch", type=int, default=4096)
    p.add_argument("--moves", type=int, default=200)
    p.add_argument("--seconds", type=float, default=4)
    o = p.parse_args()
    with Listed("abcd", 'placement: "1:0=512,1=512"\n') as cluster:
        for name in cluster.names:
            cluster.start(name, waits=False)
        subprocess.run([EMBCTL, "--servers", cluster.address("a"), "wait"], check=True, stdout=subprocess.DEVNULL)
        measure(cluster, o)


if __name__ == "__main__":
    main()
