"""with_tls.py COMMAND ...: runs it with certificates for both sides, of an authority that was made for it. Servers of cluster.c take
theirs from the folder EMBD_TEST_TLS, and clients from the variables that they always read."""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from certificates import Authority  # noqa: E402 pylint: disable=wrong-import-position


def main():
    with tempfile.TemporaryDirectory(prefix="embd-test-") as folder:
        authority = Authority(folder, "ca")
        authority.issue("server")
        cert, key = authority.issue("client")
        shown = {"EMBD_TEST_TLS": folder, "EMBD_TLS_CA": authority.path, "EMBD_TLS_CERT": cert, "EMBD_TLS_KEY": key}
        return subprocess.run(sys.argv[1:], env={**os.environ, **shown}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
