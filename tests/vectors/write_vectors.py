"""Writes proto/vectors: requests, and what a server answers, from the oracle. With --check it writes nothing, and fails if a
file is not as it would write it. Usage: write_vectors.py [--check] [FOLDER]"""
import json
import pathlib
import random
import struct
import sys

import numpy as np

from oracle import Oracle, Vector, bits

ROOT = pathlib.Path(__file__).resolve().parents[2]
f32 = np.float32
DYADIC = {"kind": "constant", "a": 0.5}  # sums of such values are exact, in any order
ONE = {"high": 1, "low": 2}


def reals(rng, shape):
    """[rows, dim] of numbers from -2 to 2."""
    return np.array([rng.random() * 4 - 2 for _ in range(shape[0] * shape[1])], f32).reshape(shape)


def grads(rng, rows, dim):
    """Numbers that every dtype holds; sums of them are exact."""
    return (reals(rng, (rows, dim)) * 8).round() / 8


def first_values(oracle, rng):
    """Keys without a row are answered with their first values."""
    keys = [0, 1, 7, 4294967296, 9223372036854775808, 18446744073709551615]
    kinds = {"uniform": {"kind": "uniform", "a": -0.25, "b": 0.75}, "normal": {"kind": "normal", "a": 1.0, "b": 0.5},
             "constant": {"kind": "constant", "a": 3.140625}}
    for name, initializer in kinds.items():
        for dtype in ("f32", "f16", "bf16"):
            v = Vector(oracle, f"first value: {name}, rows of {dtype}")
            t = v.create(f"first-{name}-{dtype}", 5, seed=0x0123456789abcdef, dtype=dtype, initializer=initializer)
            v.pull(t, keys, status=True)
            v.pull(t, keys[:2], zero=True)
            yield v
    v = Vector(oracle, "first value: each slot of a slot table has its own")
    t = v.create("first-slots", 3, slots=3, partition="slot", seed=5)
    v.pull(t, [7, 7, 7], slots=[0, 1, 2])
    yield v
    v = Vector(oracle, "first value: uniform_slot, by the range of the stored key")
    t = v.create("first-sizes", 3, [4, 100], slots=2, initializer={"kind": "uniform_slot"})
    v.pull(t, [0, 3, 4, 103])
    yield v


def optimizers(oracle, rng):
    """Three pushes, the second without one of the keys; then rows and states."""
    kinds = [("sgd", {}), ("momentum", {"momentum": 0.75}), ("nesterov", {"momentum": 0.75}), ("adagrad", {"eps": 1e-4}),
             ("adagrad", {"initial_accumulator": 0.5}), ("rowwise_adagrad", {"eps": 1e-4}), ("adam", {"beta1": 0.8}),
             ("rmsprop", {}), ("ftrl", {"beta": 1.0, "l1": 0.125, "l2": 0.25}), ("sgd", {"scaler": 3.0})]
    cases = [(kind, "local", more) for kind, more in kinds]
    cases += [(kind, "global", {}) for kind in ("momentum", "nesterov", "adam", "rmsprop")] + [("adam", "lazy_global", {})]
    for i, (kind, update, more) in enumerate(cases):
        v = Vector(oracle, f"optimizer: {kind}, {update}" + "".join(f", {name} {value}" for name, value in more.items()))
        t = v.create(f"optimizer-{i}", 3, optimizer={"kind": kind, "update": update, "lr": 0.125, **more})
        for keys in ([1, 2, 2, 9], [9, 1], [2, 1, 9]):
            v.push(t, keys, reals(rng, (len(keys), 3)))
        v.pull(t, [1, 2, 9, 10], status=True)
        v.rows(t)
        yield v
    yield from learning_rates(oracle, rng, cases)
    v = Vector(oracle, "optimizer: rowwise_adagrad adds squares in 32 lanes")
    t = v.create("optimizer-lanes", 40, optimizer={"kind": "rowwise_adagrad", "lr": 0.125})
    v.push(t, [5], reals(rng, (1, 40)))
    v.rows(t)
    yield v
    v = Vector(oracle, "sums: a key's occurrences are added in runs of 256")
    t = v.create("sums", 1, optimizer={"kind": "sgd", "lr": 1.0}, initializer={"kind": "constant", "a": 0.0})
    v.push(t, [3] * 600, reals(rng, (600, 1)))
    v.pull(t, [3])
    yield v


