"""embctl's commands on tables: create, list, describe, drop, get, stats; JSON, tables, exit codes."""
import json
import re
import socket
import struct
import time

from embctl import (NOT_FOUND, REFUSED, UNREACHABLE, USAGE, Embd, embctl, embctl_json, run_cases, start)
from wire import Wire

BIG = 2**64 - 1


def figures(server, table):
    stats = embctl_json(server, "stats", "--table", table)["stats"]
    return {(s["shard"], s["name"]): s["value"] for s in stats}


def f32(value):
    return struct.unpack("<f", struct.pack("<f", float(value)))[0]


def case_a_table_lives_from_create_to_drop():
    with Embd(shards=2) as server:
        assert embctl(server, "table", "create", "items", "--dim", 4) == ""
        assert embctl(server, "table", "create", "items", "--dim", 4) == "", "the same definition is no error"
        embctl(server, "table", "create", "items", "--dim", 5, code=REFUSED, says="table 'items' has dim 4, asked for 5")
        embctl(server, "table", "create", "ads", "--dim", 8, "--slots", 3, "--combiner", "mean", "--lr", "0.5",
               "--set", "optimizer.eps=0.25", "--optimizer", "adagrad", "--partition", "slot", "--dtype", "bf16",
               "--seed", BIG, "--capacity", 1000, "--on-full", "error", "--create-on", "pull")
        tables = embctl_json(server, "table", "list")["tables"]
        assert [(t["name"], t["dim"], t["rows"], t["steps"]) for t in tables] == [("ads", 8, 0, 0), ("items", 4, 0, 0)]
        ads = embctl_json(server, "table", "describe", "ads")["table"][0]
        assert (ads["optimizer"], ads["optimizer.lr"], ads["optimizer.eps"]) == ("adagrad", 0.5, 0.25)
        assert (ads["seed"], ads["capacity"], ads["slots"], ads["dtype"]) == (BIG, 1000, 3, "bf16")
        assert (ads["partition"], ads["on_full"], ads["create_on"]) == ("slot", "error", "pull")
        assert ads["optimizer.beta1"] is None and ads["slot_sizes"] is None and ads["admit_nonfinite"] is False
        shown = embctl(server, "table", "describe", "ads")
        assert "optimizer.eps" in shown and "beta1" not in shown and "1,000" in shown
        embctl(server, "table", "create", "late", "--dim", 2, "--ttl", 5, code=REFUSED, says="on_full 'grow'")
        embctl(server, "table", "create", "late", "--dim", 2, "--ttl", 5, "--capacity", 9, "--on-full", "evict_ttl")
        late = embctl_json(server, "table", "describe", "late")["table"][0]
        assert (late["on_full"], late["ttl"], ads["ttl"]) == ("evict_ttl", 5, None)
        embctl(server, "table", "drop", "late")
        embctl(server, "table", "create", "late", "--dim", 2, "--capacity", 9, "--on-full", "evict_score")
        assert embctl_json(server, "table", "describe", "late")["table"][0]["on_full"] == "evict_score"
        embctl(server, "table", "drop", "late")
        assert embctl(server, "table", "drop", "ads") == ""
        embctl(server, "table", "drop", "ads", code=NOT_FOUND, says="ads")
        assert [t["name"] for t in embctl_json(server, "table", "list")["tables"]] == ["items"]
        embctl(server, "table", "drop", "items")
        assert embctl_json(server, "table", "list") == {"tables": []}


def case_slot_sizes_come_back_as_given():
    with Embd() as server:
        embctl(server, "table", "create", "s", "--dim", 2, "--slot-sizes", "10,20,30", "--initializer", "uniform_slot")
        table = embctl_json(server, "table", "describe", "s")["table"][0]
        assert (table["slots"], table["slot_sizes"]) == (3, [10, 20, 30])
        assert "10,20,30" in embctl(server, "table", "describe", "s")
        embctl(server, "get", "s", 10, code=REFUSED, says="10")
        assert embctl_json(server, "get", "--slot", 1, "s", 10)["rows"][0]["status"] == "missing"


