"""The blocks of Python in README.md, and client/GUIDE.md's job, run as they stand there on a cluster of two shards."""
import contextlib
import io
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading

import numpy as np

import clusters
import stopped
from ports import free_ports

WHO = ("trainer", "servers", "both")
LINES = 1600  # of README's loop of PyTorch that are run, and some fewer
ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


class ReadmeTest(clusters.ClusterTest):
    shards = 2

    def blocks_of(self, page):
        text = (ROOT / page).read_text(encoding="utf-8")
        return BLOCK.findall(text.replace("127.0.0.1:7700", self.server.addresses[0]))

    def block(self, word, page="README.md"):
        found = [block for block in self.blocks_of(page) if word in block]
        self.assertEqual(len(found), 1, f"blocks of {page} with {word}")
        return found[0]

    def run_block(self, word, names):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(self.block(word), "README.md", "exec"), names)
        return out.getvalue()

    def test_every_block_is_run_here(self):
        self.assertEqual(len(self.blocks_of("README.md")), 3)

    def test_tables_are_pulled_and_pushed(self):
        names = {}
        self.run_block("client.create_table", names)
        self.assertEqual(names["rows"].shape, (1000, 4))

    def test_the_torch_model_learns(self):
        try:
            import torch
        except ImportError:
            self.skipTest("PyTorch is not installed: deploy/deps.sh --torch")
        undisturbed = self.trained([])
        loss = float(re.match(r"loss ([0-9.]+), [0-9]+ rows on shard 0\n$", undisturbed)[1])
        self.assertLess(loss, 0.69, "no better than a coin")
        dice = random.Random(os.environ.get("EMBD_SEED", 5))
        for _ in range(int(os.environ.get("EMBD_FAULT_CYCLES", 1))):
            killed = [(dice.choice(WHO), dice.randint(1, LINES)) for _ in range(3)]
            for faults in killed, [("pause", dice.randint(1, LINES))]:
                with self.subTest(faults=faults):
                    self.assertEqual(self.trained(faults), undisturbed)

    def trained(self, faults):
        """What README's loop of PyTorch says in the end, where one after the other of these died before the given line that
        was run: the trainer, the servers, or both; or the servers stood still for a moment."""
        with tempfile.TemporaryDirectory() as folder:
            listen = f"127.0.0.1:{free_ports(2)}"
            servers = [clusters.Embd("--data-dir", folder, shards=2, listen=listen)]
            code = self.block("embd.torch.EmbeddingBag").replace(self.server.addresses[0], servers[0].addresses[0])
            code = code.replace('"data"', repr(folder))
            try:
                for who, line in [*faults, ("nobody", 0)]:
                    trainer = subprocess.Popen([sys.executable, __file__, "train", code, str(line)], text=True,
                                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                    if who != "nobody" and trainer.stdout.readline() == "here\n":
                        if who == "pause":
                            servers[-1].pause()
                            threading.Timer(0.3, servers[-1].go_on).start()
                        elif who != "trainer":
                            servers[-1].kill()
                            servers.append(clusters.Embd("--data-dir", folder, shards=2, listen=listen))
                        if who in ("trainer", "both"):
                            trainer.kill()
                    said, complaint = trainer.communicate("on\n" if who in ("servers", "pause") else None, timeout=120)
                    if who in ("nobody", "pause"):
                        self.assertEqual(trainer.returncode, 0, complaint)
            finally:
                servers[-1].kill()
        return said

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

    def test_a_job_goes_back_and_ends_as_if_nothing_had_been(self):
        """Whether it ran through, or ended in its 14th step and was run again: each push is in the rows once."""
        rows = []
        for dies in (False, True):
            with tempfile.TemporaryDirectory() as folder, clusters.Embd("--data-dir", folder, shards=2) as server:
                text = self.block("job.checkpoint(step + 1) ", "client/GUIDE.md").replace(self.server.addresses[0], server.addresses[0])
                text = text.replace('"data"', repr(folder))
                mortal = text.replace("        if step % 10 == 9:", "        if step == 13: raise KeyboardInterrupt\n"
                                      "        if step % 10 == 9:")
                self.assertNotEqual(mortal, text)
                if dies:
                    with self.assertRaises(KeyboardInterrupt):
                        exec(compile(mortal, "README.md", "exec"), {})
                exec(compile(text, "README.md", "exec"), {})
                with clusters.embd.connect(server.addresses[0]) as client:
                    rows.append(client.table("ranker--users").pull(range(20)))
                    self.assertEqual([shard.tables["ranker--users"]["steps"] for shard in client.stats()], [20, 20])
        np.testing.assert_array_equal(*rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        stopped.run(sys.argv[2], "README.md", sys.argv[3])
    else:
        clusters.main()
