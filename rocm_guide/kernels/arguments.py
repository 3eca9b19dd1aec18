# SPDX-License-Identifier: MIT
"""What every kernel wrapper needs before a launch: the architecture, its configuration, and checks of arguments."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rocm_guide.common.base import GuideError

if TYPE_CHECKING:
    import torch

__all__ = ["KernelError", "architecture", "next_power_of_2", "unit_count"]

T = TypeVar("T")
FP32_MAX = 3.4028234663852886e38
#: A GPU that does some hundreds of TFLOPS has done these in the time that a call from Python takes.
SMALL_WORK = 1e9


class KernelError(GuideError):
    """Arguments that a kernel cannot take; said in one line, before anything is launched."""


def is_small_work(operations: float) -> bool:
    """Whether a launch of so many floating-point operations is shorter than the call that starts it.

    Then the host is what one waits for, so a kernel loads through pointers: each tensor descriptor costs the host
    microseconds (its memory, or 128 bytes to encode) and saves the GPU less.
    """
    return operations < SMALL_WORK


def architecture(tensor: torch.Tensor) -> str:
    """The architecture that a kernel on ``tensor`` is compiled for, the key of every configuration table.

    ``"gfx942"`` and the like on ROCm (and in a dry run for it), ``"sm_90"`` on CUDA, ``"interpreter"`` for a tensor on
    the CPU in a process with TRITON_INTERPRET=1.

    Raises:
        KernelError: it is no tensor; it is on the CPU and the interpreter is off, on another GPU than the current one
            (Triton would launch there and read foreign addresses), or on a device that Triton does not know.
    """
    import torch

    if not hasattr(tensor, "device"):
        raise KernelError(f"{tensor!r:.40} where a tensor is expected: give a tensor")
    # .type is asked of the device, not of the tensor: in a dry run the tensor only claims to be on the GPU.
    kind = tensor.device.type
    if kind == "cuda":
        here = torch.cuda.current_device()
        if tensor.device.index not in (None, here):
            raise KernelError(
                f"tensors on {tensor.device}, but Triton launches on the current GPU, cuda:{here}: call it inside "
                f"torch.cuda.device({tensor.device.index})"
            )
        if torch.version.hip:
            return str(torch.cuda.get_device_properties(tensor.device).gcnArchName).split(":")[0]
        return "sm_{}{}".format(*torch.cuda.get_device_capability(tensor.device))
    if kind == "cpu":
        from triton import knobs

        if knobs.runtime.interpret:
            return "interpreter"
        raise KernelError(
            "tensors on the CPU: move them to a GPU, or set TRITON_INTERPRET=1 before Python starts to run Triton's "
            "interpreter"
        )
    raise KernelError(f"tensors on {kind!r}: give tensors on a CUDA or ROCm GPU (or 'meta' inside dry_run)")


def unit_count(tensor: torch.Tensor) -> int:
    """Compute units (AMD) or multiprocessors (NVIDIA) of the tensor's device; 2 in the interpreter.

    Persistent kernels launch a multiple of it.
    """
    import torch

    if tensor.device.type == "cuda":
        return int(torch.cuda.get_device_properties(tensor.device).multi_processor_count)
    return 2


def choose(table: Mapping[str, T], arch: str, default: str = "gfx942") -> T:
    """The entry of a configuration table for ``arch``; the ``default`` one, with a warning, when it has none.

    The interpreter takes the default silently: it has no registers to run out of. Python shows the warning once for
    each place and text.

    Raises:
        KernelError: the table has no entry for the default either.

    >>> choose({"gfx942": {"num_warps": 16}, "sm_90": {"num_warps": 8}}, "sm_90")
    {'num_warps': 8}
    >>> choose({"gfx942": {"num_warps": 16}}, "interpreter")
    {'num_warps': 16}
    """
    if arch in table:
        return table[arch]
    if default not in table:
        raise KernelError(f"no launch configuration for {arch}, nor for {default}: there are {', '.join(table)}")
    if arch != "interpreter":
        warnings.warn(f"no launch configuration tuned for {arch}: using that of {default}", stacklevel=3)
    return table[default]


def compiler_options(arch: str, options: Mapping[str, Any], *, matrix: bool = False) -> dict[str, Any]:
    """``options`` of a configuration that the compiler for ``arch`` knows: NVIDIA's refuses those of AMD's.

    A GPU without an entry of its own takes that of gfx942 (see :func:`choose`), whichever vendor made it.

    Args:
        arch: from :func:`architecture`.
        options: ``num_warps``, ``num_stages`` and the like.
        matrix: the kernel has a ``tl.dot``. On AMD it then uses the 16x16 matrix instructions, unless ``options`` says
            otherwise: their accumulator takes a quarter of the registers of the 32x32 ones.

    >>> compiler_options("gfx942", {"num_warps": 4}, matrix=True)
    {'matrix_instr_nonkdim': 16, 'num_warps': 4}
    >>> compiler_options("sm_80", {"num_warps": 4, "matrix_instr_nonkdim": 16, "waves_per_eu": 2})
    {'num_warps': 4}
    """
    amd_only = () if arch.startswith("gfx") else ("matrix_instr_nonkdim", "waves_per_eu", "kpack")
    options = {"matrix_instr_nonkdim": 16, **options} if matrix else options
    return {name: value for name, value in options.items() if name not in amd_only}


@contextlib.contextmanager
def sound_schedule() -> Iterator[None]:
    """Compile without AMD's block ping-pong where Triton is older than 3.9; a setting of the user's own is kept.

    In its loops of eight waves, older releases let one group of waves store into LDS while the loads of the other may
    still be under way: a barrier stands before the wait. On an MI300X such a product can come out wrong
    (https://github.com/triton-lang/triton/issues/11696); :mod:`cdna.run` names the race.
    """
    from triton import knobs

    from cdna.compile import triton_release

    if triton_release() >= (3, 9) or knobs.amd.use_block_pingpong is not None:
        yield
        return
    with knobs.amd.scope():
        knobs.amd.use_block_pingpong = False
        yield


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below ``n``: the width of the tile that holds n columns.

    >>> [next_power_of_2(n) for n in (1, 3, 4096, 4097)]
    [1, 4, 4096, 8192]
    """
    return 1 << max(n - 1, 0).bit_length()


def check_same_device(**tensors: torch.Tensor | None) -> None:
    """All tensors (None is skipped) are on one device.

    Raises:
        KernelError: two tensors are on different devices; both are named.
    """
    first: tuple[str, Any] | None = None
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if not hasattr(tensor, "device"):
            raise KernelError(f"{name} is {tensor!r:.40}: give a tensor")
        if first is None:
            first = name, tensor.device
        elif tensor.device != first[1]:
            raise KernelError(f"{name} is on {tensor.device}, {first[0]} on {first[1]}: put them on one device")


def check_batch(batch: int) -> None:
    """CUDA and HIP launch at most 65,535 programs along the third axis of a grid, where some kernels have the batch.

    Raises:
        KernelError: ``batch`` is larger.
    """
    if batch > 65_535:
        raise KernelError(f"a batch of {batch}: give 65535 sequences at most, or call several times")


def check_dtype(name: str, tensor: torch.Tensor, allowed: Sequence[torch.dtype]) -> None:
    """``tensor.dtype`` is one of ``allowed``.

    Raises:
        KernelError: it is not; the message lists what is.

    >>> import torch
    >>> check_dtype("x", torch.ones(2, dtype=torch.int64), (torch.float16, torch.float32))
    Traceback (most recent call last):
        ...
    rocm_guide.kernels.arguments.KernelError: x is int64: give float16 or float32
    """
    if not hasattr(tensor, "dtype"):
        raise KernelError(f"{name} is {tensor!r:.40}: give a tensor")
    if tensor.dtype not in allowed:
        names = [str(d).removeprefix("torch.") for d in allowed]
        text = " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
        raise KernelError(f"{name} is {str(tensor.dtype).removeprefix('torch.')}: give {text}")


def check_shape(name: str, tensor: torch.Tensor, shape: Sequence[int | None]) -> None:
    """``tensor`` has this shape; None stands for any size.

    Raises:
        KernelError: another number of dimensions or another size.

    >>> import torch
    >>> check_shape("weight", torch.ones(3), (4,))
    Traceback (most recent call last):
        ...
    rocm_guide.kernels.arguments.KernelError: weight has shape (3,): give (4,)
    """
    if not hasattr(tensor, "shape"):
        raise KernelError(f"{name} is {tensor!r:.40}: give a tensor")
    have = tuple(tensor.shape)
    if len(have) != len(shape) or any(s is not None and s != h for h, s in zip(have, shape, strict=False)):
        want = ", ".join("any" if s is None else str(s) for s in shape) + ("," if len(shape) == 1 else "")
        raise KernelError(f"{name} has shape {have}: give ({want})")


def check_contiguous(name: str, tensor: torch.Tensor) -> None:
    """``tensor`` is contiguous.

    Raises:
        KernelError: it is not.
    """
    if not tensor.is_contiguous():
        raise KernelError(f"{name} of shape {tuple(tensor.shape)} has strides {tensor.stride()}: call .contiguous()")


def check_last_contiguous(name: str, tensor: torch.Tensor) -> None:
    """Neighbours in the last dimension are neighbours in memory; rows may be any distance apart.

    Raises:
        KernelError: the last stride is not 1.
    """
    if tensor.ndim and tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        raise KernelError(f"{name} has stride {tensor.stride(-1)} in its last dimension: call .contiguous()")


def check_number(name: str, value: float, low: float = -math.inf, high: float = math.inf) -> float:
    """``value`` is a number from ``low`` to ``high``, finite in fp32 too; returned as a float.

    Raises:
        KernelError: it is not a number, NaN, infinite (kernels take fp32: beyond 3.4e38) or outside.

    >>> check_number("scale", float("nan"))
    Traceback (most recent call last):
        ...
    rocm_guide.kernels.arguments.KernelError: scale=nan: give a finite number
    """
    if value.__class__ is float and low <= value <= high and -FP32_MAX <= value <= FP32_MAX:
        return value  # what nearly every call gives
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= FP32_MAX
    if not good or not low <= value <= high:
        limits = f" of {low:g} or more" if low > -math.inf else ""
        limits += f"{' and' if limits else ' of'} {high:g} or less" if high < math.inf else ""
        raise KernelError(f"{name}={value!r}: give a finite number{limits}")
    return float(value)
