# SPDX-License-Identifier: MIT
"""AMD Quark's checkpoints beside the course's own arithmetic: are codes, scales and counted bytes the same?

    pip install --no-deps --target FOLDER amd-quark scipy onnx onnx-ir onnxscript ml_dtypes zstandard sentencepiece
    PYTHONPATH=FOLDER python benchmarks/models/quark_formats.py

Quantises the course's untrained tiny model, in bfloat16, with three of Quark's schemes, reads the folders back with
transformers, and writes ``benchmarks/results/quark_formats.json``, which notebook 13 shows. No GPU is needed.
"""

from __future__ import annotations

import json
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from rocm_guide.common.base import write_text
from rocm_guide.kernels.fp8 import FP8, encode_fp8
from rocm_guide.models.load import checkpoint
from rocm_guide.models.sizes import sizes_of
from rocm_guide.quantize import BLOCK_FLOATS, decode_fp4, scale_blocks
from rocm_guide.quantize.calibration import linear_layers
from rocm_guide.quantize.libraries import add_libraries, quiet

#: Quark's scheme -> the course's name of the format.
SCHEMES = {"fp8": "FP8, tensor", "ptpc_fp8": "FP8, channel", "mxfp4": "MXFP4"}


def compare(source: str, scheme: str, folder: Path) -> dict[str, Any]:
    """Return the counts of one scheme: matrices, codes and scales that differ, bytes written and counted."""
    from quark.torch import LLMTemplate, ModelQuantizer, export_safetensors

    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16, trust_remote_code=False)
    weights = {n: m.weight.detach().clone() for n, m in linear_layers(model).items()}
    samples = [{"input_ids": row} for row in torch.randint(5, 300, (4, 64), generator=torch.Generator().manual_seed(0))]
    quantizer = ModelQuantizer(LLMTemplate.get("llama").get_config(scheme=scheme))
    model = quantizer.quantize_model(model, torch.utils.data.DataLoader(samples, batch_size=1))
    export_safetensors(model=quantizer.freeze(model), output_dir=str(folder))
    stored = load_file(folder / "model.safetensors")
    found = {"matrices": 0, "codes": 0, "codes that differ": 0, "scales": 0, "scales that differ": 0}
    for name, weight in weights.items():
        theirs, scales = stored[f"{name}.weight"], stored[f"{name}.weight_scale"]
        ours = scale_blocks(weight, BLOCK_FLOATS[SCHEMES[scheme]])
        if scheme == "mxfp4":
            values = decode_fp4(torch.stack([theirs & 15, theirs >> 4], -1).flatten(1))
            differ = values != decode_fp4(ours.codes)
            apart = torch.ldexp(torch.ones(scales.shape), scales.int() - 127) != ours.scales
        else:
            scales = scales.reshape(ours.scales.shape).float()
            apart = (scales / ours.scales - 1).abs() > 2**-8  # Quark keeps them in the model's type, bfloat16
            # So the codes are judged at the scale that was kept; the quotient is in bfloat16, too.
            differ = theirs.view(torch.uint8) != encode_fp8((weight / scales).bfloat16(), FP8["e4m3fn"])
        found["matrices"] += 1
        found["codes"] += differ.numel()
        found["codes that differ"] += int(differ.sum())
        found["scales"] += apart.numel()
        found["scales that differ"] += int(apart.sum())
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    again = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False)
    assert torch.isfinite(again(torch.arange(5, 37)[None]).logits).all()
    return found | {"bytes": sum(t.nbytes for t in stored.values()), "counted": sizes_of(config).stored_bytes}


def main() -> None:
    """Compare all schemes and write the result."""
    add_libraries("compressed_tensors")  # its folder has ninja too, with which Quark compiles
    with tempfile.TemporaryDirectory() as work:
        source, cases = str(checkpoint("tiny", Path(work) / "tiny")), {}
        for scheme in SCHEMES:
            with quiet():
                cases[scheme] = compare(source, scheme, Path(work) / scheme)
            print(scheme, cases[scheme])
    versions = {name: version(name) for name in ("amd-quark", "torch", "transformers")}
    target = Path(__file__).resolve().parents[1] / "results" / "quark_formats.json"
    write_text(target, json.dumps({"hardware": "CPU", "versions": versions, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
