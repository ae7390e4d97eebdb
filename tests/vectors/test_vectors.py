"""The vectors of proto/vectors are as the oracle writes them, and servers of 1 and 3 shards answer as they say."""
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "integration"))
from embd_process import Embd  # noqa: E402
from run_vectors import run  # noqa: E402

subprocess.run([sys.executable, "-B", HERE / "write_vectors.py", "--check"], check=True, timeout=100)
for program, *flags in (word.split(",") for word in sys.argv[1:]):
    for shards in (1, 3):
        with Embd(*flags, shards=shards, program=program) as server:
            n = run(server.addresses[0], [server.admin_path(shard) for shard in range(shards)])
            print(f"{n} vectors agree: {pathlib.Path(program).name} {' '.join(flags)}, {shards} shards")
            assert n > (60 if shards == 1 else 40), n
