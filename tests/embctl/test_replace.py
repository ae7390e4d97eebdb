"""embctl load --replace: tables of a living cluster go back to a snapshot, all at once, beside other jobs' tables; with them
go the streams of those that pushed to them. Whatever fails or dies on the way, each shard's tables are old or new, and the
same command, given again, ends it."""
import os
import random
import signal
import threading
import time

from embctl import REFUSED, Embd, Scratch, embctl, embctl_json, run_cases, start
from test_changes import change, create, dumped, serve
from wire import BUSY, EXISTS, INVALID, UNKNOWN_TABLE, RpcError, Wire, connect, constant_schema, floats, keys, open_stream, pull
from wire import create as wire_create

GAP, FORGOTTEN, SHARDS = 21, 22, 2
OWN, OTHER, BOTH, LATE = ({"high": 1, "low": 2, "stream": s} for s in range(4))
KEYS = list(range(24))


def admin(server, shard=0):
    return Wire(server.admin_path(shard))


def refused(number, fn, *arguments):
    try:
        answer = fn(*arguments)
    except RpcError as error:
        assert error.number == number, error
        return error.text
    raise AssertionError(f"it was taken: {answer}")


# ---- tables ----

def is_at(server, scratch, name, wanted):
    made = dumped(server, scratch(name))
    assert made.keys() == wanted.keys(), (made.keys(), wanted.keys())
    for table, what in wanted.items():
        assert made[table] == what, f"{name}: table {table}"


def case_tables_are_those_of_the_snapshot_and_others_stay():
    rng = random.Random(3)
    with Scratch() as scratch:
        server = serve(scratch)
        create(server)
        found = []
        for name in ("s1", "s2", None):
            for _ in range(3):
                change(server, rng, n=60)
            change(server, rng, "erase", n=6)
            if name:
                embctl(server, "snapshot", name, *(["--incremental", "s1"] if name == "s2" else []))
            found.append(dumped(server, scratch(f"dump-{name}")))
        old, newer, now = found
        told = embctl_json(server, "load", "--replace", "--table", "kept", "--table", "slotted", scratch("data/s1"))
        assert told["load"][0]["rows"] == sum(len(old[table]["rows"]) for table in ("kept", "slotted")), told
        mixed = {**now, "kept": old["kept"], "slotted": old["slotted"]}
        is_at(server, scratch, "some", mixed)
        embctl(server, "load", "--replace", scratch("data/s2"))  # of a chain
        is_at(server, scratch, "all", newer)
        embctl(server, "snapshot", "s3", "--incremental", "s2")  # replaced tables have all rows in it
        embctl(server, "load", "--replace", scratch("data/s1"))
        embctl(server, "load", "--replace", scratch("data/s3"))
        is_at(server, scratch, "through-s3", newer)
        change(server, rng)
        after = dumped(server, scratch("after"))
        server.kill()
        with serve(scratch) as server:  # the journal has it
            is_at(server, scratch, "again", {**newer, "kept": after["kept"]})
            embctl(server, "load", "--replace", "--table", "kept", scratch("data/s1"))
        with serve(scratch) as server:
            is_at(server, scratch, "drained", {**newer, "kept": old["kept"]})


def case_any_number_of_shards_takes_it():
    rng = random.Random(4)
    with Scratch() as scratch:
        with serve(scratch) as server:
            create(server)
            change(server, rng, n=90)
            embctl(server, "dump", "--all", scratch("dump"))
            old = dumped(server, scratch("same"))
        for shards in (1, 3):
            with Embd(shards=shards) as server:
                create(server, [("plain", "--dim", 3), ("beside", "--dim", 1)])
                for shard in range(shards):
                    with connect(server, shard) as wire:
                        for key in range(9):
                            try:
                                wire.call("push", {"parts": [{"table": wire.call("table_describe", {"name": "plain"})[0]["id"],
                                                              "keys": 1}]}, keys([key]), floats([1.0] * 3))
                            except RpcError as error:
                                assert error.number == INVALID, error  # another shard's key
                names = [name for name in old if name != "full"]  # whose capacity is a shard's
                embctl(server, "load", "--replace", *(f"--table={name}" for name in names), scratch("dump"))
                made = dumped(server, scratch(f"made{shards}"))
                for name in names:  # durability is the cluster's
                    assert made[name]["rows"] == old[name]["rows"] and made[name]["step"] == old[name]["step"], name
                assert not made["beside"]["rows"]


