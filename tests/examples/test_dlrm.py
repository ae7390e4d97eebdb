"""The DLRM example against real servers: it reaches the planted AUC; prefetch, shards and formats change no bit."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from embd_process import Embd  # noqa: E402

PROGRAM = os.path.join(os.environ["EMBD_BIN"], "embd-example-dlrm")


def run(*arguments, code=0):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def generate(folder, samples):
    run("--generate", folder, "--samples", str(samples))
    return ["--data", f"norm:{folder}/train", "--held-out", f"norm:{folder}/held-out"]


def train(shards, *arguments):
    with Embd(shards=shards) as server:
        return run("--servers", server.addresses[0], *arguments).stdout


def the_planted_auc_is_reached(folder):
    out = train(2, *generate(folder, 100000), "--passes", "2")
    planted = float(re.search(r"planted AUC ([0-9.]+)", out)[1])
    reached = float(re.search(r"^AUC ([0-9.]+)", out, re.MULTILINE)[1])
    assert planted > 0.8 and planted - 0.03 <= reached < planted + 0.01, out
    assert "reached within 0.03" in out, out
    hidden = re.findall(r"a pull takes (\d+) us, of which (\d+) us are waited for: (-?\d+) % hidden", out)
    assert len(hidden) == 2 and all(int(takes) > 0 for takes, _, _ in hidden), out


def raw_of(folder, name):
    """The samples of a norm set as a raw file: without frames, and without the counts, which are all 1."""
    out = b""
    for path in (pathlib.Path(folder, line) for line in pathlib.Path(folder, name).read_text().split()[1:]):
        content = path.read_bytes()[69:]
        frame = 4 + 14 * 4 + 26 * 8 + 1
        for at in range(0, len(content), frame):
            payload = content[at + 4:at + frame - 1]
            out += payload[:56] + b"".join(payload[i + 4:i + 8] for i in range(56, len(payload), 8))
    pathlib.Path(folder, name + ".raw").write_bytes(out)
    return f"raw:{folder}/{name}.raw"


def prefetch_shards_threads_and_formats_change_no_bit(folder):
    sets = generate(folder, 12000)
    raw = ["--data", raw_of(folder, "train"), "--held-out", raw_of(folder, "held-out")]
    runs = [train(shards, *data, "--passes", "1", *extra)
            for shards, data, extra in ((2, sets, []), (2, sets, ["--no-prefetch"]), (3, raw, ["--threads", "3"]))]
    last = {out.splitlines()[-1] for out in runs}
    assert len(last) == 1 and last.pop().startswith("AUC 0."), runs


def mistakes_are_told(folder):
    sets = generate(folder, 200)
    assert "exists" in run("--generate", folder, code=1).stderr
    assert "needed" in run("--data", sets[1], code=2).stderr
    assert "norm:LIST" in run("--data", "file:x", code=2).stderr
    assert "127.0.0.1:1" in run(*sets, "--servers", "127.0.0.1:1", code=1).stderr
    path = pathlib.Path(folder, "train.0000")
    path.write_bytes(path.read_bytes()[:-40])
    with Embd() as server:
        out = run("--servers", server.addresses[0], *sets, "--passes", "1").stdout
        assert "pass 1: 199 samples" in out, out
        path.unlink()
        missing = ["--data", f"norm:{folder}/nothing", *sets[2:]]
        assert "nothing" in run("--servers", server.addresses[0], *missing, code=1).stderr


for test in (the_planted_auc_is_reached, prefetch_shards_threads_and_formats_change_no_bit, mistakes_are_told):
    with tempfile.TemporaryDirectory() as name:
        test(name)
    print("ok", test.__name__)
