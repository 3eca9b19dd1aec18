# SPDX-License-Identifier: MIT
"""Run torchtune's command line and its recipes, in processes of their own, and read what they measured."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocm_guide.common.base import GuideError, whole_file, write_text
from rocm_guide.finetune.all_reduce import require_loopback
from rocm_guide.finetune.torchtune.config import write_config
from rocm_guide.observe.doctor.own_folders import OWN_FOLDERS

__all__ = ["TuneError", "gloo_recipe", "processes_for", "run_recipe", "split_epoch", "tune", "tune_line"]


def read_metrics(path: str | Path) -> list[dict[str, float]]:
    """Read the lines of torchtune's ``DiskLogger`` as dictionaries: ``step``, ``loss``, ``lr``, ….

    A last line that is still being written is left out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     _ = Path(d, "m.txt").write_text("Step 1 | loss:2.5 lr:0.1 \\nStep 2 | loss:1.")
    ...     read_metrics(f"{d}/m.txt")
    [{'step': 1.0, 'loss': 2.5, 'lr': 0.1}]
    """
    path = Path(path)
    found = []
    for line in path.read_text(encoding="utf-8").split("\n")[:-1] if path.is_file() else []:
        step, bar, rest = line.removeprefix("Step ").partition(" | ")
        pairs = [item.rpartition(":") for item in rest.split()]
        try:
            found.append({"step": float(step), **{name: float(value) for name, _, value in pairs if name}})
        except ValueError as e:
            raise GuideError(f"{path.name}: {line[:80]!r} is no line of torchtune's DiskLogger") from e
        if not bar:
            raise GuideError(f"{path.name}: {line[:80]!r} is no line of torchtune's DiskLogger")
    return found


def split_epoch(epoch: str | Path, output: str | Path) -> tuple[Path, Path]:
    """Sort a LoRA recipe's epoch folder into two folders that mean one thing each: (merged model, adapter).

    torchtune writes both into one. Transformers, seeing merged weights *and* an adapter there, loads the first and
    applies the second on top: the update counts twice. Files are linked where the file system can, else copied.

    Raises:
        GuideError: the folder holds no merged weights, or no adapter.
    """
    epoch, output = Path(epoch), Path(output)
    files = [p for p in sorted(epoch.iterdir()) if p.is_file()] if epoch.is_dir() else []
    adapter = [p for p in files if p.name.startswith("adapter_")]
    model = [p for p in files if p not in adapter and p.suffix not in (".bin", ".pt")]
    if not any(p.suffix == ".safetensors" for p in adapter) or not any(p.suffix == ".safetensors" for p in model):
        raise GuideError(f"{epoch}: not the epoch folder of a LoRA recipe; it lies in output_dir and is called epoch_0")
    folders = (output / "merged", output / "adapter")
    for folder, members in zip(folders, (model, adapter), strict=True):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in members:
            try:
                os.link(file, folder / file.name)
            except OSError:
                with whole_file(folder / file.name) as part:
                    shutil.copy2(file, part)
    return folders


_TUNE = (sys.executable, "-m", "torchtune._cli.tune")


class TuneError(GuideError):
    """torchtune stopped with an error; the message carries its last lines."""


@dataclass
class TuneRun:
    """The result of a recipe's run.

    Attributes:
        command: the line that a reader would type.
        metrics: what torchtune logged at each optimizer step: step, loss, lr, tokens_per_second_per_gpu, ….
        seconds: wall-clock time, start of Python and loading included.
        epochs: the checkpoint folders, in order.
    """

    command: str
    metrics: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0
    epochs: list[Path] = field(default_factory=list)

    @property
    def losses(self) -> list[float]:
        """The training loss at each logged step."""
        return [m["loss"] for m in self.metrics]


def tune(*arguments: str, folder: str | Path = ".", timeout: float = 1800) -> str:
    """Run ``tune ARGUMENTS`` in ``folder`` and return its output.

    Raises:
        LibraryMissingError: torchtune is not installed.
        TuneError: it failed, or took longer than ``timeout`` seconds.

    >>> tune("--unsupported")
    Traceback (most recent call last):
        ...
    rocm_guide.finetune.torchtune.run.TuneError: tune --unsupported: tune: error: unrecognized arguments: --unsupported
    """
    shown = " ".join(("tune", *arguments))
    try:
        done = subprocess.run(
            [*_TUNE, *arguments],
            cwd=folder,
            env=OWN_FOLDERS["torchtune"].environment(),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired as e:
        raise TuneError(f"{shown}: no end after {timeout:g} s; raise timeout, or look at what it waits for") from e
    if done.returncode:
        raise TuneError(f"{shown}: {_reason(done.stderr or done.stdout)}")
    return done.stdout


def run_recipe(
    recipe: str,
    config: Mapping[str, Any],
    folder: str | Path,
    *,
    processes: int = 1,
    overrides: Mapping[str, Any] | None = None,
) -> TuneRun:
    """Run ``tune run`` with ``config`` written to ``folder/config.yaml``, a progress bar, and the figures read back.

    Args:
        recipe: a name that ``tune ls`` shows, or the file of a copied recipe in ``folder``.
        config: from :func:`rocm_guide.finetune.torchtune.config.lora_config`, or read from a YAML file.
        folder: where it runs; its ``output_dir`` is taken from the configuration.
        processes: of a distributed recipe, one for each GPU; 1 runs a single-device recipe.
        overrides: ``{"optimizer.lr": 1e-4}`` become ``optimizer.lr=0.0001`` behind the command, and win.

    Raises:
        LibraryMissingError: torchtune is not installed.
        TuneError: the recipe stopped with an error.
        LoopbackError: several processes, and they cannot reach each other.
    """
    from tqdm.auto import tqdm

    if processes > 1:
        require_loopback()
    folder = Path(folder)
    write_config(folder / "config.yaml", config)
    launched = processes > 1 or recipe.endswith("_distributed")  # such a recipe refuses to start without a launcher
    launcher = ["--nnodes", "1", "--nproc_per_node", str(processes)] if launched else []
    changes = [f"{k}={v}" for k, v in (overrides or {}).items()]
    arguments = ["run", *launcher, recipe, "--config", "config.yaml", *changes]
    output = folder / str((overrides or {}).get("output_dir", config["output_dir"]))
    metrics = output / "logs" / "metrics.txt"
    run = TuneRun(" ".join(("tune", *arguments)))
    metrics.unlink(missing_ok=True)  # the logger appends
    log = folder / "tune.log"
    began = time.perf_counter()
    # Where a GPU is, FSDP takes it for the mesh of its processes, whatever `device` the configuration names.
    on_cpu = (overrides or {}).get("device", config.get("device")) == "cpu"
    unseen = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""} if on_cpu else {}
    env = OWN_FOLDERS["torchtune"].environment() | unseen
    with log.open("wb") as out:
        child = subprocess.Popen([*_TUNE, *arguments], cwd=folder, env=env, stdout=out, stderr=subprocess.STDOUT)
    try:
        with tqdm(desc="torchtune", unit="step", leave=False) as bar:
            while child.poll() is None:
                time.sleep(0.2)
                bar.update(metrics.read_text(encoding="utf-8").count("\n") - bar.n if metrics.is_file() else 0)
    finally:
        # A line does not outlive the wish for it; torchrun ends its workers when it is asked to.
        if child.poll() is None:
            child.terminate()
            child.wait()
    run.seconds = time.perf_counter() - began
    if child.returncode:
        raise TuneError(f"{run.command}: {_reason(log.read_text(encoding='utf-8', errors='replace'))}")
    run.metrics = read_metrics(metrics)
    run.epochs = sorted(output.glob("epoch_*"), key=lambda p: int(p.name.partition("_")[2]))
    return run


def tune_line(line: str, folder: str | Path = ".", config: Mapping[str, Any] | None = None) -> Any:
    """Run a line that begins with ``tune``, as a reader would type it in ``folder``.

    ``tune run`` needs ``config``, which is written to the file that the line names after ``--config``, and gives what
    :func:`run_recipe` gives. Any other line gives its output as text.

    Raises:
        TuneError: another command, ``tune run`` without recipe, ``--config`` or ``config``, or as :func:`run_recipe`.

    >>> tune_line("torchrun train.py")
    Traceback (most recent call last):
        ...
    rocm_guide.finetune.torchtune.run.TuneError: 'torchrun train.py': a line begins with tune, for example 'tune ls'
    """
    words = shlex.split(line)
    if words[:1] != ["tune"]:
        raise TuneError(f"{line!r}: a line begins with tune, for example 'tune ls'")
    if words[1:2] != ["run"]:
        return tune(*words[1:], folder=folder)
    options: dict[str, str] = {}
    rest = words[2:]
    while rest and rest[0].startswith("--"):
        options[rest[0]] = rest[1] if len(rest) > 1 else ""
        rest = rest[2:]
    if len(rest) < 3 or rest[1:3] != ["--config", "config.yaml"] or config is None:
        raise TuneError(f"{line!r}: give 'tune run RECIPE --config config.yaml' and the configuration")
    if unknown := set(options) - {"--nnodes", "--nproc_per_node"}:
        raise TuneError(f"{line!r}: {', '.join(sorted(unknown))}: use --nnodes 1 and --nproc_per_node N")
    processes = options.get("--nproc_per_node", "1")
    if options.get("--nnodes", "1") != "1" or not processes.isdigit() or processes == "0":
        raise TuneError(f"{line!r}: one machine and a number of processes are run here")
    changes = dict(word.partition("=")[::2] for word in rest[3:])
    return run_recipe(rest[0], config, folder, processes=int(processes), overrides=changes)


def processes_for(gpus: int, tiny: bool) -> tuple[int, str]:
    """Return how many processes a distributed recipe gets here, and on which device.

    One for each GPU. The tiny model on a machine without several GPUs shows the exchange between two processes on the
    CPU instead; any other model stays on the one GPU that there is.

    >>> processes_for(4, tiny=False), processes_for(1, tiny=False), processes_for(1, tiny=True), processes_for(0, True)
    ((4, 'cuda'), (1, 'cuda'), (2, 'cpu'), (2, 'cpu'))
    """
    if gpus > 1 or (gpus == 1 and not tiny):
        return gpus, "cuda"
    return 2, "cpu"


def gloo_recipe(folder: str | Path) -> tuple[str, list[tuple[str, str]]]:
    """Copy ``lora_finetune_distributed`` into ``folder`` and make it run on processors, as ``tune cp`` is meant for.

    Returns the copy's file name and the edits made, as pairs of old and new text. Each passes over something that
    only a GPU has: NCCL, and the statistics and cache of device memory.

    Raises:
        TuneError: the recipe does not have the lines that we change; it is another version.
    """
    name = "lora_on_cpus.py"
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / name).unlink(missing_ok=True)  # `tune cp` refuses to overwrite
    tune("cp", "lora_finetune_distributed", name, folder=folder)
    text = (Path(folder) / name).read_text(encoding="utf-8")
    edits = [
        ('init_process_group("cuda:nccl,cpu:gloo")', 'init_process_group("gloo")'),
        ("        if self._is_rank_zero:\n            memory_stats =", "        if False:\n            memory_stats ="),
        ("        training.cleanup_before_training()\n", ""),
    ]
    for old, new in edits:
        if text.count(old) != 1:
            raise TuneError(f"lora_finetune_distributed has {text.count(old)} times {old.strip()!r}, not once")
        text = text.replace(old, new)
    write_text(Path(folder) / name, text)
    return name, edits


def _reason(text: str) -> str:
    """Return the line of an output that says what went wrong.

    >>> _reason("exitcode  : -11 (pid: 7)\\ntraceback : Signal 11 (SIGSEGV) received by PID 7\\n=====")
    'traceback : Signal 11 (SIGSEGV) received by PID 7'
    >>> _reason("[rank0]: ValueError: no such device\\nroot_cause: <N/A>\\ntraceback : To enable traceback see: …")
    'ValueError: no such device'
    """
    lines = [re.sub(r"^\[\w+\]:", "", line).strip() for line in text.splitlines()]  # "[rank0]:" is torch's
    lines = [line for line in lines if line.strip("=-")]  # torchrun draws rules around its report
    # torchrun prints its own report after the workers' tracebacks: what matters stands before it. Of a worker that a
    # signal ended there is only the report.
    errors = [x for x in lines if x.split(":")[0].endswith(("Error", "Exception", " error")) and "ChildFailed" not in x]
    signals = [x for x in lines if x.startswith("traceback : Signal")]
    lines = [x for x in lines if not x.startswith("traceback : To enable")]
    return (errors or signals or lines or ["it gave no reason"])[-1][-300:]
