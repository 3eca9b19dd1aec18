# SPDX-License-Identifier: MIT
"""Our algorithms against GPTQModel and bitsandbytes, and a small model all the way: quantise, save, reload, answer."""

import copy
import json
import subprocess
import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

from cdna.children import ChildError
from rocm_guide.finetune.sft import fine_tune, recipe, sft_settings
from rocm_guide.models.evaluation import exact_match
from rocm_guide.models.load import load_data, load_model
from rocm_guide.models.sources import READY_KERNELS
from rocm_guide.observe.doctor.own_folders import OWN_FOLDERS
from rocm_guide.quantize.awq import awq_grid, search_clip, search_scales
from rocm_guide.quantize.calibration import calibration_samples, joined_samples, layer_inputs, linear_errors
from rocm_guide.quantize.gptq import gptq, hessian
from rocm_guide.quantize.grid import QuantizationError, output_error, quantize_block
from rocm_guide.quantize.held_out import divergence, perplexity
from rocm_guide.quantize.int8 import int8_linear, quantize_rows
from rocm_guide.quantize.layers import quantize_layers
from rocm_guide.quantize.libraries import (
    add_libraries,
    gptqmodel_load,
    gptqmodel_quantize,
    kernels,
    quantize_and_save,
    quiet,
)
from rocm_guide.quantize.nf4 import code_book, dequantize_blocks, dynamic_code_book, quantize_blocks
from rocm_guide.quantize.scores import model_bytes
from rocm_guide.serve.served_checkpoints import as_ready_model, read_checkpoint
from tests.in_turn import in_turn
from tests.own_data import families

pytestmark = pytest.mark.slow
GROUP = 32
#: They read one checkpoint, and the other turns have what takes as long.
TOGETHER = in_turn(2, 3)
#: Of a folder, a prompt and a quant_method: the tokens that a quantised model answers with.
READ = """
import sys
from rocm_guide.quantize.libraries import add_reader
from rocm_guide.models.load import load_model
add_reader(sys.argv[3])
model, tokenizer = load_model(sys.argv[1], device="cpu")
print(model.generate(**tokenizer(sys.argv[2], return_tensors="pt"), max_new_tokens=8, do_sample=False)[0].tolist())
"""


