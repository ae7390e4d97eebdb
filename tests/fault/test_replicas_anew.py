"""What becomes of a replica's readers where its tables go: they are dropped or leave the journal, or it begins anew with a
base. Nobody sees rows of another moment, an earlier position than before, or a lag that is too short."""
import os
import socket
import threading
import time
import unittest

import msgpack
import wire
from test_follow import digest, embctl, wait_for
from test_replicas import KEYS, PLACES, Replica, pull

GONE = "the test says so"


class Between(threading.Thread):
    """Passes what a follower asks on to its server, and may tell it to begin anew, or hold its questions back."""

    def __init__(self, path, server):
        super().__init__(daemon=True)
        self.to, self.says_gone = server.admin_path(0), False
        shards = [{"address": server.addresses[0], "admin": path}]
        self.map = {"name": "embd", "version": 1, "shard": 0, "shards": shards}
        self.passes = threading.Event()
        self.passes.set()
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

    def back(self, there, peer):
        try:
            while data := there.recv(1 << 16):
                peer.sendall(data)
        except OSError:
            pass
        peer.close()

    def serve(self, peer):
        there = socket.socket(socket.AF_UNIX)
        there.connect(self.to)
        threading.Thread(target=self.back, args=(there, peer), daemon=True).start()
        unpacker = msgpack.Unpacker(raw=False)
        try:
            while data := peer.recv(1 << 16):
                unpacker.feed(data)
                for message in unpacker:
                    self.pass_on(peer, there, message)
        except OSError:
            pass
        there.close()

    def pass_on(self, peer, there, message):
        _, msgid, method, params = message
        if method == "cluster":  # else the follower would go to the server itself
            peer.sendall(msgpack.packb([1, msgid, None, [self.map]], use_bin_type=True))
            return
        if method == "follow":
            if self.says_gone and not params[0]["base"]:
                self.says_gone = False
                self.passes.clear()
                gone = {"epoch": 0, "position": 0, "end": 0, "gone": GONE}
                peer.sendall(msgpack.packb([1, msgid, None, [gone, b"", b""]], use_bin_type=True))
                return
            if not params[0]["base"]:
                self.passes.wait(60)
        there.sendall(msgpack.packb(message, use_bin_type=True))


