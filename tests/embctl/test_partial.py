"""Snapshots of some tables, of a job: what they have, which are refused, which `keep` removes, and what a cluster of several
processes begins with. tests/fault/test_kill_partial.py has random histories of them."""
import json
import os
import random
import shutil

from embctl import DAMAGED, OK, Embd, Scratch, embctl, embctl_json, run_cases, start
from ports import free_ports
from test_changes import SHARDS, create, dumped
import test_changes
from wire import RpcError, Wire, connect, floats, keys, open_stream, owned

FORGOTTEN = 22

TABLES = [(name, "--dim", 2, "--optimizer", "adagrad", "--set", "durability=snapshot") for name in ("rec-a", "rec-b", "ads")]


def change(server, rng, n, **more):
    test_changes.change(server, rng, n=n, tables=TABLES, **more)


def serve(scratch, *flags):
    os.makedirs(scratch("data"), exist_ok=True)
    return Embd("--data-dir", scratch("data"), *flags, shards=SHARDS)


def made(scratch, data="data"):
    return sorted(name for name in os.listdir(scratch(data)) if os.path.exists(scratch(f"{data}/{name}/manifest.json")))


def manifest(scratch, name):
    with open(scratch(f"data/{name}/manifest.json"), encoding="ascii") as file:
        return json.load(file)


def filled(server, seed=1):
    create(server, TABLES)
    change(server, random.Random(seed), n=80)


def refused(server, *words, says):
    child = start(server, "snapshot", *words)
    _, said = child.communicate(timeout=30)
    assert child.returncode != OK, said
    for text in says:
        assert text in said, said
    return True


def case_a_snapshot_has_the_tables_that_it_names():
    with Scratch() as scratch:
        with serve(scratch) as server:
            filled(server)
            cut = dumped(server, scratch("dump"))
            embctl(server, "snapshot", "s1", "--job", "ranker", "--tables", "rec-*")
            embctl(server, "snapshot", "s2", "--tables", "ads", "--tables", "rec-b")
            embctl(server, "snapshot", "s3", "--job", "ranker")
        assert (manifest(scratch, "s1")["format"], manifest(scratch, "s1")["job"], manifest(scratch, "s1")["scope"]) == \
            (5, "ranker", ["rec-*"])
        assert "job" not in manifest(scratch, "s2") and manifest(scratch, "s2")["scope"] == ["ads", "rec-b"]
        assert manifest(scratch, "s3")["job"] == "ranker" and "scope" not in manifest(scratch, "s3")
        assert sorted(name for name in os.listdir(scratch("data/s1")) if name.endswith(".part")) == \
            [f"rec-{t}.{shard}.part" for t in "ab" for shard in range(SHARDS)]
        for name, tables in (("s1", ["rec-a", "rec-b"]), ("s2", ["ads", "rec-b"]), ("s3", ["ads", "rec-a", "rec-b"])):
            embctl(None, "verify", scratch(f"data/{name}"))
            listed = embctl_json(None, "inspect", scratch(f"data/{name}"))["tables"]
            assert sorted(t["table"] for t in listed) == tables, listed
            assert {t["job"] for t in listed} == {None if name == "s2" else "ranker"}, listed
        with Embd(shards=3) as other:
            embctl(other, "load", scratch("data/s1"))
            there = dumped(other, scratch("again"))
            assert sorted(there) == ["rec-a", "rec-b"]
            assert all(there[name]["rows"] == cut[name]["rows"] for name in there)


def case_a_name_without_a_table_begins_nothing():
    with Scratch() as scratch, serve(scratch) as server:
        filled(server)
        for names in ("none", "rec-a,none", "none-*", "rec-*,none-*"):
            assert refused(server, "s1", "--tables", names, says=["has no table 'none", "no snapshot was begun"])
        for names in ("*", "rec-**", "-a", "", "rec a", "A*"):
            refused(server, "s1", "--tables", names, says=["snapshot tables", "expected a name, or PREFIX*"])
        refused(server, "s1", "--job", "A", says=["snapshot job: 'A'"])
        refused(server, "s1", "--tables", ",".join(f"t{i}" for i in range(33)), says=["at most 32 names"])
        with Wire(server.admin_path()) as wire:
            for tables, says in (([], "0 elements"), ([1], "element 0 is"), (["ads"] * 33, "the limit is 32")):
                try:
                    wire.call("snapshot", {"name": "s1", "phase": "start", "tables": tables})
                    raise AssertionError(tables)
                except RpcError as error:
                    assert says in error.text, error.text
            try:
                wire.call("snapshot", {"name": "s1", "phase": "start", "read": True, "tables": ["ads"]})
                raise AssertionError("read and tables")
            except RpcError as error:
                assert "'table' names one to read" in error.text, error.text
        assert not [name for name in os.listdir(scratch("data")) if name.startswith("s1")]


