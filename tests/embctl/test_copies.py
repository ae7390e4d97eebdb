"""Dump, verify, load and snapshot: the same bits on any number of shards.

The rows are made here, of random bytes (so that they hold NaNs, infinities and negative zeros too), written as part
files by the documented format, loaded, dumped, and compared as bytes."""
import os
import random
import shutil
import struct
import subprocess
import time

import partfiles
from embctl import (DAMAGED, EMBCTL, FAILED, NOT_FOUND, REFUSED, UNREACHABLE, USAGE, Embd, Scratch, embctl, embctl_json,
                    run_cases)
from ports import free_ports
from wire import RpcError, Wire, connect, create

OLD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "old", "0.1.0-a")

SCHEMAS = [
    ("adam_hash", "--dim", 5, "--optimizer", "adam", "--admit-after", 2),
    ("ftrl_modulo", "--dim", 3, "--partition", "modulo", "--optimizer", "ftrl", "--dtype", "bf16"),
    ("rowwise_slot", "--dim", 4, "--slots", 5, "--partition", "slot", "--optimizer", "rowwise_adagrad", "--dtype",
     "f16", "--admit-after", 3),
    ("sgd_hash", "--dim", 1),
    ("coded_hash", "--dim", 6, "--optimizer", "adagrad", "--dtype", "i8"),
    ("coded_modulo", "--dim", 1, "--partition", "modulo", "--dtype", "e4m3"),
    ("wide_modulo", "--dim", 4096, "--partition", "modulo", "--optimizer", "momentum"),
]


def create_all(server):
    for name, *flags in SCHEMAS:
        embctl(server, "table", "create", name, *flags)


def make_block(schema, n, n_candidates, rng):
    keys = [rng.getrandbits(64) for _ in range(n + n_candidates)] if n > 1 else [2**64 - 1]
    pack = lambda code, values: struct.pack(f"<{len(values)}{code}", *values)
    slots = [rng.randrange(schema["slots"]) for _ in keys]
    sizes = partfiles.array_sizes(schema, n, n_candidates)
    arrays = [pack("Q", keys[:n]), pack("H", slots[:n]), rng.randbytes(sizes[2]),
              rng.randbytes(sizes[3]) if sizes[3] else None, pack("Q", keys[n:]), pack("H", slots[n:]),
              pack("I", [1] * n_candidates)]
    return [None if size is None else a for a, size in zip(arrays, sizes)], n, n_candidates


def random_blocks(schema):
    rng = random.Random(schema["name"])
    if schema["dim"] > 1000:
        return [make_block(schema, 300, 0, rng), make_block(schema, 1, 0, rng)]
    waiting = 50 if schema["admit_after"] > 1 else 0
    return [make_block(schema, 2000, waiting, rng), make_block(schema, 1, 0, rng), make_block(schema, 700, waiting, rng)]


def write_random(path, only=None):
    """A directory of one shard with random rows."""
    with Embd() as server:
        create_all(server)
        embctl(server, "dump", *([only] if only else ["--all"]), path)
    partfiles.fill(path, random_blocks, step=2**40 + 7)


def assert_same(a, b):
    assert a.keys() == b.keys(), (a.keys(), b.keys())
    for name in a:
        for what in ("schema", "step", "rows", "candidates"):
            assert a[name][what] == b[name][what], f"table {name} differs in {what}"


