"""TLS 1.3 between real processes: who is let in, who is not, and that new certificates count at once."""
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

import embd_process
import wire
from certificates import Authority, Tokens
from test_http import http_address

EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
OK, FAILED, USAGE, UNREACHABLE, REFUSED = 0, 1, 2, 3, 5
IGNORE_UNEXPECTED_EOF = 0x80  # of OpenSSL


def embctl(server, *arguments, **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("EMBD_TLS", "EMBD_TOKEN"))}
    return subprocess.run([EMBCTL, "--servers", server.addresses[0], "--deadline", "10", *arguments],
                          env={**clean, **environment}, capture_output=True, text=True, timeout=60, check=False)


def expiry(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as page:
        return int(re.search(r"^embd_certificate_expires_timestamp_seconds (\d+)$", page.read().decode(), re.M).group(1))


class TlsWire(wire.Wire):
    """A msgpack-rpc client through Python's own TLS."""

    def __init__(self, server, authority, cert=None, versions=None, port=None):
        super().__init__(("127.0.0.1", port or server.port()))
        context = ssl.create_default_context(cafile=authority.path)
        if cert:
            context.load_cert_chain(*cert)
        context.options &= ~IGNORE_UNEXPECTED_EOF  # whoever asks the socket sees how the stream ended
        if versions:
            context.minimum_version, context.maximum_version = versions
        self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="embd-tls-")
        cls.ca, cls.other = Authority(cls.folder, "ca"), Authority(cls.folder, "other")
        cls.cert = cls.ca.issue("server")
        cls.client = cls.ca.issue("client")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def server(self, *flags, cert=None, **options):
        cert = cert or self.cert
        server = embd_process.Embd("--http", "off", "--tls-cert", cert[0], "--tls-key", cert[1], *flags, **options)
        self.addCleanup(server.stop)
        return server

    def refused(self, answer, code, *words):
        self.assertEqual(answer.returncode, code, answer.stderr)
        for word in words:
            self.assertIn(word, answer.stderr)

    def test_small_and_large_requests_come_through_whole(self):
        server = self.server(shards=1)
        with TlsWire(server, self.ca) as peer:
            self.assertEqual(peer.socket.version(), "TLSv1.3")
            table = wire.create(peer, "items", 16)
            count = 65536
            wire.push(peer, table, range(count), [float(k % 7) for k in range(count) for _ in range(16)])
            rows = wire.pull(peer, table, range(count))
            self.assertEqual(rows, [1.0 - 0.5 * (k % 7) for k in range(count) for _ in range(16)])
            self.assertEqual(wire.pull(peer, table, [3]), [-0.5] * 16)

    def test_libembd_moves_tables_through_tls_and_many_requests_at_once(self):
        server = self.server("--data-dir", self.folder, shards=2)
        peer = {"EMBD_TLS_CA": self.ca.path}
        self.assertEqual(embctl(server, "table", "create", "items", "--dim", "8", **peer).returncode, OK)
        listing = embctl(server, "table", "list", **peer)
        self.assertIn("items", listing.stdout)
        self.assertEqual(embctl(server, "ping", **peer).returncode, OK)

    def test_pipelined_requests_of_a_peer_that_reads_late_are_all_answered(self):
        server = self.server()
        with TlsWire(server, self.ca) as peer:
            table = wire.create(peer, "items", 64)
            keys = wire.keys(range(4096))
            request = b"".join(wire.request(i, "pull", {"parts": [{"table": table, "keys": 4096}]}, keys)
                               for i in range(200))
            sender = threading.Thread(target=peer.send, args=(request,))
            sender.start()
            time.sleep(0.5)
            answered = [peer.receive() for _ in range(200)]
            sender.join()
            self.assertEqual(sorted(message[1] for message in answered), list(range(200)))
            self.assertTrue(all(message[2] is None and len(message[3][1]) == 4096 * 256 for message in answered))

    def test_a_client_believes_its_own_authority_alone(self):
        server = self.server()
        self.refused(embctl(server, "ping", EMBD_TLS_CA=self.other.path), FAILED, "certificate verify failed")

    def test_a_client_does_not_take_a_certificate_for_another_host(self):
        server = self.server(cert=self.ca.issue("elsewhere", "DNS:elsewhere.example"))
        self.refused(embctl(server, "ping", EMBD_TLS_CA=self.ca.path), FAILED, "mismatch")

    def test_an_expired_certificate_is_not_taken(self):
        server = self.server(cert=self.ca.issue("old", ends="20210101000000Z"))
        self.refused(embctl(server, "ping", EMBD_TLS_CA=self.ca.path), FAILED, "expired")

    def test_a_plain_client_of_a_tls_port_and_a_tls_client_of_a_plain_port_are_told(self):
        server = self.server()
        self.refused(embctl(server, "--deadline", "2", "ping"), UNREACHABLE, "EMBD_TLS_CA")
        server.wait_log("tls_failed")
        with embd_process.Embd("--http", "off") as plain:
            self.refused(embctl(plain, "--deadline", "2", "ping", EMBD_TLS_CA=self.ca.path), FAILED,
                         "TLS:", "does not seem to use TLS")

    def test_an_authority_whose_file_is_not_there_is_named(self):
        with embd_process.Embd("--http", "off") as plain:
            self.refused(embctl(plain, "ping", EMBD_TLS_CA="/nowhere/ca.pem"), USAGE, "/nowhere/ca.pem",
                         "No such file or directory")

    def test_older_versions_are_refused(self):
        server = self.server()
        with self.assertRaises(ssl.SSLError):
            TlsWire(server, self.ca, versions=(ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2))

    def test_with_a_client_authority_only_its_clients_come_in(self):
        server = self.server("--tls-client-ca", self.ca.path)
        known = {"EMBD_TLS_CA": self.ca.path, "EMBD_TLS_CERT": self.client[0], "EMBD_TLS_KEY": self.client[1]}
        self.assertEqual(embctl(server, "ping", **known).returncode, OK)
        self.refused(embctl(server, "ping", EMBD_TLS_CA=self.ca.path), FAILED, "certificate required")
        stranger = self.other.issue("stranger")
        self.refused(embctl(server, "ping", EMBD_TLS_CA=self.ca.path, EMBD_TLS_CERT=stranger[0],
                            EMBD_TLS_KEY=stranger[1]), FAILED, "TLS:")

    def test_certificates_are_read_again_while_connections_go_on(self):
        folder = tempfile.mkdtemp(prefix="embd-tls-")
        self.addCleanup(shutil.rmtree, folder)
        cert, key = (shutil.copy(path, folder) for path in self.cert)
        server = self.server(cert=(cert, key))
        with TlsWire(server, self.ca) as before:
            before.call("ping", {})
            new_cert, new_key = self.other.issue("server2")
            shutil.copy(new_cert, cert)
            shutil.copy(new_key, key)
            server.process.send_signal(signal.SIGHUP)
            server.wait_log("keys_reloaded")
            before.call("ping", {})
            end = time.monotonic() + 10  # each shard's loop takes the keys in a turn of its own
            while True:
                try:
                    with TlsWire(server, self.other) as after:
                        after.call("ping", {})
                    break
                except ssl.SSLCertVerificationError:
                    self.assertLess(time.monotonic(), end)
            with self.assertRaises(ssl.SSLCertVerificationError):
                TlsWire(server, self.ca)
            with open(key, "w", encoding="ascii") as file:
                file.write("no key\n")
            server.process.send_signal(signal.SIGHUP)
            server.wait_log("keys_not_reloaded")
            with TlsWire(server, self.other) as after:
                after.call("ping", {})

    def test_certificates_are_read_again_when_their_files_change(self):
        folder = tempfile.mkdtemp(prefix="embd-tls-")
        self.addCleanup(shutil.rmtree, folder)
        cert, key = (shutil.copy(path, folder) for path in self.cert)
        server = embd_process.Embd("--http", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key)
        self.addCleanup(server.stop)
        address = http_address(server)
        self.assertEqual(expiry(address), 4102444799)  # what Authority.issue says
        new_cert, new_key = self.other.issue("server3", ends="20400101000000Z")
        shutil.copy(new_cert, cert)  # not yet its key: refused, and looked at again
        server.wait_log("keys_not_reloaded", 60)
        shutil.copy(new_key, key)
        server.wait_log("keys_reloaded", 60)
        self.assertEqual(expiry(address), 2208988800)

    def test_strangers_have_little_time_few_bytes_and_few_places(self):
        server = self.server("--hello-timeout", "1", "--max-strangers", "8")
        idle = [socket.create_connection(("127.0.0.1", server.port()), timeout=10) for _ in range(24)]
        with TlsWire(server, self.ca) as peer:
            peer.call("ping", {})
        self.assertEqual(idle[0].recv(1), b"")  # the oldest went for those who came after
        self.assertEqual(idle[-1].recv(1), b"")  # the youngest after its second
        server.wait_log("max_strangers")
        server.wait_log("hello_timeout")
        for one in idle:
            one.close()

    def test_what_is_no_handshake_ends_the_connection_and_nothing_else(self):
        server = self.server()
        hello = bytes.fromhex("16030100c0010000bc0303")
        with TlsWire(server, self.ca) as peer:
            for junk in (b"GET / HTTP/1.0\r\n\r\n", bytes(200), hello + os.urandom(300), b"\x16\x03\x01\xff\xff" * 9000,
                         os.urandom(100000)):
                with socket.create_connection(("127.0.0.1", server.port()), timeout=10) as one:
                    try:
                        one.sendall(junk)
                        one.shutdown(socket.SHUT_WR)
                        while one.recv(4096):
                            pass
                    except OSError:
                        pass  # reset: the server had read enough
                peer.call("ping", {})

    def test_keys_that_others_can_read_and_halves_of_a_pair_are_refused_at_start(self):
        cert, key = self.ca.issue("loose")
        os.chmod(key, 0o644)
        run = embd_process.run
        self.refused(run("--tls-cert", cert, "--tls-key", key), USAGE, key, "0644")
        self.refused(run("--check", "--tls-cert", cert, "--tls-key", key), USAGE, key, "0644")
        os.chmod(key, 0o660)
        self.refused(run("--tls-cert", cert, "--tls-key", key), USAGE, key, "0660", "0600 or 0640")
        self.refused(run("--tls-cert", cert), USAGE, "--tls-key")
        self.refused(run("--tls-client-ca", cert), USAGE, "--tls-cert")
        self.refused(run("--tls-cert", self.cert[0], "--tls-key", self.client[1]), USAGE, self.client[1])
        self.refused(run("--tls-cert", "/nowhere.pem", "--tls-key", key), USAGE, "/nowhere.pem")

    def test_addresses_that_others_reach_need_tls_or_tokens_and_a_name(self):
        tokens = Tokens(tempfile.mkdtemp(dir=self.folder))
        run = embd_process.run
        self.refused(run("--listen", "0.0.0.0:0"), USAGE, "--listen", "0.0.0.0", "tls_cert", "tokens")
        self.refused(run("--listen", "0.0.0.0:0", "--tokens", tokens.path), USAGE, "advertise")
        self.refused(run("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--tokens", tokens.path), USAGE,
                     "--admin-listen", "TLS")
        with embd_process.Embd("--http", "off", "--tokens", tokens.path, "--advertise", "localhost",
                               listen="0.0.0.0:0") as server:
            self.assertTrue(server.addresses[0].startswith("localhost:"))
            self.assertIn("tokens_in_the_clear", server.log())


if __name__ == "__main__":
    unittest.main()
