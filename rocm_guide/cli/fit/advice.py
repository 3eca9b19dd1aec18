# SPDX-License-Identifier: MIT
"""Advice on what would fit instead of a plan that does not: each change was computed, the cheapest comes first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocm_guide.models.memory_planner import Fit

__all__ = ["advice_for"]

#: Numbers of GPUs that people have: a few in one machine, then whole machines.
_COUNTS = (2, 4, 8, 16, 32, 64)


def advice_for(plan: Fit, fields: dict[str, Any]) -> str:
    """Return the changes that make one row fit, as options of the command.

    First what needs nothing more: recomputing activations, sharding over the GPUs at hand, then both. Then adapters
    instead of all weights, and more GPUs. Every change is tried as it is written.
    """
    from rocm_guide.common.base import GuideError
    from rocm_guide.models.memory_planner import fit as plan_fit

    work = plan.work
    training = work.method in ("full", "lora", "qlora")

    def fits(count: int = plan.count, fsdp: bool = plan.fsdp, **change: Any) -> bool:
        memory = plan.budget / 1e9
        try:
            changed = replace(work, **change)
            return plan_fit(fields, changed, gpu=plan.gpu, count=count, fsdp=fsdp, memory_gb=memory).fits
        except GuideError:  # a count that the heads do not divide by, weights that cannot be trained
            return False

    again = {"checkpointing": True}
    changes: list[tuple[str, dict[str, Any]]] = [("", {})]
    if training and not work.checkpointing:
        changes.append((" --checkpointing", again))
    options = [text.strip() for text, change in changes if change and fits(**change)]
    if not options and training and plan.count > 1 and not plan.fsdp:
        options = [f"--fsdp{text}" for text, change in changes if fits(fsdp=True, **change)][:1]
    for method in ("lora", "qlora") if training else ():
        adapter: dict[str, Any] = {
            "method": method,
            "precision": "bf16",
            "adapter_fp32": method == "lora",
            "targets": (),
        }
        texts = [f"--method {method}{text}" for text, change in changes if fits(**adapter, **change)]
        options += texts[:1] if method != work.method else []
    shards = " --fsdp" if training else ""
    for count in [c for c in _COUNTS if c > plan.count] if not _here(options) else ():
        found = [text for text, change in changes if fits(count=count, fsdp=bool(shards), **change)]
        if found:
            options.append(f"--count {count}{shards}{found[0]}")
            break
    if not options and fits(seq=1):
        options.append(f"--seq {max(2**k for k in range(work.seq.bit_length()) if fits(seq=2**k))}")
    fix = f"these would: {', '.join(options)}" if options else "take a smaller model, or a GPU with more memory"
    return f"not even one row does; {fix}"


def _here(options: list[str]) -> bool:
    # Such a change keeps the method and the number of GPUs: then more GPUs are no news.
    return any(option.startswith(("--checkpointing", "--fsdp")) for option in options)
