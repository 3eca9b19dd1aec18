# SPDX-License-Identifier: MIT
"""The committed gfx942 table: every kernel still compiles to it, every launch is inside the limits."""

from __future__ import annotations

import runpy
from dataclasses import replace

import pytest
import torch
import triton
from typer.testing import CliRunner

from cdna.dry_run.driver import dry_run
from course import table_measure
from course.__main__ import app
from course.resource_table import (
    TableError,
    compare_rows,
    find_module,
    kernel_modules,
    read_rows,
    rows_text,
    write_rows,
)
from course.table_measure import case_sources, compiled_sources, digest_of, measure_module
from tests.kernels.table import ROWS, SAME_COMPILER, VERSION

same_compiler = pytest.mark.skipif(
    not SAME_COMPILER,
    reason=f"the table was made with triton {VERSION}; here is {triton.__version__}",
)


@same_compiler
@pytest.mark.slow
@pytest.mark.parametrize("module", kernel_modules())
def test_the_table_is_up_to_date(module):
    """Cases whose source, types or options have changed since are compiled, and of the others every eighth."""
    sources = case_sources(module)
    kept = {r.case: r.source for r in ROWS if r.case.split(":")[0] == module}
    chosen = {c for c, source in sources.items() if kept.get(c) != source or int(source, 16) % 8 == 0}
    chosen |= set(kept) - set(sources)
    changes = compare_rows([r for r in ROWS if r.case in chosen], measure_module(module, cases=chosen))
    fix = "if that is what you want: python -m course table --write " + module
    assert not changes, "\n".join(["the kernels for gfx942 changed:", *changes, fix])


def test_a_digest_follows_source_types_and_options(tmp_path):
    """Not the file or the line on which a kernel stands; but what it calls, and the constants that are read there."""

    def digest(line="tl.store(x + i, tl.load(x + i) + 1)", dtype=torch.float32, warps=4, above="", step="N", n=2):
        file = tmp_path / f"k{len(list(tmp_path.iterdir()))}.py"
        file.write_text(
            f"{above}import triton, triton.language as tl\nN = tl.constexpr({n})\n"
            f"@triton.jit\ndef step(i):\n    return i + {step}\n"
            "@triton.jit\ndef kernel(x, BLOCK: tl.constexpr):\n"
            f"    i = step(tl.arange(0, BLOCK))\n    {line}\n"
        )
        kernel = runpy.run_path(str(file))["kernel"]
        with dry_run("gfx942", device="meta") as run, compiled_sources(skip=True) as seen:
            kernel[(1,)](torch.empty(64, dtype=dtype, device="cuda"), BLOCK=64, num_warps=warps)
        assert len(seen) == 1 and not run.launches, "nothing is compiled"
        return digest_of(seen)

    assert digest() == digest() == digest(above="# a line\n# another\n")
    others = [digest("tl.store(x + i, tl.load(x + i) + 2)"), digest(dtype=torch.float16), digest(warps=8)]
    others += [digest(step="N + 1"), digest(n=3)]
    assert len({digest(), *others}) == 6


def test_a_module_is_found_by_its_name():
    assert [find_module(n) for n in ("mla_decode", "gemm")] == ["mla_decode", "gemm"]
    with pytest.raises(TableError, match=r"no kernel module 'rows'"):
        find_module("rows")


@same_compiler
def test_only_what_has_changed_is_compiled(monkeypatch):
    committed = [r for r in ROWS if r.case.startswith("bandwidth:")]
    first = committed[0].case
    older = [replace(r, source="0" * 12, vgprs=8) if r.case == first else r for r in ROWS]
    monkeypatch.setattr(table_measure, "read_rows", lambda: (triton.__version__, older))
    compiled = []
    measure = table_measure.measure_module
    monkeypatch.setattr(
        table_measure, "measure_module", lambda name, cases: compiled.append(cases) or measure(name, cases=cases)
    )
    assert table_measure.measure_modules(["bandwidth"]) == committed and compiled == [{first}]
    assert table_measure.measure_modules(["bandwidth"], fresh=True) == committed
    assert compiled[1] == {r.case for r in committed}
    monkeypatch.setattr(table_measure, "read_rows", lambda: ("3.0.0", committed))  # of another compiler
    assert table_measure.measure_modules(["bandwidth"]) == committed and compiled[2] == compiled[1]


def test_every_module_is_in_the_table():
    assert {"softmax", "gemm", "bandwidth"} <= set(kernel_modules())
    assert {r.case.split(":")[0] for r in ROWS} == set(kernel_modules())


def test_every_launch_is_inside_the_limits():
    for r in ROWS:
        assert r.findings == "-" and r.spills == 0, f"{r.case} / {r.kernel}: {r.findings}, {r.spills} spills"
        assert r.warps * 64 <= 1024 and r.lds <= 65_536 and r.vgprs <= 512 and r.waves > 0, r


def test_a_change_is_shown_readably(tmp_path):
    row = ROWS[0]
    changed = replace(row, vgprs=row.vgprs + 72, waves=row.waves + 1, loop_loads="32x8")
    lines = compare_rows([row, *ROWS[1:]], [changed, *ROWS[1:]])
    assert lines == [
        f"changed  {row.case} / {row.kernel}: vgprs {row.vgprs} -> {row.vgprs + 72}, "
        f"waves {row.waves:g} -> {row.waves + 1:g}, loop_loads {row.loop_loads} -> 32x8"
    ]
    twice = compare_rows([row, row], [row, changed])
    assert len(twice) == 1 and "(launch 2)" in twice[0]
    assert compare_rows([], [row])[0].startswith("new ") and compare_rows([row], [])[0].startswith("gone ")


def test_the_file_goes_round_and_damage_is_named(tmp_path):
    path = write_rows(ROWS, tmp_path / "t.tsv")
    assert read_rows(path) == (triton.__version__, ROWS)
    text = path.read_text()
    assert text.endswith(rows_text(ROWS))
    for damaged in (
        text.replace("128x", "", 1)[:250],
        "",
        "a\nb\n",
        text + "x\ty\n",
        text.replace("\t8\t", "\teight\t"),
    ):
        path.write_text(damaged)
        with pytest.raises(TableError, match=r"t\.tsv"):
            read_rows(path)
    with pytest.raises(TableError, match=r"missing\.tsv"):
        read_rows(tmp_path / "missing.tsv")
    with pytest.raises(TableError, match=r"no kernel module 'nonsense'.*bandwidth"):
        measure_module("nonsense")


@same_compiler
def test_the_command_checks_and_prints():
    run = CliRunner().invoke(app, ["table", "bandwidth", "--check"])
    assert run.exit_code == 0 and "8 launches agree" in run.output, run.output
    run = CliRunner().invoke(app, ["table", "bandwidth", "--json"])
    assert run.exit_code == 0 and '"kernel": "stream_copy"' in run.output
