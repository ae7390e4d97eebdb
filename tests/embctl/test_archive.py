"""embctl backup --every: a disk that is lost costs no more than the interval; deaths of the archive, of servers and of the
place are survived; what is damaged is passed over and named; a cluster that lost its rows does not take the place of one that
has them."""
import calendar
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
import types

from embctl import DAMAGED, EMBCTL, OK, REFUSED, USAGE, Embd, Scratch, embctl, embctl_json, environment, run_cases
from test_backup import TABLES, backup, digests, figures, listed, reseal
from test_backup_s3 import PLACE, bucket, is_without_s3
from ports import free_ports
from test_changes import change, create, serve
from wire import Wire, floats, keys, owned


def until(what, seconds=200):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)


@contextlib.contextmanager
def archive(server, place, *flags, every=1):
    """embctl backup --every: what it says goes to a list of lines."""
    run = subprocess.Popen([EMBCTL, "backup", "--to", place, "--every", str(every), *map(str, flags)], env=environment(server),
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    run.lines = []
    reader = threading.Thread(target=lambda: run.lines.extend(iter(run.stdout.readline, "")))
    reader.start()
    try:
        yield run
    except AssertionError as error:
        raise AssertionError("".join(run.lines)) from error
    finally:
        run.kill()
        run.wait()
        reader.join()
        run.stdout.close()


def ended(run, number=signal.SIGTERM):
    run.send_signal(number)
    return run.wait(30)


def whole(place):
    """None yet, where the archive has not begun."""
    there = listed(place).values() if os.path.isdir(place) else []
    return [b for b in there if b["state"] == "whole"]


def failures(path):
    """Since the last complete one; None: nothing was told yet."""
    return figures(path)["embd_backup_failures"][1] if os.path.exists(path) else None


class Trainer:
    """Adds 1 to a row of each shard, again and again until the server is killed, and notes when that was acknowledged."""

    def __init__(self, server):
        self.server, self.acknowledged, self.stops = server, [(0.0, 0)], threading.Event()
        self.key = [owned(1, shard, 2)[0] for shard in range(2)]
        self.thread = threading.Thread(target=self.train)

    def train(self):
        with contextlib.suppress(OSError, TypeError), contextlib.ExitStack() as stack:
            wires = [stack.enter_context(Wire(("127.0.0.1", self.server.port(shard)))) for shard in range(2)]
            table = [wire.call("table_describe", {"name": "count"})[0]["id"] for wire in wires]
            for step in itertools.count(1):
                if self.stops.is_set():
                    return
                for shard, wire in enumerate(wires):
                    wire.call("push", {"parts": [{"table": table[shard], "keys": 1}]}, keys([self.key[shard]]), floats([-1.0]))
                self.acknowledged.append((time.time(), step))
                time.sleep(0.001)

    def __enter__(self):
        embctl(self.server, "table", "create", "count", "--dim", 1, "--optimizer", "sgd", "--lr", 1, "--initializer", "constant",
               "--set", "durability=buffered")
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stops.set()
        self.thread.join()

    def before(self, seconds):
        """How many were acknowledged before that time."""
        return max(step for when, step in self.acknowledged if when <= seconds)

    def counts(self, server):
        return [float(line) for line in embctl(server, "get", "--vector", "count", *self.key).splitlines()]


def case_a_lost_disk_costs_no_more_than_the_interval():
    rng = random.Random(21)
    with Scratch() as scratch:
        with serve(scratch) as server, Trainer(server) as trainer:
            killed = 0
            while killed < 20:  # the archive, at any moment
                with archive(server, scratch("place"), "--figures", scratch("f")) as run:
                    time.sleep(rng.random() * 0.4 if killed < 15 else 1.2)
                    killed += 1
                assert run.returncode == -signal.SIGKILL, run.lines
            with archive(server, scratch("place"), "--figures", scratch("f")) as run:
                n = len(whole(scratch("place")))
                until(lambda: len(whole(scratch("place"))) >= n + 5)
                server.kill()
                died = time.time()
                until(lambda: any("failed since the last one" in line for line in run.lines))
                told = {name: value for name, (_, value) in figures(scratch("f")).items()}
                assert told["embd_backup_failed"] == 1 and told["embd_backup_failures"] >= 1
                assert told["embd_backup_interval_seconds"] == 1
                assert ended(run) == OK
        shutil.rmtree(scratch("data"))
        assert {b["state"] for b in listed(scratch("place")).values()} <= {"whole", "cut off"}
        embctl(None, "verify", scratch("place"))
        covers = told["embd_backup_covers_timestamp_seconds"]
        assert covers == max(seconds_of(b["time"]) for b in whole(scratch("place")))
        print(f"  the last {died - covers:.1f} s were lost, of an interval of 1 s")
        for shards in (3, 1):
            with Embd(shards=shards) as other:
                embctl(other, "restore", "--from", scratch("place"))
                for count in trainer.counts(other):
                    assert trainer.before(covers) <= count <= trainer.acknowledged[-1][1] + 1
        named = rng.sample(whole(scratch("place")), 4)
        with Embd(shards=2) as other:
            for one in sorted(named, key=lambda b: b["name"]):
                embctl(other, "restore", "--from", scratch("place"), "--at", one["name"], "--replace")
                assert min(trainer.counts(other)) >= trainer.before(seconds_of(one["time"]))


def seconds_of(text):
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def case_servers_that_die_and_come_back_go_on_with_increments():
    rng = random.Random(22)
    with Scratch() as scratch:
        where = {"listen": f"127.0.0.1:{free_ports(2)}", "admin": scratch("admin")}
        server = serve(scratch, **where)
        create(server, TABLES)
        change(server, rng, n=60, tables=TABLES)
        with archive(server, scratch("place"), "--figures", scratch("f"), "--deadline", 2) as run:
            for _ in range(2):
                n = len(whole(scratch("place")))
                until(lambda n=n: len(whole(scratch("place"))) > n + 1)
                server.kill()
                until(lambda: failures(scratch("f")))
                server = serve(scratch, **where)
                change(server, rng, n=8, tables=TABLES)
                until(lambda: failures(scratch("f")) == 0)
            change(server, rng, n=8, tables=TABLES)
            n = len(whole(scratch("place")))
            until(lambda: len(whole(scratch("place"))) > n + 1)
            assert ended(run, signal.SIGINT) == OK
        found = whole(scratch("place"))
        assert [b["base"] for b in found].count("") == 1, "all are upon the first"
        with Embd(shards=1) as other:
            embctl(other, "restore", "--from", scratch("place"))
            assert digests(other) == digests(server)
        server.kill()


def case_a_cluster_that_lost_its_rows_does_not_take_their_place():
    rng = random.Random(23)
    with Scratch() as scratch:
        with serve(scratch) as server:
            create(server, TABLES)
            change(server, rng, n=60, tables=TABLES)
            before = digests(server)
            backup(server, scratch("place"), "--name", "first")
        shutil.rmtree(scratch("data"))
        with serve(scratch) as server:
            refused = ("is of another cluster", "--other-cluster")
            for flags in ((), ("--incremental",), ("--job", "other")):
                embctl(server, "backup", "--to", scratch("place"), *flags, code=REFUSED, says=refused[0])
            with archive(server, scratch("place"), "--figures", scratch("f")) as run:
                until(lambda: (failures(scratch("f")) or 0) > 1)
                assert any(refused[0] in line and refused[1] in line for line in run.lines)
            assert os.listdir(scratch("place")) == ["first"] and os.listdir(scratch("data")).count("first") == 0
            embctl(server, "restore", "--from", scratch("place"))
            assert digests(server) == before
            made = backup(server, scratch("place"), "--incremental", "--other-cluster", "--name", "second")
            assert made["kind"] == "base", "nothing is upon another cluster's"
            made = backup(server, scratch("place"), "--incremental", "--name", "third")
            assert made["base"] == "second"
        with Embd(shards=2) as other:
            embctl(other, "restore", "--from", scratch("place"), "--at", "first")
            assert digests(other) == before


def case_a_follower_that_is_promoted_goes_on_with_the_archive():
    rng, tables = random.Random(28), [("kept", "--dim", 1, "--set", "durability=buffered")]
    with Scratch() as scratch:
        os.mkdir(scratch("follower"))
        with serve(scratch) as server, Embd("--data-dir", scratch("follower"), "--follow", server.admin_path(), shards=2,
                                            waits=False) as follower:
            create(server, tables)
            change(server, rng, n=60, tables=tables)
            backup(server, scratch("place"), "--name", "first")
            change(server, rng, n=8, tables=tables)
            before = digests(server)
            admin = types.SimpleNamespace(addresses=[follower.admin_path()])  # which a follower answers
            until(lambda: digests(admin) == before)
            server.kill()
            subprocess.run([EMBCTL, "promote"], env=environment(admin), check=True, capture_output=True, timeout=60)
            with archive(follower, scratch("place")) as run:
                until(lambda: len(whole(scratch("place"))) > 3)
                assert ended(run) == OK
            assert [b["base"] for b in whole(scratch("place"))].count("") == 2, "the new server has no snapshot of the one before"
            assert digests(follower) == before
        with Embd() as other:
            embctl(other, "restore", "--from", scratch("place"))
            assert digests(other) == before


def case_what_is_damaged_is_passed_over_and_counted():
    rng = random.Random(24)
    with Scratch() as scratch, serve(scratch) as server:
        create(server, TABLES)
        with archive(server, scratch("place")) as run:
            while len(whole(scratch("place"))) < 4:
                change(server, rng, n=8, tables=TABLES)
                time.sleep(0.1)
            assert ended(run) == OK
        found = whole(scratch("place"))
        os.remove(scratch(f"place/{found[-1]['name']}/0/kept.0.part"))
        with Embd() as other:
            restored = embctl_json(other, "restore", "--from", scratch("place"))["restore"][0]
            assert restored["name"] == found[-2]["name"] and restored["damaged"] == 1
            with open(scratch(f"place/{found[-2]['name']}/0/kept.0.part"), "r+b") as file:
                file.seek(-1, os.SEEK_END)
                last = file.read(1)[0]
                file.seek(-1, os.SEEK_END)
                file.write(bytes([last ^ 1]))
            embctl(other, "restore", "--from", scratch("place"), "--replace", code=DAMAGED,
                   says=f"{found[-2]['name']}/0/kept.0.part")
            restored = embctl_json(other, "restore", "--from", scratch("place"), "--replace", "--at", found[-3]["time"])
            assert restored["restore"][0]["damaged"] == 0, "none of that time"
        os.rename(scratch(f"place/{found[-3]['name']}"), scratch(f"place/{found[-2]['name']}x"))
        embctl(None, "verify", scratch("place"), code=DAMAGED)
        with archive(server, scratch("place")) as run:  # it goes on upon what is whole
            until(lambda: len(whole(scratch("place"))) > 2)
            assert ended(run) == OK
        states = {b["name"]: b["state"] for b in listed(scratch("place")).values()}
        assert states[found[-1]["name"]] == "damaged", "it stays, and is told"


def case_backups_of_the_format_before_are_read():
    with Scratch() as scratch, serve(scratch) as server:
        create(server, TABLES)
        change(server, random.Random(25), n=60, tables=TABLES)
        backup(server, scratch("place"), "--name", "old")
        path = scratch("place/old/backup.json")
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        assert record["format"] == 2 and len(record["cluster"]) == 16 and record["cluster"] != "0" * 16
        del record["cluster"]
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**record, "format": 1}, file)
        reseal(path)
        made = backup(server, scratch("place"), "--incremental", "--name", "new")
        assert made["base"] == "old"
        embctl(None, "verify", scratch("place"))
        with Embd() as other:
            embctl(other, "restore", "--from", scratch("place"))
            assert digests(other) == digests(server)


