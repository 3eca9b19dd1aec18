# SPDX-License-Identifier: MIT
"""Our algorithms on single layers: exactness, errors, and the one-line refusals."""

import json
import types
from pathlib import Path

import datasets
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig

from benchmarks.models import quantization_7b
from rocm_guide.common.base import GuideError
from rocm_guide.models.load import meta_model
from rocm_guide.quantize import held_out, layers
from rocm_guide.quantize import libraries as quantization_libraries
from rocm_guide.quantize.awq import awq_grid, rounded, search_clip, search_scales
from rocm_guide.quantize.budget import decode_bound, linear_weights, serving_bytes
from rocm_guide.quantize.calibration import calibration_set, layer_inputs
from rocm_guide.quantize.gptq import gptq, hessian, inverse_factor
from rocm_guide.quantize.grid import (
    QuantizationError,
    bits_per_weight,
    check_grid,
    fit_grid,
    output_error,
    quantize_block,
    round_to_nearest,
)
from rocm_guide.quantize.held_out import divergence, drift, expectations, held_out_rows
from rocm_guide.quantize.int8 import int8_linear, outlier_columns, smoothing_scales
from rocm_guide.quantize.layers import quantize_layers
from rocm_guide.quantize.nf4 import (
    code_book,
    code_book_bits,
    dequantize_blocks,
    dynamic_code_book,
    on_a_border,
    quantize_blocks,
)
from rocm_guide.quantize.packing import PackedLinear, pack_bits, unpack_bits
from rocm_guide.quantize.scores import case_table, measure, table


def layer(rows=48, columns=128, tokens=400, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, columns, generator=g) @ (torch.randn(columns, columns, generator=g) / columns**0.5)
    return torch.randn(rows, columns, generator=g) * 0.05, x


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("group", [32, 64, -1])
@pytest.mark.parametrize("symmetric", [False, True])
def test_nearest_is_nearest(bits, group, symmetric):
    w, _ = layer()
    q = round_to_nearest(w, bits, group, symmetric=symmetric)
    step = q.scale[:, q.groups]
    assert int(q.codes.max()) < 2**bits
    # No point of the grid is nearer than the one taken, and nothing in range moves by more than half a step.
    error = (q.dequantize() - w).abs()
    for code in range(2**bits):
        assert (error <= (step * (code - q.zero[:, q.groups]) - w).abs() + 1e-6).all()
    if not symmetric:
        assert (error <= 0.5001 * step + 1e-7).all() or bits == 2


def test_nearest_keeps_zero_and_constants():
    w = torch.zeros(3, 32)
    w[1] = 0.7
    q = round_to_nearest(w, 4, 32).dequantize()
    assert torch.equal(q[0], w[0]) and torch.allclose(q[1], w[1], atol=1e-6)


@pytest.mark.parametrize("bits", [3, 4])
@pytest.mark.parametrize("act_order", [True, False])
def test_gptq_beats_nearest_on_the_output(bits, act_order):
    for seed in range(3):
        w, x = layer(seed=seed)
        ours = output_error(w, gptq(w, hessian([x]), bits, 32, act_order=act_order).dequantize(), x)
        assert ours < 0.8 * output_error(w, round_to_nearest(w, bits, 32).dequantize(), x)


def test_on_calibration_tokens_gptq_looks_better_than_it_is():
    """With fewer tokens than columns the rounded weights are almost right on exactly those tokens, and on no others."""
    w, x = layer(tokens=1000)
    times = {}
    for count in (32, 500):
        ours, plain = gptq(w, hessian([x[:count]]), 4, 32).dequantize(), round_to_nearest(w, 4, 32).dequantize()
        times[count] = [output_error(w, plain, t) / output_error(w, ours, t) for t in (x[:count], x[500:])]
    assert times[32][0] > 5 and times[32][1] < 1, "worse than rounding, and it looks nine times better"
    assert times[500][1] > 1.5 and times[500][0] < 1.5 * times[500][1], times


