"""Damaged directories: whatever byte differs, verify and load say so with exit code 6, name the file, and a load has
changed nothing."""
import json
import os
import random
import shutil

import partfiles
from embctl import DAMAGED, FAILED, REFUSED, Embd, Scratch, embctl, embctl_json, run_cases
from test_copies import random_blocks
from wire import connect, create, owned, push


def make(path):
    """A directory of one small table, 'items', in two parts."""
    with Embd() as server:
        embctl(server, "table", "create", "items", "--dim", 3, "--optimizer", "adagrad", "--admit-after", 2)
        embctl(server, "dump", "--all", path + "-one")
    partfiles.fill(path + "-one", random_blocks, step=5)
    with Embd(shards=2) as server:
        embctl(server, "load", path + "-one")
        embctl(server, "dump", "--all", path)


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << at % 8]))


class Copy:
    """A copy of a directory to damage."""

    def __init__(self, scratch):
        self.good, self.path = scratch("good"), scratch("bad")

    def __enter__(self):
        shutil.copytree(self.good, self.path)
        return lambda name: os.path.join(self.path, name)

    def __exit__(self, kind, value, trace):
        shutil.rmtree(self.path)


def refused(server, scratch, says, code=DAMAGED):
    embctl(None, "verify", scratch("bad"), code=code, says=says)
    embctl(server, "load", scratch("bad"), code=code, says=says)
    assert embctl_json(server, "table", "list") == {"tables": []}, "nothing has changed"


def edit(path, change):
    with open(path, encoding="utf-8") as file:
        manifest = json.load(file)
    del manifest["xxh3"]
    change(manifest)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(manifest, file)


