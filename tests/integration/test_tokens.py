"""Tokens, roles and table prefixes between real processes: each role's methods, one by one."""
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import embd_process
import wire
from certificates import Authority, Tokens
from test_tls import EMBCTL, OK, REFUSED, USAGE, TlsWire, embctl

DENIED = 20
FULL = 8


class TokenCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="embd-tokens-")
        cls.tokens = Tokens(cls.folder)
        cls.secret = {name: cls.tokens.add(name, role, tables) for name, role, tables in (
            ("looker", "reader", "ads_,user_"), ("nightly", "trainer", "ads_"), ("everything", "trainer", "*"),
            ("sixteen", "trainer", "many_"),
            ("operator", "admin", "*"))}
        ca = Authority(cls.folder, "ca")
        cls.ca, cert = ca, ca.issue("server")
        cls.server = embd_process.Embd("--http", "off", "--tokens", cls.tokens.path, "--data-dir", cls.folder)
        os.mkdir(os.path.join(cls.folder, "sealed"))
        cls.sealed = embd_process.Embd("--http", "off", "--tokens", cls.tokens.path, "--tls-cert", cert[0], "--tls-key",
                                       cert[1], "--admin-listen", "127.0.0.1:0", "--data-dir", os.path.join(cls.folder, "sealed"))
        with wire.Wire(cls.server.admin_path()) as admin:
            cls.table = {name: wire.create(admin, name) for name in ("ads_click", "user_age", "items")}
            cls.table["ads_grow"] = wire.create(admin, "ads_grow", create_on="pull")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.sealed.stop()
        shutil.rmtree(cls.folder)

    def connect(self, name=None, server=None):
        peer = wire.connect(server or self.server)
        self.addCleanup(peer.close)
        if name:
            peer.call("hello", {"protocol": 1, "token": self.secret[name]})
        return peer

    def denied(self, peer, words, method, *params):
        with self.assertRaises(wire.RpcError) as caught:
            peer.call(method, *params)
        self.assertEqual(caught.exception.number, DENIED, caught.exception)
        for word in words:
            self.assertIn(word, caught.exception.text)


