"""export, import and inspect: HugeCTR's model folders (REFERENCE 2a, S0.19) and optimizer states (2b, S0.20), to the
byte, from any number of shards to any number of shards."""
import json
import os
import random
import shutil
import struct
import subprocess

import modelfolders
import partfiles
from embctl import (DAMAGED, EMBCTL, FAILED, NOT_FOUND, REFUSED, USAGE, Embd, Scratch, embctl, embctl_json, environment,
                    run_cases)

DIM = 3
LOCAL = ["--dim", DIM, "--slots", 5, "--partition", "slot"]
DISTRIBUTED = ["--dim", DIM, "--partition", "modulo"]
STATES = {"momentum": 1, "nesterov": 1, "adagrad": 1, "adam": 2, "ftrl": 2}


def random_floats(rng, n):
    return struct.pack(f"<{n}f", *[rng.uniform(-2, 2) for _ in range(n)])


def make_rows(seed, n, localized, bits=64, n_tensors=0):
    """Keys with the top bit set are negative int64s. In a localized table each key has one slot, as on any number of
    GPUs it must."""
    rng, rows = random.Random(seed), {}
    slots = {}
    while len(rows) < n:
        key = rng.choice([rng.getrandbits(bits), 2**bits - 1 - rng.randrange(9), rng.randrange(40)])
        slot = slots.setdefault(key, rng.randrange(5)) if localized else 0
        rows[slot, key] = (random_floats(rng, DIM), [random_floats(rng, DIM) for _ in range(n_tensors)])
    return rows


def load_rows(server, scratch, name, rows, definition, step=0):
    """Puts rows into a new table by a dump directory that is written here."""
    path = scratch("made-" + name)
    with Embd() as one:
        embctl(one, "table", "create", name, *definition)
        embctl(one, "dump", name, path)

    def blocks(schema):
        names = list(rows)
        random.Random(name).shuffle(names)
        pack = lambda code, values: struct.pack(f"<{len(values)}{code}", *values)
        arrays = [pack("Q", [key for _, key in names]), pack("H", [slot for slot, _ in names]),
                  b"".join(rows[n][0] for n in names), b"".join(b"".join(rows[n][1]) for n in names), b"", b"", b""]
        sizes = partfiles.array_sizes(schema, len(names), 0)
        return [([None if size is None else a for a, size in zip(arrays, sizes)], len(names), 0)]
    partfiles.fill(path, blocks, step=step)
    embctl(server, "load", path)


def dumped(server, scratch, name):
    """A table's rows by a dump, as {(slot, key): (row, state)}; and its step."""
    path = scratch("look")
    embctl(server, "dump", name, path)
    table = partfiles.read(path)[name]
    shutil.rmtree(path)
    return table["rows"], table["step"]


def assert_files(found, wanted):
    assert found.keys() == wanted.keys(), (sorted(found), sorted(wanted))
    for name in wanted:
        assert found[name] == wanted[name], f"{name} differs"


def case_2a_S0_19_an_export_has_the_reference_bytes_from_1_2_and_3_shards():
    for localized, definition in ((True, LOCAL), (False, DISTRIBUTED)):
        rows = make_rows("a", 700, localized)
        for shards in (1, 2, 3):
            with Scratch() as scratch, Embd(shards=shards) as server:
                load_rows(server, scratch, "t", rows, definition)
                for gpus in (1, 2, 3, 8):
                    report = embctl_json(server, "export", "t", scratch("m"), "--format", "hugectr", "--gpus", gpus,
                                         "--index", 1, "--iteration", gpus)["export"][0]
                    wanted = modelfolders.folder_bytes(rows, localized, gpus)
                    assert_files(modelfolders.read_folder(scratch(f"m1_sparse_{gpus}.model")), wanted)
                    assert (report["rows"], report["bytes"]) == (700, sum(map(len, wanted.values())))
                assert not [n for n in os.listdir(scratch("")) if "tmp" in n]


def case_2a_S0_19_an_import_fills_any_number_of_shards_and_exports_the_same_bytes():
    for localized, definition in ((True, LOCAL), (False, DISTRIBUTED)):
        rows = make_rows("b", 900, localized)
        files = modelfolders.folder_bytes(rows, localized, 3)
        for shards in (1, 2, 3):
            with Scratch() as scratch, Embd(shards=shards) as server:
                modelfolders.write_folder(scratch("in"), files)
                done = embctl_json(server, "import", scratch("in"), "--format", "hugectr", "--table", "t",
                                   *definition)["import"][0]
                assert (done["table"], done["rows"], done["bytes"]) == ("t", 900, sum(map(len, files.values())))
                found, _ = dumped(server, scratch, "t")
                assert found == {name: (row[0], b"") for name, row in rows.items()}
                embctl(server, "export", "t", scratch("out"), "--gpus", 3)
                assert_files(modelfolders.read_folder(scratch("out0_sparse_0.model")), files)


