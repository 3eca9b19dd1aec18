# SPDX-License-Identifier: MIT
"""Measure the CPU time that each command of `rocm-guide` takes to start and do its smallest work.

    python -m benchmarks.command_start [--runs 5] [NAME ...]

CPU seconds (user and system, child processes included), the least of several runs after one that is not counted: what
else runs on the machine can only add to them. Prints a table and writes results/command_start.json with the versions
and the CPU; with names, only their lines are measured and the others stay as they are in the file.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from rocm_guide.common.base import write_text
from rocm_guide.common.host import describe_cpu, host_facts

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "tests/samples"
RECORDED = ROOT / "notebooks/recorded"
KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


def example():
    a = torch.empty(4096)
    add[(4,)](a, a, a, 4096, 1024)
"""
# name -> (its words, the most CPU seconds that it should take, where there is such an aim)
COMMANDS: dict[str, tuple[list[str], float | None]] = {
    "help": (["--help"], 0.4),
    "list": (["list"], 0.4),
    "copy": (["copy", "common.device.seed_all"], 0.4),
    "faults": (["faults", "log", str(SAMPLES / "debugging/dmesg.txt")], 0.4),
    "trace": (["trace", "summary", str(RECORDED / "decode_b32.json.gz")], 0.4),
    "launch": (["launch", "slurm"], 0.4),
    "system": (["system", "check"], 0.4),
    "fit": (["fit", "llama-3-8b"], 0.4),
    "doctor": (["doctor"], 1.0),
    "tunable check": (["tunable", "check", str(SAMPLES / "tunableop/results_torch2.11_blaslog.csv")], None),
}
# What no command can do without, measured in the same run: a busy machine or a slow disk shows here first.
FLOORS = {
    "floor: Python": "pass",
    "floor: typer": "import typer",
    "floor: torch, Triton": "import torch, triton, triton.language",
}


def cpu_seconds(words: list[str], folder: Path) -> float:
    """Return the user and system time of one call, its children included. Exit code 1 is an answer, not a failure."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, *words]
    # As in any installation, Python keeps what it compiled of the package's text.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {
        "PYTHONPATH": f"{ROOT}:{ROOT}/cdna"
    }
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()[-300:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(COMMANDS)}; all if none")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/command_start.json")
    given = parser.parse_args()
    if unknown := set(given.names) - set(COMMANDS):
        parser.error(f"no such command: {', '.join(sorted(unknown))}")
    rows = json.loads(given.out.read_text())["commands"] if given.names and given.out.exists() else {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "kernel.py").write_text(KERNEL)
        code = "import sys\nfrom pathlib import Path\n"
        code += "from cdna.dry_run.driver import dry_run\n"
        code += "sys.path.insert(0, '.')\nwith dry_run('gfx942') as run:\n    import kernel\n    kernel.example()\n"
        code += "Path('kernel.s').write_text(run.launches[0].compiled.assembly)\n"
        subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
        print(f"{'command':<24}{'CPU s':>8}{'spread':>8}{'aim':>8}")
        names = given.names or list(COMMANDS)
        # The longest of the floors is that of the one command which imports torch.
        floors = [name for name in FLOORS if "torch" not in name]
        for name in [*floors, *names]:
            words, aim = COMMANDS.get(name, ([], None))
            line = ["-m", "rocm_guide.cli.main", *words] if words else ["-c", FLOORS[name]]
            cpu_seconds(line, folder)
            took = sorted(cpu_seconds(line, folder) for _ in range(given.runs))
            shown = [Path(w).name for w in words] or line
            rows[name] = {"words": shown, "cpu_s": [round(t, 3) for t in took], "aim_s": aim}
            most = f"{aim:>8.1f}" if aim else f"{'':>8}"
            print(f"{name:<24}{took[0]:>8.2f}{took[-1] - took[0]:>8.2f}{most}", flush=True)
    versions = {n: importlib.metadata.version(n) for n in ("torch", "triton", "transformers", "typer", "rich")}
    stamp = {"hardware": describe_cpu(), "host": host_facts(), "versions": versions}
    what = "CPU seconds of each command, children included; sorted runs, take the first"
    write_text(
        given.out, json.dumps({"question": what, **stamp, "runs": given.runs, "commands": rows}, indent=1) + "\n"
    )
    print(f"{describe_cpu()}; {', '.join(f'{k} {v}' for k, v in versions.items())}")


if __name__ == "__main__":
    main()
