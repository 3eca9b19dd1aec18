# SPDX-License-Identifier: MIT
"""Patches of Triton's interpreter for a ``with`` block: what older releases lack, less work, narrow types.

What Triton 3.9 interprets and 3.6 to 3.8 do not, for every Triton that pyproject.toml allows:

- 3.6: ``range(0, K, BLOCK)`` with a kernel's argument asks numpy for a number out of an array of one element, which
  numpy 2.4 and newer refuse: "only 0-dimensional arrays can be converted to Python scalars" (triton-lang/triton #9171).
- 3.6, 3.7: pointers to FNUZ FP8, the formats of MI300X: "fail to convert fp8e4b8 to ir type".
- 3.6 to 3.8: constants in bfloat16: "InterpreterBuilder has no attribute get_bf16".

Work whose result the interpreter throws away, a half or more of its time: it replaces the functions of
``triton.language`` again for every call of one kernel function by another, ``tl.sum`` and ``tl.cdiv`` among them,
although the launch has done so already. For every sum, difference and product of integers it computes whether it
overflows, for an assertion that is only made in debug mode. With each block it describes its shape anew, number by
number; and for each operation it asks some twenty questions about the types of its operands.

Narrow types: it cuts bf16 off instead of rounding it, rounds FP8 half up, and computes with the bit patterns of bf16 as
if they were whole numbers. PyTorch's conversions round to nearest, ties to even, as an MI300X does.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from cdna.compile import triton_release

__all__ = ["complete_interpreter", "exact_conversions", "quick_interpreter"]


@contextlib.contextmanager
def complete_interpreter() -> Iterator[None]:
    """Interpret, inside the ``with`` block, what Triton 3.9 interprets; nothing is changed in 3.9 and newer.

    Raises:
        TritonVersionError: Triton is not installed.
    """
    if triton_release() >= (3, 9):
        yield
        return
    import triton.language as tl
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    patch_tensor, patch_core = interpreter._patch_lang_tensor, interpreter._patch_lang_core

    def tensor_with_index(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.squeeze()))

    def core_with_fnuz(lang: Any, scope: Any) -> None:
        patch_core(lang, scope)
        known, fnuz = lang.dtype.to_ir, {"fp8e4b8": builder.get_fp8e4b8_ty, "fp8e5b16": builder.get_fp8e5b16_ty}
        scope.set_attr(
            lang.dtype, "to_ir", lambda self, own: fnuz[self.name]() if self.name in fnuz else known(self, own)
        )

    def bf16_constant(value: float) -> Any:
        return builder.create_fp_trunc(builder.get_fp32(value), tl.bfloat16)

    with (
        mock.patch.object(interpreter, "_patch_lang_tensor", tensor_with_index),
        mock.patch.object(interpreter, "_patch_lang_core", core_with_fnuz),
        mock.patch.object(builder, "get_bf16", bf16_constant, create=True),
    ):
        yield


def _languages(function: Callable[..., Any]) -> set[int]:
    """Return the modules in a kernel function's globals that Triton replaces the functions of, as Triton finds them."""
    import triton.language as tl

    return {id(m) for m in (tl, tl.core) if any(m is value for value in function.__globals__.values())}


