"""embctl backup and restore: what is brought back is what was there, on any number of shards; a backup that was cut off
anywhere, or of which a byte or a file is another one, is not taken for a whole one, and nothing changes."""
import atexit
import functools
import json
import os
import random
import shutil
import tempfile
import threading

from embctl import DAMAGED, FAILED, REFUSED, UNREACHABLE, USAGE, Embd, Scratch, embctl, embctl_json, run_cases
from partfiles import xxh3
from ports import free_ports
from test_changes import change, create, serve
from wire import RpcError, Wire, floats, keys, owner

TABLES = [
    ("plain", "--dim", 2, "--optimizer", "adagrad"),
    ("slotted", "--dim", 2, "--slots", 3, "--partition", "slot", "--optimizer", "adam", "--admit-after", 2),
    ("kept", "--dim", 1, "--set", "durability=buffered"),
]


def digests(server):
    return embctl_json(server, "digest")["tables"]


def backup(server, place, *flags):
    return embctl_json(server, "backup", "--to", place, *flags)["backup"][0]


def listed(place):
    return {b["name"]: b for b in embctl_json(None, "backup", "list", "--to", place)["backups"]}


def files_of(path):
    """All files below, with their paths from there, in the order in which they were written, as far as the clock tells:
    of those of one tick backup.json is last. test_backup_s3.py sees the order itself."""
    found = [os.path.join(d, f) for d, _, names in os.walk(path) for f in names]
    return [os.path.relpath(f, path) for f in sorted(found, key=lambda f: (os.stat(f).st_mtime_ns, f.endswith("backup.json")))]


def restored(place, shards, *flags):
    with Embd(shards=shards) as server:
        embctl(server, "restore", "--from", place, *flags)
        return digests(server)


def refuses(server, place, code, says, *flags):
    """A restore that fails changes nothing."""
    embctl(server, "restore", "--from", place, *flags, code=code, says=says)
    assert embctl_json(server, "table", "list")["tables"] == []


