# SPDX-License-Identifier: MIT
"""Users of a card against `fit`, and the words for vLLM and Kubernetes."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rocm_guide.models.memory_planner import fit
from rocm_guide.models.shapes import SHAPES
from rocm_guide.models.sizes import sizes_of
from rocm_guide.models.tiny import tiny_folder
from rocm_guide.models.work import FitError, Workload
from rocm_guide.serve.served_checkpoints import ServingError
from rocm_guide.serve.sizing import serving_table, size_server
from rocm_guide.serve.vllm import FLAGS, FROM_TGI, container_command, manifest, manifest_text


@pytest.mark.parametrize(("shape", "count"), [("llama-3-8b", 1), ("llama-3-70b", 1), ("llama-3-70b", 8)])
def test_fit_and_size_server_are_one_answer(shape, count):
    config = SHAPES[shape]
    for how in ({}, {"kv_bytes": 1}, {"prefix": 1000}, {"adapters": 4, "rank": 64}):
        for share in (None, 1.0):
            ours = size_server(config, length=8192, count=count, utilization=share, **how).users
            plan = fit(config, Workload("serve", batch=1, seq=8192, share=share, **how), count=count)
            assert ours == plan.largest_batch > 0
    assert fit(config, Workload("serve", batch=plan.largest_batch, seq=8192, share=1.0, **how), count=count).fits
    assert not fit(
        config, Workload("serve", batch=plan.largest_batch + 1, seq=8192, share=1.0, **how), count=count
    ).fits


def test_what_changes_the_number_of_users():
    def users(**how):
        return size_server(SHAPES["llama-3-8b"], **{"length": 4096, **how}).users

    assert users(length=8192) == users() // 2 and users(kv_bytes=1) in (2 * users(), 2 * users() + 1)
    assert users(count=2) > 2 * users(), "the weights are shared out, too"
    assert users(length=17) == size_server(SHAPES["llama-3-8b"], length=17).blocks // 2, "whole blocks"
    # More GPUs than KV heads: each holds a copy of one, and a block costs as much as on 8.
    small = SHAPES["qwen2.5-7b"]  # 28 heads, 4 KV heads
    assert size_server(small, length=4096, count=4).users < size_server(small, length=4096, count=4, kv_bytes=1).users


def test_the_share_is_the_one_that_the_table_of_flags_names():
    default = next(float(f.default) for f in FLAGS if f.name.startswith("--gpu-memory-utilization"))
    computed, named = (size_server(SHAPES["llama-3-8b"], length=8192, **how) for how in ({}, {"utilization": default}))
    assert computed == named and named.blocks > size_server(SHAPES["llama-3-8b"], length=8192, utilization=0.9).blocks


def test_a_block_costs_what_vllm_makes_of_it():
    # vLLM 0.32 on a CPU served the tiny model in float32 with VLLM_CPU_KVCACHE_SPACE=1 (GiB) and blocks of 32 tokens;
    # its /metrics said num_gpu_blocks="14563" and kv_cache_size_tokens="466016".
    fields = json.loads((tiny_folder() / "config.json").read_text())
    blocks = 2**30 // sizes_of(fields).kv_cache_bytes(32, bytes_per_number=4)
    assert (blocks, 32 * blocks) == (14563, 466016)


class OneGPU:
    tp_size = 1

    def are_kv_heads_tp_ed(self):
        return False


@pytest.mark.parametrize("shape", ["llama-3-8b", "qwen2.5-7b", "llama-3-70b"])
def test_transformers_own_cache_has_the_blocks_that_were_predicted(shape, monkeypatch):
    import torch
    from transformers import AutoConfig
    from transformers.generation.configuration_utils import ContinuousBatchingConfig
    from transformers.generation.continuous_batching import cache

    fields = dict(SHAPES[shape])
    plan = fit(fields, Workload("serve", batch=1, seq=8192))
    left = int(0.8 * (plan.budget - plan.parts["parameters"]))  # what an MI300X has beside the weights
    monkeypatch.setattr(cache.PagedAttentionMemoryHandler, "get_available_memory", lambda _: left)
    config = AutoConfig.for_model(**fields)
    config._attn_implementation = "sdpa"
    settings = ContinuousBatchingConfig(page_size=32, max_memory_percent=0.8, use_async_batching=False)
    options = {"dtype": torch.bfloat16, "model_supports_logits_to_keep": True}
    theirs = cache.PagedAttentionCache(config, settings, "meta", OneGPU(), **options)
    ours = size_server(fields, length=8192, block=32, utilization=0.8, engine="transformers")
    assert ours.blocks == pytest.approx(theirs.num_blocks, rel=0.03)
    assert ours.users == ours.blocks // 256
    assert abs(size_server(fields, length=8192, block=32, utilization=0.8).blocks / ours.blocks - 1) > 0.1, "not vLLM's"


def test_a_model_that_does_not_fit_has_no_users():
    rows = serving_table({"405B": SHAPES["llama-3.1-405b"]}, lengths=(2048, 32768))
    assert [row["users"][2048] is None for row in rows] == [True, True, True, False]
    assert rows[-1]["users"][2048] > 16 * rows[-1]["users"][32768] // 1.1


@pytest.mark.parametrize(
    "how",
    [
        {"utilization": 0},
        {"utilization": 1.5},
        {"block": 0},
        {"kv_bytes": 3},
        {"length": 0},
        {"count": 3},
        {"gpu": "MI1"},
        {"engine": "tgi"},
        {"engine": "transformers", "count": 2},
        {"engine": "transformers", "kv_bytes": 1},
    ],
)
def test_bad_numbers_are_refused(how):
    from rocm_guide.common.base import GuideError

    with pytest.raises(GuideError) as e:
        size_server(SHAPES["llama-3-8b"], **{"length": 4096, **how})
    assert isinstance(e.value, FitError) or "gpu" in how


def test_no_name_of_the_past_is_recommended():
    said = " ".join(f.name for f in FLAGS) + " ".join(new for _, new in FROM_TGI) + container_command("runs/x")
    for gone in (
        "VLLM_USE_FLASH_ATTN_TRITON",
        "VLLM_USE_TRITON_FLASH_ATTN",
        "api_server",
        "rocm/vllm:",
        "trust-remote",
    ):
        assert gone not in said
    assert "127.0.0.1:8000:8000" in container_command("runs/x"), "on this machine alone"


def test_the_manifest_is_one_object_that_belongs_together():
    deployment, service = json.loads(json.dumps(manifest("my-model", claim="models", gpus=8)))
    pod = deployment["spec"]["template"]
    assert deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"] == service["spec"]["selector"]
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"] == {"amd.com/gpu": 8}
    assert container["args"][-2:] == ["--tensor-parallel-size", "8"]
    ports = {container[p]["httpGet"]["port"] for p in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert ports == {container["ports"][0]["containerPort"]} == {service["spec"]["ports"][0]["targetPort"]}
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["spec"]["volumes"]}
    assert not [e for e in container["env"] if "KEY" in e["name"] and "value" in e], "the key is in a Secret"
    for name in ("My-Model", "a_b", "-a", "", "ä"):
        with pytest.raises(ServingError, match="a name in Kubernetes"):
            manifest(name, claim="models")


def judged(text, place):
    """(accepted, what was said) by the validator of Kubernetes objects that is installed here."""
    file = place / "model.yaml"
    file.write_text(text)
    known = {"kubernetes-validate": ["--strict"], "kubeconform": ["-strict", "-summary"]}
    command = next([name, *words, str(file)] for name, words in known.items() if shutil.which(name))
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.returncode == 0, done.stdout + done.stderr


def test_the_manifest_is_a_file_that_kubernetes_takes(tmp_path):
    import yaml

    objects = manifest("my-model", claim="models", gpus=8, options=("--max-model-len", "8192"))
    text = manifest_text(objects)
    assert list(yaml.safe_load_all(text)) == objects, "one document for each; kubectl refuses a list"
    if shutil.which("kubernetes-validate") or shutil.which("kubeconform"):  # 119 MB of schemas: not in the course's set
        assert judged(text, tmp_path)[0], judged(text, tmp_path)[1]
        accepted, said = judged(text.replace("readinessProbe", "readynessProbe"), tmp_path)
        assert not accepted and "readynessProbe" in said
    for word in re.findall(r'"image": "([^"]*)"', text):
        assert word.endswith(":TAG") and "latest" not in word, "a tag that the reader fixes"


@pytest.mark.parametrize(
    ("row", "made"),
    [
        ("vLLM, bf16", None),
        ("vLLM, fp8 weights and cache", {"quant_method": "fp8"}),
        ("vLLM, int4 weights (GPTQ)", {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}),
    ],
)
def test_the_room_that_vllm_found_on_a_gpu(row, made):
    """The tokens that vLLM printed on an H200 (stored), and what the configuration alone says of them."""
    stored = json.loads((Path(__file__).parents[2] / "benchmarks/results/serving_engines.json").read_text())
    assert "H200" in stored["hardware"]
    options, told = stored["rows"][row]["options"], stored["rows"][row]["room"]["told_tokens"]
    config = dict(SHAPES[stored["shape"]]) | ({"quantization_config": made} if made else {})
    kv = 1 if "--kv-cache-dtype" in options else 2
    length = int(options[options.index("--max-model-len") + 1])
    ours = size_server(config, length=length, gpu="H200", utilization=0.9, kv_bytes=kv)
    assert ours.blocks * ours.block == pytest.approx(told, rel=0.03)
