# SPDX-License-Identifier: MIT
"""`tune` lines in forks of one process: with a stand-in for torchtune, whose import takes no seconds."""

import os
import time
from pathlib import Path

import psutil
import pytest

from rocm_guide.finetune.resident import _RESIDENTS
from rocm_guide.finetune.torchtune import resident
from rocm_guide.finetune.torchtune.resident import close_torchtune
from rocm_guide.finetune.torchtune.run import TuneError, tune
from rocm_guide.observe.doctor.own_folders import OWN_FOLDERS

STAND_IN = """
import os, signal, sys, time
seen = []
def main():
    seen.append(sys.argv[1])
    print(os.getpid(), os.getppid(), os.getcwd(), len(seen), *sys.argv[1:])
    if sys.argv[1] == "sleep":
        time.sleep(600)
    if sys.argv[1] == "exit":
        sys.exit(int(sys.argv[2]))
    if sys.argv[1] == "raise":
        raise ValueError("no such part")
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] == "interrupt":
        print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
if __name__ == "__main__":
    main()
"""


@pytest.fixture(autouse=True)
def stand_in(tmp_path, monkeypatch):
    folder = tmp_path / "own"
    for module in ("torchtune/_cli/tune", "torchtune/training", "torchdata/stateful_dataloader"):
        path = folder / f"{module}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(STAND_IN if path.stem == "tune" else "")
    for name in OWN_FOLDERS["torchtune"].requirements:
        (folder / (name.replace("-", "_").replace("==", "-") + ".dist-info")).mkdir()
    monkeypatch.setenv("ROCM_GUIDE_TORCHTUNE", str(folder))
    monkeypatch.setattr(resident, "gpu_nodes", list)
    yield folder
    close_torchtune()


def kept():
    """The process that has torchtune imported; another test may have kept one with other libraries."""
    return next(one.process for one in _RESIDENTS if one.modules == tuple(resident._NEEDED))


def said(*words, **more):
    """(own number, parent's number, folder, lines seen by this process, the rest) of a line."""
    own, parent, folder, count, *rest = tune(*words, **more).split()
    return int(own), int(parent), folder, int(count), rest


def test_each_line_is_a_process_and_all_have_one_parent(tmp_path):
    first, second = said("ls", "--all"), said("cp", folder=tmp_path)
    assert first[0] != second[0] and first[1] == second[1] == kept().pid != os.getpid()
    assert first[2:] == (str(Path.cwd()), 1, ["ls", "--all"]) and second[2] == str(tmp_path)
    assert second[3] == 1, "a line finds something of the line before"
    assert said("interrupt")[4] == ["interrupt", "True"]


def test_a_line_that_fails_says_why_and_the_next_one_runs():
    with pytest.raises(TuneError, match=r"^tune raise: ValueError: no such part$"):
        tune("raise")
    with pytest.raises(TuneError, match=r"^tune exit 3: "):
        tune("exit", "3")
    with pytest.raises(TuneError, match=r"^tune kill: "):
        tune("kill")
    assert tune("exit", "0") and said("ls")[3] == 1


def test_a_line_that_takes_too_long_is_ended():
    began = time.monotonic()
    with pytest.raises(TuneError, match=r"no end after 0\.2 s"):
        tune("sleep", timeout=0.2)
    assert time.monotonic() - began < 300
    assert psutil.Process(kept().pid).children() == []
    assert said("ls")[3] == 1


def test_it_ends_when_asked_and_another_environment_gets_another(monkeypatch):
    first = said("ls")[1]
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "set by torch when a notebook imports its compiler")
    assert said("ls")[1] == first
    monkeypatch.setenv("SOME_SETTING", "1")
    second = said("ls")[1]
    assert first != second and not psutil.pid_exists(first)
    close_torchtune()
    assert not psutil.pid_exists(second)
    assert said("ls")[1] != second


def test_one_that_was_killed_is_noticed_and_replaced():
    first = said("ls")[1]
    psutil.Process(first).kill()
    kept().wait()
    assert said("ls")[1] != first


def test_on_a_machine_with_a_gpu_every_line_is_a_fresh_process(monkeypatch, tmp_path):
    monkeypatch.setattr(resident, "gpu_nodes", lambda: [tmp_path])
    assert said("ls", folder=tmp_path)[1:] == (os.getpid(), str(tmp_path), 1, ["ls"])
    with pytest.raises(TuneError, match="no such part"):
        tune("raise")
