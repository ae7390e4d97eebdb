"""What operators watch and steer with: top, hot, trace, table stats, shard, wait, config check, completion, help, colours."""
import os
import pty
import re
import socket
import struct
import subprocess
import sys
import threading
import time

import msgpack

from embctl import (EMBCTL, NOT_FOUND, UNREACHABLE, USAGE, Embd, Scratch, embctl, embctl_json, environment,
                    run_cases)
import wire


def commands(*path):
    """Every command there is, as lists of words."""
    text = subprocess.run([EMBCTL, *path, "--help"], capture_output=True, text=True, check=True).stdout
    for name in re.findall(r"^  (\w+) +\S", text.split("Commands:\n")[1].split("\n\n")[0], re.M):
        shown = subprocess.run([EMBCTL, *path, name, "--help"], capture_output=True, text=True, check=True).stdout
        if "Commands:\n" in shown:
            yield from commands(*path, name)
        else:
            yield [*path, name], shown


def fill(server):
    """Each shard: 2048 rows of `items`; the first key of a shard is pulled far more often than the others."""
    for shard in range(2):
        keys = wire.owned(2048, shard, 2)
        with wire.connect(server, shard) as peer:
            table = wire.create(peer, "items")
            wire.push(peer, table, keys, [1.0] * 4 * 2048)
            for _ in range(20):  # with the push, fewer requests than a shard remembers
                wire.pull(peer, table, keys * 8)
                wire.pull(peer, table, keys[:1] * 16384)


def case_every_command_has_an_example_in_its_help(_):
    found = list(commands())
    assert len(found) >= 24, found
    for words, shown in found:
        if words == ["bench"]:
            continue  # embd-bench's own
        assert re.search(r"^ *(Examples?:|.*embctl " + " ".join(words) + ")", shown, re.M), f"{words}: no example"


def case_the_lines_of_help_are_in_order(_):
    """Where its buffer ends, argp prints the indentation of a line before those that came before."""
    listed = [["bench"], *(words for words, _ in commands() if words != ["bench"]), [], ["table"], ["shard"]]
    shown = [subprocess.run([EMBCTL, *words, "--help"], capture_output=True, text=True, check=True).stdout for words in listed]
    shown.append(subprocess.run([os.path.join(os.path.dirname(EMBCTL), "embd"), "--help"], capture_output=True, text=True, check=True).stdout)
    for words, text in zip([*listed, ["embd"]], shown):
        options = text[re.search(r"^  (-\w, |    )--", text, re.M).start():text.index("Give this help list")]
        for line in filter(str.strip, options.splitlines()):
            assert len(line) - len(line.lstrip()) in (1, 2, 6, 29), (words, line)
        assert "\n\n\n" not in text, words


def answer_all(listener, say):
    """A server that answers say(method), an (error, result), to whoever comes."""
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        unpacker = msgpack.Unpacker(raw=False)
        while data := peer.recv(4096):
            unpacker.feed(data)
            for _, msgid, method, _ in unpacker:
                peer.sendall(msgpack.packb([1, msgid, *say(method)]))


def case_what_a_server_says_does_not_steer_the_terminal(_):
    evil = "\x1b]0;owned\x07\x1b[2J\r\n\x7f\u009b31m"
    hello = {"protocol": 1, "server": evil, "features": [], "shard": 0, "shards": 1, "frame_bytes": 64 << 20,
             "header_bytes": 4096, "keys": 4 << 20, "requests": 64}
    for denies in (True, False):
        listener = socket.create_server(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % listener.getsockname()[1]

        def say(method, address=address, denies=denies):
            if method == "hello" and not denies:
                return None, [hello]
            if method == "cluster":
                return None, [{"name": evil, "version": 1, "shard": 0, "shards": [{"address": address, "admin": evil}]}]
            return [20, evil], None
        threading.Thread(target=answer_all, args=(listener, say), daemon=True).start()
        for command in ("ping", "cluster", "table list", "stats"):
            done = subprocess.run([EMBCTL, "--servers", address, "--deadline", "5", *command.split()],
                                  capture_output=True, timeout=30, check=False, env=environment(None))
            shown = (done.stdout + done.stderr).decode()
            assert shown, command
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]", shown), (command, shown)
        listener.close()


def case_a_server_that_sends_notifications_without_end_is_left(_):
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        peer, _ = listener.accept()
        notices = msgpack.packb([2, "news", []]) * 100000
        try:
            while True:
                peer.sendall(notices)
        except OSError:
            peer.close()
    threading.Thread(target=serve, daemon=True).start()
    done = subprocess.run([EMBCTL, "--servers", "127.0.0.1:%d" % listener.getsockname()[1], "--deadline", "2", "ping"],
                          capture_output=True, text=True, timeout=20, check=False, env=environment(None))
    listener.close()
    assert done.returncode == 1 and "notifications without end" in done.stderr, done


