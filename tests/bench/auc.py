"""What low precision costs a model: the held-out AUC of the demo's factorization machine (client/examples/fm.c) or of the
DLRM in PyTorch (client/python/examples/package_graph.py), with rows and with wires of each dtype, as means over seeds and as
the difference to f32 of the same seeds. The seed decides first values, the network's, and the draws of rounding; the samples
are those of client/examples/package_samples.py, in the same order.

usage: auc.py FOLDER [--model fm|dlrm] [--seeds 5] [--passes 1] [--kind NAME ...] [--jobs 1]

FOLDER: what package_samples.py has written. --kind: only these, and f32. --jobs: runs at the same time, each with its server"""
import argparse
import concurrent.futures
import hashlib
import multiprocessing
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../integration"), os.path.join(HERE, "../../client/python/examples")]
from embd_process import Embd  # noqa: E402
import embd  # noqa: E402
from embd.data import Norm  # noqa: E402

SLOTS, DIM, BATCH, RATE, BAR = 8, 16, 1024, 0.1, 1e-3
KINDS = [("f32", {}, "f32"), ("f16 rows", {"dtype": "f16"}, "f32"), ("bf16 rows", {"dtype": "bf16"}, "f32"),
         ("bf16 rows, stochastic", {"dtype": "bf16", "rounding": "stochastic"}, "f32"), ("i8 rows", {"dtype": "i8"}, "f32"),
         ("i8 rows, stochastic", {"dtype": "i8", "rounding": "stochastic"}, "f32"), ("e4m3 rows", {"dtype": "e4m3"}, "f32"),
         ("e4m3 rows, stochastic", {"dtype": "e4m3", "rounding": "stochastic"}, "f32"),
         ("f16 rows, master", {"dtype": "f16", "rounding": "master"}, "f32"),
         ("bf16 rows, master", {"dtype": "bf16", "rounding": "master"}, "f32"),
         ("i8 rows, master", {"dtype": "i8", "rounding": "master"}, "f32"),
         ("e4m3 rows, master", {"dtype": "e4m3", "rounding": "master"}, "f32"), ("f16 wire", {}, "f16"),
         ("bf16 wire", {}, "bf16"), ("i8 wire", {}, "i8"), ("i4 wire", {}, "i4")]
SERVED = {"f32, served as i8": "i8", "f32, served as e4m3": "e4m3"}  # rows that were trained as f32


