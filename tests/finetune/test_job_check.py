# SPDX-License-Identifier: MIT
"""What cannot work is said in one line before anything is loaded, with the knob and values that do work."""

import json
import shutil

import pytest
import torch

from rocm_guide.common.base import GuideError
from rocm_guide.common.device import Accelerator
from rocm_guide.finetune import check_job, job_check, usual_group
from rocm_guide.models import load_model, meta_model
from rocm_guide.models.tiny import tiny_folder


def total_of(line):
    return float(line.split("= ")[1].split(" GB")[0].replace(",", ""))


@pytest.fixture
def untold(tmp_path):
    """The tiny model without a chat template, and rows of conversations."""
    folder = tmp_path / "base"
    shutil.copytree(tiny_folder(), folder)
    (folder / "chat_template.jinja").unlink()
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    for name, row in {
        "chats": {"messages": turns},
        "pairs": {"prompt": "a", "completion": "b"},
        "odd": {"a": 1},
    }.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join([json.dumps(row)] * 20))
    return folder


def test_what_fits_is_said_in_one_line(capsys):
    check_job("tiny", "tiny", copies=2)
    line = capsys.readouterr().out
    assert line.startswith("[OK]   tiny fits: 2 x weights 0.01 + logits") and line.count("\n") == 1


@pytest.mark.parametrize("spec", ["tiny", "random:qwen3-0.6b", "random:gemma-3-1b", "random:gpt2"])
def test_the_weights_are_those_of_the_model(spec, capsys, monkeypatch):
    monkeypatch.setattr(job_check, "free_memory", lambda: 10**12)
    check_job(spec, None)
    wanted = torch.float32.itemsize * sum(p.numel() for p in meta_model(spec).parameters()) / 1e9
    assert abs(float(capsys.readouterr().out.split("1 x weights ")[1].split(" ")[0]) - wanted) < 0.006
    if spec == "tiny":
        model, _ = load_model(spec, device="cpu")
        assert abs(sum(p.nbytes for p in model.parameters()) / 1e9 - wanted) < 1e-9


@pytest.mark.parametrize("training", [False, True, "full"])
def test_one_byte_too_few_is_refused_and_enough_is_not(training, capsys, monkeypatch):
    monkeypatch.setattr(job_check, "free_memory", lambda: 10**12)
    check_job("random:tinyllama-1.1b", None, training=training)
    total = total_of(capsys.readouterr().out)
    parameters = 1_100_048_384
    assert total > (16 if training == "full" else 4) * parameters / 1e9
    monkeypatch.setattr(job_check, "free_memory", lambda: int((total + 0.01) * 1e9))
    check_job("random:tinyllama-1.1b", None, training=training)
    monkeypatch.setattr(job_check, "free_memory", lambda: int((total - 0.01) * 1e9))
    with pytest.raises(
        GuideError, match=r"does not fit: 1 x weights 4\.40 .* GB are free .*; take a smaller MODEL"
    ) as e:
        check_job("random:tinyllama-1.1b", None, training=training)
    assert ("FULL=False" in str(e.value)) == (training == "full")
    assert ("BATCH or LENGTH" in str(e.value)) == bool(training)


@pytest.fixture
def mi300x(monkeypatch):
    gpu = Accelerator("rocm", "cuda", "MI300X", "gfx942", 1, 206_141_652_992)
    monkeypatch.setattr(job_check, "accelerator", lambda: gpu)
    monkeypatch.setattr(job_check, "free_memory", lambda: 205 * 10**9)
    monkeypatch.setattr(job_check, "pick_dtype", lambda: torch.bfloat16)


def test_on_a_gpu_the_weights_have_sixteen_bits_and_its_own_memory_counts(capsys, mi300x):
    check_job("random:llama-2-70b", None, training=True, targets=["q_proj", "v_proj"], batch=1)
    assert "1 x weights 137.95" in capsys.readouterr().out
    with pytest.raises(GuideError, match=r"2 x weights 275\.91 .* 205\.0 GB are free \(MI300X\)"):
        check_job("random:llama-2-70b", None, copies=2)
    with pytest.raises(GuideError, match="FULL=False"):
        check_job("random:llama-2-70b", None, training="full")


LORA = {"training": "lora", "targets": ["q_proj", "v_proj"]}
#: What the headers of notebooks 00 to 03 name as the largest, and a little more: on an MI300X.
LARGEST = [
    ("llama-2-70b", {"copies": 1}, {"copies": 2}),
    ("llama-2-13b", {"training": "full"}, {"training": "full", "copies": 5}),
    ("llama-2-70b", {**LORA, "batch": 1}, LORA),
    ("llama-2-70b", {**LORA, "checkpointing": True}, {"training": "full", "checkpointing": True}),
    ("llama-2-13b", {"copies": 3}, {"copies": 8}),
]
#: And on a CPU with 16 GB free.
ON_A_CPU = [
    ("qwen3-0.6b", {"training": "full", "batch": 1}, {"training": "full", "batch": 16}),
    ("qwen3-0.6b", LORA, {**LORA, "batch": 32}),
    ("tinyllama-1.1b", {"copies": 3}, {"copies": 4}),
]


