"""Servers and the coordinator die at each step of a server's leaving the cluster. Afterwards all servers count without its shard, or all
with it, and it can be retired; a push under way is applied on all shards or on none. What is wrong is refused, and changes nothing."""
import json
import subprocess
import unittest

import wire
from listed import Listed
from mover import EMBCTL, MOVED, OWN, SCHEMA, owner, patient, placement, until

KEYS = range(64)
BASE = 3  # of the first map
EVEN = [vshard * 2 // 1024 for vshard in range(1024)]


class Cluster(Listed):
    """Three servers, of which the last one has no keys. The key k of table `t` is `pushes` * (k + 1)."""

    def __init__(self):
        super().__init__("abc")
        self.n, self.pushes, self.version, self.tables = 3, 0, 0, []

    def http(self, name):
        return self.port + 3 + "abc".index(name)

    def begin(self):
        for name in "abc":
            self.start(name)
        for shard in range(3):
            with self.data(shard) as peer:
                peer.call("table_create", {"schema": SCHEMA})
                self.tables.append(peer.call("table_describe", {"name": "t"})[0]["id"])
                wire.open_stream(peer, OWN, True)
        ran = subprocess.run([EMBCTL, "--servers", self.address("a"), "rebalance", "--drain", "2"], capture_output=True, text=True,
                             timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr
        self.version = 2
        with self.data(0) as peer:
            self.map = peer.call("cluster", {})[0]["placement"]["runs"]
        self.of_vshard = [shard for shard, n in zip(self.map[::2], self.map[1::2]) for _ in range(n)]
        self.push()
        self.push()
        return self

    def data(self, shard):
        return wire.connect(self.running["abc"[shard]], timeout=60)

    def admin(self, shard):
        return wire.Wire(self.path(f"admin/{self.port + shard}.sock"), timeout=60)

    def entry(self, shard):
        return {"address": self.address("abc"[shard]), "admin": self.path(f"admin/{self.port + shard}.sock")}

    def split(self):
        return {"placement": self.version}

    def keys_of(self, shard):
        return [key for key in KEYS if owner(self.of_vshard, key) == shard]

    def ask_push(self, peer, shard, sequence=None):
        keys = self.keys_of(shard)
        peer.begin("push", {"parts": [{"table": self.tables[shard], "keys": len(keys)}],
                            "writer": {**OWN, "sequence": sequence or self.pushes + 1}, **self.split()},
                   wire.keys(keys), wire.floats([-1.0 - key for key in keys]))

    def push(self):
        for shard in range(self.n):
            with self.data(shard) as peer:
                self.ask_push(peer, shard)
                assert peer.receive()[2] is None
        self.pushes += 1

    def note_retired(self):
        self.n, self.version = 2, 3

    def place(self, version):
        return placement(self.of_vshard, version, BASE)

    def told(self, shard):
        with self.data(shard) as peer:
            return peer.call("cluster", {})[0]

    def check(self, text):
        for shard in range(self.n):
            with self.data(shard) as peer:
                told = peer.call("cluster", {})[0]
                assert told["shards"] == [self.entry(i) for i in range(self.n)], (text, shard, told)
                assert told["placement"] == self.place(self.version), (text, shard, told)
                assert peer.call("hello", {"protocol": 1})[0]["shards"] == self.n
                keys = self.keys_of(shard)
                part = {"parts": [{"table": self.tables[shard], "keys": len(keys)}], **self.split()}
                found = wire.unfloats(peer.call("pull", part, wire.keys(keys))[1])
                assert found == [self.pushes * (key + 1.0) for key in keys], (text, shard)
                t = peer.call("table_describe", {"name": "t"})[0]
                assert (t["step"], t["rows"]) == (self.pushes, len(keys)), (text, shard, t)
                assert peer.call("writer", OWN)[0]["journaled"] == self.pushes, (text, shard)

    def identity(self, name):
        with open(self.path(f"{name}/identity.json"), encoding="ascii") as file:
            return json.load(file)


class Retirer:
    """Acts as a coordinator that has shard 2 leave; each method does a part of that."""
    last = 0

    def __init__(self, cluster):
        Retirer.last += 1
        self.cluster, self.id = cluster, 9000 + Retirer.last
        self.peers = [cluster.admin(shard) for shard in range(3)]

    def order(self):
        return {"phase": "begin", "id": self.id, "shards": 2, "retires": True, "placement": self.cluster.place(3)}

    def begin(self, **other):
        for peer in self.peers:
            patient(peer.call, "move", {**self.order(), **other})
        return self

    def hold(self):
        for peer in self.peers:
            patient(peer.call, "hold", {"timeout_ms": 60000})
        return self

    def replace(self, shard, phase):
        return self.peers[shard].call("table_replace", {"id": self.id, "phase": phase, "decision": self.id, "placement": True})

    def check(self):
        for shard in range(3):
            self.replace(shard, "check")
        return self

    def held(self):
        return self.begin().hold().check()

    def prepare(self, end=3):
        for shard in range(1, end):
            self.replace(shard, "prepare")
        return self

    def apply(self, *shards):
        for shard in shards:
            self.replace(shard, "apply")
        return self

    def leave(self):
        for peer in self.peers:
            peer.close()


# How far the coordinator comes, and whether shard 0 has decided.
POINTS = [("it has begun", lambda r: r.begin(), False), ("it holds", lambda r: r.begin().hold(), False),
          ("checked", lambda r: r.held(), False), ("prepared on one", lambda r: r.held().prepare(2), False),
          ("prepared on all", lambda r: r.held().prepare(), False),
          ("applied on shard 0", lambda r: r.held().prepare().apply(0), True),
          ("applied on shards 0 and 1", lambda r: r.held().prepare().apply(0, 1), True),
          ("applied on shards 0 and 2", lambda r: r.held().prepare().apply(0, 2), True),
          ("applied on all", lambda r: r.held().prepare().apply(0, 1, 2), True)]


class Dies(unittest.TestCase):
    DYING = ("", "a", "b", "c", "abc")

    def setUp(self):
        self.cluster = None

    def fresh(self):
        self.cluster = Cluster()
        self.addCleanup(self.cluster.__exit__, None, None, None)
        return self.cluster.begin()

    def loading(self, shard):
        try:
            with self.cluster.data(shard) as peer:
                return peer.call("hello", {"protocol": 1})[0].get("loading")
        except OSError:
            return "it does not listen yet"

    def restart(self, names):
        """One that has left, and knows it, does not start."""
        for name in names:
            if not self.cluster.identity(name).get("left"):
                self.cluster.start(name, waits=False)
        for name in names:
            if name in self.cluster.running:
                until(lambda shard="abc".index(name): self.loading(shard) is None)

    def die(self, point, dying):
        text, go, is_decided = point
        cluster = self.cluster if self.cluster is not None and self.cluster.n == 3 else self.fresh()
        retirer = Retirer(cluster)
        go(retirer)
        retirer.leave()
        for name in dying:
            cluster.kill(name)
        peers = {shard: cluster.data(shard) for shard in range(3) if "abc"[shard] in cluster.running}
        for shard, peer in peers.items():
            cluster.ask_push(peer, shard)
        self.restart(dying)
        for shard in range(3):
            if shard not in peers and "abc"[shard] in cluster.running:
                peers[shard] = cluster.data(shard)
                cluster.ask_push(peers[shard], shard)
        answers = [peer.receive()[2] for peer in peers.values()]
        for peer in peers.values():
            peer.close()
        outcomes = {None if answer is None else answer[0] for answer in answers}
        self.assertEqual(outcomes, {MOVED if is_decided else None}, (text, dying, answers))
        if is_decided:
            until(lambda: cluster.identity("c").get("left"))
            cluster.note_retired()
        else:
            cluster.pushes += 1
        cluster.check((text, dying))
        if is_decided and "c" in cluster.running:
            self.assertEqual(cluster.told(2)["shards"], [cluster.entry(0), cluster.entry(1)])
            cluster.kill("c")
        cluster.push()
        cluster.check((text, dying))

    def finish(self):
        """What was begun in vain is in nobody's way."""
        def ran():
            self.ran = subprocess.run([EMBCTL, "--servers", self.cluster.address("a"), "shard", "retire", "2"], capture_output=True,
                                      text=True, timeout=60, check=False)
            return self.ran.returncode == 0
        until(ran)
        self.cluster.note_retired()
        self.cluster.check("retired")
        self.cluster.kill("c")
        self.cluster.push()
        for names in ("a", "b", "ab"):
            for name in names:
                self.cluster.kill(name)
            self.restart(names)
            self.cluster.check(names)
        until(lambda: not any("moving" in self.cluster.identity(name) for name in "ab"))

    def test_all_servers_count_without_the_shard_or_all_with_it(self):
        for point in POINTS:
            for dying in self.DYING:
                with self.subTest(point=point[0], dying=dying):
                    self.die(point, dying)
            if not point[2]:
                self.finish()

    def test_a_server_in_doubt_that_comes_back_late_has_left(self):
        """Shard 0 remembers its last decision, and has made another one since."""
        cluster = self.fresh()
        retirer = Retirer(cluster).held().prepare()
        cluster.kill("c")
        retirer.apply(0, 1).leave()
        cluster.note_retired()
        ran = subprocess.run([EMBCTL, "--servers", cluster.address("a"), "rebalance", "--weights", "1,3"], capture_output=True, text=True,
                             timeout=60, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertFalse(cluster.identity("c").get("left", False))
        cluster.start("c", waits=False)
        until(lambda: cluster.identity("c").get("left"))
        until(lambda: self.loading(2) is None)
        self.assertEqual(cluster.told(2)["shards"], [cluster.entry(0), cluster.entry(1)])
        with cluster.data(2) as peer:
            peer.begin("table_create", {"schema": {**SCHEMA, "name": "other"}})
            self.assertEqual(peer.receive()[2][0], MOVED)

    def test_a_push_that_was_applied_by_an_earlier_map_is_answered_so_by_all(self):
        cluster = self.fresh()
        Retirer(cluster).held().prepare().apply(0, 1, 2).leave()
        for shard in range(3):
            for sequence, status in ((cluster.pushes, None), (cluster.pushes + 1, MOVED)):
                with cluster.data(shard) as peer:
                    cluster.ask_push(peer, shard, sequence)
                    answer = peer.receive()
                    self.assertEqual(answer[2] and answer[2][0], status, (shard, answer))
                    if status is None:
                        self.assertTrue(answer[3][0]["again"], answer)

    def test_what_is_wrong_is_refused_by_name_and_changes_nothing(self):
        cluster = self.fresh()
        before = [cluster.identity(name).get("cluster_shards") for name in "abc"], cluster.told(0), cluster.told(2)
        keeps = list(cluster.of_vshard)
        moves = keeps[:-1] + [1 - keeps[-1]]
        wrong = [({"retires": False}, "'retires' goes with fewer"), ({"shards": 3}, "'retires' goes with fewer"),
                 ({"placement": placement(keeps, 4, BASE)}, "next version is 3"), ({"placement": placement(keeps, 3, 2)}, "same base"),
                 ({"placement": placement(moves, 3, BASE)}, "fewer shards, and moves keys"),
                 ({"shards": 1}, "vshards of shard 1"), ({"members": [cluster.entry(2)]}, "members")]
        for fields, why in wrong:
            for shard in range(3):
                with cluster.admin(shard) as peer, self.subTest(fields=fields, shard=shard):
                    peer.begin("move", {**Retirer(cluster).order(), **fields})
                    answer = peer.receive()
                    self.assertIsNotNone(answer[2])
                    self.assertIn(why, answer[2][1])
        after = [cluster.identity(name).get("cluster_shards") for name in "abc"], cluster.told(0), cluster.told(2)
        self.assertEqual(after, before)
        cluster.push()
        cluster.check("refused")
        self.finish()


if __name__ == "__main__":
    unittest.main()