def case_two_archives_of_one_place_both_end_whole():
    with Scratch() as scratch, serve(scratch) as server:
        create(server, TABLES)
        change(server, random.Random(26), n=60, tables=TABLES)
        with archive(server, scratch("place")) as a, archive(server, scratch("place")) as b, \
                archive(server, scratch("place"), "--job", "part", "--tables", "plain") as c:
            until(lambda: len([x for x in whole(scratch("place")) if x["job"] == "part"]) > 2
                  and len([x for x in whole(scratch("place")) if x["job"] == "backup"]) > 6)
            assert [ended(run) for run in (a, b, c)] == [OK] * 3
        embctl(None, "verify", scratch("place"))
        with Embd() as other:
            embctl(other, "restore", "--from", scratch("place"))
            assert digests(other) == digests(server)
            embctl(other, "restore", "--from", scratch("place"), "--job", "part", "--replace")
            assert digests(other) == digests(server)


def case_bases_come_as_often_as_they_are_wanted():
    with Scratch() as scratch, serve(scratch) as server:
        create(server, TABLES)
        with archive(server, scratch("place"), "--base-every", 3) as run:
            until(lambda: [b["base"] for b in whole(scratch("place"))].count("") >= 3)
            assert ended(run) == OK
        kinds = [bool(b["base"]) for b in whole(scratch("place"))]
        assert kinds.count(True) >= 2 and not kinds[0]
        for flags in (("--keep", 2), ("--incremental",), ("--name", "x")):
            embctl(server, "backup", "--to", scratch("place"), "--every", 1, *flags, code=USAGE, says="--every goes without")
        embctl(server, "backup", "list", "--to", scratch("place"), "--every", 1, code=USAGE, says="--every goes without list")


