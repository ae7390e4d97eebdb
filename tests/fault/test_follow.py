"""A server that follows another takes the records of its journals: rows, tables and optimizer state are the same, whichever
of the two is killed with -9 and started again, and whatever is compacted meanwhile. What is no record of its server's
history is refused. EMBD_FAULT_CYCLES=n: how many kills; 4 without it."""
import json
import os
import random
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import msgpack
import oracle
import partfiles
import wire
from embd_process import Embd, run
from ports import free_ports

SHARDS = 2
CYCLES = int(os.environ.get("EMBD_FAULT_CYCLES", "4"))
BIN = os.environ["EMBD_BIN"]
SHORT = os.path.join(os.environ["EMBD_FAULT_TOOLS"], "embd-short-segments")


def embctl(server, *arguments):
    return subprocess.run([os.path.join(BIN, "embctl"), arguments[0], "-s", server.admin_path(0), *arguments[1:]],
                          capture_output=True, text=True, timeout=60, check=False)


def digest(server):
    """{table: what embctl digest says of it}; None: it does not say."""
    ran = embctl(server, "digest", "-o", "json")
    return None if ran.returncode else {table["table"]: table for table in json.loads(ran.stdout)["tables"]}


def wait_for(what, says, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise AssertionError(says())
        time.sleep(0.1)


def said(server):
    return "\n".join(line for line in server.log().split("\n") if " hold_" not in line and " job_" not in line)


class Follow(unittest.TestCase):
    shards, program = SHARDS, os.path.join(BIN, "embd")

    def setUp(self):
        self.data = tempfile.TemporaryDirectory(prefix="embd-follow-")
        self.addCleanup(self.data.cleanup)
        for name in ("primary", "follower"):
            os.mkdir(self.path(name))
        self.port, self.own = free_ports(self.shards), free_ports(self.shards)

    def path(self, name):
        return os.path.join(self.data.name, name)

    def start(self, data, port, *flags, **options):
        server = Embd("--http", "off", "--data-dir", self.path(data), *flags, shards=self.shards,
                      listen=f"127.0.0.1:{port}", program=self.program, admin=self.path("admin"), **options)
        self.addCleanup(server.kill)
        return server

    def start_primary(self, *flags):
        return self.start("primary", self.port, *flags)

    def start_follower(self, *flags):
        return self.start("follower", self.own, "--follow", os.path.join(self.path("admin"), f"{self.port}.sock"), *flags,
                          waits=False)

    def compare(self, primary, follower):
        """Both have the same, as soon as the follower has all. Nothing changes meanwhile."""
        there = digest(primary)
        self.assertIsNotNone(there)
        wait_for(lambda: digest(follower) == there, lambda: f"{there}, {digest(follower)}, {said(follower)}")
        return there


class Kills(Follow):
    program = SHORT  # and so a base removes segments all the time

    def test_a_follower_has_what_its_primary_has_whoever_is_killed(self):
        rng = random.Random(7)
        flags = ("--journal-limit", "60000")
        clients = oracle.Clients(SHARDS, 4, "buffered", more=20)
        servers = {"primary": self.start_primary(*flags), "follower": self.start_follower(*flags)}
        starts = {"primary": self.start_primary, "follower": self.start_follower}
        for _ in range(CYCLES):
            clients.start(servers["primary"])
            for _ in range(3):
                time.sleep(rng.uniform(0.05, 0.3))
                servers["follower"].kill()
                time.sleep(rng.uniform(0, 0.1))
                servers["follower"] = starts["follower"](*flags)
            servers["primary"].kill()
            clients.join()
            clients.note()
            servers["primary"] = starts["primary"](*flags)
            clients.check_all(servers["primary"])
            self.compare(servers["primary"], servers["follower"])
            clients.acked = dict.fromkeys(clients.places, 0)
        self.assertIn(" replayed ", servers["follower"].log() + "".join(
            server.log() for server in servers.values()))


class Operations(Follow):
    def test_all_that_changes_tables_comes_to_the_follower(self):
        primary, follower = self.start_primary(), self.start_follower()
        for shard in range(self.shards):
            with wire.connect(primary, shard) as peer:
                mine = wire.owned(6, shard, self.shards)
                ids = {name: wire.create(peer, name, durability=durability)
                       for name, durability in (("a", "buffered"), ("b", "durable"), ("gone", "buffered"),
                                                ("mine", "snapshot"))}
                writer = {"high": 1, "low": 2, "stream": 3}
                wire.open_stream(peer, writer, True)
                for sequence in (1, 2, 2, 3):  # the second 2 is not applied
                    peer.call("push", {"parts": [{"table": ids["a"], "keys": 2}], "writer": {**writer, "sequence": sequence}},
                              wire.keys(mine[:2]), wire.floats([1.0] * 8))
                for name in ids:
                    wire.push(peer, ids[name], mine, [0.5] * 24)
                peer.call("erase", {"parts": [{"table": ids["b"], "keys": 1}]}, wire.keys(mine[:1]))
                peer.call("table_drop", {"name": "gone"})
                wire.push(peer, ids["a"], mine, [0.5] * 24)
        there = digest(primary)
        mine = there.pop("mine")  # snapshot tables are not in the journal
        self.assertEqual(mine["rows"], 6 * self.shards)
        self.assertEqual(set(there), {"a", "b"})
        wait_for(lambda: digest(follower) == there, lambda: f"{there}, {digest(follower)}, {said(follower)}")
        # The table comes into the journal, with rows that no record has; then a base of the journal has them.
        self.assertEqual(embctl(primary, "table", "set", "mine", "durability=buffered").returncode, 0)
        self.compare(primary, follower)
        self.assertIn("follow_begins_anew", follower.log())
        self.check_against(primary, follower)

    def check_against(self, primary, follower):
        """embctl finds both the same, at the same positions."""
        against = ("digest", "--against", follower.admin_path(0), "-o", "json")
        ran = embctl(primary, *against)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        for table in json.loads(ran.stdout)["tables"]:
            self.assertEqual((table["positions"], table["same"]), (table["positions_there"], True))
            self.assertEqual(len(table["positions"]), self.shards)

    def test_a_follower_has_the_map_of_its_server(self):
        """Rows would be on shards where a map of its own does not look for them."""
        for _ in range(2):  # also with the directory of the start before
            done = run("--listen", f"127.0.0.1:{self.own}", "--shards", str(self.shards), "--data-dir", self.path("follower"),
                       "--admin-dir", self.path("admin"), "--follow", "127.0.0.1:1", "--placement", "2:0=900,1=124")
            self.assertIn("follow: the configuration has version 2 of the placement", done.stderr)

    def test_trainers_are_told_whom_to_ask(self):
        primary, follower = self.start_primary(), self.start_follower()
        follower.wait_log("follow_has_base shard=1")
        with wire.connect(follower) as peer:
            with self.assertRaises(wire.RpcError) as refused:
                wire.create(peer, "a", durability="buffered")
        self.assertEqual(refused.exception.number, wire.LOADING)
        self.assertIn(f"follower of {primary.addresses[0]}", refused.exception.text)
        self.assertIn("follows", embctl(follower, "cluster").stdout)
        figures = json.loads(embctl(primary, "stats", "-o", "json").stdout)
        self.assertIn("followers", json.dumps(figures))

    def test_directories_are_not_mixed_up(self):
        primary, follower = self.start_primary(), self.start_follower()
        follower.wait_log("follow_has_base shard=1")
        with wire.connect(primary) as peer:
            wire.create(peer, "a", durability="buffered")
        follower.stop()
        primary.stop()
        alone = run("--http", "off", "--data-dir", self.path("follower"), "--listen", "127.0.0.1:0", "--shards", "2")
        self.assertIn("is a follower's", alone.stderr)
        led = run("--http", "off", "--data-dir", self.path("primary"), "--listen", "127.0.0.1:0", "--shards", "2", "--follow",
                  "/none")
        self.assertIn("has a journal of its own", led.stderr)


class Histories(Follow):
    shards = 1
    program = SHORT

    def fill(self, server, n, value=1.0, name="a"):
        with wire.connect(server) as peer:
            table = wire.create(peer, name, durability="buffered")
            for i in range(n):
                wire.push(peer, table, list(range(i % 7, i % 7 + 200)), [value] * 800)

    def test_a_follower_that_is_far_behind_begins_anew(self):
        primary, follower = self.start_primary("--journal-limit", "60000"), self.start_follower()
        self.fill(primary, 5)
        self.compare(primary, follower)
        follower.kill()
        self.fill(primary, 200)
        follower = self.start_follower()
        self.compare(primary, follower)
        self.assertIn("no longer in the journal", follower.log())

    def lag(self, primary):
        """Whether a follower that asks for the first records again and again gets them, though a base is due."""
        with wire.Wire(primary.admin_path(0)) as peer:
            since = None
            while since is None or time.monotonic() < since + 1:
                self.fill(primary, 1)
                found = peer.call("follow", {"name": "f", "cluster": "embd"})[0]
                if "gone" in found:
                    return False
                since = since or (time.monotonic() if self.bases(".base.tmp") else None)
            self.assertGreater(found["position"], 0)
            return not self.bases(".base")

    def test_records_are_kept_for_a_follower_that_lags(self):
        for _ in range(5):  # a machine may be slower than a follower may be
            primary = self.start_primary("--journal-limit", "60000")
            with wire.connect(primary) as peer:
                wire.create(peer, "a", durability="buffered")
            if self.lag(primary):
                break
            primary.kill()
            shutil.rmtree(self.path("primary"))
            os.mkdir(self.path("primary"))
        else:
            self.fail("the records went in each of five attempts")
        wait_for(lambda: self.bases(".base"), primary.log)  # the follower is gone

    def test_records_stay_in_memory_while_somebody_follows(self):
        def kept():
            with wire.connect(primary) as peer:
                return peer.call("stats")[0]["stats"]["recent_records_bytes"]
        primary = self.start_primary()
        self.fill(primary, 5)
        self.assertEqual(kept(), 0)
        follower = self.start_follower()
        self.compare(primary, follower)
        self.fill(primary, 5, name="b")
        self.compare(primary, follower)
        self.assertEqual(kept(), 64 << 20)
        follower.kill()
        wait_for(lambda: kept() == 0, lambda: f"{kept()} bytes are kept, and nobody follows")  # and nothing is written

    def bases(self, end):
        return sum(name.endswith(end) for name in os.listdir(self.path("primary")))

    def test_a_follower_of_another_history_begins_anew(self):
        primary, follower = self.start_primary(), self.start_follower()
        self.fill(primary, 5)
        self.compare(primary, follower)
        primary.stop()
        shutil.copytree(self.path("primary"), self.path("older"))
        primary = self.start_primary()
        self.fill(primary, 20)
        self.compare(primary, follower)
        primary.stop()
        shutil.rmtree(self.path("primary"))
        os.rename(self.path("older"), self.path("primary"))  # fewer records than the follower has
        primary = self.start_primary()
        self.compare(primary, follower)
        self.assertIn("it has records that this journal has not", follower.log())
        primary.stop()
        shutil.rmtree(self.path("primary"))
        os.mkdir(self.path("primary"))
        had = digest(follower)
        had = digest(follower)
        primary = self.start_primary()  # another cluster
        self.fill(primary, 40, 2.0)
        follower.wait_log("that of another cluster")
        self.assertEqual(digest(follower), had)
        self.assertEqual(follower.log().count("follow_begins_anew"), 1)
        follower.stop()
        shutil.rmtree(self.path("follower"))
        os.mkdir(self.path("follower"))
        self.compare(primary, self.start_follower())

    def test_a_follower_whose_last_records_the_server_has_lost_begins_anew(self):
        """Both lose power; the follower had more on disk than the server, and less in its note."""
        primary, follower = self.start_primary(), self.start_follower()
        self.fill(primary, 5)
        self.compare(primary, follower)
        primary.stop()
        follower.stop()
        for name in ("primary", "follower"):
            shutil.copytree(self.path(name), self.path(name) + ".before")
        primary, follower = self.start_primary(), self.start_follower()
        self.fill(primary, 3, 2.0, "b")
        self.compare(primary, follower)
        primary.kill()
        follower.kill()
        shutil.rmtree(self.path("primary"))
        os.rename(self.path("primary.before"), self.path("primary"))
        shutil.copy(os.path.join(self.path("follower.before"), "follow.0"), self.path("follower"))
        primary = self.start_primary()
        self.fill(primary, 6, 3.0, "b")
        follower = self.start_follower()
        self.compare(primary, follower)
        self.assertIn("its own journal has other records", follower.log())

    def test_a_damaged_base_is_not_taken_for_a_shorter_one(self):
        primary = self.start_primary("--journal-limit", "60000")
        self.fill(primary, 100)
        wait_for(lambda: any(name.endswith(".base") for name in os.listdir(self.path("primary"))), primary.log)
        primary.stop()
        primary = self.start_primary()  # makes no other base
        name = max(name for name in os.listdir(self.path("primary")) if name.endswith(".base"))
        with open(os.path.join(self.path("primary"), name), "r+b") as base:
            at = base.read().rindex(b"EBDJ")
            base.seek(at)
            base.write(b"?")
        follower = self.start_follower()
        primary.wait_log("follower_not_fed")
        self.assertIn(f"is damaged at offset {at}", primary.log())
        follower.wait_log("follow_has_base", 30)  # the server makes another one, of its tables
        self.compare(primary, follower)

    def test_a_damaged_record_of_a_running_server_is_mended_by_a_base(self):
        """Else the follower would begin anew with the same base again and again."""
        primary, follower = self.start_primary(), self.start_follower()
        self.fill(primary, 5)
        self.compare(primary, follower)
        follower.stop()
        self.fill(primary, 20)
        name = max(name for name in os.listdir(self.path("primary")) if name.startswith("journal.0.0"))
        with open(os.path.join(self.path("primary"), name), "r+b") as segment:
            at = segment.read().rindex(b"EBDJ")
            segment.seek(at)
            segment.write(b"?")
        follower = self.start_follower()
        primary.wait_log("follower_not_fed", 20)
        self.assertIn("is damaged at offset", primary.log())
        self.compare(primary, follower)
        self.assertEqual(follower.log().count("follow_begins_anew"), 1)
        primary.kill()
        self.assertEqual(digest(self.start_primary()), digest(follower))

    def test_a_follower_that_stands_still_holds_nobody_up(self):
        primary, follower = self.start_primary("--journal-limit", "60000"), self.start_follower()
        self.fill(primary, 5)
        self.compare(primary, follower)
        before = primary.rss_bytes()
        follower.pause()
        self.fill(primary, 300)
        self.assertLess(primary.rss_bytes() - before, 64 << 20)
        follower.go_on()
        self.compare(primary, follower)


class Promoted(Follow):
    """A follower takes the place of a server that is gone, and then comes back."""
    shards = 1
    writer = {"high": 1, "low": 2, "stream": 3}

    def push(self, peer, table, sequence):
        return peer.call("push", {"parts": [{"table": table, "keys": 1}], "writer": {**self.writer, "sequence": sequence}},
                         wire.keys([5]), wire.floats([-1.0] * 4))[0]

    def test_a_follower_is_promoted(self):
        primary, follower = self.start_primary(), self.start_follower()
        with wire.connect(primary) as peer:
            table = wire.create(peer, "a", durability="buffered", value=0.0)
            wire.open_stream(peer, self.writer, True)
            for sequence in (1, 2, 3):
                self.push(peer, table, sequence)
        there = self.compare(primary, follower)
        primary.kill()
        follower.stop()
        to_follow = ("--follow", os.path.join(self.path("admin"), f"{self.port}.sock"))
        promoted = self.start("follower", self.own, "--promote", *to_follow)
        self.assertEqual(digest(promoted), there)
        with wire.connect(promoted) as peer:
            self.assertTrue(self.push(peer, table, 3)["again"])  # a trainer that had no answer to it
            self.push(peer, table, 4)
            self.assertEqual(wire.pull(peer, table, [5]), [2.0] * 4)
        os.mkdir(self.path("elsewhere"))
        elsewhere = self.start("elsewhere", self.port, "--cluster-name", "other")  # not the server that is meant
        time.sleep(1)
        elsewhere.stop()
        self.assertNotIn("deposed_other", promoted.log())
        primary = self.start_primary()
        primary.wait_log(" deposed ")
        promoted.wait_log("deposed_other")
        with wire.connect(primary) as peer:
            with self.assertRaises(wire.RpcError) as refused:
                self.push(peer, table, 4)
        self.assertIn("another one was promoted in its place", refused.exception.text)
        self.assertIn("deposed", embctl(primary, "cluster").stdout)
        primary.stop()
        again = run("--http", "off", "--data-dir", self.path("primary"), "--listen", "127.0.0.1:0")
        self.assertIn("promoted in the place of this one, in epoch 2", again.stderr)
        promoted.stop()
        promoted = self.start("follower", self.own, *to_follow)  # it stays so
        with wire.connect(promoted) as peer:
            self.assertEqual(wire.pull(peer, table, [5]), [2.0] * 4)
        shutil.rmtree(self.path("primary"))  # the old server follows the new one
        os.mkdir(self.path("primary"))
        old = self.start("primary", self.port, "--follow", promoted.admin_path(0), waits=False)
        self.compare(promoted, old)
        self.assertIn("follows", embctl(old, "cluster").stdout)

    def test_a_promotion_that_fails_leaves_the_server_alone(self):
        primary, follower = self.start_primary(), self.start_follower()
        with wire.connect(primary) as peer:
            table = wire.create(peer, "a", durability="buffered")
            for i in range(60):  # reading them takes longer than a word to the other server
                wire.push(peer, table, list(range(5000 * i, 5000 * i + 5000)), [1.0] * 20000)
        there = self.compare(primary, follower)
        follower.stop()
        promote = ("--http", "off", "--data-dir", self.path("follower"), "--listen", "127.0.0.1:0", "--admin-dir",
                   self.path("admin2"), "--follow", primary.admin_path(0), "--promote")
        journal = os.path.join(self.path("follower"), "journal.0.00000001")
        with open(journal, "r+b") as file:
            at = file.read().rindex(b"EBDJ")
            file.seek(at + 80)
            file.write(b"damage!")
        broken = run(*promote)
        self.assertIn("journal.0.00000001", broken.stderr)
        self.assertNotIn("deposed", primary.log())
        self.assertEqual(digest(primary), there)

    def test_only_a_follower_is_promoted(self):
        self.start_primary().stop()
        never = run("--http", "off", "--data-dir", self.path("primary"), "--listen", "127.0.0.1:0", "--promote")
        self.assertIn("is not a follower", never.stderr)


class Questions(Follow):
    """What a follower may ask, right or wrong."""
    shards = 1

    def ask(self, peer, **more):
        return peer.call("follow", {"name": "f", "cluster": "embd", **more})

    def test_wrong_questions_are_refused(self):
        primary = self.start_primary()
        with wire.connect(primary) as peer:
            table = wire.create(peer, "a", durability="buffered")
            wire.push(peer, table, [1, 2], [1.0] * 8)
            with self.assertRaises(wire.RpcError):
                self.ask(peer)  # it is for admins
        with wire.Wire(primary.admin_path(0)) as peer:
            found, records, _ = self.ask(peer)
            self.assertEqual((found["position"], found["end"], len(records)), (2, 2, found["bytes"]))
            again, same, _ = self.ask(peer, position=found["position"], chain=found["chain"], file=found["file"],
                                      at=found["at"])
            self.assertEqual((again["position"], same), (2, b""))
            for wrong in ({"position": 3}, {"position": 2, "chain": 1}, {"position": 1, "chain": 1}, {"chain": 1},
                          {"offset": 1 << 40}, {"position": 2, "chain": found["chain"], "offset": 1},
                          {"base": True, "file": 7}, {"position": 2**62}):
                self.assertIn("gone", self.ask(peer, **wrong)[0], wrong)
            for place in ({"file": 9}, {"file": 1, "at": 3}, {"file": 1, "at": 2**60}):  # it is only where to look first
                self.assertEqual(self.ask(peer, **place)[0]["position"], 2, place)
            for wrong in ({"cluster": "other"}, {"name": ""}, {"wait_ms": 10**6}):
                with self.assertRaises(wire.RpcError):
                    self.ask(peer, **wrong)
            self.assertEqual(self.ask(peer, later=1)[0]["position"], 2)  # of a later version
            peer.begin("follow", {"name": "f", "cluster": "embd", "position": 2, "chain": found["chain"], "wait_ms": 5000})
            with wire.Wire(primary.admin_path(0)) as other:  # it has lost that connection
                self.assertEqual(self.ask(other)[0]["position"], 2)
            self.assertIsNotNone(peer.receive()[2])


class Pretender(threading.Thread):
    """A server that answers `follow` with bytes that are no records, in turn."""

    def __init__(self, path, good):
        super().__init__(daemon=True)
        self.good, self.path, self.n_asked, self.asked = good, path, 0, []
        os.unlink(path)  # that of the server that it takes the place of
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(path)
        self.server.listen(8)

    def run(self):
        while True:
            try:
                peer = self.server.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def serve(self, peer):
        unpacker = msgpack.Unpacker(raw=False)
        while data := peer.recv(1 << 16):
            unpacker.feed(data)
            for _, msgid, method, params in unpacker:
                peer.sendall(msgpack.packb([1, msgid, None, self.answer(method, *params)], use_bin_type=True))

    def answer(self, method, fields=None):
        if method == "hello":
            return [{"protocol": 1, "server": "x", "features": [], "shard": 0, "shards": 1}]
        if method == "cluster":
            return [{"name": "embd", "version": 1, "shard": 0, "shards": [{"address": "127.0.0.1:9", "admin": self.path}]}]
        self.asked.append(fields)
        self.n_asked += 1
        return self.good[min(self.n_asked, len(self.good)) - 1](fields)


class Pretenders(Follow):
    shards = 1

    def test_what_is_no_record_is_not_taken(self):
        primary = self.start_primary()
        with wire.connect(primary) as peer:
            table = wire.create(peer, "a", durability="buffered")
            wire.push(peer, table, [1, 2], [1.0] * 8)
        with wire.Wire(primary.admin_path(0)) as peer:
            found, records, _ = peer.call("follow", {"name": "f", "cluster": "embd"})
        there = digest(primary)
        primary.kill()

        def told(data, **more):
            fields = {**found, "bytes": len(data), "sum": partfiles.xxh3(data), **more}
            return lambda asked: [fields, data, b""]

        def flipped(at):
            return bytes(b ^ 0x40 if i == at else b for i, b in enumerate(records))

        base = told(b"", position=0, chain=0, file=0, at=0)
        wrong = [told(records, sum=1), told(flipped(0)), told(flipped(20)), told(flipped(40)),
                 told(records[:40] * 3), told(records, epoch=0)]
        path = os.path.join(self.path("admin"), f"{self.port}.sock")
        pretender = Pretender(path, [base, *wrong, told(records, later=1)])
        pretender.start()
        self.addCleanup(pretender.server.close)
        follower = self.start_follower()
        wait_for(lambda: digest(follower) == there, lambda: f"{there}, {digest(follower)}, {said(follower)}")
        self.assertGreater(len(pretender.asked), len(wrong))

    def test_a_piece_of_a_base_is_taken_once(self):
        primary = self.start_primary("--journal-limit", "60000")
        with wire.connect(primary) as peer:
            table = wire.create(peer, "a", durability="buffered")
            for i in range(60):
                wire.push(peer, table, list(range(i, i + 200)), [1.0] * 800)
        wait_for(lambda: any(name.endswith(".base") for name in os.listdir(self.path("primary"))), primary.log)
        primary.stop()
        primary = self.start_primary()
        there = digest(primary)
        with wire.Wire(primary.admin_path(0)) as peer:
            base, base_bytes, _ = peer.call("follow", {"name": "f", "cluster": "embd", "base": True})
            tail, tail_bytes, _ = peer.call("follow", {"name": "f", "cluster": "embd", "position": base["behind"],
                                                       "chain": base["behind_chain"]})
        primary.kill()
        half = base_bytes.index(b"EBDJ", 1)
        second = base_bytes[half:]
        place = {"position": int.from_bytes(second[24:32], "little"), "chain": int.from_bytes(second[40:48], "little")}

        def told(fields, data, **more):
            return lambda asked: [{**fields, "bytes": len(data), "sum": partfiles.xxh3(data), **more}, data, b""]

        def by_place(asked):
            return (told(base, second) if asked["position"] == place["position"] else told(base, base_bytes))(asked)

        pretender = Pretender(os.path.join(self.path("admin"), f"{self.port}.sock"),
                              [told(base, base_bytes[:half], left=1, at=half, **place), told(base, second, sum=1), by_place,
                               told(tail, tail_bytes)])
        pretender.start()
        self.addCleanup(pretender.server.close)
        follower = self.start_follower()
        wait_for(lambda: digest(follower) == there, lambda: f"{there}, {digest(follower)}, {said(follower)}", 8)


if __name__ == "__main__":
    unittest.main()
