# SPDX-License-Identifier: MIT
"""The folder that Sphinx reads: notebooks, README as the start page, documents, and the library's pages."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from docs.site.library_pages import library_pages
from rocm_guide.cli.lessons import PARTS

__all__ = ["write_sources"]

ROOT = Path(__file__).parents[2]
_DOCUMENTS = tuple(
    f"docs/{name}.md"
    for name in ("troubleshooting", "commands", "coverage", "currency", "errata", "house", "mi355x", "beyond_triton")
)
_PICTURE = re.compile(r"!\[[^\]]*\]\((?!https?:)([^)\s]+)\)")


def write_sources(to: Path, notebooks: Iterable[Path], rooms: Iterable[str] | None = None) -> list[Path]:
    """Fill ``to``; a file that is as it should be keeps its date, so a second build does only what changed.

    Args:
        to: the folder, made if missing; files in it from an earlier call that no longer belong there are removed.
        notebooks: the notebooks to show.
        rooms: names of library pages, ``"attention"``; all of them if left out.

    Returns:
        The files of the folder.
    """
    files: dict[str, str | bytes] = {}
    chosen = sorted(notebooks)
    for path in chosen:
        nb = json.loads(path.read_text(encoding="utf-8"))
        files[f"notebooks/{path.name}"] = json.dumps(prepared(nb), ensure_ascii=False, indent=1)
    for name in _DOCUMENTS:
        files[name] = (ROOT / name).read_text(encoding="utf-8")
    pages = library_pages()
    wanted = set(pages) if rooms is None else {f"{r}.rst" for r in rooms}
    for name in sorted(wanted):
        files[f"library/{name}"] = pages[name]
    files["index.md"] = _start_page((ROOT / "README.md").read_text(encoding="utf-8"), chosen, sorted(wanted))
    texts = [t for t in files.values() if isinstance(t, str)]
    for picture in {p for t in texts for p in _PICTURE.findall(t) if (ROOT / p).is_file()}:
        files[picture] = (ROOT / picture).read_bytes()
    return _write(to, files)


def prepared(nb: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a notebook as the site shows it:
    solutions open on a click, and what only Colab needs is left out.
    """
    nb = json.loads(json.dumps(nb))
    nb["cells"] = [c for c in nb["cells"] if "colab" not in c.get("metadata", {}).get("tags", [])]
    for cell in nb["cells"]:
        tags = cell.setdefault("metadata", {}).get("tags", [])
        if "solution" in tags and "hide-cell" not in tags:
            tags.append("hide-cell")
            cell["metadata"]["mystnb"] = {"code_prompt_show": "Solution", "code_prompt_hide": "Solution"}
    return nb


def _start_page(readme: str, notebooks: list[Path], pages: list[str]) -> str:
    """Return README with the site's contents behind it;
    addresses in the repository lead to pages, or are only named.
    """
    text = re.sub(r"<!-- one-click -->.*?<!-- /one-click -->\n*", "", readme, flags=re.S)
    shown = {f"notebooks/{p.name}" for p in notebooks} | set(_DOCUMENTS)

    def link(match: re.Match[str]) -> str:
        target = match[2].partition("#")[0]
        outside = re.match(r"https?:|#", match[2])
        return match[0] if outside or target in shown else match[1]

    text = re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", link, text)
    lists = (
        *((title, [f"notebooks/{p.stem}" for p in notebooks if p.name[0] == part]) for part, title in PARTS.items()),
        ("More notebooks", [f"notebooks/{p.stem}" for p in notebooks if p.name[0] not in PARTS]),
        ("Help", [d.removesuffix(".md") for d in _DOCUMENTS]),
        ("Library", ["library/index"] if "index.rst" in pages else [f"library/{Path(p).stem}" for p in pages]),
    )
    trees = (f"```{{toctree}}\n:hidden:\n:caption: {c}\n\n" + "\n".join(e) + "\n```\n" for c, e in lists if e)
    return f"{text}\n" + "\n".join(trees)


def _write(to: Path, files: dict[str, str | bytes]) -> list[Path]:
    for name, content in files.items():
        path = to / name
        raw = content.encode() if isinstance(content, str) else content
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_bytes() != raw:
            path.write_bytes(raw)
    for old in [p for p in to.rglob("*") if p.is_file() and p.relative_to(to).as_posix() not in files]:
        old.unlink()
    for folder in sorted((p for p in to.rglob("*") if p.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            shutil.rmtree(folder)
    return [to / name for name in files]
