# SPDX-License-Identifier: MIT
"""`rocm-guide copy tune.tunableop.planner.plan`: one helper as one file that needs nothing of the course.

The helper's own text is kept as it is, comments and docstrings included. What it needs from other modules of the
course or of cdna is inlined by name, in an order that works; what it needs from libraries is imported.
"""

from __future__ import annotations

import ast
import difflib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from rocm_guide.cli.copying.scan import (
    FOUNDATION,
    PACKAGE,
    TOOLKIT,
    Imported,
    Module,
    Statement,
    constant_for,
    is_machinery,
    names_in_examples,
    names_used,
    public_helpers,
    scan,
)
from rocm_guide.common.base import GuideError, package_folder, shown
from rocm_guide.moved import new_name

__all__ = ["copy_source", "find_helper"]


class _Closure:
    """The statements and imports that a helper needs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules: dict[str, Module | None] = {}
        self.statements: dict[Statement, None] = {}  # in the order in which they were found
        self.imports: dict[str, Imported] = {}  # by the line of the import

    def module(self, name: str) -> Module | None:
        if name not in self.modules:
            self.modules[name] = scan(name, self.root)
        return self.modules[name]

    def need(self, module: Module, name: str, *, examples: bool = False) -> None:
        """Add the definition of ``name`` in ``module``, and what it needs."""
        if name in module.defined:
            for statement in module.defined[name]:
                self._add(statement, examples=examples)
        for one in module.imported.get(name, []) if name not in module.defined else []:
            self._import(one)

    def _import(self, one: Imported) -> None:
        if one.inside:
            home = self.module(one.module)
            if home is None or (one.name not in home.defined and one.name not in home.imported):
                raise GuideError(f"{one.module}.{one.name}: no such name to inline; mend the import")
            self.need(home, one.name)
            return
        for known in self.imports.values():
            if known.bound == one.bound and known.stands_for != one.stands_for:
                raise GuideError(f"{one.bound}: stands for both '{known.line}' and '{one.line}'; rename one of them")
        same = self.imports.get(one.line)
        if same is None or same.type_only:
            self.imports[one.line] = one

    def _add(self, statement: Statement, *, examples: bool = False) -> None:
        if statement in self.statements:
            return
        self.statements[statement] = None
        module, used = statement.module, names_used(statement.source)
        local = statement.import_statements
        if examples:
            more, imports = names_in_examples(statement.node)
            used, local = used | more, local + imports
        for node in local:
            for one in module.imports_of(node):
                if one.inside:
                    self._import(one)
        for name in sorted(used):
            self.need(module, name)

    def _homes(self, one: Imported) -> Iterator[Module]:
        """Yield the module that an import names and, where that is the face of a room, the one behind it."""
        home = self.module(one.module)
        if home is not None:
            yield home
            behind = home.imported.get(one.name, []) if home.path.name == "__init__.py" else []
            for further in behind:
                yield from self._homes(further) if further.inside else ()

    def in_order(self) -> list[Statement]:
        """Return modules before those that import them, and each module's statements in its own order."""
        order: list[str] = []

        def visit(module: Module) -> None:
            if module.name in visiting:
                return
            visiting.add(module.name)
            for one in (one for several in module.imported.values() for one in several):
                if one.inside and not one.type_only:
                    for home in self._homes(one):
                        visit(home)
            order.append(module.name)

        visiting: set[str] = set()
        for statement in self.statements:
            visit(statement.module)
        rank = {name: i for i, name in enumerate(order)}
        return sorted(self.statements, key=lambda s: (rank[s.module.name], s.first))


def _renames(statements: Iterable[Statement]) -> dict[tuple[str, str], str]:
    """Return new names for private helpers that two modules call the same: room and file tell them apart."""
    taken: dict[str, str] = {}
    renames = {}
    for statement in statements:
        module = statement.module.name
        for name in statement.names:
            if taken.setdefault(name, module) != module:
                renames[module, name] = f"{name}_of_{'_'.join(module.split('.')[1:][-2:])}"
    return renames