def auc(scores, labels):
    """How often a positive sample scores above a negative one; equal scores count half."""
    _, ranks, counts = np.unique(scores, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2
    positive = labels > 0.5
    n = int(positive.sum())
    return (middle[ranks][positive].sum() - n * (n + 1) / 2) / (n * (len(labels) - n))


def hash_of(*values):
    """A number that is the same in every run."""
    return int.from_bytes(hashlib.sha256(repr(values).encode()).digest()[:8], "little")


class Machine:
    def __init__(self, client, fields, wire, seed, served=None):
        common = {"slots": SLOTS, "optimizer": embd.Optimizer("adagrad", lr=RATE), "seed": seed, **fields}
        self.wire = wire
        self.pusher = embd.Pusher(client, id=seed << 64 | hash_of(wire, fields, served))
        self.sequence = 0
        self.linear = client.create_table("linear", 1, combiner="sum", initializer=embd.Initializer("constant"), **common)
        self.factors = client.create_table("factors", DIM, combiner="mean", initializer=embd.Initializer("normal", 0, 0.05),
                                           **common)

    def rows(self, batch):
        linear = self.linear.pull(batch.keys, batch.offsets, wire=self.wire).reshape(-1, SLOTS)
        factors = self.factors.pull(batch.keys, batch.offsets, wire=self.wire).reshape(-1, SLOTS, DIM)
        total = factors.sum(1)
        return linear.sum(1) + ((total ** 2).sum(1) - (factors ** 2).sum((1, 2))) / 2, factors, total

    def learn(self, batch):
        logits, factors, total = self.rows(batch)
        g = (1 / (1 + np.exp(-logits)) - batch.labels[:, 0]).astype(np.float32)
        self.sequence += 1
        how = {"wire": self.wire, "pusher": self.pusher, "sequence": self.sequence}
        linear = np.repeat(g, SLOTS).reshape(-1, 1)
        both = [embd.Part(self.linear, batch.keys, batch.offsets, values=linear),
                embd.Part(self.factors, batch.keys, batch.offsets,
                          values=(g[:, None, None] * (total[:, None] - factors)).reshape(-1, DIM))]
        self.linear.client.push(both, **how)

    def serve(self, dtype):
        """The factors become rows of `dtype`."""
        rows, client = list(self.factors.scan()), self.factors.client
        self.factors.drop()
        self.factors = client.create_table("factors", DIM, combiner="mean", slots=SLOTS, dtype=dtype)
        for part in rows:
            self.factors.put(part.keys, part.values)

    def drop(self):
        self.linear.drop()
        self.factors.drop()


def narrow(client, fields, wire):
    """From now on its tables have these fields, and its calls have this wire."""
    kind = type(client)
    client.create_table = lambda name, dim, **given: kind.create_table(client, name, dim, **{**given, **fields})
    client.pull_start = lambda parts, **options: kind.pull_start(client, parts, wire=wire, **options)
    client.push_start = lambda parts, **options: kind.push_start(client, parts, wire=wire, **options)


def deep_auc(client, folder, passes, fields, wire, seed):
    import torch
    import package_graph
    torch.set_num_threads(1)  # jobs take the cores
    torch.manual_seed(seed)
    narrow(client, {"seed": seed, **fields}, wire)
    model = package_graph.Model(client, DIM)
    train, held_out = (Norm(f"{folder}/{name}", i64_keys=True, batch_samples=BATCH) for name in ("train", "held-out"))
    for _ in range(passes):
        package_graph.train(model, train)
    found = package_graph.evaluate(model, held_out)
    for table in model.bags.tables:
        table.drop()
    return found


def held_out_auc(client, folder, passes, *kind, served=None):
    machine = Machine(client, *kind, served)
    train, held_out = (Norm(f"{folder}/{name}", i64_keys=True, batch_samples=BATCH) for name in ("train", "held-out"))
    for _ in range(passes):
        for batch in train:
            machine.learn(batch)
    if served:
        machine.serve(served)
    scores, labels = [], []
    for batch in held_out:
        scores.append(machine.rows(batch)[0])
        labels.append(batch.labels[:, 0].copy())
    machine.drop()
    return auc(np.concatenate(scores), np.concatenate(labels))


def run(o, fields, wire, served, seed):
    """The held-out AUC of one seed, on a server of its own."""
    server = Embd()
    with embd.connect(server.addresses[0]) as client:
        if o.model == "dlrm":
            found = deep_auc(client, o.folder, o.passes, fields, wire, seed)
        else:
            found = held_out_auc(client, o.folder, o.passes, fields, wire, seed, served=served)
    server.stop()
    return found


def kinds_of(o):
    """Name, fields, wire and dtype to serve as; f32 is the first."""
    kinds = [(*kind, None) for kind in KINDS]
    if o.model == "fm":
        kinds += [(name, {}, "f32", dtype) for name, dtype in SERVED.items()]
    unknown = set(o.kind) - {name for name, *_ in kinds}
    if unknown:
        raise SystemExit(f"unknown kinds: {', '.join(unknown)}; there are {'; '.join(name for name, *_ in kinds)}")
    return [kind for i, kind in enumerate(kinds) if i == 0 or not o.kind or kind[0] in o.kind]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--model", choices=["fm", "dlrm"], default="fm")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--kind", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=1)
    o = parser.parse_args()
    plain, missed = None, 0
    with concurrent.futures.ProcessPoolExecutor(o.jobs, multiprocessing.get_context("spawn")) as pool:
        runs = [(kind, [pool.submit(run, o, *kind[1:], seed) for seed in range(1, o.seeds + 1)]) for kind in kinds_of(o)]
        for (name, _, wire, _), results in runs:
            found = np.array([result.result() for result in results])
            plain = found if plain is None else plain
            apart = (found - plain).mean()
            missed += abs(apart) > BAR and wire != "i4"
            print(f"{name:24} AUC {found.mean():.5f} ({found.min():.5f} to {found.max():.5f})  {apart:+.5f} of f32", flush=True)
    print(f"bar: within {BAR} of f32, but i4: {'met' if missed == 0 else 'missed'}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
