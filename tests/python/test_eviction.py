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


if __name__ == "__main__":
    clusters.main()
