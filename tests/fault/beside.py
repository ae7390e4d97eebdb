"""What goes on beside pushes while a server is killed: embctl makes a snapshot, whole or of what changed, or loads a table;
or the server still reads its journal. After each kill what was said to be done is there and whole; what was not is whole,
in part under another name, or refused until it is dropped; and a snapshot has pushes as the oracle's clients made them."""
import glob
import os
import random
import shutil
import struct
import subprocess
import tempfile
import time

import oracle
import wire
from embd_process import Embd

EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
OK, REFUSED = 0, 5
ROWS = 6000
OTHER = "other"


class NotWhole(Exception):
    pass


def start(server, *words):
    return subprocess.Popen([EMBCTL, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "EMBD_SERVERS": server.addresses[0] if server else ""})


def run(server, *words):
    """Its exit status, and what it said."""
    done = start(server, *words)
    _, said = done.communicate(timeout=60)
    return done.returncode, said


def must(server, *words):
    status, said = run(server, *words)
    if status != OK:
        raise NotWhole(f"embctl {' '.join(words)}: {said}")


def row(key):
    return struct.pack("<2f", key % oracle.MODULUS, 1.0)


class Act:
    """A run of embctl that the kill may end. `took`: seconds that one is guessed to take."""

    def __init__(self):
        self.child, self.took, self.n_done, self.n_killed = None, 0.05, 0, 0

    def begin(self, server, *words):
        self.child = start(server, *words)

    def wait(self):
        """Until some moment before or a little after it is done."""
        time.sleep(random.uniform(0, 1.3 * self.took))
        self.took *= 1.2 if self.child.poll() is None else 0.9

    def end(self):
        """Whether it was done. One that still tries to reach the server that was killed is ended."""
        try:
            self.child.communicate(timeout=0.1)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.communicate()
        is_done, self.child = self.child.returncode == OK, None
        self.n_done += is_done
        self.n_killed += not is_done
        return is_done


class Snapshot(Act):
    """s0, s1, ...; `is_upon`: upon one that is made first."""

    def __init__(self, data, clients, is_upon):
        super().__init__()
        self.data, self.clients, self.is_upon = data, clients, is_upon
        self.made, self.acked = [], {}

    def go(self, server):
        number = f"{'i' if self.is_upon else 's'}{self.n_done + self.n_killed}"
        upon = []
        if self.is_upon:
            upon = ["--incremental", number + "-base"]
            must(server, "snapshot", number + "-base")
        self.clients.note()
        self.number, self.acked[number] = number, dict(self.clients.acked)
        self.begin(server, "snapshot", number, *upon)

    def check(self, _server):
        """The clients have ended: no push that a snapshot may have is behind what they sent."""
        path = os.path.join(self.data, self.number)
        try:
            if self.end() and not os.path.isdir(path):
                raise NotWhole(f"snapshot {self.number} was made and is not there")
            if os.path.isdir(path):
                must(None, "verify", path)
                self.check_pushes(path, self.acked[self.number])
        finally:
            for left in glob.glob(os.path.join(self.data, "[is][0-9]*")):
                shutil.rmtree(left)

    def check_pushes(self, path, acked):
        with tempfile.TemporaryDirectory() as empty, Embd("--data-dir", empty) as server:
            must(server, "load", "--table", oracle.TABLE, path)
            with wire.connect(server) as peer:
                table = peer.call("table_describe", {"name": oracle.TABLE})[0]["id"]
                for row in self.clients.rows():
                    try:
                        oracle.counts(wire.pull(peer, table, [row[1]]), self.clients.bounds(row, acked))
                    except oracle.LostPush as error:
                        raise NotWhole(f"snapshot {self.number}, key {row[1]}: {error}") from error


