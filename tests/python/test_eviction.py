"""Eviction through the client: what a table counts is what the trainer named, by every plan of the client. And tables
whose rows expire by seconds, on a server that is killed."""
import os
import tempfile
import time
import unittest

import numpy as np

import clusters
import embd
import wire


class Eviction(clusters.ClusterTest):
    def with_rows(self, table, keys):
        statuses = np.zeros(len(keys), np.uint8)
        table.pull(keys, statuses=statuses)
        return [key for key, status in zip(keys, statuses) if status == 0]

    def push(self, table, keys):
        table.push(keys, np.ones((len(keys), table.schema.dim), np.float32))

    def evicts_after_many_occurrences(self, name, sets=None, **fields):
        """Whether key 0, named 501 times in one push, loses its row to new keys; the others are named in five pushes."""
        table = self.client.create_table(name, 64, capacity=300, on_full="evict_lfu", combiner="concat", **fields)
        if sets:
            table.set(sets)
        self.push(table, np.concatenate([np.arange(300), np.zeros(500, np.int64)]))
        for _ in range(4):
            self.push(table, np.arange(1, 300))
        self.push(table, np.arange(1000, 1100))
        return self.with_rows(table, [0, 1000]) == [1000]

    def test_occurrences_are_counted_if_the_table_says_so(self):
        self.assertTrue(self.evicts_after_many_occurrences("pushes"))
        self.assertFalse(self.evicts_after_many_occurrences("occurrences", lfu_occurrences=True))
        self.assertTrue(self.client.table("occurrences").schema.lfu_occurrences)
        self.assertFalse(self.evicts_after_many_occurrences("set", {"lfu_occurrences": True}))
        self.assertTrue(self.evicts_after_many_occurrences("unset", {"lfu_occurrences": False}, lfu_occurrences=True))

    def test_an_old_favourite_goes_if_counts_decay(self):
        for half_life, goes in (0, 1), (4, 0):
            table = self.client.create_table(f"half-life-{half_life}", 2, capacity=16, on_full="evict_lfu", combiner="concat",
                                             lfu_half_life=9)
            table.set(lfu_half_life=half_life)
            for _ in range(20):
                self.push(table, [0])
            for _ in range(10):
                self.push(table, np.arange(1, 16))
            for _ in range(2):
                self.push(table, np.arange(2, 16))
            self.push(table, [77])
            self.assertEqual([key for key in (0, 1) if key not in self.with_rows(table, [0, 1])], [goes])
            self.assertEqual(table.describe().lfu_half_life, half_life)


