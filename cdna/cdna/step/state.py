# SPDX-License-Identifier: MIT
"""The state of a recorded wave, and what one step changes in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cdna.base import InputError

__all__ = ["Loading", "State", "StateChange"]


class Loading(NamedTuple):
    """A memory operation under way: who started it, what counts it, where it goes, how many lanes take part."""

    line: int
    op: str
    counter: str
    registers: tuple[str, ...]
    lanes: int


class StateChange(NamedTuple):
    """Changes by one instruction; None or empty where nothing did.

    Attributes:
        index: the instruction, as a place in the program.
        vectors: for each changed vector register its 64 values (uint32) and the mask of defined lanes.
        scalars: for each changed scalar register its value, None if undefined, ``loading`` while a load is under way.
        exec, scc: the new execution mask and condition code.
        loading: everything that is under way after the instruction.
        lds: its LDS accesses: byte addresses, bytes for each, whether they write.
    """

    index: int  # type: ignore[assignment]  # hides a method of tuples that nobody calls here
    vectors: dict[int, tuple[Any, int]]
    scalars: dict[int, Any]
    exec: int | None
    scc: int | None
    loading: tuple[Loading, ...] | None
    lds: tuple[tuple[Any, int, bool], ...]


@dataclass
class State:
    """One wave between two instructions; fields as in :class:`StateChange`, ``pc`` is the next instruction."""

    pc: int
    vectors: dict[int, Any]
    valid: dict[int, int]
    scalars: list[Any]
    exec: int
    scc: int
    loading: tuple[Loading, ...]

    def copy(self) -> State:
        """Return a state that can be changed without this one."""
        return State(
            self.pc, dict(self.vectors), dict(self.valid), list(self.scalars), self.exec, self.scc, self.loading
        )

    def apply(self, step: StateChange) -> None:
        """Return the go one step forward."""
        for r, (values, valid) in step.vectors.items():
            self.vectors[r], self.valid[r] = values, valid
        for n, value in step.scalars.items():
            self.scalars[n] = value
        self.exec = self.exec if step.exec is None else step.exec
        self.scc = self.scc if step.scc is None else step.scc
        self.loading = self.loading if step.loading is None else step.loading

    def vector(self, name: str, kind: str = "u32") -> Any:
        """Return one vector register (``v7``, ``a0``) as 64 values; ``kind`` is u32, i32 or f32.

        Raises:
            InputError: the kernel names no such register.
        """
        number = int(name[1:]) if name[:1] in "va" and name[1:].isdigit() else -1
        row = self.vectors.get(number + (256 if name[:1] == "a" else 0)) if number >= 0 else None
        if row is None:
            raise InputError(f"{name!r}: the kernel names no such vector register")
        return row.view({"u32": np.uint32, "i32": np.int32, "f32": np.float32}[kind])

    @property
    def vcc(self) -> int | None:
        """The mask that comparisons write, or None while it is undefined."""
        low, high = self.scalars[106], self.scalars[107]
        return low | high << 32 if isinstance(low, int) and isinstance(high, int) else None
