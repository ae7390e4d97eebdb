"""embd.connect("inproc:..."): the server runs in the trainer's process. Its loop, as trainers run it, ends with the digits of one
that nothing disturbed; what a server must not do to its host process, it does not."""
import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.request

import numpy as np

import clusters
import embd
from embd._native import ffi, lib
from embd_process import Embd
from ports import free_ports

EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
SCHEMA = {"optimizer": embd.Optimizer("adam", lr=0.05), "combiner": "concat", "durability": "durable",
          "initializer": embd.Initializer("uniform", -0.5, 0.5), "seed": 7}

# Trains by numbered pushes; at step `dies` it kills itself, in the midst of a push to another table: it may be applied or not.
TRAINER = """
import os, signal, sys
import numpy as np
import embd
place, steps, dies = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
client = embd.connect(place)
table = client.create_table("items", 4, optimizer=embd.Optimizer("adam", lr=0.05), combiner="concat", durability="durable",
                            initializer=embd.Initializer("uniform", -0.5, 0.5), seed=7)
other = client.create_table("other", 4, durability="durable")
for step in range(table.step, steps):
    keys = np.random.default_rng(step).integers(0, 300, 200)
    gradient = table.pull(keys) - np.float32(step % 3)
    if step == dies:
        other.push_start(keys, gradient)
        os.kill(os.getpid(), signal.SIGKILL)
    table.push(keys, gradient)
for digest in client.digest():
    if digest.name == "items":
        print(digest)
if len(sys.argv) < 5:
    client.close()
"""


def train(place, steps=20, dies=-1, *more):
    return subprocess.run([sys.executable, "-c", TRAINER, place, str(steps), str(dies), *more], capture_output=True, text=True,
                          timeout=60)


