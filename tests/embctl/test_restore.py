"""A server that starts begins with the newest snapshot that verifies: tables that no journal keeps are what they were at the
cut, bit for bit, and their writers' streams too; those of a journal are as they were at the end. What cannot be taken is
told, and the next older one is; a start that is killed begins again."""
import json
import os
import random
import re
import shutil
import time

from embctl import Embd, Scratch, embctl, embctl_json, run_cases
from embd_process import run
from ports import free_ports
import partfiles
from test_changes import SHARDS, TABLES, chain_of_four, change, create, dumped, serve, shard_of
from test_streams import EVEN, last, open_all, push_all, values
from wire import RpcError, connect, create as wire_create, floats, keys

GAP, LOADING = 21, 24
LOST = [name for name, *_ in TABLES if name != "kept"]  # of durability snapshot


def split(found):
    return {name: found[name] for name in LOST if name in found}, found.get("kept")


def must_be(server, scratch, lost, kept):
    """The tables of `lost`, and the journaled one as in `kept`."""
    path = scratch(f"again-{time.monotonic_ns()}")
    made = dumped(server, path)
    shutil.rmtree(path)
    for name, table in split(lost)[0].items():
        assert made[name] == table, f"table {name}"
    assert made.get("kept") == split(kept)[1], "the journaled table"
    extra = set(made) - set(lost) - {"kept"}
    assert not extra, extra


def two_snapshots(scratch):
    """Tables at s1, at s2, and when the server was killed."""
    rng = random.Random(7)
    server = serve(scratch)
    create(server)
    found = []
    for name in ("s1", "s2", None):
        for _ in range(3):
            change(server, rng, n=60)
        change(server, rng, "erase", n=6)
        if name is not None:
            embctl(server, "snapshot", name)
        found.append(dumped(server, scratch(f"dump-{name}")))
    server.kill()
    assert all(found[0][t] != found[1][t] != found[2][t] for t in found[0])
    return found


def flip(path, at=-100):
    with open(path, "r+b") as file:
        file.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 4]))


def case_tables_are_what_they_were_at_the_cut_and_those_of_the_journal_at_the_end():
    with Scratch() as scratch:
        _, cut, end = two_snapshots(scratch)
        for _ in range(2):  # and again: a start changes nothing
            server = serve(scratch)
            must_be(server, scratch, cut, end)
            for shard in range(SHARDS):
                assert f"restored shard={shard} snapshot=s2 cut=" in server.log(), server.log()
                replayed = re.search(rf"info replayed shard={shard} records=([0-9]+) tables=([0-9]+) rows=([0-9]+) bytes=",
                                     server.log())
                assert replayed and all(int(n) for n in replayed.groups()), server.log()
            assert "passed_over" not in server.log()
            server.kill()
        with serve(scratch) as server:  # and it goes on
            rng = random.Random(9)
            change(server, rng, n=60)
            embctl(server, "snapshot", "s3", "--incremental", "s2")
            now = dumped(server, scratch("now"))
            change(server, rng, n=60)
            end = dumped(server, scratch("end"))
            server.kill()
            parts = [part for table in partfiles.read_manifest(scratch("data/s3"))["tables"] for part in table["parts"]]
            assert sum("changes" in part for part in parts) > len(parts) / 2, "it is known what changed since before the start"
        with serve(scratch) as server:
            must_be(server, scratch, now, end)


def case_of_snapshots_that_are_upon_each_other_all_are_taken():
    with Scratch() as scratch:
        found = chain_of_four(scratch)
        with serve(scratch) as server:
            must_be(server, scratch, found["wide"], found["s3"])
        os.rename(scratch("data/wide"), scratch("wide"))
        takes(scratch, "s3")
        os.rename(scratch("data/s1"), scratch("s1"))
        with serve(scratch) as server:
            must_be(server, scratch, found["s0"], found["s3"])
            for name in ("s3", "s2"):
                assert f"snapshot_passed_over snapshot={name} " in server.log()
            assert "its base, the snapshot 's1', does not exist" in server.log()


