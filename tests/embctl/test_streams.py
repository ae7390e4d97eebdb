"""A snapshot has the writers that its rows are from: a trainer that numbers its pushes goes on with the next one where the
snapshot was loaded, and what it makes again is not applied twice. On as many shards each stream is as it was; on another
number those are known that stood at one push everywhere."""
import os
import shutil

from embctl import DAMAGED, Embd, Scratch, embctl, embctl_json, run_cases
from wire import RpcError, Wire, connect, create, floats, keys, open_stream, pull

FORGOTTEN = 22
EVEN, UNEVEN, PARTIAL, OPENED = ({"high": 1, "low": 2**64 - 1, "stream": s} for s in (0, 7, 2**32 - 1, 8))
KEYS = list(range(12))


def push(wire, table, writer, sequence, key_list):
    part = {"table": table, "keys": len(key_list)}
    return wire.call("push", {"parts": [part], "writer": {**writer, "sequence": sequence}}, keys(key_list),
                     floats([1.0, 0.0] * len(key_list)))[0]


def open_all(server, shards, journaled, *writers):
    for shard in range(shards):
        with connect(server, shard) as wire:
            for writer in writers:
                assert open_stream(wire, writer, journaled) == {"last": 0, "opened": True}


def push_all(server, shards, name, writer, sequence):
    """One push over all shards, as libembd makes it: each gets its keys under the same number."""
    answers = []
    for shard in range(shards):
        with connect(server, shard) as wire:
            table = wire.call("table_describe", {"name": name})[0]["id"]
            answers.append(push(wire, table, writer, sequence, [key for key in KEYS if key % shards == shard]))
    return [answer.get("again", False) for answer in answers]


def values(server, shards, name):
    found = {}
    for shard in range(shards):
        with connect(server, shard) as wire:
            table = wire.call("table_describe", {"name": name})[0]["id"]
            mine = [key for key in KEYS if key % shards == shard]
            found.update(zip(mine, pull(wire, table, mine)[::2]))
    return found


def last(server, shard, writer):
    with connect(server, shard) as wire:
        return wire.call("writer", writer)[0]


def make(server, durability):
    for shard in range(2):
        with connect(server, shard) as wire:
            create(wire, "t", 2, value=0.0, partition="modulo", durability=durability)
    open_all(server, 2, durability != "snapshot", EVEN, UNEVEN, OPENED)
    open_all(server, 1, durability != "snapshot", PARTIAL)
    for sequence in range(1, 5):
        assert push_all(server, 2, "t", EVEN, sequence) == [False, False]
    with connect(server, 0) as wire:
        table = wire.call("table_describe", {"name": "t"})[0]["id"]
        for writer, n in ((UNEVEN, 3), (PARTIAL, 1)):
            for sequence in range(1, n + 1):
                push(wire, table, writer, sequence, [])
    with connect(server, 1) as wire:
        push(wire, wire.call("table_describe", {"name": "t"})[0]["id"], UNEVEN, 1, [])


def check_next(server, shards, kind):
    """The push before the cut is known, the next one is applied, once."""
    before = values(server, shards, "t")
    assert set(before.values()) == {-2.0}, before
    for shard in range(shards):
        assert last(server, shard, EVEN)[kind] == 4
    assert push_all(server, shards, "t", EVEN, 4) == [True] * shards
    assert push_all(server, shards, "t", EVEN, 5) == [False] * shards
    assert push_all(server, shards, "t", EVEN, 5) == [True] * shards
    assert set(values(server, shards, "t").values()) == {-2.5}
    for shard in range(shards):  # what was opened before the cut is open
        with connect(server, shard) as wire:
            assert push(wire, wire.call("table_describe", {"name": "t"})[0]["id"], OPENED, 1, []).get("again") is None


def snapshot(scratch, durability):
    os.mkdir(scratch("data"))
    with Embd("--data-dir", scratch("data"), shards=2) as server:
        make(server, durability)
        told = embctl_json(server, "snapshot", "s")["snapshot"][0]["bytes"]
        assert push_all(server, 2, "t", EVEN, 5) == [False, False], "after the cut"
    files = os.listdir(scratch("data/s"))
    assert sorted(files) == ["0.writers", "1.writers", "manifest.json", "t.0.part", "t.1.part"], files
    assert told == sum(os.path.getsize(scratch(f"data/s/{name}")) for name in files if name != "manifest.json")
    assert embctl_json(None, "verify", scratch("data/s"))["verify"][0]["bytes"] == told


