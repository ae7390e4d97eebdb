"""Tables by the thousand, as models with a table for each of their features have them: listed, counted, pushed to, in snapshots,
restored by a start, dumped, and loaded on another number of shards."""
import os
import re
import urllib.request

from embctl import REFUSED, Embd, Scratch, embctl, embctl_json, run_cases
from wire import connect, create, owned, pull, push

MANY, MOST = 1500, 4096


def name(number):
    return f"feature-{number:04}"


def tables(server):
    return [table["name"] for table in embctl_json(server, "table", "list", timeout=200)["tables"]]


def fill(server, n):
    """Each table's key 7 has its own row."""
    with connect(server, timeout=200) as peer:
        for number in range(n):
            table = create(peer, name(number), 2)
            push(peer, table, [7], [number, -number])


def check(server, shards, n):
    """Key 7 of every table, of the shard that has it."""
    shard = next(s for s in range(shards) if 7 in owned(100, s, shards))
    with connect(server, shard, timeout=200) as peer:
        ids = {table["name"]: table["id"] for table in peer.call("tables", {})[0]["tables"]}
        assert list(ids) == [name(number) for number in range(n)], len(ids)
        for number in range(n):
            row = pull(peer, ids[name(number)], [7])
            assert row == [1 - number / 2, 1 + number / 2], (number, row)


def case_a_thousand_and_more_tables_are_kept_and_moved():
    with Scratch() as scratch:
        os.mkdir(scratch("data"))
        flags = "--data-dir", scratch("data"), "--restore", "newest"
        with Embd(*flags) as server:
            fill(server, MANY)
            check(server, 1, MANY)
            assert tables(server) == [name(number) for number in range(MANY)]
            stats = embctl_json(server, "stats", timeout=200)
            assert name(MANY - 1) in str(stats)
            embctl(server, "snapshot", "all", timeout=300)
            embctl(server, "dump", "--all", scratch("dump"), timeout=300)
        with Embd(*flags) as server:
            check(server, 1, MANY)
        with Embd(shards=2) as server:
            embctl(server, "load", scratch("dump"), timeout=300)
            check(server, 2, MANY)
            embctl(server, "table", "drop", name(3))
            assert len(tables(server)) == MANY - 1


def case_a_shard_takes_4096_tables_and_shows_them_all():
    with Embd("--http", "127.0.0.1:0") as server:
        address = re.fullmatch(r"embd: http on (\S+)\n", server.process.stdout.readline()).group(1)
        fill(server, MOST)
        embctl(server, "table", "create", "one-more", "--dim", 2, code=REFUSED, says="the limit is 4096")
        assert len(tables(server)) == MOST
        assert len(str(embctl_json(server, "stats", timeout=200))) > 100 * MOST
        page = urllib.request.urlopen(f"http://{address}/metrics", timeout=200).read().decode()
        assert sum(line.startswith("embd_table_rows{") for line in page.splitlines()) == MOST, page[-500:]
        check(server, 1, MOST)


if __name__ == "__main__":
    run_cases(globals())
