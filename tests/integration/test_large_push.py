"""A push larger than other frames: taken up to push_limit, whole or not at all, once, whatever comes between its first byte and
its last; and what such pushes announce leaves memory to the others."""
import shutil
import subprocess
import tempfile
import unittest

import wire
from certificates import Authority
from embd_process import Embd
from test_http import get, http_address, samples
from test_tls import EMBCTL, TlsWire

MB = 1 << 20
LIMIT = 80 * MB
FLAGS = "--frame-memory", "256M", "--push-limit", "80M", "--http", "127.0.0.1:0"
DIM, ROWS = 1024, 18000  # 72,000 KiB of gradients
WRITER = {"high": 3, "low": 5, "stream": 0}


def push_of(table, rows, msgid=1, grads=None, **fields):
    """Each of the rows gets -2 in every column, or `grads`, the bytes of them all."""
    grads = wire.floats([-2.0]) * (rows * DIM) if grads is None else grads
    part = {"table": table, "keys": rows, **fields.pop("part", {})}
    return wire.request(msgid, "push", {"parts": [part], **fields}, wire.keys(range(rows)), grads)


class LargePush(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="embd-large-")
        cls.authority = Authority(cls.folder, "ca")
        cls.cert = cls.authority.issue("server")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def start(self, *flags):
        self.server = Embd(*FLAGS, *flags)
        self.addCleanup(self.server.kill)
        return self.connect()

    def connect(self):
        peer = wire.connect(self.server)
        self.addCleanup(peer.close)
        return peer

    def state(self, peer, table):
        return peer.call("table_describe", {"name": "t"})[0]["step"], wire.pull(peer, table, [0, ROWS - 1])[::DIM]

    def answer(self, peer):
        _, _, error, result = peer.receive()
        return error or result

    def refused(self, peer, data, number, *words):
        peer.send(data)
        told = self.answer(peer)
        self.assertEqual(told[0], number, told)
        for word in words:
            self.assertIn(word, told[1])

    def test_between_its_bytes_the_shard_serves_snapshots_and_dies_and_it_is_applied_once(self):
        data = tempfile.mkdtemp(dir=self.folder)
        peer = self.start("--data-dir", data)
        table = wire.create(peer, "t", DIM, durability="durable")
        self.assertEqual(peer.call("hello", {"protocol": 1})[0]["push_bytes"], LIMIT)
        wire.open_stream(peer, WRITER, True)
        message = push_of(table, ROWS, writer={**WRITER, "sequence": 1})
        sender = self.connect()
        sender.send(message[:len(message) // 2])
        wire.push(peer, table, [0], [-4.0] * DIM)
        subprocess.run([EMBCTL, "--servers", self.server.addresses[0], "snapshot", "cut"], check=True, timeout=60,
                       capture_output=True)
        self.assertEqual(self.state(peer, table), (1, [3.0, 1.0]))
        self.server.kill()
        peer = self.start("--data-dir", data)
        self.assertEqual(self.state(peer, table), (1, [3.0, 1.0]))
        peer.send(message)
        self.assertEqual(self.answer(peer)[0]["parts"][0]["inserted"], ROWS - 1)
        self.assertEqual(self.state(peer, table), (2, [4.0, 2.0]))
        self.server.kill()
        peer = self.start("--data-dir", data)
        peer.send(message)
        self.assertTrue(self.answer(peer)[0]["again"])
        self.assertEqual(self.state(peer, table), (2, [4.0, 2.0]))

    def test_what_passes_a_limit_or_disagrees_is_refused_in_step_and_changes_nothing(self):
        peer = self.start()
        table = wire.create(peer, "t", DIM)
        wire.push(peer, table, [0], [-4.0] * DIM)
        too_many = LIMIT // 4096 + 1
        self.refused(peer, push_of(table, too_many), wire.TOO_LARGE, "the push has", str(LIMIT), "(push_limit)")
        self.refused(peer, push_of(table, ROWS, grads=bytes(4 * DIM * ROWS - 4)), wire.MALFORMED, "part 0 grads",
                     str(4 * DIM * ROWS))
        codes = (bytes([1] * DIM) + wire.floats([1.0])) * too_many
        self.refused(peer, push_of(table, too_many, grads=codes, part={"dtype": "i8"}), wire.TOO_LARGE, "as f32", str(LIMIT))
        pull = wire.request(1, "pull", {"parts": [{"table": table, "keys": 9 * MB}]}, bytes(72 * MB))
        self.refused(peer, pull, wire.TOO_LARGE, "the frame has", str(64 * MB))
        self.assertEqual(self.state(peer, table), (1, [3.0, 1.0]))
        peer.send(push_of(table, ROWS, grads=codes[:ROWS * (DIM + 4)], part={"dtype": "i8"}))  # 18 MB, 72 MB as f32
        self.assertEqual(self.answer(peer)[0]["parts"][0]["step"], 2)
        self.assertEqual(self.state(peer, table), (2, [2.5, 0.5]))

    def test_pushes_that_are_announced_and_do_not_come_leave_half_of_the_memory(self):
        peer = self.start()
        http = http_address(self.server)
        table = wire.create(peer, "t", DIM)
        message = push_of(table, ROWS)

        def used():
            return samples(get(http, "/metrics")[2])["embd_frame_memory_used_bytes"]

        holder, waiter = self.connect(), self.connect()
        holder.send(message[:-1])
        waiter.send(message[:200 * 1024])  # to where its gradients begin, and some of them
        for _ in range(3):
            wire.push(peer, table, [0], [-4.0] * DIM)
        self.assertLess(used(), 128 * MB)
        holder.close()
        waiter.send(message[200 * 1024:])
        self.assertEqual(self.answer(waiter)[0]["parts"][0]["step"], 4)
        self.assertEqual(self.state(peer, table), (4, [8.0, 2.0]))

    def test_it_comes_by_tls(self):
        self.server = Embd(*FLAGS, "--tls-cert", self.cert[0], "--tls-key", self.cert[1])
        self.addCleanup(self.server.kill)
        with TlsWire(self.server, self.authority) as peer:
            table = wire.create(peer, "t", DIM)
            peer.send(push_of(table, ROWS))
            self.assertEqual(self.answer(peer)[0]["parts"][0]["inserted"], ROWS)
            self.assertEqual(self.state(peer, table), (1, [2.0, 2.0]))


if __name__ == "__main__":
    unittest.main()
