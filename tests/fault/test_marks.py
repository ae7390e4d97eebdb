"""A follower and its server are compared at one position while trainers push: they are the same, until one bit of the
follower's memory is flipped, which embctl finds, and the follower by itself with digest_interval. What needs the tables
goes first."""
import json
import os
import struct
import subprocess
import threading
import time
import unittest

import wire
from test_follow import BIN, Follow, digest, embctl, said, wait_for

BATCH, KEYS = 64, 5000
RARE = 1.2345678806304932  # of a row that nobody pushes to


class Pushing(threading.Thread):
    """Pushes to each shard until it is stopped."""

    def __init__(self, server, shard, shards, table):
        super().__init__(daemon=True)
        self.server, self.shard, self.table = server, shard, table
        self.keys, self.stop, self.n = wire.owned(KEYS, shard, shards), threading.Event(), 0

    def run(self):
        grads = wire.floats([-0.25] * 4 * BATCH)
        with wire.connect(self.server, self.shard) as peer:
            while not self.stop.is_set():
                at = self.n * BATCH % (KEYS - BATCH)
                peer.call("push", {"parts": [{"table": self.table, "keys": BATCH}]}, wire.keys(self.keys[at:at + BATCH]), grads)
                self.n += 1


def flip(pid, value, times=4):
    """One bit of the first of four equal floats that stand one behind the other in the process's memory."""
    pattern = struct.pack(f"<{times}f", *[value] * times)
    n = 0
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps, open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for line in maps:
            span, rights = line.split()[:2]
            if not rights.startswith("rw"):
                continue
            begin, end = (int(part, 16) for part in span.split("-"))
            if end - begin > 1 << 32:  # a sanitizer's shadow
                continue
            try:
                memory.seek(begin)
                data = memory.read(end - begin)
            except (OSError, ValueError):
                continue
            at = data.find(pattern)
            while at >= 0:
                memory.seek(begin + at)
                memory.write(bytes([data[at] ^ 1]))
                n += 1
                at = data.find(pattern, at + 1)
    return n


