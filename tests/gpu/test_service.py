"""usage: test_service.py FLAG... - a server with these flags (--store nccl, say) beside one on the store host: random
pushes, pulls and erases of tables of every partition, many under way at once, get the same answers, byte for byte, and
so do pulls of all keys after them."""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
try:
    import msgpack  # noqa: F401
except ImportError:
    print("skipped: no msgpack for this python3")
    sys.exit(0)
from embd_process import Embd  # noqa: E402
import wire  # noqa: E402

CALLS, AT_ONCE, POOL, SEED = 240, 8, 3000, 5


def schema(name, partition, combiner, optimizer, **others):
    return {"name": name, "dim": 12, "slots": 5, "partition": partition, "combiner": combiner, "seed": 9,
            "optimizer": {"kind": optimizer, "lr": 0.05}, **others}


SCHEMAS = [
    schema("raw", "hash", "concat", "sgd"),
    schema("pooled", "hash", "sum", "adagrad", admit_after=2),
    schema("by_key", "modulo", "sqrtn", "rowwise_adagrad", on_full="evict_lru", capacity=700),
    schema("by_slot", "slot", "mean", "adam"),
    schema("used_most", "slot", "sum", "adam", on_full="evict_lfu", capacity=900),
]


class Caller:
    """Draws calls that are the same for every server; `ids` are those of SCHEMAS."""

    def __init__(self, ids):
        self.ids, self.dice = ids, random.Random(SEED)

    def keys(self, n):
        return [self.dice.randrange(POOL) * 0x9e3779b97f4a7c15 % 2**64 for _ in range(n)]

    def batch(self, table, may_pool):
        """The map of a part, and its bins but for the gradients."""
        part, n_rows = {"table": self.ids[table], "status": True}, self.dice.randrange(200)
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


def main(flags):
    with Embd("--store", "host") as host, Embd(*flags, ready_s=60) as server:
        with wire.connect(host) as one, wire.connect(server, timeout=60) as other:
            ids = [[c.call("table_create", {"schema": s})[0]["id"] for s in SCHEMAS] for c in (one, other)]
            assert ids[0] == ids[1], ids
            caller = Caller(ids[0])
            answers = compare(one, other, [caller.draw() for _ in range(CALLS)])
            parts = [result[0]["parts"][0] for error, result in answers.values() if error is None]
            evicted = sum(part.get("evicted", 0) for part in parts)
            rows = compare_tables(one, other, ids[0])
            assert len(parts) == CALLS and evicted > 0 and rows > 0, (len(parts), evicted, rows)
    print(f"embd {' '.join(flags)}: {CALLS} calls, {evicted} rows evicted, {rows} rows left: as of store host")


main(sys.argv[1:])
