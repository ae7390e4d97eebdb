"""Table.get and Table.put: rows by key with their state, over shards, beside pushes, restarts and increments."""
import contextlib
import functools
import socket
import tempfile
import threading
import unittest

import numpy as np

import clusters
import embd
from embd_process import Embd
from ports import free_ports


class Rows(clusters.ClusterTest):
    shards = 3

    def table(self, name, **fields):
        fields = {"optimizer": embd.Optimizer("adam", lr=0.1), "combiner": "concat", **fields}
        return self.client.create_table(name, 4, **fields)

    def test_what_is_put_is_got_over_shards_and_batches(self):
        table, keys = self.table("many"), np.random.default_rng(1).permutation(300000).astype(np.uint64)
        values = (np.arange(keys.size * 4, dtype=np.float32) / 64).reshape(-1, 4)
        states = (np.arange(keys.size * 8, dtype=np.float32) / 32).reshape(-1, 8)
        self.assertEqual(table.state_floats, 8)
        self.assertEqual(table.put(keys, values, states), keys.size)
        self.assertEqual(table.put(keys[:10], values[:10], states[:10]), 0)
        got = table.get(np.append(keys, np.uint64(10**6)), states=True)
        np.testing.assert_array_equal(got.values[:-1], values)
        np.testing.assert_array_equal(got.states[:-1], states)
        self.assertTrue(got.found[:-1].all() and not got.found[-1])
        self.assertFalse(got.values[-1].any() or got.states[-1].any())
        np.testing.assert_array_equal(table.pull(keys[:100]), values[:100])

    def test_keys_are_listed_over_shards_while_the_table_changes(self):
        table, rng = self.table("listed"), np.random.default_rng(3)
        keys = rng.permutation(200000).astype(np.uint64)
        table.put(keys, np.zeros((keys.size, 4)))
        np.testing.assert_array_equal(np.sort(np.concatenate(list(table.keys(batch=5000)))), np.sort(keys))
        stay, listed, new = keys[:1000], [], 10**6
        for batch in table.keys(batch=2000):
            self.assertLessEqual(batch.size, 2000)
            listed.append(batch)
            table.erase(rng.choice(keys[1000:], 3000, replace=False))
            table.push(range(new, new + 500), np.ones((500, 4)))
            new += 500
        listed = np.concatenate(listed)
        self.assertEqual(np.unique(listed).size, listed.size)
        self.assertTrue(np.isin(stay, listed).all())
        self.assertTrue((np.isin(listed, keys) | (listed >= 10**6)).all())

    def test_a_scan_gives_rows_with_their_state_and_slots(self):
        table = self.table("scanned", slots=2, slot_sizes=[10, 20], partition="slot")
        keys, slots = np.array([3, 12, 29], np.uint64), np.array([0, 1, 1], np.uint16)
        values, states = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(24, dtype=np.float32).reshape(3, 8)
        table.put(keys, values, states, slots=slots)
        parts = list(table.scan(states=True, batch=2))
        found = np.concatenate([p.keys for p in parts])
        order = np.argsort(found)
        np.testing.assert_array_equal(found[order], keys)
        for name, expected in ("slots", slots), ("values", values), ("states", states):
            np.testing.assert_array_equal(np.concatenate([getattr(p, name) for p in parts])[order], expected)
        bare = next(iter(table.scan(values=False)))
        self.assertTrue(bare.values is None and bare.states is None)
        self.assertEqual(list(self.table("bare").keys()), [])
        with self.assertRaisesRegex(ValueError, "batch is 0"):
            next(table.keys(batch=0))

    def test_a_list_of_a_table_that_was_made_anew_says_so(self):
        table = self.table("again")
        table.put(range(3000), np.zeros((3000, 4)))
        keys = table.keys(batch=100)
        next(keys)
        table.drop()
        self.table("again").put(range(3000), np.zeros((3000, 4)))
        with self.assertRaisesRegex(embd.InvalidError, "keys scan.*begin again"):
            next(keys)

    def test_a_get_makes_no_row_and_an_empty_one_is_right(self):
        table = self.table("none", create_on="pull")
        self.assertFalse(table.get([1, 2, 3]).found.any())
        self.assertEqual(table.get([]).values.shape, (0, 4))
        self.assertEqual(table.put([], np.zeros((0, 4))), 0)
        self.assertEqual(sum(s.tables["none"]["rows"] for s in self.client.stats()), 0)

    def test_rows_with_their_state_go_on_where_they_were(self):
        """Rows carried to another table take the same next step, to the bit; without state they begin anew."""
        keys, other = np.arange(50), {"carried": None, "anew": None}
        table = self.table("source")
        gradient = np.random.default_rng(2).normal(size=(50, 4)).astype(np.float32)
        for _ in range(3):
            table.push(keys, gradient)
        rows = table.get(keys, states=True)
        for name in other:
            other[name] = self.table(name)
            for _ in range(3):
                other[name].push([10**9], np.zeros((1, 4)))  # the same step
        other["carried"].put(keys, rows.values, rows.states)
        other["anew"].put(keys, rows.values)
        self.assertFalse(other["anew"].get(keys, states=True).states.any())
        for each in table, *other.values():
            each.push(keys, gradient)
        np.testing.assert_array_equal(other["carried"].pull(keys), table.pull(keys))
        self.assertTrue((other["anew"].pull(keys) != table.pull(keys)).any())

    def test_rows_of_sixteen_bits_and_slots(self):
        table = self.table("slots", dtype="bf16", slots=2, slot_sizes=[10, 20], partition="slot")
        keys, slots, values = [3, 12, 29], [0, 1, 1], np.array([[1, 2, 3, 4.001]] * 3, np.float32)
        table.put(keys, values, slots=slots)
        got = table.get(keys, slots=slots).values
        np.testing.assert_array_equal(got, [[1, 2, 3, 4]] * 3)
        with self.assertRaisesRegex(embd.InvalidError, "rows.slots is NULL"):
            table.get(keys)
        with self.assertRaisesRegex(embd.InvalidError, "29"):
            table.put([29], values[:1], slots=[0])

    def test_a_handle_of_a_table_that_was_made_anew_says_so(self):
        old = self.table("anew", dtype="f16")
        old.drop()
        new = self.client.create_table("anew", 3, combiner="concat")
        with self.assertRaisesRegex(embd.Error, "3 f32 columns.*4 f16.*open it again"):
            old.get([1])
        with self.assertRaisesRegex(embd.Error, "rows"):
            old.put([1], np.ones((1, 4)))
        self.assertFalse(new.get([1]).found.any())

    def test_what_is_wrong_is_refused_by_name_and_changes_nothing(self):
        table = self.table("wrong", capacity=6, on_full="error")
        table.put([1, 2], np.ones((2, 4)))
        before = table.get(range(40), states=True)
        with self.assertRaisesRegex(embd.Error, "key 2, row .*column 3 is nan"):
            table.put([2], [[0, 0, 0, np.nan]])
        with self.assertRaisesRegex(embd.FullError, "capacity 6"):
            table.put(range(40), np.zeros((40, 4)))
        with self.assertRaises(ValueError):
            table.put([1], np.zeros((1, 3)))
        for old, new in zip(before, table.get(range(40), states=True)):
            np.testing.assert_array_equal(old, new)