def case_pulls_go_on_and_see_the_old_table_or_the_new_one():
    with Scratch() as scratch, serve(scratch) as server:
        many = range(20000)
        for shard in range(SHARDS):
            with connect(server, shard) as wire:
                table = wire_create(wire, "t", 1, value=0.0, partition="modulo", durability="durable")
                own = [key for key in many if key % SHARDS == shard]
                wire.call("push", {"parts": [{"table": table, "keys": len(own)}]}, keys(own), floats([2.0] * len(own)))
        embctl(server, "snapshot", "s")
        seen, stops = [set(), set()], threading.Event()

        def look(shard):
            own = [key for key in many if key % SHARDS == shard]
            with connect(server, shard) as wire:
                while not stops.is_set():
                    values = set(pull(wire, table, own))
                    assert len(values) == 1, f"a pull saw {len(values)} tables"
                    seen[shard] |= values

        with connect(server) as a, connect(server, 1) as b:
            for turn in range(6):
                for shard, wire in enumerate((a, b)):
                    own = [key for key in many if key % SHARDS == shard]
                    wire.call("push", {"parts": [{"table": table, "keys": len(own)}]}, keys(own), floats([2.0] * len(own)))
                threads = [threading.Thread(target=look, args=(shard,)) for shard in range(SHARDS)]
                for thread in threads if turn == 0 else []:
                    thread.start()
                embctl(server, "load", "--replace", scratch("data/s"))
                assert set(pull(a, table, [0, 2])) | set(pull(b, table, [1, 3])) == {-1.0}
                if turn == 0:
                    running = threads
        stops.set()
        for thread in running:
            thread.join()
        assert all(values <= {-1.0, -2.0} and -1.0 in values for values in seen), seen


# ---- streams ----

def push(server, names, writer, sequence):
    """One push to these tables on all shards, under one number."""
    again = []
    for shard in range(SHARDS):
        with connect(server, shard) as wire:
            parts, bins, own = [], [], [key for key in KEYS if key % SHARDS == shard]
            for name in names:
                parts.append({"table": wire.call("table_describe", {"name": name})[0]["id"], "keys": len(own)})
                bins += [keys(own), floats([1.0] * len(own))]
            again.append(wire.call("push", {"parts": parts, "writer": {**writer, "sequence": sequence}},
                                   *bins)[0].get("again", False))
    return again


def values(server, name):
    found = set()
    for shard in range(SHARDS):
        with connect(server, shard) as wire:
            table = wire.call("table_describe", {"name": name})[0]["id"]
            found.update(pull(wire, table, [key for key in KEYS if key % SHARDS == shard]))
    return found


def value(server, name):
    found = values(server, name)
    assert len(found) == 1, found
    return found.pop()


def settled(server, name):
    """Shards ask shard 0 for a decision that nobody brings them: for a moment some have it."""
    end = time.monotonic() + 60
    while len(found := values(server, name)) > 1:
        assert time.monotonic() < end, found
    return found.pop()


def last(server, writer, kind):
    with connect(server) as wire:
        return wire.call("writer", writer)[0][kind]