def child_of(run):
    """The process that makes a backup with all rows, where there is one."""
    with open(f"/proc/{run.pid}/task/{run.pid}/children", encoding="ascii") as file:
        return next(map(int, file.read().split()), None)


def stopped_child(run):
    """That process, standing still before it has done much."""
    until(lambda: child_of(run))
    child = child_of(run)
    os.kill(child, signal.SIGSTOP)
    return child


def case_increments_go_on_while_all_rows_are_copied():
    rng = random.Random(29)
    with Scratch() as scratch, serve(scratch) as server:
        create(server, TABLES)
        change(server, rng, n=60, tables=TABLES)
        with archive(server, scratch("place"), "--base-every", 5, "--records", 0) as run:
            child = stopped_child(run)
            n = len(whole(scratch("place")))
            change(server, rng, n=8, tables=TABLES)
            until(lambda: len(whole(scratch("place"))) >= n + 2)
            found = whole(scratch("place"))
            assert [b["base"] for b in found].count("") == 1, "they are upon the base before"
            os.kill(child, signal.SIGCONT)
            until(lambda: [b["base"] for b in whole(scratch("place"))].count("") == 2)
            base = [b for b in whole(scratch("place")) if not b["base"]][1]["name"]
            until(lambda: base in [b["base"] for b in whole(scratch("place"))])
            child = stopped_child(run)
            run.kill()
            os.kill(child, signal.SIGCONT)
            until(lambda: not os.path.exists(f"/proc/{child}"))  # it does not outlive the archive
        with archive(server, scratch("place"), "--base-every", 5, "--records", 0) as run:
            os.kill(stopped_child(run), signal.SIGKILL)
            until(lambda: any("a backup with all rows failed" in line for line in run.lines))
            n = len(whole(scratch("place")))
            until(lambda: len(whole(scratch("place"))) > n)
            assert ended(run) == OK
        embctl(None, "verify", scratch("place"))
        with Embd(shards=3) as other:
            embctl(other, "restore", "--from", scratch("place"))
            assert digests(other) == digests(server)


