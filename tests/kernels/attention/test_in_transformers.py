# SPDX-License-Identifier: MIT
"""attn_implementation="rocm_guide" trains and generates like SDPA; on a GPU at a real size, else in the interpreter."""

from __future__ import annotations

import copy
import os
from types import SimpleNamespace

import pytest
import torch

from rocm_guide.common.base import GuideError
from rocm_guide.tune.attention.in_transformers import register_attention, transformers_attention

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
STEPS = 4 if INTERPRETED else 50


def llama(implementation, device, dtype=torch.float32):
    from transformers import LlamaConfig, LlamaForCausalLM

    register_attention()
    big = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}
    small = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(
        vocab_size=256,
        max_position_embeddings=512,
        num_key_value_heads=1 if INTERPRETED else 2,
        **(small if INTERPRETED else big),
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM._from_config(config, attn_implementation="sdpa", dtype=dtype)
    model.set_attn_implementation(implementation)
    return model.to(device)


def batch(step, device):
    """Text with structure (each token follows from the last two), so that there is something to learn."""
    gen = torch.Generator().manual_seed(step)
    rows, length = (2, 10) if INTERPRETED else (8, 200)
    ids = torch.randint(0, 256, (rows, length), generator=gen)
    for n in range(2, length):
        ids[:, n] = (3 * ids[:, n - 1] + ids[:, n - 2]) % 61
    return ids.to(device)


def curve(model, device, mask=None):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(STEPS):
        ids = batch(step, device)
        labels = ids if mask is None else ids.masked_fill(mask == 0, -100)
        loss = model(input_ids=ids, labels=labels, attention_mask=mask).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return torch.tensor(losses)


def test_a_static_cache_with_empty_places(device):
    """Its keys are more than the queries from the start; those behind the prompt hold nothing yet."""
    from transformers import StaticCache

    logits = {}
    for name in ("sdpa", "rocm_guide"):
        model, ids = llama(name, device).eval(), batch(7, device)[:, :9]
        cache = StaticCache(config=model.config, max_cache_len=24)
        with torch.no_grad():
            steps = [model(input_ids=x, past_key_values=cache).logits for x in (ids[:, :7], ids[:, 7:8], ids[:, 8:])]
        logits[name] = torch.cat(steps, 1)
    assert (logits["sdpa"] - logits["rocm_guide"]).abs().max() < 1e-3


def test_training_follows_sdpa_and_generates_the_same(device):
    trained = {}
    for name in ("sdpa", "rocm_guide"):
        model = llama(name, device)
        trained[name] = (model, curve(model, device))
    off = (trained["sdpa"][1] - trained["rocm_guide"][1]).abs().max().item()
    first, last = (trained["rocm_guide"][1][n].item() for n in (0, -1))
    print(f"largest difference of the loss over {STEPS} steps: {off:.2e}; {first:.3f} -> {last:.3f}")
    assert off < 1e-3 and last < first
    model, count = trained["rocm_guide"][0].eval(), 3 if INTERPRETED else 64
    prompts = batch(1000, device)[:, : 5 if INTERPRETED else 40]
    mask = torch.ones_like(prompts)
    mask[0, :3] = 0  # one row is padded on the left
    texts = []
    for name in ("sdpa", "rocm_guide"):
        model.set_attn_implementation(name)
        for given in (torch.ones_like(prompts), mask):
            with torch.no_grad():
                out = model.generate(
                    prompts, attention_mask=given, max_new_tokens=count, do_sample=False, pad_token_id=0
                )
            texts.append(out)
    assert torch.equal(texts[0], texts[2]) and torch.equal(texts[1], texts[3])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half(device, dtype):
    """16 bits on a GPU: loss curves stay together, decoding goes through the split-K kernel."""
    if INTERPRETED:
        pytest.skip("on a GPU")
    curves = []
    for name in ("sdpa", "rocm_guide"):
        model = llama(name, device)
        with torch.autocast("cuda", dtype):
            curves.append(curve(model, device))
    print(f"{dtype}: largest difference {float((curves[0] - curves[1]).abs().max()):.2e}")
    assert (curves[0] - curves[1]).abs().max() < 2e-2
    half = copy.deepcopy(model).to(dtype).eval()
    ids = batch(7, device)[:, :60]
    logits = []
    for name in ("sdpa", "rocm_guide"):
        half.set_attn_implementation(name)
        with torch.no_grad():
            past = half(ids[:, :-1], use_cache=True).past_key_values
            logits.append(half(ids[:, -1:], past_key_values=past).logits.float())
    assert (logits[0] - logits[1]).abs().max() < 0.05 * logits[0].abs().max()


def test_padding_on_the_right(device):
    """A mask with padding becomes a matrix bias; the loss of the real tokens is SDPA's."""
    ids = batch(0, device)
    mask = torch.ones_like(ids)
    mask[0, -4:] = 0
    losses = []
    for name in ("sdpa", "rocm_guide"):
        losses.append(
            llama(name, device)(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
        )
    assert abs(losses[0] - losses[1]).item() < 1e-5


@pytest.mark.parametrize("values", [32, 24])
@pytest.mark.parametrize("queries", [1, 3])
def test_tensors_as_models_make_them(device, queries, values):
    """Keys and values of different strides, and sizes, as DeepSeek's; queries and keys left in fp32 under autocast."""
    gen = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 4, queries, 32, generator=gen), torch.randn(2, 2, 5, 32, generator=gen)
    v = torch.randn(2, 5, 2, values, generator=gen).transpose(1, 2)
    q, k, v = (x.to(device, torch.float16) for x in (q, k, v))
    module = SimpleNamespace(is_causal=True)
    wanted = torch.nn.functional.scaled_dot_product_attention(
        *(x.double().cpu() for x in (q, k, v)),
        is_causal=queries > 1,  # as transformers asks SDPA: without a mask, causal keys count from the first
        enable_gqa=True,
    )
    for given in ((q, k, v), (q.float(), k.float(), v)):
        out, weights = transformers_attention(module, *given, None)
        assert weights is None and out.dtype == torch.float16 and out.shape == (2, queries, 4, values)
        assert (out.transpose(1, 2).double().cpu() - wanted).abs().max() < 2e-3


def test_deepseek_has_the_gradients_of_sdpa(device):
    """Latent attention with keys of 48 numbers and values of 32."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    register_attention()
    widths = {"hidden_size": 32, "intermediate_size": 32, "moe_intermediate_size": 16, "kv_lora_rank": 16}
    heads = {"num_attention_heads": 2, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32}
    config = DeepseekV3Config(
        vocab_size=64, num_hidden_layers=1, first_k_dense_replace=1, q_lora_rank=16, **widths, **heads
    )
    torch.manual_seed(0)
    model = DeepseekV3ForCausalLM._from_config(config, attn_implementation="sdpa", dtype=torch.float32).to(device)
    ids, found = torch.randint(64, (2, 20), device=device), []
    for name in ("sdpa", "rocm_guide"):
        model.set_attn_implementation(name)
        model.zero_grad()
        model(ids, labels=ids).loss.backward()
        found.append(torch.cat([x.grad.flatten() for x in model.parameters()]))
    assert found[0].abs().max() > 0.01 and (found[0] - found[1]).abs().max() < 1e-4 * found[0].abs().max()


def test_refusals():
    x = torch.zeros(1, 2, 4, 16)
    module = SimpleNamespace(is_causal=True)
    with pytest.raises(GuideError, match="softcap"):
        transformers_attention(module, x, x, x, None, softcap=30.0)
    with pytest.raises(ValueError, match="v has head size 300: give 1 to 256"):
        transformers_attention(module, x, x, torch.zeros(1, 2, 4, 300), None)
