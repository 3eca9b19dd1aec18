# SPDX-License-Identifier: MIT
"""`rocm-guide trace record SCRIPT` records a trace; `trace summary | compare | kernels | counters` read one."""

from __future__ import annotations

import json
import runpy
import sys
import traceback
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdna.cli.options import JSON, Top, choice, out_file
from cdna.cli.output import say, working
from rocm_guide.common.base import GuideError, shown

if TYPE_CHECKING:
    from rocm_guide.observe.profiling.torch_trace.summary import TraceSummary

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Profile a script; read what a profiler wrote.")


@app.command("record", context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
def record(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="A Python script; with -m the name of a module.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Its arguments.")] = None,
    module: Annotated[bool, typer.Option("--module", "-m", help="Run a module, as python -m does.")] = False,
    out: Annotated[
        Path, typer.Option("--out", "-o", parser=out_file, metavar="FILE", help="Where to write the trace.")
    ] = Path("trace.json.gz"),
) -> None:
    """Run a script or module under torch.profiler and summarise its trace; options of record go before the script.

    The exit code is the script's own; a script that fails is summarised up to there. One that starts torch.profiler
    itself is refused: a process can have only one.
    """
    from rocm_guide.observe.profiling.torch_trace.recording import NestedProfilerError, only_profiler, record_block
    from rocm_guide.observe.profiling.torch_trace.summary import summarize

    before, code, there = (sys.argv, sys.path[:]), 0, out.exists()
    first = Path.cwd() if module else Path(script).resolve().parent
    sys.argv, sys.path[0:0] = [script, *(arguments or [])], [str(first)]
    file = script
    try:
        file = _module_file(script) if module else _script_file(script)
        with record_block(out), only_profiler(script):
            if module:
                runpy.run_module(script, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(script, run_name="__main__")
    except NestedProfilerError:
        if not there:
            out.unlink(missing_ok=True)
        raise
    except SystemExit as e:  # many scripts end with sys.exit(main())
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
        if isinstance(e.code, str):
            typer.echo(e.code, err=True)
    except Exception as e:  # noqa: BLE001 - whatever the script raises is shown as Python would
        code = _show_failure(e, file)
    finally:
        sys.argv, sys.path[:] = before
    _summary(summarize(out), 10)
    say(f"{shown(out)}: open it at https://ui.perfetto.dev")
    raise typer.Exit(code)


def _script_file(script: str) -> str:
    if not Path(script).is_file():
        module = ".".join(Path(script).with_suffix("").parts)
        hint = f"; for a module: rocm-guide trace record -m {module}" if not script.endswith(".py") else ""
        raise GuideError(f"{script}: no such script{hint}")
    return script


def _module_file(name: str) -> str:
    """Return the file that ``python -m name`` runs."""
    try:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find_spec(f"{name}.__main__")
    except (ImportError, ValueError, AttributeError) as e:
        raise GuideError(f"-m {name}: cannot be found ({e}); run this where python -m {name} works") from e
    if spec is None or spec.origin is None:
        raise GuideError(f"-m {name}: no such module, or a package without __main__; run this where it can be imported")
    return spec.origin


def _show_failure(error: Exception, script: str) -> int:
    """Print the script's traceback without the frames of this command; 1, the exit code. Raises what is not its own."""
    inside = error.__traceback__
    while inside is not None and inside.tb_frame.f_code.co_filename != script:
        inside = inside.tb_next
    if inside is None and not isinstance(error, SyntaxError):
        raise error  # not the script's: this command's own line, or its fault
    typer.echo("".join(traceback.format_exception(error.with_traceback(inside))), err=True, nl=False)
    return 1


@app.command()
def summary(
    file: Annotated[
        Path, typer.Argument(help="A torch.profiler trace, gzipped or not, of up to 6,000,000 kernels and calls.")
    ],
    top: Top = 10,
    as_json: JSON = False,
) -> None:
    """Say where the time went: slices, kernels, idle gaps, and whether the CPU is the bottleneck."""
    from rocm_guide.observe.profiling.torch_trace.summary import summarize

    with working(f"reading {file.name}"):
        found = summarize(file)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=1))
    else:
        _summary(found, top)


