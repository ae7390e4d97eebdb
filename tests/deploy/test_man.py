"""Manual pages of section 3, 5 and 7, and deploy/CONFIGURATION.md: made from the headers and from server/settings.h, they
name everything that these do, and groff finds nothing wrong with them."""
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAN = ROOT / "deploy/man"
HEADINGS = ["NAME", "SYNOPSIS", "DESCRIPTION", "PARAMETERS", "RETURN VALUE", "ERRORS", "EXAMPLE", "SEE ALSO"]


def run(*command):
    return subprocess.run([sys.executable, "-B", *map(str, command)], capture_output=True, text=True, check=False)


def exported():
    """What the built libraries export."""
    lib = pathlib.Path(os.environ["EMBD_BIN"]).parent / "lib"
    for path in sorted(lib.glob("libembd*.so")):
        symbols = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
        yield from re.findall(r" T (embd_[a-z]\w*)@", symbols)


class Man(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.out = pathlib.Path(cls.folder.name)
        for script in ("reference.py", "configuration.py"):
            done = run(MAN / script, "0.0.0", cls.out)
            assert done.returncode == 0, done.stderr
        cls.pages = {path.name[:-3]: gzip.decompress(path.read_bytes()).decode() for path in cls.out.rglob("*.gz")}

    def test_every_function_has_a_comment_and_a_page(self):
        done = run(MAN / "reference.py", "--check")
        self.assertEqual(done.returncode, 0, done.stdout)
        names = {re.sub("_sized$", "", name) for name in exported()}
        self.assertGreater(len(names), 60)
        self.assertEqual(names - {name[:-2] for name in self.pages if name.endswith(".3")}, set())

    def test_pages_have_their_sections_in_one_order(self):
        for name, text in self.pages.items():
            if name.endswith(".3") and not text.startswith(".so "):
                found = re.findall(r'^\.SH "(.*)"$', text, re.M)
                self.assertEqual(found, [heading for heading in HEADINGS if heading in found], name)
                self.assertTrue({"NAME", "SYNOPSIS", "DESCRIPTION", "RETURN VALUE", "SEE ALSO"} <= set(found), name)

    def test_pages_that_others_name_exist(self):
        for name, text in self.pages.items():
            for other in re.findall(r"\\fB(embd_\w+)\\fR\(3\)", text) + re.findall(r"^\.so man3/(\w+)\.3$", text, re.M):
                self.assertIn(f"{other}.3", self.pages, name)

    def test_errors_are_those_of_the_comment(self):
        push = self.pages["embd_push.3"]
        self.assertRegex(push, r"\\fBEMBD_NOT_FINITE\\fR\nA gradient is NaN or infinite")
        self.assertIn("embd_part", push)
        self.assertIn(".SH \"EXAMPLE\"", self.pages["embd_connect.3"])

    def test_the_configuration_page_is_up_to_date(self):
        done = run(MAN / "configuration.py", "--check")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(self.pages["embd.yaml.5"], r"\\fBjournal_limit SIZE\\fR")

    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_groff_has_nothing_to_say(self):
        for name, text in self.pages.items():
            if not text.startswith(".so "):
                done = subprocess.run(["groff", "-man", "-ww", "-z", "-Tutf8"], input=text, capture_output=True, text=True, check=False)
                self.assertEqual(re.findall(r"(?:warning|error): (?!can't break line|cannot adjust line|cannot break line).*", done.stderr), [], name)


if __name__ == "__main__":
    unittest.main()
