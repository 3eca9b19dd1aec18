# SPDX-License-Identifier: MIT
"""torchtune's folder, configurations, parts, recipes and results (notebook 06)."""

import importlib.util
import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocm_guide.common.base import GuideError
from rocm_guide.exercises.torchtune import check_config, check_targets, check_translation
from rocm_guide.finetune.torchtune import run
from rocm_guide.finetune.torchtune.config import lora_config, model_on_disk, write_rows
from rocm_guide.finetune.torchtune.run import (
    TuneError,
    gloo_recipe,
    read_metrics,
    run_recipe,
    split_epoch,
    tune,
    tune_line,
)
from rocm_guide.finetune.torchtune.tokenizer import ChatTokenizer
from rocm_guide.models.load import load_data, load_tokenizer
from rocm_guide.models.tiny import tiny_folder
from rocm_guide.observe.doctor.diagnosis import PreflightError, diagnose, preflight
from rocm_guide.observe.doctor.own_folders import OWN_FOLDERS, LibraryMissingError

OWN = OWN_FOLDERS["torchtune"]


def test_the_doctor_names_it_and_this_process_does_not_see_it():
    assert "torchtune" in [c.name for c in diagnose()]
    assert str(OWN.path) not in sys.path
    assert importlib.util.find_spec("torchtune") is None


def test_missing_is_one_line_with_the_fix(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("ROCM_GUIDE_TORCHTUNE", str(tmp_path / "nowhere"))
    assert OWN.check().status == "WARN"
    with pytest.raises(LibraryMissingError, match="make course") as e:
        tune("ls")
    assert "\n" not in str(e.value)
    with pytest.raises(PreflightError, match="make course"):
        preflight("torchtune")
    assert "[FAIL] torchtune" in capsys.readouterr().out


def test_a_folder_that_lacks_a_part_is_named(monkeypatch, tmp_path):
    (tmp_path / "torchtune-0.6.1.dist-info").mkdir()
    monkeypatch.setenv("ROCM_GUIDE_TORCHTUNE", str(tmp_path))
    assert "torchao-0.15.0" in OWN.check().found


def test_a_configuration_describes_the_model_on_disk():
    c = lora_config(tiny_folder(), "rows.json", "out", rank=4)
    shape = json.loads((tiny_folder() / "config.json").read_text())
    assert c["model"]["embed_dim"] == shape["hidden_size"] and c["model"]["num_kv_heads"] == 2
    assert c["model"]["norm_eps"] == shape["rms_norm_eps"] and c["model"]["lora_alpha"] == 8
    assert c["dtype"] == "fp32" and lora_config(tiny_folder(), "r", "o", device="cuda")["dtype"] == "bf16"


@pytest.mark.parametrize(
    ("change", "said"), [({"rank": 0}, "rank=0"), ({"model": "no/such/folder"}, "config.json and safetensors")]
)
def test_impossible_configurations(change, said):
    with pytest.raises(GuideError, match=said):
        lora_config(**{"model": tiny_folder(), "rows": "r", "output": "o", **change})


def test_a_published_model_gets_torchtunes_own_tokenizer(tmp_path):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((tiny_folder() / name).read_bytes())
    (tmp_path / "tokenizer.model").write_bytes(b"")
    assert lora_config(tmp_path, "r", "o")["tokenizer"]["_component_"].endswith("llama2_tokenizer")


def test_a_model_that_is_not_on_disk(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(GuideError, match="hf download nobody/nothing"):
        model_on_disk("nobody/nothing", tmp_path)


def test_recipes_see_the_tokens_that_the_model_knows():
    """Every training sample, token for token and mask for mask, as SFTTrainer feeds it."""
    from types import SimpleNamespace

    ours, theirs = ChatTokenizer(tiny_folder()), load_tokenizer()
    for row in load_data("tiny")["train"]:
        ask = SimpleNamespace(role="user", text_content=row["question"], masked=True)
        reply = SimpleNamespace(role="assistant", text_content=row["answer"], masked=False)
        sample = ours({"messages": [ask, reply], "id": 1})
        assert sample["tokens"] == theirs(row["prompt"] + row["completion"]).input_ids
        assert sample["mask"].index(False) == len(theirs(row["prompt"]).input_ids) and sample["id"] == 1
    assert ours({"messages": [ask]}, inference=True)["tokens"] == theirs(row["prompt"]).input_ids


def test_a_role_without_a_place_and_a_folder_without_tokenizer(tmp_path):
    from types import SimpleNamespace

    with pytest.raises(GuideError, match="'system'"):
        message = SimpleNamespace(role="system", text_content="", masked=True)
        ChatTokenizer(tiny_folder()).tokenize_messages([message])
    with pytest.raises(GuideError, match=r"tokenizer\.json"):
        ChatTokenizer(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "torchrun x.py",
        "tune run",
        "tune run a_recipe",
        "tune run a_recipe --config other.yaml",
        "tune run --standalone 1 a_recipe --config config.yaml",
        "tune run --nnodes 2 a_recipe --config config.yaml",
        "tune run --nproc_per_node none a_recipe --config config.yaml",
    ],
)
def test_a_line_that_is_not_run_here_is_refused(line, tmp_path):
    with pytest.raises(TuneError, match=r"^'t"):
        tune_line(line, tmp_path, {})
    assert not list(tmp_path.iterdir())


def test_a_line_says_what_is_run(monkeypatch, tmp_path):
    seen = {}
    monkeypatch.setattr(run, "run_recipe", lambda *a, **k: seen.update(given=a, **k))
    line = "tune run --nnodes 1 --nproc_per_node 4 a_recipe --config config.yaml optimizer.lr=3e-4 output_dir=x"
    tune_line(line, tmp_path, {"epochs": 1})
    assert seen["given"] == ("a_recipe", {"epochs": 1}, tmp_path) and seen["processes"] == 4
    assert seen["overrides"] == {"optimizer.lr": "3e-4", "output_dir": "x"}


def test_rows_without_a_known_column_without_an_answer_and_no_rows(tmp_path):
    with pytest.raises(GuideError, match="has the columns a, b; one of these is needed"):
        write_rows(tmp_path / "r", [{"a": "a", "b": "b"}])
    with pytest.raises(GuideError, match="row 1 has no answer"):
        write_rows(tmp_path / "r", [{"question": "a", "answer": "b"}, {"question": "c"}])
    with pytest.raises(GuideError, match="row 0 has no question"):
        write_rows(tmp_path / "r", [{"text": "prose without a question"}])
    with pytest.raises(GuideError, match="no rows"):
        write_rows(tmp_path / "r", [])
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    "row",
    [
        {"question": "1 + 1?", "answer": "2", "text": "something else"},
        {"instruction": "1 + 1?", "input": "", "output": "2"},
        {"prompt": "[INST] 1 + 1? [/INST]", "completion": " 2 </s>"},
        {"text": "<s>[INST] 1 + 1? [/INST] 2 </s>"},
        {"messages": [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}]},
        {"conversations": [{"from": "human", "value": "1 + 1?"}, {"from": "gpt", "value": "2"}]},
    ],
    ids=lambda row: "-".join(row),
)
def test_every_known_layout_becomes_questions_and_answers(row, tmp_path):
    assert write_rows(tmp_path / "r", [row, row]) == 2
    assert json.loads((tmp_path / "r").read_text()) == [{"question": "1 + 1?", "answer": "2"}] * 2


