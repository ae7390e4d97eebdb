"""test_walls.py BUILD: the compiler finds, for each folder, the headers that deploy/cmake/layers.txt lets it see, and no other.

A probe is compiled with the command that BUILD has for a source of the folder."""

import json
import pathlib
import shlex
import subprocess
import sys
import unittest

from check_layers import ROOT, RULES, folder_of, sources

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
MAY_BE_LEFT_OUT = ("server/store/cuda", "server/store/nccl", "client/python", "include")
HEADERS = {str(path.relative_to(ROOT)): folder_of(path) for path in sources("proto", "client", "server")
           if path.suffix in (".h", ".cuh")}


def read_commands():
    """{folder: the options of the compiler for one of its C sources}, without what only tests compile."""
    commands = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8")):
        path = pathlib.Path(entry["file"])
        words = shlex.split(entry["command"])
        if path.suffix == ".c" and path.is_relative_to(ROOT) and f"-I{ROOT}" not in words \
                and path.relative_to(ROOT).parts[0] in ("proto", "client", "server") and not path.is_relative_to(BUILD):
            words = [word for word in words[:words.index("-o")] if word != "-MD"]
            if "-MT" in words:
                words = words[:words.index("-MT")]
            commands.setdefault(folder_of(path), words)
    return commands


class Walls(unittest.TestCase):
    commands = read_commands()

    def compile(self, folder, text):
        return subprocess.run([*self.commands[folder], "-fsyntax-only", "-xc", "-"], input=text, text=True, check=False, cwd=BUILD,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_every_folder_is_compiled_with_walls(self):
        missing = {folder for folder in RULES if folder not in self.commands and not folder.startswith(MAY_BE_LEFT_OUT)}
        self.assertEqual(missing, set())

    def test_each_folder_finds_what_it_may_see(self):
        for folder in self.commands:
            seen, reached, _ = RULES[folder]
            probe = ""
            for header, owner in HEADERS.items():
                may = owner == folder or owner in seen or header in seen | reached
                probe += f'#if {"!" if may else ""}__has_include("{header}")\n' \
                         f'#error "{header} is {"not " if may else ""}found"\n#endif\n'
            with self.subTest(folder):
                done = self.compile(folder, probe)
                self.assertEqual(done.returncode, 0, done.stdout)

    def test_a_wrong_include_does_not_compile(self):
        for folder, right, wrong in (("server/engine", "server/store/store.h", "server/net/loop.h"),
                                     ("server/engine", "server/engine/engine.h", "server/service/shard.h"),
                                     ("client/call", "client/io/link.h", "client/formats/table_copy.h"),
                                     ("client/call", "proto/frame.h", "server/store/store.h"),
                                     ("client/embctl", "embd/admin.h", "proto/frame.h")):
            with self.subTest(folder):
                self.assertTrue((ROOT / wrong).is_file())
                allowed = self.compile(folder, f'#include "{right}"\n')
                self.assertEqual(allowed.returncode, 0, allowed.stdout)
                refused = self.compile(folder, f'#include "{wrong}"\n')
                self.assertNotEqual(refused.returncode, 0)
                self.assertIn(wrong, refused.stdout)


if __name__ == "__main__":
    unittest.main()