def case_keep_counts_a_job_and_what_the_snapshot_covers():
    with Scratch() as scratch, serve(scratch) as server:
        filled(server)

        def take(name, *words):
            embctl(server, "snapshot", name, *words)
            return made(scratch)

        take("all-1"), take("all-2")
        take("j-1", "--job", "j", "--tables", "rec-*"), take("k-1", "--job", "k", "--tables", "rec-*")
        assert take("j-2", "--job", "j", "--tables", "rec-*", "--keep", 1) == ["all-1", "all-2", "j-2", "k-1"]
        assert take("part", "--tables", "ads", "--keep", 1) == ["all-1", "all-2", "j-2", "k-1", "part"]
        assert take("j-3", "--job", "j", "--tables", "rec-a", "--keep", 1) == ["all-1", "all-2", "j-2", "j-3", "k-1", "part"]
        assert take("all-3", "--keep", 2) == ["all-3", "j-2", "j-3", "k-1", "part"]  # part is of no job, and newer than all-2
        assert take("j-4", "--job", "j", "--keep", 1) == ["all-3", "j-4", "k-1", "part"]


def case_a_base_is_of_the_same_tables_and_job():
    with Scratch() as scratch, serve(scratch) as server:
        filled(server)
        embctl(server, "snapshot", "s1", "--job", "j", "--tables", "rec-*")
        embctl(server, "snapshot", "all")
        for words, wanted in (([], "all tables"), (["--job", "j"], "all tables of job 'j'"),
                              (["--job", "j", "--tables", "rec-a"], "tables rec-a of job 'j'"),
                              (["--tables", "rec-*"], "tables rec-*;")):
            refused(server, "s2", "--incremental", "s1", *words, says=["'s1' is of tables rec-* of job 'j'", wanted])
        refused(server, "s2", "--incremental", "all", "--tables", "ads", says=["'all' is of all tables", "of tables ads"])
        assert made(scratch) == ["all", "s1"]
        change(server, random.Random(2), n=40)
        cut = dumped(server, scratch("dump"))
        embctl(server, "snapshot", "s2", "--job", "j", "--tables", "rec-*", "--incremental", "s1")
        change(server, random.Random(3), n=40)
        server.kill()
        with serve(scratch) as server:
            again = dumped(server, scratch("again"))
            assert again["rec-a"] == cut["rec-a"] and again["rec-b"] == cut["rec-b"] and again["ads"] != cut["ads"]
            embctl(server, "snapshot", "s3", "--job", "j", "--tables", "rec-*", "--incremental", "s2")
            assert manifest(scratch, "s3")["tables"][0]["parts"][0]["changes"] is True


def case_snapshots_of_others_do_not_make_a_base_forgotten():
    with Scratch() as scratch, serve(scratch) as server:
        filled(server)
        embctl(server, "snapshot", "ads-1", "--job", "ads", "--tables", "ads")
        for i in range(8):
            embctl(server, "snapshot", f"rec-{i}", "--job", "rec", "--tables", "rec-*")
        change(server, random.Random(2), n=40)
        embctl(server, "snapshot", "ads-2", "--job", "ads", "--tables", "ads", "--incremental", "ads-1")
        assert manifest(scratch, "ads-2")["tables"][0]["parts"][0]["changes"] is True
        refused(server, "rec-8", "--job", "rec", "--tables", "rec-*", "--incremental", "rec-0", says=["it made 7 later ones"])


def case_what_a_newer_snapshot_covers_and_lacks_does_not_come_back():
    with Scratch() as scratch:
        with serve(scratch) as server:
            filled(server)
            embctl(server, "snapshot", "all")
            embctl(server, "table", "drop", "rec-b")
            embctl(server, "snapshot", "j", "--tables", "rec-*")
            embctl(server, "table", "drop", "rec-a")
            server.kill()
        with serve(scratch) as server:  # rec-b was dropped before the newest cut that covers it, rec-a after
            assert [t["name"] for t in embctl_json(server, "table", "list")["tables"]] == ["ads", "rec-a"]
            assert "snapshot=j cut=" in server.log() and "snapshot=all cut=" in server.log()


def case_streams_that_pushed_between_the_cuts_are_forgotten():
    """And all of them where no snapshot is of all tables: a stream may have pushed to one that is in none."""
    def push(wire, low, number, *names):
        there = {t["name"]: t["id"] for t in wire.call("tables")[0]["tables"]}
        writer = {"high": 1, "low": low, "sequence": number}
        key = owned(1, 0, SHARDS)
        return wire.call("push", {"parts": [{"table": there[name], "keys": 1} for name in names], "writer": writer},
                         *(data for _ in names for data in (keys(key), floats([1.0, 1.0]))))[0]

    def said(wire, *arguments):
        try:
            return push(wire, *arguments).get("again", False)
        except RpcError as error:
            return error.number

    for has_all in (True, False):
        with Scratch() as scratch:
            with serve(scratch) as server:
                create(server, TABLES)
                with connect(server) as wire:
                    for low in (1, 2, 3):
                        open_stream(wire, {"high": 1, "low": low}, False)
                        push(wire, low, 1, "rec-a", "ads")
                    if has_all:
                        embctl(server, "snapshot", "all")
                    push(wire, 1, 2, "rec-a")
                    push(wire, 2, 2, "ads")
                embctl(server, "snapshot", "part", "--tables", "rec-*")
                server.kill()
            with serve(scratch) as server, connect(server) as wire:
                if not has_all:
                    create(server, TABLES[2:])
                assert [said(wire, low, 3, "rec-a") for low in (1, 2)] == [FORGOTTEN, FORGOTTEN]
                assert [said(wire, low, 2, "rec-a") for low in (1, 2)] == [FORGOTTEN, FORGOTTEN]
                assert said(wire, 3, 1, "rec-a", "ads") == (True if has_all else FORGOTTEN)
                assert said(wire, 3, 2, "rec-a", "ads") == (False if has_all else FORGOTTEN)
                assert f"pushers_forgotten shard=0 streams={2 if has_all else 3}" in server.log(), server.log()


