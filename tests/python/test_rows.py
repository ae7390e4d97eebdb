"""Table.get and Table.put: rows by key with their state, over shards, beside pushes, restarts and increments."""
import contextlib
import functools
import os
import pathlib
import re
import socket
import tempfile
import threading
import unittest
import unittest.mock

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

    def test_finite_values_that_would_be_infinite_are_refused_by_key_and_value(self):
        """Also where infinity is admitted; the greatest value is none of them, nor is infinity."""
        for dtype, most, beyond in ("f16", 65519.0, 65520.0), ("bf16", 3.39e38, 3.4e38):
            for admits in False, True:
                table = self.table(f"{dtype}-{int(admits)}", dtype=dtype, admit_nonfinite=admits)
                table.put([6], [[-most, 0, most, 1]])
                before = table.get([6, 7]).values
                self.assertTrue(np.isfinite(before).all())
                for value in beyond, -beyond, 3.4e38:
                    says = re.escape(f"put: key 7 has {value:g} in column 2, which is infinite as {dtype}, the dtype of")
                    with self.assertRaisesRegex(embd.Error, says):
                        table.put([6, 7], [[1, 2, 3, 4], [1, 2, value, 4]])
                np.testing.assert_array_equal(table.get([6, 7]).values, before)
            table.put([7], [[np.inf, 0, -np.inf, 1]])
            np.testing.assert_array_equal(table.get([7]).values, [[np.inf, 0, -np.inf, 1]])

    def test_rows_with_a_scale_are_put_as_the_nearest_codes_and_refused_whole(self):
        for dtype, most in ("i8", 127), ("e4m3", 448):
            table, values = self.table(dtype, dtype=dtype), np.random.default_rng(5).normal(size=(40, 4)).astype(np.float32)
            table.put(range(40), values)
            got = table.get(range(40)).values
            scale = np.abs(values).max(1, keepdims=True) / np.float32(most)
            unit = scale if dtype == "i8" else np.maximum(np.exp2(np.floor(np.log2(np.abs(values / scale))) - 3), 2.0**-9) * scale
            self.assertTrue((np.abs(got - values) <= unit * 0.50001).all())
            np.testing.assert_array_equal(table.pull(range(40)), got)
            with self.assertRaisesRegex(embd.Error, "put rows: key 7, row [01], column 0 is nan"):
                table.put([6, 7], [[1, 2, 3, 4], [1, 2, np.inf, 4]])
            np.testing.assert_array_equal(table.get(range(40)).values, got)

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


