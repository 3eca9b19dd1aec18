# SPDX-License-Identifier: MIT
"""Launch files for several machines; two "machines" on this one, each a torchrun agent that can be lost; their logs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocm_guide.common.base import package_folder, write_text
from rocm_guide.finetune.all_reduce import require_loopback
from rocm_guide.finetune.launch_options import LaunchError, fill_in

__all__ = ["LaunchError", "agent_command", "free_port", "launch_file", "listening"]
__all__ += ["read_losses", "read_processes", "start_node", "wait_for"]

#: Files that can be submitted, by the word that `rocm-guide launch` takes.
LAUNCH_FILES = {
    "torchrun": "launch_torchrun.sh",
    "slurm": "launch_slurm.sbatch",
    "accelerate": "launch_accelerate_fsdp.yaml",
}


def launch_file(
    kind: str,
    *,
    nodes: str | None = None,
    gpus: int | None = None,
    time: str | None = None,
    program: Sequence[str] = (),
) -> str:
    """Return the text of a launch file: ``torchrun`` (run it on every machine), ``slurm`` (submit it),
    ``accelerate`` (YAML).

    The options are those of :func:`~rocm_guide.finetune.launch_options.fill_in`; the file as it ships if there is
    none.

    Raises:
        LaunchError: another kind, or an option that cannot be.

    >>> launch_file("slurm").splitlines()[0]
    '#!/bin/bash'
    """
    from importlib.resources import files

    if kind not in LAUNCH_FILES:
        raise LaunchError(f"{kind!r}: there is no such launch file; choose from {', '.join(LAUNCH_FILES)}")
    # Spelt out one by one, so that `rocm-guide copy` sees which files belong to this function.
    if kind == "torchrun":
        text = files("rocm_guide").joinpath("data", "launch_torchrun.sh").read_text(encoding="utf-8")
    elif kind == "slurm":
        text = files("rocm_guide").joinpath("data", "launch_slurm.sbatch").read_text(encoding="utf-8")
    else:
        text = files("rocm_guide").joinpath("data", "launch_accelerate_fsdp.yaml").read_text(encoding="utf-8")
    if nodes is None and gpus is None and time is None and not program:
        return text
    return fill_in(kind, text, nodes=nodes, gpus=gpus, time=time, program=program)


def free_port() -> int:
    """Return a TCP port of this machine that nobody listens on now.

    >>> 1024 <= free_port() <= 65535
    True
    """
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def listening(port: int) -> bool:
    """Return whether somebody on this machine answers at ``port``: the rendezvous, once the first agent keeps it.

    >>> listening(free_port())
    False
    """
    with socket.socket() as s:
        s.settimeout(1)
        return s.connect_ex(("127.0.0.1", port)) == 0


def agent_command(
    arguments: Sequence[str],
    *,
    nodes: str = "1:2",
    processes: int = 1,
    port: int = 29500,
    host: str = "127.0.0.1",
    first: bool | None = None,
) -> list[str]:
    """Return the torchrun command of one machine; all machines run the same.

    Args:
        arguments: what each process runs: ``["train.py", "--out", "shared/run"]``.
        nodes: how many machines: "2", or "1:2" for a run that goes on while at least one is left.
        processes: on each machine, one for each GPU.
        port, host: where the first machine keeps the list of who takes part (the rendezvous).
        first: whether this machine keeps it; when None, torchrun sees by its address. Only "machines" that share one
            address have to be told, and may then start at the same time.

    Raises:
        LaunchError: nodes or processes that cannot be.

    >>> agent_command(["train.py"], nodes="2:4", processes=8, host="node01")[-2:]
    ['--rdzv-conf=last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=5', 'train.py']
    """
    low, _, high = nodes.partition(":")
    if not (low.isdigit() and (high or low).isdigit() and 1 <= int(low) <= int(high or low)):
        raise LaunchError(f"nodes={nodes!r}: give a number as '2', or least and most as '1:2'")
    if processes < 1:
        raise LaunchError(f"processes={processes}: at least one on each machine")
    local = ["--local-addr=127.0.0.1"] if host in ("127.0.0.1", "localhost") else []
    # The others try for this long to reach a first machine that is still starting.
    told = "" if first is None else f",is_host={str(first).lower()},read_timeout=300"
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nnodes={nodes}",
        f"--nproc-per-node={processes}",
        "--max-restarts=3",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={host}:{port}",
        "--rdzv-id=rocm-guide",
        *local,
        # A lost machine is given up after five silent seconds, and a new start waits three for others to join.
        f"--rdzv-conf=last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=5{told}",
        *arguments,
    ]


@dataclass
class LocalNode:
    """A torchrun agent with its workers, standing in for a machine. A context manager: what is left is ended."""

    agent: subprocess.Popen[bytes]
    log: Path

    def lose(self) -> int:
        """End agent and workers at once and without warning, as a power failure does; returns how many there were."""
        import psutil

        if self.agent.poll() is not None:
            return 0
        try:
            agent = psutil.Process(self.agent.pid)
            agent.suspend()  # so that it cannot start another worker while we list them
            doomed = [*agent.children(recursive=True), agent]
        except psutil.NoSuchProcess:
            return 0
        for process in doomed:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.agent.wait()
        psutil.wait_procs(doomed, timeout=10)
        return len(doomed)

    def finish(self, timeout: float = 1200) -> None:
        """Wait for a good end.

        Raises:
            LaunchError: it ended with an error, whose line is shown, or not in time.
        """
        try:
            code = self.agent.wait(timeout)
        except subprocess.TimeoutExpired as e:
            self.lose()
            raise LaunchError(
                f"{self.log.name}: no end after {timeout:g} s; its last lines say what it waits for"
            ) from e
        if code:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
            said = [x.strip() for x in lines if "Error" in x.split(":")[0] and "ChildFailed" not in x]
            raise LaunchError(f"{self.log.name}: exit code {code}: {(said or lines or ['no output'])[-1][-300:]}")

    def __enter__(self) -> LocalNode:
        return self

    def __exit__(self, *_: Any) -> None:
        self.lose()


def start_node(command: Sequence[str], log: str | Path, gpus: Sequence[int] | None = None) -> LocalNode:
    """Start a command of :func:`agent_command` in the background, with its output in the file ``log``.

    Args:
        gpus: numbers of the GPUs that this "machine" has; none of them when empty, all when None.

    Raises:
        LoopbackError: processes of this machine cannot reach each other.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d, start_node([sys.executable, "-c", "print(1)"], f"{d}/log") as node:
    ...     node.finish()
    ...     node.log.read_text()
    '1\\n'
    """
    require_loopback()
    log = Path(log)
    write_text(log, "")
    package = str(package_folder().parent)
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), package]))
    quiet = {"PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    # Seen with torch 2.13: agents that share one store wait for each other for ever when a machine joins late
    # (pytorch issue 135712 is about the same sharing).
    threads["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    seen = "" if gpus is None else ",".join(map(str, gpus))
    hidden = {} if gpus is None else {"CUDA_VISIBLE_DEVICES": seen, "HIP_VISIBLE_DEVICES": seen}
    env = {**os.environ, **quiet, **threads, "PYTHONPATH": path, **hidden}
    with log.open("ab") as out:
        return LocalNode(subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env), log)


def wait_for(condition: Callable[[], bool], *, what: str, timeout: float = 1200, every: float = 0.05) -> float:
    """Wait until ``condition()`` is true; return the seconds that it took.

    Raises:
        LaunchError: it did not within ``timeout`` seconds.

    >>> wait_for(lambda: True, what="nothing") < 1
    True
    """
    began = time.perf_counter()
    while not condition():
        if time.perf_counter() - began > timeout:
            raise LaunchError(f"waited {timeout:g} s for {what} in vain; read the logs of the agents")
        time.sleep(every)
    return time.perf_counter() - began


def read_losses(output: str | Path) -> tuple[list[int], list[float]]:
    """Read the steps and losses that a run has logged, a half-written last line left out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     _ = Path(d, "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\\n{"step": 2, "lo')
    ...     read_losses(d)
    ([1], [2.5])
    """
    rows = _logged(output)
    return [r["step"] for r in rows], [r["loss"] for r in rows]


def read_processes(output: str | Path) -> list[int]:
    """Read how many processes computed each step that a run has logged.

    >>> read_processes("no/such/run")
    []
    """
    return [r["processes"] for r in _logged(output)]


def _logged(output: str | Path) -> list[dict[str, Any]]:
    path = Path(output) / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.is_file() else []
    return [json.loads(line) for line in lines]
