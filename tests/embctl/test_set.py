"""Fields of a table are set while it lives: on all shards or none, and as durably as the table; a snapshot has the definition
of its cut; and a script that creates the table as it did at first goes on."""
import json
import os
import struct

from embctl import NOT_FOUND, REFUSED, USAGE, Embd, Scratch, embctl, embctl_json, run_cases
from wire import RpcError, Wire, connect, floats, keys, owned, unfloats

SHARDS = 3
KEYS = [owned(1, shard, SHARDS)[0] for shard in range(SHARDS)]
FIRST = ("--dim", 1, "--lr", "0.5", "--initializer", "constant", "--set", "initializer.a=0")


def serve(scratch, **more):
    os.makedirs(scratch("data"), exist_ok=True)
    return Embd("--data-dir", scratch("data"), **{"shards": SHARDS, **more})


def push(server, table="t", gradient=-1.0):
    """One step of a key of each shard."""
    for shard in range(SHARDS):
        with connect(server, shard) as wire:
            part = {"table": wire.call("table_describe", {"name": table})[0]["id"], "keys": 1}
            wire.call("push", {"parts": [part]}, keys([KEYS[shard]]), floats([gradient]))


def rows(server, table="t", shards=SHARDS):
    found = []
    for shard in range(shards):
        with connect(server, shard) as wire:
            part = {"table": wire.call("table_describe", {"name": table})[0]["id"], "keys": 1}
            found += unfloats(wire.call("pull", {"parts": [part]}, keys([KEYS[shard]]))[1])
    return found


def described(server, table="t"):
    return embctl_json(server, "table", "describe", table)["table"][0]


def set_on(server, shard, name="t", **fields):
    with connect(server, shard) as wire:
        return wire.call("table_set", {"name": name, "set": fields})[0]


def case_pushes_go_by_the_fields_from_then_on_on_every_shard():
    with Embd(shards=SHARDS) as server:
        embctl(server, "table", "create", "t", *FIRST)
        push(server)
        shown = embctl_json(server, "table", "set", "t", "optimizer.lr=0.25", "optimizer.scaler=0.5")["set"]
        assert shown == [{"shard": shard, "step": 1} for shard in range(SHARDS)], shown
        push(server)
        assert rows(server) == [1.0] * SHARDS
        assert (described(server)["optimizer.lr"], described(server)["optimizer.scaler"]) == (0.25, 0.5)
        assert "STEP" in embctl(server, "table", "set", "t", "optimizer.lr=0.25"), "it may be repeated"
        push(server)
        assert rows(server) == [1.5] * SHARDS


def case_a_script_creates_its_table_again_although_fields_were_set():
    with Embd(shards=SHARDS) as server:
        embctl(server, "table", "create", "t", *FIRST)
        embctl(server, "table", "create", "t", *FIRST[:2], code=REFUSED, says="optimizer.lr 0.5, asked for 0.01")
        embctl(server, "table", "set", "t", "optimizer.lr=0.25")
        embctl(server, "table", "create", "t", *FIRST)
        assert described(server)["optimizer.lr"] == 0.25, "what was set stays"
        embctl(server, "table", "create", "t", *FIRST, "--set", "optimizer.scaler=2", code=REFUSED,
               says="optimizer.scaler 1, asked for 2")


