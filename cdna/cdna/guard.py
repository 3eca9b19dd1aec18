# SPDX-License-Identifier: MIT
"""Watch the memory accesses of kernels in Triton's interpreter: bounds, races and bytes moved.

The interpreter reads and writes wherever a pointer leads. Here each tensor of a launch lies between margins, and an
access outside every tensor is an error that names the access, the element and the program, before anything happens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from cdna.base import InputError

__all__ = ["AccessError", "Watch", "watch_memory"]

# Room before and after each tensor, so that an access past the end of one does not land in another. Nothing is ever
# written there, so the operating system gives no memory for it.
_MARGIN = 8 << 20
_LARGEST_COPY = 64 << 20  # a larger storage stays where it is


class AccessError(InputError):
    """An access outside the tensors of a launch, or one that depends on which program comes first."""


@dataclass
class _Region:
    """One tensor's storage: its addresses, and who touched which piece of it in this launch (0 nobody, else 1 + p)."""

    name: str
    tensor: Any
    start: int
    end: int
    origin: int  # where the storage of the caller's own tensor begins
    writer: dict[int, Any] = field(default_factory=dict)
    reader: dict[int, Any] = field(default_factory=dict)


def _bytes_of(storage: Any, start: int, count: int) -> Any:
    import torch

    return torch.empty(0, dtype=torch.uint8).set_(storage, start, (count,), (1,))


