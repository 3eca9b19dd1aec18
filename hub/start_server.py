# SPDX-License-Identifier: MIT
"""The command that a spawner starts in place of jupyterhub-singleuser: ``python -m hub.start_server``.

It runs as the learner: hands out the notebooks and the tiny models, closes the home to others, and becomes the server.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cdna.base import own_folder
from hub.handout import hand_out
from hub.models import copy_models
from rocm_guide.common.base import GuideError, cache_folder

__all__ = ["main"]

FOLDER = "rocm-llm-guide"
#: Bytes of a Unix socket's path (unix(7): 108 with the zero at its end), and of what Jupyter adds to its folder.
_SOCKET = 107
_KERNEL = len("/kernel-00000000-0000-0000-0000-000000000000-ipc-5")


def prepare(course: Path, home: Path, *, private: bool) -> str:
    """Hand out the notebooks and close the home; gives the one line that says what happened.

    Args:
        course: the folder of notebooks.
        home: the learner's home.
        private: take the rights of others away (mode 0700).
    """
    if private:
        try:
            home.chmod(0o700)
        except OSError as e:
            print(f"{home}: stays open to others ({e.strerror})", file=sys.stderr)
    try:
        return str(hand_out(course, home / FOLDER))
    except GuideError as e:
        return f"notebooks: {e}"


def runtime_folder(home: Path, temporary: Path = Path("/tmp")) -> Path:
    """Return the folder for the sockets of kernels: Jupyter's own in the home, else a private one with a short path.

    In a home of more than 28 bytes, as clusters have them, no kernel could start: "File name too long".

    Args:
        home: the learner's home.
        temporary: where the short one is made; not TMPDIR, which is long where a job has its own.

    Raises:
        GuideError: somebody else has made the short one, or it cannot be made.

    >>> str(runtime_folder(Path("/home/ann")))
    '/home/ann/.local/share/jupyter/runtime'
    """
    usual = home / ".local/share/jupyter/runtime"
    if len(os.fsencode(usual)) + _KERNEL <= _SOCKET:
        return usual
    return own_folder(temporary / f"{FOLDER}-{os.geteuid()}", "JUPYTER_RUNTIME_DIR")


def main(arguments: Sequence[str] | None = None) -> None:
    """Prepare the home, then replace this process by the command that follows ``--``."""
    parser = argparse.ArgumentParser(prog="python -m hub.start_server", description=main.__doc__)
    parser.add_argument("--course", type=Path, required=True, metavar="FOLDER", help="the notebooks to hand out")
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="a cache whose tiny models the learner gets")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- COMMAND WORDS")
    given = parser.parse_args(arguments)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command:
        parser.error("no command: give -- jupyterhub-singleuser")
    os.umask(0o077)
    os.environ.pop(
        "PYTHONPATH", None
    )  # it was for this command; the server and its kernels have environments of their own
    home = Path.home()
    if "--KernelManager.transport=ipc" in command and "JUPYTER_RUNTIME_DIR" not in os.environ:
        try:
            os.environ["JUPYTER_RUNTIME_DIR"] = str(runtime_folder(home))
        except GuideError as e:
            parser.exit(2, f"{e}\n")
    print(prepare(given.course, home, private=True), file=sys.stderr, flush=True)
    if given.models and (copied := copy_models(given.models, cache_folder())):
        print(f"models: {len(copied)} copied from {given.models}", file=sys.stderr, flush=True)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
