"""Random histories of snapshots of all tables and of some: pushes with numbers, tables dropped and created, snapshots of jobs
with `keep` and upon one another, snapshots removed, servers ended and killed, also in the middle of a snapshot.

Beside them goes a model of dictionaries: what each table and each cut holds. After each start the tables are what the rule
says: the newest snapshot that covers a table decides about it, down to the newest of all tables. And numbered pushes are sent:
those that were applied, and the next. One that a shard applies was in no table, and all before it are in all of its tables;
one that a shard calls repeated is in all of its tables; any other is refused, as GAP or FORGOTTEN.

EMBD_FAULT_SEEDS=n histories, EMBD_FAULT_SEED=n the one."""
import os
import random
import shutil
import tempfile
import time
import unittest

import beside
import wire
from embd_process import Embd

SEEDS = int(os.environ.get("EMBD_FAULT_SEEDS", "4"))
DEEDS = 70
SHARDS = 2
DIM = 48  # a column for each stream
OK, KEY = 0, {0: 0, 1: 1}  # by partition modulo
GAP, FORGOTTEN = 21, 22
TABLES = {"a-x": "snapshot", "a-y": "snapshot", "b-x": "snapshot", "a-d": "durable", "b-d": "durable"}
SCOPES = [("", None), ("", None), ("a", ("a-*",)), ("a", ("a-x", "a-y")), ("b", ("b-x",)), ("b", ("b-*",)), ("", ("a-x",)),
          ("b", None)]
KINDS = [("a-x",), ("b-x",), ("a-x", "a-y"), ("a-x", "b-x"), ("a-d",), ("a-d", "b-d")]


def covers(scope, table):
    return scope is None or any(table.startswith(n[:-1]) if n[-1] == "*" else table == n for n in scope)


def hides(scope, other):
    """Whether it covers all that the other may."""
    if scope is None or other is None:
        return scope is None
    return all(any(m == n or (m[-1] == "*" and n.rstrip("*").startswith(m[:-1])) for m in scope) for n in other)


class Stream:
    """Of a shard: `made` are the tables of each push."""

    def __init__(self, shard, number):
        self.shard, self.number = shard, number
        self.kind = KINDS[number % len(KINDS)]
        self.is_durable = self.kind[0].endswith("-d")
        self.made = []

    def writer(self):
        return {"high": 7, "low": 9, "stream": self.number + 1}

    def count(self, name, table, n):
        """Of its first n pushes those that the table has seen since it was created."""
        return sum(name in tables for tables in self.made[table.births.get(self.number, 0):n])


class Table:
    """Of a shard: a column for each stream, and how many pushes that had made when the table was created."""

    def __init__(self, births):
        self.row, self.births = [0] * DIM, births

    def copy(self):
        other = Table(self.births)
        other.row = list(self.row)
        return other


