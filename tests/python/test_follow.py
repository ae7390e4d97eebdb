"""embd.follow: what changes in a table, round after round, is the table at the step that each round names."""
import glob
import hashlib
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
import unittest

import msgpack
import numpy as np

import clusters
import embd
import wire
from embd_process import Embd


class Receiver:
    """A table by what rounds say."""

    def __init__(self):
        self.rows, self.n_rounds, self.n_all = {}, 0, 0

    def apply(self, round_):
        self.n_rounds += 1
        self.n_all += round_.all
        assert np.unique(round_.keys).size == round_.keys.size, "a key came twice in a round"
        if round_.all:
            self.rows.clear()
        for key in round_.gone.tolist():
            self.rows.pop(key, None)
        self.rows.update(zip(round_.keys.tolist(), round_.rows))
        return round_


def table_of(table):
    """All rows that the servers have."""
    return {int(k): v for batch in table.scan() for k, v in zip(batch.keys, batch.values)}


def same_rows(rows, expected):
    """Both have the same keys."""
    if expected:
        np.testing.assert_array_equal(np.stack([rows[key] for key in expected]), np.stack(list(expected.values())))


class Follow(clusters.ClusterTest):
    shards = 3

    def table(self, name="items", **fields):
        return self.client.create_table(name, 8, **{"optimizer": embd.Optimizer("adagrad", lr=0.1), **fields})

    def same(self, receiver, table):
        expected = table_of(table)
        self.assertEqual(receiver.rows.keys(), expected.keys())
        same_rows(receiver.rows, expected)

    def change(self, table, rng, keys=3000):
        """Some pushes and erases; returns nothing that a subscriber is told."""
        for _ in range(rng.integers(1, 6)):
            some = rng.integers(0, keys, rng.integers(1, 400)).astype(np.uint64)
            table.push(some, rng.standard_normal((some.size, 8), dtype=np.float32))
            if rng.random() < 0.5:
                table.erase(rng.integers(0, keys, 50).astype(np.uint64))

    def test_rounds_of_a_random_history_make_the_table(self):
        for n, fields in enumerate([{}, {"capacity": 300, "on_full": "evict_lfu"}, {"admit_after": 3}, {"dtype": "bf16"},
                                    {"optimizer": embd.Optimizer("adam", lr=0.1, update="global")}]):
            with self.subTest(fields):
                table, rng, receiver = self.table(f"random{n}", **fields), np.random.default_rng(n), Receiver()
                self.change(table, rng)
                rounds = embd.follow(self.client, table, interval=0)
                for _ in range(12):
                    got = receiver.apply(next(rounds))
                    self.assertEqual(got.step, table.step)
                    self.same(receiver, table)
                    self.change(table, rng)
                rounds.close()
                self.assertEqual(receiver.n_all, 1)

    def test_a_round_has_what_changed_once_and_nothing_else(self):
        table = self.table()
        table.push(range(1000), np.ones((1000, 8)))
        rounds = embd.follow(self.client, "items", interval=0, since_now=True)
        self.assertEqual((next(rounds).keys.size, next(rounds).keys.size), (0, 0))
        for _ in range(50):
            table.push([5, 6, 7], np.ones((3, 8)))
        table.erase([8, 9])
        got = next(rounds)
        self.assertEqual((sorted(got.keys), sorted(got.gone), got.step, got.all), ([5, 6, 7], [8, 9], 51, False))
        table.push([8], np.ones((1, 8)))
        table.erase([5])
        got = next(rounds)
        self.assertEqual((got.keys.tolist(), got.gone.tolist()), ([8], [5]))
        self.assertEqual(next(rounds).keys.size, 0)
        rounds.close()

    def test_rows_travel_as_f16_and_i8(self):
        table, receivers = self.table(), {}
        values = np.random.default_rng(4).standard_normal((500, 8), dtype=np.float32)
        table.put(range(500), values)
        for dtype, bound in ("f32", 0), ("f16", 2e-3), ("i8", 0.02):
            rounds = embd.follow(self.client, table, interval=0, dtype=dtype)
            got = receivers[dtype] = next(rounds)
            rounds.close()
            order = np.argsort(got.keys)
            np.testing.assert_allclose(got.rows[order], values, atol=bound * 4, rtol=bound)
        self.assertEqual([receivers[d].bytes for d in ("f32", "f16", "i8")], [500 * 40, 500 * 24, 500 * 20])

    def test_rows_change_while_they_are_read(self):
        table, receiver, stop = self.table("large"), Receiver(), threading.Event()
        keys = np.arange(200000, dtype=np.uint64)
        table.put(keys, np.zeros((keys.size, 8)))

        def push():
            with embd.connect(self.server.addresses[0]) as client:
                other, rng = client.table("large"), np.random.default_rng(5)
                while not stop.is_set():
                    some = rng.integers(0, 250000, 2000).astype(np.uint64)
                    other.push(some, np.ones((some.size, 8), np.float32))
                    other.erase(rng.integers(0, 250000, 100).astype(np.uint64))

        pusher = threading.Thread(target=push)
        pusher.start()
        rounds = embd.follow(self.client, table, interval=0)
        for _ in range(10):
            receiver.apply(next(rounds))
        stop.set()
        pusher.join()
        receiver.apply(next(rounds))
        self.same(receiver, table)
        self.assertEqual(receiver.n_all, 1)
        rounds.close()

    def test_a_question_that_long_requests_kept_waiting_gets_more_at_once(self):
        table, keys = self.table("large"), np.arange(600000, dtype=np.uint64)
        table.put(keys, np.zeros((keys.size, 8)))
        usual = (1 << 20) // (8 + 8 * 4)  # rows of 1 MiB
        with wire.connect(self.server, 0) as raw:
            part, sizes = {"id": 0, "part": 0, "chain": 0}, []
            while not part.get("last"):
                if len(sizes) == 3:  # the shard's thread has at least 6 ms of work with these
                    for _ in range(10):
                        table.push(keys[:200000], np.ones((200000, 8), np.float32))
                part = raw.call("changes", {"table": "large", "id": part["id"], "part": part["part"], "chain": part["chain"]})[0]
                self.assertFalse(part["waits"])
                sizes.append(part["rows"])
        self.assertEqual(sizes[0], usual)
        self.assertEqual(sizes[3], min(65536, 4 * usual))
        self.assertEqual(max(sizes), sizes[3])

    def test_slot_tables(self):
        table = self.table("slots", slots=2, slot_sizes=[10, 20], partition="slot", combiner="concat")
        rounds = embd.follow(self.client, table, interval=0)
        next(rounds)
        table.push([3, 4], np.ones((2, 8)))
        got = next(rounds)
        self.assertEqual(sorted(zip(got.slots.tolist(), got.keys.tolist())), [(0, 3), (1, 14)])
        table.erase([3, 4])
        got = next(rounds)
        self.assertEqual(sorted(zip(got.gone_slots.tolist(), got.gone.tolist())), [(0, 3), (1, 14)])
        rounds.close()

    def test_refusals(self):
        lazy = self.table("lazy", optimizer=embd.Optimizer("adam", lr=0.1, update="lazy_global"))
        with self.assertRaisesRegex(embd.UnsupportedError, "change without a push"):
            next(embd.follow(self.client, lazy))
        with self.assertRaises(embd.UnknownTableError):
            embd.follow(self.client, "nowhere")
        for wrong in {"interval": -1}, {"interval": 31}, {"dtype": "f64"}:
            with self.assertRaises(ValueError):
                embd.follow(self.client, lazy, **wrong)

    def test_a_table_has_seven_which_forget_nothing_and_the_dead_leave_nothing(self):
        table = self.table()
        table.push(range(100), np.ones((100, 8)))
        clients = [embd.connect(self.server.addresses[0]) for _ in range(7)]
        rounds = [embd.follow(c, "items", interval=0) for c in clients]
        for r in rounds:
            self.assertEqual(next(r).keys.size, 100)
        with self.assertRaisesRegex(embd.FullError, "7 subscriptions"):
            next(embd.follow(self.client, "items"))
        for turn in range(5):  # each has cuts of its own, also where others have had many rounds since
            table.push([turn], np.ones((1, 8)))
            for r in rounds[turn:]:
                got = next(r)
                self.assertEqual((got.all, turn in got.keys), (False, True))
        for turn, r in enumerate(rounds[:4]):
            got = next(r)
            self.assertEqual((got.all, sorted(got.keys)), (False, list(range(turn + 1, 5))))
        for client in clients:
            client.close()
        for _ in range(30):  # more than a table has
            with embd.connect(self.server.addresses[0]) as client:
                self.assertEqual(next(embd.follow(client, "items")).keys.size, 100)

    def test_a_table_that_is_created_anew_is_read_anew(self):
        table = self.table()
        table.push(range(100), np.ones((100, 8)))
        rounds = embd.follow(self.client, "items", interval=0)
        next(rounds)
        table.push(range(5), np.ones((5, 8)))
        with embd.connect(self.server.addresses[0]) as other:
            other.drop_table("items")
            other.create_table("items", 8, optimizer=embd.Optimizer("adagrad", lr=0.1)).push([7], np.ones((1, 8)))
        got = next(rounds)
        self.assertEqual((got.all, got.keys.tolist()), (True, [7]))
        rounds.close()

    def test_embctl_tail(self):
        self.table().push(range(100), np.ones((100, 8)))
        done = subprocess.run([os.path.join(os.environ["EMBD_BIN"], "embctl"), "-s", self.server.addresses[0], "tail",
                               "--rounds", "2", "--interval", "1", "items"], capture_output=True, text=True, timeout=30)
        self.assertEqual(done.stdout.splitlines(), ["round 1: step 1, all 100 rows, 0 gone, 4000 bytes",
                                                    "round 2: step 1, 0 rows, 0 gone, 0 bytes"], done.stderr)

