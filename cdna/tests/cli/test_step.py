# SPDX-License-Identifier: MIT
"""`cdna step` as a user runs it: Python files, assembly, frames, the page, and every mistake in one line."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from cdna.base import InputError
from cdna.cli.main import app
from cdna.cli.step.terminal import play
from cdna.predict.published import accuracy
from cdna.step.record import record
from tests.step.test_record import TWO_LOADS, arrays, swap

FILE = """
import torch
import triton
import triton.language as tl


@triton.jit
def fill(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 2.0)


@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n) * 2, mask=o < n)


def example():
    x, y = torch.full((64,), 7.0), torch.zeros(64)
    fill[(1,)](x, BLOCK=64, num_warps=1)
    double[(1,)](x, y, 64, BLOCK=64, num_warps=1)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "two.py").write_text(FILE)
    (tmp_path / "swap.s").write_text(swap())
    (tmp_path / "broken.s").write_text(TWO_LOADS.replace("FIRST", "2").replace("SECOND", "0"))
    return tmp_path


def step(*args, cwd):
    command = [sys.executable, "-W", "ignore", "-m", "cdna.cli.main", "step", *map(str, args)]
    env = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=env, stdin=subprocess.DEVNULL, timeout=300
    )


def in_process(*args):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["step", *map(str, args)])


SWAP = ("--arg", "x=i32[128]", "--arg", "y=i32[128]", "--grid", 1)


def test_a_python_file_shows_registers_after_the_kernels_before_it(folder):
    """fill() ran before double(), so the load brings 2.0; the frame has the source line beside it."""
    done = step("two.py::double", "--steps", 200, "--lanes", "0,63", "--timeline", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "tl.store(y + o, tl.load(x + o, mask=o < n) * 2, mask=o < n)" in done.stdout
    assert "0x40000000  0x40000000" in done.stdout and "0x40e00000" not in done.stdout
    assert "flight  buffer_load_dword of line" in done.stdout and "vmcnt, 64 lanes" in done.stdout
    assert "the wave has ended" in done.stdout and "model:" in done.stdout


def test_assembly_prints_frames_and_ends_without_a_terminal(folder):
    line = 1 + swap().splitlines().index("  s_barrier")
    done = in_process(folder / "swap.s", *SWAP, "--wave", 1, "--at", line)
    assert done.exit_code == 0, done.output
    frames = done.output.count("swap, workgroup 0, wave 1: step")
    assert 5 <= frames <= 10
    assert f"->  {line:>4}  s_barrier" in done.output
    assert "LDS     read of 4 bytes by 64 lanes, bytes 0 to 255" in done.output
    assert "exec    0000000fffffffff  36 of 64 lanes" in done.output


def test_the_page_is_written_whole(folder):
    done = in_process(folder / "swap.s", *SWAP, "--html", folder / "page.html")
    assert done.exit_code == 0 and "steps of wave 0" in done.output
    assert (folder / "page.html").read_text().startswith("<!doctype html>")


def test_an_error_of_the_kernel_is_one_line_after_the_frames(folder):
    done = step("broken.s", "--arg", "x=fp32[128]", "--arg", "y=fp32[64]", "--grid", 1, "--steps", 20, cwd=folder)
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1
    assert "v_mul_f32_e32" in done.stderr and "global_load_dword of line 8" in done.stderr
    assert "s_waitcnt is missing or too weak" in done.stdout


def test_hip_is_compiled_or_refused_in_one_line(folder):
    (folder / "k.hip").write_text("this is no C++")
    done = in_process(folder / "k.hip", "--grid", 1)
    assert isinstance(done.exception, InputError) and "\n" not in str(done.exception)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("nothing.s", "--grid", 1), "cannot be read"),
        (("swap.s",), "--grid"),
        (("swap.s", *SWAP, "--lanes", "64"), "lanes are 0 to 63"),
        (("swap.s", *SWAP, "--lanes", "5-2"), "lanes are 0 to 63"),
        (("swap.s", *SWAP, "--wave", 9), "waves 0 to 1"),
        (("swap.s", *SWAP, "--group", 9), "workgroups 0 to 0"),
        (("swap.s", *SWAP, "--at", 1), "does not execute it"),
        (("swap.s", *SWAP, "--steps", 0), "from 1 to 100,000"),
        (("swap.s", *SWAP, "--limit", 0), "from 1 to 1,000,000"),
        (("swap.s", *SWAP, "--limit", 100_000_000), "from 1 to 1,000,000"),
        (("swap.s", *SWAP, "--seconds", "nan"), "from 0.1 to 86,400"),
        (("swap.s", "--grid", "1,x"), "whole numbers"),
        (("swap.s", "--grid", 1, "--arg", "x=*fp32:16"), "a size is needed"),
        (("swap.s", "--grid", 1, "--arg", "x=fp32[99999999]"), "at most 2^26"),
    ],
)
def test_mistakes_are_one_line(args, message, folder, monkeypatch):
    monkeypatch.chdir(folder)
    done = in_process(*args)
    assert message in f"{done.exception}{done.output}" and "\n" not in str(done.exception), done.output


