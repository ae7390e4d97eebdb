"""Man pages as roff: the few macros that the pages of this folder need."""
import gzip
import pathlib
import re


def escape(text):
    """Text as roff shows it: no line is taken for a request, and a hyphen stays one that can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", r"\\&", text, flags=re.M)


def bold_names(text):
    """`name` in bold, as manual pages show what is typed as it stands."""
    return re.sub(r"`([^`]+)`", r"\\fB\1\\fR", escape(text))


class Page:
    def __init__(self, name, section, version, title):
        self.path = pathlib.Path(f"man{section}") / f"{name}.{section}"
        self.text = [f'.TH "{name}" {section} "" "embd {version}" "{title}"', ".nh"]

    def heading(self, title):
        self.text.append(f'.SH "{title}"')

    def subheading(self, title):
        self.text.append(f'.SS "{escape(title)}"')

    def paragraph(self, text):
        self.text += [".PP", bold_names(text)]

    def line(self, text):
        self.text.append(bold_names(text))

    def literal(self, text):
        self.text += [".PP", ".RS 4", ".nf", escape(text.rstrip()), ".fi", ".RE"]

    def item(self, tag, text):
        self.text += [".TP", f"\\fB{escape(tag)}\\fR", bold_names(text) or "\\&"]

    def see_also(self, names):
        """names: ("embd_pull", 3)."""
        self.heading("SEE ALSO")
        self.line(", ".join(f"`{name}`({section})" for name, section in names))

    def write(self, folder):
        """Gzipped as Debian wants it, and the same bytes each time."""
        write(folder, self.path, "\n".join(self.text) + "\n")


def write(folder, path, text):
    target = pathlib.Path(folder) / f"{path}.gz"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
