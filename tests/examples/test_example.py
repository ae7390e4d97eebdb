"""The example programs against real servers: they do what they say, and say the same thing twice."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from embd_process import Embd  # noqa: E402

BIN = os.environ["EMBD_BIN"]
QUICK = ["--synthetic", "--limit", "120000", "--batch", "512"]


def run(program, *arguments, code=0, text=None):
    done = subprocess.run([os.path.join(BIN, program), *arguments], capture_output=True, text=True, timeout=100,
                          input=text, check=False)
    assert done.returncode == code, f"{program}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def train(server, *arguments):
    """Everything the example prints, and its last line: the one with all digits."""
    out = run("embd-example-fm", "--servers", server.addresses[0], *arguments).stdout
    return out, out.splitlines()[-1]


def auc_of(line):
    return float(re.search(r"AUC ([0-9.e-]+)", line).group(1))


def readme_rows_do_not_depend_on_shards():
    answers = set()
    for shards in (1, 3):
        with Embd(shards=shards) as server:
            answers.add(run("embd-example-readme", server.addresses[0]).stdout)
    assert len(answers) == 1 and len(answers.pop().splitlines()) == 2, answers


def training_learns_and_repeats_itself():
    lines = []
    for _ in range(2):
        with Embd(shards=3) as server:
            out, last = train(server, *QUICK)
            before = auc_of(next(line for line in out.splitlines() if "before training" in line))
            assert "SYNTHETIC" in out and abs(before - 0.5) < 0.05, out
            assert auc_of(last) > 0.75, out
            lines.append(last)
            assert train(server, *QUICK, "--eval-only")[1] == last, "evaluating changed something"
    assert lines[0] == lines[1], lines


def evaluation_does_not_depend_on_shards():
    with tempfile.TemporaryDirectory() as folder, Embd(shards=2) as two, Embd(shards=5) as five:
        dump = os.path.join(folder, "dump")
        last = train(two, *QUICK)[1]
        run("embctl", "-s", two.addresses[0], "dump", "--all", dump)
        run("embctl", "-s", five.addresses[0], "load", dump)
        assert train(five, *QUICK, "--eval-only")[1] == last


def exported_samples_train_as_well():
    with tempfile.TemporaryDirectory() as folder, Embd(shards=2) as server:
        run("embd-example-fm", *QUICK, "--export", folder)
        sets = ["--data", f"norm:{folder}/train", "--held-out", f"norm:{folder}/held-out", "--batch", "512"]
        out, last = train(server, *sets)
        before = auc_of(next(line for line in out.splitlines() if "before training" in line))
        assert abs(before - 0.5) < 0.05 and auc_of(last) > 0.75, out
        assert train(server, *QUICK, "--eval-only")[1] == last, "the held-out samples are the same"
        assert train(server, *sets[2:], "--eval-only")[1] == last
        path = pathlib.Path(folder, "train.0000")
        path.write_bytes(path.read_bytes()[:100])
        address = ["--servers", server.addresses[0]]
        assert "train.0000" in run("embd-example-fm", *address, *sets, code=1).stderr
        assert "nothing" in run("embd-example-fm", *address, "--data", f"norm:{folder}/nothing", *sets[2:],
                                code=1).stderr
        assert "--held-out" in run("embd-example-fm", *sets[:2], code=2).stderr
        assert "norm:LIST" in run("embd-example-fm", "--data", "x", *sets[2:], code=2).stderr


def folders_are_made_and_the_environment_names_servers():
    with tempfile.TemporaryDirectory() as folder, Embd() as server:
        for program, words in (("embd-example-fm", [*QUICK[:1], "--limit", "3000", "--export"]),
                               ("embd-example-dlrm", ["--samples", "400", "--generate"])):
            made = os.path.join(folder, program, "deep")
            run(program, *words, made)
            assert os.path.exists(os.path.join(made, "train")) and os.path.exists(os.path.join(made, "held-out"))
            run(program, *words, os.path.join(made, "train", "x"), code=1)
            os.environ["EMBD_SERVERS"] = server.addresses[0]
            run(program, "--data", f"norm:{made}/train", "--held-out", f"norm:{made}/held-out", "--passes", "1")
            os.environ["EMBD_SERVERS"] = "127.0.0.1:1"
            assert "127.0.0.1:1" in run(program, "--data", f"norm:{made}/train", "--held-out", f"norm:{made}/held-out",
                                        code=1).stderr
            del os.environ["EMBD_SERVERS"]


def mistakes_are_told():
    with Embd() as server:
        address = ["--servers", server.addresses[0]]
        missing = run("embd-example-fm", *address, "--synthetic", "--eval-only", code=1)
        assert "fm-linear" in missing.stderr, missing.stderr
        assert "/nowhere" in run("embd-example-fm", *address, "--packages", "/nowhere", code=1).stderr
        for wrong in (["--dim", "0"], ["--dim", "16x"], ["--batch", "1"], ["word"]):
            assert run("embd-example-fm", *wrong, code=2).stderr
        index = "Package: a\nDepends: b, c\n\nPackage: b\n\nPackage: c\nDepends: b"
        small = run("embd-example-fm", *address, "--packages", "-", text=index).stdout
        assert "3 packages, 3 edges" in small, small
    assert "127.0.0.1:1" in run("embd-example-fm", "--servers", "127.0.0.1:1", "--synthetic", code=1).stderr


for test in (readme_rows_do_not_depend_on_shards, training_learns_and_repeats_itself,
             evaluation_does_not_depend_on_shards, exported_samples_train_as_well,
             folders_are_made_and_the_environment_names_servers, mistakes_are_told):
    test()
    print("ok", test.__name__)
