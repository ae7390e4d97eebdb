"""Peers that rest, drip, hoard or never read: they are dropped in bounded time, memory stays bounded, and nobody else
has to wait for them."""
import os
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

from embd_process import Embd
import wire

EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
MB = 1 << 20
PING_S = 1.0  # a turn takes milliseconds; the rest is for machines with more work than cores


def longest_ping(server, seconds):
    """Another client's slowest round trip while something goes on."""
    worst, end = 0.0, time.monotonic() + seconds
    with wire.connect(server) as other:
        while time.monotonic() < end:
            begin = time.monotonic()
            other.call("ping")
            worst = max(worst, time.monotonic() - begin)
    return worst


def is_closed(w):
    try:
        while w.socket.recv(1 << 20):
            pass
    except ConnectionError:
        pass
    return True


class SlowPeers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Embd("--stall-timeout", "1", "--frame-memory", "128M")
        with wire.connect(cls.server) as w:
            cls.table = wire.create(w, "wide", dim=256, value=1.0)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def setUp(self):
        self.wire = wire.connect(self.server)
        self.addCleanup(self.wire.close)

    def pull_of(self, msgid, n_keys):
        return wire.request(msgid, "pull", {"parts": [{"table": self.table, "keys": n_keys}]}, wire.keys(range(n_keys)))

    def test_half_a_frame_is_dropped_after_the_stall_timeout(self):
        begin = time.monotonic()
        self.wire.send(self.pull_of(1, 100000)[:50000])
        self.assertTrue(is_closed(self.wire))
        self.assertLess(time.monotonic() - begin, 6)
        self.server.wait_log("a frame made no progress (stall_timeout)")

    def test_a_byte_now_and_then_is_no_progress(self):
        begin = time.monotonic()
        data = self.pull_of(1, 1000)
        with self.assertRaises(OSError):
            for at in range(200):
                self.wire.send(data[at:at + 1])
                time.sleep(0.1)
        self.assertLess(time.monotonic() - begin, 8)

    def test_a_quiet_connection_may_stay(self):
        time.sleep(1.5)
        self.assertEqual(self.wire.call("ping"), [{}])

    def test_a_client_that_stops_reading_costs_little_and_is_dropped(self):
        before = self.server.rss_bytes()
        n = 16000  # 16 MB an answer
        for msgid in range(60):
            self.wire.send(self.pull_of(msgid, n))
        self.assertLess(longest_ping(self.server, 1), PING_S)
        self.assertLess(self.server.rss_bytes() - before, 48 * MB)  # 60 requests of 128 KB, not 1 GB of answers
        self.server.wait_log("the peer does not read its answers (stall_timeout)")
        with wire.connect(self.server) as other:
            self.assertEqual(other.call("stats")[0]["stats"]["requests_in_flight"], 1)

    def test_more_requests_than_may_be_in_flight_wait_and_are_all_answered(self):
        table = wire.create(self.wire, "narrow", dim=1, value=2.0)
        n = 2000
        request = {"parts": [{"table": table, "keys": n}]}
        self.wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        data = b"".join(wire.request(i, "pull", request, wire.keys(range(n))) for i in range(300))
        self.wire.socket.setblocking(False)
        sent, answered = 0, set()
        end = time.monotonic() + 20
        while len(answered) < 300:
            self.assertLess(time.monotonic(), end)
            try:
                sent += self.wire.socket.send(data[sent:sent + 65536])
            except BlockingIOError:
                pass
            try:
                self.wire.unpacker.feed(self.wire.socket.recv(4096))
            except BlockingIOError:
                pass
            for _, msgid, error, result in self.wire.unpacker:
                self.assertIsNone(error)
                self.assertEqual(set(wire.unfloats(result[1])), {2.0})
                answered.add(msgid)
        self.assertEqual(answered, set(range(300)))

    def test_a_large_transfer_does_not_hold_up_small_requests(self):
        for msgid in range(20):
            self.wire.send(self.pull_of(msgid, 16000))
        self.wire.socket.settimeout(20)
        worst = []
        import threading
        other = threading.Thread(target=lambda: worst.append(longest_ping(self.server, 0.5)))
        other.start()
        for _ in range(20):
            self.assertIsNone(self.wire.receive()[2])
        other.join()
        self.assertLess(worst[0], PING_S)


