# SPDX-License-Identifier: MIT
"""Time in a model: how long each part of the GPU is busy. The part that is busy longest sets the limit."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BusyParts", "ModelTime"]


@dataclass(frozen=True)
class BusyParts:
    """Time for which each part of a GPU is busy, in a model; the class that inherits says in which unit.

    Attributes:
        parts: the time of each part, by its name.

    >>> BusyParts({"HBM": 3.0, "LDS": 5.0}).limit
    'LDS'
    """

    parts: dict[str, float]

    @property
    def limit(self) -> str:
        """The part that is busy longest."""
        return max(self.parts, key=lambda part: self.parts[part])

    @property
    def longest(self) -> float:
        """The time of that part."""
        return self.parts[self.limit]


@dataclass(frozen=True)
class ModelTime(BusyParts):
    """Microseconds for which each part is busy in one launch, in a model."""

    @property
    def microseconds(self) -> float:
        """The prediction: no launch can take less, by this model."""
        return self.longest
