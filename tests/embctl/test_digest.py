"""embctl digest: the numbers are those of the documented formula, shards make them, and --against finds what differs."""
import ctypes
import os
import random
import struct

import partfiles
from embctl import EMBCTL, NOT_FOUND, UNREACHABLE, Embd, Scratch, embctl, embctl_json, run_cases
from test_coordinator import wait_phase
from test_copies import SCHEMAS, create_all, write_random
from wire import RpcError, Wire, connect, mix64

DIFFERS = 7
BIN = os.path.dirname(EMBCTL)
_seeded = partfiles._xxhash.XXH3_64bits_withSeed
_seeded.restype = ctypes.c_uint64
_seeded.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]


def vshard(key):
    return mix64(key) >> 54


def model_parts(table):
    """[1024] sums and counts of a table as partfiles.read has it, by proto/SEMANTICS.md."""
    sums, counts = [0] * 1024, [0] * 1024
    def add(slot, key, *pieces):
        value = partfiles.xxh3(struct.pack("<QQ", key, slot))
        for piece in pieces:
            value = _seeded(piece, len(piece), value) if piece else value
        sums[vshard(key)] = (sums[vshard(key)] + value) % 2**64
        counts[vshard(key)] += 1
    for (slot, key), (row, state) in table["rows"].items():
        add(slot, key, row, state)
    for (slot, key), count in table["candidates"].items():
        add(slot, key, struct.pack("<I", count))
    return sums, counts


def model_digest(table):
    return f"{partfiles.xxh3(struct.pack('<1024Q', *model_parts(table)[0])):016x}"


def only(server, there, *tables, code=DIFFERS, **more):
    return embctl_json(server, "digest", "--against", there.addresses[0], *tables, code=code, **more)


def push(server, table, key, dim, value=1.0):
    """To whichever shard has the key."""
    for shard in range(len(server.addresses)):
        with connect(server, shard) as wire:
            table_id = wire.call("table_describe", {"name": table})[0]["id"]
            try:
                wire.call("push", {"parts": [{"table": table_id, "keys": 1}]}, struct.pack("<Q", key),
                          struct.pack(f"<{dim}f", *[value] * dim))
                return
            except RpcError as error:
                assert "shard" in str(error), error
    raise AssertionError("no shard takes the key")


def two(scratch, shards=(1, 3)):
    """Two clusters with the same random tables."""
    write_random(scratch("made"))
    for count in shards:
        server = Embd(shards=count)
        embctl(server, "load", scratch("made"))
        yield server


# ---- the formula ----

def case_digests_are_those_of_the_formula():
    with Scratch() as scratch:
        write_random(scratch("made"))
        expected = {name: model_digest(t) for name, t in partfiles.read(scratch("made")).items()}
        assert len(set(expected.values())) == len(SCHEMAS)
        for shards in (1, 3):
            with Embd(shards=shards) as server:
                embctl(server, "load", scratch("made"))
                assert {t["table"]: t["digest"] for t in embctl_json(server, "digest")["tables"]} == expected
                some = embctl_json(server, "digest", "sgd_hash", "adam_hash")["tables"]
                assert [t["table"] for t in some] == ["sgd_hash", "adam_hash"]


def case_the_cuda_store_has_the_digests_of_the_host():
    rng = random.Random(6)
    with Scratch() as scratch, Embd() as host, Embd(program=os.path.join(BIN, "embd-cuda-emulated")) as cuda:
        for server in (host, cuda):
            create_all(server)
        for _ in range(40):
            key, value = rng.randrange(30), rng.random()
            for server in (host, cuda):
                push(server, "ftrl_modulo", key, 3, value)
                push(server, "adam_hash", key, 5, value)
                push(server, "coded_hash", key, 6, value)
        assert all(t["same"] for t in only(host, cuda, code=0)["tables"])
        embctl(cuda, "dump", "--all", scratch("d"))
        assert {t["table"]: t["digest"] for t in embctl_json(cuda, "digest")["tables"]} == {
            n: model_digest(t) for n, t in partfiles.read(scratch("d")).items()}


def case_random_pushes_give_the_digest_of_what_is_dumped():
    rng = random.Random(5)
    with Scratch() as scratch, Embd(shards=2) as server:
        create_all(server)
        for turn in range(3):
            for _ in range(20):
                push(server, "sgd_hash", rng.getrandbits(64), 1, rng.random())
                push(server, "adam_hash", rng.randrange(6), 5, rng.random())
            embctl(server, "delete", "adam_hash", rng.randrange(6))
            digests = embctl_json(server, "digest")["tables"]
            embctl(server, "dump", "--all", scratch(f"d{turn}"))
            stored = partfiles.read(scratch(f"d{turn}"))
            assert {t["table"]: t["digest"] for t in digests} == {n: model_digest(t) for n, t in stored.items()}
            assert {t["table"]: (t["rows"], t["candidates"]) for t in digests} == {
                n: (len(t["rows"]), len(t["candidates"])) for n, t in stored.items()}


# ---- comparing ----

