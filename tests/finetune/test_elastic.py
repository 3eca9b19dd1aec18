# SPDX-License-Identifier: MIT
"""A run over several machines: its launch files, its curve, and what happens when a machine is lost.

What the machines run is the script of notebook 05.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rocm_guide.cli.copying import script_of
from rocm_guide.finetune.nodes import (
    LAUNCH_FILES,
    LaunchError,
    agent_command,
    free_port,
    launch_file,
    read_losses,
    read_processes,
    start_node,
    wait_for,
)
from rocm_guide.models.course_data import question_answer_splits
from rocm_guide.models.load import load_model
from rocm_guide.models.tiny import tiny_folder
from tests.in_turn import in_turn

STEPS, SAVE = 24, 5


@pytest.mark.parametrize("nodes", ["0", "2:1", "x", "", ":", "-1"])
def test_impossible_numbers_of_machines(nodes):
    with pytest.raises(LaunchError, match="nodes="):
        agent_command(["x"], nodes=nodes)
    with pytest.raises(LaunchError, match="processes=0"):
        agent_command(["x"], processes=0)


def test_machines_that_share_an_address_are_told_which_is_the_first():
    told = [next(w for w in agent_command(["x"], first=first) if "rdzv-conf" in w) for first in (True, False, None)]
    assert "is_host=true" in told[0] and "is_host=false" in told[1] and "is_host" not in told[2]


def test_launch_files_are_whole_and_shells_read_them(tmp_path):
    with pytest.raises(LaunchError, match="choose from torchrun, slurm, accelerate"):
        launch_file("pbs")
    for kind, name in LAUNCH_FILES.items():
        (tmp_path / name).write_text(launch_file(kind))
        if not name.endswith("yaml"):
            assert subprocess.run(["bash", "-n", tmp_path / name]).returncode == 0
    done = subprocess.run(["bash", tmp_path / LAUNCH_FILES["torchrun"]], capture_output=True, text=True)
    assert done.returncode and "set FIRST to the name of the first machine" in done.stderr
    command = [sys.executable, "-m", "rocm_guide.cli.main", "launch"]
    shown = subprocess.run([*command, "slurm"], capture_output=True, text=True)
    assert shown.stdout == launch_file("slurm")
    refused = subprocess.run([*command, "pbs"], capture_output=True, text=True)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1 and "'pbs'" in refused.stderr
    for kind in ("torchrun", "slurm"):  # without it, a machine that comes late stops everybody
        assert "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in launch_file(kind)


def test_accelerate_reads_its_file(tmp_path):
    from accelerate.commands.config.config_args import load_config_from_file

    (tmp_path / "a.yaml").write_text(launch_file("accelerate"))
    config = load_config_from_file(str(tmp_path / "a.yaml"))
    assert config.distributed_type.name == "FSDP" and config.fsdp_config["fsdp_version"] == 2


def test_a_node_that_fails_or_hangs_says_so(tmp_path):
    failing = [sys.executable, "-c", "raise ValueError('no such file')"]
    said = r"a\.log: exit code 1: ValueError: no such file"
    with start_node(failing, tmp_path / "a.log") as node, pytest.raises(LaunchError, match=said):
        node.finish()
    with start_node([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "b.log") as node:
        with pytest.raises(LaunchError, match="no end after"):
            node.finish(timeout=0.3)
        assert node.agent.poll() is not None and node.lose() == 0
    with pytest.raises(LaunchError, match=r"waited 0\.1 s for rain"):
        wait_for(lambda: False, what="rain", timeout=0.1)


def test_losing_a_node_takes_its_workers_along(tmp_path):
    code = (
        "import subprocess, sys, time; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); time.sleep(60)"
    )
    with start_node([sys.executable, "-c", code], tmp_path / "log") as node:
        wait_for(lambda: node.log.read_text().endswith("\n"), what="the worker")
        worker = int(node.log.read_text())
        assert node.lose() == 2
    state = Path(f"/proc/{worker}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """The script, the rows, and the options that all runs share."""
    folder = tmp_path_factory.mktemp("script")
    (folder / "train.py").write_text(script_of("05"))
    rows = [{"prompt": r["prompt"], "completion": r["completion"]} for r in question_answer_splits()[0]]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    knobs = {"model": tiny_folder(), "dataset": folder / "rows.jsonl", "steps": STEPS, "save": SAVE, "patience": 60}
    knobs |= {"batch": 16, "at_a_time": 2, "rate": 1e-3, "length": 64, "strategy": "zero3"}
    return folder / "train.py", [f"--{name}={value}" for name, value in knobs.items()]


@pytest.fixture(scope="module")
def alone(script, tmp_path_factory):
    """One process, no launcher: the reference."""
    folder = tmp_path_factory.mktemp("alone")
    assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR"} & set(os.environ), "what follows would be misled"
    with start_node([sys.executable, *program(script, folder)], folder / "log") as node:
        node.finish()
    return folder


def program(script, folder, *more):
    path, options = script
    return [str(path), *options, f"--out={folder}", *more]


def largest_difference(a, b):
    (steps, one), (again, two) = read_losses(a), read_losses(b)
    assert steps == again == list(range(1, STEPS + 1))
    return max(abs(x - y) for x, y in zip(one, two, strict=True))


def answers(folder):
    from rocm_guide.models.evaluation import answer
    from rocm_guide.models.load import load_data

    model, tokenizer = load_model(str(folder / "model"), device="cpu")
    return answer(model, tokenizer, load_data("tiny")["test"]["prompt"][:36])


@pytest.fixture(scope="module")
def answered(alone):
    """What the reference answers, generated once."""
    return answers(alone)


@pytest.mark.slow
@in_turn(1, 6)
def test_two_sharded_machines_give_the_curve_of_one_process(script, alone, answered, tmp_path):
    """FSDP2 on two agents, 3 rows at a time: another split of the same batch, to rounding."""
    port = free_port()
    command = agent_command(program(script, tmp_path, "--at_a_time=3"), nodes="2", port=port)
    with start_node(command, tmp_path / "a.log") as a, start_node(command, tmp_path / "b.log") as b:
        a.finish()
        b.finish()
    assert set(read_processes(tmp_path)) == {2}
    assert largest_difference(alone, tmp_path) < 1e-3
    assert answers(tmp_path) == answered


@pytest.mark.slow
@in_turn(3, 6)
def test_a_machine_that_comes_late_and_is_lost_changes_nothing(script, alone, answered, tmp_path):
    """The second machine joins when the first has begun already, computes a few steps, and disappears."""
    import psutil

    port = free_port()
    # Two rows at a time: steps long enough that a busy machine does not finish them before the power fails.
    command = agent_command(program(script, tmp_path), nodes="1:2", port=port)

    def workers():
        return psutil.Process(a.agent.pid).children()

    def all_of_them(act):
        for worker in workers():
            with contextlib.suppress(psutil.Error):
                act(worker)

    def seven_steps_and_two_machines():
        """Looked at while the first machine stands still, as it then stays: however slow the one who looks is, no step
        is done between the look and the loss."""
        assert a.agent.poll() is None, "the first machine was done before the second had come"
        all_of_them(psutil.Process.suspend)
        done = read_processes(tmp_path)
        if len(done) >= 7 and done[-1] == 2:
            return True
        # However slowly the second machine starts: until it is there, the worker that computes alone rests most of the
        # time. The one that follows it does not: it has a minute to find the second machine's.
        time.sleep(2.0 if done and workers() == alone_at_first else 0.0)
        all_of_them(psutil.Process.resume)
        return False

    with start_node(command, tmp_path / "a.log") as a:
        wait_for(workers, what="the first worker")
        alone_at_first = workers()
        with start_node(command, tmp_path / "b.log") as b:
            wait_for(seven_steps_and_two_machines, what="7 steps")
            assert b.lose() == 2
        all_of_them(psutil.Process.resume)
        a.finish()
    assert {1, 2} == set(read_processes(tmp_path)) and read_processes(tmp_path)[-1] == 1
    assert largest_difference(alone, tmp_path) < 1e-3
    assert answers(tmp_path) == answered


STAND_INS = {
    "scontrol": """case "$1" in
