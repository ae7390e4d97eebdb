"""A disk that goes on step by step: gated_disk.c."""
import contextlib
import os
import tempfile
import threading


class Gate:
    def __init__(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="embd-gate-")
        self.dir, self.closed = self.scratch.name, os.path.join(self.scratch.name, "closed")
        self.passed = []

    def environment(self):
        """Of a process whose disk it is."""
        library = os.path.join(os.environ["EMBD_FAULT_TOOLS"], "libembd-gated-disk.so")
        return {"LD_PRELOAD": library, "EMBD_DISK_GATE": self.dir,
                "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}

    def close(self):
        self.passed = []
        with open(self.closed, "wb"):
            pass

    def waiting(self):
        return [name for name in os.listdir(self.dir) if name != "closed"]

    def let(self, name):
        self.passed.append(name.split(".")[1])
        os.unlink(os.path.join(self.dir, name))

    @contextlib.contextmanager
    def letting_all_but(self, call):
        """Meanwhile calls pass, in the order in which they come, but for that one."""
        ends = threading.Event()

        def let_others():
            while not ends.wait(0.0005):
                for name in self.waiting():
                    if not name.endswith(call):
                        self.let(name)
        thread = threading.Thread(target=let_others)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()

    def open(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.closed)
        for name in self.waiting():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.dir, name))