class Load(Act):
    """A table of ROWS rows, which are checked after the next start and dropped."""

    def __init__(self, dump, shards):
        super().__init__()
        self.dump, self.shards, self.is_done = dump, shards, None

    def go(self, server):
        self.begin(server, "load", "--table", OTHER, self.dump)

    def check(self, server):
        if not self.end():
            self.load_again(server)
        if self.count(server) != ROWS:
            raise NotWhole(f"{self.count(server)} of {ROWS} rows after a load")
        must(server, "table", "drop", OTHER)

    def load_again(self, server):
        n = self.count(server)
        status, said = run(server, "load", "--table", OTHER, self.dump)
        if status not in (OK, REFUSED) or (status == OK) != (n == 0):
            raise NotWhole(f"a load behind one that left {n} of {ROWS} rows ends with {status}: {said}")
        if status == REFUSED and n < ROWS:
            must(server, "table", "drop", OTHER)
            must(server, "load", "--table", OTHER, self.dump)

    def count(self, server):
        """Rows there are, each as it was dumped."""
        n = 0
        for shard in range(self.shards):
            with wire.connect(server, shard) as peer:
                if OTHER not in [t["name"] for t in peer.call("tables")[0]["tables"]]:
                    continue
                table = peer.call("table_describe", {"name": OTHER})[0]["id"]
                mine = range(shard, ROWS, self.shards)
                part = {"table": table, "keys": len(mine), "status": True}
                _, values, statuses = peer.call("pull", {"parts": [part]}, wire.keys(mine))
                for i, key in enumerate(mine):
                    if statuses[i] == 0 and values[8 * i:8 * i + 8] != row(key):
                        raise NotWhole(f"key {key} was loaded as {values[8 * i:8 * i + 8]}")
                n += bytes(statuses).count(0)
        return n


def make_dump(path, durability):
    """A dump with that table."""
    with tempfile.TemporaryDirectory() as data, Embd("--data-dir", data) as server:
        with wire.connect(server) as peer:
            schema = {"name": OTHER, "dim": 2, "combiner": "concat", "partition": "modulo",
                      "optimizer": {"kind": "sgd", "lr": 1.0}, "initializer": {"kind": "constant", "a": 0.0},
                      "durability": durability}
            table = peer.call("table_create", {"schema": schema})[0]["id"]
            peer.call("push", {"parts": [{"table": table, "keys": ROWS}]}, wire.keys(range(ROWS)),
                      b"".join(wire.floats([-(key % oracle.MODULUS), -1.0]) for key in range(ROWS)))
        must(server, "dump", "--all", path)


class Nothing:
    """Beside the pushes. `go`: until the kill; `killed`: also the clients have ended; `check`: a server has started again."""

    def __init__(self, data, clients):
        self.data, self.clients = data, clients

    def go(self, server):
        pass

    def killed(self):
        pass

    def check(self, server):
        pass

    def __str__(self):
        return ""


class InTurn(Nothing):
    """Nothing, a snapshot, one of what changed, a load; behind each snapshot, one more kill while the server starts."""

    def __init__(self, data, clients, dump, shards):
        super().__init__(data, clients)
        self.acts = [Snapshot(data, clients, False), Snapshot(data, clients, True), Load(dump, shards)]
        self.shards, self.turn, self.n_starts, self.n_early = shards, 0, 0, 0
        self.last = None

    def go(self, server):
        turn, self.turn = self.turn % (len(self.acts) + 1), self.turn + 1
        self.last = self.acts[turn - 1] if turn else None
        if self.last:
            self.last.go(server)
            self.last.wait()

    def killed(self):
        if self.last is not self.acts[0]:
            return
        server = Embd("--data-dir", self.data, shards=self.shards, waits=False)
        time.sleep(random.uniform(0, 0.04))
        server.kill()
        self.n_starts += 1
        self.n_early += "info ready" not in server.last_log

    def check(self, server):
        if self.last:
            self.last.check(server)
            self.last = None

    def __str__(self):
        told = ", ".join(f"{act.n_done} {name} ended and {act.n_killed} did not"
                         for act, name in zip(self.acts, ("snapshots", "increments", "loads")))
        return f"; {told}; {self.n_early} of {self.n_starts} more kills before a start was over"
