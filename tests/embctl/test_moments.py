"""embctl restore --at a moment: an archive keeps the records between its backups, so what is brought back is the tables as
they were then, on any number of shards. A push is on all shards or on none. Files of records that are lost, damaged or in
the place of another one are named and refused.

The oracle is the cluster itself: digests of rows, optimizer state and steps at each moment, while nobody pushed. Nothing waits
for a time: a moment is noted when the archive's files have all records of the journals."""
import contextlib
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import time
import types
import urllib.request

from embctl import DAMAGED, EMBCTL, OK, REFUSED, Embd, Scratch, embctl, embctl_json, environment, run_cases
from embd_process import run
from ports import free_ports
from test_archive import archive, ended, until, whole
from test_backup import backup, digests, two_processes
from test_backup_s3 import PLACE, bucket, is_without_s3
from test_changes import SHARDS, change, serve
from test_streams import EVEN, last, open_all, push, push_all, values
from wire import RpcError, Wire, connect, floats, keys, owned
from wire import create as create_table

BUFFERED = ("--set", "durability=buffered")
TABLES = [
    ("plain", "--dim", 2, "--optimizer", "adagrad", *BUFFERED),
    ("slotted", "--dim", 2, "--slots", 3, "--partition", "slot", "--optimizer", "adam", "--admit-after", 2, *BUFFERED),
    ("all", "--dim", 1, "--optimizer", "momentum", "--set", "optimizer.update=global", *BUFFERED),
    ("kept", "--dim", 1, "--set", "durability=durable"),
]
RARELY = ("--records", 0.3)  # backups are an hour apart: only records are between two moments


def create(server):
    for name, *flags in TABLES:
        embctl(server, "table", "create", name, *flags)


def records_of(server):
    """How many each shard's journal has."""
    found = []
    for shard in range(SHARDS):
        with Wire(server.admin_path(shard)) as wire:
            ask = {"name": "test", "cluster": wire.call("cluster", {})[0]["name"], "position": 2**40, "reads": True, "wait_ms": 0}
            found.append(wire.call("follow", ask)[0]["end"])
    return found


def files_of(place, shard):
    """Files of records, the oldest first."""
    folder = os.path.join(place, "journal.records", str(shard))
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in names if "." not in name]


def archived(place):
    """How many records of each shard lie there."""
    found = []
    for shard in range(SHARDS):
        most = 0
        for path in files_of(place, shard)[-2:]:
            with open(path, "rb") as file:
                most = max(most, struct.unpack_from("<Q", file.read(72), 64)[0])
        found.append(most)
    return found


def noted(server, place):
    """Now, when the archive has all that was pushed: the time, and the journals' positions."""
    positions = records_of(server)
    until(lambda: archived(place) == positions)
    when = time.time()
    time.sleep(0.01)
    return f"@{when:.3f}", "records:" + ",".join(map(str, positions))


def digests_beside(server):
    """Also where the archive makes a backup now, which goes first."""
    found = []

    def is_there():
        done = subprocess.run([EMBCTL, "digest", "-o", "json"], env=environment(server), capture_output=True, text=True, check=False)
        assert done.returncode in (OK, REFUSED), done.stderr
        found.append(json.loads(done.stdout)["tables"] if done.returncode == OK else None)
        return done.returncode == OK

    until(is_there)
    return found[-1]


def moment(server, place):
    """The same, and what the tables are."""
    return *noted(server, place), digests_beside(server)


def restored(place, at, shards, *flags):
    with Embd(shards=shards) as other:
        told = embctl_json(other, "restore", "--from", place, *(("--at", at) if at else ()), *flags)["restore"][0]
        return digests(other), told


