# SPDX-License-Identifier: MIT
"""A cheap way into a kernel: what a wrapper checks and chooses is done once for each kind of call, then remembered.

The kind of a call is what its checks and choices look at: type, shape, strides, device and alignment of every tensor,
every option with its type, and the current GPU. A call of another kind is checked from the start, so nothing that a
wrapper refuses passes because a good call came before it. Numbers (a scale, an epsilon) are checked in every call.

A launch skips Triton's own look at the arguments where that could only find what it found before: ``kernel[grid]``
returns the compiled kernel, which can be launched by itself, as in Triton's tutorial "Fused Softmax".
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, TypeVar

import triton
from triton import knobs
from triton.runtime import driver

__all__ = ["Launch", "needs_gradient", "planned", "traced"]

Plan = TypeVar("Plan", bound=Callable[..., Any])

#: Kinds of calls that are remembered; the oldest is forgotten first.
MOST_PLANS = 4096

#: What Triton assumes of an address that it has seen to be a multiple of this many bytes.
ALIGNMENT = 16

_plans: dict[tuple[Any, ...], Any] = {}
#: Memory that launches of one stream use one after the other; forgotten together with the plans.
scratch: dict[tuple[Any, ...], Any] = {}
_driver: Any = None


def forget_plans() -> None:
    """Forget every kind of call: the next one of each is checked, chosen and looked up by Triton again."""
    _plans.clear()
    scratch.clear()


def _is_kept(first: Any) -> Any:
    """The current GPU, or "interpreter"; None where calls are not remembered (a dry run of meta tensors, say)."""
    global _driver
    import torch

    if first.is_cuda:
        active = driver.active
        if _driver is None or _driver() is not active:
            # Plans hold kernels that were compiled for a driver; a dry run brings one of its own.
            forget_plans()
            _driver = weakref.ref(active)
        return torch.cuda.current_device()
    if first.device.type == "cpu":
        return "interpreter" if knobs.runtime.interpret else None
    return None


def planned(make: Callable[..., Plan], tensors: Sequence[Any], *options: Any) -> Plan:
    """``make(*tensors, *options)``, called once for each kind of tensors and options.

    Args:
        make: checks everything and returns a function for calls of this kind. That function may keep numbers, types and
            launches, but no tensor.
        tensors: the first one is a tensor; others may be None.
        options: whatever else ``make`` looks at. Where one is not hashable, nothing is remembered.
    """
    key: Any = None
    try:
        place = _is_kept(tensors[0])
        if place is not None:
            parts: list[Any] = [make, place]
            for t in tensors:
                if t is None:
                    parts.append(None)
                else:
                    parts += (t.dtype, t.device, t.shape, t.stride(), t.data_ptr() % ALIGNMENT)
            for o in options:  # True == 1 == 1.0, but what takes one may refuse another
                parts += (o.__class__, o)
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


@contextlib.contextmanager
def sound_schedule() -> Iterator[None]:
    """Compile without AMD's block ping-pong where Triton is older than 3.9; a setting of the user's own is kept.

    In its loops of eight waves, older releases let one group of waves store into LDS while the loads of the other may
    still be under way: a barrier stands before the wait. On an MI300X such a product can come out wrong
    (https://github.com/triton-lang/triton/issues/11696); :mod:`rocm_guide.mi300x.run` names the race.
    """
    if tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9) or knobs.amd.use_block_pingpong is not None:
        yield
        return
    with knobs.amd.scope():
        knobs.amd.use_block_pingpong = False
        yield


class Launch:
    """A launch of which everything is known but the tensors and some floats.

    Args:
        kernel: a ``@triton.jit`` function. Its parameters are tensors, then ``fixed``, then floats, then constants.
        grid: one to three numbers of programs.
        fixed: whole numbers (or tuples of them), which Triton specialises the kernel for.
        constants: the values of its ``tl.constexpr`` parameters, by name.
        options: ``num_warps`` and the like.
    """

    __slots__ = ("fixed", "grid", "kernel", "last", "options", "run", "small")

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        fixed: Sequence[Any] = (),
        constants: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        constants = constants or {}
        self.kernel, self.grid, self.fixed = kernel, (*grid, 1, 1)[:3], tuple(fixed)
        #: The constants by position: a compiled kernel knows no names.
        self.last = tuple(constants[name] for name in kernel.arg_names if name in constants)
        if len(self.last) != len(constants):
            raise TypeError(f"{kernel.__name__} has no parameter {(constants.keys() - set(kernel.arg_names)).pop()}")
        self.options = options or {}
        self.run: Any = None
        self.small = False

    def __call__(self, *tensors: Any, floats: tuple[Any, ...] = ()) -> None:
        """Launch on these tensors (None is possible), and floats in the order of the parameters."""
        self.with_arguments(tensors, (*tensors, *self.fixed, *floats, *self.last))

    def with_arguments(self, tensors: Sequence[Any], arguments: Sequence[Any], plain: bool = True) -> None:
        """Launch on ``arguments``: all parameters, constants included. ``tensors`` are those to be found in them.

        ``plain`` is False where a whole number among them is not of the plan: Triton has to look at it.
        """
        # What Triton would find out about the arguments. Whole numbers are of the plan; an address is new each time.
        for t in tensors:
            if t is not None and t.data_ptr() % ALIGNMENT:
                plain = False
        if plain and self.small:
            plain = is_small(tensors)
        if plain and self.run is not None and not self.kernel.pre_run_hooks:
            self.run(*arguments)
            return
        with sound_schedule():
            compiled = self.kernel[self.grid](*arguments, **self.options)
        if plain and hasattr(compiled, "packed_metadata"):  # neither the interpreter's None nor a tool's own
            hip = compiled.metadata.target.backend == "hip"
            if not hip or is_small(tensors):
                self.small, self.run = hip, compiled[self.grid]


def is_small(tensors: Sequence[Any]) -> bool:
    """Whether the memory behind each is below 2 GiB: Triton then addresses it with 32 bits on AMD."""
    return all(t is None or t.untyped_storage().size() < 1 << 31 for t in tensors)


def load_operators() -> bool:
    """Import the operators; False where there are none, as in a copy of one helper."""
    try:
        for name in ("ops", "ops_model"):
            import_module(f"rocm_guide.kernels.{name}")
    except ModuleNotFoundError:
        return False
    return True


# torch.compile then calls it and does not look inside. torch.compiler.assume_constant_result sets the same mark, but
# imports the compiler for it, which takes seconds.
load_operators._dynamo_marked_constant = True  # type: ignore[attr-defined]


def traced() -> bool:
    """Whether torch.compile or torch.export traces the caller: it then calls an operator of ``torch.ops.rocm_guide``.

    These are in :mod:`rocm_guide.kernels.ops` and :mod:`rocm_guide.kernels.ops_model`, which are imported here.
    """
    import torch

    return torch.compiler.is_compiling() and load_operators()


def needs_gradient(*tensors: Any) -> bool:
    """Whether autograd has to know of a call: somebody may ask for a gradient of one of these (None is skipped).

    Also inside ``torch.autograd.forward_ad.dual_level()``, where autograd says that forward derivatives are missing.
    """
    import torch

    for t in tensors:
        if t is not None and getattr(t, "requires_grad", False):
            if torch.is_grad_enabled():
                return True
            break
    return bool(torch.autograd.forward_ad._current_level >= 0)
