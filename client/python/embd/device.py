"""Memory of a GPU that a client lends to the servers on its host: embd/device.h. Needs neither CUDA nor PyTorch: whoever has the
memory brings its handle; embd.torch does."""
from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any, Optional, Union

from . import arrays, errors, structs
from ._native import ffi, lib
from .errors import Error

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .client import Client
    from .table import Table

HANDLE_BYTES: int = lib.EMBD_DEVICE_HANDLE_BYTES
UUID_BYTES: int = lib.EMBD_DEVICE_UUID_BYTES
ALIGNMENT: int = lib.EMBD_DEVICE_ALIGNMENT
GATE_BYTES: int = lib.EMBD_DEVICE_GATE_BYTES
GATE_MOST: int = lib.EMBD_DEVICE_GATE_MOST
GATE_READY: int = lib.EMBD_DEVICE_GATE_READY
GATE_DONE: int = lib.EMBD_DEVICE_GATE_DONE
SHARDS = 1024  # that a cluster may have


class DeviceCall:
    """A pull or push in the order of a stream, on its way. wait() ends it; it raises what the blocking call would, also when
    asked again.

    shards  that it went to: so many gates are its"""

    def __init__(self, memory: "DeviceMemory", c_call: Any, gate: NDArray[Any]):
        self._memory = memory
        self.shards: int = lib.embd_device_call_shards(c_call)
        self._c = c_call
        self._gate = gate  # the call writes there
        self._error: Optional[Exception] = None

    def wait(self) -> None:
        handle = self._memory.client.handle
        if self._c is not None:
            with handle:
                self._end()
        if self._error is not None:
            raise self._error

    def done(self) -> bool:
        """Whether wait() would return at once."""
        if self._c is None:
            return True
        with self._memory.client.handle:
            return self._c is None or bool(lib.embd_device_is_done(self._c))

    def _end(self) -> None:
        """With the client's lock held."""
        c_call, self._c = self._c, None
        if c_call is not None:
            try:
                self._memory.client.handle.check(lib.embd_device_wait(c_call))
            except Error as error:
                self._error = error

    def __del__(self) -> None:
        if getattr(self, "_c", None) is not None:
            self._memory._left.append((self._c, self._gate))


class DeviceNode:
    """A pull or push that a stream makes whenever it comes there: launch `function` with `argument` by cuLaunchHostFunc, also
    while a graph is captured. Both are addresses. Kept until no graph has it."""

    def __init__(self, memory: "DeviceMemory", c_node: Any):
        self.memory = memory
        self._c = c_node
        self.function = int(ffi.cast("uintptr_t", ffi.addressof(lib, "embd_device_node_run")))
        self.argument = int(ffi.cast("uintptr_t", c_node))

    def check(self) -> None:
        """Raises what the first run that failed since the last check failed with. Runs have ended: synchronize the stream."""
        if self.memory.client.handle.c is not None:
            errors.check(lib.embd_device_node_status(self._c))


