"""Who has not said who it is has little: bytes, time, places and requests; and takes no place from others."""
import os
import shutil
import socket
import tempfile
import time
import unittest

import embd_process
import wire
from certificates import Authority, Tokens
from test_tls import OK, TlsWire, embctl

STRANGER_BYTES = 128 << 10
ADMINS = 64


def bytes_in(server):
    """What the shard has read, before this question came."""
    with wire.Wire(server.admin_path()) as admin:
        return admin.call("stats")[0]["stats"]["bytes_in"]


def is_ended(peer):
    try:
        while peer.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


class Strangers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="embd-strangers-")
        cls.tokens = Tokens(cls.folder)
        cls.token = cls.tokens.add("trainer", "trainer")
        cls.operator = cls.tokens.add("operator", "admin")
        cls.ca = Authority(cls.folder, "ca")
        cls.cert = cls.ca.issue("server")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def server(self, *flags):
        server = embd_process.Embd("--http", "off", "--tokens", self.tokens.path, *flags)
        self.addCleanup(server.stop)
        return server

    def sealed(self, *flags):
        return self.server("--tls-cert", self.cert[0], "--tls-key", self.cert[1], *flags)

    def connect(self, address, **options):
        peer = socket.create_connection(address, timeout=20, **options)
        self.addCleanup(peer.close)
        return peer

    def say(self, server, data):
        """Sends it all, or until the server ends the connection; how much the server has read of it."""
        before = bytes_in(server)
        question = len(wire.request(1, "stats"))
        peer = self.connect(("127.0.0.1", server.port()))
        try:
            peer.sendall(data)
        except ConnectionError:
            pass
        self.assertTrue(is_ended(peer))
        return bytes_in(server) - before - question

    def test_of_a_stranger_128_kib_are_read_and_not_a_byte_more(self):
        server = self.server()
        self.assertEqual(self.say(server, wire.request(1, "ping", {}) * (1 << 20)), STRANGER_BYTES)
        server.wait_log("it sent 128 KiB without a token or TLS handshake")

    def test_nor_of_a_handshake_that_never_ends(self):
        server = self.sealed()
        record = b"\x16\x03\x01\x40\x00"  # a ClientHello as long as OpenSSL takes it, in records of 16 KiB
        hello = record + b"\x01\x02\x01\x40\x03\x03" + bytes(0x4000 - 6) + (record + bytes(0x4000)) * 20
        self.assertEqual(self.say(server, hello), STRANGER_BYTES)
        server.wait_log("it sent 128 KiB without a token or TLS handshake")

    def test_who_says_who_it_is_at_the_end_of_these_bytes_may_stay(self):
        with wire.connect(self.server()) as peer:
            refused = wire.request(1, "ping", {})
            hello = wire.request(2, "hello", {"protocol": 1, "token": self.token})
            count = (STRANGER_BYTES - len(hello)) // len(refused)
            peer.send(refused * count + hello + wire.request(3, "ping", {}) * 1000)
            errors = [peer.receive()[2] for _ in range(count + 1 + 1000)]
            self.assertEqual([error is None for error in errors], [False] * count + [True] * 1001)

    def test_what_comes_right_behind_hello_is_no_strangers_any_more(self):
        server = self.server()
        with wire.Wire(server.admin_path()) as admin:
            table = wire.create(admin, "items", 16)
        with wire.connect(server) as peer:
            peer.send(wire.request(1, "hello", {"protocol": 1, "token": self.token}) +
                      wire.request(2, "pull", {"parts": [{"table": table, "keys": 2000}]}, wire.keys(range(2000))))
            self.assertIsNone(peer.receive()[2])
            _, _, error, result = peer.receive()
            self.assertIsNone(error)
            self.assertEqual(len(result[1]), 2000 * 64)

    def test_a_stranger_has_one_request_at_a_time(self):
        server = self.server()
        peer = socket.socket()
        self.addCleanup(peer.close)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)  # soon full of answers that nobody takes
        peer.connect(("127.0.0.1", server.port()))
        peer.settimeout(0.5)
        try:
            peer.sendall(wire.request(1, "x" * 60, {}) * (STRANGER_BYTES // 80))
        except TimeoutError:
            pass
        with wire.Wire(server.admin_path()) as admin:
            self.assertLessEqual(admin.call("stats")[0]["stats"]["requests_in_flight"], 3)

    def test_a_flood_of_strangers_displaces_itself_and_nobody_of_another_network(self):
        server = self.sealed("--max-strangers", "8")
        early = self.connect(("127.0.0.1", server.port()))
        flood = [self.connect(("127.0.0.1", server.port()), source_address=("127.0.0.2", 0)) for _ in range(40)]
        self.assertTrue(is_ended(flood[0]))
        early.settimeout(0.3)
        with self.assertRaises(TimeoutError):
            early.recv(1)
        with TlsWire(server, self.ca) as late:
            late.call("hello", {"protocol": 1, "token": self.token})

    def test_strangers_at_one_door_keep_nobody_out_of_it_nor_of_another(self):
        server = self.sealed("--admin-listen", "127.0.0.1:0", "--hello-timeout", "20")
        with wire.Wire(server.admin_path()) as admin:
            host, port = admin.call("cluster")[0]["shards"][0]["admin_tcp"].rsplit(":", 1)
        for _ in range(ADMINS + 5):
            self.connect((host, int(port)))
        with wire.Wire(server.admin_path()) as admin:
            admin.call("ping")
        os.rename(server.dir + "/admin", server.dir + "/away")  # so that embctl comes by TCP
        try:
            made = embctl(server, "stats", EMBD_TLS_CA=self.ca.path, EMBD_TOKEN=self.operator)
            self.assertEqual(made.returncode, OK, made.stderr)
            made = embctl(server, "trace", EMBD_TLS_CA=self.ca.path, EMBD_TOKEN=self.operator)
            self.assertEqual(made.returncode, OK, made.stderr)
        finally:
            os.rename(server.dir + "/away", server.dir + "/admin")


if __name__ == "__main__":
    unittest.main()
