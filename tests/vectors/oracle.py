"""The oracle behind a pipe (oracle.c), and a vector that is written step by step with its answers."""
import os
import pathlib
import subprocess
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from wire import owner, vshard  # noqa: E402

f32 = np.float32
NAMES = {"f32": 8, "f16": 4, "bf16": 4}


def bits(values, dtype="f32"):
    """Rows of floats as text: the hex digits of each value's bits. f16 and bf16 round to nearest even."""
    values = np.asarray(values, f32)
    words = values.view(np.uint32)
    if dtype == "f16":
        with np.errstate(over="ignore"):
            words = values.astype(np.float16).view(np.uint16)
    if dtype == "bf16":
        finite = (words + 0x7fff + (words >> 16 & 1)) >> 16
        words = np.where(np.isnan(values), words >> 16 | 0x40, finite)
    return " ".join(f"{int(word):0{NAMES[dtype]}x}" for word in words.reshape(-1))


def values_of(text, dtype="f32"):
    words = np.array([int(word, 16) for word in text.split()], np.uint32)
    if dtype == "f16":
        return words.astype(np.uint16).view(np.float16).astype(f32)
    return (words << 16 if dtype == "bf16" else words).astype(np.uint32).view(f32)


class Oracle:
    def __init__(self):
        self.process = subprocess.Popen([os.path.join(os.environ["EMBD_BIN"], "vectors-oracle")], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.dims, self.widths, self.dtypes = {}, {}, {}  # of each table

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        if self.process.wait(20) != 0:
            raise SystemExit("the oracle failed")

    def table(self, schema, slot_sizes):
        fields = {}
        for name, value in schema.items():
            if isinstance(value, dict):
                fields[name] = value["kind"]
                fields.update({f"{name}.{field}": v for field, v in value.items() if field != "kind"})
            elif name != "name":
                fields[name] = str(value).lower()
        if slot_sizes:
            fields["slot_sizes"] = ",".join(map(str, slot_sizes))
        words = [word for field in fields.items() for word in field]
        number, n_states = map(int, self.ask("table", schema["name"], len(fields), *words))
        self.dims[schema["name"]], self.widths[schema["name"]] = schema["dim"], schema["dim"] + n_states
        self.dtypes[schema["name"]] = schema.get("dtype", "f32")
        return number

    @staticmethod
    def batch(part):
        keys, offsets = part["keys"], part.get("offsets")
        arrays = [keys, offsets, part.get("slots")]
        words = [int(part.get("scale", False)), int(part.get("status", False)), len(keys),
                 len(offsets) - 1 if offsets is not None else len(keys)]
        words += [int(array is not None) for array in (*arrays[1:], part.get("weights"), part.get("scores"))]
        for array in arrays:
            words += array or []
        return words + part.get("weights", "").split() + part.get("scores", "").split()


class Vector:
    """One sequence of requests. Each method adds a step, with the answer that the oracle gives."""

    def __init__(self, oracle, name, shards=(1, 3)):
        self.oracle, self.steps, self.streams = oracle, [], {}  # of each stream, its last push
        self.json = {"name": name, "shards": list(shards), "steps": self.steps}

    def step(self, kind, what, answer=None, error=0):
        self.steps.append({kind: what, "error": error} if error else {kind: what, "answer": answer})
        return answer

    def create(self, name, dim, slot_sizes=None, **fields):
        schema = {"name": name, "dim": dim, "durability": "snapshot", **fields}
        number = self.oracle.table(schema, slot_sizes)
        what = {"schema": schema, **({"slot_sizes": slot_sizes} if slot_sizes else {})}
        self.step("create", what, {"id": number, "created": True})
        return name

    def push(self, table, keys, grads, dtype="f32", writer=None, **part):
        """`grads`: [rows][dim], rounded to dtype first. Parts may have an `lr`."""
        dim = self.oracle.dims[table]
        rows = [bits(row, dtype) for row in np.asarray(grads, f32).reshape(-1, dim)]
        what = {"table": table, "keys": keys, **part, **({"dtype": dtype} if dtype != "f32" else {}), "grads": rows,
                **({"writer": writer} if writer else {})}
        if writer and self.refuses(what, writer):
            return
        sent = [bits(values_of(row, dtype)) for row in rows]
        error, inserted, full, filtered, evicted, *statuses = map(int, self.oracle.ask(
            "push", table, bits(part.get("lr", 0)), *self.oracle.batch(what), *sent))
        if error:
            self.step("push", what, error=error)
            return
        if writer:
            self.streams[self.stream_of(writer)] += 1
        answer = {"step": self.figures(table)[0], "inserted": inserted, "full": full, "filtered": filtered, "evicted": evicted}
        self.step("push", what, {**answer, **({"status": statuses} if part.get("status") else {})})

    @staticmethod
    def stream_of(writer):
        return writer["high"], writer["low"], writer.get("stream", 0)

    def refuses(self, what, writer, kind="push"):
        """By its number: FORGOTTEN, GAP, or it was applied before."""
        last = self.streams.get(self.stream_of(writer))
        if last is None:
            self.step(kind, what, error=22)
        elif writer["sequence"] > last + 1:
            self.step(kind, what, error=21)
        elif writer["sequence"] <= last:
            self.step(kind, what, {"again": True})
        else:
            return False
        return True

    def pull(self, table, keys, dtype="f32", **part):
        what = {"table": table, "keys": keys, **part, **({"dtype": dtype} if dtype != "f32" else {})}
        error, *words = self.oracle.ask("pull", table, int(part.get("zero", False)), *self.oracle.batch(what))
        if int(error):
            self.step("pull", what, error=int(error))
            return
        dim, n = self.oracle.dims[table], len(part["offsets"]) - 1 if "offsets" in part else len(keys)
        rows = [bits(values_of(" ".join(words[r * dim:(r + 1) * dim])), dtype) for r in range(n)]
        statuses = list(map(int, words[n * dim:]))
        self.step("pull", what, {"values": rows, **({"status": statuses} if part.get("status") else {})})

    def erase(self, table, keys, **part):
        what = {"table": table, "keys": keys, **part}
        erased, *statuses = map(int, self.oracle.ask("erase", table, *self.oracle.batch(what)))
        self.step("erase", what, {"erased": erased, **({"status": statuses} if part.get("status") else {})})

    def columns(self, method, *calls):
        """One request of several parts: of each the arguments of that method."""
        parts, answers = [], []
        for arguments, fields in calls:
            getattr(self, method)(*arguments, **fields)
            step = self.steps.pop()
            parts.append(step[method])
            answers.append(step["answer"])
        self.step("columns", {"method": method, "parts": parts}, answers)

    def round(self, job, clock, table, *pushes):
        """Workers push for one clock: of each its keys and gradients. One step, of the mean, in the order of workers."""
        keys = [key for own, _ in pushes for key in own]
        rows = [np.asarray(grads, f32).reshape(-1, self.oracle.dims[table]) for _, grads in pushes]
        self.push(table, keys, np.concatenate(rows) / f32(len(pushes)))
        answer = self.steps.pop()["answer"]
        workers = [{"keys": own, "grads": [bits(row) for row in grads]} for (own, _), grads in zip(pushes, rows)]
        self.step("round", {"job": job, "clock": clock, "table": table, "workers": workers}, answer)

    def put(self, table, keys, values, states=None, writer=None, **part):
        dtype = self.oracle.dtypes[table]
        what = {"table": table, "keys": keys, **part, "values": [bits(row, dtype) for row in values],
                **({"states": [bits(row) for row in states]} if states is not None else {}), **({"writer": writer} if writer else {})}
        if writer and self.refuses(what, writer, "put"):
            return
        if writer:
            self.streams[self.stream_of(writer)] += 1
        words = [bits(values_of(row, dtype)) for row in what["values"]]
        if states is not None:
            words = [f"{row} {state}" for row, state in zip(words, what["states"])]
        inserted, = self.oracle.ask("put", table, int(states is not None), *self.oracle.batch({"table": table, "keys": keys, **part}), *words)
        self.step("put", what, {"inserted": int(inserted)})

    def get(self, table, keys, **part):
        """Rows as they are stored, with their states; zeros where there is no row."""
        dim, dtype = self.oracle.dims[table], self.oracle.dtypes[table]
        there = {(row["key"], row["slot"]): row for row in self.all_of(table)[0]}
        none = {"value": bits([0.0] * dim, dtype), "state": bits([0.0] * (self.oracle.widths[table] - dim))}
        found = [there.get(place, none) for place in zip(keys, part.get("slots", [0] * len(keys)))]
        self.step("get", {"table": table, "keys": keys, **part},
                  {"status": [0 if row is not none else 2 for row in found], "values": [row["value"] for row in found],
                   "states": [row["state"] for row in found]})

    def figures(self, table):
        return list(map(int, self.oracle.ask("describe", table)))

    def describe(self, table):
        self.step("describe", {"table": table}, dict(zip(("step", "rows", "candidates"), self.figures(table))))

    def rows(self, table):
        """All there is: for the admin listener. Sorted by key and slot."""
        rows, candidates = self.all_of(table)
        self.step("rows", {"table": table}, {"rows": rows, "candidates": candidates})

    def all_of(self, table):
        words, rows, candidates = self.oracle.ask("rows", table), [], []
        dim, width = self.oracle.dims[table], self.oracle.widths[table]
        while words:
            has_row, key, slot, sights = map(int, words[:4])
            words = words[4:]
            if has_row:
                value = bits(values_of(" ".join(words[:dim])), self.oracle.dtypes[table])
                rows.append({"key": key, "slot": slot, "value": value, "state": " ".join(words[dim:width])})
                words = words[width:]
            else:
                candidates.append({"key": key, "slot": slot, "count": sights})
        return rows, candidates

    def route(self, partition, keys, shards, slots=None, placement=None):
        """Which shard has each key: for clients, without a server."""
        if placement:
            owners = [s for s, n in zip(placement["runs"][::2], placement["runs"][1::2]) for _ in range(n)]
            answer = [owners[vshard(partition, key, slot, placement["base"])] for key, slot in zip(keys, slots or keys)]
        elif partition == "hash":
            answer = [owner(key, shards) for key in keys]
        else:
            answer = [number % shards for number in (keys if partition == "modulo" else slots)]
        what = {"partition": partition, "keys": keys, **({"slots": slots} if slots else {}), "shards": shards,
                **({"placement": placement} if placement else {})}
        self.step("route", what, answer)

    def call(self, method, params, *bins, error):
        """A request as it is, to shard 0, that is refused. Bins as hex digits of their bytes."""
        self.step("call", {"method": method, "params": params, "bins": [data.hex() for data in bins]}, error=error)

    def open(self, writer, journaled=False):
        key = self.stream_of(writer)
        known = key in self.streams
        last = self.streams.setdefault(key, 0)
        self.step("stream_open", {**writer, "journaled": journaled}, {"last": last, "opened": not known})

    def writer(self, writer):
        self.step("writer", writer, {"journaled": 0, "other": self.streams.get(self.stream_of(writer), 0)})
