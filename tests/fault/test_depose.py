"""A server that was deposed acknowledges nothing more, and leaves no caller without an answer; a follower deposes no other cluster
and takes none for its own; it forgets no epoch."""
import os
import shutil
import time
import unittest
import unittest.mock

import partfiles
import wire
from listed import Listed
from test_follow import Follow, Pretender, digest, embctl, said, wait_for
from test_replicated import figure

TOOLS = os.environ["EMBD_FAULT_TOOLS"]


class Deposed(Follow):
    shards = 1

    def depose(self, server, epoch=2):
        """As a follower that was promoted."""
        with wire.Wire(server.admin_path(0)) as peer:
            with self.assertRaises(wire.RpcError) as refused:
                peer.call("follow", {"name": "x", "cluster": "embd", "epoch": epoch, "who": 7})
        self.assertEqual(refused.exception.number, wire.INVALID)
        return refused.exception.text

    def test_a_change_under_way_is_not_acknowledged(self):
        slow = {"LD_PRELOAD": os.path.join(TOOLS, "libembd-slow-sync.so"), "EMBD_SYNC_MS": "700",
                "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        with unittest.mock.patch.dict(os.environ, slow):
            primary = self.start_primary()
        with wire.connect(primary) as peer, wire.connect(primary) as other:
            table = wire.create(peer, "a", durability="durable")
            peer.begin("push", {"parts": [{"table": table, "keys": 1}]}, wire.keys([5]), wire.floats([1.0] * 4))
            time.sleep(0.2)
            self.depose(primary)
            error = peer.receive()[2]
            self.assertIsNotNone(error)
            self.assertEqual(error[0], wire.DRAINING)
            self.assertIn("without this change", error[1])
            with self.assertRaises(wire.RpcError) as refused:  # a client leaves it then
                wire.pull(other, table, [5])
            self.assertEqual(refused.exception.number, wire.DRAINING)
            self.assertIn("in epoch 2", refused.exception.text)

    def test_answers_that_wait_for_followers_end(self):
        primary = self.start_primary()
        with wire.connect(primary, timeout=5) as peer:
            peer.begin("table_create", {"schema": wire.constant_schema("a", durability="replicated")})
            wait_for(lambda: figure(primary, "replicated_waiting") == 1, primary.log)
            with wire.Wire(primary.admin_path(0)) as other:
                other.begin("follow", {"name": "x", "cluster": "embd", "epoch": 2, "who": 7})
                self.assertIsNotNone(other.receive()[2])
                self.assertIsNone(peer.receive())  # nobody knows whether another server has it

    def test_a_push_that_waits_for_other_workers_is_refused(self):
        primary = self.start_primary()
        with wire.connect(primary, timeout=5) as peer:
            table = wire.create(peer, "a")
            peer.begin("push", {"parts": [{"table": table, "keys": 1}], "round": {"job": "j", "worker": 0, "workers": 2, "clock": 0}},
                       wire.keys([5]), wire.floats([1.0] * 4))
            time.sleep(0.3)
            self.depose(primary)
            error = peer.receive()[2]
            self.assertEqual(error[0], wire.DRAINING, error)

    def test_a_follower_of_a_server_that_stands_still_says_that_it_may_lack_records(self):
        primary, follower = self.start_primary(), self.start_follower()
        follower.wait_log("follows shard=0")
        time.sleep(1)
        self.assertEqual(figure(follower, "follow_behind_us"), 0)
        primary.pause()
        time.sleep(4.5)
        self.assertGreater(figure(follower, "follow_behind_us"), 3000000)
        primary.go_on()
        wait_for(lambda: figure(follower, "follow_behind_us") == 0, follower.log)

    def test_a_follower_of_a_deposed_server_is_told_so(self):
        primary, follower = self.start_primary(), self.start_follower()
        follower.wait_log("follows shard=0")
        self.depose(primary, 9)
        follower.wait_log("another one was promoted in its place, in epoch 9")


class Others(Follow):
    """Clusters of the same name."""
    shards = 1

    def fill(self, server, value=1.0):
        with wire.connect(server) as peer:
            table = wire.create(peer, "a", durability="buffered")
            for i in range(5):
                wire.push(peer, table, [i, i + 1], [value] * 8)

    def note(self, name):
        with open(os.path.join(self.path(name), "follow.0"), "rb") as file:
            return file.read()

    def replace_primary(self):
        """Another cluster at the address."""
        shutil.rmtree(self.path("primary"))
        os.mkdir(self.path("primary"))
        return self.start_primary()

    def test_a_server_that_has_lost_its_disk_does_not_empty_its_follower(self):
        primary, follower = self.start_primary(), self.start_follower()
        self.fill(primary)
        there = self.compare(primary, follower)
        primary.kill()
        primary = self.replace_primary()
        follower.wait_log("that of another cluster", 20)
        self.assertEqual(digest(follower), there)
        time.sleep(0.5)
        self.assertGreater(figure(follower, "follow_behind_us"), 400000)
        follower.stop()
        follower = self.start_follower()  # nor does its next start
        follower.wait_log("that of another cluster", 20)
        self.assertEqual(digest(follower), there)
        self.assertEqual(embctl(follower, "promote", "--force").returncode, 0)
        with wire.connect(follower) as peer:
            self.assertEqual(wire.pull(peer, wire.create(peer, "a", durability="buffered"), [0])[0], 0.5)

    def promote_first(self):
        """A follower that was promoted in epoch 2, and another one that follows it."""
        primary, follower = self.start_primary(), self.start_follower()
        self.fill(primary)
        self.compare(primary, follower)
        primary.kill()
        self.assertEqual(embctl(follower, "promote").returncode, 0)
        shutil.rmtree(self.path("primary"))
        os.mkdir(self.path("primary"))
        second = self.start("primary", self.port, "--follow", follower.admin_path(0), waits=False)
        self.compare(follower, second)
        return follower, second

    def test_a_follower_of_a_later_epoch_does_not_depose_a_cluster_of_the_same_name(self):
        first, second = self.promote_first()
        there = digest(second)
        second.stop()
        first.stop()
        shutil.rmtree(self.path("follower"))
        os.mkdir(self.path("follower"))
        another = self.start("follower", self.own)
        self.fill(another, 2.0)
        second = self.start("primary", self.port, "--follow", another.admin_path(0), waits=False)
        second.wait_log("that of another cluster", 20)
        self.assertNotIn("deposed", another.log())
        self.fill(another, 2.0)
        self.assertEqual(digest(second), there)

    def test_an_epoch_is_on_disk_as_soon_as_it_is_known(self):
        """Else it would be given again, to the follower that is promoted after a crash."""
        primary = self.start_primary()  # makes the directory of its admin socket
        primary.kill()

        def told(epoch):
            found = {"epoch": epoch, "position": 0, "end": 0, "bytes": 0, "skips": 0, "sum": partfiles.xxh3(b"")}
            return lambda asked: [found, b"", b""]

        pretender = Pretender(primary.admin_path(0), [told(1), told(1), told(5)])
        pretender.start()
        self.addCleanup(pretender.server.close)
        follower = self.start_follower()
        wait_for(lambda: pretender.n_asked > 3, lambda: said(follower))
        follower.kill()
        self.assertEqual(self.note("follower")[16], 5)



class Servers(Follow):
    def test_the_servers_that_live_on_are_deposed_where_the_first_one_is_gone(self):
        """Their shards would go on acknowledging pushes."""
        with Listed(["a", "b"]) as cluster:
            for name in cluster.names:
                cluster.start(name, waits=False)
            there = os.path.join(cluster.path("admin"), f"{cluster.port}.sock")
            follower = self.start("follower", self.own, "--follow", there, waits=False)
            for shard in range(self.shards):
                follower.wait_log(f"follows shard={shard}", 20)
            cluster.kill("a")
            self.assertEqual(embctl(follower, "promote").returncode, 0)
            cluster.running["b"].wait_log(" deposed shard=1", 20)
            follower.wait_log("deposed_other shard=1")
            self.assertNotIn("deposed_other shard=0", follower.log())


if __name__ == "__main__":
    unittest.main()
