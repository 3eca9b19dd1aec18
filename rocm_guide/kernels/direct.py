# SPDX-License-Identifier: MIT
"""A compiled kernel's own launcher, called without what Triton does around it in Python.

``compiled[grid](…)`` asks for the device and the stream, collects what a profiler might want to know, and lets the
launcher look for memory that most kernels do not need. Where none of it applies, the function in C can be called at
once. Read in Triton 3.6 and 3.9: ``CompiledKernel.__getitem__``, ``CudaLauncher`` and ``HIPLauncher``.

So can the function around it that encodes tensor descriptors: what it made of the same addresses is kept.

Here is also the memory that outlives a launch: what those of one stream use one after the other.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import lt
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from triton import knobs
from triton.runtime import _allocation, driver

if TYPE_CHECKING:
    import torch

__all__ = []
Made = TypeVar("Made")

#: Launches of one plan that are kept ready.
MOST_READY = 1024
#: Memory that launches of one stream use one after the other; forgotten together with the plans.
scratch: dict[tuple[Any, ...], Any] = {}


class memory_from:
    """Inside, Triton gets the memory that a kernel needs for itself from ``allocate(bytes)``.

    Triton's allocator belongs to the caller (another library may have set one), so it is put back.
    """

    def __init__(self, allocate: Callable[[int], Any]) -> None:
        self.allocate = allocate

    def __enter__(self) -> None:
        self.before = _allocation._allocator.get()
        _allocation.set_allocator(lambda size, alignment, stream: self.allocate(size))

    def __exit__(self, *_: object) -> None:
        _allocation.set_allocator(self.before)


def call_of(compiled: Any, grid: tuple[int, ...], allocate: Callable[[int], Any] | None = None) -> Callable[..., None]:
    """What launches ``compiled`` on (stream, arguments): no hooks, no questions; addresses may stand for tensors.

    ``allocate(bytes)`` makes the memory that the kernel needs for itself; without it Triton's own allocator is asked.
    """
    run, function, packed = compiled.run, compiled.function, compiled.packed_metadata
    own, profiled = (getattr(run, f"{which}_scratch_size", 0) for which in ("global", "profile"))
    odd = profiled or (own and allocate is None) or getattr(run, "gsan_enabled", False)
    if hasattr(run, "launch") and not odd:
        # What the launcher is given it hands on to a function in C, with more that is the same in every call, in an
        # order that depends on vendor and release. A copy of it shows which: marks stand for what is new each time.
        seen, sizes = [], []
        stream_here, room_here, arguments_here = object(), object(), object()

        def ask(size: int) -> object:
            sizes.append(size)
            return room_here

        show = copy.copy(run)
        show.launch = lambda *given: seen.append(given)
        with memory_from(ask):
            show(*grid, stream_here, function, packed, None, None, None, arguments_here)
        (given,), launch = seen, run.launch
        at, flat = given.index(stream_here), given[-1] is arguments_here
        known = flat or given[-1] == (arguments_here,)
        if known and not sizes:
            before, after = given[:at], given[at + 1 : -1]
            if flat:
                return lambda stream, *arguments: launch(*before, stream, *after, *arguments)
            return lambda stream, *arguments: launch(*before, stream, *after, arguments)
        if known and allocate is not None:
            room, size = given.index(room_here), sizes[0]
            before, between, after = given[:at], given[at + 1 : room], given[room + 1 : -1]
            if flat:
                return lambda stream, *args: launch(*before, stream, *between, allocate(size), *after, *args)
            return lambda stream, *args: launch(*before, stream, *between, allocate(size), *after, args)

    def call(stream: int, *arguments: Any) -> None:
        with contextlib.nullcontext() if allocate is None else memory_from(allocate):
            run(*grid, stream, function, packed, None, None, None, *arguments)

    return call


class Ready:
    """Launches of a kernel some of whose arguments are descriptors, ready to be made again.

    A descriptor is 128 bytes that the driver encodes, and Triton looks at every part of it in Python: several
    microseconds for each. What Triton makes of the arguments is kept by their addresses, which come again in a loop. It
    holds no tensors.
    """

    __slots__ = ("kept", "launch", "prepare")

    def __init__(self, launch: Callable[..., None], prepare: Callable[[Sequence[Any]], tuple[Any, Any]]) -> None:
        self.launch, self.prepare = launch, prepare
        self.kept: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def __call__(self, key: tuple[Any, ...], stream: int, arguments: Callable[[], Sequence[Any]]) -> None:
        """Launch on ``arguments()``, or on what was made of them when ``key`` was the same."""
        kept = self.kept.get(key)
        if kept is None:
            if len(self.kept) >= MOST_READY:
                self.kept.clear()
            kept = self.kept[key] = self.prepare([x.data_ptr() if hasattr(x, "data_ptr") else x for x in arguments()])
        self.launch(*kept[0], stream, *kept[1])


def ready_of(compiled: Any, grid: tuple[int, ...]) -> Ready | None:
    """For a kernel that takes descriptors; None where this release of Triton is not as the ones that are known."""
    run = compiled.run
    wrapper = getattr(run, "launch", None)
    if not isinstance(wrapper, FunctionType) or wrapper.__closure__ is None:
        return None
    parts = dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__, strict=True))
    memory = any(getattr(run, f"{which}_scratch_size", 0) for which in ("global", "profile"))
    if "launcher" not in parts or memory or getattr(run, "gsan_enabled", False):
        return None
    stream_here = object()

    def prepare(arguments: Sequence[Any]) -> tuple[Any, Any]:
        # A copy of the launcher, whose wrapper around the function in C gives a list what it would give that function.
        seen: list[Any] = []
        stand_in = CellType(lambda *given: seen.append(given))
        cells = tuple(stand_in if name == "launcher" else cell for name, cell in parts.items())
        show = copy.copy(run)
        show.launch = FunctionType(wrapper.__code__, wrapper.__globals__, closure=cells)
        show(*grid, stream_here, compiled.function, compiled.packed_metadata, None, None, None, *arguments)
        (given,) = seen
        at = next(i for i, x in enumerate(given) if x is stream_here)
        return given[:at], given[at + 1 :]

    return Ready(parts["launcher"].cell_contents, prepare)


def is_small(tensors: Sequence[Any]) -> bool:
    """Whether the memory behind each is below 2 GiB: Triton then addresses it with 32 bits on AMD."""
    return all(t is None or t.untyped_storage().size() < 1 << 31 for t in tensors)


def hooked() -> bool:
    """Whether somebody, a profiler say, wants to hear of launches."""
    runtime = knobs.runtime
    try:
        return bool(runtime.launch_enter_hook.calls or runtime.launch_exit_hook.calls)
    except AttributeError:  # a hook that somebody has put there himself
        return True


def current_stream(device: torch.device) -> int:
    """The number of the current stream of a GPU."""
    try:
        return int(driver.active.get_current_stream(device.index or 0))
    except RuntimeError:  # no driver: PyTorch only claims that there is a GPU
        import torch

        return int(torch.cuda.current_stream(device).cuda_stream)


def lasting(make: Callable[[], Made]) -> Made:
    """``make()``, which allocates memory on the GPU that outlives this call, from the pool that all calls share.

    What a thread allocates inside ``torch.cuda.use_mem_pool``, or in the first run of a function compiled with
    ``mode="reduce-overhead"``, belongs to that pool and is soon given to others; PyTorch raises an error there when it
    finds something that is still held. Another thread allocates outside of it.
    """
    import torch

    # A dry run has a driver of its own, and what it does to tensors it does in this thread only.
    if not torch.cuda.is_initialized() or driver.active.get_current_device is not torch.cuda.current_device:
        return make()
    stream = torch.cuda.current_stream()

    def elsewhere() -> Made:
        with torch.cuda.stream(stream):
            return make()

    with ThreadPoolExecutor(1) as other:
        return other.submit(elsewhere).result()


def of_stream(kind: Any, device: torch.device, need: tuple[int, ...], make: Callable[..., Made]) -> Made:
    """What ``make(*need)`` made for the current stream of ``device``, or made of larger numbers; one for each ``kind``.

    While a graph is being captured it is a new one: a graph may be replayed on another stream.
    """
    stream = 0
    if device.type == "cuda":
        import torch

        if torch.cuda.is_current_stream_capturing():
            return make(*need)
        stream = current_stream(device)
    key = kind, device, stream
    have, found = scratch.get(key, ((), None))
    if not have or any(map(lt, have, need)):
        have = tuple(map(max, have or need, need))
        found = lasting(partial(make, *have))
        scratch[key] = have, found
    return found
