"""What an archive costs, and how fast backups come and go. The rates of a base and of its restore stand beside plain copies of the
same bytes in the same run: on the disk, with a sync (cp), and through a socket of this machine to the disk. Then pushes go on while
embctl backup --every runs and while it rests, in turns: how long a push takes in each, how old the newest backup becomes, and what
increments have. Last, the servers' processor time for an increment, without pushes beside it. Servers and embctl have processors of
their own, if there are 12. archive_cost.py [--rows N] [--dim N] [--rounds N] [--every SECONDS] [--turn SECONDS] [--turns N]
[--only-rates [-o json]]"""
import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time

import numpy as np

import embd
import pinned
from embd_process import Embd

EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
BATCH = 65536
SERVER, OTHER, TOOLS = (0, 4), (4, 4), (8, 4)  # first processor, and how many


def embctl(server, *arguments):
    variables = {**os.environ, "EMBD_SERVERS": server.addresses[0]}
    done = subprocess.run([EMBCTL, *map(str, arguments), "-o", "json"], env=variables, check=True, capture_output=True, text=True)
    return json.loads(done.stdout) if done.stdout else None


def files_of(path):
    return [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]


def seconds(work):
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


def copy_on_disk(files, folder):
    os.mkdir(folder)
    for number, file in enumerate(files):
        to = os.path.join(folder, str(number))
        shutil.copyfile(file, to)
        with open(to, "rb") as copied:
            os.fsync(copied.fileno())


def copy_by_wire(files, folder):
    """One process reads and sends, this one receives and writes."""
    os.mkdir(folder)
    with socket.create_server(("127.0.0.1", 0)) as door:
        if (child := os.fork()) == 0:
            with socket.create_connection(door.getsockname()) as out:
                for file in files:
                    with open(file, "rb") as data:
                        out.sendfile(data)
            os._exit(0)
        with door.accept()[0] as peer, open(os.path.join(folder, "all"), "wb") as to:
            while piece := peer.recv(1 << 20):
                to.write(piece)
            to.flush()
            os.fsync(to.fileno())
        os.waitpid(child, 0)


def fill(server, o):
    with embd.connect(server.addresses[0]) as client:
        table = client.create_table("rows", dim=o.dim, combiner="concat", optimizer=embd.Optimizer("sgd", lr=1.0),
                                    initializer=embd.Initializer("constant", 0.0), durability="buffered")
        for first in range(0, o.rows, BATCH):
            n = min(BATCH, o.rows - first)
            table.push(np.arange(first, first + n, dtype=np.uint64), np.full((n, o.dim), -1.0, np.float32))


def started(data, processors):
    with pinned.on(*processors):
        return Embd("--data-dir", data, *pinned.shard_flags(processors[0], 2), shards=2)


def rates(server, scratch, o):
    found = {"backup": [], "restore": [], "cp": [], "wire": []}
    for number in range(o.rounds):
        place, copies = os.path.join(scratch, "place"), os.path.join(scratch, "copies")
        found["backup"].append(seconds(lambda: embctl(server, "backup", "--to", place)))
        files = files_of(place)
        size = sum(map(os.path.getsize, files))
        for name, copy in (("cp", copy_on_disk), ("wire", copy_by_wire)):
            found[name].append(seconds(lambda copy=copy: copy(files, copies)))
            shutil.rmtree(copies)
        data = os.path.join(scratch, f"other{number}")
        os.mkdir(data)
        with started(data, OTHER) as other:
            found["restore"].append(seconds(lambda: embctl(other, "restore", "--from", place)))
        shutil.rmtree(data)
        shutil.rmtree(place)
    if o.output == "json":
        print(json.dumps({**vars(o), "bytes": size, **found}))
        return
    print(f"{size / 1e6:.0f} MB, {o.rows} rows of {o.dim} columns, 2 shards; medians of {o.rounds} rounds")
    for name, took in found.items():
        print(f"  {name:8} {size / 1e6 / statistics.median(took):7.0f} MB/s  ({', '.join(f'{s:.2f}' for s in took)} s)")


class Pusher(threading.Thread):
    """One batch of keys by Zipf's law after the other."""

    def __init__(self, server, o):
        super().__init__()
        self.address, self.o, self.took, self.stops, self.now = server.addresses[0], o, {}, threading.Event(), "warm"

    def run(self):
        rng = np.random.default_rng(1)
        batches = [(rng.zipf(1.2, 4096) % self.o.rows).astype(np.uint64) for _ in range(64)]
        gradients = np.full((4096, self.o.dim), -1.0, np.float32)
        with embd.connect(self.address) as client:
            table, number = client.table("rows"), 0
            while not self.stops.is_set():
                self.took.setdefault(self.now, []).append(seconds(lambda n=number: table.push(batches[n % 64], gradients)))
                number += 1