class Roles(TokenCase):
    def pull(self, peer, table):
        return wire.pull(peer, self.table[table], [1, 2])

    def test_without_a_token_there_is_only_hello(self):
        for method in ("ping", "cluster", "tables", "stats", "pull", "push", "table_create", "table_drop",
                       "table_describe"):
            self.denied(self.connect(), [method, "token"], method, {})
        self.denied(self.connect(), ["hello", "token"], "hello", {"protocol": 1})

    def test_a_wrong_token_ends_the_connection(self):
        for token in ("x" * 64, self.secret["looker"][:-1] + "!", "short"):
            peer = self.connect()
            self.denied(peer, ["not known"], "hello", {"protocol": 1, "token": token})
            self.assertIsNone(peer.receive())
        self.assertNotIn(self.secret["looker"], self.server.log())

    def test_a_reader_reads_its_tables(self):
        peer = self.connect("looker")
        self.assertEqual(self.pull(peer, "ads_click"), [1.0] * 8)
        self.pull(peer, "user_age")
        peer.call("table_describe", {"name": "ads_click"})
        peer.call("ping", {})
        peer.call("cluster", {})

    def test_a_reader_changes_nothing(self):
        peer = self.connect("looker")
        self.denied(peer, ["push", "trainer", "looker", "reader"], "push",
                    {"parts": [{"table": self.table["ads_click"], "keys": 1}]}, wire.keys([1]), wire.floats([1.0] * 4))
        self.denied(peer, ["table_create", "trainer"], "table_create", {"schema": wire.constant_schema("ads_new")})
        self.denied(peer, ["table_drop", "trainer"], "table_drop", {"name": "ads_click"})
        self.denied(peer, ["table_set", "trainer"], "table_set", {"name": "ads_click", "set": {"optimizer": {"lr": 1}}})
        self.denied(peer, ["pull", "ads_grow", "trainer", "reader"], "pull",
                    {"parts": [{"table": self.table["ads_grow"], "keys": 1}]}, wire.keys([1]))

    def test_a_reader_gets_rows_and_puts_none(self):
        looker, nightly = self.connect("looker"), self.connect("nightly")
        row = wire.keys([31]), wire.floats([0.25] * 4)
        fields = {"table": "ads_click", "keys": 1}
        self.denied(looker, ["put", "trainer", "looker", "reader"], "put", fields, *row)
        self.assertEqual(looker.call("get", fields, wire.keys([31]))[1], bytes([2]))
        self.assertEqual(nightly.call("put", fields, *row)[0], {"inserted": 1})
        self.assertEqual(looker.call("get", fields, wire.keys([31]))[1:], [bytes([0]), wire.floats([0.25] * 4)])
        self.assertIn(wire.keys([31]), looker.call("keys", {"table": "ads_click"})[1])
        for peer, method, bins in ((looker, "get", row[:1]), (nightly, "get", row[:1]), (nightly, "put", row),
                                   (looker, "keys", []), (nightly, "keys", [])):
            with self.assertRaises(wire.RpcError) as caught:
                peer.call(method, {"table": "items", "keys": 1}, *bins)
            self.assertEqual(caught.exception.number, wire.UNKNOWN_TABLE)

    def test_no_one_sees_tables_of_others(self):
        peer = self.connect("looker")
        names = [t["name"] for t in peer.call("tables", {})[0]["tables"]]
        self.assertTrue({"ads_click", "ads_grow", "user_age"} <= set(names) and "items" not in names, names)
        self.assertEqual([t["table"] for t in peer.call("stats", {})[0]["tables"]], names)
        self.denied(peer, ["table_describe", "items", "looker", "reader"], "table_describe", {"name": "items"})
        self.denied(peer, ["table_describe", "nothing"], "table_describe", {"name": "nothing"})

    def test_one_table_of_others_refuses_the_whole_request(self):
        peer, everything = self.connect("nightly"), self.connect("everything")
        before = self.pull(everything, "ads_click"), self.pull(everything, "items")
        part = {"keys": 1}
        with self.assertRaises(wire.RpcError) as caught:
            peer.call("push", {"parts": [{"table": self.table["ads_click"], **part}, {"table": self.table["items"], **part}]},
                      wire.keys([1]), wire.floats([1.0] * 4), wire.keys([1]), wire.floats([1.0] * 4))
        self.assertEqual(caught.exception.number, wire.UNKNOWN_TABLE)
        self.assertEqual((self.pull(everything, "ads_click"), self.pull(everything, "items")), before)

    def test_a_trainer_trains_its_tables_and_makes_them(self):
        peer = self.connect("nightly")
        wire.push(peer, self.table["ads_click"], [77], [1.0] * 4)
        self.assertEqual(wire.pull(peer, self.table["ads_click"], [77]), [0.5] * 4)
        self.pull(peer, "ads_grow")
        wire.create(peer, "ads_made")
        self.denied(peer, ["table_create", "user_made", "nightly"], "table_create",
                    {"schema": wire.constant_schema("user_made")})
        peer.call("table_set", {"name": "ads_made", "set": {"optimizer": {"lr": 0.25}}})
        for name in ("user_made", "items"):
            self.denied(peer, ["table_set", name, "nightly"], "table_set",
                        {"name": name, "set": {"optimizer": {"lr": 1}}})
        for name in ("user_made", "items"):
            self.denied(peer, ["table_drop", name, "nightly"], "table_drop", {"name": name})
        peer.call("table_drop", {"name": "ads_made"})
        with self.assertRaises(wire.RpcError) as caught:
            peer.call("drain", {})
        self.assertEqual(caught.exception.number, wire.UNKNOWN_METHOD)

    def test_a_trainer_reaches_only_jobs_under_its_prefixes(self):
        evil, good = self.connect("nightly"), self.connect("everything")
        mine = {"job": "train", "workers": 2, "worker": 0, "lease_ms": 60000}
        good.call("tick", {**mine, "clock": 10})
        before = good.call("tick", {**mine, "clock": 10})
        for more in {"clock": 0, "worker": 1}, {"clock": 2**60, "worker": 1}, {"clock": 10, "leave": True}, {"clock": 0, "beat": True}:
            self.denied(evil, ["tick", "'train'", "nightly", "prefix"], "tick", {**mine, **more})
        round_of = {"job": "train", "workers": 2, "worker": 1, "clock": 10}
        self.denied(evil, ["push", "'train'", "nightly"], "push",
                    {"parts": [{"table": self.table["ads_click"], "keys": 1}], "round": round_of},
                    wire.keys([1]), wire.floats([1.0] * 4))
        self.assertEqual(good.call("tick", {**mine, "clock": 10}), before)
        evil.call("tick", {**mine, "job": "ads_train", "clock": 0})

    def test_a_token_takes_no_more_than_its_share_of_jobs(self):
        peer = self.connect("sixteen")
        job = {"workers": 1, "worker": 0, "clock": 0, "lease_ms": 60000}
        for i in range(16):
            peer.call("tick", {**job, "job": f"many_{i}"})
        with self.assertRaises(wire.RpcError) as caught:
            peer.call("tick", {**job, "job": "many_16"})
        self.assertEqual(caught.exception.number, FULL)
        self.assertIn("token 'sixteen' has 16 other jobs", caught.exception.text)
        peer.call("tick", {**job, "job": "many_3", "clock": 1})
        peer.call("tick", {**job, "job": "many_3", "clock": 1, "leave": True})
        peer.call("tick", {**job, "job": "many_16"})
        self.connect("everything").call("tick", {**job, "job": "other"})

    def test_an_admin_drops_tables_but_finds_no_admin_method_on_the_data_port(self):
        peer = self.connect("operator")
        wire.create(peer, "passing")
        peer.call("table_drop", {"name": "passing"})
        for method in ("hold", "release", "snapshot", "scan", "load", "drain"):
            with self.assertRaises(wire.RpcError) as caught:
                peer.call(method, {})
            self.assertEqual(caught.exception.number, wire.UNKNOWN_METHOD)

    def test_the_admin_socket_is_its_owners(self):
        self.assertEqual(os.stat(self.server.admin_path()).st_mode & 0o777, 0o600)
        with wire.Wire(self.server.admin_path()) as admin:
            admin.call("hold", {"timeout_ms": 1000})
            admin.call("release", {})

    def test_a_strangers_frame_is_small(self):
        peer = self.connect()
        peer.send(wire.request(9, "pull", {"parts": []}, bytes(100000)))
        kind, msgid, error, _ = peer.receive()
        self.assertEqual((kind, msgid, error[0]), (1, 9, wire.TOO_LARGE))
        self.assertIn("4096", error[1])

    def test_requests_refused_are_counted(self):
        peer, operator = self.connect("looker"), self.connect("operator")
        before = operator.call("stats", {})[0]["stats"]["denied"]
        self.denied(peer, ["trainer"], "table_drop", {"name": "ads_click"})
        with self.assertRaises(wire.RpcError):
            self.pull(peer, "items")
        self.assertEqual(operator.call("stats", {})[0]["stats"]["denied"], before + 2)


