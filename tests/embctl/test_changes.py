"""Snapshots of what changed since another one: loaded upon each other they are the table as it was at the last cut, on any
number of shards; a base that is missing, another one or changed is told, naming both; and a base of a kept one stays."""
import glob
import json
import os
import random
import shutil
import struct

import partfiles
from embctl import DAMAGED, REFUSED, Embd, Scratch, embctl, embctl_json, run_cases
from wire import RpcError, Wire, connect, floats, keys, owner

SHARDS = 2
TABLES = [
    ("plain", "--dim", 2, "--optimizer", "adagrad"),
    ("slotted", "--dim", 2, "--slots", 3, "--partition", "slot", "--optimizer", "adam", "--admit-after", 2),
    ("full", "--dim", 1, "--partition", "modulo", "--capacity", 40, "--on-full", "evict_lru"),
    ("all", "--dim", 1, "--optimizer", "momentum", "--set", "optimizer.update=global"),
    ("kept", "--dim", 1, "--set", "durability=buffered"),
]


def shard_of(name, key, slot, shards):
    if name in ("slotted", "sorted"):
        return slot % shards
    return key % shards if name in ("full", "waiting") else owner(key, shards)


def create(server, tables=TABLES):
    for name, *flags in tables:
        kept = [] if any("durability" in str(flag) for flag in flags) else ["--set", "durability=snapshot"]
        embctl(server, "table", "create", name, *flags, *kept)


def change(server, rng, method="push", n=30, most=200, shards=SHARDS, tables=TABLES):
    """Random keys of each table are pushed to or erased, on the first shards, which have them."""
    for shard in range(shards):
        with connect(server, shard) as wire:
            for table in wire.call("tables")[0]["tables"]:
                dim = next((t[2] for t in tables if t[0] == table["name"]), None)
                if dim is None:
                    continue
                places = {(rng.randrange(most), rng.randrange(3) if table["name"] == "slotted" else 0)
                          for _ in range(n)}
                mine = sorted(p for p in places if shard_of(table["name"], *p, SHARDS) == shard)
                part = {"table": table["id"], "keys": len(mine), "status": True}
                bins = [keys([key for key, _ in mine])]
                if table["name"] == "slotted":
                    part["slots"] = True
                    bins.append(struct.pack(f"<{len(mine)}H", *(slot for _, slot in mine)))
                if method == "push":
                    bins.append(floats([rng.choice([1.0, -0.5])] * (dim * len(mine))))
                wire.call(method, {"parts": [part]}, *bins)


def dumped(server, path):
    embctl(server, "dump", "--all", path)
    return partfiles.read(path)


def serve(scratch, flags=(), **more):
    if not os.path.isdir(scratch("data")):
        os.mkdir(scratch("data"))
    return Embd("--data-dir", scratch("data"), *flags, shards=SHARDS, **more)


def chain_of_four(scratch):
    """s0 of all rows and three upon it; {name: what the tables had}."""
    rng, found = random.Random(5), {}
    with serve(scratch) as server:
        create(server)
        for number in range(4):
            for _ in range(3):
                change(server, rng, n=60 if number == 0 else 8)
            change(server, rng, "erase", n=6)
            if number == 2:
                embctl(server, "table", "drop", "all")
                create(server, [("new", "--dim", 2), *TABLES[3:4]])
                change(server, rng, n=5)
            upon = ["--incremental", f"s{number - 1}"] if number else []
            embctl(server, "snapshot", f"s{number}", *upon)
            found[f"s{number}"] = dumped(server, scratch(f"dump{number}"))
        embctl(server, "snapshot", "wide", "--incremental", "s0")
        found["wide"] = found["s3"]
    return found


def part_rows(path):
    return {(table["schema"]["name"], part["shard"]): (part["rows"], part.get("changes", False))
            for table in partfiles.read_manifest(path)["tables"] for part in table["parts"]}


