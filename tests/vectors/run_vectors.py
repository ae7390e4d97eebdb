"""Runs proto/vectors against a server, over the bytes of PROTOCOL.md: no libembd, no package. The server must be fresh.
Usage: run_vectors.py HOST:PORT [FILE.json...] [ADMIN.sock...]
With the admin sockets of the shards, rows and their states are compared too."""
import json
import pathlib
import struct
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))
import wire  # noqa: E402

f32 = np.float32
WORDS = {"f32": "<u4", "f16": "<u2", "bf16": "<u2"}
COUNTS = "inserted", "full", "filtered", "evicted"
DTYPES = ["f32", "f16", "bf16"]
FLAGS = ("status", 8), ("zero", 16), ("scale", 32)  # of a record of columns


def words(text, dtype="f32"):
    """Bytes of hex digits."""
    return np.array([int(word, 16) for word in text.split()], WORDS[dtype]).tobytes()


def text_of(data, dtype="f32"):
    digits = 8 if dtype == "f32" else 4
    return " ".join(f"{word:0{digits}x}" for word in np.frombuffer(data, WORDS[dtype]).tolist())


def divisor(combiner, n, weights):
    total = f32(0)
    for w in weights if weights is not None else []:
        total = total + (w if combiner == "mean" else w * w)
    total = total if weights is not None else f32(n)
    if combiner not in ("mean", "sqrtn") or total == 0:
        return f32(1)
    return total if combiner == "mean" else np.sqrt(total)


def shard_of(partition, key, slot, n):
    return wire.owner(key, n) if partition == "hash" else (key if partition == "modulo" else slot) % n


def column(arrays):
    """One behind the other, each padded to a multiple of 8 bytes."""
    return b"".join(data + bytes(-len(data) % 8) for data in arrays)


class Refused(Exception):
    def __init__(self, number):
        super().__init__(f"error {number}")
        self.number = number


class Share:
    """A shard's keys of a batch: the rows that they belong to, and where each stands in the batch."""

    def __init__(self):
        self.keys, self.rows, self.ends, self.at = [], [], [], []