def takes(scratch, name, *says):
    """A start takes this one, and the log says why none before it."""
    with serve(scratch) as server:
        log = server.log()
        for shard in range(SHARDS):
            assert (f"restored shard={shard} snapshot={name} " if name else "ready") in log, log
        for text in says:
            assert text in log, log
        return "restored " in log


def case_one_that_is_damaged_is_told_and_the_one_before_is_taken():
    with Scratch() as scratch:
        before, _, end = two_snapshots(scratch)
        shutil.copytree(scratch("data/s2"), scratch("good"))
        for name, at in (("plain.0.part", -100), ("1.writers", 20)):
            flip(scratch(f"data/s2/{name}"), at)
            takes(scratch, "s1", "snapshot_passed_over snapshot=s2 why=", f"data/s2/{name}: ")
            shutil.copy(scratch(f"good/{name}"), scratch(f"data/s2/{name}"))
        part = scratch("data/s2/plain.0.part")
        os.unlink(part)
        takes(scratch, "s1", "plain.0.part: is missing")
        os.symlink(scratch("good/plain.0.part"), part)
        takes(scratch, "s1", "plain.0.part: is not a regular file")
        os.unlink(part)
        os.mkfifo(part)
        takes(scratch, "s1", "plain.0.part: is not a regular file")
        flip(scratch("data/s2/manifest.json"), 20)
        os.symlink(scratch("good"), scratch("data/s9"))
        with serve(scratch) as server:
            must_be(server, scratch, before, end)
            assert 'snapshot_passed_over snapshot=s2 why="manifest.json: ' in server.log()
        flip(scratch("data/s1/slotted.1.part"))
        assert not takes(scratch, None, "snapshot_passed_over snapshot=s1 why=")


def case_a_clock_that_was_wrong_makes_none_newer():
    """The older one was made while the clock was an hour ahead, as far as its times tell, and then its number too."""
    with Scratch() as scratch:
        _, cut, end = two_snapshots(scratch)
        path, ahead = scratch("data/s1/manifest.json"), time.time() + 3600
        os.utime(path, (ahead, ahead))
        with serve(scratch) as server:  # after kill -9
            must_be(server, scratch, cut, end)
        takes(scratch, "s2")  # after SIGTERM
        manifest = partfiles.read_manifest(scratch("data/s2"))
        manifest["sequence"] = int(ahead * 1000)
        del manifest["xxh3"]
        with open(scratch("data/s2/manifest.json"), "w", encoding="ascii") as file:
            json.dump(manifest, file)
        with serve(scratch) as server:
            embctl(server, "snapshot", "s3", "--keep", 2)
            assert partfiles.read_manifest(scratch("data/s3"))["sequence"] == int(ahead * 1000) + 1
        assert not os.path.exists(path), "of three the oldest goes"
        os.utime(scratch("data/s3/manifest.json"), (0, 0))
        takes(scratch, "s3")


def case_a_setting_names_one_or_none():
    with Scratch() as scratch:
        before, _, end = two_snapshots(scratch)
        data = ("--data-dir", scratch("data"))
        with Embd(*data, "--restore", "s1", shards=SHARDS) as server:
            must_be(server, scratch, before, end)
        with Embd(*data, "--restore", "none", shards=SHARDS) as server:
            must_be(server, scratch, {}, end)
            embctl(server, "load", "--table", "plain", scratch("data/s2"))
        flip(scratch("data/s1/plain.0.part"))
        for name, code, says in (("s1", 1, "snapshot 's1', which --restore names"), ("s7", 1, "the snapshot 's7', which --restore names, does not exist"),
                                 ("../s1", 2, "--restore: ")):
            done = run(*data, "--restore", name, "--shards", str(SHARDS), "--listen", "127.0.0.1:0", "--http", "off",
                       "--admin-dir", scratch("admin"))
            assert done.returncode == code and says in done.stderr, done