class Tensors(clusters.ClusterTest):
    """Tables as safetensors files, and back."""

    shards = 2

    def setUp(self):
        try:
            import safetensors.numpy
        except ImportError:
            self.skipTest("safetensors is not installed: deploy/deps.sh --tools")
        self.numpy = safetensors.numpy
        super().setUp()
        self.folder = tempfile.TemporaryDirectory(prefix="embd-tensors-")
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "t.safetensors")

    def trained(self, name, **fields):
        table = self.client.create_table(name, 4, optimizer=embd.Optimizer("adam", lr=0.1), combiner="concat", **fields)
        self.keys = np.array([0, 7, 2**63, 2**64 - 1], np.uint64)
        for _ in range(3):
            table.push(self.keys, np.random.default_rng(4).normal(size=(4, 4)))
        return table

    def test_a_table_goes_into_a_file_and_trains_on_out_of_it(self):
        source = self.trained("source")
        self.assertEqual(embd.save_safetensors(source, self.path), 4)
        self.assertEqual(os.listdir(self.folder.name), ["t.safetensors"])
        found = self.numpy.load_file(self.path)
        order = np.argsort(found["keys"].view(np.uint64))
        np.testing.assert_array_equal(found["keys"].view(np.uint64)[order], self.keys)
        np.testing.assert_array_equal(found["values"][order], source.pull(self.keys))
        copy = self.client.create_table("copy", 4, optimizer=embd.Optimizer("adam", lr=0.1), combiner="concat")
        self.assertEqual(embd.load_safetensors(copy, self.path), 4)
        self.assertEqual(copy.step, 3)
        for table in source, copy:
            table.push(self.keys, np.ones((4, 4)))
        np.testing.assert_array_equal(copy.pull(self.keys), source.pull(self.keys))

    def test_slots_rows_alone_and_files_of_others(self):
        slots = self.client.create_table("slots", 2, slots=2, partition="slot")
        slots.put([5, 5, 6], [[1, 2], [3, 4], [5, 6]], slots=[0, 1, 1])
        self.assertEqual(embd.save_safetensors(slots, self.path, states=False), 3)
        again = self.client.create_table("again", 2, slots=2, partition="slot")
        self.assertEqual(embd.load_safetensors(again, self.path), 3)
        np.testing.assert_array_equal(again.get([5, 5, 6], slots=[0, 1, 1]).values, [[1, 2], [3, 4], [5, 6]])
        theirs = {"keys": np.arange(3, dtype=np.uint64), "values": np.full((3, 4), 0.5, np.float16)}
        self.numpy.save_file(theirs, self.path)
        plain = self.client.create_table("plain", 4, combiner="concat")
        self.assertEqual(embd.load_safetensors(plain, self.path), 3)
        np.testing.assert_array_equal(plain.pull(range(3)), np.full((3, 4), 0.5))
        self.assertEqual(embd.save_safetensors(self.client.create_table("none", 3), self.path), 0)

    def test_what_does_not_fit_is_named_and_nothing_is_written(self):
        table, keys, values = self.trained("fits"), np.arange(2), np.zeros((2, 4), np.float32)
        before = table.get(range(10), states=True)
        for tensors, says in (({"keys": keys}, "has the tensors keys; table fits takes keys, values"),
                              ({"keys": keys, "values": values, "more": keys}, "keys, more, values"),
                              ({"keys": keys, "values": values, "slots": keys}, "slots"),
                              ({"keys": keys.astype(np.int32), "values": values}, "keys is int32"),
                              ({"keys": keys, "values": values[:, :3]}, r"values is float32 \(2, 3\)"),
                              ({"keys": keys, "values": values, "states": values}, r"states is float32 \(2, 4\)"),
                              ({"keys": keys, "values": values + [[0], [np.nan]]}, "values: key 1, column 0 is nan"),
                              ({"keys": keys, "values": values, "states": np.full((2, 8), np.inf)}, "states: key 0, column 0 is inf"),
                              ({"keys": keys, "values": values, "states": np.zeros((2, 8))}, "step is '-1'; a whole number up to")):
            tensors = {name: array.astype(np.float32) if array.dtype == np.float64 else np.ascontiguousarray(array)
                       for name, array in tensors.items()}
            self.numpy.save_file(tensors, self.path, metadata={"format": "embd.table.1", "optimizer": "adam", "step": "-1"})
            with self.assertRaisesRegex(ValueError, says):
                embd.load_safetensors(table, self.path)
        narrow = self.client.create_table("narrow", 4, dtype="f16")
        self.numpy.save_file({"keys": keys, "values": np.float32([[0] * 4, [65519.99, 65520, 0, 0]])}, self.path)
        with self.assertRaisesRegex(ValueError, "key 1, column 1 is 65520.*finite numbers up to 65519"):
            embd.load_safetensors(narrow, self.path)
        self.assertFalse(narrow.get(keys).found.any())
        embd.save_safetensors(table, self.path)
        other = self.client.create_table("other", 4, combiner="concat", optimizer=embd.Optimizer("ftrl", lr=0.1))
        with self.assertRaisesRegex(ValueError, "states are of the optimizer adam; table other has ftrl"):
            embd.load_safetensors(other, self.path)
        path = pathlib.Path(self.path)
        path.write_bytes(path.read_bytes()[:-1])
        with self.assertRaises(Exception):
            embd.load_safetensors(table, self.path)
        for old, new in zip(before, table.get(range(10), states=True)):
            np.testing.assert_array_equal(old, new)

    def test_a_file_that_cannot_be_written_leaves_the_old_one(self):
        table = self.trained("kept")
        embd.save_safetensors(table, self.path)
        before = pathlib.Path(self.path).read_bytes()
        table.push(self.keys, np.ones((4, 4)))
        with unittest.mock.patch.object(self.numpy, "save_file", side_effect=OSError(28, "No space left on device")):
            with self.assertRaises(OSError):
                embd.save_safetensors(table, self.path)
        self.assertEqual(pathlib.Path(self.path).read_bytes(), before)
        self.assertEqual(os.listdir(self.folder.name), ["t.safetensors"])


class NoTensors(clusters.ClusterTest):
    def test_without_the_package_it_says_how_to_get_it(self):
        table = self.client.create_table("t", 2)
        with unittest.mock.patch.dict("sys.modules", {"safetensors": None}):
            for call in embd.save_safetensors, embd.load_safetensors:
                with self.assertRaisesRegex(ImportError, r"pip install 'embd\[safetensors\]'"):
                    call(table, "/nowhere/t.safetensors")


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
            start = functools.partial(Embd, "--data-dir", folder, "--advertise", "127.0.0.2", "--local-socket", "off",
                                      listen=f"127.0.0.1:{port}")
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
