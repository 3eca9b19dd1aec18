# SPDX-License-Identifier: MIT
"""Tune a list of products on one GPU or several, stop at any time, go on where it stopped; and the time it takes."""

from __future__ import annotations

import glob
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from cdna.predict.specs import gpu as gpu_named
from rocm_guide.common.base import GuideError
from rocm_guide.tune.tunableop.files import TuningFile, explain_validators, merge, missing, read_file, write_file
from rocm_guide.tune.tunableop.gemm import TYPES, Gemm

__all__ = ["call_seconds", "share_out", "tune_file", "tuning_seconds"]


def call_seconds(g: Gemm) -> float:
    """Return an estimate of one call on an MI300X: max(FLOPs / peak, bytes / bandwidth) / 0.5 + 10 us of launch.

    The peak is that of dense bfloat16; half of it, or of the memory's bandwidth, is a usual share to reach.

    >>> from rocm_guide.tune.tunableop.gemm import parse_gemm
    >>> f"{call_seconds(parse_gemm('GemmTunableOp_BFloat16_TN,tn_4096_1_4096_ld_4096_4096_4096')) * 1e6:.1f} us"
    '22.7 us'
    """
    machine = gpu_named("MI300X")
    moved = TYPES[g.dtypes[0]][2] * (g.batch or 1) * (g.m * g.k + g.k * g.n + g.m * g.n)
    return max(g.flops / machine.peak_tflops("bf16"), moved / machine.bandwidth_tb_s) / 1e12 / 0.5 + 10e-6


#: TunableOp's limits of one candidate: milliseconds and calls, whichever is less.
BUDGET_MS, CALLS = 30, 100


def tuning_seconds(gemms: Iterable[Gemm], *, candidates: int = 1500) -> tuple[float, float]:
    """Return the lowest and highest seconds that tuning these products takes.

    Every candidate is called once and then 2 + 3 times; one that is 1.5x slower than the best so far stops there
    (lowest). One that survives is called 2 + 10 and 2 times more, and then for 100 calls or 30 milliseconds, whichever
    is less (highest). The number of candidates is an assumption: TunableOp's own logs show
    1,068 and 4,454 for one float32 product on gfx90a.
    Source: PyTorch, aten/src/ATen/cuda/tunable/TunableOp.h; "Accelerating models on ROCm using PyTorch TunableOp".

    >>> from rocm_guide.tune.tunableop.gemm import parse_gemm
    >>> low, high = tuning_seconds([parse_gemm("GemmTunableOp_BFloat16_TN,tn_4096_1_4096_ld_4096_4096_4096")])
    >>> round(low, 2), round(high, 1)
    (0.2, 4.1)
    """
    low = high = 0.0
    for g in gemms:
        call = call_seconds(g)
        low += candidates * 6 * call
        high += candidates * (6 + 12 + 2 + max(1, min(CALLS, int(BUDGET_MS * 1e-3 / call)))) * call
    return low, high


def share_out(gemms: Iterable[Gemm], gpus: int) -> list[list[Gemm]]:
    """Split products among GPUs so that all finish at about the same time: the longest first, to the least busy.

    Raises:
        GuideError: fewer than one GPU.

    >>> from rocm_guide.tune.tunableop.gemm import parse_gemm
    >>> work = [parse_gemm(f"GemmTunableOp_Half_TN,tn_{n}_{n}_{n}") for n in (4096, 256, 256, 128)]
    >>> [[g.m for g in part] for part in share_out(work, 2)]
    [[4096], [256, 256, 128]]
    """
    if gpus < 1:
        raise GuideError(f"gpus={gpus}: at least one GPU is needed")
    parts: list[list[Gemm]] = [[] for _ in range(gpus)]
    load = [0.0] * gpus
    for gemm in sorted(gemms, key=call_seconds, reverse=True):
        least = load.index(min(load))
        parts[least].append(gemm)
        load[least] += call_seconds(gemm)
    return parts


def visible_device(gpu: int, environment: Mapping[str, str]) -> str:
    """Return what a process must be shown to get the GPU that this process counts as number ``gpu``.

    >>> visible_device(1, {}), visible_device(1, {"HIP_VISIBLE_DEVICES": "4,6"})
    ('1', '6')
    """
    listed = environment.get("HIP_VISIBLE_DEVICES") or environment.get("CUDA_VISIBLE_DEVICES") or ""
    names = [name.strip() for name in listed.split(",") if name.strip()]
    return names[gpu] if gpu < len(names) else str(gpu)


