# SPDX-License-Identifier: MIT
"""Timed generation equals transformers' own, batches equal single rows, and the arithmetic agrees with a count."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from rocm_guide.common.base import GuideError
from rocm_guide.models.load import load_tokenizer
from rocm_guide.models.shapes import config_of
from rocm_guide.serve.generate import continuations, generate_timed, largest_difference
from rocm_guide.serve.generate_cost import forward_flops, kv_cache_bytes

SHAPE = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 1024,
}


@pytest.fixture(scope="module")
def model():
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(3)
        return AutoModelForCausalLM.from_config(config_of("llama-2-7b", **SHAPE), dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def ids():
    return torch.randint(3, 1000, (3, 7), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("use_cache", [True, False])
def test_generates_what_transformers_generates(model, ids, use_cache):
    made = generate_timed(model, ids, new_tokens=9, use_cache=use_cache, runs=2, warmup=0)
    wanted = model.generate(ids, max_new_tokens=9, do_sample=False, pad_token_id=0, eos_token_id=None)
    assert torch.equal(made.ids, wanted)
    assert torch.equal(made.new_ids, wanted[:, 7:])
    assert len(made.step_seconds) == 9 and min(made.step_seconds) > 0
    assert made.first_token.runs == 2 and made.per_token.runs == 16
    assert made.tokens_per_second == pytest.approx(3 / made.per_token.median)


def test_left_padding_changes_nothing(model, ids):
    """A row with filler before it, hidden by the mask, continues as it does alone."""
    alone = generate_timed(model, ids[:1], new_tokens=6, runs=1, warmup=0)
    filler = torch.zeros(1, 4, dtype=torch.long)
    mask = torch.cat([filler, torch.ones_like(ids[:1])], 1)
    padded = generate_timed(model, torch.cat([filler, ids[:1]], 1), mask=mask, new_tokens=6, runs=1, warmup=0)
    assert torch.equal(alone.new_ids, padded.new_ids)
    unmasked = generate_timed(model, torch.cat([filler, ids[:1]], 1), new_tokens=6, runs=1, warmup=0)
    assert not torch.equal(alone.new_ids, unmasked.new_ids), "the mask makes no difference: this test proves nothing"


def test_times_belong_to_their_steps(ids):
    """Prefill and decoding are told apart, the warm-up is left out, and the steps are waited for."""
    calls = []

    class Slow:
        def forward(self, input_ids, **_):
            """Its signature has no logits_to_keep."""

        def __call__(self, input_ids, past_key_values=None, **options):
            assert "logits_to_keep" not in options
            first_ever = not calls
            calls.append(input_ids.shape[1])
            time.sleep(0.2 if first_ever else 0.04 if past_key_values is None else 0.01)
            logits = torch.nn.functional.one_hot(input_ids + 1, 2048).float()
            return SimpleNamespace(logits=logits, past_key_values="kept")

    made = generate_timed(Slow(), ids, new_tokens=3, runs=3, warmup=1)
    assert calls == [7, 1, 1] * 4, "with the cache, each step after the first reads one token"
    assert made.first_token.runs == 3 and made.per_token.runs == 6, "the warm-up is not among them"
    assert 0.04 <= made.first_token.median < 0.15
    assert 0.01 <= made.per_token.median < 0.035
    assert torch.equal(made.new_ids[:, 0], ids[:, -1] + 1)
    calls.clear()
    generate_timed(Slow(), ids, new_tokens=3, use_cache=False, runs=1, warmup=0)
    assert calls == [7, 8, 9], "without the cache, each step reads everything"


def test_one_token_has_only_a_first(model, ids):
    made = generate_timed(model, ids, new_tokens=1, runs=2, warmup=0)
    assert made.per_token == made.first_token


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"new_tokens": 0}, "new_tokens=0"),
        ({"runs": 0}, "runs=0"),
        ({"warmup": -1}, "warmup=-1"),
        ({"ids": torch.zeros(3, dtype=torch.long)}, r"shape \(3,\)"),
        ({"ids": torch.zeros(1, 0, dtype=torch.long)}, r"shape \(1, 0\)"),
    ],
)
def test_refuses_what_it_cannot_time(model, ids, change, named):
    with pytest.raises(GuideError, match=named):
        generate_timed(model, **{"ids": ids, **change})


PROMPTS = ["[INST] What is LDS? [/INST]", "Hello", "[INST] Tell me the memory type of MI300X, please. [/INST]"]


def test_batched_equals_single(model):
    tokenizer = load_tokenizer()
    alone = continuations(model, tokenizer, PROMPTS, batch=1, new_tokens=8)
    assert continuations(model, tokenizer, PROMPTS, new_tokens=8) == alone
    assert continuations(model, tokenizer, PROMPTS, batch=2, new_tokens=8) == alone
    right = continuations(model, tokenizer, PROMPTS, side="right", new_tokens=8)
    assert right[2] == alone[2], "the longest row has no padding"
    assert right[1] != alone[1]


def test_ends_at_the_end_token(model):
    tokenizer = load_tokenizer()
    row = continuations(model, tokenizer, PROMPTS[:1], new_tokens=8)[0]
    assert len(row) == 8
    assert row.index(row[2]) == 2, "choose a token that comes up for the first time"
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(row[2])
    assert continuations(model, tokenizer, PROMPTS[:1], new_tokens=8)[0] == row[:3]


@pytest.mark.parametrize("change", [{"prompts": []}, {"side": "both"}, {"batch": 0}])
def test_refuses_odd_batches(model, change):
    with pytest.raises(GuideError):
        continuations(**{"model": model, "tokenizer": load_tokenizer(), "prompts": PROMPTS, **change})


def test_largest_difference_sees_one_logit(model, ids):
    def off(position, amount):
        def other(input_ids, attention_mask):
            logits = model(input_ids=input_ids, attention_mask=attention_mask).logits.clone()
            logits[1, position, 17] += amount
            return SimpleNamespace(logits=logits)

        return other

    assert largest_difference(model, model, ids) == 0
    assert largest_difference(model, off(3, 0.5), ids) == pytest.approx(0.5, abs=1e-5)
    assert largest_difference(off(3, -0.5), model, ids) == pytest.approx(0.5, abs=1e-5)
    assert largest_difference(model, off(3, 0.5), ids, last=True) == 0
    assert largest_difference(model, off(-1, 0.5), ids, last=True) == pytest.approx(0.5, abs=1e-5)
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    assert largest_difference(model, off(3, 0.5), ids, mask) == 0, "padding is nobody's business"
    assert largest_difference(model, off(4, 0.5), ids, mask) == pytest.approx(0.5, abs=1e-5)


def test_different_vocabularies_cannot_agree(model, ids):
    def other(input_ids, attention_mask):
        return SimpleNamespace(logits=torch.zeros(*input_ids.shape, 5))

    with pytest.raises(GuideError, match="vocabularies"):
        largest_difference(model, other, ids)


@pytest.mark.parametrize("new", [1, 5, 64])
def test_flops_agree_with_torchs_count(model, new):
    """torch counts what the matrix products of this model do; attention in full, since it does not skip the mask."""
    x = torch.randint(3, 1000, (1, new), generator=torch.Generator().manual_seed(0))
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model(input_ids=x, use_cache=False, logits_to_keep=1)
    total = counter.get_total_flops()
    attention = sum(
        n for op, n in counter.get_flop_counts()["Global"].items() if "attention" in str(op) or "bmm" in str(op)
    )
    weights = total - attention
    ours = forward_flops(model.config, new=new)
    pairs = 4 * 64 * 2 * new * (new + 1) // 2
    assert ours - pairs == pytest.approx(weights, rel=0.01)


def test_flops_with_and_without_a_past_add_up():
    """Reading n tokens at once costs what reading them one by one costs, but for the output layer's extra calls."""
    config = config_of("llama-2-7b")
    n = 300
    one_by_one = sum(forward_flops(config, new=1, past=i) for i in range(n))
    output = 2 * config.hidden_size * config.vocab_size
    assert one_by_one - (n - 1) * output == forward_flops(config, new=n)
    assert forward_flops(config, new=3, past=5) == forward_flops(config, new=8) - forward_flops(config, new=5) + output


def test_cache_bytes_are_what_a_real_cache_holds(model, ids):
    with torch.inference_mode():
        cache = model(input_ids=ids, use_cache=True).past_key_values
    held = sum(t.numel() * t.element_size() for layer in cache.layers for t in (layer.keys, layer.values))
    assert kv_cache_bytes(model.config, ids.shape[1], batch=ids.shape[0], bytes_per_number=4) == held
    gemma = config_of("gemma-2b", num_attention_heads=16)
    assert kv_cache_bytes(gemma, 1) == 2 * 18 * 1 * 256 * 2, "a head size that is not hidden size / heads"
    assert kv_cache_bytes(config_of("opt-1.3b"), 1) == 2 * 24 * 2048 * 2, "no grouped queries: a KV head for each head"


def test_flops_of_other_layers_are_refused():
    with pytest.raises(GuideError, match="opt: its layers are not those of a Llama; give a Llama"):
        forward_flops(config_of("opt-1.3b"), new=1)
