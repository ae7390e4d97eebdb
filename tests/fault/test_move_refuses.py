"""What a shard is told while keys move that is wrong, too early, too late, or somebody else's: it is refused and nothing changes; and
what trainers and operators do to tables meanwhile is in the move, or ends it."""
import os
import subprocess
import time
import unittest
import unittest.mock

import test_tokens
import wire
from mover import EMBCTL, EVEN, MOVED, OWN, SCHEMA, SHARDS, Cluster, Mover, WithCluster, owner, placement, turned, until

DENIED = 20
STRIPES = [vshard % SHARDS for vshard in range(1024)]


class Refuses(WithCluster):
    def refused(self, peer, numbers, method, *params):
        with self.assertRaises(wire.RpcError, msg=(method, params[0])) as caught:
            peer.call(method, *params)
        self.assertIn(caught.exception.number, numbers, (method, params[0], caught.exception))
        return caught.exception.text

    def digest(self):
        ran = self.embctl("digest")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout

    def unchanged(self, before):
        self.cluster.check()
        self.assertEqual(self.digest(), before)

    def test_maps_that_do_not_follow_the_shard_s(self):
        cluster, before = self.cluster, self.digest()
        good = placement(turned(cluster.map), cluster.version + 1)
        n = 2 * SHARDS
        wrong = [None, 7, [], {}, {**good, "version": cluster.version}, {**good, "version": cluster.version + 2}, {**good, "version": 0},
                 {**good, "version": 2 ** 60}, {**good, "base": 3}, {**good, "base": 0}, {**good, "base": 2048}, {**good, "runs": []},
                 {**good, "runs": good["runs"][:-1]}, {**good, "runs": good["runs"][:-2]}, {**good, "runs": [*good["runs"], 0, 1]},
                 {**good, "runs": [9, 1024]}, {**good, "runs": [0, 1025]}, {**good, "runs": ["x", 1024]}, {**good, "runs": [0, -1]},
                 {**good, "runs": [0, 0] * n}, placement(STRIPES, cluster.version + 1)]
        for shard in (0, 3):
            with cluster.admin(shard) as peer, cluster.data(shard) as trainer:
                for place in wrong:
                    fields = {"phase": "begin", "id": 5, **({"placement": place} if place is not None else {})}
                    self.refused(peer, (wire.INVALID, wire.MALFORMED, wire.TOO_LARGE), "move", fields)
                for fields in ({}, {"phase": "go"}, {"phase": "begin", "placement": good}, {"phase": "begin", "id": 0, "placement": good},
                               {"phase": "read", "id": 5}, {"phase": "read"}, {"phase": "state", "x": 1}, {"phase": "begin", "id": 5, "placement": good, "final": True}):
                    self.refused(peer, (wire.INVALID, wire.MALFORMED), "move", fields)
                for method in ("move", "move_load"):
                    self.refused(trainer, (wire.UNKNOWN_METHOD,), method, {"phase": "begin", "id": 5, "placement": good})
                self.assertEqual(peer.call("move", {"phase": "state"})[0], {"version": cluster.version, "moving": False, "removed": 0})
        self.unchanged(before)

    def test_a_second_mover_and_a_second_begin(self):
        cluster, before, mover = self.cluster, self.digest(), Mover(self.cluster).begin()
        place = placement(turned(cluster.map), cluster.version + 1)
        for shard in range(SHARDS):
            with cluster.admin(shard) as other:
                for peer in (mover.peers[shard], other):
                    self.refused(peer, (wire.BUSY,), "move", {"phase": "begin", "id": mover.id, "placement": place})
                self.refused(other, (wire.INVALID,), "move", {"phase": "read", "id": mover.id})
                self.refused(other, (wire.INVALID,), "move_load", {"id": mover.id, "table": "t", "rows": 0, "candidates": 0}, b"", b"", b"", b"")
                for fields in ({"id": mover.id + 1}, {"id": mover.id, "final": True}):
                    self.refused(mover.peers[shard], (wire.INVALID,), "move", {"phase": "read", **fields})
        with cluster.admin(0) as peer:
            peer.call("hold", {"timeout_ms": 60000})
            self.refused(peer, (wire.BUSY,), "snapshot", {"name": "s", "phase": "cut", "read": True})
        mover.leave()
        self.unchanged(before)
        self.assertEqual(self.embctl("snapshot", "s").returncode, 0)

    def test_rows_that_cannot_come(self):
        cluster, before, mover = self.cluster, self.digest(), Mover(self.cluster).begin().round()
        own = [key for key in range(5000) if owner(mover.map, key) == 1][:2]
        others = [key for key in range(5000) if owner(mover.map, key) == 2][:2]
        peer, rows = mover.peers[1], wire.floats([1.0, 2.0])

        def load(numbers, fields, *bins):
            self.refused(peer, numbers, "move_load", {"id": mover.id, "table": "t", "rows": 0, "candidates": 0, **fields}, *bins)
        bad = (wire.INVALID, wire.MALFORMED, wire.TOO_LARGE)
        load(bad, {"rows": 2}, wire.keys(others), rows, b"", b"")
        load(bad, {"rows": 2}, wire.keys([own[0], others[0]]), rows, b"", b"")
        load(bad, {"rows": 2}, wire.keys(own), rows[:-1], b"", b"")
        load(bad, {"rows": 2}, wire.keys(own)[:-1], rows, b"", b"")
        load(bad, {"rows": 2}, wire.keys(own), rows, b"")
        load(bad, {"rows": 2}, wire.keys(own), rows, b"", b"", b"")
        load(bad, {"rows": 2 ** 32 - 1}, wire.keys(own), rows, b"", b"")
        load(bad, {"rows": -1}, b"", b"", b"", b"")
        load(bad, {"id": 0}, b"", b"", b"", b"")
        load(bad, {"id": mover.id + 1}, b"", b"", b"", b"")
        load(bad, {"candidates": 2}, b"", b"", wire.keys(own), wire.offsets([1, 1]))
        load(bad, {"candidates": 2, "table": "rare"}, b"", b"", wire.keys(own), wire.offsets([0, 1]))
        load(bad, {"candidates": 2, "table": "rare"}, b"", b"", wire.keys(own), wire.offsets([1, 2 ** 32 - 1]))
        load(bad, {"candidates": 2, "table": "rare"}, b"", b"", wire.keys(others), wire.offsets([1, 1]))
        load(bad, {"candidates": 2, "gone": True}, b"", b"", wire.keys(own), wire.offsets([0, 1]))
        load(bad, {"candidates": 2, "gone": True}, b"", b"", wire.keys(others), wire.offsets([0, 0]))
        load(bad, {"rows": 2, "gone": True}, wire.keys(own), rows, b"", b"")
        load((wire.UNKNOWN_TABLE,), {"table": "nothing"}, b"", b"", b"", b"")
        load(bad, {"table": "x" * 300}, b"", b"", b"", b"")
        mover.leave()
        self.unchanged(before)

    def test_maps_that_are_not_checked_or_checked_as_something_else(self):
        cluster, before, mover = self.cluster, self.digest(), Mover(self.cluster).begin().round()
        peer, id_ = mover.peers, mover.id

        def replace(shard, phase, numbers=(wire.INVALID, wire.BUSY), **more):
            self.refused(peer[shard], numbers, "table_replace", {"id": id_, "phase": phase, "decision": id_, "placement": True, **more})
        for shard in (0, 1):
            for phase in ("check", "prepare", "apply"):
                replace(shard, phase)  # without a hold
        mover.hold()
        for shard in (0, 1):
            replace(shard, "check", id=id_ + 1)
            replace(shard, "prepare")
            replace(shard, "apply")
            with cluster.admin(shard) as other:
                self.refused(other, (wire.INVALID, wire.BUSY), "table_replace", {"id": id_, "phase": "check", "decision": id_, "placement": True})
        mover.round(final=True).check()
        for shard in range(SHARDS):
            for phase in ("prepare", "apply"):
                replace(shard, phase, placement=False)  # it was a map
                replace(shard, phase, decision=id_ + 1)
        replace(0, "prepare")
        mover.prepare()
        for shard in range(1, SHARDS):
            replace(shard, "apply", placement=False)
            replace(shard, "prepare", placement=False)
            replace(shard, "check")
        mover.leave()
        self.unchanged(before)

    def test_tables_that_were_checked_are_no_map(self):
        cluster, before = self.cluster, self.digest()
        with cluster.admin(0) as loader, cluster.admin(0) as peer:
            loader.call("table_stage", {"id": 77, "schema": SCHEMA})
            peer.call("hold", {"timeout_ms": 60000})
            peer.call("table_replace", {"id": 77, "phase": "check", "decision": 5, "tables": 1})
            self.refused(peer, (wire.INVALID,), "table_replace", {"id": 77, "phase": "apply", "decision": 5, "placement": True})
        cluster.kill("a")
        self.restart("a")
        self.unchanged(before)

    def test_a_map_may_be_applied_twice_and_only_the_one_that_was_checked(self):
        cluster, mover = self.cluster, Mover(self.cluster).copied().prepare()
        mover.prepare().apply().apply()
        cluster.note_moved(mover.map)
        mover.leave()
        cluster.check()
        cluster.push()
        cluster.check()

    # ---- tables meanwhile ----

    def on_all(self, method, fields):
        for shard in range(SHARDS):
            with self.cluster.data(shard) as peer:
                peer.call(method, fields)

    def test_tables_that_come_go_or_are_kept_otherwise_end_the_move(self):
        cluster, before = self.cluster, self.digest()
        loose, durable = ({"name": "t", "set": {"durability": kept}} for kept in ("snapshot", "durable"))
        for text, method, fields, ending in (
                ("created", "table_create", {"schema": {**SCHEMA, "name": "new"}}, ("table_drop", {"name": "new"})),
                ("loose", "table_set", loose, ("table_set", durable))):
            with self.subTest(text):
                mover = Mover(cluster).begin().round()
                self.on_all(method, fields)
                mover.hold()
                for shard, peer in enumerate(mover.peers):
                    self.refused(peer, (wire.BUSY, wire.UNSUPPORTED), "table_replace",
                                 {"id": mover.id, "phase": "check", "decision": mover.id, "placement": True})
                    if text == "created":
                        self.refused(peer, (wire.BUSY,), "move", {"phase": "read", "id": mover.id})
                mover.leave()
                cluster.until_swept()
                self.on_all(*ending)
                if text == "loose":
                    for shard in range(SHARDS):
                        with cluster.data(shard) as peer:
                            until(lambda peer=peer: "becomes" not in peer.call("table_describe", {"name": "t"})[0])
                self.unchanged(before)

    def test_nothing_moves_where_a_follower_takes_no_later_map(self):
        """It is of a version that does not say so in its questions."""
        cluster, before = self.cluster, self.digest()
        begin = {"phase": "begin", "id": 5, "placement": placement(turned(cluster.map), cluster.version + 1)}
        for more in ({}, {"maps": True}):
            with cluster.admin(2) as follower, cluster.admin(2) as mover:
                follower.call("follow", {"name": "old", "cluster": "embd", "base": False, "position": 0, "wait_ms": 0, **more})
                if more:
                    mover.call("move", begin)
                else:
                    self.assertIn("'old' follows this server", self.refused(mover, (wire.UNSUPPORTED,), "move", begin))
        self.unchanged(before)

    def test_keys_that_are_erased_meanwhile_stay_erased(self):
        cluster = self.cluster
        self.on_all("table_create", {"schema": {**SCHEMA, "name": "few", "capacity": 1000, "on_full": "error"}})
        for lowered in (False, True):
            with self.subTest(lowered=lowered):
                shard = next(shard for shard in range(SHARDS) for key in range(500) if self.leaves(key, shard))
                keys = [key for key in range(500) if self.leaves(key, shard)]
                with cluster.data(shard) as peer:
                    part = {"table": cluster.id(peer, "few"), "keys": len(keys)}
                    peer.call("push", {"parts": [part], **cluster.split()}, wire.keys(keys), wire.floats([-1.0] * len(keys)))
                    mover = Mover(cluster).begin().round()
                    peer.call("erase", {"parts": [part], **cluster.split()}, wire.keys(keys))
                if lowered:  # what is read then has all rows, and does not say which are gone
                    self.on_all("table_set", {"name": "few", "set": {"capacity": 900}})
                    with self.assertRaises(wire.RpcError) as refused:
                        mover.hold().round(final=True)
                    self.assertEqual(refused.exception.number, wire.BUSY, refused.exception)
                    mover.leave()
                    cluster.check()
                    mover = Mover(cluster).begin().round()
                mover.hold().round(final=True).check().prepare().apply().leave()
                cluster.note_moved(mover.map)
                cluster.check()
                for s in range(SHARDS):
                    with cluster.data(s) as peer:
                        self.assertEqual(peer.call("table_describe", {"name": "few"})[0]["rows"], 0)
        self.on_all("table_drop", {"name": "few"})

    def leaves(self, key, shard):
        """With the next move."""
        return owner(self.cluster.map, key) == shard != owner(turned(self.cluster.map), key)

    def test_a_push_that_steps_all_rows_steps_those_that_move_once(self):
        """A row is read behind a push that comes to its new shard later."""
        cluster, schema = self.cluster, {**SCHEMA, "name": "whole", "optimizer": {"kind": "momentum", "lr": 1.0, "momentum": 0.5, "update": "global"}}
        self.on_all("table_create", {"schema": schema})

        def push(shard, keys):
            with cluster.data(shard) as peer:
                part = {"table": cluster.id(peer, "whole"), "keys": len(keys)}
                peer.call("push", {"parts": [part], **cluster.split()}, wire.keys(keys), wire.floats([-1.0] * len(keys)))
        keys = {shard: [key for key in range(200) if owner(cluster.map, key) == shard] for shard in range(SHARDS)}
        for shard in range(SHARDS):
            push(shard, keys[shard])
        mover = Mover(cluster).begin()
        for shard in (0, 1):
            push(shard, [])
        mover.round()
        for shard in (2, 3):
            push(shard, [])
        mover.hold().round(final=True).check().prepare().apply().leave()
        cluster.note_moved(mover.map)
        cluster.until_swept()
        for shard in range(SHARDS):
            with cluster.data(shard) as peer:
                own = [key for key in range(200) if owner(cluster.map, key) == shard]
                self.assertEqual(set(cluster.pull(peer, cluster.id(peer, "whole"), own)), {1.5}, shard)
        self.on_all("table_drop", {"name": "whole"})

    def test_staged_tables_do_not_take_their_places_behind_a_move(self):
        cluster = self.cluster
        loaders = [cluster.admin(shard) for shard in range(SHARDS)]
        for shard, loader in enumerate(loaders):
            keys = cluster.keys_of(shard)
            loader.call("table_stage", {"id": 88, "schema": SCHEMA})
            loader.call("load", {"table": "t", "rows": len(keys), "candidates": 0, "step": 5, "staged": 88}, wire.keys(keys),
                        wire.floats([9.0] * len(keys)), b"", b"")
        Mover(cluster).all()
        cluster.check()
        replacer = [cluster.admin(shard) for shard in range(SHARDS)]
        for peer in replacer:
            peer.call("hold", {"timeout_ms": 60000})
        for peer in replacer:
            self.refused(peer, (wire.BUSY,), "table_replace", {"id": 88, "phase": "check", "decision": 6, "tables": 1})
        for peer in replacer + loaders:
            peer.close()
        cluster.check()

    def test_keys_are_listed_once_and_scans_wait(self):
        cluster, mover = self.cluster, Mover(self.cluster).begin().round()
        self.assertGreater(mover.moved, 0)
        for shard in range(SHARDS):
            with cluster.data(shard) as peer, cluster.admin(shard) as admin:
                self.assertEqual(cluster.listed(peer, "t"), cluster.keys_of(shard))
                admin.call("hold", {"timeout_ms": 60000})
                self.refused(admin, (wire.BUSY,), "scan", {"table": "t"})
        mover.leave()
        cluster.check()

    # ---- the coordinator ----

    def test_the_coordinator_refuses_what_the_shards_would(self):
        cluster, before = self.cluster, self.digest()
        good = placement(turned(cluster.map), cluster.version + 1)
        with cluster.admin(0) as peer:
            for place in (7, {}, {**good, "runs": [9, 1024]}, {**good, "version": 0}):
                self.refused(peer, (wire.INVALID, wire.MALFORMED), "snapshot", {"name": "move", "phase": "start", "placement": place})
            for i, place in enumerate(({**good, "version": cluster.version + 5}, {**good, "base": 7}, placement(EVEN, cluster.version))):
                name = f"move-{i}"
                peer.call("snapshot", {"name": name, "phase": "start", "placement": place})
                job = until(lambda name=name: (j := peer.call("snapshot", {"name": name, "phase": "progress"})[0])["state"] != "running" and j)
                self.assertEqual((job["state"], job["error"]), ("failed", wire.INVALID), job)
        self.unchanged(before)


