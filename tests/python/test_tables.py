"""A thousand tables in one step: a pull or push of all of them is one call, one message a shard and one step each."""
import shutil
import tempfile
import threading
import unittest

import numpy as np

import clusters
import embd
from embd_process import Embd

TABLES = 1000
SGD = embd.Optimizer("sgd", lr=0.5)
KEYS = np.arange(40, dtype=np.uint64)


class ManyTables(unittest.TestCase):
    """Tables of 1 to 5 columns on two shards; every third one adds the rows of its keys two by two."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp()
        cls.server = Embd("--data-dir", cls.directory, shards=2)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0
        shutil.rmtree(cls.directory)

    def setUp(self):
        self.connect()
        for name in self.client.tables():
            self.client.drop_table(name)

    def connect(self):
        self.client = embd.connect(self.server.addresses[0], deadline=20)
        self.addCleanup(self.client.close)

    def create(self, n, durability="snapshot", **fields):
        return [self.client.create_table(f"t{i}", 1 + i % 5, optimizer=SGD, durability=durability,
                                         combiner="concat" if i % 3 else "sum",
                                         initializer=embd.Initializer("constant", i), **fields) for i in range(n)]

    def part(self, i, table, values=None, **more):
        offsets = None if i % 3 else np.arange(0, len(KEYS) + 1, 2)
        return embd.Part(table, KEYS + np.uint64(i), offsets, values=values, **more)

    def grads(self, i, table):
        n_rows = len(KEYS) if i % 3 else len(KEYS) // 2
        return np.random.default_rng(i).integers(-8, 8, (n_rows, table.schema.dim)).astype(np.float32)

    def expected(self, i, table):
        """What numpy says of the table after one push."""
        grads = self.grads(i, table)
        if i % 3:
            return i - np.float32(0.5) * grads
        return 2 * (i - np.float32(0.5) * grads)

    def push(self, tables, **options):
        self.client.push([self.part(i, table, self.grads(i, table)) for i, table in enumerate(tables)], **options)

    def check(self, tables):
        pulled = self.client.pull([self.part(i, table) for i, table in enumerate(tables)])
        for i, (table, rows) in enumerate(zip(tables, pulled)):
            np.testing.assert_array_equal(rows, self.expected(i, table), err_msg=table.name)

    def requests(self, method):
        return [shard.shard[f"requests_{method}"] for shard in self.client.stats()]

    def steps(self, tables):
        return {figures["steps"] for shard in self.client.stats() for figures in shard.tables.values()}

    def test_a_call_is_one_message_a_shard_and_one_step_of_each_table(self):
        tables = self.create(TABLES)
        before = self.requests("push"), self.requests("pull")
        self.push(tables)
        self.check(tables)
        after = self.requests("push"), self.requests("pull")
        self.assertEqual([[b - a for a, b in zip(*pair)] for pair in zip(before, after)], [[1, 1], [1, 1]])
        self.assertEqual(self.steps(tables), {1})
        np.testing.assert_array_equal(tables[1].pull(KEYS + np.uint64(1)), self.expected(1, tables[1]))

    def test_statuses_and_erases_are_those_of_each_table(self):
        tables = self.create(TABLES)
        statuses = [np.full(len(KEYS), 99, np.uint8) for _ in tables]
        parts = [self.part(i, table, self.grads(i, table), statuses=statuses[i]) for i, table in enumerate(tables)]
        self.client.push(parts)
        self.assertEqual({int(s) for of_table in statuses for s in of_table}, {embd.KeyStatus.INSERTED})
        self.client.erase([embd.Part(table, KEYS + np.uint64(i)) for i, table in enumerate(tables) if i % 2])
        self.client.pull([self.part(i, table, statuses=statuses[i]) for i, table in enumerate(tables)])
        for i in range(TABLES):
            self.assertEqual(set(statuses[i].tolist()), {embd.KeyStatus.MISSING if i % 2 else embd.KeyStatus.HIT})

    def test_a_push_that_a_shard_refuses_changes_none_of_its_tables(self):
        tables = self.create(200)
        grads = [self.grads(i, table) for i, table in enumerate(tables)]
        grads[199][-1, -1] = np.inf
        with self.assertRaisesRegex(embd.Error, "part 199 grads.* applied by shard 1; refused by shard 0"):
            self.client.push([self.part(i, table, grads[i]) for i, table in enumerate(tables)])
        self.assertEqual([{of_table["steps"] for of_table in shard.tables.values()} for shard in self.client.stats()],
                         [{0}, {1}])
        with self.assertRaisesRegex(embd.InvalidError, "parts 3 and 200 push to the same table t3"):
            self.client.push([*(self.part(i, t, self.grads(i, t)) for i, t in enumerate(tables)),
                              self.part(3, tables[3], self.grads(3, tables[3]))])

    def test_a_journal_brings_them_back(self):
        tables = self.create(300, durability="buffered")
        self.push(tables)
        self.check(tables)
        self.server.kill()
        type(self).server = Embd("--data-dir", self.directory, shards=2)
        self.connect()
        tables = [self.client.table(f"t{i}") for i in range(300)]
        self.check(tables)
        self.assertEqual(self.steps(tables), {1})

    def test_pulls_create_rows_in_all_of_them(self):
        tables = self.create(300, create_on="pull")
        self.client.pull([self.part(i, table) for i, table in enumerate(tables)])
        statuses = [np.zeros(len(KEYS), np.uint8) for _ in tables]
        self.client.pull([self.part(i, table, statuses=statuses[i]) for i, table in enumerate(tables)])
        self.assertEqual({int(s) for of_table in statuses for s in of_table}, {embd.KeyStatus.HIT})

    def test_workers_in_step_push_to_all_of_them(self):
        tables = self.create(200)
        clients = [embd.connect(self.server.addresses[0], deadline=20) for _ in range(2)]

        def work(worker):
            clock = embd.Clock(clients[worker], "many", worker=worker, workers=2)
            mine = [clients[worker].table(f"t{i}") for i in range(200)]
            clients[worker].push([self.part(i, t, self.grads(i, t)) for i, t in enumerate(mine)], round=clock)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.check(tables)
        self.assertEqual(self.steps(tables), {1})
        for client in clients:
            client.close()


if __name__ == "__main__":
    clusters.main()
