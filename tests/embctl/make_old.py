"""Makes the fixtures of test_old.py with the server there is now: `EMBD_BIN=build/w/bin make_old.py FOLDER`. To be run
once for each version of a format, before the next one; what is in the tree stays as it is."""
import json
import os
import shutil
import struct
import sys

import partfiles
from embctl import Embd, Scratch, embctl
from wire import Wire, connect, constant_schema, create, floats, keys, open_stream, push

WRITER = {"high": 7, "low": 2**64 - 1, "stream": 3}
TABLES = [
    ("items", "--dim", 3, "--combiner", "concat", "--optimizer", "adagrad", "--lr", 0.5),
    ("slotted", "--dim", 2, "--slots", 3, "--partition", "slot", "--optimizer", "rowwise_adagrad", "--dtype", "f16",
     "--admit-after", 2),
    ("recent", "--dim", 2, "--combiner", "concat", "--optimizer", "adam", "--capacity", 4, "--on-full", "evict_lru"),
]


def rows(path):
    """What partfiles.read says of a directory, for JSON: "slot key" -> [row and state in hexadecimal]."""
    name = lambda place: f"{place[0]} {place[1]}"
    return {table: {"step": t["step"], "candidates": {name(k): n for k, n in sorted(t["candidates"].items())},
                    "rows": {name(k): [v.hex() for v in values] for k, values in sorted(t["rows"].items())}}
            for table, t in partfiles.read(path).items()}


def push_slots(wire, table, key, gradient):
    """The same key in each of three slots."""
    wire.call("push", {"parts": [{"table": table, "keys": 3, "slots": True}]}, keys([key] * 3),
              struct.pack("<3H", 0, 1, 2), floats([gradient] * 6))


def numbered_push(wire, table, sequence, key_list, gradients):
    part = {"table": table, "keys": len(key_list)}
    return wire.call("push", {"parts": [part], "writer": {**WRITER, "sequence": sequence}}, keys(key_list),
                     floats(gradients))


def journaled_push(wire, table, sequence, key_list):
    return numbered_push(wire, table, sequence, key_list, [float(sequence), -1.0] * len(key_list))


def make_journal(folder):
    os.mkdir(folder)
    with Embd("--data-dir", folder) as server:
        with Wire(("127.0.0.1", server.port())) as wire:
            gone = create(wire, "gone", 1, durability="buffered")
            push(wire, gone, [1], [1.0])
            wire.call("table_drop", {"name": "gone"})
            kept = create(wire, "kept", 2, durability="durable")
            open_stream(wire, WRITER, True)
            for sequence in range(1, 4):
                journaled_push(wire, kept, sequence, [5, 6, 2**64 - sequence])
            wire.call("erase", {"parts": [{"table": kept, "keys": 1}]}, keys([6]))
        embctl(server, "dump", "--all", folder + ".dump")


def make_strays(folder):
    """A data directory of two shards that took keys of each other, as servers did until they refused them (0.1.0-g)."""
    os.makedirs(os.path.join(folder, "strays"))
    with Embd("--data-dir", os.path.join(folder, "strays"), shards=2) as server:
        for shard in range(2):
            with connect(server, shard) as wire:
                for name, durability in (("kept", "buffered"), ("lost", "snapshot")):
                    table = create(wire, name, 1, partition="modulo", durability=durability)
                    push(wire, table, [shard, shard + 11], [1.0, -1.0])
        embctl(server, "snapshot", "s1")
        embctl(server, "dump", "--all", folder + ".dump")
    with open(os.path.join(folder, "expected.json"), "w", encoding="ascii") as file:
        json.dump({"strays": rows(folder + ".dump")}, file, indent=1)
        file.write("\n")
    shutil.rmtree(folder + ".dump")


def main(folder):
    with Scratch() as scratch:
        os.mkdir(scratch("data"))
        with open(scratch("step"), "w", encoding="ascii") as file:
            file.write("9000\n")
        with Embd("--data-dir", scratch("data")) as server:
            for name, *flags in TABLES:
                embctl(server, "table", "create", name, *flags)
            with Wire(("127.0.0.1", server.port())) as wire:
                ids = {t["name"]: t["id"] for t in wire.call("tables")[0]["tables"]}
                for step in range(3):
                    push(wire, ids["items"], range(5), [step - 0.5] * 15)
                    push(wire, ids["recent"], range(step, step + 3), [1.0, -1.0] * 3)
                for key in (1, 1, 2):
                    push_slots(wire, ids["slotted"], key, 0.25)
                open_stream(wire, WRITER, False)
                for sequence in (1, 2):
                    numbered_push(wire, ids["items"], sequence, [4], [0.25] * 3)
            embctl(server, "dump", "--all", os.path.join(folder, "dump"))
            embctl(server, "snapshot", "snapshot", "--blob", "step=" + scratch("step"))
            with Wire(("127.0.0.1", server.port())) as wire:
                push(wire, ids["recent"], [7], [1.0, 1.0])
                push_slots(wire, ids["slotted"], 2, 0.5)
                wire.call("erase", {"parts": [{"table": ids["items"], "keys": 1}]}, keys([3]))
                numbered_push(wire, ids["items"], 3, [4, 5], [0.25] * 6)
            embctl(server, "snapshot", "changed", "--incremental", "snapshot")
            embctl(server, "dump", "--all", scratch("changed"))
            for name in ("snapshot", "changed"):
                shutil.move(scratch("data/" + name), os.path.join(folder, name))
        make_journal(scratch("journal"))
        shutil.copytree(scratch("journal"), os.path.join(folder, "journal"))
        expected = {"copies": rows(os.path.join(folder, "dump")), "journal": rows(scratch("journal.dump")),
                    "changed": rows(scratch("changed")), "last push": {"snapshot": 2, "changed": 3}}
    with open(os.path.join(folder, "expected.json"), "w", encoding="ascii") as file:
        json.dump(expected, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