def case_a_chain_loads_as_the_tables_were_at_its_last_cut():
    with Scratch() as scratch:
        found = chain_of_four(scratch)
        for shards in (SHARDS, 1, 3):
            for name in found if shards == SHARDS else ("s3", "wide"):
                with Embd(shards=shards) as server:
                    for table in ("plain", "slotted", "full", "all"):
                        if not (table == "full" and shards != SHARDS):  # another number of shards has other capacities
                            embctl(server, "load", "--table", table, scratch(f"data/{name}"))
                    made = dumped(server, scratch(f"again-{name}-{shards}"))
                    for table, what in made.items():
                        assert what == found[name][table], f"{name} on {shards} shards: {table}"
        rows = part_rows(scratch("data/s1"))
        before = part_rows(scratch("data/s0"))
        assert all(changes for _, changes in rows.values()) and not any(c for _, c in before.values())
        assert rows["plain", 0][0] < before["plain", 0][0] / 2, "it has what changed, and not more"
        assert rows["all", 0][0] == len([k for k in found["s1"]["all"]["rows"] if shard_of("all", k[1], 0, 2) == 0])
        late = part_rows(scratch("data/s2"))
        assert not late["all", 0][1] and not late["new", 0][1], "tables that came later have all rows"
        assert late["plain", 0][1]
        embctl(None, "digest", "-d", scratch("data/s1"), code=REFUSED, says="only what changed since its base")
        assert embctl_json(None, "digest", "-d", scratch("data/s0")) == embctl_json(None, "digest", "-d", scratch("dump0"))
        assert embctl_json(None, "verify", scratch("data/s3"))["verify"][0]["rows"] == sum(
            n for number in range(4) for n, _ in part_rows(scratch(f"data/s{number}")).values())


SPARSE = [
    ("spread", "--dim", 2, "--optimizer", "adagrad"),
    ("sorted", "--dim", 1, "--slots", 4, "--partition", "slot", "--optimizer", "adam"),
    ("waiting", "--dim", 1, "--partition", "modulo", "--admit-after", 4),
]


def change_few(server, method, name, shards, slot=0, most=4):
    """Up to `most` keys of a table, one request for each."""
    for key in range(most):
        with connect(server, shard_of(name, key, slot, shards)) as wire:
            table = wire.call("table_describe", {"name": name})[0]
            part = {"table": table["id"], "keys": 1}
            bins = [keys([key])]
            if name == "sorted":
                part["slots"] = True
                bins.append(struct.pack("<H", slot))
            if method == "push":
                bins.append(floats([1.0] * table["schema"]["dim"]))
            wire.call(method, {"parts": [part]}, *bins)


def case_a_block_of_one_shard_does_not_overtake_older_rows_of_it():
    """The increment's blocks have one owner, those below it have several."""
    with Scratch() as scratch:
        with serve(scratch) as server:
            create(server, SPARSE)
            for name, slots in (("spread", 1), ("sorted", 4), ("waiting", 1)):
                for slot in range(slots):
                    change_few(server, "push", name, SHARDS, slot, most=200)
            embctl(server, "snapshot", "s0")
            change_few(server, "push", "spread", SHARDS, most=1)
            change_few(server, "push", "sorted", SHARDS, slot=3, most=50)
            change_few(server, "push", "waiting", SHARDS, most=1)
            embctl(server, "snapshot", "s1", "--incremental", "s0")
            change_few(server, "erase", "spread", SHARDS, most=1)
            change_few(server, "erase", "sorted", SHARDS, slot=3, most=2)
            change_few(server, "erase", "waiting", SHARDS, most=2)
            embctl(server, "snapshot", "s2", "--incremental", "s1")
            change_few(server, "push", "spread", SHARDS, most=1)
            change_few(server, "push", "waiting", SHARDS, most=1)
            embctl(server, "snapshot", "s3", "--incremental", "s2")
        for name in ("s1", "s2", "s3"):
            with Embd(shards=SHARDS) as server:
                embctl(server, "load", scratch(f"data/{name}"))
                expected = dumped(server, scratch(f"dump-{name}"))
            for shards in (1, 3, 5):
                with Embd(shards=shards) as server:
                    embctl(server, "load", scratch(f"data/{name}"))
                    for table, what in dumped(server, scratch(f"again-{name}-{shards}")).items():
                        assert what == expected[table], f"{name} on {shards} shards: {table}"


def case_journaled_tables_and_streams_come_along():
    with Scratch() as scratch:
        found = chain_of_four(scratch)
        os.mkdir(scratch("new"))
        server = Embd("--data-dir", scratch("new"), shards=SHARDS)
        embctl(server, "load", scratch("data/s3"))
        server.kill()
        with Embd("--data-dir", scratch("new"), shards=SHARDS) as server:
            assert dumped(server, scratch("again"))["kept"] == found["s3"]["kept"], "also after kill -9"


