# SPDX-License-Identifier: MIT
"""`python -m course store`: execute notebooks cleanly on the CPU and keep their outputs in the repository, stamped.

What is kept must be the same for everybody: no time stamps, no machine paths, no progress bars, no memory addresses.
A warning is not cleaned away but refused, because a reader would meet it too.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from course.pool import Job, Pool
from course.report import hardware, versions
from course.worker import strip_ansi
from rocm_guide.cli.lessons import MEASURED, PARTS, Lesson, catalogue, cell_source, read_notebook, source_hash
from rocm_guide.common.base import GuideError, write_bytes, write_text
from rocm_guide.common.host import host_facts

__all__ = ["StoreError", "store_course", "update_readme"]

PICTURE = re.compile(r"<!--\s*picture: notebook (\d\d), cell (\d+)\s*-->\s*!\[[^\]]*\]\(([^)\s]+)\)")
TABLE = re.compile(r"(<!--\s*course-table\s*-->).*?(<!--\s*/course-table\s*-->)", re.S)
PARTS_TABLE = re.compile(r"(<!--\s*course-parts\s*-->).*?(<!--\s*/course-parts\s*-->)", re.S)
# tqdm and friends: a bar, or lines rewritten in place.
_PROGRESS = re.compile(r"\d+%\|.*\||\d+(\.\d+)?it/s|\d+/\d+ \[\d+:\d+")


class StoreError(GuideError):
    """A notebook cannot be stored: it failed, or its outputs hold something that readers must not see."""

    def __init__(self, message: str) -> None:
        # With the traceback of the failing cell, line by line: it comes from a notebook of this repository.
        ValueError.__init__(self, message)


def normalise(text: str, folders: Sequence[tuple[str, str]]) -> str:
    """Return the text with machine-bound parts taken out: the given folders, memory addresses, terminal colours.

    >>> normalise("<Axes at 0x7f00aa> in /home/me/x", [("/home/me", "~")])
    '<Axes at 0x…> in ~/x'
    """
    for folder, shown in folders:
        text = text.replace(folder, shown)
    return re.sub(r"\bat 0x[0-9a-f]+", "at 0x…", strip_ansi(text))


def _last_of_each_line(text: str) -> str:
    # A terminal shows what stands behind the last carriage return.
    return "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))


def _joined(outputs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return outputs with neighbouring pieces of one stream put together: how it was cut depends on timing."""
    result: list[dict[str, Any]] = []
    for output in outputs:
        if output["output_type"] == "stream":
            text = output["text"] if isinstance(output["text"], str) else "".join(output["text"])
            output = {**output, "text": text}
            if result and result[-1].get("name") == output["name"]:
                result[-1]["text"] += text
                continue
        result.append(output)
    return result


def _clean_stream(output: dict[str, Any], where: str, folders: Sequence[tuple[str, str]]) -> dict[str, Any] | None:
    if output["name"] == "stderr":
        lines = re.split(r"[\r\n]+", strip_ansi(output["text"]))
        rest = [line for line in lines if line.strip() and not _PROGRESS.search(line)]
        if rest:
            raise StoreError(f"{where}: writes to stderr: {rest[0][:160]!r}; mend what it warns about")
        return None
    return {"output_type": "stream", "name": "stdout", "text": normalise(_last_of_each_line(output["text"]), folders)}


def _clean_output(output: dict[str, Any], where: str, folders: Sequence[tuple[str, str]]) -> dict[str, Any] | None:
    kind = output["output_type"]
    if kind == "error":
        raise StoreError(f"{where}: raised {output.get('ename')}: {strip_ansi(output.get('evalue', ''))[:160]}")
    if kind == "stream":
        return _clean_stream(output, where, folders)
    data = {k: v for k, v in output.get("data", {}).items() if "widget" not in k}
    if not data or (set(data) == {"text/plain"} and len(data) < len(output["data"])):
        return None  # a progress widget and its textual stand-in
    for mime, value in data.items():
        if mime.startswith("text/") or mime == "image/svg+xml":
            data[mime] = normalise(value if isinstance(value, str) else "".join(value), folders)
    cleaned = {"output_type": kind, "data": data, "metadata": {}}
    if kind == "execute_result":
        cleaned["execution_count"] = output.get("execution_count")
    return cleaned


