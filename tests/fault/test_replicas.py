"""A follower with --serve yes answers reads: every pull shows the tables at one position of the server's history, never an
earlier one than before on that connection, and says how old that may be. It changes nothing, whatever it is asked."""
import threading
import time
import unittest

import wire
from embd_process import run
from test_follow import Follow, digest, wait_for

KEYS, EACH = 64, 16
PLACES = list(range(1, KEYS + 1))


def touched(step):
    return [1 + (step * 7 + j) % KEYS for j in range(EACH)]


def states(steps):
    """{the table's rows, one number each: after how many pushes}, by plain additions."""
    rows, known = [1.0] * KEYS, {}
    known[tuple(rows)] = 0
    for step in range(steps):
        for key in touched(step):
            rows[key - 1] += 1.0
        known[tuple(rows)] = step + 1
    return known


def pull(peer, table, keys, **fields):
    """(what the answer says, one number a row)"""
    answer = peer.call("pull", {"parts": [{"table": table, "keys": len(keys)}], **fields}, wire.keys(keys))
    return answer[0], wire.unfloats(answer[1])[::4]


class Trainer(threading.Thread):
    """Pushes as fast as it may; each gradient makes its row 1 greater."""

    def __init__(self, server, table, steps):
        super().__init__(daemon=True)
        self.server, self.table, self.steps, self.acked, self.sent = server, table, steps, 0, 0

    def run(self):
        grads = wire.floats([-2.0] * 4 * EACH)
        with wire.connect(self.server) as peer:
            for step in range(self.steps):
                while self.sent - self.acked >= 8:
                    self.take(peer)
                self.sent = step + 1  # before others can see it
                peer.begin("push", {"parts": [{"table": self.table, "keys": EACH}]}, wire.keys(touched(step)), grads)
            while self.acked < self.sent:
                self.take(peer)

    def take(self, peer):
        assert peer.receive()[2] is None
        self.acked += 1