def case_S0_8_slots_that_are_not_those_of_the_slot_sizes_are_refused_in_any_order():
    with Embd() as server:
        for flags in (["--slots", 3, "--slot-sizes", "1,2"], ["--slot-sizes", "1,2", "--slots", 3],
                      ["--slots", 1, "--slot-sizes", "1,2"], ["--set", "slots=3", "--set", "slot_sizes=1,2"]):
            embctl(server, "table", "create", "s", "--dim", 2, *flags, code=REFUSED,
                   says=f"field 'slots' is {1 if 1 in flags else 3}, but slot_sizes has 2")
        assert embctl_json(server, "table", "list") == {"tables": []}
        embctl(server, "table", "create", "s", "--dim", 2, "--slots", 2, "--slot-sizes", "1,2")


def case_get_shows_rows_with_all_their_bits():
    with Embd(shards=2) as server:
        embctl(server, "table", "create", "t", "--dim", 3, "--initializer", "constant", "--set", "initializer.a=0.1")
        rows = embctl_json(server, "get", "t", 0, "0x10", BIG)["rows"]
        assert [(r["key"], r["status"]) for r in rows] == [(0, "missing"), (16, "missing"), (BIG, "missing")]
        assert all(f32(v) == f32(0.1) for r in rows for v in r["values"])
        assert embctl_json(server, "get", "--zero", "t", 7)["rows"][0]["values"] == [0, 0, 0]
        lines = embctl(server, "get", "--vector", "t", 0, BIG).splitlines()
        assert [[f32(v) for v in line.split(" ")] for line in lines] == [[f32(0.1)] * 3] * 2
        embctl(server, "get", "--vector", "t", 0, "-o", "json", code=USAGE, says="--vector")
        table = embctl(server, "get", "t", 7).split()
        assert table[:4] == ["KEY", "SLOT", "STATUS", "VALUES"] and table[4:] == ["7", "0", "missing"] + ["0.1"] * 3
        assert sum(figures(server, "t")[shard, "rows"] for shard in (0, 1)) == 0, "looking changes nothing"
        embctl(server, "get", "none", 1, code=NOT_FOUND, says="none")
        embctl(server, "get", "t", code=USAGE)
        embctl(server, "get", "t", "-1", code=USAGE)
        embctl(server, "get", "t", "1x", code=USAGE, says="1x")
        embctl(server, "get", "t", BIG + 1, code=USAGE, says=str(BIG + 1))
        embctl(server, "get", "--slot", 1, "t", 1, code=USAGE, says="slot")


def case_keys_are_listed_one_a_line():
    with Embd() as server:
        embctl(server, "table", "create", "t", "--dim", 1)
        embctl(server, "table", "create", "s", "--dim", 1, "--slots", 2, "--partition", "slot")
        assert embctl(server, "table", "keys", "t") == "" and embctl_json(server, "table", "keys", "t")["keys"] == []
        with Wire(("127.0.0.1", server.port())) as wire:
            wire.call("put", {"table": "t", "keys": 1000}, struct.pack("<1000Q", *range(1000)), bytes(4000))
            wire.call("put", {"table": "s", "keys": 3}, struct.pack("<3Q", 7, 7, 9), struct.pack("<3H", 0, 1, 1), bytes(12))
        assert sorted(map(int, embctl(server, "table", "keys", "t").split())) == list(range(1000))
        assert len(embctl(server, "table", "keys", "--limit", 10, "t").split()) == 10
        assert sorted(embctl(server, "table", "keys", "s").splitlines()) == ["7 0", "7 1", "9 1"]
        listed = embctl_json(server, "table", "keys", "s")["keys"]
        assert sorted((k["key"], k["slot"]) for k in listed) == [(7, 0), (7, 1), (9, 1)]
        embctl(server, "table", "keys", "none", code=NOT_FOUND, says="none")
        embctl(server, "table", "keys", "--limit", 0, "t", code=USAGE, says="--limit")