@pytest.fixture(scope="module", autouse=True)
def inductor_as_before():
    """GPTQModel's fused layer switches on freezing and tuning for the whole process when it first runs on a CPU."""
    from torch._inductor import config

    with config.patch(freezing=config.freezing, max_autotune=config.max_autotune):
        yield


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """(folder, model, tokenizer, calibration samples, held-out rows) of the fine-tuned tiny model."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("tuned")
    data = load_data("tiny")
    model, tokenizer = load_model("tiny")
    fine_tune(model, tokenizer, data["train"], sft_settings(folder / "run", **recipe("tiny", "full")))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    model, tokenizer = load_model(str(folder))
    texts = [r["prompt"] + r["completion"] for r in data["train"].select(range(0, 1080, 27))]
    rows = [{k: v for k, v in tokenizer(t).items() if k in ("input_ids", "attention_mask")} for t in texts]
    return folder, model, tokenizer, joined_samples(rows, 60), list(data["test"])


@pytest.fixture(scope="module")
def inputs(tuned):
    """What every linear layer of the fine-tuned model is given."""
    return layer_inputs(tuned[1], tuned[3])


@pytest.fixture(scope="module")
def in_four_bits(tuned, tmp_path_factory):
    """The folder that GPTQModel makes of it with a few samples; tests read it."""
    folder = tmp_path_factory.mktemp("in-four-bits") / "g"
    gptqmodel_quantize(tuned[0], folder, tuned[3][:4], group=GROUP, dtype=torch.float32)
    return folder


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("act_order", [True, False])
@pytest.mark.parametrize("symmetric", [True, False])
def test_gptq_codes_equal_the_library(tuned, inputs, bits, act_order, symmetric):
    model = tuned[1]
    add_libraries("gptqmodel")
    from gptqmodel import QuantizeConfig
    from gptqmodel.quantization.gptq import GPTQ

    # Each setting on the seven matrices of one decoder layer, and every layer meets all bits, orders and grids in turn.
    number = (bits + 2 * act_order + symmetric) % model.config.num_hidden_layers
    chosen = {n: x for n, x in inputs.items() if f".layers.{number}." in n}
    assert len(chosen) == 7
    for name, x in chosen.items():
        linear = model.get_submodule(name)
        with quiet():
            fields = {"desc_act": act_order, "sym": symmetric, "act_group_aware": False, "damp_percent": 0.01}
            task = GPTQ(copy.deepcopy(linear), QuantizeConfig(bits=bits, group_size=GROUP, **fields))
            task.quantizer.configure(perchannel=True)
            task.add_batch(x[None], None)
            q, scale, zero, groups, *_ = task.quantize()
        ours = gptq(linear.weight, hessian([x]), bits, GROUP, symmetric=symmetric, act_order=act_order)
        theirs = quantize_block(q, scale[:, groups.long()], zero[:, groups.long()], bits).to(torch.uint8)
        assert torch.equal(groups.long(), ours.groups)
        assert int((theirs != ours.codes).sum()) == 0, name


def test_awq_agrees_with_the_library(tuned, tmp_path, monkeypatch):
    """Every layer's output error; and the search itself, on the very inputs and weights that the library's is given."""
    folder, model, _, samples, _ = tuned
    add_libraries("gptqmodel")
    from gptqmodel.looper.awq_processor import AWQProcessor

    seen, scales_of = [], {}
    search = AWQProcessor._compute_best_scale

    def recorded(self, x, w_mean, x_mean, module, layers, *args, **kwargs):
        result = search(self, x, w_mean, x_mean, module, layers, *args, **kwargs)
        scales_of.setdefault(len(layers), []).append(result[0].float())  # 3: q, k, v; 2: gate, up; 1: down
        if len(layers) == 1:  # down_proj: judged by its own output, so the inputs say it all
            seen.append((x.float().reshape(-1, x.shape[-1]), layers[0].weight.detach().float().clone(), result))
        return result

    monkeypatch.setattr(AWQProcessor, "_compute_best_scale", recorded)
    fields = {"bits": 4, "group_size": GROUP, "quant_method": "awq", "sym": False, "format": "gemm"}
    options = {"samples": samples, "fields": fields, "dtype": torch.float16, "backend": "awq_torch"}
    monkeypatch.chdir(tmp_path)  # the library writes logs/ wherever the process stands
    with quiet():  # in this process, where its search is watched
        quantize_and_save(str(folder), str(tmp_path / "awq"), **options)
    library = gptqmodel_load(tmp_path / "awq", device="cpu", dtype=torch.float16, backend="awq_torch")
    assert len(seen) == 3
    for i, (x, w, (scales, loss)) in enumerate(seen):
        found = search_scales([w], x, lambda ws, x=x: x @ ws[0].T, 4, GROUP)
        assert min(found.losses.values()) == pytest.approx(loss, rel=0.02)
        scaled = w * found.scales
        limit = search_clip(scaled, x / found.scales, 4, GROUP)[..., None]
        clipped = scaled.reshape(*limit.shape[:2], -1).clamp(-limit, limit).reshape(w.shape)
        ours = output_error(w, awq_grid(clipped, 4, GROUP).dequantize() / found.scales, x)
        layer = library.model.layers[i].mlp.down_proj
        with torch.no_grad():
            theirs = layer(torch.eye(w.shape[1], dtype=torch.float16)).T.float() / scales.float()
        assert ours == pytest.approx(output_error(w, theirs, x), rel=0.02)
    mine = copy.deepcopy(model)
    quantize_layers(mine, "awq", samples, bits=4, group=GROUP, progress=False)
    for name, x in layer_inputs(model, samples).items():
        number, leaf = int(name.split(".")[2]), name.split(".")[-1]
        layer, exact = library.get_submodule(name), model.get_submodule(name).weight
        with torch.no_grad():
            theirs = layer(torch.eye(exact.shape[1], dtype=torch.float16)).T.float()
        subset = {"o": 0, "gate": 2, "up": 2, "down": 1}.get(leaf.removesuffix("_proj"), 3)
        if subset:
            theirs = theirs / scales_of[subset][number]
        if leaf == "up_proj":  # its rows were divided by the scales of down_proj, which reads them
            theirs = theirs * scales_of[1][number][:, None]
        ours = output_error(exact, mine.get_submodule(name).unpacked().dequantize(), x)
        # In the first decoder layer both see the same inputs. Later ones see what their own earlier layers gave, in
        # float32 and in float16, and where two exponents tie the choice can then fall differently.
        assert ours == pytest.approx(output_error(exact, theirs, x), rel=0.1 if number else 0.02), name


@pytest.mark.parametrize("name", ["nf4", "fp4"])
def test_four_bit_codes_equal_bitsandbytes(tuned, name):
    add_libraries("bitsandbytes")
    import bitsandbytes.functional as F

    assert torch.equal(code_book(name), F.get_4bit_type(name, device="cpu"))
    _, model, *_ = tuned
    tensors = [m.weight.detach() for n, m in model.named_modules() if ".layers." in n and hasattr(m, "in_features")]
    g = torch.Generator().manual_seed(0)
    tensors += [torch.randn(7, 100, generator=g), torch.rand(333, 64, generator=g), torch.zeros(64, 2)]
    for w in tensors:
        packed, state = F.quantize_4bit(w, blocksize=64, quant_type=name)
        pair = packed.flatten()
        theirs = torch.stack([pair >> 4, pair & 15], 1).flatten()[: w.numel()]
        ours = quantize_blocks(w, code_book(name), 64)
        assert torch.equal(theirs, ours.codes) and torch.equal(state.absmax, ours.absmax)
        assert torch.allclose(F.dequantize_4bit(packed, state), dequantize_blocks(ours), atol=1e-6)


def test_double_quantisation_against_bitsandbytes():
    add_libraries("bitsandbytes")
    import bitsandbytes.functional as F

    book = dynamic_code_book()
    assert torch.equal(book, F.create_dynamic_map())
    w = torch.randn(1024, 512, generator=torch.Generator().manual_seed(0))
    _, state = F.quantize_4bit(w, blocksize=64, quant_type="nf4", compress_statistics=True)
    ours = quantize_blocks(w, code_book("nf4"), 64, double=True)
    assert torch.equal(state.state2.absmax, ours.absmax_scale) and torch.equal(state.offset, ours.absmax_mean)
    different = (state.absmax != ours.absmax_codes).nonzero().flatten()
    assert len(different) < 0.01 * state.absmax.numel()
    # Its CPU kernel looks an entry up without comparing both neighbours: where codes differ, ours is the nearer one.
    absmax = w.reshape(-1, 64).abs().amax(1) - ours.absmax_mean
    scaled = absmax / ours.absmax_scale.repeat_interleave(256)[: len(absmax)]
    for i in different.tolist():
        theirs, mine = book[state.absmax[i].long()], book[ours.absmax_codes[i].long()]
        assert (mine - scaled[i]).abs() <= (theirs - scaled[i]).abs() + 1e-7


def test_int8_equals_bitsandbytes():
    add_libraries("bitsandbytes")
    import bitsandbytes as bnb
    import bitsandbytes.functional as F

    g = torch.Generator().manual_seed(0)
    x, w = torch.randn(16, 192, generator=g).half(), torch.randn(96, 192, generator=g).half()
    x[:, 5] = 20
    codes, absmax, _ = F.int8_vectorwise_quant(w)
    ours = quantize_rows(w)
    assert torch.equal(codes, ours[0]) and torch.allclose(absmax / 127, ours[1])
    layer = bnb.nn.Linear8bitLt(192, 96, bias=False, has_fp16_weights=False, threshold=6.0)
    layer.weight = bnb.nn.Int8Params(w, requires_grad=False, has_fp16_weights=False)
    expected = int8_linear(x, w, 6.0)
    assert torch.allclose(layer.to("cpu")(x).float(), expected, atol=0.01 * expected.abs().max())


def test_a_whole_model(tuned, inputs):
    _, model, tokenizer, samples, held_out = tuned
    score = exact_match(model, tokenizer, held_out)[0]
    assert score >= 0.9
    for bits in (4, 3):
        errors, drift = {}, {}
        for method in ("nearest", "gptq", "awq"):
            changed = copy.deepcopy(model)
            given = () if method == "nearest" else samples
            quantize_layers(changed, method, given, bits=bits, group=GROUP, progress=False)
            errors[method] = linear_errors(model, changed, inputs)
            drift[method] = divergence(changed, model, tokenizer, held_out)
            if bits == 4:
                assert exact_match(changed, tokenizer, held_out)[0] >= 0.95 * score, method
                assert model_bytes(changed) < 0.4 * model_bytes(model)
        assert all(errors["gptq"][n] < errors["nearest"][n] for n in inputs), "GPTQ on every layer"
        assert sum(errors["awq"].values()) < sum(errors["nearest"].values()), "AWQ lowers the error of the layers"
        assert drift["gptq"] < min(drift["awq"], drift["nearest"]), drift
        # With 3 bits AWQ and rounding to nearest drift alike, and the model's training decides which drifts less.
        assert bits == 3 or drift["awq"] < drift["nearest"], drift
    eight = copy.deepcopy(model)
    quantize_layers(eight, "gptq", samples, bits=8, group=GROUP, progress=False)
    assert exact_match(eight, tokenizer, held_out)[0] >= 0.99 * score
    assert perplexity(eight, tokenizer, held_out) == pytest.approx(perplexity(model, tokenizer, held_out), rel=1e-3)


def test_libraries_save_reload_answer(tuned, tmp_path):
    folder, model, tokenizer, samples, held_out = tuned
    score = exact_match(model, tokenizer, held_out)[0]
    for bits in (4, 8):
        gptqmodel_quantize(folder, tmp_path / f"g{bits}", samples, bits=bits, group=GROUP, dtype=torch.float32)
    gptqmodel_quantize(folder, tmp_path / "a", samples, "awq", group=GROUP, backend="awq_torch")
    ways = {"g4": ("gptq_torch_aten", 0.95), "g8": ("gptq_torch_int8", 0.99), "a": ("awq_torch_aten", 0.95)}
    for name, (backend, least) in ways.items():
        loaded = gptqmodel_load(tmp_path / name, device="cpu", dtype=torch.bfloat16, backend=backend)
        assert exact_match(loaded, tokenizer, held_out)[0] >= least * score, name
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    for least, options in (
        (0.99, {"load_in_8bit": True}),
        (0.95, {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}),
    ):
        with quiet():
            where = {"device_map": {"": "cpu"}, "dtype": torch.float32}
            config = BitsAndBytesConfig(**options)
            AutoModelForCausalLM.from_pretrained(folder, quantization_config=config, **where).save_pretrained(
                tmp_path / "b"
            )
            loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "b", **where).eval()
            assert exact_match(loaded, tokenizer, held_out)[0] >= least * score


@TOGETHER
def test_refusals(tuned, in_four_bits, tmp_path):
    folder, model, _, samples, _ = tuned
    attempts = {
        "bits=9": lambda: gptqmodel_quantize(folder, tmp_path / "x", samples, bits=9, group=32),
        "'awq' with 4": lambda: gptqmodel_quantize(folder, tmp_path / "x", samples, "awq", bits=3, group=32),
        "group=100 does not divide": lambda: gptqmodel_quantize(folder, tmp_path / "x", samples, group=100),
        "set is empty": lambda: gptqmodel_quantize(folder, tmp_path / "x", [], group=32),
        "keys input_ids, labels": lambda: calibration_samples([{"input_ids": [1], "labels": [1]}]),
        "keys str": lambda: calibration_samples(["text"]),
        "sample 1 has no tokens": lambda: calibration_samples([{"input_ids": [1]}, {"input_ids": []}]),
        "length=99": lambda: joined_samples([{"input_ids": [1, 2]}], 99),
        "method='smooth'": lambda: quantize_layers(model, "smooth"),
        "no quantize_config.json": lambda: gptqmodel_load(tmp_path, device="cpu"),
        "backend='fastest'": lambda: gptqmodel_quantize(folder, tmp_path / "x", samples, group=32, backend="fastest"),
    }
    for line, attempt in attempts.items():
        with pytest.raises(QuantizationError, match=line.replace("(", r"\(")) as caught:
            attempt()
        assert "\n" not in str(caught.value)
    line = r"^gptq_triton on cpu failed: TritonV2Linear does not support device: cpu; backend='auto' takes a kernel"
    with pytest.raises(QuantizationError, match=line):
        gptqmodel_load(in_four_bits, device="cpu", backend="gptq_triton")
    assert not Path("logs").exists(), "GPTQModel's log folder was left behind"


def test_what_the_library_cannot_do_is_one_line_and_this_process_lives_on(tuned, tmp_path):
    """GPTQModel ends its process after an error in a worker thread; it is not this one, and the error is told."""
    samples = tuned[3][:2]
    folder = families(tmp_path, "gemma3")["gemma3"]
    line = r"quantize_and_save: TypeError: Gemma3RotaryEmbedding\.forward\(\) missing 1 required positional argument"
    with pytest.raises(ChildError, match=line) as caught:
        gptqmodel_quantize(folder, tmp_path / "x", samples, "awq", group=GROUP, backend="awq_torch")
    assert "\n" not in str(caught.value) and not (tmp_path / "x").exists()


@TOGETHER
def test_a_saved_checkpoint_is_loaded_like_any_other_model(tuned, in_four_bits, tmp_path, monkeypatch):
    """In a process that has asked for no library yet, as a reader's who measures or serves what notebook 10 left."""
    _, _, tokenizer, _, rows = tuned
    command = [sys.executable, "-c", READ, str(in_four_bits), rows[0]["prompt"]]
    done = subprocess.run([*command, "gptq"], capture_output=True, text=True, check=True)
    model = gptqmodel_load(in_four_bits, device="cpu", dtype=torch.float32)
    ids = tokenizer(rows[0]["prompt"], return_tensors="pt")
    want = model.generate(**ids, max_new_tokens=8, do_sample=False)[0].tolist()
    assert json.loads(done.stdout.splitlines()[-1]) == want
    monkeypatch.setenv("ROCM_GUIDE_QUANTIZATION", str(tmp_path / "nowhere"))
    for method, line in {
        "gptq": "gptqmodel is not installed; run make course",
        "": "for quantised weights call rocm_guide.quantize.libraries.add_reader first",
    }.items():
        done = subprocess.run([*command, method], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and line in done.stderr.splitlines()[-1]


@TOGETHER
@pytest.mark.parametrize(("method", "kernel"), [("gptq", "TorchLinear"), ("awq", "AwqTorchLinear")])
def test_on_a_gpu_a_checkpoint_gets_a_kernel_that_need_not_be_compiled(
    tuned, in_four_bits, tmp_path, monkeypatch, method, kernel
):
    if method == "awq":
        gptqmodel_quantize(tuned[0], tmp_path / "g", tuned[3][:4], method, group=GROUP, backend="awq_torch")
    else:
        (tmp_path / "g").symlink_to(in_four_bits)
    with as_ready_model(read_checkpoint(tmp_path / "g")) as ready, quiet():  # what `transformers serve` gets there
        assert (ready.name, ready.quantised) == ("g", method) and ready.folder != tmp_path / "g"
        served, _ = load_model(str(ready.folder), device="cpu", dtype=torch.bfloat16)
    assert type(served.model.layers[0].mlp.down_proj).__name__ == kernel
    assert not ready.folder.exists() and (tmp_path / "g" / "model.safetensors").is_file(), "links alone go away"

    from transformers import AutoModelForCausalLM

    asked = []
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **given: asked.append(given) or served)
    load_model(str(tmp_path / "g"), device="cuda", dtype=torch.bfloat16)
    load_model(str(tmp_path / "g"), device="cpu", dtype=torch.bfloat16)
    load_model(str(tmp_path / "g"), device="cuda", dtype=torch.bfloat16, quantization_config={"backend": "mine"})
    assert asked[0]["config"].quantization_config["backend"] == READY_KERNELS[method]
    assert "config" not in asked[1] and "config" not in asked[2], "a CPU's choice and the reader's own stay"


