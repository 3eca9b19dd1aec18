# SPDX-License-Identifier: MIT
"""The rules of the house that no linter knows: size, licence line, who may import whom, nothing happens at import."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "rocm_guide"
MODULES = sorted(PACKAGE.rglob("*.py"))
IDS = [str(p.relative_to(PACKAGE)) for p in MODULES]


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_a_module_is_short_and_says_its_licence(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# SPDX-License-Identifier: MIT"
    limit = 300 if path.parent.name == "kernels" else 250
    assert len(lines) <= limit, f"{len(lines)} lines; split it by purpose"


def inside(path):
    """Modules of this package that ``path`` imports, at its top or in its functions."""
    here = ("rocm_guide", *path.relative_to(PACKAGE).with_suffix("").parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("rocm_guide"))
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level] if node.level else ()
            name = ".".join([*base, node.module] if node.module else base)
            if name.startswith("rocm_guide"):
                yield name


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_who_may_import_whom(path):
    parts = path.relative_to(PACKAGE).parts
    for name in inside(path):
        if parts[0] in ("kernels", "mi300x"):
            allowed = ("rocm_guide.base", "rocm_guide.children", f"rocm_guide.{parts[0]}")
            # A kernel's gfx942_cases are compiled by what knows MI300X; nothing there knows a kernel.
            assert name.startswith((*allowed, "rocm_guide.mi300x")), f"{parts[0]} imports {name}"
            assert parts[0] == "kernels" or not name.startswith("rocm_guide.kernels")
        if parts[0] != "cli":
            assert not name.startswith("rocm_guide.cli"), "the library imports a command"
        if parts[0] not in ("cli", "exercises"):
            assert not name.startswith("rocm_guide.exercises"), "the library imports an exercise"


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_the_library_reads_nothing_of_its_tests(path):
    assert "tests/samples" not in path.read_text(encoding="utf-8").replace('" / "', "/")


def test_importing_asks_nothing_of_device_network_or_processes():
    """Every module imported in one process in which looking at a GPU, opening a socket and starting a process raise."""
    names = [".".join(("rocm_guide", *p.relative_to(PACKAGE).with_suffix("").parts)) for p in MODULES]
    names = [n.removesuffix(".__init__") for n in names if not n.endswith("__main__")]
    code = f"""
import importlib, socket, subprocess, torch, transformers
def no(*a, **k): raise AssertionError("at import")
torch.cuda.is_available = torch.cuda.device_count = torch.cuda.get_device_properties = no
socket.socket.connect = socket.create_connection = subprocess.Popen.__init__ = no
for name in {names!r}: importlib.import_module(name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