@contextlib.contextmanager
def _shapes_once() -> Iterator[None]:
    """Let each shape of a block, and of a tensor, be described once inside the ``with`` block, and looked up then."""
    from triton.language import core

    describe_block, describe_tensor = core.block_type.__init__, core.tensor.__init__
    blocks: dict[Any, dict[str, Any]] = {}
    tensors: dict[str, dict[str, Any]] = {}

    def block(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = [n if type(n) is int else getattr(n, "value", n) for n in shape]
        key = element_ty.name, *sizes, *map(type, sizes)  # 1.0 is equal to 1, and Triton refuses it
        if key not in blocks:
            describe_block(self, element_ty, shape)
            blocks[key] = vars(self).copy()
        self.__dict__.update(blocks[key], element_ty=element_ty)

    def tensor(self: Any, handle: Any, type: Any) -> None:
        if type.name not in tensors:  # "<[16, 32], fp16>" says everything of a shape
            describe_tensor(self, handle, type)
            tensors[type.name] = vars(self).copy()
        self.__dict__.update(tensors[type.name], handle=handle, type=type, dtype=type.scalar)

    with (
        mock.patch.object(core.block_type, "__init__", block),
        mock.patch.object(core.tensor, "__init__", tensor),
    ):
        yield


@contextlib.contextmanager
def _operands_once() -> Iterator[None]:
    """Let Triton decide once, inside the ``with`` block, how operands of two types are made one shape, and that no
    conversion is needed; for the next pair of these types do the same without the questions.
    """
    from triton.language import core
    from triton.runtime import interpreter

    semantic, builder = interpreter.interpreter_semantic, interpreter.interpreter_builder
    broadcast, check = semantic.broadcast_impl_value, semantic.binary_op_type_checking_impl
    equal = core.dtype.__eq__
    steps: dict[tuple[str, str], Any] = {}
    unconverted: set[Any] = set()

    def step(before: Any, after: Any) -> Any:
        """Return what made a tensor into another; None if nothing did."""
        if after is before:
            return None
        kind = after.type
        if before.type.is_block():
            sizes = list(kind.shape)
            return lambda x: core.tensor(builder.create_broadcast(x.handle, sizes), kind)  # adds dimensions, too
        block = kind.to_ir(builder)
        return lambda x: core.tensor(builder.create_splat(block, x.handle), kind)

    def broadcast_once(lhs: Any, rhs: Any) -> Any:
        key = lhs.type.name, rhs.type.name  # "<[16, 32], fp16>" says everything
        if key in steps:
            left, right = steps[key]
            return (left(lhs) if left else lhs), (right(rhs) if right else rhs)
        made = broadcast(lhs, rhs)
        steps[key] = tuple(map(step, (lhs, rhs), made))
        return made

    def same(self: Any, other: Any) -> bool:
        return self.name == other.name if isinstance(other, core.dtype) else bool(equal(self, other))

    def check_once(lhs: Any, rhs: Any, *given: Any, **named: Any) -> Any:
        if type(lhs) is not core.tensor or type(rhs) is not core.tensor:
            return check(lhs, rhs, *given, **named)
        key = lhs.type.name, rhs.type.name, given, *named.items()
        if key in unconverted:
            return broadcast_once(lhs, rhs)
        made = check(lhs, rhs, *given, **named)
        if all(x.dtype.name == y.dtype.name for x, y in zip((lhs, rhs), made, strict=True)):
            unconverted.add(key)
        return made

    with (
        mock.patch.object(core.dtype, "__eq__", same),
        mock.patch.object(semantic, "broadcast_impl_value", broadcast_once),
        mock.patch.object(semantic, "binary_op_type_checking_impl", check_once),
    ):
        yield


@contextlib.contextmanager
def quick_interpreter() -> Iterator[None]:
    """Make interpreted launches inside the ``with`` block do the same with less work; for processes that interpret
    kernels.

    Another release of Triton than those that were checked keeps what is not found in it.

    >>> from triton.runtime import interpreter
    >>> with quick_interpreter():
    ...     interpreter.interpreter_builder.options.sanitize_overflow
    False
    >>> interpreter.interpreter_builder.options.sanitize_overflow
    True
    """
    from triton.runtime import interpreter

    builder, executor = interpreter.interpreter_builder, interpreter.GridExecutor
    replace, launch, np_dtype = interpreter._patch_lang, executor.__call__, interpreter._get_np_dtype
    replaced: list[set[int]] = []  # of each launch that is running: the modules whose functions are replaced
    known: dict[Callable[..., Any], set[int]] = {}
    types: dict[str, Any] = {}

    def replace_once(function: Callable[..., Any]) -> Any:
        if function not in known:
            known[function] = _languages(function)
        if replaced and replaced[-1] and known[function] <= replaced[-1]:
            return None  # a call inside a launch, which does not ask what was replaced
        done = replace(function)
        if replaced:
            replaced[-1] |= known[function]
        return done

    def launch_marked(self: Any, *arguments: Any, **options: Any) -> Any:
        replaced.append(set())
        try:
            return launch(self, *arguments, **options)
        finally:
            replaced.pop()

    def np_dtype_once(kind: Any) -> Any:
        if kind.name not in types:  # a name says everything: "<[16, 32], fp16>", "pointer<fp16>"
            types[kind.name] = np_dtype(kind)
        return types[kind.name]

    with contextlib.ExitStack() as undo:
        undo.enter_context(complete_interpreter())
        undo.enter_context(mock.patch.object(interpreter, "_patch_lang", replace_once))
        undo.enter_context(mock.patch.object(interpreter, "_get_np_dtype", np_dtype_once))
        undo.enter_context(mock.patch.object(executor, "__call__", launch_marked))
        undo.enter_context(_shapes_once())
        undo.enter_context(_operands_once())
        options = builder.options
        if not options.debug and hasattr(options, "sanitize_overflow"):
            plain = dataclasses.replace(options, sanitize_overflow=False)
            undo.enter_context(mock.patch.object(builder, "options", plain))
        yield


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
            if any(x.dtype.scalar.name != "bf16" for x in operands):
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
