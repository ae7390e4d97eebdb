"""The blocks of Python in README.md run as they stand there, one after the other, on a cluster of two shards."""
import contextlib
import io
import pathlib
import re

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

    def test_a_worker_keeps_in_step(self):
        import embd
        for rank in range(1, 4):  # the other workers are three iterations ahead
            other = embd.Clock(self.client, "job", worker=rank, workers=4, staleness=0, lease=60)
            for _ in range(3):
                other.tick()
        names = {"embd": embd, "client": self.client, "rank": 0, "data": range(3)}
        self.run_block("embd.Clock", names)
        self.assertEqual(names["batch"], 2)


if __name__ == "__main__":
    clusters.main()