class Seconds(unittest.TestCase):
    def figures(self, client):
        return client.stats()[0].tables["t"]

    def test_rows_expire_by_the_clock_and_a_restart_expires_the_same(self):
        ones = np.ones((1, 2), np.float32)
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "data"))

            def start():
                server = clusters.Embd("--data-dir", os.path.join(folder, "data"))
                self.addCleanup(server.kill)
                client = embd.connect(server.addresses[0], deadline=20)
                self.addCleanup(client.close)
                return server, client
            server, client = start()
            table = client.create_table("t", 2, capacity=2, on_full="evict_ttl", ttl_seconds=1000000, combiner="concat",
                                        durability="durable")
            began = int(time.time())
            table.push([1, 2], np.ones((2, 2), np.float32))
            with self.assertRaises(embd.FullError):
                table.push([3], ones)
            clock = self.figures(client)["clock_seconds"]
            self.assertTrue(began <= clock <= time.time())
            server.kill()
            server, client = start()
            table = client.table("t")
            self.assertEqual(self.figures(client)["clock_seconds"], clock)
            with self.assertRaises(embd.FullError):
                table.push([3], ones)
            table.set(ttl_seconds=1)
            time.sleep(1.1)
            table.push([3], ones)
            before = self.figures(client)
            self.assertEqual((before["evicted_ttl"], before["rows"]), (1, 2))
            rows = table.pull([1, 2, 3], zero_missing=True)
            server.kill()
            server, client = start()
            after = self.figures(client)
            for name in "evicted_ttl", "rows", "clock_seconds":
                self.assertEqual(after[name], before[name], name)
            np.testing.assert_array_equal(client.table("t").pull([1, 2, 3], zero_missing=True), rows)
            client.dump(os.path.join(folder, "dump"), table="t")
            client.drop_table("t")
            client.load(os.path.join(folder, "dump"))
            self.assertEqual(self.figures(client)["clock_seconds"], before["clock_seconds"])

    def test_every_request_that_makes_or_pushes_rows_brings_the_time(self):
        with clusters.Embd() as server, embd.connect(server.addresses[0], deadline=20) as client:
            job = embd.Clock(client, "job", worker=0, workers=1)
            one = np.ones((1, 2), np.float32)
            for act in (lambda t: t.push([1], one), lambda t: t.put([1], one), lambda t: t.pull([1]),
                        lambda t: t.push([1], one, round=job)):
                began = int(time.time())
                act(client.create_table("t", 2, capacity=8, on_full="evict_ttl", ttl_seconds=60, combiner="concat",
                                        create_on="pull"))
                figures = self.figures(client)
                self.assertTrue(figures["rows"] == 1 and began <= figures["clock_seconds"] <= time.time(), figures)
                client.drop_table("t")

    def test_rows_that_come_from_elsewhere_live_from_then_on(self):
        timed = {"capacity": 8, "on_full": "evict_ttl", "ttl_seconds": 60}
        with clusters.Embd() as server, embd.connect(server.addresses[0], deadline=20) as client, \
                tempfile.TemporaryDirectory() as folder:
            def comes(how):
                began = int(time.time())
                how()
                self.assertTrue(began <= self.figures(client)["clock_seconds"] <= time.time())
                table = client.table("t")
                table.push([7], np.ones((1, 2), np.float32))
                self.assertEqual(table.describe().ttl_seconds, 60)
                return table.pull([1, 7], zero_missing=True)
            table = client.create_table("t", 2, capacity=8, on_full="evict_lru", combiner="concat")
            table.push([1, 2], np.ones((2, 2), np.float32))
            dump, model = os.path.join(folder, "dump"), os.path.join(folder, "model")
            client.dump(dump, table="t")
            client.export_hugectr("t", model)
            client.drop_table("t")
            by_load = comes(lambda: client.load(dump, set={"on_full": "evict_ttl", "ttl_seconds": 60}))
            client.dump(dump + "2", table="t")
            client.drop_table("t")
            by_import = comes(lambda: client.import_hugectr("t", 2, model, schema={**timed, "combiner": "concat"}))
            np.testing.assert_array_equal(by_load[0], by_import[0])
            client.drop_table("t")
            client.load(dump + "2", set={"on_full": "evict_lru"})  # seconds do not become steps
            table = client.table("t")
            for key in range(100, 108):
                table.push([key], np.ones((1, 2), np.float32))
            self.assertFalse(table.pull([1, 2, 7], zero_missing=True).any())

    def test_a_table_has_one_time_to_live_and_requests_bring_no_time(self):
        with clusters.Embd() as server, embd.connect(server.addresses[0], deadline=20) as client:
            for both in {"ttl": 0}, {"ttl": 1, "ttl_seconds": 1}:
                with self.assertRaisesRegex(embd.InvalidError, "needs one of them, 1 or more, and the other 0"):
                    client.create_table("t", 2, capacity=2, on_full="evict_ttl", **both)
            table = client.create_table("t", 2, capacity=2, on_full="evict_ttl", ttl_seconds=60)
            with self.assertRaisesRegex(embd.UnsupportedError, "rows remember the second of their last push"):
                table.set(ttl=5, ttl_seconds=0)
            with self.assertRaisesRegex(embd.UnsupportedError, "do not remember the same of their use"):
                table.set(on_full="evict_lru")
            self.assertEqual(table.describe().ttl_seconds, 60)
            with wire.connect(server) as peer:
                part = {"table": peer.call("table_describe", {"name": "t"})[0]["id"], "keys": 1}
                for method, fields, bins in (("push", {"parts": [part]}, (wire.keys([1]), wire.floats([1.0, 1.0]))),
                                             ("put", {"table": "t", "keys": 1}, (wire.keys([1]), wire.floats([1.0, 1.0]))),
                                             ("get", {"table": "t", "keys": 1}, (wire.keys([1]),))):
                    with self.assertRaisesRegex(wire.RpcError, "unknown field 'seconds'"):
                        peer.call(method, {**fields, "seconds": 5}, *bins)
            self.assertEqual((self.figures(client)["rows"], self.figures(client)["clock_seconds"]), (0, 0))


