"""HugeCTR's model folders and optimizer state files by what REFERENCE 2a and 2b say of them, written without looking at
the C. Rows are {(slot, key): (vector as f32 bytes, [state tensor as f32 bytes, ...])}."""
import os
import struct


def gpu(slot, key, localized, n_gpus):
    return slot % n_gpus if localized else key % n_gpus


def ordered(rows, localized, n_gpus):
    """Per GPU its (slot, key) in order."""
    gpus = [[] for _ in range(n_gpus)]
    for slot, key in sorted(rows):
        gpus[gpu(slot, key, localized, n_gpus)].append((slot, key))
    return gpus


def folder_bytes(rows, localized, n_gpus):
    """{file: bytes} of the folder."""
    names = [name for one in ordered(rows, localized, n_gpus) for name in one]
    files = {"key": b"".join(struct.pack("<Q", key) for _, key in names),
             "emb_vector": b"".join(rows[name][0] for name in names)}
    if localized:
        files["slot_id"] = b"".join(struct.pack("<Q", slot) for slot, _ in names)
    return files


def state_bytes(rows, localized, n_gpus, gpu_rows, dim, n_tensors, code="f", unused=None):
    """Per tensor, per GPU: the state of its keys, then `unused`, a row of f32, or zeros, up to gpu_rows rows."""
    size, out = struct.calcsize(f"<{dim}{code}"), b""
    for tensor in range(n_tensors):
        for names in ordered(rows, localized, n_gpus):
            assert len(names) <= gpu_rows
            floats = [struct.unpack(f"<{dim}f", rows[name][1][tensor]) for name in names]
            buffer = b"".join(struct.pack(f"<{dim}{code}", *row) for row in floats)
            rest = struct.pack(f"<{dim}{code}", *struct.unpack(f"<{dim}f", unused)) if unused else bytes(size)
            out += buffer + rest * (gpu_rows - len(names))
    return out


def write_folder(path, files):
    os.mkdir(path)
    for name, data in files.items():
        with open(os.path.join(path, name), "wb") as out:
            out.write(data)


def read_folder(path):
    files = {}
    for name in os.listdir(path):
        with open(os.path.join(path, name), "rb") as file:
            files[name] = file.read()
    return files


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()
