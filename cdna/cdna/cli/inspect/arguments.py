# SPDX-License-Identifier: MIT
"""The command line of `cdna inspect`: arguments, constants and compile options as NAME=VALUE."""

from __future__ import annotations

import ast
import math
import re
import warnings
from typing import Any, NamedTuple

from cdna.base import InputError, printable

__all__ = ["InspectError", "Tensor", "argument", "compile_option", "literal", "split"]


class InspectError(InputError):
    """The file cannot be inspected as asked: no such kernel, no way given to launch it, or its own code failed."""


def split(text: str, option: str) -> tuple[str, str]:
    """Return NAME and VALUE of an option's text."""
    name, eq, value = text.partition("=")
    if not eq or not name.strip().isidentifier():
        raise InspectError(f"{option} {printable(text, 60)}: write NAME=VALUE, for example {option} n=4096")
    return name.strip(), value.strip()


def literal(text: str) -> Any:
    """Return a constant: a Python literal, ``tl.float16`` and the like, or the text itself."""
    if text.startswith("tl."):
        import triton.language as tl

        found = vars(tl).get(text[3:])
        if found is None:
            raise InspectError(f"{printable(text, 60)}: triton.language has no such name")
        return found
    if len(text) > _LONGEST or not text.isprintable():
        raise InspectError(f"{printable(text, 60)}: a value is one line of at most {_LONGEST} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's own remarks about odd literals
            found = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
    if isinstance(found, int) and not -(1 << 63) <= found < 1 << 63:
        raise InspectError(f"{printable(text, 60)}: a number of a kernel has at most 64 bits")
    return found


#: Options of the compiler that --option may set, with the values that mean something on these GPUs.
_OPTIONS: dict[str, tuple[Any, ...]] = {
    "num_warps": (1, 2, 4, 8, 16),
    "num_stages": tuple(range(9)),
    "waves_per_eu": tuple(range(11)),
    "matrix_instr_nonkdim": (0, 4, 16, 32),
    "kpack": (1, 2),
    "num_ctas": (1,),
    "enable_fp_fusion": (True, False),
    "allow_flush_denorm": (True, False),
    "sanitize_overflow": (True, False),
    "schedule_hint": ("", "attention", "memory-bound-attention"),
}
_LONGEST = 200


def compile_option(word: str) -> tuple[str, Any]:
    """Read ``NAME=VALUE`` of ``--option``; a value that the compiler would take without effect is refused.

    >>> compile_option("waves_per_eu=2")
    ('waves_per_eu', 2)
    """
    name, text = split(word, "--option")
    if name == "arch":
        raise InspectError(f"--option {printable(word, 60)}: the architecture has an option of its own, --arch")
    if name not in _OPTIONS:
        raise InspectError(f"--option {printable(word, 60)}: no such option; use one of {', '.join(_OPTIONS)}")
    value = literal(text)
    if not any(type(value) is type(v) and value == v for v in _OPTIONS[name]):
        raise InspectError(f"--option {printable(word, 60)}: use one of {', '.join(map(str, _OPTIONS[name]))}")
    return name, value


_ELEMENTS = 1 << 42
_TENSOR = re.compile(r"(\w+)\[([\d\s,]*)\]")
#: Triton's types and torch's names for them, with the bytes of an element.
_TYPES = {
    "fp16": ("float16", 2),
    "bf16": ("bfloat16", 2),
    "fp32": ("float32", 4),
    "fp64": ("float64", 8),
    "i8": ("int8", 1),
    "i16": ("int16", 2),
    "i32": ("int32", 4),
    "i64": ("int64", 8),
    "u8": ("uint8", 1),
    "i1": ("bool", 1),
    "fp8e4nv": ("float8_e4m3fn", 1),
    "fp8e4b8": ("float8_e4m3fnuz", 1),
    "fp8e5": ("float8_e5m2", 1),
    "fp8e5b16": ("float8_e5m2fnuz", 1),
}
_NAMES = {torchs: tritons for tritons, (torchs, _) in _TYPES.items()}


class Tensor(NamedTuple):
    """A tensor that is asked for: Triton's type of its elements, and its sizes."""

    type: str
    shape: tuple[int, ...]

    @property
    def signature(self) -> str:
        """Its type for the compiler, with the hints that the JIT derives from an allocation of this size.

        >>> Tensor("fp16", (4096, 4096)).signature
        '*fp16:16:2g'
        """
        return f"*{self.type}:16" + ":2g" * (math.prod(self.shape) * _TYPES[self.type][1] < 1 << 31)

    def random(self) -> Any:
        """Return a numpy array of random values, always the same; types that numpy lacks lie in integers as wide."""
        import numpy as np

        rng, name = np.random.default_rng(0), _TYPES[self.type][0]
        if self.type == "bf16":
            values = (rng.standard_normal(self.shape, np.float32).view(np.uint32) >> 16).astype(np.uint16)
        elif self.type.startswith("fp8"):  # no NaN and no infinity in any of the four formats
            values = (rng.integers(1, 0x60, self.shape) | rng.integers(0, 2, self.shape) << 7).astype(np.uint8)
        elif self.type.startswith("fp"):
            values = rng.standard_normal(self.shape).astype(name)
        else:
            values = rng.integers(0, 2 if name == "bool" else 100, self.shape).astype(name)
        # At the start of a line of memory, as a GPU's allocations are: otherwise counts of lines would vary.
        raw = np.empty(values.nbytes + 256, np.uint8)
        start = -raw.ctypes.data % 256
        placed = raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
        placed[...] = values
        return placed


def argument(text: str) -> Tensor | bool | int | float | str:
    """Read an argument: ``fp16[4096,4096]`` (a tensor), ``4096`` or ``2.0`` (a value), or a type of Triton's."""
    if m := _TENSOR.fullmatch(text):
        if (dtype := _NAMES.get(m[1], m[1])) not in _TYPES:
            raise InspectError(f"{printable(text, 60)}: no tensor type; write for example fp16[4096,4096]")
        sizes = [int(n) for n in m[2].replace(" ", "").split(",") if n.isascii() and n.isdigit() and len(n) < 16]
        if len(sizes) != len([n for n in m[2].split(",") if n.strip()]) or math.prod(sizes) > _ELEMENTS:
            raise InspectError(
                f"{printable(text, 60)}: sizes are whole numbers, and a tensor has at most 2^42 elements"
            )
        return Tensor(dtype, tuple(sizes))
    value = literal(text)
    return value if isinstance(value, (bool, int, float)) else text
