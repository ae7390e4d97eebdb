"""Writes samples of a Debian or Ubuntu archive as data sets: does package A depend on package B?

    package_samples.py FOLDER [--packages FILE]... [--synthetic] [--limit N] [--seed N]

FOLDER/train and FOLDER/held-out are norm data sets of one label and 8 slots of 64-bit keys. fm.c and
client/python/examples/package_graph.py train on them.

Packages and their dependencies are a graph. One edge in ten is held out; which ones depends only on the two names. Each
edge (A, B) is a sample with label 1, followed by three samples (A, other) with label 0, whose `other` is the target of
a random edge and thus as popular as B. The keys describe A (section, maintainer, words of the name, other
dependencies) and B (the package, section, maintainer, words). A's other dependencies are the same in all four samples
and come from training edges only, so that nothing gives the answer away."""

import argparse
import bisect
import os
import pathlib
import re
import struct
import subprocess

SLOTS = 8
A_SECTION, A_MAINTAINER, A_WORDS, A_DEPENDENCIES, B_PACKAGE, B_SECTION, B_MAINTAINER, B_WORDS = range(SLOTS)
WORDS_MAX = 4
DEPENDENCIES_MAX = 8
NEGATIVES = 3
NEGATIVE_TRIES = 16  # packages that depend on most of the popular ones get fewer negatives
HELD_OUT_ONE_IN = 10
HEADER_BYTES = 64  # of a norm file

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
TEXT_PACKAGE, TEXT_SECTION, TEXT_MAINTAINER, TEXT_WORD = range(1, 5)  # sets equal spellings apart
SPLIT_SEED = 0x68656C64
HELD_OUT_SEED = 0x6175637365656400  # the evaluation does not depend on --seed

APT_LISTS = pathlib.Path("/var/lib/apt/lists")
APT_HELPER = "/usr/lib/apt/apt-helper"


# ---- numbers -----------------------------------------------------------------------------------

def mix(x):
    """The finalizer of MurmurHash3."""
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & MASK
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return x ^ x >> 33


def hash_text(seed, text):
    """FNV-1a over the bytes, mixed."""
    h = 0xCBF29CE484222325 ^ mix(seed)
    for byte in text:
        h = (h ^ byte) * 0x100000001B3 & MASK
    return mix(h)


def random_numbers(seed):
    """SplitMix64 with the finalizer above."""
    while True:
        seed = seed + GOLDEN & MASK
        yield mix(seed)


# ---- packages ----------------------------------------------------------------------------------

def stanzas(index):
    """(name, section, maintainer, depends) of each stanza of an uncompressed index."""
    for stanza in index.split(b"\n\n"):
        fields = {name: [] for name in (b"Package", b"Section", b"Maintainer", b"Depends")}
        for line in stanza.split(b"\n"):
            name, _, value = line.partition(b":")
            name = b"Depends" if name == b"Pre-Depends" else name
            if name in fields:
                fields[name].append(value.strip())
        if fields[b"Package"]:
            yield tuple(b", ".join(values) for values in fields.values())


def read_index(path):
    if re.search(r"\.(lz4|gz|xz|bz2|zst)$", str(path)):
        return subprocess.run([APT_HELPER, "cat-file", path], check=True, stdout=subprocess.PIPE).stdout
    return pathlib.Path(path).read_bytes()


def archive_indexes():
    """The indexes that `apt-get update` left on this machine."""
    found = APT_LISTS.iterdir() if APT_LISTS.is_dir() else ()
    return sorted(path for path in found if re.search(r"_Packages(\.\w+)?$", path.name))


