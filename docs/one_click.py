# SPDX-License-Identifier: MIT
"""The course on machines of others: `python -m docs.one_click OWNER/REPOSITORY`.

Colab, Codespaces and Binder open a repository by its address on GitHub, which only the one who publishes the course
knows. This command writes it where it is needed: a row of links in README, and in each notebook a line of links at the
end of the first cell, with a cell for Colab behind it. It may be called again, with the same address or another.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rocm_guide.common.base import GuideError, write_text

__all__ = ["OneClickError", "with_links", "write_links"]

ROOT = Path(__file__).parents[1]
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}")
_ROW = re.compile(r"<!-- one-click -->.*?<!-- /one-click -->", re.S)
_COLAB = """# For Google Colab and others that lack the course: it installs what is missing.
# torch stays as it is.
import importlib.util, subprocess, sys
from importlib.metadata import version

if importlib.util.find_spec("rocm_guide") is None:
    with open("torch.txt", "w") as pins:
        pins.write(f"torch=={version('torch')}")
    where = "git+https://github.com/%s"
    both = [f"cdna @ {where}#subdirectory=cdna", f"rocm-guide[course] @ {where}"]
    pip = [sys.executable, "-m", "pip", "install", "-q", "-c", "torch.txt"]
    subprocess.run([*pip, *both], check=True)"""


class OneClickError(GuideError):
    """The address is none, or a notebook cannot be changed."""


def _row(address: str, notebook: str) -> str:
    """Return the links of one notebook, between marks, in one line."""
    path = f"notebooks/{notebook}"
    links = (
        f"[Open in Colab](https://colab.research.google.com/github/{address}/blob/HEAD/{path})",
        f"[Codespaces](https://codespaces.new/{address})",
        f"[Binder](https://mybinder.org/v2/gh/{address}/HEAD?labpath={path})",
    )
    return f"<!-- one-click -->{' · '.join(links)}<!-- /one-click -->"


def badges(address: str) -> str:
    """Return README's row: pictures that lie in the repository, so that reading README asks no one else.

    >>> badges("someone/course").count("](docs/badges/")
    3
    """
    first = "notebooks/00_start_here.ipynb"
    rows = (
        ("Open in Colab", "colab", f"https://colab.research.google.com/github/{address}/blob/HEAD/{first}"),
        ("Open in Codespaces", "codespaces", f"https://codespaces.new/{address}"),
        ("Open in Binder", "binder", f"https://mybinder.org/v2/gh/{address}/HEAD?labpath={first}"),
    )
    line = "\n".join(f"[![{words}](docs/badges/{name}.svg)]({link})" for words, name, link in rows)
    return f"<!-- one-click -->\n{line}\n<!-- /one-click -->"


def with_links(nb: dict[str, Any], address: str, name: str) -> None:
    """Put the links and the cell for Colab into a notebook, in place of those from an earlier call.

    Args:
        nb: the notebook as JSON, changed in place.
        address: OWNER/REPOSITORY on GitHub.
        name: file name of the notebook.
    """
    first = nb["cells"][0]
    text = "".join(first["source"])
    text = _ROW.sub("", text).rstrip() + f"\n\n{_row(address, name)}"
    first["source"] = text.splitlines(keepends=True)
    nb["cells"] = [c for c in nb["cells"] if "colab" not in c["metadata"].get("tags", [])]
    cell: dict[str, Any] = {"cell_type": "code", "execution_count": None, "id": "colab"}
    cell["metadata"] = {"tags": ["colab"], "jupyter": {"source_hidden": True}}
    cell |= {"outputs": [], "source": (_COLAB % address).splitlines(keepends=True)}
    nb["cells"].insert(1, cell)


def write_links(address: str, root: Path = ROOT) -> list[Path]:
    """Write the links into README and every notebook below ``root``; all of them are read before any is written.

    Returns:
        The files that changed.

    Raises:
        OneClickError: ``address`` is not OWNER/REPOSITORY, or a file is not what it should be.
    """
    if not _ADDRESS.fullmatch(address):
        raise OneClickError(
            f"{address!r} is no address on GitHub; write OWNER/REPOSITORY, such as someone/rocm-llm-guide"
        )
    readme = root / "README.md"
    text = readme.read_text(encoding="utf-8")
    if not _ROW.search(text):
        raise OneClickError(f"{readme} has no <!-- one-click --><!-- /one-click -->; put both where the row goes")
    new = {readme: _ROW.sub(lambda _: badges(address), text)}
    for path in sorted(root.glob("notebooks/[0-9]*.ipynb")):
        try:
            nb = json.loads(path.read_text(encoding="utf-8"))
            with_links(nb, address, path.name)
        except (ValueError, LookupError, TypeError) as e:
            raise OneClickError(f"{path}: is no notebook ({e})") from e
        new[path] = json.dumps(nb, ensure_ascii=False, indent=1) + "\n"
    changed = [p for p, words in new.items() if p.read_text(encoding="utf-8") != words]
    for path in changed:
        write_text(path, new[path])
    return changed


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the links for OWNER/REPOSITORY; 2 and one line if it is no address."""
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) != 1:
        print("usage: python -m docs.one_click OWNER/REPOSITORY", file=sys.stderr)
        return 2
    try:
        changed = write_links(given[0])
    except GuideError as e:
        print(e, file=sys.stderr)
        return 2
    print(f"{len(changed)} files changed; python -m course store executes the notebooks again")
    return 0


if __name__ == "__main__":
    sys.exit(main())