class Watch:
    """Traffic of kernels: bytes that their active lanes loaded and stored.

    Attributes:
        loaded, stored: bytes, caches left out; an atomic operation counts as both.
        undefined: whether a lane that was masked off in a load without ``other`` was given NaN.
        races: whether to refuse results that depend on the order of programs.
        launches, programs: how many there were.
        read: where the storages begin that some program loaded from.
        atomics: atomic operations of programs.
    """

    def __init__(self, races: bool) -> None:
        self.launches = self.programs = 0
        self.read: set[int] = set()
        self.atomics = 0
        self.loaded = 0
        self.stored = 0
        self.undefined = False
        self.races = races
        self.regions: list[_Region] = []
        self.atomic: set[int] = set()

    def start(self, names: list[str], arguments: list[Any], keywords: dict[str, Any]) -> tuple[list[Any], Any]:
        """Put a launch's tensors between margins; the arguments with which the kernel then runs."""
        import torch

        self.regions, self.atomic = [], set()
        self.launches += 1
        moved: dict[int, Any] = {}

        def guard(name: str, value: Any) -> Any:
            if isinstance(value, tuple):
                return type(value)(guard(name, v) for v in value) if type(value) is tuple else value
            if not isinstance(value, torch.Tensor):
                base = getattr(value, "base", None)  # a tensor descriptor; its own shape guards it
                if isinstance(base, torch.Tensor):
                    first, size = base.untyped_storage().data_ptr(), base.untyped_storage().nbytes()
                    self.regions.append(_Region(name, base, first, first + size, first))
                return value
            storage = value.untyped_storage()
            key, size = storage.data_ptr(), storage.nbytes()
            copy = value
            if size <= _LARGEST_COPY:
                if key not in moved:
                    moved[key] = torch.UntypedStorage(size + 2 * _MARGIN)
                    _bytes_of(moved[key], _MARGIN, size).copy_(_bytes_of(storage, 0, size))
                first = _MARGIN // value.element_size() + value.storage_offset()
                copy = torch.empty(0, dtype=value.dtype)
                copy.set_(moved[key], first, value.size(), value.stride())
            start = copy.data_ptr() - value.storage_offset() * value.element_size()
            self.regions.append(_Region(name, copy, start, start + size, key))
            return copy

        guarded = [guard(n, a) for n, a in zip(names, arguments, strict=False)]
        return guarded + arguments[len(names) :], {k: guard(k, v) for k, v in keywords.items()}

    def finish(self, arguments: list[Any], guarded: list[Any]) -> None:
        """Bring what a launch wrote between the margins back to where the tensors are."""
        import torch

        done: set[int] = set()
        for mine, theirs in zip(arguments, guarded, strict=True):
            if isinstance(mine, tuple):
                self.finish(list(mine), list(theirs))
            if not isinstance(mine, torch.Tensor) or mine is theirs or mine.data_ptr() == theirs.data_ptr():
                continue
            storage = mine.untyped_storage()
            if storage.data_ptr() not in done:
                done.add(storage.data_ptr())
                size = storage.nbytes()
                _bytes_of(storage, 0, size).copy_(_bytes_of(theirs.untyped_storage(), _MARGIN, size))

    def access(self, what: str, pointers: Any, mask: Any, values: Any = None) -> None:
        """Judge one access of one program; ``values`` are those of a store.

        Raises:
            AccessError: see :class:`AccessError`.
        """
        import numpy as np

        addresses = np.atleast_1d(pointers.data)
        size = max(pointers.get_element_ty().primitive_bitwidth // 8, 1)
        on = np.ones(addresses.shape, bool) if mask is None else np.broadcast_to(mask.data, addresses.shape)
        asked = addresses[on]
        store = what != "tl.load"
        self.stored += asked.size * size * store
        self.loaded += asked.size * size * (what != "tl.store")
        home = np.full(asked.shape, -1)
        first, last = (int(asked.min()), int(asked.max()) + size) if asked.size else (0, 0)
        for i, region in enumerate(self.regions):
            if last <= region.start or region.end <= first:
                continue
            inside = slice(None)  # as a rule all of them
            if first < region.start or region.end < last:
                inside = (asked >= region.start) & (asked + np.uint64(size) <= region.end)
            home[inside] = i
            if what != "tl.store" and (home == i).any():
                self.read.add(region.origin)
        if (home < 0).any():
            at = int(np.flatnonzero(home < 0)[0])
            self._outside(what, int(asked[at]), tuple(int(i) for i in np.argwhere(on)[at]), bool(on.all()))
        self.atomics += what.startswith("tl.atomic")
        if not self.races:
            return
        me = self.program()
        if what.startswith("tl.atomic"):
            self.atomic.add(me)
            return
        new = None if values is None else np.broadcast_to(values.data, addresses.shape)[on]
        for i, region in enumerate(self.regions):
            chosen = home == i
            if region.end - region.start <= _LARGEST_COPY and chosen.any():
                index = (asked[chosen].astype(np.int64) - region.start) // size
                self._race(region, size, index, me, None if new is None else new[chosen])

    def program(self) -> int:
        """Return the running program's number, counted from 1."""
        from triton.runtime.interpreter import interpreter_builder as builder

        (x, y, z), (nx, ny, _) = builder.grid_idx, builder.grid_dim
        return 1 + int(x) + int(nx) * (int(y) + int(ny) * int(z))

    def _outside(self, what: str, address: int, place: tuple[int, ...], unmasked: bool) -> None:
        from triton.runtime.interpreter import interpreter_builder as builder

        program = tuple(int(i) for i in builder.grid_idx)
        if not self.regions:
            raise AccessError(f"{what} in program {program}: the launch has no tensor to access")
        region = min(self.regions, key=lambda r: max(r.start - address, address - r.end + 1))
        tensor = region.tensor
        element = (address - tensor.data_ptr()) // tensor.element_size()
        last = (region.end - tensor.data_ptr()) // tensor.element_size() - 1
        fix = "add a mask" if unmasked else "its mask lets it through: compare the offset with the length"
        if abs(element) >= 1 << 30:
            fix = "was the offset computed in 32 bits? .to(tl.int64) on the row before it is multiplied by the stride"
        elif element < 0:
            fix = "the offset is negative"
        raise AccessError(
            f"{what} outside its tensor: element {element} of {region.name}, whose elements are 0 to {last} "
            f"(position {list(place)} of the block, program {program}); {fix}"
        )

    def _race(self, region: _Region, size: int, index: Any, me: int, values: Any) -> None:
        """Refuse what depends on the order of programs; a program that used an atomic may have waited for others."""
        import numpy as np

        count = (region.end - region.start) // size
        if size not in region.writer:
            region.writer[size], region.reader[size] = np.zeros((2, count), np.int32)
        writer, reader = region.writer[size], region.reader[size]
        if values is None:
            stranger = (writer[index] != 0) & (writer[index] != me)
            if stranger.any() and me not in self.atomic:
                self._report(region, "reads", index, writer, stranger, me)
            reader[index] = me
            return
        now = np.frombuffer(self._bytes(region), dtype=f"u{size}")[index] if size in (1, 2, 4, 8) else None
        changed = np.ones(len(index), bool) if now is None else now != values.view(f"u{size}")
        for table, verb in ((writer, "writes"), (reader, "overwrites")):
            stranger = (table[index] != 0) & (table[index] != me) & changed
            if stranger.any() and me not in self.atomic:
                self._report(region, verb, index, table, stranger, me)
        writer[index] = me

    @staticmethod
    def _bytes(region: _Region) -> Any:
        import ctypes

        return (ctypes.c_char * (region.end - region.start)).from_address(region.start)

    def _report(self, region: _Region, verb: str, index: Any, table: Any, stranger: Any, me: int) -> None:
        first = int(stranger.nonzero()[0][0])
        other = int(table[index[first]]) - 1
        what = {
            "reads": f"program {me - 1} reads element {{}} of {{}}, which program {other} writes in the same launch",
            "writes": f"programs {other} and {me - 1} write different values to element {{}} of {{}}",
            "overwrites": f"program {me - 1} overwrites element {{}} of {{}}, which program {other} reads",
        }[verb]
        raise AccessError(
            f"a race: {what.format(int(index[first]), region.name)}; programs run in no fixed order: give each element "
            "one writer, or use tl.atomic_add or a second launch"
        )


def _poison(pointers: Any) -> Any:
    """Return NaN, or -1 of a whole number, in the type that the pointers lead to."""
    import numpy as np
    from triton.runtime import interpreter

    dtype = interpreter._get_np_dtype(pointers.get_element_ty())
    nan = 0x80 if pointers.get_element_ty().name in ("fp8e4b8", "fp8e5b16") else 0xFF  # FNUZ: the one NaN is -0
    data = np.full(pointers.data.shape, nan, np.uint8) if dtype.itemsize == 1 else None
    if data is None:
        data = np.full((*pointers.data.shape, dtype.itemsize), 0xFF, np.uint8).view(dtype)[..., 0]
    return interpreter.TensorHandle(data.astype(dtype, copy=False), pointers.get_element_ty())


@contextlib.contextmanager
def watch_memory(strict: bool = False, undefined: bool = True, discard: bool = False) -> Iterator[Watch]:
    """Watch every kernel that is interpreted inside the ``with`` block; needs ``TRITON_INTERPRET=1``.

    Args:
        strict: refuse races too, and give NaN (-1 for whole numbers) to lanes that are masked off in a load without
            ``other``: Triton does not say what they hold.
        undefined: False leaves 0 in such lanes, as the interpreter does by itself.
        discard: True judges stores and atomic operations and then leaves them out: what comes out all the same was not
            computed by a kernel.
    """
    from triton.runtime import interpreter

    watch = Watch(strict)
    builder = interpreter.interpreter_builder
    executor = interpreter.GridExecutor
    prepare, restore = executor._init_args_hst, executor._restore_args_dev
    place = builder.set_grid_idx
    load, store = builder.create_masked_load, builder.create_masked_store
    cas, rmw = builder.create_atomic_cas, builder.create_atomic_rmw

    def guarded_load(pointers: Any, mask: Any, other: Any, *rest: Any) -> Any:
        watch.access("tl.load", pointers, mask)
        if strict and undefined and other is None:
            other = _poison(pointers)
            watch.undefined |= not bool(mask.data.all())
        return load(pointers, mask, other, *rest)

    def guarded_store(pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        watch.access("tl.store", pointers, mask, value)
        if discard:
            return None
        return store(pointers, value, mask, *rest)

    def guarded_cas(pointer: Any, *rest: Any) -> Any:
        watch.access("tl.atomic_cas", pointer, None)
        return cas(pointer, *rest)

    def guarded_rmw(operation: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        watch.access("tl.atomic_rmw", pointers, mask)
        if discard:
            mask = interpreter.TensorHandle(mask.data & False, mask.dtype)
        return rmw(operation, pointers, value, mask, *rest)

    def counted_place(*index: int) -> None:
        watch.programs += 1
        place(*index)

    def guarded_prepare(grid: Any, arguments: Any, keywords: Any) -> Any:
        host, host_keywords = prepare(grid, arguments, keywords)
        return watch.start(grid.arg_names, list(host), host_keywords)

    def guarded_restore(grid: Any, arguments: Any, guarded: Any, keywords: Any, guarded_keywords: Any) -> None:
        host, host_keywords = prepare(grid, arguments, keywords)
        watch.finish([*host, *host_keywords.values()], [*guarded, *guarded_keywords.values()])
        restore(grid, arguments, host, keywords, host_keywords)

    with contextlib.ExitStack() as undo:
        for owner, name, value in (
            (builder, "set_grid_idx", counted_place),
            (builder, "create_masked_load", guarded_load),
            (builder, "create_masked_store", guarded_store),
            (builder, "create_atomic_cas", guarded_cas),
            (builder, "create_atomic_rmw", guarded_rmw),
            (executor, "_init_args_hst", guarded_prepare),
            (executor, "_restore_args_dev", guarded_restore),
        ):
            undo.enter_context(mock.patch.object(owner, name, value))
        yield watch
