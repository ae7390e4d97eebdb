"""Dump directories by what proto/partfile.h and the manifest say of them, written without looking at the C: reads all
rows of a directory, and writes directories with given rows."""
import ctypes
import json
import os
import struct

_xxhash = ctypes.CDLL("libxxhash.so.0")
_xxhash.XXH3_64bits.restype = ctypes.c_uint64
_xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

HEADER = struct.Struct("<8sIIIIII24xQ")
BLOCK = struct.Struct("<IIQQ")
DTYPES = ["f32", "f16", "bf16", "i8", None, "e4m3"]


def xxh3(data):
    return _xxhash.XXH3_64bits(data, len(data))


def padded(data):
    return data + bytes(-len(data) % 8)


def state_floats(schema):
    dim = schema["dim"]
    stamps = {"grow": 0, "error": 0, "evict_lru": 2, "evict_ttl": 2, "evict_lfu": 3, "evict_score": 3}[schema["on_full"]]
    stamps += 2 if schema["optimizer"]["update"] == "lazy_global" else 0
    stamps += dim if schema.get("rounding") == "master" else 0
    return stamps + {"sgd": 0, "momentum": dim, "nesterov": dim, "adagrad": dim, "rowwise_adagrad": 1, "adam": 2 * dim,
            "rmsprop": dim, "ftrl": 2 * dim}[schema["optimizer"]["kind"]]


def row_bytes(schema):
    """Of i8 and e4m3: a scale, a byte a column, padding to a multiple of four."""
    size = {"f32": 4, "f16": 2, "bf16": 2}.get(schema["dtype"])
    return size * schema["dim"] if size else 4 + schema["dim"] + -schema["dim"] % 4


def array_sizes(schema, n_rows, n_candidates):
    """Bytes of the arrays of a block, in order: None for those the schema does not have."""
    slots = schema["partition"] == "slot"
    state = state_floats(schema)
    return [8 * n_rows, 2 * n_rows if slots else None, row_bytes(schema) * n_rows,
            4 * state * n_rows if state else None, 8 * n_candidates, 2 * n_candidates if slots else None,
            4 * n_candidates]


# ---- reading ----

def split(data, n):
    size = len(data) // n if n else 0
    return [data[i * size:(i + 1) * size] for i in range(n)]


def read_block(schema, data, n_rows, n_candidates, table):
    arrays, at = [], 0
    for size in array_sizes(schema, n_rows, n_candidates):
        arrays.append(None if size is None else data[at:at + size])
        at += size + -size % 8 if size is not None else 0
    assert at == len(data), (at, len(data))
    keys, slots, rows, states, waiting, waiting_slots, counts = arrays
    key_list = struct.unpack(f"<{n_rows}Q", keys)
    slot_list = struct.unpack(f"<{n_rows}H", slots) if slots is not None else [0] * n_rows
    state_list = split(states, n_rows) if states is not None else [b""] * n_rows
    for name in zip(slot_list, key_list):
        assert name not in table["rows"], f"{name} is there twice"
    table["rows"].update(zip(zip(slot_list, key_list), zip(split(rows, n_rows), state_list)))
    waiting_list = struct.unpack(f"<{n_candidates}Q", waiting)
    slot_list = struct.unpack(f"<{n_candidates}H", waiting_slots) if waiting_slots is not None else [0] * n_candidates
    table["candidates"].update(zip(zip(slot_list, waiting_list), struct.unpack(f"<{n_candidates}I", counts)))


def read_part(path, schema, part, table):
    with open(path, "rb") as file:
        data = file.read()
    assert len(data) == part["bytes"], path
    assert f"{xxh3(data):016x}" == part["xxh3"], path
    magic, version, dim, dtype, state, has_slots, shard, check = HEADER.unpack(data[:64])
    assert (magic, version, check) == (b"EMBDPART", 1, xxh3(data[:56])), path
    assert (dim, DTYPES[dtype], state) == (schema["dim"], schema["dtype"], state_floats(schema)), path
    assert (has_slots, shard) == (schema["partition"] == "slot", part["shard"]), path
    at, n_rows, n_candidates = 64, 0, 0
    while True:
        rows, candidates, size, check = BLOCK.unpack(data[at:at + 24])
        block = data[at + 24:at + 24 + size]
        assert xxh3(block) == check, (path, at)
        at += 24 + size
        if rows == 0 and candidates == 0:
            break
        read_block(schema, block, rows, candidates, table)
        n_rows, n_candidates = n_rows + rows, n_candidates + candidates
    assert (at, n_rows, n_candidates) == (len(data), part["rows"], part["candidates"]), path


def read_manifest(directory):
    with open(os.path.join(directory, "manifest.json"), encoding="utf-8") as file:
        return json.load(file)


def read(directory):
    """{table: {"schema", "step", "rows": {(slot, key): (row, state)}, "candidates": {(slot, key): count}}}"""
    tables = {}
    for entry in read_manifest(directory)["tables"]:
        table = {"schema": entry["schema"], "step": entry["step"], "rows": {}, "candidates": {}}
        for part in entry["parts"]:
            read_part(os.path.join(directory, part["file"]), entry["schema"], part, table)
        tables[entry["schema"]["name"]] = table
    return tables


# ---- writing ----

def block_bytes(schema, arrays, n_rows, n_candidates):
    sizes = array_sizes(schema, n_rows, n_candidates)
    assert [None if a is None else len(a) for a in arrays] == sizes, (schema["name"], sizes)
    body = b"".join(padded(a) for a in arrays if a is not None)
    return BLOCK.pack(n_rows, n_candidates, len(body), xxh3(body)) + body


def write_part(directory, schema, blocks, file, shard=0):
    """`blocks` is a list of (arrays, n_rows, n_candidates); returns the part's entry of the manifest."""
    head = HEADER.pack(b"EMBDPART", 1, schema["dim"], DTYPES.index(schema["dtype"]), state_floats(schema),
                       schema["partition"] == "slot", shard, 0)[:56]
    data = head + struct.pack("<Q", xxh3(head))
    data += b"".join(block_bytes(schema, *block) for block in blocks)
    data += BLOCK.pack(0, 0, 0, xxh3(b""))
    with open(os.path.join(directory, file), "wb") as out:
        out.write(data)
    return {"file": file, "shard": shard, "rows": sum(b[1] for b in blocks), "candidates": sum(b[2] for b in blocks),
            "bytes": len(data), "xxh3": f"{xxh3(data):016x}"}


def write_manifest(directory, manifest):
    manifest.pop("xxh3", None)
    with open(os.path.join(directory, "manifest.json"), "w", encoding="utf-8") as out:
        json.dump(manifest, out)


def fill(directory, blocks_of, step=0):
    """Gives an (empty) dump of one shard the rows that blocks_of(schema) makes for each table."""
    manifest = read_manifest(directory)
    assert manifest["shards"] == 1
    for entry in manifest["tables"]:
        part = entry["parts"][0]
        entry["parts"] = [write_part(directory, entry["schema"], blocks_of(entry["schema"]), part["file"])]
        entry["step"] = step
    write_manifest(directory, manifest)
