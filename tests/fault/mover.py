"""A cluster of two servers of two shards whose keys move, and a mover that acts as a coordinator does, step by step, in raw frames."""
import json
import os
import subprocess
import time
import unittest
import unittest.mock

import wire
from gate import Gate
from listed import Listed

EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
SHARDS, VSHARDS = 4, 1024
MOVED = 26
OWN = {"high": 1, "low": 2, "stream": 0}
KEYS = range(96)
SCHEMA = wire.constant_schema("t", 1, value=0.0, durability="durable", optimizer={"kind": "sgd", "lr": 1.0})
RARE = wire.constant_schema("rare", 1, value=0.0, durability="durable", optimizer={"kind": "sgd", "lr": 1.0}, admit_after=3)
EVEN = [vshard * SHARDS // VSHARDS for vshard in range(VSHARDS)]


def until(look, seconds=60):
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, "nothing came of it"
        time.sleep(0.01)
    return found


def patient(fn, *arguments):
    """Again while it is BUSY."""
    def attempt():
        try:
            return [fn(*arguments)]
        except wire.RpcError as error:
            if error.number != wire.BUSY:
                raise
    return until(attempt)[0]


def owner(of_vshard, key):
    return of_vshard[wire.mix64(key) >> 54]


def turned(of_vshard, by=1):
    """A map in which the first quarter of each shard's vshards is the next shard's."""
    found, seen = list(of_vshard), [0] * SHARDS
    for vshard, shard in enumerate(of_vshard):
        if seen[shard] < 64:
            found[vshard] = (shard + by) % SHARDS
        seen[shard] += 1
    return found


def placement(of_vshard, version, base=SHARDS):
    runs = []
    for shard in of_vshard:
        if runs and runs[-2] == shard:
            runs[-1] += 1
        else:
            runs += [shard, 1]
    return {"version": version, "base": base, "runs": runs}


class Cluster(Listed):
    """The key k of table `t` is `pushes` * (k + 1) everywhere. Table `rare` has seen its keys twice, and has no rows."""

    def __init__(self, more=""):
        super().__init__("ab", more, shards=2)
        self.map, self.version, self.pushes = EVEN, 1, 0
        self.n_moves, self.tables = 0, []

    def begin(self):
        for name in self.names:
            self.start(name)
        for shard in range(SHARDS):
            with self.data(shard) as peer:
                for schema in (SCHEMA, RARE):
                    peer.call("table_create", {"schema": schema})
                self.tables.append(self.id(peer, "t"))
                wire.open_stream(peer, OWN, True)
        for _ in range(2):
            self.push()
        for _ in range(2):
            for shard in range(SHARDS):
                with self.data(shard) as peer:
                    self.push_rare(peer, shard)
        return self

    def data(self, shard):
        return wire.connect(self.running[self.names[shard // 2]], shard % 2, timeout=60)

    def admin(self, shard):
        return wire.Wire(self.path(f"admin/{self.port + shard}.sock"), timeout=60)

    def keys_of(self, shard, of_vshard=None):
        return [key for key in KEYS if owner(of_vshard or self.map, key) == shard]

    def split(self):
        """What a request says about the map that it was split by."""
        return {"placement": self.version} if self.map != EVEN else {}

    def id(self, peer, name):
        return peer.call("table_describe", {"name": name})[0]["id"]

    def push_rare(self, peer, shard):
        keys = self.keys_of(shard)
        peer.call("push", {"parts": [{"table": self.id(peer, "rare"), "keys": len(keys)}], **self.split()}, wire.keys(keys),
                  wire.floats([-1.0] * len(keys)))

    def ask_push(self, peer, shard):
        """The next push, split by the map that the cluster has now."""
        keys = self.keys_of(shard)
        peer.begin("push", {"parts": [{"table": self.tables[shard], "keys": len(keys)}], "writer": {**OWN, "sequence": self.pushes + 1},
                            **self.split()}, wire.keys(keys), wire.floats([-1.0 - key for key in keys]))

    def push(self):
        for shard in range(SHARDS):
            with self.data(shard) as peer:
                self.ask_push(peer, shard)
                assert peer.receive()[2] is None
        self.pushes += 1

    def next_version(self):
        return self.version + 1

    def note_moved(self, of_vshard):
        self.map, self.version = of_vshard, self.next_version()

    def pull(self, peer, table, keys):
        return wire.unfloats(peer.call("pull", {"parts": [{"table": table, "keys": len(keys)}], **self.split()}, wire.keys(keys))[1])

    def state(self, shard):
        with self.admin(shard) as peer:
            return peer.call("move", {"phase": "state"})[0]

    def until_swept(self):
        until(lambda: not any(self.state(shard)["moving"] for shard in range(SHARDS)))

    def check(self, text=""):
        """All shards have one map; each key is on its shard alone, with all that was pushed."""
        self.until_swept()
        for shard in range(SHARDS):
            with self.data(shard) as peer:
                told = peer.call("cluster", {})[0].get("placement", placement(EVEN, 1))
                assert told == placement(self.map, self.version), (text, shard, told)
                t = peer.call("table_describe", {"name": "t"})[0]
                keys = self.keys_of(shard)
                assert self.pull(peer, t["id"], keys) == [self.pushes * (key + 1.0) for key in keys], (text, shard)
                assert t["step"] == self.pushes, (text, shard, t["step"])
                assert peer.call("writer", OWN)[0]["journaled"] == self.pushes, (text, shard)
                found = self.listed(peer, "t")
                assert found == keys, (text, shard, sorted(set(found) ^ set(keys)))
                rare = peer.call("table_describe", {"name": "rare"})[0]
                assert (t["rows"], rare["rows"], rare["candidates"]) == (len(keys), 0, len(keys)), (text, shard, t["rows"], rare)
        for name in self.names:
            with open(self.path(f"{name}/identity.json"), encoding="ascii") as file:
                found = json.load(file)
                assert "moving" not in found, (text, found)

    def listed(self, peer, table):
        answer = peer.call("keys", {"table": table})
        return sorted(memoryview(answer[1]).cast("Q"))


class Mover:
    """Acts as a coordinator that moves keys to `of_vshard`; `stop` lets it do a part of that."""

    def __init__(self, cluster, of_vshard=None):
        cluster.n_moves += 1
        self.cluster, self.id = cluster, 7000 + cluster.n_moves
        self.map = of_vshard or turned(cluster.map)
        self.peers = [cluster.admin(shard) for shard in range(SHARDS)]
        self.moved = 0

    def begin(self):
        for shard in range(SHARDS):
            place = placement(self.map, self.cluster.next_version())
            patient(self.peers[shard].call, "move", {"phase": "begin", "id": self.id, "placement": place})
        return self

    def read(self, shard, final=False):
        """The next block: None, the round is over."""
        head, *bins = self.peers[shard].call("move", {"phase": "read", "id": self.id, "final": final})
        assert not head["waits"] or not bins
        if head["done"]:
            return None
        return (head, *bins) if head["rows"] + head["candidates"] > 0 else ()

    def load(self, block):
        """Of tables without slots."""
        for to in range(SHARDS):
            if self.send(block, to):
                reply = self.peers[to].receive()
                if reply[2] is not None:
                    raise wire.RpcError(*reply[2])

    def send(self, block, to):
        """What of the block goes to that shard; nobody waits for the answer. Whether there is any."""
        head, keys, rows, *states, candidates, counts = block
        keys, candidates, counts = memoryview(keys).cast("Q"), memoryview(candidates).cast("Q"), memoryview(counts).cast("I")
        gone = len(keys) == 0 and len(counts) > 0 and counts[0] == 0
        widths = [head["row_bytes"], head["state_bytes"]]
        r = [i for i, key in enumerate(keys) if owner(self.map, key) == to]
        c = [i for i, key in enumerate(candidates) if owner(self.map, key) == to]
        if not r and not c:
            return False
        arrays = [b"".join(array[i * width:(i + 1) * width] for i in r) for array, width in zip([rows, *states], widths)]
        self.peers[to].begin("move_load", {"id": self.id, "table": head["table"], "rows": len(r), "candidates": len(c), "gone": gone},
                             wire.keys([keys[i] for i in r]), *arrays, wire.keys([candidates[i] for i in c]),
                             wire.offsets([counts[i] for i in c]))
        self.moved += len(r)
        return True

    def round(self, final=False):
        for shard in range(SHARDS):
            while (block := self.read(shard, final)) is not None:
                if block:
                    self.load(block)
        return self

    def hold(self, ms=60000):
        for peer in self.peers:
            patient(peer.call, "hold", {"timeout_ms": ms})
        return self

    def replace(self, shard, phase, **more):
        return self.peers[shard].call("table_replace", {"id": self.id, "phase": phase, "decision": self.id, "placement": True, **more})

    def check(self):
        for shard in range(SHARDS):
            self.replace(shard, "check")
        return self

    def prepare(self, first=1, end=SHARDS):
        for shard in range(first, end):
            self.replace(shard, "prepare")
        return self

    def apply(self, first=0, end=SHARDS):
        for shard in range(first, end):
            self.replace(shard, "apply")
        return self

    def copied(self):
        """Everything up to the check, under a hold."""
        return self.begin().round().hold().round(final=True).check()

    def leave(self):
        for peer in self.peers:
            peer.close()

    def all(self):
        self.copied().prepare().apply().leave()
        self.cluster.note_moved(self.map)


class WithCluster(unittest.TestCase):
    more = ""  # of the servers' configuration

    def setUp(self):
        self.cluster = Cluster(self.more)
        self.addCleanup(self.cluster.__exit__, None, None, None)
        self.cluster.begin()

    def embctl(self, *words):
        return subprocess.run([EMBCTL, *words], env={**os.environ, "EMBD_SERVERS": self.cluster.address("a")}, capture_output=True,
                              text=True, timeout=60, check=False)

    def told_loading(self, shard):
        """Why it is not ready; None: it is."""
        try:
            with self.cluster.data(shard) as peer:
                return peer.call("hello", {"protocol": 1})[0].get("loading")
        except OSError:
            return "it does not listen yet"

    def until_ready(self, *names):
        for shard in range(SHARDS):
            if self.cluster.names[shard // 2] in names:
                until(lambda shard=shard: self.told_loading(shard) is None)

    def restart(self, *names):
        for name in names:
            self.cluster.start(name, waits=False)
        self.until_ready(*names)

    def start_with_gate(self, name):
        gate = Gate()
        self.addCleanup(gate.scratch.cleanup)
        self.cluster.kill(name)
        with unittest.mock.patch.dict(os.environ, gate.environment()):
            self.cluster.start(name)
        self.addCleanup(gate.open)
        return gate
