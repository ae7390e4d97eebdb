"""A connection whose requests take long gets no more of the shard's thread than others. Requests are counted, no time: in
fast_clock.c's server 2 ms pass at each look, or whenever rows are made: more than a turn has. All that clients send lies there before
the server goes on."""
import array
import fcntl
import os
import shutil
import tempfile
import termios
import unittest
import unittest.mock

import embd_process
import wire

FAST_CLOCK = os.path.join(os.environ["EMBD_BIN"], "..", "tests", "integration", "embd-fast-clock")
N, TURN = 48, 32  # requests that lie there; what a turn has of quick ones


def wait_arrived(peer):
    """Until the server's kernel has all that was sent."""
    left = array.array("i", [1])
    while left[0]:
        fcntl.ioctl(peer.socket, termios.TIOCOUTQ, left)


class Turns(unittest.TestCase):
    def setUp(self):
        self.data = tempfile.mkdtemp(prefix="embd-turns-")
        self.addCleanup(shutil.rmtree, self.data)

    def start(self, program):
        self.server = embd_process.Embd("--http", "off", "--data-dir", self.data, program=program)
        self.addCleanup(self.server.stop)
        self.heavy, self.other = (wire.connect(self.server) for _ in range(2))
        for peer in self.heavy, self.other:
            self.addCleanup(peer.close)
            peer.call("ping", {})

    def handled_before(self, figure, requests):
        """How many of the requests that one connection has sent are handled before the first of another one."""
        before = self.other.call("stats", {})[0]["stats"][figure] + (figure == "requests_ping")
        self.heavy.call("ping", {})  # the last that was heard of: it is the first to be looked at
        self.server.pause()
        self.heavy.send(b"".join(requests))
        wait_arrived(self.heavy)
        self.other.begin("stats", {})
        wait_arrived(self.other)
        self.server.go_on()
        handled = self.other.receive()[3][0]["stats"][figure] - before
        for _ in requests:
            self.assertIsNone(self.heavy.receive()[2])
        return handled

    def pings(self):
        return self.handled_before("requests_ping", [wire.request(i, "ping", {}) for i in range(N)])

    def pulls(self):
        table = wire.create(self.other, "pulled")
        part = {"parts": [{"table": table, "keys": 1}]}
        return self.handled_before("requests_pull", [wire.request(i, "pull", part, wire.keys([1])) for i in range(N)])

    def pushes(self, durability):
        table = wire.create(self.other, "pushed_" + durability, durability=durability)
        part = {"parts": [{"table": table, "keys": 1}]}
        return self.handled_before("requests_push", [wire.request(i, "push", part, wire.keys([1]), wire.floats([1.0] * 4))
                                                     for i in range(N)])

    def all(self):
        return [self.pings(), self.pulls(), self.pushes("snapshot"), self.pushes("durable")]

    def test_requests_that_take_longer_than_a_turn_let_others_in_after_one(self):
        self.start(FAST_CLOCK)
        for handled in self.all():
            self.assertLessEqual(handled, 2)  # a turn may begin before the other one is looked at

    def test_rows_that_take_longer_than_a_turn_let_others_in_after_one_batch(self):
        with unittest.mock.patch.dict(os.environ, {"EMBD_PASSES": "fill"}):
            self.start(FAST_CLOCK)
        table = wire.create(self.other, "pulled")
        part = {"parts": [{"table": table, "keys": 1, "status": True}]}  # counted as its rows are made
        made = self.handled_before("keys_missing", [wire.request(i, "pull", part, wire.keys([1])) for i in range(N)])
        self.assertLessEqual(made, 4)

    def test_quick_requests_share_a_turn(self):
        self.start(embd_process.BIN)
        self.assertLessEqual(self.pings(), TURN)


if __name__ == "__main__":
    unittest.main()
