# SPDX-License-Identifier: MIT
"""Set, check and reset what a machine needs for steady results, and leave it as it was.

The previous value of every setting is on disk before the setting is touched. Whatever happens in between (an error,
a kill, a second ``set``), ``reset`` finds the value from before the first change and puts it back.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rocm_guide.common.base import read_regular, write_text
from rocm_guide.observe.system.machine import Machine, Setting, SystemSettingError

__all__ = ["Outcome", "apply_settings", "load_state", "reset_settings", "state_path"]

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
        reason = getattr(e, "strerror", None) or e
        raise SystemSettingError(f"{path}: cannot be read ({reason}); run as its owner") from e
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
    """Write the values whole or not at all; without any, the file goes."""
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


@dataclass(frozen=True)
class Outcome:
    """The outcome of one setting.

    ``result``: "set" or "would set", "already", "restored" or "would restore", "changed since" (by someone else, left
    alone), "failed" (``why`` says it in one line).
    """

    key: str
    result: Literal["set", "would set", "already", "restored", "would restore", "changed since", "failed"]
    before: str = ""
    after: str = ""
    why: str = ""

    def __str__(self) -> str:
        if self.result == "failed":
            return f"[FAIL] {self.key}: {self.why}"
        if self.result == "changed since":
            return f"[WARN] {self.key}: is {self.before!r}, somebody changed it since; left alone (--force restores)"
        change = f"{self.before!r}" if self.result == "already" else f"{self.before!r} -> {self.after!r}"
        return f"[OK]   {self.key}: {self.result} {change}"


def apply_settings(
    settings: Sequence[Setting], machine: Machine, state: str | os.PathLike[str], *, dry_run: bool = False
) -> list[Outcome]:
    """Make the settings, each saved before it is changed.

    A setting that fails does not stop the others; what it was is forgotten again if it did not change. A ``dry_run``
    says what would be done. ``state`` is the file for the previous values.

    Raises:
        SystemSettingError: the state file cannot be read or written, or another run is under way.
    """
    path = Path(state)
    if dry_run:
        return [_one(s, machine, {}, path, dry_run=True) for s in settings]
    with settings_lock(path):
        saved = load_state(path)
        return [_one(s, machine, saved, path, dry_run=False) for s in settings]


def _one(setting: Setting, machine: Machine, saved: dict[str, dict[str, str]], path: Path, *, dry_run: bool) -> Outcome:
    key, wanted = setting.key, setting.wanted
    try:
        before = setting.current(machine)
        if before == wanted:
            return Outcome(key, "already", before, wanted)
        if dry_run:
            return Outcome(key, "would set", before, wanted)
        # The first value ever saved is the one to come back to; a second set only changes what we expect to find.
        older = saved.get(key)
        entry = {"before": older["before"] if older else before, "set": wanted, "pending": "yes"}
        saved[key] = entry
        save_state(path, saved)
        try:
            setting.write(machine, wanted)
        except SystemSettingError:
            if setting.current(machine) != before:
                raise  # half changed: it stays pending, and reset will restore it
            if older is None:
                del saved[key]
            else:
                saved[key] = older
            save_state(path, saved)
            raise
        entry["pending"] = ""
        save_state(path, saved)
        return Outcome(key, "set", before, wanted)
    except SystemSettingError as e:
        return Outcome(key, "failed", after=wanted, why=str(e))


def reset_settings(
    settings: Sequence[Setting],
    machine: Machine,
    state: str | os.PathLike[str],
    *,
    dry_run: bool = False,
    force: bool = False,
) -> list[Outcome]:
    """Put back every saved value, the last change first, and forget it when it is back.

    Args:
        settings: those that exist on this machine, whatever their ``wanted``; matched with the state by key.
        force: also restore what somebody else has changed since.

    Raises:
        SystemSettingError: the state file cannot be read or written, or another run is under way.

    >>> import tempfile
    >>> from rocm_guide.observe.system.pretend import photograph, pretend_machine
    >>> from rocm_guide.observe.system.machine import every_setting, wanted_settings
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     machine, state = pretend_machine(Path(folder), gpus=1), Path(folder) / "s.json"
    ...     before = photograph(machine)
    ...     _ = apply_settings(wanted_settings(machine), machine, state)
    ...     [o.result for o in reset_settings(every_setting(machine), machine, state)], photograph(machine) == before
    (['restored', 'restored'], True)
    """
    path = Path(state)
    known = {s.key: s for s in settings}
    if dry_run or not path.exists():
        return [_back(k, e, known, machine, True, force) for k, e in reversed(load_state(path).items())]
    done = []
    with settings_lock(path):
        saved = load_state(path)
        for key, entry in reversed(list(saved.items())):
            outcome = _back(key, entry, known, machine, False, force, lambda: save_state(path, saved))
            if outcome.result in ("restored", "already"):
                del saved[key]
                save_state(path, saved)
            done.append(outcome)
    return done


def _back(
    key: str,
    entry: dict[str, str],
    known: dict[str, Setting],
    machine: Machine,
    dry_run: bool,
    force: bool,
    save: Callable[[], None] = lambda: None,
) -> Outcome:
    before, was_set = entry["before"], entry["set"]
    if key not in known:
        return Outcome(key, "failed", after=before, why=f"not on this machine any more; it was {before!r}")
    setting = known[key]
    try:
        now = setting.current(machine)
        # A change that was cut off may look right and be half done: it is made again.
        if now == before and not entry["pending"]:
            return Outcome(key, "already", now, before)
        if now != was_set and not force and not entry["pending"]:
            return Outcome(key, "changed since", now, before)
        if dry_run:
            return Outcome(key, "would restore", now, before)
        entry["pending"] = "yes"
        save()
        setting.write(machine, before)
        return Outcome(key, "restored", now, before)
    except SystemSettingError as e:
        return Outcome(key, "failed", after=before, why=str(e))
