# SPDX-License-Identifier: MIT
"""Hooks of JupyterHub's spawners before a server starts and after it has stopped: a device comes and goes.

:func:`with_device` adds it to any spawner class (local processes, systemd, Docker, Slurm); nothing here imports
JupyterHub, so that the course's environment needs none.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import re
import sqlite3
import string
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hub.assign import Assignments, HubError
from hub.devices import Device
from rocm_guide.common.base import GuideError, shown

__all__ = ["NoDeviceFree", "environment_of", "folder_of", "limits", "running_servers", "with_device"]

_PLAIN = set(string.ascii_lowercase + string.digits)


class NoDeviceFree(HubError):
    """Nothing came free in the time that a learner waits."""

    def __init__(self, place: int, total: int) -> None:
        line = (
            f"All {total} GPU devices are in use, and {_people(place - 1)} before you. Your place is kept for five "
            "minutes: start your server again to keep waiting."
        )
        super().__init__(line)


def _people(count: int) -> str:
    return {0: "nobody is", 1: "one learner is"}.get(count, f"{count} learners are")


def folder_of(user: str) -> str:
    """Return a name for a user's folder: plain letters and digits stay, everything else is written as numbers.

    No two users get the same one, and none leads out of the folder that they lie in.

    >>> folder_of("ann"), folder_of("../x"), folder_of("a_B")
    ('ann', '_2e__2e__2f_x', 'a_5f__42_')
    """
    return "".join(c if c in _PLAIN else "".join(f"_{b:02x}_" for b in c.encode()) for c in user) or "_"


def environment_of(device: Device | None, total: int) -> dict[str, str]:
    """Return the variables of a server: the one device it may use, or none at all where the hub has some.

    >>> environment_of(None, 8)["ROCR_VISIBLE_DEVICES"]
    ''
    >>> environment_of(None, 0)
    {}
    """
    if not total:
        return {}
    if device is None:
        return {"ROCR_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    return {"ROCR_VISIBLE_DEVICES": str(device.number), "ROCM_GUIDE_HUB_DEVICE": device.name}


def server_of(spawner: Any) -> str:
    """Return the key of a server in the table: its user, and its name if it is not the user's main one."""
    return f"{spawner.user.name}/{spawner.name}" if spawner.name else str(spawner.user.name)


async def finished(result: Any) -> None:
    """Wait for what a hook returned, if there is anything to wait for."""
    if inspect.isawaitable(result):
        await result


def with_device(base: type[Any], table: Assignments, *, wait: float = 600.0, every: float = 2.0) -> type[Any]:
    """Return a spawner class like ``base`` whose servers each get a device of ``table``, in turn.

    While a learner waits, the page that JupyterHub shows says how many are before them. The device is remembered in
    the spawner's state too, so that a hub which lost its table can rebuild it.

    Args:
        base: a subclass of JupyterHub's ``Spawner``.
        table: who has what.
        wait: seconds after which a learner is told to come back; the place is kept.
        every: seconds between two looks.
    """

    class WithDevice(base):
        environment: dict[str, Any]
        device_name = ""
        queue_place = 0
        waits_for_device = False

        async def run_pre_spawn_hook(self) -> None:
            await finished(super().run_pre_spawn_hook())
            if not table.devices:
                return
            self.waits_for_device = True
            deadline = asyncio.get_running_loop().time() + wait
            try:
                while (answer := table.ask(server_of(self))).device is None:
                    self.queue_place = answer.place
                    if asyncio.get_running_loop().time() >= deadline:
                        raise NoDeviceFree(answer.place, len(table.devices))
                    await asyncio.sleep(every)
            finally:
                self.waits_for_device = False
                self.queue_place = 0
            self.device_name = answer.device.name
            self.environment = {**self.environment, **environment_of(answer.device, len(table.devices))}
            use_device(self, answer.device)

        async def run_post_stop_hook(self) -> None:
            await finished(super().run_post_stop_hook())
            self.device_name = ""
            # JupyterHub stops what did not start, too: who still waits has not lost the place.
            table.give_back(server_of(self), place=False)

        async def progress(self) -> AsyncIterator[dict[str, Any]]:
            said = -1
            while self.waits_for_device:
                if self.queue_place and self.queue_place != said:
                    said = self.queue_place
                    line = f"All {len(table.devices)} GPU devices are in use; {_people(said - 1)} before you."
                    yield {"progress": 5, "message": line}
                await asyncio.sleep(every / 2)
            if self.device_name:
                yield {"progress": 30, "message": f"You have {self.device_name}; your server starts."}
            async for event in super().progress():
                yield event

        def get_state(self) -> dict[str, Any]:
            return {**super().get_state(), "device_name": self.device_name}

        def load_state(self, state: dict[str, Any]) -> None:
            super().load_state(state)
            self.device_name = str(state.get("device_name", ""))

        def clear_state(self) -> None:
            super().clear_state()
            self.device_name = ""

    WithDevice.__name__ = f"{base.__name__}WithDevice"
    return WithDevice


def use_device(spawner: Any, device: Device) -> None:
    """Let the spawner close the other devices to the learner where it can: a variable is no lock."""
    files = ["/dev/kfd", device.file]
    if hasattr(spawner, "extra_host_config"):  # DockerSpawner
        given = dict(spawner.extra_host_config)
        spawner.extra_host_config = {**given, "devices": [f"{f}:{f}:rwm" for f in files]}
        # Inside there is one device, and it is the first.
        spawner.environment = {**spawner.environment, "ROCR_VISIBLE_DEVICES": "0"}


def limits(memory: str, cores: float) -> tuple[str, float]:
    """Check the limits of a learner as the configuration gives them: memory as "4G" or "800M", cores above zero.

    Raises:
        GuideError: not such a value.

    >>> limits("4G", 2)
    ('4G', 2)
    """
    if not re.fullmatch(r"[1-9]\d*[MG]", memory):
        raise GuideError(f"ROCM_GUIDE_HUB_MEMORY={memory!r}: memory of a learner, for example 4G or 800M")
    if not 0 < cores <= 1024:
        raise GuideError(f"ROCM_GUIDE_HUB_CORES={cores:g}: CPU cores of a learner, for example 2")
    return memory, cores


def running_servers(database: Path) -> dict[str, str]:
    """Return server -> name of its device, of every server that ran when the hub last wrote its database.

    A file that is not there, or that no hub has filled yet, has none.

    >>> running_servers(Path("/nonexistent/jupyterhub.sqlite"))
    {}
    """
    if not database.is_file():
        return {}
    query = "SELECT u.name, s.name, s.state FROM spawners s JOIN users u ON s.user_id = u.id WHERE s.server_id NOTNULL"
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True)) as opened:
            rows = opened.execute(query).fetchall()
        found = {}
        for user, server, state in rows:
            device = json.loads(state or "{}").get("device_name", "")
            found[f"{user}/{server}" if server else str(user)] = str(device)
    except (sqlite3.Error, ValueError, TypeError, AttributeError, RecursionError) as e:
        if isinstance(e, sqlite3.OperationalError) and str(e).startswith("no such table"):  # a hub that never came up
            return {}
        # Without knowing who has which, a device would be given twice.
        fix = "end what else has it open; or move it away, learners then log in anew"
        raise HubError(f"{shown(database)}: cannot be read as a hub's database ({shown(e, 80)}); {fix}") from e
    return found
