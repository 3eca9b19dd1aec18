# SPDX-License-Identifier: MIT
# ruff: noqa: E501
"""System settings against a pretended machine: what is set is put back, in every order, and after a kill."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from rocm_guide.observe.doctor import diagnosis as doctor
from rocm_guide.observe.system.apply import apply_settings, load_state, reset_settings
from rocm_guide.observe.system.audit import affinity_hints, check_numa, check_system
from rocm_guide.observe.system.machine import Machine, SystemSettingError, every_setting, wanted_settings
from rocm_guide.observe.system.pretend import ADDRESSES, photograph, pretend_machine


def reset(machine, state, **more):
    return reset_settings(every_setting(machine), machine, state, **more)


OPTIONS = (
    {"clock": 1900, "numa": True},
    {"clock": 1500, "numa": False, "power_cap": 600},
    {"clock": None, "hugepages": "always"},
    {"clock": None, "numa": False, "partition": "CPX"},
    {"clock": 2000, "numa": True, "hugepages": "never", "power_cap": 500, "partition": "DPX"},
)


@pytest.mark.parametrize("tools", [("amd-smi", "rocm-smi"), ("rocm-smi",), ("amd-smi",)])
@pytest.mark.parametrize("levels", [("auto", "auto"), ("perf_determinism", "high")])
def test_set_then_reset_leaves_everything_as_it_was(tmp_path, tools, levels):
    machine = pretend_machine(tmp_path, tools=tools, levels=levels)
    before, state = photograph(machine), tmp_path / "state.json"
    done = apply_settings(wanted_settings(machine, **OPTIONS[4]), machine, state)
    assert {o.result for o in done} == {"set"}, done
    changed = photograph(machine)
    assert changed != before
    level = "sys/class/drm/card{}/device/power_dpm_force_performance_level"
    assert all(changed[level.format(card)] == "perf_determinism\n" for card in (0, 8))
    assert {o.result for o in reset(machine, state)} == {"restored"}
    assert photograph(machine) == before
    assert not state.exists() and reset(machine, state) == []
    used = (machine.root / "calls.log").read_text()
    assert tools[0] in used and not any(t in used for t in tools[1:]), "amd-smi first, one tool only"


def test_every_order_of_sets(tmp_path):
    for n, order in enumerate(itertools.permutations(range(len(OPTIONS)), 3)):
        machine = pretend_machine(tmp_path / str(n), gpus=1)
        before, state = photograph(machine), tmp_path / str(n) / "state.json"
        for i in order:
            apply_settings(wanted_settings(machine, **OPTIONS[i]), machine, state)
        reset(machine, state)
        assert photograph(machine) == before, order
        assert not state.exists()


def test_every_order_of_single_settings(tmp_path):
    machine = pretend_machine(tmp_path, gpus=1)
    settings = wanted_settings(machine, **OPTIONS[4])
    for n, order in enumerate(itertools.permutations(settings)):
        if n % 7:
            continue
        before, state = photograph(machine), tmp_path / "state.json"
        apply_settings(order, machine, state)
        assert len(load_state(state)) == len(settings)
        reset(machine, state)
        assert photograph(machine) == before


def test_random_sequences_of_set_and_reset(tmp_path):
    rng = random.Random(3)
    machine = pretend_machine(tmp_path, gpus=1, tools=("rocm-smi",))
    before, state = photograph(machine), tmp_path / "state.json"
    for _ in range(12):
        for _ in range(rng.randrange(1, 4)):
            if rng.random() < 0.25:
                reset(machine, state)
            else:
                apply_settings(wanted_settings(machine, **rng.choice(OPTIONS)), machine, state)
        reset(machine, state)
        assert photograph(machine) == before


def test_dry_run_touches_nothing(tmp_path):
    machine = pretend_machine(tmp_path)
    before, state = photograph(machine), tmp_path / "s" / "state.json"
    done = apply_settings(wanted_settings(machine), machine, state, dry_run=True)
    assert [o.result for o in done] == ["would set"] * 3 and "would set '1' -> '0'" in str(done[0])
    assert photograph(machine) == before and not state.parent.exists() and not (machine.root / "calls.log").exists()
    apply_settings(wanted_settings(machine), machine, state)
    mid = photograph(machine)
    assert {o.result for o in reset(machine, state, dry_run=True)} == {"would restore"}
    assert photograph(machine) == mid and len(load_state(state)) == 3


def test_setting_twice_keeps_the_first_value(tmp_path):
    machine = pretend_machine(tmp_path, gpus=1)
    state = tmp_path / "state.json"
    apply_settings(wanted_settings(machine, clock=1900), machine, state)
    again = apply_settings(wanted_settings(machine, clock=1900), machine, state)
    assert {o.result for o in again} == {"already"}
    apply_settings(wanted_settings(machine, clock=1700), machine, state)
    assert load_state(state)[f"clock {ADDRESSES[0]}"] == {"before": "auto", "set": "determinism 1700", "pending": ""}


def test_somebody_elses_change_is_left_alone_unless_forced(tmp_path):
    machine = pretend_machine(tmp_path, gpus=1)
    state = tmp_path / "state.json"
    apply_settings(wanted_settings(machine, clock=None, hugepages="always"), machine, state)
    (machine.root / "sys/kernel/mm/transparent_hugepage/enabled").write_text("never\n")
    done = {o.key: o for o in reset(machine, state)}
    assert done["transparent_hugepage"].result == "changed since" and "--force" in str(done["transparent_hugepage"])
    assert done["numa_balancing"].result == "restored"
    assert machine.read("sys/kernel/mm/transparent_hugepage/enabled") == "never"
    assert [o.result for o in reset(machine, state, force=True)] == ["restored"]
    assert machine.read("sys/kernel/mm/transparent_hugepage/enabled") == "madvise" and not state.exists()


# ---- killed in between

CHILD = """
import sys
from pathlib import Path
from rocm_guide.observe.system.apply import apply_settings, reset_settings
from rocm_guide.observe.system.pretend import ADDRESSES, photograph, pretend_machine
from rocm_guide.observe.system.machine import Machine
from rocm_guide.observe.system.apply import load_state
from rocm_guide.observe.system.machine import wanted_settings, every_setting
machine = Machine(Path(sys.argv[1]), path=sys.argv[2], environ={})
print("go", flush=True)
if sys.argv[4] == "set":
    apply_settings(wanted_settings(machine, clock=1900, hugepages="always", power_cap=600, partition="CPX"), machine, sys.argv[3])
