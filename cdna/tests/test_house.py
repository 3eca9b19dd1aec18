# SPDX-License-Identifier: MIT
"""The rules of this house: cdna stands alone, its parts stand on each other in one order, and no module on itself."""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cdna

HOME = Path(cdna.__file__).parent
PROJECT = HOME.parent
MODULES = sorted(HOME.rglob("*.py"))
IDS = [str(p.relative_to(HOME)) for p in MODULES]

# File or folder -> what it may import beside base; each stands only on what is above it here.
ALLOWED = {
    "base": set(),
    "testing": set(),
    "checks": set(),
    "compiler_key": set(),
    "children": set(),
    "kernel_source": set(),
    "compile_errors": {"kernel_source"},
    "arch": set(),
    "resources": set(),
    "elf": {"resources"},
    "isa": {"resources"},
    "ir": set(),
    "costs": {"isa"},
    "occupancy": {"arch"},
    "limits": {"arch", "occupancy"},
    "compile": {"arch", "compile_errors", "isa"},
    "report": {"arch", "compile", "elf", "isa", "limits", "occupancy", "resources"},
    "dry_run": {"arch", "compile", "compile_errors", "report"},
    "suggest": {"ir", "isa", "occupancy"},
    "inspection": {*("arch", "compile", "elf", "ir", "isa", "limits", "occupancy", "report", "resources", "suggest")},
    "page": {"inspection"},
    "guard": set(),
    "interpreter": {"children", "compile"},
    "interpret": {*("children", "compile_errors", "guard", "interpreter", "kernel_source")},
    "run": {"compile", "costs", "dry_run", "elf", "isa"},
    "step": {"arch", "costs", "isa", "run"},
    "examples": {"compile", "report"},
    "explain": {"compile", "costs", "ir", "isa", "run"},
    "predict": {"arch", "compile", "costs", "examples", "isa", "report", "run", "step"},
    "hip": {"arch"},
    "grade": {
        *(
            "checks",
            "compile_errors",
            "dry_run",
            "guard",
            "interpret",
            "interpreter",
            "kernel_source",
            "run",
            "children",
        )
    },
    "cli": None,  # anything
}


def name_of(path):
    return ".".join(("cdna", *path.relative_to(HOME).with_suffix("").parts)).removesuffix(".__init__")


NAMES = {name_of(p): p for p in MODULES}


def imported(nodes):
    """Modules that import statements name: ``from a import b`` is a.b where that is a module."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "a relative import; write the whole name"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in NAMES else node.module


@pytest.mark.parametrize("path", [*MODULES, *sorted((PROJECT / "tests").rglob("*.py"))], ids=lambda p: p.stem)
def test_nothing_here_knows_the_course(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# SPDX-License-Identifier: MIT\n")
    assert not [n for n in imported(ast.walk(ast.parse(text))) if n.split(".")[0] == "rocm_guide"]


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_a_part_imports_only_from_the_parts_above_it(path):
    part = f"{name_of(path)}.".split(".")[1]
    if not part or ALLOWED[part] is None:
        return
    for name in imported(ast.walk(ast.parse(path.read_text(encoding="utf-8")))):
        if name.startswith("cdna"):
            assert name.split(".")[1] in {"base", part, *ALLOWED[part]}, f"{part} imports {name}"


def test_every_part_has_its_place():
    parts = {p.name for p in HOME.iterdir() if (p / "__init__.py").exists()} | {p.stem for p in HOME.glob("*.py")}
    assert parts - {"__init__"} == set(ALLOWED)
    order = list(ALLOWED)
    for part, may in ALLOWED.items():
        assert all(order.index(other) < order.index(part) for other in may or ()), f"{part} stands on a part below it"


def test_no_module_stands_on_itself():
    """No circle, also none of imports in functions or for types; ``__init__`` files look their names up later."""
    needs = {
        name: {n for n in imported(ast.walk(ast.parse(path.read_text(encoding="utf-8")))) if n in NAMES}
        for name, path in NAMES.items()
        if path.name != "__init__.py"
    }
    while free := {name for name, others in needs.items() if not others & set(needs)}:
        needs = {name: others for name, others in needs.items() if name not in free}
    assert not needs


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_only_what_a_module_calls_public_is_imported_from_another_part(path):
    """``__all__`` says what other parts may import; the files of one part share what has no underscore."""
    part = f"{name_of(path)}.".split(".")[1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or node.module not in NAMES or node.module == "cdna":
            continue
        names = [a.name for a in node.names if f"{node.module}.{a.name}" not in NAMES]
        assert not [n for n in names if n.startswith("_")], f"{node.module} keeps these names to itself"
        if node.module.split(".")[1] != part:
            public = getattr(importlib.import_module(node.module), "__all__", ())
            assert not {*names} - {*public}, f"not in the __all__ of {node.module}"


INITS = [p for p in MODULES if p.name == "__init__.py" and "__all__" in p.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", INITS, ids=[p.parent.name for p in INITS])
def test_a_part_is_imported_quickly_and_hides_no_module(path):
    """An ``__init__`` imports nothing heavy, and none of its names is that of a file beside it."""
    room = importlib.import_module(name_of(path))
    files = {m.name for m in pkgutil.iter_modules(room.__path__)}
    assert not files & set(room.__all__) and set(room.__all__) <= set(dir(room))
    imports = [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.ImportFrom)]
    shows = {alias.name: n.module for n in imports if n.module.startswith(f"{room.__name__}.") for alias in n.names}
    assert set(shows) == set(room.__all__)
    assert all(getattr(room, name) is getattr(importlib.import_module(home), name) for name, home in shows.items())
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = room.nothing
    code = f"import sys, {room.__name__}; print(*({{'torch', 'triton', 'matplotlib', 'numpy'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr[-2000:]


REFERENCE = re.compile(r":(?:func|class|mod|data|meth|exc|attr):`~?([\w.]+)`")


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_a_reference_in_a_docstring_leads_somewhere(path):
    """Every :func:, :class:, :mod:, :data: names something of its own module, or a whole dotted name that resolves."""
    here = importlib.import_module(name_of(path))
    classes = [c for c in vars(here).values() if isinstance(c, type)]
    fields = {n for c in classes for n in (*vars(c), *getattr(c, "__annotations__", ()))}
    for name in REFERENCE.findall(path.read_text(encoding="utf-8")):
        first, *rest = name.split(".")
        if first in fields or (first in sys.modules and first != "cdna"):
            continue
        assert first == "cdna" or hasattr(here, first), f"{name} is nothing here; give the whole dotted name"
        target = cdna if first == "cdna" else getattr(here, first)
        for part in rest:
            if part in getattr(target, "__annotations__", {}):
                break
            if not hasattr(target, part):
                importlib.import_module(f"{target.__name__}.{part}")
            target = getattr(target, part)


def test_importing_asks_nothing_of_device_network_or_processes():
    code = f"""
import importlib, socket, subprocess, torch
def no(*a, **k): raise AssertionError("at import")
torch.cuda.is_available = torch.cuda.device_count = torch.cuda.get_device_properties = no
socket.socket.connect = socket.create_connection = subprocess.Popen.__init__ = no
for name in {[n for n in NAMES if not n.endswith("__main__")]!r}: importlib.import_module(name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_package_says_the_version_of_its_project():
    text = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{cdna.__version__}+guide"' in text
