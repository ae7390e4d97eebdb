"""proto/SEMANTICS.md says what a server does: its blocks of Python give the server's bits, and its rules the server's answers."""

import array
import json
import struct
import sys

import numpy as np

from blocks import ROOT, of_page

sys.path.insert(0, str(ROOT / "tests/integration"))
from embd_process import Embd  # noqa: E402
import wire as w  # noqa: E402

PAGE = {}
for _block in of_page(ROOT / "proto/SEMANTICS.md"):
    if _block.language == "python":
        exec(compile(_block.text, _block.where, "exec"), PAGE)
f32 = np.float32
GAP, FORGOTTEN = 21, 22


def create(wire, name, dim=4, **fields):
    schema = {"name": name, "dim": dim, "durability": "snapshot", **fields}
    return wire.call("table_create", {"schema": schema})[0]["id"]


def rows(wire, table, keys, dim, **more):
    bins = [w.keys(keys), *more.pop("bins", [])]
    answer = wire.call("pull", {"parts": [{"table": table, "keys": len(keys), **more}]}, *bins)
    return np.frombuffer(answer[1], f32).reshape(-1, dim)


def push(wire, part, *bins, **message):
    return wire.call("push", {"parts": [part], **message}, *bins)


def refused(number, wire, method, *params):
    try:
        wire.call(method, *params)
    except w.RpcError as error:
        assert error.number == number, f"{method}: wanted {number}, got {error}"
        return
    raise AssertionError(f"{method} was not refused")


def same(ours, theirs):
    assert np.asarray(ours, f32).tobytes() == np.asarray(theirs, f32).tobytes(), (ours, theirs)


def first_values(wire, rng):
    for i in range(6):
        seed, dim = int(rng.integers(1 << 64, dtype=np.uint64)), int(rng.integers(1, 12))
        a, b = sorted(rng.normal(size=2).astype(f32).tolist())
        keys = [int(key) for key in rng.integers(1 << 64, size=5, dtype=np.uint64)]
        init = {"kind": "uniform", "a": a, "b": b}
        hashed = create(wire, f"first{i}", dim, seed=seed, combiner="concat", initializer=init)
        same([PAGE["uniform_row"](seed, key, 0, dim, a, b) for key in keys], rows(wire, hashed, keys, dim))
        slotted = create(wire, f"slotted{i}", dim, seed=seed, combiner="concat", initializer=init, partition="slot", slots=9)
        slots = rng.integers(9, size=5).tolist()
        pulled = rows(wire, slotted, keys, dim, slots=True, bins=[array.array("H", slots).tobytes()])
        same([PAGE["uniform_row"](seed, key, slot, dim, a, b) for key, slot in zip(keys, slots)], pulled)


def pools_and_gradients(wire, rng):
    """Of each combiner: rows are divided, and a push of g * w / D is the step of a gradient of the pooled row."""
    for combiner in ("sum", "mean", "sqrtn"):
        for has_weights in (False, True):
            table = create(wire, f"{combiner}-{has_weights}".lower(), 4, combiner=combiner, optimizer={"kind": "sgd", "lr": 0.5})
            keys, ends = rng.integers(3, size=700).tolist(), [0, 4, 4, 5, 700]
            weights = rng.normal(size=700).astype(f32)
            values = {key: rows(wire, table, [key], 4)[0] for key in set(keys)}
            given = [w.offsets(ends), *([weights.tobytes()] if has_weights else [])]
            part = {"rows": 4, "weights": has_weights}
            pulled = rows(wire, table, keys, 4, scale=True, bins=given, **part)
            grads = rng.normal(size=(4, 4)).astype(f32)
            sent, factors, terms = grads.copy(), weights.copy(), {key: [] for key in values}
            for r, (begin, end) in enumerate(zip(ends, ends[1:])):
                divisor = PAGE["divisor"](combiner, weights[begin:end], has_weights)
                total = np.zeros(4, f32)
                for k in range(begin, end):
                    term = values[keys[k]] * weights[k] if has_weights else values[keys[k]]
                    total = term.copy() if k == begin else total + term
                same(total / divisor if divisor != 1 else total, pulled[r])
                if not has_weights and divisor != 1:
                    sent[r] = grads[r] * (f32(1) / divisor)
                for k in range(begin, end):
                    factors[k] = weights[k] / divisor if divisor != 1 else weights[k]
                    terms[keys[k]].append(sent[r] * factors[k] if has_weights else sent[r])
            push(wire, {"table": table, "keys": 700, **part}, w.keys(keys), w.offsets(ends),
                 *([factors.tobytes()] if has_weights else []), sent.tobytes())
            for key, value in values.items():
                same(value - f32(0.5) * PAGE["add_gradients"](terms[key]), rows(wire, table, [key], 4)[0])
            twin = create(wire, f"twin-{combiner}-{has_weights}".lower(), 4, combiner=combiner, optimizer={"kind": "sgd", "lr": 0.5})
            push(wire, {"table": twin, "keys": 700, "scale": True, **part}, w.keys(keys), *given, grads.tobytes())
            for key in values:
                same(rows(wire, table, [key], 4)[0], rows(wire, twin, [key], 4)[0])


