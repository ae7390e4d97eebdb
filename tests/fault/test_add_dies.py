"""Servers and the coordinator die at each step of a server's becoming a member. Afterwards all servers count with its shard, which has
the tables, steps and streams of the others, or none does, and it can be added; a push under way is applied on all shards or on none."""
import json
import os
import subprocess
import unittest

import wire
from listed import Listed
from mover import EMBCTL, MOVED, OWN, SCHEMA, owner, patient, placement, until

KEYS = range(64)
EVEN = [vshard * 2 // 1024 for vshard in range(1024)]
NOT_YET, IS_MEMBER = wire.BUSY, wire.INVALID


class Cluster(Listed):
    """Two servers, and a third one that is to become a member. The key k of table `t` is `pushes` * (k + 1)."""

    def __init__(self):
        super().__init__("abc")
        self.n, self.pushes, self.tables = 2, 0, []

    def http(self, name):
        return self.port + 3 + "abc".index(name)

    def begin(self):
        self.names = "ab"
        self.write()
        for name in "ab":
            self.start(name)
        self.names = "abc"
        self.write()
        self.start("c", "--join")
        for shard in range(2):
            with self.data(shard) as peer:
                peer.call("table_create", {"schema": SCHEMA})
                self.tables.append(peer.call("table_describe", {"name": "t"})[0]["id"])
                wire.open_stream(peer, OWN, True)
        self.push()
        self.push()
        return self

    def data(self, shard):
        return wire.connect(self.running["abc"[shard]], timeout=60)

    def admin(self, shard):
        return wire.Wire(self.path(f"admin/{self.port + shard}.sock"), timeout=60)

    def entry(self, shard):
        return {"address": self.address("abc"[shard]), "admin": self.path(f"admin/{self.port + shard}.sock")}

    def ask_push(self, peer, shard, sequence=None):
        keys = [key for key in KEYS if shard < 2 and owner(EVEN, key) == shard]
        peer.begin("push", {"parts": [{"table": self.tables[shard], "keys": len(keys)}],
                            "writer": {**OWN, "sequence": sequence or self.pushes + 1},
                            **({"placement": 2} if self.n == 3 else {})}, wire.keys(keys), wire.floats([-1.0 - key for key in keys]))

    def push(self):
        for shard in range(self.n):
            with self.data(shard) as peer:
                self.ask_push(peer, shard)
                assert peer.receive()[2] is None
        self.pushes += 1

    def note_added(self):
        self.n = 3
        with self.data(2) as peer:
            self.tables.append(patient(peer.call, "table_describe", {"name": "t"})[0]["id"])

    def check(self, text):
        for shard in range(self.n):
            with self.data(shard) as peer:
                told = peer.call("cluster", {})[0]
                assert told["shards"] == [self.entry(i) for i in range(self.n)], (text, shard, told)
                assert told.get("placement", placement(EVEN, 1, 2)) == placement(EVEN, self.n - 1, 2), (text, shard, told)
                assert peer.call("hello", {"protocol": 1})[0]["shards"] == self.n
                keys = [key for key in KEYS if owner(EVEN, key) == shard]
                part = {"parts": [{"table": self.tables[shard], "keys": len(keys)}], **({"placement": 2} if self.n == 3 else {})}
                found = wire.unfloats(peer.call("pull", part, wire.keys(keys))[1])
                assert found == [self.pushes * (key + 1.0) for key in keys], (text, shard)
                t = peer.call("table_describe", {"name": "t"})[0]
                assert (t["step"], t["rows"]) == (self.pushes, len(keys)), (text, shard, t)
                assert peer.call("writer", OWN)[0]["journaled"] == self.pushes, (text, shard)
        with self.data(2) as peer:
            peer.begin("cluster", {"joins": self.n == 3})
            assert peer.receive()[2][0] == (IS_MEMBER if self.n == 3 else NOT_YET), text


class Adder:
    """Acts as a coordinator that adds shard 2; each method does a part of that."""
    last = 0

    def __init__(self, cluster):
        Adder.last += 1
        self.cluster, self.id = cluster, 9000 + Adder.last
        self.peers = [cluster.admin(shard) for shard in range(3)]

    def begin(self):
        for peer in self.peers:
            patient(peer.call, "move", {"phase": "begin", "id": self.id, "shards": 3, "placement": placement(EVEN, 2, 2),
                                        "members": [self.cluster.entry(2)]})
        return self

    def hold(self):
        for peer in self.peers[:2]:
            patient(peer.call, "hold", {"timeout_ms": 60000})
        return self

    def stage(self):
        peer = self.peers[2]
        patient(peer.call, "table_stage", {"id": self.id, "schema": SCHEMA})
        peer.call("load", {"table": "t", "rows": 0, "candidates": 0, "step": self.cluster.pushes, "staged": self.id}, b"", b"", b"", b"")
        head, journaled, other = self.peers[0].call("move", {"phase": "streams", "id": self.id})
        assert (head, len(journaled), other) == ({"journaled": 1, "other": 0}, 40, b"")
        peer.call("table_stage", {"id": self.id, "writers": 1, "journaled": True, "all": True}, journaled)
        peer.call("move", {"phase": "marks", "id": self.id, "clients": 1}, wire.keys([77]), wire.offsets([5]))
        patient(peer.call, "hold", {"timeout_ms": 60000})
        return self

    def replace(self, shard, phase, **more):
        return self.peers[shard].call("table_replace", {"id": self.id, "phase": phase, "decision": self.id, "placement": True, **more})

    def check(self):
        for shard in range(3):
            patient(lambda of=shard: self.replace(of, "check", **({"tables": 1} if of == 2 else {})))  # until followers are ready
        return self

    def held(self):
        return self.begin().hold().stage().check()

    def prepare(self, end=3):
        for shard in range(1, end):
            self.replace(shard, "prepare")
        return self

    def apply(self, end=3):
        for shard in range(end):
            self.replace(shard, "apply")
        return self

    def leave(self):
        for peer in self.peers:
            peer.close()


# How far the coordinator comes, and whether shard 0 has decided.
POINTS = [("it has begun", lambda a: a.begin(), False), ("it holds", lambda a: a.begin().hold(), False),
          ("tables are staged", lambda a: a.begin().hold().stage(), False), ("checked", lambda a: a.held(), False),
          ("prepared on one", lambda a: a.held().prepare(2), False), ("prepared on all", lambda a: a.held().prepare(), False),
          ("applied on shard 0", lambda a: a.held().prepare().apply(1), True),
          ("applied on shard 1", lambda a: a.held().prepare().apply(2), True),
          ("applied on all", lambda a: a.held().prepare().apply(), True)]


class Dies(unittest.TestCase):
    DYING = ("", "a", "b", "c", "abc")

    def setUp(self):
        self.cluster = None

    def fresh(self):
        self.cluster = Cluster()
        self.addCleanup(self.cluster.__exit__, None, None, None)
        return self.cluster.begin()

    def embctl(self, *words):
        return subprocess.run([EMBCTL, "--servers", self.cluster.address("a"), *words], capture_output=True, text=True, timeout=60,
                              check=False)

    def loading(self, shard):
        try:
            with self.cluster.data(shard) as peer:
                return peer.call("hello", {"protocol": 1})[0].get("loading")
        except OSError:
            return "it does not listen yet"

    def restart(self, names):
        for name in names:
            self.cluster.start(name, *(["--join"] if name == "c" else []), waits=False)
        for name in names:
            until(lambda shard="abc".index(name): self.loading(shard) is None)

    def die(self, point, dying):
        text, go, is_decided = point
        cluster = self.cluster if self.cluster is not None and self.cluster.n == 2 else self.fresh()
        adder = Adder(cluster)
        go(adder)
        adder.leave()
        for name in dying:
            cluster.kill(name)
        peers = {shard: cluster.data(shard) for shard in range(2) if "ab"[shard] not in dying}
        for shard, peer in peers.items():
            cluster.ask_push(peer, shard)
        self.restart(dying)
        for shard in range(2):
            if shard not in peers:
                peers[shard] = cluster.data(shard)
                cluster.ask_push(peers[shard], shard)
        answers = [peers[shard].receive()[2] for shard in range(2)]
        for peer in peers.values():
            peer.close()
        outcomes = {None if answer is None else answer[0] for answer in answers}
        self.assertEqual(outcomes, {MOVED if is_decided else None}, (text, dying, answers))
        if is_decided:
            until(lambda: self.is_member())
            cluster.note_added()
        else:
            cluster.pushes += 1
        cluster.check((text, dying))
        cluster.push()
        cluster.check((text, dying))

    def is_member(self):
        with self.cluster.data(2) as peer:
            peer.begin("cluster", {})
            return peer.receive()[2] is None

    def finish(self):
        """What was begun in vain is in nobody's way."""
        def ran():
            self.ran = self.embctl("shard", "add", self.cluster.address("c"))
            return self.ran.returncode == 0
        until(ran)
        self.cluster.note_added()
        self.cluster.check("added")
        self.cluster.push()
        self.cluster.check("added")
        for name in "abc":
            with open(self.cluster.path(f"{name}/identity.json"), encoding="ascii") as file:
                self.assertEqual({"joins", "moving"} & set(json.load(file)), set())

    def test_all_servers_count_with_the_new_shard_or_none_does(self):
        for point in POINTS:
            for dying in self.DYING:
                with self.subTest(point=point[0], dying=dying):
                    self.die(point, dying)
            if not point[2]:
                self.finish()

    def test_a_push_that_was_applied_by_an_earlier_map_is_answered_so(self):
        """Its answer was lost with its connection; one that was not applied is refused."""
        cluster = self.fresh()
        Adder(cluster).held().prepare().apply().leave()
        for sequence, status in ((cluster.pushes, None), (cluster.pushes + 1, MOVED)):
            with cluster.data(1) as peer:
                cluster.ask_push(peer, 1, sequence)
                answer = peer.receive()
                self.assertEqual(answer[2] and answer[2][0], status, answer)
                if status is None:
                    self.assertTrue(answer[3][0]["again"], answer)
        cluster.note_added()
        cluster.check("again")


if __name__ == "__main__":
    unittest.main()
