# SPDX-License-Identifier: MIT
"""Launch files with one's own machines, GPUs, time limit and program written into them, each value checked first."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from rocm_guide.common.base import GuideError, shown

__all__ = ["LaunchError"]

# What the shipped files run, as notebook 05 writes it; the own program takes its place.
_OWN = 'train.py --out "$OUTPUT"'
_OWN_ACCELERATE = "sft.py --out runs/sft"
_NODES = re.compile(r"([0-9]{1,6})(?::([0-9]{1,6}))?")  # no digits of other scripts, which no scheduler reads
_TIME = re.compile(r"(?:(\d{1,3})-)?(\d{1,3}):([0-5]\d):([0-5]\d)")


class LaunchError(GuideError):
    """A launch that cannot be, or did not end well."""


def _node_range(nodes: str) -> tuple[int, int]:
    found = _NODES.fullmatch(nodes)
    low, high = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= low <= high <= 100_000:
        raise LaunchError(f"nodes={shown(repr(nodes))}: give a number as '2', or least and most as '1:2'")
    return low, high


def _replaced(text: str, old: str, new: str) -> str:
    if old not in text:
        raise LaunchError(f"the launch file has no {old!r} to fill in; restore it with git checkout")
    return text.replace(old, new)


def fill_in(
    kind: str,
    text: str,
    *,
    nodes: str | None = None,
    gpus: int | None = None,
    time: str | None = None,
    program: Sequence[str] = (),
) -> str:
    """Return the launch file ``text`` of this ``kind`` with what is given in place of what stands there.

    Args:
        kind: torchrun, slurm or accelerate.
        text: the file as it ships.
        nodes: machines: "2"; for torchrun also least and most, "1:2".
        gpus: of each machine.
        time: Slurm's time limit, ``HH:MM:SS`` or ``D-HH:MM:SS``, not zero.
        program: what each process runs instead of the course's own: ``["train.py", "--lr", "1e-4"]``.

    Raises:
        LaunchError: a value that cannot be, or one that this kind of file has no place for.

    >>> fill_in("slurm", "#SBATCH --time=04:00:00", time="1-00:00:00")
    '#SBATCH --time=1-00:00:00'
    """
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
