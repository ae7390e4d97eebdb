"""A snapshot or dump is one cut over all shards while writers push to several of them: each push is in it on all of
its shards or on none.

The oracle: a table that starts at 0 with SGD of rate 1; every push of writer w adds 1 to its keys, KEYS on each shard. So a
cut is one when all of the writer's keys have one value; their rows fill several blocks, which are written while pushes go on. Writers here send their pieces one after another with pauses between,
so that nearly every cut falls between two pieces. Writers that do not name themselves in hello are the control: theirs
are torn."""
import os
import random
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from embctl import EMBCTL, Embd, Scratch, embctl, embctl_json, environment, run_cases  # noqa: E402
import partfiles  # noqa: E402
from wire import Wire, floats, keys, request  # noqa: E402

SHARDS, KEYS, DIM = 3, 1200, 64


def serve(scratch):
    os.mkdir(scratch("data"))
    return Embd("--data-dir", scratch("data"), shards=SHARDS)


def create(server, durability="snapshot"):
    embctl(server, "table", "create", "sums", "--dim", DIM, "--optimizer", "sgd", "--lr", 1, "--partition", "modulo",
           "--initializer", "constant", "--set", "initializer.a=0",
           "--set", f"durability={durability}")
    with Wire(("127.0.0.1", server.port())) as wire:
        return wire.call("tables", {})[0]["tables"][0]["id"]


ONES = floats([-1.0]) * (KEYS * DIM)


class Writer:
    """One client, by hand: a connection to each shard, one msgid for the pieces of a push."""

    def __init__(self, server, table, number, named=True):
        self.table, self.number, self.msgid = table, number, 100
        self.wires = [Wire(("127.0.0.1", server.port(shard))) for shard in range(SHARDS)]
        for wire in self.wires:
            wire.call("hello", {"protocol": 1, **({"client_id": 2**63 + number} if named else {})})

    def send(self, shard):
        part = {"table": self.table, "keys": KEYS}
        mine = [SHARDS * (KEYS * self.number + i) + shard for i in range(KEYS)]
        self.wires[shard].send(request(self.msgid, "push", {"parts": [part]}, keys(mine), ONES))

    def answered(self, shard):
        _, msgid, error, _ = self.wires[shard].receive()
        assert (msgid, error) == (self.msgid, None), (msgid, error)

    def push(self, pause):
        self.msgid += 1
        order = random.sample(range(SHARDS), SHARDS)
        for shard in order:
            self.send(shard)
            time.sleep(random.random() * pause)
        for shard in order:
            self.answered(shard)

    def close(self):
        for wire in self.wires:
            wire.close()


def values(directory):
    """By writer, the values of its keys."""
    rows = partfiles.read(directory)["sums"]["rows"]
    found = {}
    for (_, key), (row, _) in rows.items():
        assert row == row[:4] * DIM, (key, row)
        found.setdefault(key // SHARDS // KEYS, []).append(struct.unpack("<f", row[:4])[0])
    return found


def torn(directory):
    return [(writer, set(at)) for writer, at in values(directory).items()
            if len(set(at)) > 1 or len(at) not in (0, SHARDS * KEYS)]


class Pushing:
    """Writers that push until the end of the block."""

    def __init__(self, writers, pause):
        self.ends, self.failed, self.pushes = False, [], 0
        self.threads = [threading.Thread(target=self.run, args=(writer, pause)) for writer in writers]

    def run(self, writer, pause):
        try:
            while not self.ends:
                writer.push(pause)
                self.pushes += 1
        except Exception as failure:  # pylint: disable=broad-except
            self.failed.append(failure)
        writer.close()

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, kind, value, trace):
        self.ends = True
        for thread in self.threads:
            thread.join()
        assert not self.failed, self.failed


def cuts(named, n, durability="snapshot"):
    """Torn writers of n snapshots and n dumps."""
    found, pauses = [], []
    with Scratch() as scratch, serve(scratch) as server:
        table = create(server, durability)
        writers = [Writer(server, table, number, named) for number in range(4)]
        with Pushing(writers, 0.004) as pushing:
            for i in range(n):
                before = pushing.pushes
                pauses.append(embctl_json(server, "snapshot", f"s{i}")["snapshot"][0]["pushes_waited_us"])
                found += torn(scratch(f"data/s{i}"))
                embctl(server, "dump", "--all", scratch(f"d{i}"))
                found += torn(scratch(f"d{i}"))
                while pushing.pushes < before + 4:
                    time.sleep(0.002)
    return found, pauses


def case_each_push_is_in_a_cut_on_all_shards_or_on_none():
    for durability in ("snapshot", "buffered"):
        found, pauses = cuts(True, 5, durability)
        assert not found, (durability, found)
        print(f"   {durability}: pushes waited {max(pauses)} us at most")


def case_without_names_cuts_are_torn():
    assert cuts(False, 4)[0]


def case_a_snapshot_waits_for_the_rest_of_a_push():
    with Scratch() as scratch, serve(scratch) as server:
        writer = Writer(server, create(server), 5)
        writer.push(0)
        writer.msgid += 1
        writer.send(2)
        writer.answered(2)
        with subprocess.Popen([EMBCTL, "snapshot", "late"], env=environment(server), stdout=subprocess.DEVNULL) as taking:
            time.sleep(0.3)
            assert taking.poll() is None
            writer.send(0)
            writer.answered(0)
            assert taking.poll() is None
            writer.send(1)
            writer.answered(1)
            assert taking.wait(10) == 0
        assert values(scratch("data/late")) == {5: [2] * SHARDS * KEYS}
        writer.push(0)
        writer.close()


def case_a_snapshot_whose_client_dies_leaves_the_server_well():
    with Scratch() as scratch, serve(scratch) as server:
        writers = [Writer(server, create(server), 0)]
        with Pushing(writers, 0) as pushing:
            for i in range(8):
                with subprocess.Popen([EMBCTL, "snapshot", f"k{i}"], env=environment(server), stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL) as taking:
                    time.sleep(0.004 * i)
                    taking.kill()
            before, end = pushing.pushes, time.monotonic() + 5
            while subprocess.run([EMBCTL, "snapshot", "whole"], env=environment(server), capture_output=True,
                                 check=False).returncode != 0:
                assert time.monotonic() < end
            assert not torn(scratch("data/whole"))
            while pushing.pushes == before:
                time.sleep(0.001)
        embctl(server, "table", "drop", "sums")


if __name__ == "__main__":
    run_cases(globals())
