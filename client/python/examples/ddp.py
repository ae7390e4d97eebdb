"""Several workers in step: PyTorch's DistributedDataParallel averages the gradients of the dense layers, and the servers
those of the rows. So n workers with batches of b take the steps of one worker with batches of n * b.

    python3 ddp.py --workers 4 --steps 300 --servers 127.0.0.1:7700

The model learns whether the least of a bag's 8 keys is even. Here the workers are processes of this machine; with
torchrun, RANK and WORLD_SIZE in the environment say which worker this is."""
import argparse
import os
import socket

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import embd
import embd.torch

KEYS, BAG, BATCH = 2_000, 8, 1024


class Model(nn.Module):
    def __init__(self, client):
        super().__init__()
        self.bags = embd.torch.EmbeddingBag(None, 16, mode="sum", client=client, name="ddp-words",
                                            optimizer=embd.Optimizer("adagrad", lr=0.1),
                                            initializer=embd.Initializer("normal", 0, 0.1))
        self.head = nn.Linear(16, 1)

    def forward(self, keys):
        return self.head(self.bags(keys))[:, 0]


def batches(step, rank, workers):
    """This worker's share of the step's samples: the same samples for any number of workers."""
    keys = torch.randint(KEYS, (BATCH, BAG), generator=torch.Generator().manual_seed(step))
    keys = keys[rank * BATCH // workers:(rank + 1) * BATCH // workers]
    return keys, (keys.min(1).values % 2 == 0).float()


def work(rank, workers, servers, steps):
    torch.manual_seed(1)  # the dense layers begin alike; DistributedDataParallel sends rank 0's anyway
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=workers)
    client = embd.connect(servers)
    model = Model(client)
    parallel = DistributedDataParallel(model)
    dense = torch.optim.Adagrad(model.head.parameters(), lr=0.1)
    losses = []
    with embd.Clock(client, "ddp", worker=rank, workers=workers) as clock:
        embd.torch.synchronous(model, clock)
        for step in clock.steps(steps):
            keys, labels = batches(step, rank, workers)
            loss = nn.functional.binary_cross_entropy_with_logits(parallel(keys), labels)
            dense.zero_grad()
            loss.backward()
            dense.step()
            distributed.all_reduce(mean := loss.detach() / workers)
            losses.append(mean.item())
        model.bags.flush()
    if rank == 0:
        last = losses[-20:]
        print(f"{workers} workers, {steps} steps: loss {sum(last) / len(last):.4f}, first {losses[0]:.4f}; "
              f"steps of the rows {client.stats()[0].tables['ddp-words']['steps']}")
    client.close()
    distributed.destroy_process_group()


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default=os.environ.get("EMBD_SERVERS", "127.0.0.1:7700"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    if "RANK" in os.environ:
        work(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), options.servers, options.steps)
        return
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(free_port()))
    torch.multiprocessing.spawn(work, (options.workers, options.servers, options.steps), options.workers)


if __name__ == "__main__":
    main()