def case_all_fields_are_set_or_none():
    with Embd(shards=SHARDS) as server:
        embctl(server, "table", "create", "t", *FIRST)
        push(server)
        before = state(server)
        for words, says in [
                (["optimizer.lr=1", "optimizer.beta1=0.5"], "'optimizer.beta1' is not a parameter of the optimizer 'sgd'"),
                (["optimizer.lr=1", "dim=3"], "'dim' is fixed when a table is created"),
                (["optimizer.lr=nan"], "'optimizer.lr' is 'nan', expected a finite number"),
                (["optimizer.lr=1", "optimizer.lr=2"], "'optimizer.lr' is named twice"),
                (["optimizer.lr=1", "optimizer.scaler=0"], "'optimizer.scaler' is 0"),
                (["optimizer.lr=1", "ttl=3"], "'ttl' has no effect with on_full 'grow'"),
                (["optimizer.l=1"], "unknown schema field 'optimizer.l'"),
                (["optimizer=adam"], "'optimizer' is fixed"), (["slot_sizes=3"], "'slot_sizes' is fixed"),
                (["initializer=normal"], "'initializer' is fixed"), (["create_on=never"], "'create_on' is 'never'")]:
            embctl(server, "table", "set", "t", *words, code=REFUSED, says=says)
            assert state(server) == before, words
        embctl(server, "table", "set", "t", code=USAGE, says="FIELD=VALUE")
        embctl(server, "table", "set", "t", "optimizer.lr", code=USAGE, says="'optimizer.lr': expected FIELD=VALUE")
        embctl(server, "table", "set", "u", "optimizer.lr=1", code=NOT_FOUND, says="'u'")
        with connect(server, SHARDS - 1) as wire:
            wire.call("table_drop", {"name": "t"})
        embctl(server, "table", "set", "t", "optimizer.lr=0.25", code=NOT_FOUND, says="no table 't'")
        with connect(server) as wire:
            assert wire.call("table_describe", {"name": "t"})[0]["schema"]["optimizer"]["lr"] == 0.5


def state(server, table="t"):
    """All that a shard says of its table, and its rows."""
    found = []
    for shard in range(SHARDS):
        with connect(server, shard) as wire:
            found.append(wire.call("table_describe", {"name": table}))
    return found, rows(server, table)


def case_bad_requests_are_refused_and_change_nothing():
    with Embd(shards=SHARDS) as server:
        embctl(server, "table", "create", "t", *FIRST)
        push(server)
        before = state(server)
        for fields, number, says in [
                ({}, 1, "no field"), ({"optimizer": {}}, 1, "no field"), ({"optimizer": 3}, 2, "expected a map"),
                ({"optimizer": {"lr": "0.1"}}, 2, "'lr'"), ({"optimizer": {"lr": float("nan")}}, 1, "lr"),
                ({"optimizer": {"lr": 1e300}}, 1, "lr"), ({"optimizer": {"lr": True}}, 2, "lr"),
                ({"optimizer": {"kind": "adam"}}, 7, "'optimizer.kind' is fixed"), ({"name": "u"}, 7, "'name' is fixed"),
                ({"optimizer": {"kind": "none"}}, 1, "none"), ({"optimizer": {"rate": 1}}, 1, "unknown field 'rate'"),
                ({"optimizer": {"momentum": 0.5}}, 1, "not a parameter"), ({"dim": 2}, 7, "'dim' is fixed"),
                ({"slot_sizes": True}, 7, "'slot_sizes' is fixed"), ({"ttl": 0}, 1, "ttl"), ({"ttl": -1}, 1, "ttl"),
                ({"admit_nonfinite": 1}, 2, "admit_nonfinite"), ({"changed": "optimizer.lr"}, 1, "unknown field 'changed'"),
                ({"optimizer": {"lr": 1}, "partition": "slot"}, 7, "'partition' is fixed"),
                ({"initializer": {"a": float("inf")}}, 1, "a"), ({"initializer": {"b": 1}}, 1, "not a parameter")]:
            for check in ({}, {"check": True}):
                refused(server, {"name": "t", "set": fields, **check}, number, says)
                assert state(server) == before, fields
        good = {"optimizer": {"lr": 0.25}}
        for request, number, says in [
                ({"set": good}, 1, "name"), ({"name": "t"}, 1, "no field"), ({"name": "t", "set": good, "more": 1}, 1, "more"),
                ({"name": "t", "set": good, "check": 1}, 2, "check"), ({"name": 3, "set": good}, 2, "name"),
                ({"name": "t", "set": [good]}, 2, "map"), ({"name": "none", "set": good}, 5, "none")]:
            refused(server, request, number, says)
            assert state(server) == before, request
        with connect(server) as wire:
            wire.call("table_set", {"name": "t", "set": good, "check": True})
        assert state(server) == before, "only checked"
        for changed in ("dim", "lr", "optimizer.lr,", ",", "optimizer.lr,x", "x" * 600, 3):
            with connect(server) as wire:
                schema = {"name": "v", "dim": 1, "changed": changed}
                try:
                    wire.call("table_create", {"schema": schema})
                    assert changed == "optimizer.lr,", changed
                except RpcError as error:
                    assert error.number in (1, 2, 3), error


