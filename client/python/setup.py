"""Builds the package: the extension module from embd.h, and its C libraries when they are built in the tree.

What there is to decide is in build_native.py; this file only puts its answers where setuptools looks."""
import pathlib
import shutil
import sys

from setuptools import setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import build_native  # noqa: E402


class BuildWithLibrary(build_ext):
    """Builds the C libraries before the extension that links them."""

    def run(self):
        build_native.SOURCE.build()
        super().run()
        folder = pathlib.Path(self.get_ext_fullpath("embd._native")).parent
        for name, path in build_native.SOURCE.bundled().items():
            shutil.copy(path, folder / name)


setup(options=build_native.SOURCE.folders(), version=build_native.SOURCE.version(),
      cmdclass={"build_ext": BuildWithLibrary}, cffi_modules=["build_native.py:ffi"])