# Names with one id: found by trying.
ONE_ID = "items_164457", "ads_12384"


class Hidden(TokenCase):
    """Nothing that a token is told depends on a table, or on traffic, that is not for it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with wire.Wire(cls.server.admin_path()) as admin:
            cls.table["items_slots"] = wire.create(admin, "items_slots", slots=2, partition="slot")
            cls.table["items_grow"] = wire.create(admin, "items_grow", create_on="pull")
            cls.table["items_sizes"] = admin.call("table_create", {"schema": wire.constant_schema(
                "items_sizes", slots=2, slot_sizes=True)}, wire.keys([3, 4]))[0]["id"]
        with wire.connect(cls.server) as peer:
            peer.call("hello", {"protocol": 1, "token": cls.secret["everything"]})
            wire.push(peer, cls.table["items"], range(100), [1.0] * 400)

    def answer(self, peer, method, *params):
        try:
            return peer.call(method, *params)
        except wire.RpcError as error:
            return error.number, error.text

    def requests(self, name, number):
        """Requests that name a table, of every method that has a field for it: right ones, and ones that some table refuses."""
        one, two = {"table": number, "keys": 1}, {"table": number, "keys": 2, "rows": 1, "offsets": True}
        own = {"table": self.table["ads_click"], "keys": 1}
        key, slot, grads = wire.keys([1]), b"\1\0", wire.floats([1.0] * 4)
        job = {"job": "ads_job", "workers": 1, "worker": 0, "clock": 0}
        yield "table_describe", {"name": name}
        yield "table_drop", {"name": name}
        for fields in {"optimizer": {"lr": 0.25}}, {"optimizer": {"lr": -1}}, {"dim": 8}, {}:
            yield "table_set", {"name": name, "set": fields}
        yield "table_create", {"schema": wire.constant_schema(name)}
        yield "table_create", {"schema": wire.constant_schema(name, 8)}
        yield "table_create", {"schema": wire.constant_schema(name, durability="auto")}
        for parts, bins in (([one], [key]), ([{**one, "slots": True}], [key, slot]), ([{**one, "status": True}], [key]),
                            ([one], [wire.keys([99])]), ([own, one], [key, key]), ([one, one], [key, key]),
                            ([two], [wire.keys([1, 2]), wire.offsets([0, 2])])):
            yield "pull", {"parts": parts}, *bins
        yield "pull", {"parts": [{**one, "zero_missing": True}]}, key
        for parts, bins in (([one], [key, grads]), ([one], [key, grads + grads]), ([one], [key, wire.floats([float("nan")] * 4)]),
                            ([own, one], [key, grads, key, grads]), ([one, one], [key, grads, key, grads])):
            yield "push", {"parts": parts}, *bins
            yield "push", {"parts": parts, "round": job}, *bins
            yield "push", {"parts": parts, "writer": {"high": 1, "low": 1, "sequence": 1}}, *bins
        yield "erase", {"parts": [one]}, key
        yield "erase", {"parts": [own, one]}, key, key
        for fields, bins in (({"table": name, "keys": 1}, [key]), ({"table": name, "keys": 1, "states": True}, [key, slot]),
                             ({"table": name, "keys": 2}, [key]), ({"table": name}, [])):
            yield "get", fields, *bins
            yield "put", fields, *bins, grads
            yield "put", fields, *bins, wire.floats([float("nan")] * 4)
        place = {"keys_in": 1, "keys_at": 0, "rows_in": 1, "rows_at": 16}
        for fields in place, {**place, "rows_at": 8}, {"n_keys": 2}:
            yield "device_pull", {"table": number, "n_keys": 1, **fields}
            yield "device_push", {"table": number, "n_keys": 1, **fields}
            yield "device_pull", {"table": number, "n_keys": 1, **fields, "own": True}, bytes(128)
        yield "keys", {"table": name}
        yield "keys", {"table": name, "cursor": 1, "scan": 1}
        yield "keys", {"table": name, "keys": 0}
        yield "changes", {"table": name}
        yield "changes", {"table": name, "id": 1, "part": 1}
        yield "hot", {"table": name}
        yield "scan", {"table": name, "rows": 1}
        yield "load", {"table": name, "rows": 0}
        yield "table_stage", {"id": 1, "schema": wire.constant_schema(name)}

    def told(self, role, name, number):
        """All answers, with the name and id replaced."""
        said = []
        for method, *params in self.requests(name, number):
            answer = repr(self.answer(self.connect(role), method, *params))
            self.assertEqual(answer.count("ads_click"), 0, answer)
            said.append((method, answer.replace(name, "NAME").replace(str(number), "ID")))
        return said

    def test_a_table_of_others_is_answered_like_one_that_is_not_there(self):
        tables = [name for name in self.table if name.startswith("items")]
        for role in "looker", "nightly":
            nothing = self.told(role, "items_nothing", 4294967291)
            for name in tables:
                for (method, theirs), (_, none) in zip(self.told(role, name, self.table[name]), nothing):
                    self.assertEqual(theirs, none, f"{method} of {name} by {role}")
            methods = {method for method, _ in nothing}
            self.assertTrue({"pull", "push", "erase", "table_describe", "table_drop", "table_create"} <= methods, methods)

    def test_every_method_that_names_a_table_is_tried(self):
        tried = {method for method, *_ in self.requests("x", 1)}
        rest = {"hello", "share", "ping", "cluster", "tables", "stats", "hold", "release", "snapshot", "drain", "trace", "tick", "writer",
                "writers", "stream_open", "identity", "table_replace", "device_open", "device_close", "ring", "trunk", "follow", "promote",
                "move", "move_load"}
        self.assertEqual(tried | rest, set(methods_on_the_wire()))

    def test_no_answer_without_a_table_names_one(self):
        for role in "looker", "nightly":
            peer = self.connect(role)
            methods = [*(methods_on_the_wire().keys() - {"trunk"}), "trunk"]  # behind which come no answers
            for method in methods:
                said = repr(self.answer(peer, method, {"protocol": 1} if method == "hello" else {}))
                self.assertNotIn("items", said, f"{method} by {role}")

    def test_figures_are_of_its_own_tables_and_of_nobodys_traffic(self):
        peer, operator = self.connect("looker"), self.connect("operator")
        wire.pull(self.connect("everything"), self.table["items"], range(50))
        shown, whole = (p.call("stats", {})[0]["stats"] for p in (peer, operator))
        self.assertEqual(set(shown), {"uptime_us", "draining", "loading", "loading_bytes", "loading_total_bytes", "restored_cut",
                                      "replacement_in_doubt", "restored_without_journal", "directory_refused", "deposed", "follows", "tables", "row_memory_bytes"})
        self.assertEqual(shown["tables"], len(peer.call("tables", {})[0]["tables"]))
        self.assertGreater(whole["tables"], shown["tables"])
        self.assertLess(shown["row_memory_bytes"], whole["row_memory_bytes"])
        self.assertIn("requests_pull", whole)
        self.assertIn("keys_pulled", whole)

    def test_a_name_whose_id_a_table_of_others_has_is_a_table_of_another_id(self):
        theirs, own = ONE_ID
        with wire.Wire(self.server.admin_path()) as admin:
            taken, peer = wire.create(admin, theirs), self.connect("nightly")
            given = wire.create(peer, own)
            self.assertNotEqual(given, taken)
            wire.push(peer, given, [1], [1.0] * 4)
            self.assertEqual(self.answer(peer, "pull", {"parts": [{"table": taken, "keys": 0}]}, b"")[0], wire.UNKNOWN_TABLE)
            for name in ONE_ID:
                admin.call("table_drop", {"name": name})


# The least role that may call a method; None: before a token is shown. PROTOCOL.md's table of methods says the same.
LEAST = {"hello": None, "share": "reader", "ring": "reader", "trunk": "reader", "ping": "reader", "cluster": "reader", "tables": "reader",
         "table_describe": "reader",
         "pull": "reader", "stats": "reader", "table_create": "trainer", "push": "trainer", "erase": "trainer",
         "tick": "trainer", "writer": "trainer", "stream_open": "trainer", "table_drop": "trainer", "hold": "admin", "release": "admin",
         "snapshot": "trainer", "scan": "admin", "load": "trainer", "drain": "admin", "follow": "admin", "promote": "admin", "move": "admin",
         "move_load": "admin", "hot": "admin", "trace": "admin",
         "writers": "admin", "identity": "reader", "table_set": "trainer", "table_stage": "trainer", "table_replace": "admin",
         "get": "reader", "put": "trainer", "keys": "reader", "device_open": "reader", "device_close": "reader", "device_pull": "reader",
         "device_push": "trainer", "changes": "reader"}
ROLES = {None: None, "reader": "looker", "trainer": "nightly", "admin": "operator"}


def table_of_methods():
    """[(method, listener, least role)] of PROTOCOL.md's table."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "proto", "PROTOCOL.md")
    with open(path, encoding="utf-8") as file:
        return re.findall(r"^\| `(\w+)` \| (both|data|admin) \| (\w+) \| ", file.read(), re.MULTILINE)


