"""The client in client/LANGUAGE, built offline with Debian's toolchain and packages, agrees with all vectors on servers of 1
and 3 shards, also with an uneven map of keys, and goes on while keys move and while servers become members and leave. Exit status 77: there is no toolchain. Usage: test_clients.py go|rust BUILD_FOLDER"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "integration"))
from embd_process import Embd  # noqa: E402
from listed import Growing  # noqa: E402

SKIPPED = 77
MSGPACK_GO = pathlib.Path("/usr/share/gocode/src/github.com/vmihailenco/msgpack/v5")
MOVES = {"go": "-test.run=TestKeysMove", "rust": "keys_move"}  # the test that moves keys
GROWS = {"go": "-test.run=TestClusterGrowsAndShrinks", "rust": "a_cluster_grows"}
EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
CRATES = pathlib.Path("/usr/share/cargo/registry")


def need(there, what):
    if not there:
        print(f"skipped: no {what}; deploy/deps.sh --tools installs it")
        sys.exit(SKIPPED)


def run(command, folder, stdout=None, **environment):
    environment = {**os.environ, **environment}
    done = subprocess.run(command, cwd=folder, env=environment, stdout=stdout, text=True, check=False, timeout=500)
    print(done.stdout or "", end="", flush=True)
    done.check_returncode()
    return done.stdout


def build_go(build):
    go = shutil.which("go", path="/usr/bin")
    need(go and MSGPACK_GO.exists(), "Go with golang-github-vmihailenco-msgpack.v5-dev")
    environment = {"GO111MODULE": "off", "GOPATH": f"{build}:/usr/share/gocode", "GOFLAGS": "", "GOPROXY": "off", "CGO_ENABLED": "0",
                   "GOCACHE": str(build / "cache")}
    program = build / "test-client"
    link = build / "src/embd"
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(ROOT / "client/go")
    run([go, "vet", "embd"], build, **environment)
    run([go, "test", "-c", "-o", program, "embd"], build, **environment)
    return [[program, "-test.v"]]


def build_rust(build):
    cargo, rustc = shutil.which("cargo", path="/usr/bin"), shutil.which("rustc", path="/usr/bin")
    need(cargo and rustc and list(CRATES.glob("rmp-0*")) and list(CRATES.glob("serde_json-*")),
         "cargo with librust-rmp-dev and librust-serde-json-dev")
    source = build / "source"  # cargo writes its lock file beside Cargo.toml
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "client/rust", source)
    run([cargo, "test", "--offline", "--no-run", "--config", 'source.crates-io.replace-with="debian"',
         "--config", f'source.debian.directory="{CRATES}"'], source, RUSTC=rustc, CARGO_HOME=str(build / "home"),
        CARGO_TARGET_DIR=str(build / "target"))
    programs = [path for path in (build / "target/debug/deps").iterdir() if path.suffix == ""]
    units, vectors = (max((path for path in programs if path.name.startswith(name)), key=lambda path: path.stat().st_mtime)
                      for name in ("embd-", "vectors-"))
    run([units], build)
    return [[vectors, "--nocapture", "--test-threads=1"], [build / "target/debug/examples/first"]]


def main():
    language, build = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    build.mkdir(parents=True, exist_ok=True)
    commands = {"go": build_go, "rust": build_rust}[language](build)
    for shards, *flags in ((1,), (3,), (3, "--placement", "1:1=700,0=300,2=24")):
        with Embd(*flags, shards=shards) as server:
            for i, command in enumerate(commands):
                address = [server.addresses[0]] if i > 0 else []  # of examples
                run([*command, *address], build, EMBD_SERVER=server.addresses[0], EMBD_VECTORS=str(ROOT / "proto/vectors"))
    for flags in ([], ["--placement", "1:0=700,1=324"]):
        with tempfile.TemporaryDirectory() as data, Embd("--data-dir", data, *flags, shards=2) as server:
            said = run([*commands[0], MOVES[language]], build, subprocess.PIPE, EMBD_SERVER=server.addresses[0],
                       EMBCTL=EMBCTL)
            assert "pushes while keys moved" in said
    with Growing("abc", 1) as cluster:
        cluster.start("a")
        for name in "bc":
            cluster.join(name)
        said = run([*commands[0], GROWS[language]], build, subprocess.PIPE, EMBD_SERVER=cluster.address("a"), EMBCTL=EMBCTL,
                   EMBD_ADDED=",".join(cluster.address(name) for name in "bc"),
                   EMBD_PIDS=",".join(str(cluster.running[name].pid) for name in "cb"))
        assert "pushes while the cluster grew" in said and "pushes until servers had left the cluster" in said


main()
