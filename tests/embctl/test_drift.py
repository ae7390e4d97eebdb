"""Shards of one table at different steps, since one refused pushes that another took: each is given its own back by a start,
from a snapshot or a journal, and by a load on as many shards; embctl shows that they differ."""
import os
import time

import partfiles
from embctl import Embd, Scratch, embctl, embctl_json, run_cases
from wire import FULL, INVALID, RpcError, connect, create, keys, pull, push

SHARDS = 2
ROWS = ([0, 2], [1, 3])  # of each shard; it has room for no more
STEPS = [1, 4]


def refused(number, call, *arguments):
    try:
        call(*arguments)
    except RpcError as error:
        assert error.number == number, error
        return error.text
    raise AssertionError("it was not refused")


def make(server, durability, optimizer="adam"):
    """Both shards are full; then three pushes of a new key to shard 0 and of a known one to shard 1."""
    for shard in range(SHARDS):
        with connect(server, shard) as wire:
            table = create(wire, "t", 1, partition="modulo", capacity=2, on_full="error", durability=durability,
                           optimizer={"kind": optimizer, "lr": 0.5})
            push(wire, table, ROWS[shard], [1.0, -0.25])
            for _ in range(3):
                if shard == 0:
                    refused(FULL, push, wire, table, [4], [1.0])
                else:
                    push(wire, table, ROWS[1][:1], [1.0])
    assert steps(server) == STEPS


def steps(server):
    found = []
    for shard in range(len(server.addresses)):
        with connect(server, shard) as wire:
            found.append(wire.call("table_describe", {"name": "t"})[0]["step"])
    return found


def go_on(server):
    """What the next steps make of the rows: with adam, other bits at other steps."""
    found = []
    for shard in range(SHARDS):
        with connect(server, shard) as wire:
            table = wire.call("table_describe", {"name": "t"})[0]["id"]
            for gradient in (0.5, -2.0):
                push(wire, table, ROWS[shard], [gradient, gradient])
            found += pull(wire, table, ROWS[shard])
    return found


def wait_for_base(server, shard):
    """Until its journal has begun anew."""
    end = time.monotonic() + 20
    with connect(server, shard) as wire:
        while wire.call("stats")[0]["stats"]["journal_base_bytes"] == 0:
            assert time.monotonic() < end, "the journal did not begin anew"


def undisturbed():
    with Embd(shards=SHARDS) as server:
        make(server, "snapshot")
        return go_on(server)


def case_a_start_from_a_snapshot_gives_each_shard_its_step_back():
    """Also from one upon another."""
    expected = undisturbed()
    for flags in ([], ["--incremental", "s0"]):
        with Scratch() as scratch:
            os.mkdir(scratch("data"))
            with Embd("--data-dir", scratch("data"), shards=SHARDS) as server:
                make(server, "snapshot")
                embctl(server, "snapshot", "s0")
                embctl(server, "snapshot", "s1", *flags)
                server.kill()
            manifest = partfiles.read_manifest(scratch("data/s1"))
            assert manifest["format"] == 4, manifest
            for _ in range(2):
                with Embd("--data-dir", scratch("data"), shards=SHARDS) as server:
                    assert steps(server) == STEPS
                    assert go_on(server) == expected
                    server.kill()


def case_a_journal_gives_each_shard_its_step_back():
    """Read to its end after kill -9 and SIGTERM, and anew with what it held."""
    expected = undisturbed()
    for end in (Embd.kill, Embd.stop):
        with Scratch() as scratch:
            os.mkdir(scratch("data"))
            with Embd("--data-dir", scratch("data"), shards=SHARDS) as server:
                make(server, "buffered")
                end(server)
            for _ in range(2):
                with Embd("--data-dir", scratch("data"), "--journal-limit", "1", shards=SHARDS) as server:
                    assert steps(server) == STEPS
                    for shard in range(SHARDS):
                        wait_for_base(server, shard)
                    end(server)
            with Embd("--data-dir", scratch("data"), shards=SHARDS) as server:
                assert steps(server) == STEPS
                assert go_on(server) == expected


def case_a_load_on_as_many_shards_gives_each_its_own_and_on_others_the_greatest():
    expected = undisturbed()
    with Scratch() as scratch:
        os.mkdir(scratch("data"))
        with Embd("--data-dir", scratch("data"), shards=SHARDS) as server:
            make(server, "snapshot")
            embctl(server, "snapshot", "s1")
            embctl(server, "dump", "t", scratch("dump"))
        for path in (scratch("data/s1"), scratch("dump")):
            embctl(None, "verify", path)
            assert embctl_json(None, "inspect", path)["tables"][0]["steps"] == max(STEPS)
            for shards in (2, 3, 4):
                with Embd(shards=shards) as server:
                    embctl(server, "load", path)
                    assert steps(server) == (STEPS if shards == SHARDS else [max(STEPS)] * shards)
                    if shards == SHARDS:
                        assert go_on(server) == expected


def case_a_manifest_of_shards_in_step_is_what_it_was():
    """A part names its step only where it is not its table's."""
    with Scratch() as scratch, Embd("--data-dir", scratch("."), shards=SHARDS) as server:
        for shard in range(SHARDS):
            with connect(server, shard) as wire:
                push(wire, create(wire, "t", 1, partition="modulo"), ROWS[shard], [1.0, 1.0])
        embctl(server, "snapshot", "s1")
        manifest = partfiles.read_manifest(scratch("s1"))
        assert manifest["format"] == 4 and manifest["sequence"] > 0 and manifest["tables"][0]["step"] == 1
        assert all("step" not in part for part in manifest["tables"][0]["parts"])


def case_embctl_shows_steps_that_differ():
    with Embd(shards=SHARDS) as server:
        embctl(server, "table", "create", "even", "--dim", 1)
        make(server, "snapshot")
        table = embctl_json(server, "table", "describe", "t")["table"][0]
        assert (table["steps"], table["shard_steps"]) == (4, [1, 4])
        shown = embctl(server, "table", "describe", "t")
        assert any(line.split() == ["shard_steps", "1,4"] for line in shown.splitlines()), shown
        assert embctl_json(server, "table", "describe", "even")["table"][0]["shard_steps"] is None
        assert "shard_steps" not in embctl(server, "table", "describe", "even")
        stats = {t["name"]: t for t in embctl_json(server, "table", "stats")["tables"]}
        assert (stats["t"]["steps"], stats["t"]["steps_apart"], stats["even"]["steps_apart"]) == (4, 3, 0)


def case_a_key_sent_to_the_wrong_shard_makes_no_row_that_a_load_loses():
    with Scratch() as scratch, Embd("--data-dir", scratch("."), shards=SHARDS) as server:
        for shard in range(SHARDS):
            with connect(server, shard) as wire:
                table = create(wire, "t", 1, durability="snapshot")
                if shard == 1:
                    push(wire, table, [1], [1.0])
                    continue
                for call in (push, lambda *a: pull(*a[:3]),
                             lambda w, t, k, _: w.call("erase", {"parts": [{"table": t, "keys": 1}]}, keys(k))):
                    text = refused(INVALID, call, wire, table, [1], [1.0])
                    assert text == "part 0 keys[0]: 1 belongs to shard 1 of 2, this is shard 0 (map version 1)", text
        embctl(server, "snapshot", "s1")
        with Embd(shards=SHARDS) as other:
            report = embctl_json(other, "load", scratch("s1"))
            assert embctl_json(other, "table", "describe", "t")["table"][0]["rows"] == 1, report


if __name__ == "__main__":
    run_cases(globals())