def answers(address, **more):
    """What a fake server of one shard says; `more` are answers of other methods."""
    hello = {"protocol": 1, "server": "fake", "features": [], "shard": 0, "shards": 1, "frame_bytes": 64 << 20,
             "header_bytes": 4096, "keys": 4 << 20, "requests": 64}
    cluster = {"name": "fake", "version": 1, "shard": 0, "shards": [{"address": address, "admin": ""}]}
    known = {"hello": hello, "ping": {}, "cluster": cluster, **more}
    return lambda method: (None, [known[method]]) if method in known else ([4, f"unknown method {method}"], None)


def case_times_are_read_as_people_say_them(_):
    for micros, shown in ((59_990_000, "59.99 s"), (219_420_000, "3 min 39 s"), (7_500_000_000, "2 h 5 min"),
                          (965_000_000_000, "11 d 4 h")):
        listener = socket.create_server(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % listener.getsockname()[1]
        say = answers(address, stats={"stats": {"uptime_us": micros}, "tables": []})
        threading.Thread(target=answer_all, args=(listener, say), daemon=True).start()
        assert shown in embctl(None, "-s", address, "stats"), shown
        assert embctl_json(None, "-s", address, "stats")["stats"][0]["value"] == micros
        listener.close()


def case_a_server_that_resets_the_connection_is_told_so(_):
    listener = socket.create_server(("127.0.0.1", 0))

    def reset():
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            peer.recv(1)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
    threading.Thread(target=reset, daemon=True).start()
    embctl(None, "-s", "127.0.0.1:%d" % listener.getsockname()[1], "--deadline", 1, "ping", code=UNREACHABLE,
           says="server reset the connection; it may be shutting down; if it uses TLS, set EMBD_TLS_CA")
    listener.close()


def case_trace_says_that_there_is_nothing_yet(_):
    with Embd() as server:
        assert "No pull or push has been traced yet" in embctl(server, "trace")
        assert embctl_json(server, "trace") == {"requests": []}


def case_top_shows_rates_of_shards_and_tables(server):
    shown = embctl(server, "top", "--count", 1, "--interval", 0.1)
    assert re.search(r"^0 +127\.0\.0\.1:\d+ +ready ", shown, re.M), shown
    assert re.search(r"^items +4,096 ", shown, re.M), shown
    assert re.search(r"^SHARD +ADDRESS +STATE +REQUESTS/S +KEYS PULLED/S +KEYS PUSHED/S +IN/S +OUT/S ", shown, re.M), shown
    view = embctl_json(server, "top", "-c", 1, "-i", 0.1)
    assert [s["state"] for s in view["shards"]] == ["ready", "ready"]
    assert view["tables"][0]["rows"] == 4096
    embctl(server, "top", "--count", 0, code=USAGE, says="--count")
    embctl(server, "top", "--interval", "soon", code=USAGE, says="soon")


def case_a_server_that_stood_still_is_seen_in_top(_):
    with Embd(shards=2) as server:
        server.pause()
        time.sleep(0.7)
        server.go_on()
        end = time.monotonic() + 20
        while not all(shard.get("late_us", 0) > 500_000 for shard in embctl_json(server, "top", "-c1", "-i0.1")["shards"]):
            assert time.monotonic() < end, embctl(server, "top", "-c1", "-i0.1")
        worst = re.search(r" late_longest +(\S+ m?s) +(\S+ m?s) +(\S+ m?s)", embctl(server, "stats", "--all"))
        assert worst[3] in worst.groups()[:2], worst[0]


def case_hot_finds_the_key_that_is_asked_for_most(server):
    keys = embctl_json(server, "hot", "items", "-n", 5)["keys"]
    assert len(keys) == 5, keys
    assert {(k["shard"], k["key"]) for k in keys[:2]} == {(s, wire.owned(1, s, 2)[0]) for s in range(2)}, keys
    share = keys[0]["share"] + keys[1]["share"]
    wanted = (16384 + 8) / (2 * 16384)
    assert abs(share - wanted) < 0.1, (share, wanted)
    embctl(server, "hot", "nothing", code=NOT_FOUND, says="nothing")
    embctl(server, "hot", "items", "-n", 0, code=USAGE, says="--keys")


def case_trace_shows_stages_that_add_up(server):
    requests = embctl_json(server, "trace", "--slowest", "-n", 100)["requests"]
    assert {r["method"] for r in requests} == {"pull", "push"}
    for r in requests:
        stages = sum(r[f"{name}_us"] for name in ("queue", "decode", "store", "encode", "send"))
        assert abs(stages - r["total_us"]) <= 0.001 * stages + 0.01, r
    assert [r["total_us"] for r in requests] == sorted((r["total_us"] for r in requests), reverse=True)
    ages = [r["age_us"] for r in embctl_json(server, "trace")["requests"]]
    assert ages == sorted(ages)


def case_table_stats_adds_shards_up(server):
    table, = embctl_json(server, "table", "stats", "items")["tables"]
    assert (table["rows"], table["steps"], table["imbalance"]) == (4096, 1, 1)
    assert table["bytes_per_row"] == (table["row_bytes"] + table["index_bytes"]) // 4096
    embctl(server, "table", "stats", "nothing", code=NOT_FOUND, says="nothing")


def case_wait_and_shard_list_tell_ready_from_silent(server):
    embctl(server, "wait", "--ready", "--timeout", 5)
    states = embctl_json(server, "shard", "list")["shards"]
    assert [s["state"] for s in states] == ["ready", "ready"]
    embctl(server, "-s", "127.0.0.1:1", "wait", "-t", 0, code=UNREACHABLE, says="127.0.0.1:1")
    embctl(server, "-s", "nowhere", "wait", "-t", 0, code=USAGE, says="nowhere")


def case_config_check_reads_a_file_as_the_server_does(_):
    with Scratch() as path:
        with open(path("good.yaml"), "w", encoding="ascii") as out:
            out.write('cluster: {servers: [{listen: "127.0.0.1:7700", shards: 2}, {listen: "127.0.0.1:7800"}]}\n')
        assert embctl(None, "config", "check", path("good.yaml")).startswith("embctl: ")
        assert "2 servers, 3 shards" in embctl(None, "config", "check", path("good.yaml"))
        with open(path("bad.yaml"), "w", encoding="ascii") as out:
            out.write("shards: 2\nlimits: 3\n")
        embctl(None, "config", "check", path("bad.yaml"), code=2, says="embctl: " + path("bad.yaml:2:1"))
        embctl(None, "config", "check", path("missing.yaml"), code=2, says="missing.yaml")


def complete(server, *words):
    """What bash offers for the last of `words`."""
    script = (f"source <({EMBCTL} completion bash); COMP_WORDS=({' '.join(map(repr, words))}); "
              "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _embctl; printf '%s\\n' \"${COMPREPLY[@]}\"")
    path = os.path.dirname(EMBCTL) + ":" + os.environ["PATH"]
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=20, check=True,
                          env=environment(server, PATH=path))
    assert done.stderr == "", done.stderr
    return done.stdout.split()