def learning_rates(oracle, rng, cases):
    """The second push has its own."""
    for i, (kind, update, more) in enumerate(cases):
        if more:
            continue
        v = Vector(oracle, f"learning rate of a push: {kind}, {update}")
        t = v.create(f"rate-{i}", 2, optimizer={"kind": kind, "update": update, "lr": 0.125})
        for keys, rate in (([1, 2, 9], {}), ([9, 1], {"lr": 0.75}), ([2, 1], {})):
            v.push(t, keys, reals(rng, (len(keys), 2)), **rate)
        v.rows(t)
        yield v


REGULAR = [("sgd", more) for more in (
    {"clip_value": 0.5}, {"clip_norm": 0.75}, {"max_norm": 0.25}, {"weight_min": -0.125, "weight_max": 0.25},
    {"weight_decay": 0.5}, {"weight_decay": 0.5, "decay": "decoupled"}, {"weight_decay": 0.5, "decay": "decoupled_global"},
    {"clip_value": 1.0, "clip_norm": 0.75, "weight_decay": 0.25, "max_norm": 0.5, "weight_max": 0.375})]
REGULAR += [("adam", {"weight_decay": 0.25, "decay": "decoupled"}), ("adam", {"weight_decay": 0.25, "clip_norm": 1.0}),
            ("adagrad", {"lr_decay": 0.5, "clip_value": 1.0}), ("ftrl", {"l1": 0.125, "max_norm": 0.5}),
            ("momentum", {"momentum": 0.75, "weight_decay": 0.25, "decay": "decoupled_global"}),
            ("amsgrad", {"max_norm": 0.5}), ("lamb", {"weight_decay": 0.125}), ("partial_rowwise_adam", {}),
            ("counter_adagrad", {"weight_decay": 0.125})]


def regularization(oracle, rng):
    """Clipping, decay and limits of weights, around an optimizer's step; optimizers that look at a whole row."""
    for i, (kind, more) in enumerate(REGULAR):
        v = Vector(oracle, f"regularization: {kind}" + "".join(f", {name} {value}" for name, value in more.items()))
        t = v.create(f"regular-{i}", 3, optimizer={"kind": kind, "lr": 0.125, **more})
        for keys in ([1, 2, 2, 9], [9, 1], [1], [2, 1, 9]):
            v.push(t, keys, reals(rng, (len(keys), 3)))
        v.pull(t, [1, 2, 9, 10], status=True)
        v.rows(t)
        yield v


def rows_in_bulk(oracle, rng):
    """Rows that are put and got by key, with their states."""
    for kind in ("sgd", "adagrad", "adam"):
        for dtype in ("f32", "f16", "bf16"):
            v = Vector(oracle, f"rows in bulk: {kind}, rows of {dtype}")
            t = v.create(f"bulk-{kind}-{dtype}", 2, dtype=dtype, optimizer={"kind": kind, "lr": 0.125})
            v.push(t, [1, 2], grads(rng, 2, 2))
            v.put(t, [2, 3, 4, 3], grads(rng, 4, 2))
            v.get(t, [1, 2, 3, 3, 9])
            n = oracle.widths[t] - 2
            if n > 0:
                v.put(t, [1, 7], grads(rng, 2, 2), states=abs(grads(rng, 2, n)))
            v.get(t, [1, 7])
            v.push(t, [1, 3, 7, 8], grads(rng, 4, 2))
            v.get(t, [1, 3, 7, 8])
            v.pull(t, [1, 2, 3, 4], status=True)
            v.describe(t)
            yield v
    v = Vector(oracle, "rows in bulk: a row of a slot table belongs to its slot and key")
    t = v.create("bulk-slots", 2, slots=3, partition="slot", optimizer={"kind": "sgd", "lr": 0.5})
    v.put(t, [5, 5, 6], grads(rng, 3, 2), slots=[0, 2, 1])
    v.get(t, [5, 5, 5, 6], slots=[0, 1, 2, 1])
    v.pull(t, [5, 5], slots=[0, 1], status=True)
    yield v
    v = Vector(oracle, "rows in bulk: a key that waits for admission gets its row at once")
    t = v.create("bulk-admit", 1, admit_after=3, optimizer={"kind": "sgd", "lr": 0.5}, initializer=DYADIC)
    v.push(t, [1, 2], [[1.0], [2.0]], status=True)
    v.put(t, [1], [[4.0]])
    v.push(t, [1, 2], [[1.0], [2.0]], status=True)
    v.get(t, [1, 2])
    v.rows(t)
    yield v


