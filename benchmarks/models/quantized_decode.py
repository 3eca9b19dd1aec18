# SPDX-License-Identifier: MIT
"""Does a quantised model decode faster? Llama-2-7B's shape, one row, each format eager and compiled, in one run.

    python -m benchmarks.models.quantized_decode          # on a GPU, about 7 minutes: results/quantized_decode.json
    python -m benchmarks.models.quantized_decode --dry    # on a CPU, in miniature; nothing is written
    python -m benchmarks.models.quantized_decode --plot   # only draw what is stored

Decoding one token reads every weight once, so fewer bytes should mean less time. "eager" calls one kernel after the
other from Python with a growing cache; "compiled" is torch.compile over a static cache, recorded as a GPU graph, where
Python costs nothing. Weights are random: speed and memory do not depend on them. The correlation of the logits with
those of the 16-bit model tells that each format computes the same model; a way that cannot run is recorded with its
reason.

- NF4: bitsandbytes. int8, int4 (groups of 128) and float8: torchao, weights only; int4 with PyTorch's own int4 kernel.
- FP8 x FP8: weights and activations in 8 bits, one scale each, rocm_guide's skinny GEMM.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.models.compile_decode import build
from benchmarks.timing import RESULTS, save_plot
from rocm_guide.common.base import write_text

PROMPT, TOKENS, RUNS = 64, 128, 3
#: What a format raises that does not run here: its reason is the result.
FAILURES = (RuntimeError, ImportError, AssertionError, TypeError, ValueError)


class SkinnyLinear(nn.Module):
    """A linear layer without bias, weight and activations in fp8 with one scale each. (rows, in) -> (rows, out)."""

    def __init__(self, layer: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        self.largest = torch.finfo(dtype).max
        scale = layer.weight.detach().abs().max().float() / self.largest
        self.weight = nn.Parameter((layer.weight.detach().float() / scale).to(dtype), requires_grad=False)
        self.scale = nn.Parameter(scale, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply the prompt's many rows by torch's GEMM, up to 32 by the skinny one."""
        from rocm_guide.kernels.gemm_skinny import gemm_skinny

        rows = x.reshape(-1, x.shape[-1])
        scale = rows.abs().max().float().clamp(min=1e-12) / self.largest
        small = (rows.float() / scale).to(self.weight.dtype)
        if len(rows) > 32:
            out = torch._scaled_mm(small, self.weight.T, scale, self.scale, out_dtype=x.dtype)
        else:
            # The scales stay on the GPU: as numbers, each call would wait for it.
            out = (gemm_skinny(small, self.weight, out_dtype=torch.float32) * (scale * self.scale)).to(x.dtype)
        return out.view(*x.shape[:-1], -1)


def replace_linears(model: nn.Module, make: Callable[[nn.Linear], nn.Module]) -> None:
    """Replace every linear layer but the output one by ``make(layer)``, one at a time."""
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.Linear) and "lm_head" not in name:
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, make(layer))


def nf4(model: nn.Module) -> None:
    """Quantise by bitsandbytes: codes of 4 bits, a scale for every 64."""
    import bitsandbytes as bnb

    def make(layer: nn.Linear) -> nn.Module:
        new = bnb.nn.Linear4bit(
            layer.in_features, layer.out_features, bias=False, compute_dtype=layer.weight.dtype, quant_type="nf4"
        )
        device = layer.weight.device
        new.weight = bnb.nn.Params4bit(layer.weight.data, requires_grad=False, quant_type="nf4")
        return new.to(device)

    replace_linears(model, make)


def torchao(kind: str) -> Callable[[nn.Module], None]:
    """Return one of torchao's formats for weights alone."""

    def change(model: nn.Module) -> None:
        from torchao.quantization import Float8WeightOnlyConfig, Int4WeightOnlyConfig, Int8WeightOnlyConfig, quantize_

        configs: dict[str, Any] = {
            "int8": Int8WeightOnlyConfig,
            "int4": lambda: Int4WeightOnlyConfig(group_size=128, int4_packing_format="tile_packed_to_4d"),
            "float8": Float8WeightOnlyConfig,
        }
        quantize_(model, configs[kind](), lambda m, name: isinstance(m, nn.Linear) and "lm_head" not in name)

    return change


def skinny(model: nn.Module) -> None:
    """Replace the linear layers by rocm_guide's skinny GEMM in fp8."""
    dtype = torch.float8_e4m3fnuz if torch.version.hip else torch.float8_e4m3fn
    replace_linears(model, lambda layer: SkinnyLinear(layer, dtype))


WAYS: dict[str, Callable[[nn.Module], None]] = {
    "bfloat16": lambda model: None,
    "int4, torchao": torchao("int4"),
    "int8, torchao": torchao("int8"),
    "NF4, bitsandbytes": nf4,
    "FP8 x FP8, rocm_guide": skinny,
    "float8, torchao": torchao("float8"),
}