def refused(server, request, number, says):
    with connect(server) as wire:
        try:
            wire.call("table_set", request)
        except RpcError as error:
            assert error.number == number and says in error.text, (request, error)
            return
    raise AssertionError(request)


def case_a_journal_has_what_was_set_between_its_pushes():
    for kill in (False, True):
        for durability in ("durable", "buffered"):
            with Scratch() as scratch:
                server = serve(scratch)
                embctl(server, "table", "create", "t", *FIRST, "--durability", durability)
                for lr in ("0.5", "0.25", "2"):
                    embctl(server, "table", "set", "t", f"optimizer.lr={lr}")
                    push(server)
                server.kill() if kill else server.stop()
                with serve(scratch) as server:
                    assert rows(server) == [2.75] * SHARDS
                    assert described(server)["optimizer.lr"] == 2
                    embctl(server, "table", "create", "t", *FIRST, "--durability", durability)
                    push(server)
                    assert rows(server) == [4.75] * SHARDS


def case_shards_that_differ_are_told_and_set_alike():
    """A server is killed when some of its shards have the change."""
    with Scratch() as scratch:
        server = serve(scratch)
        embctl(server, "table", "create", "t", *FIRST)
        assert set_on(server, 0, optimizer={"lr": 0.25}) == {"step": 0}
        server.kill()
        with serve(scratch) as server:
            embctl(server, "table", "create", "t", *FIRST)
            mend = "embctl table set t optimizer.lr=0.5"
            for command in (["describe"], ["list"]):
                said = embctl_says(server, "table", *command, *(["t"] if command == ["describe"] else []))
                assert "optimizer.lr 0.25 on shard 0" in said and "0.5 on shard 1" in said and mend in said, said
            push(server)
            embctl(server, *mend.split()[1:])
            push(server)
            assert rows(server) == [0.75, 1.0, 1.0] and described(server)["optimizer.lr"] == 0.5


def push_more(server, count, table="t"):
    """`count` further keys of each shard, one push each."""
    for shard in range(SHARDS):
        with connect(server, shard) as wire:
            part = {"table": wire.call("table_describe", {"name": table})[0]["id"], "keys": 1}
            for key in owned(count + 1, shard, SHARDS)[1:]:
                wire.call("push", {"parts": [part]}, keys([key]), floats([1.0]))


def counted(server, table="t", shards=SHARDS):
    """Rows of each shard."""
    found = []
    for shard in range(shards):
        with connect(server, shard) as wire:
            found.append(wire.call("table_describe", {"name": table})[0]["rows"])
    return found


def case_a_bound_below_the_rows_lets_some_go_or_is_refused_on_every_shard():
    with Embd(shards=SHARDS) as server:
        embctl(server, "table", "create", "t", *FIRST, "--on-full", "evict_lru", "--capacity", 9)
        embctl(server, "table", "create", "u", *FIRST, "--on-full", "error", "--capacity", 9)
        for table in "tu":
            push(server, table)
            push_more(server, 4, table)
        push(server, "t")
        embctl(server, "table", "set", "t", "capacity=2")
        assert counted(server) == [2] * SHARDS and rows(server) == [1.0] * SHARDS, "the last that were pushed stay"
        before = state(server, "u")
        for words, says in [(["capacity=4"], "the shard has 5 rows, and with on_full 'error' 0 of them may go"),
                            (["on_full=evict_lru"], "'on_full' of table 'u' cannot become 'evict_lru'"),
                            (["on_full=grow", "capacity=1000000000"], "set capacity to that at most, or to 0"),
                            (["capacity=4294967295"], "allowed are 0 to 4294967294")]:
            embctl(server, "table", "set", "u", *words, code=REFUSED, says=says)
            assert state(server, "u") == before, words
        embctl(server, "table", "set", "t", "capacity=0", code=REFUSED, says="needs a capacity")
        embctl(server, "table", "set", "u", "capacity=5")
        with connect(server) as wire:
            part = {"table": wire.call("table_describe", {"name": "u"})[0]["id"], "keys": 1}
            try:
                wire.call("push", {"parts": [part]}, keys([owned(6, 0, SHARDS)[5]]), floats([1.0]))
                assert False, "a sixth row"
            except RpcError as error:
                assert "capacity 5" in str(error), error
        embctl(server, "table", "set", "u", "on_full=grow", "capacity=0")
        push_more(server, 9, "u")
        assert counted(server, "u") == [10] * SHARDS


