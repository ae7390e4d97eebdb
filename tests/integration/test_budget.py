"""frame_memory: what peers cost is charged before it is taken, to connection and process; at the limit reading stops; and
all of it comes back."""
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import types
import unittest

import embd_process
import test_trunk
import wire
from certificates import Authority
from test_http import get, http_address, samples
from test_tls import EMBCTL, TlsWire

MB = 1 << 20
KEY_UPDATES = os.path.join(os.environ["EMBD_BIN"], "embd-key-updates")


class Budget(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="embd-budget-")
        cls.ca = Authority(cls.folder, "ca")
        cls.cert = cls.ca.issue("server")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def start(self, *flags):
        self.server = embd_process.Embd("--http", "127.0.0.1:0", "--frame-memory", "80M", "--log-level", "warn", *flags)
        self.addCleanup(self.server.stop)
        self.http = http_address(self.server)
        self.peers = []
        self.addCleanup(self.close)

    def start_sealed(self, *flags):
        self.start("--tls-cert", self.cert[0], "--tls-key", self.cert[1], *flags)

    def close(self):
        for peer in self.peers:
            peer.close()
        self.peers.clear()

    def connect(self, receives=None):
        peer = socket.socket()
        if receives:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
        peer.connect(("127.0.0.1", self.server.port()))
        peer.settimeout(20)
        self.peers.append(peer)
        return peer

    def used(self):
        status, _, page = get(self.http, "/metrics")
        while status == 503:  # connections that ended just now still count
            time.sleep(0.05)
            status, _, page = get(self.http, "/metrics")
        return samples(page)["embd_frame_memory_used_bytes"]

    def wait_used(self, least, most, seconds=20):
        end = time.monotonic() + seconds
        while not least <= (used := self.used()) <= most:
            self.assertLess(time.monotonic(), end, f"{used} are charged, expected {least} to {most}")
            time.sleep(0.05)
        return used

    def comes_back(self, before):
        """All but what a shard keeps at hand: for a read, and for 256 requests and 4 answers."""
        self.wait_used(before - 8 * MB, before + 8 * MB)

    def test_connections_are_charged_and_all_comes_back(self):
        self.start()
        before = self.wait_used(0, 100000)
        for _ in range(200):
            self.connect()
        each = (self.wait_used(before + 200 * 1024, before + 200 * 8192) - before) / 200
        print(f"a plain connection is charged with {each:.0f} bytes")
        for peer in self.peers[:100]:
            peer.sendall(wire.request(1, "push", {"parts": []}, bytes(8000))[:-1])  # a bin beyond the exchange's own
        self.wait_used(before + 200 * each + 100 * 24000, before + 200 * each + 100 * 40000)
        self.close()
        self.comes_back(before)

    def test_tls_is_charged_with_what_it_takes_and_all_comes_back(self):
        self.start_sealed()
        before, rss = self.used(), self.server.rss_bytes()
        self.peers = [TlsWire(self.server, self.ca) for _ in range(20)]
        each = (self.wait_used(before + 20 * 105000, before + 20 * 116000) - before) / 20
        taken = (self.server.rss_bytes() - rss) / 20
        print(f"a TLS connection at rest is charged with {each:.0f} bytes and takes {taken:.0f}")
        self.close()
        self.comes_back(before)

    def test_trunks_are_charged_with_their_tls_and_all_comes_back(self):
        self.start_sealed()
        way = types.SimpleNamespace(connect=lambda server, shard: TlsWire(server, self.ca))
        test_trunk.Trunk(self.server, way=way).close()
        before = self.wait_used(0, 300000)
        self.peers = [test_trunk.Trunk(self.server, way=way) for _ in range(30)]
        each = (self.wait_used(before + 30 * 110000, before + 30 * 122000) - before) / 30
        print(f"a trunk through TLS is charged with {each:.0f} bytes")
        self.close()
        self.wait_used(before - 10000, before + 110000)

    def test_handshakes_go_when_others_need_their_memory_and_frames_keep_half(self):
        self.start_sealed("--max-strangers", "1000")
        before = self.used()
        early = self.connect()
        for _ in range(160):
            self.connect()  # each has said nothing, and may say a hello of 128 KiB
        self.assertEqual(early.recv(1), b"")
        self.server.wait_log("others need its memory (frame_memory)")
        self.assertLessEqual(self.used(), before + 40 * MB)
        with TlsWire(self.server, self.ca) as known:
            known.send(wire.request(1, "push", {"parts": []}, bytes(30 * MB)))
            self.assertNotEqual(known.receive()[2][0], wire.BUSY)
        self.close()
        self.comes_back(before)

    def test_connections_beyond_half_are_turned_away_and_the_others_live(self):
        self.start_sealed()
        context = ssl.create_default_context(cafile=self.ca.path)
        before, error = self.used(), None
        while error is None:
            self.assertLess(len(self.peers), 600)
            plain = self.connect()
            try:
                self.peers[-1] = context.wrap_socket(plain, server_hostname="127.0.0.1")
            except OSError as told:
                error = told
        self.server.wait_log("no memory for a TLS session (frame_memory)")
        self.assertGreater(len(self.peers), 300)
        self.assertLessEqual(self.used(), before + 41 * MB)
        self.peers[0].sendall(wire.request(1, "push", {"parts": []}, bytes(30 * MB)) + wire.request(2, "ping", {}))
        self.assertTrue(self.peers[0].recv(100))
        with wire.Wire(self.server.admin_path()) as admin:
            admin.call("ping")
        self.close()
        self.comes_back(before)

    def test_what_peers_that_never_read_cost_stays_within_the_budget(self):
        self.start()
        with wire.connect(self.server) as peer:
            table = wire.create(peer, "items", 64)
            pull = wire.request(1, "pull", {"parts": [{"table": table, "keys": 4096}]}, wire.keys(range(4096)))
        before, rss = self.used(), self.server.rss_bytes()
        said = pull * 4 + wire.request(2, "ping", {}) * 6000
        for _ in range(600):
            peer = self.connect(receives=2048)
            peer.setblocking(False)
            try:
                peer.send(said)
            except BlockingIOError:
                pass
        used = self.wait_used(70 * MB, 80.5 * MB)  # heads of answers are charged when they are there
        grown = self.server.rss_bytes() - rss
        print(f"600 peers that never read: {used / MB:.1f} MiB charged, {grown / MB:.1f} MiB taken")
        self.assertLess(grown, 84 * MB)
        self.close()
        self.comes_back(before)

    def test_rows_got_by_key_are_charged_until_they_are_read(self):
        """An answer of 16 MB is made as a whole: some fit 80 MiB, the rest are refused, and all comes back."""
        self.start()
        with wire.connect(self.server) as peer:
            wire.create(peer, "items", 1024)
        fields, keys = {"table": "items", "keys": 4000}, wire.keys(range(4000))
        before = self.used()
        for i in range(8):
            self.connect(receives=2048).sendall(wire.request(1, "get", fields, keys))
            used = self.wait_used(before + min(i + 1, 4) * 15 * MB, before + 79 * MB)
        print(f"8 unread answers of 16 MB: {used / MB:.1f} MiB charged")
        with wire.connect(self.server) as late:
            with self.assertRaises(wire.RpcError) as caught:
                late.call("get", fields, keys)
            self.assertEqual(caught.exception.number, wire.BUSY)
            self.assertIn("frame_memory", caught.exception.text)
            self.close()
            self.comes_back(before)
            self.assertEqual(len(late.call("get", fields, keys)[2]), 4000 * 4096)

    def test_gradients_of_i4_are_charged_as_f32(self):
        """A push that waits in a round, of 6 MiB on the wire, keeps 48 MiB: a second one does not fit 80 MiB."""
        self.start()
        n, dim = 12000, 1024
        with wire.connect(self.server) as peer:
            table = wire.create(peer, "items", dim)
        part = {"parts": [{"table": table, "keys": n, "dtype": "i4"}]}
        bins = wire.keys(range(n)), bytes(n * (dim // 2 + 4))

        def push(job):
            return wire.request(1, "push", {**part, "round": {"job": job, "worker": 0, "workers": 2, "clock": 1}}, *bins)

        before = self.used()
        self.connect().sendall(push("first"))
        self.wait_used(before + n * dim * 4, before + 70 * MB)
        with wire.connect(self.server) as late:
            with self.assertRaises(wire.RpcError) as caught:
                late.call("push", part, *bins)
            self.assertEqual(caught.exception.number, wire.BUSY)
            self.assertIn("frame_memory", caught.exception.text)
            self.close()
            self.comes_back(before)
            late.call("push", part, *bins)
        self.comes_back(before)

    def test_a_connection_has_a_share_and_what_waits_for_it_goes_on(self):
        self.start("--stall-timeout", "1", "--frame-memory", "256M")
        with wire.Wire(self.server.admin_path()) as admin, wire.connect(self.server) as peer:
            before = self.used()
            admin.call("hold", {"timeout_ms": 20000})
            push = wire.request(1, "push", {"parts": []}, bytes(25 * MB))
            sender = threading.Thread(target=peer.send, args=(push * 3,))
            sender.start()
            time.sleep(1.3)  # longer than a peer may rest: it is not the peer that does
            self.wait_used(before + 55 * MB, before + 57 * MB)  # two of them
            admin.call("release", {})
            for _ in range(3):
                self.assertEqual(peer.receive()[0], 1)
            sender.join()

    def test_a_flood_of_key_updates_is_read_no_faster_than_its_answers_are_taken(self):
        self.start_sealed()
        with TlsWire(self.server, self.ca) as peer:
            table = wire.create(peer, "items", 256)
        pulls = wire.request(1, "pull", {"parts": [{"table": table, "keys": 16000}]}, wire.keys(range(16000))) * 3
        before = self.server.rss_bytes()  # the answers fill the socket, 48 MB
        done = subprocess.run([KEY_UPDATES, str(self.server.port())], input=pulls, capture_output=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 0, "it is read on and on, and so are its answers written")
        grown = self.server.rss_bytes() - before
        print(f"{int(done.stdout)} key updates were read: {grown / MB:.1f} MiB")
        self.assertGreater(int(done.stdout), 1000)
        self.assertLess(grown, 4 * MB)
        with TlsWire(self.server, self.ca) as peer:
            peer.call("ping")


    def test_a_trunk_reads_key_updates_no_faster_than_their_answers_are_taken(self):
        self.start_sealed("--frame-memory", "256M")
        with TlsWire(self.server, self.ca) as peer:
            table = wire.create(peer, "items", 256)
        pulls = wire.request(1, "pull", {"parts": [{"table": table, "keys": 16000}]}, wire.keys(range(16000))) * 2
        self.assertLess(len(pulls), test_trunk.WINDOW)
        pieces = [pulls[at:at + test_trunk.DATA_MOST] for at in range(0, len(pulls), test_trunk.DATA_MOST)]
        opened = b"".join(test_trunk.chunk(test_trunk.DATA, 0, len(piece), piece) for piece in pieces)
        before = self.server.rss_bytes()
        trunk = wire.request(1, "trunk", {})
        done = subprocess.run([KEY_UPDATES, str(self.server.port()), str(len(trunk))],
                              input=trunk + test_trunk.chunk(test_trunk.OPEN, 0) + opened, capture_output=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 0, "it is read on and on, and so are its answers written")
        self.assertGreater(int(done.stdout), 1000)
        self.assertIn("embd-trunks", self.server.threads())
        self.assertLess(self.server.rss_bytes() - before, 4 * MB)


class Client(unittest.TestCase):
    def test_a_server_that_floods_with_key_updates_holds_no_client_beyond_its_deadline(self):
        folder = tempfile.mkdtemp(prefix="embd-budget-")
        self.addCleanup(shutil.rmtree, folder)
        ca = Authority(folder, "ca")
        server = subprocess.Popen([KEY_UPDATES, "serve", *ca.issue("server")], stdout=subprocess.PIPE, text=True)
        try:
            address = "127.0.0.1:" + server.stdout.readline().strip()
            done = subprocess.run([EMBCTL, "--servers", address, "--deadline", "3", "ping"], capture_output=True,
                                  text=True, timeout=20, check=False, env={**os.environ, "EMBD_TLS_CA": ca.path})
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("empty records", done.stderr)
        finally:
            server.kill()
            server.wait()
            server.stdout.close()


if __name__ == "__main__":
    unittest.main()