def a_weight_that_the_division_makes_infinite_is_refused(wire, _):
    table = create(wire, "tiny", 1, combiner="mean")
    part = {"table": table, "keys": 2, "rows": 1, "weights": True, "scale": True}
    bins = w.keys([1, 2]), w.offsets([0, 2]), w.floats([3e38, 0.0]), w.floats([1.0])
    push(wire, part, *bins)
    weights = np.array([3e38, 1e-45 - 3e38], f32)  # their sum is 0: the divisor is 1
    push(wire, part, *bins[:2], weights.tobytes(), bins[3])
    part = {**part, "keys": 3}
    weights = np.array([3e38, -3e38, 1e-45], f32)
    refused(w.INVALID, wire, "push", {"parts": [part]}, w.keys([1, 2, 3]), w.offsets([0, 3]), weights.tobytes(), bins[3])
    assert wire.call("table_describe", {"name": "tiny"})[0]["step"] == 2


def optimizers(wire, rng):
    for dim in (1, 3, 33, 100, 300, 1000):
        table = create(wire, f"rowwise{dim}", dim, combiner="concat", optimizer={"kind": "rowwise_adagrad", "lr": 0.3, "eps": 1e-4})
        adam = create(wire, f"adam{dim}", dim, combiner="concat",
                      optimizer={"kind": "adam", "lr": 0.3, "beta1": 0.8, "beta2": 0.99, "eps": 1e-4})
        row, v = rows(wire, table, [7], dim)[0], f32(0)
        other, m, second = rows(wire, adam, [7], dim)[0], np.zeros(dim, f32), np.zeros(dim, f32)
        for t in range(1, 13):
            g = rng.normal(size=dim).astype(f32)
            for name in (table, adam):
                push(wire, {"table": name, "keys": 1}, w.keys([7]), g.tobytes())
            row, v = PAGE["rowwise_adagrad"](row, v, g, 0.3, 1e-4)
            other, m, second = PAGE["adam"](other, m, second, g, t, 0.3, 0.8, 0.99, 1e-4)
            same(row, rows(wire, table, [7], dim)[0])
            same(other, rows(wire, adam, [7], dim)[0])


def stochastic_rounding(wire, rng):
    """Of hashed and slot tables, for any seed; the steps go by the pushes of the table, not of the row."""
    for slot in (0, 5):
        seed, key, dim = int(rng.integers(1 << 64, dtype=np.uint64)), int(rng.integers(1 << 64, dtype=np.uint64)), 21
        fields = {"partition": "slot", "slots": 9} if slot else {}
        bins = [np.uint16(slot).tobytes()] if slot else []
        part = {"slots": True} if slot else {}
        table = create(wire, f"chance{slot}", dim, seed=seed, dtype="bf16", rounding="stochastic", combiner="concat",
                       optimizer={"kind": "sgd", "lr": 1.0}, **fields)
        row = rows(wire, table, [key], dim, bins=bins, **part)[0]
        for t in range(1, 20):
            g = (rng.normal(size=dim) * 1e-4).astype(f32)
            other = t % 3 == 0
            push(wire, {"table": table, "keys": 1, **part}, w.keys([key + 1 if other else key]), *bins, g.tobytes())
            if not other:
                row = PAGE["rounded_bf16"](row - g, seed, key, slot, t)
            same(row, rows(wire, table, [key], dim, bins=bins, **part)[0])


