"""A cluster that a server follows gets a shard more, or one fewer, and everybody dies at each step of that. The follower that is promoted
has one map on all shards, the later one or the earlier one, with each push once; one that dies meanwhile goes on, without a base."""
import contextlib
import os
import subprocess
import time
import unittest

import test_add_dies as add
import test_retire_dies as retire
import wire
from embd_process import Embd
from mover import EMBCTL, OWN, owner, until
from ports import free_ports

ROOM = 3


class Followed:
    """A cluster and its follower with room for three shards."""

    def __init__(self, cluster, version):
        self.cluster, self.own = cluster, free_ports(ROOM)
        self.n, self.version = cluster.n, version
        os.mkdir(cluster.path("f"))
        self.follower = None

    def follow(self, *flags, shards=ROOM):
        """It listens at so many ports: one that was promoted has as many shards as its cluster."""
        self.follower = Embd("--data-dir", self.cluster.path("f"), "--http", "off", "--follow",
                             self.cluster.path(f"admin/{self.cluster.port}.sock"), "--listen", f"127.0.0.1:{self.own}", "--shards", str(ROOM),
                             *flags, shards=shards, listen=None, admin=self.cluster.path("admin"), waits=False)
        self.cluster.running["f"] = self.follower
        return self.follower

    def admin(self, shard):
        return wire.Wire(self.cluster.path(f"admin/{self.own + shard}.sock"), timeout=60)

    def embctl(self, *words):
        return subprocess.run([EMBCTL, "--servers", self.follower.admin_path(0), *words], capture_output=True, text=True, timeout=60,
                              check=False)

    def told(self, shard):
        """(shards, version of the map) by its own map, also while it follows."""
        with self.admin(shard) as peer:
            answer = peer.call("cluster", {})[0]
            return len(answer["shards"]), answer.get("placement", {"version": 1})["version"]

    def step(self, shard):
        try:
            with self.admin(shard) as peer:
                return peer.call("table_describe", {"name": "t"})[0]["step"]
        except (wire.RpcError, OSError):
            return None

    def until_steps(self):
        until(lambda: all(self.step(shard) == self.cluster.pushes for shard in range(self.cluster.n)))

    def until_told(self, found):
        until(lambda: [self.told(shard) for shard in range(len(found))] == found)

    def promote(self, *words):
        return self.embctl("promote", *words)

    def until_serves(self):
        def serves(shard):
            with contextlib.suppress(OSError), wire.connect(self.follower, shard, timeout=60) as peer:
                return "loading" not in peer.call("hello", {"protocol": 1})[0]
            return False  # it has just started
        until(lambda: all(serves(shard) for shard in range(self.n)))

    def check(self, of_vshard, pushes, text):
        """The promoted server has `pushes`, and goes on from there."""
        self.until_serves()
        told = {self.told(shard) for shard in range(self.n)}
        assert told == {(self.n, self.version)}, (text, told)
        split = {} if self.version == 1 else {"placement": self.version}
        for shard in range(self.n):
            with wire.connect(self.follower, shard, timeout=60) as peer:
                keys = [key for key in add.KEYS if owner(of_vshard, key) == shard]
                part = [{"table": peer.call("table_describe", {"name": "t"})[0]["id"], "keys": len(keys)}]
                found = wire.unfloats(peer.call("pull", {"parts": part, **split}, wire.keys(keys))[1])
                assert found == [pushes * (key + 1.0) for key in keys], (text, shard, found, pushes)
                assert peer.call("writer", OWN)[0]["journaled"] == pushes, (text, shard)
                t = peer.call("table_describe", {"name": "t"})[0]
                assert (t["step"], t["rows"]) == (pushes, len(keys)), (text, shard, t)
                peer.call("push", {"parts": part, "writer": {**OWN, "sequence": pushes + 1}, **split}, wire.keys(keys),
                          wire.floats([-1.0 - key for key in keys]))

    def goes_on(self, text):
        """Keys move on all of its shards."""
        weights = ",".join("3" if i == 0 else "1" for i in range(self.n))
        self.run_patiently(("rebalance", "--weights", weights), text)

    def run_patiently(self, words, text):
        def ran():
            found = subprocess.run([EMBCTL, "--servers", self.follower.addresses[0], *words], capture_output=True, text=True, timeout=60,
                                   check=False)
            assert found.returncode in (0, 5), (text, words, found)
            return found.returncode == 0
        until(ran)


class Grows:
    """The cluster of two gets a third shard."""
    POINTS = [point for point in add.POINTS if point[0] != "it holds"]
    BEFORE, LATER = (2, 1), (3, 2)

    def cluster(self):
        return add.Cluster()

    def coordinator(self, cluster):
        return add.Adder(cluster)

    def of_vshard(self, _cluster):
        return add.EVEN

    def go(self, coordinator):
        """From where it has begun."""
        coordinator.hold().stage().check().prepare().apply()


class Shrinks:
    """The cluster of three, of which the last has no keys, loses that."""
    POINTS = [point for point in retire.POINTS if point[0] != "it holds"]
    BEFORE, LATER = (3, 2), (2, 3)

    def cluster(self):
        return retire.Cluster()

    def coordinator(self, cluster):
        return retire.Retirer(cluster)

    def of_vshard(self, cluster):
        return cluster.of_vshard

    def go(self, coordinator):
        coordinator.hold().check().prepare().apply(0, 1, 2)


