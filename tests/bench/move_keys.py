"""What a live move costs: half of a table goes from two shards to four while trainers push and pull as fast as they can; then many
small moves, for how long pushes are held. Beside it a dump of the same rows, which reads and writes them once, and a copy of as many
bytes from process to process over TCP of this host. Each trainer is a process, and counts; at the end each row has what was
acknowledged. Servers, coordinator and trainers have processors of their own, if there are 10 and two for each trainer.
move_keys.py [--rows N] [--dim N] [--batch N] [--trainers N] [--moves N] [--most S] [--seconds S] [-o json]"""
import argparse
import json
import mmap
import multiprocessing
import os
import socket
import statistics
import subprocess
import tempfile
import time

import numpy as np

import embd
import pinned
from listed import Listed

EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
BATCH = 65536
COORDINATOR, TRAINERS = (8, 2), 10  # processors: each server has two before them, each trainer two
CONTEXT = multiprocessing.get_context("fork")


class Trainer:
    """A process that adds 1 to `batch` keys, then pulls them, again and again. It is forked before this process has threads."""

    def __init__(self, address, number, o):
        self.address, self.number, self.o = address, number, o
        self.counts = np.frombuffer(mmap.mmap(-1, 4 * o.rows), np.float32)
        self.pushes, self.pulls = [], []
        self.begins, self.stops, (self.reads, self.writes) = CONTEXT.Event(), CONTEXT.Event(), CONTEXT.Pipe(False)
        with pinned.on(TRAINERS + 2 * number, 2):
            self.process = CONTEXT.Process(target=self.run, daemon=True)
            self.process.start()
        self.writes.close()

    def run(self):
        self.begins.wait()
        try:
            with embd.connect(self.address, deadline=60) as client:
                self.train(client.table("rows"))
            self.writes.send((self.pushes, self.pulls, None))
        except embd.Error as error:
            self.writes.send(([], [], str(error)))

    def train(self, table):
        rng, gradients = np.random.default_rng(self.number), np.full((self.o.batch, self.o.dim), -1.0, np.float32)
        while not self.stops.is_set():
            keys = np.unique(rng.integers(0, self.o.rows, self.o.batch, dtype=np.uint64))
            began = time.monotonic()
            table.push(keys, gradients[:len(keys)])
            pushed = time.monotonic()
            table.pull(keys)
            self.counts[keys] += 1
            self.pushes.append((pushed, pushed - began))
            self.pulls.append((pushed, time.monotonic() - pushed))

    def end(self):
        self.stops.set()
        if not self.reads.poll(120):
            raise AssertionError(f"trainer {self.number} does not end")
        self.pushes, self.pulls, error = self.reads.recv()
        self.process.join()
        if error is not None:
            raise AssertionError(f"trainer {self.number}: {error}")


def quantile(took, q):
    return took[min(int(q * len(took)), len(took) - 1)]


def send(port, n_bytes):
    block = bytes(1 << 20)
    with socket.create_connection(("127.0.0.1", port)) as out:
        for _ in range(n_bytes >> 20):
            out.sendall(block)


