"""Servers and the coordinator die at each step of a move of keys between shards. Afterwards all shards have one map, the earlier or
the later one; each key has its row on its shard alone, streams stand where they stood, and a push under way is applied on all shards
or on none."""
import contextlib
import os
import re
import select
import time
import unittest
import unittest.mock

import wire
from mover import MOVED, SHARDS, Mover, WithCluster, until


def rows_are_loaded(mover):
    mover.begin().round()


def last_rows_are_loaded(mover):
    mover.begin().round()
    mover.hold().round(final=True)


# How far the coordinator comes, and whether shard 0 has decided.
POINTS = [("it has begun", lambda m: m.begin(), False), ("some rows are read", lambda m: m.begin().read(0), False),
          ("rows are loaded", rows_are_loaded, False), ("the last ones too", last_rows_are_loaded, False),
          ("checked", lambda m: m.copied(), False), ("prepared on one", lambda m: m.copied().prepare(end=2), False),
          ("prepared on all", lambda m: m.copied().prepare(), False),
          ("applied on shard 0", lambda m: m.copied().prepare().apply(end=1), True),
          ("applied on shard 1", lambda m: m.copied().prepare().apply(end=2), True),
          ("applied on shard 2", lambda m: m.copied().prepare().apply(end=3), True),
          ("applied on all", lambda m: m.copied().prepare().apply(), True)]


class Dies(WithCluster):
    def die(self, point, dying):
        cluster, (text, go, is_decided) = self.cluster, point
        mover = Mover(cluster)
        go(mover)
        mover.leave()
        for name in dying:
            cluster.kill(name)
        alive = [shard for shard in range(SHARDS) if cluster.names[shard // 2] not in dying]
        peers = {shard: cluster.data(shard) for shard in alive}
        for shard, peer in peers.items():
            cluster.ask_push(peer, shard)
        self.restart(*dying)
        for shard in range(SHARDS):
            if shard not in peers:
                peers[shard] = cluster.data(shard)
                cluster.ask_push(peers[shard], shard)
        answers = [peers[shard].receive()[2] for shard in range(SHARDS)]
        for peer in peers.values():
            peer.close()
        outcomes = {None if answer is None else answer[0] for answer in answers}
        self.assertEqual(outcomes, {MOVED if is_decided else None}, (text, dying, answers))
        if is_decided:
            cluster.note_moved(mover.map)
        else:
            cluster.pushes += 1
        cluster.check((text, dying))
        cluster.push()
        cluster.check((text, dying))
        self.assertEqual(self.embctl("digest").returncode, 0)

    def test_all_shards_have_the_later_map_or_all_the_earlier_one(self):
        for point in POINTS:
            for dying in ("", "a", "b", "ab"):
                with self.subTest(point=point[0], dying=dying):
                    self.die(point, dying)

    # ---- a shard in doubt ----

    def test_a_shard_in_doubt_reads_nothing_that_may_be_another_one_s(self):
        cluster, mover = self.cluster, Mover(self.cluster).copied().prepare().apply(end=1)
        cluster.kill("a")
        mover.leave()
        moved = [key for key in cluster.keys_of(3) if key in cluster.keys_of(0, mover.map)]
        self.assertTrue(moved)
        cluster.running["b"].wait_log("replacement_in_doubt shard=3")
        part = {"parts": [{"table": cluster.tables[3], "keys": len(moved)}], **cluster.split()}
        with cluster.data(3) as reader, cluster.data(3) as lister:
            reader.begin("pull", part, wire.keys(moved))
            lister.begin("keys", {"table": "t"})
            self.assertEqual(select.select([reader.socket, lister.socket], [], [], 0.3)[0], [])
            cluster.start("a", waits=False)
            self.until_ready("a")
            self.assertEqual(reader.receive()[2][0], MOVED)
            self.assertIsNone(lister.receive()[2])
        cluster.note_moved(mover.map)
        cluster.check("in doubt")
        cluster.push()
        cluster.check("in doubt")

    # ---- what is on its way to the disk ----

    def test_a_map_that_is_applied_behind_its_coordinator_keeps_the_rows_that_came(self):
        cluster, gate = self.cluster, self.start_with_gate("a")
        mover = Mover(cluster).copied().prepare()
        gate.close()
        mover.peers[0].begin("table_replace", {"id": mover.id, "phase": "apply", "decision": mover.id, "placement": True})
        until(gate.waiting)
        mover.leave()
        cluster.running["a"].wait_log('hold_lost shard=0 why="the holder')
        time.sleep(0.3)  # shard 0 may look for rows that are not its own
        gate.open()
        cluster.note_moved(mover.map)
        cluster.check("on its way")
        cluster.push()
        cluster.check("on its way")

    def test_a_server_ends_while_rows_that_left_are_being_erased(self):
        cluster, gate = self.cluster, self.start_with_gate("a")
        mover = Mover(cluster).copied().prepare().apply()
        cluster.note_moved(mover.map)
        gate.close()
        with gate.letting_all_but("fdatasync"):  # of the journal
            mover.leave()
            until(lambda: any("fdatasync" in name for name in gate.waiting()))
            server = cluster.running.pop("a")
            server.terminate()
            time.sleep(0.3)
        gate.open()
        self.assertEqual(server.wait(60), 0, server.log())
        server.kill()
        self.restart("a")
        cluster.check("ended")

    def errors(self, name):
        return sum(int(n) for n in re.findall(r"^embd_journal_errors_total\{.*\} (\d+)$", self.cluster.page(name, "/metrics")[1], re.M))

    def start_on_disk(self, fails_at):
        """Rows of others are on a server whose journals cannot be written from that write on. Whether it asks for an erase then."""
        cluster, mover = self.cluster, Mover(self.cluster).begin().round()
        cluster.kill("a")
        mover.leave()
        library = os.path.join(os.environ["EMBD_FAULT_TOOLS"], "libembd-failing.so")
        with unittest.mock.patch.dict(os.environ, {"LD_PRELOAD": library, "EMBD_FAILPOINT_DIR": cluster.path("a"),
                                                   "EMBD_FAILPOINT": f"journal.write:enospc:{fails_at}+1",
                                                   "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}):
            server = cluster.start("a", waits=False)

        def ending():
            if not server.is_alive():
                return "ended"
            if server.log().count("moved_rows_removed") == 2:
                return "removed"
            with contextlib.suppress(OSError):
                return "refused" if self.errors("a") > 0 else None
        return until(ending) == "refused"

    def test_rows_are_erased_as_soon_as_the_disk_takes_it_and_not_asked_for_all_the_time(self):
        cluster = self.cluster
        for fails_at in range(4, 12):  # which write is an erase's depends on the order of two shards
            if self.start_on_disk(fails_at):
                break
            cluster.kill("a")
            self.restart("a")
            cluster.until_swept()
        time.sleep(1)
        self.assertIn(self.errors("a"), range(1, 300))
        cluster.kill("a")
        self.restart("a")
        cluster.check("the disk has room")


if __name__ == "__main__":
    unittest.main()
