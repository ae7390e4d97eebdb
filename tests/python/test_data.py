"""embd.data: what is written is read again, text layouts become the samples that stand in them, and what is damaged
is named. Parquet has a file of its own."""
import gc
import gzip
import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import clusters
import embd
from embd.data import (Avazu, Batch, Criteo, MovieLens, Norm, Overlap, Raw, Shape, SparseInput, Writer, graph_shape,
                       overlaps)

RANDOM = np.random.default_rng(2)


def samples(n, shape, most=4, bits=32):
    """A batch of made-up samples; `most` 1: one key in every slot."""
    lengths = np.ones(n * shape.slots, int) if most == 1 else RANDOM.integers(0, most, n * shape.slots)
    offsets = np.append(0, np.cumsum(lengths)).astype(np.uint64)
    keys = RANDOM.integers(0, 2**(bits - 1), int(offsets[-1])).astype(np.uint64)
    return Batch(RANDOM.integers(0, 2, (n, shape.label_dim)).astype(np.float32),
                 RANDOM.random((n, shape.dense_dim)).astype(np.float32), offsets, keys, shape.slots)


def together(batches):
    """All batches as one."""
    batches = list(batches)
    lengths = np.concatenate([batch.lengths.reshape(-1) for batch in batches])
    return Batch(np.concatenate([batch.labels for batch in batches]), np.concatenate([batch.dense for batch in batches]),
                 np.append(0, np.cumsum(lengths)).astype(np.uint64), np.concatenate([batch.keys for batch in batches]),
                 batches[0].slots)


class DataTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)

    def path(self, name="data"):
        return os.path.join(self.dir.name, name)

    def file(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def same(self, a, b):
        for name in ("labels", "dense", "offsets", "keys"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), name)


class Inputs(DataTest):
    inputs = SparseInput("wide", 1, 3), SparseInput("deep", 3)
    shape = Shape(1, 3, 4, inputs)

    def test_s3_17_batches_are_divided_by_sparse_inputs(self):
        whole = samples(90, self.shape, 4)
        with Writer(self.path(), "norm", self.shape, file_samples=20) as writer:
            writer.add(whole)
        batches = list(Norm(self.path(), self.shape, batch_samples=32))
        self.assertEqual(sum(map(len, batches)), 90)
        for batch in batches:
            slots = np.repeat(np.tile(np.arange(4), len(batch)), batch.lengths.reshape(-1))
            for name, has in (("wide", slots == 0), ("deep", slots > 0)):
                np.testing.assert_array_equal(batch.inputs[name].keys, batch.keys[has])
            np.testing.assert_array_equal(np.diff(batch.inputs["deep"].offsets.astype(int)),
                                          batch.lengths[:, 1:].reshape(-1))
            divided = batch.divided(self.inputs).inputs
            for name, (keys, offsets) in batch.inputs.items():
                np.testing.assert_array_equal(divided[name].keys, keys)
                np.testing.assert_array_equal(divided[name].offsets, offsets)

    def test_s3_17_samples_that_an_input_does_not_allow_are_counted(self):
        whole = samples(90, self.shape, 4)
        with Writer(self.path(), "norm", self.shape) as writer:
            writer.add(whole)
        for fixed, good in ((False, whole.lengths[:, 0] <= 2), (True, whole.lengths[:, 0] == 2)):
            source = Norm(self.path(), Shape(1, 3, 4, (SparseInput("wide", 1, 2, fixed), self.inputs[1])))
            self.assertEqual(sum(map(len, source)), good.sum())
            self.assertEqual(source.counts.bad_samples, 90 - good.sum())
            self.assertRegex(source.first_fault, "slot 0 has . keys; its input has " + ("2" if fixed else "at most 2"))

    def test_s3_17_a_graph_says_what_the_inputs_are(self):
        layers = [{"type": "Data", "label": {"top": "label", "label_dim": [1, 2]}, "dense": {"top": "d", "dense_dim": 3},
                   "sparse": [{"top": "wide", "slot_num": 1, "is_fixed_length": True, "nnz_per_slot": 30},
                              {"top": "deep", "slot_num": 2, "is_fixed_length": True, "nnz_per_slot": [1, 4]}]}]
        self.assertEqual(graph_shape(self.file("g.json", json.dumps({"layers": layers}))),
                         Shape(3, 3, 3, (SparseInput("wide", 1, 30, True), SparseInput("deep", 2, 4))))
        for wrong in ("{", "{}", '{"layers": []}', json.dumps({"layers": [{**layers[0], "sparse": [{}]}]})):
            with self.assertRaisesRegex(embd.CorruptError, "g.json"):
                graph_shape(self.file("g.json", wrong))

    def test_shapes_whose_inputs_do_not_fit_are_refused(self):
        with self.assertRaisesRegex(ValueError, "inputs have 1 slots, and a sample has 4"):
            Shape(1, 3, 4, (SparseInput("wide", 1),))
        with self.assertRaisesRegex(ValueError, "same name"):
            Shape(1, 3, 4, (SparseInput("wide", 1), SparseInput("wide", 3)))

    def test_s3_15_several_lists_from_the_working_directory(self):
        os.mkdir(self.path("wdl"))
        parts = [samples(20, self.shape, 4) for _ in range(2)]
        for name, part in zip("ab", parts):
            with Writer(self.path(f"wdl/{name}"), "norm", self.shape) as writer:
                writer.add(part)
            self.file(f"wdl/{name}", f"1\n./wdl/{name}.0000\n")
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.dir.name)
        self.same(together(Norm(["wdl/a", "wdl/b"], batch_samples=8)), together(parts))
        with self.assertRaisesRegex(FileNotFoundError, "wdl/./wdl/a.0000"):
            Norm("wdl/a", self.shape, paths="list")

    def test_s3_4_keys_of_several_slots_are_reported(self):
        keys = np.array([5, 6, 7, 8, 6, 5, 9, 7, 5, 9, 7, 1], np.uint64)
        batch = Batch(np.zeros((4, 1), np.float32), np.zeros((4, 3), np.float32), np.arange(13, dtype=np.uint64), keys, 3)
        self.assertEqual(overlaps([batch, batch]), [Overlap((0, 2), 1, 5), Overlap((1, 2), 1, 7)])
        with Writer(self.path(), "norm", Shape(1, 3, 3)) as writer:
            writer.add(batch)
        result = embd_tool("overlap", f"norm:{self.path()}")
        self.assertEqual((result.returncode, result.stdout), (1, "slots 0 and 2: 1 keys, the least is 5\n"
                                                              "slots 1 and 2: 1 keys, the least is 7\n"))
        self.assertEqual(overlaps([]), [])


