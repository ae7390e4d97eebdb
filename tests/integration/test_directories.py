"""Whose a data directory is, and what a server does with one that is not its own or not whole."""
import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import msgpack

import wire
from certificates import Authority, Tokens
from embd_process import Embd, NotReady, run
from listed import Listed

SHORT_EPOCHS = os.path.join(os.environ["EMBD_BIN"], "..", "tests", "integration", "embd-short-epochs")
EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")


def identity(cluster, name):
    with open(cluster.path(f"{name}/identity.json"), encoding="ascii") as file:
        return json.load(file)


def until(look, seconds=20):
    """Until look() is true, and returns it."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, "nothing came of it"
        time.sleep(0.05)
    return found


def knows(cluster, name, shard, epoch):
    """Waits until a server has written down that the server of `shard` has this epoch."""
    def look():
        return {s["first_shard"]: s["epoch"] for s in identity(cluster, name)["servers"]}.get(shard, 0) >= epoch
    until(look)


def agree(cluster):
    """Waits until all have one cluster id and know each other's epoch."""
    until(lambda: len({identity(cluster, name)["cluster"] for name in cluster.names} | {""}) == 2)
    for name in cluster.names:
        for shard, other in enumerate(cluster.names):
            if other != name:
                knows(cluster, name, shard, identity(cluster, other)["epoch"])


@contextlib.contextmanager
def running(names="abc", more=""):
    """A cluster with a table and a row on each shard, whose servers know each other."""
    with Listed(names, more) as cluster:
        for name in names:
            cluster.start(name)
        for shard, name in enumerate(names):
            with wire.connect(cluster.running[name]) as peer:
                table = wire.create(peer, "kept", value=0.0, durability="durable")
                wire.push(peer, table, wire.owned(1, shard, len(names)), [1.0] * 4)
        agree(cluster)
        yield cluster


class Damage(unittest.TestCase):
    def test_a_journal_cut_in_half_refuses_and_is_accepted_on_request(self):
        with Listed("a") as cluster:
            server = cluster.start("a")
            with wire.connect(server) as peer:
                table = wire.create(peer, "kept", durability="durable")
                for _ in range(20):
                    wire.push(peer, table, [1], [1.0] * 4)
            cluster.kill("a")
            journal = cluster.path("a/journal.0.00000001")
            half = os.path.getsize(journal) // 2
            os.truncate(journal, half)
            with self.assertRaises(NotReady) as refused:
                cluster.start("a")
            self.assertIn("records are missing that were on disk", str(refused.exception))
            self.assertIn("--accept-journal-damage", str(refused.exception))
            self.assertEqual(os.path.getsize(journal), half, "a refused start changes nothing")
            server = cluster.start("a", "--accept-journal-damage")
            with wire.connect(server) as peer:
                self.assertEqual(peer.call("stats", {})[0]["stats"]["journal_damages"], 1)
            cluster.end("a")
            cluster.start("a")