@functools.cache
def made_chain():
    """A base and increments upon it, with erased keys and a table that was made anew: its folder, {name: digests}."""
    folder = tempfile.mkdtemp(prefix="embctl-test-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    rng, found, scratch = random.Random(11), {}, functools.partial(os.path.join, folder)
    with serve(scratch) as server:
        create(server, TABLES)
        for number in range(3):
            change(server, rng, n=60 if number == 0 else 8, tables=TABLES)
            change(server, rng, "erase", n=6, tables=TABLES)
            if number == 1:
                embctl(server, "table", "drop", "plain")
                create(server, TABLES[:1])
                change(server, rng, n=5, tables=TABLES)
            made = backup(server, scratch("place"), "--name", f"b{number}", *(["--incremental"] if number else []))
            assert made["kind"] == ("increment" if number else "base") and made["base"] == (f"b{number - 1}" if number else "")
            found[f"b{number}"] = digests(server)
    return folder, found


def chain(scratch, n=3, has_data=False):
    """Its first n backups, made once for all cases; with the servers' directory."""
    folder, found = made_chain()
    for name in ("place", "data")[:1 + has_data]:
        shutil.copytree(os.path.join(folder, name), scratch(name))
    for name in list(found)[n:]:
        shutil.rmtree(scratch(f"place/{name}"))
    return dict(list(found.items())[:n])


def case_a_base_and_increments_come_back_on_any_number_of_shards():
    with Scratch() as scratch:
        found = chain(scratch)
        assert len({json.dumps(d) for d in found.values()}) == 3
        for shards in (2, 1, 3):
            for name in found if shards == 3 else ("b2",):
                assert restored(scratch("place"), shards, "--at", name) == found[name], (name, shards)
        assert restored(scratch("place"), 1) == found["b2"], "without --at it is the newest"
        assert restored(scratch("place"), 1, "--table", "kept", "--table", "plain") == [
            d for d in found["b2"] if d["table"] != "slotted"]
        seen = listed(scratch("place"))
        assert [b["base"] for b in seen.values()] == ["", "b0", "b1"] and {b["state"] for b in seen.values()} == {"whole"}
        verified = embctl_json(None, "verify", scratch("place"))["verify"][0]
        assert verified["rows"] == sum(b["rows"] for b in seen.values())
        assert verified["bytes"] == sum(b["bytes"] for b in seen.values())
        assert embctl_json(None, "digest", "--directory", scratch("place/b0"))["tables"] == found["b0"]


def case_a_backup_in_use_comes_back_in_place_and_by_time():
    with Scratch() as scratch:
        found = chain(scratch, has_data=True)
        rng = random.Random(12)
        with serve(scratch) as server:
            assert digests(server) == found["b2"], "a start takes the snapshot of the newest backup"
            change(server, rng, tables=TABLES)
            embctl(server, "restore", "--from", scratch("place"), code=REFUSED, says="holds")
            before = digests(server)
            embctl(server, "restore", "--from", scratch("place"), "--replace", "--at", "nothing", code=REFUSED, says="'nothing'")
            embctl(server, "restore", "--from", scratch("place"), "--replace", "--at", "@17", code=REFUSED, says="no whole backup")
            embctl(server, "restore", "--from", scratch("place"), "--replace", "--at", "26-11-23", code=REFUSED, says="26-11-23")
            assert digests(server) == before
            embctl(server, "restore", "--from", scratch("place"), "--replace", "--at", listed(scratch("place"))["b2"]["time"])
            assert digests(server) == found["b2"]
            embctl(server, "restore", "--from", scratch("place"), "--replace", "--at", "2100-01-01T00:00")
            embctl(server, "backup", "--to", scratch("place"), "--name", "b1", code=REFUSED, says="'b1' is there")


def case_what_was_cut_off_anywhere_is_no_backup():
    with Scratch() as scratch:
        found = chain(scratch, n=2)
        order = files_of(scratch("place/b1"))
        assert order[-1] == "backup.json" and len(order) > 5
        shutil.move(scratch("place/b1"), scratch("whole"))
        for n in range(len(order)):
            shutil.rmtree(scratch("place/b1"), ignore_errors=True)
            for name in order[:n]:
                os.makedirs(os.path.dirname(scratch(f"place/b1/{name}")), exist_ok=True)
                shutil.copy(scratch(f"whole/{name}"), scratch(f"place/b1/{name}"))
            if n:
                assert listed(scratch("place"))["b1"]["state"] == "cut off"
        with Embd() as server:
            refuses(server, scratch("place"), DAMAGED, "was cut off", "--at", "b1")
        assert restored(scratch("place"), 1) == found["b0"], "the newest whole one"
        with open(scratch("whole/backup.json"), "rb") as whole:
            text = whole.read()
        for n in (0, 1, len(text) // 2, len(text) - 30, len(text) - 1):
            with open(scratch("place/b1/backup.json"), "wb") as cut:
                cut.write(text[:n])
            assert listed(scratch("place"))["b1"]["state"] == "damaged", n
            embctl(None, "verify", scratch("place"), code=DAMAGED, says="backup.json")
        embctl(None, "verify", "-o", "json", scratch("place/b0"))


def changed(path, change_it):
    with open(path, "rb") as file:
        data = file.read()
    os.remove(path)
    data = change_it(data)
    if data is not None:
        with open(path, "wb") as file:
            file.write(data)


def case_a_file_that_is_lost_cut_or_swapped_is_named_and_changes_nothing():
    with Scratch() as scratch, Embd(shards=2) as server:
        chain(scratch, n=2)
        place = scratch("bad")
        for name in ("0/plain.0.part", "0/1.writers", "0/manifest.json", "backup.json"):
            for what in ("lost", "cut", "flipped"):
                shutil.rmtree(place, ignore_errors=True)
                shutil.copytree(scratch("place"), place)
                changed(f"{place}/b0/{name}", {"lost": lambda _: None, "cut": lambda data: data[:-1],
                                               "flipped": lambda data: data[:9] + bytes([data[9] ^ 1]) + data[10:]}[what])
                if name != "backup.json" or what != "lost":
                    embctl(None, "verify", place, code=DAMAGED, says="b0")
        refuses(server, place, DAMAGED, "needs its base", "--at", "b1")
        refuses(server, place, REFUSED, "no whole backup")
        for one, other in (("b0/0/plain.0.part", "b0/0/plain.1.part"), ("b0/0/manifest.json", "b1/0/manifest.json"),
                           ("b0/backup.json", "b1/backup.json"), ("b0/0", "b1/0")):
            shutil.rmtree(place)
            shutil.copytree(scratch("place"), place)
            os.rename(f"{place}/{one}", f"{place}/kept")
            os.rename(f"{place}/{other}", f"{place}/{one}")
            os.rename(f"{place}/kept", f"{place}/{other}")
            embctl(None, "verify", place, code=DAMAGED, says=place)
            refuses(server, place, DAMAGED, place, "--at", "b0")


def reseal(path, **fields):
    with open(path, encoding="utf-8") as file:
        record = {**json.load(file), **fields}
    del record["xxh3"]
    text = json.dumps(record, indent=1)[:-2]
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'{text},\n "xxh3": "{xxh3(text.encode()):016x}"\n}}')


def case_records_that_point_elsewhere_are_refused():
    with Scratch() as scratch, Embd(shards=2) as server:
        chain(scratch, n=1)
        with open(scratch("place/b0/backup.json"), encoding="utf-8") as file:
            record = json.load(file)
        for field, value in (("name", "../b0"), ("format", 3), ("base", {"name": "../x", "id": "0" * 15 + "1"}), ("shards", 3),
                             ("files", record["files"] + [{"name": "../x", "bytes": 1, "xxh3": "0" * 16}]),
                             ("files", record["files"] + [{"name": "0/../../x", "bytes": 1, "xxh3": "0" * 16}]),
                             ("files", record["files"] + [{"name": "0/x", "bytes": 1, "xxh3": "0" * 16}]),
                             ("files", record["files"] + record["files"][:1]), ("files", record["files"][1:]),
                             ("files", record["files"] + [{"name": "0/x", "bytes": 2**62, "xxh3": "0" * 16}])):
            reseal(scratch("place/b0/backup.json"), **{**record, field: value})
            embctl(None, "verify", scratch("place"), code=REFUSED if field == "format" else DAMAGED, says="b0")
            refuses(server, scratch("place"), REFUSED if field == "format" else DAMAGED, "b0", "--at", "b0")


def case_only_the_newest_bases_stay_with_what_is_upon_them():
    rng = random.Random(5)
    with Scratch() as scratch:
        with serve(scratch) as server:
            create(server, TABLES)
            for number in range(3):  # of a trainer
                embctl(server, "snapshot", f"step{number}", "--job", "ranker", "--tables", "plain,k*")
            backup(server, scratch("place"), "--name", "other", "--job", "ranker", "--tables", "plain,k*")
            for number in range(3):
                change(server, rng, tables=TABLES)
                backup(server, scratch("place"), "--name", f"full{number}")
                change(server, rng, tables=TABLES)
                backup(server, scratch("place"), "--name", f"inc{number}", "--incremental")
                change(server, rng, tables=TABLES)
                backup(server, scratch("place"), "--name", f"next{number}", "--incremental")
            os.makedirs(scratch("place/running/0"))
            with open(scratch("place/running/0/plain.0.part"), "w", encoding="utf-8") as file:
                file.write("being made")
            made = backup(server, scratch("place"), "--keep", 2, "--incremental", "--name", "last")
            assert made["removed"] == 3, made
            wanted = {"other", "running", *(f"{kind}{n}" for kind in ("full", "inc", "next") for n in (1, 2)), "last"}
            assert set(listed(scratch("place"))) == wanted == set(os.listdir(scratch("place")))
            embctl(None, "verify", scratch("place"))
            made = backup(server, scratch("place"), "--keep", 1, "--name", "full3")
            assert made["removed"] == 7 and set(listed(scratch("place"))) == {"other", "running", "full3"}
            stays = [name for name in os.listdir(scratch("data")) if os.path.isdir(scratch(f"data/{name}"))]
            assert "full3" in stays and "full1" not in stays and "other" in stays, "the servers keep the two newest"
            assert {"step0", "step1", "step2"} < set(stays) and listed(scratch("place"))["other"]["job"] == "ranker"
            reseal(scratch("place/full3/backup.json"), time=4000000000)  # a clock that was ahead
            made = backup(server, scratch("place"), "--keep", 1, "--name", "full4")
            assert made["removed"] == 1 and set(listed(scratch("place"))) == {"other", "running", "full4"}
        with serve(scratch) as server:  # it does not know what changed since a removed snapshot
            shutil.rmtree(scratch("data/full4"))
            assert backup(server, scratch("place"), "--incremental")["kind"] == "base"
        assert restored(scratch("place"), 1, "--job", "ranker") == [
            d for d in restored(scratch("place"), 1, "--at", "other") if d["table"] in ("plain", "kept")]


def case_a_backup_that_lost_a_file_is_passed_over():
    rng = random.Random(6)
    with Scratch() as scratch, serve(scratch) as server:
        create(server, TABLES)

        def states():
            return {b["name"]: b["state"] for b in listed(scratch("place")).values()}
        for name, *flags in (("full0",), ("inc0", "--incremental"), ("full1",)):
            change(server, rng, tables=TABLES)
            backup(server, scratch("place"), "--name", name, *flags)
        os.remove(scratch("place/full0/0/kept.0.part"))
        assert states() == {"full0": "damaged", "inc0": "damaged", "full1": "whole"}
        seen = listed(scratch("place"))
        assert "0/kept.0.part is missing" in seen["full0"]["error"] and "needs its base" in seen["inc0"]["error"]
        refuses_here = functools.partial(embctl, server, "restore", "--from", scratch("place"), "--replace", code=DAMAGED)
        refuses_here("--at", "full0", says="0/kept.0.part is missing")
        made = backup(server, scratch("place"), "--name", "full2", "--keep", 1)
        assert made["removed"] == 1, "what is damaged stays, and is no base to keep"
        assert states() == {"full0": "damaged", "inc0": "damaged", "full2": "whole"}
        os.remove(scratch("place/full2/0/manifest.json"))
        assert backup(server, scratch("place"), "--name", "full3", "--incremental")["kind"] == "base"
        made = backup(server, scratch("place"), "--name", "full4", "--keep", 2)
        assert made["removed"] == 0 and set(states().values()) == {"damaged", "whole"}, "full2 is not one of the two"


def case_trainers_push_while_backups_are_made():
    with Scratch() as scratch, serve(scratch) as server:
        create(server, TABLES)
        stops, pushed = threading.Event(), []

        def train(seed):
            rng = random.Random(seed)
            while not stops.is_set():
                change(server, rng, n=40, tables=TABLES)
                pushed.append(1)
        trainers = [threading.Thread(target=train, args=(seed,)) for seed in range(2)]
        for trainer in trainers:
            trainer.start()
        for number in range(3):
            at = len(pushed)
            while len(pushed) < at + 2:
                stops.wait(0.01)
            backup(server, scratch("place"), "--name", f"b{number}", *(["--incremental"] if number else []))
        stops.set()
        for trainer in trainers:
            trainer.join()
        embctl(None, "verify", scratch("place"))
        for number in range(3):
            with Embd(shards=2) as other:
                embctl(other, "load", scratch(f"data/b{number}"))
                assert restored(scratch("place"), 3, "--at", f"b{number}") == digests(other), number


def two_processes(scratch, first):
    with open(scratch("two.yaml"), "w", encoding="utf-8") as config:
        config.write(f'admin_dir: "{scratch("admin")}"\ncluster:\n  name: two\n  servers:\n')
        for name, port in zip("ab", (first, first + 1)):
            os.mkdir(scratch(name))
            config.write(f'    - {{name: {name}, listen: "127.0.0.1:{port}", shards: 1, data_dir: "{scratch(name)}"}}\n')
    flags = ["--admin-dir", scratch("admin"), "--config", scratch("two.yaml"), "--server"]
    servers = [Embd(*flags, name, listen=None) for name in "ab"]
    for server, port in zip(servers, (first, first + 1)):
        server.addresses = [f"127.0.0.1:{port}"]
    return servers


def case_every_process_has_its_share():
    rng = random.Random(8)
    with Scratch() as scratch:
        servers = two_processes(scratch, free_ports(2))
        create(servers[0], TABLES)
        with Wire(("127.0.0.1", servers[0].port())) as a, Wire(("127.0.0.1", servers[1].port())) as b:
            table = a.call("table_describe", {"name": "plain"})[0]["id"]
            for shard, wire in enumerate((a, b)):
                mine = [key for key in range(300) if owner(key, 2) == shard]
                wire.call("push", {"parts": [{"table": table, "keys": len(mine)}]}, keys(mine),
                          floats([rng.choice([1.0, -0.5]) for _ in range(2 * len(mine))]))
        made = backup(servers[0], scratch("place"), "--name", "both")
        assert made["rows"] == 300
        assert sorted(os.listdir(scratch("place/both"))) == ["0", "1", "backup.json"]
        found = digests(servers[0])
        servers[1].kill()
        embctl(servers[0], "backup", "--to", scratch("place"), "--name", "half", "--deadline", 1, code=3)
        assert set(os.listdir(scratch("place"))) == {"both"}
        servers[0].kill()
        assert restored(scratch("place"), 3) == found
        with open(scratch("place/both/backup.json"), encoding="utf-8") as file:
            files = json.load(file)["files"]
        shutil.rmtree(scratch("place/both/1"))
        reseal(scratch("place/both/backup.json"), files=[f for f in files if f["name"].startswith("0/")])
        embctl(None, "verify", scratch("place"), code=DAMAGED, says="1 of 2 shards")


def case_what_is_wrong_is_said():
    with Scratch() as scratch, Embd() as bare:
        embctl(bare, "backup", code=USAGE, says="name a place")
        embctl(bare, "backup", "lost", "--to", scratch("x"), code=USAGE, says="'lost'")
        embctl(bare, "restore", code=USAGE, says="name a place")
        embctl(bare, "backup", "--to", scratch("x"), code=REFUSED, says="--data-dir")
        embctl(bare, "backup", "--to", "ftp://x", code=REFUSED, says="s3://BUCKET/PREFIX")
        embctl(bare, "restore", "--from", scratch("y"), code=FAILED, says="y: cannot open")
        embctl(None, "backup", "list", "--to", scratch("y"), code=FAILED, says="y: cannot open")
        with open(scratch("file"), "w", encoding="utf-8") as file:
            file.write("no directory")
        embctl(bare, "backup", "--to", scratch("file"), code=FAILED, says="file: cannot open")


def figures(path):
    with open(path, encoding="utf-8") as file:
        return {line.split("{")[0]: (line[line.index("{"):line.rindex("}") + 1], float(line.split()[-1]))
                for line in file if line[0] != "#"}


def case_figures_say_when_the_last_backup_was_complete_and_whether_one_failed():
    with Scratch() as scratch, serve(scratch) as server:
        embctl(server, "table", "create", "t", "--dim", 1)
        place = scratch('a "b"')
        embctl(server, "backup", "--to", place, "--name", "b", "--figures", scratch("f"))
        done = figures(scratch("f"))
        made = done["embd_backup_success_timestamp_seconds"]
        assert done["embd_backup_failed"][1] == 0 and made[1] > 1e9 and "embd_backup_rows" in done
        assert made[0] == '{place="' + place.replace('"', '\\"') + '"}'
        embctl(server, "backup", "--to", place, "--name", "b", "--figures", scratch("f"), code=REFUSED)
        failed = figures(scratch("f"))
        assert failed["embd_backup_failed"][1] == 1 and failed["embd_backup_success_timestamp_seconds"] == made
        embctl(server, "backup", "--to", place, "--figures", scratch("none/f"), code=FAILED, says="none/f")
        server.kill()
        embctl(server, "backup", "--to", place, "--figures", scratch("new"), code=UNREACHABLE)
        assert figures(scratch("new"))["embd_backup_success_timestamp_seconds"][1] == 0
        assert "new.new" not in os.listdir(scratch("."))


def case_files_of_a_snapshot_alone_are_fetched():
    with Scratch() as scratch, serve(scratch) as server:
        embctl(server, "table", "create", "t", "--dim", 1)
        embctl(server, "snapshot", "s")
        with open(scratch("data/secret"), "w", encoding="utf-8") as file:
            file.write("secret")
        os.symlink(scratch("data/secret"), scratch("data/s/link"))
        os.symlink(scratch("data/s"), scratch("data/other"))
        with open(scratch("data/s/manifest.json"), "rb") as file:
            manifest = file.read()
        with Wire(server.admin_path()) as wire:
            answer, text = wire.call("snapshot", {"name": "s", "phase": "fetch", "file": "manifest.json"})
            assert answer == {"bytes": len(manifest)} and text == manifest
            answer, text = wire.call("snapshot", {"name": "s", "phase": "fetch", "file": "manifest.json", "offset": 10})
            assert answer == {"bytes": len(manifest)} and text == manifest[10:]
            assert wire.call("snapshot", {"name": "s", "phase": "fetch", "file": "manifest.json", "offset": 2**40})[1] == b""
            for name, file, offset in (("s", "../secret", 0), ("s", "link", 0), ("s", ".", 0), ("s", "", 0), ("s", "x" * 96, 0),
                                       ("s", "none", 0), ("other", "manifest.json", 0), ("..", "secret", 0), ("s.tmp", "x", 0),
                                       ("none", "manifest.json", 0), ("s", "manifest.json", 2**63)):
                try:
                    told = wire.call("snapshot", {"name": name, "phase": "fetch", "file": file, "offset": offset})
                except RpcError:
                    continue
                raise AssertionError((name, file, told))
        with Wire(server.admin_path(1)) as wire:
            try:
                raise AssertionError(wire.call("snapshot", {"name": "s", "phase": "fetch", "file": "manifest.json"}))
            except RpcError as error:
                assert "not the first of its process" in error.text


if __name__ == "__main__":
    run_cases(dict(globals()))
