# SPDX-License-Identifier: MIT
"""A cheap way into a kernel: what a wrapper checks and chooses is done once for each kind of call, then remembered.

The kind of a call is what its checks and choices look at: type, shape, strides, device and alignment of every tensor,
every option with its type, and the current GPU. A call of another kind is checked from the start, so nothing that a
wrapper refuses passes because a good call came before it. Numbers (a scale, an epsilon) are checked in every call.

A launch skips Triton's own look at the arguments where that could only find what it found before: ``kernel[grid]``
returns the compiled kernel, whose launcher is then called by itself (:mod:`rocm_guide.kernels.direct`).
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from triton import knobs
from triton.runtime import driver

from rocm_guide.kernels.arguments import sound_schedule
from rocm_guide.kernels.direct import call_of, hooked, is_small, lasting, memory_from, ready_of, scratch

if TYPE_CHECKING:
    import torch

__all__ = ["Launch", "apply", "needs_gradient", "planned"]
Plan = TypeVar("Plan", bound=Callable[..., Any])

#: Kinds of calls that are remembered; the oldest is forgotten first.
MOST_PLANS = 4096

#: Triton looks whether an address is a multiple of this many bytes.
ALIGNMENT = 16
NONE = (None,)
#: So many numbers, at most, find room in memory that all launches share because nobody reads it.
UNREAD = 1 << 16

_plans: dict[tuple[Any, ...], Any] = {}
#: What nobody reads, by GPU. It is never given back: a graph may hold its address.
_unread: dict[Any, Any] = {}
_driver: Any = None
_current_device: Callable[[], int]
_quick_empty: Callable[..., Any] | None = None


def forget_plans() -> None:
    """Forget every kind of call: the next one of each is checked, chosen and looked up by Triton again."""
    _plans.clear()
    scratch.clear()


def _is_kept(first: Any) -> Any:
    """The current GPU, or "interpreter"; None where calls are not remembered (a dry run of meta tensors, say)."""
    if first.is_cuda:
        active = driver.active
        if _driver is None or _driver() is not active:
            _meet(active)
        return _current_device()
    if first.device.type == "cpu":
        return "interpreter" if knobs.runtime.interpret else None
    return None


def _meet(active: Any) -> None:
    """Plans hold kernels that were compiled for a driver, and a dry run brings one of its own: start anew."""
    global _driver, _current_device, _quick_empty
    import torch

    forget_plans()
    # A tensor on the GPU shows that CUDA is ready, which is all that torch.cuda.current_device asks before this.
    real = active.get_current_device is torch.cuda.current_device
    _current_device = torch._C._cuda_getDevice if real else lambda: torch.cuda.current_device()
    _quick_empty = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None) if real else None
    _driver = weakref.ref(active)


def planned(make: Callable[..., Plan], tensors: Sequence[Any], *options: Any) -> Plan:
    """``make(*tensors, *options)``, called once for each kind of tensors and options.

    Args:
        make: checks everything and returns a function for calls of this kind. That function may keep numbers, types and
            launches, but no tensor that it was given.
        tensors: the first one is a tensor; others may be None.
        options: whatever else ``make`` looks at. Where one is not hashable, nothing is remembered.
    """
    key: Any = None
    try:
        place = _is_kept(tensors[0])
        if place is not None:
            # True == 1 == 1.0, but what takes one may refuse another: hence the types.
            parts = [make, place, options, *map(type, options)]
            for t in tensors:
                parts += NONE if t is None else (t.dtype, t.device, t.shape, t.stride(), t.data_ptr() % ALIGNMENT)
            key = tuple(parts)
            found: Plan | None = _plans.get(key)
            if found is not None:
                return found
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        key = None  # no tensor, one without an address, an option that cannot be hashed: ``make`` says what is wrong
    plan = make(*tensors, *options)
    if key is not None:
        while len(_plans) >= MOST_PLANS:
            _plans.pop(next(iter(_plans)), None)
        _plans[key] = plan
    return plan


def quick_empty(like: torch.Tensor) -> Callable[..., torch.Tensor] | None:
    """What allocates (shape, strides, type) where ``like`` is: on the current GPU, else (or in a dry run) None."""
    try:
        return _quick_empty if like.is_cuda and _is_kept(like) == like.device.index else None
    except RuntimeError:  # no driver: PyTorch only claims that there is a GPU
        return None


def maker(like: torch.Tensor, shape: Sequence[int], dtype: torch.dtype | None = None) -> Callable[[], torch.Tensor]:
    """For a plan: what makes a contiguous tensor, uninitialised, in the type of ``like`` (or another), where that is.

    On a GPU it is the function by which the code of TorchInductor does it, which takes half the time of
    ``torch.empty``. The tensor is then on the current GPU, where all tensors of a plan are.
    """
    import torch

    shape, dtype, device = tuple(shape), dtype or like.dtype, like.device
    quick = quick_empty(like)
    if quick is not None:
        strides = torch.empty(shape, device="meta").stride()
        with contextlib.suppress(RuntimeError):  # a build of PyTorch that has the name alone
            quick((0,), (1,), dtype)
            return partial(quick, shape, strides, dtype)
    return lambda: torch.empty(shape, dtype=dtype, device=device)


def describer(checked: Any) -> Callable[[torch.Tensor], Any]:
    """What makes a descriptor like ``checked`` of another tensor of its kind, without checking it again."""
    kind, fields = type(checked), {name: value for name, value in vars(checked).items() if name != "base"}

    def describe(tensor: torch.Tensor) -> Any:
        found = object.__new__(kind)
        vars(found).update(fields, base=tensor)
        return found

    return describe


def unread(like: torch.Tensor, count: int) -> Callable[[], torch.Tensor]:
    """For a plan: what makes room for ``count`` numbers of fp32 that a kernel writes and nobody reads."""
    import torch

    if count > UNREAD or quick_empty(like) is None or torch.cuda.is_current_stream_capturing():
        return maker(like, (count,), torch.float32)
    kept = _unread.get(like.device)
    if kept is None:
        kept = _unread[like.device] = lasting(maker(like, (UNREAD,), torch.float32))
    return lambda: kept


class Launch:
    """A launch of which everything is known but the tensors and some floats.

    Args:
        kernel: a ``@triton.jit`` function. Its parameters are tensors, then ``fixed``, then floats, then constants.
        grid: one to three numbers of programs.
        fixed: whole numbers (or tuples of them), which Triton specialises the kernel for.
        constants: the values of its ``tl.constexpr`` parameters, by name; and of others that come after the floats.
        options: ``num_warps`` and the like.
        arrange: makes the first parameters of the tensors, where a kernel takes tuples of them.
        allocate: makes that many bytes on the GPU, which the kernel needs for itself.
    """

    __slots__ = (
        "again",
        "allocate",
        "arrange",
        "call",
        "fixed",
        "grid",
        "kernel",
        "last",
        "options",
        "ready",
        "stream",
    )

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        fixed: Sequence[Any] = (),
        constants: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
        arrange: Callable[..., Sequence[Any]] | None = None,
        allocate: Callable[[int], Any] | None = None,
    ) -> None:
        constants = constants or {}
        self.kernel, self.grid, self.fixed = kernel, (*grid, 1, 1)[:3], tuple(fixed)
        #: The constants by position: a compiled kernel knows no names.
        self.last = tuple(constants[name] for name in kernel.arg_names if name in constants)
        if len(self.last) != len(constants):
            raise TypeError(f"{kernel.__name__} has no parameter {(constants.keys() - set(kernel.arg_names)).pop()}")
        self.options, self.arrange, self.allocate = options or {}, arrange, allocate
        #: Ways past Triton, of a launch that has been seen: the compiled kernel's own, and one that needs the stream.
        self.again: Any = None
        self.call: Any = None
        self.stream: Any = None
        self.ready: Any = None

    def __call__(self, *tensors: Any, floats: tuple[Any, ...] = ()) -> None:
        """Launch on these tensors (None is possible), and floats in the order of the parameters."""
        call = self.call
        if call is not None and not self.kernel.pre_run_hooks and not hooked():
            addresses: list[Any] = []
            bits = 0
            for t in tensors:
                if t is None:
                    addresses.append(None)
                else:
                    address = t.data_ptr()
                    bits |= address
                    addresses.append(address)
            if not bits % ALIGNMENT:
                first = addresses if self.arrange is None else self.arrange(*addresses)
                call(self.stream(), *first, *self.fixed, *floats, *self.last)
                return
        first = tensors if self.arrange is None else self.arrange(*tensors)
        self.with_arguments(tensors, (*first, *self.fixed, *floats, *self.last))

    def with_arguments(self, tensors: Sequence[Any], arguments: Sequence[Any], plain: bool = True) -> None:
        """Launch on ``arguments``: all parameters, constants included. ``tensors`` are those to be found in them.

        ``plain`` is False where a whole number among them is not of the plan: Triton has to look at it.
        """
        # What Triton would find out about the arguments. Whole numbers are of the plan; an address is new each time.
        for t in tensors:
            if t is not None and t.data_ptr() % ALIGNMENT:
                plain = False
        known = plain and self.again is not None and not self.kernel.pre_run_hooks
        if known and self.call is not None and not hooked():
            self.call(self.stream(), *arguments)
            return
        with contextlib.nullcontext() if self.allocate is None else memory_from(self.allocate), sound_schedule():
            if known:
                self.again(*arguments)
                return
            compiled = self.kernel[self.grid](*arguments, **self.options)
        if plain and hasattr(compiled, "packed_metadata"):  # neither the interpreter's None nor a tool's own
            self._remember(compiled, tensors)

    def described(self, tensors: Sequence[Any], arguments: Callable[[], Sequence[Any]], *floats: float) -> None:
        """Launch on ``arguments()``, with descriptors of some ``tensors``; ``floats`` are those that differ by call."""
        key = *(t.data_ptr() for t in tensors), *floats
        aligned = not any(address % ALIGNMENT for address in key[: len(tensors)])
        if self.ready is None or not aligned or self.kernel.pre_run_hooks or hooked():
            self.with_arguments(tensors, arguments())
        else:
            self.ready(key, self.stream(), arguments)

    def _remember(self, compiled: Any, tensors: Sequence[Any]) -> None:
        # Where all memory is below 2 GiB Triton addresses it with 32 bits on AMD. Other tensors of the plan reach as
        # far from their starts, so the kernel serves them too, however large the memory around them may be.
        if compiled.metadata.target.backend == "hip" and not is_small(tensors):
            return
        self.again = compiled[self.grid]
        if type(compiled.run).__module__.startswith("triton.backends."):  # a tool's own may want to see tensors
            active = driver.active
            self.stream = partial(active.get_current_stream, active.get_current_device())
            self.call = call_of(compiled, self.grid, self.allocate)
            self.ready = ready_of(compiled, self.grid)


def needs_gradient(*tensors: Any) -> bool:
    """Whether autograd has to know of a call: somebody may ask for a gradient of one of these (None is skipped).

    Also inside ``torch.autograd.forward_ad.dual_level()``, where autograd says that forward derivatives are missing.
    """
    import torch

    if torch.is_grad_enabled():
        for t in tensors:
            if t is not None and getattr(t, "requires_grad", False):
                return True
    return bool(torch.autograd.forward_ad._current_level >= 0)


@cache
def _way_to_apply(function: Any) -> tuple[Any, ...]:
    """What :func:`apply` needs of torch, looked up once for each Function; the longer way where torch has no such."""
    import torch

    transforms = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)
    return super(torch.autograd.Function, function).apply, transforms


def _has_no_memory(x: Any) -> bool:
    """Whether ``x`` is a tensor that cannot say where it lies."""
    try:
        getattr(x, "data_ptr", int)()
    except RuntimeError:
        return True
    return False


def apply(function: Any, *arguments: Any) -> Any:
    """``function.apply(*arguments)`` of a ``torch.autograd.Function`` that has no ``setup_context``, a shorter way.

    Its Python (read in torch 2.11 and 2.13) looks for two things only: a transform of ``torch.func`` at work, and a
    tensor that has outlived one. A launch asks such a tensor for its memory, and what it raises sends the call there.
    """
    quick, transforms = _way_to_apply(function)
    if not transforms():
        try:
            return quick(*arguments)
        except RuntimeError:
            if not any(_has_no_memory(x) for x in arguments):
                raise
    return function.apply(*arguments)
