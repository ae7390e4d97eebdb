"""HugeCTR's wide & deep job, moved by one command: 27 slots of one data set, a wide table of one slot and one column, and a
deep one of 26 slots and 16 columns, with optimizer states of two GPUs. It trains on beside a model in numpy, and goes back.

Graph, model folders, state files and data are written here, by what REFERENCE 2a to 2c say of them."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy as np

from clusters import Embd, embd, main
from embd.data import Batch, Norm, Shape, Writer, graph_shape

GPUS, ITERATION, LR = 2, 40, 0.05
SLOTS, WIDE_KEYS, DEEP_KEYS = 26, 30, 2
WIDE, DEEP = "wdl-sparse_embedding2", "wdl-sparse_embedding1"


def embctl(server, *arguments):
    return subprocess.run([os.environ["EMBD_BIN"] + "/embctl", *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "EMBD_SERVERS": server.addresses[0]}, check=False)


class Table:
    """A table as HugeCTR trains it: rows by key, of AdaGrad or Adam. Keys of different slots differ."""

    def __init__(self, dim, adam, workspace_mb, localized):
        self.dim, self.adam, self.localized = dim, adam, localized
        self.n_states = 2 if adam else 1
        self.first = 0.0 if adam else 0.25  # of a state
        self.gpu_rows = workspace_mb * 2**20 // ((1 + self.n_states) * 4 * dim)
        self.rows, self.t = {}, ITERATION

    def fill(self, random, keys):
        for key in keys:
            self.rows[int(key)] = [random.normal(0, 0.1, self.dim)] + [
                self.first + random.random(self.dim) * 0.01 for _ in range(self.n_states)]

    def row(self, key):
        return self.rows[int(key)][0]

    def pull(self, keys, offsets):
        out = np.zeros((len(offsets) - 1, self.dim))
        for i in range(len(out)):
            for key in keys[int(offsets[i]):int(offsets[i + 1])]:
                out[i] += self.row(key)
        return out

    def push(self, keys, offsets, gradients):
        sums = {}
        for i, gradient in enumerate(gradients):
            for key in keys[int(offsets[i]):int(offsets[i + 1])]:
                sums[int(key)] = sums.get(int(key), 0) + gradient
        self.t += 1
        for key, g in sums.items():
            self.step(self.rows[key], g)

    def step(self, row, g):
        if self.adam:
            row[1] = 0.9 * row[1] + 0.1 * g
            row[2] = 0.999 * row[2] + 0.001 * g * g
            row[0] = row[0] - LR * np.sqrt(1 - 0.999**self.t) / (1 - 0.9**self.t) * row[1] / (np.sqrt(row[2]) + 1e-7)
        else:
            row[1] = row[1] + g * g
            row[0] = row[0] - LR * g / (np.sqrt(row[1]) + 1e-6)

    # ---- its files ----

    def gpu(self, key):
        return (slot_of(key) if self.localized else key) % GPUS

    def save(self, folder, state_file, random):
        """Rows of a GPU in any order, GPU after GPU; then its state buffers."""
        gpus = [random.permutation([key for key in self.rows if self.gpu(key) == gpu]) for gpu in range(GPUS)]
        keys = np.concatenate(gpus).astype(np.int64)
        os.mkdir(folder)
        keys.tofile(f"{folder}/key")
        np.array([self.row(key) for key in keys], np.float32).tofile(f"{folder}/emb_vector")
        if self.localized:
            np.array([slot_of(key) for key in keys], np.uint64).tofile(f"{folder}/slot_id")
        buffers = np.full((self.n_states, GPUS, self.gpu_rows, self.dim), self.first, np.float32)
        for gpu, of_gpu in enumerate(gpus):
            for r, key in enumerate(of_gpu):
                buffers[:, gpu, r] = self.rows[int(key)][1:]
        buffers.tofile(state_file)


def slot_of(key):
    """In the deep input."""
    return int(key) // 1000 - 1


def layer(kind, number, bottom, workspace_mb, dim, optimizer):
    return {"type": kind, "bottom": bottom, "top": f"sparse_embedding{number}", "optimizer": optimizer,
            "sparse_embedding_hparam": {"workspace_size_per_gpu_in_mb": workspace_mb, "embedding_vec_size": dim,
                                        "combiner": "sum", "max_vocabulary_size_global": 0}}


def graph():
    """What graph_to_json writes, but for the dense network."""
    adam = {"type": "Adam", "update_type": "Local", "adam_hparam": {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-7}}
    adagrad = {"type": "AdaGrad", "update_type": "Global",
               "adagrad_hparam": {"initial_accu_value": 0.25, "epsilon": 1e-6}}
    data = {"type": "Data", "label": {"top": "label", "label_dim": 1}, "dense": {"top": "dense", "dense_dim": 13},
            "sparse": [{"top": "wide_data", "slot_num": 1, "is_fixed_length": True, "nnz_per_slot": WIDE_KEYS},
                       {"top": "deep_data", "slot_num": SLOTS, "is_fixed_length": False, "nnz_per_slot": DEEP_KEYS}]}
    out = {"layers": [data,
                      layer("LocalizedSlotSparseEmbeddingHash", 1, "deep_data", 1, 16, adam),
                      layer("DistributedSlotSparseEmbeddingHash", 2, "wide_data", 1, 1, adagrad),
                      {"type": "Reshape", "bottom": "sparse_embedding1", "top": "reshape1", "leading_dim": 416},
                      {"type": "BinaryCrossEntropyLoss", "bottom": ["add1", "label"], "top": "loss"}]}
    for one, rows in ((out["layers"][1], 2**20 // (3 * 4 * 16)), (out["layers"][2], 2**20 // (2 * 4))):
        one["sparse_embedding_hparam"]["max_vocabulary_size_global"] = rows * GPUS
    return out


class Job:
    """The job's folder, as HugeCTR leaves it: wdl.json, wdl0_sparse_40.model, ..., data/train and its list."""

    def __init__(self, folder):
        random = np.random.default_rng(11)
        self.folder = pathlib.Path(folder)
        self.deep, self.wide = Table(16, True, 1, True), Table(1, False, 1, False)
        self.deep.fill(random, [1000 * (slot + 1) + k for slot in range(SLOTS) for k in range(20)])
        self.wide.fill(random, range(500))
        for i, table in enumerate((self.deep, self.wide)):
            table.save(folder + f"/wdl{i}_sparse_{ITERATION}.model", folder + f"/wdl{i}_opt_sparse_{ITERATION}.model", random)
        self.write_graph(graph())
        self.write_data(random, 192)

    def write_graph(self, found):
        (self.folder / "wdl.json").write_text(json.dumps(found))

    def write_data(self, random, n):
        lengths = np.concatenate([np.full((n, 1), WIDE_KEYS), random.integers(0, DEEP_KEYS + 1, (n, SLOTS))], axis=1)
        first = np.concatenate([[0], 1000 * (np.arange(SLOTS) + 1)])
        size = np.array([500] + [20] * SLOTS)
        slots = np.repeat(np.tile(np.arange(SLOTS + 1), n), lengths.reshape(-1))
        keys = first[slots] + random.integers(0, size[slots])
        offsets = np.append(0, np.cumsum(lengths)).astype(np.uint64)
        dense = random.random((n, 13), np.float32)
        labels = (dense[:, :1] + 0.1 * random.random((n, 1)) > 0.5).astype(np.float32)
        os.mkdir(self.folder / "data")
        with Writer(self.folder / "data/train", "norm", Shape(1, 13, SLOTS + 1), i64_keys=True, checksum=True,
                    file_samples=100) as writer:
            writer.add(Batch(labels, dense, offsets, keys.astype(np.uint64), SLOTS + 1))
        names = (self.folder / "data/train").read_text().splitlines()
        (self.folder / "data/train").write_text("\n".join([names[0]] + [f"./data/{name}" for name in names[1:]]) + "\n")


