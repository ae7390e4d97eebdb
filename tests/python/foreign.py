"""Writers of the folders that other systems leave, by the layouts that client/hugectr/README.md describes. Each takes keys,
rows and states as arrays; how rows are spread over files is the caller's."""
import json
import os

import numpy as np

SOK_DTYPES = {"int32": 0, "int64": 1, "uint32": 2, "uint64": 3, "float16": 4, "float32": 5, "float64": 6}


def bf16(values):
    """The upper halves of float32 values that have no lower ones."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    assert not (bits & 0xffff).any()
    return (bits >> 16).astype(np.uint16)


def files(folder, names):
    os.makedirs(folder, exist_ok=True)
    for name, array in names.items():
        np.ascontiguousarray(array).tofile(os.path.join(folder, name))


def dynamicemb(folder, table, parts, args):
    """`parts`: for each rank its {"keys", "values", "scores", "opt_values"}."""
    for rank, part in enumerate(parts):
        files(folder, {f"{table}_emb_{kind}.rank_{rank}.world_size_{len(parts)}": array for kind, array in part.items()})
    with open(os.path.join(folder, f"{table}_opt_args.json"), "w") as out:
        json.dump({"dist_type": "roundrobin", **args}, out, indent=4)


def sok_file(folder, name, kind, slot, array, table=""):
    head = table.rjust(256).encode() + kind.to_bytes(4, "big") + slot.rjust(32).encode()
    head += SOK_DTYPES[str(array.dtype)].to_bytes(4, "big")
    assert len(head) == 296
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as out:
        out.write(head + np.ascontiguousarray(array).tobytes())


def sok(folder, table, keys, values, optimizer="", **slots):
    sok_file(folder, f"{table}-key", 0, "", keys)
    sok_file(folder, f"{table}-weight", 1, "", values, table)
    for slot, state in slots.items():
        sok_file(folder, f"{table}-{optimizer}-{slot}", 2, slot, state)


def tfra(folder, variable, parts, ranks=1, has_ranks=True):
    """`parts`: (keys, values) of table 1 to N of rank 0, then of rank 1, ..."""
    n = len(parts) // ranks
    for i, (keys, values) in enumerate(parts):
        end = f"_rank{i // n}_size{ranks}" if has_ranks else ""
        stem = f"{variable}_mht_{i % n + 1}of{n}{end}"
        files(folder, {f"{stem}-keys": keys, f"{stem}-values": values})


def hkv(folder, stem, keys, values, scores=None):
    files(folder, {f"{stem}.keys": keys, f"{stem}.values": values})
    if scores is not None:
        files(folder, {f"{stem}.scores": scores})
