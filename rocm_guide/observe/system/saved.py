# SPDX-License-Identifier: MIT
"""The file that remembers what the settings were."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocm_guide.common.base import read_regular, write_text
from rocm_guide.observe.system.machine import Machine, SystemSettingError

__all__ = ["load_state", "state_path"]

#: Seconds to wait for another set or reset before giving up.
PATIENCE = 2.0


def state_path(machine: Machine) -> Path:
    """Return where the previous values are kept: below /var/lib for root, else in the user's state folder.

    >>> state_path(Machine(environ={"XDG_STATE_HOME": "/home/me/.state", "ROCM_GUIDE_USER": "me"})).name
    'system.json'
    """
    if os.geteuid() == 0:
        return machine.root / "var/lib/rocm-guide/system.json"
    variables = machine.variables()
    base = variables.get("XDG_STATE_HOME") or str(Path(variables.get("HOME", "~")).expanduser() / ".local/state")
    return Path(base) / "rocm-guide/system.json"


def load_state(path: str | os.PathLike[str]) -> dict[str, dict[str, str]]:
    """Return the saved values: key -> {"before": …, "set": …, "pending": "yes" or ""}; empty when nothing was set.

    "pending" stands there while a change is under way: after a kill the value may be anything, and is ours to restore.

    Raises:
        SystemSettingError: the file is there but cannot be read or is damaged.

    >>> load_state("nothing/was/set.json")
    {}
    """
    path = Path(path)
    try:
        text = read_regular(path, 1_000_000).decode()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as e:
        raise SystemSettingError(
            f"{path}: cannot be read ({getattr(e, 'strerror', None) or e}); run as its owner"
        ) from e
    try:
        entries = json.loads(text)["saved"]
        good = all(isinstance(e["before"], str) and isinstance(e["set"], str) for e in entries.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        good = False
    if not good:
        raise SystemSettingError(f"{path}: damaged; restore the values by hand and delete it")
    return {
        key: {"before": e["before"], "set": e["set"], "pending": "yes" if e.get("pending") else ""}
        for key, e in entries.items()
    }


def save_state(path: Path, state: dict[str, dict[str, str]]) -> None:
    """Write the values whole or not at all; without any, the file goes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     save_state(Path(d) / "s.json", {"numa_balancing": {"before": "1", "set": "0", "pending": ""}})
    ...     load_state(Path(d) / "s.json")
    {'numa_balancing': {'before': '1', 'set': '0', 'pending': ''}}
    """
    if state:
        write_text(path, json.dumps({"version": 1, "saved": state}, indent=1) + "\n")
    else:
        path.unlink(missing_ok=True)


@contextmanager
def settings_lock(path: Path) -> Iterator[None]:
    """Allow one set or reset at a time: two at once would each take the other's value for the original.

    Raises:
        SystemSettingError: another one is running (for longer than :data:`PATIENCE`), or the folder cannot be written.
    """
    import fcntl

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = (path.parent / f"{path.name}.lock").open("a")
    except OSError as e:
        raise SystemSettingError(f"{path.parent}: cannot be written ({e.strerror or e}); choose another --state") from e
    with lock:
        # A process that was killed gives its lock back when its last child is gone: a moment later.
        patience = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as e:
                if time.monotonic() > patience:
                    raise SystemSettingError(f"{path}: another set or reset is running; wait for it") from e
                time.sleep(0.05)
        yield
