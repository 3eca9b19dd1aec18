# SPDX-License-Identifier: MIT
"""Foundations that every module may import: the error that users see, the cache, files written whole or not at all."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

__all__ = [
    "InputError",
    "atomic_file",
    "cache_folder",
    "check_private",
    "lazy_names",
    "open_regular",
    "own_folder",
    "printable",
    "read_regular",
    "write_bytes",
    "write_text",
]


def printable(text: object, limit: int = 200) -> str:
    r"""Return text from outside as it may be printed: one line, no control character, no more than ``limit``
    characters.

    What is not printable (escape sequences, line breaks, lone surrogates, marks that turn the direction of writing)
    becomes its Python escape; of a long text the middle is left out.

    >>> printable("gemm\x1b[2J\n[OK]   all is well")
    'gemm\\x1b[2J\\n[OK]   all is well'
    >>> printable("a" * 1000, 20)
    'aaaaaaaaaaaaa…aaaaaa'
    """
    line = str(text)
    if len(line) > limit:
        tail = limit // 3 + 1
        line = f"{line[: limit - tail]}…{line[len(line) - tail + 1 :]}"
    return line if line.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


class InputError(ValueError):
    """Bad input, said in one line that names the value and the fix.

    The command line prints the line and exits with code 2. Modules derive their own named errors from it. Line breaks
    become spaces; values from outside are escaped and a long text is shortened, see :func:`printable`.

    >>> raise InputError("rank=0: a LoRA rank is a positive integer, for example 16")
    Traceback (most recent call last):
        ...
    cdna.base.InputError: rank=0: a LoRA rank is a positive integer, for example 16
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(printable(" ".join(str(message).splitlines()), 1500))


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a path to write to in a ``with`` block; what it holds at the end becomes ``path``, whole or not at all.

    For libraries that want a file name. A regular file is replaced by a rename and keeps its permissions; of a symbolic
    link the target is replaced. Devices and pipes are written to. Missing folders are made.

    Raises:
        InputError: ``path`` cannot be written (no permission, a file in the way, disk full).

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_file(Path(folder) / "a.txt") as part:
    ...         _ = part.write_text("complete")
    ...     (Path(folder) / "a.txt").read_text(), len(list(Path(folder).iterdir()))
    ('complete', 1)
    """
    part: Path | None = None
    try:
        old = Path(path).stat() if Path(path).exists() else None
        if old is not None and not stat.S_ISREG(old.st_mode):
            with tempfile.TemporaryDirectory() as folder, open(path, "wb", buffering=0) as device:
                yield (filled := Path(folder) / (Path(path).name or "out"))
                with filled.open("rb") as f:
                    shutil.copyfileobj(f, device)
            return
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        # In the folder of the target, so that a rename is enough; unique to this call; the suffix decides what some
        # libraries write. A new file gets the mode that any new file gets (mkstemp would make it private).
        part = target.with_name(f".{target.stem[:60]}.{os.getpid()}-{secrets.token_hex(4)}.tmp{target.suffix}")
        mode = 0o666 if old is None else stat.S_IMODE(old.st_mode) & 0o777
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
        yield part
        with part.open("rb") as f:
            if old is not None:
                with contextlib.suppress(PermissionError):  # a file that is ours by its group only
                    os.fchown(f.fileno(), old.st_uid, old.st_gid)
                os.fchmod(f.fileno(), mode)
            os.fsync(f.fileno())
        part.replace(target)
    except OSError as e:
        where = printable(os.fspath(path) or "''")
        raise InputError(f"{where}: cannot be written ({e.strerror or e}); choose a folder you can write to") from e
    finally:
        if part is not None:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


def write_bytes(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write ``data`` to ``path`` so that no reader ever sees half of it; see :func:`atomic_file`. Returns the path.

    Raises:
        InputError: the file cannot be written (no permission, a file in the way, disk full).
    """
    with atomic_file(path) as part:
        part.write_bytes(data)
    return Path(path)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write UTF-8 text as :func:`write_bytes` does; what UTF-8 cannot hold (a lone surrogate) is written as its escape.

    >>> with tempfile.TemporaryDirectory() as d:
    ...     write_text(Path(d) / "new" / "a.txt", "whole").read_text()
    'whole'
    """
    return write_bytes(path, text.encode(errors="backslashreplace"))


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading, and refuse what is none: a device never ends, and a pipe waits for its writer.

    Raises:
        OSError: missing, no permission, or not a regular file; each reader says so with its own fix.
    """
    # Without O_NONBLOCK the opening of a pipe would wait for a writer before it could be looked at.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "not a regular file")
    return os.fdopen(descriptor, "rb")