def case_a_trainer_is_told_where_the_snapshot_is():
    """Nothing that was lost is said to be there, in streams of both kinds of tables."""
    with Scratch() as scratch:
        os.mkdir(scratch("data"))
        server = Embd("--data-dir", scratch("data"), shards=2)
        for shard in range(2):
            with connect(server, shard) as wire:
                for name, durability in (("t", "snapshot"), ("d", "durable"), ("b", "buffered")):
                    wire_create(wire, name, 2, value=0.0, partition="modulo", durability=durability)
        open_all(server, 2, False, EVEN)
        open_all(server, 2, True, EVEN, {**EVEN, "stream": 3})
        for sequence in range(1, 8):
            if sequence == 5:
                embctl(server, "snapshot", "s")
            assert push_all(server, 2, "t", EVEN, sequence) == [False, False]
            assert push_all(server, 2, "d", EVEN, sequence) == [False, False]
            assert push_all(server, 2, "b", {**EVEN, "stream": 3}, sequence) == [False, False]
        server.kill()
        with Embd("--data-dir", scratch("data"), shards=2) as server:
            for shard in range(2):
                assert last(server, shard, EVEN) == {"journaled": 7, "other": 4}
                assert last(server, shard, {**EVEN, "stream": 3}) == {"journaled": 7, "other": 0}
            assert set(values(server, 2, "t").values()) == {-2.0}
            assert set(values(server, 2, "d").values()) == set(values(server, 2, "b").values()) == {-3.5}
            for lost in (6, 7, 8):
                try:
                    push_all(server, 2, "t", EVEN, lost)
                except RpcError as error:
                    assert error.number == GAP and "the last one applied is 4" in error.text, error
                else:
                    raise AssertionError("a push that was lost was said to be there")
            assert push_all(server, 2, "t", EVEN, 4) == [True, True]
            for sequence in range(5, 9):
                assert push_all(server, 2, "t", EVEN, sequence) == [False, False]
            assert set(values(server, 2, "t").values()) == {-4.0}
            assert push_all(server, 2, "d", EVEN, 7) == [True, True]
            assert push_all(server, 2, "d", EVEN, 8) == [False, False]


def case_without_a_journal_all_tables_come_from_it_and_stay():
    with Scratch() as scratch:
        _, cut, _ = two_snapshots(scratch)
        for name in os.listdir(scratch("data")):
            if name.startswith("journal."):
                os.unlink(scratch(f"data/{name}"))
        server = serve(scratch)
        must_be(server, scratch, cut, cut)
        assert "restored_without_journal shard=0" in server.log() and "restored_without_journal shard=1" in server.log()
        change(server, random.Random(3), n=60)
        end = dumped(server, scratch("end"))
        assert end["kept"] != cut["kept"]
        server.kill()
        with serve(scratch) as server:
            must_be(server, scratch, cut, end)
            assert "without_journal" not in server.log()


def case_a_journal_that_is_older_than_the_snapshot_is_told():
    with Scratch() as scratch:
        os.mkdir(scratch("data"))
        server = serve(scratch)
        create(server)
        server.kill()
        old = {name: open(scratch(f"data/{name}"), "rb").read() for name in os.listdir(scratch("data"))
               if name.startswith("journal.")}
        with serve(scratch) as server:
            create(server)
            change(server, random.Random(1), n=60)
            embctl(server, "snapshot", "s1")
            cut = dumped(server, scratch("dump"))
        for name in os.listdir(scratch("data")):
            if name.startswith("journal."):
                os.unlink(scratch(f"data/{name}"))
        for name, text in old.items():
            with open(scratch(f"data/{name}"), "wb") as file:
                file.write(text)
        with serve(scratch) as server:
            assert "journal_is_older shard=0 snapshot=s1" in server.log(), server.log()
            made = dumped(server, scratch("again"))
            assert made["plain"] == cut["plain"] and made["kept"]["rows"] == {}


