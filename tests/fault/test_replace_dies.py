"""Servers and the coordinator die at each step of a replacement of tables. Afterwards all shards have the new tables or all the old
ones, with their steps and streams of numbered pushes, and a push under way is applied on all shards or on none."""
import os
import random
import re
import select
import shutil
import subprocess
import tempfile
import time
import unittest
import unittest.mock

import wire
from certificates import Authority
from embd_process import Embd
from gate import Gate
from listed import Listed

EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
GAP, FORGOTTEN, SHARDS = 21, 22, 4
OWN = {"high": 1, "low": 2, "stream": 0}
KEYS = [[key for key in range(24) if key % SHARDS == shard] for shard in range(SHARDS)]
SCHEMA = wire.constant_schema("t", 1, value=0.0, partition="modulo", durability="durable", optimizer={"kind": "sgd", "lr": 1.0})
# How far the coordinator comes: the shards that have prepared, and that have applied.
POINTS = [("check", 0, 0), ("prepare on one", 1, 0), ("prepare on all", 3, 0), ("apply on shard 0", 3, 1),
          ("apply on shard 1", 3, 2), ("apply on shard 2", 3, 3)]


def until(look, seconds=30):
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


class Cluster(Listed):
    """Two servers of two shards each, with the table `t` of rows of one value."""

    def __init__(self):
        super().__init__("ab", shards=2)
        self.value, self.step, self.last = 0.0, 0, 0
        self.n_loads = 0

    def begin(self):
        for name in self.names:
            self.start(name)
        for shard in range(SHARDS):
            with self.data(shard) as peer:
                wire.create(peer, "other", 1, durability="durable")
                peer.call("table_create", {"schema": SCHEMA})
                wire.open_stream(peer, OWN, True)
        for _ in range(3):
            self.push()
        return self

    def data(self, shard):
        return wire.connect(self.running[self.names[shard // 2]], shard % 2, timeout=60)

    def admin(self, shard):
        return wire.Wire(self.path(f"admin/{self.port + shard}.sock"), timeout=60)

    def ask_push(self, peer, shard, sequence):
        """Adds 1 to each row."""
        part = {"table": peer.call("table_describe", {"name": "t"})[0]["id"], "keys": len(KEYS[shard])}
        return peer.begin("push", {"parts": [part], "writer": {**OWN, "sequence": sequence}}, wire.keys(KEYS[shard]),
                          wire.floats([-1.0] * len(KEYS[shard])))

    def end_push(self, peer, shard, sequence, asked=False):
        """Whether it is applied; None: its number does not fit."""
        if not asked:
            self.ask_push(peer, shard, sequence)
        error = peer.receive()[2]
        assert error is None or error[0] in (GAP, FORGOTTEN), error
        return True if error is None else None

    def push(self):
        for shard in range(SHARDS):
            with self.data(shard) as peer:
                assert self.end_push(peer, shard, self.last + 1)
        self.note_push()

    def note_push(self):
        self.value, self.step, self.last = self.value + 1, self.step + 1, self.last + 1

    def look(self, shard):
        with self.data(shard) as peer:
            told = peer.call("table_describe", {"name": "t"})[0]
            values = set(wire.pull(peer, told["id"], KEYS[shard]))
            return values, told["step"], peer.call("writer", OWN)[0]["journaled"]

    def check(self, text):
        for shard in range(SHARDS):
            found = self.look(shard)
            assert found == ({self.value}, self.step, self.last), (text, shard, found, self.value, self.step, self.last)


class Load:
    """As a loader and a coordinator: tables are staged on all shards, and as many shards prepare and apply as it is told."""

    def __init__(self, cluster, table="t"):
        cluster.n_loads += 1
        self.id, self.decision = cluster.n_loads, 1000 + cluster.n_loads
        self.value, self.step, self.last = 100.0 * self.id, 50 * self.id, cluster.last - 1
        self.loaders = [cluster.admin(shard) for shard in range(SHARDS)]
        self.coordinator = [cluster.admin(shard) for shard in range(SHARDS)]
        for shard, loader in enumerate(self.loaders):
            patient(loader.call, "table_stage", {"id": self.id, "schema": {**SCHEMA, "name": table}})
            n = len(KEYS[shard])
            loader.call("load", {"table": table, "rows": n, "candidates": 0, "step": self.step, "staged": self.id},
                        wire.keys(KEYS[shard]), wire.floats([self.value] * n), b"", b"")
            loader.call("table_stage", {"id": self.id, "writers": 1}, wire.keys([1, 2, self.last, 0, 0]))

    def ask(self, shard, phase, **more):
        return self.coordinator[shard].call("table_replace", {"id": self.id, "phase": phase, "decision": self.decision, **more})

    def go(self, n_prepared, n_applied, hold_ms=60000):
        for peer in self.coordinator:
            patient(peer.call, "hold", {"timeout_ms": hold_ms})
        for shard in range(SHARDS):
            self.ask(shard, "check", tables=1)
        for shard in range(1, 1 + n_prepared):
            self.ask(shard, "prepare")
        for shard in range(n_applied):
            self.ask(shard, "apply")
        return self

    def leave(self, loaders_too=True):
        for peer in self.coordinator + self.loaders * loaders_too:
            peer.close()

    def note(self, cluster):
        cluster.value, cluster.step, cluster.last = self.value, self.step, self.last


class Dies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster().__enter__().begin()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def die(self, point, dying, loaders_too):
        cluster, (text, n_prepared, n_applied) = self.cluster, point
        load = Load(cluster).go(n_prepared, n_applied)
        sequence = cluster.last + 1
        load.leave(loaders_too)
        for name in dying:
            cluster.kill(name)
        alive = [shard for shard in range(SHARDS) if cluster.names[shard // 2] not in dying]
        peers = {shard: cluster.data(shard) for shard in alive}
        for shard, peer in peers.items():
            cluster.ask_push(peer, shard, sequence)
        for name in dying:
            cluster.start(name, waits=False)
        self.until_ready(*dying)
        for shard in range(SHARDS):
            peers[shard] = peers.get(shard) or cluster.data(shard)
        applied = {cluster.end_push(peers[shard], shard, sequence, asked=shard in alive) for shard in range(SHARDS)}
        for peer in peers.values():
            peer.close()
        load.leave()
        if n_applied > 0:
            load.note(cluster)
        else:
            cluster.note_push()
        self.assertEqual(applied, {None if n_applied > 0 else True}, text)
        cluster.check(text)
        cluster.push()
        cluster.check(text)

    def test_all_shards_have_the_new_tables_or_all_the_old_ones(self):
        for number, point in enumerate(POINTS):
            for dying in ("", "a", "b", "ab"):
                with self.subTest(point=point[0], dying=dying):
                    self.die(point, dying, loaders_too=number % 2 == 0)


    def embctl(self, *words):
        return subprocess.Popen([EMBCTL, *words], env={**os.environ, "EMBD_SERVERS": self.cluster.address("a")},
                                stdout=subprocess.DEVNULL)

    def snapshot(self):
        """A directory with the share of all servers."""
        for name in self.cluster.names:
            shutil.rmtree(self.cluster.path(f"{name}/s"), ignore_errors=True)
        self.assertEqual(self.embctl("snapshot", "s").wait(60), 0)
        shutil.rmtree(self.cluster.path("s"), ignore_errors=True)
        for name in self.cluster.names:
            shutil.copytree(self.cluster.path(f"{name}/s"), self.cluster.path(f"s/{name}"))

    def kill_during_load(self, dice, dying):
        """Between the moment when shard 0 is held and the end of a load."""
        server = self.cluster.running["a"]
        n_held = server.log().count("hold_taken shard=0")
        load = self.embctl("load", "--replace", "--table", "t", self.cluster.path("s"))
        until(lambda: server.log().count("hold_taken shard=0") > n_held)
        time.sleep(dice.random() * 0.004)
        for name in dying:
            self.cluster.kill(name)
        load.kill()
        load.wait()

    def settle(self):
        """A shard in doubt, which still shows its old tables, takes no hold."""
        for shard in range(SHARDS):
            with self.cluster.admin(shard) as peer:
                patient(peer.call, "hold", {})
                peer.call("release", {})

    def test_killed_at_any_moment_all_shards_have_the_new_tables_or_all_the_old_ones(self):
        """More of it: EMBD_FAULT_CYCLES=n."""
        cluster, dice = self.cluster, random.Random(int(os.environ.get("EMBD_FAULT_SEED", "5")))
        old, n_new = (cluster.value, cluster.step, cluster.last), 0
        self.snapshot()
        for _ in range(int(os.environ.get("EMBD_FAULT_CYCLES", "3"))):
            cluster.push()
            dying = dice.choice(["a", "b", "ab"])
            self.kill_during_load(dice, dying)
            for name in dying:
                cluster.start(name, waits=False)
            self.until_ready(*dying)
            self.settle()
            is_new = cluster.look(0)[2] == old[2]
            n_new += is_new
            if is_new:
                cluster.value, cluster.step, cluster.last = old
            cluster.check(dying)
            cluster.push()
            cluster.check(dying)
        print(f"{n_new} replacements were made")

    def start_with_gate(self, name):
        gate = Gate()
        self.addCleanup(gate.scratch.cleanup)
        self.cluster.kill(name)
        with unittest.mock.patch.dict(os.environ, gate.environment()):
            self.cluster.start(name)
        return gate

    def test_a_load_has_all_shards_prepare_before_shard_0_decides(self):
        cluster = self.cluster
        self.snapshot()
        old = (cluster.value, cluster.step, cluster.last)
        cluster.push()
        gate = self.start_with_gate("a")
        server = cluster.running["a"]
        gate.close()
        load = self.embctl("load", "--replace", "--table", "t", cluster.path("s"))
        while True:
            before = gate.waiting()
            if "hold_taken shard=0" in server.log():
                break
            for name in before:
                gate.let(name)
            time.sleep(0.001)
        gate.let(until(gate.waiting)[0])  # shard 1, which has prepared then
        until(gate.waiting)               # shard 0
        self.assertNotIn("tables_replaced", server.log())
        cluster.kill("b")
        gate.open()
        self.assertNotEqual(load.wait(60), 0)
        self.assertIn("tables_replaced shard=0", server.log())
        cluster.start("b", waits=False)
        self.until_ready("a", "b")
        cluster.value, cluster.step, cluster.last = old
        cluster.check("a load")

    def test_nothing_is_replaced_while_a_table_becomes_durable(self):
        cluster, gate = self.cluster, self.start_with_gate("a")
        load = Load(cluster)
        with cluster.data(0) as peer:
            wire.create(peer, "joins", 1)
            gate.close()
            with gate.letting_all_but("renameat"):
                peer.call("table_set", {"name": "joins", "set": {"durability": "durable"}})
                load.coordinator[0].call("hold", {})
                with self.assertRaises(wire.RpcError) as refused:
                    load.ask(0, "check", tables=1)
            self.assertEqual(refused.exception.number, wire.BUSY)
            gate.open()
            load.leave()
            until(lambda: "becomes" not in peer.call("table_describe", {"name": "joins"})[0])
            peer.call("table_drop", {"name": "joins"})
        cluster.check("nothing happened")

    def test_a_load_may_draw_the_id_of_the_one_before(self):
        cluster = self.cluster
        for decision in (1, 2):
            load = Load(cluster)
            load.decision = decision
            load.go(SHARDS - 1, SHARDS).leave()
            load.note(cluster)
            cluster.check("the same id")
            cluster.push()
            cluster.n_loads -= 1
        cluster.n_loads += 1
        cluster.check("the others")

    def test_a_table_that_was_dropped_since_the_snapshot_is_not_in_the_way_of_a_start(self):
        cluster = self.cluster

        def on_all(method, fields):
            for shard in range(SHARDS):
                with cluster.data(shard) as peer:
                    peer.call(method, fields)
        on_all("table_create", {"schema": wire.constant_schema("was", 1)})
        self.snapshot()
        on_all("table_drop", {"name": "was"})
        load = Load(cluster, "was").go(SHARDS - 1, 1)
        cluster.kill("b")
        load.leave()
        cluster.start("b", waits=False)
        self.until_ready("b")
        for shard in range(SHARDS):
            with cluster.data(shard) as peer:
                self.assertEqual(patient(peer.call, "table_describe", {"name": "was"})[0]["schema"]["durability"], "durable")
        on_all("table_drop", {"name": "was"})
        self.snapshot()
        cluster.check("the others")

    # ---- a shard in doubt ----

    def decided(self, decision):
        """As shard 0 answers a server in doubt."""
        with self.cluster.data(0) as peer:
            return peer.call("identity", {"shard": 2, "decision": decision})[0]["decided"]

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

    def until_in_doubt(self, shard):
        until(lambda: "decision of shard 0" in (self.told_loading(shard) or ""))

    def decide_and_kill(self, names):
        """Shard 0 has decided, and no other shard knows."""
        load = Load(self.cluster).go(3, 1)
        for name in names:
            self.cluster.kill(name)
        load.leave()
        load.note(self.cluster)

    def in_doubt(self, name):
        return re.findall(r"^embd_shard_replacement_in_doubt\{.*\} (\d)$", self.cluster.page(name, "/metrics")[1], re.M)

    def test_a_shard_in_doubt_waits_for_shard_0(self):
        cluster, old = self.cluster, self.cluster.value
        self.decide_and_kill("a")
        cluster.running["b"].wait_log("replacement_in_doubt")
        with cluster.data(2) as peer, cluster.data(2) as trainer, cluster.admin(2) as other:
            cluster.ask_push(trainer, 2, cluster.last + 1)
            other.begin("hold", {})
            self.assertEqual(cluster.look(2)[0], {old})
            self.assertEqual(self.in_doubt("b"), ["1", "1"])
            self.assertEqual(select.select([trainer.socket, other.socket], [], [], 0.3)[0], [])
            cluster.kill("b")
        cluster.start("b", waits=False)
        self.until_in_doubt(2)
        self.assertIn("--accept-empty", self.told_loading(2))
        self.assertIn("decision of shard 0", cluster.page("b", "/readyz")[1])
        with cluster.data(2) as peer, self.assertRaises(wire.RpcError) as refused:
            peer.call("table_describe", {"name": "t"})
        self.assertEqual(refused.exception.number, wire.LOADING)
        self.assertEqual(cluster.end("b"), 0)
        cluster.start("b", waits=False)
        self.until_in_doubt(3)
        cluster.start("a", waits=False)
        self.until_ready("a", "b")
        self.assertEqual(self.in_doubt("b"), ["0", "0"])
        cluster.check("behind shard 0")

    def test_bases_of_journals_have_what_is_prepared_and_decided(self):
        """In a cluster of its own, where each shard has one of both."""
        self.cluster = cluster = Cluster().__enter__().begin()
        self.addCleanup(cluster.__exit__, None, None, None)
        self.decide_and_kill("ab")
        cluster.start("b", "--drop-table", "other", waits=False)
        self.until_in_doubt(3)
        cluster.kill("b")
        cluster.start("a", "--drop-table", "other", waits=False)
        self.until_ready("a")
        cluster.kill("a")
        for name in "ab":
            self.assertTrue([file for file in os.listdir(cluster.path(name)) if file.endswith(".base")])
            cluster.start(name, waits=False)
        self.until_ready("a", "b")
        cluster.check("from bases")

    def test_what_shard_0_has_refused_it_never_makes(self):
        cluster = self.cluster
        load = Load(cluster).go(3, 0)
        self.assertEqual(self.decided(load.decision), "open")
        load.coordinator[0].call("release", {})
        self.assertEqual(self.decided(load.decision), "refused")
        load.coordinator[0].call("hold", {})
        for phase, more in (("apply", {}), ("check", {"tables": 1})):
            with self.assertRaises(wire.RpcError) as refused:
                load.ask(0, phase, **more)
            self.assertEqual(refused.exception.number, wire.INVALID)
        load.leave()
        cluster.push()  # waits until the others are in doubt no more
        cluster.check("refused")

    def test_shard_0_refuses_nothing_before_it_has_read_its_journal(self):
        """It reads when the other server has answered whose the directory is."""
        cluster, load = self.cluster, Load(self.cluster).go(3, 1)
        cluster.kill("a")
        load.leave()
        load.note(cluster)
        cluster.running["b"].pause()
        cluster.start("a", waits=False)
        self.assertEqual(self.decided(load.decision), "open")
        cluster.running["b"].go_on()
        self.until_ready("a")
        self.assertEqual(self.decided(load.decision), "made")
        cluster.push()
        cluster.check("read")

    def test_a_hold_lets_no_push_in_where_tables_are_prepared(self):
        cluster, load = self.cluster, Load(self.cluster).go(1, 0)
        with cluster.data(1) as peer:
            peer.call("hello", {"protocol": 1, "client_id": 77})
            load.coordinator[1].call("hold", {"clients": 1}, wire.keys([77]), wire.offsets([1000]))
            cluster.ask_push(peer, 1, cluster.last + 1)
            self.assertEqual(select.select([peer.socket], [], [], 0.3)[0], [])
            load.leave()
            self.assertTrue(cluster.end_push(peer, 1, cluster.last + 1, asked=True))
        for shard in (0, 2, 3):
            with cluster.data(shard) as peer:
                self.assertTrue(cluster.end_push(peer, shard, cluster.last + 1))
        cluster.note_push()
        cluster.check("refused")

    def test_shard_0_remembers_a_decision_about_tables_that_a_start_drops(self):
        cluster, load = self.cluster, Load(self.cluster, "was").go(3, 1)
        for name in "ab":
            cluster.kill(name)
        load.leave()
        for name in "ab":
            cluster.start(name, "--drop-table", "was", waits=False)
            self.until_ready(name)
            self.assertEqual(self.decided(load.decision), "made")
        cluster.check("the others")

    def test_a_coordinator_goes_on_without_a_hold_when_shard_0_has_decided(self):
        cluster, load = self.cluster, Load(self.cluster).go(3, 1)
        cluster.kill("a")
        for shard in (2, 3):
            load.coordinator[shard].call("release", {})
            load.ask(shard, "apply")
        load.leave()
        load.note(cluster)
        cluster.start("a", waits=False)
        self.until_ready("a")
        cluster.check("decided")

    def test_shard_0_does_not_refuse_what_is_on_its_way_to_the_disk(self):
        cluster, gate = self.cluster, self.start_with_gate("a")
        load = Load(cluster).go(3, 0)
        gate.close()
        load.coordinator[0].begin("table_replace", {"id": load.id, "phase": "apply", "decision": load.decision})
        until(gate.waiting)
        load.leave()
        cluster.running["a"].wait_log('hold_lost shard=0 why="the holder')
        self.assertEqual(self.decided(load.decision), "open")
        gate.open()
        until(lambda: self.decided(load.decision) == "made")
        load.note(cluster)
        cluster.push()
        cluster.check("on its way")


class Unasked(unittest.TestCase):
    """Where shard 0 cannot be asked, the others keep their old tables."""

    def leave(self, sockets, applies):
        """The coordinator leaves when all other shards have prepared, or behind shard 0's decision."""
        wires = [wire.Wire(path, timeout=60) for path in sockets]
        loaders = [wire.Wire(path, timeout=60) for path in sockets]
        for loader in loaders:
            loader.call("table_stage", {"id": 7, "schema": SCHEMA})
        for peer in wires:
            peer.call("hold", {})
        for peer in wires:
            peer.call("table_replace", {"id": 7, "phase": "check", "decision": 5, "tables": 1})
        for peer in wires[1:]:
            peer.call("table_replace", {"id": 7, "phase": "prepare", "decision": 5})
        for peer in wires[:applies]:
            peer.call("table_replace", {"id": 7, "phase": "apply", "decision": 5})
        for peer in wires:
            peer.close()
        for loader in loaders:
            loader.call("hold", {})  # waits until it is in doubt no more
            loader.close()

    def test_without_a_data_directory(self):
        with Embd(shards=2) as server:
            self.leave([server.admin_path(shard) for shard in range(2)], 0)
            self.assertRegex(server.log(), "replacement_settled shard=1 .*tables=old")

    def test_with_tls_and_no_peer_ca(self):
        folder = tempfile.mkdtemp(prefix="embd-tls-")
        self.addCleanup(shutil.rmtree, folder)
        cert, key = Authority(folder, "ca").issue("server")
        with Listed("ab", f"tls_cert: {cert}\ntls_key: {key}\n", shards=2) as cluster:
            own, other = (cluster.start(name) for name in "ab")
            self.leave([cluster.path(f"admin/{cluster.port + shard}.sock") for shard in range(SHARDS)], 1)
            self.assertRegex(own.log(), "replacement_settled shard=1 .*tables=new")
            self.assertRegex(other.log(), "replacement_settled shard=2 .*tables=old")


if __name__ == "__main__":
    unittest.main()