class Compacted(WithCluster):
    more = "journal_limit: 2M\njournal_strict: yes\n"
    DIM = 4096  # 256 rows are a block

    def test_a_journal_that_is_compacted_while_rows_are_read_brings_no_erased_row_back(self):
        cluster = self.cluster
        for shard in range(SHARDS):
            with cluster.data(shard) as peer:
                wire.create(peer, "wide", self.DIM, durability="durable")
        moves = turned(cluster.map)
        keys = [key for key in range(20000) if owner(cluster.map, key) == 0 != owner(moves, key)][:600]
        with cluster.data(0) as peer:
            table = cluster.id(peer, "wide")

            def push():
                for at in range(0, len(keys), 100):
                    some = keys[at:at + 100]
                    peer.call("push", {"parts": [{"table": table, "keys": len(some)}]}, wire.keys(some), wire.floats([1.0] * self.DIM * len(some)))
            push()
            mover = Mover(cluster, moves).begin()
            while not (block := mover.read(0)) or block[0]["table"] != "wide":
                if block:
                    mover.load(block)
            mover.load(block)
            gone = list(memoryview(block[1]).cast("Q"))
            self.assertLess(len(gone), len(keys))
            keys = [key for key in keys if key not in gone]
            push()
            peer.call("erase", {"parts": [{"table": table, "keys": len(gone)}]}, wire.keys(gone))
            time.sleep(0.5)  # a journal of this length is compacted at once
        mover.round().hold().round(final=True).check().prepare().apply().leave()
        cluster.note_moved(moves)
        cluster.check()
        rows = 0
        for shard in range(SHARDS):
            with cluster.data(shard) as peer:
                rows += peer.call("table_describe", {"name": "wide"})[0]["rows"]
        self.assertEqual(rows, len(keys))