class Relay:
    """Before a server that advertises it: the answer to the first put after `armed` is lost with its connection, once `goes_on`
    is set; all else passes."""

    def __init__(self, address, server):
        self.server, self.armed, self.lost, self.goes_on = server, False, threading.Event(), threading.Event()
        self.listener = socket.create_server(address)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                try:
                    ends = client, socket.create_connection(self.server)
                except OSError:  # the server is down
                    client.close()
                    continue
                loses = threading.Event()
                for source, to in ends, ends[::-1]:
                    threading.Thread(target=self.run, args=(source, to, source is client, loses), daemon=True).start()

    def run(self, source, to, is_request, loses):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_request and self.armed and b"\xa3put" in data:
                    self.armed = False
                    loses.set()
                if not is_request and loses.is_set():
                    self.lost.set()
                    self.goes_on.wait(20)
                    break
                to.sendall(data)
        for end in source, to:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self):
        self.listener.close()


class Once(unittest.TestCase):
    """A put whose answer is lost is sent again, and does not undo what was pushed after it."""

    def put_with_lost_answer(self, durability, restart):
        port = free_ports(1, ("127.0.0.1", "127.0.0.2"))
        relay = Relay(("127.0.0.2", port), ("127.0.0.1", port))
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="embd-rows-"))
            stack.callback(relay.close)
            start = functools.partial(Embd, "--data-dir", folder, "--advertise", "127.0.0.2", listen=f"127.0.0.1:{port}")
            server = start()
            stack.callback(lambda: server.kill())
            client, other = (stack.enter_context(embd.connect(f"127.0.0.2:{port}", deadline=20)) for _ in range(2))
            table = client.create_table("once", 2, durability=durability, optimizer=embd.Optimizer("sgd", lr=1))
            table.push([1], [[0, 0]])  # numbers begin here
            relay.armed, inserted = True, []
            putting = threading.Thread(target=lambda: inserted.append(table.put([1, 2], [[5, 5], [6, 6]])))
            putting.start()
            self.assertTrue(relay.lost.wait(20))
            other.table("once").push([1], [[1, 2]])
            if restart:
                server.kill()
                server = start()
            relay.goes_on.set()
            putting.join(20)
            self.assertEqual(inserted, [0])  # the answer that says 1 was lost
            np.testing.assert_array_equal(table.get([1, 2]).values, [[4, 3], [6, 6]])
            table.push([2], [[1, 1]])
            self.assertEqual(table.put([3], [[7, 7]]), 1)
            np.testing.assert_array_equal(table.get([1, 2, 3]).values, [[4, 3], [5, 5], [7, 7]])

    def test_a_put_whose_answer_is_lost_is_applied_once(self):
        for durability, restart in ("snapshot", False), ("durable", False), ("durable", True):
            with self.subTest(durability, restart=restart):
                self.put_with_lost_answer(durability, restart)


class Kept(unittest.TestCase):
    def write(self, server, durability, keys):
        with embd.connect(server.addresses[0]) as client:
            table = client.create_table("kept", 2, durability=durability)
            table.put(keys, np.ones((100, 2)))
            if durability == "snapshot":
                client.snapshot("base")
            table.put(keys[::2], np.full((50, 2), 3))
            if durability == "snapshot":
                client.snapshot("changes", base="base")

    def test_rows_are_in_journals_snapshots_and_increments(self):
        keys = np.arange(100)
        for durability in "durable", "snapshot":
            with self.subTest(durability), tempfile.TemporaryDirectory(prefix="embd-rows-") as folder:
                server = Embd("--data-dir", folder, shards=2)
                self.write(server, durability, keys)
                server.kill()
                with Embd("--data-dir", folder, shards=2) as again, embd.connect(again.addresses[0]) as client:
                    got = client.table("kept").get(keys)
                    self.assertTrue(got.found.all())
                    np.testing.assert_array_equal(got.values[:, 0], np.where(keys % 2, 1, 3))


if __name__ == "__main__":
    clusters.main()