def small(kind, **changes):
    fields = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "vocab_size": 90, "head_dim": 16}
    fields |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256} | changes
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **fields)).eval()


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("llama", {}),
        ("qwen3", {}),
        ("gemma2", {"sliding_window": 8}),
        (
            "gemma3_text",
            {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
        ),
    ],
)
def test_every_layer_is_calibrated_with_its_own_arguments(monkeypatch, kind, changes):
    """What each layer is calibrated on is what it is given when the quantised model runs: masks and angles included."""
    model = small(kind, **changes)
    samples = [{"input_ids": torch.randint(3, 90, (length,)).tolist()} for length in (40, 33)]
    seen = {}
    plain = layers._METHODS["gptq"]

    def noting(layer, calls, bits, group, errors, prefix, **options):
        results = plain(layer, calls, bits, group, errors, prefix, **options)
        with torch.inference_mode():
            seen.update({prefix + n: x for n, x in layers._inputs_of(layer, ["mlp.down_proj"], calls).items()})
        return results

    monkeypatch.setitem(layers._METHODS, "gptq", noting)
    names = [f"model.layers.{i}.mlp.down_proj" for i in range(3)]
    quantize_layers(model, "gptq", samples, bits=8, group=32, progress=False)
    real = layer_inputs(model, samples, names)
    for name in names:
        # Packed scales have 16 bits; the wrong window or angles change 3 % and more.
        assert ((seen[name] - real[name]).norm() / real[name].norm()).item() < 2e-3, name


def test_a_model_whose_layers_do_not_hand_on_their_results_is_refused():
    model = small("llama")
    before = model.model.layers[0].mlp.up_proj
    line = r"LlamaForCausalLM: layer 1 is given something else than what layer 0 returned, which is not repeated here"
    model.model.layers[1].register_forward_pre_hook(lambda _module, args: (args[0] * 0.5, *args[1:]))
    with pytest.raises(QuantizationError, match=line):
        quantize_layers(model, "gptq", [{"input_ids": [5, 6, 7]}], group=32, progress=False)
    assert model.model.layers[0].mlp.up_proj is before


def test_calibration_takes_what_there_is():
    rows = datasets.Dataset.from_list([{"text": "abc"}, {"text": "defg"}])
    texts, samples = calibration_set(rows, _letters, 2, 2048)
    assert texts == ["abc", "defg"] and [len(s["input_ids"]) for s in samples] == [7]


def test_gptq_with_independent_inputs_is_nearest():
    # X^T X is a multiple of the identity: no column can make up for another, so nothing may be changed.
    w, _ = layer()
    same = gptq(w, hessian([torch.eye(128)]), 4, 32, act_order=False, damping=0.0)
    assert torch.equal(same.codes, round_to_nearest(w, 4, 32).codes)


def test_gptq_follows_the_textbook_column_by_column():
    """Against the unblocked recursion that removes one column at a time from the inverse Hessian, in float64."""
    w, x = layer(rows=8, columns=32)
    h = hessian([x]).double()
    inverse = torch.linalg.inv(h + 0.01 * h.diagonal().mean() * torch.eye(32))
    scale, zero = (t.double() for t in fit_grid(w, 4))
    rest = w.double().clone()
    codes = torch.zeros(8, 32)
    for i in range(32):
        codes[:, i] = quantize_block(rest[:, i], scale[:, 0], zero[:, 0], 4)
        wrong = rest[:, i] - scale[:, 0] * (codes[:, i] - zero[:, 0])
        rest[:, i + 1 :] -= wrong[:, None] * inverse[i, i + 1 :] / inverse[i, i]
        inverse -= torch.outer(inverse[:, i], inverse[i]) / inverse[i, i]
    assert torch.equal(codes, gptq(w, hessian([x]), 4, -1, act_order=False).codes.float())


def test_gptq_dead_columns_and_damping():
    w, x = layer()
    x[:, 5] = 0
    assert torch.isfinite(gptq(w, hessian([x]), 4, 32).dequantize()).all()
    with pytest.raises(QuantizationError, match=r"damping=0\.0: the Hessian is not positive definite; try 0\.01"):
        inverse_factor(torch.ones(4, 4), 0.0)