def case_a_pushed_row_is_a_hit_and_long_rows_are_cut_in_tables_only():
    with Embd() as server:
        embctl(server, "table", "create", "t", "--dim", 10, "--combiner", "concat", "--lr", 1, "--initializer",
               "constant")
        with Wire(("127.0.0.1", server.port())) as wire:
            table = wire.call("table_describe", {"name": "t"})[0]["id"]
            wire.call("push", {"parts": [{"table": table, "keys": 1}]}, struct.pack("<Q", 5),
                      struct.pack("<10f", *range(10)))
        row = embctl_json(server, "get", "t", 5)["rows"][0]
        assert (row["status"], row["values"]) == ("hit", [-v for v in range(10)])
        assert "... (10 in all)" in embctl(server, "get", "t", 5)
        assert embctl(server, "get", "--full", "t", 5).rstrip().endswith("-8 -9")
        assert figures(server, "t")[0, "rows"] == 1 and figures(server, "t")[0, "steps"] == 1


def case_deleted_keys_are_missing():
    with Embd(shards=2) as server:
        embctl(server, "table", "create", "t", "--dim", 1, "--combiner", "concat", "--lr", 1, "--initializer", "constant",
               "--partition", "modulo")
        keys = list(range(20, 40))
        for shard, address in enumerate(server.addresses):
            with Wire(("127.0.0.1", int(address.rsplit(":", 1)[1]))) as wire:
                table = wire.call("table_describe", {"name": "t"})[0]["id"]
                mine = keys[shard::2]
                wire.call("push", {"parts": [{"table": table, "keys": len(mine)}]}, struct.pack(f"<{len(mine)}Q", *mine),
                          struct.pack(f"<{len(mine)}f", *mine))
        rows = embctl_json(server, "delete", "t", 21, 22, 99)["keys"]
        assert [(r["key"], r["status"]) for r in rows] == [(21, "deleted"), (22, "deleted"), (99, "missing")]
        rows = embctl_json(server, "get", "t", *keys)["rows"]
        assert [r["key"] for r in rows if r["status"] == "missing"] == [21, 22]
        assert all(r["values"] == ([0] if r["key"] in (21, 22) else [-r["key"]]) for r in rows)
        assert sum(figures(server, "t")[shard, "rows"] for shard in (0, 1)) == 18
        assert embctl(server, "delete", "t", 21).split()[-1] == "missing"
        embctl(server, "delete", "none", 1, code=NOT_FOUND, says="none")
        embctl(server, "delete", "t", code=USAGE)
        embctl(server, "delete", "--slot", 1, "t", 1, code=USAGE, says="slot")


def case_the_cluster_answers():
    with Embd(shards=3) as server:
        for command in ("ping", "cluster"):
            shards = embctl_json(server, command)["shards"]
            assert [(s["shard"], s["address"]) for s in shards] == list(enumerate(server.addresses))
            assert len(embctl(server, command).splitlines()) == 4
        embctl(server, "ping", "--count", 0, code=USAGE, says="--count")
        last = Embd.__new__(Embd)
        last.addresses = [f"127.0.0.1:1,{server.addresses[2]}"]
        assert len(embctl_json(last, "cluster")["shards"]) == 3, "one address that answers is enough"


def case_stats_can_be_watched():
    with Embd(shards=2) as server:
        embctl(server, "table", "create", "t", "--dim", 4)
        began = time.monotonic()
        views = embctl(server, "stats", "--watch=0.2", "--count", 2)
        assert 0.35 < time.monotonic() - began < 5
        assert views.count("PER SECOND") == 2 and "requests_stats" in views and "\033" not in views
        one, end = json.JSONDecoder().raw_decode(embctl(server, "stats", "-w0.05", "-c2", "-o", "json"))
        assert {s["table"] for s in one["stats"]} == {None, "t"} and end > 0
        assert "shard 0" in embctl(server, "stats").lower()
        assert embctl(server, "stats", "-t", "t").count("\n") == 1 + len(figures(server, "t")) // 2
        embctl(server, "stats", "-t", "none", code=NOT_FOUND, says="none")
        embctl(server, "stats", "-c", 2, code=USAGE)
        embctl(server, "stats", "--watch=never", code=USAGE, says="never")
        endless = start(server, "stats", "--watch=0.05")
        assert "TABLE" in endless.stdout.readline()
        endless.terminate()
        endless.communicate(timeout=10)


