# SPDX-License-Identifier: MIT
"""Take functions and Triton kernels apart, so that another process can define them again.

A kernel of a notebook cell or a script has no module that another process could import. What travels is its code, its
lines (an error there names the reader's own line), and what it reads: modules and importable objects by name, plain
values as they are, other functions in the same way.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import dis
import importlib
import inspect
import linecache
import marshal
import sys
import textwrap
import types
from collections.abc import Iterator
from typing import Any

from cdna.base import InputError

__all__ = ["SourceError", "names_read", "pack_objects", "unpack_objects"]

_PLAIN = (bool, int, float, complex, str, bytes, type(None), slice, range)
_GATHERED = {"tuple": tuple, "list": list, "set": set, "frozenset": frozenset}


class SourceError(InputError):
    """A function reads something that cannot be sent to another process."""


def _is_importable(module: str) -> bool:
    """Return whether a fresh process finds the same module under this name."""
    top = module.partition(".")[0]
    loaded = sys.modules.get(top)
    if top == "__main__" or loaded is None:
        return False
    if top in sys.builtin_module_names:
        return True
    for finder in sys.meta_path:
        spec = finder.find_spec(top, None) if hasattr(finder, "find_spec") else None
        if spec is not None:
            own = getattr(loaded, "__spec__", None)
            return own is None or own.origin == spec.origin
    return False


def _find_name(value: Any) -> tuple[str, str] | None:
    """Return the module and dotted name under which a fresh process finds ``value``; None if there are none."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    homes = [getattr(value, "__module__", None)]
    short = str(name).rpartition(".")[2]
    if inspect.isbuiltin(value) and getattr(sys.modules.get("torch"), short, None) is value:
        return "torch", short  # torch.clone says that it lives in a class which has no name to import
    fn = getattr(value, "fn", None)  # Triton's wrappers carry the function's name, or none
    if fn is not None and not isinstance(name, str):
        name, homes = getattr(fn, "__qualname__", None), [getattr(fn, "__module__", None)]
    for home in homes:
        if not isinstance(name, str) or not isinstance(home, str) or not _is_importable(home):
            continue
        found: Any = sys.modules.get(home)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is value or (fn is not None and getattr(found, "fn", None) is fn):
            return home, name
    return None


def names_read(code: types.CodeType) -> Iterator[str]:
    """Return the globals that a function and the functions inside it read."""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield step.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_read(constant)