def case_rows_are_the_same_on_one_two_and_three_shards():
    with Scratch() as scratch:
        write_random(scratch("made"))
        made = partfiles.read(scratch("made"))
        assert sum(len(t["candidates"]) for t in made.values()) == 200
        before, expected = "made", digests(scratch("made"))
        assert len({d["digest"] for d in expected}) == len(SCHEMAS)
        assert [d["rows"] + d["candidates"] for d in expected] == [
            len(made[d["table"]]["rows"]) + len(made[d["table"]]["candidates"]) for d in expected]
        for shards in (2, 3, 1, 2):
            with Embd(shards=shards) as server:
                after = f"{before}-{shards}"
                loaded = embctl_json(server, "load", scratch(before))["load"][0]
                dumped = embctl_json(server, "dump", "--all", scratch(after))["dump"][0]
                verified = embctl_json(None, "verify", scratch(after))["verify"][0]
                rows = sum(len(t["rows"]) for t in made.values())
                assert loaded["rows"] == dumped["rows"] == verified["rows"] == rows
                files = [n for n in os.listdir(scratch(after)) if n.endswith(".part")]
                assert len(files) == shards * len(SCHEMAS)
                assert dumped["bytes"] == verified["bytes"] == sum(os.path.getsize(scratch(f"{after}/{n}")) for n in files)
                assert_same(partfiles.read(scratch(after)), made)
                assert embctl_json(server, "digest")["tables"] == digests(scratch(after)) == expected
                before = after


def digests(path, *only):
    return embctl_json(None, "digest", "--directory", path, *only)["tables"]


def changed_at(array, schema):
    """The blocks of random_blocks with one bit of one array of the first block changed."""
    blocks = random_blocks(schema)
    arrays = blocks[0][0]
    arrays[array] = bytes([arrays[array][0] ^ 1]) + arrays[array][1:]
    return blocks


def case_one_bit_gives_a_table_another_digest():
    with Scratch() as scratch:
        write_random(scratch("made"), only="rowwise_slot")
        made, = digests(scratch("made"))
        for array in range(7):  # keys, slots, rows, states, and those of candidates
            partfiles.fill(scratch("made"), lambda schema, n=array: changed_at(n, schema), step=2**40 + 7)
            now, = digests(scratch("made"), "rowwise_slot")
            assert now["digest"] != made["digest"] and {**now, "digest": made["digest"]} == made, array
        partfiles.fill(scratch("made"), lambda schema: random_blocks(schema)[::-1], step=2**40 + 7)
        assert digests(scratch("made")) == [made]  # in another order
        partfiles.fill(scratch("made"), random_blocks, step=2**40 + 8)
        assert digests(scratch("made")) == [{**made, "steps": 2**40 + 8}]
        embctl(None, "digest", "-d", scratch("made"), "other", code=NOT_FOUND, says="holds no table 'other'")


def case_a_digest_is_of_one_table_and_leaves_nothing_behind():
    with Embd(shards=2) as server:
        create_all(server)
        embctl(server, "delete", "sgd_hash", 1)
        all_of_them = embctl_json(server, "digest")["tables"]
        assert embctl_json(server, "digest", "sgd_hash")["tables"] == [d for d in all_of_them if d["table"] == "sgd_hash"]
        assert "ROWS" in embctl(server, "digest")
        embctl(server, "digest", "other", code=NOT_FOUND, says="other")
        with Scratch() as scratch:
            embctl(server, "dump", "--all", scratch("after"))  # no cut is held


def case_what_was_pushed_is_what_is_dumped():
    with Scratch() as scratch, Embd() as server:
        embctl(server, "table", "create", "t", "--dim", 2, "--combiner", "concat", "--optimizer", "adagrad", "--lr", 1,
               "--initializer", "constant")
        with Wire(("127.0.0.1", server.port())) as wire:
            table = wire.call("table_describe", {"name": "t"})[0]["id"]
            for _ in range(3):
                wire.call("push", {"parts": [{"table": table, "keys": 2}]}, struct.pack("<2Q", 9, 2**64 - 1),
                          struct.pack("<4f", 2, 0, 0, -4))
        embctl(server, "dump", "t", scratch("d"))
        table = partfiles.read(scratch("d"))["t"]
        assert table["step"] == 3 and table["rows"].keys() == {(0, 9), (0, 2**64 - 1)}
        row, state = table["rows"][0, 9]
        assert struct.unpack("<2f", state) == (12, 0) and struct.unpack("<2f", row)[0] < -2
        assert struct.unpack("<2f", table["rows"][0, 2**64 - 1][1]) == (0, 48)