class Marks(Follow):
    def fill(self, primary):
        """Tables of two durabilities, one that no follower has, and a row that is found in memory."""
        for shard in range(self.shards):
            with wire.connect(primary, shard) as peer:
                keys = wire.owned(KEYS, shard, self.shards)
                table = wire.create(peer, "a", durability="buffered")
                wire.create(peer, "mine", durability="snapshot")
                rare = wire.create(peer, "rare", durability="durable", value=0.0)
                wire.push(peer, table, keys, [0.5] * 4 * KEYS)
                wire.push(peer, rare, keys[:1], [-2 * RARE] * 4)
        return table

    def start_load(self, primary, table):
        pushing = [Pushing(primary, shard, self.shards, table) for shard in range(self.shards)]
        for one in pushing:
            one.start()
        self.addCleanup(lambda: [one.stop.set() for one in pushing])
        return pushing

    def against(self, primary, follower, code=0):
        ran = embctl(primary, "digest", "--against", follower.admin_path(0), "-o", "json")
        self.assertEqual(ran.returncode, code, (ran.stderr, said(follower), said(primary)))
        return {table["table"]: table for table in json.loads(ran.stdout)["tables"]}, json.loads(ran.stdout)["differences"]

    def test_both_are_the_same_at_one_position_while_trainers_push(self):
        primary = self.start_primary()
        table = self.fill(primary)
        follower = self.start_follower()
        follower.wait_log("follow_has_base shard=1")
        pushing = self.start_load(primary, table)
        positions = []
        for _ in range(8):
            before = [one.n for one in pushing]
            tables, differences = self.against(primary, follower)
            self.assertEqual(set(tables), {"a", "rare"})
            self.assertEqual(differences, [])
            for one in tables.values():
                self.assertTrue(one["same"], one)
                self.assertEqual(one["positions"], one["positions_there"])
            positions.append(tables["a"]["positions"])
            wait_for(lambda: all(one.n > n + 5 for one, n in zip(pushing, before)), lambda: str(positions))
        for shard in range(self.shards):  # each time at a later one
            self.assertEqual(sorted({p[shard] for p in positions}), [p[shard] for p in positions])
        self.assertIn("digests_same", follower.log())
        self.assertNotIn("digests_not_compared", follower.log())

    def test_a_follower_that_is_far_behind_stops_at_the_position(self):
        primary = self.start_primary()
        table = self.fill(primary)
        follower = self.start_follower()
        follower.wait_log("follow_has_base shard=1")
        pushing = self.start_load(primary, table)
        for _ in range(3):
            follower.pause()
            for shard in range(self.shards):  # several answers' bytes
                keys = wire.owned(KEYS, shard, self.shards)
                with wire.connect(primary, shard) as peer:
                    for _ in range(120):
                        wire.push(peer, table, keys, [0.125] * 4 * KEYS)
            found = []
            asking = threading.Thread(target=lambda: found.append(self.against(primary, follower)))
            asking.start()
            time.sleep(0.2)
            follower.go_on()
            asking.join()
            self.assertTrue(found[0][0]["a"]["same"])
            self.assertNotIn("digests_not_compared", follower.log())
        self.assertTrue(all(one.is_alive() for one in pushing))

    def test_one_flipped_bit_is_found(self):
        primary = self.start_primary()
        table = self.fill(primary)
        follower = self.start_follower("--digest-interval", "1")
        follower.wait_log("follow_has_base shard=1")
        self.start_load(primary, table)
        follower.wait_log("digests_same shard=0")
        follower.wait_log("digests_same shard=1")
        self.assertNotIn("digests_differ", follower.log())
        self.assertGreater(flip(follower.pid, RARE), 0)
        follower.wait_log("digests_differ", 20)
        stats = json.loads(embctl(follower, "stats", "-o", "json").stdout)["stats"]
        self.assertIn(1, [figure["value"] for figure in stats if figure["name"] == "follow_digests_differ"])
        tables, differences = self.against(primary, follower, code=7)
        self.assertEqual({name: one["same"] for name, one in tables.items()}, {"a": True, "rare": False})
        self.assertEqual(len(differences), 2)  # the row of each shard
        for one in differences:
            self.assertEqual((one["table"], one["rows"], one["rows_there"]), ("rare", 1, 1))

    def done(self, server, *arguments):
        ran = subprocess.run([os.path.join(BIN, "embctl"), "--servers", server.admin_path(0), *arguments], capture_output=True,
                             text=True, timeout=60, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)

    def test_what_needs_the_tables_goes_first_and_it_is_compared_again(self):
        primary = self.start_primary("--journal-limit", "400000")
        table = self.fill(primary)
        follower = self.start_follower("--digest-interval", "1", "--journal-limit", "400000")
        follower.wait_log("follow_has_base shard=1")
        self.start_load(primary, table)
        for i in range(6):
            self.done(primary, "snapshot", f"s{i}")
            with wire.connect(primary) as peer:
                wire.create(peer, f"t{i}", durability="buffered")
                peer.call("table_drop", {"name": f"t{i}"})
            self.done(primary, "dump", "--all", self.path(f"d{i}"))
            time.sleep(0.4)
        n = follower.log().count("digests_same")
        wait_for(lambda: follower.log().count("digests_same") > n + 1, lambda: said(follower))
        self.assertNotIn("digests_differ", follower.log())
        self.assertNotIn("follow_lost", follower.log())

    def test_a_follower_that_is_killed_or_loses_its_server_is_compared_again(self):
        primary = self.start_primary()
        table = self.fill(primary)
        follower = self.start_follower("--digest-interval", "1")
        follower.wait_log("follow_has_base shard=1")
        for i in range(3):
            pushing = self.start_load(primary, table)
            time.sleep(0.9 + 0.1 * i)
            for one in pushing:
                one.stop.set()
                one.join()
            if i % 2:
                primary.kill()
                primary = self.start_primary()
            else:
                follower.kill()
                follower = self.start_follower("--digest-interval", "1")
            wait_for(lambda: " digests_same shard=0" in follower.log() and "digests_same shard=1" in follower.log(),
                     lambda: said(follower), 30)
            self.assertNotIn("digests_differ", follower.log())

    def test_wrong_requests_are_refused(self):
        primary = self.start_primary()
        self.fill(primary)
        follower = self.start_follower()
        follower.wait_log("follow_has_base shard=1")
        with wire.Wire(primary.admin_path(0)) as peer:
            for wrong, number, text in (({"mark": 5}, wire.UNSUPPORTED, "follows no server"),
                                        ({"mark": 0}, wire.INVALID, "mark"),
                                        ({"mark": 2**64 - 1}, wire.INVALID, "mark")):
                with self.assertRaises(wire.RpcError) as refused:
                    peer.call("scan", wrong)
                self.assertEqual(refused.exception.number, number)
                self.assertIn(text, refused.exception.text)
        with wire.Wire(follower.admin_path(0)) as peer:
            self.assertEqual(peer.call("scan", {"mark": 5})[0]["state"], "compares")
            with self.assertRaises(wire.RpcError) as refused:
                peer.call("scan", {"mark": 6})
            self.assertEqual(refused.exception.number, wire.BUSY)
            wait_for(lambda: peer.call("scan", {"mark": 5})[0]["state"] == "same", lambda: said(follower))
            for wrong, text in (({"cut": 5, "table": "a"}, "digests alone"), ({"cut": 5, "table": "b", "digest": True}, "no table 'b'"),
                                ({"cut": 5, "table": "a", "digest": True, "cursor": 1}, "cursor 0"), ({"cut": 6}, "has ended")):
                with self.assertRaises(wire.RpcError) as refused:
                    peer.call("scan", wrong)
                self.assertIn(text, refused.exception.text)
        with wire.connect(follower) as peer:  # it is for admins
            with self.assertRaises(wire.RpcError):
                peer.call("scan", {"mark": 7})


if __name__ == "__main__":
    unittest.main()