class Anew(Replica):
    def with_base(self):
        """A server whose base has rows of 1.0, and 2.0 behind it; its replica, and who is between them."""
        primary = self.start_primary()
        with wire.connect(primary) as peer:
            table = wire.create(peer, "a", durability="buffered")
            mine = wire.create(peer, "mine", durability="snapshot")
            wire.push(peer, mine, PLACES, [0.0] * 4 * KEYS)
            wire.push(peer, table, PLACES, [0.0] * 4 * KEYS)
            peer.call("table_set", {"name": "mine", "set": {"durability": "buffered"}})
            wait_for(lambda: any(name.endswith(".base") for name in os.listdir(self.path("primary"))), primary.log)
            time.sleep(0.3)
            wire.push(peer, table, PLACES, [-2.0] * 4 * KEYS)
        path = os.path.join(self.path("admin"), "between.sock")
        between = Between(path, primary)
        between.start()
        self.addCleanup(between.server.close)
        replica = self.start("follower", self.own, "--follow", path, "--serve", "yes", waits=False)
        self.compare(primary, replica)
        return primary, replica, table, between

    def refused(self, peer, table):
        """The number of the error that a pull ends with; None: rows came."""
        try:
            return pull(peer, table, [1], max_behind=0) and None
        except wire.RpcError as e:
            return e.number

    def test_an_older_base_is_not_shown_and_not_called_fresh(self):
        primary, replica, table, between = self.with_base()
        with wire.connect(replica) as peer:
            wait_for(lambda: pull(peer, table, [1], max_behind=0)[0]["behind_ms"] < 2000, replica.log)
            before, rows = pull(peer, table, [1], max_behind=0)
            self.assertEqual(rows, [2.0])
            between.says_gone = True
            wait_for(lambda: replica.log().count("follow_has_base") == 2, replica.log)
            self.assertIn(GONE, replica.log())
            for _ in range(20):  # the base is there, and records behind it are not
                self.assertEqual(self.refused(peer, table), wire.LOADING)
                time.sleep(0.02)
            between.passes.set()
            wait_for(lambda: self.refused(peer, table) is None, replica.log)
            after, rows = pull(peer, table, [1], max_behind=0)
            self.assertEqual(rows, [2.0])
            self.assertGreaterEqual(after["position"], before["position"])
        self.compare(primary, replica)

    def test_beginning_anew_waits_for_answers_that_have_no_room(self):
        primary, replica, table, between = self.with_base()
        with wire.connect(primary) as peer:
            wide = wire.create(peer, "wide", dim=1024, durability="buffered")
            wire.push(peer, wide, [1], [-2.0] * 1024)
        self.compare(primary, replica)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        n = (1 << 26) // 4096 - 16
        limit = max(memory // 4, 1 << 28)  # of answers that are kept; a part of each is in sockets
        readers = [wire.connect(replica, timeout=60) for _ in range(limit // (4096 * n) * 3 // 2 + 1)]
        for reader in readers:
            reader.begin("pull", {"parts": [{"table": wide, "keys": n}]}, wire.keys([1] * n))
        time.sleep(0.5)
        between.says_gone = True
        between.passes.set()
        replica.wait_log("follow_begins_anew", 20)
        between.passes.set()
        time.sleep(0.5)
        self.assertEqual(replica.log().count("follow_has_base"), 1)  # it waits
        with wire.connect(replica) as peer:
            self.assertEqual(self.refused(peer, table), wire.LOADING)
        replica.pause()  # or it would keep some gigabytes in the meantime
        for reader in readers[1:]:
            reader.close()
        replica.go_on()
        rows = readers[0].receive()[3][1]
        readers[0].close()
        self.assertEqual(bytes(rows), wire.floats([2.0] * 1024) * n)
        self.compare(primary, replica)
        self.assertEqual(replica.log().count("follow_has_base"), 2)

    def half_read(self, change):
        """Rows of an answer that is half sent while the server makes a change, and the replica takes it."""
        primary, replica, table = self.both(self.wide)
        many = self.many()
        with wire.connect(primary) as peer:
            wire.push(peer, table, PLACES, [-2.0] * self.wide * KEYS)
        wait_for(lambda: self.value(replica, table) == 2.0, replica.log)
        with wire.connect(replica) as peer:
            peer.begin("pull", {"parts": [{"table": table, "keys": len(many)}]}, wire.keys(many))
            time.sleep(0.3)
            change(primary)
            wait_for(lambda: "a" not in digest(replica), replica.log)
            with wire.connect(primary) as other:  # memory that was the table's is used again
                more = wire.create(other, "more", dim=self.wide, durability="buffered", value=9.0)
                wire.push(other, more, PLACES, [0.0] * self.wide * KEYS)
            wait_for(lambda: digest(replica)["more"]["rows"] == KEYS, replica.log)
            rows = wire.unfloats(peer.receive()[3][1])
        self.assertEqual(rows, [2.0] * self.wide * len(many))

    def test_half_sent_answers_outlive_a_table_that_is_dropped(self):
        def drop(primary):
            with wire.connect(primary) as peer:
                peer.call("table_drop", {"name": "a"})
        self.half_read(drop)

    def test_half_sent_answers_outlive_a_table_that_leaves_the_journal(self):
        def leave(primary):
            self.assertEqual(embctl(primary, "table", "set", "a", "durability=snapshot").returncode, 0)
        self.half_read(leave)

    def read_cut(self, replica, name):
        """A cut of the replica whose rows an admin reads: (the connection, its number)"""
        peer = wire.Wire(replica.admin_path(0))
        self.addCleanup(peer.close)
        job = peer.call("snapshot", {"name": name, "phase": "start", "read": True})[0]["job"]

        def lists():
            try:
                return peer.call("scan", {"cut": job})[0]["tables"]
            except wire.RpcError:
                return None
        wait_for(lists, replica.log)
        return peer, job

    def test_a_dump_of_a_replica_ends_with_a_table_that_goes(self):
        for number, change in enumerate((
                lambda peer: peer.call("table_drop", {"name": "a"}),
                lambda peer: peer.call("table_set", {"name": "a", "set": {"durability": "snapshot"}}))):
            with self.subTest(change=number):
                if number > 0:
                    self.doCleanups()
                    self.setUp()
                primary, replica, _ = self.both()
                peer, job = self.read_cut(replica, f"d{number}")
                self.assertEqual(peer.call("scan", {"cut": job, "table": "a", "bytes": 256, "digest": True})[0]["next"], 1)
                with wire.connect(primary) as other:
                    change(other)
                    wire.create(other, "after", durability="buffered")
                wait_for(lambda: "after" in [t["name"] for t in peer.call("tables")[0]["tables"]], replica.log)
                with self.assertRaises(wire.RpcError) as refused:
                    peer.call("scan", {"cut": job, "table": "a", "cursor": 1, "bytes": 256, "digest": True})
                self.assertIn("has ended", refused.exception.text)
                self.assertEqual([t["name"] for t in peer.call("tables")[0]["tables"]], ["after"])


if __name__ == "__main__":
    unittest.main()
