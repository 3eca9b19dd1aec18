# SPDX-License-Identifier: MIT
"""Arithmetic in narrow types as the hardware does it, in Triton's interpreter.

The interpreter cuts bf16 off instead of rounding it, rounds FP8 half up, and computes with the bit patterns of bf16 as
if they were whole numbers. PyTorch's conversions round to nearest, ties to even, as an MI300X does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

__all__ = ["exact_conversions"]


@contextlib.contextmanager
def exact_conversions() -> Iterator[None]:
    """Let PyTorch convert between floating-point types, and bf16 be computed in fp32, inside the ``with`` block."""
    import numpy as np
    import torch
    import triton.language as tl
    from triton.runtime import interpreter

    comparisons = {np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal}
    builder = interpreter.interpreter_builder
    convert, dot = interpreter._convert_float, builder.create_dot
    types = {
        tl.float16: (torch.float16, torch.int16, np.uint16),
        tl.bfloat16: (torch.bfloat16, torch.int16, np.uint16),
        tl.float32: (torch.float32, torch.int32, np.uint32),
        tl.float8e4nv: (torch.float8_e4m3fn, torch.uint8, np.uint8),
        tl.float8e4b8: (torch.float8_e4m3fnuz, torch.uint8, np.uint8),
        tl.float8e5: (torch.float8_e5m2, torch.uint8, np.uint8),
        tl.float8e5b16: (torch.float8_e5m2fnuz, torch.uint8, np.uint8),
    }

    def exact(value: Any, source: Any, target: Any, rounding: Any) -> Any:
        if source not in types or target not in types or "RTZ" in str(rounding):
            return convert(value, source, target, rounding)
        (src, bits, _), (dst, out_bits, out) = types[source], types[target]
        plain = np.frombuffer(value.tobytes(), dtype=types[source][2]).copy()
        tensor = torch.from_numpy(plain.view(str(bits).removeprefix("torch."))).view(src)
        return tensor.to(dst).view(out_bits).numpy().view(out).reshape(value.shape)

    def exact_dot(a: Any, b: Any, d: Any, *rest: Any) -> Any:
        def wide(handle: Any) -> Any:
            if handle.dtype.scalar is not tl.bfloat16 and handle.dtype.scalar != tl.bfloat16:
                return handle
            data = exact(handle.data, tl.bfloat16, tl.float32, None).view(np.float32)
            return interpreter.TensorHandle(data, tl.float32)

        return dot(wide(a), wide(b), d, *rest)

    def in_fp32(handle: Any) -> Any:
        data = exact(handle.data, tl.bfloat16, tl.float32, None).view(np.float32)
        return interpreter.TensorHandle(data, tl.float32)

    def exact_operation(compute: Any) -> Any:
        """Do an operation on bf16 in fp32, rounded once, as the compiler does; a comparison has no value to round."""

        def operation(*given: Any) -> Any:
            *operands, function = given
            if any(x.dtype.scalar != tl.bfloat16 for x in operands):
                return compute(*given)
            result = compute(*map(in_fp32, operands), function)
            if function in comparisons:
                return result
            data = exact(result.data, tl.float32, tl.bfloat16, None).view(np.uint16)
            return interpreter.TensorHandle(data, tl.bfloat16)

        return operation

    with (
        mock.patch.object(interpreter, "_convert_float", exact),
        mock.patch.object(builder, "create_dot", exact_dot),
        mock.patch.object(builder, "binary_op", exact_operation(builder.binary_op)),
        mock.patch.object(builder, "unary_op", exact_operation(builder.unary_op)),
    ):
        yield
