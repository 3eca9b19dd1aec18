# SPDX-License-Identifier: MIT
"""The one leaf that every module may import: the error that users see, the cache, files written whole or not at all.

All but the course's own folders stands in :mod:`cdna.base`; :class:`GuideError` is its ``InputError``, so that one
``except`` catches what the course and the toolkit refuse.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from cdna.base import (
    InputError,
    atomic_file,
    lazy_names,
    open_regular,
    printable,
    read_regular,
    write_bytes,
    write_text,
)
from cdna.base import cache_folder as _cache_folder
from cdna.base import check_private as _check_private
from cdna.base import own_folder as _own_folder

__all__ = [
    "DoubledKey",
    "GuideError",
    "cache_folder",
    "check_private",
    "each_once",
    "lazy_names",
    "open_regular",
    "own_folder",
    "package_folder",
    "read_regular",
    "shown",
    "whole_file",
    "write_bytes",
    "write_text",
]

#: Bad input, said in one line that names the value and the fix; see :class:`cdna.base.InputError`.
GuideError = InputError

shown, whole_file = printable, atomic_file


class DoubledKey(ValueError):
    """A key that stands twice in one object of a JSON file: nobody knows which one counts."""


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, for ``json.loads(…, object_pairs_hook=each_once)``, which alone takes the last of two.

    Raises:
        DoubledKey: a key stands in it twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DoubledKey(f"{shown(repr(twice), 60)} stands twice in one entry; take one of them out")
    return found


_SETTING = "ROCM_GUIDE_CACHE"


#: Those of :mod:`cdna.base` with the course's own folder and variable.
cache_folder = partial(_cache_folder, "rocm-guide")
check_private = partial(_check_private, setting=_SETTING)
own_folder = partial(_own_folder, setting=_SETTING)


def package_folder() -> Path:
    """Return the folder of the installed package ``rocm_guide`` itself; beside it, in a clone, lies the course.

    >>> package_folder().name
    'rocm_guide'
    """
    return Path(__file__).resolve().parent.parent