class Refused(unittest.TestCase):
    """Beside live peers."""

    def refused(self, cluster, name, text):
        """The server stays up, answers health and metrics, and takes no data requests."""
        server = cluster.start(name, waits=False)
        server.wait_log("directory_refused")
        self.assertIn(text, server.log())
        self.assertIn("--accept-empty", server.log())
        status, page = cluster.page(name, "/readyz")
        self.assertEqual(status, 503)
        self.assertIn(text, page)
        self.assertEqual(cluster.page(name, "/livez")[0], 200)
        shard = cluster.names.index(name)
        self.assertIn(f'embd_data_dir_refused{{shard="{shard}"}} 1', cluster.page(name, "/metrics")[1])
        listed = subprocess.run([EMBCTL, "-s", cluster.address(name), "shard", "list", "-o", "json", "--deadline", "1"],
                                capture_output=True, text=True, check=False)
        self.assertEqual(json.loads(listed.stdout)["shards"][shard]["state"], "refused")
        with wire.connect(server) as peer:
            self.assertIn(text, peer.call("hello", {"protocol": 1})[0]["loading"])
            for method, params in (("tables", {}), ("table_create", None), ("pull", None)):
                with self.subTest(method=method), self.assertRaises(wire.RpcError) as refusal:
                    if method == "table_create":
                        wire.create(peer, "new")
                    elif method == "pull":
                        wire.pull(peer, 7, [1])
                    else:
                        peer.call(method, params)
                self.assertEqual(refusal.exception.number, wire.LOADING)
                self.assertIn(text, refusal.exception.text)
        return server

    def accepted(self, cluster, name, text):
        """--accept-empty lets it in, once and for all, and is recorded."""
        server = cluster.start(name, "--accept-empty")
        self.assertIn("directory_accepted", server.log())
        entry = identity(cluster, name)["accepted"][-1]
        self.assertIn(text, entry["why"])
        self.assertRegex(entry["when"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        shard = cluster.names.index(name)
        self.assertIn(f'embd_data_dir_accepted{{shard="{shard}"}} 1', cluster.page(name, "/metrics")[1])
        agree(cluster)
        cluster.end(name)
        cluster.start(name)
        self.assertEqual(len(identity(cluster, name)["accepted"]), 1)
        agree(cluster)

    def test_an_empty_one_where_the_others_have_tables(self):
        with running() as cluster:
            cluster.end("b")
            shutil.rmtree(cluster.path("b"))
            os.mkdir(cluster.path("b"))
            for _ in range(2):  # it is refused as often as it starts
                self.refused(cluster, "b", "its data directory is empty")
                self.assertEqual(cluster.end("b"), 0)
            self.accepted(cluster, "b", "its data directory is empty")

    def test_an_older_copy_of_its_own(self):
        with running() as cluster:
            cluster.end("b")
            shutil.copytree(cluster.path("b"), cluster.path("old"))
            for _ in range(2):
                cluster.start("b")
                agree(cluster)
                cluster.end("b")
            shutil.rmtree(cluster.path("b"))
            os.rename(cluster.path("old"), cluster.path("b"))
            before = identity(cluster, "b")
            for _ in range(4):  # starts that are refused do not count as starts
                self.refused(cluster, "b", "its data directory is an older copy, of epoch 1, and server")
                cluster.end("b")
            self.assertEqual(identity(cluster, "b"), before)
            self.accepted(cluster, "b", "its data directory is an older copy")

    def test_a_copy_of_a_running_one(self):
        with running("ab") as cluster:
            cluster.end("b")
            cluster.start("b", program=SHORT_EPOCHS)  # a second is its ten minutes
            knows(cluster, "a", 1, 2)
            shutil.copytree(cluster.path("b"), cluster.path("copy"), ignore=shutil.ignore_patterns("*.tmp"))
            knows(cluster, "a", 1, identity(cluster, "copy")["epoch"] + 1)
            cluster.kill("b")
            shutil.rmtree(cluster.path("b"))
            os.rename(cluster.path("copy"), cluster.path("b"))
            self.refused(cluster, "b", "its data directory is an older copy")

    def test_that_of_another_cluster(self):
        with running() as cluster, running() as other:
            for c in (cluster, other):
                c.end("b")
            shutil.rmtree(cluster.path("b"))
            shutil.copytree(other.path("b"), cluster.path("b"))
            self.refused(cluster, "b", "its data directory is of the cluster " + identity(other, "a")["cluster"][:8])
            cluster.end("b")
            self.accepted(cluster, "b", "its data directory is of the cluster")
            self.assertEqual(identity(cluster, "b")["cluster"], identity(cluster, "a")["cluster"])

    def test_that_of_another_server(self):
        with running() as cluster:
            for name in "bc":
                cluster.end(name)
            for a, b in (("b", "x"), ("c", "b"), ("x", "c")):
                os.rename(cluster.path(a), cluster.path(b))
            self.refused(cluster, "b", "its data directory is of shards 2 to 2 of 3, and this server has 1 to 1")
            self.refused(cluster, "c", "its data directory is of shards 1 to 1 of 3, and this server has 2 to 2")
            for name in "bc":
                cluster.end(name)
            for a, b in (("b", "x"), ("c", "b"), ("x", "c")):
                os.rename(cluster.path(a), cluster.path(b))
            for name in "bc":
                cluster.start(name)

    def test_one_without_identity_and_with_the_journal_of_another(self):
        with running() as cluster:
            cluster.end("b")
            os.unlink(cluster.path("b/identity.json"))
            os.rename(cluster.path("b/journal.1.00000001"), cluster.path("b/journal.2.00000001"))
            self.refused(cluster, "b", "its data directory has a journal of shard 2")

    def test_one_that_is_found_out_when_others_come(self):
        """A server that starts first has nobody to ask: what it serves meanwhile ends."""
        with running() as cluster:
            for name in "abc":
                cluster.end(name)
            shutil.rmtree(cluster.path("b"))
            os.mkdir(cluster.path("b"))
            server = cluster.start("b")
            with wire.connect(server) as peer:
                self.assertEqual(peer.call("tables", {})[0]["tables"], [])
                cluster.start("a")
                server.wait_log("directory_refused")
                until(lambda: cluster.page("b", "/readyz")[0] == 503)
                with self.assertRaises(wire.RpcError) as refusal:
                    peer.call("tables", {})
                self.assertEqual(refusal.exception.number, wire.LOADING)
            cluster.start("c")


def admin(cluster, name):
    """A connection to the admin socket of a server's first shard."""
    port = cluster.address(name).rsplit(":", 1)[1]
    return wire.Wire(os.path.join(cluster.path("admin"), port + ".sock"))


class Guarded(unittest.TestCase):
    """Servers with TLS and tokens: they need no secret of their own to ask each other."""

    def refuses_an_empty_one(self, more):
        with Listed("ab", more) as cluster:
            for name in "ab":
                cluster.start(name)
            for name in "ab":
                with admin(cluster, name) as peer:
                    wire.create(peer, "kept")
            agree(cluster)
            cluster.end("b")
            shutil.rmtree(cluster.path("b"))
            os.mkdir(cluster.path("b"))
            cluster.start("b", waits=False).wait_log("directory_refused")

    def files(self):
        folder = tempfile.mkdtemp(prefix="embd-guarded-")
        self.addCleanup(shutil.rmtree, folder)
        tokens, authority = Tokens(folder), Authority(folder, "ca")
        tokens.add("somebody", "trainer")
        return tokens, authority, authority.issue("server")

    def test_with_tokens(self):
        tokens, _, _ = self.files()
        self.refuses_an_empty_one(f"tokens: {tokens.path}\n")

    def test_with_tls_and_tokens(self):
        tokens, authority, (cert, key) = self.files()
        self.refuses_an_empty_one(f"tokens: {tokens.path}\ntls_cert: {cert}\ntls_key: {key}\npeer_ca: {authority.path}\n")

    def test_with_certificates_of_clients(self):
        _, authority, (cert, key) = self.files()
        self.refuses_an_empty_one(f"tls_cert: {cert}\ntls_key: {key}\ntls_client_ca: {authority.path}\n")

    def test_with_tls_and_nobody_to_believe_nobody_is_asked(self):
        _, _, (cert, key) = self.files()
        with Listed("ab", f"tls_cert: {cert}\ntls_key: {key}\n") as cluster:
            self.assertIn("servers_not_asked", cluster.start("a").log())

    def test_authorities_that_cannot_be_read_are_refused(self):
        _, _, (cert, key) = self.files()
        ca = f"{cert}.missing"
        with Listed("a", f"tls_cert: {cert}\ntls_key: {key}\npeer_ca: {ca}\n") as cluster:
            for text in None, "no certificate":
                if text is not None:
                    with open(ca, "w", encoding="ascii") as file:
                        file.write(text)
                for more in [], ["--check"]:
                    answer = run("--config", cluster.path("embd.yaml"), "--server", "a", *more)
                    self.assertEqual(answer.returncode, 2, answer.stderr)
                    self.assertIn(ca, answer.stderr)

    def test_the_token_of_servers_reads_no_table_and_is_no_ones_else(self):
        tokens, _, _ = self.files()
        with open(tokens.path, encoding="ascii") as file:
            hashes = [bytes.fromhex(line.split("sha256:")[1]) for line in file if "sha256:" in line]
        made = hashlib.sha256(b"embd peer 1".ljust(64, b"\0")).digest()
        for one in hashes:
            made = hashlib.sha256(made + one).digest()
        with Listed("a", f"tokens: {tokens.path}\n") as cluster:
            server = cluster.start("a")
            with admin(cluster, "a") as peer:
                table = wire.create(peer, "kept")
            with wire.connect(server) as peer:
                peer.call("hello", {"protocol": 1, "token": "embd-peer-" + made.hex()})
                self.assertEqual(peer.call("identity", {"shard": 0})[0]["tables"], 1)
                self.assertEqual(peer.call("tables", {})[0]["tables"], [])
                for act, number in ((lambda: wire.pull(peer, table, [1]), wire.UNKNOWN_TABLE),
                                    (lambda: wire.create(peer, "other"), 20)):
                    with self.assertRaises(wire.RpcError) as refusal:
                        act()
                    self.assertEqual(refusal.exception.number, number)
            for token in ("embd-peer-" + "0" * 64, "embd-peer-", "embd-peer-" + made.hex()[:-1]):
                with wire.connect(server) as peer, self.assertRaises(wire.RpcError) as refusal:
                    peer.call("hello", {"protocol": 1, "token": token})
                self.assertEqual(refusal.exception.number, 20)


class Cuts(unittest.TestCase):
    def test_a_server_that_began_with_another_snapshot_shows_on_all(self):
        with Listed("abc") as cluster:
            for name in "abc":
                cluster.start(name)
            for shard, name in enumerate("abc"):
                with wire.connect(cluster.running[name]) as peer:
                    table = wire.create(peer, "plain", durability="snapshot")
                    wire.push(peer, table, wire.owned(2, shard, 3), [1.0] * 8)
            agree(cluster)
            done = subprocess.run([EMBCTL, "-s", cluster.address("a"), "snapshot", "s1"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            cluster.end("b")
            cluster.start("b")  # alone it goes back to the snapshot
            for shard, (name, n, said) in enumerate((("a", 1, "server 'b'"), ("b", 2, "server 'a', server 'c'"),
                                                     ("c", 1, "server 'b'"))):
                until(lambda name=name, shard=shard, n=n:
                      f'embd_servers_at_other_cuts{{shard="{shard}"}} {n}' in cluster.page(name, "/metrics")[1])
                self.assertEqual(cluster.page(name, "/readyz"), (200, f"[!]began with another snapshot than {said}\nok\n"))
                cluster.running[name].wait_log(f"cuts_differ why=\"this server began with another snapshot than {said}")
            for name in "ac":
                cluster.end(name)
            for name in "ac":
                cluster.start(name)
            for name in "abc":
                until(lambda name=name: cluster.page(name, "/readyz") == (200, "ok\n"))
            cluster.running["b"].wait_log("cuts_agree")


class OlderVersion(threading.Thread):
    """A server of one shard that does not know `identity`."""

    def __init__(self, address, shard, shards):
        super().__init__(daemon=True)
        host, port = address.rsplit(":", 1)
        self.hello = {"protocol": 1, "server": "embd 0.1.0", "features": [], "shard": shard, "shards": shards,
                      "frame_bytes": 1 << 26, "header_bytes": 4096, "keys": 1 << 22, "requests": 64}
        self.listener, self.asked = socket.create_server((host, int(port))), []
        self.start()

    def run(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            unpacker = msgpack.Unpacker(raw=False)
            while data := peer.recv(4096):
                unpacker.feed(data)
                for _, msgid, method, _ in unpacker:
                    self.asked.append(method)
                    error = None if method == "hello" else [wire.UNKNOWN_METHOD, f"no method '{method}' on the data listener"]
                    peer.sendall(msgpack.packb([1, msgid, error, None if error else [self.hello]]))
            peer.close()


class Mixed(unittest.TestCase):
    def test_a_server_of_an_earlier_version_says_nothing_against_a_directory(self):
        with Listed("ab") as cluster:
            older = OlderVersion(cluster.address("b"), 1, 2)
            self.addCleanup(older.listener.close)
            server = cluster.start("a")
            until(lambda: identity(cluster, "a")["cluster"])
            self.assertEqual(set(older.asked), {"hello", "identity"})
            self.assertNotIn("not_asked", server.log())

    def test_a_server_of_another_number_of_shards_is_told(self):
        with Listed("ab") as cluster:
            older = OlderVersion(cluster.address("b"), 1, 3)
            self.addCleanup(older.listener.close)
            cluster.start("a").wait_log("server_not_asked server=b")
            self.assertEqual(cluster.running["a"].log().count("server_not_asked"), 1)
            self.assertRegex(cluster.running["a"].log(), "shard 1 of 3")


class Accepted(unittest.TestCase):
    def test_servers_agree_on_an_id_and_on_epochs_that_rise(self):
        with running() as cluster:
            ids = {identity(cluster, name)["cluster"] for name in "abc"}
            self.assertRegex(ids.pop(), "^[0-9a-f]{32}$")
            for epoch in (2, 3):
                cluster.end("c")
                cluster.start("c")
                self.assertEqual(identity(cluster, "c")["epoch"], epoch)
                knows(cluster, "a", 2, epoch)

    def test_all_start_again_in_any_order_and_alone(self):
        with running() as cluster:
            for name in "abc":
                cluster.kill(name)
            for name in "cab":
                cluster.start(name)
            agree(cluster)
            for name in "abc":
                cluster.end(name)
            cluster.start("b")  # nobody is there to ask

    def test_directories_of_earlier_versions_get_an_identity(self):
        with running() as cluster:
            for name in "abc":
                cluster.end(name)
                os.unlink(cluster.path(f"{name}/identity.json"))
                os.unlink(cluster.path(f"{name}/identity.lock"))
            for name in "abc":
                cluster.start(name)
            agree(cluster)

    def test_an_empty_one_where_no_table_is(self):
        with Listed("ab") as cluster:
            for name in "ab":
                cluster.start(name)
            agree(cluster)
            cluster.end("b")
            shutil.rmtree(cluster.path("b"))
            os.mkdir(cluster.path("b"))
            cluster.start("b")
            agree(cluster)
            self.assertEqual(identity(cluster, "b")["epoch"], 2, "it goes on from what is known")

    def test_a_server_alone_has_an_identity_and_any_number_of_shards(self):
        with Listed("a") as cluster:
            data = cluster.path("a")
            for epoch, shards in ((1, 2), (2, 3)):
                with Embd("--data-dir", data, "--http", "off", shards=shards):
                    said = identity(cluster, "a")
                    self.assertEqual((said["epoch"], said["cluster_shards"]), (epoch, shards))


class Locked(unittest.TestCase):
    def test_a_second_server_on_a_directory_refuses(self):
        with Listed("ab") as cluster:
            first = cluster.start("a")
            for flags in (("--data-dir", cluster.path("a")), ("--data-dir", cluster.path("a"), "--accept-empty")):
                with self.assertRaises(NotReady) as refused:
                    cluster.start("b", *flags)
                self.assertIn("another server uses it", str(refused.exception))
                self.assertIn(f"process {first.pid}", str(refused.exception))
            cluster.kill("a")
            cluster.start("a")  # what a killed server had locked is free

    def test_a_file_that_cannot_be_read_refuses(self):
        def own(start):
            return json.dumps({"version": 1, "server": "a", "cluster": "", "cluster_shards": 1, "first_shard": 0, "shards": 1,
                               "epoch": 1, "start": start, "servers": [], "n_accepted": 0, "accepted": []})
        with Listed("a") as cluster:
            for text, says in (("", "is not JSON"), ("{}", "is not of version 1"), ('{"version": 3}', "is not of version 1 or 2"),
                               ('{"version": 1, "server": "a"}', "lacks a field"), (own("DEADBEEF00000000"), "lacks a field"),
                               (own("deadbeef"), "lacks a field"), (own(1), "lacks a field")):
                with self.subTest(text=text), self.assertRaises(NotReady) as refused:
                    with open(cluster.path("a/identity.json"), "w", encoding="ascii") as file:
                        file.write(text)
                    cluster.start("a")
                self.assertIn(says, str(refused.exception))


if __name__ == "__main__":
    unittest.main()