def clean_notebook(nb: dict[str, Any], name: str, folders: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return an executed notebook as it may be kept: outputs normalised, metadata reduced to what is needed.

    Args:
        nb: the executed notebook.
        name: how to call it in an error.
        folders: (path, shown instead) pairs, longest path first.

    Raises:
        StoreError: a cell failed or wrote a warning.
    """
    cells = []
    for index, cell in enumerate(nb["cells"]):
        tags = sorted(cell.get("metadata", {}).get("tags", []))
        metadata: dict[str, Any] = {"tags": tags} if tags else {}
        if "solution" in tags:
            metadata["jupyter"] = {"source_hidden": True}
        kept = {"cell_type": cell["cell_type"], "id": f"cell-{index:02d}", "metadata": metadata}
        kept["source"] = cell_source(cell)
        if cell["cell_type"] == "code":
            where = f"{name}, cell {index + 1}"
            cleaned = [_clean_output(o, where, folders) for o in _joined(cell.get("outputs", []))]
            kept["outputs"] = [o for o in cleaned if o is not None]
            kept["execution_count"] = cell.get("execution_count")
        cells.append(kept)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _in_words(seconds: float, peak_mib: float) -> str:
    memory = f"{peak_mib / 1024:.1f} GiB" if peak_mib >= 1000 else f"{peak_mib:.0f} MiB"
    return f"{seconds:.0f} s, {memory}"


def _stamped(nb: dict[str, Any], lesson: Lesson, event: dict[str, Any], found: dict[str, str]) -> dict[str, Any]:
    words = hardware(cpu_only=True)
    told = f"{_in_words(event['seconds'], event['peak_mib'])} ({words})"
    first = nb["cells"][0]
    if not MEASURED.search(first["source"]):
        raise StoreError(f"{lesson.path.name}, cell 1: has no <!-- measured --><!-- /measured --> to fill in; add it")
    first["source"] = MEASURED.sub(rf"\g<1>{told}\g<2>", first["source"])
    nb["metadata"]["rocm_guide"] = {
        "source": source_hash(nb),
        "seconds": event["seconds"],
        "peak_mib": event["peak_mib"],
        "hardware": words,
        "host": host_facts(),
        "versions": found,
    }
    return nb


def store_course(
    lessons: Sequence[Lesson], *, jobs: int = 1, listener: Callable[[str, dict[str, Any]], None] = lambda n, e: None
) -> list[StoreError]:
    """Execute ``lessons`` on the CPU at tiny scale and write them back with their outputs.

    The compilers' caches start empty, so the time is that of a first run; the tiny model is there already.

    A notebook that fails or warns stays as it was; its error is returned, and the others go on.

    Args:
        lessons: what to store.
        jobs: how many at once. One gives the calmest measurement.
        listener: called with (number, event), as in :func:`course.run.run_course`.
    """
    found, errors = versions(), []
    by_number = {x.number: x for x in lessons}
    with tempfile.TemporaryDirectory(prefix="rocm-guide-store-") as scratch:
        todo = [Job(x.number, x.path, Path(scratch, x.path.name), None, {}) for x in lessons]
        sources = {x.number: source_hash(read_notebook(x.path)) for x in lessons}
        with closing(Pool(jobs, fresh=True).run(todo)) as events:
            for number, event in events:
                listener(number, event)
                if event["event"] != "done":
                    continue
                lesson = by_number[number]
                try:
                    _write_back(lesson, Path(scratch, lesson.path.name), event, found, sources[number])
                except StoreError as e:
                    errors.append(e)
    return errors


def _write_back(lesson: Lesson, executed: Path, event: dict[str, Any], found: dict[str, str], source: str) -> None:
    name = lesson.path.name
    if event["status"] != "ok":
        failure = event["failure"]
        where = f", cell {failure['cell']}" if failure.get("cell") else ""
        raise StoreError(f"{name}{where}: {failure['error']}: {failure['message']}\n{failure['traceback']}")
    if source_hash(read_notebook(lesson.path)) != source:
        raise StoreError(f"{name}: was edited while it ran; store it again")
    root = lesson.path.resolve().parent.parent
    runs = (str(executed.resolve().parent), "runs")  # where it kept a model; a reader's are there
    folders = [runs, (str(lesson.path.resolve().parent), "."), (str(root), ".."), (str(Path.home()), "~")]
    nb = clean_notebook(read_notebook(executed), name, folders)
    nb = _stamped(nb, lesson, event, found)
    write_text(lesson.path, json.dumps(nb, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def course_table(lessons: Sequence[Lesson]) -> str:
    """Return the table of notebooks for their folder's README.md: number, title, measured time and memory.

    >>> stamp = {"seconds": 9, "peak_mib": 800}
    >>> print(course_table([Lesson("02", "lora", "LoRA", Path("02_lora.ipynb"), stamp=stamp)]))
    | No. | Notebook | Time | Peak memory |
    |---|---|---:|---:|
    | | **Start, fine-tune** | | |
    | 02 | [LoRA](02_lora.ipynb) | 9 s | 800 MiB |
    """
    lines = ["| No. | Notebook | Time | Peak memory |", "|---|---|---:|---:|"]
    part = ""
    for x in lessons:
        if part != (part := x.number[0]):
            lines.append(f"| | **{PARTS.get(part, 'More')}** | | |")
        told = _in_words(x.seconds, x.peak_mib).split(", ") if x.seconds and x.peak_mib else ["", ""]
        lines.append(f"| {x.number} | [{x.title}]({x.path.name}) | {told[0]} | {told[1]} |")
    return "\n".join(lines)


def parts_table(lessons: Sequence[Lesson]) -> str:
    """Return the notebooks by parts for README.md, each by the short form of its title.

    >>> print(parts_table([Lesson("02", "lora", "LoRA: small updates", Path("02_lora.ipynb"))]))
    | Part | Notebooks |
    |---|---|
    | Start, fine-tune | [02 LoRA](notebooks/02_lora.ipynb) |
    """
    lines = ["| Part | Notebooks |", "|---|---|"]
    for part, members in itertools.groupby(lessons, key=lambda x: PARTS.get(x.number[0], "More")):
        links = (f"[{x.number} {re.split('[:,]', x.title)[0]}](notebooks/{x.path.name})" for x in members)
        lines.append(f"| {part} | {' · '.join(links)} |")
    return "\n".join(lines)


def machines(lessons: Sequence[Lesson]) -> str:
    """Return a line that says on what the stored runs were measured, and which, where it was not one machine for all.

    >>> from pathlib import Path
    >>> one, two = (Lesson(n, "", "", Path(), stamp={"hardware": f"CPU {n}"}) for n in ("01", "02"))
    >>> machines([one]), machines([one, two])
    ('Measured with CPU 01, at tiny scale.', 'Measured at tiny scale: 01 with CPU 01; 02 with CPU 02.')
    """
    found: dict[str, list[str]] = {}
    for lesson in lessons:
        if where := lesson.stamp.get("hardware"):
            found.setdefault(where, []).append(lesson.number)
    if len(found) <= 1:
        return f"Measured with {', '.join(found) or 'nothing yet'}, at tiny scale."
    return "Measured at tiny scale: " + "; ".join(f"{', '.join(n)} with {where}" for where, n in found.items()) + "."


def pictures(text: str, lessons: Sequence[Lesson]) -> dict[str, bytes]:
    """Return the files that a README shows below ``<!-- picture: notebook NN, cell N -->``,
    as the notebooks have them now.

    Raises:
        StoreError: the cell has no picture.
    """
    found = {}
    by_number = {x.number: x for x in lessons}
    for number, cell, file in PICTURE.findall(text):
        cells = read_notebook(by_number[number].path)["cells"] if number in by_number else []
        outputs = cells[int(cell) - 1].get("outputs", []) if 0 < int(cell) <= len(cells) else []
        drawn = [o["data"]["image/png"] for o in outputs if "image/png" in o.get("data", {})]
        if not drawn:
            raise StoreError(f"{file}: notebook {number}, cell {cell} has no picture; mend the number of the cell")
        found[file] = base64.b64decode("".join(drawn[0]))
    return found


def update_readme(readme: Path) -> bool:
    """Write the notebooks by parts between the ``course-parts`` marks of ``readme``; False if it has none.

    Also writes the table of what each took between the ``course-table`` marks of ``notebooks/README.md`` beside it, and
    refreshes the files of the :func:`pictures` of ``readme``.

    Raises:
        StoreError: a picture that is asked for is not there.
    """
    if not readme.is_file():
        return False
    text = readme.read_text(encoding="utf-8")
    lessons = catalogue(readme.parent / "notebooks")
    for file, data in pictures(text, lessons).items():
        write_bytes(readme.parent / file, data)
    measured = readme.parent / "notebooks" / "README.md"
    if measured.is_file():
        _fill(measured, TABLE, f"\n{course_table(lessons)}\n\n{machines(lessons)}\n")
    return _fill(readme, PARTS_TABLE, f"\n{parts_table(lessons)}\n")


def _fill(page: Path, marks: re.Pattern[str], content: str) -> bool:
    text = page.read_text(encoding="utf-8")
    new, count = marks.subn(lambda m: f"{m[1]}{content}{m[2]}", text)
    if new != text:
        write_text(page, new)
    return bool(count)
