"""How long a trainer waits when a server dies: kill -9 and a start with the same data directory, whose journal has the rows as
pushes or as a base; and kill -9 and embctl promote of its follower, to which the trainer connects then. The trainer pushes
one batch after the other through embd, and its wait is the time between two acknowledgements. A last pull shows that no
acknowledged push is lost and none is there twice. server_death.py [--rows N] [--dim N] [--times N] [--shards N]"""
import argparse
import os
import statistics
import subprocess
import tempfile
import threading
import time

import numpy as np

import embd
from embd_process import Embd
from ports import free_ports

EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
BATCH = 65536
HOT = np.arange(1, 257, dtype=np.uint64)  # that the trainer goes on with


class Trainer(threading.Thread):
    """Each push adds 1 to the rows HOT."""

    def __init__(self, table, dim, n=0):
        super().__init__(daemon=True)
        self.table, self.dim, self.n, self.acks, self.stops, self.error = table, dim, n, [], False, None

    def run(self):
        gradients = np.full((len(HOT), self.dim), -1.0, np.float32)
        try:
            while not self.stops:
                self.table.push(HOT, gradients)
                self.n += 1
                self.acks.append(time.monotonic())
        except embd.Error as error:
            self.error = error

    def wait(self, killed):
        """The longest time between two answers since the server was killed."""
        ready = time.monotonic()
        while self.is_alive() and (not self.acks or self.acks[-1] <= ready):
            time.sleep(0.002)
        if self.error is not None:
            raise self.error
        since = [at for at in self.acks if at > killed - 0.5]
        return max(b - a for a, b in zip(since, since[1:]))

    def end(self):
        self.stops = True
        self.join()


def make(client, o, durability):
    return client.create_table("rows", dim=o.dim, combiner="concat", optimizer=embd.Optimizer("sgd", lr=1.0),
                               initializer=embd.Initializer("constant", 0.0),
                               durability=durability)


def fill(table, o):
    for first in range(0, o.rows, BATCH):
        keys = np.arange(first + 1000, min(first + BATCH, o.rows) + 1000, dtype=np.uint64)
        table.push(keys, np.full((len(keys), o.dim), -1.0, np.float32))


def check(client, table, n, o):
    """The table has all rows, and HOT n pushes; or one more, whose answer was lost."""
    n_rows = sum(shard.tables["rows"]["rows"] for shard in client.stats())
    if n_rows != o.rows + len(HOT):
        raise AssertionError(f"{o.rows + len(HOT)} rows were pushed, and {n_rows} are there")
    rows = table.pull(HOT)
    if not (rows == rows[0, 0]).all() or rows[0, 0] not in (n, n + 1):
        raise AssertionError(f"{n} pushes were acknowledged, the rows have {rows}")


def start(directory, port, o, *flags, **more):
    return Embd("--http", "off", "--data-dir", directory, *flags, shards=o.shards, listen=f"127.0.0.1:{port}", ready_s=120, **more)


def restart(o, with_base):
    """Seconds that the trainer waits, and seconds of the start."""
    waits, starts = [], []
    with tempfile.TemporaryDirectory(prefix="embd-death-", dir=o.dir) as directory:
        port = free_ports(o.shards)
        flags = "--journal-limit", str(max(1 << 20, o.rows * 36)) if with_base else "0"
        server = start(directory, port, o, *flags)
        with embd.connect(server.addresses[0], deadline=120) as client:
            table = make(client, o, "durable")
            fill(table, o)
            trainer = Trainer(table, o.dim)
            trainer.start()
            while with_base and not any(name.endswith(".base") for name in os.listdir(directory)):
                time.sleep(0.1)
            for _ in range(o.times):
                time.sleep(1)
                killed = time.monotonic()
                server.kill()
                server = start(directory, port, o, *flags)
                starts.append(time.monotonic() - killed)
                waits.append(trainer.wait(killed))
            trainer.end()
            check(client, table, trainer.n, o)
        server.kill()
    return waits, starts


def promote(o):
    """Seconds to the first push that the promoted server acknowledges, and seconds of embctl promote."""
    with tempfile.TemporaryDirectory(prefix="embd-death-", dir=o.dir) as directory:
        for name in ("primary", "follower"):
            os.mkdir(os.path.join(directory, name))
        primary = start(os.path.join(directory, "primary"), free_ports(o.shards), o)
        follower = start(os.path.join(directory, "follower"), free_ports(o.shards), o, "--follow", primary.admin_path(0),
                         "--replicas", "0", waits=False)
        for shard in range(o.shards):
            follower.wait_log(f"follow_has_base shard={shard}", 60)
        with embd.connect(primary.addresses[0], deadline=120) as client:
            table = make(client, o, "replicated")
            fill(table, o)
            trainer = Trainer(table, o.dim)
            trainer.start()
            time.sleep(1)
            trainer.end()
            n = trainer.n
        killed = time.monotonic()
        primary.kill()
        subprocess.run([EMBCTL, "-s", follower.admin_path(0), "promote"], check=True, capture_output=True)
        promoted = time.monotonic()
        with embd.connect(follower.addresses[0], deadline=30) as client:
            table = make(client, o, "replicated")
            check(client, table, n, o)
            trainer = Trainer(table, o.dim, n)
            trainer.start()
            while not trainer.acks and trainer.error is None:
                time.sleep(0.002)
            took = trainer.acks[0] - killed
            trainer.end()
        follower.kill()
        return took, promoted - killed


def show(name, seconds):
    print(f"{name:58} {statistics.median(seconds):7.3f} s  {min(seconds):.3f} - {max(seconds):.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000000)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--dir", default=tempfile.gettempdir())
    o = parser.parse_args()
    for what, with_base in (("pushes", False), ("a base", True)):
        waits, starts = restart(o, with_base)
        show(f"kill -9, a start whose journal has {what}: ready after", starts)
        show("    a push of the trainer took", waits)
    taken = [promote(o) for _ in range(o.times)]
    show("kill -9, embctl promote: serves after", [promoted for _, promoted in taken])
    show("    the first push there was acknowledged after", [took for took, _ in taken])


if __name__ == "__main__":
    main()