def methods_on_the_wire():
    return {method: listener for method, listener, _ in table_of_methods()}


class EveryMethod(TokenCase):
    """Each method for each role, on each listener: permitted or DENIED exactly as LEAST says. All are sent with a field
    that none has, so that what is permitted is INVALID, and nothing happens."""

    def answer(self, peer, method):
        try:
            peer.call(method, {"nobody_asks_for_this": 1, **({"protocol": 1} if method == "hello" else {})})
        except wire.RpcError as error:
            return error.number
        return 0

    def check(self, listener, connect):
        ranks = list(ROLES)
        for role, name in ROLES.items():
            peer = connect(name)
            for method, where in methods_on_the_wire().items():
                found = self.answer(peer, method)
                is_permitted = ranks.index(role) >= ranks.index(LEAST[method])
                if where not in ("both", listener):
                    expected = {wire.UNKNOWN_METHOD, DENIED}
                elif method == "hello" and role is None:
                    expected = {wire.INVALID}  # the field comes before the token
                else:
                    expected = {wire.INVALID} if is_permitted else {DENIED}
                self.assertIn(found, expected, f"{method} by {role or 'nobody'} on {listener}")

    def test_all_methods_are_in_the_table(self):
        self.assertEqual(LEAST, {method: None if role == "anyone" else role for method, _, role in table_of_methods()})

    def test_on_the_data_port(self):
        self.check("data", self.connect)

    def test_on_the_admin_listener_over_tcp(self):
        with wire.Wire(self.sealed.admin_path()) as admin:
            port = int(admin.call("cluster")[0]["shards"][0]["admin_tcp"].rsplit(":", 1)[1])

        def connect(name):
            peer = TlsWire(self.sealed, self.ca, port=port)
            self.addCleanup(peer.close)
            if name:
                peer.call("hello", {"protocol": 1, "token": self.secret[name]})
            return peer
        self.check("admin", connect)