def _summary(s: TraceSummary, top: int) -> None:
    steps = max(1, s.steps)
    gpu = s.device == "gpu"
    work = "kernels" if gpu else "operators"
    of = f"{len(s.devices)} x " * (len(s.devices) > 1) + (s.device_name or s.device) if gpu else "CPU"
    say(f"{shown(s.file)}: {of}, {s.launches:,} {work} in {steps} step(s)")
    if not gpu and s.device_name:
        fix = "" if s.unknown else "; add ProfilerActivity.CUDA to the profiler's activities"
        say(f"it has no kernel of {s.device_name}: these are times of the CPU{fix}")
    say(
        f"per step: {s.span_us / steps / 1e3:,.2f} ms, busy {s.busy_us / steps / 1e3:,.2f} ms, idle "
        f"{s.idle_share:.0%}" + (", mostly waiting for the CPU to launch" if s.launch_bound else "")
    )
    if len(s.devices) > 1:  # busy above is when any of them works
        for d in s.devices:
            idle = 1 - d.busy_us / s.span_us if s.span_us else 0.0
            busy = f"busy {d.busy_us / steps / 1e3:,.2f} ms, idle {idle:.0%}"
            say(f"  GPU {d.name} alone: {busy}, {d.launches:,} kernels")
    for name, us in s.slices.items():
        say(f"  {name:<22} {us / steps / 1e3:>10,.3f} ms  {us / s.work_us if s.work_us else 0:>6.1%}")
    say(f"{'ms/step':>10} {'share':>6} {'calls':>7}  {work[:-1]}")
    for k in s.kernels[:top]:
        say(f"{k.total_us / steps / 1e3:>10,.3f} {k.share:>6.1%} {k.count / steps:>7,.0f}  {k.name[:90]}")
    if s.unknown:
        kinds = ", ".join(f"{count:,} {name}" for name, count in s.unknown.items())
        say(f"not read, and in no figure above: events of kinds that are not known here ({kinds})")
    if s.skipped:
        say(f"{s.skipped:,} events without usable times were left out")
    if s.outside:
        say(
            f"{s.outside:,} kernels ({s.outside_us / 1e3:,.3f} ms) outside the recorded steps were left out: nothing "
            "in the trace launched them, they were launched before it began"
        )


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(help="Profile A, the one before.")],
    b: Annotated[Path, typer.Argument(help="Profile B, the one after.")],
    by: Annotated[
        str, typer.Option(help="slice, kernel or total.", callback=choice("slice", "kernel", "total"))
    ] = "slice",
    top: Top = 15,
    as_json: JSON = False,
) -> None:
    """Compare profile A with profile B, per step, the largest difference first."""
    from rocm_guide.observe.profiling.torch_trace.summary import compare_traces as difference
    from rocm_guide.observe.profiling.torch_trace.summary import summarize

    with working(f"reading {a.name} and {b.name}"):
        rows = difference(summarize(a), summarize(b), by=by)
    if as_json:
        typer.echo(json.dumps([asdict(r) | {"saved_us": r.saved_us} for r in rows], indent=1))
        return
    say(f"{'A ms':>10} {'B ms':>10} {'saved ms':>10}")
    for r in rows[:top]:
        say(f"{r.a_us / 1e3:>10,.3f} {r.b_us / 1e3:>10,.3f} {r.saved_us / 1e3:>10,.3f}  {r.name[:90]}")


@app.command()
def kernels(
    file: Annotated[Path, typer.Argument(help="rocprofv3 CSV or database; rocprof or rocprof-compute CSV.")],
    top: Top = 10,
    gpu: Annotated[str, typer.Option(help="Whose roofline.")] = "MI300X",
    dtype: Annotated[str, typer.Option(help="Whose peak.")] = "bf16",
    as_json: JSON = False,
) -> None:
    """List the longest kernels of an AMD profiler's file; with counters also their place under the roofline."""
    from cdna.predict import specs
    from rocm_guide.observe.profiling.amd.reader import counter_sums, read_profile, roofline_rows

    specs.gpu(gpu).peak_tflops(dtype)  # no such GPU, or none of its units: said before a large file is read
    with working(f"reading {file.name}"):
        found = read_profile(file)
    points = roofline_rows(found, gpu=gpu, dtype=dtype)[:top]
    if as_json:
        data = asdict(found)
        data.pop("dispatches")
        more = {"counters": counter_sums(found), "roofline": [asdict(p) for p in points]}
        typer.echo(json.dumps(data | more, indent=1))
        return
    say(f"{shown(found.file)}: {found.kind} of {found.tool}, {len(found.dispatches):,} dispatches")
    for name, (value, unit, peak) in found.metrics.items():
        say(f"  {name:<34} {value if value is not None else 'N/A':>12} {unit}" + (f" of {peak}" if peak else ""))
    if found.totals:
        say(f"{'total us':>12} {'share':>6} {'calls':>7} {'mean us':>10}  kernel")
    for t in found.totals[:top]:
        row = f"{t.total_ns / 1e3:>12,.1f} {t.share:>6.1%} {t.calls:>7,} {t.average_ns / 1e3:>10,.2f}"
        say(f"{row}  {t.name[:80]}")
    if found.dispatches and not found.totals:
        say("no times in it, so no shares and no roofline: record with rocprofv3 --kernel-trace too")
        for kernel, counted in list(counter_sums(found).items())[:top]:
            say(f"  {kernel[:80]}: " + ", ".join(f"{name} {value:,.0f}" for name, value in counted.items()))
    for p in points:
        at = f"{p.intensity:.3g} FLOPs/byte, {p.tflops:.3g} TFLOPS, {p.tb_s:.3g} TB/s"
        say(f"  {p.name[:50]}: {at}: {p.bound}-bound, {p.share:.0%} of what {p.gpu} allows")


def _counter_names(incomplete: str) -> list[str]:
    from rocm_guide.observe.profiling.amd.counters import COUNTERS

    return [name for name in COUNTERS if name.startswith(incomplete)]


@app.command()
def counters(
    names: Annotated[
        list[str] | None, typer.Argument(help="Counters; all when none is given.", autocompletion=_counter_names)
    ] = None,
    as_json: JSON = False,
) -> None:
    """Say what hardware counters mean."""
    from rocm_guide.observe.profiling.amd.counters import COUNTERS, describe_counter

    found = {name: describe_counter(name) for name in names or COUNTERS}
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    for name, meaning in found.items():
        say(f"{name}: {meaning}")
