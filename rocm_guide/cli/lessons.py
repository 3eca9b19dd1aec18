# SPDX-License-Identifier: MIT
"""The catalogue of notebooks: which there are, what they say about themselves, and whether their outputs are fresh.

A notebook describes itself. Its file name gives number and topic, its first cell the title and the document sections
it covers, and its stored stamp (``metadata.rocm_guide``, written by ``python -m course store``) the time and memory of
the run whose outputs it carries. Nothing is kept in a second place.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocm_guide.common.base import GuideError, package_folder, read_regular

__all__ = [
    "MEASURED",
    "PARTS",
    "Lesson",
    "catalogue",
    "cell_source",
    "find_lessons",
    "introductions",
    "notebook_of",
    "notebooks_folder",
    "old_number",
    "read_notebook",
    "row_of_first_cell",
    "source_hash",
]

MEASURED = re.compile(r"(<!--\s*measured\s*-->).*?(<!--\s*/measured\s*-->)", re.S)
#: Bytes of a notebook with all its pictures; the largest of the course has about one million.
LARGEST_NOTEBOOK = 100_000_000
#: The parts of the course, by the first digit of a notebook's number.
PARTS = {
    "0": "Start, fine-tune",
    "1": "Quantise, speed up, serve",
    "2": "The MI300X and Triton",
    "3": "Kernels",
    "4": "When something is wrong",
}
#: Notebooks were numbered anew on 2026-11-27, in parts of ten: topic -> the number before, from 05 on.
_MOVED = """torchtune gptq awq bitsandbytes flash_attention torch_compile tunableop serving mi300x_architecture
triton_tuning triton_occupancy ir_and_isa row_kernels gemm_kernels fused_fp8_kernels attention_kernels composable_kernel
smoothquant_int8 profiling debugging_faults system_tuning kernel_dojo inside_a_wave"""
_BEFORE = {topic: f"{number:02}" for number, topic in enumerate(_MOVED.split(), 5)}
_FILE = re.compile(r"(\d{2})_([a-z0-9_]+)\.ipynb")


@dataclass(frozen=True)
class Lesson:
    """One notebook of the course.

    Attributes:
        number: two digits, the place in the reading order.
        topic: the rest of the file name.
        title: from the heading of its first cell.
        path: the file.
        covers: the sections of the ROCm documents that it teaches, in its own words.
        stamp: what the stored outputs came from: source hash, versions, seconds, peak_mib, hardware. Empty if never
            stored.
        fresh: whether the stored outputs belong to the source as it is now.
    """

    number: str
    topic: str
    title: str
    path: Path
    covers: str = ""
    stamp: dict[str, Any] = field(default_factory=dict)
    fresh: bool = False

    @property
    def seconds(self) -> float | None:
        """Return how long the stored run took."""
        return self.stamp.get("seconds")

    @property
    def peak_mib(self) -> float | None:
        """Peak memory of the stored run's process tree, in MiB."""
        return self.stamp.get("peak_mib")


def cell_source(cell: dict[str, Any]) -> str:
    """Return the text of a cell, whichever of its two forms (string or list of lines) the file uses.

    >>> cell_source({"source": ["a = 1\\n", "b = 2"]})
    'a = 1\\nb = 2'
    """
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(source)


def read_notebook(path: Path) -> dict[str, Any]:
    """Parse a notebook file.

    Raises:
        GuideError: it cannot be read, or is not a notebook.
    """
    try:
        nb = json.loads(read_regular(path, LARGEST_NOTEBOOK))
    except OSError as e:
        raise GuideError(f"{path}: cannot be read ({e.strerror}); check the path and its permissions") from e
    except (ValueError, RecursionError) as e:
        raise GuideError(f"{path}: not a notebook ({e}); restore it with git checkout") from e
    if not isinstance(nb, dict) or not isinstance(nb.get("cells"), list):
        raise GuideError(f"{path}: not a notebook (it has no cells); restore it with git checkout")
    if not _well_formed(nb):
        raise GuideError(f"{path}: not a notebook (a cell or its metadata is damaged); restore it with git checkout")
    return nb


