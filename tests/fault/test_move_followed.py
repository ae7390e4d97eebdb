"""Keys move in a cluster that a server follows: the follower has the rows of each shard, by digest, before, between and behind moves,
and whatever it has when its servers die, it is promoted with one map: the later one, or the earlier one with all rows."""
import json
import os
import shutil
import subprocess
import time
import unittest

import wire
from embd_process import Embd
from mover import EMBCTL, EVEN, SHARDS, Cluster, Mover, turned, until
from ports import free_ports
from test_move_dies import POINTS


def embctl(server, *words, timeout=60):
    return subprocess.run([EMBCTL, "--servers", server.admin_path(0), *words], capture_output=True, text=True, timeout=timeout, check=False)


def digest(server):
    """Of each table, shard by shard; None: it does not say now."""
    ran = embctl(server, "digest", "-o", "json")
    return json.loads(ran.stdout)["tables"] if ran.returncode == 0 else None


class Followed(Cluster):
    """A cluster and its follower, which takes its place."""

    def __init__(self, more=""):
        super().__init__(more)
        self.own, self.promoted = free_ports(SHARDS), False
        os.mkdir(self.path("f"))

    def follow(self, *flags):
        self.follower = Embd("--data-dir", self.path("f"), "--http", "off", "--follow", self.path(f"admin/{self.port}.sock"), *flags,
                             shards=SHARDS, listen=f"127.0.0.1:{self.own}", admin=self.path("admin"), waits=False)
        self.running["f"] = self.follower
        return self.follower

    def data(self, shard):
        return wire.connect(self.follower, shard, timeout=60) if self.promoted else super().data(shard)

    def admin(self, shard):
        return self.follower_admin(shard) if self.promoted else super().admin(shard)

    def next_version(self):
        """A promoted server gives no version that the one before it may have given."""
        return max(self.version + 1, 2 << 20 if self.promoted else 0)

    def follower_admin(self, shard):
        return wire.Wire(self.path(f"admin/{self.own + shard}.sock"), timeout=60)

    def map_of(self, shard):
        """Of the follower's map."""
        with self.follower_admin(shard) as peer:
            return peer.call("cluster", {})[0].get("placement", {"version": 1})["version"]

    def step(self, shard):
        """Pushes that the follower has; None: it has no table yet. A shard that is prepared answers that when it is not any more."""
        try:
            with self.follower_admin(shard) as peer:
                return peer.call("table_describe", {"name": "t"})[0]["step"]
        except (wire.RpcError, OSError):
            return None

    def until_follower_has_pushes(self):
        until(lambda: all(self.step(shard) == self.pushes for shard in range(SHARDS)))

    def until_follower_has_maps(self, versions):
        until(lambda: [self.map_of(shard) for shard in range(SHARDS)] == versions)

    def versions(self):
        found = []
        for shard in range(SHARDS):
            with self.data(shard) as peer:
                found.append(peer.call("cluster", {})[0].get("placement", {"version": 1})["version"])
        return found

    def compare(self):
        self.until_swept()
        there = until(lambda: self.digest_of("a"))
        until(lambda: digest(self.follower) == there)
        return there

    def digest_of(self, name):
        ran = subprocess.run([EMBCTL, "--servers", self.address(name), "digest", "-o", "json"], capture_output=True, text=True,
                             timeout=60, check=False)
        return json.loads(ran.stdout)["tables"] if ran.returncode == 0 else None

    def promote(self, *words):
        return embctl(self.follower, "promote", *words)

    def follow_anew(self):
        """With nothing, so that it takes bases."""
        self.follower.kill()
        shutil.rmtree(self.path("f"))
        os.mkdir(self.path("f"))
        return self.follow()

    def take_over(self, *words):
        ran = self.promote(*words)
        assert ran.returncode == 0, (ran.stderr, self.follower.log())
        self.promoted, self.names = True, "f"
        self.tables = [until(lambda shard=shard: self.table_id(shard)) for shard in range(SHARDS)]

    def table_id(self, shard):
        """None: it is prepared, and asks shard 0 whether its keys have moved."""
        try:
            with self.data(shard) as peer:
                return self.id(peer, "t")
        except wire.RpcError as error:
            assert error.number == wire.LOADING, error
            return None


class WithFollower(unittest.TestCase):
    more = ""

    def setUp(self):
        self.begin()

    def begin(self):
        self.cluster = Followed(self.more)
        self.addCleanup(self.cluster.__exit__, None, None, None)
        self.cluster.begin()
        self.cluster.follow()
        self.cluster.until_follower_has_pushes()

    def go_on(self, text):
        """The server in the cluster's place has all, takes pushes, and moves keys on."""
        cluster = self.cluster
        cluster.check(text)
        cluster.push()
        cluster.check(text)
        Mover(cluster).all()
        cluster.push()
        cluster.check(text)