def streams(durability, between=lambda server, scratch: server, scope=()):
    """`mine` is replaced, `theirs` stays. OWN pushes to the first, OTHER to the second, BOTH to both."""
    kind = "journaled" if durability == "durable" else "other"
    no = [False, False]
    with Scratch() as scratch:
        server = serve(scratch)
        for shard in range(SHARDS):
            with connect(server, shard) as wire:
                for name in ("mine", "theirs"):
                    wire_create(wire, name, 1, value=0.0, partition="modulo", durability=durability)
                for writer in (OWN, OTHER, BOTH):
                    open_stream(wire, writer, durability == "durable")
        for sequence in (1, 2, 3):
            assert push(server, ["mine"], OWN, sequence) == no and push(server, ["theirs"], OTHER, sequence) == no
        assert push(server, ["mine", "theirs"], BOTH, 1) == no
        embctl(server, "snapshot", "s", *scope)
        for sequence in (4, 5):
            assert push(server, ["mine"], OWN, sequence) == no and push(server, ["theirs"], OTHER, sequence) == no
        for shard in range(SHARDS):
            with connect(server, shard) as wire:
                open_stream(wire, LATE, durability == "durable")
        assert push(server, ["mine"], LATE, 1) == no
        server = between(server, scratch)
        before = value(server, "theirs")
        embctl(server, "load", "--replace", "--table", "mine", scratch("data/s"))
        assert value(server, "mine") == -2.0 and value(server, "theirs") == before == -3.0
        assert last(server, OWN, kind) == 3 and last(server, OTHER, kind) == 5
        if durability == "durable":
            server.kill()
            server = serve(scratch)
        refused(GAP, push, server, ["mine"], OWN, 6)  # a trainer that does not know
        assert push(server, ["mine"], OWN, 3) == [True, True]
        assert push(server, ["mine"], OWN, 4) == no  # one that resumed
        assert value(server, "mine") == -2.5
        assert push(server, ["theirs"], OTHER, 5) == [True, True] and push(server, ["theirs"], OTHER, 6) == no
        refused(FORGOTTEN, push, server, ["mine", "theirs"], BOTH, 2)
        refused(FORGOTTEN, push, server, ["mine"], LATE, 2)  # which the snapshot does not have
        assert value(server, "theirs") == before - 0.5 and value(server, "mine") == -2.5
        if scope:
            server.kill()
            return
        embctl(server, "load", "--replace", scratch("data/s"))  # and all of the snapshot
        assert value(server, "mine") == value(server, "theirs") == -2.0
        for writer, names in ((OWN, ["mine"]), (OTHER, ["theirs"])):
            assert push(server, names, writer, 4) == no
        assert push(server, ["mine", "theirs"], BOTH, 2) == no, "a stream that was forgotten comes with all tables"
        server.kill()


def case_streams_go_back_with_the_tables_that_they_pushed_to():
    streams("durable")
    streams("snapshot")


def case_a_snapshot_of_one_job_brings_its_streams():
    streams("durable", scope=("--job", "mine", "--tables", "mine"))


def case_a_start_knows_which_tables_streams_have_pushed_to():
    def start_again(server, scratch):
        server.kill()
        return serve(scratch)
    streams("durable", start_again)


def case_a_compacted_journal_knows_it_too():
    def compact(server, scratch):
        server.kill()
        server = serve(scratch, flags=("--journal-limit", "4K"))
        with connect(server) as wire:
            table = wire.call("table_describe", {"name": "theirs"})[0]["id"]
            until = time.monotonic() + 20
            while not all(f"journal.{shard}." in " ".join(name for name in os.listdir(scratch("data")) if name.endswith(".base"))
                          for shard in range(SHARDS)):
                for shard in range(SHARDS):
                    with connect(server, shard) as other:
                        own = [key for key in KEYS if key % SHARDS == shard]
                        other.call("push", {"parts": [{"table": table, "keys": len(own)}]}, keys(own), floats([0.0] * len(own)))
                assert time.monotonic() < until, os.listdir(scratch("data"))
        server.kill()
        return serve(scratch)
    streams("durable", compact)


def staged_through_compaction(scratch, end):
    """A journal is compacted between two blocks of a load; then `end`, kill -9, and a start. Returns the rows it has."""
    count = 1000
    os.makedirs(scratch("data"), exist_ok=True)
    server = Embd("--data-dir", scratch("data"), "--journal-limit", "64K")
    with connect(server) as data, admin(server) as loader:
        table = wire_create(data, "t", durability="durable")

        def load(first):
            rows = list(range(first, first + count))
            loader.call("load", {"table": "t", "rows": count, "candidates": 0, "staged": 7}, keys(rows),
                        floats([row % 9 for row in rows for _ in range(4)]), b"", b"")
        loader.call("table_stage", {"id": 7, "schema": constant_schema("t", durability="durable")})
        load(0)
        until = time.monotonic() + 20
        while not loader.call("stats", {})[0]["stats"].get("journal_bases"):
            data.call("push", {"parts": [{"table": table, "keys": 200}]}, keys(range(200)), floats([1.0] * 800))
            assert time.monotonic() < until
        load(count)
        end(server, loader)
        wanted = pull(data, table, range(2 * count))
    server.process.kill()
    server.wait()
    with Embd("--data-dir", scratch("data")) as again, connect(again) as data:
        assert pull(data, table, range(2 * count)) == wanted
        with admin(again) as other:  # nothing of the set is in the way of another
            until = time.monotonic() + 20
            while True:
                try:
                    other.call("table_stage", {"id": 8, "schema": constant_schema("t", durability="durable")})
                    break
                except RpcError as error:
                    assert error.number == BUSY and time.monotonic() < until, error
    return wanted