def reason(error: Exception) -> str:
    """Say in one line why a way cannot run."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"


def one_way(change: Callable[[nn.Module], None], dry: bool, reference: torch.Tensor | None) -> dict[str, Any]:
    """Measure memory, logits, and tokens per second eager and compiled of one format."""
    from rocm_guide.tune.compilation.decoder import Decoder, decode_speed

    device = "cpu" if dry else "cuda"
    model = build(2 if dry else 32, dry, device, torch.bfloat16)
    before = time.perf_counter()
    change(model)
    gc.collect()
    ids = torch.randint(4, model.config.vocab_size, (1, PROMPT), generator=torch.Generator().manual_seed(1)).to(device)
    row: dict[str, Any] = {"seconds_to_quantise": round(time.perf_counter() - before, 1)}
    if not dry:
        torch.cuda.empty_cache()
        row["gib"] = round(torch.cuda.memory_allocated() / 2**30, 2)
    with torch.no_grad():
        row["logits"] = model(ids).logits.float().flatten()
    if reference is not None:
        row["correlation"] = round(torch.corrcoef(torch.stack([row["logits"], reference]))[0, 1].item(), 4)
    tokens, runs = (8, 2) if dry else (TOKENS, RUNS)
    decoders: dict[str, dict[str, Any]] = {"eager": {"cache": "dynamic"}, "compiled": {"mode": "reduce-overhead"}}
    for name, options in decoders.items():
        torch._dynamo.reset()
        try:
            done = decode_speed(Decoder(model, 1, PROMPT + tokens, **options), ids, tokens, runs=runs)
            row[name] = round(statistics.median(done["tokens_per_s"]), 1)
            if name == "compiled":
                row["warmup_s"], row["kernels"] = round(done["warmup"].seconds, 1), done["warmup"].kernels
        except FAILURES as error:
            row[name], row[f"{name}_reason"] = (
                None,
                f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}",
            )
    return row


def measure(dry: bool, only: list[str]) -> dict[str, Any]:
    """Measure all formats; keep what there is after each one."""
    from rocm_guide.common.device import accelerator
    from rocm_guide.common.host import host_facts
    from rocm_guide.quantize.libraries import add_libraries

    versions = {"torch": torch.__version__, **add_libraries("bitsandbytes", "torchao")}
    report: dict[str, Any] = {
        "question": "Tokens per second of one row of a quantised Llama-2-7B (random weights), eager and compiled.",
        "hardware": accelerator().label(),
        "host": host_facts(),
        "versions": versions,
        "prompt": PROMPT,
        "tokens": TOKENS,
        "ways": {},
    }
    reference = None
    for name, change in WAYS.items():
        if only and name not in only and reference is not None:
            continue
        try:
            row = one_way(change, dry, reference)
            logits = row.pop("logits")
            reference = logits if reference is None else reference
        except FAILURES as error:
            row = {"reason": reason(error)}
        report["ways"][name] = row
        print(name, json.dumps(row), flush=True)
        if not dry:
            write_text(RESULTS / "quantized_decode.json", json.dumps(report, indent=1) + "\n")
        gc.collect()
        if not dry:
            torch.cuda.empty_cache()
    return report


def plot(report: dict[str, Any]) -> Any:
    """Plot the tokens per second, eager beside compiled."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from rocm_guide.common.plots import PALETTE, house_style

    house_style()
    rows = {name: row for name, row in report["ways"].items() if row.get("eager") or row.get("compiled")}
    fig, ax = plt.subplots(figsize=(9, 4))
    for n, way in enumerate(("eager", "compiled")):
        values = [row.get(way) or 0 for row in rows.values()]
        bars = ax.bar([i + (n - 0.5) * 0.4 for i in range(len(rows))], values, 0.38, label=way, color=PALETTE[n])
        ax.bar_label(bars, [f"{v:.0f}" if v else "-" for v in values], fontsize=9)
    ax.set_xticks(range(len(rows)), [name.replace(", ", "\n") for name in rows], fontsize=9)
    ax.set_ylabel("tokens per second, one row (median)")
    ax.set_title("Decoding with quantised weights, Llama-2-7B's shape")
    ax.margins(y=0.15)
    ax.legend()
    fig.suptitle(report["hardware"], fontsize=9)
    return fig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--plot", action="store_true")
    parser.add_argument("--only", nargs="+", default=[], help="formats, beside bfloat16")
    options = parser.parse_args()
    report = (
        json.loads((RESULTS / "quantized_decode.json").read_text())
        if options.plot
        else measure(options.dry, options.only)
    )
    if not options.dry:
        save_plot("quantized_decode", plot(report))


if __name__ == "__main__":
    main()