LOG = "".join(f"Step {i} | loss:{3 / i} lr:1e-0{i} tokens_per_second_per_gpu:{i}.5 \n" for i in range(1, 6))


def test_a_log_cut_anywhere_gives_its_whole_lines(tmp_path):
    for cut in range(len(LOG) + 1):
        (tmp_path / "m").write_text(LOG[:cut])
        assert len(read_metrics(tmp_path / "m")) == LOG[:cut].count("\n")
    assert read_metrics(tmp_path / "m")[1] == {"step": 2, "loss": 1.5, "lr": 0.01, "tokens_per_second_per_gpu": 2.5}


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=80))
def test_what_is_no_log_is_named(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("log") / "m"
    path.write_text(text + "\n", encoding="utf-8", newline="\n")
    try:
        assert isinstance(read_metrics(path), list)
    except GuideError as e:
        assert "DiskLogger" in str(e)


def epoch_folder(folder):
    folder.mkdir()
    for name in (
        "model-00001-of-00001.safetensors",
        "config.json",
        "adapter_model.safetensors",
        "adapter_model.pt",
        "adapter_config.json",
    ):
        (folder / name).write_text(name)
    return folder


def test_an_epoch_folder_is_sorted(tmp_path):
    merged, adapter = split_epoch(epoch_folder(tmp_path / "epoch_0"), tmp_path / "out")
    assert sorted(p.name for p in merged.iterdir()) == ["config.json", "model-00001-of-00001.safetensors"]
    assert "adapter_config.json" in [p.name for p in adapter.iterdir()]
    split_epoch(tmp_path / "epoch_0", tmp_path / "out")  # once more, over the first


@pytest.mark.parametrize("gone", ["model-00001-of-00001.safetensors", "adapter_model.safetensors"])
def test_another_folder_is_not_taken_for_one(tmp_path, gone):
    (epoch_folder(tmp_path / "epoch_0") / gone).unlink()
    with pytest.raises(GuideError, match="not the epoch folder"):
        split_epoch(tmp_path / "epoch_0", tmp_path / "out")


def test_exercises_accept_the_solution_and_reject_the_rest():
    from types import SimpleNamespace

    assert check_config({"batch_size": 4, "gradient_accumulation_steps": 4}, 4)
    for wrong in ({}, None, {"batch_size": 16, "gradient_accumulation_steps": 1}, {"batch_size": 4}):
        assert not check_config(wrong, 4)
    right = {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 8,
        "learning_rate": 3e-4,
        "warmup_steps": 100,
        "num_train_epochs": 1,
        "lr_scheduler_type": "cosine",
    }
    assert check_translation(SimpleNamespace(**right), 4)
    for name, value in {
        "gradient_accumulation_steps": 4,
        "learning_rate": 1e-4,
        "warmup_steps": 10,
        "num_train_epochs": 2,
        "lr_scheduler_type": "linear",
    }.items():
        assert not check_translation(SimpleNamespace(**{**right, name: value}), 4)
    right = {"lora_rank": 32, "lora_alpha": 64, "apply_lora_to_mlp": True}
    right["lora_attn_modules"] = ["q_proj", "k_proj", "v_proj", "output_proj"]
    assert check_targets(right)
    for name, value in {
        "lora_rank": 16,
        "lora_alpha": 32,
        "apply_lora_to_mlp": False,
        "lora_attn_modules": [*right["lora_attn_modules"], "o_proj"],
    }.items():
        assert not check_targets({**right, name: value})
    assert not check_targets({**right, "lora_attn_modules": ["q_proj"]}) and not check_targets({})


@pytest.fixture
def folder(tmp_path):
    write_rows(tmp_path / "rows.json", load_data("tiny")["train"].select(range(80)))
    return tmp_path


@pytest.mark.slow
def test_on_a_cpu_saving_merged_weights_changes_the_run(folder):
    """The defect that notebook 06 shows, and its way around: equal up to the first checkpoint, apart after it."""
    config = lora_config(tiny_folder(), "rows.json", "a", epochs=2, learning_rate=2e-2)
    merged = run_recipe("lora_finetune_single_device", config, folder)
    alone = {"save_adapter_weights_only": True, "output_dir": "b"}
    adapter = run_recipe("lora_finetune_single_device", config, folder, overrides=alone)
    assert len(merged.losses) == 10 and merged.losses[:5] == adapter.losses[:5]
    assert abs(merged.losses[5] - adapter.losses[5]) > 1e-3
    assert [p.name for p in adapter.epochs] == ["epoch_0", "epoch_1"] and adapter.epochs[0].parent.name == "b"
    with pytest.raises(GuideError, match="not the epoch folder"):
        split_epoch(adapter.epochs[-1], folder / "s")


@pytest.mark.slow
def test_two_processes_see_the_rows_that_one_sees(folder):
    config = lora_config(tiny_folder(), "rows.json", "two", epochs=1, batch_size=8)
    config["max_steps_per_epoch"] = 2
    name, edits = gloo_recipe(folder)
    two = run_recipe(name, config, folder, processes=2)
    one = run_recipe("lora_finetune_single_device", {**config, "batch_size": 16, "output_dir": "one"}, folder)
    assert len(edits) == 3 and two.command.startswith("tune run --nnodes 1 --nproc_per_node 2 lora_on_cpus.py")
    assert two.losses[0] == pytest.approx(one.losses[0], abs=1e-5)
    merged, adapter = split_epoch(two.epochs[-1], folder / "sorted")
    assert (merged / "config.json").exists() and (adapter / "adapter_model.safetensors").exists()


@pytest.mark.slow
def test_a_recipe_that_stops_says_why_in_one_line(folder):
    config = lora_config(tiny_folder(), "rows.json", "out")
    config["optimizer"]["_component_"] = "torch.optim.NoSuchThing"
    with pytest.raises(TuneError, match="NoSuchThing") as e:
        run_recipe("lora_finetune_single_device", config, folder)
    assert "\n" not in str(e.value)