def edit(path, change_manifest):
    with open(os.path.join(path, "manifest.json"), encoding="ascii") as file:
        manifest = json.load(file)
    change_manifest(manifest)
    partfiles.write_manifest(path, manifest)


def case_a_base_that_is_not_the_one_is_refused_and_both_are_named():
    with Scratch() as scratch:
        chain_of_four(scratch)
        data = scratch("data")
        with Embd(shards=1) as server:
            def refused(code, *says):
                for words in (("verify", f"{data}/s3"), ("load", f"{data}/s3")):
                    for word in says:
                        embctl(server, *words, code=code, says=word)
                assert embctl_json(server, "table", "list") == {"tables": []}, "nothing was changed"

            os.rename(f"{data}/s1", f"{data}/away")
            refused(REFUSED, "data/s2", "'s1'", "data/s1 does not exist")
            shutil.copytree(f"{data}/s0", f"{data}/s1")
            refused(REFUSED, "data/s2", "'s1'", "needs base 's1'", "found cut")
            shutil.rmtree(f"{data}/s1")
            shutil.copytree(f"{data}/away", f"{data}/s1")
            edit(f"{data}/s1", lambda m: m["tables"][0].update(step=9))
            refused(DAMAGED, "data/s2", "data/s1 was changed since")
            shutil.rmtree(f"{data}/s1")
            shutil.copytree(f"{data}/away", f"{data}/s1")
            with open(f"{data}/s1/plain.0.part", "r+b") as file:
                file.seek(100)
                file.write(bytes([file.read(1)[0] ^ 1]))
            refused(DAMAGED, "plain.0.part")
            shutil.rmtree(f"{data}/s1")
            os.rename(f"{data}/away", f"{data}/s1")
            embctl(None, "verify", f"{data}/s3")
            os.chdir(f"{data}/s3")
            embctl(None, "verify", ".")
            os.chdir(data)
            embctl(None, "verify", "s3/")
            os.chdir("/")


def case_what_the_servers_do_not_know_is_refused():
    with Scratch() as scratch:
        with serve(scratch) as server:
            create(server)
            embctl(server, "snapshot", "a", "--incremental", "none", code=REFUSED, says="'none'")
            embctl(server, "snapshot", "a", "--incremental", "../a", code=REFUSED, says="snapshot name")
            embctl(server, "snapshot", "a")
            for number in range(7):
                embctl(server, "snapshot", f"b{number}", "--incremental", "a")
            embctl(server, "snapshot", "c", "--incremental", "a", code=REFUSED, says="7 later ones")
            embctl(server, "snapshot", "c", "--incremental", "b0")
            embctl(server, "snapshot", "d", "--incremental", "c")
        for path in glob.glob(scratch("data/journal.*")):
            os.remove(path)
        with Embd("--data-dir", scratch("data"), "--restore", "none", shards=SHARDS) as server:
            create(server)
            change(server, random.Random(7))
            embctl(server, "snapshot", "e", "--incremental", "d", code=REFUSED, says="what changed since 'd'")
            assert not os.path.exists(scratch("data/e.tmp"))
            embctl(server, "snapshot", "e")
            embctl(server, "snapshot", "f", "--incremental", "e")


JOURNALED = [(*table, "--set", "durability=buffered") for table in TABLES[:3]]


def began_anew(server):
    """The journals of all shards, since the server's start."""
    for shard in range(SHARDS):
        with connect(server, shard) as wire:
            if wire.call("stats")[0]["stats"]["journal_bases"] == 0:
                return False
    return True


