"""Data sets as the reference describes them (2c), written without embd; then a program that reads them.

Sample i has label i % 2, dense values i and i + 0.5, and 3 slots. Slot s holds (i + s) % 3 keys, in raw files one:
key k of it is s * 1000000 + 10 * i + k, and with 64-bit keys 2**40 more. The program reads every set and checks
that; it also writes sets, which are compared here byte for byte.
"""

import os
import pathlib
import struct
import subprocess
import sys
import tempfile

SLOTS = 3


def keys_of(i, slot, count, wide):
    return [slot * 1000000 + 10 * i + k + (2**40 if wide else 0) for k in range(count)]


def sample(i, wide):
    out = struct.pack("<3f", i % 2, i, i + 0.5)
    for slot in range(SLOTS):
        keys = keys_of(i, slot, (i + slot) % 3, wide)
        out += struct.pack(f"<i{len(keys)}{'q' if wide else 'I'}", len(keys), *keys)
    return out


def framed(payload, checksum=True):
    return struct.pack("<i", len(payload)) + payload + bytes([sum(payload) % 256]) if checksum else payload


def header(n, checksum, label_dim=1, dense_dim=2, slots=SLOTS):
    return framed(struct.pack("<8q", checksum, n, label_dim, dense_dim, slots, 0, 0, 0), checksum)


def norm(first, n, checksum, wide):
    return header(n, checksum) + b"".join(framed(sample(i, wide), checksum) for i in range(first, first + n))


def raw(n, integers):
    out = b""
    for i in range(n):
        out += struct.pack("<3i", i % 2, i, i + 1) if integers else struct.pack("<3f", i % 2, i, i + 0.5)
        out += struct.pack("<3i", *(keys_of(i, slot, 1, False)[0] for slot in range(SLOTS)))
    return out


def write_list(folder, name, files, text=None):
    """`files`: bytes of each file, or None for one that is missing."""
    paths = []
    for number, content in enumerate(files):
        path = folder / f"{name}.{number:04}"
        if content is not None:
            path.write_bytes(content)
        paths.append(path.name)
    (folder / name).write_text(text or "".join(line + "\n" for line in [str(len(paths)), *paths]))


def write_good(folder):
    for checksum in (0, 1):
        for wide in (0, 1):
            cuts, files, first = (5, 0, 7, 1, 12, 3), [], 0
            for n in cuts:
                files.append(norm(first, n, checksum, wide))
                first += n
            write_list(folder, f"good-{checksum}-{wide}", files)
    (folder / "deep").mkdir()
    write_list(folder / "deep", "list", [norm(0, 4, 0, 0)])
    (folder / "deep" / "list").write_text(f"2\r\n{folder}/deep/list.0000\r\n../good-0-0.0003\r\n\r\n")
    (folder / "raw").write_bytes(raw(40, False))
    (folder / "raw-integers").write_bytes(raw(40, True))
    blocks = [norm(first, 8, 1, 0) for first in range(0, 320, 8)]
    write_list(folder, "blocks", blocks)
    (folder / "raw-long").write_bytes(raw(320, False))


def write_bad_samples(folder):
    """Samples 0 to 9, of which 2, 4, 6 and 8 are bad, each in another way."""
    def frame(i):
        payload = sample(i, False)
        if i == 2:
            return framed(payload)[:-1] + bytes([(sum(payload) + 1) % 256])
        if i == 4:
            return framed(payload[:12] + struct.pack("<i", 1000) + payload[16:])
        if i == 6:
            return framed(payload + bytes(4))
        if i == 8:
            return framed(payload[:12] + struct.pack("<i", -1) + payload[16:])
        return framed(payload)
    write_list(folder, "bad-samples", [header(10, 1) + b"".join(map(frame, range(10)))])
    swapped = bytearray(norm(0, 6, 1, 0))
    swapped[69 + 4 + 12] ^= 1  # sample 0: the count of its first slot
    write_list(folder, "bad-first", [bytes(swapped)])


