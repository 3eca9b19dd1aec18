# SPDX-License-Identifier: MIT
"""A real hub in a folder of its own with pretended GPUs: started, killed, ended, and what each learner takes."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from hub.pretend import pretend_hub_machine
from hub.spawning import folder_of
from tests.hub.learner import Learner

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-hub/bin/python"
MISSING = "JupyterHub is not installed; make hub installs and starts one"


def hub_is_installed() -> bool:
    return (ROOT / ".venv-hub/installed").exists()


def free_ports() -> int:
    """The first of three ports at the distances that the configuration takes: the site, the proxy's own, the hub's."""
    for port in range(20_000 + os.getpid() % 10_000, 60_000, 97):
        with contextlib.ExitStack() as opened:
            try:
                for other in (port, port + 1, port + 81):
                    opened.enter_context(socket.socket()).bind(("127.0.0.1", other))
            except OSError:
                continue
        return port
    raise AssertionError("no three ports are free")


def environment_of_process(entry: Path) -> list[bytes]:
    """NAME=VALUE of a process by its folder in /proc; nothing for one that has ended."""
    try:
        return (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def proportional_memory(pid: int) -> int:
    """Bytes of a process, memory that it shares divided by those who share it (PSS); 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and of its children that have ended; 0 if it has ended itself."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


class Hub:
    """A hub of the project's own configuration. Its processes carry its folder in their environment."""

    config = ROOT / "hub/jupyterhub_config.py"
    inside: tuple[str, ...] = ()  # the command that the hub is an argument of

    def __init__(self, folder: Path, gpus: int, compute: str = "SPX") -> None:
        machine = pretend_hub_machine(folder, gpus=gpus, compute=compute)
        self.state, self.port = folder / "state", free_ports()
        self.url = f"http://127.0.0.1:{self.port}"
        given = {
            "STATE": self.state,
            "URL": self.url,
            "ROOT": machine.root,
            "PYTHON": sys.executable,
            "ADMINS": "teacher",
        }
        self.env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        self.env |= {f"ROCM_GUIDE_HUB_{k}": str(v) for k, v in given.items()}
        self.log = folder / "hub.log"
        self.start()

    def start(self) -> None:
        command = [*self.inside, str(PYTHON), "-m", "jupyterhub", "-f", str(self.config)]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                command, env=self.env, stdout=log, stderr=log, cwd=self.state.parent, start_new_session=True
            )
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/hub/health", trust_env=False).status_code == 200:
                    return
            time.sleep(0.2)
        raise AssertionError(f"the hub did not start: {self.said()[-3000:]}")

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def password(self) -> str:
        return (self.state / "password").read_text()

    def learner(self, name: str) -> Learner:
        return Learner(self.url, name, self.password)

    def admin(self) -> Learner:
        return Learner(self.url, "teacher", (self.state / "admin_password").read_text())

    def home(self, name: str) -> Path:
        return self.state / "homes" / folder_of(name)

    def processes(self, name: str | None = None) -> Iterator[int]:
        """The processes of a learner, or without a name the hub's own: itself, its proxy, what stops idle servers."""
        mark = f"ROCM_GUIDE_HUB_STATE={self.state}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            variables = environment_of_process(entry)
            if f"HOME={self.home(name)}".encode() in variables if name else mark in variables:
                yield int(entry.name)

    def memory(self, name: str | None = None) -> int:
        """Bytes (PSS) of all processes of a learner, or without a name of the hub itself."""
        return sum(map(proportional_memory, self.processes(name)))

    def cpu(self, name: str) -> float:
        """Seconds of CPU time that the processes of a learner have taken."""
        return sum(map(cpu_seconds, self.processes(name)))

    def kill(self) -> None:
        """As when the machine's memory is full: the hub alone, at once."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """End every process that this hub has started."""
        mark = f"ROCM_GUIDE_HUB_STATE={self.state}".encode()
        home = f"HOME={self.state}/".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            variables = environment_of_process(entry)
            if mark in variables or any(v.startswith(home) for v in variables):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(entry.name), signal.SIGKILL)
        self.process.wait()
