"""The durability of a table is set while trainers push to it: what they were told under the stronger contract is there after a
kill, and nothing is applied twice or counted as applied that is not."""
import json
import os

from embctl import FAILED, REFUSED, Embd, Scratch, embctl, embctl_json, run_cases
from wire import RpcError, connect, constant_schema, floats, keys, open_stream, owned, pull

SHARDS = 2
KEYS = [owned(1, shard, SHARDS)[0] for shard in range(SHARDS)]
WRITER = {"high": 7, "low": 9}


def serve(scratch, **more):
    os.makedirs(scratch("data"), exist_ok=True)
    return Embd("--data-dir", scratch("data"), **{"shards": SHARDS, **more})


def make(server, name="t", **fields):
    """A table of one column whose rows begin at 0, and where a push of -1 adds 1."""
    for shard in range(SHARDS):
        with connect(server, shard) as wire:
            schema = constant_schema(name, 1, 0.0, **fields)
            schema["optimizer"]["lr"] = 1.0
            wire.call("table_create", {"schema": schema})


def set_to(server, durability, name="t"):
    return embctl_json(server, "table", "set", name, f"durability={durability}")["set"]


def table_id(wire, name="t"):
    return wire.call("table_describe", {"name": name})[0]["id"]


def push(server, number=None, name="t", stream=0, shards=range(SHARDS)):
    """One step of a key of each shard; `number`: in the stream."""
    for shard in shards:
        with connect(server, shard) as wire:
            message = {"parts": [{"table": table_id(wire, name), "keys": 1}]}
            if number is not None:
                message["writer"] = {**WRITER, "stream": stream, "sequence": number}
            wire.call("push", message, keys([KEYS[shard]]), floats([-1.0]))


def open_streams(server, journaled, stream=0):
    for shard in range(SHARDS):
        with connect(server, shard) as wire:
            open_stream(wire, {**WRITER, "stream": stream}, journaled)


def rows(server, name="t"):
    found = []
    for shard in range(SHARDS):
        with connect(server, shard) as wire:
            found += pull(wire, table_id(wire, name), [KEYS[shard]])
    return found


def durability(server, name="t"):
    found = []
    for shard in range(SHARDS):
        with connect(server, shard) as wire:
            found.append(wire.call("table_describe", {"name": name})[0]["schema"]["durability"])
    assert len(set(found)) == 1, found
    return found[0]


def refused(status, fn, *arguments, **more):
    try:
        fn(*arguments, **more)
    except RpcError as error:
        assert error.number == status, error
        return
    raise AssertionError(arguments)


GAP, FORGOTTEN = 21, 22


def names(server):
    return sorted(each["name"] for each in embctl_json(server, "table", "list")["tables"])


def restart(server, scratch):
    server.kill()
    return serve(scratch)


def case_a_table_becomes_durable_with_all_its_rows_and_what_comes_after():
    for to in ("durable", "buffered"):
        with Scratch() as scratch:
            server = serve(scratch)
            make(server)
            push(server)
            push(server)
            assert set_to(server, to) == [{"shard": shard, "step": 2} for shard in range(SHARDS)]
            assert durability(server) == to
            push(server)
            with restart(server, scratch) as server:
                assert rows(server) == [3.0] * SHARDS and durability(server) == to
                push(server)
                assert rows(server) == [4.0] * SHARDS
                embctl(server, "table", "create", "t", "--dim", 1, "--durability", "snapshot", code=REFUSED, says="combiner")


def case_durable_and_buffered_change_at_once():
    with Scratch() as scratch:
        server = serve(scratch)
        make(server, durability="durable")
        for to in ("buffered", "durable", "buffered"):
            push(server)
            set_to(server, to)
            assert durability(server) == to
        push(server)
        with restart(server, scratch) as server:
            assert rows(server) == [4.0] * SHARDS and durability(server) == "buffered"