def columns(table, keys, dtype, grads=b"", flags=0, n_rows=None):
    record = struct.pack("<IIIHHfI", table, keys, keys if n_rows is None else n_rows, flags, dtype, 0.0, len(grads))
    return [record, w.keys(range(keys))], grads + bytes(-len(grads) % 8)


def rows_of_i8_and_i4(wire, rng):
    """Pulled singly and pooled, by maps and by columns, and pushed: the page's bytes."""
    n = 6
    for dim in (1, 7, 8, 33):
        fields = {"combiner": "mean", "optimizer": {"kind": "sgd", "lr": 1.0}, "admit_nonfinite": True}
        table = create(wire, f"coded{dim}", dim, **fields)
        twin = create(wire, f"twin{dim}", dim, **fields)
        grads = (rng.normal(size=(n, dim)) * 10.0 ** rng.integers(-20, 20, size=(n, 1))).astype(f32)
        grads[1], grads[2, 0], grads[3, 0] = 0, np.finfo(f32).max, 1e-45
        for name in (table, twin):
            push(wire, {"table": name, "keys": n}, w.keys(range(n)), grads.tobytes())
        for dtype, number, M in (("i8", 3, 127), ("i4", 4, 7)):
            def packed(values):
                return b"".join(PAGE["wire_bytes"](*PAGE["coded"](v, M), M) for v in values)
            values = rows(wire, table, range(n), dim)
            part = {"table": table, "keys": n, "dtype": dtype}
            assert wire.call("pull", {"parts": [part]}, w.keys(range(n)))[1] == packed(values)
            assert wire.call("pull", {"columns": 1}, *columns(table, n, number)[0], b"", b"", b"")[1] == packed(values)
            ends, more = w.offsets([0, 2, 2, 3, 6]), {"rows": 4, "scale": True}
            pooled = rows(wire, table, range(n), dim, bins=[ends], **more)
            assert wire.call("pull", {"parts": [{**part, **more}]}, w.keys(range(n)), ends)[1] == packed(pooled)
            new = rng.normal(size=(n, dim)).astype(f32)
            coded = [PAGE["coded"](g, M) for g in new]
            same([codes * scale for codes, scale in coded], [codes.astype(f32) * scale for codes, scale in coded])
            f32s = np.array([codes.astype(f32) * scale for codes, scale in coded])
            push(wire, {"table": twin, "keys": n}, w.keys(range(n)), f32s.tobytes())
            push(wire, {"table": twin, "keys": n}, w.keys(range(n)), f32s.tobytes())
            push(wire, part, w.keys(range(n)), packed(new))
            head, bin_of = columns(table, n, number, packed(new))
            wire.call("push", {"columns": 1}, *head, b"", b"", b"", bin_of)
            same(rows(wire, table, range(n), dim), rows(wire, twin, range(n), dim))
        push(wire, {"table": table, "keys": 1}, w.keys([0]), np.full(dim, np.inf, f32).tobytes())
        assert np.isnan(np.frombuffer(wire.call("pull", {"parts": [{"table": table, "keys": 1, "dtype": "i8"}]},
                                                w.keys([0]))[1][-4:], f32)[0])