class Cluster:
    def __init__(self, address, admins):
        host, port = address.rsplit(":", 1)
        with wire.Wire((host, int(port))) as first:
            places = first.call("cluster", {})[0]["shards"]
        ends = [place["address"].rsplit(":", 1) for place in places]
        self.ends = [(host, int(port)) for host, port in ends]
        self.shards = [wire.Wire(end) for end in self.ends]
        for i, shard in enumerate(self.shards):
            assert shard.call("hello", {"protocol": 1})[0]["shard"] == i
        self.admins = [wire.Wire(path) for path in admins]
        self.tables = {}

    def ask(self, shard, method, params, *bins):
        try:
            return shard.call(method, params, *bins)
        except wire.RpcError as error:
            raise Refused(error.number) from None

    def ask_all(self, method, params, *bins):
        return [self.ask(shard, method, params, *bins) for shard in self.shards]

    def close(self):
        for connection in (*self.shards, *self.admins):
            connection.close()

    # ---- one step each ----

    def create(self, what):
        schema, sizes = what["schema"], what.get("slot_sizes")
        params = {"schema": {**schema, **({"slot_sizes": True} if sizes else {})}}
        answers = self.ask_all("table_create", params, *([wire.keys(sizes)] if sizes else []))
        self.tables[schema["name"]] = {"combiner": "sum", "partition": "hash", "dtype": "f32", **schema,
                                       "id": answers[0][0]["id"]}
        return answers[0][0]

    def shares(self, table, what):
        """The rows of each shard, in their order; every row has a share only where it has keys, but in a cluster of one."""
        n, shares = len(self.shards), [Share() for _ in self.shards]
        offsets = what.get("offsets", list(range(len(what["keys"]) + 1)))
        slots = what.get("slots", [0] * (len(offsets) - 1))
        for r, (begin, end) in enumerate(zip(offsets, offsets[1:])):
            for k in range(begin, end):
                share = shares[shard_of(table["partition"], what["keys"][k], slots[r], n)]
                if not share.rows or share.rows[-1] != r:
                    share.rows.append(r)
                    share.ends.append(0)
                share.keys.append(what["keys"][k])
                share.at.append(k)
                share.ends[-1] = len(share.keys)
            if begin == end:
                empty = shares[slots[r] % n if table["partition"] == "slot" else 0]
                empty.rows.append(r)
                empty.ends.append(len(empty.keys))
        return shares

    def part(self, table, what, share, weights):
        """The map of one shard's part, and its bins but grads."""
        dtype = what.get("dtype", "f32")
        part = {"table": table["id"], "keys": len(share.keys), "dtype": dtype}
        part.update({name: what[name] for name in ("status", "zero", "lr") if what.get(name)})
        bins = [wire.keys(share.keys)]
        if "offsets" in what:
            part["rows"] = len(share.rows)
            bins.append(wire.offsets([0, *share.ends]))
        if "slots" in what:
            part["slots"] = True
            bins.append(np.array([what["slots"][r] for r in share.rows], "<u2").tobytes())
        if weights is not None:
            part["weights"] = True
            bins.append(weights[share.at].tobytes())
        if "scores" in what:
            part["scores"] = True
            bins.append(np.frombuffer(words(what["scores"]), f32)[share.at].tobytes())
        if what.get("scale") and len(self.shards) == 1:
            part["scale"] = True
        return part, bins

    @staticmethod
    def weights_of(what):
        return np.frombuffer(words(what["weights"]), f32) if "weights" in what else None

    def divisors(self, table, what):
        weights, offsets = self.weights_of(what), what["offsets"]
        return [divisor(table["combiner"], end - begin, None if weights is None else weights[begin:end])
                for begin, end in zip(offsets, offsets[1:])]

    def push(self, what):
        table, extra = self.tables[what["table"]], {}
        weights = self.weights_of(what)
        if what.get("scale") and len(self.shards) > 1:
            weights = np.ones(len(what["keys"]), f32) if weights is None else weights.copy()
            for (begin, end), by in zip(zip(what["offsets"], what["offsets"][1:]), self.divisors(table, what)):
                weights[begin:end] = weights[begin:end] / by if by != 1 else weights[begin:end]
        if "writer" in what:
            extra["writer"] = what["writer"]
        answers = []
        shares = self.shares(table, what)
        for shard, share in zip(self.shards, shares):
            part, bins = self.part(table, what, share, weights)
            grads = b"".join(words(what["grads"][r], part["dtype"]) for r in share.rows)
            answers.append(self.ask(shard, "push", {"parts": [part], **extra}, *bins, grads))
        if any(answer[0].get("again") for answer in answers):
            return {"again": True}
        parts = [answer[0]["parts"][0] for answer in answers]
        answer = {name: sum(part.get(name, 0) for part in parts) for name in COUNTS}
        return {"step": parts[0]["step"], **answer, **self.statuses(what, shares, answers)}

    @staticmethod
    def statuses(what, shares, answers, at=1):
        statuses = [None] * len(what["keys"])
        for share, answer in zip(shares, answers):
            for k, status in zip(share.at, answer[at] if what.get("status") else []):
                statuses[k] = status
        return {"status": statuses} if what.get("status") else {}

    def pull(self, what):
        table, dtype = self.tables[what["table"]], what.get("dtype", "f32")
        shares, answers = self.shares(table, what), []
        n_rows = len(what["offsets"]) - 1 if "offsets" in what else len(what["keys"])
        rows = [None] * n_rows
        for shard, share in zip(self.shards, shares):
            part, bins = self.part(table, what, share, self.weights_of(what))
            answers.append(self.ask(shard, "pull", {"parts": [part]}, *bins))
            width = len(answers[-1][1]) // max(1, len(share.rows))
            for i, r in enumerate(share.rows):
                row = answers[-1][1][i * width:(i + 1) * width]
                rows[r] = row if rows[r] is None else (np.frombuffer(rows[r], f32) + np.frombuffer(row, f32)).tobytes()
        if what.get("scale") and len(self.shards) > 1:
            for r, by in enumerate(self.divisors(table, what)):
                rows[r] = (np.frombuffer(rows[r], f32) / by).tobytes() if by != 1 else rows[r]
        return {"values": [text_of(row, dtype) for row in rows], **self.statuses(what, shares, answers, 2)}

    # ---- several parts in a request, as columns ----

    def add_part(self, method, what, share, columns):
        """A shard's part: its record, and its arrays."""
        table, kinds = self.tables[what["table"]], [("offsets", 1), ("slots", 2), ("weights", 4)]
        part, bins = self.part(table, what, share, self.weights_of(what))
        has = [name in what for name, _ in kinds]
        columns[1].append(bins.pop(0))
        for i, (name, _) in enumerate(kinds):
            columns[2 + i] += [bins.pop(0)] if has[i] else []
        flags = sum(flag for there, (_, flag) in zip(has, kinds) if there) + sum(flag for name, flag in FLAGS if part.get(name))
        grads = b"".join(words(what["grads"][r], part["dtype"]) for r in share.rows) if method == "push" else b""
        columns[5] += [grads] if method == "push" else []
        columns[0].append(struct.pack("<IIIHHfI", table["id"], len(share.keys), len(share.rows), flags,
                                      DTYPES.index(part["dtype"]), what.get("lr", 0), len(grads)))

    def columns(self, what):
        method, parts = what["method"], what["parts"]
        shares = [self.shares(self.tables[part["table"]], part) for part in parts]
        answers = []
        for s, shard in enumerate(self.shards):
            columns = [[] for _ in range(6)]
            for part, own in zip(parts, shares):
                self.add_part(method, part, own[s], columns)
            bins = [b"".join(columns[0]), *map(column, columns[1:5 + (method == "push")])]
            answers.append(list(self.ask(shard, method, {"columns": len(parts)}, *bins)))
        return [self.answer_of(method, part, own, i, answers) for i, (part, own) in enumerate(zip(parts, shares))]

    def answer_of(self, method, what, shares, i, answers):
        """The i-th part of what the shards answer. Takes its bins off the answers."""
        rows = [answer.pop(1) for answer in answers] if method == "pull" else []
        told = [(answer[0]["parts"][i], answer.pop(1) if what.get("status") else b"") for answer in answers]
        statuses = self.statuses(what, shares, told)
        if method == "pull":
            return {"values": self.rows_of(what, shares, rows), **statuses}
        sums = {name: sum(part.get(name, 0) for part, _ in told) for name in (*COUNTS, "erased")}
        if method == "erase":
            return {"erased": sums["erased"], **statuses}
        del sums["erased"]
        return {"step": told[0][0]["step"], **sums, **statuses}

    @staticmethod
    def rows_of(what, shares, bins):
        """Every row is a single shard's."""
        dtype, rows = what.get("dtype", "f32"), {}
        for share, data in zip(shares, bins):
            width = len(data) // max(1, len(share.rows))
            rows.update({r: data[i * width:(i + 1) * width] for i, r in enumerate(share.rows)})
        return [text_of(rows[r], dtype) for r in sorted(rows)]

    # ---- workers in step ----

    def round(self, what):
        """Each worker has connections of its own, and is answered when all have pushed."""
        table, n = self.tables[what["table"]], len(what["workers"])
        own = [[wire.Wire(end) for end in self.ends] for _ in what["workers"]]
        for i, (worker, wires) in enumerate(zip(what["workers"], own)):
            fields = {"job": what["job"], "worker": i, "workers": n, "clock": what["clock"]}
            for shard, share in zip(wires, self.shares(table, worker)):
                part, bins = self.part(table, worker, share, None)
                shard.begin("push", {"parts": [part], "round": fields}, *bins, b"".join(words(worker["grads"][r]) for r in share.rows))
        answers = [[shard.receive()[3][0]["parts"][0] for shard in wires] for wires in own]
        for shard in sum(own, []):
            shard.close()
        told = [{"step": answer[0]["step"], **{name: sum(part.get(name, 0) for part in answer) for name in COUNTS}} for answer in answers]
        assert all(one == told[0] for one in told), told
        return told[0]

    # ---- rows as they are stored ----

    def places(self, what):
        """Of each shard, which keys of the request it has."""
        table, places = self.tables[what["table"]], [[] for _ in self.shards]
        for i, key in enumerate(what["keys"]):
            places[shard_of(table["partition"], key, what.get("slots", [0] * (i + 1))[i], len(self.shards))].append(i)
        return places

    def keyed(self, what, at, **fields):
        keys = wire.keys([what["keys"][i] for i in at])
        slots = [np.array([what["slots"][i] for i in at], "<u2").tobytes()] if "slots" in what else []
        return {"table": what["table"], "keys": len(at), **fields}, keys, *slots

    def put(self, what):
        table, inserted, again = self.tables[what["table"]], 0, set()
        for shard, at in zip(self.shards, self.places(what)):
            states = [b"".join(words(what["states"][i]) for i in at)] if "states" in what else []
            number = {"writer": what["writer"]} if "writer" in what else {}  # of all shards, with or without keys
            params, *bins = self.keyed(what, at, states="states" in what, **number)
            rows = b"".join(words(what["values"][i], table["dtype"]) for i in at)
            answer = self.ask(shard, "put", params, *bins, rows, *states)[0]
            inserted += answer["inserted"]
            again.add(answer.get("again", False))
        return {"again": True} if again == {True} else {"inserted": inserted}

    def get(self, what):
        table, n = self.tables[what["table"]], len(what["keys"])
        told = {"status": [None] * n, "values": [None] * n, "states": [None] * n}
        for shard, at in zip(self.shards, self.places(what)):
            head, statuses, rows, *states = self.ask(shard, "get", *self.keyed(what, at, states=True))
            values = head["dim"] * (4 if table["dtype"] == "f32" else 2)
            for i, r in enumerate(at):
                told["status"][r] = statuses[i]
                told["values"][r] = text_of(rows[i * values:(i + 1) * values], table["dtype"])
                told["states"][r] = text_of(states[0][i * head["states"] * 4:(i + 1) * head["states"] * 4]) if states else ""
        return told

    def erase(self, what):
        table = self.tables[what["table"]]
        shares, answers = self.shares(table, what), []
        for shard, share in zip(self.shards, shares):
            part, bins = self.part(table, what, share, None)
            del part["dtype"]
            answers.append(self.ask(shard, "erase", {"parts": [part]}, *bins))
        erased = sum(answer[0]["parts"][0]["erased"] for answer in answers)
        return {"erased": erased, **self.statuses(what, shares, answers)}

    def describe(self, what):
        answers = [answer[0] for answer in self.ask_all("table_describe", {"name": what["table"]})]
        assert len({answer["step"] for answer in answers}) == 1
        return {"step": answers[0]["step"], **{name: sum(answer[name] for answer in answers) for name in ("rows", "candidates")}}

    def stream_open(self, what):
        answers = [answer[0] for answer in self.ask_all("stream_open", what)]
        assert all(answer == answers[0] for answer in answers)
        return answers[0]

    def writer(self, what):
        answers = [answer[0] for answer in self.ask_all("writer", what)]
        assert all(answer == answers[0] for answer in answers)
        return answers[0]

    def call(self, what):
        return self.ask(self.shards[0], what["method"], what["params"], *map(bytes.fromhex, what["bins"]))

    def route(self, what):
        slots = what.get("slots", [0] * len(what["keys"]))
        places = list(zip(what["keys"], slots))
        if "placement" not in what:
            return [shard_of(what["partition"], key, slot, what["shards"]) for key, slot in places]
        runs, base = what["placement"]["runs"], what["placement"]["base"]
        owners = [shard for shard, n in zip(runs[::2], runs[1::2]) for _ in range(n)]
        return [owners[wire.vshard(what["partition"], key, slot, base)] for key, slot in places]

    def rows(self, what):
        table, rows, candidates = self.tables[what["table"]], [], []
        for admin in self.admins:
            admin.call("hold", {})
            try:
                self.scan(admin, table, rows, candidates)
            finally:
                admin.call("release", {})
        order = lambda row: (row["key"], row["slot"])  # noqa: E731
        return {"rows": sorted(rows, key=order), "candidates": sorted(candidates, key=order)}

    @staticmethod
    def scan(admin, table, rows, candidates):
        has_slots, dtype, cursor, done = table["partition"] == "slot", table["dtype"], 0, False
        while not done:
            head, *bins = admin.call("scan", {"table": table["name"], "cursor": cursor})
            cursor, done, bins = head["next"], head["done"], list(bins)
            has_states = len(bins) > 4 + 2 * has_slots
            keys, slots, values, states = (bins.pop(0) if there else b"" for there in (True, has_slots, True, has_states))
            n = head["rows"]
            for i, (key, slot) in enumerate(zip(struct.unpack(f"<{n}Q", keys), slots_of(slots, n))):
                value, state = (data[i * len(data) // n:(i + 1) * len(data) // n] for data in (values, states))
                rows.append({"key": key, "slot": slot, "value": text_of(value, dtype), "state": text_of(state)})
            keys, slots, counts = (bins.pop(0) if there else b"" for there in (True, has_slots, True))
            n = head["candidates"]
            for key, slot, count in zip(struct.unpack(f"<{n}Q", keys), slots_of(slots, n), struct.unpack(f"<{n}I", counts)):
                candidates.append({"key": key, "slot": slot, "count": count})


def slots_of(data, n):
    return struct.unpack(f"<{n}H", data) if data else [0] * n


def run_step(cluster, step):
    """None, or how the answer differs."""
    (kind, what), wanted = next(iter(step.items())), step.get("answer")
    if kind == "rows" and not cluster.admins:
        return None
    try:
        answer = getattr(cluster, kind)(what)
    except Refused as refused:
        return None if step.get("error") == refused.number else f"error {refused.number}, expected {step}"
    if "error" in step:
        return f"{answer}, expected {step}"
    return None if answer == wanted else f"{answer}, expected {step}"


def run_vector(cluster, vector):
    for i, step in enumerate(vector["steps"]):
        difference = run_step(cluster, step)
        if difference:
            raise SystemExit(f"{vector['name']!r}, step {i}: {difference}")


def vectors_of(paths, n_shards):
    for path in paths or sorted((ROOT / "proto/vectors").glob("*.json")):
        for vector in json.loads(pathlib.Path(path).read_text(encoding="ascii"))["vectors"]:
            if n_shards in vector["shards"]:
                yield vector


def run(address, admins=(), paths=()):
    """The number of vectors that were run; a difference ends the program."""
    n, cluster = 0, Cluster(address, admins)
    for n, vector in enumerate(vectors_of(paths, len(cluster.shards)), 1):
        run_vector(cluster, vector)
    cluster.close()
    return n


def main():
    address, *rest = sys.argv[1:]
    admins = [word for word in rest if word.endswith(".sock")]
    print(run(address, admins, [word for word in rest if word.endswith(".json")]), "vectors agree")


if __name__ == "__main__":
    main()
