"""What no honest client sends. Each reply names the field, its value and the limit; the server lives on, and no row
has changed."""
import random
import unittest

import msgpack

from embd_process import Embd
import wire


class BadInput(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Embd("--stall-timeout", "20")
        with wire.connect(cls.server) as w:
            cls.table = wire.create(w, "guarded", dim=2, value=1.0)
            cls.sloted = wire.create(w, "sloted", dim=1, value=1.0, slots=3, partition="slot")
            wire.push(w, cls.table, [1], [1.0, 1.0])

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def setUp(self):
        self.wire = wire.connect(self.server)
        self.addCleanup(self.wire.close)

    def tearDown(self):
        self.assertTrue(self.server.is_alive())
        with wire.connect(self.server) as other:
            self.assertEqual(wire.pull(other, self.table, [1, 2]), [0.5, 0.5, 1.0, 1.0])

    def refused(self, number, texts, method, *params):
        """The request is answered with that error, and the connection lives on."""
        with self.assertRaises(wire.RpcError) as caught:
            self.wire.call(method, *params)
        self.assertEqual(caught.exception.number, number, caught.exception.text)
        for text in texts:
            self.assertIn(text, caught.exception.text)
        self.assertEqual(self.wire.call("ping"), [{}])

    def loses_step(self, data, number, *texts):
        """The peer is told, and the stream ends."""
        self.wire.send(data)
        message = self.wire.receive()
        error = message[2]
        self.assertEqual(error[0], number, error)
        for text in texts:
            self.assertIn(text, error[1])
        self.assertIsNone(self.wire.receive())
        return message

    # ---- the stream ----

    def test_a_byte_that_begins_no_value(self):
        self.assertEqual(self.loses_step(b"\xc1", wire.MALFORMED, "0xc1")[:2], [2, "error"])

    def test_the_error_carries_the_msgid_where_it_was_read(self):
        message = self.loses_step(b"\x94\x00\x2a\xa4ping\xc1", wire.MALFORMED, "0xc1")
        self.assertEqual(message[:2], [1, 42])

    def test_a_message_of_an_unknown_type(self):
        self.loses_step(msgpack.packb([9, 1, "ping", []]), wire.MALFORMED, "type", "0x09")

    def test_an_answer_to_nothing(self):
        self.loses_step(msgpack.packb([1, 1, None, []]), wire.MALFORMED, "type is 1")

    def test_a_msgid_beyond_32_bits(self):
        self.loses_step(msgpack.packb([0, 2**33, "ping", []]), wire.MALFORMED, "msgid", str(2**33), str(2**32 - 1))

    def test_a_message_of_the_wrong_length(self):
        self.loses_step(msgpack.packb([0, 1, "ping"]), wire.MALFORMED, "3 elements", "expected 4")
        self.wire = wire.connect(self.server)
        self.addCleanup(self.wire.close)
        self.loses_step(msgpack.packb([0, 1, "ping", [], []]), wire.MALFORMED, "5 elements")

    def test_text_that_is_no_message_at_all(self):
        self.loses_step(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 1000, wire.MALFORMED, "0x47", "array")

    def test_a_depth_bomb(self):
        self.loses_step(b"\x94\x00\x01\xa4pull" + b"\x91" * 100000, wire.TOO_LARGE, "nested", "limit is 6")

    def test_a_count_bomb(self):
        self.loses_step(b"\x94\x00\x01\xa4pull\xdd\xff\xff\xff\xff", wire.TOO_LARGE, "4294967295", "limit is 16384")
        self.wire = wire.connect(self.server)
        self.addCleanup(self.wire.close)
        self.loses_step(b"\x94\x00\x01\xa4pull\xdf\x7f\xff\xff\xff", wire.TOO_LARGE, "4294967294", "limit is 16384")

    def test_a_header_over_its_limit(self):
        self.loses_step(msgpack.packb([0, 1, "ping", [{"x": "y" * 5000}]]), wire.TOO_LARGE, "limit is 4096")

    def test_a_string_bomb_is_refused_before_its_bytes_come(self):
        self.loses_step(b"\x94\x00\x01\xdb\xff\xff\xff\xff", wire.TOO_LARGE, "42949", "limit is 4096")

    def test_too_many_bins(self):
        self.loses_step(msgpack.packb([0, 1, "pull", [{}] + [b""] * 400], use_bin_type=True), wire.TOO_LARGE, "321",
                        "limit is 320")

    def test_a_stream_of_garbage_of_any_kind(self):
        dice = random.Random(7)
        for _ in range(200):
            with wire.connect(self.server) as w:
                try:
                    w.send(dice.randbytes(dice.randrange(1, 3000)))
                except OSError:
                    pass  # it may have closed by now

    def test_truncation_at_every_length(self):
        data = wire.request(1, "push", {"parts": [{"table": self.table, "keys": 1}]}, wire.keys([1]),
                            wire.floats([9.0, 9.0]))
        import socket
        for n in range(len(data)):
            with wire.connect(self.server) as w:
                w.send(data[:n])
                w.socket.shutdown(socket.SHUT_WR)
                self.assertIsNone(w.receive())

    def test_a_frame_over_the_limit_is_thrown_away_and_the_connection_lives(self):
        before = self.server.rss_bytes()
        limit = 64 << 20
        head = b"\x94\x00\x05\xa4pull\x92\x80\xc6" + (limit + 1).to_bytes(4, "big")
        self.wire.send(head)
        block = bytes(1 << 20)
        for _ in range(64):
            self.wire.send(block)
        self.wire.send(b"\x00")
        _, msgid, error, _ = self.wire.receive()
        self.assertEqual((msgid, error[0]), (5, wire.TOO_LARGE))
        self.assertIn(str(limit), error[1])
        self.assertEqual(self.wire.call("ping"), [{}])
        self.assertLess(self.server.rss_bytes() - before, 16 << 20)

    # ---- requests in step ----

    def one_part(self, **fields):
        return {"parts": [{"table": self.table, **fields}]}

    def test_an_unknown_method(self):
        self.refused(wire.UNKNOWN_METHOD, ["pulll"], "pulll", {})

    def test_admin_methods_on_the_data_port(self):
        for method in ("hold", "release", "snapshot", "scan", "load", "drain"):
            self.refused(wire.UNKNOWN_METHOD, [method, "data"], method, {})

    def test_an_unknown_table(self):
        self.refused(wire.UNKNOWN_TABLE, ["12345"], "pull", {"parts": [{"table": 12345, "keys": 0}]}, b"")

    def test_an_unknown_field(self):
        self.refused(wire.INVALID, ["sise"], "pull", self.one_part(keys=1, sise=2), wire.keys([1]))

    def test_a_field_of_the_wrong_kind(self):
        self.refused(wire.MALFORMED, ["keys", "str"], "pull", self.one_part(keys="many"), wire.keys([1]))

    def test_an_unknown_dtype(self):
        self.refused(wire.INVALID, ["dtype", "f64"], "pull", self.one_part(keys=1, dtype="f64"), wire.keys([1]))

    def test_more_keys_than_the_limit(self):
        self.refused(wire.TOO_LARGE, ["keys", "4194305", "4194304"], "pull", self.one_part(keys=4194305), b"")

    def test_a_bin_of_the_wrong_length(self):
        self.refused(wire.MALFORMED, ["keys", "15", "16"], "pull", self.one_part(keys=2), bytes(15))

    def test_a_bin_that_is_missing_or_left_over(self):
        self.refused(wire.MALFORMED, ["keys", "missing"], "pull", self.one_part(keys=2))
        self.refused(wire.MALFORMED, ["bin"], "pull", self.one_part(keys=1), wire.keys([1]), b"more")

    def test_bins_before_the_map(self):
        self.refused(wire.MALFORMED, ["params[1]", "map"], "pull", wire.keys([1]), self.one_part(keys=1))

    def test_offsets_that_do_not_start_rise_or_end(self):
        for values, said in (([1, 2, 3], "offsets[0] is 1"), ([0, 3, 2], "offsets[2] is 2"), ([0, 1, 2], "3")):
            self.refused(wire.INVALID, ["part 0", "offsets", said], "pull", self.one_part(keys=3, rows=2),
                         wire.keys([1, 2, 3]), wire.offsets(values))

    def test_gradients_of_the_wrong_length(self):
        self.refused(wire.MALFORMED, ["grads", "12", "8"], "push", self.one_part(keys=1), wire.keys([1]), bytes(12))

    def test_a_request_without_its_parts(self):
        for method in ("pull", "push", "erase"):
            self.refused(wire.INVALID, ["'parts'", "required"], method, {})
            self.assertEqual(self.wire.call(method, {"parts": []})[0], {"parts": []})

    def test_a_job_without_a_name_or_with_a_long_one(self):
        for name, said in (("", "0 bytes"), ("j" * 64, "64 bytes")):
            who = {"job": name, "worker": 0, "workers": 2, "clock": 1}
            self.refused(wire.INVALID, ["'job'", said, "63"], "tick", who)
            self.refused(wire.INVALID, ["'job'", said, "63"], "push", {**self.one_part(keys=1), "round": who},
                         wire.keys([1]), wire.floats([1.0, 1.0]))
        self.wire.call("tick", {"job": "j" * 63, "worker": 0, "workers": 1, "clock": 1, "leave": True})

    def test_gradients_that_are_not_numbers_name_the_first_key(self):
        for bad in (float("nan"), float("inf"), float("-inf")):
            self.refused(wire.NOT_FINITE, ["77"], "push", self.one_part(keys=2), wire.keys([1, 77]),
                         wire.floats([1.0, 1.0, bad, 1.0]))

    def test_learning_rates_that_are_none(self):
        for lr, said in ((0, "0"), (0.0, "0"), (-0.5, "-0.5"), (1e-60, "0"), (float("inf"), "inf"), (float("nan"), "number"),
                         (1e39, "1e+39")):
            self.refused(wire.INVALID, ["part 0", "'lr'", said], "push", self.one_part(keys=1, lr=lr), wire.keys([1]),
                         wire.floats([1.0, 1.0]))
        self.refused(wire.MALFORMED, ["'lr'", "str"], "push", self.one_part(keys=1, lr="0.1"), wire.keys([1]),
                     wire.floats([1.0, 1.0]))
        for method in ("pull", "erase"):
            self.refused(wire.INVALID, ["'lr'"], method, self.one_part(keys=1, lr=0.5), wire.keys([1]))

    def test_a_slot_beyond_the_table(self):
        import array
        parts = {"parts": [{"table": self.sloted, "keys": 1, "slots": True}]}
        self.refused(wire.INVALID, ["slot", "3"], "pull", parts, wire.keys([1]), array.array("H", [3]).tobytes())

    def test_an_answer_that_would_pass_the_frame_limit(self):
        wide = wire.create(self.wire, "wide", dim=4096)
        n = 5000  # 80 MB of rows
        self.refused(wire.TOO_LARGE, [str(64 << 20)], "pull", {"parts": [{"table": wide, "keys": n}]},
                     wire.keys(range(n)))

    def test_a_table_of_the_same_name_and_another_definition(self):
        self.refused(wire.EXISTS, ["dim"], "table_create", {"schema": wire.constant_schema("guarded", dim=3)})

    def test_schemas_that_make_no_sense(self):
        for field, value in (("dim", 0), ("dim", 4097), ("slots", 1025), ("name", "no spaces")):
            schema = wire.constant_schema("odd")
            schema[field] = value
            self.refused(wire.INVALID, [field], "table_create", {"schema": schema})
        self.refused(wire.INVALID, ["evict_lru"], "table_create",
                     {"schema": wire.constant_schema("odd", on_full="evict_lru")})


LIMIT_STEP = 2**47


def step_floats(step):
    return [float(step % 2**24), float(step // 2**24)]


class BadLoads(unittest.TestCase):
    """Steps and counts that `load` brings: whole numbers up to 2^47, or up to 2^24 - 1 for how often a row was pushed."""

    LFU = {"capacity": 8, "on_full": "evict_lfu"}
    LAZY = {"optimizer": {"kind": "adam", "lr": 0.5, "update": "lazy_global"}}

    @classmethod
    def setUpClass(cls):
        cls.server = Embd()

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def setUp(self):
        self.wire, self.admin = wire.connect(self.server), wire.Wire(self.server.admin_path())
        self.addCleanup(self.wire.close)
        self.addCleanup(self.admin.close)

    def load(self, name, state, **more):
        """One row of dim 1 with key 7 and that state."""
        self.admin.call("load", {"table": name, "rows": 1, "candidates": 0, **more}, wire.keys([7]), wire.floats([0.5]),
                        *([wire.floats(state)] if state else []), b"", b"")

    def refused(self, name, state, *said, **more):
        with self.assertRaises(wire.RpcError) as caught:
            self.load(name, state, **more)
        self.assertEqual(caught.exception.number, wire.INVALID, caught.exception.text)
        for text in said:
            self.assertIn(text, caught.exception.text)
        described = self.wire.call("table_describe", {"name": name})[0]
        self.assertEqual((described["rows"], described["step"]), (0, 0))

    def test_steps_and_counts_of_states(self):
        for kind, own, fields in (("lfu", [], self.LFU), ("lazy", [0.25, 0.5], self.LAZY),
                                  ("both", [0.25, 0.5], {**self.LFU, **self.LAZY})):
            wire.create(self.wire, kind, dim=1, **fields)
            good = own + step_floats(LIMIT_STEP) * (2 if kind == "both" else 1) + ([2.0**24 - 1] if kind != "lazy" else [])
            for column in range(len(own), len(good)):
                for bad in (float("nan"), float("inf"), -1.0, 1e30, 2.0**24, 0.5):
                    state = list(good)
                    state[column] = bad
                    self.refused(kind, state, f"states[0][{column}]", f"{bad:g}", "16777215")
            for first in range(len(own), len(good) - 1, 2):
                self.refused(kind, good[:first] + step_floats(LIMIT_STEP + 1) + good[first + 2:], "states[0]",
                             str(LIMIT_STEP + 1), str(LIMIT_STEP))
            self.load(kind, good)
            self.assertEqual(wire.pull(self.wire, self.wire.call("table_describe", {"name": kind})[0]["id"], [7]), [0.5])

    def test_scores_of_states(self):
        wire.create(self.wire, "scored", dim=1, capacity=8, on_full="evict_score", admit_nonfinite=True)
        for bad in (float("nan"), float("inf"), float("-inf")):
            self.refused("scored", [0.0, 0.0, bad], "states[0][2]", f"{bad:g}", "the row's score", "finite")
        self.load("scored", [0.0, 0.0, -3.5e38 / 2])

    def test_the_step_of_a_table(self):
        table = wire.create(self.wire, "stepped", dim=1, **self.LAZY)
        for step in (LIMIT_STEP + 1, 2**63, 2**64 - 1):
            self.refused("stepped", [0.25, 0.5, 1.0, 0.0], "'step'", str(step), str(LIMIT_STEP), step=step)
        self.load("stepped", [0.25, 0.5, *step_floats(LIMIT_STEP)], step=LIMIT_STEP)
        self.assertEqual(wire.push(self.wire, table, [7], [1.0])["step"], LIMIT_STEP + 1)
        self.admin.call("hold", {})
        scanned = self.admin.call("scan", {"table": "stepped"})
        self.admin.call("release", {})
        self.assertEqual(wire.unfloats(scanned[3])[2:], step_floats(LIMIT_STEP + 1))
        self.assertTrue(all(abs(value) < 1 for value in wire.unfloats(scanned[2])), "a step is a number")


if __name__ == "__main__":
    unittest.main()