def what_is_wrong_in_rows_of_i8_and_i4_is_refused(wire, _):
    table = create(wire, "refusing", 3, combiner="concat", admit_nonfinite=True)
    wide = create(wire, "wide", 4096, combiner="concat")
    top = np.finfo(f32).max
    for dtype, number, good, most in (("i8", 3, b"\x80\1\2", top / 128), ("i4", 4, b"\x98\1", top / 8)):
        part = {"table": table, "keys": 2, "dtype": dtype}
        first = good + f32(0).tobytes()
        for status, grads, says in (
                (w.NOT_FINITE, first + good + f32(np.nan).tobytes(), "key 9, row 1: the scale is nan"),
                (w.NOT_FINITE, first + good + f32(np.inf).tobytes(), "key 9, row 1: the scale is inf"),
                (w.INVALID, first + good + f32(-1).tobytes(), "key 9, row 1: the scale is -1;"),
                (w.INVALID, first + good + f32(-0.0).tobytes(), "key 9, row 1: the scale is -0;"),
                (w.INVALID, first + good + np.nextafter(f32(most), f32(np.inf)).tobytes(), f"{dtype} needs a number from 0 to"),
                (w.MALFORMED, first + good + b"123", "grads"),
                (w.MALFORMED, first, "grads"),
                (w.MALFORMED, first + good + f32(1).tobytes() + b"1", "grads")):
            for call in (lambda: push(wire, part, w.keys([8, 9]), grads),
                         lambda: wire.call("push", {"columns": 1}, columns(table, 2, number, grads)[0][0], w.keys([8, 9]),
                                           b"", b"", b"", columns(table, 2, number, grads)[1])):
                try:
                    call()
                except w.RpcError as error:
                    assert error.number == status and says in str(error), error
                else:
                    raise AssertionError(f"{dtype}: {says} was not refused")
        push(wire, part, w.keys([8, 9]), first + good + f32(most).tobytes())
    refused(w.INVALID, wire, "push", {"parts": [{"table": table, "keys": 1, "dtype": "i4"}]}, w.keys([1]), b"\0\x10" + bytes(4))
    refused(w.INVALID, wire, "table_create", {"schema": {"name": "stored", "dim": 3, "dtype": "i4"}})
    refused(w.TOO_LARGE, wire, "push", {"parts": [{"table": wide, "keys": 4097, "dtype": "i4"}]}, w.keys(range(4097)),
            bytes(4097 * 2052))
    assert [wire.call("table_describe", {"name": name})[0]["step"] for name in ("refusing", "wide")] == [2, 0]


def stored(wire, name, key, dim):
    """The codes, as numbers, and the scale."""
    answer = wire.call("get", {"table": name, "keys": 1}, w.keys([key]))
    row, bytes_of = answer[2], np.frombuffer(answer[2], np.uint8)[4:4 + dim]
    exponent, mantissa = bytes_of >> 3 & 15, (bytes_of & 7).astype(float)
    magnitude = np.where(exponent > 0, (8 + mantissa) * 2.0 ** (exponent.astype(float) - 10), mantissa * 2.0 ** -9)
    e4m3 = np.copysign(magnitude, np.where(bytes_of > 127, -1.0, 1.0))
    assert len(row) == 4 + dim + -dim % 4 and not any(row[4 + dim:])
    return {"i8": bytes_of.view(np.int8).astype(float), "e4m3": e4m3}, np.frombuffer(row[:4], f32)[0]


def rows_with_a_scale(wire, rng):
    """First values, pulls, stored bytes and steps, to nearest and by chance; a row of zeros, and one far below 1."""
    for dtype, rounding, dim in (("i8", "nearest", 1), ("i8", "nearest", 21), ("i8", "stochastic", 21),
                                 ("e4m3", "nearest", 22), ("e4m3", "stochastic", 7)):
        seed, key, name = int(rng.integers(1 << 64, dtype=np.uint64)), int(rng.integers(1 << 64, dtype=np.uint64)), f"{dtype}-{rounding}-{dim}"
        table = create(wire, name, dim, seed=seed, dtype=dtype, rounding=rounding, combiner="concat", optimizer={"kind": "sgd", "lr": 1.0})
        codes, scale = PAGE["narrowed"](PAGE["uniform_row"](seed, key, 0, dim, -0.05, 0.05), dtype)
        for t in range(1, 25):
            row = PAGE["widened"](codes, scale)
            same(row, rows(wire, table, [key], dim)[0])
            g = {12: row, 13: np.full(dim, 1e-44, f32)}.get(t, (rng.normal(size=dim) * 10.0 ** rng.uniform(-5, 0, size=dim)).astype(f32))
            push(wire, {"table": table, "keys": 1}, w.keys([key]), g.tobytes())
            chance = PAGE["chances"](dim, seed, key, 0, t) if rounding == "stochastic" else None
            codes, scale = PAGE["narrowed"](row - g, dtype, chance)
            found, found_scale = stored(wire, name, key, dim)
            same(found_scale, scale)
            same(found[dtype], codes)