class Replica(Follow):
    shards = 1
    wide = 4  # columns of a table of which many rows are pulled

    def many(self):
        """Keys of 48 MiB of rows, more than sockets take."""
        return PLACES * (196608 // self.wide)

    def start_replica(self, *flags):
        return self.start_follower("--serve", "yes", *flags)

    def both(self, dim=4):
        """A server with the table, whose rows are 1.0, and a replica that has it."""
        primary, replica = self.start_primary(), self.start_replica()
        with wire.connect(primary) as peer:
            table = wire.create(peer, "a", dim=dim, durability="buffered")
            wire.push(peer, table, PLACES, [0.0] * dim * KEYS)
        self.compare(primary, replica)
        return primary, replica, table

    def value(self, server, table):
        with wire.connect(server) as peer:
            return pull(peer, table, [1])[1][0]


class Replicas(Replica):
    def test_every_pull_is_the_table_at_a_position_and_never_an_earlier_one(self):
        primary, replica, table = self.both()
        steps = 6000
        known = states(steps)
        trainer = Trainer(primary, table, steps)
        seen, told, n = 0, 0, 0
        with wire.connect(replica) as peer:
            begin = pull(peer, table, PLACES, max_behind=0)[0]["position"]
            trainer.start()
            while trainer.is_alive() or seen < steps:
                answer, rows = pull(peer, table, PLACES, max_behind=0)
                self.assertIn(tuple(rows), known)
                at = known[tuple(rows)]
                self.assertLessEqual(seen, at)
                self.assertLessEqual(told, answer["position"])
                self.assertLessEqual(answer["position"] - begin, at)  # a push is a record
                self.assertLessEqual(at, trainer.sent)
                self.assertLess(answer["behind_ms"], 20000)
                seen, told, n = at, answer["position"], n + 1
        self.assertGreater(n, 20)
        self.compare(primary, replica)

    def test_what_was_acknowledged_before_the_lag_that_an_answer_tells_is_there(self):
        primary, replica, table = self.both()
        trainer, acked = Trainer(primary, table, 6000), []
        known = states(6000)
        with wire.connect(replica) as peer:
            trainer.start()
            while trainer.is_alive():
                acked.append((time.monotonic(), trainer.acked))
                answer, rows = pull(peer, table, PLACES, max_behind=0)
                then = time.monotonic() - answer["behind_ms"] / 1000
                before = [n for at, n in acked if at <= then - 0.001]
                # `then` is later than the server's: the answer took a moment; what was acknowledged by its start counts.
                sure = [n for at, n in acked if at <= acked[-1][0] - answer["behind_ms"] / 1000 - 0.001]
                self.assertLessEqual(max(sure, default=0), known[tuple(rows)], (before, answer))
        self.assertGreater(len(acked), 20)

    def test_pulls_on_it_make_no_row_and_count_no_candidate(self):
        primary, replica, _ = self.both()
        random = {"initializer": {"kind": "uniform", "a": -1.0, "b": 1.0}, "durability": "buffered"}
        with wire.connect(primary) as peer:
            some = wire.create(peer, "some", on_full="evict_lru", capacity=2, **random)
            slow = wire.create(peer, "slow", admit_after=3, **random)
            for table in (some, slow):
                wire.push(peer, table, [5, 6], [1.0] * 8)
        there = self.compare(primary, replica)
        keys = [5, 6, 2**40]

        def ask(server):
            with wire.connect(server) as peer:
                return [peer.call("pull", {"parts": [{"table": table, "keys": 3, "status": True}]}, wire.keys(keys))[1:]
                        for table in (some, slow)]
        for _ in range(5):
            mine = ask(replica)
        self.assertEqual([list(statuses) for _, statuses in mine], [[0, 0, 2], [2, 2, 2]])
        self.assertEqual(digest(replica), there)
        self.assertEqual(ask(primary), mine)
        with wire.connect(primary) as peer:  # the third time that these keys are pushed
            wire.push(peer, slow, [5, 6], [1.0] * 8)
            wire.push(peer, slow, [5, 6], [1.0] * 8)
        self.assertEqual(self.compare(primary, replica)["slow"]["rows"], 2)
        with wire.connect(replica) as peer:
            self.assertEqual(len(peer.call("get", {"table": "some", "keys": 3}, wire.keys(keys))[2]), 48)

    def test_changes_are_refused_and_name_the_server(self):
        primary, replica, table = self.both()
        there = digest(replica)
        one = {"table": table, "keys": 1}
        grads = wire.floats([1.0] * 4)
        with wire.connect(replica) as peer:
            for method, fields, bins in (
                    ("push", {"parts": [one]}, (wire.keys([1]), grads)),
                    ("erase", {"parts": [one]}, (wire.keys([1]),)),
                    ("table_create", {"schema": wire.constant_schema("b")}, ()),
                    ("table_drop", {"name": "a"}, ()),
                    ("table_set", {"name": "a", "set": {"optimizer.lr": 0.1}}, ()),
                    ("put", {"table": "a", "keys": 1}, (wire.keys([1]), grads)),
                    ("stream_open", {"high": 1, "low": 2, "stream": 3, "journaled": True}, ()),
                    ("tick", {}, ())):
                with self.assertRaises(wire.RpcError) as refused:
                    peer.call(method, fields, *bins)
                self.assertEqual(refused.exception.number, wire.UNSUPPORTED, refused.exception)
                self.assertIn(f"replica of 127.0.0.1:{primary.port()}", refused.exception.text)
                self.assertIn(f"for {method}", refused.exception.text)
            self.assertEqual(pull(peer, table, [1])[1], [1.0])
        self.assertEqual(digest(replica), there)

    def test_max_behind(self):
        primary, replica, table = self.both()
        with wire.connect(replica) as peer:
            wait_for(lambda: pull(peer, table, [1], max_behind=0)[0]["behind_ms"] < 2000, replica.log)
            primary.pause()
            time.sleep(2.5)
            with self.assertRaises(wire.RpcError) as refused:
                pull(peer, table, [1], max_behind=2000)
            self.assertEqual(refused.exception.number, wire.LOADING)
            self.assertRegex(refused.exception.text, r"is \d{4} ms behind, and max_behind is 2000")
            answer, rows = pull(peer, table, [1], max_behind=0)
            self.assertGreater(answer["behind_ms"], 2000)
            self.assertEqual(rows, [1.0])
            primary.go_on()
            wait_for(lambda: pull(peer, table, [1], max_behind=0)[0]["behind_ms"] < 2000, replica.log)
            self.assertEqual(pull(peer, table, [1], max_behind=2000)[1], [1.0])
            for wrong in (-1, 86400001, "1"):
                with self.assertRaises(wire.RpcError) as refused:
                    pull(peer, table, [1], max_behind=wrong)
                self.assertIn("max_behind", refused.exception.text)
            self.assertEqual(pull(peer, table, [1])[0], {"parts": [{"rows": 1, "dim": 4, "dtype": "f32"}]})
        with wire.connect(primary) as peer:  # which is not behind
            self.assertEqual(pull(peer, table, [1], max_behind=1)[0]["behind_ms"], 0)
            with self.assertRaises(wire.RpcError):
                peer.call("push", {"parts": [{"table": table, "keys": 0}], "max_behind": 1}, b"", b"")

    def test_without_a_base_or_serve_it_answers_loading(self):
        primary, replica, table = self.both()
        primary.kill()
        replica.kill()
        plain = self.start_follower()
        with wire.connect(plain) as peer:
            with self.assertRaises(wire.RpcError) as refused:
                pull(peer, table, [1])
        self.assertEqual(refused.exception.number, wire.LOADING)
        plain.kill()
        replica = self.start_replica()  # what it has it shows; nobody says how old that is
        with wire.connect(replica) as peer:
            wait_for(lambda: self.answers(peer, table), replica.log)
            self.assertEqual(pull(peer, table, [1], max_behind=0)[0]["behind_ms"], 86400000)
            with self.assertRaises(wire.RpcError):
                pull(peer, table, [1], max_behind=80000000)
        lone = run("--http", "off", "--listen", "127.0.0.1:0", "--data-dir", self.path("primary"), "--serve", "yes")
        self.assertIn("serve: is for a server that follows another one", lone.stderr)
        lost = run("--http", "off", "--listen", "127.0.0.1:0", "--data-dir", self.path("primary"), "--follow", "etcd://127.0.0.1:1/")
        self.assertIn("--follow: 'etcd://127.0.0.1:1/' has no prefix", lost.stderr)

    def answers(self, peer, table):
        try:
            return pull(peer, table, [1])[1] == [1.0]
        except wire.RpcError as e:
            self.assertEqual(e.number, wire.LOADING)
            return False

    def test_half_sent_answers_outlive_a_follower_that_begins_anew(self):
        primary, replica, table = self.both(self.wide)
        with wire.connect(primary) as peer:
            mine = wire.create(peer, "mine", durability="snapshot")
            wire.push(peer, mine, PLACES, [0.5] * 4 * KEYS)
            wire.push(peer, table, PLACES, [-2.0] * self.wide * KEYS)
        wait_for(lambda: self.value(replica, table) == 2.0, replica.log)
        many = self.many()
        with wire.connect(replica) as peer:
            peer.begin("pull", {"parts": [{"table": table, "keys": len(many)}]}, wire.keys(many))
            time.sleep(0.5)
            replica.pause()
            time.sleep(0.3)  # its question is answered: there is nothing
            with wire.connect(primary) as other:
                other.call("table_set", {"name": "mine", "set": {"durability": "buffered"}})
                wire.push(other, table, PLACES, [-2.0] * self.wide * KEYS)  # a base has these rows, and a record that it never gets
            time.sleep(1.5)  # a base is written, and records before it go
            replica.go_on()
            replica.wait_log("follow_begins_anew", 20)
            time.sleep(0.3)
            rows = wire.unfloats(peer.receive()[3][1])
        self.assertEqual(rows, [2.0] * self.wide * len(many))  # neither first values nor those of the base
        self.compare(primary, replica)

    def test_a_replica_that_is_promoted_takes_pushes(self):
        primary, replica, table = self.both()
        replica.stop()
        primary.kill()
        promoted = self.start("follower", self.own, "--follow", primary.admin_path(0), "--serve", "yes", "--promote")
        with wire.connect(promoted) as peer:
            wire.push(peer, table, [1], [-2.0] * 4)
            answer, rows = pull(peer, table, [1, 2], max_behind=1)
        self.assertEqual((answer["behind_ms"], rows), (0, [2.0, 1.0]))


if __name__ == "__main__":
    unittest.main()
