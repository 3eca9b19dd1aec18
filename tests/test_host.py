# SPDX-License-Identifier: MIT
"""What stamps say about the machine, the guard around a recording, launch options."""

from __future__ import annotations

import subprocess
import sys

import pytest

from course.report import hardware, render
from rocm_guide.common import host
from rocm_guide.common.device import accelerator
from rocm_guide.finetune.nodes import LaunchError, launch_file


def test_every_stamp_names_the_cpu(monkeypatch):
    monkeypatch.setattr(host, "_cpuinfo", lambda: {"model name": "AMD EPYC 9654 96-Core Processor", "flags": "avx2 x"})
    assert host.cpu_model() == "AMD EPYC 9654 Processor" and host.host_facts()["features"] == ["avx2"]
    assert hardware(cpu_only=True).startswith("CPU, AMD EPYC 9654 Processor, ")
    if not accelerator().is_gpu:
        assert "AMD EPYC 9654 Processor" in accelerator().label()
    report = {
        "notebooks": {},
        "hardware": "CPU",
        "parameters": [],
        "jobs": 1,
        "versions": {},
        "host": host.host_facts(),
    }
    assert "AMD EPYC 9654 Processor" in render(report) and host.os_name().split(",")[0] in render(report)


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        ({"model name": "Intel(R) Xeon(R) Processor", "cpu family": "6"}, "Xeon Processor (family 6)"),
        ({"model name": "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"}, "Intel Xeon Platinum 8481C"),
        ({"cpu implementer": "0x41", "cpu part": "0xd40"}, "(implementer 0x41, part 0xd40)"),
    ],
)
def test_a_name_that_tells_nothing_gets_its_numbers(monkeypatch, found, shown):
    monkeypatch.setattr(host, "_cpuinfo", lambda: found)
    assert host.cpu_model().endswith(shown)


def test_a_script_that_profiles_itself_is_refused_in_one_line(tmp_path):
    script, out = tmp_path / "own.py", tmp_path / "t.json"
    script.write_text(
        "import torch\nwith torch.profiler.profile():\n    torch.ones(8, 8) @ torch.ones(8, 8)\nprint('went on')\n"
    )
    command = [sys.executable, "-m", "rocm_guide.cli.main", "trace", "record", "--out", str(out), str(script)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "went on" not in done.stdout
    assert done.stderr.count("\n") == 1 and "starts a torch profiler itself" in done.stderr and not out.exists()


def test_profile_runs_a_module_as_python_does(tmp_path):
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "train.py").write_text(
        "import sys, torch\nfrom . import __name__ as own\n"
        "torch.ones(8, 8) @ torch.ones(8, 8)\nprint(own, sys.argv[1:])\n"
    )
    code = "import sys; from rocm_guide.cli.main import main; main()"
    import os
    from pathlib import Path

    clone = Path(host.__file__).parents[1]
    env = dict(os.environ, PYTHONPATH=f"{clone}:{clone}/cdna")
    command = [sys.executable, "-c", code, "trace", "record", "-o", "t.json", "-m", "pack.train", "--steps", "3"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert "pack ['--steps', '3']" in done.stdout and "aten::mm" in done.stdout


def test_launch_files_take_machines_gpus_time_and_program(tmp_path):
    text = launch_file("slurm", nodes="4", gpus=4, time="1-00:00:00", program=["my train.py", "--name", "a'b; rm x"])
    for line in ("#SBATCH --nodes=4", "#SBATCH --gpus-per-node=4", "#SBATCH --time=1-00:00:00"):
        assert f"\n{line}\n" in text
    assert "rocm_guide" not in text and "'my train.py' --name 'a'\"'\"'b; rm x' \"$@\"" in text
    text = launch_file("torchrun", nodes="1:4", gpus=2, program=["-m", "pack.train"])
    assert "${NODES:-1:4}" in text and "${GPUS:-2}" in text and '-m pack.train "$@"' in text
    for kind in ("slurm", "torchrun"):
        script = tmp_path / kind
        script.write_text(launch_file(kind, nodes="2", gpus=1, program=["train.py"]))
        assert subprocess.run(["bash", "-n", str(script)]).returncode == 0
    text = launch_file("accelerate", nodes="3", gpus=4)
    assert "num_machines: 3\nnum_processes: 12\n" in text
    for bad in ({"nodes": "0"}, {"nodes": "2:1"}, {"gpus": 0}, {"program": ["a\nb"]}, {"program": ["-x"]}):
        with pytest.raises(LaunchError):
            launch_file("torchrun", **bad)