def case_a_table_that_leaves_the_journal_comes_back_from_the_newest_snapshot():
    """Whatever durability the snapshot says, and whether a base was made since or not."""
    for has_base in (False, True):
        for is_newer in (False, True):
            with Scratch() as scratch:
                server = serve(scratch)
                make(server, durability="durable")
                make(server, "u", durability="snapshot")
                push(server)
                if not is_newer:
                    embctl(server, "snapshot", "s")
                push(server)
                set_to(server, "snapshot")
                push(server)
                if is_newer:
                    embctl(server, "snapshot", "s")
                    push(server)
                if has_base:
                    set_to(server, "durable", "u")
                assert rows(server) == [4.0 if is_newer else 3.0] * SHARDS
                with restart(server, scratch) as server:
                    assert rows(server) == [3.0 if is_newer else 1.0] * SHARDS
                    assert durability(server) == "snapshot"
                    push(server)
                    set_to(server, "durable")
                    push(server)
                    with restart(server, scratch) as server:
                        assert rows(server) == [5.0 if is_newer else 3.0] * SHARDS and durability(server) == "durable"


def case_a_table_that_leaves_the_journal_and_is_in_no_snapshot_is_gone_after_a_start():
    with Scratch() as scratch:
        server = serve(scratch)
        make(server, durability="durable")
        make(server, "u", durability="durable")
        push(server)
        set_to(server, "snapshot")
        with restart(server, scratch) as server:
            assert names(server) == ["u"]
            make(server, durability="durable")
            push(server)
            with restart(server, scratch) as server:
                assert rows(server) == [1.0] * SHARDS, "made anew"


def case_a_table_goes_to_and_fro():
    with Scratch() as scratch:
        server = serve(scratch)
        make(server)
        for turn in range(3):
            push(server)
            set_to(server, "durable")
            push(server)
            set_to(server, "snapshot")
        push(server)
        set_to(server, "durable")
        with restart(server, scratch) as server:
            assert rows(server) == [7.0] * SHARDS


def case_a_trainer_goes_on_with_its_stream_and_nothing_is_applied_twice():
    """It has opened the table before. All its tables become durable, so it goes on after a kill too."""
    with Scratch() as scratch:
        server = serve(scratch)
        make(server)
        open_streams(server, False)
        push(server, 1)
        set_to(server, "durable")
        push(server, 2)
        push(server, 2)
        refused(GAP, push, server, 4)
        push(server, 3)
        assert rows(server) == [3.0] * SHARDS
        for last in (4, 5):
            server = restart(server, scratch)
            push(server, last - 1)
            assert rows(server) == [last - 1.0] * SHARDS, "it was applied"
            push(server, last)
            refused(GAP, push, server, last + 2)
            assert rows(server) == [float(last)] * SHARDS
            make(server, f"u{last}")
            set_to(server, "durable", f"u{last}")  # and a base
        with restart(server, scratch) as server:
            push(server, 5)
            push(server, 6)
            assert rows(server) == [6.0] * SHARDS


def case_a_trainer_whose_other_table_is_lost_is_told():
    """Its stream pushes to a table that a kill loses, too: its position is the snapshot's or nobody's."""
    for has_base in (False, True):
        with Scratch() as scratch:
            server = serve(scratch)
            make(server)
            make(server, "u")
            open_streams(server, False)
            push(server, 1)
            push(server, 2, "u")
            embctl(server, "snapshot", "s")
            set_to(server, "durable")
            push(server, 3)
            push(server, 4, "u")
            push(server, 5)
            if has_base:
                make(server, "v")
                set_to(server, "durable", "v")
            with restart(server, scratch) as server:
                assert rows(server) == [3.0] * SHARDS and rows(server, "u") == [1.0] * SHARDS
                for number in (3, 5, 6):
                    refused(FORGOTTEN, push, server, number)
                assert rows(server) == [3.0] * SHARDS