def case_a_journal_compacted_during_a_load_has_what_is_staged():
    def replace(_, loader):
        loader.call("snapshot", {"name": "r", "phase": "start", "staged": 7, "staged_tables": 1})
        while (told := loader.call("snapshot", {"name": "r", "phase": "progress"})[0])["state"] == "running":
            pass
        assert told["state"] == "done", told
    with Scratch() as scratch:
        rows = staged_through_compaction(scratch, replace)
        assert rows == [row % 9 for row in range(2000) for _ in range(4)]
    for end in (lambda *_: None, lambda _, loader: loader.call("table_stage", {"id": 7, "drop": True})):
        with Scratch() as scratch:
            assert staged_through_compaction(scratch, end)[-1] == 1.0


def case_a_journal_of_staged_tables_alone_is_compacted_with_their_ids():
    names = {"good_53": 5.0, "evil_1720fa9": 7.0}  # whose hashes are the same
    with Scratch() as scratch:
        os.makedirs(scratch("data"))
        server = Embd("--data-dir", scratch("data"), "--journal-limit", "64K", "--row-memory", "1G")
        with admin(server) as loader:
            for name in names:
                loader.call("table_stage", {"id": 7, "schema": constant_schema(name, durability="durable")})
            until = time.monotonic() + 20
            while not loader.call("stats", {})[0]["stats"].get("journal_bases"):
                for name, of_row in names.items():
                    loader.call("load", {"table": name, "rows": 500, "candidates": 0, "staged": 7}, keys(range(500)),
                                floats([of_row] * 2000), b"", b"")
                assert time.monotonic() < until
            loader.call("hold", {})
            loader.call("table_replace", {"id": 7, "phase": "check", "tables": 2})
            loader.call("table_replace", {"id": 7, "phase": "apply"})
            loader.call("release", {})
        server.kill()
        with Embd("--data-dir", scratch("data")) as again, connect(again) as data:
            ids = {name: data.call("table_describe", {"name": name})[0]["id"] for name in names}
            assert len(set(ids.values())) == 2
            for name, of_row in names.items():
                assert set(pull(data, ids[name], range(500))) == {of_row}, name


# ---- what dies ----

def serve_kept(scratch, shards=SHARDS):
    """A durable table at 1 in the snapshot s, and at 2 now."""
    server = serve(scratch)
    for shard in range(shards):
        with connect(server, shard) as wire:
            wire_create(wire, "t", 1, value=0.0, partition="modulo", durability="durable")
            open_stream(wire, OWN, True)
    push(server, ["t"], OWN, 1)
    embctl(server, "snapshot", "s")
    push(server, ["t"], OWN, 2)
    return server


SCHEMA = constant_schema("t", 1, value=0.0, partition="modulo", durability="durable")


def stage(wire, id, shard=0, rows=1):
    assert wire.call("table_stage", {"id": id, "schema": SCHEMA}) == [{"journaled": True}]
    own = [key for key in KEYS if key % SHARDS == shard][:rows]
    wire.call("load", {"table": "t", "rows": len(own), "candidates": 0, "step": 7, "staged": id}, keys(own),
              floats([9.0] * len(own)), b"", b"")


def await_log(server, text, n=1):
    until = time.monotonic() + 20
    while server.log().count(text) < n:
        assert time.monotonic() < until, server.log()
        time.sleep(0.02)


