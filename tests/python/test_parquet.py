"""embd.data: Parquet data sets, where pyarrow is (deploy/deps.sh --tools); elsewhere all of this is skipped, and ctest says so."""
import json
import os
import pathlib
import unittest

import numpy as np

import clusters
import embd
import test_data
from embd.data import Norm, Parquet, ParquetWriter, Shape, SparseInput

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None


@unittest.skipIf(pyarrow is None, "pyarrow is not installed")
class ParquetFiles(test_data.DataTest):
    shape = Shape(1, 2, 3)

    def write(self, batch, **options):
        with ParquetWriter(self.path("parquet"), self.shape, **options) as writer:
            writer.add(batch)
        return self.path("parquet")

    def test_what_is_written_is_read_again(self):
        batch = test_data.samples(100, self.shape, 1, bits=64)
        path = self.write(batch, file_samples=30)
        source = Parquet(path, batch_samples=16)
        self.assertEqual(source.shape, self.shape)
        self.same(test_data.together(source), batch)
        self.assertEqual(sorted(os.listdir(path)), ["0.parquet", "1.parquet", "2.parquet", "3.parquet", "_metadata.json"])
        self.assertEqual(pyarrow.parquet.read_table(os.path.join(path, "3.parquet")).num_rows, 10)

    def test_s3_5b_parquet_becomes_norm_and_back(self):
        batch = test_data.samples(50, self.shape, 1, bits=64)
        path = self.write(batch)
        for source, target in ((f"parquet:{path}", f"norm:{self.path('norm')}"),
                               (f"norm:{self.path('norm')}", f"parquet:{self.path('back')}")):
            result = test_data.convert("--key-bits", "64", source, target)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.same(test_data.together(Norm(self.path("norm"), i64_keys=True)), batch)
        self.same(test_data.together(Parquet(self.path("back"))), batch)

    def table(self, **columns):
        os.makedirs(self.path("p"), exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.table(columns), self.path("p/a.parquet"))
        metadata = {"file_stats": [{"file_name": "a.parquet", "num_rows": 2}],
                    "labels": [{"col_name": "y", "index": 2}], "conts": [{"col_name": "x", "index": 1}],
                    "cats": [{"col_name": "b", "index": 0}, {"col_name": "a", "index": 3}]}
        self.file("p/_metadata.json", json.dumps(metadata))
        return metadata

    good = {"b": [1, 2], "x": np.array([0.5, 1.5], np.float64), "y": np.array([0, 1], np.float32), "a": [-1, 4]}

    def test_s3_5b_columns_are_found_by_name_in_any_order(self):
        self.table(**self.good)
        batch = test_data.together(Parquet(self.path("p")))
        self.assertEqual(list(batch.keys), [1, 2**64 - 1, 2, 4])
        self.assertEqual((list(batch.labels[:, 0]), list(batch.dense[:, 0])), ([0, 1], [0.5, 1.5]))

    def test_s3_16_a_file_list_names_the_files_and_indexes_the_columns(self):
        """`_file_list.txt` as HugeCTR's preprocessing writes it: paths count from the working directory."""
        self.table(**self.good)
        os.rename(self.path("p/a.parquet"), self.path("p/b.parquet"))
        self.table(**{name: self.good[name][::-1] for name in ("b", "x", "y", "a")})
        metadata = json.loads(pathlib.Path(self.path("p/_metadata.json")).read_text())
        metadata["file_stats"].append({"file_name": "b.parquet", "num_rows": 2})
        for group in ("labels", "conts", "cats"):
            for column in metadata[group]:
                column["col_name"] = "called-" + column["col_name"]
        self.file("p/_metadata.json", json.dumps(metadata))
        self.file("p/_file_list.txt", "2\n./p/b.parquet\n./p/a.parquet\n")
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.dir.name)
        batch = test_data.together(Parquet("p/_file_list.txt", columns="index"))
        self.assertEqual(list(batch.keys), [1, 2**64 - 1, 2, 4, 2, 4, 1, 2**64 - 1])
        self.assertEqual((list(batch.labels[:, 0]), list(batch.dense[:, 0])), ([0, 1, 1, 0], [0.5, 1.5, 1.5, 0.5]))
        self.assertEqual(test_data.together(Parquet(["p/_file_list.txt", "p"], columns="index")).n_samples, 8)
        with self.assertRaisesRegex(embd.CorruptError, "no column 'called-"):
            list(Parquet("p/_file_list.txt"))
        metadata["cats"][0]["index"] = 9
        self.file("p/_metadata.json", json.dumps(metadata))
        with self.assertRaisesRegex(embd.CorruptError, "has 4 columns; column 'called-b' has the index 9"):
            list(Parquet("p/_file_list.txt", columns="index"))
        self.file("p/_file_list.txt", f"1\n{self.path('p/c.parquet')}\n")
        with self.assertRaisesRegex(embd.CorruptError, "no file_stats of .*/p/c.parquet"):
            Parquet("p/_file_list.txt")
        with self.assertRaisesRegex(embd.Error, "_metadata.json: cannot open"):
            Parquet(self.dir.name)

    def test_s3_16_keys_are_below_the_sizes_of_their_slots(self):
        self.table(**{**self.good, "a": [7, 4]})
        self.assertEqual(len(list(Parquet(self.path("p"), slot_sizes=[3, 8]))), 1)
        with self.assertRaisesRegex(embd.CorruptError, "a.parquet: slot 1 has key 7; its size is 7"):
            list(Parquet(self.path("p"), slot_sizes=[3, 7]))
        with self.assertRaisesRegex(ValueError, "slot_sizes has 1 sizes, and a sample has 2 slots"):
            Parquet(self.path("p"), slot_sizes=[3])

    def test_s3_17_parquet_batches_are_divided_too(self):
        self.table(**self.good)
        inputs = SparseInput("wide", 1), SparseInput("deep", 1)
        batch, = Parquet(self.path("p"), inputs=inputs)
        self.assertEqual({name: list(one.keys) for name, one in batch.inputs.items()}, {"wide": [1, 2], "deep": [2**64 - 1, 4]})

    def test_a_truncated_file_is_named(self):
        self.table(**self.good)
        whole = pathlib.Path(self.path("p/a.parquet")).read_bytes()
        for n in (0, 4, len(whole) // 2, len(whole) - 1):
            pathlib.Path(self.path("p/a.parquet")).write_bytes(whole[:n])
            with self.assertRaisesRegex(embd.CorruptError, "a.parquet"):
                list(Parquet(self.path("p")))

    def test_nulls_nested_columns_and_other_types_are_refused(self):
        for column, values in (("a", [None, 4]), ("x", [None, 0.5]), ("a", [[1], [2]]), ("a", [1.5, 2.5]),
                               ("y", ["no", "yes"])):
            self.table(**{**self.good, column: values})
            with self.assertRaisesRegex(embd.CorruptError, f"a.parquet: column '{column}'"):
                list(Parquet(self.path("p")))
        self.table(**{**self.good, "a": [None, 4]})
        self.assertEqual(list(test_data.together(Parquet(self.path("p"), missing=9)).keys), [1, 9, 2, 4])
        self.table(**{name: values for name, values in self.good.items() if name != "x"})
        with self.assertRaisesRegex(embd.CorruptError, "no column 'x'"):
            list(Parquet(self.path("p")))

    def test_metadata_that_does_not_fit_is_refused(self):
        good = self.table(**self.good)
        for change, word in (({"file_stats": [{"file_name": "a.parquet", "num_rows": 3}]}, "2 rows"),
                             ({"file_stats": [{"file_name": "../a.parquet", "num_rows": 2}]}, "file_name"),
                             ({"file_stats": {}}, "file_stats"), ({"cats": []}, "no cats"), ({"labels": [{}]}, "col_name"),
                             ({"conts": [{"col_name": "y"}]}, "twice")):
            self.file("p/_metadata.json", json.dumps({**good, **change}))
            with self.assertRaisesRegex(embd.CorruptError, word):
                list(Parquet(self.path("p")))
        self.file("p/_metadata.json", "{")
        self.assertRaises(embd.CorruptError, Parquet, self.path("p"))

    def test_several_keys_in_a_slot_have_no_place(self):
        with self.assertRaisesRegex(ValueError, "keys in slot"):
            self.write(test_data.samples(50, self.shape, 4))
        self.assertEqual(os.listdir(self.dir.name), [])


if __name__ == "__main__":
    clusters.main()
