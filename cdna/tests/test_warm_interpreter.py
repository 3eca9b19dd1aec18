# SPDX-License-Identifier: MIT
"""The process that has the interpreter is there for the second call, and nothing of one call reaches the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cdna.children import ChildError
from cdna.interpreter import warm as warm_interpreter
from cdna.interpreter.warm import SilentError, call_warm, prepare_warm, run_warm
from tests.test_children import ended

# What the calls below do, as a module that the fork finds by this process's sys.path.
MODULE = """
import os, signal, sys, time
def tell(target):
    with open(target, "w") as f:
        f.write(f"{os.getppid()} {os.environ.get('TRITON_INTERPRET')} {os.environ.get('A_NAME')} {os.getcwd()}")
    os.environ["A_NAME"] = "left behind"
def fail(): raise ValueError("7 is odd")
def leave(code): sys.exit(int(code))
def crash(): os.kill(os.getpid(), signal.SIGSEGV)
def sleep(started):
    with open(started, "w") as f:
        f.write(f"{os.getpid()}")
    print("asleep")
    time.sleep(600)
def beats(beat):
    for _ in range(12):
        open(beat, "w").close()
        time.sleep(0.1)
def leaves_processes(told):
    for _ in range(2):
        if os.fork() == 0:
            os.setsid()
            with open(told, "a") as f:
                f.write(f"{os.getpid()} ")
            time.sleep(600)
    while len(open(told).read().split()) < 2 if os.path.exists(told) else True:
        time.sleep(0.01)
def has_imported(name, told):
    with open(told, "w") as f:
        f.write(str(name in sys.modules))
def kernels(told):
    import triton
    with open(told, "w") as f:
        f.write(f"{os.environ.get('TRITON_INTERPRET')} {type(triton.jit(kernels)).__name__}")
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "called_warm.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "called_warm"


def test_calls_share_a_process_and_nothing_else(module, tmp_path, monkeypatch):
    told = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.setenv("A_NAME", name)
        run_warm(module, "tell", str(folder / "told"))
        told.append((folder / "told").read_text().split())
    assert told[0][0] == told[1][0] != str(os.getpid())
    assert [t[1:] for t in told] == [["1", n, str(tmp_path / n)] for n in ("one", "two")]
    assert "TRITON_INTERPRET" not in os.environ


def test_a_failure_is_its_last_line_and_a_crash_its_code(module):
    with pytest.raises(ChildError, match=r"^.*ValueError: 7 is odd$"):
        run_warm(module, "fail")
    with pytest.raises(ChildError, match="the process ended with code 3"):
        run_warm(module, "leave", "3")
    assert call_warm(module, "crash") == (-signal.SIGSEGV, "")
    assert call_warm(module, "leave", "0") == (0, "")


def test_a_call_without_a_sign_of_life_is_ended_and_the_next_one_finds_the_process(module, tmp_path):
    started, beat = tmp_path / "started", tmp_path / "beat"
    with pytest.raises(SilentError, match=r"no sign of life for 0\.5 s"):
        call_warm(module, "sleep", str(started), beat=str(beat), quiet=0.5)
    assert ended([int(started.read_text())])
    assert call_warm(module, "beats", str(beat), beat=str(beat), quiet=0.9) == (0, ""), "signs come in time"


def test_what_a_call_has_started_ends_with_it(module, tmp_path):
    """In sessions of their own, after a call that ended well."""
    told = tmp_path / "told"
    run_warm(module, "leaves_processes", str(told))
    assert ended([int(p) for p in told.read_text().split()])


def test_one_process_interprets_and_another_compiles(module, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    prepare_warm(interpret=False)
    for interpret, said in ((True, "1 InterpretedFunction"), (False, "None JITFunction")):
        assert call_warm(module, "kernels", str(tmp_path / "told"), interpret=interpret) == (0, "")
        assert (tmp_path / "told").read_text() == said


def test_what_a_process_has_done_first_its_forks_find_done(module, tmp_path):
    told = str(tmp_path / "told")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(warm_interpreter._IDLE, False, [])  # one that no other test has asked for anything
        for said in ("False", "True", "True"):  # the third finds it done
            assert call_warm(module, "has_imported", "cdna.grade.worker", told, interpret=False) == (0, "")
            assert Path(told).read_text() == said
            prepare_warm(interpret=False, first=("cdna.grade.worker", "read_ahead"))
        warm_interpreter._IDLE[False].pop().end()


def test_a_call_that_takes_too_long_is_ended(module, tmp_path):
    started = tmp_path / "started"
    with pytest.raises(ChildError, match="the process ran longer than 30 s"):
        wait_shorter(module, started)
    assert ended([int(started.read_text())])


def wait_shorter(module, started):
    """A call with a limit of 30 s, of which this machine's clock makes less once it has started."""
    plain = warm_interpreter.select.select

    def soon(reading, writing, failing, seconds):
        while seconds == 30 and not (started.exists() and started.read_text()):
            plain([], [], [], 0.01)
        return plain(reading, writing, failing, 0.05 if seconds == 30 else seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warm_interpreter.select, "select", soon)
        run_warm(module, "sleep", str(started), seconds=30)


def test_a_call_ends_with_the_process_that_asks(module, tmp_path):
    """Killed without a chance to clean up: the end of the pipe tells the process that forks."""
    started = tmp_path / "started"
    code = f"from cdna.interpreter.warm import run_warm; run_warm('called_warm', 'sleep', {str(started)!r})"
    with subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ) as asks:
        while not started.exists() or not started.read_text():
            assert asks.poll() is None
        asks.kill()
    assert ended([int(started.read_text())])


def test_threads_do_not_wait_for_each_other(module, tmp_path):
    """A call that lasts until another has answered: with one process for both it would last for ever."""
    (tmp_path / "pair.py").write_text(
        "import os, time\ndef wait(path):\n    while not os.path.exists(path): time.sleep(0.01)\n"
        "def make(path): open(path, 'w').close()\n"
    )
    made = str(tmp_path / "made")
    first = threading.Thread(target=run_warm, args=("pair", "wait", made))
    first.start()
    run_warm("pair", "make", made)
    first.join(120)
    assert not first.is_alive()
