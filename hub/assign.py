# SPDX-License-Identifier: MIT
"""Who has which device and who waits, in a file that survives the hub.

One file, rewritten whole under a lock. A place in the queue is kept for a while, so that a learner who looks again has
not lost it, and one who went away does not hold up the others.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hub.devices import Device
from rocm_guide.common.base import GuideError, own_folder, read_regular, shown, write_text

__all__ = ["Answer", "Assignments", "HubError"]

#: Seconds for which a place in the queue is kept when nobody asks again.
PATIENCE = 300.0


class HubError(GuideError):
    """The hub cannot do something; the line says what, and the fix.

    >>> raise HubError("state.json: cannot be written (disk full); free some space")
    Traceback (most recent call last):
        ...
    hub.assign.HubError: state.json: cannot be written (disk full); free some space
    """

    @property
    def jupyterhub_message(self) -> str:
        """Return what JupyterHub shows on the learner's page in place of "the error message was not provided"."""
        return str(self)


@dataclass(frozen=True)
class Answer:
    """The answer to a server that asked for a device: the device, or None and its place in the queue, from 1."""

    device: Device | None
    place: int = 0


@dataclass
class _Table:
    """The content of the file: server -> name of its device;
    server -> when it last asked, in the order of the queue.
    """

    held: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, float] = field(default_factory=dict)


class Assignments:
    """The table of a hub.

    Args:
        folder: where its file and its lock lie; only the hub's own user may enter it.
        devices: what there is to hand out.
        clock: seconds since any fixed time that a restart does not change.

    Raises:
        HubError: the folder cannot be made, or others can write to it.

    >>> import tempfile
    >>> gpus = [Device(0, "0000:0c:00.0", 0, 128, 192 * 10**9, 8, 304, "SPX/NPS1")]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = Assignments(Path(folder) / "state", gpus)
    ...     print(table.ask("ann").device.number, table.ask("bob").place)
    ...     table.give_back("ann")
    ...     print(table.ask("bob").device.number)
    0 1
    0
    """

    def __init__(self, folder: Path, devices: Sequence[Device], *, clock: Callable[[], float] = time.time) -> None:
        try:
            self.folder = own_folder(folder)
        except GuideError as e:
            raise HubError(str(e).replace("ROCM_GUIDE_CACHE", "ROCM_GUIDE_HUB_STATE")) from e
        self.devices = {d.name: d for d in devices}
        self.clock = clock
        self.file = self.folder / "devices.json"

    def ask(self, server: str) -> Answer:
        """Return a device for ``server``: the one that it has, a free one, or its place in the queue.

        Nobody overtakes: a free device goes to who waits first.

        Raises:
            HubError: the table cannot be written (a full disk); nothing has changed then.
        """
        with self._table() as table:
            if table.held.get(server) in self.devices:
                return Answer(self.devices[table.held[server]])
            table.waiting[server] = self.clock()
            place = list(table.waiting).index(server)
            free = [d for name, d in self.devices.items() if name not in table.held.values()]
            if place < len(free):
                # The GPU with the most free partitions: two learners share a GPU's memory traffic as late as possible.
                device = max(free, key=lambda d: (sum(d.gpu == other.gpu for other in free), -d.number))
                del table.waiting[server]
                table.held[server] = device.name
                return Answer(device)
            return Answer(None, place - len(free) + 1)

    def give_back(self, server: str, *, place: bool = True) -> None:
        """Free the device of ``server``, which has stopped; with ``place`` its place in the queue, too."""
        with self._table() as table:
            table.held.pop(server, None)
            if place:
                table.waiting.pop(server, None)

    def recover(self, running: Mapping[str, str]) -> list[str]:
        """Take devices back after a restart of the hub: only what runs holds one.
        Return one line for each thing that had to be mended.

        Args:
            running: server -> name of the device that its spawner remembers; every server that runs is in it.
        """
        said = []
        with self._table() as table:
            for server in [s for s in table.held if s not in running]:
                said.append(f"{shown(server)} does not run any more: {table.held.pop(server)} is free again")
            for server, name in running.items():
                taken = next((s for s, n in table.held.items() if n == name and s != server), None)
                if taken:
                    said.append(f"{shown(server)} and {shown(taken)} share {shown(name)}: restart one of their servers")
                elif name and table.held.get(server) != name:
                    table.held[server] = name
                    said.append(f"{shown(server)} still runs: {shown(name)} is held for it")
            gone = [(s, n) for s, n in table.held.items() if n not in self.devices]
            said += [f"{shown(s)} has {shown(n)}, which is gone (another mode?): restart its server" for s, n in gone]
        return said

    def held(self) -> dict[str, str]:
        """Return server -> name of its device, of every server that has one."""
        with self._table(change=False) as table:
            return dict(table.held)

    def waiting(self) -> list[str]:
        """Return the servers that wait, the first one first."""
        with self._table(change=False) as table:
            return list(table.waiting)

    @contextlib.contextmanager
    def _table(self, *, change: bool = True) -> Iterator[_Table]:
        """Give the table under the lock; it is written back when the block ends well."""
        descriptor = os.open(self.folder / "devices.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            table = self._read()
            late = self.clock() - PATIENCE
            table.waiting = {s: t for s, t in table.waiting.items() if t >= late}
            yield table
            if change:
                data = {"held": table.held, "waiting": table.waiting}
                try:
                    write_text(self.file, json.dumps(data, indent=1))
                except GuideError as e:
                    raise HubError(f"{str(e).partition(';')[0]}; no device was assigned: free some space there") from e
        finally:
            os.close(descriptor)

    def _read(self) -> _Table:
        try:
            data = json.loads(read_regular(self.file, 10_000_000))
            held = {str(k): str(v) for k, v in data["held"].items()}
            waiting = {str(k): float(v) for k, v in data["waiting"].items()}
        except FileNotFoundError:
            return _Table()
        except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as e:
            # Handing out devices that others may have would be worse than handing out none.
            why = shown(e, 80)
            fix = "stop the hub, delete the file and start the hub: it asks the servers that run"
            raise HubError(f"{shown(self.file)}: not the table of devices ({why}); {fix}") from e
        return _Table(held, waiting)
