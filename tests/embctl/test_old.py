"""Files of earlier versions stay loadable: tests/embctl/old has a folder for each version of a format, made by the server
of its time (make_old.py) with what was in it, and here it is loaded by the one there is now."""
import json
import os
import shutil
import time

from embctl import REFUSED, Embd, Scratch, embctl, embctl_json, run_cases
import partfiles
from make_old import WRITER, journaled_push, rows
from wire import RpcError, Wire, connect, floats, keys, push

OLD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "old")


def versions(what):
    """Folders and what they should hold, of all versions that have this."""
    found = []
    for version in sorted(os.listdir(OLD)):
        folder = os.path.join(OLD, version)
        with open(os.path.join(folder, "expected.json"), encoding="ascii") as file:
            expected = json.load(file)
        if os.path.exists(os.path.join(folder, what)):
            found.append((os.path.join(folder, what), expected[what if what in ("journal", "changed") else "copies"]))
    assert found, what
    return found


def loads(path, expected, shards, last=0):
    with Scratch() as scratch, Embd(shards=shards) as server:
        embctl(server, "load", path)
        for shard in range(shards):
            with connect(server, shard) as wire:
                assert wire.call("writer", WRITER)[0]["other"] == last
        embctl(server, "dump", "--all", scratch("again"))
        found = rows(scratch("again"))
        assert found == expected, f"{path}: {found}, expected {expected}"


def case_dumps_and_snapshots_of_earlier_versions_verify_and_load():
    for what in ("dump", "snapshot", "changed"):
        for path, expected in versions(what):
            embctl(None, "verify", path)
            with open(os.path.join(path, "..", "expected.json"), encoding="ascii") as file:
                last = json.load(file).get("last push", {}).get(what, 0)
            for shards in (1, 2):
                loads(path, expected, shards, last)
            assert embctl_json(None, "inspect", path)["tables"]


def case_blobs_of_earlier_versions_are_read():
    for path, _ in versions("snapshot"):
        assert embctl(None, "blobs", path, "step") == "9000\n"


def case_a_manifest_without_a_checksum_is_read():
    """The first ones had none."""
    path, expected = versions("dump")[0]
    with Scratch() as scratch:
        shutil.copytree(path, scratch("d"))
        with open(scratch("d/manifest.json"), encoding="ascii") as file:
            manifest = json.load(file)
        assert manifest["format"] == 1
        del manifest["xxh3"]
        with open(scratch("d/manifest.json"), "w", encoding="ascii") as file:
            json.dump(manifest, file)
        loads(scratch("d"), expected, 1)


def case_a_format_that_is_not_known_is_refused_by_its_number():
    path, _ = versions("dump")[0]
    with Scratch() as scratch:
        shutil.copytree(path, scratch("d"))
        with open(scratch("d/manifest.json"), encoding="ascii") as file:
            manifest = json.load(file)
        manifest["format"] = 99
        del manifest["xxh3"]
        with open(scratch("d/manifest.json"), "w", encoding="ascii") as file:
            json.dump(manifest, file)
        embctl(None, "verify", scratch("d"), code=REFUSED, says="'format' is 99")


def case_journals_of_earlier_versions_are_replayed_and_go_on():
    for path, expected in versions("journal"):
        with Scratch() as scratch:
            shutil.copytree(path, scratch("data"))
            for sequence in (3, 4):
                with Embd("--data-dir", scratch("data")) as server, Wire(("127.0.0.1", server.port())) as wire:
                    embctl(server, "dump", "--all", scratch(f"dump-{sequence}"))
                    if sequence == 3:
                        found = rows(scratch("dump-3"))
                        assert found == expected, f"{path}: {found}, expected {expected}"
                    assert wire.call("writer", WRITER)[0] == {"journaled": sequence, "other": 0}
                    table = wire.call("table_describe", {"name": "kept"})[0]["id"]
                    assert journaled_push(wire, table, sequence, [5])[0] == {"parts": [], "again": True}
                    journaled_push(wire, table, sequence + 1, [5])


def strays(server, scratch, name):
    """The rows of both tables, and how many of them each shard has."""
    embctl(server, "dump", "--all", scratch(name))
    tables = partfiles.read_manifest(scratch(name))["tables"]
    return rows(scratch(name)), {(t["schema"]["name"], p["shard"]): p["rows"] for t in tables for p in t["parts"]}


def case_keys_that_an_earlier_version_took_on_other_shards_stay_there_until_a_load():
    """Of a snapshot, of a journal, and of the journal that begins anew with what that one held."""
    folder = os.path.join(OLD, "0.1.0-g")
    with open(os.path.join(folder, "expected.json"), encoding="ascii") as file:
        expected = json.load(file)["strays"], {(name, shard): 2 for name in ("kept", "lost") for shard in (0, 1)}
    with Scratch() as scratch:
        shutil.copytree(os.path.join(folder, "strays"), scratch("data"))
        for number in range(3):
            with Embd("--data-dir", scratch("data"), "--journal-limit", "1K", shards=2) as server:
                assert strays(server, scratch, f"dump-{number}") == expected
                with connect(server, 0) as wire:
                    table = wire.call("table_describe", {"name": "kept"})[0]["id"]
                    for _ in range(40):  # gradients of 0: more than the limit of the journal
                        push(wire, table, [0], [0.0])
                    end = time.monotonic() + 20
                    while wire.call("stats")[0]["stats"]["journal_bases"] == 0:
                        assert time.monotonic() < end, "the journal did not begin anew"
                    for method in ("push", "pull", "erase"):
                        bins = [floats([0.0])] if method == "push" else []
                        try:
                            wire.call(method, {"parts": [{"table": table, "keys": 1}]}, keys([11]), *bins)
                            raise AssertionError(method)
                        except RpcError as error:
                            assert "keys[0]: 11 belongs to shard 1 of 2, this is shard 0" in error.text, error
            expected[0]["kept"]["step"] += 40
        with Embd(shards=2) as server:
            embctl(server, "load", scratch("dump-2"))
            found, where = strays(server, scratch, "loaded")
            assert set(found["kept"]["rows"]) == set(expected[0]["kept"]["rows"])
            assert where == {("kept", 0): 2, ("kept", 1): 2, ("lost", 0): 2, ("lost", 1): 2}
            assert embctl_json(server, "get", "kept", 11)["rows"][0]["status"] == "hit"


if __name__ == "__main__":
    run_cases(globals())