class DeviceMemory:
    """The first `n_bytes` of an allocation of a GPU, lent until close() or the client's end. It stays allocated until then.

    handle  of cudaIpcGetMemHandle or cuIpcGetMemHandle, of the begin of the allocation; of a server in this process ("inproc:")
            the address, a number, of any memory of the GPU
    uuid    of its GPU

    It is lent to all shards, which are all on this host; to one that is added later by the next call.
    pull() and push() block until the servers' kernels have ended. What writes keys and gradients has to have ended before:
    synchronize the stream. pull_start() and push_start() take their turn in a stream, by gates: embd/device.h.
    Raises UnsupportedError where a server cannot take it.

    owner   what frees the allocation; kept until the servers have given it back"""

    def __init__(self, client: "Client", handle: Union[bytes, int], uuid: bytes, n_bytes: int, owner: Any = None):
        if isinstance(handle, bytes) and (len(handle) != HANDLE_BYTES or len(uuid) != UUID_BYTES):
            raise ValueError(f"the handle has {len(handle)} bytes and the uuid {len(uuid)}; "
                             f"{HANDLE_BYTES} and {UUID_BYTES} are expected")
        self.client = client
        self.n_bytes = n_bytes
        out = ffi.new("embd_device **")
        with client.handle as c:
            if isinstance(handle, int):
                status = lib.embd_device_open_here(c, ffi.cast("void *", handle), n_bytes, out)
            else:
                status = lib.embd_device_open(c, handle, uuid, n_bytes, out)
            client.handle.check(status)
        self._c = out[0]
        self._struct = structs.new("embd_device_part")
        self._left: list[Any] = []  # calls that nobody waits for, appended to by destructors
        self.takes_turns: bool = lib.embd_device_takes_turns(self._c)
        self._end = weakref.finalize(self, _close, client, self._c, (owner, self._left))
        self._end.atexit = False  # the connection's end gives it back

    def close(self) -> None:
        """The server gives the memory back."""
        self._end()

    def _part(self, table: "Table", n_keys: int, keys_at: int, rows_at: int, dtype: str) -> Any:
        if not self._end.alive:
            raise ValueError("the memory is closed")
        part = self._struct  # one call at a time: with the client's lock held
        part.table, part.n_keys, part.lr, part.zero_missing = table.c, n_keys, 0, False
        part.dtype = structs.enum_value("dtype", "embd_dtype", dtype)
        part.keys_in, part.keys_at = self._c, keys_at
        part.rows_in, part.rows_at, part.n_gates = self._c, rows_at, 0
        return part

    def pull(self, table: "Table", n_keys: int, keys_at: int, rows_at: int, *, dtype: str = "f32",
             zero_missing: bool = False) -> None:
        """The rows of [n_keys] 64-bit keys at keys_at, as [n_keys, dim] to rows_at. Places are in bytes, multiples of 16."""
        with self.client.handle as c:
            part = self._part(table, n_keys, keys_at, rows_at, dtype)
            part.zero_missing = zero_missing
            self.client.handle.check(lib.embd_device_pull(c, part))

    def pull_start(self, table: "Table", n_keys: int, keys_at: int, rows_at: int, gate: NDArray[Any], number: int, *,
                   needs: int = 0, dtype: str = "f32", zero_missing: bool = False) -> DeviceCall:
        """A pull that begins when the gate's word GATE_READY is `number`, and then makes GATE_DONE so, whatever becomes of
        it. `gate`: an array of GATE_BYTES from Client.buffer; is_shared() is true of it. With several shards it has so many gates,
        one behind the other: write to those that the call's `shards` counts, and wait for each."""
        return self._start(lib.embd_device_pull_start, table, n_keys, keys_at, rows_at, gate, (number, needs), dtype,
                           zero_missing, 0)

    def push_start(self, table: "Table", n_keys: int, keys_at: int, rows_at: int, gate: NDArray[Any], number: int, *,
                   needs: int = 0, dtype: str = "f32", lr: Optional[float] = None) -> DeviceCall:
        """Likewise a push. needs: the number of a pull of the gate without whose success this one fails, such as that of
        the rows that the gradients are of."""
        rate = 0 if lr is None else arrays.rate("lr", lr)
        return self._start(lib.embd_device_push_start, table, n_keys, keys_at, rows_at, gate, (number, needs), dtype, False, rate)

    def _start(self, start: Any, table: "Table", n_keys: int, keys_at: int, rows_at: int, gate: NDArray[Any],
               numbers: tuple[int, int], dtype: str, zero_missing: bool, lr: float) -> DeviceCall:
        if gate.nbytes < GATE_BYTES or not gate.flags.c_contiguous:
            raise ValueError(f"the gate has {gate.nbytes} bytes; {GATE_BYTES} in one piece are expected")
        out = ffi.new("embd_device_call **")
        with self.client.handle as c:
            self._reap()
            part = self._part(table, n_keys, keys_at, rows_at, dtype)
            part.zero_missing, part.lr, part.n_gates = zero_missing, lr, min(gate.nbytes // GATE_BYTES, SHARDS)
            c_gate = ffi.new("embd_device_gate *", (ffi.cast("void *", gate.ctypes.data), *numbers))
            self.client.handle.check(start(c, part, c_gate, out))
            return DeviceCall(self, out[0], gate)

    def pull_node(self, table: "Table", n_keys: int, keys_at: int, rows_at: int) -> DeviceNode:
        """A pull that streams make. From now on the client serves nodes alone."""
        return self._node(table, n_keys, keys_at, rows_at, 0, None)

    def push_node(self, table: "Table", n_keys: int, keys_at: int, rows_at: int, needs: Optional[DeviceNode] = None, *,
                  lr: Optional[float] = None) -> DeviceNode:
        """Likewise a push. needs: the pull of the rows; where that failed, this one fails and changes nothing."""
        return self._node(table, n_keys, keys_at, rows_at, 0 if lr is None else arrays.rate("lr", lr), needs, pushes=True)

    def _node(self, table: "Table", n_keys: int, keys_at: int, rows_at: int, lr: float, needs: Optional[DeviceNode],
              pushes: bool = False) -> DeviceNode:
        out = ffi.new("embd_device_node **")
        with self.client.handle as c:
            part = self._part(table, n_keys, keys_at, rows_at, "f32")
            part.lr = lr
            if pushes:
                status = lib.embd_device_push_node(c, part, ffi.NULL if needs is None else needs._c, out)
            else:
                status = lib.embd_device_pull_node(c, part, out)
            self.client.handle.check(status)
        return DeviceNode(self, out[0])

    def _reap(self) -> None:
        for _ in range(len(self._left)):
            c_call, gate = self._left.pop(0)
            if lib.embd_device_is_done(c_call):
                lib.embd_device_wait(c_call)
            else:
                self._left.append((c_call, gate))

    def push(self, table: "Table", n_keys: int, keys_at: int, rows_at: int, *, dtype: str = "f32",
             lr: Optional[float] = None) -> None:
        """One optimizer step with the gradients at rows_at. It has no number: one whose answer is lost is not repeated."""
        with self.client.handle as c:
            part = self._part(table, n_keys, keys_at, rows_at, dtype)
            if lr is not None:
                part.lr = arrays.rate("lr", lr)
            self.client.handle.check(lib.embd_device_push(c, part))


def _close(client: "Client", c_device: Any, used: Any) -> None:
    """Of a client that is closed, nothing is left to do. A collector may call this in the midst of a call of the same thread:
    then the connection's end gives it back, and until then the client has what the server still uses."""
    if client.handle.c is None:
        return
    client.handle.kept[c_device] = used
    with contextlib.suppress(RuntimeError, Error), client.handle:
        lib.embd_device_close(c_device)
        del client.handle.kept[c_device]
