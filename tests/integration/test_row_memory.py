"""row_memory: pushes that need new rows are refused at the limit, before the journal; everything else goes on, a start
gets through, and what is dropped is room again. In a memory cgroup the limit is there by itself. EMBD_TRIED: another
program, and EMBD_STORE: its store; then without the cases of the host's memory."""
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import unittest

import embd_process
import wire

PROGRAM, STORE = os.environ.get("EMBD_TRIED", embd_process.BIN), os.environ.get("EMBD_STORE", "host")
of_the_host = unittest.skipIf(STORE != "host", f"of the store host, not {STORE}")
MB = 1 << 20
DIM, KEYS = 16, 4096
GRADS = wire.floats([0.5] * (DIM * KEYS))
LIMIT_OF_PULLS = "4M" if STORE == "host" else "16M"
FULL_FROM = 0.8 if STORE == "host" else 0.6  # a device's memory comes by 2 MiB, and its key table doubles beside its copy


class Server:
    """A server over a directory, and its only connection."""

    def __init__(self, data, *flags, program=PROGRAM):
        self.process = embd_process.Embd("--store", STORE, "--data-dir", data, *flags, program=program, ready_s=60)
        self.peer = wire.connect(self.process, timeout=60)

    def end(self, number):
        self.peer.close()
        log = self.process.log()
        self.process.process.send_signal(number)
        self.process.wait()
        self.process.kill()
        return log


