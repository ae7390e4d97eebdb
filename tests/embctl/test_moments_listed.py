"""embctl backup list shows which moments restore --at brings back: from a backup on, as far as records go; one span over backups that
records lead to; a gap where a file of records is lost, until the next backup. Where no records lie there are no spans. What an archive had of a journal
whose compaction was faster is a span."""
import datetime
import os
import random
import re
import signal
import time

from embctl import OK, Scratch, embctl, embctl_json, run_cases
from test_archive import archive, ended, until, whole
from test_backup import backup
from test_changes import SHARDS, change, serve
from test_moments import RARELY, TABLES, archived, create, digests_beside, files_of, moment, records_of, restored
from wire import Wire


def moments(place, *flags):
    return embctl_json(None, "backup", "list", "--to", place, *flags)["moments"]


def seconds(text):
    assert text.endswith("Z"), text
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def begun(place):
    return {seconds(b["time"]) for b in whole(place)}


def push_for_files(server, place, rng, n):
    """Until there are n more files of records of each shard."""
    wanted = [len(files_of(place, shard)) + n for shard in range(SHARDS)]
    while any(len(files_of(place, shard)) < wanted[shard] for shard in range(SHARDS)):
        change(server, rng, n=8, tables=TABLES)
        time.sleep(0.05)


def case_spans_go_over_backups_and_end_at_lost_records():
    rng = random.Random(51)
    with Scratch() as scratch, serve(scratch) as server:
        place = scratch("place")
        create(server)
        backup(server, place, "--name", "first")
        assert moments(place) == [], "no records lie there"
        assert "FROM" not in embctl(None, "backup", "list", "--to", place)
        begins = time.time()
        with archive(server, place, *RARELY, every=3600) as keeper:
            push_for_files(server, place, rng, 4)
            one = moment(server, place)
            assert ended(keeper) == OK
        span, = moments(place)
        assert seconds(span["from"]) in begun(place) and span.get("gap_us") is None, span  # nobody pushed between the first two
        assert begins < seconds(span["to"]) <= time.time()
        assert span["span_us"] == round((seconds(span["to"]) - seconds(span["from"])) * 1e6)
        time.sleep(1.1)  # a backup's time is of whole seconds
        backup(server, place, "--name", "second")
        with archive(server, place, *RARELY, every=3600) as keeper:
            push_for_files(server, place, rng, 3)
            two = moment(server, place)
            assert ended(keeper) == OK
        joined, = moments(place)
        assert joined["from"] == span["from"] and joined["to"] > span["to"]
        assert moments(place, "--job", "other") == []
        lost = files_of(place, 0)[1]
        os.remove(lost)
        before, behind = moments(place)
        assert before["from"] == span["from"] and before["to"] < span["to"]
        assert behind["from"] > before["to"] and behind["to"] == joined["to"]
        assert seconds(behind["from"]) in begun(place)
        assert behind["gap_us"] == round((seconds(behind["from"]) - seconds(before["to"])) * 1e6)
        table = embctl(None, "backup", "list", "--to", place)
        assert all(word in table for word in ("FROM", "TO", "GAP", before["from"], behind["to"])), table
        assert one[2] != two[2] == digests_beside(server)
        assert restored(place, behind["to"].rstrip("Z"), 3)[0] == two[2]


def case_a_damaged_file_ends_a_span():
    rng = random.Random(52)
    with Scratch() as scratch, serve(scratch) as server:
        place = scratch("place")
        create(server)
        with archive(server, place, *RARELY, every=3600) as keeper:
            until(lambda: whole(place))
            push_for_files(server, place, rng, 3)
            assert ended(keeper) == OK
        whole_span, = moments(place)
        for shard in range(SHARDS):
            with open(files_of(place, shard)[-1], "r+b") as file:
                file.seek(200)
                file.write(b"damaged")
        span, = moments(place)
        assert span["from"] == whole_span["from"] and span["to"] < whole_span["to"]


def child_of(keeper):
    """The process that keeps records."""
    found = []

    def is_there():
        with open(f"/proc/{keeper.pid}/task/{keeper.pid}/children", encoding="ascii") as file:
            found[:] = file.read().split()
        return len(found) == 1

    until(is_there)
    return int(found[0])


def bases(server):
    found = []
    for shard in range(SHARDS):
        with Wire(server.admin_path(shard)) as wire:
            found.append(wire.call("stats", {})[0]["stats"]["journal_bases"])
    return found


def compacted_behind(server, place, rng, wait_s):
    """A moment, and whether the archive had its records when the journals were compacted twice while it stood still."""
    n = len(whole(place))
    with archive(server, place, "--records", 3600, every=3600) as keeper:
        until(lambda: len(whole(place)) > n)
        child = child_of(keeper)
        for _ in range(4):
            change(server, rng, n=8, tables=TABLES)
        positions, expected = records_of(server), digests_beside(server)
        time.sleep(wait_s)
        os.kill(child, signal.SIGSTOP)
        wanted = [had + 2 for had in bases(server)]
        assert all(there < wanted for there, wanted in zip(archived(place), positions)), "they are in memory"
        until(lambda: change(server, rng, n=100, tables=TABLES) or all(now >= least for now, least in zip(bases(server), wanted)))
        os.kill(child, signal.SIGCONT)
        until(lambda: any("has no more the records" in line for line in keeper.lines))
        assert ended(keeper) == OK
    return positions, expected, all(there >= wanted for there, wanted in zip(archived(place), positions))


def case_records_that_came_are_kept_where_a_compaction_was_faster():
    rng, had, wait_s = random.Random(53), False, 1
    with Scratch() as scratch, serve(scratch, ["--journal-limit", "256K"]) as server:
        create(server)
        while not had and wait_s < 20:  # where the host is slow the archive has not asked yet
            place = scratch(f"place{wait_s}")
            positions, expected, had = compacted_behind(server, place, rng, wait_s)
            wait_s *= 2
        assert had, "it has lost what it had"
        assert restored(place, "records:" + ",".join(map(str, positions)), 3)[0] == expected


def case_the_figures_say_how_far_records_are_between_backups():
    def covers():
        with open(figures, encoding="utf-8") as file:
            found = dict(re.findall(r"^(\w+)\{.*\} (\S+)$", file.read(), re.MULTILINE))
        return found, float(found["embd_backup_records_covers_timestamp_seconds"])

    with Scratch() as scratch, serve(scratch) as server:
        place, figures = scratch("place"), scratch("figures")
        create(server)
        with archive(server, place, *RARELY, "--figures", figures, every=3600) as keeper:
            until(lambda: os.path.exists(figures))
            first = covers()[0]
            until(lambda: covers()[1] > 0)
            then = covers()[1]
            until(lambda: covers()[1] > then)  # though nobody pushes
            now, last = covers()
            assert abs(last - time.time()) < 60
            same = [name for name in now if name != "embd_backup_records_covers_timestamp_seconds"]
            assert {name: now[name] for name in same} == {name: first[name] for name in same} and now["embd_backup_failed"] == "0"
            assert ended(keeper) == OK


if __name__ == "__main__":
    run_cases({name: fn for name, fn in globals().items() if getattr(fn, "__module__", None) == "__main__"})