# Their hashes begin with the same five bytes: found by trying.
TWINS = [f"embd_{number:064x}" for number in (278654, 565052)]


class AlikeHashes(TokenCase):
    def test_a_token_is_its_whole_hash(self):
        hashes = [hashlib.sha256(token.encode()).hexdigest() for token in TWINS]
        self.assertEqual(hashes[0][:10], hashes[1][:10])
        self.assertNotEqual(hashes[0], hashes[1])

        def serve(*lines):
            path = os.path.join(self.folder, "twins")
            with open(path, "w", encoding="ascii") as file:
                file.writelines(lines)
            os.chmod(path, 0o600)
            server = embd_process.Embd("--http", "off", "--tokens", path)
            self.addCleanup(server.stop)
            return server
        lines = [f"one reader * sha256:{hashes[0]}\n", f"two admin * sha256:{hashes[1]}\n"]
        alone = serve(lines[1])
        self.denied(self.connect(None, alone), ["not known"], "hello", {"protocol": 1, "token": TWINS[0]})
        both = serve(*lines)
        for token, says in zip(TWINS, ("reader", None)):
            peer = self.connect(None, both)
            peer.call("hello", {"protocol": 1, "token": token})
            if says:
                self.denied(peer, ["table_create", "trainer", says], "table_create",
                            {"schema": wire.constant_schema("mine")})
            else:
                wire.create(peer, "mine")


