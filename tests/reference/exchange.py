"""Runs test_exchange against 1, 2 and 3 shards of one process, and against two processes of two shards each.

usage: exchange.py TEST_EXCHANGE"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from embd_process import Embd  # noqa: E402
from ports import free_ports  # noqa: E402


failed = []


def run(address, shards):
    """What fails is told for every number of shards."""
    print(f"== {shards} shards", flush=True)
    if subprocess.run([sys.argv[1], address, str(shards)], check=False, timeout=60).returncode:
        failed.append(shards)


def two_processes():
    with tempfile.TemporaryDirectory(prefix="embd-reference-") as scratch:
        config = os.path.join(scratch, "two.yaml")
        ports = {"a": free_ports(2)}
        ports["b"] = free_ports(2)
        with open(config, "w", encoding="utf-8") as file:
            file.write(f'admin_dir: "{scratch}/admin"\ncluster:\n  name: two\n  servers:\n')
            for name, port in ports.items():
                file.write(f'    - {{name: {name}, listen: "127.0.0.1:{port}", shards: 2}}\n')
        flags = ["--admin-dir", f"{scratch}/admin", "--config", config, "--server"]
        with Embd(*flags, "a", listen=None), Embd(*flags, "b", listen=None):
            run(f"127.0.0.1:{ports['a']}", 4)


if __name__ == "__main__":
    for count in (1, 2, 3):
        with Embd(shards=count) as server:
            run(server.addresses[0], count)
    two_processes()
    sys.exit(1 if failed else 0)