def test_hessian_batches_add_up():
    _, x = layer()
    assert torch.allclose(hessian([x]), hessian([x[:100][None], x[100:]]), atol=1e-4)
    assert torch.allclose(hessian([x]), 2 * x.T @ x / len(x), atol=1e-4)
    with pytest.raises(QuantizationError, match="calibration set is empty"):
        hessian([])


def test_awq_protects_salient_columns():
    w, x = layer()
    x[:, ::16] *= 12
    found = search_scales([w], x, lambda ws: x @ ws[0].T, 3, 32)
    assert output_error(w, rounded(w, found.scales, 3, 32), x) < 0.6 * output_error(
        w, awq_grid(w, 3, 32).dequantize(), x
    )
    assert len(found.losses) == 20 and found.losses[found.ratio] == min(found.losses.values())
    assert found.scales.max() * found.scales.min() == pytest.approx(1, rel=1e-4)


def test_awq_clip_never_loses():
    w, x = layer()
    limit = search_clip(w, x, 3, 32, tokens=10_000)
    cut = w.reshape(48, -1, 32).clamp(-limit[..., None], limit[..., None]).reshape(w.shape)
    parts = x.reshape(len(x), -1, 32)

    def group_errors(candidate):
        difference = (awq_grid(candidate, 3, 32).dequantize() - w).reshape(48, -1, 32)
        return torch.einsum("tgi,rgi->rgt", parts, difference).square().mean(2)

    assert (group_errors(cut) <= group_errors(w) * 1.0001).all()
    assert limit.shape == (48, 4)