def _edited(statement: Statement, renames: dict[tuple[str, str], str], target: bool) -> str:
    """Return the statement's text without its imports from this package, renamed or clashing names replaced."""
    module = statement.module
    lines = [line.encode() for line in module.lines[statement.first - 1 : statement.last]]
    new_name = {}
    for name in {*names_used(statement.source), *statement.names}:
        one = next((i for i in module.imported.get(name, []) if i.inside), None)
        new = renames.get((one.module, one.name) if one else (module.name, name), one.name if one else name)
        if new != name:
            new_name[name] = new
    # A local variable may have the name that the alias stands for: then the alias stays.
    kept = sorted(alias for alias, new in new_name.items() if new in statement.local_names)
    aliases = "".join(f"{alias} = {new_name.pop(alias)}\n" for alias in kept)
    edits: list[tuple[int, int, int, bytes]] = []
    for node in statement.nodes if new_name else ():
        if isinstance(node, ast.Name) and node.id in new_name:
            edits.append((node.lineno, node.col_offset, len(node.id.encode()), new_name[node.id].encode()))
        elif isinstance(node, ast.arg) and node.arg in new_name:
            raise GuideError(f"{module.name}, line {node.lineno}: {node.arg} is an argument and a clashing helper")
    for call, data in statement.data:
        if call.lineno != call.end_lineno:
            raise GuideError(f"{module.name}, line {call.lineno}: reads {data} over several lines; write it on one")
        length = (call.end_col_offset or 0) - call.col_offset
        edits.append((call.lineno, call.col_offset, length, constant_for(data).encode()))
    for row, column, length, written in sorted(edits, reverse=True):
        line = lines[row - statement.first]
        lines[row - statement.first] = line[:column] + written + line[column + length :]
    head = statement.node
    if isinstance(head, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and head.name in new_name:
        row = head.lineno - statement.first
        pattern = rf"\b(def|class) {head.name}\b".encode()
        lines[row] = re.sub(pattern, rb"\1 " + new_name[head.name].encode(), lines[row], count=1)
    for node in statement.nodes if statement.import_statements else ():
        fields = (getattr(node, f, None) for f in ("body", "orelse", "finalbody"))
        for body in (f for f in fields if isinstance(f, list)):
            for child in body:
                found = module.imports_of(child) if isinstance(child, ast.ImportFrom) else []
                if any(one.inside for one in found):
                    inlined = {one.bound: renames.get((one.module, one.name), one.name) for one in found}
                    _blank(lines, child, statement.first, inlined, alone=len(body) == 1)
    text = aliases + "\n".join(line.decode() for line in lines if line != b"\0")
    homes = [TOOLKIT] if module.name.startswith(TOOLKIT) else FOUNDATION
    taken = "|".join(rf"{re.escape(home)}[\w.]*" for home in (PACKAGE, *homes))
    ours = rf"^ *>>> from ({taken}) import .*\n"
    return re.sub(ours, "", text, flags=re.M) if target else text


def _blank(lines: list[bytes], node: ast.stmt, first: int, inlined: dict[str, str], *, alone: bool) -> None:
    """Take an import statement out; a name that it gives to something called otherwise is assigned instead."""
    indent = b" " * node.col_offset
    kept = [f"{bound} = {name}".encode() for bound, name in inlined.items() if bound != name]
    kept = kept or ([b"pass"] if alone else [])
    for row in range(node.lineno - first, (node.end_lineno or node.lineno) - first + 1):
        lines[row] = b"\0"
    if kept:
        lines[node.lineno - first] = b"\n".join(indent + line for line in kept)


def find_helper(name: str, root: Path | None = None) -> str:
    """Return the name under which a public helper can be copied, where it is defined: ``module.name``.

    Besides that name itself, ``name`` may be the helper as the face of a room shows it (``tune.tunableop.plan``), an
    old name of which only the last word is still right and belongs to one helper only (``lora.LoRALinear``), or the
    one word that names a helper and its file (``rms_norm``).

    Raises:
        GuideError: no such helper, or several.
    """
    if not re.fullmatch(r"\w+(\.\w+)*", name):
        raise GuideError(f"{shown(name)}: a helper is written MODULE.NAME, for example finetune.lora.LoRALinear")
    given, root = root, root or package_folder()
    name = name.removeprefix(f"{PACKAGE}.")
    parts = (new_name(name) or name).removeprefix(f"{PACKAGE}.").split(".")
    if not all(p.isidentifier() for p in parts):
        raise GuideError(f"{name!r}: not the name of a helper; give MODULE.NAME, for example finetune.lora.LoRALinear")
    *rooms, last = parts
    if rooms[:1] == [TOOLKIT]:
        whole = f"pip install ./cdna in a clone, then: from {'.'.join(rooms)} import {last}"
        raise GuideError(f"{shown(name)}: cdna is a package of its own; {whole}")
    module = scan(".".join([PACKAGE, *rooms]), root) if rooms and not is_machinery(".".join(rooms)) else None
    while module is not None and last in module.public:
        if last in module.defined:
            return f"{module.name}.{last}".removeprefix(f"{PACKAGE}.")
        shown_by = next((one for one in module.imported.get(last, []) if one.inside), None)
        if shown_by is None:
            break
        module, last = scan(shown_by.module, root), shown_by.name
    known = public_helpers(given)
    same = [k for k in known if k.rsplit(".", 1)[-1] == parts[-1]]
    file_too = [k for k in same if k.split(".")[-2:] == parts[-2:]]
    own_file = [k for k in same if k.split(".")[-2:] == [name, name]]
    if len(own_file) == 1:
        return own_file[0]
    if rooms and not is_machinery(".".join(rooms)) and len(one := file_too if len(file_too) == 1 else same) == 1:
        return one[0]
    same += [k for k in known if k.rsplit(".", 1)[0] == ".".join(parts)]
    near = same or difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near[:6])}?" if near else "give MODULE.NAME, for example finetune.lora.LoRALinear"
    raise GuideError(f"{name}: no public helper has that name; {hint}")