def case_restore_names_one_of_some_tables():
    with Scratch() as scratch:
        with serve(scratch) as server:
            filled(server)
            cuts = []
            for name, words in (("all-1", []), ("j-1", ["--tables", "rec-*"]), ("j-2", ["--tables", "rec-*"]), ("all-2", [])):
                change(server, random.Random(len(cuts)), n=40)
                embctl(server, "snapshot", name, *words)
                cuts.append(dumped(server, scratch(f"dump-{name}")))
            server.kill()
        with serve(scratch, "--restore", "j-1") as server:
            there = dumped(server, scratch("again"))
            assert there["ads"] == cuts[3]["ads"]
            assert there["rec-a"] == cuts[1]["rec-a"] != cuts[3]["rec-a"]


def case_its_age_is_that_of_all_tables():
    def age(server):
        return connect(server).call("stats")[0]["stats"]["snapshot_age_us"]

    with Scratch() as scratch:
        with serve(scratch) as server:
            filled(server)
            embctl(server, "snapshot", "part", "--tables", "ads")
            assert age(server) == 0
            embctl(server, "snapshot", "all")
            assert age(server) > 0
        shutil.rmtree(scratch("data/all"))
        with serve(scratch) as server:
            assert age(server) == 0


def case_processes_choose_the_same_cuts():
    """Also where a kill came between their commits: one of some tables is complete in one, and not in the other."""
    port = free_ports(2)
    with Scratch() as scratch:
        with open(scratch("embd.yaml"), "w", encoding="ascii") as file:
            file.write(f"http: off\nadmin_dir: {scratch('admin')}\ncluster:\n  servers:\n" + "".join(
                f'    - {{name: {name}, listen: "127.0.0.1:{port + i}", data_dir: "{scratch(name)}"}}\n' for i, name in enumerate("ab")))
        for name in "ab":
            os.mkdir(scratch(name))

        def both(act):
            flags = ("--admin-dir", scratch("admin"), "--config", scratch("embd.yaml"), "--server")
            with Embd(*flags, "a", listen=None) as a, Embd(*flags, "b", listen=None) as b:
                act(a, b)
                return a.log(), b.log()

        def make(a, _):
            create(a, TABLES)
            for name, words in (("all", []), ("j1", ["--tables", "rec-*"]), ("ads1", ["--tables", "ads"]),
                                ("j2", ["--tables", "rec-*"])):
                change(a, random.Random(1), 40, shards=1)
                embctl(a, "snapshot", name, *words)

        def agree(*names):
            def look(a, b):
                cuts = [wire.call("stats")[0]["stats"]["restored_cut"] for wire in (connect(a), connect(b))]
                assert cuts[0] == cuts[1] != 0, cuts
                seen.append(cuts[0])
            for log in both(look):
                taken = [word[9:] for line in log.splitlines() if " restored " in line
                         for word in line.split() if word.startswith("snapshot=")]
                assert taken == list(names), log

        seen = []
        both(make)
        agree("j2", "ads1", "all")
        os.rename(scratch("b/j2"), scratch("b/j2.tmp"))
        agree("ads1", "j1", "all")
        os.rename(scratch("b/ads1"), scratch("ads1"))
        agree("j1", "all")
        assert len(set(seen)) == 3, seen


def case_a_damaged_one_is_passed_over_and_its_tables_come_from_an_older_one():
    with Scratch() as scratch:
        with serve(scratch) as server:
            filled(server)
            embctl(server, "snapshot", "all")
            cut = dumped(server, scratch("dump"))
            change(server, random.Random(2), n=40)
            embctl(server, "snapshot", "part", "--tables", "rec-*")
            server.kill()
        with open(scratch("data/part/rec-a.0.part"), "r+b") as file:
            file.seek(70)
            file.write(b"\xff")
        embctl(None, "verify", scratch("data/part"), code=DAMAGED)
        with serve(scratch) as server:
            assert "snapshot_passed_over snapshot=part" in server.log()
            assert dumped(server, scratch("again")) == cut


if __name__ == "__main__":
    run_cases(globals())
