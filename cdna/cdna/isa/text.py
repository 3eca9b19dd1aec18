# SPDX-License-Identifier: MIT
"""The line-by-line half of :mod:`cdna.isa.kernel`: from text to functions, labels and resources."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cdna.isa.mnemonics import meaning
from cdna.resources import Resources, resources_from_text

__all__ = ["Function", "Raw", "Scan", "lines_of_code", "scan_text"]


class Raw(NamedTuple):
    """An instruction before the loops are known; ``address`` is -1 in assembly."""

    line: int
    op: str
    args: str
    source: str
    spill: bool
    address: int
    target: str


@dataclass(slots=True)
class Function:
    """A function while the text is read."""

    name: str
    body: list[Raw] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    comments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Scan:
    """All that one pass over the text found."""

    arch: str = ""
    functions: list[Function] = field(default_factory=list)
    directives: dict[str, dict[str, str]] = field(default_factory=dict)
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def entries(self) -> set[str]:
        """Names of the kernels, as opposed to device functions."""
        return set(self.directives) | set(self.metadata)

    def resources(self, function: Function) -> Resources:
        """Return the resources that the text states for one function."""
        name = function.name
        return resources_from_text(
            self.arch, self.directives.get(name, {}), function.comments, self.metadata.get(name, {})
        )


_ARCH = re.compile(r"gfx[0-9a-f]{3,5}")
_HEADER = re.compile(r"([0-9a-fA-F]{4,16}) <([^<>]+)>:")
_LABEL = re.compile(r'("[^"]+"|[A-Za-z_.$][\w.$@]*):')
_KEY = re.compile(r"(?P<item>  - |    )(?P<key>\.\w+):\s*(?P<value>\S.*)?$")
_ADDRESS = re.compile(r"//\s*([0-9A-Fa-f]{8,16}):")
_LONG_JUMP = re.compile(r"\((\.?\w+)-\.?L?post_?[Gg]etpc\w*\)")


class _Reader:
    """State of the pass: which function, which debug line, which part of the file."""

    def __init__(self) -> None:
        self.scan = Scan()
        self.function: Function | None = None
        self.last: Function | None = None
        self.typed: set[str] = set()
        self.files: dict[str, str] = {}
        self.locations: dict[str, str] = {}
        self.source = ""
        self.descriptor: dict[str, str] | None = None
        self.item: dict[str, str] | None = None
        self.in_metadata = False
        self.jump = ""

    def directive(self, s: str) -> None:
        word, _, rest = s.replace("\t", " ").partition(" ")
        rest = rest.strip()
        if word == ".loc":
            self.source = self.locations.get(rest) or self.locate(rest)
        elif word.startswith(".amdhsa_"):
            if word == ".amdhsa_kernel":
                self.descriptor = self.scan.directives.setdefault(rest.split(" ")[0], {})
            elif self.descriptor is not None:
                self.descriptor[word[8:]] = rest.partition(";")[0]
        elif word == ".end_amdhsa_kernel":
            self.descriptor = None
        elif word == ".type" and "function" in rest:
            self.typed.add(rest.partition(",")[0].strip().strip('"'))
        elif word == ".file":
            parts = re.findall(r'"([^"]*)"', rest)
            if parts:
                self.files[rest.split(" ")[0]] = parts[-1].rpartition("/")[2]
        elif word == ".amdgpu_metadata":
            self.in_metadata, self.function = True, None
        elif word in (".section", ".size", ".rodata", ".data", ".bss") or s.startswith(".Lfunc_end"):
            self.function = None
        elif word.startswith(".amdgcn_target") and (m := _ARCH.search(rest)):
            self.scan.arch = m[0]

    def locate(self, rest: str) -> str:
        """Resolve ``.loc`` to ``file:line:column``: the outermost place, which is in the user's file when code was
        inlined.
        """
        where, _, comment = rest.partition(";")
        if "@[" in comment:
            source = comment.rpartition("@[")[2].strip(" ]")
        else:
            parts = where.split()
            known = len(parts) > 1 and parts[1] != "0"
            column = parts[2] if len(parts) > 2 and parts[2].isdigit() else "0"
            source = f"{self.files.get(parts[0], '?')}:{parts[1]}:{column}" if known else ""
        self.locations[rest] = source
        return source

    def metadata_line(self, line: str) -> None:
        if ".end_amdgpu_metadata" in line:
            self.in_metadata = False
        elif m := _KEY.match(line):
            if m["item"] == "  - ":
                self.item = {}
            if self.item is not None:
                value = (m["value"] or "").strip("'\"")
                self.item[m["key"]] = value
                if m["key"] == ".name" and value:
                    self.scan.metadata[value] = self.item

    def start(self, name: str) -> None:
        self.function = self.last = Function(name)
        self.scan.functions.append(self.function)

    def label(self, name: str) -> None:
        name = name.strip('"')
        if name in self.typed or (not self.typed and not name.startswith((".", "L"))):
            self.start(name)
        elif self.function is not None:
            self.function.labels[name] = len(self.function.body)

    def instruction(self, number: int, s: str) -> None:
        code, _, comment = s.partition(";")
        address, target = -1, ""
        if "//" in code:
            code, _, comment = code.partition("//")
            if m := _ADDRESS.match("//" + comment):
                address = int(m[1], 16)
        parts = code.split(None, 1)
        if self.function is None or not parts or meaning(parts[0]) is None:
            return
        op = parts[0]
        args = parts[1].rstrip() if len(parts) > 1 else ""
        if op.startswith("s_add") and (m := _LONG_JUMP.search(args)):
            self.jump = m[1]
        elif op.startswith(("s_branch", "s_cbranch")):
            target = args.strip()
        elif op.startswith("s_setpc"):
            target, self.jump = self.jump, ""
        spill = "Folded" in comment
        self.function.body.append(Raw(number, op, args, self.source, spill, address, target))


def scan_text(text: str) -> Scan:
    """Return the scan the text in one pass, each line looked at once.

    >>> [f.name for f in scan_text("add:\\n  s_endpgm\\n").functions]
    ['add']
    """
    reader = _Reader()
    for number, line in enumerate(text.split("\n"), 1):
        if reader.in_metadata:
            reader.metadata_line(line.rstrip("\r"))
            continue
        s = line.strip()
        if not s:
            continue
        if s[0] == ";":
            if reader.function is None and reader.last is not None and (":" in s or "=" in s):
                reader.last.comments.append(s[:80])
            continue
        if s[-1] == ":" or ":" in s.partition(";")[0]:
            if m := _HEADER.match(s):
                reader.start(m[2])
                continue
            if m := _LABEL.match(s):
                reader.label(m[1])
                s = s[m.end() :].lstrip()
                if not s or s[0] == ";":
                    if m[1].startswith(".Lfunc_end"):
                        reader.function = None
                    continue
        if s[0] == ".":
            reader.directive(s)
        elif s[0] != "/":
            reader.instruction(number, s)
        if not reader.scan.arch and "gfx" in s[:200] and (m := _ARCH.search(s)):
            reader.scan.arch = m[0]
    reader.scan.functions = [f for f in reader.scan.functions if f.body]
    return reader.scan


def lines_of_code(places: Iterable[str], folder: Path | None) -> dict[str, str]:
    """Return the lines of code by ``file:line``, for those files that lie in ``folder`` itself; others are left out.

    >>> lines_of_code(["nowhere.py:3", ""], Path("."))
    {}
    """
    wanted: dict[str, set[int]] = {}
    for place in places:
        name, _, number = place.rpartition(":")
        if name and number.isascii() and number.isdigit() and len(number) < 10:
            wanted.setdefault(name, set()).add(int(number))
    found: dict[str, str] = {}
    for name, numbers in wanted.items():
        path = (folder or Path()) / Path(name).name
        if folder is None or not path.is_file():
            continue
        lines = path.read_text(errors="replace").split("\n")
        found |= {f"{name}:{n}": lines[n - 1].strip() for n in numbers if 0 < n <= len(lines)}
    return found