def columns(oracle, rng):
    """Several tables in a request, whose parts travel as columns."""
    v = Vector(oracle, "columns: tables of several kinds in one push, pull and erase")
    plain = v.create("column-plain", 2, optimizer={"kind": "sgd", "lr": 0.5})
    half = v.create("column-half", 3, dtype="f16", optimizer={"kind": "adagrad", "lr": 0.125})
    slots = v.create("column-slots", 1, slots=3, partition="slot", optimizer={"kind": "adam", "lr": 0.125})
    for _ in range(2):
        v.columns("push", ((plain, [1, 2, 1], reals(rng, (3, 2))), {"status": True}),
                  ((half, [7, 8], reals(rng, (2, 3))), {"dtype": "f16", "lr": 0.5}),
                  ((slots, [1, 1, 2], reals(rng, (3, 1))), {"slots": [0, 1, 2]}))
        v.columns("pull", ((slots, [1, 2]), {"slots": [1, 2]}), ((plain, [1, 3]), {"zero": True}), ((plain, [2, 3]), {"status": True}),
                  ((half, [8, 9, 7]), {"dtype": "bf16", "status": True}))
    v.columns("erase", ((plain, [1, 4]), {"status": True}), ((half, [8]), {}))
    v.rows(plain)
    v.rows(half)
    yield v
    v = Vector(oracle, "columns: rows of several keys, weights and scale", (1,))
    tables = [v.create(f"column-{combiner}", 2, combiner=combiner, optimizer={"kind": "sgd", "lr": 0.5}) for combiner in ("sum", "mean", "sqrtn")]
    weights = " ".join(f"{x:08x}" for x in reals(rng, (4, 1)).view(np.uint32)[:, 0])
    parts = [{"offsets": [0, 2, 2, 4]}, {"offsets": [0, 1, 4, 4], "scale": True}, {"offsets": [0, 3, 3, 4], "scale": True, "weights": weights}]
    v.columns("push", *(((t, [1, 2, 3, 1], reals(rng, (3, 2))), part) for t, part in zip(tables, parts)))
    v.columns("pull", *(((t, [1, 2, 3, 1]), part) for t, part in zip(tables, parts)))
    yield v


def rounds(oracle, rng):
    """Workers in step: one step of the mean of their pushes, in the order of workers."""
    for n in (1, 2, 3):
        v = Vector(oracle, f"rounds: {n} workers")
        t = v.create(f"round-{n}", 2, optimizer={"kind": "adagrad", "lr": 0.125})
        for clock in range(2):
            own = [[1, 2 + worker, 1] if worker < 2 else [] for worker in range(n)]
            v.round(f"round-{n}", clock, t, *((keys, reals(rng, (len(keys), 2))) for keys in own))
        v.pull(t, [1, 2, 3], status=True)
        v.rows(t)
        yield v


