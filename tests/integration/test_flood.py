"""A stranger opens streams of pushes, and pushes to streams that are not open, as many as a shard remembers and more. Beside
it are a trainer that goes on and one whose first push was applied and whose answer was lost: the next push of the one is
taken and that of the other is not applied twice; nor after the end of the server, in order or by kill -9."""
import os
import shutil
import tempfile
import unittest

import wire
from certificates import Tokens
from embd_process import Embd

FORGOTTEN, FULL = 22, 8
MANY = 65538
AT_ONCE = 60
GOES_ON, LOST = ({"high": 7, "low": 7, "stream": s} for s in (0, 1))


def flood(peer, method, params):
    """How many of MANY requests had which status; `params` of the i-th."""
    found = {}
    for first in range(1, MANY + 1, AT_ONCE):
        n = min(AT_ONCE, MANY + 1 - first)
        peer.send(b"".join(wire.request(i, method, *params(first + i)) for i in range(n)))
        for _ in range(n):
            error = peer.receive()[2]
            status = 0 if error is None else error[0]
            found[status] = found.get(status, 0) + 1
    return found


class Flood(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="embd-flood-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.flags = ["--http", "off", "--data-dir", os.path.join(self.folder, "data")]
        os.mkdir(self.flags[-1])
        self.secrets = {}

    def start(self):
        self.server = Embd(*self.flags)
        self.addCleanup(self.server.kill)

    def connect(self, name):
        peer = wire.connect(self.server)
        self.addCleanup(peer.close)
        if self.secrets:
            peer.call("hello", {"protocol": 1, "token": self.secrets[name]})
        return peer

    def push(self, peer, writer, sequence):
        table = peer.call("table_describe", {"name": "good_t"})[0]["id"]
        return peer.call("push", {"parts": [{"table": table, "keys": 1}], "writer": {**writer, "sequence": sequence}},
                         wire.keys([5]), wire.floats([-2.0]))[0].get("again", False)

    def check(self, sequence, row):
        """The trainers go on: another push of one, and the first one of the other again."""
        peer = self.connect("good")
        table = peer.call("table_describe", {"name": "good_t"})[0]["id"]
        self.assertFalse(self.push(peer, GOES_ON, sequence))
        self.assertTrue(self.push(peer, LOST, 1))
        self.assertEqual(wire.pull(peer, table, [5]), [row])

    def run_flood(self):
        """What the stranger's openings were answered."""
        self.start()
        peer = self.connect("good")
        wire.create(peer, "good_t", 1, value=0.0, durability="durable")
        for writer in (GOES_ON, LOST):
            self.assertTrue(wire.open_stream(peer, writer, True)["opened"])
        for sequence in range(1, 4):
            self.push(peer, GOES_ON, sequence)
        self.push(peer, LOST, 1)
        stranger = self.connect("evil")
        table = wire.create(stranger, "evil_t", 1, durability="durable")
        pushes = flood(stranger, "push", lambda i: ({"parts": [{"table": table, "keys": 0}], "writer": {
            "high": 99, "low": i, "sequence": 1}}, b"", b""))
        self.assertEqual(pushes, {FORGOTTEN: MANY})
        openings = flood(stranger, "stream_open", lambda i: ({"high": 99, "low": i},))
        self.check(4, 5.0)
        self.server.stop()
        self.start()
        self.check(5, 6.0)
        self.server.kill()
        self.start()
        self.check(6, 7.0)
        return openings

    def refused(self, peer, *words):
        with self.assertRaises(wire.RpcError) as caught:
            wire.open_stream(peer, {"high": 8, "low": 0}, True)
        self.assertEqual(caught.exception.number, FULL)
        for word in words:
            self.assertIn(word, caught.exception.text)

    def test_without_tokens(self):
        self.assertEqual(self.run_flood(), {0: 65536 - 2, FULL: MANY - 65536 + 2})
        self.refused(self.connect("good"), "limit is 65536", "idle for 600 s")

    def test_of_another_token(self):
        tokens = Tokens(self.folder)
        self.secrets = {name: tokens.add(name, "trainer", name + "_") for name in ("good", "evil")}
        self.flags += ["--tokens", tokens.path]
        self.assertEqual(self.run_flood(), {0: 4096, FULL: MANY - 4096})
        self.refused(self.connect("evil"), "token 'evil'", "limit is 4096", "idle for 600 s")
        self.assertTrue(wire.open_stream(self.connect("good"), {"high": 8, "low": 0}, True)["opened"])

    def test_a_server_that_is_killed_behind_an_opening_takes_the_first_push(self):
        self.start()
        peer = self.connect("good")
        wire.create(peer, "good_t", 1, value=0.0, durability="durable")
        wire.open_stream(peer, LOST, True)
        self.server.kill()
        self.start()
        peer = self.connect("good")
        self.assertEqual(wire.open_stream(peer, LOST, True), {"last": 0, "opened": False})
        self.assertFalse(self.push(peer, LOST, 1))
        self.server.kill()
        self.start()
        peer = self.connect("good")
        self.assertEqual(wire.open_stream(peer, LOST, True), {"last": 1, "opened": False})
        self.assertTrue(self.push(peer, LOST, 1))


if __name__ == "__main__":
    unittest.main()