def case_any_flipped_byte_of_a_part_is_found(server, scratch):
    size = os.path.getsize(scratch("good/items.1.part"))
    rng = random.Random(1)
    places = [0, 8, 12, 30, 40, 56, 64, 68, 72, 80, 88, size - 1, size - 9, size - 17, size - 24]
    for at in places + [rng.randrange(size) for _ in range(20)]:
        with Copy(scratch) as bad:
            flip(bad("items.1.part"), at)
            embctl(None, "verify", scratch("bad"), code=DAMAGED, says="items.1.part")
    with Copy(scratch) as bad:
        flip(bad("items.1.part"), size // 2)
        refused(server, scratch, "items.1.part")


def case_a_fifo_in_the_place_of_a_file_holds_up_nothing(server, scratch):
    for name in ("manifest.json", "items.0.part"):
        with Copy(scratch) as bad:
            os.unlink(bad(name))
            os.mkfifo(bad(name))
            refused(server, scratch, f"{name}: is not a regular file")
            embctl(None, "inspect", "-n", 1, scratch("bad"), code=DAMAGED, says=f"{name}: is not a regular file")


def case_a_step_beyond_the_limit_is_refused(server, scratch):
    with Copy(scratch) as bad:
        edit(bad("manifest.json"), lambda m: m["tables"][0].update(step=2**47 + 1))
        embctl(None, "verify", scratch("bad"))
        embctl(server, "load", scratch("bad"), code=REFUSED,
               says=f"table 'items' has step {2**47 + 1}, the limit is {2**47}")
        assert embctl_json(server, "table", "list") == {"tables": []}, "nothing has changed"


def case_a_part_that_is_missing_short_or_long_is_found(server, scratch):
    with Copy(scratch) as bad:
        os.unlink(bad("items.0.part"))
        refused(server, scratch, "items.0.part: is missing")
    for change in (-1, -24, 1):
        with Copy(scratch) as bad:
            os.truncate(bad("items.0.part"), os.path.getsize(bad("items.0.part")) + change)
            refused(server, scratch, "items.0.part")
    with Copy(scratch) as bad:
        os.unlink(bad("items.0.part"))
        os.mkdir(bad("items.0.part"))
        refused(server, scratch, "items.0.part")


def case_parts_that_changed_places_are_found(server, scratch):
    with Copy(scratch) as bad:
        os.rename(bad("items.0.part"), bad("x"))
        os.rename(bad("items.1.part"), bad("items.0.part"))
        os.rename(bad("x"), bad("items.1.part"))
        refused(server, scratch, "items.0.part")


def case_a_part_that_fits_itself_but_not_the_manifest_is_found(server, scratch):
    for name in ("rows", "candidates", "bytes"):
        with Copy(scratch) as bad:
            def add_one(manifest, field=name):
                manifest["tables"][0]["parts"][1][field] += 1
            edit(bad("manifest.json"), add_one)
            refused(server, scratch, "items.1.part")
    with Copy(scratch) as bad:
        edit(bad("manifest.json"), lambda m: m["tables"][0]["parts"][1].update(xxh3="0" * 16))
        refused(server, scratch, "items.1.part: checksum")


def case_the_manifest_has_to_be_whole(server, scratch):
    size = os.path.getsize(scratch("good/manifest.json"))
    for length in (0, 1, size // 2, size - 3):
        with Copy(scratch) as bad:
            os.truncate(bad("manifest.json"), length)
            refused(server, scratch, "manifest.json")
    with Copy(scratch) as bad:
        os.unlink(bad("manifest.json"))
        refused(server, scratch, "no manifest.json")
    with Copy(scratch) as bad:
        edit(bad("manifest.json"), lambda m: m["tables"][0]["parts"][0].update(file="../items.0.part"))
        refused(server, scratch, "manifest.json")
    with Copy(scratch) as bad:
        edit(bad("manifest.json"), lambda m: m.update(format=99))
        refused(server, scratch, "format", code=REFUSED)
    with Copy(scratch) as bad:
        edit(bad("manifest.json"), lambda m: m["tables"][0]["schema"].update(dim=0))
        refused(server, scratch, "dim")


def case_another_definition_than_the_parts_have_is_found(server, scratch):
    with Copy(scratch) as bad:
        edit(bad("manifest.json"), lambda m: m["tables"][0]["schema"].update(dim=4))
        refused(server, scratch, "items.0.part")


def case_a_missing_shard_is_not_loaded_in_silence(server, scratch):
    with Copy(scratch) as bad:
        edit(bad("manifest.json"), lambda m: m["tables"][0]["parts"].pop())
        embctl(None, "verify", scratch("bad"))
        embctl(server, "load", scratch("bad"), code=REFUSED, says="shard 1 of 2")
        assert embctl_json(server, "table", "list") == {"tables": []}


def case_what_is_no_directory_is_told(server, scratch):
    for command in ("verify", "load"):
        embctl(server, command, scratch("nowhere"), code=FAILED, says="nowhere")
        embctl(server, command, scratch("good/manifest.json"), code=FAILED, says="is not a directory")


def push_many(server, n, dim):
    """A table of n rows on two shards, each of n * dim * 2 bytes."""
    for shard in range(2):
        mine = owned(n // 2, shard, 2)
        with connect(server, shard) as wire:
            table = create(wire, "large", dim, value=0.0)
            for first in range(0, len(mine), 4096):
                some = mine[first:first + 4096]
                push(wire, table, some, [float(key % 7) for key in some for _ in range(dim)])


def creates(server):
    with connect(server) as wire:
        return wire.call("stats")[0]["stats"]["requests_table_create"]


def case_parts_that_two_threads_verify(server, scratch):
    """The first ones by one, the last ones by the other: each finds what is damaged, and both count."""
    with Embd(shards=2) as other:
        push_many(other, 32768, 80)
        embctl(other, "dump", "--all", scratch("large"))
        found = embctl(other, "digest", "-o", "json")
    sizes = [os.path.getsize(scratch(f"large/large.{shard}.part")) for shard in range(2)]
    assert min(sizes) > 5 << 20
    before = creates(server)
    for shard, size in enumerate(sizes):
        part = scratch(f"large/large.{shard}.part")
        for at in (size // 2, size - 1):
            flip(part, at)
            embctl(server, "load", scratch("large"), code=DAMAGED, says=f"large.{shard}.part")
            assert creates(server) == before, "it was found before anything was made"
            flip(part, at)
    for shard in range(2):
        flip(scratch(f"large/large.{shard}.part"), 1000)
    embctl(server, "load", scratch("large"), code=DAMAGED, says=".part")
    for shard in range(2):
        flip(scratch(f"large/large.{shard}.part"), 1000)
    with Embd(shards=2) as other:
        loaded = embctl_json(other, "load", scratch("large"))["load"][0]
        assert loaded["rows"] == 32768 and loaded["bytes"] == sum(sizes)
        assert embctl(other, "digest", "-o", "json") == found


def case_the_good_one_is_good(server, scratch):
    embctl(None, "verify", scratch("good"))
    embctl(server, "load", scratch("good"))


if __name__ == "__main__":
    with Scratch() as scratch_of_all, Embd(shards=2) as server_of_all:
        make(scratch_of_all("good"))
        run_cases(globals(), server_of_all, scratch_of_all)