def combiners(oracle, rng):
    """Pooled rows, and their gradients: of finished rows with scale, else of sums."""
    for combiner in ("sum", "mean", "sqrtn"):
        for weighted in (False, True):
            v = Vector(oracle, f"combiner: {combiner}, {'with' if weighted else 'no'} weights", (1,))
            t = v.create(f"pool-{combiner}-{int(weighted)}", 2, combiner=combiner, optimizer={"kind": "sgd", "lr": 0.5})
            keys, offsets = [1, 2, 3, 1, 1, 4], [0, 3, 3, 4, 6]
            more = {"weights": " ".join(f"{x:08x}" for x in reals(rng, (6, 1)).view(np.uint32)[:, 0])} if weighted else {}
            for scale in (True, False):
                v.push(t, keys, reals(rng, (4, 2)), offsets=offsets, scale=scale, **more)
                v.pull(t, keys, offsets=offsets, scale=scale, **more)
            v.pull(t, [1, 2, 3, 4])
            yield v
    for combiner in ("sum", "mean", "sqrtn"):
        v = Vector(oracle, f"combiner: {combiner}, rows whose keys lie on several shards")
        t = v.create(f"spread-{combiner}", 2, combiner=combiner, optimizer={"kind": "sgd", "lr": 0.5}, initializer=DYADIC)
        keys, offsets = [1, 2, 3, 4, 5, 6, 7, 1, 8], [0, 4, 4, 9]
        v.push(t, list(range(1, 9)), grads(rng, 8, 2))
        v.pull(t, keys, offsets=offsets, scale=True)
        v.push(t, keys, grads(rng, 3, 2), offsets=offsets, scale=True)
        v.pull(t, list(range(1, 9)))
        yield v
    v = Vector(oracle, "combiner: mean, weights whose sum is 0 divide by 1", (1,))
    t = v.create("zero-sum", 1, combiner="mean", optimizer={"kind": "sgd", "lr": 0.5}, initializer=DYADIC)
    weights = "3f800000 bf800000"
    v.push(t, [1, 2], [[4.0]], offsets=[0, 2], weights=weights, scale=True)
    v.pull(t, [1, 2], offsets=[0, 2], weights=weights, scale=True)
    v.pull(t, [1, 2])
    yield v
    v = Vector(oracle, "combiner: concat has a row for each key")
    t = v.create("concat", 2, combiner="concat", optimizer={"kind": "sgd", "lr": 0.5})
    v.push(t, [4, 4, 5], reals(rng, (3, 2)), status=True)
    v.pull(t, [5, 4, 6], status=True)
    yield v


def dtypes(oracle, rng):
    """Rows are stored, and values travel, in f32, f16 and bf16; rounded to nearest even."""
    for stored in ("f32", "f16", "bf16"):
        for wire in ("f32", "f16", "bf16"):
            v = Vector(oracle, f"dtype: rows of {stored}, {wire} on the wire")
            t = v.create(f"dtype-{stored}-{wire}", 3, dtype=stored, optimizer={"kind": "adagrad", "lr": 0.125})
            for keys in ([1, 2], [2, 3, 2]):
                v.push(t, keys, reals(rng, (len(keys), 3)), dtype=wire)
            v.pull(t, [1, 2, 3, 4], dtype=wire)
            v.rows(t)
            yield v
    v = Vector(oracle, "dtype: f16 overflows to infinity on the wire, and keeps subnormals")
    t = v.create("dtype-range", 1, optimizer={"kind": "sgd", "lr": 1.0}, initializer={"kind": "constant", "a": 0.0})
    v.push(t, [1, 2, 3], [[-1e6], [-3e-7], [-65519.0]])
    for wire in ("f16", "bf16"):
        v.pull(t, [1, 2, 3], dtype=wire)
    yield v
    yield from master_values(oracle, rng)


def master_values(oracle, rng):
    for stored, kind, update in (("bf16", "adagrad", "local"), ("f16", "adam", "lazy_global"), ("bf16", "momentum", "global")):
        v = Vector(oracle, f"dtype: rows of {stored} with master values, {kind}, {update}")
        t = v.create(f"master-{stored}-{kind}", 3, dtype=stored, rounding="master", seed=6,
                     optimizer={"kind": kind, "update": update, "lr": 0.0009765625})
        for keys in ([1, 2], [2, 3, 2], [3, 1]):
            v.push(t, keys, reals(rng, (len(keys), 3)))
        v.put(t, [4], grads(rng, 1, 3))
        v.push(t, [1, 4], reals(rng, (2, 3)))
        v.pull(t, [1, 2, 3, 4, 5])
        v.rows(t)
        yield v