def socket_rate(n_bytes):
    """Bytes a second from one process to another."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        with pinned.on(0, 1):
            sender = CONTEXT.Process(target=send, args=(door.getsockname()[1], n_bytes), daemon=True)
            sender.start()
        with door.accept()[0] as peer:
            view, began = bytearray(1 << 20), time.monotonic()
            while peer.recv_into(view):
                pass
            took = time.monotonic() - began
        sender.join()
    return n_bytes / took


def fill(table, o):
    for first in range(0, o.rows, BATCH):
        keys = np.arange(first, min(first + BATCH, o.rows), dtype=np.uint64)
        table.push(keys, np.full((len(keys), o.dim), -1.0, np.float32))


def check(table, counts):
    for first in range(0, len(counts), BATCH):
        rows = table.pull(np.arange(first, min(first + BATCH, len(counts)), dtype=np.uint64))
        np.testing.assert_array_equal(rows[:, 0], counts[first:first + BATCH])


def within(trainers, window):
    """Figures of what ended between two moments."""
    begin, end = window
    pushes, pulls = (sorted(t for trainer in trainers for at, t in getattr(trainer, what) if begin <= at <= end) or [0.0]
                     for what in ("pushes", "pulls"))
    return {"pushes_per_s": len(pushes) / (end - begin), "push_p50": quantile(pushes, 0.5), "push_p99": quantile(pushes, 0.99),
            "pull_p50": quantile(pulls, 0.5), "pull_p99": quantile(pulls, 0.99)}


def dump_rate(address, o):
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([EMBCTL, "--servers", address, "dump", "rows", os.path.join(folder, "d")], check=True, stdout=subprocess.DEVNULL)
    return o.rows * (8 + 4 * o.dim) / (time.monotonic() - began)


def small_moves(client, o):
    """As many as asked for, or as there is time for."""
    end, done = time.monotonic() + o.most, []
    while len(done) < o.moves and (not done or time.monotonic() < end):
        i = len(done) % 2
        done.append(client.rebalance([256, 256, 252 + 8 * i, 260 - 8 * i]))
    return done


def moves(client, trainers, pids, o):
    """What is found, and windows of time by name."""
    found, windows = {}, {}
    time.sleep(o.seconds)
    begin = time.monotonic()
    windows["before"] = begin - o.seconds / 2, begin
    with pinned.watched({**pids, "coordinator": os.getpid()}) as found["busy"]:
        report = client.rebalance([1, 1, 1, 1])
    end = time.monotonic()
    windows["half of the rows move"] = begin, end
    found.update(copied=report.rows, elapsed=report.elapsed, rate=report.bytes / report.elapsed, pause=report.pause)
    time.sleep(o.seconds / 2)
    windows["after"] = end + o.seconds / 8, time.monotonic()
    begin = time.monotonic()
    small = small_moves(client, o)
    windows[f"{len(small)} moves of 4 vshards"] = begin, time.monotonic()
    found.update(pauses=sorted(report.pause for report in small), small_elapsed=statistics.median(report.elapsed for report in small))
    for trainer in trainers:
        trainer.end()
    found["windows"] = {name: within(trainers, window) for name, window in windows.items()}
    return found


def measure(cluster, trainers, o):
    address = cluster.address("a")
    os.sched_setaffinity(0, pinned.place(*COORDINATOR))
    wire = socket_rate(1 << 30)
    with embd.connect(address, deadline=120) as client:
        table = client.create_table("rows", o.dim, combiner="concat", optimizer=embd.Optimizer("sgd", lr=1.0),
                                    initializer=embd.Initializer("constant", 0.0))
        fill(table, o)
        dump = dump_rate(address, o)
        for trainer in trainers:
            trainer.begins.set()
        found = moves(client, trainers, {name: s.pid for name, s in cluster.running.items()}, o)
        check(table, 1 + sum(trainer.counts for trainer in trainers))
    return {**found, "socket": wire, "dump": dump}


def show(found, o):
    if o.output == "json":
        print(json.dumps({**vars(o), **found}))
        return
    for name, w in found["windows"].items():
        print(f"{name:28} {w['pushes_per_s']:7.0f} pushes/s  push p50 {1e3 * w['push_p50']:6.2f} p99 {1e3 * w['push_p99']:6.2f} ms  "
              f"pull p50 {1e3 * w['pull_p50']:6.2f} p99 {1e3 * w['pull_p99']:6.2f} ms")
    print(f"{found['copied']} rows of {8 + 4 * o.dim} bytes copied ({o.rows // 2} move) in {found['elapsed']:.2f} s: "
          f"{found['rate'] / 1e6:.0f} MB/s; a socket {found['socket'] / 1e6:.0f}, a dump {found['dump'] / 1e6:.0f} MB/s; "
          f"pushes held {1e3 * found['pause']:.1f} ms")
    print(f"cores meanwhile: {found['busy']}")
    pauses = found["pauses"]
    print(f"{len(pauses)} moves of 4 vshards, {1e3 * found['small_elapsed']:.0f} ms each in the median; pushes held: median "
          f"{1e3 * statistics.median(pauses):.1f} ms, p99 {1e3 * quantile(pauses, 0.99):.1f}, longest "
          f"{1e3 * pauses[-1]:.1f}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rows", type=int, default=1000000)
    p.add_argument("--dim", type=int, default=16)
    p.add_argument("--batch", type=int, default=4096)
    p.add_argument("--trainers", type=int, default=1)
    p.add_argument("--moves", type=int, default=200)
    p.add_argument("--most", type=float, default=60, help="no small move begins after so many seconds of them")
    p.add_argument("--seconds", type=float, default=4)
    p.add_argument("-o", "--output", choices=("text", "json"), default="text")
    o = p.parse_args()
    with Listed("abcd", 'placement: "1:0=512,1=512"\n') as cluster:
        for i, name in enumerate(cluster.names):
            with pinned.on(2 * i, 2):
                cluster.start(name, waits=False)
        address = cluster.address("a")
        subprocess.run([EMBCTL, "--servers", address, "wait"], check=True, stdout=subprocess.DEVNULL)
        trainers = [Trainer(address, i, o) for i in range(o.trainers)]
        show(measure(cluster, trainers, o), o)


if __name__ == "__main__":
    main()
