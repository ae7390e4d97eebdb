"""The package, embd.torch too, is sound under mypy --strict; what pyproject.toml leaves out is said there."""
import os
import shutil
import subprocess
import sys
import tempfile

PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "client", "python")

if __name__ == "__main__":
    if shutil.which("mypy") is None:
        print("skipped: mypy is not installed (deploy/deps.sh --tools)")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as cache:
        sys.exit(subprocess.run(["mypy", "--config-file", "pyproject.toml", "--python-executable", sys.executable,
                                 "--cache-dir", cache, "-p", "embd"], cwd=PACKAGE, check=False).returncode)
