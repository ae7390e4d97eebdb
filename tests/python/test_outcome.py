"""A push or erase that some shards applied and others did not says which: servers of a shard each, of which one is full, one
dies while the push waits there, and then cannot be reached."""
import contextlib
import os
import tempfile
import time
import unittest

import numpy as np

import clusters
import embd
from ports import free_ports
from wire import Wire, connect

SHARDS = 4


class Servers:
    """A process for each shard, from one configuration file."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="embd-outcome-")
        path, admin = (os.path.join(self.folder.name, name) for name in ("embd.yaml", "admin"))
        port = free_ports(SHARDS)
        with open(path, "w", encoding="ascii") as file:
            file.write(f"http: off\nadmin_dir: {admin}\ncluster:\n  servers:\n" + "".join(
                f'    - {{name: s{i}, listen: "127.0.0.1:{port + i}"}}\n' for i in range(SHARDS)))
        self.admin = [os.path.join(admin, f"{port + i}.sock") for i in range(SHARDS)]
        self.list = []
        for i in range(SHARDS):
            self.list.append(clusters.Embd("--admin-dir", admin, "--config", path, "--server", f"s{i}", listen=None))
        return self

    def __exit__(self, kind, value, trace):
        for server in self.list:
            with contextlib.suppress(Exception):
                server.stop()
        self.folder.cleanup()


class Outcome(unittest.TestCase):
    def setUp(self):
        self.servers = Servers().__enter__()
        self.addCleanup(self.servers.__exit__, None, None, None)
        self.client = embd.connect(self.servers.list[0].addresses[0], deadline=20)
        self.addCleanup(self.client.close)
        self.table = self.client.create_table("t", 1, partition="modulo", capacity=1, on_full="error", combiner="concat",
                                              durability="snapshot", optimizer=embd.Optimizer("sgd", lr=1))
        self.table.push(np.arange(SHARDS), np.ones((SHARDS, 1), np.float32))  # all shards are full now

    def steps(self, shards):
        found = []
        for shard in shards:
            with connect(self.servers.list[shard]) as wire:
                found.append(wire.call("table_describe", {"name": "t"})[0]["step"])
        return found

    def failed(self, kind, call):
        with self.assertRaises(kind) as caught:
            call()
        return str(caught.exception)

    def push(self, *keys, **options):
        """Keys 0 to 3 are there, on shards 0 to 3; greater ones have no room."""
        return self.table.push_start(keys, np.ones((len(keys), 1), np.float32), **options)

    def test_a_push_that_one_shard_refuses_says_who_applied_it(self):
        text = self.failed(embd.FullError, self.push(SHARDS + 1, 0, 2).wait)
        self.assertTrue(text.startswith(f"table is full: {self.servers.list[1].addresses[0]}: "), text)
        self.assertTrue(text.endswith("; applied by shards 0, 2-3; refused by shard 1 (table is full)"), text)
        self.assertEqual(self.steps(range(SHARDS)), [2, 1, 2, 2])

    def test_a_push_that_all_refuse_says_no_more(self):
        text = self.failed(embd.FullError, self.push(*range(SHARDS, 2 * SHARDS)).wait)
        self.assertIn(self.servers.list[0].addresses[0], text)
        self.assertNotIn("refused by", text)
        self.assertEqual(self.steps(range(SHARDS)), [1] * SHARDS)

    def test_a_pull_that_fails_on_one_shard_says_no_more(self):
        self.client.create_table("p", 1, partition="modulo", capacity=1, on_full="error", create_on="pull",
                                 combiner="concat", durability="snapshot").pull(np.arange(SHARDS))
        text = self.failed(embd.FullError, lambda: self.client.table("p").pull([0, 1 + SHARDS]))
        self.assertNotIn("applied", text)

    def push_while_one_dies(self, **options):
        with Wire(self.servers.admin[2]) as admin:
            admin.call("hold", {})
            call = self.push(SHARDS, 1, 2, 3, **options)
            end = time.monotonic() + 20
            while admin.call("stats")[0]["stats"]["requests_parked"] == 0:
                call.done()
                self.assertLess(time.monotonic(), end)
            self.servers.list[2].kill()
        return call

    def test_of_a_shard_that_dies_it_is_unknown_and_then_nothing_is_sent_to_it(self):
        client = embd.connect(self.servers.list[0].addresses[0], deadline=20, unnumbered=True)
        self.addCleanup(client.close)
        self.table = client.table("t")
        text = self.failed(embd.FullError, self.push_while_one_dies().wait)
        self.assertIn("; applied by shards 1, 3; refused by shard 0 (table is full); unknown of shard 2", text)
        text = self.failed(embd.FullError, self.push(SHARDS, 1, 2, 3, deadline=2).wait)
        self.assertIn("; applied by shards 1, 3; refused by shard 0 (table is full); not sent to shard 2 (server cannot be reached)",
                      text)
        text = self.failed(embd.UnreachableError, lambda: self.table.erase([1, 2, 3], deadline=2))
        self.assertTrue(text.endswith("; applied by shards 1, 3; not sent to shard 2 (server cannot be reached)"), text)
        self.assertEqual(self.steps([0, 1, 3]), [1, 3, 3])

    def test_a_numbered_push_waits_for_a_shard_that_dies_and_the_next_one_is_sent_to_nobody(self):
        text = self.failed(embd.FullError, self.push_while_one_dies(deadline=2).wait)
        self.assertIn("; applied by shards 1, 3; refused by shard 0 (table is full); unknown of shard 2", text)
        text = self.failed(embd.UnreachableError, lambda: self.push(0, 1, 2, 3, deadline=2))
        self.assertTrue(text.endswith("; the push was not sent"), text)
        self.assertEqual(self.steps([0, 1, 3]), [1, 2, 2])


if __name__ == "__main__":
    clusters.main()