def case_a_snapshot_behind_the_last_push_of_a_stream_is_its_position():
    with Scratch() as scratch:
        server = serve(scratch)
        make(server)
        make(server, "u")
        open_streams(server, False)
        set_to(server, "durable")
        push(server, 1, "u")
        push(server, 2)
        embctl(server, "snapshot", "s")
        with restart(server, scratch) as server:
            push(server, 2)
            push(server, 3, "u")
            push(server, 4)
            assert rows(server) == [2.0] * SHARDS and rows(server, "u") == [2.0] * SHARDS


def serve_two_durable(scratch):
    """With a stream of the journal, whose push 1 was to the first table."""
    server = serve(scratch)
    make(server, durability="durable")
    make(server, "u", durability="durable")
    open_streams(server, True, 1)
    push(server, 1, stream=1)
    return server


def case_streams_of_the_journal_push_to_a_table_that_left_it():
    """What a stream pushes to durable tables before and after is kept; a start forgets the stream, as pushes of it are lost."""
    for has_base in (False, True):
        with Scratch() as scratch:
            server = serve_two_durable(scratch)
            push(server, 2, "u", stream=1)
            set_to(server, "snapshot")
            embctl(server, "snapshot", "s")
            push(server, 3, stream=1)
            push(server, 3, stream=1)
            push(server, 4, "u", stream=1)
            refused(GAP, push, server, 6, stream=1)
            assert rows(server) == [2.0] * SHARDS and rows(server, "u") == [2.0] * SHARDS
            if has_base:
                make(server, "v")
                set_to(server, "durable", "v")
            with restart(server, scratch) as server:
                assert rows(server, "u") == [2.0] * SHARDS and rows(server) == [1.0] * SHARDS
                for number, name in ((3, "t"), (4, "u"), (5, "u")):
                    refused(FORGOTTEN, push, server, number, name, stream=1)
                assert rows(server, "u") == [2.0] * SHARDS


def case_a_trainer_is_told_when_a_table_that_left_the_journal_lost_its_pushes():
    """It does not push after the table has left: what it pushed before is lost too, behind the snapshot."""
    for has_base in (False, True):
        with Scratch() as scratch:
            server = serve(scratch)
            make(server, durability="durable")
            open_streams(server, True, 1)
            push(server, 1, stream=1)
            embctl(server, "snapshot", "s")
            push(server, 2, stream=1)
            set_to(server, "snapshot")
            if has_base:
                make(server, "v")
                set_to(server, "durable", "v")
            with restart(server, scratch) as server:
                assert rows(server) == [1.0] * SHARDS
                for number in (2, 3):
                    refused(FORGOTTEN, push, server, number, stream=1)
                assert rows(server) == [1.0] * SHARDS


def case_a_stream_of_the_journal_goes_on_where_nothing_of_it_is_lost():
    """The snapshot has its last push to the table that left, or the table has come back with a base."""
    for comes_back in (False, True):
        with Scratch() as scratch:
            server = serve_two_durable(scratch)
            set_to(server, "snapshot")
            push(server, 2, stream=1)
            push(server, 3, "u", stream=1)
            if comes_back:
                set_to(server, "durable")
            else:
                embctl(server, "snapshot", "s")
            with restart(server, scratch) as server:
                push(server, 3, "u", stream=1)
                push(server, 4, stream=1)
                assert rows(server) == [3.0] * SHARDS and rows(server, "u") == [1.0] * SHARDS


def case_a_stream_of_the_journal_goes_on_behind_a_snapshot_of_all_that_the_journal_has_not():
    """What it pushed since is in the journal. A push to the table that left it, behind the snapshot, is lost."""
    for loses in (False, True):
        with Scratch() as scratch:
            server = serve_two_durable(scratch)
            set_to(server, "snapshot")
            push(server, 2, stream=1)
            embctl(server, "snapshot", "s")
            for number in (3, 4):
                push(server, number, "u", stream=1)
            if loses:
                push(server, 5, stream=1)
            with restart(server, scratch) as server:
                assert rows(server) == [2.0] * SHARDS and rows(server, "u") == [2.0] * SHARDS
                if loses:
                    refused(FORGOTTEN, push, server, 5, stream=1)
                    continue
                push(server, 4, "u", stream=1)
                push(server, 5, stream=1)
                assert rows(server) == [3.0] * SHARDS and rows(server, "u") == [2.0] * SHARDS