class Clients(TokenCase):
    def test_embctl_shows_its_token_from_a_file_or_the_environment(self):
        operator = {"EMBD_TOKEN_FILE": self.tokens.file("operator")}
        self.assertEqual(embctl(self.server, "ping", **operator).returncode, OK)
        self.assertEqual(embctl(self.server, "ping", EMBD_TOKEN=self.secret["looker"]).returncode, OK)
        answer = embctl(self.server, "ping")
        self.assertEqual(answer.returncode, REFUSED)
        self.assertIn("hello needs a token", answer.stderr)
        answer = embctl(self.server, "ping", EMBD_TOKEN="x" * 40)
        self.assertEqual(answer.returncode, REFUSED)
        self.assertNotIn("x" * 40, answer.stderr)
        answer = embctl(self.server, "table", "drop", "items", EMBD_TOKEN=self.secret["nightly"])
        self.assertEqual(answer.returncode, REFUSED, answer.stderr)
        for word in ("table_drop", "items", "nightly", "trainer"):
            self.assertIn(word, answer.stderr)

    def test_a_token_file_that_others_read_is_refused(self):
        path = os.path.join(self.folder, "loose")
        with open(path, "w", encoding="ascii") as file:
            file.write(self.secret["looker"])
        os.chmod(path, 0o644)
        answer = embctl(self.server, "ping", EMBD_TOKEN_FILE=path)
        self.assertEqual(answer.returncode, USAGE, answer.stderr)
        self.assertIn("0644", answer.stderr)

    def test_admins_come_in_over_tcp_with_tls_and_an_admins_token_only(self):
        peer = {"EMBD_TLS_CA": self.ca.path}
        admin_dir = os.path.dirname(self.sealed.admin_path())
        os.rename(admin_dir, admin_dir + ".away")  # as for a client on another machine
        try:
            made = embctl(self.sealed, "snapshot", "far", **peer, EMBD_TOKEN=self.secret["operator"])
            self.assertEqual(made.returncode, OK, made.stderr)
            answer = embctl(self.sealed, "snapshot", "farther", **peer, EMBD_TOKEN=self.secret["everything"])
            self.assertEqual(answer.returncode, REFUSED, answer.stderr)
            for word in ("snapshot", "admin", "everything", "trainer"):
                self.assertIn(word, answer.stderr)
        finally:
            os.rename(admin_dir + ".away", admin_dir)

    def test_tokens_through_tls(self):
        with TlsWire(self.sealed, self.ca) as peer:
            with self.assertRaises(wire.RpcError):
                peer.call("ping", {})
            peer.call("hello", {"protocol": 1, "token": self.secret["operator"]})
            peer.call("ping", {})