def _well_formed(nb: dict[str, Any]) -> bool:
    """Return whether what this module reads has the types of the notebook format."""
    stamp = nb.get("metadata", {}).get("rocm_guide", {}) if isinstance(nb.get("metadata", {}), dict) else None
    if not isinstance(stamp, dict) or any(
        not isinstance(stamp.get(key), int | float | None) for key in ("seconds", "peak_mib")
    ):
        return False
    for cell in nb["cells"]:
        metadata = cell.get("metadata", {}) if isinstance(cell, dict) else None
        source = cell.get("source", "") if isinstance(metadata, dict) else None
        lines = source if isinstance(source, list) else [source]
        tags = metadata.get("tags", []) if isinstance(metadata, dict) else None
        if not isinstance(tags, list) or not all(isinstance(text, str) for text in (*lines, *tags)):
            return False
    return True


def source_hash(nb: dict[str, Any]) -> str:
    """Return a digest of what the author wrote: cell types, texts and tags in order.

    Outputs do not count, nor does the text between the ``measured`` marks, which the store command fills in.

    >>> a = {"cells": [{"cell_type": "markdown", "source": "<!-- measured -->9 s<!-- /measured -->"}]}
    >>> b = {"cells": [{"cell_type": "markdown", "source": "<!-- measured --><!-- /measured -->"}]}
    >>> source_hash(a) == source_hash(b)
    True
    """
    parts = []
    for cell in nb["cells"]:
        tags = sorted(cell.get("metadata", {}).get("tags", []))
        parts.append([cell.get("cell_type"), MEASURED.sub(r"\1\2", cell_source(cell)), tags])
    return hashlib.sha256(json.dumps(parts, ensure_ascii=False).encode(errors="backslashreplace")).hexdigest()


def row_of_first_cell(text: str, label: str) -> str:
    """Return the second column of the table row that starts with ``label``, or an empty string.

    >>> row_of_first_cell("| **Covers** | S0 setup |", "Covers")
    'S0 setup'
    """
    for line in text.splitlines():
        columns = [c.strip() for c in line.strip().strip("|").split("|")]
        if len(columns) >= 2 and columns[0].strip("*").strip() == label:
            return " | ".join(columns[1:])
    return ""


def _read_lesson(path: Path) -> Lesson:
    match = _FILE.fullmatch(path.name)
    if match is None:
        raise GuideError(f"{path.name}: name a notebook NN_topic.ipynb, for example 02_lora_fine_tuning.ipynb")
    nb = read_notebook(path)
    first = cell_source(nb["cells"][0]) if nb["cells"] else ""
    heading = re.search(r"^#\s+(?:\d{2}\s*·\s*)?(.+)$", first, re.M)
    title = heading.group(1).strip() if heading else match.group(2).replace("_", " ")
    stamp = nb.get("metadata", {}).get("rocm_guide", {})
    fresh = stamp.get("source") == source_hash(nb)
    return Lesson(match.group(1), match.group(2), title, path, row_of_first_cell(first, "Covers"), stamp, fresh)


def notebooks_folder(start: Path | None = None) -> Path:
    """Return the course's ``notebooks`` folder, from the current folder upward, else that of the installed package.

    A clone has it beside the package, a wheel has a copy of it inside.

    Raises:
        GuideError: there is none; the package was installed without them.
    """
    start = (start or Path.cwd()).resolve()
    beside = package_folder().parent
    for folder in (start, *start.parents, beside, package_folder()):
        for candidate in (folder, folder / "notebooks"):
            if candidate.name == "notebooks" and any(_FILE.fullmatch(p.name) for p in candidate.glob("*.ipynb")):
                return candidate
    fix = "run this inside a clone of the course, or name its folder with --notebooks"
    raise GuideError(f"{start}: no folder notebooks/ here or above; {fix}")


