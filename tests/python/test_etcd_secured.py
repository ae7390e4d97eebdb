"""An etcd that speaks TLS, asks for certificates, and wants to know who asks: a cluster forms and goes on in it, also when its
tokens are forgotten and its password is changed; who has the wrong files is told so. Skipped where there is no etcd."""
import os
import shutil
import tempfile
import unittest

import clusters
from certificates import Authority
from test_etcd import ETCD, Clusters, Etcd, b64


class Secured(Clusters):
    asks_for_certificates = False

    @classmethod
    def setUpClass(cls):
        if ETCD is None:
            raise unittest.SkipTest("etcd is not installed: deploy/deps.sh --tools")
        cls.dir = tempfile.mkdtemp(prefix="embd-etcd-")
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        cls.authority, cls.strangers = Authority(cls.dir, "authority"), Authority(cls.dir, "strangers")
        cls.cert, cls.key = cls.authority.issue("etcd")
        asks = ["--client-cert-auth", "--trusted-ca-file", cls.authority.path] if cls.asks_for_certificates else []
        cls.etcd = Etcd(1, (cls.authority.path, cls.cert, cls.key), asks)
        cls.addClassCleanup(cls.etcd.stop)

    def write_secured(self, prefix="/shop", **files):
        self.write_file(prefix, *(f"etcd_{name}: {path}" for name, path in files.items()))

    def assert_told(self, word, **files):
        self.write_secured(**files)
        server = self.server("a")
        server.wait_log(word)
        server.kill()


class Certificates(Secured):
    """etcd's gateway takes certificates of clients, or passwords, and not both together."""

    asks_for_certificates = True

    def test_a_cluster_forms_with_certificates_and_not_without(self):
        self.assert_told("certificate", ca=self.strangers.path, cert=self.cert, key=self.key)
        self.assert_told("certificate", ca=self.authority.path)
        self.write_secured(ca=self.authority.path, cert=self.cert, key=self.key)
        a = self.server("a")
        self.server("b")
        self.assertTrue(self.calls_work(self.connect(a)))


class Passwords(Secured):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.restrict()

    @classmethod
    def restrict(cls):
        """The user shop may do all below /shop and nothing else."""
        ask = cls.etcd.ask
        ask("auth/user/add", {"name": "root", "password": "over all"})
        ask("auth/role/add", {"name": "root"})
        ask("auth/user/grant", {"user": "root", "role": "root"})
        ask("auth/user/add", {"name": "shop", "password": "a: secret"})
        ask("auth/role/add", {"name": "shop"})
        ask("auth/role/grant", {"name": "shop", "perm": {"permType": "READWRITE", "key": b64("/shop/"),
                                                         "range_end": b64("/shop0")}})
        ask("auth/user/grant", {"user": "shop", "role": "shop"})
        ask("auth/enable", {})
        cls.enter()

    @classmethod
    def enter(cls):
        cls.etcd.token = None
        cls.etcd.token = cls.etcd.ask("auth/authenticate", {"name": "root", "password": "over all"})["token"]

    def write(self, text="shop:a: secret\n", mode=0o600):
        path = os.path.join(self.dir, "login")
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def test_a_cluster_forms_and_goes_on_when_tokens_are_forgotten_and_the_password_changes(self):
        self.write_secured(ca=self.authority.path, login=self.write())
        a, b = self.server("a"), self.server("b")
        client = self.connect(a)
        self.assertTrue(self.calls_work(client))
        self.etcd.kill(0)  # its tokens are in memory
        self.etcd.start(0)
        self.until(self.is_up)
        self.etcd.ask("auth/user/changepw", {"name": "shop", "password": "another"})
        self.write("shop:another\n")
        self.assertEqual(b.stop(), 0)
        moved = self.server("b")
        self.until(lambda: self.map()["servers"]["b"][0]["address"] == moved.addresses[0])
        self.until(lambda: self.calls_work(client))
        self.assertEqual(client.shards, a.addresses + moved.addresses)
        self.etcd.ask("auth/user/changepw", {"name": "shop", "password": "a: secret"})

    def is_up(self):
        try:
            self.enter()
            return True
        except OSError:
            return False

    def test_who_has_the_wrong_login_is_told(self):
        self.assert_told("authentication failed", ca=self.authority.path, login=self.write("shop:wrong\n"))
        self.assert_told("user name", ca=self.authority.path)
        self.assert_told("permission denied", ca=self.authority.path, login=self.write(), prefix="/other")

    def test_files_that_cannot_be_used_end_the_start(self):
        for text, mode, ca, word in (("shop:a\n", 0o600, "/nonexistent", "/nonexistent"), ("shop", 0o600, None, "USER:PASSWORD"),
                                     (":x", 0o600, None, "USER:PASSWORD"), ("shop:a\n", 0o604, None, "0604"),
                                     ("shop:" + 200 * "x", 0o600, None, "127 bytes")):
            self.write_secured(ca=ca or self.authority.path, login=self.write(text, mode))
            for more in ([], ["--check"]):
                done = clusters.run("--config", self.file.name, "--server", "a", "--listen", "127.0.0.1:0", *more)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(word, done.stderr)


if __name__ == "__main__":
    clusters.main()