def case_a_wrong_push_is_undone_to_the_moment_before():
    rng, moments = random.Random(31), []
    with Scratch() as scratch, serve(scratch) as server:
        place = scratch("place")
        create(server)
        change(server, rng, n=60, tables=TABLES)
        with archive(server, place, *RARELY, every=3600) as keeper:
            until(lambda: whole(place))
            for number in range(4):
                for _ in range(3):
                    change(server, rng, "erase" if number == 2 else "push", n=8, tables=TABLES)
                moments.append(moment(server, place))
            change(server, rng, n=60, tables=TABLES)  # the wrong one
            embctl(server, "table", "set", "plain", "optimizer.lr=50")
            change(server, rng, n=60, tables=TABLES)
            embctl(server, "table", "drop", "kept")
            last = moment(server, place)
            assert ended(keeper) == OK, keeper.lines
        assert len(whole(place)) == 1 and len({str(m[2]) for m in [*moments, last]}) == 5
        embctl(None, "verify", place)
        for number, (when, positions, expected) in enumerate([*moments, last]):
            found, told = restored(place, when if number % 2 else positions, (SHARDS, 1, 3)[number % 3])
            assert found == expected, f"moment {number}: {told}"
            assert told["records"] > 0 and told["left_out"] == 0
        assert restored(place, None, SHARDS)[0] == last[2]
        embctl(server, "restore", "--from", place, "--at", moments[-1][0], "--replace")
        assert digests(server) == moments[-1][2], "the cluster goes back itself"
        name = whole(place)[0]["name"]
        assert restored(place, name, 1)[1]["records"] == 0, "a backup by its name is that backup"
        embctl(server, "restore", "--from", place, "--at", "records:1", "--replace", code=REFUSED, says="has no whole backup")
        embctl(server, "restore", "--from", place, "--at", "records:999999,999999", "--replace", code=REFUSED, says="up to")
        assert digests(server) == moments[-1][2]


def times_of(place, shard):
    """(ms, position) of the shard's only file of records."""
    path, = files_of(place, shard)
    with open(path, "rb") as file:
        data = file.read()
    n = struct.unpack_from("<Q", data, 104)[0]
    return [struct.unpack_from("<QQ", data, 136 + 16 * i) for i in range(n)]


def case_a_moment_is_within_a_file_of_records():
    rng, known = random.Random(38), {}
    with Scratch() as scratch, serve(scratch) as server:
        place = scratch("place")
        create(server)
        with archive(server, place, "--records", 3600, every=3600) as keeper:
            until(lambda: whole(place))
            for _ in range(8):
                change(server, rng, n=8, tables=TABLES)
                known[tuple(records_of(server))] = digests_beside(server)
                time.sleep(0.4)  # so that records come at several times
            assert ended(keeper) == OK, "what it has is put at its end"
        times = [times_of(place, shard) for shard in range(SHARDS)]
        last = max(known)
        found = 0
        for ms in sorted({ms for list_ in times for ms, _ in list_}):
            positions = tuple(max((position for when, position in list_ if when <= ms), default=0) for list_ in times)
            if positions in known and positions != last and found < 3:
                assert restored(place, f"@{ms / 1000:.3f}", 1 + found)[0] == known[positions], positions
                found += 1
        assert found > 0, times


def case_tables_that_evict_have_the_rows_of_that_moment():
    rng, moments = random.Random(39), []
    tables = [(how, "--dim", 1, "--capacity", 40, "--on-full", how, *BUFFERED) for how in ("evict_lru", "evict_lfu")]
    with Scratch() as scratch, serve(scratch) as server:
        place = scratch("place")
        for name, *flags in tables:
            embctl(server, "table", "create", name, *flags)
        for _ in range(4):
            change(server, rng, n=30, tables=tables)
        with archive(server, place, *RARELY, every=3600) as keeper:
            until(lambda: whole(place))
            for _ in range(3):
                for _ in range(4):
                    change(server, rng, n=30, tables=tables)
                moments.append(moment(server, place))
            assert ended(keeper) == OK
        evicted = embctl_json(server, "table", "list")["tables"]
        assert all(table["rows"] == 40 * SHARDS for table in evicted), evicted
        for when, _, expected in moments:
            assert restored(place, when, SHARDS)[0] == expected


def case_a_lost_disk_costs_what_the_archive_did_not_have_yet():
    rng = random.Random(32)
    with Scratch() as scratch:
        place = scratch("place")
        with serve(scratch) as server:
            create(server)
            with archive(server, place, *RARELY) as keeper:
                until(lambda: len(whole(place)) > 3)
                for _ in range(6):
                    change(server, rng, n=20, tables=TABLES)
                    time.sleep(0.2)
                last = moment(server, place)
                server.kill()
                assert ended(keeper) == OK
        shutil.rmtree(scratch("data"))
        for shards in (1, 3):
            assert restored(place, None, shards)[0] == last[2]


