"""Makes embd._native, the extension module that holds the C API, out of its headers.

The declarations cffi needs are the headers, read by the C preprocessor: what is added there is there in Python
with the next build, and nothing is declared twice. cffi compiles against the real header (API mode), so a
declaration that does not fit is an error of the compiler and not a crash.

Where libembd, libembd-data and libembd-hugectr come from:
  in the tree            CMake builds them, and they go into the package, beside the extension
  installed libraries    what pkg-config calls embd, embd-data and embd-hugectr; when the tree is not there, or with EMBD_LIBRARY=installed

    python3 build_native.py --emit FILE.c      writes the C source of the module (CMakeLists.txt does so)
"""
import os
import pathlib
import re
import subprocess
import sys

from cffi import FFI

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parents[1]
LIBRARIES = ["embd", "embd-data", "embd-hugectr"]
BUNDLED = [*LIBRARIES, "embd-inproc"]  # which libembd loads


def run(*command, **more):
    return subprocess.run(command, check=True, text=True, **more)


def pkg_config(*arguments):
    return run("pkg-config", *arguments, stdout=subprocess.PIPE).stdout.split()


class Tree:
    """The libraries as the sources beside this file. What is built lies in the tree's own build folder."""

    headers = TREE / "include/embd"
    build_base = TREE / "build/pip"
    folder = build_base / "libembd"

    def folders(self):
        """Where setuptools shall write."""
        self.build_base.mkdir(parents=True, exist_ok=True)
        return {"build": {"build_base": str(self.build_base)}, "egg_info": {"egg_base": str(self.build_base)}}

    def version(self):
        return re.search(r"project\(embd VERSION ([0-9.]+)", (TREE / "CMakeLists.txt").read_text())[1]

    def build(self):
        build_type = os.environ.get("CMAKE_BUILD_TYPE", "RelWithDebInfo")
        run("cmake", "-S", TREE, "-B", self.folder, "-G", "Ninja", f"-DCMAKE_BUILD_TYPE={build_type}",
            "-DEMBD_TESTS=OFF", "-DEMBD_CUDA=OFF", "-DEMBD_PYTHON=OFF",
            # They are found beside each other, wherever the package is, and nowhere else.
            "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON", "-DCMAKE_INSTALL_RPATH=$ORIGIN")
        run("ninja", "-C", self.folder, *(f"lib{name}" for name in BUNDLED))

    def bundled(self):
        """Files that go into the package, by the name that the extension looks for."""
        version = self.version()
        return {f"lib{name}.so.{'.'.join(version.split('.')[:2])}": self.folder / "lib" / f"lib{name}.so.{version}"
                for name in BUNDLED}

    def options(self):
        return {"include_dirs": [str(TREE / "include")], "library_dirs": [str(self.folder / "lib")],
                "runtime_library_dirs": ["$ORIGIN"], "libraries": LIBRARIES}


class Installed:
    """The libraries as pkg-config finds them."""

    def folders(self):
        """setuptools' own."""
        return {}

    @property
    def headers(self):
        return pathlib.Path(*pkg_config("--variable=includedir", "embd")) / "embd"

    def version(self):
        return pkg_config("--modversion", "embd")[0]

    def build(self):
        """It is there already."""

    def bundled(self):
        return {}

    def options(self):
        folder = pkg_config("--variable=libdir", "embd-hugectr")
        return {"include_dirs": [str(self.headers.parent)], "library_dirs": folder,
                "runtime_library_dirs": folder, "libraries": LIBRARIES}


def choose():
    wanted = os.environ.get("EMBD_LIBRARY", "")
    if wanted not in ("", "tree", "installed"):
        raise SystemExit(f"EMBD_LIBRARY is '{wanted}'; it can be tree or installed")
    return Installed() if wanted == "installed" or not Tree.headers.exists() else Tree()


SOURCE = choose()


# In an order in which each has what it needs.
HEADERS = ("status.h", "schema.h", "embd.h", "data.h", "sync.h", "admin.h", "job.h", "rows.h", "device.h", "hugectr.h")


def declarations(folder):
    """The headers as cffi's parser takes them: no includes, no attributes, number macros as constants."""
    text = "".join((folder / name).read_text() for name in HEADERS)
    text = re.sub(r"^\s*#\s*include.*$", "", text, flags=re.M)
    text = text.replace('__attribute__((visibility("default")))', "")
    plain = run("cc", "-E", "-P", "-x", "c", "-", input=text, stdout=subprocess.PIPE).stdout
    numbers = re.findall(r"^#define (EMBD_[A-Z_]+) +[0-9]", text, flags=re.M)
    return plain + "".join(f"#define {name} ...\n" for name in numbers)


def make():
    builder = FFI()
    builder.cdef(declarations(SOURCE.headers))
    builder.cdef((HERE / "native.cdef").read_text())
    builder.set_source("embd._native", (HERE / "native.c").read_text(), **SOURCE.options(),
                       extra_compile_args=["-std=c11", "-O2"])
    return builder


ffi = make()

if __name__ == "__main__":
    ffi.emit_c_code(sys.argv[sys.argv.index("--emit") + 1])
