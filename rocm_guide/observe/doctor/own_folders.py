# SPDX-License-Identifier: MIT
"""Libraries that lie in folders of their own: which, where, and how they get there.

A library does so when the environment is better without it: GPTQModel and bitsandbytes cost every notebook seconds and
a banner, because PEFT and TRL import them wherever they find them; torchtune 0.6.1, its last release, does not import
with the torchao that the quantization notebooks need; lm-evaluation-harness is fifteen packages for one notebook.
`make course` calls `python -m rocm_guide.observe.doctor.own_folders`, which installs what is missing. The quantization
notebooks add their folder to their own path (`rocm_guide.quantize.libraries`); the other two are on the path only of
the processes that run `tune` and `lm_eval`.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from cdna.checks import Check
from rocm_guide.common.base import GuideError, cache_folder, check_private, own_folder, package_folder
from rocm_guide.common.installation import clone_folder

__all__ = ["OWN_FOLDERS", "QUANTISED_READERS", "LibraryFolder", "LibraryMissingError"]


class LibraryMissingError(GuideError):
    """A folder of libraries is not there; the message says how to make it."""


def _environment_state() -> Path | None:
    """Return where `make` keeps what belongs to one environment: in its .venv, else (``VENV=none``) in the clone.

    None where there is neither: the package was installed from a wheel, and nothing is put beside it.
    """
    venv, clone = Path(sys.prefix) / "installed", clone_folder()
    return venv if venv.is_dir() else clone and clone / "build" / "own-environment"


@dataclass(frozen=True)
class LibraryFolder:
    """Libraries that lie in one folder of their own, in the versions that ``rocm_guide/data/NAME.txt`` pins.

    >>> OWN_FOLDERS["torchtune"].requirements[0]
    'torchtune==0.6.1'
    """

    name: str
    #: The two that the doctor's line shows; a process that can import the first needs no folder.
    shown: tuple[str, str]
    needed_by: str
    #: The text of ``data/NAME.txt``.
    listed: str = field(repr=False)
    #: In the cache, which environments share; else with the one environment whose processes put it on their own path
    #: (in the cache too where that has no place for it).
    in_cache: bool

    @property
    def requirements(self) -> list[str]:
        """Each NAME==VERSION of the list; what follows it are the hashes of its files on the package index."""
        return re.findall(r"^[\w.-]+==[\w.+!-]+", self.listed, re.M)

    @property
    def path(self) -> Path:
        """The folder, there or not: ``ROCM_GUIDE_TORCHTUNE`` (``ROCM_GUIDE_`` and the name), else its usual place.

        In the cache it is named by versions and Python: another list is another folder, and none is ever changed.

        >>> OWN_FOLDERS["torchtune"].path.name.startswith("torchtune-0.6.1-") or "ROCM_GUIDE_TORCHTUNE" in os.environ
        True
        """
        if named := os.environ.get(f"ROCM_GUIDE_{self.name.upper()}"):
            return Path(named).expanduser()
        state = _environment_state()
        if not self.in_cache and state:
            return state / self.name
        digest = hashlib.sha256("\n".join(self.requirements).encode()).hexdigest()[:8]
        version = self.requirements[0].partition("==")[2]
        return cache_folder() / f"{self.name}-{version}-py{sys.version_info[0]}{sys.version_info[1]}-{digest}"

    @property
    def fix(self) -> str:
        """Return what to type when it is missing."""
        make = "make course, or " if clone_folder() else ""
        return f"run {make}python -m rocm_guide.observe.doctor.own_folders {self.name}"

    def check(self) -> Check:
        """Return the doctor's line: which versions are in the folder, or how to make it. Imports none of them.

        >>> OWN_FOLDERS["torchtune"].check().name
        'torchtune'
        """
        # pip normalises the names of these folders; the dots of a version stay.
        wanted = {r.replace("-", "_").replace("==", "-") + ".dist-info" for r in self.requirements}
        have = {p.name for p in self.path.glob("*.dist-info")}
        if not have and not self.in_cache and importlib.util.find_spec(self.shown[0]):
            return Check("OK", self.name, f"{' and '.join(self.shown)} are in the environment itself")
        if not have:
            return Check("WARN", self.name, f"not installed (only for {self.needed_by})", self.fix)
        if missing := sorted(name.removesuffix(".dist-info") for name in wanted - have):
            found = f"its folder lacks {', '.join(missing)}"
            return Check("WARN", self.name, found, f"delete {self.path} and {self.fix}")
        versions = dict(r.split("==") for r in self.requirements)
        found = " with ".join(f"{name} {versions[name]}" for name in self.shown)
        return Check("OK", self.name, f"{found}, in a folder of its own".removeprefix(f"{self.name} "))

    def environment(self) -> dict[str, str]:
        """Return the environment of a process that imports from here first, then this package, then what was there.

        Raises:
            LibraryMissingError: the libraries are not installed.
        """
        status = self.check()
        if status.status != "OK":
            raise LibraryMissingError(f"{self.name}: {status.found} -> {status.fix}")
        here = package_folder().parent
        path = [str(check_private(self.path)), str(here), *filter(None, [os.environ.get("PYTHONPATH")])]
        quiet = {"PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false", "TORCH_CPP_LOG_LEVEL": "ERROR"}
        threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}  # torchrun's default, without a warning
        return {**os.environ, **quiet, **threads, "PYTHONPATH": os.pathsep.join(path)}

    def install(self) -> bool:
        """Make the folder unless it is complete, whole or not at all; whether anything was installed.

        Raises:
            LibraryMissingError: pip could not install it, or the folder cannot be written.
        """
        folder = self.path
        if self.check().status == "OK":
            return False
        work = folder.with_name(f"{folder.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check"]
        # Byte-compiling would take longer than copying, and few of the modules are ever imported.
        command += ["--no-deps", "--no-compile", "--target", str(work)]
        try:
            if folder.parent == cache_folder():
                own_folder(folder.parent)
            else:
                folder.parent.mkdir(parents=True, exist_ok=True)
            # As a file, because pip reads hashes from no other place: with them it takes no other file than those.
            with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as listed:
                listed.write(self.listed)
                listed.flush()
                done = subprocess.run([*command, "-r", listed.name], capture_output=True, text=True)
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no message"])[-1]
                built = "; pypcre is built from source: it needs a C compiler and libpcre2-8"
                fix = "check the network and run it again" + (built if "pypcre" in done.stderr else "")
                raise LibraryMissingError(f"{self.name} could not be installed ({last[:200]}); {fix}")
            if self.check().status != "OK":  # two installations may end at once, and either result is good
                shutil.rmtree(folder, ignore_errors=True)
                work.rename(folder)
        except OSError as e:
            advice = "; set ROCM_GUIDE_CACHE" if folder.parent == cache_folder() else ""
            raise LibraryMissingError(f"{folder.parent}: cannot be written ({e.strerror}){advice}") from e
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return True

    def add_to_path(self) -> bool:
        """Put the folder last on ``sys.path`` of this process; whether it was not there yet.

        Last, so that the environment's own packages go first.
        """
        folder = str(self.path)
        if folder in sys.path or not self.path.is_dir():
            return False
        sys.path.append(folder)
        return True


#: Every library that lies in a folder of its own. A new one needs a row here and its name in the Makefile.
#: Each text in one expression: a copy of what needs it carries it along.
OWN_FOLDERS = {
    folder.name: folder
    for folder in (
        LibraryFolder(
            name="quantization",
            listed=files("rocm_guide").joinpath("data", "quantization.txt").read_text("utf-8"),
            shown=("gptqmodel", "bitsandbytes"),
            needed_by="notebooks 10 to 14",
            in_cache=False,
        ),
        LibraryFolder(
            name="torchtune",
            listed=files("rocm_guide").joinpath("data", "torchtune.txt").read_text("utf-8"),
            shown=("torchtune", "torchao"),
            needed_by="notebook 06",
            in_cache=True,
        ),
        LibraryFolder(
            name="evaluation",
            listed=files("rocm_guide").joinpath("data", "evaluation.txt").read_text("utf-8"),
            shown=("lm-eval", "sacrebleu"),
            needed_by="notebook 08",
            in_cache=True,
        ),
    )
}

#: What transformers reads the quantised checkpoints of this course with, by the ``quant_method`` of their config.json.
QUANTISED_READERS = {
    "gptq": "gptqmodel",
    "awq": "gptqmodel",
    "bitsandbytes": "bitsandbytes",
    "compressed-tensors": "compressed_tensors",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Install the named folders that are missing and say so in a line each; nothing is printed when all is well."""
    parser = argparse.ArgumentParser(prog="python -m rocm_guide.observe.doctor.own_folders", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{' or '.join(OWN_FOLDERS)}; all without a name")
    parser.add_argument("--news", type=Path, metavar="FILE", help="touch FILE when something was installed")
    given = parser.parse_args(arguments)
    if unknown := [n for n in given.names if n not in OWN_FOLDERS]:
        parser.error(f"{unknown[0]!r} has no folder of its own; choose from {', '.join(OWN_FOLDERS)}")
    try:
        for folder in map(OWN_FOLDERS.__getitem__, given.names or OWN_FOLDERS):
            if folder.check().status != "OK":
                print(f"installing {folder.name} in a folder of its own (once)", flush=True)
                if folder.install() and given.news:
                    given.news.touch()
    except GuideError as e:
        print(e, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