def _names_in_head(function: types.FunctionType) -> set[str]:
    """Return the names in the annotations and defaults of a kernel: the interpreter executes its ``def`` line again."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, SyntaxError, IndexError):
        return set()
    if not isinstance(tree, ast.FunctionDef):
        return set()
    a = tree.args
    given = [p.annotation for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    parts = [n for n in (*given, *a.defaults, *a.kw_defaults, tree.returns) if n is not None]
    return {n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)}


class _Packer:
    """Collects functions, each once, and the lines of their files."""

    def __init__(self) -> None:
        self.functions: list[dict[str, Any]] = []
        self.lines: dict[str, list[str]] = {}
        self.seen: dict[int, int] = {}
        self.spaces: dict[int, int] = {}

    def value(self, value: Any, where: str) -> tuple[Any, ...]:
        """Pack anything, as a tuple that says what it is."""
        import torch

        if type(value) in _PLAIN:
            return "plain", value
        for name, kind in _GATHERED.items():
            if type(value) is kind or (name == "tuple" and type(value) is torch.Size):
                return name, [self.value(v, where) for v in value]
        if type(value) is dict:
            return "dict", [(self.value(k, where), self.value(v, where)) for k, v in value.items()]
        if isinstance(value, torch.dtype | torch.device):
            return type(value).__name__, str(value).removeprefix("torch.")
        if isinstance(value, types.ModuleType):
            if _is_importable(value.__name__):
                return "module", value.__name__
        elif (special := self.triton_value(value, where)) is not None:
            return special
        elif (found := _find_name(value)) is not None:
            return ("object", *found)
        elif isinstance(value, types.FunctionType):
            return "function", self.function(value, ())
        elif dataclasses.is_dataclass(value) and (home := _find_name(type(value))) is not None:  # a layout of Gluon
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
            return "record", *home, self.value(fields, where)
        what = f"class {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise SourceError(
            f"{where} ({what}): the interpreter's process cannot have it; pass it as an argument, or put it into a "
            "module that can be imported"
        )

    def triton_value(self, value: Any, where: str) -> tuple[Any, ...] | None:
        """Pack constants, types and kernels of Triton; None for anything else."""
        tl = sys.modules.get("triton.language")
        if tl is None:
            return None
        if isinstance(value, tl.constexpr):
            return "constexpr", self.value(value.value, where)
        if type(value) is tl.dtype:
            return "tl.dtype", value.name
        from triton.runtime.autotuner import Autotuner, Heuristics
        from triton.runtime.interpreter import InterpretedFunction
        from triton.runtime.jit import JITFunction

        layers: list[tuple[str, Any]] = []
        inner = value
        while isinstance(inner, Autotuner | Heuristics):
            if isinstance(inner, Autotuner):
                layers.append(("autotune", dict(inner.configs[0].kwargs)))
            else:
                layers.append(("heuristics", {k: self.value(f, where) for k, f in inner.values.items()}))
            inner = inner.fn
        if not isinstance(inner, JITFunction | InterpretedFunction):
            return None
        if (found := _find_name(value)) is not None:
            return ("object", *found)
        gluon = isinstance(inner, JITFunction) and inner.is_gluon()
        return "function", self.function(inner.fn, (*layers, ("gluon" if gluon else "jit", None)))

    def function(self, fn: types.FunctionType, layers: tuple[tuple[str, Any], ...]) -> int:
        """Return the number of a function among those collected."""
        if id(fn) in self.seen:
            return self.seen[id(fn)]
        number = self.seen[id(fn)] = len(self.functions)
        packed: dict[str, Any] = {"layers": layers, "name": fn.__name__, "code": marshal.dumps(fn.__code__)}
        self.functions.append(packed)
        packed["space"] = self.spaces.setdefault(id(fn.__globals__), len(self.spaces))
        file = fn.__code__.co_filename
        if lines := linecache.getlines(file, fn.__globals__):
            self.lines[file] = lines

        names = dict.fromkeys(names_read(fn.__code__))
        kernel = any(kind in ("jit", "gluon") for kind, _ in layers)
        if kernel:
            names |= dict.fromkeys(sorted(_names_in_head(fn)))
            packed["annotations"] = {k: self.value(v, fn.__name__) for k, v in fn.__annotations__.items()}
        # A name that is nowhere (a typing error) is left out: over there it is a NameError at the reader's line.
        reads = {n: fn.__globals__[n] for n in names if n in fn.__globals__}
        packed["globals"] = {n: self.value(v, f"{fn.__name__} reads {n}") for n, v in reads.items()}
        cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
        packed["closure"] = [(n, self.cell(c, f"{fn.__name__} reads {n}")) for n, c in cells]
        packed["defaults"] = self.value(fn.__defaults__, f"a default of {fn.__name__}")
        packed["kwdefaults"] = self.value(fn.__kwdefaults__, f"a default of {fn.__name__}")
        return number

    def cell(self, cell: types.CellType, where: str) -> tuple[Any, ...] | None:
        """Pack what a closure holds; None if nothing yet."""
        try:
            return self.value(cell.cell_contents, where)
        except ValueError:
            return None


def pack_objects(values: list[Any]) -> dict[str, Any]:
    """Pack functions, Triton kernels and plain values as data of built-in types, for :func:`unpack_objects`.

    What a module can give travels by name. Of an autotuned kernel the first configuration is taken.

    Raises:
        SourceError: a function reads something else: a tensor, say, or a class of the notebook.

    >>> import math
    >>> pack_objects([math.sqrt, 3])["values"]
    [('object', 'math', 'sqrt'), ('plain', 3)]
    """
    packer = _Packer()
    packed = [packer.value(v, getattr(v, "__name__", "an argument")) for v in values]
    return {"values": packed, "functions": packer.functions, "lines": packer.lines}


class _Unpacker:
    """Defines functions again from what :class:`_Packer` made."""

    def __init__(self, packed: dict[str, Any]) -> None:
        for file, lines in packed["lines"].items():
            # Without a time stamp linecache keeps the lines, whether or not there is such a file here.
            linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
        self.functions: list[Any] = []
        spaces: dict[int, dict[str, Any]] = {}
        made = []
        for one in packed["functions"]:
            space = spaces.setdefault(one["space"], self._space())
            # Triton's interpreter executes a kernel's source anew, and looks for its closure among the globals.
            if one["closure"] and one["layers"]:
                space = self._space()
            cells = tuple(types.CellType() for _ in one["closure"])
            fn = types.FunctionType(marshal.loads(one["code"]), space, one["name"], None, cells)
            made.append((fn, space, cells, one))
            with contextlib.suppress(IndexError):  # a default that is a function which comes later
                self._head(fn, one)  # a kernel that is compiled is asked for it when it is decorated
            self.functions.append(self._dress(fn, one["layers"]))
        for fn, space, cells, one in made:
            self._head(fn, one)
            space.update({n: self.value(v) for n, v in one["globals"].items()})
            for cell, (name, content) in zip(cells, one["closure"], strict=True):
                if content is not None:
                    cell.cell_contents = self.value(content)
                    if one["layers"]:
                        space[name] = cell.cell_contents

    def _head(self, fn: types.FunctionType, one: dict[str, Any]) -> None:
        fn.__defaults__ = self.value(one["defaults"])
        fn.__kwdefaults__ = self.value(one["kwdefaults"])
        fn.__annotations__ = {k: self.value(v) for k, v in one.get("annotations", {}).items()}

    @staticmethod
    def _space() -> dict[str, Any]:
        import triton.language as tl

        # The interpreter wants to see triton.language among a kernel's globals, by whatever name.
        return {"__name__": "__reader__", "__builtins__": __builtins__, "__triton_language__": tl}

    def _dress(self, fn: Any, layers: tuple[tuple[str, Any], ...]) -> Any:
        import triton

        for kind, content in reversed(layers):
            if kind == "jit":
                fn = triton.jit(fn)
            elif kind == "gluon":
                fn = importlib.import_module("triton.experimental.gluon").jit(fn)
            elif kind == "autotune":
                fn = triton.autotune(configs=[triton.Config(content)], key=[])(fn)
            else:
                fn = triton.heuristics({k: self._later(v) for k, v in content.items()})(fn)
        return fn

    def _later(self, packed: tuple[Any, ...]) -> Any:
        # A heuristic's function may be one that is defined after its kernel.
        return lambda *a, **k: self.value(packed)(*a, **k)

    def value(self, packed: tuple[Any, ...]) -> Any:
        kind, content = packed[0], packed[1]
        if kind == "plain":
            return content
        if kind in _GATHERED:
            return _GATHERED[kind](map(self.value, content))
        if kind == "dict":
            return {self.value(k): self.value(v) for k, v in content}
        if kind == "module":
            return importlib.import_module(content)
        if kind == "function":
            return self.functions[content]
        if kind == "object":
            found: Any = importlib.import_module(content)
            for part in packed[2].split("."):
                found = getattr(found, part)
            return found
        if kind == "record":
            return self.value(("object", *packed[1:3]))(**self.value(packed[3]))
        import torch
        import triton.language as tl

        if kind == "constexpr":
            return tl.constexpr(self.value(content))
        if kind == "tl.dtype":
            return tl.dtype(content)
        return torch.device(content) if kind == "device" else getattr(torch, content)


def unpack_objects(packed: dict[str, Any]) -> list[Any]:
    """Return the values that :func:`pack_objects` took apart, in order; kernels are decorated anew.

    >>> unpack_objects(pack_objects([(1, "a"), len]))
    [(1, 'a'), <built-in function len>]
    """
    unpacker = _Unpacker(packed)
    return [unpacker.value(v) for v in packed["values"]]
