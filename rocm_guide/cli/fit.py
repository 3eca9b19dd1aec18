# SPDX-License-Identifier: MIT
"""`rocm-guide fit`: will this model train or answer on these GPUs, with what batch, and if not, what would fit?"""

from __future__ import annotations

import io
import json
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdna.cli.options import choice
from cdna.cli.output import announced, say
from rocm_guide.common.base import GuideError, shown, write_bytes

if TYPE_CHECKING:
    from rocm_guide.models.memory_planner import Fit
    from rocm_guide.models.placement import Placement
    from rocm_guide.models.work import Workload

__all__ = ["advice_for", "fit"]

BAR = 46
SEQ = 2048
#: Bytes of a number in the KV cache.
_KV_BYTES = {"auto": None, "bf16": 2, "fp8": 1}


def fit(
    model: Annotated[str, typer.Argument(help="A shape (llama-2-7b), a hub id, a folder, a config.json.")],
    gpu: Annotated[str, typer.Option(help="MI300X, mi325x, H100, A100-40GB, RTX4090, …")] = "MI300X",
    count: Annotated[int, typer.Option(help="Number of GPUs.")] = 1,
    method: Annotated[str, typer.Option(help="full, lora, qlora, inference or serve.")] = "full",
    batch: Annotated[int, typer.Option(help="Rows on each GPU.")] = 1,
    seq: Annotated[
        int | None, typer.Option(help="Tokens of a row, the answer included; 2048 if the model takes so many.")
    ] = None,
    checkpointing: Annotated[bool, typer.Option("--checkpointing", help="Recompute activations.")] = False,
    offloading: Annotated[
        bool, typer.Option("--offloading", help="With --checkpointing: what is kept waits in the host's memory.")
    ] = False,
    fsdp: Annotated[bool, typer.Option("--fsdp", help="Shard parameters, gradients and states.")] = False,
    precision: Annotated[str, typer.Option(help="Of full training: bf16 (all of it) or mixed (fp32 states).")] = "bf16",
    kernels: Annotated[str, typer.Option(help="liger (fused) or torch.")] = "liger",
    rank: Annotated[int, typer.Option(help="Rank of LoRA.")] = 16,
    targets: Annotated[
        str, typer.Option(help="Matrices of LoRA, as q_proj,v_proj; all linear layers by default.")
    ] = "all",
    dropout: Annotated[float, typer.Option(help="Dropout of LoRA.")] = 0.0,
    accumulation: Annotated[int, typer.Option(help="Forward passes for each optimizer step.")] = 1,
    memory: Annotated[
        float | None, typer.Option(help="GB (10^9 bytes) of one GPU, instead of its driver's figure.")
    ] = None,
    utilization: Annotated[
        float | None, typer.Option(help="Of serve: the share of the memory that the server takes; vLLM's 0.92.")
    ] = None,
    kv_cache: Annotated[
        str, typer.Option(help="Of serve: auto (as the checkpoint asks), bf16 or fp8.", callback=choice(*_KV_BYTES))
    ] = "auto",
    adapters: Annotated[int, typer.Option(help="Of serve: LoRA adapters of --rank beside the base.")] = 0,
    prefix: Annotated[int, typer.Option(help="Of serve: tokens at the beginning that all texts share.")] = 0,
    strategy: Annotated[str | None, typer.Option("--map", help="Show a device map: auto, balanced, …")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the stacked plot to this PNG or SVG.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Count the bytes of one GPU at the peak, by part, and the largest batch that fits. Exit code 1: it does not."""
    from rocm_guide.models.families import has_formula
    from rocm_guide.models.memory_planner import fit as plan_fit
    from rocm_guide.models.sizes import sizes_of
    from rocm_guide.models.sources import config_fields
    from rocm_guide.models.work import Workload

    chosen = () if targets == "all" else tuple(t.strip() for t in targets.split(","))
    work = Workload(
        method,
        batch,
        SEQ if seq is None else seq,
        precision,
        checkpointing,
        kernels,
        accumulation,
        rank,
        chosen,
        dropout,
        method != "qlora",
        offloading,
        utilization,
        _KV_BYTES[kv_cache],
        adapters,
        prefix,
    )
    _check_options(work, fsdp, strategy)
    fields = config_fields(model)
    # Another type is built without weights, which takes seconds.
    progress = nullcontext() if has_formula(fields) else announced(f"building {shown(model)} without weights")
    with progress:
        if seq is None:
            work = replace(work, seq=min(SEQ, sizes_of(fields).positions or SEQ))
        plan = plan_fit(fields, work, gpu=gpu, count=count, fsdp=fsdp, memory_gb=memory)
    placement = None
    if strategy:
        from rocm_guide.models.load import meta_model
        from rocm_guide.models.placement import plan_placement

        placement = plan_placement(meta_model(model).bfloat16(), [plan.budget] * plan.count, strategy)
    if plot is not None:
        _draw(plan, model, plot)
    if as_json:
        typer.echo(json.dumps(_as_dict(plan, model, placement), indent=1))
    else:
        _print(plan, model, placement, fields)
    raise typer.Exit(0 if plan.fits else 1)


def _check_options(work: Workload, fsdp: bool, device_map: str | None) -> None:
    """Refuse options that would have no effect: a plan that leaves them out silently is another plan."""
    from rocm_guide.models.work import FitError

    if work.precision == "mixed" and work.method != "full":
        raise FitError(
            f"--precision mixed with --method {work.method}: only full training has fp32 states; leave it out"
        )
    if work.checkpointing and work.method in ("inference", "serve"):
        raise FitError(f"--checkpointing with --method {work.method}: there is no backward pass; leave it out")
    if fsdp and device_map:
        raise FitError(
            f"--map {device_map} with --fsdp: FSDP shards every layer, there is no map; leave one of them out"
        )


def _as_dict(plan: Fit, model: str, placement: Placement | None) -> dict[str, Any]:
    sizes = ("parts", "overhead", "peak", "reserved", "total", "budget", "allowed", "moments")
    found: dict[str, Any] = {"model": model, "gpu": plan.gpu, "count": plan.count, "fsdp": plan.fsdp}
    found |= {"weights": plan.stored_as, "work": asdict(plan.work)}
    found |= {f"{name}_bytes": getattr(plan, name) for name in sizes}
    found |= {"moment": plan.moment, "fits": plan.fits, "largest_batch": plan.largest_batch}
    if placement:
        found["device_map"] = placement.device_map
        found["map_bytes"] = {str(device): used for device, used in placement.used.items()}
    return found


def _print(plan: Fit, model: str, placement: Placement | None, fields: dict[str, Any]) -> None:
    work = plan.work
    many = f"{plan.count} x " if plan.count > 1 else ""
    how = [work.method] + [f"{work.precision} states"] * (work.method == "full") + ["FSDP"] * plan.fsdp
    how += ["checkpointing"] * work.checkpointing
    how += ["offloading"] * work.offloading + [f"weights: {plan.stored_as}"] * (plan.stored_as != "bf16")
    say(f"{shown(model)} on {many}{plan.gpu}: {', '.join(how)}; batch {work.batch} x {work.seq} tokens on each GPU")
    for name, size in {**plan.parts, **plan.overhead}.items():
        bar = "#" * round(BAR * size / max(plan.total, plan.budget))
        say(f"  {name:<16}{size / 1e9:9.2f} GB  {bar}".rstrip())
    say(
        f"  {'total':<16}{plan.total / 1e9:9.2f} GB of {plan.budget / 1e9:.2f} GB ({plan.budget / 2**30:.2f} GiB)"
        f"{f' x {plan.share:g}' if plan.share < 1 else ''}; the peak is at: {plan.moment}"
    )
    say(f"  torch: {plan.peak / 1e9:.2f} GB allocated at the peak, {plan.reserved / 1e9:.2f} GB reserved")
    rows = "sequences at once" if work.method == "serve" else "rows"
    most = f"at most {plan.largest_batch} {rows} of {work.seq} tokens"
    if plan.fits:
        say(f"[OK]   fits; {most}")
    else:
        advice = most if plan.largest_batch else advice_for(plan, fields)
        say(f"[FAIL] does not fit, {(plan.total - plan.allowed) / 1e9:.2f} GB too much; {advice}")
    if placement:
        from rocm_guide.models.placement import explain_placement

        say("\n".join([f"device map {placement.strategy!r}:", *explain_placement(placement)]))


def _draw(plan: Fit, model: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from rocm_guide.models.memory_planner import draw_fit

    ax = draw_fit({f"{model}\n{plan.work.method}": plan})
    kind = path.suffix.lstrip(".").lower() or "png"
    if kind not in ("png", "svg"):
        from rocm_guide.models.work import FitError

        raise FitError(f"{path}: give a file ending in .png or .svg")
    picture = io.BytesIO()
    ax.figure.savefig(picture, format=kind)
    write_bytes(path, picture.getvalue())


#: Numbers of GPUs that people have: a few in one machine, then whole machines.
_COUNTS = (2, 4, 8, 16, 32, 64)


def advice_for(plan: Fit, fields: dict[str, Any]) -> str:
    """Return the changes that make one row fit, as options of the command.

    First what needs nothing more: recomputing activations, sharding over the GPUs at hand, then both. Then adapters
    instead of all weights, and more GPUs. Every change is tried as it is written.
    """
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
    # Such a change keeps the method and the number of GPUs: then more GPUs are no news.
    here = any(option.startswith(("--checkpointing", "--fsdp")) for option in options)
    for count in [c for c in _COUNTS if c > plan.count] if not here else ():
        found = [text for text, change in changes if fits(count=count, fsdp=bool(shards), **change)]
        if found:
            options.append(f"--count {count}{shards}{found[0]}")
            break
    if not options and fits(seq=1):
        options.append(f"--seq {max(2**k for k in range(work.seq.bit_length()) if fits(seq=2**k))}")
    fix = f"these would: {', '.join(options)}" if options else "take a smaller model, or a GPU with more memory"
    return f"not even one row does; {fix}"
