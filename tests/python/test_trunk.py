"""Clients of many shards have one connection for each process, where its server offers one, and the rows and errors of a
connection to each shard."""
import contextlib
import os
import shutil
import socket
import tempfile
import threading
import unittest

import numpy as np

import clusters
import embd
from certificates import Authority, Tokens
from embd_process import Embd
from ports import free_ports
from test_local import environment

KEYS = np.arange(5000, dtype=np.uint64) * 977


def sockets():
    """Of this process."""
    links = (os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd"))
    return sum(os.readlink(link).startswith("socket:") for link in links if os.path.islink(link))


class Relay:
    """Before a server that advertises it. Once `garbles`, what the server says next comes as no TLS."""

    def __init__(self, address, server):
        self.server, self.garbles = server, False
        self.listener = socket.create_server(address)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                ends = self.listener.accept()[0], socket.create_connection(self.server)
                for source, to in ends, ends[::-1]:
                    threading.Thread(target=self.run, args=(source, to, source is ends[1]), daemon=True).start()

    def run(self, source, to, is_answer):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_answer and self.garbles:
                    data, self.garbles = b"?" * len(data), False
                to.sendall(data)
        for end in source, to:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Trunks(unittest.TestCase):
    def serve(self, *flags, shards=6, **options):
        server = Embd("--http", "off", *flags, shards=shards, **options)
        self.addCleanup(server.kill)
        return server

    def connect(self, server, trunk, transport="tcp", **options):
        with environment(EMBD_TRUNK=trunk, EMBD_TRANSPORT=transport, EMBD_SHARED_MIB="0"):
            client = embd.connect(server.addresses[0], **options)
        self.addCleanup(client.close)
        return client

    def train(self, client, name, own=True):
        table = client.create_table(name, 8, combiner="concat", optimizer="adagrad", durability="snapshot")
        grads = np.linspace(-1, 1, len(KEYS) * 8, dtype=np.float32).reshape(-1, 8)
        for _ in range(3):
            table.push(KEYS, grads)
        calls = [table.pull_start(KEYS[first::7]) for first in range(7)] if own else []
        parts = [call.wait() for call in calls]
        rows = table.pull(KEYS)
        for first, part in enumerate(parts):
            np.testing.assert_array_equal(part, rows[first::7])
        return rows

    def test_rows_are_those_of_connections_to_each_shard(self):
        server = self.serve()
        expected = self.train(self.connect(server, "off"), "direct")
        for transport in "tcp", "local":
            for own_thread in False, True:
                before = sockets()
                client = self.connect(server, "on", transport, own_thread=own_thread)
                name = f"{transport}{int(own_thread)}"
                np.testing.assert_array_equal(self.train(client, name), expected)
                self.assertEqual(sockets() - before, 1, name)
                client.close()
                self.assertEqual(sockets(), before)

    def test_many_shards_share_one_by_default_and_few_do_not(self):
        many, few = self.serve(shards=128), self.serve(shards=6)
        before = sockets()
        client = self.connect(many, "auto")
        self.assertEqual(sockets() - before, 1)
        self.train(client, "many")
        client.close()
        self.connect(few, "auto")
        self.assertEqual(sockets() - before, 6)

    def test_processes_have_one_each(self):
        first = free_ports(4)
        folder = tempfile.mkdtemp(prefix="embd-test-")
        self.addCleanup(shutil.rmtree, folder)
        path = os.path.join(folder, "cluster.yaml")
        with open(path, "w", encoding="ascii") as file:
            file.write(f"shards: 2\nadmin_dir: {folder}/admin\ncluster:\n  name: pair\n  servers:\n"
                       f"    - {{name: a, listen: \"127.0.0.1:{first}\"}}\n"
                       f"    - {{name: b, listen: \"127.0.0.1:{first + 2}\"}}\n")
        servers = [self.serve("--config", path, "--server", name, shards=2, listen=None) for name in "ab"]
        before = sockets()
        client = self.connect(servers[0], "on")
        self.assertEqual(sockets() - before, 2)
        self.train(client, "t")

    def test_a_server_that_comes_back_is_used_again(self):
        port = free_ports(6)
        server = self.serve(listen=f"127.0.0.1:{port}")
        client = self.connect(server, "on", deadline=20, unnumbered=True)
        self.train(client, "t")
        for end in Embd.kill, Embd.stop:
            end(server)
            server = self.serve(listen=f"127.0.0.1:{port}")
            with self.assertRaises(embd.Error):  # the table is gone, and that is what the server says
                client.table("t")
            self.train(client, "t")
            client.drop_table("t")

    def authority(self):
        folder = tempfile.mkdtemp(prefix="embd-test-")
        self.addCleanup(shutil.rmtree, folder)
        return Authority(folder, "ca")

    def test_rows_by_tls_are_those_of_connections_to_each_shard(self):
        """With certificates of both sides and a token."""
        authority = self.authority()
        (cert, key), own = authority.issue("server"), authority.issue("client")
        tokens = Tokens(authority.folder)
        tokens.add("nightly", "trainer")
        server = self.serve("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", authority.path, "--tokens", tokens.path)
        shown = {"tls_ca": authority.path, "tls_cert": own[0], "tls_key": own[1], "token_file": tokens.file("nightly")}
        before = sockets()
        direct = self.connect(server, "off", **shown)
        self.assertEqual(sockets() - before, 6)
        expected = self.train(direct, "direct")
        direct.close()
        for own_thread in False, True:
            client = self.connect(server, "on", own_thread=own_thread, **shown)
            self.assertEqual(sockets() - before, 1)
            np.testing.assert_array_equal(self.train(client, f"t{int(own_thread)}"), expected)
            client.close()
            self.assertEqual(sockets(), before)

    def test_many_shards_share_one_by_tls_too(self):
        authority = self.authority()
        cert, key = authority.issue("server")
        server = self.serve("--tls-cert", cert, "--tls-key", key, shards=128)
        before = sockets()
        client = self.connect(server, "auto", tls_ca=authority.path)
        self.assertEqual(sockets() - before, 1)
        self.train(client, "many")

    def test_calls_are_told_why_tls_ended(self):
        """By a trunk as by a connection."""
        authority, port = self.authority(), free_ports(1, ("127.0.0.1", "127.0.0.2"))
        cert, key = authority.issue("server", "IP:127.0.0.1,IP:127.0.0.2")
        relay = Relay(("127.0.0.2", port), ("127.0.0.1", port))
        self.addCleanup(relay.listener.close)
        self.serve("--advertise", "127.0.0.2", "--tls-cert", cert, "--tls-key", key, listen=f"127.0.0.1:{port}", shards=1)
        for trunk in "off", "on":
            with environment(EMBD_TRUNK=trunk, EMBD_TRANSPORT="tcp", EMBD_SHARED_MIB="0"):
                client = embd.connect(f"127.0.0.2:{port}", tls_ca=authority.path, deadline=60)
            self.addCleanup(client.close)
            table = client.create_table(trunk, 8)
            table.pull(KEYS)
            relay.garbles = True
            with self.assertRaisesRegex(embd.Error, "TLS: "):
                table.pull(KEYS)

    def test_a_wrong_word_is_refused(self):
        server = self.serve(shards=1)
        with self.assertRaisesRegex(embd.Error, "EMBD_TRUNK: 'perhaps'; expected auto, on or off"):
            self.connect(server, "perhaps")


if __name__ == "__main__":
    clusters.main()
