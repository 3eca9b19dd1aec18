# SPDX-License-Identifier: MIT
"""Ordinary code that launches Triton kernels, with every launch executed as gfx942 machine code on this CPU.

``with executed_on_gfx942(): y = softmax(x)``: the kernel is compiled for MI300X as a real launch would compile it, and
``y`` holds what its instructions computed. It is for small tensors: a few million lane-instructions a second.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cdna.compile import Compiled
from cdna.run.errors import RunError
from cdna.run.session import Result, run

__all__ = ["Executed", "Executions", "executed_on_gfx942", "poison_mode"]


@dataclass(frozen=True)
class Executed:
    """One launch that was executed.

    Attributes:
        kernel, grid: what, and over how many workgroups in x, y and z.
        compiled: all stages of the kernel.
        result: what was executed: counters, and the machine in its last state.
        read: where the storages of those tensor arguments begin that something was loaded from.
    """

    kernel: str
    grid: tuple[int, int, int]
    compiled: Compiled = field(repr=False)
    result: Result = field(repr=False)
    read: frozenset[int] = field(default=frozenset(), repr=False)


@dataclass
class Executions:
    """Launches that were executed in a ``with`` block, in order."""

    launches: list[Executed] = field(default_factory=list)

    @property
    def kernels(self) -> list[str]:
        """Names of the kernels, each once, in the order of their first launch."""
        return list(dict.fromkeys(launch.kernel for launch in self.launches))

    @property
    def instructions(self) -> int:
        """Wave instructions of all launches."""
        return sum(launch.result.executed for launch in self.launches)


def poison_mode(byte: int = 0xFF) -> Any:
    """Make a torch function mode in which ``torch.empty`` and its kin give 0xFF: NaN in fp16, bf16 and fp32; or another
    byte.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    tensor = torch.Tensor
    makers = {torch.empty, torch.empty_like, torch.empty_strided, tensor.new_empty, tensor.new_empty_strided}

    class Poison(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            made = func(*args, **(kwargs or {}))
            if func in makers and made.untyped_storage().device.type == "cpu":
                made.untyped_storage().fill_(byte)
            return made

    return Poison()


def _storages(arguments: dict[str, Any], loaded: tuple[tuple[int, int], ...]) -> Iterator[int]:
    """Return where the storages of the tensors begin that hold one of the places."""
    left = list(arguments.values())
    while left:
        value = left.pop()
        if isinstance(value, tuple | list):
            left += value
        elif hasattr(value, "untyped_storage"):
            storage = value.untyped_storage()
            first, size = storage.data_ptr(), storage.nbytes()
            if any(first <= start < first + size for start, _ in loaded):
                yield first


@contextlib.contextmanager
def executed_on_gfx942(
    *,
    order: str | int = "together",
    units: int = 304,
    limit: int = 1_000_000,
    count: bool = True,
    copies: float = 0.0,
    hardware_sums: bool = False,
    back: int | None = None,
    poison: int | None = 0xFF,
) -> Iterator[Executions]:
    """Execute every Triton launch inside the ``with`` block as gfx942 machine code, in this process.

    CPU tensors say inside the block that they are on ``cuda:0``, as in :func:`cdna.dry_run.dry_run`, and
    wrappers choose as on an MI300X. Each launch writes its results into its tensors before the next line runs. Trials
    of an autotuner are not executed; the configuration that is chosen is. ``torch.empty`` and its kin give NaN.

    Args:
        order: in which order waves and workgroups run: ``together``, ``alone``, ``round_robin``, or a seed; see
            :meth:`~cdna.run.machine.Machine.run`.
        units: compute units that the pretended MI300X reports. Persistent kernels launch a multiple of them, so a small
            number takes less time.
        limit: instructions that one wave may execute.
        count: False leaves out bytes, lines and bank conflicts, which takes less time.
        copies, hardware_sums: see :func:`~cdna.run.session.run`.
        back: run one workgroup of each launch alone: 0 is its last, 1 the one before; where there are not so many, the
            first. None runs all.
        poison: the byte that ``torch.empty`` and its kin are filled with; None leaves them as they come.

    Raises:
        RunError: what the hardware does not allow, with the kernel, the launch and the instruction; or ``units``.
        TritonVersionError, DryRunError: see :func:`cdna.dry_run.dry_run`.

    >>> import torch
    >>> from cdna.examples.rows import softmax_three_passes
    >>> x, y = torch.zeros(1, 4), torch.empty(1, 4)
    >>> with executed_on_gfx942() as done:
    ...     _ = softmax_three_passes[(1,)](x, y, 4, BLOCK=64)
    >>> y, done.kernels, done.launches[0].result.counters.instructions["valu"] > 10
    (tensor([[0.2500, 0.2500, 0.2500, 0.2500]]), ['softmax_three_passes'], True)
    """
    import torch

    from cdna.dry_run.driver import dry_run

    if not isinstance(units, int) or units < 1:
        raise RunError(f"units={units!r}: how many compute units, at least 1", rule="arguments")
    done = Executions()

    def execute(compiled: Compiled, grid: tuple[int, int, int], arguments: dict[str, Any]) -> None:
        if 0 in grid:
            return
        free = {name: value for name, value in arguments.items() if compiled.signature[name] != "constexpr"}
        total = grid[0] * grid[1] * grid[2]
        try:
            result = run(
                compiled,
                grid,
                free,
                order=order,
                limit=limit,
                count=count,
                copies=copies,
                wait_states=True,
                hardware_sums=hardware_sums,
                only=None if back is None else (max(total - 1 - back, 0),),
            )
        except RunError as e:
            said = f"{compiled.name}, launch {len(done.launches) + 1}: {e}"
            source = next((i.source for i in compiled.parsed.instructions if e.line and i.line == e.line), "")
            raise RunError(said, e.line, e.rule, source) from e
        done.launches.append(Executed(compiled.name, grid, compiled, result, frozenset(_storages(free, result.loaded))))

    with dry_run("gfx942", on_launch=execute):
        # What dry_run answers with is made anew for each block, so nothing has to be put back.
        torch.cuda.get_device_properties(0).multi_processor_count = units
        with contextlib.nullcontext() if poison is None else poison_mode(poison):
            yield done