def case_a_loader_that_dies_leaves_nothing_behind():
    with Scratch() as scratch:
        server = serve_kept(scratch)
        with admin(server) as loader:
            stage(loader, 5)
            with admin(server) as second, admin(server, 1) as elsewhere:
                assert "another load" in refused(BUSY, second.call, "table_stage", {"id": 6, "schema": SCHEMA})
                elsewhere.call("table_stage", {"id": 6, "schema": SCHEMA})
        await_log(server, "staged_tables_dropped", 2)
        assert value(server, "t") == -1.0
        server.kill()
        server = serve(scratch)
        assert value(server, "t") == -1.0 and "staged_tables_dropped" not in server.log()
        with admin(server) as loader:
            stage(loader, 7)
            server.kill()
        server = serve(scratch)  # the journal has staged tables whose loader is gone
        await_log(server, "staged_tables_dropped")
        assert value(server, "t") == -1.0 and last(server, OWN, "journaled") == 2
        embctl(server, "load", "--replace", scratch("data/s"))
        assert value(server, "t") == -0.5 and last(server, OWN, "journaled") == 1
        server.kill()


def case_embctl_killed_anywhere_leaves_the_old_table_or_the_new_one():
    with Scratch() as scratch:
        server = serve_kept(scratch)
        seen = set()
        for wait in [0.0, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.05]:
            child = start(server, "load", "--replace", scratch("data/s"))
            time.sleep(wait)
            child.send_signal(signal.SIGKILL)
            child.communicate()
            found = {settled(server, "t")}
            seen |= found
            assert found <= {-1.0, -0.5}, found
        embctl(server, "load", "--replace", scratch("data/s"))
        assert value(server, "t") == -0.5
        server.kill()
        with serve(scratch) as server:
            assert value(server, "t") == -0.5


def begin(server, id, **decision):
    """Staged, held and checked on both shards; as a coordinator, of an earlier version without a decision."""
    wires = [admin(server, shard) for shard in range(SHARDS)]
    loaders = [admin(server, shard) for shard in range(SHARDS)]
    for shard, loader in enumerate(loaders):
        stage(loader, id, shard, rows=12)
    for wire in wires:
        wire.call("hold", {"timeout_ms": 60000})
    for wire in wires:
        wire.call("table_replace", {"id": id, "phase": "check", "tables": 1, **decision})
    return wires, loaders


def case_a_server_killed_between_the_shards_has_the_new_table_on_all():
    with Scratch() as scratch:
        server = serve_kept(scratch)
        wires, loaders = begin(server, 11, decision=5)
        for _ in range(2):  # and again: it is done
            wires[1].call("table_replace", {"id": 11, "phase": "prepare", "decision": 5})
        for _ in range(2):
            wires[0].call("table_replace", {"id": 11, "phase": "apply", "decision": 5})
        server.kill()
        server = serve(scratch)
        assert value(server, "t") == 9.0
        embctl(server, "load", "--replace", scratch("data/s"))
        assert value(server, "t") == -0.5
        for wire in wires + loaders:
            wire.close()
        server.kill()
        with serve(scratch) as server:
            assert value(server, "t") == -0.5


def case_a_coordinator_that_leaves_gives_the_tables_back():
    with Scratch() as scratch, serve_kept(scratch) as server:
        wires, loaders = begin(server, 12)
        with admin(server) as other:  # a cut would begin with a hold: not between `check` and `apply`
            held = other.begin("hold", {})
            for wire in wires:
                wire.close()
            assert other.receive()[1] == held
            other.call("release", {})
        wires = [admin(server, shard) for shard in range(SHARDS)]
        for wire in wires:
            wire.call("hold", {})
            assert "check" in refused(INVALID, wire.call, "table_replace", {"id": 12, "phase": "apply"})
        for wire in wires:
            wire.call("table_replace", {"id": 12, "phase": "check", "tables": 1})
        for wire in wires:
            wire.call("table_replace", {"id": 12, "phase": "apply"})
            wire.call("release", {})
        assert value(server, "t") == 9.0
        with connect(server) as wire:
            assert wire.call("table_describe", {"name": "t"})[0]["step"] == 7
        for wire in wires + loaders:
            wire.close()


# ---- what is refused ----

def case_no_memory_for_both_tables_changes_nothing():
    many = range(60000)
    with Scratch() as scratch:
        with serve(scratch, flags=("--row-memory", "8M")) as server:
            for shard in range(SHARDS):
                with connect(server, shard) as wire:
                    table = wire_create(wire, "t", 16, value=0.0, partition="modulo", durability="durable")
                    own = [key for key in many if key % SHARDS == shard]
                    wire.call("push", {"parts": [{"table": table, "keys": len(own)}]}, keys(own), floats([1.0] * 16 * len(own)))
            embctl(server, "snapshot", "s")
            embctl(server, "load", "--replace", scratch("data/s"), code=REFUSED, says="beside the one it replaces")
            with connect(server) as wire:
                assert wire.call("table_describe", {"name": "t"})[0]["rows"] == len(many) // SHARDS
                assert "staged_tables_dropped" not in server.log(), "the loader dropped them itself"
            embctl(server, "table", "drop", "t")
            embctl(server, "load", scratch("data/s"))


