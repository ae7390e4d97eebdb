"""embctl cluster, get and stats answer for the shards that live, and name those that do not."""
import json
import os
import subprocess
import sys

from embctl import EMBCTL, UNREACHABLE, embctl, embctl_json, environment, run_cases
from listed import Listed
import wire

KEYS = [*wire.owned(3, 0, 3), *wire.owned(3, 1, 3), *wire.owned(3, 2, 3)]
DEAD = KEYS[3:6]  # of shard 1


def partly(server, *arguments):
    """Exit code 3; what stands on stdout as JSON, and on stderr."""
    done = subprocess.run([EMBCTL, *map(str, arguments), "-o", "json", "--deadline", "1"], capture_output=True, text=True,
                          timeout=60, env=environment(server), check=False)
    assert done.returncode == UNREACHABLE and done.stdout, done
    return json.loads(done.stdout), done.stderr


def case_all_answer(cluster):
    server = cluster.running["a"]
    assert [s["state"] for s in embctl_json(server, "cluster")["shards"]] == ["ready"] * 3
    stats = embctl_json(server, "stats")
    assert stats["silent"] == [] and {s["shard"] for s in stats["stats"]} == {0, 1, 2}
    assert [r["status"] for r in embctl_json(server, "get", "items", *KEYS)["rows"]] == ["hit"] * 9
    cluster.kill("b")


def case_cluster_lists_the_dead_one_as_silent(cluster):
    server = cluster.running["a"]
    listed, said = partly(server, "cluster")
    assert [s["state"] for s in listed["shards"]] == ["ready", "silent", "ready"], listed
    assert [s["rows"] for s in listed["shards"]] == [3, None, 3], listed
    assert f"{cluster.address('b')}: shard 1 of 3: not reached" in said, said
    text = embctl(server, "cluster", "--deadline", 1, code=UNREACHABLE, says="shard 1")
    assert "silent" in text and text.count("ready") == 2, text


def case_stats_has_the_figures_of_the_others(cluster):
    server = cluster.running["a"]
    stats, said = partly(server, "stats")
    assert stats["silent"] == [{"shard": 1}] and {s["shard"] for s in stats["stats"]} == {0, 2}, stats["silent"]
    assert f"{cluster.address('b')}: shard 1 of 3: not reached" in said, said
    assert "rows" in embctl(server, "stats", "--deadline", 1, "-t", "items", code=UNREACHABLE, says="shard 1")


def case_shard_list_has_the_state_of_the_others(cluster):
    listed, _ = partly(cluster.running["a"], "shard", "list")
    assert [s["state"] for s in listed["shards"]] == ["ready", "silent", "ready"], listed


def case_get_has_the_rows_of_the_others(cluster):
    server = cluster.running["c"]
    rows, said = partly(server, "get", "items", *KEYS)
    assert [r["status"] for r in rows["rows"]] == ["hit"] * 3 + ["silent"] * 3 + ["hit"] * 3, rows
    assert [r["values"] for r in rows["rows"]] == [[-0.5] * 4] * 3 + [None] * 3 + [[-0.5] * 4] * 3, rows
    assert cluster.address("b") in said and said.count("\n") == 1, said
    embctl(server, "get", "items", KEYS[0], "--deadline", 1, says=None)
    embctl(server, "get", "items", DEAD[0], "--deadline", 1, code=UNREACHABLE, says=cluster.address("b"))


def case_what_needs_all_shards_names_the_dead_one(cluster):
    embctl(cluster.running["a"], "shard", "drain", "1", "--deadline", 1, code=UNREACHABLE, says="shard 1 of 3: not reached")
    for words in ("table", "list"), ("digest",), ("rebalance",):
        embctl(cluster.running["a"], *words, "--deadline", 1, code=UNREACHABLE, says=f"{cluster.address('b')}: shard 1 of 3: not reached")


def case_drain_asks_those_that_live(cluster):
    """All or none of them: without an admin socket of one that lives, nobody is asked."""
    server, port = cluster.running["a"], cluster.address("c").split(":")[1]
    socket = cluster.path(f"admin/{port}.sock")
    os.rename(socket, socket + ".away")
    embctl(server, "drain", code=UNREACHABLE, says=socket)
    assert [s["state"] for s in partly(server, "cluster")[0]["shards"]] == ["ready", "silent", "ready"]
    os.rename(socket + ".away", socket)
    embctl(server, "drain", code=UNREACHABLE, says=f"{cluster.address('b')}: shard 1 of 3: not reached")
    assert [cluster.running[name].wait() for name in "ac"] == [0, 0]


def fill(cluster):
    for i, name in enumerate("abc"):
        with wire.connect(cluster.running[name]) as peer:
            table = wire.create(peer, "items", value=0.0)
            wire.push(peer, table, KEYS[3 * i:3 * i + 3], [1.0] * 4 * 3)


if __name__ == "__main__":
    with Listed("abc") as servers:
        for server_name in "abc":
            servers.start(server_name)
        fill(servers)
        run_cases(globals(), servers)
    sys.exit(0)