def admission(oracle, rng):
    """Which keys get rows, and when."""
    v = Vector(oracle, "admit_after: the third push that names a key makes its row")
    t = v.create("admit", 1, admit_after=3, optimizer={"kind": "sgd", "lr": 0.5}, initializer=DYADIC)
    for keys in ([1, 2, 2], [2, 1], [2, 3]):
        v.push(t, keys, [[1.0]] * len(keys), status=True)
    v.pull(t, [1, 2, 3], status=True)
    v.describe(t)
    v.erase(t, [1, 2], status=True)
    v.push(t, [1, 2], [[1.0]] * 2, status=True)
    v.rows(t)
    yield v
    v = Vector(oracle, "create_on pull: pulls make rows, but with zero")
    t = v.create("on-pull", 2, create_on="pull", optimizer={"kind": "sgd", "lr": 0.5})
    v.pull(t, [1, 2], zero=True, status=True)
    v.pull(t, [1, 2, 1], status=True)
    v.pull(t, [2, 3], status=True)
    v.push(t, [3, 4], reals(rng, (2, 2)), status=True)
    v.describe(t)
    yield v
    v = Vector(oracle, "create_on pull with admit_after: pulls count")
    t = v.create("on-pull-admit", 1, create_on="pull", admit_after=2, initializer=DYADIC)
    for _ in range(2):
        v.pull(t, [6, 6, 7], status=True)
    v.describe(t)
    yield v
    v = Vector(oracle, "erase: a row that comes back begins anew, and its state too")
    t = v.create("erase", 2, optimizer={"kind": "adagrad", "lr": 0.125})
    v.push(t, [1, 2], reals(rng, (2, 2)))
    v.erase(t, [2, 2, 3], status=True)
    v.push(t, [2], reals(rng, (1, 2)))
    v.pull(t, [1, 2, 3], status=True)
    v.rows(t)
    yield v


def capacity(oracle, rng):
    """A table without room refuses, or evicts. A shard has its own capacity, so these are for one."""
    v = Vector(oracle, "on_full error: without statuses the request is refused and changes nothing", (1,))
    t = v.create("full", 1, capacity=3, on_full="error", initializer=DYADIC, optimizer={"kind": "sgd", "lr": 0.5})
    v.push(t, [1, 2], [[1.0]] * 2)
    v.push(t, [1, 3, 4], [[1.0]] * 3)
    v.describe(t)
    v.push(t, [1, 3, 4, 3], [[1.0]] * 4, status=True)
    v.pull(t, [1, 2, 3, 4], status=True)
    yield v
    for policy, more in (("evict_lru", {}), ("evict_lfu", {}), ("evict_ttl", {"ttl": 2})):
        v = Vector(oracle, f"on_full {policy}", (1,))
        t = v.create(policy.replace("_", "-"), 1, capacity=4, on_full=policy, initializer=DYADIC, **more)
        for keys in ([1, 2, 3, 4], [1, 2], [1, 3], [5], [6, 7], [1, 8, 9]):
            v.push(t, keys, grads(rng, len(keys), 1), status=True)
            v.describe(t)
        v.push(t, [21, 22, 23, 24, 25], grads(rng, 5, 1))
        v.rows(t)
        yield v
    v = Vector(oracle, "on_full evict_score: the lowest score goes first; the largest of a key counts, also if it is lower", (1,))
    t = v.create("evict-score", 1, capacity=4, on_full="evict_score", initializer=DYADIC)
    for keys, scores in (([1, 2, 3, 4], [4, 3, 2, 1]), ([1, 1], [-2, 0.5]), ([5], [7]), ([2, 6], [-np.inf, 0]), ([7, 4], None),
                         ([3], [-0.0]), ([8, 8], [1, 9])):
        v.push(t, keys, grads(rng, len(keys), 1), status=True, **({} if scores is None else {"scores": bits(scores)}))
        v.rows(t)
    yield v
    v = Vector(oracle, "on_full evict_lru: a sixteenth of the capacity goes at once", (1,))
    t = v.create("sixteenth", 1, capacity=32, on_full="evict_lru", initializer=DYADIC)
    v.push(t, list(range(32)), grads(rng, 32, 1))
    v.push(t, [100], grads(rng, 1, 1), status=True)
    v.describe(t)
    yield v


