"""The vectors of proto/vectors are as the oracle writes them, and servers of 1 and 3 shards answer as they say. With journaled
tables they answer the same, and have the same rows after kill -9."""
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "integration"))
from embd_process import Embd  # noqa: E402
from run_vectors import Cluster, run, run_vector, vectors_of  # noqa: E402



def is_for_journals(vector):
    """Neither rows that pulls create, nor numbers, which count apart."""
    text = json.dumps(vector)
    return not any(word in text for word in ('"create_on"', '"writer"', '"call"'))


def journaled(vector):
    return json.loads(json.dumps(vector).replace('"durability": "snapshot"', '"durability": "buffered"'))


def rows_of(server, tables, shards):
    cluster = Cluster(server.addresses[0], [server.admin_path(shard) for shard in range(shards)])
    cluster.tables = tables
    rows = {name: (cluster.rows({"table": name}), cluster.describe({"table": name})) for name in tables}
    cluster.close()
    return rows


def outlives_its_server(program, flags, shards):
    n = 0
    with tempfile.TemporaryDirectory() as data:
        flags = [*flags, "--data-dir", data]
        with Embd(*flags, shards=shards, program=program) as server:
            cluster = Cluster(server.addresses[0], [server.admin_path(shard) for shard in range(shards)])
            for n, vector in enumerate(map(journaled, filter(is_for_journals, vectors_of((), shards))), 1):
                run_vector(cluster, vector)
            before = rows_of(server, cluster.tables, shards)
            server.kill()
        with Embd(*flags, shards=shards, program=program) as server:
            assert rows_of(server, cluster.tables, shards) == before
    print(f"{n} vectors with journals: {pathlib.Path(program).name} {' '.join(flags[:-2])}, {shards} shards")
    assert n > 30, n


subprocess.run([sys.executable, "-B", HERE / "write_vectors.py", "--check"], check=True, timeout=100)
for program, *flags in (word.split(",") for word in sys.argv[1:]):
    for shards in (1, 3):
        with Embd(*flags, shards=shards, program=program) as server:
            n = run(server.addresses[0], [server.admin_path(shard) for shard in range(shards)])
            print(f"{n} vectors agree: {pathlib.Path(program).name} {' '.join(flags)}, {shards} shards")
            assert n > (100 if shards == 1 else 80), n
        outlives_its_server(program, flags, shards)