def master_values(wire, rng):
    """Rows of codes are rounded from values that train as f32; steps far below a code's distance count."""
    for dtype, dim in (("i8", 21), ("e4m3", 22)):
        seed, key, name = int(rng.integers(1 << 64, dtype=np.uint64)), int(rng.integers(1 << 64, dtype=np.uint64)), f"{dtype}-master"
        table = create(wire, name, dim, seed=seed, dtype=dtype, rounding="master", combiner="concat", optimizer={"kind": "sgd", "lr": 1.0})
        master = PAGE["uniform_row"](seed, key, 0, dim, -0.05, 0.05)
        row = PAGE["widened"](*PAGE["narrowed"](master, dtype))
        for _ in range(25):
            same(row, rows(wire, table, [key], dim)[0])
            g = (rng.normal(size=dim) * 10.0 ** rng.uniform(-7, -2, size=dim)).astype(f32)
            push(wire, {"table": table, "keys": 1}, w.keys([key]), g.tobytes())
            master, row = PAGE["master_step"](master, lambda w: w - g, dtype)
            answer = wire.call("get", {"table": name, "keys": 1, "states": True}, w.keys([key]))
            same(np.frombuffer(answer[3], f32), master)


ADAM = {"lr": 0.25, "beta1": 0.8, "beta2": 0.99, "eps": 1e-3}
LIMITS = {"clip_value": 0.75, "clip_norm": 1.5, "weight_decay": 0.25, "decay": "decoupled_global", "max_norm": 0.5,
          "weight_min": -0.25, "weight_max": 0.125}


def whole_rows(wire, rng):
    for dim in (1, 33, 100):
        state = {"sgd": (), "amsgrad": (np.zeros(dim, f32),) * 3, "partial_rowwise_adam": (np.zeros(dim, f32), f32(0)),
                 "lamb": (np.zeros(dim, f32),) * 2, "counter_adagrad": (f32(0), f32(0))}
        fields = {"sgd": {"lr": 0.25, **LIMITS}, "amsgrad": {**ADAM, **LIMITS, "decay": "l2"}, "partial_rowwise_adam": {**ADAM, **LIMITS},
                  "lamb": {**ADAM, "weight_decay": 0.25, "decay": "decoupled"},
                  "counter_adagrad": {"lr": 0.25, "eps": 1e-3, "weight_decay": 0.125, "decay": "l2", "counter_halflife": 3.0}}
        tables = {kind: create(wire, f"{kind.replace('_', '-')}-{dim}", dim, combiner="concat", optimizer={"kind": kind, **fields[kind]})
                  for kind in state}
        found = {kind: rows(wire, table, [7], dim)[0] for kind, table in tables.items()}
        prev = 0
        for t in range(1, 16):
            g = rng.normal(size=dim).astype(f32)
            for kind, table in tables.items():
                push(wire, {"table": table, "keys": 1}, w.keys([7 if t % 4 else 8]), g.tobytes())
                if t % 4 == 0:
                    continue

                def step(row, gradient, kind=kind, t=t):
                    row, *state[kind] = PAGE[kind](row, *state[kind], gradient, t, **ADAM)
                    return row

                given = {name: v for name, v in fields[kind].items() if name in LIMITS or name == "lr"}
                if kind == "sgd":
                    found[kind] = PAGE["whole_row"](found[kind], g, t, prev, lambda row, gradient: row - f32(0.25) * gradient, **given)
                elif kind == "lamb":
                    found[kind], *state[kind] = PAGE["lamb"](found[kind], *state[kind], g, t, **ADAM, decoupled=0.25)
                elif kind == "counter_adagrad":
                    found[kind], *state[kind] = PAGE[kind](found[kind], *state[kind], g, t - prev if prev else 1, 0.25, 1e-3, 3.0, 0.125)
                else:
                    found[kind] = PAGE["whole_row"](found[kind], g, t, prev, step, **given)
                same(found[kind], rows(wire, table, [7], dim)[0])
            prev = t if t % 4 else prev


VECTORS = ROOT / "proto/vectors"
DEFAULTS = {"adam": {"beta1": 0.9, "beta2": 0.999, "eps": 1e-7}, "rowwise_adagrad": {"eps": 1e-7}, "ftrl": {"eps": 2.0 ** -23}}


def vectors(name):
    return json.loads((VECTORS / f"{name}.json").read_text(encoding="ascii"))["vectors"]


def floats_of(text):
    return np.array([int(word, 16) for word in text.split()], np.uint32).view(f32)