class RowMemory(unittest.TestCase):
    def setUp(self):
        self.data = tempfile.mkdtemp(prefix="embd-rows-")
        self.addCleanup(shutil.rmtree, self.data)
        self.server = None
        self.addCleanup(self.leave)

    def leave(self):
        if self.server is not None:
            self.server.end(signal.SIGKILL)

    def start(self, *flags, program=PROGRAM):
        self.server = Server(self.data, "--http", "off", *flags, program=program)

    def end(self, number):
        log = self.server.end(number)
        self.server = None
        return log

    def stats(self):
        return self.server.peer.call("stats", {})[0]["stats"]

    def create(self, name, durability="buffered"):
        return wire.create(self.server.peer, name, DIM, value=0.0, durability=durability,
                           optimizer={"kind": "adam", "lr": 0.01})

    def push(self, table, first, n=KEYS):
        return self.server.peer.call("push", {"parts": [{"table": table, "keys": n}]},
                                     wire.keys(range(first, first + n)), GRADS[:4 * DIM * n])

    def fill(self, table, first=0):
        """Until the server refuses; the keys that have rows."""
        while True:
            try:
                self.push(table, first)
            except wire.RpcError as refused:
                return first, refused
            first += KEYS
            self.assertLess(first, 1 << 20, "nothing was refused")

    def check_refused_text(self, error, name):
        self.assertEqual(error.number, wire.FULL, error.text)
        for word in (f"table {name}", "row_memory", "bytes", "drop a table"):
            self.assertIn(word, error.text)

    def check_refused(self, table, at, error, name):
        self.check_refused_text(error, name)
        with self.assertRaisesRegex(wire.RpcError, "row_memory"):
            self.push(table, at)

    def check_goes_on(self, table, rows):
        self.push(table, 0)  # keys that have rows
        self.push(table, rows - 8, 8)
        self.assertEqual(len(wire.pull(self.server.peer, table, [1, rows - 1])), 2 * DIM)

    def check_figures(self, limit, rows):
        stats = self.stats()
        self.assertEqual(stats["row_memory_limit_bytes"], limit)
        self.assertEqual(stats["row_memory_refusals"], 2)
        self.assertLessEqual(stats["row_memory_bytes"], limit)
        self.assertGreater(stats["row_memory_bytes"], FULL_FROM * limit)
        self.assertGreaterEqual(stats["row_memory_bytes"], rows * DIM * 12)

    def refusal_restart_drop(self, limit, *flags, program=PROGRAM):
        self.start(*flags, program=program)
        table = self.create("many")
        rows, error = self.fill(table)
        self.assertGreater(rows, 0)
        self.check_refused(table, rows, error, "many")
        self.check_figures(limit, rows)
        for number in (signal.SIGTERM, signal.SIGKILL):
            self.check_goes_on(table, rows)
            self.server.process.wait_log("row_memory_low")
            log = self.end(number)
            self.assertEqual(log.count("row_memory_low"), 1)
            self.start(*flags, program=program)
            rows, error = self.fill(table, rows)
            self.check_refused(table, rows, error, "many")
        self.server.peer.call("table_drop", {"name": "many"})
        again, _ = self.fill(self.create("again"))
        self.assertGreater(again, rows * (9 if STORE == "host" else 7) // 10)

    def test_a_limit_that_was_set(self):
        self.refusal_restart_drop(24 * MB, "--row-memory", "24M")

    @of_the_host
    def test_a_warning_comes_before_anything_is_refused(self):
        limit, small = 24 * MB, 256
        self.start("--row-memory", "24M")
        table = self.create("many")
        for first in range(0, 1 << 20, small):
            self.push(table, first, small)
            if self.stats()["row_memory_bytes"] >= limit * 9 // 10:
                break
            self.assertNotIn("row_memory_low", self.server.process.log())
        self.assertEqual(self.stats()["row_memory_refusals"], 0)
        self.server.process.wait_log("row_memory_low")
        self.assertEqual(self.stats()["row_memory_refusals"], 0)

    @unittest.skipUnless(os.path.basename(PROGRAM) == "embd-cuda-emulated", "of a device whose free memory is known")
    def test_without_a_limit_that_was_set_it_is_of_the_free_memory_of_the_device(self):
        self.start()
        self.create("many")
        self.assertEqual(self.stats()["row_memory_limit_bytes"], (1 << 36) // 10 * 8)

    def test_a_start_that_drops_a_table(self):
        self.start("--row-memory", "24M")
        many, kept = self.create("many"), self.create("kept")
        stream = {"high": 1, "low": 2, "stream": 3}
        wire.open_stream(self.server.peer, stream, True)
        both = {"parts": [{"table": many, "keys": 1}, {"table": kept, "keys": 1}], "writer": {**stream, "sequence": 1}}
        self.server.peer.call("push", both, wire.keys([7]), GRADS[:4 * DIM], wire.keys([7]), GRADS[:4 * DIM])
        alone = {"parts": [{"table": many, "keys": 1}], "writer": {**stream, "sequence": 2}}
        self.server.peer.call("push", alone, wire.keys([8]), GRADS[:4 * DIM])
        self.fill(many, KEYS)
        row = wire.pull(self.server.peer, kept, [7])
        self.end(signal.SIGKILL)
        for flags in (("--drop-table", "many"), ()):
            self.start("--row-memory", "24M", *flags)
            names = [t["name"] for t in self.server.peer.call("tables", {})[0]["tables"]]
            self.assertEqual(names, ["kept"])
            self.assertLess(self.stats()["row_memory_bytes"], (4 if STORE == "host" else 12) * MB)
            self.assertEqual(wire.pull(self.server.peer, kept, [7]), row)
            self.assertEqual(wire.open_stream(self.server.peer, stream, True)["last"], 2)
            log = self.end(signal.SIGKILL)
            self.assertEqual("table_dropped" in log, bool(flags))
        self.start()
        self.push(self.create("many"), 0)

    def test_a_start_drops_several_tables_and_refuses_a_name_that_nothing_has(self):
        self.start()
        for name, n in (("kept", 1), ("one", 5), ("two", 7)):
            self.push(self.create(name, "durable"), 0, n)
        self.push(self.create("unsaved", "snapshot"), 0, 3)
        self.end(signal.SIGKILL)
        before = sorted(os.listdir(self.data))
        for name, why in (("onne", "have a table 'onne'"), ("one,", "name is empty")):
            answer = subprocess.run([PROGRAM, "--store", STORE, "--data-dir", self.data, "--http", "off", "--listen", "127.0.0.1:0",
                                     "--admin-dir", os.path.join(self.data, "admin"), "--drop-table", name],
                                    capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(answer.returncode, 2, answer.stderr)
            self.assertIn(why, answer.stderr)
            self.assertNotIn("table_dropped", answer.stderr)
        self.assertEqual(sorted(n for n in os.listdir(self.data) if n != "admin"), before)
        self.start("--drop-table", "one", "--drop-table", "two", "--drop-table", "one")
        names = [t["name"] for t in self.server.peer.call("tables", {})[0]["tables"]]
        self.assertEqual(names, ["kept"])
        log = self.end(signal.SIGKILL)
        for name, n in (("one", 5), ("two", 7)):
            self.assertIn(f"table_dropped shard=0 table={name} rows=0 pushed_keys={n} ", log)
        self.start("--drop-table", "kept")  # from the base that this made
        self.assertIn("table_dropped shard=0 table=kept rows=1 pushed_keys=0 ", self.end(signal.SIGKILL))
        self.start()
        self.assertEqual(self.server.peer.call("tables", {})[0]["tables"], [])

    def test_a_pull_that_makes_rows(self):
        self.start("--row-memory", LIMIT_OF_PULLS)
        table = wire.create(self.server.peer, "pulled", DIM, create_on="pull")
        first = 0
        with self.assertRaises(wire.RpcError) as refused:
            while True:
                wire.pull(self.server.peer, table, range(first, first + KEYS))
                first += KEYS
                self.assertLess(first, 1 << 20, "nothing was refused")
        self.check_refused_text(refused.exception, "pulled")
        self.assertGreater(first, 0)
        wire.pull(self.server.peer, table, range(KEYS))  # they have rows

    def test_a_load(self):
        self.start("--row-memory", "4M")
        table = self.create("loaded")
        rows, _ = self.fill(table)
        block = {"table": "loaded", "rows": KEYS, "candidates": 0}
        bins = [wire.keys(range(rows, rows + KEYS)), GRADS, bytes(8 * DIM * KEYS), b"", b""]
        with wire.Wire(self.server.process.admin_path()) as admin, self.assertRaises(wire.RpcError) as refused:
            admin.call("load", block, *bins)
        self.check_refused_text(refused.exception, "loaded")

    def test_no_limit(self):
        self.start("--row-memory", "0")
        for first in range(0, 40 * KEYS, KEYS):
            self.push(self.table_of_none(), first)
        self.assertEqual(self.stats()["row_memory_limit_bytes"], 0)

    def table_of_none(self):
        return self.create("free", durability="snapshot")

    @of_the_host
    def test_keys_seen_once_cost_no_more_than_a_bound(self):
        self.start("--row-memory", "0")
        table = wire.create(self.server.peer, "rare", 4, admit_after=2, durability="snapshot")
        batch, least = 1 << 16, 1 << 20  # keys of a request; server/store/candidates.h
        most = bytes_after = 0
        for first in range(0, 70 * batch, batch):
            self.server.peer.call("push", {"parts": [{"table": table, "keys": batch}]},
                                  wire.keys(range(first, first + batch)), bytes(16 * batch))
            stats = self.server.peer.call("stats", {})[0]["tables"][0]["stats"]
            self.assertLess(stats["candidates"], least + batch)
            most = max(most, stats["candidates"])
            bytes_after = max(bytes_after, stats["index_bytes"])
        self.assertGreaterEqual(most, least)
        self.assertEqual(stats["rows"], 0)
        self.assertLess(bytes_after, 2 * least * 26)  # two generations, 24 bytes a key, and those of a request

    @of_the_host
    def test_a_memory_cgroup_of_200_mib(self):
        with cgroup(200 * MB) as folder:
            if folder is None:
                self.skipTest("no memory cgroup can be made here")
            program = os.path.join(self.data, "embd-in-cgroup")
            with open(program, "w", encoding="ascii") as script:
                script.write(f'#!/bin/sh\necho $$ >{folder}/cgroup.procs\nexec {embd_process.BIN} "$@"\n')
            os.chmod(program, 0o700)
            self.data = os.path.join(self.data, "data")
            os.mkdir(self.data)
            self.refusal_restart_drop(80 * MB, program=program)
            self.end(signal.SIGTERM)


@contextlib.contextmanager
def cgroup(limit):
    """A new one, version 2 or 1, or None."""
    name = f"embd-test-{os.getpid()}"
    for root, file in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        folder = os.path.join(root, name)
        try:
            os.mkdir(folder)
        except OSError:
            continue
        try:
            with open(os.path.join(folder, file), "r+", encoding="ascii") as f:
                f.write(str(limit))
        except OSError:
            os.rmdir(folder)
            continue
        try:
            yield folder
        finally:
            os.rmdir(folder)
        return
    yield None


if __name__ == "__main__":
    unittest.main()