def case_one_table_can_be_dumped_and_loaded():
    with Scratch() as scratch:
        write_random(scratch("all"))
        with Embd(shards=2) as server:
            embctl(server, "load", "--table", "sgd_hash", scratch("all"))
            assert [t["name"] for t in embctl_json(server, "table", "list")["tables"]] == ["sgd_hash"]
            embctl(server, "load", "--table", "none", scratch("all"), code=NOT_FOUND, says="none")
            embctl(server, "load", "--table", "adam_hash", scratch("all"))
            embctl(server, "dump", "adam_hash", scratch("one"))
            embctl(server, "dump", "none", scratch("two"), code=NOT_FOUND, says="none")
            assert not os.path.exists(scratch("two"))
            made = partfiles.read(scratch("all"))
            assert_same(partfiles.read(scratch("one")), {"adam_hash": made["adam_hash"]})


def case_a_table_in_the_way_is_not_touched():
    with Scratch() as scratch:
        write_random(scratch("d"), "sgd_hash")
        with Embd(shards=2) as server:
            embctl(server, "table", "create", "sgd_hash", "--dim", 2)
            embctl(server, "load", scratch("d"), code=REFUSED, says="dim")
            embctl(server, "table", "drop", "sgd_hash")
            embctl(server, "table", "create", "sgd_hash", "--dim", 1)
            embctl(server, "load", scratch("d"))
            embctl(server, "load", scratch("d"), code=REFUSED, says="rows")
            assert embctl_json(server, "table", "list")["tables"][0]["rows"] == 2701


def case_a_directory_in_the_way_is_not_touched():
    with Scratch() as scratch, Embd() as server:
        embctl(server, "table", "create", "t", "--dim", 2)
        os.mkdir(scratch("d"))
        embctl(server, "dump", "t", scratch("d"), code=REFUSED, says="exists")
        assert os.listdir(scratch("d")) == []
        embctl(server, "dump", "t", scratch("no/such/d"), code=FAILED, says="No such file")
        embctl(server, "dump", "t", code=USAGE)
        embctl(server, "dump", "--all", "t", scratch("e"), code=USAGE)
        embctl(server, "dump", "t", scratch("e") + "/")
        assert sorted(os.listdir(scratch(""))) == ["d", "e"]
        embctl(server, "verify", scratch("none"), code=FAILED, says="No such file")


def case_a_load_that_cannot_end_takes_its_table_back():
    with Scratch() as scratch:
        with Embd() as server:
            embctl(server, "table", "create", "sgd_hash", "--dim", 1, "--capacity", 2000, "--on-full", "error")
            embctl(server, "dump", "--all", scratch("d"))
            partfiles.fill(scratch("d"), random_blocks)
        with Embd() as server:
            embctl(server, "load", scratch("d"), code=REFUSED, says="sgd_hash")
            assert embctl_json(server, "table", "list") == {"tables": []}


def case_a_snapshot_verifies_and_loads():
    with Scratch() as scratch:
        write_random(scratch("made"))
        os.mkdir(scratch("data"))
        with Embd("--data-dir", scratch("data"), shards=3) as server:
            embctl(server, "load", scratch("made"))
            report = embctl_json(server, "snapshot", "nightly-1")["snapshot"][0]
            assert report["directory"] == "nightly-1"
            embctl(server, "snapshot", "nightly-1", code=REFUSED, says="nightly-1")
            embctl(server, "snapshot", "n" * 64)
            embctl(server, "snapshot", "n" * 65, code=REFUSED, says="is not 1 to 64 of a-z")
            for name in ("../up", "a/b", ".", "", "Upper", "-dash", "x" * 65, "sp ace"):
                embctl(server, "snapshot", "--", name, code=REFUSED)
            embctl(server, "snapshot", code=USAGE)
            assert {n for n in os.listdir(scratch("data")) if not n.startswith("identity")} == {"nightly-1", "n" * 64}
            assert embctl_json(None, "verify", scratch("data/nightly-1"))["verify"][0]["rows"] == report["rows"]
            embctl(server, "table", "create", "after", "--dim", 2)
            assert embctl_json(server, "stats")["stats"], "nothing is held any more"
        assert_same(partfiles.read(scratch("data/nightly-1")), partfiles.read(scratch("made")))
        with Embd(shards=2) as server:
            embctl(server, "load", scratch("data/nightly-1"))
            embctl(server, "dump", "--all", scratch("again"))
            assert_same(partfiles.read(scratch("again")), partfiles.read(scratch("made")))
            embctl(server, "snapshot", "x", code=REFUSED, says="data directory")