class Half:
    """A client whose pushes of 1 go to one shard at a time."""

    def __init__(self, server, number):
        self.wires = [connect(server, shard) for shard in range(SHARDS)]
        self.key = [owned(number + 1, shard, SHARDS)[number] for shard in range(SHARDS)]
        for wire in self.wires:
            wire.call("hello", {"protocol": 1, "client_id": 2**60 + number})
        self.table = self.wires[0].call("table_describe", {"name": "count"})[0]["id"]

    def push(self, shard, order):
        part = {"table": self.table, "keys": 1}
        self.wires[shard].call("push", {"parts": [part], "order": order}, keys([self.key[shard]]), floats([-1.0]))

    def counts(self, server):
        return [float(line) for line in embctl(server, "get", "--vector", "count", *self.key).splitlines()]


def case_a_push_that_some_shards_lack_is_on_none():
    with Scratch() as scratch, serve(scratch) as server:
        place = scratch("place")
        embctl(server, "table", "create", "count", "--dim", 1, "--optimizer", "sgd", "--lr", 1, "--initializer", "constant", *BUFFERED)
        one, two = Half(server, 0), Half(server, 1)
        with archive(server, place, *RARELY, every=3600) as keeper:
            until(lambda: whole(place))
            for order in range(1, 4):
                for shard in range(SHARDS):
                    one.push(shard, order)
            one.push(0, 4)
            two.push(1, 1)
            two.push(0, 1)
            one.push(0, 5)
            half = noted(server, place)
            one.push(1, 4)
            most = noted(server, place)
            one.push(1, 5)
            all_of_it = noted(server, place)
            assert ended(keeper) == OK
        for (when, _), counts, left in ((half, 3, 2), (most, 4, 1), (all_of_it, 5, 0)):
            with Embd(shards=3) as other:
                told = embctl_json(other, "restore", "--from", place, "--at", when)["restore"][0]
                assert one.counts(other) == [counts, counts] and two.counts(other) == [1, 1], told
                assert told["left_out"] == left


def case_numbered_pushes_go_on_behind_the_moment():
    with Scratch() as scratch, serve(scratch) as server:
        place = scratch("place")
        for shard in range(SHARDS):
            with connect(server, shard) as wire:
                create_table(wire, "t", 2, value=0.0, partition="modulo", durability="buffered")
        open_all(server, SHARDS, True, EVEN)
        with archive(server, place, *RARELY, every=3600) as keeper:
            until(lambda: whole(place))
            for sequence in (1, 2, 3):
                assert push_all(server, SHARDS, "t", EVEN, sequence) == [False, False]
            before = values(server, SHARDS, "t")
            with connect(server, 0) as wire:  # the push is on its way to shard 1
                push(wire, wire.call("table_describe", {"name": "t"})[0]["id"], EVEN, 4, [0])
            when, _ = noted(server, place)
            assert ended(keeper) == OK
        with Embd(shards=SHARDS) as other:
            embctl(other, "restore", "--from", place, "--at", when)
            assert values(other, SHARDS, "t") == before
            for shard in range(SHARDS):
                assert max(last(other, shard, EVEN).values()) == 3
            assert push_all(other, SHARDS, "t", EVEN, 3) == [True, True], "it is not applied twice"
            assert push_all(other, SHARDS, "t", EVEN, 4) == [False, False]
            assert values(other, SHARDS, "t") != before


def damaged(path):
    with open(path, "r+b") as file:
        file.seek(-20, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-20, os.SEEK_END)
        file.write(bytes([byte ^ 1]))


def swapped(one, other):
    os.rename(one, one + "x")
    os.rename(other, one)
    os.rename(one + "x", other)