def catalogue(folder: Path | None = None) -> list[Lesson]:
    """Return all notebooks in reading order.

    Raises:
        GuideError: no notebooks, a file that is none, or two with one number.
    """
    folder = folder or notebooks_folder()
    if not folder.is_dir():
        raise GuideError(f"{folder}: no such folder; name the one that holds the NN_topic.ipynb files")
    lessons = [_read_lesson(p) for p in sorted(folder.glob("[0-9]*.ipynb"))]
    if not lessons:
        raise GuideError(f"{folder}: no notebooks there; name the folder that holds the NN_topic.ipynb files")
    for a, b in itertools.pairwise(lessons):
        if a.number == b.number:
            raise GuideError(f"{b.path.name}: number {b.number} is taken by {a.path.name}; rename one of them")
    return lessons


def old_number(name: str, lessons: Iterable[Lesson]) -> str:
    """Return one line about a number that meant another notebook until 2026-11-27; empty if it did not.

    >>> old_number("27", [Lesson("25", "inside_a_wave", "Inside a wave", Path("25_inside_a_wave.ipynb"))])
    '27 is now 25 (inside a wave)'
    """
    found = next((x for x in lessons if _BEFORE.get(x.topic) == name.zfill(2)), None)
    return f"{name} is now {found.number} ({found.topic.replace('_', ' ')})" if found else ""


def find_lessons(wanted: Sequence[str], lessons: Iterable[Lesson]) -> list[Lesson]:
    """Return the lessons that ``wanted`` names by number ("2", "02") or file name; all of them if it is empty.

    Raises:
        GuideError: a name that no notebook has.

    >>> find_lessons(["7"], [Lesson("02", "lora", "LoRA", Path("02_lora.ipynb"))])
    Traceback (most recent call last):
        ...
    cdna.base.InputError: notebook 7: there is none with that number; choose from 02
    """
    lessons = list(lessons)
    chosen = []
    for name in wanted:
        stem = Path(name).name.removesuffix(".ipynb")
        found = [x for x in lessons if stem.zfill(2) == x.number or stem in (x.topic, x.path.stem)]
        if not found:
            numbers = ", ".join(x.number for x in lessons)
            moved = old_number(name, lessons)
            raise GuideError(f"notebook {name}: there is none with that number; {moved or f'choose from {numbers}'}")
        chosen += [x for x in found if x not in chosen]
    return sorted(chosen, key=lambda x: x.number) if wanted else lessons


_IMPORT = re.compile(r"^ *from ((?:rocm_guide|cdna)[.\w]*) import (?:\(([^)]*)\)|(.*))", re.M)


def introductions(folder: Path | None = None) -> dict[str, str]:
    """Return what the notebooks import from the course and from cdna, each with the first that does: "17 (tunableop)".

    A name stands as the cell writes it, without ``rocm_guide.``: ``tune.tunableop.plan`` if it comes from the room's
    face, ``tune.tunableop.planner.plan`` if from the module.
    """
    first: dict[str, str] = {}
    for lesson in catalogue(folder):
        cells = [c for c in read_notebook(lesson.path)["cells"] if c.get("cell_type") == "code"]
        for module, several, one in (found for c in cells for found in _IMPORT.findall(cell_source(c))):
            for name in re.findall(r"(\w+)(?: as \w+)?", several or one):
                place = f"{module}.{name}".removeprefix("rocm_guide.")
                first.setdefault(place, f"{lesson.number} ({lesson.topic})")
    return first


def notebook_of(helper: str, found: dict[str, str]) -> str:
    """Return the notebook among ``found`` (of :func:`introductions`) that introduces ``helper``, imported from its
    module or from the face of a room around it; empty if there is none.
    """
    *rooms, name = helper.removeprefix("rocm_guide.").split(".")
    names = (".".join([*rooms[:depth], name]) for depth in range(len(rooms), -1, -1))
    return min((found[n] for n in names if n in found), default="")
