"""The pages keep up with the sources: README.md's C block is client/examples/readme.c and it has at most 220 lines,
deploy/CONFIGURATION.md names every setting of the server, deploy/OPERATING.md every command of embctl. Links of all pages in
the tree lead to files and headings that exist."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
README_LINES = 220


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def section(page, title):
    return re.split(r"^## ", text_of(page).split(f"\n## {title}\n", 1)[1], maxsplit=1, flags=re.M)[0]


def length_offences():
    n = README.count("\n")
    if n > README_LINES:
        yield f"README.md has {n} lines, at most {README_LINES}; details belong to the page that README links to"


def example_offences():
    blocks = re.findall(r"^```c\n(.*?)^```", README, re.M | re.S)
    source = (ROOT / "client/examples/readme.c").read_text(encoding="utf-8")
    if len(blocks) != 1:
        yield f"README.md has {len(blocks)} blocks of C; there should be one"
    elif blocks[0] != source:
        yield "README.md's block of C differs from client/examples/readme.c"


def setting_offences():
    """Settings of the file by their key, settings that are flags alone with their dashes."""
    text = text_of("deploy/CONFIGURATION.md")
    listed = re.findall(r'^    X\(\w+, "(\w+)", ([A-Z_| ]+),', (ROOT / "server/settings.h").read_text("utf-8"), re.M)
    if len(listed) < 20:
        yield f"only {len(listed)} settings found in server/settings.h"
    for key, where in listed:
        shown = f"`{key}`" if where != "IN_FLAGS" else f"`--{key.replace('_', '-')}"
        if shown not in text:
            yield f"deploy/CONFIGURATION.md: {shown.strip('`')} of server/settings.h is missing"


def command_offences():
    text = section("deploy/OPERATING.md", "embctl")
    listed = re.findall(r'^    \{"(\w+)", .*?command_(\w+),', (ROOT / "client/embctl/main.c").read_text("utf-8"),
                        re.M | re.S)
    if len(listed) < 25:
        yield f"only {len(listed)} commands found in client/embctl/main.c"
    for name, function in listed:
        words = function.replace("_", " ")
        if not re.search(rf"`{words}\b", text):
            yield f"deploy/OPERATING.md, embctl: `{words}` is missing ({name})"


def pages():
    for path in sorted(ROOT.rglob("*.md")):
        if not any(part == "build" or part.startswith(".") for part in path.relative_to(ROOT).parts):
            yield path


def anchors(page):
    """What a heading is called in a link: small letters, hyphens for spaces, and no other punctuation."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\s-]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def link_offences():
    """Links to other sites are theirs."""
    for page in pages():
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if "://" in link:
                continue
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            if not target.exists():
                yield f"{page.relative_to(ROOT)}: {link}: there is no such file"
            elif anchor and anchor not in anchors(target):
                yield f"{page.relative_to(ROOT)}: {link}: there is no such heading"


def main():
    offences = [*length_offences(), *example_offences(), *setting_offences(), *command_offences(), *link_offences()]
    print("\n".join(offences) or "README.md and the links of all pages: no offence")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