class Row:
    """A row by the page alone."""

    def __init__(self, key, dim, optimizer):
        self.w, self.prev = PAGE["uniform_row"](0, key, 0, dim, -0.05, 0.05), 0
        n = {"sgd": 0, "adam": 2, "ftrl": 2}.get(optimizer["kind"], 1)
        first = f32(optimizer.get("initial_accumulator", 0))
        width = 1 if optimizer["kind"] == "rowwise_adagrad" else dim
        self.state = tuple(np.full(width, first, f32) for _ in range(n))

    def step(self, optimizer, g, t):
        kind = optimizer["kind"]  # lr is the push's
        given = {name: v for name, v in optimizer.items() if name not in ("kind", "update", "scaler", "initial_accumulator")}
        given = {**DEFAULTS.get(kind, {}), **given}
        if kind == "adam" and optimizer["update"] == "lazy_global":
            self.w, *self.state = PAGE["lazy_adam"](self.w, *self.state, g, t, self.prev, **given)
        elif kind == "adam":
            self.w, *self.state = PAGE["adam"](self.w, *self.state, g, t, **given)
        elif kind == "rowwise_adagrad":
            self.w, *self.state = PAGE["rowwise_adagrad"](self.w, *self.state, g, **given)
        else:
            self.w, self.state = PAGE["others"](kind, self.w, self.state, g, **given)
        self.prev = t


def push_by_the_page(rows, schema, what, t):
    optimizer, dim, terms = {**schema["optimizer"]}, schema["dim"], {}
    optimizer["lr"] = what.get("lr", optimizer["lr"])
    for key, row in zip(what["keys"], what["grads"]):
        terms.setdefault(key, []).append(floats_of(row))
    sums = {key: PAGE["add_gradients"](list(grads)) for key, grads in terms.items()}
    for key in sums:
        rows.setdefault(key, Row(key, dim, optimizer))
    for key, row in rows.items():
        if key in sums:
            scaler = f32(optimizer.get("scaler", 1))
            row.step(optimizer, sums[key] / scaler if scaler != 1 else sums[key], t)
        elif optimizer["update"] == "global":
            row.step(optimizer, np.zeros(dim, f32), t)


def the_page_gives_the_vectors_of_optimizers(*_):
    n = 0
    for vector in vectors("optimizers"):
        schema, rows, t = vector["steps"][0]["create"]["schema"], {}, 0
        for step in vector["steps"]:
            if "push" in step and "initializer" not in schema:
                t += 1
                push_by_the_page(rows, {**schema, "optimizer": {"update": "local", **schema["optimizer"]}}, step["push"], t)
            for told in step.get("answer", {}).get("rows", []) if "rows" in step else []:
                row, state = rows[told["key"]], floats_of(told["state"])
                same(floats_of(told["value"]), row.w)
                if row.state:
                    same(state[:sum(map(len, row.state))], np.concatenate(row.state))
                n += 1
    assert n > 40, n


def the_page_gives_the_vectors_of_first_values(*_):
    n = 0
    for vector in vectors("first_values"):
        schema = vector["steps"][0]["create"]["schema"]
        given = schema.get("initializer", {"kind": "uniform", "a": -0.05, "b": 0.05})
        if given["kind"] not in ("uniform", "normal") or schema.get("dtype", "f32") != "f32":
            continue
        pull = next(step for step in vector["steps"] if "pull" in step)
        keys = pull["pull"]["keys"]
        for key, slot, row in zip(keys, pull["pull"].get("slots", [0] * len(keys)), pull["answer"]["values"]):
            make = PAGE[f"{given['kind']}_row"]
            same(make(schema.get("seed", 0), key, slot, schema["dim"], given["a"], given["b"]), floats_of(row))
            n += 1
    assert n >= 15, n


def statuses(wire, table, keys):
    part = {"table": table, "keys": len(keys), "status": True}
    return list(push(wire, part, w.keys(keys), w.floats([1.0] * len(keys)))[1])


def the_first_keys_get_the_last_rooms(wire, _):
    hit, inserted, filtered, full = 0, 1, 3, 5
    table = create(wire, "bounded", 1, combiner="concat", capacity=3, on_full="error")
    assert statuses(wire, table, [9, 8, 9, 1, 2, 3]) == [inserted, inserted, inserted, inserted, full, full]
    assert statuses(wire, table, [2, 9]) == [full, hit]
    table = create(wire, "admits", 1, combiner="concat", capacity=1, on_full="error", admit_after=2)
    assert statuses(wire, table, [1, 2, 2]) == [filtered, filtered, filtered]  # once a request
    assert statuses(wire, table, [1, 2, 3]) == [inserted, full, filtered]
    assert wire.call("table_describe", {"name": "admits"})[0]["candidates"] == 2


