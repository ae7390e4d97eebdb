"""README.md from top to bottom as a reader goes, and then the pages for users in PAGES: every block of shell, C, Python and
YAML in its order, in one shell, in a folder that looks like the tree, on the server that README starts. Lines that cannot be
run here are listed below, each with its reason; what stands in their place is at least parsed, and check_blocks.py knows the
flags of all. Fragments of C are compiled by check_blocks.py."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from blocks import ROOT, of_page

sys.path.insert(0, str(ROOT / "tests/integration"))
from ports import free_ports  # noqa: E402

BUILD = pathlib.Path(os.environ["EMBD_BIN"]).parent
SECONDS = 110
PAGES = ("README.md", "client/GUIDE.md", "client/python/README.md", "deploy/OPERATING.md", "deploy/SECURITY.md", "tests/bench/FIGURES.md")

# A line, as a regular expression; what is run in its place; why.
INSTEAD = [
    (r"deploy/(demo|check)\.sh +#.*", r"bash -n deploy/\1.sh", "takes minutes; CI runs both by themselves"),
    (r"deploy/deps\.sh.*", "bash -n deploy/deps.sh", "installs packages, as root"),
    (r"cmake --preset release .*", ":", "what is tested is built already"),
    (r"embd --shards 2 --data-dir data &.*", "embd --shards 2 --data-dir data --listen FIRST & server=$!",
     "the port may be another program's"),
    (r"export PKG_CONFIG_PATH=\$HOME/.*", 'lib=$(dirname "$(dirname "$(find "$HOME/.local" -name embd.pc)")")\n'
     "export PKG_CONFIG_PATH=$lib/pkgconfig LD_LIBRARY_PATH=$lib", "a build for Debian packages installs into lib/TRIPLET"),
    (r"(cc app\.c .*) && (\./app)", r"\1\n\2", "the shell would go on if cc failed"),
    (r"venv/bin/pip install .*", ":", "half a minute; tests/python/test_install.py installs, PYTHONPATH stands for it here"),
    (r"(embd --config shop\.yaml --server [ab])", r"\1 --check", "needs /var/lib/embd and the ports that it names"),
    (r"(embctl --servers SECOND load .*)", r"mkdir other; embd --data-dir other --listen SECOND & other=$!; embctl --servers SECOND wait; \1; kill $other; wait $other",
     "the other cluster is the reader's"),
    (r"embctl load --replace .* /var/lib/embd/nightly", "embctl load --replace --table items data/nightly",
     "the data directory and the tables are the reader's"),
    (r"(embd --tokens .*)", r"\1 --check", "the address is another machine's"),
    (r"EMBD_TLS_CA=ca\.pem .* python3 train\.py", ":", "the trainer is the reader's"),
    (r"python -m embd convert parquet:.*", ":", "needs pyarrow, which Debian does not have"),
    (r"embd-bench.*", ":", "measures for minutes; tests/bench calls it with these flags"),
]
NAMES = {"c": "app.c", "yaml": "shop.yaml"}  # what the text calls the files
CERTIFICATE = "openssl req -x509 -newkey ed25519 -nodes -keyout server.key -out server.pem -subj /CN=ps -days 2 2>/dev/null"
CRITEO = "1" + "\t3" * 13 + "\t68fd1e64" * 26 + "\n"  # a sample as it is published
# What a fragment of Python takes from its surroundings.
WORKER = 'import os, embd\nclient = embd.connect("FIRST")\nrank, items = int(os.environ["RANK"]), client.table("items")\n' \
         'batches, gradient = [[1, 2 + rank]] * 100, lambda rows: 0 * rows\n'


def replace_lines(text, used):
    lines = []
    for line in text.splitlines():
        for i, (pattern, instead, _) in enumerate(INSTEAD):
            if re.fullmatch(pattern, line):
                line = re.sub(pattern, instead, line, count=1)
                used.add(i)
                break
        lines.append(line)
    return "\n".join(lines) + "\n"


def write_file(name, text):
    return f"cat >{name} <<'END-OF-BLOCK'\n{text}END-OF-BLOCK\n"


def python_steps(number, text):
    name = f"block-{number}.py"
    workers = re.search(r"workers=(\d+)", text)
    if workers:
        each = f"for RANK in $(seq 0 {int(workers[1]) - 1}); do export RANK; venv/bin/python {name} & ranks[$RANK]=$!; done\n"
        return write_file(name, WORKER + text) + each + 'for rank in "${ranks[@]}"; do wait $rank; done\n'
    run = f"venv/bin/python {name}\n"
    if "torch" in text:
        has, what = ("import torch; assert torch.cuda.is_available()", "GPU") if '"cuda"' in text else ("import torch", "PyTorch")
        run = f"if venv/bin/python -c '{has}' 2>/dev/null; then {run.strip()}; else echo 'skipped: no {what}'; fi\n"
    return write_file(name, text) + run


def steps(page, used):
    """The page as a shell script."""
    for number, block in enumerate(of_page(page)):
        text = block.text.replace("127.0.0.1:7700", "FIRST").replace("127.0.0.1:7800", "SECOND")
        if block.language in ("c", "sh", "python", "yaml"):
            yield f"echo '== {block.where} ({block.language})'\n"
        if block.language == "sh":
            yield replace_lines(text, used)
        elif block.language == "python":
            yield python_steps(number, text)
        elif block.language == "c" and "int main(" in text:
            yield write_file(NAMES["c"], text)
        elif block.language == "yaml":
            yield write_file(NAMES["yaml"], block.text) + f"embctl config check {NAMES['yaml']}\n"


def script_of(*pages):
    used = set()
    begin = f"set -eu -o pipefail\nranks=()\n{CERTIFICATE}\n" + write_file("train.txt", CRITEO * 3)
    end = "echo '== the end'\nembctl ping\nkill -0 $server\nembctl drain\nwait $server\necho '== done'\n"
    text = begin + "".join(step for page in pages for step in steps(page, used)) + end
    stale = [INSTEAD[i][0] for i in range(len(INSTEAD)) if i not in used]
    assert not stale, f"the pages have no such lines any more: {stale}"
    port = free_ports(3)
    return text.replace("FIRST", f"127.0.0.1:{port}").replace("SECOND", f"127.0.0.1:{port + 2}"), port


def make_tree(folder):
    """What README's commands see: the tree by links, a build folder that is this one."""
    (folder / "build").mkdir()
    (folder / "build/release").symlink_to(BUILD)
    for name in ("deploy", "client", "tests"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "bin").mkdir()
    for python in ("python", "python3"):
        (folder / "bin" / python).symlink_to("/usr/bin/python3")  # Debian's, as README says
    (folder / "run").mkdir(mode=0o700)