def case_a_bound_is_as_durable_as_its_table_and_is_set_alike_again():
    """A server is killed when some of its shards have the change."""
    with Scratch() as scratch:
        server = serve(scratch)
        embctl(server, "table", "create", "t", *FIRST, "--on-full", "evict_ttl", "--capacity", 9, "--ttl", 1)
        push_more(server, 5)
        push(server)
        embctl(server, "table", "set", "t", "on_full=evict_lru", "capacity=4")
        set_on(server, 0, capacity=3)
        server.kill()
        with serve(scratch) as server:
            assert counted(server) == [3, 4, 4] and rows(server) == [0.5] * SHARDS
            said = embctl_says(server, "table", "describe", "t")
            assert "capacity 3 on shard 0" in said and "embctl table set t capacity=4" in said, said
            embctl(server, "table", "set", "t", "capacity=4")
            assert (described(server)["capacity"], described(server)["on_full"]) == (4, "evict_lru")
            embctl(server, "table", "create", "t", *FIRST, "--on-full", "evict_ttl", "--capacity", 9, "--ttl", 1)
            push_more(server, 5)
            assert counted(server) == [4] * SHARDS


def embctl_says(server, *words):
    import subprocess
    from embctl import EMBCTL, environment
    done = subprocess.run([EMBCTL, *words], capture_output=True, text=True, timeout=30, env=environment(server), check=False)
    assert done.returncode != 0, done
    return done.stderr


def manifest(path):
    with open(os.path.join(path, "manifest.json"), encoding="utf-8") as file:
        return json.load(file)["tables"][0]["schema"]


def case_a_snapshot_has_the_definition_of_its_cut():
    """The table is set, and pushed to, between the cut and the end of the snapshot."""
    with Scratch() as scratch:
        server = serve(scratch, shards=1)
        embctl(server, "table", "create", "t", *FIRST, "--durability", "snapshot")
        key, admin = owned(1, 0, 1), Wire(server.admin_path(0))
        with connect(server) as wire:
            part = {"table": wire.call("table_describe", {"name": "t"})[0]["id"], "keys": 1}
            wire.call("push", {"parts": [part]}, keys(key), floats([-1.0]))
            phase = {"name": "s"}
            sequence = admin.call("snapshot", {**phase, "phase": "begin"})[0]["sequence"]
            admin.call("hold", {"timeout_ms": 5000})
            admin.call("snapshot", {**phase, "phase": "cut", "id": 77})
            admin.call("release", {})
            wire.call("table_set", {"name": "t", "set": {"optimizer": {"lr": 0.25}}})
            wire.call("push", {"parts": [part]}, keys(key), floats([-1.0]))
            told = admin.call("snapshot", {**phase, "phase": "write"})[0]
            admin.call("snapshot", {**phase, "phase": "commit", "id": 77, "sequence": sequence, "parts": told["parts"],
                                    "writers": [told["writers"]]})
            assert unfloats(wire.call("pull", {"parts": [part]}, keys(key))[1]) == [0.75]
        admin.close()
        schema = manifest(scratch("data/s"))
        assert schema["optimizer"]["lr"] == 0.5 and "changed" not in schema
        server.stop()
        with serve(scratch, shards=1) as server:
            assert described(server)["optimizer.lr"] == 0.5
            with connect(server) as wire:
                assert unfloats(wire.call("pull", {"parts": [part]}, keys(key))[1]) == [0.5]


def count(wire, *what):
    told = wire.call("table_describe", {"name": "t"})[0]
    return [told[each] for each in what]


def name_once(wire, key):
    part = {"table": wire.call("table_describe", {"name": "t"})[0]["id"], "keys": 1}
    wire.call("push", {"parts": [part]}, keys([key]), floats([-1.0]))


