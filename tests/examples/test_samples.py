"""package_samples.py: the archive it reads, the graph it makes, and samples that do not give the answer away."""

import itertools
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "client/examples"
sys.path.insert(0, str(EXAMPLES))
import package_samples as ps  # noqa: E402

ARCHIVE = b"""Package: app
Maintainer: A <a@example.org>
Pre-Depends: base
Depends: libone (>= 1.0) | libtwo, libone:any, ghost, app
Description: Depends: nothing
 Depends: folded
Section: games


Package: base

Package: libone
Section: libs

Package: app
Depends: late

Package: libtwo"""


def write(folder, *flags):
    command = [sys.executable, "-B", EXAMPLES / "package_samples.py", folder, *flags]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Archive(unittest.TestCase):
    def setUp(self):
        found = {}
        for stanza in ps.stanzas(ARCHIVE):
            found.setdefault(stanza[0], stanza)
        self.packages = list(found.values())

    def test_an_index_gives_each_package_once(self):
        self.assertEqual([package[0] for package in self.packages], [b"app", b"base", b"libone", b"libtwo"])
        self.assertEqual(self.packages[0], (b"app", b"games", b"A <a@example.org>",
                                            b"base, libone (>= 1.0) | libtwo, libone:any, ghost, app"))

    def test_edges_lose_versions_repeats_and_unknown_names(self):
        self.assertEqual(ps.Graph(self.packages).edges, [(0, 1), (0, 2), (0, 3)])

    def test_words_of_a_name(self):
        self.assertEqual(ps.words_of(b"libqt5core5a"), [b"qt", b"core"])
        self.assertEqual(ps.words_of(b"lib-a-bb-bb-cc-dd-ee-ff"), [b"lib", b"bb", b"cc", b"dd"])

    def test_files_are_read_in_their_order_also_compressed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "x_Packages")
            path.write_bytes(ARCHIVE)
            self.assertIn("graph: 4 packages, 3 edges", write(folder, "--packages", str(path)))
            if pathlib.Path(ps.APT_HELPER).exists():
                subprocess.run(["gzip", str(path)], check=True)
                self.assertIn("graph: 4 packages, 3 edges", write(folder, "--packages", f"{path}.gz"))


class Samples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.packages = list(ps.made_up_packages())
        cls.graph = ps.Graph(cls.packages)
        cls.features = ps.Features(cls.packages, cls.graph)

    def test_one_edge_in_ten_is_held_out(self):
        held, edges = len(self.graph.held_out), len(self.graph.edges)
        self.assertTrue(0.095 < held / edges < 0.105)
        self.assertEqual(held + len(self.graph.training), edges)
        self.assertEqual(sum(self.graph.popularity), len(self.graph.training))

    def groups(self, edges):
        """(edge, [(label, b, slots)]) of each positive with its negatives."""
        found = ps.samples(self.features, edges, edges, ps.random_numbers(7))
        at = iter(edges)
        for is_first, group in itertools.groupby(found, lambda sample: sample[0]):
            if is_first:
                for sample in group:
                    positive, edge = sample, next(at)
                    yield edge, [positive]
            else:
                yield edge, [positive, *group]

    @staticmethod
    def slots_of(text):
        at, slots = 4, []
        for _ in range(ps.SLOTS):
            n, = struct.unpack_from("<i", text, at)
            slots.append(struct.unpack_from(f"<{n}Q", text, at + 4))
            at += 4 + 8 * n
        assert at == len(text)
        return slots

    def check_groups(self, edges):
        checked = 0
        for (a, b), group in self.groups(edges):
            held = {self.features.as_dependency[to] for x, to in self.graph.held if x == a} if checked % 50 == 0 else set()
            self.assertEqual(group[0][:2], (1, b))
            self.assertLessEqual(len(group), 1 + ps.NEGATIVES)
            side = self.slots_of(group[0][2])[:ps.B_PACKAGE]
            self.assertFalse(held & set(side[ps.A_DEPENDENCIES]))
            for label, target, text in group:
                slots = self.slots_of(text)
                self.assertEqual(slots[:ps.B_PACKAGE], side)
                self.assertNotIn(self.features.as_dependency[b], slots[ps.A_DEPENDENCIES])
                self.assertEqual(bool(label), self.graph.has_edge(a, target))
                if not label:
                    self.assertNotIn(self.features.as_dependency[target], slots[ps.A_DEPENDENCIES])
            checked += 1
        self.assertGreaterEqual(checked, len(edges))

    def test_no_feature_gives_the_answer_away(self):
        self.check_groups(self.graph.training[:800])
        self.check_groups(self.graph.held_out[:800])

    def test_a_seed_gives_the_same_samples_every_time(self):
        with tempfile.TemporaryDirectory() as folder:
            texts = []
            for number, seed in enumerate(("1", "1", "2")):
                place = pathlib.Path(folder, str(number))
                self.assertIn("train: 1000 samples", write(place, "--synthetic", "--limit", "1000", "--seed", seed))
                texts.append([pathlib.Path(place, f"{name}.0000").read_bytes() for name in ("train", "held-out")])
            self.assertEqual(texts[0], texts[1])
            self.assertNotEqual(texts[0][0], texts[2][0])
            self.assertEqual(texts[0][1], texts[2][1])

    def test_popularity_counts_pairs_and_ties_by_half(self):
        popularity = [3, 1, 3]
        written = [(1, 0), (1, 1), (0, 2), (0, 1)]
        pairs = [(popularity[x] > popularity[y]) + (popularity[x] == popularity[y]) / 2
                 for one, x in written for zero, y in written if one and not zero]
        self.assertEqual(ps.popularity_auc(written, popularity), sum(pairs) / len(pairs))


if __name__ == "__main__":
    unittest.main()
