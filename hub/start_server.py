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

from hub.handout import hand_out
from hub.models import copy_models
from rocm_guide.common.base import GuideError, cache_folder

__all__ = ["main"]

FOLDER = "rocm-llm-guide"


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
    print(prepare(given.course, home, private=True), file=sys.stderr, flush=True)
    if given.models and (copied := copy_models(given.models, cache_folder())):
        print(f"models: {len(copied)} copied from {given.models}", file=sys.stderr, flush=True)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