def snapshots_failed(server):
    """By shard: the first of its process tells it."""
    told = [s for s in embctl_json(server, "stats")["stats"] if s["name"] == "snapshot_jobs_failed"]
    return [s["value"] for s in sorted(told, key=lambda s: s["shard"])]


def case_a_table_that_is_on_some_shards_only_is_in_no_snapshot():
    with Scratch() as scratch:
        os.mkdir(scratch("data"))
        with Embd("--data-dir", scratch("data"), shards=3) as server:
            for name in "whole", "hall":
                embctl(server, "table", "create", name, "--dim", 4)
            with connect(server, 1) as peer:
                create(peer, "half", 4)
            embctl(server, "snapshot", "refused", "--tables", "ha*", code=REFUSED,
                   says=f"{server.addresses[0]} has no table 'half', which {server.addresses[1]} has")
            assert not [n for n in os.listdir(scratch("data")) if n.startswith("refused")]
            assert "job_failed job=snapshot name=refused phase=write" in server.log()
            assert snapshots_failed(server) == [1, 0, 0]
            embctl(server, "snapshot", "without")
            assert snapshots_failed(server) == [1, 0, 0]
            assert (f"table_left_out name=without table=half has={server.addresses[1]} lacks={server.addresses[0]}"
                    in server.log())
            assert not [n for n in os.listdir(scratch("data/without")) if "half" in n]
            embctl(server, "verify", scratch("data/without"))
            for shard in (0, 2):
                with connect(server, shard) as peer:
                    create(peer, "half", 4)
            embctl(server, "snapshot", "upon", "--incremental", "without", code=REFUSED,
                   says="base 'without' has no table 'half', which was on some shards only: make a snapshot of all rows")
            assert not [n for n in os.listdir(scratch("data")) if n.startswith("upon")]
            embctl(server, "snapshot", "taken")
            embctl(server, "snapshot", "later", "--incremental", "taken")
        everything = {"half", "whole", "hall"}
        for name, tables in ("without", {"whole", "hall"}), ("taken", everything), ("later", everything):
            with Embd(shards=2) as server:
                embctl(server, "load", scratch(f"data/{name}"))
                assert {table["name"] for table in embctl_json(server, "table", "list")["tables"]} == tables


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)
    return path


def blob(path, name, **more):
    """A blob as embctl writes it out, as bytes."""
    return subprocess.run([EMBCTL, "blobs", path, name], capture_output=True, timeout=30, check=True, **more).stdout