class Moves(WithFollower):
    more = "journal_limit: 60000\n"

    def test_a_follower_has_what_its_cluster_has_before_between_and_behind_moves(self):
        cluster = self.cluster
        before = cluster.compare()
        Mover(cluster).all()
        cluster.push()
        cluster.check()
        self.assertNotEqual(cluster.compare(), before)
        cluster.follower.kill()  # its own journal says which map it has
        cluster.follow()
        cluster.until_follower_has_pushes()
        cluster.compare()
        mover = Mover(cluster, EVEN).begin().round()
        cluster.follower.kill()
        mover.hold().round(final=True).check().prepare().apply().leave()
        cluster.note_moved(EVEN)
        cluster.push()
        cluster.follow()
        cluster.until_follower_has_pushes()
        cluster.compare()
        Mover(cluster, turned(EVEN, 2)).all()
        cluster.push()
        cluster.follow_anew()  # the bases say it, too
        cluster.until_follower_has_pushes()
        cluster.compare()
        for name in "ab":
            cluster.kill(name)
        cluster.take_over()
        self.go_on("promoted")
        cluster.follower.kill()
        cluster.follow()  # a promoted server's journal says it, too
        until(lambda: all(cluster.step(shard) for shard in range(SHARDS)))
        cluster.check("started again")


    def test_a_follower_goes_on_behind_tables_that_are_replaced(self):
        """Its shards prepare them as they do maps."""
        cluster = self.cluster
        before, dump = cluster.compare(), cluster.path("dump")
        for words in (("dump", "--all", dump), ("load", dump, "--replace")):
            ran = subprocess.run([EMBCTL, words[0], "--servers", cluster.address("a"), *words[1:]], capture_output=True, text=True,
                                 timeout=60, check=False)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            if words[0] == "dump":
                cluster.push()
                self.assertNotEqual(cluster.compare(), before)
        self.assertEqual([table["digest"] for table in cluster.compare()], [table["digest"] for table in before])


class Dies(WithFollower):
    def die(self, point):
        text, go, is_decided = point
        cluster = self.cluster
        mover = Mover(cluster)
        go(mover)
        cluster.until_follower_has_maps(cluster.versions())
        for name in "ab":
            cluster.kill(name)
        mover.leave()
        if is_decided:
            cluster.note_moved(mover.map)
        cluster.take_over("--force")
        self.go_on(text)

    def test_a_follower_of_servers_that_die_has_one_map(self):
        for i, point in enumerate(POINTS):
            with self.subTest(point=point[0]):
                if i > 0:
                    self.begin()
                self.die(point)
                self.cluster.__exit__(None, None, None)


class Anew(WithFollower):
    """Bases are made, and taken, while keys are on their way."""
    more = "journal_limit: 60000\n"

    def fill(self):
        """Until each journal was compacted behind what it has."""
        cluster = self.cluster
        found = {shard: self.bases(shard) for shard in range(SHARDS)}
        while any(self.bases(shard) == found[shard] for shard in range(SHARDS)):
            cluster.push()

    def bases(self, shard):
        name = self.cluster.path("ab"[shard // 2])
        return {entry for entry in os.listdir(name) if entry.startswith(f"journal.{shard}.") and entry.endswith(".base")}

    def test_a_follower_that_takes_bases_meanwhile_has_one_map(self):
        for i, (text, is_decided) in enumerate((("rows on their way", False), ("rows that left", True))):
            with self.subTest(text):
                if i > 0:
                    self.begin()
                cluster, mover = self.cluster, Mover(self.cluster)
                if is_decided:
                    mover.copied().prepare().apply()
                    cluster.note_moved(mover.map)
                    mover.leave()
                else:
                    mover.begin().round()
                self.fill()
                cluster.follow_anew()
                cluster.until_follower_has_pushes()
                cluster.until_follower_has_maps(cluster.versions())
                for name in "ab":
                    cluster.kill(name)
                mover.leave()
                cluster.take_over()
                self.go_on(text)
                cluster.__exit__(None, None, None)


class Lags(WithFollower):
    """The follower has the last records of one of both servers, and not those of the other one."""

    def test_the_decision_without_the_rows_is_no_map(self):
        cluster, mover = self.cluster, Mover(self.cluster)
        cluster.follower.pause()
        mover.copied().prepare().apply(end=1)
        cluster.kill("b")
        cluster.follower.go_on()
        self.refused(mover)

    def test_maps_without_the_decision_are_none(self):
        cluster, mover = self.cluster, Mover(self.cluster)
        cluster.follower.pause()
        mover.copied().prepare().apply()
        cluster.kill("a")
        cluster.follower.go_on()
        self.refused(mover)

    def refused(self, mover):
        cluster = self.cluster
        time.sleep(1)
        self.assertEqual([cluster.map_of(shard) for shard in range(SHARDS)], [1] * SHARDS)
        for name in set("ab") & set(cluster.running):
            cluster.kill(name)
        mover.leave()
        ran = cluster.promote()
        self.assertIn("records that the server had when it answered last", ran.stderr)
        cluster.take_over("--force")
        self.go_on("lags")

    def test_a_start_promotes_with_one_map(self):
        cluster, mover = self.cluster, Mover(self.cluster)
        mover.copied().prepare().apply(end=1)
        cluster.until_follower_has_maps([2, 1, 1, 1])
        for name in "ab":
            cluster.kill(name)
        mover.leave()
        cluster.follower.kill()
        cluster.follow("--promote")
        cluster.note_moved(mover.map)
        cluster.promoted, cluster.names = True, "f"
        until(lambda: all(cluster.step(shard) for shard in range(SHARDS)))
        self.go_on("promoted by a start")


if __name__ == "__main__":
    unittest.main()
