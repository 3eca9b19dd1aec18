# SPDX-License-Identifier: MIT
"""FSDP at a size that every machine can run: a few processes, each with a share of the tiny model. Notebook 04."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rocm_guide.common.base import GuideError, write_text
from rocm_guide.finetune.loopback import require_loopback
from rocm_guide.finetune.resident import Fork, close_libraries, start_fork
from rocm_guide.observe.doctor.software import gpu_nodes

__all__ = ["compare_sharded"]

#: What the processes import; without a GPU they are forks of one that has.
_LIBRARIES = ("torch.distributed.run", "torch.distributed.fsdp", "transformers.models.llama.modeling_llama")


def run_sharded(processes: int = 2, *, steps: int = 3, batch: int = 8, timeout: float = 1200) -> list[dict[str, Any]]:
    """Train the tiny model for a few steps with ``fully_shard`` in several processes; what each one held and saw.

    The processes talk through gloo on a CPU and through NCCL (RCCL on ROCm) when there is a GPU for each. All rows of
    a batch are split evenly, so the losses, averaged over the processes, are those of one process with the whole batch.

    Returns:
        For each process: rank, device, whole_bytes (of the parameters), own_bytes (its share), state_bytes (of AdamW),
        losses.

    Raises:
        GuideError: fewer than one process, a batch that cannot be split evenly, or a process failed.
        LoopbackError: the processes cannot reach each other.
    """
    if processes < 1 or batch % processes:
        raise GuideError(f"batch={batch} cannot be split over {processes} processes; take a multiple")
    require_loopback()
    threads = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment = {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    module = Path(__file__).stem if _worker.__module__ == "__main__" else _worker.__module__
    call = f"import sys\nsys.path[:0] = {sys.path}\nfrom {module} import _worker\n_worker({steps}, {batch})\n"
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "worker.py")
        script.write_text(call, encoding="utf-8")
        out, err = (write_text(Path(folder, name), "") for name in ("out", "err"))
        launch = ["--standalone", f"--nproc-per-node={processes}", str(script)]
        code = _launch(launch, environment, out, err, timeout)
        said, complaint = (path.read_text(encoding="utf-8", errors="replace") for path in (out, err))
    if code is None:
        raise GuideError(f"{processes} processes did not finish in {timeout:g} s; is the machine busy?")
    rows = [json.loads(line.partition("SHARD ")[2]) for line in said.splitlines() if "SHARD " in line]
    if code or len(rows) != processes:
        last = (complaint.strip().splitlines() or ["no message"])[-1]
        raise GuideError(f"a process of {processes} failed: {last}")
    return sorted(rows, key=lambda row: row["rank"])


def _launch(words: list[str], settings: dict[str, str], out: Path, err: Path, timeout: float) -> int | None:
    """Exit code of ``torchrun WORDS``, or None after ``timeout`` seconds, when it has been ended."""
    run: subprocess.Popen[bytes] | Fork
    if gpu_nodes():
        with out.open("ab") as to, err.open("ab") as complaints:
            run = subprocess.Popen(
                [sys.executable, "-m", "torch.distributed.run", *words], stdout=to, stderr=complaints, env=settings
            )
    else:
        where: dict[str, Any] = {"settings": settings, "folder": out.parent, "out": out, "err": err}
        run = start_fork(_LIBRARIES, "torch.distributed.run", words, **where)
    try:
        return run.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if run.poll() is None:
            run.terminate()  # torchrun ends its workers when it is asked to
            run.wait()


def compare_sharded(processes: int = 2, **options: Any) -> tuple[list[dict[str, Any]], float]:
    """Run :func:`run_sharded` with one process and with several;
    return rows of the latter and the largest loss difference.
    """
    try:
        alone, many = run_sharded(1, **options), run_sharded(processes, **options)
    finally:
        close_libraries(_LIBRARIES)
    means = [sum(losses) / processes for losses in zip(*(row["losses"] for row in many), strict=True)]
    return many, max(abs(a - b) for a, b in zip(alone[0]["losses"], means, strict=True))


def _worker(steps: int, batch: int) -> None:
    """Run one process: build, shard, train, report."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    from rocm_guide.models.load import load_data, load_model

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    gpu = torch.cuda.device_count() >= world
    device = f"cuda:{rank}" if gpu else "cpu"
    if gpu:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if gpu else "gloo")
    mesh = dist.init_device_mesh(device.partition(":")[0], (world,))
    model, tokenizer = load_model("tiny", dtype=torch.float32, device=device)
    model.train()
    whole = sum(p.numel() * p.element_size() for p in model.parameters())
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rows = load_data("tiny")["train"]
    losses = []
    for step in range(steps):
        chosen = rows[step * batch : (step + 1) * batch]
        texts = [p + c for p, c in zip(chosen["prompt"], chosen["completion"], strict=True)]
        ids = tokenizer(texts, return_tensors="pt", padding="max_length", max_length=48, truncation=True).input_ids
        mine = ids[rank::world].to(device)
        loss = model(input_ids=mine, labels=mine).loss  # every row has the same length: equal weights
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    local = [p.to_local() for p in model.parameters()]
    own = sum(t.numel() * t.element_size() for t in local)
    states = [v for state in optimizer.state.values() for v in state.values() if torch.is_tensor(v) and v.ndim]
    state = sum(getattr(v, "to_local", lambda v=v: v)().numel() * v.element_size() for v in states)
    report = {"rank": rank, "device": device, "whole_bytes": whole, "own_bytes": own, "state_bytes": state}
    # One write, so that the lines of two processes cannot mix.
    sys.stdout.write(f"SHARD {json.dumps({**report, 'losses': losses})}\n")
    sys.stdout.flush()
    dist.destroy_process_group()