@pytest.mark.parametrize("bits", range(1, 9))
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_packing_round_trip(bits, data):
    codes = torch.tensor(data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=50)), dtype=torch.uint8)
    packed = pack_bits(codes, bits)
    assert packed.numel() == -(-len(codes) * bits // 8)
    assert torch.equal(unpack_bits(packed, bits, len(codes)), codes)


def test_packing_refuses_large_codes():
    with pytest.raises(QuantizationError, match="code 9 does not fit into 3 bits"):
        pack_bits(torch.tensor([9], dtype=torch.uint8), 3)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_packed_linear_computes_and_stores(bits):
    w, x = layer()
    q = gptq(w, hessian([x]), bits, 32)
    packed = PackedLinear(q, bias=torch.ones(48))
    expected = x @ q.dequantize().T + 1
    assert torch.allclose(packed(x), expected, atol=2e-3 * expected.abs().max())
    stored = (
        sum(b.numel() * b.element_size() for b in packed.buffers()) - 48 * 4 - 128 * 2
    )  # bias, group of each column
    assert 8 * stored / w.numel() == pytest.approx(bits_per_weight(bits, 32, 128))
    assert packed.double().scale.dtype == torch.float16


def test_code_books():
    nf4 = code_book("nf4")
    assert nf4.numel() == 16 and nf4[0] == -1 and nf4[7] == 0 and nf4[15] == 1 and (nf4.diff() > 0).all()
    assert dynamic_code_book().numel() == 256
    # Normal weights use every entry of NF4 about equally often; the even grid's ends hardly ever.
    codes = quantize_blocks(torch.randn(1 << 16, generator=torch.Generator().manual_seed(0)), nf4).codes
    assert (torch.bincount(codes.long(), minlength=16) > 0.01 * len(codes)).all()


@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000])
@pytest.mark.parametrize("double", [False, True])
def test_blocks_of_any_size(count, double):
    x = torch.randn(count, generator=torch.Generator().manual_seed(count))
    q = quantize_blocks(x, code_book("nf4"), 64, double=double)
    assert q.codes.shape == (count,) and q.absmax.shape == (-(-count // 64),)
    assert (dequantize_blocks(q) - x).abs().max() <= 0.16 * x.abs().max()


def test_where_two_codes_are_right_they_are_neighbours():
    """Weights in bfloat16 meet the borders of FP4; a kernel with another rule for ties differs only there."""
    w = torch.randn(1 << 18, generator=torch.Generator().manual_seed(0)).bfloat16().float()
    found = {}
    for name in ("fp4", "nf4"):
        book = code_book(name)
        both, ours = on_a_border(w, book), quantize_blocks(w, book).codes.long()
        scaled = (w.reshape(-1, 64) / w.reshape(-1, 64).abs().amax(1, keepdim=True)).reshape(-1).double()
        values = book.unique()
        nearest, second = ((scaled[:, None] - values.double()).abs().topk(2, largest=False).values).unbind(1)
        tied = second - nearest < 1e-6 * scaled.abs()
        assert torch.equal(tied & (scaled != 0), both & (scaled != 0))
        # The other rule: of two equally near entries the larger one.
        theirs = values[((scaled[:, None] - values.double()).abs() - 1e-7 * values.sign()).argmin(1)]
        apart = book[ours] != theirs.float()
        assert not (apart & ~both).any()
        found[name] = int(both.sum()) / len(w), int(apart.sum())
    assert 1e-3 < found["fp4"][0] < 4e-3 and found["fp4"][1] > 100, "about one in 500, as notebook 12 says"
    assert found["nf4"][0] < 1e-5


def test_int8_outliers():
    w, x = layer()
    x[:, 9] = 80.0
    exact = x @ w.T
    assert outlier_columns(x).tolist() == [9]
    wrong = {t: ((int8_linear(x, w, t) - exact).norm() / exact.norm()).item() for t in (0.0, 6.0)}
    assert wrong[6.0] < 0.012 < wrong[0.0] * 4
    s = smoothing_scales(x.abs().amax(0), w.abs().amax(0))
    smooth = int8_linear(x / s, w * s, 0.0)
    assert (smooth - exact).norm() < 0.5 * (int8_linear(x, w, 0.0) - exact).norm()


@pytest.mark.parametrize(
    ("attempt", "line"),
    [
        (lambda: check_grid(128, 1, 32), r"bits=1: choose 2, 3"),
        (lambda: check_grid(128, 4.0, 32), r"bits=4\.0: choose"),
        (
            lambda: check_grid(192, 4, 128),
            r"group=128 does not divide the 192 columns of a row; choose 32, 64, 96, 192 or -1",
        ),
        (lambda: check_grid(192, 4, 0), r"group=0 does not divide"),
        (lambda: code_book("int4"), r"code book 'int4': choose 'nf4' or 'fp4'"),
        (lambda: quantize_blocks(torch.empty(0), code_book("nf4")), r"block=64 on 0 elements"),
        (lambda: outlier_columns(torch.ones(1, 1), -1), r"threshold=-1: give a positive number"),
        (lambda: smoothing_scales(torch.ones(1), torch.ones(1), 2), r"alpha=2: give a number from 0 to 1"),
        (lambda: search_scales([torch.ones(1, 32)], torch.empty(0, 32), len, 4, 32), "calibration set is empty"),
        (lambda: serving_bytes("llama-2-7b", 0), r"bits=0, rows=1, length=4096: all of them are positive"),
        (lambda: linear_weights("gpt2"), r"'gpt2': its layers are not those of a Llama"),
        (lambda: gptq(torch.ones(4, 64), torch.eye(32), 4, 32), r"h is \(32, 32\); a layer of 64 columns needs"),
        (lambda: quantize_layers(torch.nn.Linear(4, 4), "nearest"), r"Linear: no linear layer to quantise; load"),
        (
            lambda: quantize_layers(meta_model("random:phi-3-mini"), "gptq", [{"input_ids": [1]}]),
            r"Phi3ForCausalLM: its layers are not those of a Llama \(layer 0 has no self_attn\.q_proj\); quantise this",
        ),
    ],
)
def test_refusals_are_one_line(attempt, line):
    with pytest.raises(QuantizationError, match=line) as caught:
        attempt()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shape", ["llama-2-7b", "llama-2-70b", "llama-3-8b", "qwen2.5-7b", "gemma-2b"])
def test_budget_counts_the_real_weights(shape):
    model = meta_model(f"random:{shape}")
    linears = sum(m.weight.numel() for n, m in model.named_modules() if ".layers." in n and hasattr(m, "in_features"))
    assert linear_weights(shape) == linears
    embeddings = model.get_input_embeddings().weight.numel() + (
        0 if model.config.tie_word_embeddings else model.lm_head.weight.numel()
    )
    assert serving_bytes(shape, 16)["embeddings, head"] == 2 * embeddings


class _Fixed:
    """A model that gives every next token of two the same logits."""

    device = torch.device("cpu")
    config = PreTrainedConfig(vocab_size=2)

    def __init__(self, *logits):
        self.logits = torch.tensor(logits)

    def __call__(self, input_ids, attention_mask, use_cache):
        return types.SimpleNamespace(logits=self.logits.expand(*input_ids.shape, 2))


def _letters(text):
    return types.SimpleNamespace(input_ids=[ord(c) for c in text])


def test_drift_is_the_divergence_and_the_changed_choices():
    rows = [{"prompt": "ab", "completion": "cde"}, {"prompt": "a", "completion": "b"}]  # the second one is padded
    p, q = (torch.tensor(x).softmax(0) for x in ((1.0, 0.0), (0.0, 2.0)))
    expected = (p * (p / q).log()).sum().item()
    assert drift(_Fixed(0.0, 2.0), _Fixed(1.0, 0.0), _letters, rows) == (pytest.approx(expected), 1.0)
    nearer = drift(_Fixed(0.5, 0.0), _Fixed(1.0, 0.0), _letters, rows)
    assert 0 < nearer[0] < expected and nearer[1] == 0.0
    assert drift(_Fixed(1.0, 0.0), _Fixed(1.0, 0.0), _letters, rows) == (0.0, 0.0)
    assert divergence(_Fixed(0.0, 2.0), _Fixed(1.0, 0.0), _letters, rows) == pytest.approx(expected)
    with pytest.raises(GuideError, match="divergence needs rows with 'prompt' and 'completion'"):
        drift(_Fixed(1.0, 0.0), _Fixed(1.0, 0.0), _letters, [])


def test_a_reference_may_go_and_a_large_vocabulary_leaves_rows_out(monkeypatch):
    rows = [
        {"prompt": "ab", "completion": "cde"},
        {"prompt": "a", "completion": "b"},
        {"prompt": "", "completion": "xyz"},
    ]
    model, before = _Fixed(0.0, 2.0), _Fixed(1.0, 0.0)
    whole = drift(model, before, _letters, rows)
    assert drift(model, expectations(before, _letters, rows), _letters, rows) == pytest.approx(whole)
    shapes = []

    def noting(self, input_ids, attention_mask, use_cache):
        shapes.append(tuple(input_ids.shape))
        return types.SimpleNamespace(logits=self.logits.expand(*input_ids.shape, 2))

    monkeypatch.setattr(_Fixed, "__call__", noting)
    monkeypatch.setattr(held_out, "_AT_ONCE", 2 * 6)  # six tokens at a time
    monkeypatch.setattr(held_out, "_KEPT", 2 * 8)
    kept = expectations(before, _letters, rows)
    assert shapes == [(2, 3)] and sum(map(len, kept)) == 5, "the longest row is one too many, and left out"
    assert drift(model, kept, _letters, rows) == pytest.approx(whole), "every token here has the same distance"
    monkeypatch.setattr(held_out, "_LONGEST", 2)
    shapes.clear()
    drift(model, before, _letters, rows)
    assert {length for _, length in shapes} == {2}, "of a long row its end"


def test_rows_without_known_answers_are_measured_too(tmp_path):
    class Model(_Fixed, torch.nn.Module):
        def __init__(self):
            torch.nn.Module.__init__(self)
            self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4, bias=False)])
            self.logits = torch.tensor([0.0, 2.0])

        def __call__(self, input_ids, attention_mask, use_cache):
            return types.SimpleNamespace(logits=torch.zeros(*input_ids.shape, 128) + self.logits.sum())

    Model.config = PreTrainedConfig(vocab_size=128)
    rows = held_out_rows(datasets.Dataset.from_list([{"text": "abc"}, {"text": "de"}]), None)
    assert rows == [{"prompt": "", "completion": "abc"}, {"prompt": "", "completion": "de"}]
    found = measure(Model(), _letters, rows, None, seconds=1.0, weights=16)
    assert (found.exact, found.tokens_per_second, found.disk_bytes, found.bits) == (None, None, 0, 32.0)
    assert found.perplexity == pytest.approx(128)
    line = table({"mine": found}).splitlines()[1].split()
    assert line[0] == "mine" and line.count("-") == 5, line
    with pytest.raises(GuideError, match="held-out part of the data set has 0 rows"):
        held_out_rows(datasets.Dataset.from_list([{"text": "abc"}]).select([]), None)