class Binary(DataTest):
    shape = Shape(1, 3, 4)

    def test_norm_is_read_as_it_was_written(self):
        for flags in ({}, {"checksum": True}, {"i64_keys": True}, {"checksum": True, "i64_keys": True}):
            with self.subTest(**flags):
                path = self.path("norm" + "-".join(flags))
                batch = samples(100, self.shape, bits=64 if "i64_keys" in flags else 32)
                with Writer(path, "norm", self.shape, file_samples=30, **flags) as writer:
                    writer.add(batch)
                source = Norm(path, i64_keys="i64_keys" in flags, batch_samples=16, threads=2)
                self.assertEqual(source.shape, self.shape)
                read = list(source)
                self.assertEqual([len(b) for b in read], [16] * 6 + [4])
                self.same(together(read), batch)
                self.same(together(source), batch)
                self.assertEqual(source.counts, embd.data.Counts(100, 0, 4, 0))
                self.assertEqual(source.first_fault, "")

    def test_raw_is_read_as_it_was_written(self):
        batch = samples(50, self.shape, 1)
        with Writer(self.path(), "raw", self.shape) as writer:
            writer.add(batch)
        self.same(together(Raw(self.path(), self.shape)), batch)
        integers = Batch(batch.labels, np.log(np.arange(150) + 1.0).astype(np.float32).reshape(50, 3), batch.offsets,
                         batch.keys, 4)
        with Writer(self.path("ints"), "raw", self.shape, integers=True) as writer:
            writer.add(integers)
        self.same(together(Raw(self.path("ints"), self.shape, integers=True)), integers)

    def test_arrays_outlive_the_reader(self):
        batch = samples(1000, self.shape)
        with Writer(self.path(), "norm", self.shape, i64_keys=True) as writer:
            writer.add(batch)
        kept = [b.keys[1:] for b in Norm(self.path(), i64_keys=True, batch_samples=100, batches_ahead=2)]
        gc.collect()
        np.testing.assert_array_equal(np.concatenate(kept),
                                      np.concatenate([b.keys[1:] for b in Norm(self.path(), i64_keys=True,
                                                                               batch_samples=100)]))
        first = next(iter(Norm(self.path(), i64_keys=True)))
        self.assertFalse(first.keys.flags.writeable)
        self.assertFalse(first.keys.flags.owndata)

    def test_trainers_share_a_data_set(self):
        with Writer(self.path(), "norm", self.shape, file_samples=10) as writer:
            writer.add(samples(100, self.shape))
        for share in ("files", "batches"):
            parts = [Norm(self.path(), batch_samples=10, share=share, worker=w, workers=3) for w in range(3)]
            self.assertEqual(sum(len(b) for part in parts for b in part), 100)

    def test_a_block_that_fails_leaves_no_data_set(self):
        for form in ("norm", "raw"):
            with self.assertRaises(KeyError), Writer(self.path(form), form, self.shape, file_samples=10) as writer:
                writer.add(samples(25, self.shape, 1))
                raise KeyError
        self.assertEqual(os.listdir(self.dir.name), [])

    def test_faults_are_counted_or_raised(self):
        with Writer(self.path(), "norm", self.shape, checksum=True) as writer:
            writer.add(samples(20, self.shape))
        with open(self.path("data.0000"), "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)[0]
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last ^ 1]))
        source = Norm(self.path())
        self.assertEqual((sum(len(b) for b in source), source.counts.bad_samples), (19, 1))
        self.assertIn("data.0000", source.first_fault)
        with self.assertRaisesRegex(embd.CorruptError, "data.0000"):
            list(Norm(self.path(), max_bad_samples=0))
        with self.assertRaises(OSError):
            Norm(self.path("nothing"))
        with self.assertRaisesRegex(TypeError, "batch_sample"):
            list(Norm(self.path(), batch_sample=3))

    def test_a_writer_takes_whole_samples_only(self):
        with Writer(self.path(), "norm", self.shape) as writer:
            for offsets, keys, dense in (([0, 1, 2], [1, 2], 3), ([0, 1, 2, 3, 4], [1, 2, 3], 3),
                                         ([0, 0, 0, 0, 0], [], 2)):
                with self.assertRaises(ValueError):
                    writer.add_arrays([0.0], np.zeros(dense), offsets, keys)
            with self.assertRaises(embd.InvalidError):
                writer.add_arrays([0.0], np.zeros(3), [0, 0, 0, 0, 1], [2**32])
        self.assertRaises(ValueError, writer.add_arrays, [0.0], np.zeros(3), [0] * 5, [])

    def test_keys_slot_after_slot(self):
        batch = Batch(np.zeros((2, 1)), np.zeros((2, 0)), np.array([0, 1, 3, 3, 6], np.uint64),
                      np.array([10, 20, 21, 30, 31, 32], np.uint64), 2)
        values, lengths = batch.by_slot()
        self.assertEqual((list(values), list(lengths)), ([10, 20, 21, 30, 31, 32], [1, 0, 2, 3]))
        many = samples(30, self.shape)
        values, lengths = many.by_slot()
        at = 0
        for slot in range(4):
            for sample in range(30):
                row = sample * 4 + slot
                expected = many.keys[int(many.offsets[row]):int(many.offsets[row + 1])].view(np.int64)
                np.testing.assert_array_equal(values[at:at + lengths[slot * 30 + sample]], expected)
                at += lengths[slot * 30 + sample]
        self.assertEqual(at, len(values))