class Scores(clusters.ClusterTest):
    shards = 3
    FIELDS = {"capacity": 60, "on_full": "evict_score"}

    def scores(self, table, keys):
        return table.get(keys, states=True).states[:, -1]

    def expected(self, kept, keys, scores):
        """The largest that each key was given, or what it had."""
        for key in np.unique(keys):
            most = scores[keys == key].max()
            kept[key] = most if most > -np.inf else kept[key]

    def test_the_largest_score_of_a_key_counts_by_every_plan(self):
        random = np.random.default_rng(7)
        tables = [self.client.create_table(f"by-{combiner}", 2, combiner=combiner, **self.FIELDS)
                  for combiner in ("concat", "sum", "mean")]
        kept = np.zeros((3, 20), np.float32)
        for n, plan in enumerate(("auto", "rows", "pooled", "rows", "auto")):
            parts = []
            for table, own in zip(tables, kept):
                keys = np.concatenate([np.arange(20), random.integers(0, 20, 400)]).astype(np.uint64)
                scores = (random.integers(-8, 8, 420) - 2 * n).astype(np.float32)
                scores[random.integers(0, 420, 100)] = -np.inf
                more = {} if table.schema.combiner == "concat" else {"lengths": np.full(210, 2)}
                if table.schema.combiner == "mean":
                    more["weights"] = np.ones(420, np.float32)
                rows = 210 if more else 420
                parts.append(embd.Part(table, keys, values=np.ones((rows, 2), np.float32), scores=scores, **more))
                self.expected(own, keys, scores)
            self.client.push(parts if n % 2 else parts[:1], plan=plan)
            for part in parts[1:] if n % 2 == 0 else ():
                self.client.push([part], plan=plan)
            for table, own in zip(tables, kept):
                np.testing.assert_array_equal(self.scores(table, np.arange(20)), own)
        tables[0].push([3, 4], np.ones((2, 2), np.float32))  # without scores
        np.testing.assert_array_equal(self.scores(tables[0], np.arange(20)), kept[0])

    def test_the_lowest_score_goes_first_and_may_fall(self):
        table = self.client.create_table("t", 2, combiner="concat", partition="modulo", capacity=4, on_full="evict_score")
        ones = np.ones((4, 2), np.float32)
        table.push([0, 3, 6, 9], ones, scores=[4, 3, 2, 1])  # of one shard
        table.push([0], ones[:1], scores=[0.5])
        table.push([12], ones[:1], scores=[9])
        self.assertEqual([key for key in (0, 3, 6, 9, 12) if table.get([key]).found[0]], [3, 6, 9, 12])
        call = table.push_start([15], ones[:1], scores=[-1])  # it evicts others all the same
        call.wait()
        self.assertEqual([key for key in (3, 6, 9, 12, 15) if table.get([key]).found[0]], [3, 6, 12, 15])
        table.put([12], ones[:1], [[*table.get([12], states=True).states[0][:-1], -5.0]])
        table.push([18], ones[:1])
        self.assertEqual([key for key in (3, 6, 12, 15, 18) if table.get([key]).found[0]], [3, 6, 15, 18])
        self.assertEqual(sum(shard.tables["t"]["evicted_score"] for shard in self.client.stats()), 3)

    def test_a_worker_without_scores_changes_none_of_a_round(self):
        table = self.client.create_table("t", 2, combiner="concat", **self.FIELDS)
        table.push(np.arange(6), np.ones((6, 2), np.float32), scores=np.full(6, 5.0))
        clients = [embd.connect(self.server.addresses[0], deadline=20) for _ in range(2)]
        for client in clients:
            self.addCleanup(client.close)
        clocks = [embd.Clock(client, "scored", worker=worker, workers=2) for worker, client in enumerate(clients)]
        ones = np.ones((4, 2), np.float32)
        calls = [clients[0].table("t").push_start([0, 1, 2, 1], ones, scores=[1, -2, -np.inf, 3], round=clocks[0]),
                 clients[1].table("t").push_start([0, 2, 4, 7], ones, round=clocks[1])]
        for call in calls:
            call.wait()
        np.testing.assert_array_equal(self.scores(table, np.arange(8)), [1, 3, 5, 5, 5, 5, 0, 0])

    def test_scores_come_along_with_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            dump = os.path.join(folder, "dump")
            table = self.client.create_table("t", 2, combiner="concat", **self.FIELDS)
            scores = np.linspace(-3, 3, 100, dtype=np.float32)
            table.push(np.arange(100), np.ones((100, 2), np.float32), scores=scores)
            self.client.dump(dump, table="t")
            with clusters.Embd() as server, embd.connect(server.addresses[0], deadline=20) as other:
                other.load(dump)
                loaded = other.table("t")
                np.testing.assert_array_equal(self.scores(loaded, np.arange(100)), scores)
                loaded.push(np.arange(1000, 1090), np.ones((90, 2), np.float32), scores=np.full(90, 9.0))
                self.assertFalse(loaded.get(np.arange(0, 10)).found.any())  # one shard has the bound of three, 180
                self.assertTrue(loaded.get(np.arange(20, 100)).found.all())
                other.drop_table("t")
                other.load(dump, set={"on_full": "evict_lfu"})
                other.dump(dump + "2", table="t")
                other.drop_table("t")
                other.load(dump + "2", set={"on_full": "evict_score"})
                self.assertFalse(self.scores(other.table("t"), np.arange(100)).any())

    def test_what_is_no_score_is_refused_and_changes_nothing(self):
        table = self.client.create_table("t", 2, combiner="concat", partition="modulo", **self.FIELDS)
        other = self.client.create_table("lru", 2, combiner="concat", partition="modulo", capacity=9, on_full="evict_lru")
        ones = np.ones((2, 2), np.float32)
        for bad in (np.nan, np.inf):
            with self.assertRaisesRegex(embd.InvalidError, r"part 0: scores\[1\] is -?(nan|inf); it must be finite, or -inf"):
                table.push([0, 3], ones, scores=[1, bad])
        with self.assertRaisesRegex(embd.InvalidError, "table 'lru' has on_full 'evict_lru'; expected NULL, or a table"):
            other.push([0, 3], ones, scores=[1, 2])
        with self.assertRaises(ValueError):
            table.push([0, 3], ones, scores=[1])
        for to, changed in ("evict_lru", table), ("evict_lfu", table), ("evict_score", other):
            with self.assertRaises(embd.UnsupportedError):
                changed.set(on_full=to)
        with wire.connect(self.server) as peer:
            for t, scores, said in ((table, [1.0, float("nan")], r"part 0 scores\[1\] is -?nan, expected a finite number"),
                                    (table, [1.0], "8"), (other, [1.0, 2.0], "'lru' has on_full 'evict_lru'")):
                part = {"table": peer.call("table_describe", {"name": t.name})[0]["id"], "keys": 2, "scores": True}
                with self.assertRaisesRegex(wire.RpcError, said):
                    peer.call("push", {"parts": [part]}, wire.keys([0, 3]), wire.floats(scores), wire.floats([1.0] * 4))
        self.assertFalse(table.get([0, 3]).found.any() or other.get([0, 3]).found.any())

    def test_a_killed_server_has_the_same_scores_again(self):
        random = np.random.default_rng(8)
        with tempfile.TemporaryDirectory() as folder:
            data = os.path.join(folder, "data")
            os.mkdir(data)
            states = None
            for start in range(3):
                server = clusters.Embd("--data-dir", data)
                self.addCleanup(server.kill)
                with embd.connect(server.addresses[0], deadline=20) as client:
                    tables = [client.create_table(name, 2, combiner="concat", durability="durable", **self.FIELDS)
                              for name in ("a", "b")]
                    if states is not None:
                        for table, was in zip(tables, states):
                            got = table.get(np.arange(150), states=True)
                            np.testing.assert_array_equal(got.states, was.states)
                            np.testing.assert_array_equal(got.found, was.found)
                    for n in range(10):  # of one table, and of both as columns
                        keys = random.integers(0, 150, 40).astype(np.uint64)
                        parts = [embd.Part(table, keys, values=np.ones((40, 2), np.float32),
                                           scores=random.normal(size=40).astype(np.float32)) for table in tables]
                        client.push(parts[:1 + n % 2])
                    states = [table.get(np.arange(150), states=True) for table in tables]
                    self.assertGreater(client.stats()[0].tables["a"]["evicted_score"], 0)
                server.kill()


if __name__ == "__main__":
    clusters.main()