def environment(folder, port):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EMBD_")}
    return {**kept, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder / "run"), "LC_ALL": "C.UTF-8",
            "PATH": f"{folder}/bin:{kept['PATH']}", "PYTHONPATH": str(BUILD / "python"),
            "EMBD_SERVERS": f"127.0.0.1:{port}", "PYTHONDONTWRITEBYTECODE": "1"}


def main():
    script, port = script_of(*(ROOT / page for page in PAGES))
    with tempfile.TemporaryDirectory(prefix="embd-readme-") as name:
        folder = pathlib.Path(name)
        make_tree(folder)
        began = time.monotonic()
        with open(folder / "said", "w+", encoding="utf-8") as said:
            shell = subprocess.Popen(["bash", "-c", script], cwd=folder, env=environment(folder, port), stdout=said,
                                     stderr=subprocess.STDOUT, start_new_session=True)
            try:
                status = shell.wait(SECONDS)
            except subprocess.TimeoutExpired:
                status = f"not over after {SECONDS} s"
            finally:
                try:
                    os.killpg(shell.pid, signal.SIGKILL)  # the shell's own session, and nobody else
                except ProcessLookupError:
                    pass
            said.seek(0)
            text = said.read()
        print(text)
        assert status == 0 and text.endswith("== done\n"), f"stopped in the last block above: {status}"
        print(f"{text.count(chr(10) + '== ') - 1} blocks in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
