# SPDX-License-Identifier: MIT
"""Functions of the interpreter of Triton 3.9 that 3.6 to 3.8 lack, for every Triton that pyproject.toml allows.

- 3.6: ``range(0, K, BLOCK)`` with a kernel's argument asks numpy for a number out of an array of one element, which
  numpy 2.4 and newer refuse: "only 0-dimensional arrays can be converted to Python scalars" (triton-lang/triton #9171).
- 3.6, 3.7: pointers to FNUZ FP8, the formats of MI300X: "fail to convert fp8e4b8 to ir type".
- 3.6 to 3.8: constants in bfloat16: "InterpreterBuilder has no attribute get_bf16".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from cdna.compile import triton_release

__all__ = ["complete_interpreter"]


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
