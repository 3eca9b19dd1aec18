# SPDX-License-Identifier: MIT
"""The answer that every check of an exercise gives: one line, and True or False."""

from __future__ import annotations

__all__ = ["first_line", "say"]


def first_line(error: Exception) -> str:
    """Return what an error says, on one line; its name if it says nothing, as ``raise NotImplementedError`` does.

    >>> first_line(NotImplementedError())
    'NotImplementedError'
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def say(good: bool, text: str) -> bool:
    """Print what was found with [OK] or [HINT] in front, and pass the verdict on.

    >>> say(False, "B must start at zero")
    [HINT] B must start at zero
    False
    """
    print(f"{'[OK]  ' if good else '[HINT]'} {text}")
    return good
