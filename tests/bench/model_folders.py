"""How fast model folders are exported and imported, beside what the disk does with the same bytes in the same run:
a plain sequential write and fsync, and a plain read of files that were dropped from the page cache.

Rounds alternate; all files are new in each. Shown are medians in MB/s, ratios of each round's pair, and the CPU
seconds of client and server.

usage: model_folders.py [--rows N] [--dim N] [--shards N] [--rounds N] [--store NAME] [--dir DIR]"""
import argparse
import array
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from embd_process import Embd  # noqa: E402

EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
BLOCK = 1 << 20


def make_folder(path, rows, dim):
    os.mkdir(path)
    with open(os.path.join(path, "key"), "wb") as file:
        for first in range(0, rows, 65536):
            keys = range(first, min(first + 65536, rows))
            file.write(array.array("Q", [key * 0x9E3779B97F4A7C15 >> 8 & 0xFFFFFFFFFFFF for key in keys]).tobytes())
    with open(os.path.join(path, "emb_vector"), "wb") as file:
        block, left = array.array("f", [i / BLOCK for i in range(BLOCK // 4)]).tobytes(), 4 * dim * rows
        while left > 0:
            left -= file.write(block[:left])


def drop(path):
    """Out of the page cache."""
    for name in os.listdir(path):
        fd = os.open(os.path.join(path, name), os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def write_plainly(path, size):
    block = os.urandom(BLOCK)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    while size > 0:
        size -= os.write(fd, block[:size])
    os.fsync(fd)
    os.close(fd)


def read_plainly(path):
    for name in os.listdir(path):
        with open(os.path.join(path, name), "rb", buffering=0) as file:
            while file.read(BLOCK):
                continue


def cpu_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Measured:
    def __init__(self, size):
        self.mb, self.rates, self.client, self.server = size / 1e6, [], [], []

    def take(self, action, server=None):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu, began = cpu_of(server.pid) if server else 0, time.monotonic()
        action()
        self.rates.append(self.mb / (time.monotonic() - began))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.client.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        self.server.append(cpu_of(server.pid) - cpu if server else 0)


def embctl(server, *arguments):
    subprocess.run([EMBCTL, "--servers", server.addresses[0], *map(str, arguments)], check=True,
                   stdout=subprocess.DEVNULL)


def show(name, ours, plain):
    ratios = [a / b for a, b in zip(ours.rates, plain.rates)]
    print(f"{name:7} {statistics.median(ours.rates):6.0f} MB/s  plain {statistics.median(plain.rates):6.0f} MB/s  "
          f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})  "
          f"CPU {statistics.median(ours.client):.2f} s client, {statistics.median(ours.server):.2f} s server", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--store", default="host")
    parser.add_argument("--dir", default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="embd-bench-", dir=options.dir) as scratch:
        made, size = os.path.join(scratch, "in"), options.rows * (8 + 4 * options.dim)
        make_folder(made, options.rows, options.dim)
        read, imported, written, exported = (Measured(size) for _ in range(4))
        for number in range(options.rounds):
            with Embd("--store", options.store, shards=options.shards) as server:
                drop(made)
                read.take(lambda: read_plainly(made))
                drop(made)
                imported.take(lambda: embctl(server, "import", made, "--table", "t", "--dim", options.dim), server)
                written.take(lambda: write_plainly(os.path.join(scratch, "plain"), size))
                os.unlink(os.path.join(scratch, "plain"))
                exported.take(lambda: embctl(server, "export", "t", os.path.join(scratch, "out")), server)
                shutil.rmtree(os.path.join(scratch, "out0_sparse_0.model"))
        print(f"{options.rows} rows of {options.dim} columns, {size / 1e6:.0f} MB, {options.shards} shards, "
              f"{number + 1} rounds", flush=True)
        show("export", exported, written)
        show("import", imported, read)


if __name__ == "__main__":
    main()