def read_regular(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the bytes of a regular file. What counts is what is read: the size that a file system reports may be
    anything.

    Raises:
        OSError: as :func:`open_regular`, or more than ``limit`` bytes.
    """
    with open_regular(path) as f:
        data = f.read(limit + 1)
    if len(data) > limit:
        raise OSError(None, f"larger than {limit // 1_000_000:,} MB")
    return data


def cache_folder(program: str = "cdna") -> Path:
    """Return where ``program`` keeps what it builds: ``CDNA_CACHE``, else ``cdna`` in the user's cache folder.

    >>> os.environ["ANOTHER_ONE_CACHE"] = "/scratch/another"
    >>> cache_folder("another-one").as_posix()
    '/scratch/another'
    """
    if named := os.environ.get(f"{program.upper().replace('-', '_')}_CACHE"):
        return Path(named).expanduser()
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / program
    except RuntimeError:  # no HOME, and no entry in the password file either
        return Path(tempfile.gettempdir()) / f"{program}-{os.geteuid()}"


@functools.cache
def _others_in(group: int) -> bool:
    """Return whether a group has members besides this user; group 0 is root's."""
    import grp
    import pwd

    everyone = pwd.getpwall()
    mine = {p.pw_name for p in everyone if p.pw_uid in (0, os.geteuid())}
    users = {p.pw_name for p in everyone if p.pw_gid == group}
    with contextlib.suppress(KeyError):
        users.update(grp.getgrgid(group).gr_mem)
    return group != 0 and (bool(users - mine) or group not in (os.getegid(), *os.getgroups()))


def _outside_owner() -> int | None:
    """Return the number of every owner from outside this user namespace (rootless containers, Apptainer)."""
    try:
        mapped = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
        number = int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return None
    return None if any(int(first) <= number < int(first) + int(n) for first, _, n in mapped) else number


def check_private(path: str | os.PathLike[str], setting: str = "CDNA_CACHE") -> Path:
    """Return ``path`` if nobody but this user and root can have written it or can replace it; what is missing is fine.

    For everything that is executed or unpickled, and lies where others might reach: a library, a checkpoint, a folder
    for ``sys.path``. The owner of the file and of every folder above it must be this user or root, and no other user
    may write there; folders above it may be open to all when they are sticky, as /tmp is. ``setting`` is the variable
    that moves the folder, for the message.

    Raises:
        InputError: somebody else could have put it there; nothing was read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     check_private(folder) == Path(folder)
    True
    """
    full, trusted, outside = Path(path).absolute(), (0, os.geteuid()), _outside_owner()
    for end in dict.fromkeys((full, Path(os.path.realpath(full)))):
        for place in (end, *end.parents):
            try:
                found = place.lstat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            above = place != end
            link, sticky = stat.S_ISLNK(found.st_mode), above and found.st_mode & stat.S_ISVTX
            shared = found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and _others_in(found.st_gid))
            if found.st_uid not in trusted and not (above and found.st_uid == outside):
                what = f"belongs to another user (number {found.st_uid})"
            elif shared and not link and not sticky:
                what = f"other users can write to it (mode {stat.S_IMODE(found.st_mode):o})"
            else:
                continue
            fix = f"nothing in it is loaded; set {setting} to a folder of your own, or chmod go-w yours"
            raise InputError(f"{printable(place)}: {what}; {fix}")
    return Path(path)


def own_folder(path: str | os.PathLike[str], setting: str = "CDNA_CACHE") -> Path:
    """Make a folder that only this user can enter, unless it is there, and :func:`check_private` it.

    Raises:
        InputError: it cannot be made, or others can write to it.
    """
    folder = check_private(path, setting)  # before anything is made there
    try:
        for place in (*reversed(folder.parents), folder):
            if not place.is_dir():
                place.mkdir(mode=0o700, exist_ok=True)
    except OSError as e:
        fix = f"set {setting} to a folder you own"
        raise InputError(f"{printable(folder)}: cannot be made ({e.strerror or e}); {fix}") from e
    return check_private(folder, setting)


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package whose names come from its files when they are first used.

    The names are those that its ``__init__`` imports for type checkers, so they stand there once, and whoever imports
    one file of a package, as the command line does, does not wait for its neighbours.

    >>> import cdna.predict
    >>> look_up, names = lazy_names("cdna.predict")
    >>> look_up("gpu").__module__, "gpu" in names(), "gpu" in look_up("__all__")
    ('cdna.predict.specs', True, True)
    """

    @functools.cache
    def homes() -> dict[str, str]:
        tree = ast.parse(Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8"))
        found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        ours = [node for node in found if (node.module or "").startswith(f"{package}.")]
        return {alias.name: str(node.module) for node in ours for alias in node.names}

    def look_up(name: str) -> Any:
        if name == "__all__":
            return sorted(homes())
        if name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(homes()[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return look_up, lambda: sorted({*vars(sys.modules[package]), *homes()})
