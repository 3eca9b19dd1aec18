# SPDX-License-Identifier: MIT
"""`rocm-guide tunable plan | check | explain | merge | missing | compare | covers | tune`: tuned GEMMs from outside."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from cdna.cli.options import JSON, OutFile, Top, between, choice, out_file
from cdna.cli.output import say
from rocm_guide.cli.options import model_names
from rocm_guide.cli.tunable.contents import contents, print_file
from rocm_guide.cli.tunable.options import (
    Attention,
    Batch,
    Cache,
    NewTokens,
    Pad,
    Platform,
    Prompt,
    lengths_of,
    plan_for,
    rules_of,
    span,
)
from rocm_guide.common.base import shown

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Plan GEMMs; read and compare tuned files.")
_NO_GPU = "tuning needs a GPU; on this machine `rocm-guide tunable plan` says what would be tuned"
_DTYPES = ("float32", "float16", "bfloat16")
_FILE = typer.Argument(help="A tunableop_*.csv file, results or untuned.")


@app.command("plan")
def plan_command(
    model: Annotated[
        str,
        typer.Argument(
            help="A shape (llama-3-70b), a hub id, or a folder with config.json.", autocompletion=model_names
        ),
    ],
    batch: Batch = 1,
    prompt: Prompt = "128",
    new_tokens: NewTokens = 128,
    pad: Pad = 1,
    cache: Cache = "dynamic",
    dtype: Annotated[str, typer.Option(help="float32, float16 or bfloat16.", callback=choice(*_DTYPES))] = "bfloat16",
    attention: Attention = "sdpa",
    platform: Platform = "rocm",
    candidates: Annotated[
        int, typer.Option(help="Kernels tried per product, for the time estimate.", callback=between(1, 10**6))
    ] = 1500,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", parser=out_file, metavar="FILE", help="Write the untuned file here."),
    ] = None,
    as_json: JSON = False,
) -> None:
    """List every matrix product that a model asks for in prefill and decoding, without weights and without a GPU."""
    from cdna.cli.output import announced
    from rocm_guide.common.base import GuideError, write_text
    from rocm_guide.models.sources import config_fields
    from rocm_guide.tune.tunableop.cost import tuning_seconds
    from rocm_guide.tune.tunableop.planner import plan

    rules = rules_of(platform)
    if attention not in ("sdpa", "eager"):
        raise GuideError(f"--attention {attention}: use sdpa or eager")
    config_fields(model)  # an unknown model is refused before torch is imported
    with announced(f"planning {shown(model)}"):
        found = plan(
            model,
            batch=batch,
            prompt=lengths_of(prompt),
            new_tokens=new_tokens,
            pad=pad,
            cache=cache,
            dtype=dtype,
            attention=attention,
            rules=rules,
            progress=sys.stderr.isatty() and not as_json,
        )
    entries = list(found.gemms.values())
    low, high = tuning_seconds((e.gemm for e in entries), candidates=candidates)
    if out is not None:
        write_text(out, "".join(f"{line}\n" for line in found.lines()))
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
    say(f"tuning on an MI300X: {span(low, high)} (computed, for {candidates} candidates per product)")
    for words in found.assumed:
        say(f"assumed: {words}")
    for name, count in found.untunable.items():
        say(f"{count} calls of {name}: outside TunableOp")
    if out is not None:
        say(f"{shown(out)}: {len(entries)} lines for torch.cuda.tunable.tune_gemm_in_file")


@app.command()
def check(file: Annotated[Path, _FILE], as_json: JSON = False) -> None:
    """Check whether a file is well formed, and whether PyTorch on this machine would accept it."""
    import importlib.util

    from rocm_guide.common.host import gpu_possible
    from rocm_guide.tune.tunableop.file_tools import explain_validators
    from rocm_guide.tune.tunableop.files import read_file

    parsed, here = read_file(file, repair=True), None
    # Without a GPU there is nothing to ask torch for, and importing it takes seconds.
    if parsed.validators and gpu_possible() and importlib.util.find_spec("torch"):
        import torch

        if torch.cuda.is_available():
            here = dict(torch.cuda.tunable.get_validators())
    refused = explain_validators(parsed.validators, here) if here is not None and parsed.validators else []
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "products": len(parsed.gemms),
                    "tuned": len(parsed.tuned),
                    "validators": parsed.validators,
                    "problems": parsed.problems,
                    "refused": refused,
                    "checked_here": here is not None,
                }
            )
        )
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
    if refused or any("skipped" in p for p in parsed.problems):
        raise typer.Exit(1)


@app.command("explain")
def explain_command(
    line: Annotated[str, typer.Argument(help="A line, or a file whose lines are all explained.")],
    model: Annotated[str | None, typer.Option(help="Also say which layers of this model ask for it.")] = None,
    batch: Batch = 1,
    prompt: Prompt = "128",
    new_tokens: NewTokens = 128,
    pad: Pad = 1,
    cache: Cache = "dynamic",
    attention: Attention = "sdpa",
    platform: Platform = "rocm",
    as_json: JSON = False,
) -> None:
    """Explain what a line stands for: which product, of which layer, and why M and N changed places."""
    from rocm_guide.tune.tunableop.files import read_file
    from rocm_guide.tune.tunableop.gemm import parse_gemm
    from rocm_guide.tune.tunableop.in_words import describe_gemm

    gemms = list(read_file(line).gemms.values()) if Path(line).is_file() else [parse_gemm(line)]
    found = None
    if model:
        found = plan_for(gemms, model, batch, prompt, new_tokens, pad, cache, attention, platform)
    told = [(gemm, describe_gemm(gemm, found)) for gemm in gemms]
    if as_json:
        typer.echo(
            json.dumps([{"line": g.line(), "op": g.op, "params": g.params, "text": t} for g, t in told], indent=1)
        )
        return
    for gemm, text in told:
        say(f"{gemm.line()}\n{text}\n")


@app.command("merge")
def merge_command(
    files: Annotated[list[Path], typer.Argument(help="Results files.")], out: OutFile = None, as_json: JSON = False
) -> None:
    """Make one file out of several; the faster of two solutions stays, and no tuned line is lost."""
    from rocm_guide.tune.tunableop.file_tools import merge
    from rocm_guide.tune.tunableop.files import read_file

    print_file(merge([read_file(f) for f in files]), out, as_json)


@app.command("missing")
def missing_command(
    untuned: Annotated[Path, _FILE], results: Annotated[Path, _FILE], out: OutFile = None, as_json: JSON = False
) -> None:
    """List what UNTUNED lists and RESULTS has no solution for."""
    from rocm_guide.tune.tunableop.file_tools import missing
    from rocm_guide.tune.tunableop.files import read_file

    print_file(missing(read_file(untuned), read_file(results)), out, as_json)


@app.command("compare")
def compare_command(
    before: Annotated[Path, _FILE],
    after: Annotated[Path, _FILE],
    top: Top = 10,
    model: Annotated[str | None, typer.Option(help="Weight each product by how often this model calls it.")] = None,
    batch: Batch = 1,
    prompt: Prompt = "128",
    new_tokens: NewTokens = 128,
    pad: Pad = 1,
    cache: Cache = "dynamic",
    attention: Attention = "sdpa",
    platform: Platform = "rocm",
    as_json: JSON = False,
) -> None:
    """Print the speed-up per product between two results files, and in all; with --model weighted by its calls."""
    from rocm_guide.tune.tunableop.file_tools import compare_files
    from rocm_guide.tune.tunableop.files import read_file

    first, calls = read_file(before), None
    if model:
        found = plan_for(first.gemms.values(), model, batch, prompt, new_tokens, pad, cache, attention, platform)
        calls = {key: entry.calls for key, entry in found.gemms.items()}
    c = compare_files(first, read_file(after), calls)
    if as_json:
        rows = [
            {"product": x.params, "before_ms": x.time_ms, "after_ms": y.time_ms, "calls": n, "speed_up": s}
            for x, y, n, s in c.rows
        ]
        typer.echo(json.dumps({"speed_up": c.speed_up if c.after_ms else None, "rows": rows}))
        return
    for x, y, n, speed_up in c.rows[:top]:
        times = f"{speed_up:>6.2f}x  {x.time_ms:>9.5f} -> {y.time_ms:>9.5f} ms"
        say(f"{times}  {f'{n:>8} calls  ' if model else ''}{x.params}  {x.solution} -> {y.solution}")
    if not c.after_ms:
        caller = f" and called by {shown(model)}" if model else ""
        say(f"nothing to compare: no product with a time is in both files{caller}")
        return
    how = f"weighted by the calls of {shown(model)}" if model else "each counted once"
    say(f"{len(c.rows)} products in both, {how}: {c.before_ms:.4f} -> {c.after_ms:.4f} ms, {c.speed_up:.3f}x in all")
    say(f"only in the first: {c.only_before}; only in the second: {c.only_after}")


@app.command("covers")
def covers_command(
    file: Annotated[
        Path,
        typer.Argument(help="TunableOp's results, hipBLASLt's log or tuning file, AITER's CSV, vLLM's E=…,N=….json."),
    ],
    model: Annotated[
        str,
        typer.Argument(
            help="A shape (llama-3-70b), a hub id, or a folder with config.json.", autocompletion=model_names
        ),
    ],
    batch: Batch = 1,
    prompt: Prompt = "128",
    new_tokens: NewTokens = 128,
    pad: Pad = 1,
    tensor_parallel: Annotated[
        int, typer.Option(help="GPUs that the serving engine cuts each matrix over.", callback=between(1, 1024))
    ] = 1,
    gpu: Annotated[str, typer.Option(help="The GPU that is to use the file.")] = "MI300X",
    dtype: Annotated[str, typer.Option(help="float32, float16 or bfloat16.", callback=choice(*_DTYPES))] = "bfloat16",
    as_json: JSON = False,
) -> None:
    """Say which products or experts of a model a tuned file covers, and which line applies to each."""
    from cdna.cli.output import working
    from rocm_guide.tune.tunableop.coverage import covers
    from rocm_guide.tune.tunableop.tuned_elsewhere import KINDS, read_tuned

    found = read_tuned(file)
    with working(f"planning {model}"):
        result = covers(
            found,
            model,
            batch=batch,
            prompt=lengths_of(prompt),
            new_tokens=new_tokens,
            pad=pad,
            dtype=dtype,
            gpu_name=gpu,
            tensor_parallel=tensor_parallel,
        )
    if as_json:
        rows = [
            {
                "product": one.what,
                "line": one.row.line if one.row else None,
                "choice": one.row.choice if one.row else None,
                "us": one.row.us if one.row else None,
                "note": one.note,
            }
            for one in result.asked
        ]
        summary = {"kind": found.kind, "lines": len(found.rows), "covered": result.covered, "products": len(rows)}
        typer.echo(json.dumps({**summary, "asked": rows, "said": result.said, "problems": found.problems}))
        return
    say(f"{shown(file)}: {KINDS[found.kind]}, {len(found.rows)} lines")
    for one in result.asked:
        place = f"line {one.row.line}" if one.row else "missing"
        what = f"  {one.row.choice}" + (f", {one.row.us:g} us" if one.row.us is not None else "") if one.row else ""
        say(f"{place:>10}  {one.what}{what}{f'  ({one.note})' if one.note else ''}")
    say(f"{result.covered} of {len(result.asked)} that {shown(model)} asks for have a line")
    for words in result.said:
        say(f"  {words}")
    for words in found.problems:
        say(f"  [WARN] {words}")


@app.command("tune")
def tune_command(
    untuned: Annotated[Path, _FILE],
    results: Annotated[Path, typer.Argument(help="File to write, or to go on with.")],
    gpus: Annotated[int, typer.Option(help="GPUs to tune on.", callback=between(1, 1024))] = 1,
    budget_ms: Annotated[int, typer.Option(help="Milliseconds per candidate.", callback=between(1, 10**6))] = 30,
    as_json: JSON = False,
) -> None:
    """Tune every product of a file on one GPU or several; interrupt it and call it again, it goes on."""
    from cdna.cli.output import announced
    from rocm_guide.common.base import GuideError
    from rocm_guide.common.host import gpu_possible
    from rocm_guide.tune.tunableop.file_tools import missing
    from rocm_guide.tune.tunableop.files import read_file
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