class Limits(unittest.TestCase):
    def test_announced_memory_is_bounded_and_others_are_told(self):
        server = Embd("--stall-timeout", "2", "--frame-memory", "128M")  # longer than a request waits for memory
        self.addCleanup(server.stop)
        told = wire.connect(server)
        self.addCleanup(told.close)
        before = server.rss_bytes()
        announce = b"\x94\x00\x05\xa4pull\x92\x80\xc6" + (60 * MB).to_bytes(4, "big")
        hoarders = [wire.connect(server) for _ in range(2)]
        for hoarder in hoarders:
            hoarder.send(announce + bytes(1000))
            self.addCleanup(hoarder.close)
        time.sleep(0.2)
        told.send(announce + bytes(60 * MB))
        _, msgid, error, _ = told.receive()
        self.assertEqual((msgid, error[0]), (5, wire.BUSY))
        for said in (str(60 * MB), str(128 * MB), "frame_memory"):
            self.assertIn(said, error[1])
        self.assertEqual(told.call("ping"), [{}])
        self.assertLess(server.rss_bytes() - before, 16 * MB)
        for hoarder in hoarders:
            self.assertTrue(is_closed(hoarder))
        told.send(announce + bytes(60 * MB))
        self.assertNotEqual(told.receive()[2][0], wire.BUSY)

    def test_connections_beyond_the_limit_are_told_so_and_the_others_live(self):
        with Embd("--max-connections", "3") as server:
            inside = [wire.connect(server) for _ in range(3)]
            for w in inside:
                self.addCleanup(w.close)
                w.call("ping")
            with wire.connect(server) as outside:
                _, event, (number, text) = outside.receive()
                self.assertEqual((event, number), ("error", wire.BUSY))
                self.assertIn("limit is 3", text)
            with wire.Wire(server.admin_path()) as admin:
                admin.call("ping")
            for w in inside:
                w.call("ping")
            inside[0].close()
            time.sleep(0.2)
            with wire.connect(server) as again:
                again.call("ping")

    def test_operators_get_in_by_the_admin_socket_when_data_connections_are_used_up(self):
        data = tempfile.mkdtemp(prefix="embd-full-")
        self.addCleanup(shutil.rmtree, data)
        with Embd("--max-connections", "3", "--data-dir", data, shards=2) as server:
            inside = [wire.connect(server, shard) for shard in (0, 1) for _ in range(3)]
            for w in inside:
                self.addCleanup(w.close)
                w.call("ping")

            def embctl(servers, *arguments):
                return subprocess.run([EMBCTL, "--servers", servers, *arguments], capture_output=True, text=True, timeout=60,
                                      check=False)
            refused = embctl(server.addresses[0], "--deadline", "1", "ping")
            self.assertNotEqual(refused.returncode, 0)
            server.wait_log("--servers SOCKET")
            for command in ("ping", "cluster", "stats", "wait --ready", "shard list", "table create kept --dim 4",
                            "table list", "table describe kept", "hot kept", "trace", "snapshot s1", "table drop kept"):
                done = embctl(server.admin_path(), *command.split())
                self.assertEqual((done.returncode, done.stderr), (0, ""), command)
            for w in inside:  # who was there before stays
                w.call("ping")
            done = embctl(server.admin_path(), "drain")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(server.wait(), 0)

    def test_a_path_that_no_socket_can_have(self):
        done = subprocess.run([EMBCTL, "--servers", "/" + 200 * "x", "ping"], capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("201 bytes, the limit is 107", done.stderr)

    def test_idle_connections_end_when_asked_to(self):
        with Embd("--idle-timeout", "1") as server, wire.connect(server) as w:
            w.call("ping")
            begin = time.monotonic()
            self.assertIsNone(w.receive())
            self.assertLess(time.monotonic() - begin, 4)


if __name__ == "__main__":
    unittest.main()