def case_s0_23_a_snapshot_carries_the_trainers_files():
    with Scratch() as scratch:
        dense = random.Random(1).randbytes(20_000_003)
        os.mkdir(scratch("data"))
        with Embd("--data-dir", scratch("data"), shards=2) as server:
            embctl(server, "table", "create", "t", "--dim", 2)
            report = embctl_json(server, "snapshot", "job", "--blob", "dense=" + write(scratch("w"), dense), "--blob",
                                 "step=" + write(scratch("s"), b"9000\n"), "-b", "empty=/dev/null")["snapshot"][0]
            assert report["bytes"] == 20_000_008 + 2 * 88 + 2 * 64, report
            listed = embctl_json(None, "blobs", scratch("data/job"))
            assert listed == {"blobs": [{"blob": "dense", "bytes": 20_000_003}, {"blob": "step", "bytes": 5},
                                        {"blob": "empty", "bytes": 0}]}, listed
            assert blob(scratch("data/job"), "dense") == dense
            assert blob(scratch("data/job"), "step") == b"9000\n"
            assert blob(scratch("data/job"), "empty") == b""
            embctl(None, "blobs", scratch("data/job"), "none", code=REFUSED, says="'none'")
            verified = embctl_json(None, "verify", scratch("data/job"))["verify"][0]
            assert verified["bytes"] == report["bytes"]
        with Embd() as server:
            embctl(server, "load", scratch("data/job"))
            embctl(server, "table", "drop", "t")
            embctl(server, "dump", "--all", scratch("dump"))
            assert embctl_json(None, "blobs", scratch("dump")) == {"blobs": []}
            with open(scratch("data/job/dense.blob"), "r+b") as file:
                file.seek(12_345_678)
                file.write(bytes([file.read(1)[0] ^ 1]))
            embctl(server, "load", scratch("data/job"), code=DAMAGED, says="dense.blob: has the checksum")
            assert embctl_json(server, "table", "list") == {"tables": []}
            embctl(None, "blobs", scratch("data/job"), "dense", code=DAMAGED, says="dense.blob")
            assert blob(scratch("data/job"), "step") == b"9000\n", "the others are still good"
            os.truncate(scratch("data/job/dense.blob"), 5)
            embctl(None, "verify", scratch("data/job"), code=DAMAGED, says="has 5 bytes, the manifest says 20000003")
            os.unlink(scratch("data/job/dense.blob"))
            embctl(None, "verify", scratch("data/job"), code=DAMAGED, says="dense.blob: is missing")


def case_s0_23_a_blob_that_cannot_be_kept_leaves_no_snapshot():
    with Scratch() as scratch:
        os.mkdir(scratch("data"))
        small = write(scratch("small"), b"x")
        with Embd("--data-dir", scratch("data")) as server:
            embctl(server, "snapshot", "job", "--blob", "dense", code=USAGE, says="NAME=FILE")
            embctl(server, "snapshot", "job", "--blob", "dense=" + scratch("none"), code=FAILED, says="No such file")
            embctl(server, "snapshot", "job", "--blob", "dense=" + scratch("data"), code=FAILED, says="cannot read")
            for name in ("", "Dense", "../up", "a.b"):
                embctl(server, "snapshot", "job", "--blob", f"{name}={small}", code=REFUSED, says="blob name")
            embctl(server, "snapshot", "job", "-b", f"a={small}", "-b", f"a={small}", code=REFUSED, says="twice")
            many = [word for i in range(17) for word in ("-b", f"b{i}={small}")]
            embctl(server, "snapshot", "job", *many, code=USAGE, says="at most 16")
            assert [n for n in os.listdir(scratch("data")) if not n.startswith("identity")] == []
            embctl(server, "snapshot", "job", *many[:32])
            assert len(embctl_json(None, "blobs", scratch("data/job"))["blobs"]) == 16


def case_the_newest_snapshots_are_kept_and_nothing_else_is_touched():
    with Scratch() as scratch:
        data = scratch("data")
        os.mkdir(data)
        with Embd("--data-dir", data, shards=2) as server:
            left = lambda: sorted(name for name in os.listdir(data) if not name.startswith(("journal.", "identity.")))
            embctl(server, "table", "create", "t", "--dim", 2, "--set", "durability=durable")
            os.mkdir(scratch("data/mine"))
            shutil.copytree(os.path.join(OLD, "dump"), scratch("data/dump"))
            shutil.copytree(os.path.join(OLD, "snapshot"), scratch("data/ancient"))
            ahead = time.time() + 3600  # it has no sequence: that of a clock which was wrong makes it no newer
            os.utime(scratch("data/ancient/manifest.json"), (ahead, ahead))
            os.mkdir(scratch("data/fifo"))
            os.mkfifo(scratch("data/fifo/manifest.json"))  # nobody will ever write to it
            others = ["dump", "fifo", "mine"]
            for name in ("z", "y", "x"):
                embctl(server, "snapshot", name)
            assert left() == sorted(["ancient", "x", "y", "z", *others])
            os.utime(scratch("data/z/manifest.json"), (ahead, ahead))
            embctl(server, "snapshot", "w", "--keep", 3)
            assert left() == sorted(["w", "x", "y", *others])
            os.mkdir(scratch("data/y.gone"))
            write(scratch("data/y.gone/t.0.part"), b"left when a server died")
            os.truncate(scratch("data/x/manifest.json"), 10)
            embctl(server, "snapshot", "v", "--keep", 1)
            assert left() == sorted(["v", "x", *others]), "one that cannot be read is left to people"
            embctl(server, "snapshot", "v", "--keep", 1, code=REFUSED, says="exists")
            embctl(server, "snapshot", "u", "--keep", 0, code=USAGE, says="1 to 1000000")
            embctl(None, "verify", scratch("data/v"))
            with Wire(server.admin_path()) as wire:
                for name, keep, status in (("v", 0, 1), ("none", 1, 1), ("../v", 1, 1)):
                    try:
                        wire.call("snapshot", {"name": name, "phase": "keep", "keep": keep})
                    except RpcError as error:
                        assert error.number == status, error
                    else:
                        raise AssertionError(f"keep {keep} of {name} was done")
            with Wire(server.admin_path(1)) as wire:
                try:
                    wire.call("snapshot", {"name": "v", "phase": "keep", "keep": 1})
                except RpcError as error:
                    assert "not the first of its process" in error.text
            assert left() == sorted(["v", "x", *others])