class Layouts(DataTest):
    line = "\t".join(["1", "5", "", "-2", *["0"] * 10, "68fd1e64", "", *["ffffffff"] * 24]) + "\n"

    def test_criteo(self):
        for name in ("train.txt", "day_0.gz"):
            path = self.path(name)
            with (gzip.open(path, "wt") if name.endswith("gz") else open(path, "w", encoding="ascii")) as file:
                file.write(self.line * 3)
            batch = together(Criteo(path, batch_samples=2))
            self.assertEqual(len(batch), 3)
            self.assertEqual(list(batch.labels[:, 0]), [1, 1, 1])
            np.testing.assert_array_equal(batch.dense[0, :4], np.array([np.log1p(5), 0, 0, 0], np.float32))
            self.assertEqual(list(batch.lengths[0]), [1, 0] + [1] * 24)
            self.assertEqual(list(batch.keys[:2]), [0x68fd1e64, 0xffffffff])
        self.assertEqual(together(Criteo(path, missing=-1)).keys[1], 2**64 - 1)

    def test_a_bad_line_is_named(self):
        for line, word in (("1\t2\n", "2 fields"), (self.line.replace("68fd1e64", "xyz"), "xyz"),
                           (self.line.replace("5", "five", 1), "five")):
            path = self.file("bad", self.line + line)
            with self.assertRaisesRegex(embd.CorruptError, f"sample 2 .*{word}|sample 1 .*{word}"):
                list(Criteo(path))

    def test_avazu(self):
        header = "id,click," + ",".join(Avazu.columns)
        values = ["14102108", "1005", "0", *["1fbe01fe"] * 9, "1", "2", "15706", "320", "50", "1722", "0", "35", "-1",
                  "79"]
        path = self.file("train.csv", f"{header}\n7,1,{','.join(values)}\n8,0,{','.join(values)}\n")
        batch = together(Avazu(path))
        self.assertEqual(list(batch.labels[:, 0]), [1, 0])
        keys = batch.keys.reshape(2, 22)[0]
        self.assertEqual((keys[0], keys[1], keys[3], keys[20]), (8, 1005, 0x1fbe01fe, 2**64 - 1))
        with self.assertRaisesRegex(embd.CorruptError, "device_ip"):
            list(Avazu(self.file("other.csv", header.replace("device_ip", "x") + "\n")))

    def test_movielens(self):
        rows = [(1, 31, 2.5), (7, 1029, 5.0)]
        for name, separator, header in (("u.data", "\t", ""), ("ratings.dat", "::", ""),
                                        ("ratings.csv", ",", "userId,movieId,rating,timestamp\r\n")):
            os.mkdir(self.path(name))
            self.file(os.path.join(name, name), header + "".join(
                separator.join((str(user), str(movie), str(rating), "881250949")) + "\n" for user, movie, rating in rows))
            batch = together(MovieLens(self.path(name)))
            self.assertEqual(list(batch.keys), [1, 31, 7, 1029])
            self.assertEqual(list(batch.labels[:, 0]), [2.5, 5.0])
            self.assertEqual(list(together(MovieLens(self.path(name), positive_from=4)).labels[:, 0]), [0, 1])
        with self.assertRaises(embd.InvalidError):
            MovieLens(self.dir.name)