def _tune_part(gpu: int, untuned: str, results: str, budget_ms: int) -> None:
    """Tune every product of one file on one GPU, in a process of its own. PyTorch appends each result once found."""
    # Both names, because PyTorch for ROCm answers to either; they must be set before the first call to the GPU.
    os.environ["HIP_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"] = visible_device(gpu, os.environ)
    for name in ("ENABLED", "TUNING", "RECORD_UNTUNED", "FILENAME"):
        os.environ.pop(f"PYTORCH_TUNABLEOP_{name}", None)  # they would win over the calls below
    from torch.cuda import tunable

    tunable.enable(True)
    tunable.tuning_enable(True)
    tunable.record_untuned_enable(False)
    tunable.set_max_tuning_duration(budget_ms)
    tunable.set_max_tuning_iterations(CALLS)
    tunable.set_filename(results)
    tunable.tune_gemm_in_file(untuned)
    if hasattr(tunable, "write_file"):
        tunable.write_file(results)


def _collect(parts: Iterable[Path], results: Path) -> TuningFile:
    """Collect everything found so far in one file; a line that a killed process left half written is dropped."""
    files = [read_file(p, repair=True) for p in (results, *parts) if p.exists()]
    done = merge(files)
    write_file(results, done)
    return done


def tune_file(
    untuned: str | os.PathLike[str],
    results: str | os.PathLike[str],
    *,
    gpus: int = 1,
    budget_ms: int = BUDGET_MS,
    validators: Mapping[str, str] | None = None,
    worker: Callable[[int, str, str, int], Any] = _tune_part,
    progress: Callable[[int, int], None] | None = None,
) -> TuningFile:
    """Tune what ``untuned`` lists and ``results`` does not hold yet; returns all results, which are in the file too.

    One process per GPU. A run that is interrupted keeps what it found: call it again and it goes on. ``progress`` is
    called with (done, total) several times a second. ``validators`` are this machine's
    (``torch.cuda.tunable.get_validators()``): with them, results of another environment are refused before the work.

    Raises:
        GuideError: no product in the file, results of another environment, or a process that failed (what the others
            found is kept).
    """
    wanted, results = read_file(untuned), Path(results)
    if not wanted.gemms:
        raise GuideError(f"{untuned}: lists no product; plan one with `rocm-guide tunable plan` or record a run")
    # What an earlier run left when it was killed, on however many GPUs. Gone once it is in the results: PyTorch
    # would go on writing behind a line that is half there.
    left_over = [p for p in results.parent.glob(f"{glob.escape(results.stem)}.gpu*.csv") if "untuned" not in p.name]
    have = _collect(sorted(left_over), results)
    for path in left_over:
        path.unlink()
    if validators and have.validators and (differ := explain_validators(have.validators, validators)):
        raise GuideError(f"{results}: of another environment ({'; '.join(differ)}); name a new file")
    todo = missing(wanted, have)
    part_files = [results.with_name(f"{results.stem}.gpu{i}.csv") for i in range(gpus)]
    context = multiprocessing.get_context("spawn")
    processes = []
    for gpu, part in enumerate(share_out(todo.gemms.values(), gpus)):
        if not part:
            continue
        listed = results.with_name(f"{results.stem}.gpu{gpu}.untuned.csv")
        write_file(listed, part)
        args = (gpu, str(listed), str(part_files[gpu]), budget_ms)
        process = context.Process(target=worker, args=args)
        process.start()
        processes.append(process)
    while any(p.is_alive() for p in processes):
        time.sleep(0.2)
        if progress:
            found = sum(len(read_file(p, repair=True).tuned) for p in part_files if p.exists())
            progress(len(wanted.gemms) - len(todo.gemms) + found, len(wanted.gemms))
    done = _collect(part_files, results)
    for path in part_files:
        path.unlink(missing_ok=True)
        path.with_name(path.stem + ".untuned.csv").unlink(missing_ok=True)
    if progress:
        progress(len(wanted.gemms) - len(missing(wanted, done).gemms), len(wanted.gemms))
    failed = [p.exitcode for p in processes if p.exitcode]
    if failed:
        left = f"{len(missing(wanted, done).gemms)} products left, run again"
        raise GuideError(f"{len(failed)} tuning process(es) ended with code {failed[0]}; {left}")
    return done
