"""The reference of the server's configuration, from the list of settings in server/settings.h: deploy/CONFIGURATION.md for
readers of the tree, embd.yaml(5) for those of an installed one.

    python3 deploy/man/configuration.py --write            writes deploy/CONFIGURATION.md
    python3 deploy/man/configuration.py --check            says whether that page is up to date
    python3 deploy/man/configuration.py VERSION OUT        writes OUT/man5/embd.yaml.5.gz
"""
import dataclasses
import pathlib
import re
import sys

import roff

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "deploy/CONFIGURATION.md"
ABOUT = [
    "A server without a configuration file is a cluster of its own; its flags configure it. Several servers form one "
    "cluster when they read the same file: `embd --config FILE --server NAME`.",
    "The file is YAML. A setting at its top holds for every server, one in the entry of a server for that server. A flag "
    "overrides the entry of the server, which overrides the top. A flag has `-` where a key has `_`. `embctl config check FILE` "
    "checks a file and starts nothing.",
]
EXAMPLE = """stall_timeout: 10
cluster:
  name: shop
  servers:
    - {name: a, listen: "127.0.0.1:7700", data_dir: /var/lib/embd/a}
    - {name: b, listen: "127.0.0.1:7800", shards: 4}
"""
SECTIONS = [
    ("IN_CLUSTER", "Keys of `cluster:`", "The cluster that servers form. `servers` lists them; with `etcd` they "
     "announce there where they are."),
    ("IN_SERVER", "Keys of an entry of `servers:`", "They hold for this server and override the top."),
    ("IN_TOP", "Keys of the top", "They hold for every server that reads the file. Each is a flag as well."),
    ("IN_FLAGS", "Flags alone", "They concern one start and are not keys of the file."),
]


@dataclasses.dataclass
class Setting:
    key: str
    where: set
    value: str
    help: str
    default: str


def settings():
    text = (ROOT / "server/settings.h").read_text(encoding="utf-8").replace("\\\n", "\n")
    text = re.search(r"#define SETTING_LIST\(X\)(.*?)\n\n", text, re.S)[1]
    found = []
    for key, where, value, strings in re.findall(
            r'X\(\w+, "(\w+)", ([A-Z_| ]+),\s*(NULL|"[^"]*"),((?:\s*"(?:\\.|[^"\\])*")+)\s*\)', text):
        about = re.sub(r"\s+", " ", "".join(re.findall(r'"((?:\\.|[^"\\])*)"', strings))).strip()
        default = re.search(r" \((?!PEM)([^()]*)\)(?=;|$)", about)
        if default:
            about = about[:default.start()] + about[default.end():]
        found.append(Setting(key, set(where.split(" | ")), value.strip('"') if value != "NULL" else "", about,
                             default[1] if default else ""))
    return found


def of(all_settings, where):
    """Of the top alone: what an entry of a server has is listed there, too, and flags that are nothing else."""
    if where == "IN_FLAGS":
        return [s for s in all_settings if s.where == {"IN_FLAGS"}]
    return [s for s in all_settings if where in s.where]


def name_of(setting, where):
    return f"--{setting.key.replace('_', '-')}" if where == "IN_FLAGS" else setting.key


def table(all_settings, where):
    yield "| name | value | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for s in of(all_settings, where):
        cells = [f"`{name_of(s, where)}`", f"`{s.value}`" if s.value else "", s.default, s.help]
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def markdown():
    everything = settings()
    lines = ["<!-- Written by deploy/man/configuration.py from server/settings.h: change it there. -->",
             "# Configuration of the server", ""]
    for text in ABOUT:
        lines += [text, ""]
    lines += ["```yaml", EXAMPLE.rstrip(), "```", ""]
    for where, title, about in SECTIONS:
        lines += [f"## {title}", "", about, "", *table(everything, where), ""]
    return "\n".join(lines)


def manual(version):
    everything = settings()
    page = roff.Page("embd.yaml", 5, version, "embd")
    page.heading("NAME")
    page.line("embd.yaml - configuration of embd servers")
    page.heading("DESCRIPTION")
    for text in ABOUT:
        page.paragraph(text)
    for where, title, about in SECTIONS:
        page.heading(title.replace("`", "").upper())
        page.paragraph(about)
        for s in of(everything, where):
            page.item(f"{name_of(s, where)} {s.value}".rstrip(), s.help + (f". Default: {s.default}." if s.default else "."))
    page.heading("EXAMPLE")
    page.literal(EXAMPLE)
    page.see_also([("embd", 8), ("embctl", 1)])
    return page


def main(arguments):
    if arguments == ["--write"]:
        PAGE.write_text(markdown(), encoding="utf-8")
    elif arguments == ["--check"]:
        silent = [s.key for s in settings() if not s.help]
        for key in silent:
            print(f"server/settings.h: {key} has no help")
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != markdown():
            print(f"{PAGE.relative_to(ROOT)} is not what server/settings.h says: python3 deploy/man/configuration.py --write")
            return 1
        print(f"{len(settings())} settings")
        return 1 if silent or len(settings()) < 30 else 0
    else:
        version, out = arguments
        manual(version).write(out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
