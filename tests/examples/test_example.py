"""The example programs against real servers: they do what they say, and say the same thing twice."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))
from embd_process import Embd  # noqa: E402

BIN = os.environ["EMBD_BIN"]


def run(program, *arguments, code=0, server=None):
    address = {"EMBD_SERVERS": server} if server else {}
    done = subprocess.run([os.path.join(BIN, program), *arguments], capture_output=True, text=True, timeout=100,
                          env={**os.environ, **address}, check=False)
    assert done.returncode == code, f"{program}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def train(server, folder, *arguments):
    """Everything the example prints, and its last line: the one with all digits."""
    out = run("embd-example-fm", folder, *arguments, server=server.addresses[0]).stdout
    return out, out.splitlines()[-1]


def auc_of(line):
    return float(re.search(r"AUC ([0-9.e-]+)", line).group(1))


def readme_rows_do_not_depend_on_shards(_):
    answers = set()
    for shards in (1, 3):
        with Embd(shards=shards) as server:
            answers.add(run("embd-example-readme", server.addresses[0]).stdout)
    assert len(answers) == 1 and len(answers.pop().splitlines()) == 2, answers


def training_learns_and_repeats_itself(samples):
    lines = []
    for _ in range(2):
        with Embd(shards=3) as server:
            out, last = train(server, samples)
            before = auc_of(next(line for line in out.splitlines() if "before training" in line))
            assert abs(before - 0.5) < 0.05 and auc_of(last) > 0.75, out
            lines.append(last)
            assert train(server, samples, "--eval-only")[1] == last, "evaluating changed something"
    assert lines[0] == lines[1], lines


def evaluation_does_not_depend_on_shards(samples):
    with tempfile.TemporaryDirectory() as folder, Embd(shards=2) as two, Embd(shards=5) as five:
        dump = os.path.join(folder, "dump")
        last = train(two, samples)[1]
        run("embctl", "-s", two.addresses[0], "dump", "--all", dump)
        run("embctl", "-s", five.addresses[0], "load", dump)
        assert train(five, samples, "--eval-only")[1] == last


def mistakes_are_told(samples):
    with Embd() as server:
        address = server.addresses[0]
        assert "fm-linear" in run("embd-example-fm", samples, "--eval-only", code=1, server=address).stderr
        assert "/nowhere/held-out" in run("embd-example-fm", "/nowhere", code=1, server=address).stderr
        for wrong in ([], [samples, "--passes"], [samples, "--eval-only", "x"]):
            assert "usage" in run("embd-example-fm", *wrong, code=2).stderr
        data = pathlib.Path(samples, "train.0000")
        data.write_bytes(data.read_bytes()[:100])
        assert "train.0000" in run("embd-example-fm", samples, code=1, server=address).stderr
    assert "127.0.0.1:1" in run("embd-example-fm", samples, code=1, server="127.0.0.1:1").stderr


with tempfile.TemporaryDirectory() as made:
    subprocess.run([sys.executable, "-B", ROOT / "client/examples/package_samples.py", made, "--synthetic",
                    "--limit", "120000"], check=True, stdout=subprocess.DEVNULL)
    for test in (readme_rows_do_not_depend_on_shards, training_learns_and_repeats_itself,
                 evaluation_does_not_depend_on_shards, mistakes_are_told):
        test(made)
        print("ok", test.__name__)