def case_a_cut_has_the_candidates_of_its_definition():
    """Keys begin to wait, or wait no more, between the cut and its end."""
    for first, then in (0, 3), (3, 0):
        with Scratch() as scratch:
            server = serve(scratch, shards=1)
            embctl(server, "table", "create", "t", *FIRST, "--durability", "snapshot", "--set", f"admit_after={first}")
            admin, phase = Wire(server.admin_path(0)), {"name": "s"}
            with connect(server) as wire:
                name_once(wire, 1)
                sequence = admin.call("snapshot", {**phase, "phase": "begin"})[0]["sequence"]
                admin.call("hold", {"timeout_ms": 5000})
                admin.call("snapshot", {**phase, "phase": "cut", "id": 77})
                admin.call("release", {})
                wire.call("table_set", {"name": "t", "set": {"admit_after": then}})
                name_once(wire, 2)
                assert count(wire, "rows", "candidates") == ([1, 1] if then else [1, 0])
                told = admin.call("snapshot", {**phase, "phase": "write"})[0]
                admin.call("snapshot", {**phase, "phase": "commit", "id": 77, "sequence": sequence, "parts": told["parts"],
                                        "writers": [told["writers"]]})
            admin.close()
            server.stop()
            with serve(scratch, shards=1) as server, connect(server) as wire:
                assert count(wire, "rows", "candidates") == ([0, 1] if first else [1, 0])
                assert described(server)["admit_after"] == first


def case_counts_stay_when_admit_after_is_set_and_go_when_no_key_waits():
    with Scratch() as scratch, Embd(shards=1) as server, connect(server) as wire:
        embctl(server, "table", "create", "t", *FIRST, "--set", "admit_after=9")
        for _ in range(3):
            name_once(wire, 1)
        embctl(server, "table", "set", "t", "admit_after=2")
        assert count(wire, "rows", "candidates") == [0, 1]
        embctl(server, "dump", "t", scratch("dump"))
        with Embd(shards=1) as other, connect(other) as there:
            embctl(other, "load", scratch("dump"))
            assert count(there, "rows", "candidates") == [0, 1], "named three times, and two are asked for"
            name_once(there, 1)
            assert count(there, "rows", "candidates") == [1, 0]
        embctl(server, "table", "set", "t", "admit_after=5")
        name_once(wire, 1)
        assert count(wire, "rows", "candidates") == [0, 1]
        name_once(wire, 1)
        assert count(wire, "rows", "candidates") == [1, 0]
        name_once(wire, 2)
        embctl(server, "table", "set", "t", "admit_after=1")
        assert count(wire, "rows", "candidates") == [1, 0]
        embctl(server, "table", "set", "t", "admit_after=2")
        name_once(wire, 2)
        assert count(wire, "rows", "candidates") == [1, 1], "its first naming was forgotten"


def case_increments_go_on_where_a_table_was_set_between_them():
    with Scratch() as scratch:
        server = serve(scratch)
        embctl(server, "table", "create", "t", *FIRST, "--durability", "snapshot")
        for number, lr in enumerate(("0.5", "0.25", "0.125")):
            if number:
                embctl(server, "table", "set", "t", f"optimizer.lr={lr}")
            push(server)
            embctl(server, "snapshot", f"s{number}", *(["--incremental", f"s{number - 1}"] if number else []))
        embctl(server, "verify", scratch("data/s2"))
        server.stop()
        assert (manifest(scratch("data/s1"))["optimizer"]["lr"], manifest(scratch("data/s2"))["changed"]) == (
            0.25, "optimizer.lr")
        with serve(scratch) as server:
            assert rows(server) == [0.875] * SHARDS and described(server)["optimizer.lr"] == 0.125
            embctl(server, "table", "create", "t", *FIRST, "--durability", "snapshot")
        with Embd() as server:
            embctl(server, "load", scratch("data/s2"))
            embctl(server, "table", "create", "t", *FIRST)
            assert described(server)["optimizer.lr"] == 0.125, "what was set comes along"
            embctl(server, "dump", "--all", scratch("dump"))
            embctl(server, "table", "drop", "t")
            embctl(server, "load", scratch("dump"))
            embctl(server, "table", "create", "t", *FIRST)