def case_files_of_records_that_are_lost_damaged_or_swapped_are_named():
    rng = random.Random(33)
    with Scratch() as scratch, serve(scratch) as server:
        place = scratch("place")
        create(server)
        with archive(server, place, *RARELY, every=3600) as keeper:
            until(lambda: whole(place))
            while len(files_of(place, 0)) < 6 or len(files_of(place, 1)) < 6:
                change(server, rng, n=8, tables=TABLES)
                time.sleep(0.1)
            last = moment(server, place)
            assert ended(keeper) == OK
        before = digests(server)
        for shard in range(SHARDS):
            files, other = files_of(place, shard), files_of(place, 1 - shard)
            for harm, says in ((lambda: damaged(files[2]), files[2]), (lambda: os.remove(files[3]), f"are lost: no file of journal.records/{shard}"),
                               (lambda: swapped(files[1], files[4]), files[1]), (lambda: swapped(files[2], other[2]), "in the place of another one"),
                               (lambda: shutil.copy(files[4], files[2]), "in the place of another one")):
                shutil.copytree(place, scratch("kept"))
                harm()
                embctl(None, "verify", place, code=DAMAGED, says="a file of records is lost" if "lost" in says else says)
                embctl(server, "restore", "--from", place, "--at", last[0], "--replace", code=DAMAGED, says=says)
                assert digests(server) == before, "nothing changed"
                embctl(server, "restore", "--from", place, "--at", whole(place)[0]["name"], "--table", "kept", "--replace")
                embctl(server, "restore", "--from", scratch("kept"), "--at", last[0], "--replace")
                assert digests(server) == before == last[2]
                shutil.rmtree(place)
                os.rename(scratch("kept"), place)


def case_records_join_over_deaths_of_archives_and_servers():
    rng, moments = random.Random(34), []
    with Scratch() as scratch:
        place, where = scratch("place"), {"listen": f"127.0.0.1:{free_ports(2)}", "admin": scratch("admin")}
        server = serve(scratch, **where)
        create(server)
        for number in range(4):
            with archive(server, place, *RARELY, "--deadline", 2, every=3600) as keeper:
                until(lambda n=number: len(whole(place)) > n)
                if number == 2:
                    change(server, rng, n=8, tables=TABLES)
                    server.kill()
                    server = serve(scratch, **where)
                change(server, rng, n=8, tables=TABLES)
                moments.append(moment(server, place))
                change(server, rng, n=8, tables=TABLES)
                if number == 1:
                    ended(keeper)
                keeper.send_signal(signal.SIGKILL)
        server.kill()
        backups = whole(place)
        assert len(backups) == 4
        for backup in backups[1:]:
            shutil.rmtree(os.path.join(place, backup["name"]))
        for number, (when, positions, expected) in enumerate(moments):
            assert restored(place, positions if number == 1 else when, (1, 2, 3)[number % 3])[0] == expected, number


def case_shards_of_several_processes_have_one_moment():
    rng, moments = random.Random(37), []
    with Scratch() as scratch:
        place, servers = scratch("place"), two_processes(scratch, free_ports(2))
        both = types.SimpleNamespace(addresses=servers[0].addresses, port=lambda shard: servers[shard].port(),
                                     admin_path=lambda shard: scratch(f"admin/{servers[shard].port()}.sock"))
        create(both)
        change(both, rng, n=60, tables=TABLES)
        with archive(both, place, *RARELY, every=3600) as keeper:
            until(lambda: whole(place))
            change(both, rng, n=8, tables=TABLES)
            backup(both, place, "--incremental", "--name", "between")
            for _ in range(2):
                change(both, rng, n=8, tables=TABLES)
                moments.append(moment(both, place))
            assert ended(keeper) == OK
        for server in servers:
            server.kill()
        for number, (when, positions, expected) in enumerate(moments):
            found, told = restored(place, (when, positions)[number], (2, 3)[number])
            assert found == expected and told["name"] == "between", told


def push_somewhere(server, keys_):
    """Each to the shard that takes it."""
    for key in keys_:
        for shard in range(SHARDS):
            with connect(server, shard) as wire, contextlib.suppress(RpcError):
                table = wire.call("table_describe", {"name": "kept"})[0]["id"]
                wire.call("push", {"parts": [{"table": table, "keys": 1}], "placement": 2}, keys([key]), floats([1.0]))


