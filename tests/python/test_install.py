"""The package as users install it: a wheel from the tree, and a build against an installed libembd."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import clusters

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["EMBD_BIN"]).parent
TRY = ("import sys, embd; client = embd.connect(sys.argv[1]); rows = client.create_table('t', 2).pull([1, 2]);"
       "print(embd.__file__, rows.shape)")


def run(*command, **environment):
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=500,
                            env={**env, **environment}, cwd="/", check=False)
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


@unittest.skipIf(subprocess.run([sys.executable, "-c", "import setuptools, wheel, pip, venv, ensurepip"], check=False,
                                capture_output=True).returncode, "pip, setuptools, wheel or venv is missing")
class Install(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.folder = pathlib.Path(self.dir.name)
        # A copy, so that nothing is built in the tree that is tested.
        self.tree = self.folder / "tree"
        shutil.copytree(ROOT, self.tree, ignore=shutil.ignore_patterns("build", "__pycache__", ".*", "tests"))

    def try_it(self, python, **environment):
        with clusters.Embd() as server:
            said = run(python, "-c", TRY, server.addresses[0], **environment)
        self.assertIn(f"{self.folder}/", said)
        self.assertIn("(2, 2)", said)

    def test_a_wheel_from_the_tree(self):
        # Neither optimized nor with debug information, which takes a third of the time: it is about what lies where.
        wheel = run(self.tree / "client/python/make-wheel", self.folder / "wheels", CMAKE_BUILD_TYPE="None").split()[-1]
        self.assertRegex(wheel, "embd-.*-cp39-abi3-.*whl$")
        run("/usr/bin/python3", "-m", "pip", "install", "--no-deps", "--no-index", "--target", self.folder / "lib/embd",
            wheel)
        self.try_it("/usr/bin/python3", PYTHONPATH=str(self.folder / "lib/embd"))
        self.look_at_libraries(wheel)

    def look_at_libraries(self, wheel):
        """Each finds the others beside it, and names no folder of the machine that built it."""
        repaired = "manylinux" in wheel
        for library in self.folder.joinpath("lib/embd").rglob("*.so*"):
            said = run("readelf", "--dynamic", library)
            for path in re.findall(r"R(?:UN)?PATH.*\[(.*)\]", said):
                self.assertRegex(path, r"^\$ORIGIN(/\.\./embd\.libs)?(:\$ORIGIN(/\.\./embd\.libs)?)*$", library)
            if repaired:
                strangers = [name for name in re.findall(r"NEEDED.*\[(.*)\]", said)
                             if not re.match(r"(libembd|libc\.|libm\.|ld-linux|lib[a-z]+(-[0-9])?-[0-9a-f]{8}\.)", name)]
                self.assertEqual(strangers, [], library)

    def test_against_an_installed_library(self):
        prefix = self.folder / "prefix"
        run("cmake", "--install", BUILD, "--prefix", prefix)
        pc, = prefix.rglob("embd.pc")
        shutil.rmtree(self.tree / "include")
        run("/usr/bin/python3", "-m", "venv", "--system-site-packages", self.folder / "venv")
        run(self.folder / "venv/bin/pip", "install", "--no-deps", "--no-index", "--no-build-isolation",
            self.tree / "client/python", PKG_CONFIG_PATH=str(pc.parent))
        self.try_it(self.folder / "venv/bin/python")


if __name__ == "__main__":
    clusters.main()