def test_decode_bound_is_bandwidth_over_bytes():
    read = serving_bytes("llama-2-7b", 4)["linear layers"] + 32000 * 4096 * 2
    assert decode_bound("llama-2-7b", 4, 5.3) == pytest.approx(5.3e12 / read)


def test_exercises_know_right_from_wrong(capsys):
    from rocm_guide.exercises import awq, bitsandbytes
    from rocm_guide.exercises import gptq as first

    def codes(w, bits):
        q = round_to_nearest(w[None], bits, -1)
        return q.codes[0]

    def unwritten(*_):
        raise NotImplementedError

    good = [
        first.check_codes(codes),
        first.check_order(lambda x: hessian([x]).diagonal().argsort(descending=True)),
        first.check_size(5),
        awq.check_salient(lambda x, share: x.abs().mean(0).topk(int(share * x.shape[1])).indices),
        awq.check_equal(lambda norm, w, s: (norm / s, w * s)),
        awq.check_factor(8.0),
        bitsandbytes.check_book(lambda n: [2 * i / (n - 1) - 1 for i in range(n)]),
        bitsandbytes.check_outliers(1 / 3),
        bitsandbytes.check_states(40.43),
    ]
    assert all(good)
    bad = [
        first.check_codes(lambda w, bits: codes(w, bits + 1)),
        first.check_codes(lambda w, bits: (w / 0).foo),
        first.check_codes(unwritten),
        first.check_order(unwritten),
        first.check_order(lambda x: range(12)),
        first.check_order(lambda x: x.abs().amax(0).argsort(descending=True)),
        first.check_size(4),
        first.check_size("4"),
        awq.check_salient(lambda x, share: x.abs().amax(0).topk(int(share * x.shape[1])).indices),
        awq.check_equal(lambda norm, w, s: (norm, w)),
        awq.check_equal(lambda norm, w, s: 3),
        awq.check_salient(unwritten),
        awq.check_factor(4),
        bitsandbytes.check_book(lambda n: code_book("nf4")[:n]),
        bitsandbytes.check_book(unwritten),
        bitsandbytes.check_outliers(2),
        bitsandbytes.check_states(80.86),
        bitsandbytes.check_states(37.65),
    ]
    assert not any(bad)
    assert capsys.readouterr().out.count("[HINT]") == len(bad)


