# SPDX-License-Identifier: MIT
"""The rules of the house that no linter knows: the layers of the rooms, the doors, the licence line, what happens at
import, and names in docstrings that lead somewhere.
"""

import ast
import importlib
import importlib.util
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rocm_guide.moved import moved, new_name

PACKAGE = Path(__file__).parent.parent / "rocm_guide"
MODULES = sorted(PACKAGE.rglob("*.py"))
IDS = [str(p.relative_to(PACKAGE)) for p in MODULES]
COURSE = sorted(p for room in ("course", "hub") for p in PACKAGE.with_name(room).glob("*.py"))

# Room -> what it may import beside cdna; each stands only on what is above it here.
ALLOWED = {
    "moved": set(),
    "common": set(),
    "kernels": {"common"},
    "models": {"common"},
    "observe": {"common", "kernels"},
    "quantize": {"common", "kernels", "models", "observe"},
    "finetune": {"common", "models", "observe", "quantize"},
    "serve": {"common", "models", "observe"},
    "tune": {"common", "kernels", "models"},
    "dojo": {"common"},
    "exercises": None,  # anything but cli
    "cli": None,  # anything
}


def room_of(module):
    """The room, or the leaf, that a dotted name below ``rocm_guide`` belongs to."""
    return module.split(".")[1] if "." in module else ""


