"""A client outlives its credentials: authorities and tokens are replaced in their files under a running trainer."""
import os
import shutil
import signal
import tempfile
import time
import unittest

import numpy as np

import clusters
import embd
from certificates import Authority, Tokens
from ports import free_ports


class Credentials(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="embd-credentials-")
        self.addCleanup(shutil.rmtree, self.folder)

    def file(self, name):
        return os.path.join(self.folder, name)

    def server(self, *flags, listen="127.0.0.1:0"):
        server = clusters.Embd("--http", "off", *flags, listen=listen)
        self.addCleanup(server.kill)
        return server

    def table(self, server, **options):
        client = embd.connect(server.addresses[0], deadline=60, **options)
        self.addCleanup(client.close)
        return client.create_table("t", 1, initializer=embd.Initializer("constant", 2.0))

    def test_a_new_authority_counts_from_the_next_connection_on(self):
        before, after = Authority(self.folder, "before"), Authority(self.folder, "after")
        listen = f"127.0.0.1:{free_ports(1)}"
        cert, key = before.issue("server")
        server = self.server("--tls-cert", cert, "--tls-key", key, listen=listen)
        authority = shutil.copy(before.path, self.file("authority.pem"))
        table = self.table(server, tls_ca=authority)
        self.assertEqual(table.pull([1])[0, 0], 2.0)
        server.kill()
        cert, key = after.issue("next")
        server = self.server("--tls-cert", cert, "--tls-key", key, listen=listen)
        with self.assertRaisesRegex(embd.Error, "within the deadline of 2000 ms: .*certificate") as caught:  # not believed yet
            table.pull([1], deadline=2)
        self.assertEqual(caught.exception.status, embd.Status.PROTOCOL)
        shutil.copy(after.path, authority)
        with self.assertRaises(embd.UnknownTableError):  # the server is another one, and answers
            table.pull([1])

    def test_a_token_is_replaced_under_a_running_trainer(self):
        tokens = Tokens(self.folder)
        tokens.add("job", "trainer")
        server = self.server("--tokens", tokens.path)
        table = self.table(server, token_file=tokens.file("job"))
        for _ in range(2):
            tokens.add("job", "trainer")  # another one of the same name: list and file are written
            n = server.log().count("keys_reloaded")
            server.process.send_signal(signal.SIGHUP)
            end = time.monotonic() + 60
            while server.log().count("keys_reloaded") == n:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.02)
            np.testing.assert_array_equal(table.pull([1, 2]), [[2.0], [2.0]])


if __name__ == "__main__":
    clusters.main()
