# SPDX-License-Identifier: MIT
"""torchtune in a folder of its own: `python -m rocm_guide.doctor.own_folders` makes it, once; `make course` calls that.

torchtune 0.6.1 is the last release and does not import with the torchao of today, which the quantization notebooks
need. So both stay out of the environment: they lie in one folder of the cache, and only the processes that run `tune`
have it on their path.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

from rocm_guide.base import GuideError, cache_folder, own_folder
from rocm_guide.checks import Check

__all__ = ["TuneMissingError", "check_torchtune", "torchtune_folder"]

#: What torchtune 0.6.1 needs beside the course's own libraries. torchao 0.15 is the newest that it imports with;
#: omegaconf reads its configurations and is tied to that antlr4 runtime.
REQUIREMENTS = (
    "torchtune==0.6.1",
    "torchao==0.15.0",
    "torchdata==0.11.0",
    "omegaconf==2.3.0",
    "antlr4-python3-runtime==4.9.3",
    "sentencepiece==0.2.1",
    "tiktoken==0.14.0",
    "kagglehub==0.3.13",
)
FIX = "run make course, or python -m rocm_guide.doctor.own_folders"


class TuneMissingError(GuideError):
    """torchtune's folder is not there; the message says how to make it."""


def torchtune_folder() -> Path:
    """Where torchtune lives: ``ROCM_GUIDE_TORCHTUNE``, else a folder of the cache named by versions and Python.

    Another Python, or another list of versions, is another folder; nothing is ever changed in place. Notebook 05.

    >>> torchtune_folder().name.startswith("torchtune-0.6.1-") or "ROCM_GUIDE_TORCHTUNE" in os.environ
    True
    """
    if named := os.environ.get("ROCM_GUIDE_TORCHTUNE"):
        return Path(named).expanduser()
    digest = hashlib.sha256("\n".join(REQUIREMENTS).encode()).hexdigest()[:8]
    version = REQUIREMENTS[0].partition("==")[2]
    return cache_folder() / f"torchtune-{version}-py{sys.version_info[0]}{sys.version_info[1]}-{digest}"


def check_torchtune() -> Check:
    """The doctor's line for it: which torchtune and torchao are in the folder, or how to make it. Imports neither.

    >>> check_torchtune().name
    'torchtune'
    """
    folder = torchtune_folder()
    # pip normalises the names of these folders; the dots of a version stay.
    wanted = {r.replace("-", "_").replace("==", "-") + ".dist-info" for r in REQUIREMENTS}
    have = {p.name for p in folder.glob("*.dist-info")}
    if not have:
        return Check("WARN", "torchtune", "not installed (only notebook 05 needs it)", FIX)
    if missing := sorted(name.removesuffix(".dist-info") for name in wanted - have):
        return Check("WARN", "torchtune", f"its folder lacks {', '.join(missing)}", f"delete {folder} and {FIX}")
    found = f"{REQUIREMENTS[0].partition('==')[2]} with {REQUIREMENTS[1].replace('==', ' ')}, in a folder of its own"
    return Check("OK", "torchtune", found)


def install_torchtune() -> Path:
    """Put torchtune's folder into the cache unless it is there, whole or not at all, and return it.

    Raises:
        TuneMissingError: pip could not install it, or the cache cannot be written.
    """
    folder = torchtune_folder()
    if check_torchtune().status == "OK":
        return folder
    work = folder.with_name(f"{folder.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-compile"]  # torchao is large, and few of its modules are ever imported
    try:
        own_folder(folder.parent)
        done = subprocess.run([*command, "--target", str(work), *REQUIREMENTS], capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise TuneMissingError(
                f"torchtune could not be installed ({last[:200]}); check the network and run it again"
            )
        if check_torchtune().status != "OK":  # two installations may end at once, and either result is good
            shutil.rmtree(folder, ignore_errors=True)
            work.rename(folder)
    except OSError as e:
        raise TuneMissingError(f"{folder.parent}: cannot be written ({e.strerror}); set ROCM_GUIDE_CACHE") from e
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder


def main() -> int:
    """Install it if it is missing and say so in a line; nothing is printed when all is well."""
    try:
        if check_torchtune().status != "OK":
            print("installing torchtune in a folder of its own (once)", flush=True)
            install_torchtune()
    except GuideError as e:
        print(e, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
