"""embctl restore --at a moment behind a move of keys between shards, or in the midst of one: what is brought back is the tables as they
were, on any number of shards, each key once. Where only some shards had the map at a moment, it is refused. Where the last records end
there, a restore without a moment takes what was before the change, and says so; the same where tables took the places of others.

Between the moments of the second part nobody pushes, so every one that comes back is the same tables."""
import contextlib
import json
import os
import random
import shutil
import subprocess

from embctl import EMBCTL, OK, REFUSED, Embd, Scratch, embctl, environment, run_cases
from test_archive import archive, ended, until, whole
from test_backup import digests
from test_changes import SHARDS, serve
from test_moments import RARELY, create, files_of, moment, restored
from wire import RpcError, connect, floats, keys


def push_by_map(server, rng, n=60):
    """Adds to keys of `plain` on the shards that have them now."""
    for key in rng.sample(range(400), n):
        for shard in range(SHARDS):
            with connect(server, shard) as wire:
                table = wire.call("table_describe", {"name": "plain"})[0]["id"]
                version = wire.call("cluster", {})[0].get("placement", {"version": 1})["version"]
                told = {"placement": version} if version > 1 else {}
                with contextlib.suppress(RpcError):  # it is the other one's
                    wire.call("push", {"parts": [{"table": table, "keys": 1}], **told}, keys([key]), floats([-1.0, 0.5]))
                    break
        else:
            raise AssertionError(f"no shard has key {key}")


def moves_at(place, positions, expected):
    """Whether all shards had the map of that moment; then the tables are what they were, without the rows that were on their way."""
    at = "records:" + ",".join(map(str, positions))
    with Embd(shards=3) as other:
        done = subprocess.run([EMBCTL, "restore", "--from", place, "--at", at, "-o", "json"], env=environment(other), capture_output=True,
                              text=True, check=False)
        assert done.returncode == OK or (done.returncode == REFUSED and "keys moved at this moment" in done.stderr), done.stderr
        if done.returncode == REFUSED:
            return False
        assert digests(other) == expected, at
        assert json.loads(done.stdout)["restore"][0]["rows"] == sum(table["rows"] for table in expected), at
        return True


def case_moments_behind_a_move_of_keys_and_in_its_midst_come_back():
    rng, moments = random.Random(41), []
    with Scratch() as scratch, serve(scratch) as server:
        place = scratch("place")
        create(server)
        with archive(server, place, *RARELY, every=3600) as keeper:
            until(lambda: whole(place))
            push_by_map(server, rng)
            moments.append(moment(server, place))
            for weights in ("1,3", "1,0", "2,1"):
                embctl(server, "rebalance", "--weights", weights)
                moments.append(moment(server, place))
                push_by_map(server, rng)
                moments.append(moment(server, place))
            assert ended(keeper) == OK, keeper.lines
        assert len(whole(place)) == 1
        for number, (when, positions, expected) in enumerate(moments):
            found, told = restored(place, when if number % 2 else positions, (SHARDS, 1, 3)[number % 3])
            assert found == expected, f"moment {number}: {told}"
        before, behind = ([int(n) for n in m[1].partition(":")[2].split(",")] for m in moments[:2])
        assert moments[0][2] == moments[1][2], "a move changes no table"
        outcomes = [moves_at(place, [rng.randint(*ends) for ends in zip(before, behind)], moments[0][2]) for _ in range(12)]
        outcomes += [moves_at(place, at, moments[0][2]) for at in ([before[0], behind[1]], [behind[0], before[1]])]
        assert any(outcomes) and not all(outcomes), outcomes
        embctl(server, "restore", "--from", place, "--at", moments[2][0], "--replace")
        assert digests(server) == moments[2][2], "the cluster goes back itself, behind its moves"


def change_twice(server, place, rng):
    """Two moves, and tables that take the places of others: the tables before each, and how many files of records each shard has then.
    Pushes are behind each change, so that some shards have these, too."""
    first, moments, files = None, [], []
    for weights in ("1,3", None, "2,1"):
        push_by_map(server, rng)
        moments.append(moment(server, place))
        first = first or moments[0]
        files.append([len(files_of(place, shard)) for shard in range(SHARDS)])
        if weights:
            embctl(server, "rebalance", "--weights", weights)
        else:
            embctl(server, "restore", "--from", place, "--at", first[0], "--replace")
    push_by_map(server, rng)
    moments.append(moment(server, place))
    return moments, files


def without(place, shard, n, copy):
    """A copy of the place that has the first n files of the shard's records."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(place, copy)
    for path in files_of(copy, shard)[n:]:
        os.remove(path)
    return copy


def case_the_newest_records_that_only_some_shards_have_are_left_out():
    rng = random.Random(43)
    with Scratch() as scratch, serve(scratch) as server:
        place = scratch("place")
        create(server)
        with archive(server, place, *RARELY, every=3600) as keeper:
            until(lambda: whole(place))
            moments, files = change_twice(server, place, rng)
            assert ended(keeper) == OK, keeper.lines
        found, told = restored(place, None, 3)
        assert found == moments[-1][2] and told.get("before") is None, told
        for number, counts in enumerate(files):
            for shard in range(SHARDS):
                copy = without(place, shard, counts[shard], scratch("copy"))
                found, told = restored(copy, None, 1 + number)
                assert found == moments[number][2], f"before change {number}, shard {shard} lacks it: {told}"
                assert told["before"] == "a change that not all shards have", told
        embctl(server, "restore", "--from", copy, "--at", moments[-1][0], "--replace", code=REFUSED, says="keys moved at this moment")


if __name__ == "__main__":
    run_cases({name: fn for name, fn in globals().items() if getattr(fn, "__module__", None) == "__main__"})
