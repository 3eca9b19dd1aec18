# SPDX-License-Identifier: MIT
"""Triton's interpreter without work whose result it throws away: a half or more of its time, with equal results.

It replaces the functions of ``triton.language`` again for every call of one kernel function by another, ``tl.sum`` and
``tl.cdiv`` among them, although the launch has done so already. And for every sum, difference and product of integers
it computes whether it overflows, for an assertion that is only made in debug mode.

Every process of the course that interprets kernels does it in here, so older releases of Triton are completed here too
(:mod:`cdna.interpreter.older`).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from cdna.interpreter.older import complete_interpreter

__all__ = ["quick_interpreter"]


def _languages(function: Callable[..., Any]) -> set[int]:
    """Return the modules in a kernel function's globals that Triton replaces the functions of, as Triton finds them."""
    import triton.language as tl

    return {id(m) for m in (tl, tl.core) if any(m is value for value in function.__globals__.values())}


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
        options = builder.options
        if not options.debug and hasattr(options, "sanitize_overflow"):
            plain = dataclasses.replace(options, sanitize_overflow=False)
            undo.enter_context(mock.patch.object(builder, "options", plain))
        yield