def test_a_missing_library_is_one_line(monkeypatch):
    monkeypatch.setattr(quantization_libraries, "find_spec", lambda name: None)
    with pytest.raises(QuantizationError, match="gptqmodel is not installed; run make course, or ") as caught:
        quantization_libraries.add_libraries("gptqmodel")
    assert "\n" not in str(caught.value)


def test_results_at_7b_are_complete():
    """Every path of the benchmark has figures or a reason, a machine and versions; sizes are those of 4 and 8 bits."""
    root = Path(__file__).parents[2] / "benchmarks"
    report = json.loads((root / "results/quantization_7b.json").read_text())
    assert set(report["cases"]) == set(quantization_7b.CASES)
    assert report["shape"] == "llama-2-7b" and report["hardware"]
    assert {"torch", "transformers", "gptqmodel", "bitsandbytes"} <= set(report["versions"])
    rows = case_table(report["cases"]).splitlines()
    for label, case in report["cases"].items():
        if "reason" in case:
            assert any(row.startswith(label) and case["reason"] in row for row in rows)
            continue
        widths = {"float": 16.0, "int8": 8.0, "double": code_book_bits(double=True), "NF4": code_book_bits()}
        bits = next((width for word, width in widths.items() if word in label), bits_per_weight(4, 128, 4096))
        parts = serving_bytes("llama-2-7b", bits)
        expected = parts["linear layers"] + parts["embeddings, head"]
        assert case["model bytes"] == pytest.approx(expected, rel=0.02), label
        assert case["tokens/s, 16 rows"] > case["tokens/s, 1 row"] > 0