def case_a_quantile_of_all_shards_is_the_worst_and_has_no_rate():
    with Embd(shards=2) as server:
        embctl(server, "table", "create", "t", "--dim", 4)
        for key in range(8):
            embctl(server, "get", "t", key)
        views = embctl(server, "stats", "--all", "--watch=0.1", "--count", 2)
        lines = [re.sub(r" (us|ms|s)\b", r"\1", line).split() for line in views.splitlines()]
        quantiles = [line[2:] for line in lines if len(line) > 1 and line[1] in ("pull_p50", "pull_p99")]
        assert len(quantiles) == 4, views
        for cells in quantiles:
            assert len(cells) == 4 and cells[2] in cells[:2] and cells[2] != "0us" and cells[3] == "-", cells


def case_exit_codes_and_help():
    free = socket.socket()
    free.bind(("127.0.0.1", 0))
    nobody = f"127.0.0.1:{free.getsockname()[1]}"
    embctl(None, "ping", "--servers", nobody, "--deadline", "0.5", code=UNREACHABLE, says=nobody)
    embctl(None, "--servers", nobody, "--deadline=0.5", "table", "list", code=UNREACHABLE, says=nobody)
    free.close()
    embctl(None, "ping", "--servers", "nobody.invalid:7700", code=UNREACHABLE, says="its name is not found")
    with socket.socket() as default:
        try:
            default.bind(("127.0.0.1", 7700))  # nobody listens there
            embctl(None, "ping", "--deadline", "0.5", code=UNREACHABLE, says="$EMBD_SERVERS")
        except OSError:
            print("127.0.0.1:7700 is taken: what embctl says of its default address is skipped")
    embctl(None, code=USAGE)
    embctl(None, "fly", code=USAGE, says="fly")
    embctl(None, "table", "fly", code=USAGE, says="fly")
    embctl(None, "ping", "--servers", "no port", code=USAGE, says="no port")
    embctl(None, "ping", "-o", "xml", code=USAGE, says="xml")
    embctl(None, "ping", "--deadline", "soon", code=USAGE, says="soon")
    embctl(None, "table", "create", "t", "--dim", "many", code=REFUSED, says="many")
    embctl(None, "table", "create", "T!", "--dim", "4", code=REFUSED, says="T!")
    embctl(None, "table", "create", "t", "--set", "colour=red", code=REFUSED, says="colour")
    embctl(None, "table", "create", "t", "--lr", "0.1", code=REFUSED, says="needs --dim N")
    embctl(None, "table", "create", "t", "--dim", "0", code=REFUSED, says="'dim' is 0")
    embctl(None, "table", "create", "t", "--dim", "1", "--durability", "perhaps", code=REFUSED, says="perhaps")
    embctl(None, "table", "create", "t", "--set", "dim", code=USAGE, says="FIELD=VALUE")
    version = embctl(None, "version").split()
    assert version == embctl(None, "--version").split() and version[0] == "embctl"
    assert embctl_json(None, "version")["embctl"][0]["version"] == version[1]
    overview = embctl(None, "--help")
    for command in ("ping", "cluster", "stats", "get", "delete", "snapshot", "dump", "load", "verify", "drain", "version"):
        assert f"  {command} " in overview, command
        assert "Examples:" in embctl(None, command, "--help"), command
    for command in ("list", "describe", "create", "drop"):
        assert "Examples:" in embctl(None, "table", command, "--help"), command


def case_drain_ends_the_servers():
    with Embd(shards=2) as server:
        assert embctl(server, "drain") == ""
        assert server.wait() == 0


if __name__ == "__main__":
    run_cases(globals())