def _lines(imports: Iterable[Imported]) -> list[str]:
    """Import statements, sorted, with all names from one module on one line."""
    plain: set[str] = set()
    grouped: dict[str, set[str]] = {}
    for one in imports:
        if one.name:
            grouped.setdefault(one.module, set()).add(one.line.split(" import ", 1)[1])
        else:
            plain.add(one.line)
    return sorted(plain) + [f"from {m} import {', '.join(sorted(grouped[m]))}" for m in sorted(grouped)]


def _header(imports: Iterable[Imported]) -> list[str]:
    """Return the import block: Python's own, then libraries, then those that only type checkers read."""
    lazy = _lines(i for i in imports if i.type_only)
    real = [i for i in imports if not i.type_only]
    if lazy and not any(i.bound == "TYPE_CHECKING" for i in real):
        real.append(Imported("typing", "TYPE_CHECKING", "TYPE_CHECKING"))
    own = [i for i in real if i.module.split(".")[0] in sys.stdlib_module_names]
    blocks = [_lines(own), _lines(i for i in real if i not in own)]
    blocks.append(["if TYPE_CHECKING:", *(f"    {line}" for line in lazy)] if lazy else [])
    return ["\n".join(b) for b in blocks if b]


def copy_source(name: str, root: Path | None = None, *, remark: str = "") -> str:
    """Return one self-contained Python file with the public helper ``name`` (``module.name``).

    Raises:
        GuideError: no such helper.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "tool.py").write_text("__all__ = ['LIMIT']\\nHALF = 1\\nLIMIT = 2 * HALF\\n")
    ...     print(copy_source("tool.LIMIT", Path(folder)))  # doctest: +ELLIPSIS
    # SPDX-License-Identifier: MIT
    ...
    HALF = 1
    ...
    LIMIT = 2 * HALF
    <BLANKLINE>
    """
    from rocm_guide import __version__

    closure = _Closure(root or package_folder())
    full = find_helper(name, root)
    home, _, wanted = full.rpartition(".")
    module = closure.module(f"{PACKAGE}.{home}")
    assert module is not None, f"find_helper said {full}"
    closure.need(module, wanted, examples=True)
    statements = closure.in_order()
    renames = _renames(statements)
    toolkit = any(one.module.partition(".")[0] == TOOLKIT for one in closure.imports.values())
    head = [
        "# SPDX-License-Identifier: MIT",
        f"# {module.name}.{wanted} of the ROCm LLM Guide {__version__}, with what it needs.",
        *([f"# {remark}"] if remark else []),
        *(["# cdna is a package of its own: pip install ./cdna in a clone of the course."] if toolkit else []),
        f"# Made by: rocm-guide copy {full}",
    ]
    texts = [_edited(s, renames, s in module.defined[wanted]) for s in statements]
    data = {path: s.module.root for s in statements for _, path in s.data}
    for path, folder in data.items():
        text = (folder / path).read_text(encoding="utf-8").replace("\\", "\\\\").replace('"""', r"\"\"\"")
        texts.insert(0, f'{constant_for(path)} = """\\\n{text}"""')
    blocks = ["\n".join(head) + "\n\nfrom __future__ import annotations", *_header(closure.imports.values())]
    return "\n\n".join(blocks) + "\n\n" + "".join(f"\n{text}\n\n" for text in texts).rstrip() + "\n"
