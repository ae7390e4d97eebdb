"""cycles.py finds the circles that are there, and no others, in objects compiled for it."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

CYCLES = pathlib.Path(__file__).with_name("cycles.py")
FILES = {
    # A circle of three, a pair, and files that lead into and out of them.
    "server/a.c": "int b(void); int a(void); int a(void) { return b(); }",
    "server/b.c": "int c(void); int leaf(void); int b(void); int b(void) { return c() + leaf(); }",
    "server/c.c": "int a(void); int c(void); int c(void) { return a(); }",
    "proto/x.c": "extern int (*y)(void); int x(void); int x(void) { return y(); }",
    "proto/y.c": "int x(void); int (*y)(void) = x;",
    "proto/leaf.c": "int leaf(void); int leaf(void) { return 0; }",
    "server/main.c": "int a(void); int x(void); int main(void) { return a() + x(); }",
    # Tests may need what they like.
    "tests/t.c": "int u(void); int t(void); int t(void) { return u(); }",
    "tests/u.c": "int t(void); int u(void); int u(void) { return t(); }",
}


class Cycles(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        root = pathlib.Path(place.name)
        self.build = root / "build"
        commands = []
        for name, text in FILES.items():
            source, made = root / name, self.build / name.split("/")[0] / "CMakeFiles/one.dir" / f"{name}.o"
            source.parent.mkdir(exist_ok=True)
            source.write_text(text)
            made.parent.mkdir(parents=True, exist_ok=True)
            command = ["cc", "-c", str(source), "-o", str(made)]
            subprocess.run(command, check=True)
            commands.append({"directory": str(self.build), "file": str(source), "command": " ".join(command)})
        (self.build / "compile_commands.json").write_text(json.dumps(commands))
        (self.build / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={root}\n")

    def run_with(self, *flags):
        run = subprocess.run([sys.executable, "-B", CYCLES, self.build, *flags], capture_output=True, text=True)
        return run.returncode, run.stdout

    def test_circles_are_found(self):
        status, text = self.run_with("--verbose")
        self.assertEqual(status, 0)
        self.assertIn("5 of 7 files are in 2 circles, the largest of 3", text)
        self.assertIn("3 files: server/a.c server/b.c server/c.c", text)
        self.assertIn("2 files: proto/x.c proto/y.c", text)
        self.assertIn("server/c.c -> server/a.c: a", text)

    def test_limits_hold(self):
        self.assertEqual(self.run_with("--most-in-circle", "3", "--most-files", "5")[0], 0)
        status, text = self.run_with("--most-in-circle", "2")
        self.assertEqual(status, 1)
        self.assertIn("the largest circle has 3 files; the limit is 2", text)
        self.assertEqual(self.run_with("--most-files", "4")[0], 1)

    def test_a_build_without_objects_is_no_success(self):
        for made in self.build.rglob("*.o"):
            made.unlink()
        self.assertNotEqual(self.run_with("--most-files", "99")[0], 0)


if __name__ == "__main__":
    unittest.main()