def embd_tool(*arguments):
    return subprocess.run([sys.executable, "-B", "-m", "embd", *arguments], capture_output=True, text=True, check=False)


def convert(*arguments):
    return embd_tool("convert", *arguments)


class Convert(DataTest):
    def convert(self, *arguments):
        result = convert(*arguments)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_a_click_log_becomes_norm_and_norm_becomes_raw(self):
        log = self.file("log", Layouts.line * 10)
        said = self.convert(f"criteo:{log}", f"norm:{self.path('norm')}", "--missing", "0", "--to-key-bits", "32")
        self.assertEqual(said, "10 samples: 1 labels, 13 dense values, 26 slots\n")
        expected = together(Criteo(log, missing=0))
        self.same(together(Norm(self.path("norm"))), expected)

    def test_norm_and_raw(self):
        shape, batch = Shape(1, 2, 3), samples(20, Shape(1, 2, 3), 1)
        with Writer(self.path("norm"), "norm", shape) as writer:
            writer.add(batch)
        self.convert(f"norm:{self.path('norm')}", f"raw:{self.path('raw')}")
        self.same(together(Raw(self.path("raw"), shape)), batch)
        self.convert(f"raw:{self.path('raw')}", f"norm:{self.path('again')}", "--dense-dim", "2", "--slots", "3",
                     "--checksum", "--file-samples", "7")
        self.same(together(Norm(self.path("again"), i64_keys=True)), batch)

    def test_what_fails_leaves_nothing(self):
        log = self.file("log", Layouts.line * 5000 + "bad\n")
        result = convert(f"criteo:{log}", f"norm:{self.path('norm')}")
        self.assertEqual(result.returncode, 1)
        self.assertIn("sample 5001", result.stderr)
        self.assertEqual(os.listdir(self.dir.name), ["log"])
        for arguments in (("norm", "raw:x"), ("norm:x", "criteo:y"), ("what:x", "norm:y")):
            self.assertIn("KIND:PATH", convert(*arguments).stderr)


class WithoutPyarrow(DataTest):
    def test_what_is_missing_is_named(self):
        code = ("import sys; sys.modules['pyarrow'] = None; sys.argv = ['embd', 'convert', 'norm:%s', 'parquet:%s'];"
                "from embd.__main__ import main; sys.exit(main())")
        shape = Shape(1, 0, 1)
        with Writer(self.path(), "norm", shape) as writer:
            writer.add(samples(2, shape, 1))
        result = subprocess.run([sys.executable, "-B", "-c", code % (self.path(), self.path("p"))], capture_output=True,
                                text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("pip install pyarrow", result.stderr)


if __name__ == "__main__":
    clusters.main()