class Made(TokenCase):
    """Tokens that embctl token makes."""

    def token(self, *arguments):
        return subprocess.run([EMBCTL, "token", *arguments], capture_output=True, text=True, timeout=30, check=False,
                              cwd=self.folder)

    def test_a_server_takes_the_line_and_a_client_the_file(self):
        made = self.token("made", "reader", "--tables", "ads_,user_")
        self.assertEqual((made.returncode, made.stderr), (OK, ""))
        path = os.path.join(self.folder, "made.token")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        with open(path, encoding="ascii") as file:
            self.assertNotIn(file.read().strip(), made.stdout)
        with open(os.path.join(self.folder, "made.list"), "w", encoding="ascii") as file:
            file.write(made.stdout)
        server = embd_process.Embd("--http", "off", "--tokens", file.name)
        self.addCleanup(server.stop)
        self.assertEqual(embctl(server, "ping", EMBD_TOKEN_FILE=path).returncode, OK)
        answer = embctl(server, "table", "create", "ads_x", "--dim", "4", EMBD_TOKEN_FILE=path)
        self.assertEqual(answer.returncode, REFUSED, answer.stderr)

    def test_json_and_a_path_of_ones_own(self):
        path = os.path.join(self.folder, "elsewhere")
        shown = json.loads(self.token("other", "admin", "--file", path, "-o", "json").stdout)["tokens"][0]
        with open(path, encoding="ascii") as file:
            digest = hashlib.sha256(file.read().strip().encode()).hexdigest()
        self.assertEqual(shown, {"name": "other", "role": "admin", "tables": "*", "hash": f"sha256:{digest}",
                                 "file": path})

    def test_no_file_is_overwritten_and_mistakes_make_none(self):
        path = os.path.join(self.folder, "taken")
        with open(path, "w", encoding="ascii") as file:
            file.write("mine")
        answer = self.token("x", "reader", "--file", path)
        self.assertEqual((answer.returncode, answer.stdout), (1, ""))
        self.assertIn(path, answer.stderr)
        with open(path, encoding="ascii") as file:
            self.assertEqual(file.read(), "mine")
        for arguments, word in ((["x"], "role"), (["X", "reader"], "'X'"), (["x", "writer"], "writer"),
                                (["x", "admin", "-t", "ads_"], "admin"), (["x", "reader", "-t", "a,,b"], "''"),
                                (["x", "reader", "more"], "more")):
            answer = self.token(*arguments)
            self.assertEqual((answer.returncode, answer.stdout), (USAGE, ""), arguments)
            self.assertIn(word, answer.stderr)
            self.assertFalse(os.path.exists(os.path.join(self.folder, "x.token")))