def case_processes_that_see_each_other_take_one_cut():
    """A snapshot gets its name in one after the other: what is complete in one may be missing in the other."""
    port = free_ports(2)
    with Scratch() as scratch:
        with open(scratch("embd.yaml"), "w", encoding="ascii") as file:
            file.write(f"http: off\nadmin_dir: {scratch('admin')}\ncluster:\n  servers:\n" + "".join(
                f'    - {{name: {name}, listen: "127.0.0.1:{port + i}", data_dir: "{scratch(name)}"}}\n' for i, name in enumerate("ab")))
        for name in "ab":
            os.mkdir(scratch(name))

        def both(act=lambda a, b: None):
            flags = ("--admin-dir", scratch("admin"), "--config", scratch("embd.yaml"), "--server")
            with Embd(*flags, "a", listen=None) as a, Embd(*flags, "b", listen=None) as b:
                act(a, b)
                return a.log(), b.log()

        def make(a, _):
            create(a, TABLES[:1])
            for name in ("s1", "s2"):
                change(a, random.Random(1), shards=1)
                embctl(a, "snapshot", name)

        def agree(name, *says):
            def look(a, b):
                cuts = {wire.call("stats")[0]["stats"]["restored_cut"] for wire in (connect(a), connect(b))}
                assert len(cuts) == 1, cuts
            logs = both(look)
            for log in logs:
                assert f"snapshot={name} cut=" in log, log
            for text in says:
                assert text in "".join(logs), logs

        both(make)
        agree("s2")
        os.rename(scratch("b/s2"), scratch("b/s2.tmp"))
        agree("s1", "snapshot_passed_over snapshot=s2 why=\"server 'b' cannot start from it: its share is incomplete")
        os.rename(scratch("b/s2.tmp"), scratch("s2"))
        agree("s1", "its share is missing")
        shutil.copytree(scratch("b/s1"), scratch("b/s2"))
        agree("s1", "its share is of the cut ")
        shutil.rmtree(scratch("b/s2"))
        shutil.copytree(scratch("s2"), scratch("b/s2"))
        flip(scratch("b/s2/plain.1.part"), 20)
        agree("s1", "server 'b' cannot start from it: ", "b/s2/plain.1.part: ")


def case_another_number_of_shards_is_told():
    with Scratch() as scratch:
        os.mkdir(scratch("data"))
        with serve(scratch) as server:
            create(server, TABLES[:1])
            change(server, random.Random(1))
            embctl(server, "snapshot", "s1")
        with Embd("--data-dir", scratch("data"), shards=3) as server:
            assert "s1: has 2 shards, and this cluster has 3; use embctl load" in server.log()
            assert embctl_json(server, "table", "list") == {"tables": []}
            embctl(server, "load", scratch("data/s1"))


def case_it_says_what_it_loads_and_a_start_that_is_killed_begins_again():
    rng, dim, n = random.Random(11), 128, 20000
    tables = [("plain", "--dim", dim, "--optimizer", "adagrad"), ("kept", "--dim", 1, "--set", "durability=buffered")]
    with Scratch() as scratch:
        with serve(scratch) as server:
            create(server, tables)
            for shard in range(SHARDS):
                with connect(server, shard) as wire:
                    table = wire.call("table_describe", {"name": "plain"})[0]["id"]
                    mine = [key for key in range(2 * n) if shard_of("plain", key, 0, SHARDS) == shard]
                    wire.call("push", {"parts": [{"table": table, "keys": len(mine)}]}, keys(mine), floats([1.0]) * dim * len(mine))
            embctl(server, "snapshot", "s1")
            cut = dumped(server, scratch("dump"))
            change(server, rng, n=100, tables=tables)
            end = dumped(server, scratch("end"))
            server.kill()
        told = 0
        for attempt in range(40):
            if attempt >= 5 and told:
                break
            server = serve(scratch, waits=False)
            until = time.monotonic() + rng.random() * 0.1
            with connect(server) as wire:
                while time.monotonic() < until:
                    try:
                        wire.call("tables", {})
                        break
                    except RpcError as error:
                        assert error.number == LOADING and "shard 0 is loading: " in error.text, error
                        told += "bytes of snapshot 's1'" in error.text
            server.kill()
        assert told > 0
        with serve(scratch) as server:
            must_be(server, scratch, cut, end)


if __name__ == "__main__":
    run_cases(globals())