class Between(threading.Thread):
    """Passes frames between one client and a server, and does with answers to `changes` what `tamper` says."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.to, self.tamper, self.calls, self.lost = address, None, {}, None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.start()

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        host, port = self.to.rsplit(":", 1)
        with client, socket.create_connection((host, int(port))) as server:
            reading, answers, before = unpacker(), unpacker(), None
            while True:
                data = client.recv(1 << 20)
                if not data:
                    return
                reading.feed(data)
                for message in reading:
                    answer = self.ask(server, answers, message)
                    if message[2] == "cluster":  # the client is to stay here
                        answer[3][0]["shards"][0]["address"] = "%s:%d" % self.listener.getsockname()
                    if message[2] == "hello":  # and to use no other socket or memory
                        answer[3][0] = {k: v for k, v in answer[3][0].items() if k != "local"}
                    if message[2] == "changes" and self.tamper and answer[3] and answer[3][0]["part"]:
                        answer, before = self.tampered(server, answers, message, answer, before), answer
                    elif message[2] == "changes":
                        before = answer
                    client.sendall(msgpack.packb(answer, use_bin_type=True))

    def ask(self, server, answers, message):
        server.sendall(msgpack.packb(message, use_bin_type=True))
        while True:
            for answer in answers:
                return answer
            answers.feed(server.recv(1 << 20))

    def tampered(self, server, answers, message, answer, before):
        tamper, self.tamper = self.tamper, None
        if tamper == "doubled":
            return [1, message[1], None, before[3]]
        if tamper == "changed":
            rows = bytearray(answer[3][3])
            rows[len(rows) // 2] ^= 1
            return [1, message[1], None, [*answer[3][:3], bytes(rows), *answer[3][4:]]]
        if tamper == "step":
            return [1, message[1], None, [{**answer[3][0], "step": answer[3][0]["step"] + 1}, *answer[3][1:]]]
        part = answer[3][0]  # lost: the one behind it comes in its place
        question = {**message[3][0], "id": part["id"], "part": part["part"], "chain": part["chain"]}
        return self.ask(server, answers, [0, message[1], "changes", [question]])


def unpacker():
    return msgpack.Unpacker(raw=False, max_bin_len=1 << 30, max_buffer_size=1 << 30, strict_map_key=False)


class Tampered(clusters.ClusterTest):
    def test_a_part_that_is_lost_doubled_or_changed_is_seen_and_the_table_read_anew(self):
        table = self.client.create_table("items", 32)
        keys = np.arange(60000, dtype=np.uint64)  # several parts
        table.put(keys, np.random.default_rng(1).standard_normal((keys.size, 32), dtype=np.float32))
        between = Between(self.server.addresses[0])
        self.addCleanup(between.listener.close)
        with embd.connect("%s:%d" % between.listener.getsockname(), deadline=5) as client:
            for tamper, says in [("lost", "lost, doubled or swapped"), ("doubled", "lost, doubled or swapped"),
                                 ("changed", "changed on its way"), ("step", "changed on its way"), (None, None)]:
                with self.subTest(tamper):
                    receiver, rounds = Receiver(), embd.follow(client, "items", interval=0)
                    receiver.apply(next(rounds))
                    table.put(keys, np.random.default_rng(2).standard_normal((keys.size, 32), dtype=np.float32))
                    between.tamper = tamper
                    if tamper:
                        with self.assertRaisesRegex(embd.Error, says) as caught:
                            next(rounds)
                        self.assertEqual(caught.exception.status, embd.Status.PROTOCOL)
                        rounds = embd.follow(client, "items", interval=0)
                    receiver.apply(next(rounds))
                    expected = table_of(table)
                    self.assertEqual(receiver.rows.keys(), expected.keys())
                    same_rows(receiver.rows, expected)
                    rounds.close()

    def test_questions_that_no_client_asks(self):
        self.client.create_table("items", 4).push([1, 2], np.ones((2, 4)))
        with wire.connect(self.server) as raw, wire.connect(self.server) as other:
            first = raw.call("changes", {"table": "items"})[0]
            self.assertEqual((first["part"], first["rows"], first["last"], first["all"]), (1, 2, True, True))
            for fields, number in [({}, wire.INVALID), ({"table": "x" * 300}, wire.INVALID), ({"table": "none"}, wire.UNKNOWN_TABLE),
                                   ({"table": "items", "dtype": "f99"}, wire.INVALID), ({"table": "items", "more": 1}, wire.INVALID),
                                   ({"table": "items", "id": -1}, wire.INVALID), ({"table": "items", "part": "1"}, wire.INVALID)]:
                with self.assertRaises(wire.RpcError) as caught:
                    raw.call("changes", fields)
                self.assertIn(caught.exception.number, (number, wire.MALFORMED), fields)
            mine = {"table": "items", "id": first["id"], "part": 1, "chain": first["chain"]}
            self.assertIn("no such subscription", other.call("changes", mine)[0]["gone"])
            again = raw.call("changes", mine)[0]
            self.assertEqual((again["part"], again["before"], again["all"]), (2, first["chain"], False))
            self.assertIn("not the last one", raw.call("changes", mine)[0]["gone"])  # it has a later part
            self.assertIn("no such subscription", raw.call("changes", mine)[0]["gone"])
        self.assertTrue(self.server.is_alive())


class Restarts(unittest.TestCase):
    def test_a_server_that_is_killed_is_read_anew(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Embd("--data-dir", folder)
            with embd.connect(server.addresses[0], deadline=20) as client:
                table = client.create_table("items", 8, optimizer=embd.Optimizer("adagrad", lr=0.1), durability="durable")
                table.push(range(5000), np.ones((5000, 8)))
                receiver, rounds = Receiver(), embd.follow(client, table, interval=0)
                receiver.apply(next(rounds))
                table.push(range(100), np.ones((100, 8)))
                server.kill()
                server = Embd("--data-dir", folder, listen=server.addresses[0])
                receiver.apply(next(rounds))
                self.assertEqual(receiver.n_all, 2)
                expected = table_of(table)
                self.assertEqual(receiver.rows.keys(), expected.keys())
                same_rows(receiver.rows, expected)
                rounds.close()
            self.assertEqual(server.stop(), 0)

    def test_snapshots_and_subscribers_wait_for_each_other_and_increments_stay_small(self):
        with tempfile.TemporaryDirectory() as folder, Embd("--data-dir", folder) as server, \
                embd.connect(server.addresses[0], deadline=20) as client, embd.connect(server.addresses[0]) as second, \
                embd.connect(server.addresses[0]) as pusher:
            table = pusher.create_table("items", 8)
            keys = np.arange(300000, dtype=np.uint64)
            table.put(keys, np.zeros((keys.size, 8)))
            embctl(server, "snapshot", "base")
            receivers = [Receiver(), Receiver()]
            rounds = [embd.follow(c, "items", interval=0) for c in (client, second)]
            stop = threading.Event()

            def snapshot():
                while not stop.is_set():
                    embctl(server, "dump", os.path.join(folder, "dump"), "--all")
                    shutil.rmtree(os.path.join(folder, "dump"))

            thread = threading.Thread(target=snapshot)
            thread.start()
            for n in range(20):  # more than a store keeps for snapshots
                table.push(keys[n * 10:n * 10 + 5], np.ones((5, 8)))
                for receiver, each in zip(receivers, rounds):
                    receiver.apply(next(each))
            stop.set()
            thread.join()
            expected = table_of(table)
            for receiver in receivers:
                self.assertEqual((receiver.n_all, receiver.rows.keys()), (1, expected.keys()))
                same_rows(receiver.rows, expected)
            embctl(server, "snapshot", "--incremental", "base", "upon")
            parts = [p for p in glob.glob(os.path.join(folder, "**", "upon", "*"), recursive=True) if "items" in p]
            self.assertLess(sum(os.path.getsize(p) for p in parts), 20000, "the increment has more than what changed")
            for each in rounds:
                each.close()


class Roles(unittest.TestCase):
    def test_a_reader_follows_its_tables_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            made = {}
            path = os.path.join(folder, "tokens")
            for name, role, tables in ("r", "reader", "ads_"), ("t", "trainer", "*"):
                made[name] = secrets.token_hex(32)
                with open(path, "a", encoding="utf-8") as f:
                    f.write(f"{name} {role} {tables} sha256:{hashlib.sha256(made[name].encode()).hexdigest()}\n")
            os.chmod(path, 0o600)
            with Embd("--tokens", path) as server, embd.connect(server.addresses[0], token=made["t"]) as trainer, \
                    embd.connect(server.addresses[0], token=made["r"]) as reader:
                for name in "ads_items", "other":
                    trainer.create_table(name, 4).push([1], np.ones((1, 4)))
                self.assertEqual(next(embd.follow(reader, "ads_items")).keys.tolist(), [1])
                with self.assertRaisesRegex(embd.Error, "not for this table"):
                    embd.follow(reader, "other")
                with wire.connect(server) as raw:
                    raw.call("hello", {"protocol": 1, "client": "test", "token": made["r"]})
                    with self.assertRaises(wire.RpcError) as caught:
                        raw.call("changes", {"table": "other"})
                    self.assertEqual(caught.exception.number, wire.UNKNOWN_TABLE)


def embctl(server, *arguments):
    subprocess.run([os.path.join(os.environ["EMBD_BIN"], "embctl"), "-s", server.addresses[0], *map(str, arguments)], check=True,
                   timeout=60, capture_output=True)


if __name__ == "__main__":
    clusters.main()
