# SPDX-License-Identifier: MIT
"""Does the result come from the kernels? Calls in which no kernel runs, and a look at what PyTorch does with the
arguments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

__all__ = ["TorchWatch", "no_kernels", "only_the_last_program"]

#: What PyTorch may do with an argument beside looking at it: ask for memory of its shape.
_HARMLESS = {"empty_like", "new_empty", "new_empty_strided", "new_zeros", "zeros_like", "new_full", "full_like"}
_HARMLESS |= {"new_ones", "ones_like", "data_ptr", "untyped_storage"}
_COPIES = {"clone", "to", "type", "copy_", "contiguous", "half", "float", "double", "bfloat16", "reshape", "flatten"}


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


@contextlib.contextmanager
def no_kernels() -> Iterator[None]:
    """Let launches do nothing inside the ``with`` block: what comes out all the same was not computed by a kernel."""
    from triton.runtime import interpreter

    with mock.patch.object(interpreter.GridExecutor, "__call__", lambda *a, **k: None):
        yield


@contextlib.contextmanager
def only_the_last_program(back: int = 0) -> Iterator[None]:
    """Let each launch inside the ``with`` block run its last program alone, or the one so many before it; it sees the
    true grid.
    """
    from triton.runtime import interpreter

    builder, executor = interpreter.interpreter_builder, interpreter.GridExecutor
    launch, true = executor.__call__, [(1, 1, 1)]

    def one(self: Any, *arguments: Any, **options: Any) -> Any:
        asked = self.grid

        def grid(names: Any) -> tuple[int, int, int]:
            given = asked(names) if callable(asked) else asked
            true[0] = (*given, *(1,) * (3 - len(given)))
            return (1, 1, 1) if all(true[0]) else (0, 0, 0)

        self.grid = grid
        return launch(self, *arguments, **options)

    def dimensions(x: int, y: int, z: int) -> None:
        builder.grid_dim = true[0]

    def place(x: int, y: int, z: int) -> None:
        width, height, depth = true[0]
        number = max(width * height * depth - 1 - back, 0)
        builder.grid_idx = (number % width, number // width % height, number // width // height)

    with (
        mock.patch.object(executor, "__call__", one),
        mock.patch.object(builder, "set_grid_dim", dimensions),
        mock.patch.object(builder, "set_grid_idx", place),
    ):
        yield


class TorchWatch:
    """What PyTorch computed from the arguments, outside of launches.

    Attributes:
        given: where the storages of the arguments begin, and those of their copies.
        used: the first operation that computed with one of them; empty if none did.
    """

    def __init__(self, arguments: tuple[Any, ...], *, moves: bool) -> None:
        import torch

        self.given = {a.untyped_storage().data_ptr() for a in arguments if isinstance(a, torch.Tensor)}
        self.used = ""
        self._allowed = _HARMLESS if moves else _HARMLESS | _COPIES

    def _saw(self, name: str, inputs: list[Any], outputs: list[Any]) -> None:
        if name in _HARMLESS or not any(t.untyped_storage().data_ptr() in self.given for t in inputs):
            return
        new = [
            t
            for t in outputs
            if t.is_floating_point() and t.numel() and t.untyped_storage().data_ptr() not in self.given
        ]
        if new and name not in self._allowed:
            self.used = self.used or name
        if name in _COPIES:
            self.given |= {t.untyped_storage().data_ptr() for t in new}

    @contextlib.contextmanager
    def watching(self, launcher: Any, method: str) -> Iterator[None]:
        """Watch PyTorch inside the ``with`` block; what happens in a launch, a call of this method of the class
        ``launcher``, is not looked at.
        """
        import torch
        from torch.overrides import TorchFunctionMode

        watch, inside = self, [False]
        launch = getattr(launcher, method)

        class Look(TorchFunctionMode):
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                made = func(*args, **(kwargs or {}))
                if not inside[0]:
                    inputs = [t for t in _leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
                    outputs = [t for t in _leaves(made) if isinstance(t, torch.Tensor)]
                    watch._saw(getattr(func, "__name__", str(func)), inputs, outputs)
                return made

        def unseen(self: Any, *arguments: Any, **options: Any) -> Any:
            inside[0] = True
            try:
                return launch(self, *arguments, **options)
            finally:
                inside[0] = False

        with mock.patch.object(launcher, method, unseen), Look():
            yield
