"""PyTorch modules whose rows live on embd servers, and whose optimizer does too.

    import embd.torch
    client = embd.connect("127.0.0.1:7700")
    bag = embd.torch.EmbeddingBag(None, 16, mode="sum", client=client, name="items",
                                  optimizer=embd.Optimizer("adagrad", lr=0.1))
    loss = model(bag(keys, offsets)).sum()
    loss.backward()                      # pushes the gradient: one step of the rows that took part

The modules have no parameters, so the optimizer of the dense layers does not see them. In evaluation mode, or under
torch.no_grad(), nothing is pushed. Pushes are on their way when backward returns; later pulls see them, and their
failures are raised by the next forward or by flush(). Servers that restart raise nothing within the client's deadline; one
that lost acknowledged pushes does (embd.Status.GAP, FORGOTTEN)."""
from __future__ import annotations

try:
    import torch as _torch
except ImportError:
    raise ImportError("embd.torch needs PyTorch: `apt install python3-torch` (deploy/deps.sh --torch), "
                      "or `pip install torch`") from None

from .ahead import accumulate, ahead, flush, synchronous
from .checkpoints import export_optimizer_state, export_state_dict, import_state_dict
from .collection import EmbeddingBagCollection, EmbeddingCollection
from .config import EmbeddingBagConfig, EmbeddingConfig
from .modules import Embedding, EmbeddingBag
from .rates import TableOptimizer, optimizer
from .rows import Ticket

__all__ = ["Embedding", "EmbeddingBag", "EmbeddingBagCollection", "EmbeddingBagConfig", "EmbeddingCollection",
           "EmbeddingConfig", "TableOptimizer", "Ticket", "accumulate", "ahead", "export_optimizer_state", "export_state_dict",
           "flush", "import_state_dict", "optimizer", "synchronous"]
