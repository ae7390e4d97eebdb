"""Connections whose peers end their side, plain and by TLS: a push leaves its round at once, however the end comes, and
everything else that was sent is answered."""
import os
import shutil
import socket
import ssl
import tempfile
import time
import unittest

import embd_process
import wire
from certificates import Authority

CLOSED, LEASE_MS, IN_FLIGHT = 15, 30000, 64


class Plain(unittest.TestCase):
    def setUp(self):
        self.server = embd_process.Embd("--http", "off")
        self.addCleanup(self.server.stop)
        self.begin()

    def begin(self):
        peer = self.connect()
        self.table = wire.create(peer, "items", 1, value=0.0)
        peers = [self.connect(), self.connect()]
        for worker, peer in enumerate(peers):
            self.push(peer, worker, 1, 0.0)
        for peer in peers:
            self.assertIsNone(peer.receive()[2])
        self.first, self.second = peers

    def connect(self):
        peer = wire.Wire(("127.0.0.1", self.server.port()))
        self.addCleanup(peer.close)
        return peer

    def push(self, peer, worker, clock, gradient):
        return peer.begin("push", {"parts": [{"table": self.table, "keys": 1}],
                                   "round": {"job": "half", "worker": worker, "workers": 2, "clock": clock, "lease_ms": LEASE_MS}},
                          wire.keys([7]), wire.floats([gradient]))

    def pull(self, peer):
        return peer.begin("pull", {"parts": [{"table": self.table, "keys": 1}]}, wire.keys([7]))

    def waiting(self):
        with self.connect() as peer:
            return peer.call("stats")[0]["stats"]["round_pushes_waiting"]

    def wait_for(self, n):
        end = time.monotonic() + LEASE_MS / 2000
        while self.waiting() != n:
            self.assertLess(time.monotonic(), end, f"{self.waiting()} pushes wait, expected {n}")
            time.sleep(0.01)

    def go_on(self):
        """The worker is there again, and the step is made of what it brings now."""
        again = self.connect()
        self.push(again, 0, 2, 2.0)
        self.push(self.second, 1, 2, 4.0)
        for peer in (again, self.second):
            self.assertIsNone(peer.receive()[2])
        self.pull(again)
        self.assertEqual(wire.unfloats(again.receive()[3][1]), [-1.5])  # lr 0.5, the mean of 2 and 4

    def test_a_push_of_a_connection_that_closed_leaves_its_round(self):
        self.push(self.first, 0, 2, 100.0)
        self.wait_for(1)
        self.first.close()
        self.wait_for(0)
        self.go_on()

    def test_a_push_of_a_connection_that_ended_its_side_is_answered_so(self):
        pushed = self.push(self.first, 0, 2, 100.0)
        self.wait_for(1)
        pulled, other = self.pull(self.first), self.push(self.first, 0, 3, 100.0)
        self.end(self.first)
        self.wait_for(0)
        answers = {answer[1]: answer for answer in (self.first.receive() for _ in range(3))}
        self.assertEqual([answers[n][2] and answers[n][2][0] for n in (pushed, pulled, other)], [CLOSED, None, CLOSED])
        self.assertIsNone(self.first.receive())
        self.go_on()

    def test_the_end_is_seen_behind_requests_that_are_not_read_yet(self):
        self.push(self.first, 0, 2, 100.0)
        for _ in range(2 * IN_FLIGHT):
            self.pull(self.first)
        self.wait_for(1)
        self.first.close()
        self.wait_for(0)
        self.go_on()

    def test_other_requests_are_answered(self):
        sent = [self.pull(self.first) for _ in range(IN_FLIGHT)]
        self.end(self.first)
        self.assertEqual([self.first.receive()[1] for _ in sent], sent)
        self.assertIsNone(self.first.receive())

    def end(self, peer):
        peer.socket.shutdown(socket.SHUT_WR)


class Tls(Plain):
    """The stream ends as a killed process leaves it, without a word of TLS; close() of the others does that too."""

    def setUp(self):
        folder = tempfile.mkdtemp(prefix="embd-half-")
        self.addCleanup(shutil.rmtree, folder)
        self.ca = Authority(folder, "ca")
        cert, key = self.ca.issue("server")
        self.server = embd_process.Embd("--http", "off", "--tls-cert", cert, "--tls-key", key)
        self.addCleanup(self.server.stop)
        self.begin()

    def connect(self):
        peer = super().connect()
        peer.socket = ssl.create_default_context(cafile=self.ca.path).wrap_socket(peer.socket, server_hostname="127.0.0.1")
        return peer

    def end(self, peer):
        with socket.socket(fileno=os.dup(peer.socket.fileno())) as under:
            under.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    unittest.main()