def case_completion_offers_commands_options_and_tables(server):
    assert complete(server, "embctl", "ta") == ["table", "tail"]
    assert set(complete(server, "embctl", "shard", "")) == {"list", "add", "retire", "vshards", "move", "drain"}
    assert complete(server, "embctl", "--servers", server.addresses[0], "hot", "it") == ["items"]
    assert complete(server, "embctl", "trace", "--sl") == ["--slowest"]
    assert complete(server, "embctl", "completion", "z") == ["zsh"]
    assert embctl(None, "completion", "zsh").startswith("#compdef embctl\n")
    embctl(None, "completion", "fish", code=USAGE, says="fish")


def on_terminal(server, *arguments, **more):
    """What embctl writes to a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([EMBCTL, *arguments], stdout=theirs, env=environment(server, TERM="xterm", **more))
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the terminal is closed at the other end
            part = b""
        if not part:
            break
        text += part
    os.close(ours)
    assert process.wait() == 0
    return text


def case_colours_are_for_terminals_and_NO_COLOR_is_heeded(server):
    assert b"\033[" in on_terminal(server, "shard", "list")
    assert b"\033[" not in on_terminal(server, "shard", "list", NO_COLOR="1")
    assert "\033[" not in embctl(server, "shard", "list")


def case_shard_drain_ends_one_process_and_is_last(server):
    embctl(server, "shard", "drain", 9, code=USAGE, says="0 to 1")
    embctl(server, "shard", "drain", 1)
    assert server.wait() == 0
    embctl(server, "top", "-c", 1, "--deadline", 1, code=UNREACHABLE)


if __name__ == "__main__":
    with Embd(shards=2) as main_server:
        fill(main_server)
        run_cases(globals(), main_server)
    sys.exit(0)
