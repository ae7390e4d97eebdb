"""A connection whose requests take long gets no more of the shard's thread than others. Requests are counted, no time: in
fast_clock.c's server 2 ms pass at each look, or whenever rows are made: more than a turn has. All that clients send lies there before
the server goes on. A push of no keys to a table with `update: global` counts as its slices."""
import array
import fcntl
import os
import shutil
import tempfile
import termios
import unittest
import unittest.mock

import embd_process
import test_shared
import wire

FAST_CLOCK = os.path.join(os.environ["EMBD_BIN"], "..", "tests", "integration", "embd-fast-clock")
N, TURN = 48, 32  # requests that lie there; what a turn has of quick ones
ROWS, DIM = 1024, 1024  # of a table whose pushes take four slices and more
MOMENTUM = {"kind": "momentum", "lr": 0.5, "momentum": 0.5, "update": "global"}


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

    def fresh(self):
        """A connection that owes no turns, as it has asked for nothing."""
        before = self.other.call("stats", {})[0]["stats"]["connections"]
        peer = wire.connect(self.server)
        self.addCleanup(peer.close)
        while self.other.call("stats", {})[0]["stats"]["connections"] == before:
            pass
        return peer

    def handled_before(self, figure, requests):
        """How many of the requests that one connection has sent are handled before the first of another one. That one owes no
        turns: on a busy machine its earlier requests may have taken many."""
        other = self.fresh()
        before = self.other.call("stats", {})[0]["stats"][figure] + (figure == "requests_ping")
        self.heavy.call("ping", {})  # the last that was heard of: it is the first to be looked at
        self.server.pause()
        self.heavy.send(b"".join(requests))
        wait_arrived(self.heavy)
        other.begin("stats", {})
        wait_arrived(other)
        self.server.go_on()
        handled = other.receive()[3][0]["stats"][figure] - before
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

    def create_swept(self, durability):
        """All rows are equal, and each push changes them. Who fills it owes turns."""
        filler = wire.connect(self.server)
        self.addCleanup(filler.close)
        table = wire.create(filler, "swept", dim=DIM, durability=durability, optimizer=MOMENTUM)
        wire.push(filler, table, range(ROWS), [1.0] * DIM * ROWS)
        return table

    def test_a_push_that_steps_all_rows_lets_others_in_after_one(self):
        self.start(embd_process.BIN)
        part = {"parts": [{"table": self.create_swept("snapshot"), "keys": 0}]}
        for n_first in 0, 1:  # 1: all of the heavy one's wait for the slices of another connection's push
            first, heavy, other = (self.fresh() for _ in range(3))
            before = self.other.call("table_describe", {"name": "swept"})[0]["step"]
            self.server.pause()
            for peer, n in (first, n_first), (heavy, N), (other, 1):
                peer.send(b"".join(wire.request(i, "push", part, b"", b"") for i in range(n)))
                wait_arrived(peer)
            self.server.go_on()
            self.assertLessEqual(other.receive()[3][0]["parts"][0]["step"], before + n_first + 3)
            for peer in [first] * n_first + [heavy] * N:
                self.assertIsNone(peer.receive()[2])

    def test_a_push_that_steps_all_rows_is_whole_however_the_server_ends(self):
        """Its rows are pulled right behind it, and again after a start."""
        for end in embd_process.Embd.kill, embd_process.Embd.stop:
            self.start(embd_process.BIN)
            table = self.create_swept("durable")
            for _ in range(3):
                wire.push(self.other, table, [], [])
            first = wire.pull(self.other, table, [0])[0]
            end(self.server)
            self.start(embd_process.BIN)
            self.assertEqual(set(wire.pull(self.other, table, range(ROWS))), {first})
            self.other.call("table_drop", {"name": "swept"})
            self.server.stop()

    def test_a_push_whose_gradients_are_copied_out_of_shared_memory_lets_others_in_before_its_end(self):
        self.start(FAST_CLOCK)
        table, n = wire.create(self.other, "copied", dim=1024), 1024
        peer = test_shared.Peer(self.server, 8 << 20)
        self.addCleanup(peer.close)
        request = wire.request(9, "push", {"parts": [{"table": table, "keys": n}]}, wire.keys(range(n)), test_shared.shared(0, n * 4096))
        other = self.fresh()
        self.server.pause()
        peer.send(request)
        other.begin("stats", {})
        wait_arrived(other)
        self.server.go_on()
        self.assertEqual(other.receive()[3][0]["stats"]["requests_push"], 0)
        self.assertIsNone(peer.receive()[2])

    def test_quick_requests_share_a_turn(self):
        self.start(embd_process.BIN)
        self.assertLessEqual(self.pings(), TURN)


if __name__ == "__main__":
    unittest.main()
