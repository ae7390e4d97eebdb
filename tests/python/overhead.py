"""What Python adds to a call: a pull of 64 keys through the package, beside the same embd_pull with its
arguments made before. Rounds of the two alternate; the figure is the median of the differences.

    EMBD_BIN=build/release/bin PYTHONPATH=build/release/python python3 tests/python/overhead.py
"""
import statistics
import time

import numpy as np

import clusters
import embd
from embd._native import ffi, lib
from embd.table import Batch

CALLS, ROUNDS = 200, 25


def seconds_a_call(call, clock):
    start = clock()
    for _ in range(CALLS):
        call()
    return (clock() - start) / CALLS


def measure(address, own_thread, clock=time.perf_counter):
    """(median microseconds of the C call, of the Python call, of the difference)."""
    with embd.connect(address, own_thread=own_thread) as client:
        table = client.create_table("overhead", 16)
        keys, offsets = np.arange(64), np.arange(65)
        batch = Batch([embd.Part(table, keys, offsets)], False)
        handle = client.handle.c
        plain, wrapped = [], []
        for _ in range(ROUNDS):
            plain.append(seconds_a_call(lambda: lib.embd_pull(handle, batch.c_parts, 1, ffi.NULL), clock))
            wrapped.append(seconds_a_call(lambda: table.pull(keys, offsets), clock))
        pairs = [w - p for w, p in zip(wrapped, plain)]
        return tuple(1e6 * statistics.median(values) for values in (plain, wrapped, pairs))


if __name__ == "__main__":
    with clusters.Embd() as server:
        for own_thread in (False, True):
            c, python, added = measure(server.addresses[0], own_thread)
            print(f"own_thread {own_thread}: C {c:.1f} us, Python {python:.1f} us, Python adds {added:.1f} us")
