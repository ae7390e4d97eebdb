"""Blocks of code of the pages and of the public header, each with its language and where it stands."""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass
class Block:
    path: pathlib.Path
    line: int  # of the first line of code
    language: str
    words: str  # what follows the language
    text: str

    @property
    def where(self):
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def pages():
    """All pages in the tree."""
    for path in sorted(ROOT.rglob("*.md")):
        folders = path.relative_to(ROOT).parts[:-1]
        if path.parent == ROOT / ".github" or not any(f == "build" or f.startswith(".") for f in folders):
            yield path


def of_page(path):
    """Fenced blocks. What is indented by four or more behind an empty line is a block too, of no language."""
    block, is_after_blank = None, True
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```") and block is None:
            language, _, words = line[3:].partition(" ")
            block = Block(path, number + 1, language, words, "")
        elif line.startswith("```"):
            yield block
            block = None
        elif block is not None:
            block.text += line + "\n"
        elif line.startswith("    ") and is_after_blank:
            yield Block(path, number, "", "", line)
        is_after_blank = not line.strip()
    assert block is None, f"{path}: a block has no end"


def of_header(path):
    """Code in comments: lines that stand five or more blanks behind the star, behind a line with the star alone."""
    block, is_after_blank = None, False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        code = re.match(r" \* {5}(.*)", line)
        if code and (block is not None or is_after_blank):
            block = block or Block(path, number, "c", "", "")
            block.text += code[1] + "\n"
        elif block is not None:
            yield block
            block = None
        is_after_blank = line.rstrip() == " *"


def all_blocks():
    for page in pages():
        yield from of_page(page)
    for header in sorted((ROOT / "include").rglob("*.h")):
        yield from of_header(header)
