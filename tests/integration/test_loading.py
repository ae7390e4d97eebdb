"""A server that replays a long journal says so, and how far it is, to whoever asks; it serves when it has. It takes 10 ms
for a record until the test has seen enough, so that no machine is too slow to look."""
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import unittest.mock
import urllib.error
import urllib.request

import wire
from embd_process import Embd

EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
SLOW = os.path.join(os.environ["EMBD_BIN"], "..", "tests", "integration", "embd-slow-replay")
DIM, PUSHES = 4, 6000  # a minute
TEXT = r"shard 0 is loading: table 'slow', (\d+) of (\d+) bytes of its journal"


def embctl(server, *arguments):
    return subprocess.run([EMBCTL, *arguments], capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, "EMBD_SERVERS": server.addresses[0]})


def page(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as answer:
        with answer:
            return answer.code, answer.read().decode()


class Loading(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.data = tempfile.mkdtemp(prefix="embd-loading-")
        cls.addClassCleanup(shutil.rmtree, cls.data)
        with Embd("--data-dir", cls.data, "--http", "off") as server, wire.connect(server, timeout=60) as peer:
            cls.table = wire.create(peer, "slow", DIM, value=0.0, durability="buffered")
            for _ in range(PUSHES):
                wire.push(peer, cls.table, [5], [-1.0] * DIM)
            cls.row = wire.pull(peer, cls.table, [5])

    def setUp(self):
        made, self.slow = tempfile.mkstemp(prefix="embd-slow-")
        os.close(made)
        self.addCleanup(self.go_on)

    def go_on(self):
        if os.path.exists(self.slow):
            os.unlink(self.slow)

    def start(self, *flags):
        """A server that is loading until go_on."""
        with unittest.mock.patch.dict(os.environ, {"EMBD_SLOW_REPLAY": self.slow}):
            return Embd("--data-dir", self.data, *flags, waits=False, program=SLOW)

    def until_begun(self, peer):
        """Figures of a server that has replayed something, and not all."""
        while True:
            figures = peer.call("stats", {})[0]["stats"]
            self.assertEqual(figures["loading"], 1, "it has loaded before anybody could look")
            if figures["loading_bytes"] > 1000:
                return figures

    def check(self, server):
        with wire.connect(server) as peer:
            self.assertEqual(wire.pull(peer, self.table, [5]), self.row)
            self.assertEqual(peer.call("stats", {})[0]["stats"]["loading"], 0)

    def test_it_answers_how_far_it_is_and_then_serves(self):
        with self.start("--http", "127.0.0.1:0") as server, wire.connect(server) as peer:
            http = re.search(r":(\d+)\n", server.process.stdout.readline()).group(1)
            before = self.until_begun(peer)
            self.assertRegex(peer.call("hello", {"protocol": 1})[0]["loading"], TEXT)
            peer.call("ping", {})
            requests = [("pull", {"parts": [{"table": self.table, "keys": 1}]}, wire.keys([5])),
                        ("push", {"parts": [{"table": self.table, "keys": 1}]}, wire.keys([5]), wire.floats([0.0] * DIM)),
                        ("tables", {}), ("table_drop", {"name": "slow"}), ("writer", {"high": 1, "low": 1}),
                        ("stream_open", {"high": 1, "low": 1})]
            for method, *params in requests:
                with self.subTest(method=method), self.assertRaises(wire.RpcError) as refused:
                    peer.call(method, *params)
                self.assertEqual(refused.exception.number, wire.LOADING)
                done, total = map(int, re.search(TEXT, refused.exception.text).groups())
                self.assertTrue(before["loading_bytes"] <= done <= total == before["loading_total_bytes"])
            self.assertEqual(page(http, "/livez")[0], 200)
            status, text = page(http, "/readyz")
            self.assertEqual(status, 503)
            self.assertIn("is loading", text)
            self.assertIn("embd_shard_loading{shard=\"0\"} 1", page(http, "/metrics")[1])
            with wire.connect(server) as stranger:
                stranger.send(b"\xc1")
                self.assertIn("the message begins with byte", str(stranger.receive()))
            listed = embctl(server, "shard", "list")
            self.assertIn("loading", listed.stdout)
            waited = embctl(server, "wait", "--ready", "--timeout", "0")
            self.assertEqual(waited.returncode, 3)
            self.assertIn("is loading", waited.stderr)
            self.go_on()
            self.assertEqual(embctl(server, "wait", "--ready", "--timeout", "100").returncode, 0)
            self.assertEqual(page(http, "/readyz")[0], 200)
            self.check(server)

    def test_clients_of_the_library_wait_until_their_deadline(self):
        with self.start() as server, wire.connect(server) as peer:
            self.until_begun(peer)
            late = embctl(server, "get", "slow", "5", "--deadline", "2")
            self.assertEqual(late.returncode, 5, late.stderr)
            self.assertRegex(late.stderr, TEXT)
            threading.Timer(0.3, self.go_on).start()
            done = embctl(server, "get", "slow", "5", "--vector")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.check(server)

    def test_a_server_that_ends_meanwhile_ends_at_once_and_the_journal_is_as_it_was(self):
        began = time.monotonic()
        with self.start() as server, wire.connect(server) as peer:
            self.until_begun(peer)
            self.assertEqual(server.stop(), 0)
        print(f"ended after {time.monotonic() - began:.2f} s")
        with Embd("--data-dir", self.data, ready_s=120) as server:
            self.check(server)

    def test_keys_read_again_meanwhile_do_not_make_it_ready(self):
        folder = tempfile.mkdtemp(prefix="embd-notify-")
        self.addCleanup(shutil.rmtree, folder)
        path = os.path.join(folder, "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(path)
            manager.settimeout(120)
            with unittest.mock.patch.dict(os.environ, {"NOTIFY_SOCKET": path}):
                server = self.start()
            with server, wire.connect(server) as peer:
                self.until_begun(peer)
                server.process.send_signal(signal.SIGHUP)
                server.wait_log("keys_reloaded")
                self.go_on()
                said = ""
                while not said or said.startswith("EXTEND_TIMEOUT"):
                    said = manager.recv(200).decode()
                self.assertEqual(said, "READY=1")
                self.assertEqual(peer.call("stats", {})[0]["stats"]["loading"], 0)

    def test_damage_ends_it_with_a_sentence_unless_it_is_accepted(self):
        name = os.path.join(self.data, "journal.0.00000001")
        copy = tempfile.mkdtemp(prefix="embd-loading-")
        self.addCleanup(shutil.rmtree, copy)
        with open(name, "r+b") as journal:
            journal.seek(5000)
            byte = journal.read(1)
            journal.seek(5000)
            journal.write(bytes([byte[0] ^ 1]))
        self.go_on()
        server = self.start()
        try:
            self.assertEqual(server.wait(60), 1)
            self.assertIn("journal 'journal.0.00000001' is damaged at offset", server.log())
            self.assertIn("--accept-journal-damage", server.log())
            shutil.copy(name, copy)
        finally:
            server.kill()
            with open(name, "r+b") as journal:
                journal.seek(5000)
                journal.write(byte)
        with Embd("--data-dir", copy, "--accept-journal-damage", "--http", "off") as server, wire.connect(server) as peer:
            self.assertIn("error journal_damage_accepted file=journal.0.00000001 offset=", server.log())
            self.assertEqual(peer.call("stats", {})[0]["stats"]["journal_damages"], 1)
            kept = wire.pull(peer, self.table, [5])
            self.assertTrue(1 <= kept[0] < self.row[0], kept)  # what came before it
        with open(os.path.join(copy, "journal.0.damage"), encoding="ascii") as note:
            self.assertIn("damage of journal 'journal.0.00000001' was accepted at offset", note.read())
        with Embd("--data-dir", copy) as server:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
