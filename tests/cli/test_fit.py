# SPDX-License-Identifier: MIT
"""`rocm-guide fit` as a user meets it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocm_guide.cli.main import main


@dataclass
class Done:
    """What a call of the command printed, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(monkeypatch, capsys):
    """``run("llama-2-7b", "--batch", "4")`` calls the command in this process."""

    def call(*words: str) -> Done:
        monkeypatch.setattr("sys.argv", ["rocm-guide", "fit", *words])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return Done(left.value.code or 0, out, err)

    return call


def test_fits_and_says_the_largest_batch(run) -> None:
    done = run("llama-2-7b", "--method", "full", "--batch", "4", "--seq", "512")
    assert done.returncode == 0, done.stderr
    assert "[OK]   fits; at most" in done.stdout and "optimizer" in done.stdout


def test_does_not_fit_and_says_what_would(run) -> None:
    done = run("llama-2-70b", "--checkpointing")
    assert done.returncode == 1
    assert "[FAIL] does not fit" in done.stdout and "--method lora" in done.stdout and "--fsdp" in done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("llama-3.1-405b",), "these would: --count 32 --fsdp --checkpointing"),
        (("llama-2-70b",), "--method lora --checkpointing, --method qlora"),
        (("llama-2-70b", "--method", "inference", "--gpu", "H100"), "these would: --count 2"),
        (("llama-2-7b", "--method", "serve", "--seq", "100000000"), "these would: --seq 262144"),
        (("llama-2-70b", "--method", "qlora", "--memory", "16"), "take a smaller model"),
    ],
)
def test_what_is_advised_does_fit(run, words: tuple[str, ...], told: str) -> None:
    done = run(*words)
    assert done.returncode == 1 and told in done.stdout
    for advice in done.stdout.partition("these would: ")[2].split(","):
        changed = dict(zip(words[1::2], words[2::2], strict=True))
        flags = advice.split()
        changed |= {flag: flags[flags.index(flag) + 1] for flag in ("--method", "--count", "--seq") if flag in flags}
        again = [word for pair in changed.items() for word in pair]
        again += [flag for flag in ("--fsdp", "--checkpointing") if flag in flags]
        if advice:
            assert run(words[0], *again).returncode == 0, advice


def test_json_is_only_json_and_adds_up(run) -> None:
    work = ("--method", "serve", "--batch", "16", "--seq", "4096")
    done = run("llama-3-8b", *work, "--count", "2", "--map", "auto", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["fits"] is True
    assert sum(found["parts_bytes"].values()) == found["peak_bytes"]
    assert found["peak_bytes"] + sum(found["overhead_bytes"].values()) == found["total_bytes"]
    assert sum(found["map_bytes"].values()) > 16e9


def test_plot(run, tmp_path: Path) -> None:
    for kind, begin in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        done = run("llama-2-7b", "--method", "lora", "--plot", str(tmp_path / f"fit.{kind}"))
        assert done.returncode == 0, done.stderr
        assert (tmp_path / f"fit.{kind}").read_bytes().startswith(begin)
    assert run("llama-2-7b", "--plot", str(tmp_path / "fit.xyz")).returncode == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("llama-2-7b", "--count", "0"), "count=0"),
        (("llama-2-7b", "--gpu", "RTX"), "MI300X"),
        (("llama-2-7b", "--method", "magic"), "choose one of"),
        (("llama-2-7b", "--count", "-2"), "count=-2"),
        (("llama-2-7b", "--memory=-5"), "more than 0"),
        (("llama-2-7b", "--memory", "0"), "more than 0"),
        (("llama-2-7b", "--memory", "nan"), "more than 0"),
        (("llama-2-7b", "--memory", "inf"), "less than a million"),
        (("llama-2-7b", "--memory", "1e300"), "less than a million"),
        (("llama-2-7b", "--batch", "0"), "batch=0"),
        (("llama-2-7b", "--seq", "-1"), "seq=-1"),
        (("llama-2-7b", "--method", "lora", "--rank", "0"), "rank=0"),
        (("llama-2-7b", "--method", "lora", "--targets", "q_proj,q_proj"), "each of them once"),
        (("llama-2-7b", "--method", "lora", "--targets", ","), "q_proj"),
        (("llama-2-7b", "--method", "lora", "--precision", "mixed"), "leave it out"),
        (("llama-2-7b", "--method", "serve", "--checkpointing"), "no backward pass"),
        (("llama-2-7b", "--fsdp"), "2 or more GPUs"),
        (("llama-2-7b", "--fsdp", "--count", "2", "--map", "auto"), "leave one of them out"),
        (("llama-3.1-405b", "--method", "inference", "--map", "auto"), "add devices"),
        (("llama-2-7b", "--batch", "0", "--json"), "batch=0"),
        (("llama-3.1-405b", "--memory", "2"), "no split of layers"),
        (("llama-2-7b", "--targets", "qkv"), "q_proj"),
        (("llama-2-7b", "--count", "2", "--map", "best"), "balanced_low_0"),
        (("gpt2",), "llama"),
        (("llama-9000",), "llama-2-7b"),
    ],
)
def test_impossible_plans_take_one_line_and_exit_code_2(run, words: tuple[str, ...], told: str) -> None:
    done = run(*words)
    assert done.returncode == 2 and not done.stdout
    assert told in done.stderr and len(done.stderr.strip().splitlines()) == 1