def case_a_bucket_that_fails_is_waited_for_and_read_once():
    if is_without_s3():
        print("skipped: embctl was built without libcurl")
        return
    stack, s3 = bucket()
    rng = random.Random(27)
    with stack, Scratch() as scratch, serve(scratch) as server:
        create(server, TABLES)
        with archive(server, PLACE, "--figures", scratch("f")) as run:
            turns = itertools.count()
            s3.fails = lambda method, key: 503 if next(turns) % 9 == 4 else None
            for _ in range(30):
                change(server, rng, n=8, tables=TABLES)
                time.sleep(0.1)
            until(lambda: len([line for line in run.lines if " rows" in line]) > 2)
            s3.fails = lambda method, key: 403  # an outage that no repetition of a request helps
            until(lambda: (failures(scratch("f")) or 0) > 1)
            change(server, rng, n=8, tables=TABLES)
            s3.fails = lambda method, key: 400 if key.endswith("plain.0.part") else None  # while files are copied
            n = len(run.lines)
            until(lambda: len([line for line in run.lines[n:] if "HTTP 400" in line]) > 1)
            s3.fails = lambda method, key: None
            until(lambda: failures(scratch("f")) == 0)
            n = len([line for line in run.lines if " rows" in line])
            until(lambda: len([line for line in run.lines if " rows" in line]) > n + 2)
            assert ended(run) == OK
        read = [key for method, key in s3.asked if method == "GET" and key.endswith("backup.json")]
        assert max(read.count(key) for key in read) <= 3, "what was read is known to each of its programs"
        found = embctl_json(None, "backup", "list", "--to", PLACE)["backups"]
        assert {b["state"] for b in found} == {"whole"}, "what was cut off is removed"
        embctl(None, "verify", PLACE)
        with Embd(shards=3) as other:
            embctl(other, "restore", "--from", PLACE)
            assert digests(other) == digests(server)


if __name__ == "__main__":
    run_cases({name: fn for name, fn in globals().items() if getattr(fn, "__module__", None) == "__main__"})