def gradients(wide, deep, batch, w, loss):
    """Of the logistic loss by both tables' rows and the dense weights."""
    n = batch.n_samples
    features = np.concatenate([deep.reshape(n, -1), batch.dense], axis=1)
    logits = wide.reshape(n) + features @ w
    p = 1 / (1 + np.exp(-logits))
    loss.append(float(-np.mean(np.log(np.where(batch.labels[:, 0] > 0, p, 1 - p) + 1e-9))))
    d = (p - batch.labels[:, 0]) / n
    return d[:, None], (d[:, None] * w[:16 * SLOTS]).reshape(n * SLOTS, 16), features.T @ d


class WideAndDeep(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        self.job = Job(scratch.name)
        os.chdir(scratch.name)

    def moved(self, server, *arguments):
        done = embctl(server, "import", "--job", "wdl.json", "--lr", LR, "-o", "json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def refused(self, server, says, *arguments):
        done = embctl(server, "import", "--job", "wdl.json", "--lr", LR, *arguments)
        self.assertIn(says, done.stderr)
        self.assertNotEqual(done.returncode, 0)

    def train(self, client, epochs):
        """On embd and on the tables here, side by side."""
        tables = {"wide_data": (client.table(WIDE), self.job.wide), "deep_data": (client.table(DEEP), self.job.deep)}
        random = np.random.default_rng(3)
        w = {side: random.normal(0, 0.1, 16 * SLOTS + 13) for side in (0, 1)}
        w[1] = w[0].copy()
        losses = [], []
        for _ in range(epochs):
            for batch in Norm("data/train", graph_shape("wdl.json"), i64_keys=True, batch_samples=48):
                for side in (0, 1):
                    rows = {name: pair[side].pull(*batch.inputs[name]) for name, pair in tables.items()}
                    *of_rows, of_w = gradients(rows["wide_data"], rows["deep_data"], batch, w[side], losses[side])
                    for name, gradient in zip(tables, of_rows):
                        self.push(tables[name][side], batch.inputs[name], gradient)
                    w[side] -= 0.1 * of_w
        return losses

    @staticmethod
    def push(table, keys_of, gradient):
        if isinstance(table, Table):
            table.push(*keys_of, gradient)
        else:
            table.push(keys_of.keys, gradient.astype(np.float32), keys_of.offsets)

    def check_rows(self, client, exact):
        for name, table in ((WIDE, self.job.wide), (DEEP, self.job.deep)):
            keys = np.array(sorted(table.rows), np.uint64)
            raw = dict(raw=True, offsets=None)
            if table.localized:  # a row of the batch for each slot: key k of slot s is row s
                keys = keys.reshape(SLOTS, -1)
                found = np.stack([client.table(name).pull(
                    keys[:, k], np.arange(SLOTS + 1, dtype=np.uint64)) for k in range(keys.shape[1])], 1).reshape(-1, 16)
            else:
                found = client.table(name).pull(keys, **raw)
            wanted = np.array([table.row(key) for key in keys.reshape(-1)])
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-7 if exact else 2e-5)

    def test_s3_17_it_moves_in_one_command_trains_on_and_goes_back(self):
        with Embd(shards=2) as server, embd.connect(server.addresses[0]) as client:
            report = self.moved(server)
            self.assertEqual([(t["table"], t["rows"], t["dim"], t["slots"], t["partition"], t["optimizer"], t["gpus"],
                               t["capacity"], t["is_new"]) for t in report["import"]],
                             [(DEEP, 520, 16, 26, "slot", "adam", 2, 5461, True),
                              (WIDE, 500, 1, 1, "modulo", "adagrad", 2, 131072, True)])
            self.assertEqual([t["state_file"] for t in report["import"]],
                             [f"wdl{i}_opt_sparse_{ITERATION}.model" for i in (0, 1)])
            self.assertEqual(report["ignored"], [{"key": "layers of the dense network: 2"}])
            self.check_rows(client, exact=True)
            losses = self.train(client, epochs=5)
            self.check_rows(client, exact=False)
            np.testing.assert_allclose(*losses, atol=1e-4)
            self.assertLess(np.mean(losses[0][-4:]), np.mean(losses[0][:4]) - 0.02)
            self.goes_back(server)

    def export(self, server, prefix):
        out = {}
        for i, (name, rows) in enumerate(((DEEP, self.job.deep.gpu_rows), (WIDE, self.job.wide.gpu_rows))):
            done = embctl(server, "export", name, prefix, "--index", i, "--iteration", ITERATION + 20, "--gpus", GPUS,
                          "--optimizer-state", "--gpu-rows", rows)
            self.assertEqual(done.returncode, 0, done.stderr)
        for path in sorted(pathlib.Path(".").glob(f"{prefix}[01]_*/*")) + sorted(pathlib.Path(".").glob(f"{prefix}[01]_opt*")):
            out[str(path)[len(prefix):]] = path.read_bytes()
        return out

    def goes_back(self, server):
        """What is exported has the rows, states and slots, and is what another cluster exports that imported it."""
        files = self.export(server, "wdl-later-")
        keys = np.frombuffer(files["0_sparse_60.model/key"], np.int64)
        np.testing.assert_array_equal(np.frombuffer(files["0_sparse_60.model/slot_id"], np.uint64), keys // 1000 - 1)
        states = np.frombuffer(files["0_opt_sparse_60.model"], np.float32).reshape(2, GPUS, -1, 16)
        on_gpu_1 = [key for key in keys if self.job.deep.gpu(key) == 1]
        wanted = np.array([self.job.deep.rows[int(key)][1:] for key in on_gpu_1])
        np.testing.assert_allclose(states[:, 1, :len(on_gpu_1)], wanted.transpose(1, 0, 2), atol=1e-5)
        with Embd(shards=3) as other:
            done = embctl(other, "import", "--job", "wdl.json", "--lr", LR, "--prefix", "wdl-later-", "--iteration", 60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(self.export(other, "again-"), files)

    def test_a_dry_run_checks_everything_and_changes_nothing(self):
        with Embd(shards=2) as server, embd.connect(server.addresses[0]) as client:
            report = self.moved(server, "--dry-run", "--model", "x")
            self.assertEqual([(t["table"], t["rows"], t["is_new"]) for t in report["would_import"]],
                             [("x-sparse_embedding1", 520, True), ("x-sparse_embedding2", 500, True)])
            self.assertEqual(list(client.tables()), [])
            client.create_table(WIDE, 1)
            self.refused(server, f"table '{WIDE}' has partition hash", "--dry-run")
            self.refused(server, f"table '{WIDE}' has partition hash")
            self.assertEqual(list(client.tables()), [WIDE])
            client.drop_table(WIDE)
            with open("wdl1_sparse_40.model/emb_vector", "ab") as file:
                file.write(b"more")
            self.refused(server, "wdl1_sparse_40.model/emb_vector", "--dry-run")
            self.refused(server, "wdl1_sparse_40.model/emb_vector")
            self.assertEqual(list(client.tables()), [], "all tables or none")

    def test_an_empty_job_has_tables_without_rows(self):
        with Embd(shards=2) as server, embd.connect(server.addresses[0]) as client:
            report = self.moved(server, "--empty", "--on-full", "grow")
            self.assertEqual([(t["rows"], t["capacity"]) for t in report["import"]], [(0, 5461), (0, 131072)])
            self.assertEqual(sorted(client.tables()), [DEEP, WIDE])
            self.refused(server, f"table '{DEEP}' exists", "--empty")

    def test_without_states_rows_begin_with_new_ones(self):
        os.unlink("wdl0_opt_sparse_40.model")
        with Embd(shards=1) as server, embd.connect(server.addresses[0]) as client:
            self.refused(server, "use --no-optimizer-state")
            self.moved(server, "--no-optimizer-state")
            self.check_rows(client, exact=True)

    def test_what_the_graph_has_wrong_is_refused_by_its_name(self):
        changes = [
            (lambda g: g["layers"][1].pop("bottom"), "layers[1].bottom is missing"),
            (lambda g: g["layers"][1].update(bottom="data"), "layers[1].bottom is 'data'"),
            (lambda g: g["layers"][1].update(type="HybridEmbedding"), "layers[1].type is 'HybridEmbedding'"),
            (lambda g: g["layers"][2].update(top="sparse_embedding1"), f"two tables would be called '{DEEP}'"),
            (lambda g: g["layers"][1]["sparse_embedding_hparam"].update(embedding_vec_size=0),
             "layers[1].sparse_embedding_hparam.embedding_vec_size is 0; it can be 1 to"),
            (lambda g: g["layers"][1]["sparse_embedding_hparam"].update(combiner="max"), "combiner is 'max'"),
            (lambda g: g["layers"][1]["sparse_embedding_hparam"].update(workspace_size_per_gpu_in_mb=-1),
             "workspace_size_per_gpu_in_mb is -1; it can be 0 to"),
            (lambda g: g["layers"][1]["sparse_embedding_hparam"].update(max_vocabulary_size_global=10923),
             f"max_vocabulary_size_global of '{DEEP}' is 10923"),
            (lambda g: g["layers"][1]["sparse_embedding_hparam"].update(slot_size_array=[20] * 25),
             "slot_size_array has 25 elements; its input has 26 slots"),
            (lambda g: g["layers"][1]["optimizer"].update(type="Lamb"), "layers[1].optimizer.type is 'Lamb'"),
            (lambda g: g["layers"][1]["optimizer"].update(update_type="Lazy"), "optimizer.update_type is 'Lazy'"),
            (lambda g: g["layers"][1]["optimizer"]["adam_hparam"].pop("beta1"),
             "layers[1].optimizer.adam_hparam.beta1 is not a finite"),
            (lambda g: g["layers"][2].pop("optimizer"), f"'{WIDE}' has no member 'optimizer'"),
            (lambda g: g["layers"][0]["sparse"][1].update(slot_num=0), "layers[0].sparse[1].slot_num is 0"),
            (lambda g: g["layers"].pop(0), "layers[0].type is"),
            (lambda g: g.pop("layers"), "has neither 'layers', as a graph, nor 'models'"),
        ]
        with Embd(shards=1) as server, embd.connect(server.addresses[0]) as client:
            for change, says in changes:
                changed = graph()
                change(changed)
                self.job.write_graph(changed)
                self.refused(server, says)
            self.job.write_graph(graph())
            self.refused(server, "--gpus is 3", "--gpus", 3)
            self.refused(server, "no0_sparse_<N>.model is not there", "--prefix", "no")
            os.mkdir("wdl0_sparse_41.model")
            self.refused(server, "for 2 iterations, from 40 to 41: choose one with --iteration")
            self.refused(server, "wdl0_sparse_41.model/key: is missing", "--iteration", 41, "--no-optimizer-state")
            done = embctl(server, "import", "--job", "wdl.json")
            self.assertIn("set --lr X", done.stderr)
            self.assertEqual(list(client.tables()), [])

    def test_s0_4_slot_sizes_bound_a_localized_table_as_its_fullest_gpu(self):
        changed = graph()
        sizes = [30] * SLOTS
        sizes[1] = 100
        changed["layers"][1]["sparse_embedding_hparam"].update(slot_size_array=sizes, workspace_size_per_gpu_in_mb=0,
                                                               max_vocabulary_size_global=0)
        self.job.write_graph(changed)
        with Embd(shards=1) as server:
            report = self.moved(server, "--gpus", 2, "--empty")
            self.assertEqual(report["import"][0]["capacity"], 2 * (12 * 30 + 100))


if __name__ == "__main__":
    main()