class InProcess(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.dir = os.path.realpath(holder.name)

    def place(self, *settings, name="tables"):
        return f"inproc:{self.dir}/{name}" + "?" * bool(settings) + "&".join(settings)

    def make(self, client, name="items", **more):
        return client.create_table(name, 4, **{**SCHEMA, **more})

    def test_a_killed_trainer_resumes_and_ends_with_the_digits_of_an_undisturbed_one(self):
        place = self.place("shards=2")
        for dies in 3, 11:
            self.assertEqual(train(place, dies=dies).returncode, -signal.SIGKILL)
        resumed = train(place)
        os.mkdir(f"{self.dir}/undisturbed")
        with Embd("--data-dir", f"{self.dir}/undisturbed", shards=3) as server:
            undisturbed = train(server.addresses[0])
        self.assertIn("items", resumed.stdout, resumed.stderr)
        self.assertEqual(resumed.stdout, undisturbed.stdout)

    def test_a_trainer_that_ends_without_closing_stops_its_server_in_order(self):
        place = self.place("log_level=info")
        first = train(place, 5, -1, "keep open")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("draining shard=0", first.stderr)
        self.assertEqual(train(place, 5).stdout, first.stdout)

    def test_snapshots_dumps_and_loads_over_shards_need_no_port(self):
        with embd.connect(self.place("shards=3")) as client:
            table = self.make(client)
            keys = np.arange(500)
            table.push(keys, table.pull(keys))
            before = str(client.digest())
            client.snapshot("one", {"step": b"1"})
            client.dump(self.dir + "/dump")
            table.push(keys, table.pull(keys))
            self.assertNotEqual(str(client.digest()), before)
            client.load(self.dir + "/dump", replace=True)
            self.assertEqual(str(client.digest()), before)
        self.assertEqual(str(embd.stored.digest(f"{self.dir}/tables/one")), before)
        with embd.connect(self.place("shards=1", name="other")) as client:
            client.load(self.dir + "/dump")
            self.assertEqual(str(client.digest()), before)

    def test_rows_come_into_buffers_that_the_library_lends_without_a_socket(self):
        with embd.connect("inproc:") as client:
            table = self.make(client, durability="snapshot")
            keys = np.arange(4096)
            lent = client.buffer((4096, 4))
            self.assertTrue(client.is_shared(lent))
            table.push(keys, np.ones((4096, 4), np.float32))
            before = client.figures()[0].bytes_received
            rows = table.pull(keys, out=lent)
            self.assertLess(client.figures()[0].bytes_received - before, 16384)  # of 65536
            np.testing.assert_array_equal(rows, table.get(keys).values)
            self.assertTrue(client.figures()[0].is_local)

    def test_modules_of_pytorch_train_on_it(self):
        try:
            import torch
            import embd.torch
        except ImportError:
            self.skipTest("PyTorch is not installed: deploy/deps.sh --torch")
        with embd.connect(self.place("shards=2")) as client:
            table = self.make(client, optimizer=embd.Optimizer("sgd", lr=0.5))
            module = embd.torch.Embedding(None, 4, table=table)
            keys = torch.arange(20)
            before = table.pull(np.arange(20))
            (module(keys) * 2).sum().backward()
            client.settle()
            np.testing.assert_array_equal(table.pull(np.arange(20)), before - np.float32(1))

    def test_handles_of_one_text_share_a_server_and_another_text_is_refused(self):
        one, two = embd.connect(self.place()), embd.connect(self.place())
        self.make(one).push([1], np.ones((1, 4), np.float32))
        self.assertEqual(two.table("items").get([1]).values.tolist(), one.table("items").get([1]).values.tolist())
        with self.assertRaisesRegex(embd.StorageError, f"another server uses it .process {os.getpid()}"):
            embd.connect(self.place("log_level=warn"))
        one.close()
        two.table("items").push([1], np.ones((1, 4), np.float32))
        two.close()
        with embd.connect(self.place("log_level=warn")) as again:
            self.assertEqual(again.table("items").step, 2)

    def test_threads_with_handles_of_their_own_train_side_by_side(self):
        def work(i):
            with embd.connect(place) as client:
                table = client.table("items")
                for _ in range(30):
                    table.push(np.arange(i * 50, i * 50 + 50), np.ones((50, 4), np.float32))
        place = self.place("shards=2")
        with embd.connect(place) as client:
            self.make(client, optimizer=embd.Optimizer("sgd", lr=1.0))
            threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            rows = client.table("items").pull(np.arange(200))
            fresh = self.make(client, "fresh", optimizer=embd.Optimizer("sgd", lr=1.0)).pull(np.arange(200))
        expected = fresh
        for _ in range(30):
            expected = expected - np.float32(1)
        np.testing.assert_array_equal(rows, expected)

    def test_an_operator_gets_in_where_ports_are_named_and_nowhere_else(self):
        port = free_ports(2)
        http = port + 1
        with embd.connect(self.place()):
            listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True).stdout
            self.assertNotIn(f"pid={os.getpid()},", listening)
        sockets = f"{self.dir}/sockets"
        with embd.connect(self.place(f"listen=127.0.0.1:{port}", f"http=127.0.0.1:{http}", f"admin_dir={sockets}")) as client:
            self.make(client)
            listed = subprocess.run([EMBCTL, "--servers", f"127.0.0.1:{port}", "table", "list"], capture_output=True, text=True)
            self.assertIn("items", listed.stdout, listed.stderr)
            self.assertEqual(os.stat(f"{sockets}/{port}.sock").st_mode & 0o777, 0o600)
            with urllib.request.urlopen(f"http://127.0.0.1:{http}/metrics") as page:
                self.assertIn("embd_", page.read().decode())
            subprocess.run([EMBCTL, "--servers", f"127.0.0.1:{port}", "drain"], check=True, capture_output=True)
            with self.assertRaisesRegex(embd.Error, "was drained|closed|shutting down"):
                for _ in range(100):
                    client.tables()
        with embd.connect(self.place()) as client:
            self.assertEqual(client.tables(), ["items"])

    def test_what_is_the_process_s_own_stays_as_it_was(self):
        def state():
            libc = ctypes.CDLL(None)
            handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)]
            with open("/proc/self/status") as status:
                masks = re.findall("(Sig(?:Blk|Ign|Cgt)):\t(.*)", status.read())
            mask = libc.umask(0o22)
            libc.umask(mask)
            with open("/proc/self/limits") as limits:
                return handlers, masks, mask, os.getcwd(), limits.read(), dict(os.environ)
        before = state()
        with embd.connect(self.place(f"listen=127.0.0.1:{free_ports(1)}", f"admin_dir={self.dir}/sockets")) as client:
            self.make(client)
            self.assertEqual(state(), before)
        self.assertEqual(state(), before)

    def test_a_relative_directory_stays_where_it_was_when_the_trainer_goes_elsewhere(self):
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        os.chdir(self.dir)
        with embd.connect("inproc:tables%20of%20mine") as client:
            os.chdir("/")
            self.make(client).push([1], np.ones((1, 4), np.float32))
            client.snapshot("one")
        self.assertTrue(os.path.isdir(f"{self.dir}/tables of mine/one"))

    def test_a_configuration_file_is_read_and_a_setting_beside_it_wins(self):
        with open(f"{self.dir}/embd.yaml", "w") as file:
            file.write(f"data_dir: {self.dir}/tables\nshards: 3\nlog_level: warn\n")
        os.mkdir(f"{self.dir}/tables")
        with embd.connect(f"inproc:{self.dir}/embd.yaml") as client:
            self.assertEqual(len(client.shards), 3)
        with embd.connect(f"inproc:{self.dir}/embd.yaml?shards=2&data_dir={self.dir}/two") as client:
            self.assertEqual(client.shards, ["inproc:0", "inproc:1"])

    def test_what_cannot_be_used_is_refused_and_named(self):
        with open(f"{self.dir}/two.yaml", "w") as file:
            file.write("cluster:\n  servers:\n    - {listen: \"127.0.0.1:7700\"}\n    - {listen: \"127.0.0.1:7800\"}\n")
        os.mkdir(f"{self.dir}/damaged")
        with open(f"{self.dir}/damaged/identity.json", "w") as file:
            file.write("{")
        for place, kind, says in [
                ("inproc:?shards=0", embd.InvalidError, "inproc: shards: 0 is out of range"),
                ("inproc:?shard=1", embd.InvalidError, "unknown setting 'shard'"),
                ("inproc:?ready_fd=1", embd.InvalidError, "unknown setting 'ready_fd'"),
                ("inproc:?shards", embd.InvalidError, "'shards' is not SETTING=VALUE"),
                ("inproc:?shards=1&shards=2", embd.InvalidError, "shards is given twice"),
                ("inproc:?data_dir=%2", embd.InvalidError, "hexadecimal"),
                ("inproc:?store=gold", embd.Error, "gold"),
                (f"inproc:{self.dir}/none.yaml", embd.InvalidError, "cannot open"),
                (f"inproc:{self.dir}/a/b", embd.StorageError, "cannot make the data directory"),
                (f"inproc:{self.dir}/two.yaml", embd.UnsupportedError, "list one server"),
                (f"inproc:{self.dir}/damaged", embd.CorruptError, "identity.json"),
                ("inproc:?listen=0.0.0.0:7700", embd.UnsupportedError, "inproc: listen: ")]:
            with self.subTest(place), self.assertRaisesRegex(kind, says):
                embd.connect(place)

    def test_a_forked_childs_calls_by_its_parents_handle_fail_and_reach_no_server(self):
        client = embd.connect(self.place(), own_thread=False, deadline=60)
        table = self.make(client)
        table.push([1], np.ones((1, 4), np.float32))
        c_client = client.handle.c  # the child's Python does not have it any more, and programs in C do
        said_in, said_out = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(said_out, str([lib.embd_ping(c_client, 0, ffi.NULL) for _ in range(3)]).encode())
            finally:
                os._exit(0)
        os.close(said_out)
        with os.fdopen(said_in) as said:
            self.assertEqual(said.read(), str([lib.EMBD_UNREACHABLE] * 3))
        os.waitpid(child, 0)
        table.push([1], np.ones((1, 4), np.float32))
        self.assertEqual(table.step, 2)

    def test_a_forked_child_can_do_nothing_to_its_parents_server_and_keeps_none_of_its_locks(self):
        client = embd.connect(self.place())
        table = self.make(client)
        table.push([1], np.ones((1, 4), np.float32))
        ready, go = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            try:
                held = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) > 2
                        and os.path.exists(f"/proc/self/fd/{fd}")]
                with_locks = [path for path in held if path.startswith(self.dir)]
                try:
                    embd.connect(self.place())
                    said = "connected"
                except embd.StorageError as error:
                    said = str(error)
                os.write(ready[1], f"{with_locks} {said}".encode())
                os.read(go[0], 1)
            finally:
                os._exit(0)
        said = os.read(ready[0], 4096).decode()
        self.assertIn("[] ", said)
        self.assertIn("another server uses it", said)
        table.push([1], np.ones((1, 4), np.float32))
        client.close()  # the child lives, and has copies of the sockets
        with embd.connect(self.place("log_level=warn")) as client:
            self.assertEqual(client.table("items").step, 2)
        os.write(go[1], b"x")
        os.waitpid(child, 0)
        [os.close(fd) for fd in (*ready, *go)]


if __name__ == "__main__":
    clusters.main()
