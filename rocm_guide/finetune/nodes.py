# SPDX-License-Identifier: MIT
"""Launch files for several machines; two "machines" on this one, each a torchrun agent that can be lost; their logs."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from rocm_guide.common.base import GuideError, package_folder, shown, write_text
from rocm_guide.finetune.all_reduce import require_loopback

__all__ = [
    "LaunchError",
    "agent_command",
    "free_port",
    "launch_file",
    "read_losses",
    "read_processes",
    "start_node",
    "wait_for",
]

# What the shipped files run, as notebook 05 writes it; the own program takes its place.
_OWN = 'train.py --out "$OUTPUT"'
_OWN_ACCELERATE = "sft.py --out runs/sft"
_NODES = re.compile(r"([0-9]{1,6})(?::([0-9]{1,6}))?")  # no digits of other scripts, which no scheduler reads
_TIME = re.compile(r"(?:(\d{1,3})-)?(\d{1,3}):([0-5]\d):([0-5]\d)")


class LaunchError(GuideError):
    """A launch that cannot be, or did not end well."""


def _node_range(nodes: str) -> tuple[int, int]:
    """Return the least and the most machines."""
    found = _NODES.fullmatch(nodes)
    low, high = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= low <= high <= 100_000:
        raise LaunchError(f"nodes={shown(repr(nodes))}: give a number as '2', or least and most as '1:2'")
    return low, high


def _replaced(text: str, old: str, new: str) -> str:
    if old not in text:
        raise LaunchError(f"the launch file has no {old!r} to fill in; restore it with git checkout")
    return text.replace(old, new)


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
    """Return a launch file: ``torchrun`` (run it on every machine), ``slurm`` (submit it), ``accelerate`` (YAML).

    It is the file as it ships, with what is given in place of what stands there.

    Args:
        nodes: machines: "2"; for torchrun also least and most, "1:2".
        gpus: of each machine.
        time: Slurm's time limit, ``HH:MM:SS`` or ``D-HH:MM:SS``, not zero.
        program: what each process runs instead of the course's own: ``["train.py", "--lr", "1e-4"]``.

    Raises:
        LaunchError: another kind, a value that cannot be, or one that this kind of file has no place for.

    >>> launch_file("slurm").splitlines()[0]
    '#!/bin/bash'
    >>> "#SBATCH --time=1-00:00:00" in launch_file("slurm", time="1-00:00:00")
    True
    """
    if kind not in LAUNCH_FILES:
        raise LaunchError(f"{kind!r}: there is no such launch file; choose from {', '.join(LAUNCH_FILES)}")
    # Spelt out one by one, so that `rocm-guide copy` sees which files belong to this function.
    if kind == "torchrun":
        text = files("rocm_guide").joinpath("data", "launch_torchrun.sh").read_text(encoding="utf-8")
    elif kind == "slurm":
        text = files("rocm_guide").joinpath("data", "launch_slurm.sbatch").read_text(encoding="utf-8")
    else:
        text = files("rocm_guide").joinpath("data", "launch_accelerate_fsdp.yaml").read_text(encoding="utf-8")
    if gpus is not None and not 1 <= gpus <= 1024:
        raise LaunchError(f"gpus={gpus}: each machine has at least one")
    if time is not None:
        found = _TIME.fullmatch(time) if time.isascii() else None
        if found is None or not any(int(g or 0) for g in found.groups()):
            raise LaunchError(f"time={shown(repr(time))}: write a limit as 04:00:00, or 1-12:00:00 with days")
        if kind != "slurm":
            raise LaunchError(f"time={time!r}: only slurm files have a time limit; leave it out with {kind}")
        text = _replaced(text, "--time=04:00:00", f"--time={time}")
    if any(not word or set(word) & set("\n\r\0") for word in program):
        raise LaunchError(
            f"program {list(program)!r}: an empty word, or one of several lines, cannot stand in a script"
        )
    if program and program[0].startswith("-") and (program[0] != "-m" or len(program) < 2):
        raise LaunchError(f"program {program[0]}: start with a script (train.py) or -m and a module")
    low, high = _node_range(nodes) if nodes is not None else (0, 0)
    own = shlex.join(program)
    if kind == "accelerate":
        return _accelerate(text, nodes, low, high, gpus, own)
    if kind == "torchrun":
        text = _replaced(text, "${NODES:-2}", f"${{NODES:-{nodes}}}") if nodes is not None else text
        text = _replaced(text, "${GPUS:-8}", f"${{GPUS:-{gpus}}}") if gpus is not None else text
    else:
        if low != high:
            raise LaunchError(f"nodes={nodes!r}: Slurm gives a fixed number of machines; write {high}")
        text = _replaced(text, "#SBATCH --nodes=2", f"#SBATCH --nodes={high}") if nodes is not None else text
        if gpus is not None:
            text = _replaced(text, "--gpus-per-node=8", f"--gpus-per-node={gpus}")
            text = _replaced(text, "SLURM_GPUS_ON_NODE:-8", f"SLURM_GPUS_ON_NODE:-{gpus}")
    if own:
        # A program of one's own takes its folder by an option that we do not know: OUTPUT is exported to it.
        text = _replaced(text, f"{_OWN} ", f"{own} ")
        ours = "training program, which `rocm-guide script 05 --out train.py` writes."
        text = text.replace(ours, "training program, which finds OUTPUT in its environment.")
        text = text.replace("export OMP_NUM_THREADS=", "export OUTPUT\nexport OMP_NUM_THREADS=", 1)
    return text


def _accelerate(text: str, nodes: str | None, low: int, high: int, gpus: int | None, own: str) -> str:
    """Fill in Accelerate's YAML file, which counts the processes of all machines together."""
    if low != high:
        raise LaunchError(f"nodes={nodes!r}: Accelerate starts a fixed number of machines; write {high}")
    machines, each = high or 1, gpus or 8
    text = _replaced(text, "num_machines: 1\n", f"num_machines: {machines}\n")
    text = _replaced(text, "num_processes: 8\n", f"num_processes: {machines * each}\n")
    if machines > 1:
        # The file now says it; only what differs from machine to machine stays on the command line.
        text = text.replace("One machine with 8 GPUs", f"{machines} machines with {each} GPUs, on each of them")
        line = f"#   accelerate launch --config_file launch_accelerate_fsdp.yaml {_OWN_ACCELERATE}"
        more = "--machine_rank 0 --main_process_ip node01 --main_process_port 29500"
        text = _replaced(text, line, line.replace("sft.py", f"\\\n#     {more} sft.py"))
        start = text.index("# Two machines, on each")
        text = (
            text[:start] + "# with --machine_rank 1, 2, … on the others.\n" + text[text.index("compute_environment") :]
        )
    elif gpus is not None:
        text = text.replace("One machine with 8 GPUs", f"One machine with {each} GPUs")
        text = text.replace("--num_processes 16", f"--num_processes {2 * each}")
    return _replaced(text, _OWN_ACCELERATE, own) if own else text


def free_port() -> int:
    """Return a TCP port of this machine that nobody listens on now.

    >>> 1024 <= free_port() <= 65535
    True
    """
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


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
    _node_range(nodes)
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


def wait_for(condition: Callable[[], bool], *, what: str, timeout: float = 1200) -> float:
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
        time.sleep(0.05)
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
