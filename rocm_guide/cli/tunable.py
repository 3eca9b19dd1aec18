# SPDX-License-Identifier: MIT
"""`rocm-guide tunable plan | check | merge | tune`: tuned GEMMs from outside."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdna.cli.options import JSON, OutFile, between, choice, out_file
from cdna.cli.output import announced, say, write_or_print
from rocm_guide.cli.options import model_names
from rocm_guide.common.base import GuideError, shown, write_text

if TYPE_CHECKING:
    from rocm_guide.tune.tunableop.coverage import Coverage
    from rocm_guide.tune.tunableop.files import TuningFile
    from rocm_guide.tune.tunableop.planner import Plan
    from rocm_guide.tune.tunableop.tuned_elsewhere import TunedElsewhere

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Plan GEMMs; tune them; read tuned files.")
_NO_GPU = "tuning needs a GPU; on this machine `rocm-guide tunable plan` says what would be tuned"
_FILE = typer.Argument(help="A tunableop_*.csv file, results or untuned.")
#: Tokens of the longest prompt that is planned for; no model of today takes more.
LONGEST = 10_000_000


def lengths_of(text: str) -> list[int]:
    """Parse ``100``, ``5,12,100`` or ``1:256`` (both ends included).

    >>> lengths_of("1:3"), lengths_of("5,12")
    ([1, 2, 3], [5, 12])
    """
    try:
        if ":" in text:
            first, last = (int(part) for part in text.split(":"))
            found: range | list[int] = range(first, last + 1)
        else:
            found = [int(part) for part in text.split(",")]
    except ValueError:
        raise GuideError(f"--prompt {shown(text, 60)}: a length (100), several (5,12,100) or a range (1:256)") from None
    ends = (found[:1], found[-1:]) if isinstance(found, range) else (found, found)  # a range may be endless
    if not found or min(ends[0]) < 1 or max(ends[1]) > LONGEST:
        raise GuideError(f"--prompt {shown(text, 60)}: lengths are 1 to {LONGEST:,}, the first one not above the last")
    return list(found)


def _prompt(text: str) -> str:
    """Return the text itself, if :func:`lengths_of` can read it: said before the libraries are imported."""
    lengths_of(text)
    return text


def span(low: float, high: float) -> str:
    """Return two times in seconds as text, in a unit that suits the longer one.

    >>> span(3, 90), span(60, 600)
    ('3.0 to 90.0 s', '1.0 to 10.0 min')
    """
    unit, size = ("s", 1) if high < 120 else ("min", 60) if high < 7200 else ("h", 3600)
    return f"{low / size:.1f} to {high / size:.1f} {unit}"


@app.command("plan")
def plan_command(
    model: Annotated[
        str,
        typer.Argument(
            help="A shape (llama-3-70b), a hub id, or a folder with config.json.", autocompletion=model_names
        ),
    ],
    batch: Annotated[int, typer.Option(help="Sequences at once.", callback=between(1, 100_000))] = 1,
    prompt: Annotated[
        str, typer.Option(help="Prompt length in tokens: 100, or 5,12,100, or 1:256.", callback=_prompt)
    ] = "128",
    new_tokens: Annotated[int, typer.Option(help="Tokens to generate.", callback=between(1, LONGEST))] = 128,
    pad: Annotated[int, typer.Option(help="Pad prompts to a multiple of this.", callback=between(1, LONGEST))] = 1,
    cache: Annotated[str, typer.Option(help="dynamic or static.")] = "dynamic",
    dtype: Annotated[
        str, typer.Option(help="float32, float16 or bfloat16.", callback=choice("float32", "float16", "bfloat16"))
    ] = "bfloat16",
    attention: Annotated[str, typer.Option(help="sdpa (fused kernels) or eager (matrix products).")] = "sdpa",
    covers: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Say which line of this tuned file each product gets: TunableOp's results, hipBLASLt's log or "
            "tuning file, AITER's CSV of GEMMs or experts, vLLM's tiles for experts.",
        ),
    ] = None,
    tensor_parallel: Annotated[
        int,
        typer.Option(help="With --covers: GPUs that the serving engine cuts a matrix over.", callback=between(1, 1024)),
    ] = 1,
    gpu: Annotated[str, typer.Option(help="With --covers: the GPU that is to use the file.")] = "MI300X",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", parser=out_file, metavar="FILE", help="Write the untuned file here.")
    ] = None,
    as_json: JSON = False,
) -> None:
    """List every matrix product that a model asks for in prefill and decoding, without weights and without a GPU."""
    from rocm_guide.models.sources import config_fields

    if attention not in ("sdpa", "eager"):
        raise GuideError(f"--attention {attention}: use sdpa or eager")
    if covers is None and (tensor_parallel, gpu) != (1, "MI300X"):
        raise GuideError(f"--tensor-parallel {tensor_parallel}, --gpu {shown(gpu)}: only with --covers FILE")
    if covers is not None and out is not None:
        raise GuideError(f"--out {shown(out)}: not with --covers; plan without it for the untuned file")
    config_fields(model)  # an unknown model is refused before torch is imported
    workload: dict[str, Any] = {"batch": batch, "prompt": lengths_of(prompt), "new_tokens": new_tokens, "pad": pad}
    workload |= {"cache": cache, "dtype": dtype, "attention": attention}
    if covers is not None:
        from rocm_guide.tune.tunableop.coverage import covers as covered_by
        from rocm_guide.tune.tunableop.tuned_elsewhere import read_tuned

        file = read_tuned(covers)
        with announced(f"planning {shown(model)}"):
            coverage = covered_by(file, model, gpu_name=gpu, tensor_parallel=tensor_parallel, **workload)
        _print_coverage(file, coverage, f"{shown(covers)}", shown(model), as_json)
        return
    from rocm_guide.tune.tunableop.planner import plan

    with announced(f"planning {shown(model)}"):
        found = plan(model, **workload, progress=sys.stderr.isatty() and not as_json)
    if out is not None:
        write_text(out, "".join(f"{line}\n" for line in found.lines()))
    _print_plan(found, as_json)
    if out is not None and not as_json:
        say(f"{shown(out)}: {len(found.gemms)} lines for torch.cuda.tunable.tune_gemm_in_file")


def _print_plan(found: Plan, as_json: bool) -> None:
    from rocm_guide.tune.tunableop.tuning import tuning_seconds

    entries = list(found.gemms.values())
    low, high = tuning_seconds(e.gemm for e in entries)
    if as_json:
        rows = [
            {"line": e.gemm.line(), "prefill": e.prefill, "decode": e.decode, "flops": e.flops, "modules": e.modules}
            for e in entries
        ]
        summary = {"products": len(entries), "flops": found.flops, "tuning_s": [low, high]}
        summary |= {"untunable": found.untunable, "assumed": found.assumed}
        typer.echo(json.dumps({**summary, "gemms": rows}))
        return
    say(f"{'prefill':>9} {'decode':>9} {'share':>6}  product")
    total = max(found.flops, 1)
    for e in entries[:60]:
        say(f"{e.prefill:>9} {e.decode:>9} {e.flops / total:>6.1%}  {e.gemm.op},{e.gemm.params}  {e.modules[0]}")
    if len(entries) > 60:
        say(f"  … and {len(entries) - 60} more (--out FILE writes all)")
    say(f"{len(entries)} products to tune, {found.flops / 1e12:.2f} TFLOP in all")
    say(f"tuning on an MI300X: {span(low, high)} (computed, for 1500 candidates per product)")
    for words in found.assumed:
        say(f"assumed: {words}")
    for name, count in found.untunable.items():
        say(f"{count} calls of {name}: outside TunableOp")


def _print_coverage(file: TunedElsewhere, result: Coverage, name: str, model: str, as_json: bool) -> None:
    from rocm_guide.tune.tunableop.tuned_elsewhere import KINDS

    if as_json:
        shown_of = ("line", "choice", "us")
        rows = [
            {"product": one.what, **{name: getattr(one.row, name, None) for name in shown_of}, "note": one.note}
            for one in result.asked
        ]
        summary = {"kind": file.kind, "lines": len(file.rows), "covered": result.covered, "products": len(rows)}
        typer.echo(json.dumps({**summary, "asked": rows, "said": result.said, "problems": file.problems}))
        return
    say(f"{name}: {KINDS[file.kind]}, {len(file.rows)} lines")
    for one in result.asked:
        place = f"line {one.row.line}" if one.row else "missing"
        what = f"  {one.row.choice}" + (f", {one.row.us:g} us" if one.row.us is not None else "") if one.row else ""
        say(f"{place:>10}  {one.what}{what}{f'  ({one.note})' if one.note else ''}")
    say(f"{result.covered} of {len(result.asked)} that {model} asks for have a line")
    for words in result.said:
        say(f"  {words}")
    for words in file.problems:
        say(f"  [WARN] {words}")


def contents(file: TuningFile) -> dict[str, Any]:
    """Return validators, tuned products with solution and time, lines that wait for tuning, and the file's problems.

    >>> from rocm_guide.tune.tunableop.files import parse_text
    >>> contents(parse_text("GemmTunableOp_Half_TN,tn_8_4_2,Default,0.5\\n"))["tuned"]
    [{'op': 'GemmTunableOp_Half_TN', 'params': 'tn_8_4_2', 'solution': 'Default', 'time_ms': 0.5}]
    """
    tuned = [{"op": g.op, "params": g.params, "solution": g.solution, "time_ms": g.time_ms} for g in file.tuned]
    untuned = [g.line() for g in file.gemms.values() if not g.tuned]
    return {"validators": file.validators, "tuned": tuned, "untuned": untuned, "problems": file.problems}


@app.command()
def check(
    file: Annotated[Path, _FILE],
    explain: Annotated[bool, typer.Option("--explain", help="Say in words what each line stands for.")] = False,
    as_json: JSON = False,
) -> None:
    """Check whether a file is well formed, and whether PyTorch on this machine would accept it."""
    from rocm_guide.common.host import gpu_possible
    from rocm_guide.tune.tunableop.files import explain_validators, read_file
    from rocm_guide.tune.tunableop.gemm import describe_gemm

    parsed, here = read_file(file, repair=True), None
    # Without a GPU there is nothing to ask torch for, and importing it takes seconds.
    if parsed.validators and gpu_possible() and importlib.util.find_spec("torch"):
        import torch

        if torch.cuda.is_available():
            here = dict(torch.cuda.tunable.get_validators())
    refused = explain_validators(parsed.validators, here) if here is not None and parsed.validators else []
    told = [(gemm.line(), describe_gemm(gemm)) for gemm in parsed.gemms.values()] if explain else []
    if as_json:
        found: dict[str, Any] = {"products": len(parsed.gemms), "tuned": len(parsed.tuned)}
        found |= {"validators": parsed.validators, "problems": parsed.problems}
        found |= {"refused": refused, "checked_here": here is not None}
        if explain:
            found["explained"] = dict(told)
        typer.echo(json.dumps(found))
    else:
        say(f"{shown(file)}: {len(parsed.gemms)} products, {len(parsed.tuned)} tuned")
        for name, value in parsed.validators.items():
            say(f"  {name} = {value}")
        for line in parsed.problems:
            say(f"  [WARN] {line}")
        for line in refused:
            say(f"  [FAIL] {line}")
        if here is None and parsed.validators:
            say("  no GPU here: the validators were not compared")
        for line, text in told:
            say(f"\n{line}\n{text}")
    if refused or any("skipped" in p for p in parsed.problems):
        raise typer.Exit(1)


@app.command("merge")
def merge_command(
    files: Annotated[list[Path], typer.Argument(help="Results files.")], out: OutFile = None, as_json: JSON = False
) -> None:
    """Make one file out of several; the faster of two solutions stays, and no tuned line is lost."""
    from rocm_guide.tune.tunableop.files import merge, read_file

    merged = merge([read_file(f) for f in files])
    if not as_json:
        for line in merged.problems:
            say(f"[WARN] {line}", err=True)
        write_or_print(merged.text(), out)
        return
    if out is not None:
        write_text(out, merged.text())
    typer.echo(json.dumps(contents(merged)))


@app.command("tune")
def tune_command(
    untuned: Annotated[Path, _FILE],
    results: Annotated[Path, typer.Argument(help="File to write, or to go on with.")],
    gpus: Annotated[int, typer.Option(help="GPUs to tune on.", callback=between(1, 1024))] = 1,
    budget_ms: Annotated[int, typer.Option(help="Milliseconds per candidate.", callback=between(1, 10**6))] = 30,
    as_json: JSON = False,
) -> None:
    """Tune every product of a file on one GPU or several; interrupt it and call it again, it goes on."""
    from rocm_guide.common.host import gpu_possible
    from rocm_guide.tune.tunableop.files import missing, read_file
    from rocm_guide.tune.tunableop.tuning import tune_file

    out_file(results)
    read_file(untuned)
    if not gpu_possible():
        raise GuideError(_NO_GPU)
    import torch
    from rich.console import Console
    from rich.progress import Progress

    if not torch.cuda.is_available():
        raise GuideError(_NO_GPU)
    if gpus > torch.cuda.device_count():
        raise GuideError(f"--gpus {gpus}: torch sees {torch.cuda.device_count()} here")
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bar, announced(f"tuning {shown(untuned)}"):
        task = bar.add_task("products", total=None)
        done = tune_file(
            untuned,
            results,
            gpus=gpus,
            budget_ms=budget_ms,
            validators=dict(torch.cuda.tunable.get_validators()),
            progress=lambda n, total: bar.update(task, completed=n, total=total),
        )
    left = missing(read_file(untuned), done).gemms
    if as_json:
        typer.echo(json.dumps({"file": str(results), **contents(done), "left": [g.line() for g in left.values()]}))
        return
    say(f"{shown(results)}: {len(done.tuned)} tuned products")
    if left:
        say(f"{len(left)} left: PyTorch tunes some products with a size of 1 only online, in a run of the model")