show) echo 127.0.0.1; echo 127.0.0.1;;
requeue) echo "$2" >> requeued;;
esac
""",
    "srun": """echo "$@" > srun-was-asked
for word in "$@"; do case "$word" in --*) shift;; *) break;; esac; done
for node in $(seq "$SLURM_NNODES"); do "$@" & echo $! >> agents; sleep 2; done
code=0; for agent in $(cat agents); do wait "$agent" || code=$?; done; exit $code
""",
    # A machine in a test may not know its own name; a cluster's machines do.
    "python-here": """[ "$2" = torch.distributed.run ] && set -- "$1" "$2" --local-addr=127.0.0.1 "${@:3}"
exec "$REAL_PYTHON" "$@"
""",
}


@pytest.fixture
def slurm(script, tmp_path):
    """The script as it is submitted, stand-ins for Slurm's commands, and the environment that a job sees."""
    for name, text in STAND_INS.items():
        (tmp_path / name).write_text("#!/bin/bash\n" + text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "job.sbatch").write_text(launch_file("slurm"))
    (tmp_path / "train.py").write_text(script[0].read_text())  # found beside it, by its name
    job = {"SLURM_JOB_ID": str(free_port()), "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "n[1-2]", "GPUS": "1"}
    paths = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": "python-here", "REAL_PYTHON": sys.executable}
    return {
        **os.environ,
        **job,
        **paths,
        "OUTPUT": str(tmp_path / "run"),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "SLURM_CPUS_PER_TASK": "3",
    }


@pytest.mark.parametrize(("restarts", "again"), [("", True), ("2", True), ("3", False)])
def test_a_program_that_fails_does_not_come_back_for_ever(slurm, tmp_path, restarts, again):
    env = {**slurm, "PYTHON": "false", "SLURM_NNODES": "1", "SLURM_RESTART_COUNT": restarts}
    done = subprocess.run(["bash", "job.sbatch"], cwd=tmp_path, env=env)
    assert done.returncode
    assert (tmp_path / "requeued").exists() == again
    asked = (tmp_path / "srun-was-asked").read_text().split()
    assert "--cpus-per-task=3" in asked and "--no-kill" in asked  # srun takes neither from sbatch


@pytest.mark.slow
@in_turn(5, 6)
def test_the_slurm_script_and_a_requeue_after_the_first_machine_is_lost(script, alone, answered, slurm, tmp_path):
    """The first machine goes, with script, srun and rendezvous: the other one has the job started again."""
    run, job_id = tmp_path / "run", slurm["SLURM_JOB_ID"]
    command = ["bash", "job.sbatch", *script[1], "--patience=20"]
    with (tmp_path / "log").open("wb") as log:
        job = subprocess.Popen(command, cwd=tmp_path, env=slurm, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_for(lambda: len(read_losses(run)[0]) >= 7 and read_processes(run)[-1] == 2, what="7 steps of both")
            first = int((tmp_path / "agents").read_text().split()[0])
            end([*tree(first), parent(first), job.pid])
            wait_for(lambda: (tmp_path / "requeued").exists(), what="the second machine to have the job requeued")
            assert set((tmp_path / "requeued").read_text().split()) == {job_id}
        finally:  # the scheduler ends what is left of a job that it requeues
            end([*(p for agent in (tmp_path / "agents").read_text().split() for p in tree(int(agent))), job.pid])
            job.wait()
        assert not (run / "model").exists()
        (tmp_path / "agents").unlink()
        # On one machine this time: that two find each other has been seen above.
        again = {**slurm, "SLURM_RESTART_COUNT": "1", "SLURM_NNODES": "1"}
        subprocess.run(command, cwd=tmp_path, env=again, stdout=log, stderr=subprocess.STDOUT, check=True)
    assert largest_difference(alone, run) < 1e-3
    assert answers(run) == answered


def parent(pid):
    import psutil

    return psutil.Process(pid).ppid()


def tree(pid):
    """The process and all that it started; nothing when it is gone."""
    import psutil

    try:
        return [pid, *(p.pid for p in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def end(pids):
    import signal

    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