class History(unittest.TestCase):
    def begin(self, seed):
        self.dice, self.told = random.Random(seed), []
        folder = tempfile.TemporaryDirectory(prefix="embd-fault-")
        self.addCleanup(folder.cleanup)
        self.data = folder.name
        self.tables = [{} for _ in range(SHARDS)]  # name: Table
        self.cuts = []  # the oldest first: dict
        self.streams, self.n_streams = [], [0] * SHARDS
        self.n = dict.fromkeys(("cuts", "starts", "applied", "again", "refused", "joined"), 0)

    def tell(self, *what):
        self.told.append(" ".join(map(str, what)))

    # ---- the server ----

    def start(self, *flags):
        self.server = Embd("--data-dir", self.data, *flags, shards=SHARDS)
        self.wires = [wire.connect(self.server, shard) for shard in range(SHARDS)]
        self.ids = {}

    def end(self, kills):
        self.wires[0].close(), self.wires[1].close()
        self.server.kill() if kills else self.server.stop()

    def create(self, name):
        for shard in range(SHARDS):
            schema = wire.constant_schema(name, DIM, 0.0, partition="modulo", durability=TABLES[name],
                                          optimizer={"kind": "sgd", "lr": 1.0}) | {"durability": TABLES[name]}
            self.ids[name] = self.wires[shard].call("table_create", {"schema": schema})[0]["id"]
            self.tables[shard][name] = Table({s.number: len(s.made) for s in self.streams if s.shard == shard})

    def drop(self, name):
        for shard in range(SHARDS):
            self.wires[shard].call("table_drop", {"name": name})
            del self.tables[shard][name]

    # ---- numbered pushes ----

    def open_stream(self):
        shard = self.dice.randrange(SHARDS)
        if self.n_streams[shard] == DIM:
            return
        stream = Stream(shard, self.n_streams[shard])
        self.n_streams[shard] += 1
        wire.open_stream(self.wires[shard], stream.writer(), stream.is_durable)
        self.streams.append(stream)

    def send(self, stream, number, tables):
        """"applied", "again", or the error's number."""
        parts = [{"table": self.ids[name], "keys": 1} for name in tables]
        grads = [0.0] * DIM
        grads[stream.number] = -1.0
        bins = [data for _ in tables for data in (wire.keys([KEY[stream.shard]]), wire.floats(grads))]
        try:
            answer = self.wires[stream.shard].call(
                "push", {"parts": parts, "writer": stream.writer() | {"sequence": number}}, *bins)[0]
        except wire.RpcError as refused:
            return refused.number
        return "again" if answer.get("again") else "applied"

    def here(self, stream, tables):
        return [name for name in tables if name in self.tables[stream.shard]]

    def push(self):
        if not self.streams or self.dice.random() < 0.15:
            self.open_stream()
        if not self.streams:
            return
        stream = self.dice.choice(self.streams)
        tables = self.here(stream, self.dice.sample(stream.kind, self.dice.randint(1, len(stream.kind))))
        if not tables:
            return
        self.tell("push", stream.shard, stream.number, len(stream.made) + 1, tables)
        self.assertEqual(self.send(stream, len(stream.made) + 1, tables), "applied")
        self.note(stream, tables)

    def note(self, stream, tables):
        stream.made.append(tuple(tables))
        for name in tables:
            self.tables[stream.shard][name].row[stream.number] += 1

    def has(self, stream, n):
        """Of the first n pushes: whether each table that is here has these alone, and each at all."""
        return all(table.row[stream.number] == stream.count(name, table, n)
                   for name, table in self.tables[stream.shard].items())

    def probe(self, stream):
        """After a start: sends pushes again and anew. Whether the stream goes on."""
        most = len(stream.made)
        for number in dict.fromkeys([max(most, 1), most + 1, self.dice.randint(1, most + 1), 1]):
            tables = self.here(stream, stream.made[number - 1] if number <= most else stream.kind[:1])
            if not tables:
                continue
            said = self.send(stream, number, tables)
            self.tell("sent", stream.shard, stream.number, number, tables, said)
            if said == "applied":
                self.assertTrue(self.has(stream, number - 1), (stream.kind, number, stream.made))
                del stream.made[number - 1:]
                self.note(stream, tables)
                self.n["applied"] += 1
                return True
            if said == "again":
                self.n["again"] += 1
                for name in tables:
                    table = self.tables[stream.shard][name]
                    self.assertGreaterEqual(table.row[stream.number], stream.count(name, table, number))
            else:
                self.assertIn(said, (GAP, FORGOTTEN))
                self.n["refused"] += 1
        return False

    # ---- snapshots ----

    def words(self, name, job, scope, keep, base):
        return [name, *(["--job", job] if job else []), *(["--tables", ",".join(scope)] if scope else []),
                *(["--keep", str(keep)] if keep else []), *(["--incremental", base] if base else [])]

    def cut(self, is_killed=False):
        job, scope = self.dice.choice(SCOPES)
        keep = self.dice.choice((0, 0, 1, 2, 3))
        alike = [cut["name"] for cut in self.cuts if (cut["job"], cut["scope"]) == (job, scope)]
        base = self.dice.choice(alike[-2:]) if alike and self.dice.random() < 0.4 else None
        name = f"s{self.n['cuts']}"
        self.n["cuts"] += 1
        self.tell("snapshot", name, job, scope, keep, base)
        missing = scope and not all(any(covers((n,), table) for table in self.tables[0]) for n in scope)
        words = self.words(name, job, scope, keep, base)
        if is_killed:
            act = beside.Act()
            act.begin(self.server, "snapshot", *words)
            time.sleep(self.dice.uniform(0.0, 0.12))
            return act, (name, job, scope, keep, base)
        status, said = beside.run(self.server, "snapshot", *words)
        if missing:
            self.assertNotEqual(status, OK)
            self.assertIn("has no table", said)
            self.assertFalse([entry for entry in os.listdir(self.data) if entry.startswith(name)])
        elif base is None or "does not know what changed" not in said:
            self.assertEqual(status, OK, said)
        if status == OK:
            self.note_cut(name, job, scope, keep, base)
        return None

    def note_cut(self, name, job, scope, keep, base):
        held = [{t: table.copy() for t, table in tables.items() if covers(scope, t)} for tables in self.tables]
        self.cuts.append({"name": name, "job": job, "scope": scope, "tables": held, "base": base})
        if keep:
            self.keep(self.cuts[-1], keep)

    def keep(self, newest, n):
        mine = [cut for cut in self.cuts if cut["job"] == newest["job"] and hides(newest["scope"], cut["scope"])]
        stay = {cut["name"] for cut in self.cuts if cut not in mine or cut in mine[-n:]}
        while True:
            bases = {cut["base"] for cut in self.cuts if cut["name"] in stay} - {None} - stay
            if not bases:
                break
            stay |= bases
        self.cuts = [cut for cut in self.cuts if cut["name"] in stay]
        self.assertEqual(sorted(os.listdir(self.data)), sorted(self.others() + [cut["name"] for cut in self.cuts]))

    def others(self):
        return [entry for entry in os.listdir(self.data) if entry[0] != "s" or not entry[1:].isdigit()]

    def end_of_act(self, act, what):
        """The server is gone: the snapshot is complete or it is none."""
        act.end()
        name, job, scope, _, base = what
        if os.path.isdir(os.path.join(self.data, name)):
            self.note_cut(name, job, scope, 0, base)
        there = set(os.listdir(self.data))
        self.cuts = [cut for cut in self.cuts if cut["name"] in there]  # `keep` was at work, or not

    def remove_newest(self):
        """Unless another one is upon it."""
        if self.cuts and all(cut["base"] != self.cuts[-1]["name"] for cut in self.cuts):
            self.tell("remove", self.cuts[-1]["name"])
            shutil.rmtree(os.path.join(self.data, self.cuts.pop()["name"]))

    # ---- starts ----

    def expect(self, named):
        """What the tables are after a start."""
        order = ([named] if named else []) + self.cuts[::-1]
        before, self.tables = self.tables, [{} for _ in range(SHARDS)]
        for shard in range(SHARDS):
            taken = []
            for cut in order:
                for name, table in cut["tables"][shard].items():
                    if TABLES[name] == "snapshot" and not any(covers(scope, name) for scope in taken):
                        self.tables[shard][name] = table.copy()
                self.n["joined"] += bool(taken) and None not in taken
                taken.append(cut["scope"])
                if cut["scope"] is None:
                    break
            for name, table in before[shard].items():
                if TABLES[name] == "durable":
                    self.tables[shard][name] = table

    def restart(self):
        kills, act = self.dice.random() < 0.6, None
        if kills and self.dice.random() < 0.5:
            act, what = self.cut(is_killed=True)
        self.end(kills)
        if act:
            self.end_of_act(act, what)
        if self.dice.random() < 0.3:
            self.remove_newest()
        named = self.dice.choice(self.cuts) if self.cuts and self.dice.random() < 0.2 else None
        self.tell("start", "killed" if kills else "", named and named["name"])
        self.expect(named)
        self.start(*(["--restore", named["name"]] if named else []))
        self.n["starts"] += 1
        self.check()
        self.streams = [stream for stream in self.streams if self.probe(stream)]
        self.check()
        if named:  # what is newer would come back at the next start
            while self.cuts[-1] is not named:
                shutil.rmtree(os.path.join(self.data, self.cuts.pop()["name"]))

    def check(self):
        for shard, tables in enumerate(self.tables):
            there = {t["name"]: t["id"] for t in self.wires[shard].call("tables", {})[0]["tables"]}
            self.assertEqual(sorted(there), sorted(tables))
            self.ids |= there
            for name, table in tables.items():
                self.assertEqual(wire.pull(self.wires[shard], there[name], [KEY[shard]]), list(map(float, table.row)), name)

    def deed(self):
        which = self.dice.random()
        missing = [name for name in TABLES if name not in self.tables[0]]
        if which < 0.5:
            for _ in range(self.dice.randint(1, 4)):
                self.push()
        elif which < 0.8:
            self.cut()
        elif which < 0.86 and missing:
            self.tell("create", missing[0])
            self.create(missing[0])
        elif which < 0.88 and self.tables[0]:
            name = self.dice.choice(sorted(self.tables[0]))
            self.tell("drop", name)
            self.drop(name)
        elif which > 0.88:
            self.restart()

    def play(self, seed):
        self.begin(seed)
        self.start()
        try:
            for name in TABLES:
                self.create(name)
            for _ in range(DEEDS):
                self.deed()
            self.restart()
        except BaseException:
            print(f"seed {seed}:", *self.told, self.server.log(), sep="\n")
            raise
        finally:
            self.end(True)
        print(f"seed {seed}:", self.n)

    def test_each_start_has_the_newest_cut_of_each_table(self):
        one = os.environ.get("EMBD_FAULT_SEED")
        for seed in [int(one)] if one else range(1, SEEDS + 1):
            with self.subTest(seed=seed):
                self.play(seed)


if __name__ == "__main__":
    unittest.main()