else:
    reset_settings(every_setting(machine), machine, sys.argv[3])
"""


@pytest.mark.parametrize("action", ["set", "reset"])
def test_kill_in_between(tmp_path, action):
    """Killed after a random time, ten times over; the tool dies with it. One reset must then restore everything."""
    rng = random.Random(action)
    interrupted = 0
    for n in range(10):
        machine = pretend_machine(tmp_path / str(n))
        before, state = photograph(machine), tmp_path / str(n) / "state.json"
        if action == "reset":
            apply_settings(wanted_settings(machine, **OPTIONS[4]), machine, state)
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(machine.root), machine.path, str(state), action],
            stdout=subprocess.PIPE,
            env={**os.environ, "FAKE_PAUSE": "0.1"},
            start_new_session=True,
        )
        child.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.4))
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        interrupted += state.exists()
        reset(machine, state)
        assert photograph(machine) == before, n
        assert not state.exists()
    assert interrupted >= 3, "the kills came too early or too late to prove anything"


@pytest.mark.parametrize("at", range(1, 9))
def test_killed_at_every_step(tmp_path, at, monkeypatch):
    """Stop at the n-th write to the machine or to the state file, before it happens."""

    class Killed(BaseException):
        pass

    machine = pretend_machine(tmp_path, gpus=1)
    before, state = photograph(machine), tmp_path / "state.json"
    steps = iter(range(1, 10_000))

    def fuse(function):
        def wrapped(*args, **kwargs):
            if next(steps) == at:
                raise Killed
            return function(*args, **kwargs)

        return wrapped

    monkeypatch.setattr(
        "rocm_guide.observe.system.apply.write_text", fuse(__import__("rocm_guide.common.base").common.base.write_text)
    )
    monkeypatch.setattr(Machine, "write", fuse(Machine.write))
    monkeypatch.setattr(Machine, "run", fuse(Machine.run))
    with pytest.raises(Killed):
        apply_settings(wanted_settings(machine, clock=1900, hugepages="always"), machine, state)
    reset(machine, state)
    assert photograph(machine) == before and not state.exists()


def test_half_done_tool_is_restored(tmp_path, monkeypatch):
    """The firmware clamps the clock: the set fails, the value is neither old nor wanted, and reset still knows it."""
    machine = pretend_machine(tmp_path, gpus=1)
    before, state = photograph(machine), tmp_path / "state.json"
    monkeypatch.setenv("FAKE_CLAMP", "1850")
    (outcome,) = apply_settings(wanted_settings(machine, numa=False), machine, state)
    assert outcome.result == "failed" and "'determinism 1850' after setting 'determinism 1900'" in outcome.why
    monkeypatch.delenv("FAKE_CLAMP")
    assert [o.result for o in reset(machine, state)] == ["restored"]
    assert photograph(machine) == before


# ---- without tools, rights, files


def test_no_tools_is_one_line_per_gpu_and_the_rest_is_done(tmp_path):
    machine = pretend_machine(tmp_path, tools=())
    done = apply_settings(wanted_settings(machine), machine, tmp_path / "state.json")
    assert [o.result for o in done] == ["set", "failed", "failed"]
    assert "neither amd-smi nor rocm-smi is installed" in done[1].why and "\n" not in str(done[1])
    assert list(load_state(tmp_path / "state.json")) == ["numa_balancing"]


def test_no_rights_is_one_line(tmp_path, monkeypatch):
    machine = pretend_machine(tmp_path, gpus=1)
    monkeypatch.setenv("FAKE_FAIL", "1")

    def denied(path, *rest, real=os.open):
        if str(path).endswith("numa_balancing"):
            raise PermissionError(13, "Permission denied")
        return real(path, *rest)

    monkeypatch.setattr("rocm_guide.observe.system.machine.os.open", denied)
    done = apply_settings(wanted_settings(machine), machine, tmp_path / "state.json")
    assert [o.result for o in done] == ["failed", "failed"]
    assert done[0].why == "/proc/sys/kernel/numa_balancing: no permission to write '0'; run with sudo"
    assert "must be root; run with sudo" in done[1].why
    assert not (tmp_path / "state.json").exists()


def test_a_bare_machine(tmp_path):
    machine = Machine(tmp_path, path=str(tmp_path), environ={})
    (outcome,) = apply_settings(wanted_settings(machine), machine, tmp_path / "state.json")
    assert outcome.result == "failed" and "not on this machine" in outcome.why
    assert {c.status for c in check_system(machine)} == {"OK"}


def test_bad_values_are_refused_before_anything_is_touched(tmp_path):
    machine = pretend_machine(tmp_path)
    before = photograph(machine)
    for bad in ({"clock": 19}, {"hugepages": "yes"}, {"power_cap": 900}, {"power_cap": -5}, {"partition": "XYZ"}):
        with pytest.raises(SystemSettingError, match=next(iter(bad))):
            wanted_settings(machine, **bad)
    assert photograph(machine) == before


def test_damaged_and_foreign_state_files(tmp_path):
    machine = pretend_machine(tmp_path, gpus=1)
    state = tmp_path / "state.json"
    for text in ("{", "[]", '{"saved": {"a": 1}}', '{"saved": {"a": {"before": 1, "set": "x"}}}', "\xff"):
        state.write_text(text)
        with pytest.raises(SystemSettingError, match="damaged"):
            reset(machine, state)
    state.write_text(json.dumps({"saved": {"clock 0000:ff:00.0": {"before": "auto", "set": "determinism 1900"}}}))
    (outcome,) = reset(machine, state)
    assert outcome.result == "failed" and "not on this machine any more" in outcome.why


def test_two_at_once_are_refused(tmp_path):
    import fcntl

    machine = pretend_machine(tmp_path, gpus=1)
    state = tmp_path / "state.json"
    with (tmp_path / "state.json.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SystemSettingError, match="another set or reset is running"):
            apply_settings(wanted_settings(machine), machine, state)


def test_a_lock_that_is_given_back_in_a_moment_is_waited_for(tmp_path):
    """As after a kill: the lock goes when the last child of the killed process is gone."""
    import fcntl
    import threading

    machine = pretend_machine(tmp_path, gpus=1)
    lock = (tmp_path / "state.json.lock").open("a")
    fcntl.flock(lock, fcntl.LOCK_EX)
    threading.Timer(0.3, lock.close).start()
    assert {o.result for o in apply_settings(wanted_settings(machine), machine, tmp_path / "state.json")} == {"set"}


# ---- check


def lines(machine):
    return {c.name: c for c in check_system(machine)}


def test_check_sees_each_setting(tmp_path):
    machine = pretend_machine(tmp_path)
    found = lines(machine)
    assert found["numa"].status == "WARN" and found["iommu"].status == "OK" and found["kernargs"].status == "OK"
    assert "automatic" in found["clock 0"].found and found["power 1"].found == "cap 750 W"
    assert found["mode 0"].found.startswith("SPX/NPS1")
    apply_settings(wanted_settings(machine, **OPTIONS[4]), machine, tmp_path / "state.json")
    found = lines(machine)
    assert found["numa"].status == "OK" and found["hugepages"].status == "WARN"
    assert "at most 2000 MHz" in found["clock 1"].found
    assert found["power 0"].status == "WARN" and "capped at 500 W, the default is 750 W" in found["power 0"].found
    assert found["mode 1"].found.startswith("DPX")
    (machine.root / "proc/cmdline").write_text("ro quiet\n")
    assert lines(machine)["iommu"].status == "WARN"
    old = Machine(machine.root, machine.path, {"HIP_FORCE_DEV_KERNARG": "0"})
    assert lines(old)["kernargs"].status == "WARN"
    (machine.root / "opt/rocm/.info/version").write_text("6.1.2-90\n")
    assert "export HIP_FORCE_DEV_KERNARG=1" in lines(machine)["kernargs"].fix
    (machine.root / "opt/rocm/.info/version").write_text("6.2.0-66\n")
    assert "default of ROCm 6.2" in lines(machine)["kernargs"].found
    new = Machine(machine.root, machine.path, {"HIP_FORCE_DEV_KERNARG": "1"})
    assert lines(new)["kernargs"].status == "OK"
    bare = Machine(machine.root, str(tmp_path), {})
    assert lines(bare)["tools"].status == "FAIL"


def test_numa_balancing_only_matters_with_a_gpu_and_nobody_is_told_to_write_it_by_hand(tmp_path):
    machine = pretend_machine(tmp_path / "gpu")
    assert "keep it only if your own run gets faster" in check_numa(machine).fix
    (tmp_path / "none/proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "none/proc/sys/kernel/numa_balancing").write_text("1\n")
    assert check_numa(Machine(tmp_path / "none")).status == "OK"
    assert doctor.check_numa is check_numa


def test_affinity_hints_name_node_and_cpus(tmp_path):
    rows = affinity_hints(pretend_machine(tmp_path))
    assert "node 1, CPUs 96-191" in rows[1].found and "--cpunodebind=1 --membind=1" in rows[1].fix
    assert rows[2].name == "rccl"


def test_the_commands(tmp_path):
    from typer.testing import CliRunner

    from rocm_guide.cli.system import app

    machine = pretend_machine(tmp_path, tools=())
    before = photograph(machine)
    run, state = CliRunner(), str(tmp_path / "state.json")
    root = ["--root", str(machine.root)]
    shown = run.invoke(app, ["check", *root])
    assert "[WARN] numa" in shown.stdout
    data = json.loads(run.invoke(app, ["check", "--json", *root]).stdout)
    assert {"status", "name", "found", "fix"} == set(data["checks"][0])
    dry = run.invoke(app, ["set", "--dry-run", "--clock", "0", *root, "--state", state])
    assert dry.exit_code == 0 and "would set" in dry.stdout and photograph(machine) == before
    assert run.invoke(app, ["set", "--clock", "0", *root, "--state", state]).exit_code == 0
    assert json.loads(run.invoke(app, ["reset", "--json", *root, "--state", state]).stdout)[0]["result"] == "restored"
    assert photograph(machine) == before
    assert "nothing to reset" in run.invoke(app, ["reset", *root, "--state", state]).stdout


def test_the_shell_line_of_the_guide_is_wrong_and_ours_is_right():
    """env_check.sh runs `sudo sh -c echo 0 > file`: sh -c takes one word, so the 0 is lost and a blank line is written."""
    out = subprocess.run(["sh", "-c", "sh -c echo 0"], capture_output=True, text=True).stdout
    assert out == "\n"
    out = subprocess.run(["sh", "-c", "sh -c 'echo 0'"], capture_output=True, text=True).stdout
    assert out == "0\n"
    assert textwrap.dedent(out).strip() == "0"