def name_of(path):
    return ".".join(("rocm_guide", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


def inside(path):
    """Modules of this package that ``path`` imports, at its top or in its functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("rocm_guide"))
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import; write the whole name"
            if node.module == "rocm_guide":
                yield from (f"rocm_guide.{a.name}" for a in node.names if a.name != "__version__")
            elif node.module.startswith("rocm_guide"):
                yield node.module


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_a_module_says_its_licence(path):
    assert path.read_text(encoding="utf-8").startswith("# SPDX-License-Identifier: MIT\n")


@pytest.mark.parametrize("old", ["zoo", "training", "mi300x", "course"])
def test_an_old_name_says_the_new_one(old):
    name = f"rocm_guide.{old}"
    with pytest.raises(ModuleNotFoundError, match=rf"^{name} is {re.escape(new_name(old))} now: change the import$"):
        importlib.import_module(name)


def test_what_has_moved_is_where_the_table_says():
    olds = [PACKAGE.joinpath(*old.split(".")) for old in moved()]
    assert [old for old in olds if old.with_suffix(".py").exists() or (old / "__init__.py").exists()] == []
    for new in moved().values():
        assert importlib.util.find_spec(new), new


# Tables in columns: of the instructions in cdna; elsewhere tiles, parameters and calls of kernels.
SUPPRESSED = {("fmt: skip", True): 20, ("fmt: skip", False): 41, ("noqa", True): 16, ("noqa", False): 40}


@pytest.mark.parametrize(("word", "machine_code"), SUPPRESSED)
def test_formatter_and_linter_are_seldom_overruled(word, machine_code):
    rooms = ("cdna",) if machine_code else ("rocm_guide", "tests", "benchmarks")
    files = [p for room in rooms for p in (PACKAGE.parent / room).rglob("*.py")]
    found = {str(p): n for p in files if (n := p.read_text(encoding="utf-8").count(f"# {word}"))}
    found.pop(str(Path(__file__)), None)
    assert sum(found.values()) <= SUPPRESSED[word, machine_code], found


def is_compiled_by_triton(function):
    decorators = (d.func if isinstance(d, ast.Call) else d for d in function.decorator_list)
    return any(ast.unparse(d).split("(")[0] in ("triton.jit", "gluon.jit") for d in decorators)


def not_annotated(path):
    """Functions of a module, those that Triton compiles aside, with a parameter or a result that has no type."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and not is_compiled_by_triton(node):
            a = node.args
            given = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
            if node.returns is None or any(p.annotation is None and p.arg not in ("self", "cls") for p in given):
                yield f"{path.name}:{node.lineno} {node.name}"


def test_what_triton_does_not_compile_is_annotated_in_the_rooms_where_ruff_does_not_look():
    ignored = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
    rooms = [r for r, rules in ignored["per-file-ignores"].items() if "ANN001" in rules and r.startswith("rocm_guide/")]
    files = [f for room in rooms for f in PACKAGE.parent.glob(f"{room}/*.py")]
    assert len(files) > 30
    assert [found for f in files for found in not_annotated(f)] == []


def test_every_room_has_its_layer():
    rooms = {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").exists()} | {p.stem for p in PACKAGE.glob("*.py")}
    assert rooms - {"__init__"} == set(ALLOWED)
    order = list(ALLOWED)
    for room, may in ALLOWED.items():
        assert all(order.index(other) < order.index(room) for other in may or ()), f"{room} stands on a room below it"


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_a_room_imports_only_from_the_layers_below_it(path):
    room = room_of(name_of(path))
    if room == "cli":
        return
    may = ALLOWED[room] if room in ALLOWED and ALLOWED[room] is not None else set(ALLOWED) - {"cli"}
    for name in inside(path):
        assert room_of(name) in {room, *may}, f"{room} imports {name}"


FILES = {name_of(path) for path in MODULES}


def names_taken(path):
    """(module of this package, name) for each name that a file imports from another."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rocm_guide."):
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("path", [*MODULES, *COURSE], ids=[*IDS, *(p.name for p in COURSE)])
def test_only_what_a_file_calls_public_is_taken_by_another_room(path):
    """``__all__`` says what other rooms may import; the files of one room share what has no underscore."""
    room = room_of(name_of(path)) if path in MODULES else None
    for module, name in names_taken(path):
        if f"{module}.{name}" in FILES:
            continue
        assert not name.startswith("_") or name == "__version__", f"{module} keeps {name} to itself"
        if room_of(module) != room:
            assert name in importlib.import_module(module).__all__, f"{name} is not in the __all__ of {module}"


def test_no_file_stands_on_itself():
    """No circle of files, also none of imports in functions; the faces of rooms look their names up later."""
    needs = {
        name_of(path): {f"{m}.{n}" if f"{m}.{n}" in FILES else m for m, n in names_taken(path)} & FILES
        for path in MODULES
        if path.name != "__init__.py"
    }
    while free := {name for name, others in needs.items() if not others & set(needs)}:
        needs = {name: others for name, others in needs.items() if name not in free}
    assert not needs


FACES = [p for p in MODULES if p.name == "__init__.py" and "lazy_names(" in p.read_text(encoding="utf-8")]


@pytest.mark.parametrize("face", FACES, ids=[str(p.relative_to(PACKAGE).parent) for p in FACES])
def test_a_face_costs_little_and_hides_no_module(face):
    """A face imports nothing heavy, and none of its names is that of a file beside it."""
    room = importlib.import_module(name_of(face))
    files = {m.name for m in pkgutil.iter_modules(room.__path__)}
    assert not files & set(room.__all__) and set(room.__all__) <= set(dir(room))
    imports = [n for n in ast.walk(ast.parse(face.read_text(encoding="utf-8"))) if isinstance(n, ast.ImportFrom)]
    shows = {alias.name: n.module for n in imports if n.module.startswith(f"{room.__name__}.") for alias in n.names}
    assert set(shows) == set(room.__all__)
    assert all(getattr(room, name) is getattr(importlib.import_module(home), name) for name, home in shows.items())
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = room.nothing
    heavy = "{'torch', 'triton', 'matplotlib', 'transformers'}"
    code = f"import sys, {name_of(face)}; print(*({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == ""


def test_one_file_of_a_room_does_not_bring_its_neighbours():
    """Otherwise `rocm-guide list` waits for the doctor, and the Makefile needs what it is about to install."""
    code = (
        "import rocm_guide.observe.doctor.own_folders, sys; print(*sorted(m for m in sys.modules if 'rocm_guide' in m))"
    )
    # -S hides what is installed: the standard library has to do.
    command, both = [sys.executable, "-S", "-c", code], f"{PACKAGE.parent}:{PACKAGE.parent}/cdna"
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={"PYTHONPATH": both})
    assert done.returncode == 0, done.stderr[-2000:]
    rooms = {"common": ["base", "installation"], "observe": ["doctor", "doctor.own_folders"]}
    alone = [f"rocm_guide.{room}{name}" for room, files in rooms.items() for name in ("", *(f".{f}" for f in files))]
    alone = sorted([*alone, "rocm_guide", "rocm_guide.moved"])
    assert [m for m in done.stdout.split() if not m.startswith("__editable__")] == alone


REFERENCE = re.compile(r":(?:func|class|mod|data|meth|exc|attr):`~?([\w.]+)`")


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_a_reference_in_a_docstring_leads_somewhere(path):
    """Every :func:, :class:, :mod:, :data: names something of its own module, or a whole dotted name that resolves."""
    text = path.read_text(encoding="utf-8")
    found = REFERENCE.findall(text) + re.findall(r"(?<![\w./-])rocm_guide(?:\.\w+)+", text)
    if not found:
        return
    here = importlib.import_module(name_of(path))
    for name in found:
        if name.split(".")[0] not in {"rocm_guide", "cdna", *vars(here), *dir(__builtins__)}:
            classes = [c for c in vars(here).values() if isinstance(c, type)]
            fields = {n for c in classes for n in (*vars(c), *getattr(c, "__annotations__", ()))}
            if name.split(".")[0] in fields or name.split(".")[0] in sys.modules:
                continue
            raise AssertionError(f"{path.name}: {name} is nothing here; give the whole dotted name")
        target = here
        for part in name.split("."):
            if part in ("rocm_guide", "cdna"):
                target = importlib.import_module(part)
                continue
            try:
                if hasattr(target, part):
                    target = getattr(target, part)
                else:
                    target = importlib.import_module(f"{target.__name__}.{part}")
            except (ImportError, AttributeError):
                annotated = getattr(target, "__annotations__", {})
                assert part in annotated, f"{path.name}: {name} does not resolve"
                break


def test_importing_asks_nothing_of_device_network_or_processes():
    """Every module imported in one process in which looking at a GPU, opening a socket and starting a process raise."""
    names = [name_of(p) for p in MODULES]
    names = [n for n in names if not n.endswith("__main__")]
    code = f"""
import importlib, socket, subprocess, torch, transformers
def no(*a, **k): raise AssertionError("at import")
torch.cuda.is_available = torch.cuda.device_count = torch.cuda.get_device_properties = no
socket.socket.connect = socket.create_connection = subprocess.Popen.__init__ = no
for name in {names!r}: importlib.import_module(name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
