# SPDX-License-Identifier: MIT
"""Where kernel tests run, and how close is close.

A test that takes the fixture ``device`` runs on the GPU if there is one. Otherwise it runs in Triton's interpreter,
which must be on before the kernel is decorated; so its folder is run once in a child process (all selected tests of
the folder, because PyTorch's import takes longer than some files), and the outcome of every test is reported here under
its own name. Tests without ``device`` run as usual, for example those that compile for gfx942.

``close(actual, expected, length=n)`` compares with a float64 reference. ``guarded`` makes what a wrapper allocates
tell on elements that are never written, and on writes beside them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cdna.interpreter.patches import quick_interpreter

HERE = Path(__file__).parent
OUTCOMES = "ROCM_GUIDE_KERNEL_OUTCOMES"  # set in the child: where it writes what became of each test
SECONDS = 3500  # below the limit of one test (pyproject.toml): the test that starts the child waits for all of it
KNOWN = pytest.StashKey[dict]()
IN_CHILD = pytest.StashKey[bool]()


def _wants_child(item) -> bool:
    if HERE not in item.path.parents:  # a test of another folder may have an argument of this name
        return False
    interpreting = os.environ.get("TRITON_INTERPRET") == "1"
    return "device" in getattr(item, "fixturenames", ()) and not interpreting and not torch.cuda.is_available()


def _run_child(config, ids: list[str], folder: Path, name: str) -> dict:
    names, result = folder / f"{name}.ids", folder / f"{name}.json"
    names.write_text("\n".join(ids))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment |= {"TRITON_INTERPRET": "1", OUTCOMES: str(result), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", str(SECONDS), f"@{names}"]
    if config.getoption("maxfail", 0) == 1:
        command.append("-x")
    run = subprocess.run(command, cwd=config.rootpath, env=environment, capture_output=True, text=True, timeout=SECONDS)
    if not result.exists():
        return {"": ["failed", f"the interpreter's process wrote no result:\n{run.stdout[-3000:]}{run.stderr[-3000:]}"]}
    return json.loads(result.read_text())


def _outcomes(item) -> dict:
    """What became of the tests of the item's folder, run once whatever the number of pytest workers."""
    session = item.session
    known = session.stash.setdefault(KNOWN, {})
    room = item.path.parent
    if room not in known:
        factory = item.config._tmp_path_factory
        base = factory.getbasetemp()
        # Workers of pytest-xdist have sibling folders: what they share lies one higher.
        folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
        name = f"interpreter-{room.name}"
        with (folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = folder / f"{name}.done"
            if not done.exists():
                ids = [i.nodeid for i in session.items if i.path.parent == room and i.stash.get(IN_CHILD, False)]
                done.write_text(json.dumps(_run_child(item.config, ids, folder, name)))
            known[room] = json.loads(done.read_text())
    return known[room]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Mark the tests that run in the child; their fixtures are not set up here."""
    for item in items:
        if _wants_child(item):
            item.stash[IN_CHILD] = True
            item.fixturenames = []


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Report what the child said instead of calling the function."""
    if not pyfuncitem.stash.get(IN_CHILD, False):
        return None
    found = _outcomes(pyfuncitem)
    outcome, text = found.get(pyfuncitem.nodeid) or found.get("") or ["failed", "not run in the interpreter's process"]
    if outcome == "skipped":
        test = pyfuncitem.nodeid.partition("[")[0]
        pytest.skip(f"{text.removeprefix('Skipped: ')}; on a machine with a GPU: pytest -n 0 {test}")
    if outcome != "passed":
        pytest.fail(f"in Triton's interpreter:\n{text}", pytrace=False)
    return True


_CHILD_SAID: dict[str, list[str]] = {}


def pytest_runtest_logreport(report):
    """In the child: keep the outcome of every test; a failure in any phase wins."""
    if OUTCOMES not in os.environ or (report.when != "call" and report.passed):
        return
    text = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else report.longreprtext
    if _CHILD_SAID.get(report.nodeid, ["passed"])[0] == "passed":
        _CHILD_SAID[report.nodeid] = [report.outcome, text]


def pytest_sessionfinish(session):
    """In the child: hand the outcomes over."""
    if OUTCOMES in os.environ:
        Path(os.environ[OUTCOMES]).write_text(json.dumps(_CHILD_SAID))


@pytest.fixture(scope="session", autouse=True)
def interpreter():
    """In the child: as if a reader ran the kernel in the interpreter, in half the time."""
    with quick_interpreter() if os.environ.get("TRITON_INTERPRET") == "1" else contextlib.nullcontext():
        yield


@pytest.fixture
def device() -> str:
    """``"cuda"`` on a machine with a GPU, else ``"cpu"`` inside the interpreter's process."""
    return "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def compiled(monkeypatch):
    """Launches on tensors of the device "meta" compile for an NVIDIA Hopper: a list of (kernel's name, result)."""
    from tests.kernels.pretend_hopper import compile_launches

    yield from compile_launches(monkeypatch)


MARGIN = 64  # elements: 16-byte alignment stays what it is


@pytest.fixture
def guarded(monkeypatch):
    """What wrappers allocate is NaN with a margin around it; when the test ends, no margin may have changed."""
    plain, margins = torch.empty, []

    def empty(*args, **kwargs):
        like = plain(*args, **kwargs)
        if like.device.type == "meta" or not like.is_contiguous():
            return like
        room = plain(like.numel() + 2 * MARGIN, dtype=like.dtype, device=like.device)
        raw = room.view(torch.uint8)
        raw.fill_(0xFF if like.dtype.itemsize > 1 else 0x7F)  # NaN in every float, -1 in whole numbers
        end = like.numel() + MARGIN
        margins.extend((raw[: MARGIN * like.dtype.itemsize], raw[end * like.dtype.itemsize :]))
        return room[MARGIN:end].view(like.shape)

    monkeypatch.setattr(torch, "empty", empty)
    yield
    for raw in margins:
        assert bool((raw == raw[0]).all()) and int(raw[0]) in (0xFF, 0x7F), "a kernel wrote beside its output"


def allowed_error(expected: torch.Tensor, dtype: torch.dtype, length: int, magnitude) -> torch.Tensor:
    """Rounding to ``dtype`` once, plus fp32 arithmetic over ``length`` terms whose sum has size ``magnitude``."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    # To nearest is half a step; the interpreter cuts bfloat16 off, which is a whole one.
    steps = 1.0 if interpreted and dtype == torch.bfloat16 else 0.5
    info = torch.finfo(dtype)
    rounding = (steps * info.eps * 1.001) * expected.abs() + steps * info.smallest_normal * info.eps
    arithmetic = 4 * torch.finfo(torch.float32).eps * max(length, 1) ** 0.5
    # A sum that lands just beside a rounding boundary may round to the other side: both terms apply.
    return rounding + arithmetic * (expected.abs() + torch.as_tensor(magnitude, dtype=torch.float64))


@pytest.fixture
def close():
    """``close(actual, expected, length=1, magnitude=None, dtype=None)`` asserts closeness to a float64 reference.

    ``length`` is the number of terms of the reduction behind each element; ``magnitude`` (number or tensor) the size of
    what is summed, by default the largest finite ``expected``; ``dtype`` the type that was rounded to (``actual``'s).
    NaN and infinities must stand at the same places. ``actual`` must have the expected shape.
    """

    def check(actual, expected, *, length=1, magnitude=None, dtype=None):
        assert actual.shape == expected.shape, f"shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
        assert expected.dtype == torch.float64, "the reference must be float64"
        got, expected = actual.detach().cpu().double(), expected.detach().cpu()
        finite = expected.isfinite()
        special = torch.where(finite, torch.zeros_like(expected), expected)
        got_special = torch.where(got.isfinite(), torch.zeros_like(got), got)
        assert torch.equal(special.isnan(), got_special.isnan()), "NaN at other places than in the reference"
        assert torch.equal(special.nan_to_num(nan=0.0), got_special.nan_to_num(nan=0.0)), "infinities differ"
        e, g = expected.where(finite, torch.zeros(())), got.where(finite, torch.zeros(()))
        if e.numel() == 0:
            return
        if magnitude is None:
            magnitude = e.abs().amax()
        allowed = allowed_error(e, dtype or actual.dtype, length, torch.as_tensor(magnitude).cpu())
        ratio = (g - e).abs() / allowed
        worst = int(ratio.argmax())
        assert ratio.flatten()[worst] <= 1, (
            f"element {worst} of {tuple(e.shape)}: {g.flatten()[worst]:.9g}, expected {e.flatten()[worst]:.9g}: "
            f"{ratio.flatten()[worst]:.3g} times the allowed error; {int((ratio > 1).sum())} elements off"
        )

    return check