def numbered(oracle, rng):
    """Pushes with a writer are applied once. Each shard counts by itself: a push goes to all."""
    v = Vector(oracle, "numbered: a push that is sent again changes nothing")
    t = v.create("numbered", 1, initializer=DYADIC, optimizer={"kind": "sgd", "lr": 0.5})
    v.push(t, [1], [[1.0]], writer={**ONE, "sequence": 1})
    v.open(ONE)
    v.open(ONE)
    for sequence in (1, 1, 3, 2, 1, 3):
        v.push(t, [1, 2], [[1.0], [2.0]], writer={**ONE, "sequence": sequence})
    v.push(t, [], [], writer={**ONE, "sequence": 4})
    v.writer(ONE)
    v.pull(t, [1, 2])
    v.describe(t)
    v.push(t, [1], [[1.0]], writer={**ONE, "stream": 7, "sequence": 1})
    v.open({**ONE, "stream": 7})
    v.push(t, [1], [[1.0]], writer={**ONE, "stream": 7, "sequence": 1})
    v.writer({**ONE, "stream": 7})
    v.writer({"high": 9, "low": 9})
    yield v
    v = Vector(oracle, "numbered: puts take their numbers among pushes")
    t = v.create("numbered-puts", 1, initializer=DYADIC, optimizer={"kind": "sgd", "lr": 0.5})
    three = {"high": 5, "low": 6}
    v.put(t, [1], [[1.0]], writer={**three, "sequence": 1})
    v.open(three)
    for sequence in (1, 3):
        v.put(t, [1, 2], [[1.0], [2.0]], writer={**three, "sequence": sequence})
    v.push(t, [1, 2], [[1.0], [2.0]], writer={**three, "sequence": 2})
    v.put(t, [1, 2], [[1.0], [2.0]], writer={**three, "sequence": 1})
    v.get(t, [1, 2, 3])
    v.put(t, [3], [[4.0]], writer={**three, "sequence": 3})
    v.writer(three)
    v.get(t, [1, 2, 3])
    yield v
    v = Vector(oracle, "numbered: a refused push uses no number", (1,))
    t = v.create("numbered-full", 1, capacity=1, on_full="error", initializer=DYADIC)
    two = {"high": 3, "low": 4}
    v.open(two)
    v.push(t, [1, 2], [[1.0], [2.0]], writer={**two, "sequence": 1})
    v.push(t, [1], [[1.0]], writer={**two, "sequence": 1})
    v.writer(two)
    yield v


def routing(oracle, rng):
    """Slot tables, slot sizes and modulo: keys reach their shards. Requests reach the table that has their id."""
    v = Vector(oracle, "partition slot: a row belongs to its slot and key")
    v.route("slot", [5, 5, 5, 5], 3, [0, 1, 2, 3])
    t = v.create("by-slot", 2, slots=4, partition="slot", combiner="mean", optimizer={"kind": "sgd", "lr": 0.5})
    part = {"offsets": [0, 2, 2, 3, 6], "slots": [0, 1, 2, 3], "scale": True}
    v.push(t, [5, 6, 5, 7, 8, 7], reals(rng, (4, 2)), **part)
    v.pull(t, [5, 6, 5, 7, 8, 7], **part)
    v.pull(t, [5, 5], slots=[0, 1], status=True)
    v.erase(t, [5, 5, 5], slots=[0, 1, 2], status=True)
    v.rows(t)
    yield v
    for partition in ("hash", "modulo"):
        v = Vector(oracle, f"partition {partition}: keys of all sizes")
        t = v.create(f"by-{partition}", 1, partition=partition, optimizer={"kind": "sgd", "lr": 0.5})
        keys = [0, 1, 2, 3, 1023, 4294967295, 1 << 53, (1 << 53) + 1, (1 << 64) - 1]
        v.push(t, keys, grads(rng, len(keys), 1))
        v.pull(t, keys[::-1], status=True)
        v.describe(t)
        for shards in (1, 2, 3, 5, 1024):
            v.route(partition, keys, shards)
        yield v
    v = Vector(oracle, "slot_sizes: keys on the wire have their slot's offset added")
    t = v.create("sized", 1, [10, 20, 5], slots=3, initializer=DYADIC)
    v.push(t, [9, 10, 29, 30, 34], grads(rng, 5, 1))
    v.pull(t, [9, 10, 29, 30, 34])
    yield v
    v = Vector(oracle, "ids: the second of two names with one hash has another id")
    tables = [v.create(name, 2, optimizer={"kind": "sgd", "lr": 0.5}) for name in ("good_53", "evil_1720fa9")]
    for t in tables:
        v.push(t, [1, 2, 3], grads(rng, 3, 2))
    for t in tables:
        v.pull(t, [1, 2, 3, 4], status=True)
        v.describe(t)
    yield v
    v = Vector(oracle, "placement: the map of a cluster says which shard has a key")
    for shards, base, runs in ((2, 2, [0, 700, 1, 324]), (3, 3, [2, 1, 0, 341, 2, 1, 1, 681]), (5, 3, [4, 1000, 0, 23, 3, 1]),
                               (2, 1024, [1, 512, 0, 512]), (1, 7, [0, 1024])):
        placement = {"version": 9, "base": base, "runs": runs}
        keys = [*range(7), 341, 682, 700, 1019, 1020, 1022, 1023, 1024, 4294967295, (1 << 53) + 1, (1 << 64) - 1]
        v.route("hash", keys, shards, placement=placement)
        v.route("modulo", keys, shards, placement=placement)
        v.route("slot", keys, shards, [key % 65536 for key in keys], placement)
    yield v