def case_2a_rows_of_any_kind_of_table_are_exported_where_they_belong():
    sizes, rng = [40, 1, 700], random.Random(6)
    starts = [0, 40, 41]
    for partition in ("hash", "modulo", "slot"):
        rows = {}
        for slot in range(3):
            for key in rng.sample(range(sizes[slot]), sizes[slot] // 2 + 1):
                rows[slot if partition == "slot" else 0, starts[slot] + key] = (random_floats(rng, DIM), [])
        definition = ["--dim", DIM, "--slot-sizes", ",".join(map(str, sizes)), "--partition", partition,
                      "--create-on", "pull", "--set", "admit_after=2"]
        for shards in (1, 2):
            with Scratch() as scratch, Embd(shards=shards) as server:
                load_rows(server, scratch, "t", rows, definition)
                for gpus in (1, 3):
                    embctl(server, "export", "t", scratch("m"), "--gpus", gpus, "--iteration", gpus)
                    wanted = modelfolders.folder_bytes(rows, partition == "slot", gpus)
                    assert_files(modelfolders.read_folder(scratch(f"m0_sparse_{gpus}.model")), wanted)


def case_2a_a_localized_import_routes_by_slot_where_the_reference_in_memory_load_routes_by_key():
    rows = {(slot, key): (random_floats(random.Random(key), DIM), []) for slot in range(5) for key in (4, 7, 2**63)}
    with Scratch() as scratch, Embd(shards=3) as server:
        modelfolders.write_folder(scratch("in"), modelfolders.folder_bytes(rows, True, 1))
        embctl(server, "import", scratch("in"), "--table", "t", *LOCAL)
        embctl(server, "dump", "t", scratch("d"))
        for part in partfiles.read_manifest(scratch("d"))["tables"][0]["parts"]:
            here = {"rows": {}, "candidates": {}}
            schema = partfiles.read_manifest(scratch("d"))["tables"][0]["schema"]
            partfiles.read_part(scratch(f"d/{part['file']}"), schema, part, here)
            wanted = {name for name in rows if name[0] % 3 == part["shard"]}
            assert here["rows"].keys() == wanted, f"shard {part['shard']} has the rows of its slots"
        for slot, key in rows:
            row = embctl_json(server, "get", "--slot", slot, "t", key)["rows"][0]
            assert row["status"] == "hit" and struct.pack(f"<{DIM}f", *row["values"]) == rows[slot, key][0]


def case_2a_32_bit_keys_are_zero_extended_and_greater_ones_refused_by_name():
    rows = make_rows("c", 300, False, bits=32)
    files = modelfolders.folder_bytes(rows, False, 2)
    with Scratch() as scratch, Embd(shards=2) as server:
        load_rows(server, scratch, "t", rows, DISTRIBUTED)
        embctl(server, "export", "t", scratch("m"), "--keys", "u32", "--gpus", 2)
        assert_files(modelfolders.read_folder(scratch("m0_sparse_0.model")), files)
        embctl(server, "import", scratch("m0_sparse_0.model"), "--table", "u", "--keys", "u32", *DISTRIBUTED)
        assert dumped(server, scratch, "u")[0] == dumped(server, scratch, "t")[0]
        rows[0, 2**32 + 5] = (bytes(4 * DIM), [])
        load_rows(server, scratch, "wide", rows, DISTRIBUTED)
        embctl(server, "export", "wide", scratch("w"), "--keys", "u32", code=REFUSED, says="4294967301")
        assert not [n for n in os.listdir(scratch("")) if n.startswith("w")]
        modelfolders.write_folder(scratch("w"), modelfolders.folder_bytes(rows, False, 1))
        embctl(server, "import", scratch("w"), "--table", "v", "--keys", "u32", *DISTRIBUTED, code=REFUSED,
               says="4294967301")
        assert [t["name"] for t in embctl_json(server, "table", "list")["tables"]] == ["t", "u", "wide"]


def case_2a_negative_int64_keys_are_their_unsigned_values():
    keys = [-1, -2**63, -12345, 0, 2**63 - 1]
    vectors = [struct.pack(f"<{DIM}f", i, -i, 0.5) for i in range(len(keys))]
    with Scratch() as scratch, Embd(shards=2) as server:
        modelfolders.write_folder(scratch("in"), {"key": struct.pack("<5q", *keys), "emb_vector": b"".join(vectors)})
        embctl(server, "import", scratch("in"), "--table", "t", "--dim", DIM)
        rows = embctl_json(server, "get", "t", *[key % 2**64 for key in keys])["rows"]
        assert [r["status"] for r in rows] == ["hit"] * 5
        assert [struct.pack(f"<{DIM}f", *r["values"]) for r in rows] == vectors
        embctl(server, "export", "t", scratch("m"))
        found = struct.unpack("<5q", modelfolders.read_folder(scratch("m0_sparse_0.model"))["key"])
        assert found == (0, 2**63 - 1, -2**63, -12345, -1), "unsigned order"


def case_2a_values_are_f32_whatever_the_dtype_of_the_table():
    exact = {(0, key): (struct.pack(f"<{DIM}f", key, -0.5, 2.0**-7), []) for key in range(50)}
    files = modelfolders.folder_bytes(exact, False, 1)
    for dtype in ("f16", "bf16"):
        with Scratch() as scratch, Embd(shards=2) as server:
            modelfolders.write_folder(scratch("in"), files)
            embctl(server, "import", scratch("in"), "--table", "t", "--dim", DIM, "--dtype", dtype)
            embctl(server, "export", "t", scratch("m"))
            assert_files(modelfolders.read_folder(scratch("m0_sparse_0.model")), files)


def case_2a_rows_of_codes_are_imported_and_exported_as_the_nearest():
    """Their first column makes the scale a power of two, so that the others are codes."""
    for dtype, first, unit in ("i8", 127 / 64, 1 / 64), ("e4m3", 448 / 256, 1 / 8):
        exact = {(0, key): (struct.pack(f"<{DIM}f", first, *[0.0 - unit * (key % 9)] * (DIM - 1)), []) for key in range(50)}
        files = modelfolders.folder_bytes(exact, False, 1)
        with Scratch() as scratch, Embd() as server:
            modelfolders.write_folder(scratch("in"), files)
            embctl(server, "import", scratch("in"), "--table", "t", "--dim", DIM, "--dtype", dtype)
            embctl(server, "export", "t", scratch("m"))
            assert_files(modelfolders.read_folder(scratch("m0_sparse_0.model")), files)


def case_2a_master_values_are_the_files_to_the_bit_with_their_state():
    rows = make_rows("master", 90, False, n_tensors=2)
    files, definition = modelfolders.folder_bytes(rows, False, 2), [*DISTRIBUTED, "--optimizer", "adam", "--dtype", "e4m3"]
    with Scratch() as scratch, Embd() as server:
        modelfolders.write_folder(scratch("in"), files)
        state = modelfolders.state_bytes(rows, False, 2, 60, DIM, 2)
        with open(scratch("s"), "wb") as out:
            out.write(state)
        flags = ["--optimizer-state", "--gpus", 2, "--gpu-rows", 60]
        embctl(server, "import", scratch("in"), "--table", "t", *definition, "--set", "rounding=master", "--optimizer-state",
               scratch("s"), "--gpus", 2, "--gpu-rows", 60)
        embctl(server, "export", "t", scratch("m"), *flags)
        assert_files(modelfolders.read_folder(scratch("m0_sparse_0.model")), files)
        assert modelfolders.read_bytes(scratch("m0_opt_sparse_0.model")) == state
        embctl(server, "import", scratch("in"), "--table", "bare", *definition, "--set", "rounding=master", "--gpus", 2)
        embctl(server, "export", "bare", scratch("b"), "--gpus", 2)
        assert_files(modelfolders.read_folder(scratch("b0_sparse_0.model")), files)


def refused(server, scratch, folder, *definition, says, code=DAMAGED):
    embctl(server, "import", scratch(folder), "--table", "t", *definition, code=code, says=says)
    assert embctl_json(server, "table", "list") == {"tables": []}, "nothing has changed"


def case_2a_sizes_that_do_not_fit_are_refused_with_the_file_and_the_numbers():
    rows = make_rows("d", 100, True)
    files = modelfolders.folder_bytes(rows, True, 1)
    changes = [("key", files["key"][:-1], "key: has 799 bytes, expected a multiple of 8"),
               ("key", files["key"][:-8], "slot_id: key has 99 rows, slot_id 800 bytes, expected 792"),
               ("slot_id", files["slot_id"][:-8], "slot_id: key has 100 rows, slot_id 792 bytes, expected 800"),
               ("emb_vector", files["emb_vector"][:-4],
                "emb_vector: key has 100 rows, emb_vector 1196 bytes, expected 1200"),
               ("emb_vector", files["emb_vector"] + b"x" * 12,
                "emb_vector: key has 100 rows, emb_vector 1212 bytes, expected 1200"),
               ("emb_vector", b"", "emb_vector 0 bytes, expected 1200"),
               ("slot_id", struct.pack("<Q", 5) + files["slot_id"][8:], "row 0 has slot 5, the table has 5"),
               ("slot_id", struct.pack("<Q", 2**64 - 1) + files["slot_id"][8:], "has slot 18446744073709551615")]
    with Embd(shards=2) as server:
        for name, data, says in changes:
            with Scratch() as scratch:
                modelfolders.write_folder(scratch("in"), {**files, name: data})
                refused(server, scratch, "in", *LOCAL, says=says)
        with Scratch() as scratch:
            modelfolders.write_folder(scratch("in"), files)
            refused(server, scratch, "in", *LOCAL, "--set", "dim=4", says="1200 bytes, expected 1600 for dim 4")


def case_2a_files_that_are_missing_or_do_not_belong_there_are_refused():
    files = modelfolders.folder_bytes(make_rows("e", 20, True), True, 1)
    with Embd(shards=2) as server:
        for name in files:
            with Scratch() as scratch:
                modelfolders.write_folder(scratch("in"), {n: data for n, data in files.items() if n != name})
                refused(server, scratch, "in", *LOCAL, says=f"{name}: is missing")
        with Scratch() as scratch:
            modelfolders.write_folder(scratch("in"), {**files, "emb_vector.bak": b""})
            refused(server, scratch, "in", *LOCAL, says="emb_vector.bak: does not belong")
            os.unlink(scratch("in/emb_vector.bak"))
            refused(server, scratch, "in", *DISTRIBUTED, says="slot_id: exists", code=REFUSED)
            os.unlink(scratch("in/key"))
            os.mkdir(scratch("in/key"))
            refused(server, scratch, "in", *LOCAL, says="key: is not a regular file")
            refused(server, scratch, "none", *LOCAL, says="No such file", code=FAILED)


def case_2a_a_key_that_is_there_twice_is_refused():
    rows = make_rows("f", 30, False)
    files = modelfolders.folder_bytes(rows, False, 1)
    files["key"] = files["key"][:-8] + files["key"][:8]
    with Scratch() as scratch, Embd(shards=2) as server:
        modelfolders.write_folder(scratch("in"), files)
        refused(server, scratch, "in", *DISTRIBUTED, says="has 30 keys, but only 29 different ones")


def case_2a_overflow_is_an_error_that_names_capacity_where_the_reference_writes_past_its_table():
    files = modelfolders.folder_bytes(make_rows("g", 130, False), False, 1)
    with Scratch() as scratch, Embd() as server:
        modelfolders.write_folder(scratch("in"), files)
        bound = [*DISTRIBUTED, "--on-full", "error", "--capacity"]
        refused(server, scratch, "in", *bound, 100, says="100", code=REFUSED)
        refused(server, scratch, "in", *bound, 129, says="129", code=REFUSED)
        embctl(server, "import", scratch("in"), "--table", "t", *bound, 130)


def case_2b_S0_20_optimizer_states_are_written_and_read_per_tensor_and_gpu():
    for optimizer, n_tensors in STATES.items():
        for localized, definition in ((True, LOCAL), (False, DISTRIBUTED)):
            rows = make_rows(optimizer, 200, localized, n_tensors=n_tensors)
            definition = [*definition, "--optimizer", optimizer]
            with Scratch() as scratch, Embd(shards=2) as server, Embd(shards=3) as other:
                load_rows(server, scratch, "t", rows, definition, step=77)
                for gpus, gpu_rows in ((1, 200), (3, 150)):
                    state, folder = scratch(f"m0_opt_sparse_{gpus}.model"), scratch(f"m0_sparse_{gpus}.model")
                    embctl(server, "export", "t", scratch("m"), "--gpus", gpus, "--iteration", gpus,
                           "--optimizer-state", "--gpu-rows", gpu_rows)
                    assert_files(modelfolders.read_folder(folder), modelfolders.folder_bytes(rows, localized, gpus))
                    wanted = modelfolders.state_bytes(rows, localized, gpus, gpu_rows, DIM, n_tensors)
                    assert modelfolders.read_bytes(state) == wanted, (optimizer, gpus)
                    embctl(other, "import", folder, "--table", f"t{gpus}", *definition, "--optimizer-state", state,
                           "--gpus", gpus, "--gpu-rows", gpu_rows, "--step", 77)
                    assert dumped(other, scratch, f"t{gpus}") == dumped(server, scratch, "t")


def case_2b_a_state_follows_the_keys_of_its_gpu_in_any_order_of_rows():
    rows = make_rows("h", 120, False, n_tensors=2)
    names = list(rows)
    random.Random(5).shuffle(names)
    per_gpu = [[n for n in names if n[1] % 4 == g] for g in range(4)]
    state = b""
    for tensor in range(2):
        for mine in per_gpu:
            state += b"".join(rows[n][1][tensor] for n in mine) + bytes(4 * DIM * (50 - len(mine)))
    with Scratch() as scratch, Embd(shards=3) as server:
        modelfolders.write_folder(scratch("in"), {"key": struct.pack(f"<{len(names)}Q", *[n[1] for n in names]),
                                                  "emb_vector": b"".join(rows[n][0] for n in names)})
        with open(scratch("state"), "wb") as out:
            out.write(state)
        embctl(server, "import", scratch("in"), "--table", "t", *DISTRIBUTED, "--optimizer", "adam", "--gpus", 4,
               "--optimizer-state", scratch("state"))
        assert dumped(server, scratch, "t")[0] == {n: (row[0], b"".join(row[1])) for n, row in rows.items()}


def case_2b_a_state_of_another_number_of_gpus_shows_by_its_rows_without_a_key():
    rows = make_rows("w", 90, False, n_tensors=2)
    for optimizer, n_tensors, first in (("adam", 2, 0.0), ("adagrad", 1, 0.25)):
        definition = [*DISTRIBUTED, "--optimizer", optimizer]
        definition += ["--set", f"optimizer.initial_accumulator={first}"] if first else []
        unused = struct.pack(f"<{DIM}f", *[first] * DIM)
        for code, more in (("f", []), ("e", ["--state-dtype", "f16"])):
            state = modelfolders.state_bytes(rows, False, 3, 60, DIM, n_tensors, code, unused)
            with Scratch() as scratch, Embd(shards=2) as server:
                modelfolders.write_folder(scratch("in"), modelfolders.folder_bytes(rows, False, 3))
                with open(scratch("s"), "wb") as out:
                    out.write(state)
                flags = [*definition, "--optimizer-state", scratch("s"), *more]
                refused(server, scratch, "in", *flags, says="s: GPU 0 of 1 has 90 keys, and row ")
                for gpus in (2, 4, 5):
                    refused(server, scratch, "in", *flags, "--gpus", gpus, says=f"s: GPU 0 of {gpus} has ")
                embctl(server, "import", scratch("in"), "--table", "t", *flags, "--gpus", 3)


def case_2b_holes_of_a_large_state_file_are_not_read():
    rows = {(0, key): (struct.pack(f"<{DIM}f", key, 1, 2), [bytes(4 * DIM)]) for key in range(10)}
    with Scratch() as scratch, Embd() as server:
        modelfolders.write_folder(scratch("in"), modelfolders.folder_bytes(rows, False, 1))
        with open(scratch("s"), "wb") as out:
            out.truncate(4 * DIM << 36)  # three quarters of a TiB, of which nothing is on the disk
        embctl(server, "import", scratch("in"), "--table", "t", *DISTRIBUTED, "--optimizer", "momentum",
               "--optimizer-state", scratch("s"))


def case_values_that_are_no_numbers_are_refused_where_the_table_does_not_admit_them():
    rows = make_rows("x", 700, False, n_tensors=1)
    files, state = modelfolders.folder_bytes(rows, False, 1), modelfolders.state_bytes(rows, False, 1, 700, DIM, 1)
    key = sorted(rows)[699][1]
    definition = [*DISTRIBUTED, "--optimizer", "momentum"]
    for bad, shown in ((float("nan"), "nan"), (float("inf"), "inf"), (float("-inf"), "-inf")):
        with Scratch() as scratch, Embd(shards=2) as server:
            damaged = files["emb_vector"][:-4] + struct.pack("<f", bad)
            modelfolders.write_folder(scratch("in"), {**files, "emb_vector": damaged})
            modelfolders.write_folder(scratch("good"), files)
            with open(scratch("s"), "wb") as out:
                out.write(state[:-4] + struct.pack("<f", bad))
            flags = [*definition, "--optimizer-state", scratch("s")]
            said = f"key {key} has {shown} in column {DIM - 1}; table 't' admits finite values only"
            refused(server, scratch, "in", *definition, says=f"emb_vector: {said}", code=REFUSED)
            refused(server, scratch, "good", *flags, says=f"s: {said}", code=REFUSED)
            embctl(server, "import", scratch("in"), "--table", "t", *flags, "--set", "admit_nonfinite=true")


def case_a_key_in_two_slots_of_a_gpu_is_not_exported_for_it():
    rows = {(slot, key): (struct.pack(f"<{DIM}f", slot, key, 0), [])
            for slot, key in ((0, 3), (1, 2**40), (2, 9), (3, 2**40), (4, 5))}
    with Scratch() as scratch, Embd(shards=2) as server:
        load_rows(server, scratch, "t", rows, LOCAL)
        for gpus in (1, 2):
            embctl(server, "export", "t", scratch("x"), "--gpus", gpus, code=REFUSED,
                   says=f"table 't' has key {2**40} in slots 1 and 3, both of GPU {1 % gpus} of {gpus}, which holds a key "
                        "once; export it for 5 GPUs, one a slot")
        assert os.listdir(scratch("")) == ["made-t"]
        for gpus in (3, 5):
            embctl(server, "export", "t", scratch("x"), "--gpus", gpus, "--iteration", gpus)
            assert_files(modelfolders.read_folder(scratch(f"x0_sparse_{gpus}.model")),
                         modelfolders.folder_bytes(rows, True, gpus))


def case_a_step_beyond_the_limit_is_refused_before_anything_is_sent():
    files = modelfolders.folder_bytes(make_rows("y", 10, False), False, 1)
    with Scratch() as scratch, Embd() as server:
        modelfolders.write_folder(scratch("in"), files)
        refused(server, scratch, "in", *DISTRIBUTED, "--step", 2**47 + 1, code=REFUSED,
                says=f"step is {2**47 + 1}, it can be at most {2**47}")
        embctl(server, "import", scratch("in"), "--table", "t", *DISTRIBUTED, "--step", 2**47)


def case_a_fifo_in_the_place_of_a_file_holds_up_nothing():
    rows = make_rows("z", 10, True, n_tensors=1)
    definition = [*LOCAL, "--optimizer", "momentum"]
    with Scratch() as scratch, Embd() as server:
        modelfolders.write_folder(scratch("in"), modelfolders.folder_bytes(rows, True, 1))
        for name in ("key", "slot_id", "emb_vector"):
            os.rename(scratch(f"in/{name}"), scratch("kept"))
            os.mkfifo(scratch(f"in/{name}"))
            refused(server, scratch, "in", *definition, says=f"{name}: is not a regular file")
            embctl(None, "inspect", scratch("in"), code=DAMAGED, says=f"{name}: is not a regular file")
            os.rename(scratch("kept"), scratch(f"in/{name}"))
        os.mkfifo(scratch("fifo"))
        refused(server, scratch, "in", *definition, "--optimizer-state", scratch("fifo"), says="fifo: is not a regular file")
        embctl(server, "import", "--ps", scratch("fifo"), code=FAILED, says="fifo: is not a regular file")


def case_2b_mixed_precision_states_are_f16():
    rows = {(0, key): (struct.pack(f"<{DIM}f", key, 1, 2), [struct.pack(f"<{DIM}f", 0.5, -key, 2.0**-14)])
            for key in range(60)}
    with Scratch() as scratch, Embd(shards=2) as server:
        definition = [*DISTRIBUTED, "--optimizer", "adagrad"]
        load_rows(server, scratch, "t", rows, definition)
        half = ["--gpus", 2, "--state-dtype", "f16"]
        embctl(server, "export", "t", scratch("m"), "--optimizer-state", *half)
        state = scratch("m0_opt_sparse_0.model")
        assert modelfolders.read_bytes(state) == modelfolders.state_bytes(rows, False, 2, 30, DIM, 1, "e")
        embctl(server, "import", scratch("m0_sparse_0.model"), "--table", "u", *definition, "--optimizer-state", state,
               *half)
        assert dumped(server, scratch, "u") == dumped(server, scratch, "t")


def case_2b_states_of_the_wrong_size_are_refused_with_the_numbers():
    rows = make_rows("i", 90, True, n_tensors=2)
    files = modelfolders.folder_bytes(rows, True, 2)
    state = modelfolders.state_bytes(rows, True, 2, 80, DIM, 2)
    definition = [*LOCAL, "--optimizer", "adam"]
    with Scratch() as scratch, Embd(shards=2) as server:
        modelfolders.write_folder(scratch("in"), files)
        with open(scratch("s"), "wb") as out:
            out.write(state)
        flags = ["--optimizer-state", scratch("s"), "--gpus"]
        size = 2 * 2 * 80 * DIM * 4
        refused(server, scratch, "in", *definition, *flags, 2, "--gpu-rows", 81,
                says=f"s: has {size} bytes, expected {size * 81 // 80} = 2 tensors * 2 GPUs * 81 rows")
        refused(server, scratch, "in", *definition, *flags, 2, "--state-dtype", "f16", "--gpu-rows", 80,
                says=f"has {size} bytes, expected {size // 2}")
        refused(server, scratch, "in", *definition, *flags, 7, says=f"has {size} bytes, expected a multiple of 168")
        refused(server, scratch, "in", *definition, *flags, 16, says="has 10 rows a GPU, but GPU")
        refused(server, scratch, "in", *definition, *flags, 0, says="n_gpus is 0", code=REFUSED)
        refused(server, scratch, "in", *definition, *flags, 1025, says="n_gpus is 1025", code=REFUSED)
        os.truncate(scratch("s"), len(state) - 4)
        refused(server, scratch, "in", *definition, *flags, 2, says=f"s: has {size - 4} bytes, expected")
        os.unlink(scratch("s"))
        refused(server, scratch, "in", *definition, *flags, 2, says="s: is missing")
        load_rows(server, scratch, "t", rows, definition)
        embctl(server, "export", "t", scratch("m"), "--gpus", 2, "--optimizer-state", "--gpu-rows", 20, code=REFUSED,
               says="gpu_rows is 20, but GPU 0 of 2 has")
        assert not [n for n in os.listdir(scratch("")) if n.startswith("m0")]


def case_2b_optimizers_without_a_state_file_there_are_refused_by_name():
    with Scratch() as scratch, Embd() as server:
        modelfolders.write_folder(scratch("in"), modelfolders.folder_bytes(make_rows("j", 10, False), False, 1))
        with open(scratch("s"), "wb") as out:
            out.write(bytes(10 * DIM * 4))
        for optimizer in ("rowwise_adagrad", "rmsprop", "sgd"):
            definition = [*DISTRIBUTED, "--optimizer", optimizer]
            refused(server, scratch, "in", *definition, "--optimizer-state", scratch("s"), code=REFUSED, says=optimizer)
            embctl(server, "table", "create", "t", *definition)
            embctl(server, "export", "t", scratch("m"), "--optimizer-state", code=REFUSED, says=optimizer)
            embctl(server, "import", scratch("in"), "--table", "t")
            embctl(server, "export", "t", scratch(optimizer))
            embctl(server, "table", "drop", "t")
        assert not [n for n in os.listdir(scratch("")) if n.startswith("m0")]


def case_2d_rows_imported_without_a_state_start_with_adagrads_initial_value_where_the_reference_sets_bytes():
    files = modelfolders.folder_bytes(make_rows("k", 40, False), False, 1)
    with Scratch() as scratch, Embd(shards=2) as server:
        modelfolders.write_folder(scratch("in"), files)
        for name, optimizer, first in (("a", "adagrad", 0.25), ("r", "rowwise_adagrad", 0.25), ("m", "adam", 0)):
            more = ["--set", f"optimizer.initial_accumulator={first}"] if first else []
            embctl(server, "import", scratch("in"), "--table", name, *DISTRIBUTED, "--optimizer", optimizer, *more)
            for row, state in dumped(server, scratch, name)[0].values():
                assert set(struct.unpack(f"<{len(state) // 4}f", state)) == {first}


def case_names_in_the_way_are_not_touched():
    files = modelfolders.folder_bytes(make_rows("l", 10, False), False, 1)
    with Scratch() as scratch, Embd() as server:
        modelfolders.write_folder(scratch("in"), files)
        embctl(server, "import", scratch("in"), "--table", "t", code=NOT_FOUND, says="--dim")
        embctl(server, "table", "create", "t", *DISTRIBUTED, "--optimizer", "momentum")
        embctl(server, "import", scratch("in"), "--table", "t")
        embctl(server, "import", scratch("in"), "--table", "t", code=REFUSED, says="holds 10 rows")
        embctl(server, "import", scratch("in"), "--table", "t", "--dim", DIM, code=REFUSED, says="partition")
        embctl(server, "export", "t", scratch("m"), "--optimizer-state")
        before = {**modelfolders.read_folder(scratch("m0_sparse_0.model")),
                  "state": modelfolders.read_bytes(scratch("m0_opt_sparse_0.model"))}
        embctl(server, "export", "t", scratch("m"), code=REFUSED, says="m0_sparse_0.model exists")
        shutil.rmtree(scratch("m0_sparse_0.model"))
        embctl(server, "export", "t", scratch("m"), "--optimizer-state", code=REFUSED,
               says="m0_opt_sparse_0.model exists")
        assert sorted(os.listdir(scratch(""))) == ["in", "m0_opt_sparse_0.model"]
        embctl(server, "export", "t", scratch("m"))
        after = {**modelfolders.read_folder(scratch("m0_sparse_0.model")),
                 "state": modelfolders.read_bytes(scratch("m0_opt_sparse_0.model"))}
        assert_files(after, before)
        embctl(server, "export", "none", scratch("n"), code=NOT_FOUND, says="none")
        embctl(server, "export", "t", scratch("no/such/m"), code=FAILED, says="No such file")
        embctl(server, "export", "t", code=USAGE)
        embctl(server, "export", "t", scratch("n"), "--format", "onnx", code=USAGE, says="onnx")
        embctl(server, "export", "t", scratch("n"), "--keys", "u16", code=USAGE, says="u16")
        embctl(server, "import", scratch("in"), code=USAGE, says="--table")
        embctl(server, "import", "--ps", scratch("p"), scratch("in"), code=USAGE)
        assert sorted(os.listdir(scratch(""))) == ["in", "m0_opt_sparse_0.model", "m0_sparse_0.model"]


def case_an_empty_table_is_an_empty_folder():
    with Scratch() as scratch, Embd(shards=2) as server:
        embctl(server, "table", "create", "t", *LOCAL, "--optimizer", "adam")
        embctl(server, "export", "t", scratch("m"), "--optimizer-state", "--gpus", 2)
        found = modelfolders.read_folder(scratch("m0_sparse_0.model"))
        assert found == {"key": b"", "slot_id": b"", "emb_vector": b""}
        assert modelfolders.read_bytes(scratch("m0_opt_sparse_0.model")) == b""
        embctl(server, "import", scratch("m0_sparse_0.model"), "--table", "t")
        table = embctl_json(None, "inspect", scratch("m0_sparse_0.model"))["tables"][0]
        assert (table["rows"], table["dim"], table["kind"]) == (0, 0, "hugectr")


def case_inspect_shows_folders_dumps_and_snapshots():
    rows = make_rows("n", 25, True)
    with Scratch() as scratch:
        os.mkdir(scratch("data"))
        with Embd("--data-dir", scratch("data"), shards=2) as server:
            load_rows(server, scratch, "t", rows, [*LOCAL, "--optimizer", "sgd"], step=9)
            embctl(server, "export", "t", scratch("m"))
            embctl(server, "dump", "--all", scratch("d"))
            embctl(server, "snapshot", "s")
        folder = scratch("m0_sparse_0.model")
        report = embctl_json(None, "inspect", folder, "-n", 4)
        table = report["tables"][0]
        assert (table["kind"], table["table"], table["rows"], table["dim"]) == ("hugectr", None, 25, DIM)
        assert table["has_slots"] is True and table["bytes"] == 25 * (16 + 4 * DIM) and table["files"] == 3
        first = sorted(rows)[:4]
        assert [(r["slot"], r["key"]) for r in report["rows"]] == first
        assert [struct.pack(f"<{DIM}f", *r["values"]) for r in report["rows"]] == [rows[n][0] for n in first]
        for kind, path in (("dump", scratch("d")), ("snapshot", scratch("data/s"))):
            report = embctl_json(None, "inspect", path, "-n", 100)
            table = report["tables"][0]
            assert (table["kind"], table["table"], table["rows"], table["steps"]) == (kind, "t", 25, 9)
            assert (table["dim"], table["dtype"], table["optimizer"], table["files"]) == (DIM, "f32", "sgd", 2)
            assert table["bytes"] == sum(os.path.getsize(os.path.join(path, n)) for n in os.listdir(path)
                                         if n.endswith(".part"))
            found = {(r["slot"], r["key"]): struct.pack(f"<{DIM}f", *r["values"]) for r in report["rows"]}
            assert found == {name: row[0] for name, row in rows.items()}
        assert embctl_json(None, "inspect", scratch("d"))["rows"] == []
        shown = embctl(None, "inspect", "-n", 1, scratch("d"))
        assert "KIND" in shown and "dump" in shown and "VALUES" in shown
        os.truncate(scratch("m0_sparse_0.model/emb_vector"), 299)
        embctl(None, "inspect", folder, code=DAMAGED, says="emb_vector 299 bytes")
        embctl(None, "inspect", scratch("data"), "-n", 1)
        embctl(None, "inspect", scratch("none"), code=FAILED, says="No such file")
        embctl(None, "inspect", code=USAGE)
    for command in ("export", "import", "inspect"):
        assert "Examples:" in embctl(None, command, "--help"), command


def case_S0_4_S4_20_a_workspace_in_mb_bounds_a_table_as_in_the_reference():
    """MB * 2^20 / ((1 + n) * 4 * dim) rows of a GPU, n floats of state a column; all GPUs' rows over the shards."""
    kinds = {"sgd": 0, "momentum": 1, "nesterov": 1, "adagrad": 1, "adam": 2, "ftrl": 2, "lazy": 3}
    with Embd(shards=3) as server:
        for name, n in kinds.items():
            optimizer = ["adam", "--set", "optimizer.update=lazy_global"] if name == "lazy" else [name]
            for dim, mb, gpus in ((16, 358, 1), (1, 23, 8), (7, 1, 3)):
                table = f"{name}-{dim}"
                embctl(server, "table", "create", table, "--dim", dim, "--optimizer", *optimizer, "--workspace-mb", mb,
                       "--gpus", gpus)
                found = embctl_json(server, "table", "describe", table)["table"][0]
                rows = mb * 2**20 // ((1 + n) * 4 * dim) * gpus
                assert (found["capacity"], found["on_full"]) == (-(-rows // 3), "error"), (name, dim, found["capacity"])
        create = "table", "create", "r", "--dim", 4, "--workspace-mb", 1
        embctl(server, *create, "--optimizer", "rmsprop", code=REFUSED, says="HugeCTR has no workspace for rmsprop")
        embctl(server, *create, "--capacity", 9, code=REFUSED, says="both --workspace-mb and --capacity")


def import_ps(server, path, code=0):
    done = subprocess.run([EMBCTL, "import", "--ps", path, "-o", "json"], capture_output=True, text=True, timeout=30,
                          env=environment(server), check=False)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def case_a_ps_json_is_imported_and_what_means_nothing_here_is_named():
    wide = make_rows("p", 50, False)
    deep = {(key % 5, key): row for (_, key), row in make_rows("q", 60, False).items()}
    with Scratch() as scratch, Embd(shards=2) as server:
        modelfolders.write_folder(scratch("wide"), modelfolders.folder_bytes(wide, False, 1))
        modelfolders.write_folder(scratch("deep"), modelfolders.folder_bytes(deep, True, 2))
        config = {"supportlonglong": True, "volatile_db": {"type": "hash_map"},
                  "models": [{"model": "WDL", "sparse_files": [scratch("wide"), scratch("deep")],
                              "embedding_table_names": ["wide.1", "deep"], "embedding_vecsize_per_table": [DIM, DIM],
                              "default_value_for_each_table": [0.1, -2], "gpucache": True,
                              "maxnum_catfeature_query_per_table_per_sample": [2, 26]}]}

        def write(change=lambda model: None, text=None):
            changed = json.loads(json.dumps(config))
            change(changed["models"][0])
            with open(scratch("ps.json"), "w", encoding="utf-8") as out:
                out.write(text or json.dumps(changed))
            return scratch("ps.json")
        done = import_ps(server, write())
        report = json.loads(done.stdout)
        assert [(t["table"], t["rows"]) for t in report["import"]] == [("wdl-wide_1", 50), ("wdl-deep", 60)]
        ignored = ["volatile_db", "models[0].gpucache", "models[0].maxnum_catfeature_query_per_table_per_sample"]
        assert [i["key"] for i in report["ignored"]] == ignored
        assert all(name in done.stderr for name in ignored) and len(done.stderr.splitlines()) == 3
        described = embctl_json(server, "table", "describe", "wdl-deep")["table"][0]
        assert (described["dim"], described["combiner"], described["initializer"], described["initializer.a"]) == (
            DIM, "concat", "constant", -2)
        assert dumped(server, scratch, "wdl-deep")[0] == {(0, key): (row[0], b"") for (_, key), row in deep.items()}
        missing = embctl_json(server, "get", "wdl-wide_1", 2**50)["rows"][0]
        assert missing["status"] == "missing"
        assert struct.pack(f"<{DIM}f", *missing["values"]) == struct.pack("<f", 0.1) * DIM
        for name in ("wdl-deep", "wdl-wide_1"):
            embctl(server, "table", "drop", name)
        for change, says in [
                (lambda m: m.pop("embedding_table_names"), "models[0].embedding_table_names is missing"),
                (lambda m: m.update(embedding_vecsize_per_table=[DIM]), "has 1 elements, sparse_files 2"),
                (lambda m: m.update(embedding_vecsize_per_table=[DIM, 0]), "embedding_vecsize_per_table[1]"),
                (lambda m: m.update(embedding_table_names=["x", "X"]), "two tables would be called 'wdl-x'"),
                (lambda m: m.update(default_value_for_each_table=[0, "a"]), "default_value_for_each_table[1]")]:
            assert says in import_ps(server, write(change), code=REFUSED).stderr, says
        assert "line 1" in import_ps(server, write(text="{"), code=DAMAGED).stderr
        failed = import_ps(server, write(lambda m: m.update(embedding_vecsize_per_table=[DIM, DIM + 1])), code=DAMAGED)
        assert "emb_vector" in failed.stderr
        assert embctl_json(server, "table", "list") == {"tables": []}, "all tables or none"


if __name__ == "__main__":
    run_cases(globals())