class Lists(TokenCase):
    def test_a_token_taken_from_the_list_ends_its_connections_and_a_new_one_counts(self):
        gone = self.tokens.add("leaver", "trainer")
        server = embd_process.Embd("--http", "off", "--tokens", self.tokens.path)
        self.addCleanup(server.stop)
        self.secret["leaver"] = gone
        leaver, stayer = self.connect("leaver", server), self.connect("nightly", server)
        leaver.call("ping", {})
        self.tokens.remove("leaver")
        self.secret["comer"] = self.tokens.add("comer", "reader")
        server.process.send_signal(signal.SIGHUP)
        server.wait_log("keys_reloaded")
        self.assertIsNone(leaver.receive())
        stayer.call("ping", {})
        self.denied(self.connect(None, server), ["not known"], "hello", {"protocol": 1, "token": gone})
        self.connect("comer", server).call("ping", {})

    def test_a_list_that_cannot_be_read_changes_nothing(self):
        server = embd_process.Embd("--http", "off", "--tokens", self.tokens.path)
        self.addCleanup(server.stop)
        with open(self.tokens.path, "a", encoding="ascii") as file:
            file.write("nonsense\n")
        try:
            server.process.send_signal(signal.SIGHUP)
            server.wait_log("keys_not_reloaded")
            self.connect("looker", server).call("ping", {})
        finally:
            self.tokens.write()

    def test_mistakes_in_a_list_name_file_and_line_and_show_no_secret(self):
        good = "a" * 64
        for text, line, words in (
                ("x reader * sha256:" + good + "\nx admin * sha256:" + "b" * 64 + "\n", 2, ["'x'", "duplicate"]),
                ("x reader * sha256:" + good + "\ny admin * sha256:" + good, 2, ["the same token"]),
                ("x writer * sha256:" + good, 1, ["writer", "trainer"]),
                ("X reader * sha256:" + good, 1, ["'X'"]),
                ("x admin ads_ sha256:" + good, 1, ["ads_", "*"]),
                ("x reader * embd_topsecret", 1, ["sha256:"]),
                ("x reader * sha256:" + good + " more", 1, ["after the hash"]),
                ("x reader A* sha256:" + good, 1, ["A*"]),
                ("\n\nx reader", 3, ["invalid table prefix"])):
            path = os.path.join(self.folder, "bad")
            with open(path, "w", encoding="ascii") as file:
                file.write(text)
            answer = embd_process.run("--tokens", path)
            self.assertEqual(answer.returncode, USAGE, text)
            for word in [f"{path}:{line}:", *words]:
                self.assertIn(word, answer.stderr)
            self.assertNotIn("topsecret", answer.stderr)
        os.chmod(path, 0o622)
        self.assertIn("0622", embd_process.run("--tokens", path).stderr)


if __name__ == "__main__":
    unittest.main()