def refused(oracle, rng):
    """Requests as they are, and the error that comes first. None of them changes anything."""
    v = Vector(oracle, "refused: fields, bins, keys and gradients", (1,))
    t = v.create("strict", 1, initializer=DYADIC)
    v.create("plain", 1, combiner="concat", initializer=DYADIC)
    v.create("ranged", 1, [2, 3], slots=2)
    v.create("slotted", 1, slots=2, partition="slot")
    strict, raw, ranged, slotted = (step["answer"]["id"] for step in v.steps)
    v.push(t, [1], [[1.0]])
    one, key, grad = {"table": strict, "keys": 1}, struct.pack("<Q", 1), struct.pack("<f", 1)
    row = struct.pack("<2I", 0, 1)
    invalid, malformed, too_large, not_finite = 1, 2, 3, 9
    for error, method, parts, bins in (
            (invalid, "pull", [{**one, "speed": 1}], [key]),
            (invalid, "pull", [{"table": strict}], [key]),
            (invalid, "pull", [{**one, "keys": -1}], [key]),
            (malformed, "pull", [{**one, "keys": "1"}], [key]),
            (invalid, "pull", [{**one, "dtype": "f8"}], [key]),
            (too_large, "pull", [{**one, "keys": 4194305}], []),
            (malformed, "pull", [one], []),
            (malformed, "pull", [one], [key, key]),
            (malformed, "pull", [one], [key[:7]]),
            (malformed, "pull", [{**one, "rows": 1}], [key, row[:4]]),
            (invalid, "pull", [{**one, "rows": 1}], [key, struct.pack("<2I", 1, 1)]),
            (invalid, "pull", [{**one, "rows": 1}], [key, struct.pack("<2I", 0, 2)]),
            (invalid, "pull", [{**one, "weights": True}], [key, grad]),
            (invalid, "pull", [{**one, "scale": True}], [key]),
            (invalid, "pull", [{**one, "rows": 1, "weights": True}], [key, row, struct.pack("<f", float("inf"))]),
            (5, "pull", [{"table": 1, "keys": 1}], [key]),
            (invalid, "pull", [{**one, "slots": True}], [key, b"\0\0"]),
            (invalid, "pull", [{"table": slotted, "keys": 1}], [key]),
            (invalid, "pull", [{"table": slotted, "keys": 1, "slots": True}], [key, struct.pack("<H", 2)]),
            (invalid, "pull", [{"table": ranged, "keys": 1}], [struct.pack("<Q", 5)]),
            (invalid, "pull", [{"table": raw, "keys": 1, "rows": 1}], [key, row]),
            (invalid, "push", [{**one, "zero": True}], [key, grad]),
            (malformed, "push", [one], [key, grad + grad]),
            (malformed, "push", [one], [key, grad[:3]]),
            (invalid, "push", [one, one], [key, grad, key, grad]),
            (not_finite, "push", [one], [key, struct.pack("<f", float("nan"))]),
            (not_finite, "push", [{**one, "dtype": "f16"}], [key, b"\0\x7c"]),
            (invalid, "push", [{**one, "scale": True}], [key, grad]),
            (invalid, "push", [{**one, "lr": 0}], [key, grad]),
            (invalid, "push", [{**one, "lr": -0.5}], [key, grad]),
            (invalid, "pull", [{**one, "lr": 0.5}], [key]),
            (invalid, "erase", [{**one, "dtype": "f32"}], [key])):
        v.call(method, {"parts": parts}, *bins, error=error)
    v.call("pull", {}, error=invalid)
    v.call("pull", {"parts": [one], "part": 1}, key, error=invalid)
    v.call("shove", {}, error=4)
    v.call("table_create", {"schema": {"name": "strict", "dim": 2, "durability": "snapshot"}}, error=6)
    v.call("table_create", {"schema": {"name": "Strict", "dim": 2}}, error=invalid)
    v.call("table_create", {"schema": {"name": "other", "dim": 4097}}, error=invalid)
    v.call("hello", {"protocol": 2}, error=7)
    v.describe(t)
    v.pull(t, [1])
    yield v
    v = Vector(oracle, "refused: mean, a weight that the division makes infinite", (1,))
    t = v.create("tiny", 1, combiner="mean", initializer=DYADIC)
    number = v.steps[0]["answer"]["id"]
    v.call("push", {"parts": [{"table": number, "keys": 3, "rows": 1, "weights": True, "scale": True}]},
           struct.pack("<3Q", 1, 2, 3), struct.pack("<2I", 0, 3), struct.pack("<3f", 3e38, -3e38, 1e-45), grad, error=invalid)
    v.describe(t)
    yield v
    v = Vector(oracle, "refused: tables first, then gradients, then numbers", (1,))
    t = v.create("order", 1, initializer=DYADIC)
    number = v.steps[0]["answer"]["id"]
    stranger, nan = {"high": 5, "low": 5, "sequence": 1}, struct.pack("<f", float("nan"))
    part = {"table": number, "keys": 1}
    v.call("push", {"parts": [{"table": 1, "keys": 1}], "writer": stranger}, key, nan, error=5)
    v.call("push", {"parts": [part], "writer": stranger}, key, nan, error=not_finite)
    v.call("push", {"parts": [part], "writer": stranger}, key, grad, error=22)
    v.call("push", {"parts": [part], "writer": {**stranger, "sequence": 0}}, key, grad, error=invalid)
    v.describe(t)
    yield v