def case_what_is_pushed_meanwhile_goes_by_either_value():
    """A push is applied as a whole under the fields of before or those of after."""
    with Embd(shards=1) as server:
        embctl(server, "table", "create", "t", *FIRST)
        with connect(server) as wire, connect(server) as other:
            part = {"table": wire.call("table_describe", {"name": "t"})[0]["id"], "keys": 2}
            for number in range(200):
                wire.begin("push", {"parts": [part]}, keys([1, 2]), floats([-1.0, -1.0]))
                if number % 10 == 5:
                    other.call("table_set", {"name": "t", "set": {"optimizer": {"lr": 2.0 ** -(number // 10)}}})
            for _ in range(200):
                assert wire.receive()[2] is None
            one, two = unfloats(wire.call("pull", {"parts": [part]}, keys([1, 2]))[1])
            assert one == two and struct.unpack("f", struct.pack("f", one))[0] == one


def case_a_full_table_loads_on_another_number_of_shards_and_keeps_its_bound():
    with Scratch() as scratch, Embd(shards=SHARDS) as server:
        for table, policy in ("t", "error"), ("u", "evict_lru"):
            embctl(server, "table", "create", table, *FIRST, "--table-capacity", 269, "--on-full", policy)
            assert described(server, table)["capacity"] == 90, "269 * 342 / 1024, rounded up"
            assert described(server, table)["table_capacity"] == 269
            assert embctl_json(server, "table", "stats", table)["tables"][0]["table_capacity"] == 269
            push_more(server, 90, table)
        embctl(server, "dump", "--all", scratch("dump"))
        embctl(server, "table", "create", "t", *FIRST, "--table-capacity", 269, "--capacity", 9, code=REFUSED,
               says="remove --capacity")
        total = 90 * 1024 // 342  # the first of 3 shards has 342 of 1024 places of keys
        for shards, places in (1, 1024), (2, 512), (5, 205):
            with Embd(shards=shards) as other:
                embctl(other, "load", scratch("dump"))
                for table, policy in ("t", "error"), ("u", "evict_lru"):
                    rows_of = counted(other, table, shards)
                    assert sum(rows_of) == 270
                    bound = max(-(-total * places // 1024), *rows_of, 0)
                    assert described(other, table)["capacity"] == bound, (shards, bound)
                    embctl(other, "table", "create", table, *FIRST, "--capacity", 90, "--on-full", policy)
        with Embd(shards=1) as other, connect(other) as wire:
            embctl(other, "table", "create", "t", *FIRST, "--capacity", 90, "--on-full", "error")
            embctl(other, "load", "--table", "t", scratch("dump"), code=REFUSED, says="capacity 90")
            embctl(other, "table", "drop", "t")
            embctl(other, "load", "--table", "t", scratch("dump"))
            part = {"table": wire.call("table_describe", {"name": "t"})[0]["id"], "keys": 1}
            try:
                wire.call("push", {"parts": [part]}, keys([2 ** 63]), floats([1.0]))
                assert False, "a row beyond the bound"
            except RpcError as error:
                assert "capacity 270" in str(error), error


def case_a_load_sets_fields_of_the_tables_it_makes():
    with Scratch() as scratch, Embd(shards=SHARDS) as server:
        embctl(server, "table", "create", "t", *FIRST, "--capacity", 9, "--on-full", "error")
        push_more(server, 8)
        embctl(server, "table", "set", "t", "optimizer.lr=0.25")
        embctl(server, "dump", "t", scratch("dump"))
        with Embd(shards=1) as other:
            embctl(other, "load", "--set", "capacity=9", scratch("dump"), code=REFUSED, says="capacity 9")
            embctl(other, "load", "--set", "dim=0", scratch("dump"), code=REFUSED, says="dim")
            embctl(other, "load", "--set", "dim", scratch("dump"), code=USAGE, says="'dim': expected FIELD=VALUE")
            embctl(other, "load", "--set", "capacity=24", "--set", "optimizer.lr=0.125", scratch("dump"))
            assert counted(other, shards=1) == [24] and described(other)["optimizer.lr"] == 0.125
            embctl(other, "table", "create", "t", *FIRST, "--on-full", "error", "--capacity", 24, code=REFUSED,
                   says="optimizer.lr 0.125, asked for 0.5")
            embctl(other, "table", "create", "t", *FIRST, "--on-full", "error", "--capacity", 24, "--lr", "0.125")
            embctl(other, "load", "--replace", "--set", "capacity=30", scratch("dump"))
            assert (described(other)["capacity"], described(other)["optimizer.lr"]) == (30, 0.25)


if __name__ == "__main__":
    run_cases(globals())