def case_a_stream_that_a_start_forgot_is_forgotten_by_the_next_one_too():
    """The journal begins anew between them. The snapshot's position is before a push that the journal has."""
    with Scratch() as scratch:
        server = serve(scratch)
        make(server)
        make(server, "u")
        open_streams(server, False)
        push(server, 1, "u")
        embctl(server, "snapshot", "s")
        set_to(server, "durable")
        push(server, 2, "u")
        push(server, 3)
        server = restart(server, scratch)
        refused(FORGOTTEN, push, server, 3)
        for name in ("v", "w"):
            make(server, name)
            set_to(server, "durable", name)
            server = restart(server, scratch)
            for number in (2, 3, 4):
                refused(FORGOTTEN, push, server, number)
            assert rows(server) == [1.0] * SHARDS and rows(server, "u") == [1.0] * SHARDS
        server.kill()


def case_what_cannot_be_is_refused_and_changes_nothing():
    with Embd(shards=SHARDS) as server:
        make(server)
        embctl(server, "table", "set", "t", "optimizer.lr=0.25", "durability=durable", code=REFUSED,
               says="'durability' cannot be set to 'durable': this server has no data directory")
        with connect(server) as wire:
            told = wire.call("table_describe", {"name": "t"})[0]
            assert told["schema"]["durability"] == "snapshot" and told["schema"]["optimizer"]["lr"] == 1.0, told
        embctl(server, "table", "set", "t", "durability=snapshot")
    with Scratch() as scratch, serve(scratch) as server:
        make(server, create_on="pull")
        embctl(server, "table", "set", "t", "durability=auto", code=REFUSED, says="'durability' is 'auto'")
        embctl(server, "table", "set", "t", "durability=durable", code=REFUSED, says="pulls are not journaled")
        embctl(server, "table", "set", "t", "durability=durable", "create_on=push")
        embctl(server, "table", "set", "t", "create_on=pull", code=REFUSED, says="pulls are not journaled")
        assert durability(server) == "durable"


def case_a_shard_that_cannot_write_its_base_leaves_the_others_as_they_were_set():
    with Scratch() as scratch, serve(scratch) as server:
        make(server)
        for number in range(1, 9):  # names of shard 1's next base
            os.mkdir(scratch(f"data/journal.1.{number:08}.base.tmp"))
        embctl(server, "table", "set", "t", "durability=durable", code=FAILED,
               says="1 of 2 shards have durability 'durable' and keep it, shard 1 may have: repeat the call, or set the durability back")
        told = []
        for shard in range(SHARDS):
            with connect(server, shard) as wire:
                told.append(wire.call("table_describe", {"name": "t"})[0])
        assert [t["schema"]["durability"] for t in told] == ["durable", "snapshot"], told
        assert "failed" in told[1] and "failed" not in told[0], told
        push(server)
        set_to(server, "snapshot")
        assert durability(server) == "snapshot" and rows(server) == [1.0] * SHARDS


def case_tables_of_both_kinds_are_pushed_apart_and_replaced_alike():
    with Scratch() as scratch, serve(scratch) as server:
        make(server)
        push(server)
        embctl(server, "snapshot", "s")
        set_to(server, "durable")
        push(server)
        embctl(server, "load", "--replace", scratch("data/s"))
        assert rows(server) == [1.0] * SHARDS and durability(server) == "durable"
        push(server)
        with restart(server, scratch) as server:
            assert rows(server) == [2.0] * SHARDS


run_cases(dict(globals()))
