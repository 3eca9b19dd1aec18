# SPDX-License-Identifier: MIT
"""Read the source of the two packages without importing it: which statement defines a name, and what it needs."""

from __future__ import annotations

import ast
import doctest
import re
import symtable
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import cdna
from rocm_guide.common.base import GuideError, package_folder

__all__ = ["is_machinery", "public_helpers"]

PACKAGE, TOOLKIT = "rocm_guide", "cdna"
#: Files of the toolkit that need nothing but Python, and are short.
FOUNDATION = ("cdna.base", "cdna.children")


@dataclass(frozen=True)
class Imported:
    """``from module import name as bound``; ``name`` is empty for ``import module as bound``."""

    module: str
    name: str
    bound: str
    type_only: bool = False
    by: str = PACKAGE  #: the package that imports it

    @property
    def inside(self) -> bool:
        """Return whether its text goes into a copy. What the course takes of the toolkit is imported: others have that
        package too. Only a few files of it are the course's own foundation.
        """
        top = self.module.partition(".")[0]
        return top == PACKAGE or (top == TOOLKIT and (self.by == TOOLKIT or self.module in FOUNDATION))

    @property
    def stands_for(self) -> str:
        """Return what the bound name means: ``import a.b`` and ``import a.c`` both bind the package ``a``."""
        whole = self.module if self.name or self.bound != self.module.split(".")[0] else self.bound
        return f"{whole} {self.name}"

    @property
    def line(self) -> str:
        """The import statement."""
        if self.name:
            return f"from {self.module} import {self.name}" + (f" as {self.bound}" if self.bound != self.name else "")
        return f"import {self.module}" + (f" as {self.bound}" if self.bound != self.module.split(".")[0] else "")


