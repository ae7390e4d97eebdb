"""A deep recommendation model in PyTorch on the package graph of a Debian archive: does package A depend on B?

The samples are those of the demo: 8 slots of 64-bit keys that describe A and B. Each slot is a feature with a pooled
vector; the model is DLRM's: the products of all pairs of vectors, and the vectors, go through a small network. Rows
and their Adagrad live on the servers, the network and its Adagrad here.

    python3 client/examples/package_samples.py FOLDER
    python3 package_graph.py FOLDER --servers 127.0.0.1:7700
"""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import embd
import embd.torch
from embd.data import Norm

FEATURES = ["a_section", "a_maintainer", "a_tokens", "a_dependencies", "b", "b_section", "b_maintainer", "b_tokens"]


class Model(nn.Module):
    def __init__(self, client, dim):
        super().__init__()
        self.bags = embd.torch.EmbeddingBagCollection([
            embd.torch.EmbeddingBagConfig(None, dim, "graph-vectors", feature_names=FEATURES, pooling="MEAN")],
            client=client, optimizer=embd.Optimizer("adagrad", lr=0.1), initializer=embd.Initializer("normal", 0, 0.05))
        n = len(FEATURES)
        self.pairs = torch.triu_indices(n, n, 1)
        self.top = nn.Sequential(nn.Linear(n * dim + len(self.pairs[0]), 64), nn.ReLU(), nn.Linear(64, 1))

    def prefetch(self, batch):
        values, lengths = batch.by_slot()
        return self.bags.prefetch(FEATURES, torch.from_numpy(values), torch.from_numpy(lengths))

    def forward(self, ticket):
        vectors = torch.stack([rows for rows in self.bags(ticket).values()], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([vectors.flatten(1), products], 1))[:, 0] + products.sum(1)


def auc(scores, labels):
    """How often a positive sample scores above a negative one; equal scores count half."""
    _, ranks, counts = np.unique(scores, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2
    positive = labels > 0.5
    n = int(positive.sum())
    return (middle[ranks][positive].sum() - n * (n + 1) / 2) / (n * (len(labels) - n))


def train(model, data):
    """One pass; returns the mean loss."""
    dense = torch.optim.Adagrad(model.top.parameters(), lr=0.02)
    total = n = 0
    for batch, ticket in embd.torch.ahead(data, model.prefetch):
        loss = functional.binary_cross_entropy_with_logits(model(ticket), torch.tensor(batch.labels[:, 0]),
                                                           reduction="sum")
        dense.zero_grad()
        loss.backward()
        for parameter in model.top.parameters():
            parameter.grad /= len(batch)
        dense.step()
        total += loss.item()
        n += len(batch)
    model.bags.flush()
    return total / n


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    scores, labels = [], []
    for batch, ticket in embd.torch.ahead(data, model.prefetch):
        scores.append(model(ticket).numpy())
        labels.append(batch.labels[:, 0].copy())
    model.train()
    return auc(np.concatenate(scores), np.concatenate(labels))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", help="what package_samples.py has written")
    parser.add_argument("--servers", help="any shard of the cluster ($EMBD_SERVERS, or 127.0.0.1:7700)")
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--passes", type=int, default=1)
    a = parser.parse_args()
    torch.manual_seed(1)
    with embd.connect(a.servers) as client:
        model = Model(client, a.dim)
        data, held_out = (Norm(f"{a.folder}/{name}", i64_keys=True, batch_samples=a.batch)
                          for name in ("train", "held-out"))
        for number in range(1, a.passes + 1):
            start = time.perf_counter()
            loss = train(model, data)
            print(f"pass {number}: {data.counts.samples} samples, loss {loss:.4f}, {time.perf_counter() - start:.1f} s")
        print(f"held out: AUC {evaluate(model, held_out):.4f}")


if __name__ == "__main__":
    main()
