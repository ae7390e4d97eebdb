"""A thousand tables in one step: a pull or push of all of them is one call, one message a shard and one step each."""
import ctypes
import os
import random
import shutil
import tempfile
import threading
import unittest
import unittest.mock

import numpy as np

import clusters
import embd
from embd_process import Embd
from ports import free_ports
import wire

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


# Two pairs of names: the hashes of a pair, which give ids, are the same.
PAIRS = {"durable": ("good_53", "evil_1720fa9"), "snapshot": ("table42228", "table151621")}


def hash_of(name):
    xxh3 = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
    xxh3.restype, xxh3.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]
    return xxh3(name.encode(), len(name)) % 2**32


class NamesOfOneId(unittest.TestCase):
    """Nobody keeps a name from existing by taking its id: the second of two names has another one, on each shard by the
    order there. It is kept over kill -9, by journals, their bases and snapshots, and while tables go back to a snapshot."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory, self.random = directory.name, random.Random(7)

    def start(self, *flags):
        self.server = Embd(*flags, "--data-dir", os.path.join(self.directory, "data"), "--admin-dir",
                           os.path.join(self.directory, "admin"), shards=self.shards, listen=self.listen)

    def kill(self, *flags):
        self.server.kill()
        self.start(*flags)

    def create(self, names, durability):
        """Shards get the names in different orders."""
        for i, address in enumerate(self.server.addresses):
            host, port = address.rsplit(":", 1)
            with wire.Wire((host, int(port))) as shard:
                ids = [wire.create(shard, name, dim=2, durability=durability) for name in (names[::-1] if i % 2 else names)]
            self.assertEqual(len({*ids}), 2)
            self.assertIn(hash_of(names[0]), ids)

    def push(self):
        for name, table in self.tables.items():
            grads = np.array([[self.random.randrange(-8, 8) for _ in range(2)] for _ in KEYS], np.float32)
            table.push(KEYS, grads)
            self.wanted[name] -= np.float32(0.5) * grads

    def check(self, tables):
        for name, table in tables.items():
            np.testing.assert_array_equal(table.pull(KEYS), self.wanted[name], err_msg=name)

    def open_all(self, client):
        return {name: client.table(name) for name in self.wanted}

    def load_elsewhere(self, dump):
        with Embd(shards=4 - self.shards) as other:
            with embd.connect(other.addresses[0], deadline=20) as client:
                client.load(dump, set={"durability": "snapshot"})
                self.check(self.open_all(client))

    def drop_and_create(self, name, other, durability):
        self.tables[name].client.drop_table(name)
        with self.assertRaises(embd.UnknownTableError):
            self.tables[name].pull(KEYS)
        self.check({other: self.tables[other]})
        self.create([other, name], durability)
        self.wanted[name] = np.ones((len(KEYS), 2), np.float32)
        self.tables[name] = self.tables[name].client.table(name)

    @unittest.mock.patch("warnings.warn")  # that the server was away
    def goes_through_all(self, shards, order, _):
        self.shards, self.listen = shards, f"127.0.0.1:{free_ports(shards)}"
        os.mkdir(os.path.join(self.directory, "data"))
        self.start()
        for durability, names in PAIRS.items():
            self.assertEqual(hash_of(names[0]), hash_of(names[1]))
            self.create(names[::order], durability)
        self.wanted = {name: np.ones((len(KEYS), 2), np.float32) for names in PAIRS.values() for name in names}
        with embd.connect(",".join(self.server.addresses), deadline=20, unnumbered=True) as client:
            self.tables = self.open_all(client)
            self.push()
            self.check(self.tables)
            client.snapshot("first")
            client.dump(os.path.join(self.directory, "dump"))
            self.kill()
            self.check(self.tables)
            self.load_elsewhere(os.path.join(self.directory, "dump"))
            then = {name: rows.copy() for name, rows in self.wanted.items()}
            self.push()
            self.check(self.tables)
            client.load(os.path.join(self.directory, "data", "first"), replace=True)
            self.wanted = then
            self.check(self.tables)
            for durability, (a, b) in PAIRS.items():
                self.drop_and_create(a, b, durability)
            self.push()
            client.snapshot("second")
            self.kill()
            self.check(self.tables)
            lost = PAIRS["durable"][1]
            self.kill("--drop-table", lost)
            self.kill()  # from the base that this made
            with self.assertRaises(embd.UnknownTableError):
                self.tables.pop(lost).pull(KEYS)
            self.check(self.tables)
        self.assertEqual(self.server.stop(), 0)
        shutil.rmtree(os.path.join(self.directory, "data"))
        shutil.rmtree(os.path.join(self.directory, "dump"))

    def test_on_one_shard_in_both_orders(self):
        self.goes_through_all(1, 1)
        self.goes_through_all(1, -1)

    def test_on_three_shards_that_give_different_ids(self):
        self.goes_through_all(3, 1)


class LargeSteps(unittest.TestCase):
    """Shares of a shard that are longer than other frames, 64 MiB."""

    DIM, KEYS = 256, 700
    ADAM = embd.Optimizer("adam", lr=0.01)

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)

    def start(self, shards=1, flags=()):
        server = Embd("--frame-memory", "400M", "--push-limit", "128M", *flags, shards=shards)
        self.addCleanup(server.kill)
        return server, self.connect(server)

    def connect(self, server):
        client = embd.connect(server.addresses[0], deadline=60)
        self.addCleanup(client.close)
        return client

    def create(self, client, n, **fields):
        return [client.create_table(f"t{i}", self.DIM, optimizer=self.ADAM, initializer=embd.Initializer("constant", i),
                                    **{"combiner": ("concat", "sum", "mean")[i % 3], **fields}) for i in range(n)]

    def parts(self, tables, seed):
        """With keys twice; every third table without pooling, the others with weights, every second one with an lr of its own."""
        rng = np.random.default_rng(seed)
        parts = []
        for i, table in enumerate(tables):
            keys = rng.integers(0, self.KEYS, 2 * self.KEYS).astype(np.uint64)
            pooled = {} if i % 3 == 0 else {"offsets": np.arange(0, len(keys) + 1, 2),
                                            "weights": rng.random(len(keys), np.float32)}
            grads = rng.standard_normal((len(keys) if i % 3 == 0 else len(keys) // 2, self.DIM), np.float32)
            parts.append(embd.Part(table, keys, values=grads, lr=0.02 if i % 2 else None, **pooled))
        return parts

    def rows(self, client, tables):
        keys = np.arange(self.KEYS, dtype=np.uint64)
        return np.stack(client.pull([embd.Part(table, keys, raw=True) for table in tables]))

    def test_one_shard_takes_the_step_that_three_take_by_shorter_messages(self):
        got = []
        for shards in 1, 3:
            server, client = self.start(shards)
            tables = self.create(client, 90)
            for wire in "f32", "f16":
                client.push(self.parts(tables, 1), plan="pooled", wire=wire)
            got.append(self.rows(client, tables))
            requests = [shard.shard["requests_push"] for shard in client.stats()]
            self.assertEqual(requests, [2] * shards)
            client.close()
            server.kill()
        np.testing.assert_array_equal(*got)

    def test_a_message_has_more_keys_than_a_part_may_have(self):
        _, client = self.start()
        tables = [client.create_table(f"t{i}", 2, optimizer=SGD, combiner="sum",
                                      initializer=embd.Initializer("constant", 0)) for i in range(2)]
        n, bag = 22 << 17, 64
        grads = np.ones((n // bag, 2), np.float32)
        client.push([embd.Part(t, np.zeros(n, np.uint64), np.arange(0, n + 1, bag), values=grads) for t in tables],
                    plan="pooled")
        for table in tables:
            self.assertEqual(table.pull(np.zeros(1, np.uint64)).tolist(), [[-n / 2, -n / 2]])
        with self.assertRaisesRegex(embd.Error, "keys"):
            client.push([embd.Part(tables[0], np.zeros(2 * n, np.uint64), np.array([0, 2 * n]), values=grads[:1])], plan="pooled")

    def test_the_keys_of_a_push_are_counted_before_it_is_sent(self):
        server = Embd("--frame-memory", "600M", "--push-limit", "200M")
        self.addCleanup(server.kill)
        client = self.connect(server)
        tables = [client.create_table(f"t{i}", 1, optimizer=SGD, combiner="sum") for i in range(5)]
        keys, grads = np.zeros(4 << 20, np.uint64), np.ones((1, 1), np.float32)
        with self.assertRaisesRegex(embd.Error, "20971520 keys for a shard, the limit of all its tables is 16777216"):
            client.push([embd.Part(table, keys, [0, len(keys)], values=grads) for table in tables], plan="pooled")
        self.assertEqual(client.stats()[0].shard["requests_push"], 0)

    def test_workers_in_step_push_large_shares_which_are_one_record(self):
        server, client = self.start(flags=("--data-dir", self.directory))
        self.create(client, 75, durability="durable")

        def work(worker):
            own = self.connect(server)
            clock = embd.Clock(own, "large", worker=worker, workers=2)
            own.push(self.parts([own.table(f"t{i}") for i in range(75)], worker), plan="pooled", round=clock)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        before = self.rows(client, [client.table(f"t{i}") for i in range(75)])
        self.assertEqual({of_table["steps"] for of_table in client.stats()[0].tables.values()}, {1})
        self.assertGreater(os.path.getsize(os.path.join(self.directory, "journal.0.00000001")), 64 << 20)
        server.kill()
        server, client = self.start(flags=("--data-dir", self.directory))
        np.testing.assert_array_equal(self.rows(client, [client.table(f"t{i}") for i in range(75)]), before)


if __name__ == "__main__":
    clusters.main()