@pytest.mark.parametrize(("shape", "fits", "does_not"), LARGEST)
def test_the_largest_model_of_the_headers_fits_into_an_mi300x(shape, fits, does_not, mi300x):
    check_job(f"random:{shape}", None, **fits)
    with pytest.raises(GuideError, match="does not fit"):
        check_job(f"random:{shape}", None, **does_not)


@pytest.mark.parametrize(("shape", "fits", "does_not"), ON_A_CPU)
def test_the_largest_model_of_the_headers_fits_into_sixteen_gigabytes(shape, fits, does_not, monkeypatch):
    monkeypatch.setattr(job_check, "free_memory", lambda: 16 * 10**9)
    check_job(f"random:{shape}", None, **fits)
    with pytest.raises(GuideError, match="does not fit"):
        check_job(f"random:{shape}", None, **does_not)


def test_a_family_that_only_transformers_knows_is_weighed_too(tmp_path, capsys):
    config = {"model_type": "gpt_neox", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config |= {"intermediate_size": 128, "vocab_size": 50_000_000 // 64}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(GuideError, match="GROUP=48: does not divide the 64 columns of query_key_value"):
        check_job(str(tmp_path), None, training=True, group=48)
    check_job(str(tmp_path), None, training=True, group=32)
    assert "1 x weights 0.40 " in capsys.readouterr().out  # two tables of 50 million numbers of 4 bytes


@pytest.mark.parametrize(
    ("spec", "knobs", "said"),
    [
        ("tiny", {"group": 128}, r"GROUP=128: does not divide the 192 columns of q_proj \(tiny\); take 64, 32, 16$"),
        ("random:qwen2.5-7b", {"group": 0}, "GROUP=0: .* take 512, 256, 128, 64, 32, 16$"),
        ("random:qwen3-30b-a3b", {"group": 512}, "the 768 columns of an expert"),
        ("random:gpt2", {"targets": ["q_proj", "v_proj"]}, "gpt2 has no q_proj, v_proj; choose from c_attn, c_proj,"),
        ("random:phi-3-mini", {"targets": ["o_proj", "v_proj"]}, "phi3 has no v_proj; choose from o_proj, qkv_proj,"),
        ("tiny", {"targets": []}, "the list is empty; choose from q_proj"),
        ("tiny", {"targets": "q_proj"}, "TARGETS='q_proj': give a list"),
        ("random:gemma-3-1b", {"library": "awq"}, "AWQ of the family gemma3_text is not possible"),
        ("random:qwen3-0.6b", {"library": "torchtune"}, r"torchtune cannot train this one \(qwen3, tied"),
        ("random:llama-3-8b", {"library": "torchtune"}, r"\(llama, rope_theta 500000\)"),
        ("tiny", {"library": "quark"}, "library='quark': choose one of gptqmodel, awq"),
        ("llama2", {}, "neither a model"),
        ("random:gpt2", {"training": True, "length": 2048}, "seq=2048"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(spec, knobs, said):
    with pytest.raises(GuideError, match=said) as refusal:
        check_job(spec, None, **knobs)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("spec", "knobs"),
    [
        ("tiny", {"group": 64, "targets": ["self_attn.q_proj", "down_proj"], "library": "torchtune"}),
        ("tiny", {"group": -1, "targets": "all-linear", "library": "bitsandbytes"}),
        ("random:tinyllama-1.1b", {"group": 128, "library": "awq"}),
    ],
)
def test_what_can_work_is_not_refused(spec, knobs, monkeypatch):
    monkeypatch.setattr(job_check, "free_memory", lambda: 10**12)
    check_job(spec, None, **knobs)


def test_few_calibration_tokens_are_a_warning(capsys):
    check_job("tiny", None, calibration_tokens=511)
    check_job("tiny", None, calibration_tokens=512)
    out = capsys.readouterr().out
    assert out.count("[WARN]") == 1 and "511 calibration tokens for matrices of up to 512 columns" in out


def test_conversations_want_a_chat_template(untold):
    chats, pairs, odd = (str(untold.parent / f"{name}.jsonl") for name in ("chats", "pairs", "odd"))
    with pytest.raises(GuideError, match=r"no chat template, and DATASET=.*chats.jsonl holds conversations; take its"):
        check_job(str(untold), chats)
    with pytest.raises(GuideError, match="has no chat template, and messages are to be put into it"):
        check_job(str(untold), pairs, chat=True)
    with pytest.raises(GuideError, match="the data set has the columns a; one of these is needed"):
        check_job(str(untold), odd)
    check_job(str(untold), pairs)
    check_job("tiny", chats, chat=True)


@pytest.mark.parametrize(
    ("columns", "fits"), [((576, 1536), 64), ((192, 512), 64), ((4096, 11008), 128), ((100, 300), -1)]
)
def test_the_usual_group_divides_every_matrix(columns, fits, tmp_path):
    hidden, inner = columns
    sizes = {"hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": 2, "vocab_size": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "model_type": "llama"}
    (tmp_path / "config.json").write_text(json.dumps(sizes | heads))
    group = usual_group(str(tmp_path))
    assert group == fits and (group == -1 or not any(n % group for n in columns))