def case_what_changed_is_known_beyond_a_restart_where_the_journal_tells():
    with Scratch() as scratch:
        rng = random.Random(8)
        with serve(scratch) as server:
            create(server, JOURNALED)
            for _ in range(3):
                change(server, rng, n=300, tables=JOURNALED)
            embctl(server, "snapshot", "s0")
            change(server, rng, n=4, tables=JOURNALED)
            change(server, rng, "erase", n=8, tables=JOURNALED)
            server.kill()
        for number in (1, 2):
            with serve(scratch) as server:
                change(server, rng, n=4, tables=JOURNALED)
                embctl(server, "snapshot", f"s{number}", "--incremental", f"s{number - 1}")
                expected = dumped(server, scratch(f"dump{number}"))
                change(server, rng, "erase", n=4, tables=JOURNALED)
                server.kill()
            rows, before = part_rows(scratch(f"data/s{number}")), part_rows(scratch("data/s0"))
            assert all(changes and n < before[at][0] / 2 for at, (n, changes) in rows.items()), (rows, before)
            assert sum(n for n, _ in rows.values()) > 0
            os.mkdir(scratch(f"empty{number}"))
            with Embd("--data-dir", scratch(f"empty{number}"), shards=SHARDS) as server:
                embctl(server, "load", scratch(f"data/s{number}"))
                assert dumped(server, scratch(f"again{number}")) == expected
        with Embd("--data-dir", scratch("data"), "--journal-limit", "4K", shards=SHARDS) as server:
            while not began_anew(server):
                change(server, rng, tables=JOURNALED)
        with serve(scratch) as server:
            embctl(server, "snapshot", "s3", "--incremental", "s2", code=REFUSED, says="what changed since 's2'")
        for path in glob.glob(scratch("data/journal.*")):
            os.remove(path)
        for _ in range(2):  # another journal, with as many records and more
            with Embd("--data-dir", scratch("data"), "--restore", "none", shards=SHARDS) as server:
                create(server, JOURNALED)
                embctl(server, "snapshot", "s3", "--incremental", "s2", code=REFUSED, says="what changed since 's2'")
                for _ in range(12):
                    change(server, rng, tables=JOURNALED)


def case_what_is_said_of_changes_is_checked():
    with Scratch() as scratch, serve(scratch) as server:
        create(server, TABLES[:1])
        with Wire(server.admin_path()) as wire:
            def refused(says, method, params, *bins):
                try:
                    wire.call(method, params, *bins)
                except RpcError as error:
                    assert error.number == (7 if "not know what" in says else 1) and says in error.text, (says, error.text)
                else:
                    raise AssertionError(f"{params} was taken")

            def load(rows, candidates, counts, key_list=(), **more):
                bins = [keys([9] * rows), floats([1.0, 1.0] * rows), floats([1.0, 1.0] * rows), keys(key_list),
                        struct.pack(f"<{len(counts)}I", *counts)]
                refused(more.pop("says"), "load", {"table": "plain", "rows": rows, "candidates": candidates, **more}, *bins)

            here = next(key for key in range(9) if shard_of("plain", key, 0, SHARDS) == 0)
            there = next(key for key in range(9) if shard_of("plain", key, 0, SHARDS) == 1)
            load(0, 1, [1], [here], gone=True, says="expected 0")
            load(0, 1, [0], [there], gone=True, says="belongs to shard 1")
            wire.call("hold", {})
            wire.call("snapshot", {"name": "x", "phase": "begin"})
            refused("does not know what changed since 'y'", "snapshot",
                    {"name": "x", "phase": "cut", "id": 5, "since": 6, "base": "y"})
            part = {"table": "plain", "file": "plain.0.part", "shard": 0, "rows": 0, "candidates": 0, "bytes": 88, "xxh3": 1,
                    "step": 0, "changes": True}
            refused("has no base", "snapshot", {"name": "x", "phase": "commit", "id": 5, "parts": [part]})
            wire.call("snapshot", {"name": "x", "phase": "abort"})
            wire.call("snapshot", {"name": "x", "phase": "begin"})
            wire.call("snapshot", {"name": "x", "phase": "cut", "id": 5})
            wire.call("release", {})
            (part,) = wire.call("snapshot", {"name": "x", "phase": "write"})[0]["parts"]
            refused("is named twice", "snapshot",
                    {"name": "x", "phase": "commit", "id": 5, "more": True, "parts": [part, {**part, "left_out": True}]})
            wire.call("snapshot", {"name": "x", "phase": "abort"})


def case_a_base_of_a_kept_one_stays():
    with Scratch() as scratch:
        left = lambda: sorted(name for name in os.listdir(scratch("data")) if not name.startswith(("journal", "identity")))
        with serve(scratch) as server:
            create(server)
            embctl(server, "snapshot", "old")
            embctl(server, "snapshot", "a")
            embctl(server, "snapshot", "b", "--incremental", "a")
            embctl(server, "snapshot", "c", "--incremental", "b", "--keep", 1)
            assert left() == ["a", "b", "c"], left()
            embctl(None, "verify", scratch("data/c"))
            embctl(server, "snapshot", "d", "--keep", 2)
            assert left() == ["a", "b", "c", "d"], left()
            embctl(server, "snapshot", "e", "--keep", 1)
            assert left() == ["e"], left()


if __name__ == "__main__":
    run_cases(globals())