FILES = (first_values, optimizers, combiners, dtypes, admission, capacity, numbered, routing, refused, regularization,
         rows_in_bulk, columns, rounds)


def compact(value):
    return json.dumps(value)


def text_of(about, vectors):
    """One step a line."""
    lines = []
    for vector in vectors:
        steps = ",\n".join("  " + compact(step) for step in vector["steps"])
        lines.append(f'{{"name": {compact(vector["name"])}, "shards": {compact(vector["shards"])}, "steps": [\n{steps}\n]}}')
    return f'{{"about": {compact(about)},\n"vectors": [\n' + ",\n".join(lines) + "\n]}\n"


def main():
    flags = sys.argv[1:]
    folder = pathlib.Path(next((flag for flag in flags if flag != "--check"), ROOT / "proto/vectors"))
    oracle, stale, total = Oracle(), [], 0
    for i, write in enumerate(FILES):
        vectors = [vector.json for vector in write(oracle, random.Random(i))]
        text, path = text_of(write.__doc__, vectors), folder / f"{write.__name__}.json"
        total += len(text)
        if "--check" not in flags:
            path.write_text(text, encoding="ascii")
        elif not path.exists() or path.read_text(encoding="ascii") != text:
            stale.append(str(path))
    oracle.close()
    if stale:
        raise SystemExit(f"not as the oracle has them: {', '.join(stale)}; run tests/vectors/write_vectors.py")
    print(f"{len(FILES)} files, {total} bytes")


main()