class Arriving(WithCluster):
    def test_a_push_that_arrives_while_keys_move_is_of_the_map_that_it_names(self):
        """Its keys, which are looked at when they arrive, are another shard's when it is whole."""
        cluster = self.cluster
        for shard in range(SHARDS):
            with cluster.data(shard) as peer:
                wire.create(peer, "wide", 1024, durability="durable")
        mover = Mover(cluster)
        keys = [key for key in range(5000) if owner(cluster.map, key) == 0 != owner(mover.map, key)][:200]
        with cluster.data(0) as early, cluster.data(0) as late:
            part = {"table": cluster.id(early, "wide"), "keys": len(keys)}
            frames = [wire.request(1, "push", {"parts": [part], **split}, wire.keys(keys), wire.floats([1.0] * 1024 * len(keys)))
                      for split in ({}, {"placement": cluster.version + 1})]
            for peer, frame in zip((early, late), frames):
                peer.send(frame[:-1000])
            time.sleep(0.3)  # so that keys are looked at, where that is done before the rest is there
            mover.all()
            for peer, frame, number in ((early, frames[0], MOVED), (late, frames[1], wire.INVALID)):
                peer.send(frame[-1000:])
                error = peer.receive()[2]
                self.assertEqual(error and error[0], number, error)
        cluster.check()


