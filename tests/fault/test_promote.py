"""A follower is promoted while it runs (embctl promote): all of its shards, or none, with what it had; the server that it
followed serves nothing any more. What refuses it changes nothing, and a start finishes what was interrupted."""
import os
import shutil
import threading
import time
import unittest

import test_follow
import wire
from embd_process import run
from ports import free_ports
from test_follow import digest, embctl, said, wait_for


GAP = 21  # on the wire


class Promoted(test_follow.Follow):
    writer = {"high": 1, "low": 2, "stream": 3}

    def fill(self, server, n=20):
        for shard in range(self.shards):
            with wire.connect(server, shard) as peer:
                table = wire.create(peer, "a", durability="buffered", value=0.0)
                mine = wire.owned(6, shard, self.shards)
                wire.open_stream(peer, {**self.writer}, True)
                for sequence in range(1, n + 1):
                    self.push(peer, table, mine, sequence)
        return table

    def push(self, peer, table, keys, sequence):
        return peer.call("push", {"parts": [{"table": table, "keys": len(keys)}], "writer": {**self.writer, "sequence": sequence}},
                         wire.keys(keys), wire.floats([-1.0] * 4 * len(keys)))[0]

    def refused(self, server, says, *flags):
        ran = embctl(server, "promote", *flags)
        self.assertEqual(ran.returncode, 5, ran.stderr)
        self.assertIn(says, ran.stderr)

    def notes(self):
        """The state that each shard's note has."""
        found = []
        for shard in range(self.shards):
            with open(os.path.join(self.path("follower"), f"follow.{shard}"), "rb") as file:
                found.append(file.read()[8])
        return found

    def test_a_running_follower_takes_the_place_of_a_server_that_was_killed(self):
        primary, follower = self.start_primary(), self.start_follower()
        table = self.fill(primary)
        there = self.compare(primary, follower)
        self.refused(primary, "follows no server")
        primary.kill()
        began = time.monotonic()
        ran = embctl(follower, "promote")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        for shard in range(self.shards):
            mine = wire.owned(6, shard, self.shards)
            with wire.connect(follower, shard) as peer:
                self.assertTrue(self.push(peer, table, mine, 20)["again"])
                self.push(peer, table, mine, 21)
                if shard == 0:
                    print(f"{ran.stderr.strip()}; first push after {1e3 * (time.monotonic() - began):.1f} ms")
                self.assertEqual(wire.pull(peer, table, mine), [10.5] * 4 * len(mine))
        self.assertEqual(self.notes(), [3] * self.shards)
        self.refused(follower, "follows no server")
        self.assertEqual({name: t["rows"] for name, t in digest(follower).items()},
                         {name: t["rows"] for name, t in there.items()})
        primary = self.start_primary()
        for shard in range(self.shards):
            primary.wait_log(f" deposed shard={shard}")
            follower.wait_log(f"deposed_other shard={shard}")
        now = digest(follower)
        follower.stop()
        follower = self.start_follower()  # stays promoted, and has what it acknowledged
        wait_for(lambda: digest(follower) == now, lambda: said(follower))

    def test_a_follower_of_a_server_that_stands_still_is_promoted_at_once(self):
        primary, follower = self.start_primary(), self.start_follower()
        table = self.fill(primary)
        self.compare(primary, follower)
        primary.pause()
        began = time.monotonic()
        ran = embctl(follower, "promote")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        with wire.connect(follower) as peer:
            self.push(peer, table, wire.owned(6, 0, self.shards), 21)
        self.assertLess(time.monotonic() - began, 18)  # a question to the one that stands still ends after 20 s
        primary.go_on()
        primary.wait_log(" deposed shard=0")

    def test_what_refuses_a_promotion_changes_nothing(self):
        primary = self.start_primary()
        self.fill(primary)
        follower = self.start_follower()
        self.compare(primary, follower)
        primary.kill()
        follower.stop()
        follower = self.start_follower()
        follower.wait_log("follow_lost shard=1")
        self.refused(follower, "has not heard of the server")
        self.assertEqual(self.notes(), [2] * self.shards)
        primary = self.start_primary()  # it follows on
        for shard in range(self.shards):
            with wire.connect(primary, shard) as peer:
                self.push(peer, wire.create(peer, "a", durability="buffered", value=0.0), wire.owned(6, shard, self.shards), 21)
        self.compare(primary, follower)
        self.assertNotIn(" deposed ", primary.log())
        primary.kill()
        self.assertEqual(embctl(follower, "promote", "--force").returncode, 0)

    def test_a_follower_without_a_base_is_refused(self):
        follower = self.start_follower()
        follower.wait_log("follow_lost shard=1")
        self.refused(follower, "still takes its base", "--force")
        self.assertEqual(self.notes(), [1] * self.shards)
        primary = self.start_primary()
        self.fill(primary)
        self.compare(primary, follower)

    def test_a_promotion_that_was_interrupted_is_finished_by_a_start(self):
        primary, follower = self.start_primary(), self.start_follower()
        self.fill(primary)
        there = self.compare(primary, follower)
        primary.kill()
        shutil.copytree(self.path("follower"), self.path("before"))
        self.assertEqual(embctl(follower, "promote").returncode, 0)
        follower.kill()
        shutil.copy(os.path.join(self.path("before"), "follow.1"), self.path("follower"))  # the second shard was not so far
        self.assertEqual(self.notes(), [3, 2])
        alone = run("--http", "off", "--data-dir", self.path("follower"), "--listen", "127.0.0.1:0", "--shards", str(self.shards))
        self.assertIn("start with follow", alone.stderr)
        follower = self.start_follower()
        wait_for(lambda: digest(follower) == there, lambda: said(follower))
        self.assertEqual(self.notes(), [3, 3])
        primary = self.start_primary()
        for shard in range(self.shards):
            primary.wait_log(f" deposed shard={shard}")

    def second(self, name, port):
        os.mkdir(self.path(name))
        return self.start(name, port, "--follow", os.path.join(self.path("admin"), f"{self.port}.sock"), waits=False)

    def test_a_follower_is_not_promoted_beside_one_that_has_more(self):
        """An acknowledgement says that one follower has the change, not which."""
        primary, one = self.start_primary(), self.start_follower()
        other = self.second("other", free_ports(self.shards))
        table = self.fill(primary, 5)
        self.compare(primary, one)
        self.compare(primary, other)
        one.pause()
        with wire.connect(primary, 1) as peer:
            for sequence in (6, 7):  # the first one is the answer to a question that waits
                self.push(peer, table, wire.owned(6, 1, self.shards), sequence)
        self.compare(primary, other)
        primary.kill()
        one.go_on()
        one.wait_log("follow_lost shard=1", 40)
        beside = ("--beside", other.admin_path(0))
        self.refused(one, f"shard 1 of {other.admin_path(0)} has 9 records, and of the follower to be promoted 8", *beside)
        self.assertEqual(self.notes(), [2] * self.shards)
        self.assertNotEqual(embctl(other, "promote", "--beside", "/none").returncode, 0)
        ran = embctl(other, "promote", "--beside", one.admin_path(0))
        self.assertEqual(ran.returncode, 0, ran.stderr)

    def pushing(self, server, shard, table, acked):
        """Until it is refused, as fast as it is answered."""
        try:
            with wire.connect(server, shard) as peer:
                while True:
                    self.push(peer, table, wire.owned(6, shard, self.shards), acked[shard] + 1)
                    acked[shard] += 1
        except (wire.RpcError, OSError, EOFError):
            pass

    def stop_under_load(self, primary, table):
        """What was acknowledged on each shard when it had ended in order."""
        acked = [20] * self.shards
        pushers = [threading.Thread(target=self.pushing, args=(primary, shard, table, acked)) for shard in range(self.shards)]
        for pusher in pushers:
            pusher.start()
        wait_for(lambda: min(acked) > 60, lambda: f"{acked} {primary.log()}")
        self.assertEqual(primary.stop(), 0, primary.last_log)
        for pusher in pushers:
            pusher.join(30)
            self.assertFalse(pusher.is_alive())
        return acked

    def test_a_server_that_ends_in_order_lets_its_followers_have_all_that_it_acknowledged(self):
        """Of tables that wait for no follower, too."""
        for _ in range(4):
            primary, follower = self.start_primary(), self.start_follower()
            table = self.fill(primary)
            self.compare(primary, follower)
            acked = self.stop_under_load(primary, table)
            ran = embctl(follower, "promote")
            self.assertEqual(ran.returncode, 0, ran.stderr)
            for shard in range(self.shards):
                with wire.connect(follower, shard) as peer:
                    row = wire.pull(peer, table, wire.owned(6, shard, self.shards))[0]
                self.assertIn(2 * row, (acked[shard], acked[shard] + 1))  # the last answer may not have come
            follower.kill()
            for name in ("primary", "follower"):
                shutil.rmtree(self.path(name))
                os.mkdir(self.path(name))

    def test_a_server_ends_though_its_follower_stands_still(self):
        primary, follower = self.start_primary(), self.start_follower()
        table = self.fill(primary)
        self.compare(primary, follower)
        follower.pause()
        self.stop_under_load(primary, table)  # within 20 s

    def test_a_replica_that_answers_pulls_is_promoted(self):
        primary, replica = self.start_primary(), self.start_follower("--serve", "yes")
        table = self.fill(primary)
        self.compare(primary, replica)
        mine = wire.owned(6, 0, self.shards)
        with wire.connect(replica) as peer:
            self.assertEqual(wire.pull(peer, table, mine), [10.0] * 4 * len(mine))
            with self.assertRaises(wire.RpcError) as refused:
                self.push(peer, table, mine, 21)
            self.assertEqual(refused.exception.number, wire.UNSUPPORTED)
            primary.kill()
            self.assertEqual(embctl(replica, "promote").returncode, 0)
            self.push(peer, table, mine, 21)  # on the same connection
            self.assertEqual(wire.pull(peer, table, mine), [10.5] * 4 * len(mine))

    def test_of_two_followers_that_were_promoted_one_serves(self):
        """They have the same epoch; the server tells the one that comes second, which serves nothing then."""
        primary, one = self.start_primary(), self.start_follower()
        other = self.second("other", free_ports(self.shards))
        self.fill(primary)
        self.compare(primary, one)
        self.compare(primary, other)
        primary.pause()
        self.assertEqual(embctl(one, "promote").returncode, 0)
        self.assertEqual(embctl(other, "promote").returncode, 0)
        other.pause()
        primary.go_on()
        for shard in range(self.shards):
            one.wait_log(f"deposed_other shard={shard}")
        other.go_on()
        for shard in range(self.shards):
            other.wait_log(f" deposed shard={shard}")
        self.assertIn("two followers were promoted", other.log())
        self.assertNotIn(" deposed shard", one.log())
        with wire.connect(other) as peer:
            with self.assertRaises(wire.RpcError) as refused:
                wire.create(peer, "b", durability="buffered")
        self.assertIn("serves nothing", refused.exception.text)
        other.stop()
        again = run("--http", "off", "--data-dir", self.path("other"), "--listen", "127.0.0.1:0", "--shards", str(self.shards))
        self.assertIn("promoted in the place of this one", again.stderr)

    def test_a_cluster_of_the_same_name_is_not_deposed(self):
        primary, follower = self.start_primary(), self.start_follower()
        self.fill(primary)
        self.compare(primary, follower)
        primary.kill()
        self.assertEqual(embctl(follower, "promote").returncode, 0)
        os.mkdir(self.path("another"))  # at the address of the server that is gone
        another = self.start("another", self.port)
        table = self.fill(another)
        time.sleep(3)
        self.assertNotIn("deposed", another.log())
        self.assertNotIn("deposed_other", follower.log())
        with wire.connect(another) as peer:
            self.push(peer, table, wire.owned(6, 0, self.shards), 21)
        another.stop()
        primary = self.start_primary()
        for shard in range(self.shards):
            primary.wait_log(f" deposed shard={shard}")

    def test_a_follower_is_promoted_under_load(self):
        """Pushes go on until the server is killed: each that the follower has is applied once."""
        primary, follower = self.start_primary(), self.start_follower()
        table = self.fill(primary, 1)
        self.compare(primary, follower)
        acked, stops = {}, threading.Event()

        def train(shard):
            mine = wire.owned(6, shard, self.shards)
            try:
                with wire.connect(primary, shard) as peer:
                    for sequence in range(2, 1000000):
                        self.push(peer, table, mine, sequence)
                        acked[shard] = sequence
                        if stops.is_set():
                            return
            except (OSError, TypeError):  # the connection ended
                return

        trainers = [threading.Thread(target=train, args=(shard,)) for shard in range(self.shards)]
        for trainer in trainers:
            trainer.start()
        time.sleep(2)
        primary.kill()
        for trainer in trainers:
            trainer.join()
        ran = embctl(follower, "promote", "--force")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        for shard in range(self.shards):
            mine = wire.owned(6, shard, self.shards)
            with wire.connect(follower, shard) as peer:
                has = int(2 * wire.pull(peer, table, mine)[0])
                self.assertLessEqual(has, acked[shard] + 1)
                self.assertGreater(has, 1)
                self.assertTrue(self.push(peer, table, mine, has)["again"])
                if has + 1 < acked[shard] + 1:  # some were lost: that is told
                    with self.assertRaises(wire.RpcError) as lost:
                        self.push(peer, table, mine, acked[shard] + 1)
                    self.assertEqual(lost.exception.number, GAP, lost.exception.text)
                self.push(peer, table, mine, has + 1)
                self.assertEqual(wire.pull(peer, table, mine), [(has + 1) / 2] * 4 * len(mine))


if __name__ == "__main__":
    unittest.main()