class Cases(unittest.TestCase):
    def begin(self, how):
        cluster = how.cluster()
        self.addCleanup(cluster.__exit__, None, None, None)
        cluster.begin()
        self.followed = Followed(cluster, how.BEFORE[1])
        self.followed.follow()
        self.followed.until_steps()
        return cluster, self.followed

    def take_over(self, how, found, text):
        followed = self.followed
        for name in set("abc") & set(followed.cluster.running):
            followed.cluster.kill(name)
        ran = followed.promote("--force")
        assert ran.returncode == 0, (text, ran.stderr, followed.follower.log())
        self.is_right(how, found, text)

    def is_right(self, how, found, text):
        followed, cluster = self.followed, self.followed.cluster
        followed.n, followed.version = found
        of_vshard = how.of_vshard(cluster)
        followed.check(of_vshard, cluster.pushes, text)
        followed.run_patiently(("snapshot", "whole"), text)
        followed.follower.kill()
        followed.follow(shards=followed.n)  # the directory says how many shards it has
        followed.check(of_vshard, cluster.pushes + 1, (text, "started again"))
        followed.goes_on(text)

    def servers_die(self, how):
        for i, (text, go, is_decided) in enumerate(how.POINTS):
            with self.subTest(text):
                cluster, followed = self.begin(how)
                coordinator = how.coordinator(cluster)
                go(coordinator)
                found = how.LATER if is_decided else how.BEFORE
                if is_decided:
                    followed.until_told([how.LATER])
                coordinator_first = i % 2 == 0
                if coordinator_first:
                    coordinator.leave()
                self.take_over(how, found, text)
                if not coordinator_first:
                    coordinator.leave()
                cluster.__exit__(None, None, None)

    def test_servers_die_at_each_step_of_growth(self):
        self.servers_die(Grows())

    def test_servers_die_at_each_step_of_a_retirement(self):
        self.servers_die(Shrinks())

    def lacks(self, how, dies, found):
        """The follower gets the records of the other servers alone."""
        cluster, followed = self.begin(how)
        coordinator = how.coordinator(cluster).begin()
        until(lambda: not any("unready" in peer.call("move", {"phase": "state"})[0] for peer in coordinator.peers))
        followed.follower.pause()
        cluster.push()  # which is the answer to questions that waited
        how.go(coordinator)
        cluster.kill(dies)
        followed.follower.go_on()
        time.sleep(1)
        self.assertEqual([followed.told(shard) for shard in range(2)], [found] * 2)
        coordinator.leave()
        return cluster, followed

    def lags(self, how, dies, found):
        cluster, _ = self.lacks(how, dies, found)
        self.take_over(how, found, dies)
        cluster.__exit__(None, None, None)

    def test_a_server_that_was_added_is_told_of_a_promotion_by_the_earlier_map(self):
        """It would go on acknowledging pushes."""
        cluster, followed = self.lacks(Grows(), "a", Grows.BEFORE)
        ran = followed.promote("--force")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        for name, shard in ("b", 1), ("c", 2):
            cluster.running[name].wait_log(f" deposed shard={shard}", 60)
            followed.follower.wait_log(f"deposed_other shard={shard}", 60)
        for name in "bc":
            cluster.kill(name)
        self.is_right(Grows(), Grows.BEFORE, "told")

    def test_the_decision_without_the_new_shard_is_none(self):
        self.lags(Grows(), "c", Grows.BEFORE)

    def test_new_maps_without_the_decision_are_none(self):
        self.lags(Grows(), "a", Grows.BEFORE)
        self.lags(Shrinks(), "a", Shrinks.BEFORE)

    def test_a_shard_that_left_is_not_waited_for(self):
        self.lags(Shrinks(), "c", Shrinks.LATER)

    def follower_dies(self, how):
        for text, go, _ in how.POINTS:
            with self.subTest(text):
                cluster, followed = self.begin(how)
                coordinator = how.coordinator(cluster)
                go(coordinator)
                followed.follower.kill()
                coordinator.leave()
                followed.follow()
                until(lambda: followed.told(0)[1] > 0 and self.ends(how, followed.cluster))
                followed.until_told([how.LATER] * min(how.LATER[0], 2))
                self.assertNotIn("begins_anew shard=0", followed.follower.log())
                self.assertNotIn("begins_anew shard=1", followed.follower.log())
                self.take_over(how, how.LATER, text)
                cluster.__exit__(None, None, None)

    def ends(self, how, cluster):
        """By a command, where the coordinator left it half done; one that was done is refused."""
        words = ("add", cluster.address("c")) if isinstance(how, Grows) else ("retire", "2")
        ran = subprocess.run([EMBCTL, "--servers", cluster.address("a"), "shard", *words], capture_output=True, text=True, timeout=60,
                             check=False)
        with cluster.data(0) as peer:
            return ran.returncode == 0 or len(peer.call("cluster", {})[0]["shards"]) == how.LATER[0]

    def test_a_follower_dies_at_each_step_of_growth(self):
        self.follower_dies(Grows())

    def test_a_follower_dies_at_each_step_of_a_retirement(self):
        self.follower_dies(Shrinks())

    def test_a_start_promotes_with_one_map(self):
        for how in (Grows(), Shrinks()):
            for is_decided in (False, True):
                with self.subTest(how=how, is_decided=is_decided):
                    cluster, followed = self.begin(how)
                    coordinator = how.coordinator(cluster).held().prepare()
                    if is_decided:
                        coordinator.apply(*([0] if isinstance(how, Shrinks) else [1]))
                        followed.until_told([how.LATER])
                    followed.follower.kill()
                    coordinator.leave()
                    for name in "abc":
                        cluster.kill(name)
                    followed.follow("--promote")
                    self.is_right(how, how.LATER if is_decided else how.BEFORE, (how, is_decided))
                    cluster.__exit__(None, None, None)


if __name__ == "__main__":
    unittest.main()