def case_a_snapshot_of_two_processes_is_one():
    with Scratch() as scratch:
        write_random(scratch("made"))
        first = free_ports(2)
        ports = [first, first + 1]
        with open(scratch("two.yaml"), "w", encoding="utf-8") as config:
            config.write(f'admin_dir: "{scratch("admin")}"\ncluster:\n  name: two\n  servers:\n')
            for name, port in zip("ab", ports):
                os.mkdir(scratch(f"data-{name}"))
                config.write(f'    - {{name: {name}, listen: "127.0.0.1:{port}", shards: 1, '
                             f'data_dir: "{scratch("data-" + name)}"}}\n')
        flags = ["--admin-dir", scratch("admin"), "--config", scratch("two.yaml"), "--server"]
        with Embd(*flags, "a", listen=None) as a, Embd(*flags, "b", listen=None):
            a.addresses = [f"127.0.0.1:{ports[0]}"]
            embctl(a, "load", scratch("made"))
            os.mkdir(scratch("data-b/taken"))
            embctl(a, "snapshot", "taken", code=REFUSED, says="taken")
            assert [n for n in os.listdir(scratch("data-a")) if not n.startswith("identity")] == [], "what had begun was aborted"
            embctl(a, "snapshot", "whole", "--blob", "step=" + write(scratch("step"), b"7"))
        for name in "ab":
            embctl(None, "verify", scratch(f"data-{name}/whole"))
        os.mkdir(scratch("gathered"))
        shutil.copytree(scratch("data-a/whole"), scratch("gathered/a"))
        with Embd(shards=3) as server:
            embctl(server, "load", scratch("gathered/a"), code=REFUSED, says="shard 1 of 2")
            embctl(server, "load", scratch("gathered"), code=REFUSED, says="gather")
            shutil.copytree(scratch("data-a/whole"), scratch("gathered/b"))
            embctl(server, "load", scratch("gathered"), code=DAMAGED, says="both hold shard 0")
            shutil.rmtree(scratch("gathered/b"))
            shutil.copytree(scratch("data-b/whole"), scratch("gathered/b"))
            embctl(None, "verify", scratch("gathered"))
            assert blob(scratch("gathered"), "step") == b"7"
            embctl(server, "load", scratch("gathered"))
            embctl(server, "dump", "--all", scratch("again"))
        assert_same(partfiles.read(scratch("again")), partfiles.read(scratch("made")))


def case_without_its_admin_socket_a_shard_cannot_be_dumped():
    with Scratch() as scratch, Embd() as server:
        embctl(server, "table", "create", "t", "--dim", 2)
        os.unlink(server.admin_path())
        embctl(server, "dump", "t", scratch("d"), code=UNREACHABLE, says="sock")
        assert os.listdir(scratch("")) == []


if __name__ == "__main__":
    run_cases(globals())
