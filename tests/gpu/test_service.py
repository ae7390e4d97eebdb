"""usage: test_service.py FLAG... - a server with these flags (--store nccl, say) beside one on the store host: random
pushes, pulls and erases of tables of every partition, many under way at once, get the same answers, byte for byte, and
so do pulls of all keys after them. EMBD_TRIED: another program for the first. Snapshots of both, whole and of what changed since earlier ones, have the same rows,
states, keys that are gone and candidates."""
import os
import random
import sys
import tempfile

for folder in ("integration", "embctl"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", folder))
try:
    import msgpack  # noqa: F401
except ImportError:
    print("skipped: no msgpack for this python3")
    sys.exit(0)
from embd_process import BIN, Embd  # noqa: E402
import partfiles  # noqa: E402
import wire  # noqa: E402

TRIED = os.environ.get("EMBD_TRIED", BIN)
CALLS, AT_ONCE, POOL, SEED = 240, 8, 3000, 5


def schema(name, partition, combiner, optimizer, **others):
    return {"name": name, "dim": 12, "slots": 5, "partition": partition, "combiner": combiner, "seed": 9,
            "durability": "snapshot", "optimizer": {"kind": optimizer, "lr": 0.05}, **others}


SCHEMAS = [
    schema("raw", "hash", "concat", "sgd"),
    schema("pooled", "hash", "sum", "adagrad", admit_after=2),
    schema("by_key", "modulo", "sqrtn", "rowwise_adagrad", on_full="evict_lru", capacity=700),
    schema("by_slot", "slot", "mean", "adam"),
    schema("coded", "hash", "mean", "adam", dtype="i8", rounding="stochastic"),
    schema("coded_by_slot", "slot", "concat", "adagrad", dtype="e4m3", admit_after=2),
    schema("used_most", "slot", "sum", "adam", on_full="evict_lfu", capacity=900),
]


class Caller:
    """Draws calls that are the same for every server; `ids` are those of SCHEMAS."""

    def __init__(self, ids):
        self.ids, self.dice = ids, random.Random(SEED)

    def keys(self, n):
        return [self.dice.randrange(POOL) * 0x9e3779b97f4a7c15 % 2**64 for _ in range(n)]

    def batch(self, table, may_pool, n_rows=None):
        """The map of a part, and its bins but for the gradients."""
        part, n_rows = {"table": self.ids[table], "status": True}, n_rows or self.dice.randrange(200)
        is_pooled = may_pool and SCHEMAS[table]["combiner"] != "concat" and self.dice.randrange(3) > 0
        lengths = [self.dice.randrange(6) if is_pooled else 1 for _ in range(n_rows)]
        part["keys"] = sum(lengths)
        bins = [wire.keys(self.keys(part["keys"]))]
        if is_pooled:
            part["rows"] = n_rows
            bins.append(wire.offsets([sum(lengths[:i]) for i in range(n_rows + 1)]))
        if SCHEMAS[table]["partition"] == "slot":
            part["slots"] = True
            bins.append(b"".join(self.dice.randrange(5).to_bytes(2, "little") for _ in range(n_rows)))
        return part, bins, n_rows

    def draw(self):
        table, what = self.dice.randrange(len(SCHEMAS)), self.dice.choice(["push", "push", "pull", "pull", "erase"])
        part, bins, n_rows = self.batch(table, what != "erase")
        if what == "push":
            bins.append(wire.floats([self.dice.randrange(-64, 64) / 32 for _ in range(12 * n_rows)]))
        elif what == "pull" and "rows" in part:
            part["scale"] = bool(self.dice.randrange(2))
        return (what, {"parts": [part]}, *bins)

    def train(self, table):
        """Pulls of a large batch, and pushes of the same keys, which take what the pulls found."""
        part, bins, n_rows = self.batch(table, False, 4500)
        gradients = wire.floats([self.dice.randrange(-64, 64) / 32 for _ in range(12 * n_rows)])
        push = ("push", {"parts": [part]}, *bins, gradients)
        return [push] + 4 * [("pull", {"parts": [part]}, *bins), push]


def play(connection, calls):
    """The answers, by call; AT_ONCE calls are under way at a time."""
    answers, first = {}, 0
    while first < len(calls):
        begun = [connection.begin(*call) for call in calls[first:first + AT_ONCE]]
        for _ in begun:
            _, msgid, error, result = connection.receive()
            answers[first + begun.index(msgid)] = error, result
        first += AT_ONCE
    return answers


def all_keys(table, has_slots):
    keys = wire.keys(k * 0x9e3779b97f4a7c15 % 2**64 for k in range(POOL))
    part = {"table": table, "keys": POOL, "status": True}
    if not has_slots:
        return [("pull", {"parts": [part]}, keys)]
    return [("pull", {"parts": [{**part, "slots": True}]}, keys, slot.to_bytes(2, "little") * POOL) for slot in range(5)]


def compare(one, other, calls):
    answers = [play(connection, calls) for connection in (one, other)]
    for i, call in enumerate(calls):
        if answers[0][i] != answers[1][i]:
            raise AssertionError(f"call {i}, a {call[0]} of {call[1]}: {str(answers[0][i])[:300]} of the host, "
                                 f"{str(answers[1][i])[:300]} of the other")
    return answers[0]


def compare_tables(one, other, ids):
    """How many rows they have."""
    rows = 0
    for s, table in zip(SCHEMAS, ids):
        for answer in compare(one, other, all_keys(table, s["partition"] == "slot")).values():
            rows += bytes(answer[1][2]).count(0)  # hit
        described = [c.call("table_describe", {"name": s["name"]})[0] for c in (one, other)]
        assert described[0] == described[1], described
    return rows


# A snapshot after so many of the calls, its name, and the one it is upon.
SNAPSHOTS = [(100, "a", None), (60, "b", "a"), (10, "c", "b"), (70, "d", "a")]


def snapshot(server, name, base):
    """As embd_snapshot makes one: rows are written when pushes go on again."""
    upon = {"base": base} if base else {}
    with wire.Wire(server.admin_path(), timeout=60) as admin:
        def phase(what, **fields):
            return admin.call("snapshot", {"name": name, "phase": what, **fields})[0]

        phase("begin", **upon)
        admin.call("hold", {})
        phase("cut", id=ord(name), **({"since": ord(base), **upon} if base else {}))
        admin.call("release", {})
        written = phase("write")
        phase("commit", id=ord(name), parts=written["parts"], writers=[written["writers"]])


def compare_snapshots(servers, folders, name, base):
    """How many rows it has, and keys that are gone."""
    for server in servers:
        snapshot(server, name, base)
    paths = [os.path.join(folder, name) for folder in folders]
    kinds = [[[part.get("changes", False) for part in table["parts"]] for table in partfiles.read_manifest(path)["tables"]]
             for path in paths]
    assert kinds[0] == kinds[1] == [[base is not None]] * len(SCHEMAS), (name, kinds)
    found = [partfiles.read(path) for path in paths]
    for table in found[0]:
        for what in found[0][table]:
            assert found[0][table][what] == found[1][table][what], f"snapshot {name}, table {table}: other {what}"
    tables = found[0].values()
    return sum(len(t["rows"]) for t in tables), sum(n == 0 for t in tables for n in t["candidates"].values())


def play_and_compare(servers, folders, one, other):
    ids = [[c.call("table_create", {"schema": s})[0]["id"] for s in SCHEMAS] for c in (one, other)]
    assert ids[0] == ids[1], ids
    caller, parts, told = Caller(ids[0]), [], {}
    for n_calls, name, base in SNAPSHOTS:
        answers = compare(one, other, [caller.draw() for _ in range(n_calls)])
        parts += [result[0]["parts"][0] for error, result in answers.values() if error is None]
        told[name] = compare_snapshots(servers, folders, name, base)
    for table in (0, 3):
        compare(one, other, caller.train(table))
    evicted = sum(part.get("evicted", 0) for part in parts)
    rows = compare_tables(one, other, ids[0])
    assert len(parts) == CALLS and evicted > 0 and rows > 0, (len(parts), evicted, rows)
    assert 0 < told["c"][0] < told["b"][0] < told["a"][0] and told["a"][1] == 0 < told["d"][1], told
    return f"{CALLS} calls, {evicted} rows evicted, {rows} rows left, snapshots of {told} (rows, keys gone)"


def main(flags):
    with tempfile.TemporaryDirectory() as mine, tempfile.TemporaryDirectory() as its, \
            Embd("--store", "host", "--data-dir", mine) as host, Embd(*flags, "--data-dir", its, ready_s=60, program=TRIED) as server:
        with wire.connect(host) as one, wire.connect(server, timeout=60) as other:
            said = play_and_compare((host, server), (mine, its), one, other)
    print(f"embd {' '.join(flags)}: {said}: as of store host")


main(sys.argv[1:])
