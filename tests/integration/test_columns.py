"""Parts as columns, made here from PROTOCOL.md alone: they do what maps do, and nothing false in them is believed."""
import struct
import unittest

from embd_process import Embd
import wire

OFFSETS, SLOTS, WEIGHTS, STATUS, ZERO, SCALE, SCORES = 1, 2, 4, 8, 16, 32, 64
KEYS = list(range(1, 9))


def record(table, keys, rows=None, flags=0, dtype=0, lr=0.0, grads=0):
    return struct.pack("<IIIHHfI", table, keys, keys if rows is None else rows, flags, dtype, lr, grads)


def padded(data):
    return data + bytes(-len(data) % 8)


def column(*arrays):
    return b"".join(map(padded, arrays))


class Columns(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Embd()

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def setUp(self):
        self.wire = wire.connect(self.server)
        self.addCleanup(self.wire.close)

    def create(self, n, dim=3):
        names = [f"{self.id().rsplit('.', 1)[1][:40]}_{i}" for i in range(n)]
        return [wire.create(self.wire, name, dim=dim) for name in names]

    def push(self, tables, grads, lr=0.0, **others):
        """Key i of table i gets the gradients."""
        bins = [b"".join(record(t, 1, lr=lr, grads=12, flags=STATUS) for t in tables),
                wire.keys(range(len(tables))), b"", b"", b"", column(*[wire.floats(grads)] * len(tables))]
        for index, value in others.items():
            bins[int(index[1:])] = value
        return self.wire.call("push", {"columns": len(tables)}, *bins)

    def pull(self, tables):
        bins = [b"".join(record(t, 1) for t in tables), wire.keys(range(len(tables))), b"", b"", b""]
        return self.wire.call("pull", {"columns": len(tables)}, *bins)

    def test_the_server_says_that_it_takes_them(self):
        self.assertIn("columns", self.wire.call("hello", {"protocol": 1})[0]["features"])

    def test_three_hundred_tables_are_pushed_and_pulled_at_once(self):
        tables = self.create(300)
        answer = self.push(tables, [2.0, 0.0, -4.0])
        self.assertEqual([(p["step"], p["inserted"]) for p in answer[0]["parts"]], [(1, 1)] * 300)
        self.assertEqual(answer[1:], [b"\1"] * 300)
        answer = self.pull(tables)
        self.assertEqual(len(answer[0]["parts"]), 300)
        self.assertEqual([wire.unfloats(rows) for rows in answer[1:]], [[0.0, 1.0, 3.0]] * 300)
        self.assertEqual(wire.pull(self.wire, tables[7], [7, 8]), [0.0, 1.0, 3.0, 1.0, 1.0, 1.0])

    def test_kinds_of_parts_stand_side_by_side(self):
        plain = wire.create(self.wire, "side_plain", dim=1)
        pooled = self.wire.call("table_create", {"schema": wire.constant_schema("side_pooled", dim=1, combiner="sum")})[0]["id"]
        slotted = self.wire.call("table_create", {"schema": wire.constant_schema(
            "side_slotted", dim=1, partition="slot", slots=3)})[0]["id"]
        records = record(plain, 3, flags=STATUS | ZERO) + record(pooled, 3, rows=2, flags=OFFSETS | WEIGHTS) + \
            record(slotted, 1, flags=SLOTS) + record(pooled, 1)
        answer = self.wire.call("pull", {"columns": 4}, records, wire.keys([1, 2, 3, 4, 5, 6, 7, 8]),
                                column(wire.offsets([0, 1, 3])), column(struct.pack("<H", 2)),
                                column(wire.floats([2.0, 3.0, 4.0])))
        self.assertEqual(wire.unfloats(answer[1]), [0.0] * 3)
        self.assertEqual(answer[2], b"\2\2\2")
        self.assertEqual([wire.unfloats(rows) for rows in answer[3:]], [[2.0, 7.0], [1.0], [1.0]])

    def test_an_erase_may_have_them(self):
        tables = self.create(100)
        self.push(tables, [1.0, 1.0, 1.0])
        answer = self.wire.call("erase", {"columns": 100}, b"".join(record(t, 1) for t in tables),
                                wire.keys(range(100)), b"", b"", b"")
        self.assertEqual([p["erased"] for p in answer[0]["parts"]], [1] * 100)
        self.assertEqual(wire.unfloats(self.pull(tables)[100]), [1.0, 1.0, 1.0])

    def test_parts_have_their_own_learning_rates(self):
        tables = self.create(2)
        self.push(tables, [1.0, 0.0, 0.0], lr=0.25)
        self.assertEqual(wire.unfloats(self.pull(tables)[2]), [0.75, 1.0, 1.0])

    def test_some_parts_have_scores(self):
        scored = wire.create(self.wire, "scored", dim=1, capacity=2, on_full="evict_score")
        plain = wire.create(self.wire, "unscored", dim=1)

        def push(records, keys, scores):
            return self.wire.call("push", {"columns": len(records)}, b"".join(records), column(*map(wire.keys, keys)), b"", b"", b"",
                                  column(*map(wire.floats, scores)), column(*[wire.floats([1.0] * len(k)) for k in keys]))
        push([record(plain, 1, grads=4), record(scored, 3, flags=SCORES, grads=12)], [[1], [1, 2, 2]], [[1.0, -2.0, 2.0]])
        push([record(scored, 1, flags=SCORES, grads=4)], [[3]], [[9.0]])
        answer = self.wire.call("get", {"table": "scored", "keys": 3}, wire.keys([1, 2, 3]))
        self.assertEqual(answer[1], b"\2\0\0")
        for wrong, said in ((record(plain, 1, flags=SCORES, grads=4), "part 0 scores: given, but table 'unscored'"),
                            (record(scored, 1, flags=SCORES, grads=4), r"part 0 scores\[0\] is -?nan, expected")):
            with self.assertRaisesRegex(wire.RpcError, said):
                push([wrong], [[4]], [[float("nan") if "nan" in said else 1.0]])

    def test_what_is_false_is_refused_and_changes_nothing(self):
        tables = self.create(3)
        good = [record(t, 1, grads=12) for t in tables]
        infinite = column(wire.floats([1.0] * 3), wire.floats([1.0] * 3), wire.floats([1.0, float("inf"), 1.0]))
        for others, number, text in [
                ({"_0": good[0] + good[1] + record(tables[0], 1, grads=12)}, wire.INVALID, "part 2 table: '.*_0' is the table of part 0 already"),
                ({"_0": good[0] + good[1] + record(12345, 1, grads=12)}, wire.UNKNOWN_TABLE, "part 2 table: no table has the id 12345"),
                ({"_0": good[0] + good[1] + record(tables[2], 1, flags=128, grads=12)}, wire.INVALID, "part 2 flags: 0x80"),
                ({"_0": good[0] + good[1] + record(tables[2], 1, flags=SCORES, grads=12)}, wire.MALFORMED, "the bin of grads is missing"),
                ({"_0": good[0] + good[1] + record(tables[2], 1, flags=ZERO, grads=12)}, wire.INVALID, "part 2 flags: 0x10"),
                ({"_0": good[0] + good[1] + record(tables[2], 2**31, grads=12)}, wire.TOO_LARGE, "part 2 field 'keys' is 2147483648"),
                ({"_0": good[0] + good[1] + record(tables[2], 1, grads=8)}, wire.MALFORMED, "all parts' grads has 48 bytes, the parts have 40"),
                ({"_0": good[0] + good[1] + record(tables[2], 1, grads=16)}, wire.MALFORMED, "part 2 grads: 16 bytes, expected 12"),
                ({"_0": good[0] + good[1] + record(tables[2], 1, grads=24)}, wire.MALFORMED, "part 2 grads: 24 bytes, .* 16 left of 48"),
                ({"_0": good[0] + good[1]}, wire.MALFORMED, "the bin of the records of parts has 48 bytes, expected 72"),
                ({"_1": wire.keys([0, 1])}, wire.MALFORMED, "part 2 keys: 8 bytes, .* 0 left of 16"),
                ({"_1": wire.keys([0, 1, 2, 3])}, wire.MALFORMED, "all parts' keys has 32 bytes, the parts have 24"),
                ({"_1": wire.keys([0, 1, 2]) + b"\0"}, wire.MALFORMED, "bin of keys has 25 bytes, expected a multiple of 8"),
                ({"_2": bytes(8)}, wire.MALFORMED, "all parts' offsets has 8 bytes, the parts have 0"),
                ({"_5": infinite}, wire.NOT_FINITE, "part 2 grads: key 2")]:
            with self.subTest(text), self.assertRaisesRegex(wire.RpcError, text) as caught:
                self.push(tables, [1.0, 1.0, 1.0], **others)
            self.assertEqual(caught.exception.number, number)
        self.assertEqual([wire.unfloats(rows) for rows in self.pull(tables)[1:]], [[1.0, 1.0, 1.0]] * 3)
        self.assertEqual(self.push(tables, [0.0, 0.0, 0.0])[0]["parts"][0]["step"], 1)

    def test_the_form_is_one_of_both(self):
        with self.assertRaisesRegex(wire.RpcError, "unknown field 'parts'"):
            self.wire.call("pull", {"columns": 1, "parts": []}, record(1, 0), b"", b"", b"", b"")
        with self.assertRaisesRegex(wire.RpcError, "'columns' is 4097, the limit is 4096"):
            self.wire.call("pull", {"columns": 4097}, bytes(24 * 4097), b"", b"", b"", b"")


if __name__ == "__main__":
    unittest.main()