def made_up_packages(packages=40000, libraries=4000, families=200):
    """Packages depend mostly on libraries of their own family, on its first ones most often."""
    numbers = random_numbers(1)

    def draw(n):
        return next(numbers) % n

    def draw_library(family):
        family = draw(families) if draw(12) == 0 else family
        a, b = draw(libraries // families), draw(libraries // families)
        return family + families * min(a, b)

    for i in range(packages):
        family, depends = i % families, []
        maintainer = b"family%d-%d" % (family, draw(3))
        while len(depends) < 1 + draw(13):
            depends.append(b"lib%d" % draw_library(family))
        yield (b"lib%d" if i < libraries else b"program%d") % i, b"section%d" % (family % 20), maintainer, b", ".join(depends)


def read_packages(flags):
    """The packages of all indexes; the first stanza of a name wins."""
    files = flags.packages or ([] if flags.synthetic else archive_indexes())
    if files:
        print(f"data: {len(files)} package indexes {'named by --packages' if flags.packages else 'of this machine'}")
        found = (stanza for path in files for stanza in stanzas(read_index(path)))
    else:
        reason = "--synthetic" if flags.synthetic else "no index here; apt-get update fetches one"
        print(f"data: SYNTHETIC, a made-up archive ({reason})")
        found = made_up_packages()
    packages = {}
    for stanza in found:
        packages.setdefault(stanza[0], stanza)
    return list(packages.values())


# ---- the graph ---------------------------------------------------------------------------------

class Graph:
    """edges: (A, B) by A, then B. targets[A]: all of A's dependencies. kept[A]: those of training edges."""

    def __init__(self, packages):
        numbers = {package[0]: number for number, package in enumerate(packages)}
        self.targets = [self.dependencies(a, package[3], numbers) for a, package in enumerate(packages)]
        self.edges = [(a, b) for a, targets in enumerate(self.targets) for b in targets]
        names = [package[0] for package in packages]
        seeds = [hash_text(SPLIT_SEED, name) for name in names]
        is_held = [hash_text(seeds[a], names[b]) % HELD_OUT_ONE_IN == 0 for a, b in self.edges]
        self.training = [edge for edge, held in zip(self.edges, is_held) if not held]
        self.held_out = [edge for edge, held in zip(self.edges, is_held) if held]
        self.held = set(self.held_out)
        self.popularity = [0] * len(packages)
        for _, b in self.training:
            self.popularity[b] += 1

    @staticmethod
    def dependencies(a, depends, numbers):
        """Numbers of the packages that a Depends field names; versions, architectures and "|" are dropped."""
        names = (re.split(rb"[ :(\[]", part.lstrip(b" "), maxsplit=1)[0] for part in re.split(rb"[,|]", depends))
        return sorted({numbers[name] for name in names if name in numbers} - {a})

    def has_edge(self, a, b):
        at = bisect.bisect_left(self.targets[a], b)
        return at < len(self.targets[a]) and self.targets[a][at] == b


# ---- samples -----------------------------------------------------------------------------------

def words_of(name):
    """At most four different runs of letters of a name: "libqt5core5a" has "qt" and "core"."""
    words = []
    for word in re.findall(rb"[A-Za-z]+", name):
        word = word[3:] if word.startswith(b"lib") and len(word) > 4 else word
        if len(word) >= 2 and word not in words:
            words.append(word)
    return words[:WORDS_MAX]


def key(slot, text):
    return mix(text + (slot + 1) * GOLDEN & MASK)


def slot_bytes(keys):
    return struct.pack(f"<i{len(keys)}Q", len(keys), *keys)


class Features:
    """The bytes that packages contribute to samples of a norm data set."""

    def __init__(self, packages, graph):
        self.graph = graph
        self.as_a, self.as_b, self.as_dependency = [], [], []
        for name, section, maintainer, _ in packages:
            package, words = hash_text(TEXT_PACKAGE, name), [hash_text(TEXT_WORD, word) for word in words_of(name)]
            section, maintainer = hash_text(TEXT_SECTION, section), hash_text(TEXT_MAINTAINER, maintainer)
            self.as_a.append(b"".join((slot_bytes([key(A_SECTION, section)]), slot_bytes([key(A_MAINTAINER, maintainer)]),
                                       slot_bytes([key(A_WORDS, word) for word in words]))))
            self.as_b.append(b"".join((slot_bytes([key(B_PACKAGE, package)]), slot_bytes([key(B_SECTION, section)]),
                                       slot_bytes([key(B_MAINTAINER, maintainer)]),
                                       slot_bytes([key(B_WORDS, word) for word in words]))))
            self.as_dependency.append(key(A_DEPENDENCIES, package))

    def dependencies(self, a, hidden):
        """A's other dependencies by training edges, beginning at a place that the hidden one decides."""
        targets = self.graph.targets[a]
        start = mix(hidden) % len(targets)
        others = (b for b in targets[start:] + targets[:start] if b != hidden and (a, b) not in self.graph.held)
        return slot_bytes([self.as_dependency[b] for b, _ in zip(others, range(DEPENDENCIES_MAX))])


def draw_negative(graph, a, pool, numbers):
    """A package that A does not depend on, or None when no such one was met in a few tries."""
    for _ in range(NEGATIVE_TRIES):
        b = pool[next(numbers) % len(pool)][1]
        if b != a and not graph.has_edge(a, b):
            return b
    return None


def samples(features, edges, pool, numbers):
    """(label, B, bytes) of each edge and its negatives."""
    yes, no = struct.pack("<f", 1), struct.pack("<f", 0)
    for a, b in edges:
        side = features.as_a[a] + features.dependencies(a, b)
        yield 1, b, yes + side + features.as_b[b]
        for _ in range(NEGATIVES):
            other = draw_negative(features.graph, a, pool, numbers)
            if other is not None:
                yield 0, other, no + side + features.as_b[other]


def shuffle(edges, numbers):
    for i in range(len(edges), 1, -1):
        j = next(numbers) % i
        edges[j], edges[i - 1] = edges[i - 1], edges[j]


def write_set(path, found):
    """Writes a norm data set; returns (label, B) of each sample."""
    written = []
    with open(f"{path}.0000", "wb") as file:
        file.write(bytes(HEADER_BYTES))
        for label, b, text in found:
            file.write(text)
            written.append((label, b))
        file.seek(0)
        file.write(struct.pack("<5q", 0, len(written), 1, 0, SLOTS))
    path.write_text(f"1\n{path.name}.0000\n")
    print(f"{path}: {len(written)} samples")
    return written


def popularity_auc(written, popularity):
    """How often a positive's B is more popular than a negative's: the bar for a model."""
    counts = {}
    for label, b in written:
        counts.setdefault(popularity[b], [0, 0])[label] += 1
    halves = negatives = positives = 0
    for _, (no, yes) in sorted(counts.items()):
        halves += yes * (2 * negatives + no)
        negatives, positives = negatives + no, positives + yes
    return halves / (2 * positives * negatives) if positives and negatives else 0.5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--packages", action="append", metavar="FILE", help="a Packages index, also compressed; may be "
                        "repeated. Without it: the indexes that apt-get update left on this machine")
    parser.add_argument("--synthetic", action="store_true", help="a made-up archive")
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="at most N training samples")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the order of training samples (1)")
    flags = parser.parse_args()
    packages = read_packages(flags)
    graph = Graph(packages)
    print(f"graph: {len(packages)} packages, {len(graph.edges)} edges, {len(graph.held_out)} of them held out")
    features = Features(packages, graph)
    os.makedirs(flags.folder, exist_ok=True)

    numbers, pool = random_numbers(mix(flags.seed)), graph.training
    shuffle(pool, numbers)
    edges = pool[:flags.limit // (1 + NEGATIVES)] if flags.limit else pool
    write_set(flags.folder / "train", samples(features, edges, pool, numbers))
    held_out = samples(features, graph.held_out, graph.held_out, random_numbers(HELD_OUT_SEED))
    auc = popularity_auc(write_set(flags.folder / "held-out", held_out), graph.popularity)
    print(f"held out: AUC {auc:.4f} by the popularity of B alone")


if __name__ == "__main__":
    main()