class Leaving(WithCluster):
    def test_a_coordinator_that_goes_while_its_rows_are_read_leaves_nothing_of_that(self):
        """They are read in slices: it has gone between two of them."""
        cluster = self.cluster
        keys = [key for key in range(40000) if owner(cluster.map, key) == 0]
        with cluster.data(0) as peer:
            wire.create(peer, "large", 64, durability="durable")
            table = cluster.id(peer, "large")
            peer.call("push", {"parts": [{"table": table, "keys": len(keys)}]}, wire.keys(keys), wire.floats([1.0] * 64 * len(keys)))
        for shard in range(1, SHARDS):
            with cluster.data(shard) as peer:
                wire.create(peer, "large", 64, durability="durable")
        for _ in range(20):
            mover = Mover(cluster).begin()
            mover.peers[0].begin("move", {"phase": "read", "id": mover.id, "final": False})
            mover.leave()
            cluster.until_swept()
        Mover(cluster).all()
        cluster.check()


class Beside(WithCluster):
    def setUp(self):
        slow = {"LD_PRELOAD": os.path.join(os.environ["EMBD_FAULT_TOOLS"], "libembd-slow-sync.so"), "EMBD_SYNC_MS": "100",
                "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        with unittest.mock.patch.dict(os.environ, slow):
            super().setUp()

    def figures(self, shard):
        with self.cluster.admin(shard) as peer:
            return peer.call("stats")[0]["stats"]

    def test_rows_come_beside_pushes(self):
        """No push waits for rows that come, nor do they for it: each comes while the record of another is being synced."""
        cluster, mover = self.cluster, Mover(self.cluster).begin()
        to, keys = 1, self.cluster.keys_of(1)
        blocks = [block for block in iter(lambda: mover.read(0), None) if block]
        self.assertTrue(any(owner(mover.map, key) == to for block in blocks for key in memoryview(block[1]).cast("Q")))
        before = self.figures(to)
        with cluster.data(to) as first, cluster.data(to) as second:
            part = {"parts": [{"table": cluster.tables[to], "keys": len(keys)}]}
            for peer in (first, second):
                peer.begin("push", part, wire.keys(keys), wire.floats([0.0] * len(keys)))
                for block in blocks:
                    mover.load(block)
            for peer in (first, second):
                self.assertIsNone(peer.receive()[2])
        after = self.figures(to)
        self.assertGreater(mover.moved, 0)
        self.assertEqual(after["requests_parked"], before["requests_parked"])
        mover.leave()
        cluster.until_swept()


    def test_rows_that_come_behind_their_coordinator_go_too(self):
        """It has gone when they are applied, and the sweep has looked at the table before."""
        cluster, mover = self.cluster, Mover(self.cluster).begin()
        to, keys = 1, self.cluster.keys_of(1)
        blocks = [block for block in iter(lambda: mover.read(0), None) if block]
        with cluster.data(to) as first, cluster.data(to) as second:
            part = {"parts": [{"table": cluster.tables[to], "keys": len(keys)}]}
            for peer in (first, second):  # the second one's record waits for the sync of the first, and with it the rows
                peer.begin("push", part, wire.keys(keys), wire.floats([0.0] * len(keys)))
                time.sleep(0.02)
            for block in blocks:
                mover.send(block, to)
            mover.leave()
            for peer in (first, second):
                self.assertIsNone(peer.receive()[2])
        cluster.until_swept()
        with cluster.data(to) as peer:
            self.assertEqual(cluster.listed(peer, "t"), keys)


class Returning(WithCluster):
    CLIENT = 77

    def push(self, shard):
        """Of a client whose connection ends then."""
        cluster, keys = self.cluster, self.cluster.keys_of(shard)
        with cluster.data(shard) as peer:
            peer.call("hello", {"protocol": 1, "client_id": self.CLIENT})
            peer.call("push", {"parts": [{"table": cluster.tables[shard], "keys": len(keys)}], "order": cluster.pushes + 1,
                               "writer": {**OWN, "sequence": cluster.pushes + 1}}, wire.keys(keys), wire.floats([-1.0 - key for key in keys]))

    def move(self):
        address = self.cluster.address("a")
        return subprocess.Popen([EMBCTL, "--servers", address, "rebalance", "--weights", "1,2,3,4"], stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True)

    def half(self, restarts):
        """All shards but the first have a push, and no connection of its client is left."""
        for shard in range(1, SHARDS):
            self.push(shard)
        if restarts:
            self.cluster.kill("b")
            self.restart("b")
        with self.move() as job:
            self.addCleanup(job.kill)
            time.sleep(1.5)
            self.assertIsNone(job.poll(), "keys moved beside a push that one shard has not")
            self.push(0)  # by the map of the others
            self.assertEqual((job.wait(60), job.stderr.read()), (0, ""))
        for shard in range(SHARDS):
            with self.cluster.data(shard) as peer:
                self.assertEqual(peer.call("writer", OWN)[0]["journaled"], self.cluster.pushes + 1)

    def test_a_push_that_some_shards_have_comes_to_the_others_first_though_its_client_is_away(self):
        self.half(restarts=False)

    def test_also_where_some_of_them_have_started_again_since(self):
        self.half(restarts=True)


class Denied(test_tokens.TokenCase):
    def test_keys_are_moved_by_admins(self):
        place = placement(EVEN, 2)
        for name in ("looker", "nightly", "everything"):
            peer = self.connect(name)
            for method, fields in (("move", {"phase": "begin", "id": 5, "placement": place}), ("move", {"phase": "state"}), ("move_load", {"id": 5}),
                                   ("snapshot", {"name": "ads_move", "phase": "start", "placement": place}),
                                   ("table_replace", {"id": 5, "phase": "check", "decision": 5, "placement": True})):
                with self.assertRaises(wire.RpcError) as caught:
                    peer.call(method, fields)
                self.assertIn(caught.exception.number, (DENIED, wire.UNKNOWN_METHOD), (name, method))


if __name__ == "__main__":
    unittest.main()