def test_what_is_declared_for_rocm():
    add_libraries()
    assert "TorchLinear" in kernels("gptq", "rocm") and "ExllamaV2Linear" not in kernels("gptq", "rocm")
    assert "AwqGEMMLinear" in kernels("awq", "rocm") and "MarlinLinear" in kernels("gptq", "cuda")
    assert list(kernels("gptq", "rocm")) == ["TorchLinear"], "notebook 10 says that there is no other"
    import bitsandbytes
    import gptqmodel

    # What notebook 11 says of the kernels that are declared for ROCm: NVIDIA's assembly, and nothing else.
    folder = Path(gptqmodel.__file__).parents[1] / "gptqmodel_ext/awq"
    sources = [p.read_text() for p in folder.rglob("*") if p.suffix in (".cu", ".cuh", ".cpp", ".h")]
    assert any("mma.sync" in s for s in sources) and not any("__HIP" in s or "USE_ROCM" in s for s in sources)
    # What notebook 12 says of bitsandbytes there.
    rules = (Path(bitsandbytes.__file__).parent / "backends/cuda/ops.py").read_text()
    assert "calibrated on MI308X (gfx942): bf16/fp16 win through M<=4" in rules
    assert "seen on MI300X for some small-n int8 gemms" in rules


def test_other_notebooks_are_left_alone():
    """PEFT and TRL must not find the libraries before they are asked for."""
    code = "import peft, trl, sys; print([m for m in ('gptqmodel', 'bitsandbytes', 'torchao') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_folder_is_complete():
    """What the libraries require is there, in the folder or in the environment, in a version that they accept."""
    add_libraries("bitsandbytes")
    own = OWN_FOLDERS["quantization"]
    folder = own.path
    if str(folder) not in sys.path:
        pytest.skip("the libraries lie in the environment itself; pip has checked them")
    from importlib.metadata import version

    pins = dict(line.split("==") for line in own.requirements)
    found = [PathDistribution(p) for p in folder.glob("*.dist-info")]
    assert {d.metadata["Name"].lower().replace("_", "-"): d.version for d in found} == pins
    for distribution in found:
        for text in distribution.requires or []:
            need = Requirement(text)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                if need.name.lower() == "maturin":  # builds pypcre's wheel; nothing runs it afterwards
                    continue
                assert need.specifier.contains(version(need.name), prereleases=True), json.dumps(
                    [distribution.name, text]
                )