def processor_seconds(server):
    with open(f"/proc/{server.pid}/stat", encoding="ascii") as file:
        return sum(map(int, file.read().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def increments(server, scratch, o):
    place, rng, spent = os.path.join(scratch, "increments"), np.random.default_rng(2), {"push": [], "increment": [], "rows": []}
    embctl(server, "backup", "--to", place)
    with embd.connect(server.addresses[0]) as client:
        table, gradients = client.table("rows"), np.full((4096, o.dim), -1.0, np.float32)
        for _ in range(4 * o.rounds):
            begin = processor_seconds(server)
            for _ in range(100):
                table.push((rng.zipf(1.2, 4096) % o.rows).astype(np.uint64), gradients)
            pushed = processor_seconds(server)
            made = embctl(server, "backup", "--to", place, "--incremental")["backup"][0]
            spent["push"].append((pushed - begin) / 100)
            spent["increment"].append(processor_seconds(server) - pushed)
            spent["rows"].append(made["rows"])
    print(f"an increment of {statistics.median(spent['rows']):.0f} rows takes {statistics.median(spent['increment']) * 1e3:.0f} ms of the "
          f"servers' processor time, a push of 4096 keys {statistics.median(spent['push']) * 1e3:.2f} ms")


def covers(figures):
    with contextlib.suppress(FileNotFoundError), open(figures, encoding="utf-8") as file:
        for line in file:
            if line.startswith("embd_backup_covers_timestamp_seconds{"):
                return float(line.split()[-1])
    return 0.0


def costs(server, scratch, o):
    place, figures = os.path.join(scratch, "archive"), os.path.join(scratch, "figures")
    embctl(server, "backup", "--to", place, "--name", "first")
    pusher, ages = Pusher(server, o), []
    pusher.start()
    time.sleep(2)
    for turn in range(o.turns):
        pusher.now = f"rest{turn}"
        time.sleep(o.turn)
        run = subprocess.Popen([EMBCTL, "backup", "--to", place, "--every", str(o.every), "--figures", figures],
                               env={**os.environ, "EMBD_SERVERS": server.addresses[0]}, stdout=subprocess.DEVNULL)
        pusher.now = f"archive{turn}"
        end = time.monotonic() + o.turn
        while time.monotonic() < end:
            time.sleep(0.05)
            if end - time.monotonic() < o.turn - 2 * o.every:  # it has begun
                ages.append(time.time() - covers(figures))
        run.send_signal(signal.SIGTERM)
        run.wait()
    pusher.stops.set()
    pusher.join()
    ratios = [statistics.mean(pusher.took[f"archive{t}"]) / statistics.mean(pusher.took[f"rest{t}"]) for t in range(o.turns)]
    p99 = {kind: statistics.median(float(np.percentile(pusher.took[f"{kind}{t}"], 99)) * 1e3 for t in range(o.turns))
           for kind in ("rest", "archive")}
    made = [b for b in embctl(server, "backup", "list", "--to", place)["backups"] if b["base"]]
    print(f"an archive every {o.every} s: a push of 4096 keys takes {statistics.median(ratios):.3f} of the time "
          f"({', '.join(f'{r:.3f}' for r in ratios)}), p99 {p99['archive']:.2f} ms beside {p99['rest']:.2f}")
    print(f"  the newest backup is {statistics.median(ages):.1f} s old in the median, {max(ages):.1f} at most, of {len(ages)} moments")
    print(f"  {len(made)} increments of {statistics.median(b['rows'] for b in made):.0f} rows and "
          f"{statistics.median(b['bytes'] for b in made) / 1e6:.1f} MB in the median")


def main():
    parser = argparse.ArgumentParser()
    for name, default in (("rows", 2000000), ("dim", 32), ("rounds", 3), ("every", 5), ("turn", 20), ("turns", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--only-rates", action="store_true")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="of the rates")
    o = parser.parse_args()
    os.sched_setaffinity(0, pinned.place(*TOOLS))
    with tempfile.TemporaryDirectory(prefix="embd-bench-", dir=os.environ.get("TMPDIR")) as scratch:
        os.mkdir(os.path.join(scratch, "data"))
        with started(os.path.join(scratch, "data"), SERVER) as server:
            fill(server, o)
            rates(server, scratch, o)
            if not o.only_rates:
                costs(server, scratch, o)
                increments(server, scratch, o)


if __name__ == "__main__":
    main()