def case_an_archive_follows_tables_that_are_replaced_and_keys_that_move():
    rng = random.Random(40)
    with Scratch() as scratch, serve(scratch) as server:
        place = scratch("place")
        create(server)
        change(server, rng, n=60, tables=TABLES)
        with archive(server, place, *RARELY, every=3600) as keeper:
            until(lambda: whole(place))
            change(server, rng, n=8, tables=TABLES)
            first = moment(server, place)
            change(server, rng, n=60, tables=TABLES)
            embctl(server, "restore", "--from", place, "--at", first[0], "--replace")
            change(server, rng, n=8, tables=TABLES)
            second = moment(server, place)
            embctl(server, "rebalance", "--weights", "1,3")  # an archive is no follower, which would hinder it
            moved = moment(server, place)
            backup(server, place, "--name", "behind")
            push_somewhere(server, range(20))
            last = moment(server, place)
            assert ended(keeper) == OK
        assert last[2] != moved[2]
        for _, positions, expected in (first, second, last):
            assert restored(place, positions, 3)[0] == expected
        shutil.rmtree(os.path.join(place, "behind"))
        for _, positions, expected in (moved, last):
            assert restored(place, positions, 3)[0] == expected


def metrics(server):
    """Once: the process says on stdout where they are, after its shards."""
    address = re.fullmatch(r"embd: http on (\S+)\n", server.process.stdout.readline()).group(1)
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
        lines = [line for line in page.read().decode().splitlines() if not line.startswith("#")]
    return {line.split("{")[0].split(" ")[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


def archiver(server):
    """The embctl that the server has started last."""
    return int(re.findall(r"info archive_begins .* pid=(\d+)", server.log())[-1])


def is_gone(pid):
    """Or it is a zombie that another process is to wait for."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0] == "Z"
    return True


def case_a_server_keeps_the_archive_by_a_setting():
    rng = random.Random(36)
    with Scratch() as scratch:
        place, more = scratch("place"), {"listen": f"127.0.0.1:{free_ports(2)}", "admin": scratch("admin")}
        flags = ("--archive", place, "--archive-every", 1, "--http", "127.0.0.1:0")
        server = serve(scratch, [str(flag) for flag in flags], **more)
        create(server)
        change(server, rng, n=20, tables=TABLES)
        until(lambda: len(whole(place)) > 2)
        shown = metrics(server)
        assert shown["embd_archive_runs"] == 1 and shown["embd_backup_failed"] == 0
        assert shown["embd_backup_covers_timestamp_seconds"] > time.time() - 3600 and shown["embd_backup_interval_seconds"] == 1
        assert shown["embd_backup_records_covers_timestamp_seconds"] >= 0
        first = archiver(server)
        os.kill(first, signal.SIGKILL)
        server.wait_log("error archive_ended", 30)
        until(lambda: archiver(server) != first)
        n = len(whole(place))
        until(lambda: len(whole(place)) > n)
        second = archiver(server)
        server.kill()
        until(lambda: is_gone(second))  # it does not outlive the server
        server = serve(scratch, [str(flag) for flag in flags], **more)
        change(server, rng, n=20, tables=TABLES)
        last = moment(server, place)
        third = archiver(server)
        assert server.stop() == OK and is_gone(third)
        assert restored(place, last[0], 3)[0] == last[2]
        for flags, says in ((("--archive", place), "needs a data_dir"), (("--archive", place, "--archive-days", "0"), "out of range")):
            done = run("--check", *flags)
            assert done.returncode == 2 and says in done.stderr, done.stderr


def case_moments_come_back_from_a_bucket():
    if is_without_s3():
        print("skipped: embctl was built without libcurl")
        return
    rng = random.Random(35)
    stack, s3 = bucket()
    with stack, Scratch() as scratch, serve(scratch) as server:
        create(server)
        change(server, rng, n=60, tables=TABLES)
        with archive(server, PLACE, *RARELY, every=3600) as keeper:
            until(lambda: keeper.lines)
            change(server, rng, n=8, tables=TABLES)
            positions, expected = records_of(server), digests(server)
            until(lambda: all(most(s3, shard) == positions[shard] for shard in range(SHARDS)))
            change(server, rng, n=8, tables=TABLES)
            assert ended(keeper) == OK
        embctl(None, "verify", PLACE)
        found, told = restored(PLACE, "records:" + ",".join(map(str, positions)), 3)
        assert found == expected and told["records"] > 0


def most(s3, shard):
    """Records of the shard that are in the bucket."""
    bodies = [body for key, body in list(s3.objects.items()) if f"/journal.records/{shard}/" in key]
    return max((struct.unpack_from("<Q", body, 64)[0] for body in bodies), default=0)


if __name__ == "__main__":
    run_cases({name: fn for name, fn in globals().items() if getattr(fn, "__module__", None) == "__main__"})