@dataclass(eq=False)
class Statement:
    """One statement at the top of a module, with the comment lines that stand directly above it."""

    module: Module
    node: ast.stmt
    first: int
    last: int
    names: tuple[str, ...]

    @cached_property
    def source(self) -> str:
        """Its text."""
        return "\n".join(self.module.lines[self.first - 1 : self.last])

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of its syntax tree; one statement is part of hundreds of copies."""
        return list(ast.walk(self.node))

    @cached_property
    def import_statements(self) -> list[ast.ImportFrom | ast.Import]:
        """Imports in it: inside functions."""
        return [n for n in self.nodes if isinstance(n, ast.ImportFrom | ast.Import)]

    @cached_property
    def local_names(self) -> set[str]:
        """Names of arguments, and of variables that are assigned inside functions and classes."""
        stored = {n.id for n in self.nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        return stored - set(self.names) | {n.arg for n in self.nodes if isinstance(n, ast.arg)}

    @cached_property
    def data(self) -> list[tuple[ast.Call, str]]:
        """Expressions that read a data file of the package as text, each with the file's path inside it.

        They look like ``files("rocm_guide").joinpath("data", "facts.tsv").read_text()``.
        """
        found = []
        for call in self.nodes:
            match call:
                case ast.Call(func=ast.Attribute(attr="read_text", value=ast.Call(func=joined, args=parts))):
                    texts = [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]
                    root = ast.unparse(joined)
                    package = self.module.name.partition(".")[0]
                    if root.endswith(f"files('{package}').joinpath") and len(texts) == len(parts):
                        found.append((call, "/".join(texts)))
        return found


@dataclass(eq=False)
class Module:
    """A module as source: what it defines and imports at its top level."""

    name: str
    path: Path
    text: str
    defined: dict[str, list[Statement]] = field(default_factory=dict)
    imported: dict[str, list[Imported]] = field(default_factory=dict)

    @cached_property
    def lines(self) -> list[str]:
        """Its lines."""
        return self.text.split("\n")

    @cached_property
    def public(self) -> list[str]:
        """Its ``__all__``; of the face of a room, what it imports from the room."""
        if self.path.name == "__init__.py":
            return [name for name, (one, *_) in self.imported.items() if one.module.startswith(f"{self.name}.")]
        statements = self.defined.get("__all__")
        value = getattr(statements[0].node, "value", None) if statements else None
        return list(ast.literal_eval(value)) if value else []

    def imports_of(self, node: ast.ImportFrom | ast.Import, *, type_only: bool = False) -> list[Imported]:
        """Return the names that an import statement of this module binds.

        Raises:
            GuideError: it imports a module of the packages as a whole, or a star; both cannot be inlined by name.
        """
        found, by = [], self.name.partition(".")[0]
        for alias in node.names:
            if isinstance(node, ast.Import):
                found.append(Imported(alias.name, "", alias.asname or alias.name.split(".")[0], type_only, by))
                continue
            found.append(Imported(str(node.module), alias.name, alias.asname or alias.name, type_only, by))
        for one in found:
            if one.inside and (one.name in ("", "*") or _path_of(f"{one.module}.{one.name}", self.root) is not None):
                line = f"{self.path.name}, line {node.lineno}"
                whole = one.module.partition(".")[0]
                raise GuideError(f"{line}: imports a whole module of {whole}; import names from it instead")
        return found

    @property
    def root(self) -> Path:
        """The folder of its package."""
        return self.path.parents[len(self.name.split(".")) - (self.path.name != "__init__.py") - 1]


def _path_of(name: str, root: Path) -> Path | None:
    package, *parts = name.split(".")
    if package == TOOLKIT and root.name != TOOLKIT:
        root = toolkit_folder()
    elif package == PACKAGE and root.name == TOOLKIT:
        root = package_folder()
    for path in (root.joinpath(*parts).with_suffix(".py") if parts else None, root.joinpath(*parts, "__init__.py")):
        if path is not None and path.is_file():
            return path
    return None


def toolkit_folder() -> Path:
    """Return the folder of the installed package ``cdna``."""
    return Path(cdna.__file__).resolve().parent


def _bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a top-level statement binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name.split(".")[0]
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
        yield node.value.id  # TABLE[key] = … makes the table's value, too
    else:
        for child in ast.iter_child_nodes(node):
            yield from _bound(child)


def scan(name: str, root: Path) -> Module | None:
    """Read module ``name`` ("rocm_guide.models.load"; ``root`` is the folder of rocm_guide); None if there is none."""
    path = _path_of(name, root)
    return None if path is None else _parse(name, path, path.read_text(encoding="utf-8"))


@cache
def _parse(name: str, path: Path, text: str) -> Module:
    module = Module(name, path, text)
    for node in ast.parse(text).body:
        guarded = isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        guard = node if isinstance(node, ast.If) and guarded else None
        for child in guard.body if guard else [node]:
            if isinstance(child, ast.Import | ast.ImportFrom):
                if getattr(child, "module", None) != "__future__":
                    found = module.imports_of(child, type_only=guarded)
                    for one in found:
                        # import a.b and import a.c both bind a: both are needed.
                        module.imported.setdefault(one.bound, []).append(one)
                continue
            names = tuple(dict.fromkeys(_bound(child)))
            first = min([child.lineno, *(d.lineno for d in getattr(child, "decorator_list", []))])
            while first > 1 and module.lines[first - 2].startswith("#") and "SPDX" not in module.lines[first - 2]:
                first -= 1
            statement = Statement(module, child, first, child.end_lineno or child.lineno, names)
            # A name may be bound more than once (X = …, then X |= …): all of it makes its value.
            for bound in names:
                module.defined.setdefault(bound, []).append(statement)
    return module


def _globals_of(table: symtable.SymbolTable) -> Iterator[str]:
    top = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (top or symbol.is_global()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _globals_of(child)


@cache
def names_used(code: str) -> frozenset[str]:
    """Return the names that ``code`` reads from its module or from Python, local variables left out.

    >>> sorted(names_used("def f(x, y=LIMIT):\\n    total = x + y\\n    return round(total, g(x))"))
    ['LIMIT', 'g', 'round']
    """
    return frozenset(_globals_of(symtable.symtable(code, "<statement>", "exec")))


def names_in_examples(node: ast.stmt) -> tuple[set[str], list[ast.ImportFrom | ast.Import]]:
    """Return the names that the doctest examples in a definition's docstrings read, and their imports."""
    used: set[str] = set()
    imports: list[ast.ImportFrom | ast.Import] = []
    for child in ast.walk(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for example in doctest.DocTestParser().get_examples(ast.get_docstring(child) or ""):
            used |= names_used(example.source)
            imports += [n for n in ast.walk(ast.parse(example.source)) if isinstance(n, ast.ImportFrom)]
    return used, imports


def constant_for(data: str) -> str:
    """Return the name that the text of a data file gets in a copy.

    >>> constant_for("data/facts.tsv")
    'DATA_FACTS_TSV'
    """
    return re.sub(r"\W+", "_", data).upper()


#: What nobody lifts. The course's own machinery: its command line, the judges of its exercises, its puzzles, its checks
#: of a machine, its tables, what it keeps of a run; files ``examples.py``, which read what the notebooks read, and
#: ``api.py``, for a kernel is copied from its own file. And what stands on too much of the course to be read.
_LEFT_OUT = (
    *("cli", "exercises", "moved", "dojo", "observe.doctor", "observe.predict", "observe.system"),
    *("common.base", "common.host", "common.installation", "finetune.job", "finetune.job_check", "finetune.passport"),
    *("finetune.run_folder", "finetune.run_measurements", "finetune.run_stages"),
    *("kernels.cases", "models.course_data", "models.tiny"),
    *("models.sources", "models.described", "models.quantized", "models.real"),
    *("finetune.rows_check", "serve.door", "serve.sizing", "serve.served_checkpoints"),
    *("tune.tunableop.own_kernels", "tune.tunableop.recorder"),
    *("finetune.watched", "finetune.torchtune.run", "finetune.torchtune.tokenizer", "models.load", "models.step"),
    *("observe.debugging.faults.agent_log", "observe.debugging.faults.verdict", "quantize.budget", "quantize.layers"),
    *("serve.generate_cost", "tune.attention.backends", "tune.attention.in_transformers", "tune.ck"),
)


def public_helpers(root: Path | None = None) -> list[str]:
    """Return every name that can be copied, written ``module.name``: the ``__all__`` of the modules that are helpers.

    An exception is not named: it comes along with what raises it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "tool.py").write_text("__all__ = ['LIMIT']\\nLIMIT = 2\\n")
    ...     public_helpers(Path(folder))
    ['tool.LIMIT']
    """
    root = root or package_folder()
    found = []
    for path in sorted(root.rglob("*.py")):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        if is_machinery(module) or path.name.startswith("__"):
            continue
        found += [f"{module}.{name}" for name in _defined_here(path) if not name.endswith("Error")]
    return found


def is_machinery(module: str) -> bool:
    """Return whether nothing of a module (``"cli.main"``) is offered as a helper."""
    return f"{module}.".startswith(tuple(f"{m}." for m in _LEFT_OUT)) or module.split(".")[-1] in ("examples", "api")


def _defined_here(path: Path) -> list[str]:
    """Return the names of a module's ``__all__`` that it defines; what it re-exports is copied from its home."""
    text = path.read_text(encoding="utf-8")
    listed = re.search(r"^__all__ = (\[[^\]]*\])", text, re.M)
    defined = set(re.findall(r"^(?:(?:async )?def |class )?(\w+)\b.*?[=(:]", text, re.M))
    return [name for name in ast.literal_eval(listed[1]) if name in defined] if listed else []
