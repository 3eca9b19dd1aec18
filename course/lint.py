# SPDX-License-Identifier: MIT
"""The rules of a notebook, checked without running it: `python -m course.lint notebooks/*.ipynb`.

The same check serves pre-commit, the tests and `python -m course store`. An error fails; a warning asks the author to
look.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from course.parameters import parameters_of
from rocm_guide.cli.lessons import MEASURED, cell_source, read_notebook, row_of_first_cell, source_hash
from rocm_guide.common.base import GuideError

__all__ = ["lint_notebook"]

#: A place for one guess or several: "guess = None", "guess_a, guess_b = None, None".
_GUESS = re.compile(r"\w*guess\w*(, \w*guess\w*)* = ")
_FORBIDDEN = (
    (r"^\s*!", "a shell command with !; teach the command in text, or call a helper"),
    (r"^\s*%pip|^\s*%conda", "installs a package; preflight() names what is missing"),
    (r"^\s*%%capture", "%%capture hides what the reader should see"),
    (r"\binput\s*\(", "input() blocks a run without a reader"),
    (r"\b(notebook_)?login\s*\(", "a login; take a token from the environment"),
)
_MACHINE_PATH = re.compile(r"(?<![\w.~/])/(?:root|home/[\w.-]+|Users/[\w.-]+|tmp|work|private|var/folders)/[^\s'\"<>]*")
_PARTS = (
    (r"^#{2,3} .*summary", "a section Summary"),
    (r"^#{2,3} .*exercises?", "a section Exercises"),
    (r"^\|\s*\**symptom\**\s*\|\s*\**(likely )?cause\**\s*\|\s*\**fix\**\s*\|", "a table Symptom | Cause | Fix"),
)


@dataclass(frozen=True)
class Finding:
    """One thing that a rule says about a notebook; ``cell`` counts from 1, 0 is the notebook as a whole."""

    notebook: str
    level: Literal["error", "warning"]
    cell: int
    message: str

    def __str__(self) -> str:
        """Return one line, for the terminal."""
        where = f", cell {self.cell}" if self.cell else ""
        return f"{self.notebook}{where}: {self.level}: {self.message}"


def machine_paths(text: str) -> list[str]:
    """Return the paths in ``text`` that exist only on the machine that wrote it.

    >>> machine_paths("saved to /tmp/abc/x.csv and /opt/rocm/bin, ./here/tmp/y")
    ['/tmp/abc/x.csv']
    """
    return _MACHINE_PATH.findall(text)


def _tags(cell: dict[str, Any]) -> list[str]:
    tags: list[str] = cell.get("metadata", {}).get("tags", [])
    return tags


#: How fast somebody reads who wants to understand, prose and code.
WORDS_A_MINUTE, LINES_A_MINUTE = 180, 12
Found = Iterator[tuple[Literal["error", "warning"], int, str]]


def _first_cell(nb: dict[str, Any], number: str) -> Found:
    text = cell_source(nb["cells"][0]) if nb["cells"] else ""
    if not re.match(rf"# {number} · \S", text):
        yield "error", 1, f"the first line is not '# {number} · Title'"
    if "**You will be able to**" not in text:
        yield "error", 1, "no '**You will be able to**' with its list"
    for label in ("Level", "Time and memory", "On an MI300X", "Covers"):
        if not row_of_first_cell(text, label):
            yield "error", 1, f"the table has no row '{label}'"
    if not MEASURED.search(text):
        yield "error", 1, "no <!-- measured --><!-- /measured --> for time and memory"


def _shape(nb: dict[str, Any]) -> Found:
    # What only Colab needs is no part of the lesson.
    cells = [c for c in nb["cells"] if "colab" not in _tags(c)]
    code = [(i + 1, c) for i, c in enumerate(cells) if c["cell_type"] == "code"]
    sources = "\n".join(cell_source(c) for _, c in code)
    prose = "\n".join(cell_source(c) for c in cells if c["cell_type"] == "markdown")
    if not 25 <= len(cells) <= 50:
        yield "error", 0, f"{len(cells)} cells; 25 to 50 are readable in one sitting"
    if len(re.findall(r"\bpreflight\s*\(", sources)) != 1 or not code or "preflight(" not in cell_source(code[0][1]):
        yield "error", 0, "call preflight() once, in the first code cell"
    words, program = len(prose.split()), len(sources.split())
    if words <= program:
        yield "error", 0, f"{words} words of text for {program} of code; explain more or move code to the library"
    taught = "\n".join(cell_source(c) for _, c in code if "solution" not in _tags(c))
    told = re.search(r"\d+", row_of_first_cell(cell_source(cells[0]), "Time to read")) if cells else None
    minutes = words / WORDS_A_MINUTE + sum(map(bool, map(str.strip, taught.splitlines()))) / LINES_A_MINUTE
    if told and abs(int(told[0]) - minutes) > 4:
        yield "error", 1, f"'Time to read' says {told[0]} minutes; its words and lines of code take {minutes:.0f}"
    if not re.search(r"^\s*assert\b", taught, re.M):
        yield "error", 0, "no assert; a notebook proves what it says"
    for pattern, what in _PARTS:
        if not re.search(pattern, prose, re.M | re.I):
            yield "error", 0, f"misses {what}"
    if re.search(r"^from cdna\.predict\S* import .*\blikely\b", sources, re.M) and "caveat(" not in sources:
        yield (
            "error",
            0,
            "shows likely times; print caveat(LEFT_OUT[…]) beside them: what no model charges, how far off",
        )
    checks = set(re.findall(r"\b(check_\w+)\s*\(", sources))
    if len(checks) < 3:
        yield "error", 0, f"{len(checks)} exercises with a check_…(); three are the rule"
    solutions = [c for _, c in code if "solution" in _tags(c)]
    if len(solutions) < 3:
        yield "error", 0, f"{len(solutions)} cells tagged solution; one for each exercise"


def _predictions(nb: dict[str, Any]) -> Found:
    """Check that every "**Predict" has a place for a guess, and that the last code cell shows how many were right."""
    asked = sum(cell_source(c).count("**Predict") for c in nb["cells"] if c["cell_type"] == "markdown")
    code = [cell_source(c) for c in nb["cells"] if c["cell_type"] == "code"]
    lines = (line.split("=")[0] for source in code for line in source.splitlines() if _GUESS.match(line))
    guesses = sum(line.count("guess") for line in lines)
    if guesses < asked:
        yield "error", 0, f"{asked} times **Predict and {guesses} times 'guess = None'; keep each with predict(…)"
    if asked and not re.search(r"^predict\w*\.score\(\)", code[-1] if code else "", re.M):
        yield "error", 0, "the last code cell does not show the predictions: predict.score()"


def _parameters(nb: dict[str, Any]) -> Found:
    cells = nb["cells"]
    tagged = [i for i, c in enumerate(cells) if "parameters" in _tags(c)]
    if len(tagged) != 1:
        yield "error", 0, f"{len(tagged)} cells tagged parameters; one is the rule"
        return
    later = "\n".join(cell_source(c) for c in cells[tagged[0] + 1 :] if c["cell_type"] == "code")
    names = parameters_of(nb)
    if "SCALE" not in names:
        yield "error", tagged[0] + 1, "the parameters have no SCALE"
    for name in names:
        if not re.search(rf"\b{name}\b", later):
            yield "warning", tagged[0] + 1, f"no later cell reads the parameter {name}; a knob without effect misleads"


def _wide_lines(source: str) -> list[str]:
    """Return the lines of more than 100 characters, but for those inside a text of several lines,
    which is what it is.
    """
    inside: set[int] = set()
    opened: list[int] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            kind = tokenize.tok_name[token.type]  # Python 3.12 and later take f-strings apart
            if kind == "FSTRING_START":
                opened.append(token.start[0])
            first = opened.pop() if kind == "FSTRING_END" else token.start[0]
            if kind in ("STRING", "FSTRING_END") and first < token.end[0]:
                inside |= set(range(first, token.end[0] + 1))
    except (tokenize.TokenError, SyntaxError):
        return []  # the rule for code that is not Python says it
    return [line for n, line in enumerate(source.splitlines(), 1) if len(line) > 100 and n not in inside]


def _code(nb: dict[str, Any]) -> Found:
    for i, cell in enumerate(nb["cells"], 1):
        if cell["cell_type"] != "code":
            continue
        source = cell_source(cell)
        lines = len(source.splitlines())  # blank ones too: they take room on the screen
        if lines > 40:
            yield "error", i, f"{lines} lines; 40 is the limit: move some to the library"
        elif lines > 20:
            yield "warning", i, f"{lines} lines; 20 or fewer are readable"
        for wide in _wide_lines(source):
            yield "error", i, f"a line of {len(wide)} characters; 100 fit beside the files: {wide.strip()[:40]} …"
        if "solution" in _tags(cell) and not re.search(r"^\s*assert check_\w+\(", source, re.M):
            yield "error", i, "a solution without 'assert check_…(…)'; a wrong one would pass"
        for pattern, why in _FORBIDDEN:
            if re.search(pattern, source, re.M):
                yield "error", i, why
        try:
            ast.parse(re.sub(r"^\s*%.*$", "", source, flags=re.M))
        except SyntaxError as e:
            yield "error", i, f"is not Python: {e.msg}"


def _outputs(nb: dict[str, Any]) -> Found:
    count = 0
    for i, cell in enumerate(nb["cells"], 1):
        if cell["cell_type"] != "code" or not cell_source(cell).strip():
            continue
        count += 1
        if cell.get("execution_count") != count:
            yield "error", i, "not executed in order; run: python -m course store"
        if "solution" in _tags(cell) and not cell["metadata"].get("jupyter", {}).get("source_hidden"):
            yield "error", i, "a solution that is not collapsed; run: python -m course store"
        for output in cell.get("outputs", []):
            if output["output_type"] == "error":
                yield "error", i, f"a stored exception ({output.get('ename')})"
            if output.get("name") == "stderr":
                yield "error", i, "a stored warning (stderr)"
            texts = [output.get("text", ""), *(v for m, v in output.get("data", {}).items() if m.startswith("text/"))]
            for path in machine_paths("\n".join(t if isinstance(t, str) else "".join(t) for t in texts)):
                yield "error", i, f"a path of one machine in the output: {path}"


def _stamp(nb: dict[str, Any]) -> Found:
    stamp = nb.get("metadata", {}).get("rocm_guide", {})
    if not stamp:
        yield "error", 0, "was never stored; run: python -m course store"
    elif stamp.get("source") != source_hash(nb):
        yield "error", 0, "its outputs are stale; run: python -m course store"


def lint_notebook(path: Path) -> list[Finding]:
    """Return every finding about one notebook file, in the order of its cells.

    Raises:
        GuideError: the file cannot be read or is not a notebook.
    """
    nb = read_notebook(path)
    name = re.fullmatch(r"(\d{2})_[a-z0-9_]+", path.stem)
    found: list[tuple[Literal["error", "warning"], int, str]] = []
    if name is None:
        found.append(("error", 0, "the file name is not NN_topic.ipynb"))
    try:
        for rule in (_shape, _predictions, _parameters, _code, _outputs, _stamp):
            found += rule(nb)
    except SyntaxError as e:
        found.append(("error", 0, f"the parameters cell is not Python: {e.msg}"))
    found += _first_cell(nb, name.group(1) if name else "NN")
    return [Finding(path.name, level, cell, text) for level, cell, text in sorted(found, key=lambda x: x[1])]


def main(arguments: Sequence[str] | None = None) -> int:
    """Lint the named files; 0 if no error was found, 1 if one was, 2 for a file that is no notebook."""
    paths = sys.argv[1:] if arguments is None else arguments
    try:
        findings = [f for path in paths for f in lint_notebook(Path(path))]
    except GuideError as e:
        print(e, file=sys.stderr)
        return 2
    for finding in findings:
        print(finding)
    return int(any(f.level == "error" for f in findings))


if __name__ == "__main__":
    sys.exit(main())
