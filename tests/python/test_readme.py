"""The blocks of Python in README.md run as they stand there, one after the other, on a cluster of two shards."""
import contextlib
import io
import pathlib
import re
import threading

import numpy as np

import clusters

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


class ReadmeTest(clusters.ClusterTest):
    shards = 2

    def setUp(self):
        super().setUp()
        text = README.read_text(encoding="utf-8").replace("127.0.0.1:7700", self.server.addresses[0])
        self.blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)

    def block(self, word):
        found = [block for block in self.blocks if word in block]
        self.assertEqual(len(found), 1, f"blocks of README.md with {word}")
        return found[0]

    def run_block(self, word, names):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(self.block(word), "README.md", "exec"), names)
        return out.getvalue()

    def test_every_block_is_run_here(self):
        self.assertEqual(len(self.blocks), 3)

    def test_tables_are_pulled_and_pushed(self):
        names = {}
        self.run_block("client.create_table", names)
        self.assertEqual(names["rows"].shape, (1000, 4))

    def test_the_torch_model_learns(self):
        try:
            import torch
        except ImportError:
            self.skipTest("PyTorch is not installed: deploy/deps.sh --torch")
        torch.manual_seed(3)
        said = self.run_block("embd.torch.EmbeddingBag", {})
        loss = float(re.match(r"loss ([0-9.]+), [0-9]+ rows on shard 0\n$", said)[1])
        self.assertLess(loss, 0.69, "no better than a coin")

    def test_workers_keep_in_step(self):
        import embd
        items = self.client.create_table("items", 4, optimizer=embd.Optimizer("sgd", lr=1.0),
                                         initializer=embd.Initializer("constant", 0))
        code = compile(self.block("embd.Clock"), "README.md", "exec")

        def work(rank):
            with embd.connect(self.server.addresses[0]) as client:
                exec(code, {"embd": embd, "client": client, "rank": rank, "items": client.table("items"),
                            "batches": [[1, 2 + rank]] * 100, "gradient": np.ones_like})

        workers = [threading.Thread(target=work, args=(rank,)) for rank in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        self.assertEqual([shard.tables["items"]["steps"] for shard in self.client.stats()], [100, 100])
        np.testing.assert_array_equal(items.pull(range(1, 6))[:, 0], [-100, -25, -25, -25, -25])


if __name__ == "__main__":
    clusters.main()