def case_on_as_many_shards_each_stream_goes_on():
    with Scratch() as scratch:
        snapshot(scratch, "snapshot")
        with Embd(shards=2) as server:
            embctl(server, "load", scratch("data/s"))
            assert [last(server, shard, UNEVEN)["other"] for shard in range(2)] == [3, 1]
            assert [last(server, shard, PARTIAL)["other"] for shard in range(2)] == [1, 0]
            check_next(server, 2, "other")


def case_on_another_number_of_shards_those_go_on_that_stood_at_one_push():
    with Scratch() as scratch:
        snapshot(scratch, "snapshot")
        for shards in (1, 3):
            with Embd(shards=shards) as server:
                embctl(server, "load", scratch("data/s"))
                check_next(server, shards, "other")
                for writer, sequence in ((UNEVEN, 4), (PARTIAL, 2)):
                    assert last(server, 0, writer) == {"journaled": 0, "other": 0}
                    try:
                        push_all(server, shards, "t", writer, sequence)
                    except RpcError as error:
                        assert error.number == FORGOTTEN, error
                    else:
                        raise AssertionError("a stream that is not known went on")


def case_streams_of_journaled_tables_outlive_the_server_they_are_loaded_into():
    with Scratch() as scratch:
        snapshot(scratch, "durable")
        os.mkdir(scratch("new"))
        server = Embd("--data-dir", scratch("new"), shards=3)
        embctl(server, "load", scratch("data/s"))
        assert last(server, 2, EVEN) == {"journaled": 4, "other": 0}
        server.kill()
        with Embd("--data-dir", scratch("new"), shards=3) as server:
            check_next(server, 3, "journaled")
        with Embd("--data-dir", scratch("new"), shards=3) as server:
            assert last(server, 0, EVEN) == {"journaled": 5, "other": 0}


def case_streams_follow_tables_that_are_kept_otherwise_where_they_are_loaded():
    with Scratch() as scratch:
        snapshot(scratch, "durable")
        with Embd(shards=2) as server:
            embctl(server, "load", scratch("data/s"))
            assert last(server, 0, EVEN) == {"journaled": 0, "other": 4}, "without a journal there"
            check_next(server, 2, "other")


def case_one_table_alone_brings_no_streams():
    """A stream may have pushed to the others too."""
    with Scratch() as scratch:
        snapshot(scratch, "snapshot")
        with Embd(shards=2) as server:
            embctl(server, "load", "--table", "t", scratch("data/s"))
            assert last(server, 0, EVEN) == {"journaled": 0, "other": 0}


def case_damaged_lists_of_streams_are_refused():
    with Scratch() as scratch:
        snapshot(scratch, "snapshot")
        path = scratch("data/s/1.writers")
        with open(path, "rb") as file:
            good = file.read()
        with Embd(shards=2) as server:
            for damage, says in ((good[:-1], "has 183 bytes"), (good[:70] + b"x" + good[71:], "has the checksum"),
                                 (None, "is missing")):
                if damage is None:
                    os.unlink(path)
                else:
                    with open(path, "wb") as file:
                        file.write(damage)
                embctl(None, "verify", scratch("data/s"), code=DAMAGED, says=says)
                embctl(server, "load", scratch("data/s"), code=DAMAGED, says="1.writers")
                assert embctl_json(server, "table", "list") == {"tables": []}
        shutil.rmtree(scratch("data/s"))


def case_what_cannot_be_a_stream_is_refused():
    with Embd() as server, Wire(server.admin_path()) as wire:
        for sequence, stream, says in ((0, 1, "sequence"), (2**64 - 1, 1, "sequence"), (1, 2**32, "stream")):
            for journaled in (False, True):
                try:
                    wire.call("writers", {"writers": 1, "journaled": journaled}, keys([1, 2, sequence, stream]))
                except RpcError as error:
                    assert error.number == 1 and says in error.text, error
                else:
                    raise AssertionError("it was taken")
            try:
                wire.call("writers", {"writers": 1, "journaled": False, "principals": True},
                          keys([1, 2, sequence, stream, 3]))
            except RpcError as error:
                assert error.number == 1 and says in error.text and sequence != 0, error
            else:
                assert sequence == 0, "an open stream need not have pushed"
        try:
            wire.call("writers", {"writers": 1}, keys([1, 2, 3, 4]))
        except RpcError as error:
            assert "no data directory" in error.text
        else:
            raise AssertionError("journaled streams without a journal")


if __name__ == "__main__":
    run_cases(globals())