def values_are_invalid_and_shapes_malformed(wire, _):
    table = create(wire, "shapes", 1)
    concat = create(wire, "plain", 1, combiner="concat")
    ranged = wire.call("table_create", {"schema": {"name": "ranged", "dim": 1, "slots": 2, "slot_sizes": True,
                                                   "durability": "snapshot"}}, w.keys([2, 3]))[0]["id"]
    one, two, g = {"table": table, "keys": 1}, {"table": table, "keys": 2}, w.floats([1.0])
    refused(w.INVALID, wire, "push", {"parts": [{**one, "scale": True}]}, w.keys([1]), g)
    refused(w.INVALID, wire, "push", {"parts": [one, one]}, w.keys([1]), g, w.keys([1]), g)
    assert len(wire.call("pull", {"parts": [one, one]}, w.keys([1]), w.keys([1]))[0]["parts"]) == 2
    refused(w.INVALID, wire, "pull", {"parts": [{"table": concat, "keys": 1, "rows": 1}]}, w.keys([1]), w.offsets([0, 1]))
    refused(w.INVALID, wire, "pull", {"parts": [{"table": ranged, "keys": 1}]}, w.keys([5]))
    refused(w.INVALID, wire, "pull", {"parts": [{**two, "rows": 2}]}, w.keys([1, 2]), w.offsets([0, 3, 2]))
    refused(w.INVALID, wire, "pull", {"parts": [{"table": table, "keys": -1}]}, b"")
    refused(w.MALFORMED, wire, "push", {"parts": [one]}, w.keys([1]), w.floats([1.0, 2.0]))
    refused(w.MALFORMED, wire, "push", {"parts": [one]}, w.keys([1]), b"123")
    refused(w.MALFORMED, wire, "pull", {"parts": [one]}, w.keys([1, 2]))
    refused(w.MALFORMED, wire, "pull", {"parts": [one]}, w.keys([1]), b"")
    refused(w.TOO_LARGE, wire, "pull", {"parts": [{"table": table, "keys": 4194305}]}, b"")


def the_first_error_is_the_answer(wire, _):
    table = create(wire, "once", 1)
    part, g = {"table": table, "keys": 1}, w.floats([1.0])
    w.open_stream(wire, {"high": 1, "low": 2}, False)
    writer = {"high": 1, "low": 2, "sequence": 1}
    refused(FORGOTTEN, wire, "push", {"parts": [part], "writer": {**writer, "low": 3}}, w.keys([1]), g)
    push(wire, part, w.keys([1]), g, writer=writer)
    assert push(wire, part, w.keys([1]), g, writer=writer)[0] == {"parts": [], "again": True}
    nan, later = w.floats([float("nan")]), {**writer, "sequence": 3}
    refused(w.NOT_FINITE, wire, "push", {"parts": [part], "writer": writer}, w.keys([1]), nan)
    refused(GAP, wire, "push", {"parts": [part], "writer": later}, w.keys([1]), g)
    refused(FORGOTTEN, wire, "push", {"parts": [part], "writer": {**later, "low": 3}}, w.keys([1]), g)
    refused(w.UNKNOWN_METHOD, wire, "shove", {"parts": [part]}, b"")
    refused(w.MALFORMED, wire, "push", {"parts": [{"table": 1, "keys": 1}]}, b"", b"")
    wire.call("table_drop", {"name": "once"})
    refused(w.UNKNOWN_TABLE, wire, "push", {"parts": [part], "writer": writer}, w.keys([1]), g)


with Embd("--push-limit", "64M") as server, w.connect(server) as connection:
    for test in (the_page_gives_the_vectors_of_first_values, the_page_gives_the_vectors_of_optimizers, first_values, pools_and_gradients, a_weight_that_the_division_makes_infinite_is_refused, optimizers, whole_rows, stochastic_rounding, master_values, rows_of_i8_and_i4,
                 what_is_wrong_in_rows_of_i8_and_i4_is_refused, rows_with_a_scale, the_first_keys_get_the_last_rooms,
                 values_are_invalid_and_shapes_malformed, the_first_error_is_the_answer):
        test(connection, np.random.default_rng(7))
        print("ok", test.__name__)