def test_an_endless_kernel_ends_by_time_or_by_ctrl_c_and_keeps_what_it_has(folder, monkeypatch):
    monkeypatch.chdir(folder)
    endless = TWO_LOADS.replace("s_waitcnt vmcnt(FIRST)", "again:\n  s_branch again")
    (folder / "endless.s").write_text(endless.replace("SECOND", "0"))
    words = ["endless.s", "--grid", 1, "--arg", "x=fp32[128]", "--arg", "y=fp32[64]", "--limit", 1_000_000]
    done = in_process(*words, "--seconds", 0.1, "--html", "page.html")
    kept = int(re.search(r"0\.1 seconds are over \(--seconds\); ([\d,]+) steps", done.stderr)[1].replace(",", ""))
    assert done.exit_code == 0 and 0 < kept < 1_000_000 and f"page.html: {kept:,} steps" in done.stdout

    def pressed_at_1000(*args, until, **how):
        return record(
            *args, until=lambda n: (signal.raise_signal(signal.SIGINT) if n == 1000 else None) or until(n), **how
        )

    monkeypatch.setattr("cdna.step.record.record", pressed_at_1000)
    before = signal.getsignal(signal.SIGINT)
    done = in_process(*words, "--steps", 1)
    assert done.exit_code == 0 and "stopped by Ctrl-C; 1,000 steps of the wave are kept" in done.stderr
    assert "step 0 of 1000" in done.stdout and signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("two.py::none", "--arg", "x=fp32[4]"), "there is fill, double"),
        (
            ("two.py::double", "--arg", "x=fp32[64]", "--arg", "y=fp32[64]", "--arg", "n=64", "--const", "BLOCK=64"),
            "how many workgroups",
        ),
    ],
)
def test_mistakes_with_a_python_file_are_one_line(args, message, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    done = in_process(*args)
    assert message in str(done.exception) and "\n" not in str(done.exception), done.output


def test_keys_go_forwards_backwards_to_a_line_and_out():
    from rich.console import Console

    r = record(swap(), 1, arrays())
    barrier = r.code[r.steps[r.find_op("s_barrier")].index].line
    keys = iter(["n", "n", "b", "g", "g", "b", "q"])
    asked = iter([str(barrier), "x"])
    console = Console(record=True, width=150, file=open(os.devnull, "w"))  # noqa: SIM115
    play(r, 0, [0], console, lambda: next(keys), lambda _: next(asked))
    text = console.export_text()
    at = r.find_op("s_barrier")
    seen = [int(part.split(" of ")[0]) for part in text.split(": step ")[1:]]
    assert seen == [0, 1, 2, 1, at, at, at - 1]
    assert "does not execute it" in text


def test_inspect_run_counts_what_was_executed(folder):
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "cdna.cli.main",
        "inspect",
        "two.py::double",
        "--run",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)[0]["executed"]
    assert (counts["loaded"], counts["stored"], counts["workgroups"]) == (256, 256, 1)
    assert counts["global_instructions"] == 2 and counts["mfma_flops"] == 0 and counts["lines_floor"] == 4
    # Lines of 128 bytes at 5.3 TB/s, and a cycle at 2,100 MHz for each that an access touches.
    assert counts["distinct_lines"] >= 4
    assert counts["model_us"]["HBM"] == pytest.approx(128 * counts["distinct_lines"] / 5.3e6)
    assert counts["model_us"]["vector L1"] == pytest.approx(counts["lines"] / 2100)
    # A launch and one wait for memory are all that there is to it.
    assert counts["likely_us"] == pytest.approx(2.1, abs=0.05)
    done = subprocess.run(command[:-1], capture_output=True, text=True, cwd=folder, timeout=300)
    assert (
        "an MI300X takes at least 0.0" in done.stdout and f"likely {counts['likely_us']:.3f} us, launch" in done.stdout
    )
    assert str(accuracy()) in done.stdout


@pytest.mark.parametrize(
    "args", [("two.py::double", "--grid", "2"), ("swap.s", "--run"), ("two.py", "--run", "--meta")]
)
def test_inspect_run_refuses_what_it_cannot_execute(args, folder, monkeypatch):
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, ["inspect", *args])
    assert "--run" in str(done.exception) and "\n" not in str(done.exception)