def write_broken_files(folder):
    """Ten good samples, 0 to 9, among files that are broken in every way; each adds what is whole in it."""
    whole = norm(0, 2, 1, 0)
    write_list(folder, "broken", [
        whole,
        header(5, 1) + framed(sample(2, False)) + framed(sample(3, False))[:-9],  # cut within sample 1
        None,
        norm(0, 3, 0, 0),  # without checksums
        header(3, 1, slots=4) + whole[69:],
        header(2, 1, label_dim=2) + whole[69:],
        header(2, 1)[:30],
        b"",
        header(2, 1) + framed(sample(3, False)) + struct.pack("<i", -5) + bytes(40),
        norm(4, 2, 1, 0) + b"more",
        norm(6, 4, 1, 0),
    ])
    plain = sample(1, False)
    write_list(folder, "broken-plain", [
        header(3, 0) + sample(0, False) + plain[:12] + struct.pack("<i", -1) + plain[16:],
        header(3, 0) + sample(1, False) + plain[:-1],
        header(-1, 0),
        norm(2, 2, 0, 0),
    ])
    write_list(folder, "all-broken", [b"", header(1, 0, slots=9)])


def write_bad_lists(folder):
    good = "good-0-0.0000"
    for name, text in {"empty": "", "word": "two\na\nb\n", "short": f"3\n{good}\n{good}\n", "gap": f"2\n\n{good}\n",
                       "long": f"1\n{good}\n{good}\n", "huge": "99999999999999999999\n"}.items():
        (folder / f"list-{name}").write_text(text)
    os.mkfifo(folder / "list-fifo")
    (folder / "raw-odd").write_bytes(raw(3, False) + b"x")
    (folder / "raw-bad").write_bytes(raw(2, True) + struct.pack("<6i", 0, -1, 0, 1, 1, 1) +
                                     struct.pack("<6i", 0, 0, 0, 1, -1, 1) + raw(1, True))


def write_slots(folder):
    """S3.6: three slots of sizes 278899, 355877 and 203750; and S3.4: key 5 in slots 0 and 2 of sample 1."""
    def one_hot(*keys):
        return struct.pack("<3f", 0, 0, 0) + b"".join(struct.pack("<iI", 1, key) for key in keys)
    sized = [one_hot(278898, 355876, 203749), one_hot(0, 0, 0), one_hot(278899, 0, 0), one_hot(0, 355877, 0)]
    write_list(folder, "sized", [header(4, 1) + b"".join(map(framed, sized))])
    overlapping = [one_hot(5, 6, 7), one_hot(8, 6, 5), one_hot(1, 2, 3)]
    write_list(folder, "overlap", [header(3, 0) + b"".join(overlapping)])


def write_lists(folder):
    """S3.15: a list as HugeCTR's generator writes it, whose paths count from the working directory; and lists of which
    both that and the list's folder have a file."""
    (folder / "wdl").mkdir()
    (folder / "wdl" / "wdl").mkdir()
    (folder / "wdl" / "gen_0.data").write_bytes(norm(0, 3, 0, 0))
    (folder / "wdl" / "gen_1.data").write_bytes(norm(3, 4, 0, 0))
    (folder / "wdl" / "list").write_text("3\n./wdl/gone.data\n./wdl/gen_0.data\n./wdl/gen_1.data\n")
    (folder / "wdl" / "more").write_text("1\n./wdl/gen_2.data\n")
    (folder / "wdl" / "gen_2.data").write_bytes(norm(7, 2, 0, 0))
    (folder / "wdl" / "two").write_text("1\nwdl/twice\n")
    (folder / "wdl" / "twice").write_bytes(norm(0, 2, 0, 0))
    (folder / "wdl" / "wdl" / "twice").write_bytes(norm(0, 5, 0, 0))


def check_written(folder):
    """The program's own files."""
    for checksum in (0, 1):
        for wide in (0, 1):
            name = f"written-{checksum}-{wide}"
            assert (folder / name).read_text() == f"2\n{name}.0000\n{name}.0001\n"
            assert (folder / f"{name}.0000").read_bytes() == norm(0, 6, checksum, wide)
            assert (folder / f"{name}.0001").read_bytes() == norm(6, 4, checksum, wide)
    assert (folder / "written-raw").read_bytes() == raw(10, False)
    assert (folder / "written-integers").read_bytes() == raw(10, True)
    assert not list(folder.glob("written-failed*")), "a data set that failed left files"


with tempfile.TemporaryDirectory() as name:
    here = pathlib.Path(name)
    for write in (write_good, write_bad_samples, write_broken_files, write_bad_lists, write_slots, write_lists):
        write(here)
    subprocess.run([sys.argv[1], name], check=True, timeout=100)
    check_written(here)
    print("ok: what was written is what the format says")
