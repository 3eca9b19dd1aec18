# SPDX-License-Identifier: MIT
"""The course with the other releases of Triton and numpy that pyproject.toml allows: `make worlds`.

A world is a folder of a few packages (a gigabyte at most) that stands before the ordinary environment on PYTHONPATH. It
is made once. A run that was interrupted goes on where it ended.

    python -m tests.worlds                    every world: its notebooks, then its tests
    python -m tests.worlds triton-3.8         one of them
    python -m tests.worlds triton-3.8 22 25   these notebooks alone
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
OLDEST_NUMPY = "numpy==2.0.*" if sys.version_info < (3, 13) else "numpy==2.1.*"  # 2.0 has no wheel for Python 3.13
#: Wheels of ROCm 10 bring Triton 3.8, torch 2.13 for CUDA and ROCm 7.2 brings 3.7, and torch 2.11 brings 3.6.
WORLDS = {
    "triton-3.6": ("triton==3.6.*", "numpy"),
    "triton-3.7": ("triton==3.7.*", OLDEST_NUMPY),
    "triton-3.8": ("triton==3.8.*",),
    "numpy-newest": ("numpy",),
}
#: Those that compile for gfx942 or interpret a kernel; tests/test_worlds.py holds the list against the notebooks.
NOTEBOOKS = tuple(map(str, (13, 14, 15, 16, *range(20, 26), *range(30, 36), 37, 38, 39)))
#: Of each project by itself: cdna has its own settings.
TESTS = (
    ("cdna/tests",),
    ("tests/cdna", "tests/dojo", "tests/kernels", "tests/observe/test_predict.py", "tests/tune/compilation"),
)


class WorldError(Exception):
    """A package that cannot be had here; one line."""


def world(name: str) -> dict[str, str]:
    """Make the world if it is not there, and return the environment variables with which Python runs in it.

    Raises:
        WorldError: pip cannot get a package.
    """
    folder = ROOT / "build" / "worlds" / name
    if not (folder / "made").exists():
        shutil.rmtree(folder, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
        # --no-deps: torch, whose builds name one triton each, stays that of the environment
        wanted = ["--no-deps", "--only-binary", ":all:", "--target", str(folder), *WORLDS[name]]
        done = subprocess.run([*pip, *wanted], capture_output=True, text=True)
        if done.returncode:
            why = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["no reason given"]
            raise WorldError(f"{' '.join(WORLDS[name])} cannot be had: {why[-1]}")
        (folder / "made").touch()
    # Compiled kernels and results of one Triton are not those of another; its own cache key knows that, ours too.
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT, ROOT / "cdna")))}


def versions(environment: dict[str, str]) -> str:
    """Return the versions that a process in this world imports, and from where: ``triton 3.8.0, numpy 2.2.6``."""
    code = "import triton, numpy; print(f'triton {triton.__version__}, numpy {numpy.__version__}')"
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, stdout=-1, text=True
    ).stdout.strip()


def run_notebooks(
    name: str,
    environment: dict[str, str],
    numbers: tuple[str, ...] = NOTEBOOKS,
    jobs: int = 2,
) -> int:
    """Run notebooks in a world, those that are done left out; return the exit code of ``rocm-guide run``."""
    out = ROOT / "build" / "worlds" / f"{name}-runs"
    command = ["rocm_guide.cli.main", "run", *numbers, "--resume", "--jobs", str(jobs), "--out", str(out)]
    return subprocess.run([sys.executable, "-m", *command], env=environment, cwd=ROOT).returncode


def run_tests(environment: dict[str, str]) -> int:
    """Run the tests of what compiles and interprets; return pytest's exit code."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal"]
    return max(subprocess.run([*command, *paths], env=environment, cwd=ROOT).returncode for paths in TESTS)


def main(arguments: list[str]) -> int:
    """Run the worlds that are named, or all; the exit code is 1 if anything failed in one of them."""
    named = [a for a in arguments if not a.isdigit()]
    numbers = tuple(a for a in arguments if a.isdigit())
    if unknown := [n for n in named if n not in WORLDS]:
        print(f"{unknown[0]!r} is no world: choose from {', '.join(WORLDS)}", file=sys.stderr)
        return 2
    failed = []
    for name in named or WORLDS:
        try:
            environment = world(name)
        except WorldError as e:
            print(f"{name}: {e}", file=sys.stderr)
            failed.append(name)
            continue
        print(f"{name}: {versions(environment)}", flush=True)
        wrong = run_notebooks(name, environment, numbers or NOTEBOOKS)
        wrong = wrong or (0 if numbers else run_tests(environment))
        failed += [name] * bool(wrong)
    print(f"failed: {', '.join(failed)}" if failed else "all worlds are right")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
