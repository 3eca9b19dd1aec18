# SPDX-License-Identifier: MIT
"""A notebook's script where the course cannot be imported, in a fork of a process that has its libraries imported.

Importing torch, transformers and TRL takes longer than most of what the scripts do in the tests. Each script still runs
in a process of its own, which ends with it.
"""

import os
import runpy
import sys
from pathlib import Path

from tests.forks import Fork, start_fork

ROOT = Path(__file__).parents[3]


def main() -> int:
    """Run ``python SCRIPT WORDS``, which are ``sys.argv[1:]``, in this process; the course cannot be imported there."""
    for name in [n for n in sys.modules if n.partition(".")[0] in ("rocm_guide", "cdna", "tests")]:
        del sys.modules[name]
    sys.modules["rocm_guide"] = sys.modules["cdna"] = None  # type: ignore[assignment]  # to import them is an error
    del sys.argv[0]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as e:
        if not isinstance(e.code, str):
            raise
        print(e.code, file=sys.stderr)
        return 1
    return 0


def environment(folder: Path, *path: Path) -> dict[str, str]:
    """Return the variables of a script: no network, no GPU, its cache in ``folder``, and ``path`` to import from."""
    gone = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    return {k: v for k, v in os.environ.items() if k not in gone and not k.startswith("PYTEST_")} | {
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HIP_VISIBLE_DEVICES": "",
        "GPTQMODEL_DISABLE_PACK_EXT": "1",  # it would compile a helper for half a minute
    }


def start(folder: Path, words: list[str], libraries: list[str], own: Path | None = None, err: str = "err") -> Fork:
    """Start ``python WORDS`` in ``folder``; what it says goes to the files ``out`` and ``err`` there.

    Args:
        libraries: what is imported before; with other ones another process is made ready.
        own: a folder of libraries beside the ordinary ones.
        err: another name for the second file; ``out`` brings both streams together, as a terminal does.
    """
    settings = environment(folder, ROOT, ROOT / "cdna", *[own] * (own is not None))
    streams = {"out": folder / "out", "err": folder / err}
    for file in streams.values():
        file.write_text("")
    return start_fork(libraries, __name__, words, settings=settings, folder=folder, **streams)


def run(folder: Path, words: list[str], libraries: list[str], own: Path | None = None) -> tuple[int, str, str]:
    """Return the exit code of ``python WORDS`` in ``folder``, and what it wrote to its two streams."""
    code = start(folder, words, libraries, own).wait(600)
    return code, (folder / "out").read_text(), (folder / "err").read_text()