def case_clusters_of_different_shard_counts_are_the_same_until_one_row_changes():
    with Scratch() as scratch:
        a, b = two(scratch)
        with a, b:
            same = only(a, b, code=0)
            assert len(same["tables"]) == len(SCHEMAS) and same["differences"] == []
            assert all(t["same"] and t["digest"] == t["digest_there"] for t in same["tables"])
            (_, key), _ = next(iter(partfiles.read(scratch("made"))["coded_hash"]["rows"].items()))
            push(b, "coded_hash", key, 6)
            found = only(a, b, says="'coded_hash' differs in 1 vshards")
            assert [t["table"] for t in found["tables"] if not t["same"]] == ["coded_hash"]
            part, = found["differences"]
            assert (part["table"], part["vshard"], part["shard"]) == ("coded_hash", vshard(key), 0)
            assert part["shard_there"] == (vshard(key) * 3 >> 10) and part["rows"] == part["rows_there"] > 0
            assert part["sum"] != part["sum_there"]
            only(a, b, "sgd_hash", code=0)


def case_a_row_a_candidate_a_step_or_a_table_too_many_is_found():
    with Scratch() as scratch:
        a, b = two(scratch, (2, 2))
        with a, b:
            embctl(b, "delete", "sgd_hash", 2**64 - 1)  # a row, and no step
            found = only(a, b, says="2701 rows and 1099511627783 steps here, 2700 rows")
            part, = found["differences"]
            assert part["vshard"] == vshard(2**64 - 1) and part["rows"] == part["rows_there"] + 1
            embctl(a, "delete", "sgd_hash", 2**64 - 1)
            only(a, b, code=0)
            push(a, "adam_hash", 12345, 5)  # waits: no row, but a step
            part, = only(a, b)["differences"]
            assert part["vshard"] == vshard(12345)
            push(b, "adam_hash", 12345, 5)
            only(a, b, code=0)
            push(a, "sgd_hash", 7, 1, 0.0)
            push(b, "sgd_hash", 7, 1, 0.0)
            only(a, b, code=0)
            push(a, "sgd_hash", 7, 1, 0.0)  # the step alone
            found = only(a, b, says="differs in 0 vshards")
            assert found["differences"] == [] and [t["table"] for t in found["tables"] if not t["same"]] == ["sgd_hash"]
            push(b, "sgd_hash", 7, 1, 0.0)
            embctl(a, "table", "create", "more", "--dim", 1)
            assert [t["table"] for t in only(a, b, says="'more' is only here")["tables"] if not t["same"]] == ["more"]
            only(b, a, says="'more' is only there")
            embctl(a, "digest", "more", "--against", b.addresses[0], code=NOT_FOUND, says="'more'")


def case_a_directory_is_compared_with_a_cluster_and_a_missing_cluster_is_told():
    with Scratch() as scratch:
        a, = two(scratch, (2,))
        with a:
            against = ("--against", a.addresses[0])
            embctl(None, "digest", "-d", scratch("made"), *against)
            embctl(a, "delete", "sgd_hash", 2**64 - 1)
            assert "no" in embctl(None, "digest", "-d", scratch("made"), *against, code=DIFFERS, says="'sgd_hash'")
            embctl(a, "digest", "--against", "127.0.0.1:1", "--deadline", 1, code=UNREACHABLE)


# ---- requests ----

def refused(wire, says, **fields):
    try:
        wire.call("scan", fields)
    except RpcError as error:
        assert says in str(error), (says, error)
        return
    raise AssertionError(f"not refused: {fields}")


def case_a_request_for_a_digest_is_checked_and_a_refusal_changes_nothing():
    with Scratch() as scratch:
        a, = two(scratch, (1,))
        with a, Wire(a.admin_path(0)) as wire:
            refused(wire, "'cut' is absent", table="sgd_hash", digest=True)
            job = wire.call("snapshot", {"name": "d", "phase": "start", "read": True})[0]["job"]
            wait_phase(a, "read")
            cut = {"cut": job, "bytes": 4096, "digest": True}
            refused(wire, "digest", **{**cut, "digest": 3}, table="sgd_hash")
            refused(wire, "has no table 'other'", **cut, table="other")
            refused(wire, "has ended", **{**cut, "cut": job ^ 1}, table="sgd_hash")
            refused(wire, "cursor: 5", **cut, table="sgd_hash", cursor=5)
            answer, *bins = wire.call("scan", {**cut, "table": "sgd_hash"})
            assert bins == [] and not answer["done"] and answer["rows"] > 0
            refused(wire, "were read for a digest", cut=job, table="sgd_hash", cursor=answer["next"])
            refused(wire, "cursor: 0", **cut, table="sgd_hash")
            rows = answer["rows"]
            while not answer["done"]:
                answer, *bins = wire.call("scan", {**cut, "table": "sgd_hash", "cursor": answer["next"]})
                rows += answer["rows"]
            sums, counts = (list(struct.unpack("<1024Q", b)) for b in bins)
            assert (sums, counts) == tuple(model_parts(partfiles.read(scratch("made"))["sgd_hash"]))
            assert rows == sum(counts) == 2701 and answer["step"] == 2**40 + 7
            refused(wire, "which are all", **cut, table="sgd_hash", cursor=answer["next"])
            wire.call("scan", {"cut": job, "bytes": 4096, "table": "adam_hash"})
            refused(wire, "were read as rows", **cut, table="adam_hash", cursor=1)


if __name__ == "__main__":
    run_cases(globals())