def case_what_is_wrong_is_refused_and_changes_nothing():
    with Scratch() as scratch, serve_kept(scratch) as server, admin(server) as a, admin(server) as b:
        table = lambda: value(server, "t")  # noqa: E731
        for params, says in (({}, "id"), ({"id": 0, "schema": SCHEMA}, "id"), ({"id": 1}, "name"),
                             ({"id": 1, "schema": {**SCHEMA, "dim": 0}}, "dim"), ({"id": 1, "x": 1, "schema": SCHEMA}, "x"),
                             ({"id": 1, "schema": {**SCHEMA, "create_on": "pull", "durability": "snapshot"}}, "durability")):
            assert says in refused(INVALID, a.call, "table_stage", params), (params, says)
        refused(UNKNOWN_TABLE, a.call, "load", {"table": "t", "rows": 0, "candidates": 0, "staged": 3}, b"", b"", b"", b"")
        stage(a, 3)
        refused(EXISTS, a.call, "table_stage", {"id": 3, "schema": SCHEMA})
        refused(UNKNOWN_TABLE, a.call, "load", {"table": "x", "rows": 0, "candidates": 0, "staged": 3}, b"", b"", b"", b"")
        assert "shard 1" in refused(INVALID, a.call, "load", {"table": "t", "rows": 1, "candidates": 0, "staged": 3}, keys([1]),
                                    floats([1.0]), b"", b"")
        assert "id 4" in refused(INVALID, a.call, "table_stage", {"id": 4, "writers": 0}, b"")
        for entry, says in (([1, 2, 2**64 - 1, 0, 0], "sequence"), ([1, 2, 3, 2**32, 0], "stream")):
            assert says in refused(INVALID, a.call, "table_stage", {"id": 3, "writers": 1}, keys(entry))
        assert "holds nothing" in refused(INVALID, b.call, "table_replace", {"id": 3, "phase": "check", "tables": 1})
        b.call("hold", {})
        for params, says in (({"id": 3, "phase": "check", "tables": 2}, "1 are staged"), ({"id": 3, "phase": "go"}, "phase"),
                             ({"id": 9, "phase": "check", "tables": 1}, "no staged"), ({"id": 3, "phase": "apply"}, "check"),
                             ({"id": 3, "phase": "check"}, "tables"), ({"id": 3, "phase": "prepare"}, "decision"),
                             ({"id": 3, "phase": "check", "tables": 1, "decision": 0}, "decision"),
                             ({"id": 3, "phase": "prepare", "decision": 4}, "check")):
            assert says in refused(INVALID, b.call, "table_replace", params), (params, says)
        with admin(server) as other:
            other.call("hold", {})
            refused(BUSY, b.call, "table_replace", {"id": 3, "phase": "check", "tables": 1})
            other.call("release", {})
        b.call("table_replace", {"id": 3, "phase": "check", "tables": 1, "decision": 4})
        assert "shard 0 decides" in refused(INVALID, b.call, "table_replace", {"id": 3, "phase": "prepare", "decision": 4})
        refused(INVALID, b.call, "table_replace", {"id": 3, "phase": "apply", "decision": 5})
        b.call("release", {})
        with connect(server) as wire:
            refused(4, wire.call, "table_stage", {"id": 3, "drop": True})  # on the data listener
            assert [t["name"] for t in wire.call("tables")[0]["tables"]] == ["t"]
        assert table() == -1.0
        a.call("table_stage", {"id": 3, "drop": True})
        a.call("table_stage", {"id": 3, "drop": True})
        refused(UNKNOWN_TABLE, a.call, "load", {"table": "t", "rows": 0, "candidates": 0, "staged": 3}, b"", b"", b"", b"")
        embctl(server, "load", "--replace", "--table", "none", scratch("data/s"), code=4)
        assert table() == -1.0


if __name__ == "__main__":
    run_cases(globals())
