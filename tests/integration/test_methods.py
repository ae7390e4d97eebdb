"""The service as a client in another language sees it, with nothing but msgpack and a socket."""
import unittest

from embd_process import Embd
import wire

KEYS = wire.owned(40000, 0, 2)
A, B, C = KEYS[:3]


class Methods(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Embd(shards=2)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def setUp(self):
        self.wire = wire.connect(self.server)
        self.addCleanup(self.wire.close)

    def test_hello_tells_version_limits_and_place(self):
        hello = self.wire.call("hello", {"protocol": 1, "client": "test"})[0]
        self.assertEqual(hello["protocol"], 1)
        self.assertEqual((hello["shard"], hello["shards"]), (0, 2))
        self.assertEqual(hello["requests"], 64)
        self.assertEqual(hello["frame_bytes"], 64 << 20)

    def test_ping_answers_also_without_a_map(self):
        self.assertEqual(self.wire.call("ping"), [{}])
        self.assertEqual(self.wire.call("ping", {}), [{}])

    def test_cluster_names_all_shards_as_they_listen(self):
        cluster = self.wire.call("cluster")[0]
        self.assertEqual([s["address"] for s in cluster["shards"]], self.server.addresses)
        self.assertEqual([s["admin"] for s in cluster["shards"]],
                         [self.server.admin_path(0), self.server.admin_path(1)])

    def test_a_pushed_gradient_moves_exactly_its_rows(self):
        table = wire.create(self.wire, "moved", dim=2, value=1.0)
        self.assertEqual(wire.pull(self.wire, table, [A, B]), [1.0, 1.0, 1.0, 1.0])
        done = wire.push(self.wire, table, [A], [0.5, -1.0])
        self.assertEqual((done["step"], done["inserted"]), (1, 1))
        self.assertEqual(wire.pull(self.wire, table, [B, A, 2**64 - 1]), [1.0, 1.0, 0.75, 1.5, 1.0, 1.0])

    def test_a_pooled_row_is_the_sum_of_its_keys(self):
        schema = wire.constant_schema("pooled", dim=2, value=2.0, combiner="sum")
        table = self.wire.call("table_create", {"schema": schema})[0]["id"]
        answer = self.wire.call("pull", {"parts": [{"table": table, "keys": 3, "rows": 2}]},
                                wire.keys([A, B, C]), wire.offsets([0, 3, 3]))
        self.assertEqual(wire.unfloats(answer[1]), [6.0, 6.0, 0.0, 0.0])

    def test_tables_are_listed_described_and_dropped(self):
        wire.create(self.wire, "listed", dim=3)
        self.assertIn("listed", [t["name"] for t in self.wire.call("tables")[0]["tables"]])
        self.assertEqual(self.wire.call("table_describe", {"name": "listed"})[0]["schema"]["dim"], 3)
        self.wire.call("table_drop", {"name": "listed"})
        with self.assertRaises(wire.RpcError) as caught:
            self.wire.call("table_describe", {"name": "listed"})
        self.assertEqual(caught.exception.number, wire.UNKNOWN_TABLE)
        self.assertIn("listed", caught.exception.text)

    def test_several_parts_travel_in_one_message(self):
        a, b = wire.create(self.wire, "part_a", dim=1, value=3.0), wire.create(self.wire, "part_b", dim=2)
        answer = self.wire.call("pull", {"parts": [{"table": a, "keys": 1, "status": True}, {"table": b, "keys": 2}]},
                                wire.keys([A]), wire.keys([A, B]))
        self.assertEqual(wire.unfloats(answer[1]), [3.0])
        self.assertEqual(answer[2], b"\x02")  # missing: no row yet
        self.assertEqual(wire.unfloats(answer[3]), [1.0] * 4)

    def test_200_requests_sent_at_once_are_all_answered(self):
        table = wire.create(self.wire, "pipelined", dim=1, value=0.0)
        burst, first = b"", 1000
        for i in range(100):
            burst += wire.request(first + 2 * i, "push", {"parts": [{"table": table, "keys": 1}]}, wire.keys([C]),
                                  wire.floats([-2.0]))
            burst += wire.request(first + 2 * i + 1, "pull", {"parts": [{"table": table, "keys": 1}]}, wire.keys([C]))
        self.wire.send(burst)
        answers = {}
        while len(answers) < 200:
            _, msgid, error, result = self.wire.receive()
            self.assertIsNone(error)
            answers[msgid] = result
        for i in range(100):  # each pull shows the pushes sent before it, and none sent after
            self.assertEqual(wire.unfloats(answers[first + 2 * i + 1][1]), [i + 1.0])

    def test_a_push_after_unread_pulls_does_not_change_what_they_show(self):
        table = wire.create(self.wire, "cut", dim=64, value=1.0)
        n = 40000  # 10 MB an answer: more than the sockets hold
        one_pull = {"parts": [{"table": table, "keys": n}]}
        key_bin = wire.keys(KEYS[:n])
        first = self.wire.begin("pull", one_pull, key_bin)
        self.wire.begin("push", {"parts": [{"table": table, "keys": n}]}, key_bin, wire.floats([2.0] * (64 * n)))
        last = self.wire.begin("pull", one_pull, key_bin)
        answers = {}
        for _ in range(3):
            _, msgid, error, result = self.wire.receive()
            self.assertIsNone(error)
            answers[msgid] = result
        self.assertEqual(set(wire.unfloats(answers[first][1])), {1.0})
        self.assertEqual(set(wire.unfloats(answers[last][1])), {0.0})

    def test_bytes_that_come_one_by_one_make_the_same_message(self):
        table = wire.create(self.wire, "dripped", dim=1, value=4.0)
        for byte in wire.request(77, "pull", {"parts": [{"table": table, "keys": 2}]}, wire.keys([A, B])):
            self.wire.send(bytes([byte]))
        self.assertEqual(wire.unfloats(self.wire.receive()[3][1]), [4.0, 4.0])

    def test_a_large_frame_may_be_cut_anywhere(self):
        table = wire.create(self.wire, "cut_anywhere", dim=8, value=0.0)
        n = 20000
        grads = [float(k % 97) for k in range(n) for _ in range(8)]
        data = wire.request(5, "push", {"parts": [{"table": table, "keys": n}]}, wire.keys(KEYS[:n]), wire.floats(grads))
        at, size = 0, 1
        while at < len(data):
            self.wire.send(data[at:at + size])
            at, size = at + size, size * 7 % 100003
        self.assertIsNone(self.wire.receive()[2])
        self.assertEqual(wire.pull(self.wire, table, KEYS[:n]), [g * -0.5 for g in grads])

    def test_notifications_are_ignored(self):
        import msgpack
        table = wire.create(self.wire, "noticed", dim=1)
        params = [{"parts": [{"table": table, "keys": 1}]}, wire.keys([A]), wire.floats([1.0])]
        self.wire.send(msgpack.packb([2, "nobody_knows", [1, "x"]]))
        self.wire.send(msgpack.packb([2, "push", params], use_bin_type=True))
        self.wire.send(msgpack.packb([2, "push", [{}, bytes(1 << 20)]], use_bin_type=True))
        self.assertEqual(wire.pull(self.wire, table, [A]), [1.0])

    def test_an_end_of_the_peers_stream_still_lets_it_read_the_answer(self):
        import socket
        self.wire.begin("ping")
        self.wire.socket.shutdown(socket.SHUT_WR)
        self.assertEqual(self.wire.receive()[3], [{}])
        self.assertIsNone(self.wire.receive())

    def test_stats_count_what_happened(self):
        table = wire.create(self.wire, "counted", dim=1)
        before = self.wire.call("stats")[0]["stats"]
        wire.pull(self.wire, table, [A, B, C])
        after = self.wire.call("stats")[0]["stats"]
        self.assertEqual(after["requests_pull"] - before["requests_pull"], 1)
        self.assertEqual(after["keys_pulled"] - before["keys_pulled"], 3)
        self.assertGreater(after["bytes_in"], before["bytes_in"])
        self.assertGreaterEqual(after["connections"], 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
