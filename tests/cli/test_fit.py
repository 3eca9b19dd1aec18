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
        (("llama-2-70b", "--method", "qlora", "--memory", "16"), "these would: --count 8 --fsdp --checkpointing"),
        (("llama-3.1-405b", "--method", "qlora", "--memory", "4"), "take a smaller model"),
        (("llama-3-70b", "--count", "8"), "these would: --fsdp,"),
        (("llama-3-70b", "--count", "4"), "these would: --fsdp,"),
        (("llama-3-70b", "--count", "4", "--memory", "175"), "these would: --fsdp --checkpointing,"),
        (("llama-3.1-405b", "--method", "serve"), "these would: --count 8"),
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
        (("llama-2-7b", "--count", "0"), "--count 0"),
        (("llama-2-7b", "--gpu", "RTX"), "MI300X"),
        (("llama-2-7b", "--method", "magic"), "choose one of"),
        (("llama-2-7b", "--count", "-2"), "--count -2"),
        (("llama-2-7b", "--memory=-5"), "more than 0"),
        (("llama-2-7b", "--memory", "0"), "more than 0"),
        (("llama-2-7b", "--memory", "nan"), "more than 0"),
        (("llama-2-7b", "--memory", "inf"), "less than a million"),
        (("llama-2-7b", "--memory", "1e300"), "less than a million"),
        (("llama-2-7b", "--batch", "0"), "--batch 0"),
        (("llama-2-7b", "--seq", "-1"), "--seq -1"),
        (("llama-2-7b", "--method", "lora", "--rank", "0"), "--rank 0"),
        (("llama-2-7b", "--method", "lora", "--targets", "q_proj,q_proj"), "each of them once"),
        (("llama-2-7b", "--method", "lora", "--targets", ","), "q_proj"),
        (("llama-2-7b", "--method", "lora", "--precision", "mixed"), "leave it out"),
        (("llama-2-7b", "--method", "serve", "--checkpointing"), "no backward pass"),
        (("llama-2-7b", "--fsdp"), "2 or more GPUs"),
        (("llama-2-7b", "--fsdp", "--count", "2", "--map", "auto"), "leave one of them out"),
        (("llama-3.1-405b", "--method", "inference", "--map", "auto"), "add devices"),
        (("llama-2-7b", "--batch", "0", "--json"), "--batch 0"),
        (("llama-3.1-405b", "--memory", "2"), "no split of layers"),
        (("llama-2-7b", "--targets", "qkv"), "q_proj"),
        (("llama-2-7b", "--count", "2", "--map", "best"), "balanced_low_0"),
        (("llama-3.1-405b", "--method", "serve", "--count", "5"), "has to divide the 128 heads and 8 KV heads"),
        (("llama-2-7b", "--gpu", "RTX", "--method", "lora"), "--gpu RTX"),
        (("mixtral-8x7b", "--method", "lora", "--targets", "down_proj"), "q_proj"),
        (("llama-9000",), "llama-2-7b"),
    ],
)
def test_impossible_plans_take_one_line_and_exit_code_2(run, words: tuple[str, ...], told: str) -> None:
    done = run(*words)
    assert done.returncode == 2 and not done.stdout
    assert told in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_names_of_gpus_in_any_case_and_memory_of_any_gpu(run) -> None:
    for name in ("mi300x", "MI300X", "Mi300x"):
        assert "on MI300X:" in run("llama-2-7b", "--method", "lora", "--gpu", name).stdout
    assert "on A100-80GB:" in run("llama-2-7b", "--gpu", "a100", "--memory", "80").stdout
    done = run("gpt2", "--gpu", "W7900", "--memory", "48")
    assert done.returncode == 0 and "of 48.00 GB (44.70 GiB)" in done.stdout
    assert "x 1024 tokens" in done.stdout, "as many as GPT-2 takes"


def test_bytes_are_decimal_and_binary_and_reserved_memory_stands_beside_the_peak(run) -> None:
    done = run("llama-2-7b", "--method", "lora", "--batch", "1", "--seq", "512")
    assert "of 206.14 GB (191.98 GiB)" in done.stdout
    assert "allocated at the peak" in done.stdout and "GB reserved" in done.stdout


@pytest.mark.parametrize("model", ["mixtral-8x7b", "qwen3-8b", "phi-3-mini", "gemma-3-1b", "gpt2", "opt-13b", "tiny"])
def test_every_family_and_both_spellings_of_a_shape(run, model: str) -> None:
    plain = run(model, "--method", "serve", "--seq", "512")
    assert plain.returncode == 0, plain.stderr
    if model != "tiny":
        assert run(f"random:{model}", "--method", "serve", "--seq", "512").stdout == plain.stdout.replace(
            model, f"random:{model}", 1
        )


def test_a_quantised_folder_and_one_with_code_of_its_own(run, tmp_path: Path) -> None:
    from rocm_guide.models.shapes import SHAPES

    fields = {**SHAPES["llama-2-7b"], "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    done = run(str(tmp_path), "--method", "serve", "--seq", "512", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["weights"] == "awq, 4 bits"
    assert json.loads(done.stdout)["parts_bytes"]["parameters"] < 4.0e9
    (tmp_path / "mine.py").write_text("raise SystemExit('it ran')")
    own = {**fields, "model_type": "mine", "auto_map": {"AutoConfig": "mine.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(own))
    done = run(str(tmp_path))
    assert done.returncode == 2 and "auto_map: mine.Config" in done.stderr and len(done.stderr.splitlines()) == 1
    for text in ("[1]", "{", '{"model_type": "llama"}', '{"model_type": "llama", "hidden_size": -4}'):
        (tmp_path / "config.json").write_text(text)
        done = run(str(tmp_path))
        assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, text


def test_a_plan_imports_neither_torch_nor_transformers(tmp_path: Path) -> None:
    import subprocess
    import sys

    from rocm_guide.models.shapes import SHAPES

    (tmp_path / "config.json").write_text(json.dumps(SHAPES["mixtral-8x7b"]))
    code = (
        "import sys; from rocm_guide.cli.main import main\n"
        "sys.argv = ['rocm-guide', 'fit', MODEL, '--method', 'serve']\n"
        "try: main()\nexcept SystemExit as e: assert not e.code, e.code\n"
        "heavy = {'torch', 'transformers', 'numpy', 'huggingface_hub'} & set(sys.modules); assert not heavy, heavy"
    )
    for model in ("llama-3-8b", str(tmp_path)):
        program = code.replace("MODEL", repr(model))
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-500:]
