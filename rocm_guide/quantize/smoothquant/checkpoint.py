# SPDX-License-Identifier: MIT
"""Write a W8A8 model as a compressed-tensors folder, the format that transformers loads and vLLM serves.

The weights are stored as int8 codes with their scales beside them; config.json says what the numbers mean. Its section
``quantization_config`` has a group of target layers with a scheme for their weights and one for their inputs.
Source: the format's own library, https://github.com/vllm-project/compressed-tensors.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from rocm_guide.common.base import own_folder, write_text
from rocm_guide.models.hub import refuse_remote_code
from rocm_guide.quantize.grid import QuantizationError
from rocm_guide.quantize.libraries import add_libraries, quiet
from rocm_guide.quantize.packing import save_packed
from rocm_guide.quantize.smoothquant.linear import Scheme, W8A8Linear

__all__ = ["load_compressed", "quantization_config", "save_compressed"]

#: Version of the format, as the library that wrote it calls itself; readers do not compare it.
_VERSION = "0.20.0"


def quantization_config(scheme: Scheme, ignore: tuple[str, ...] = ("lm_head",)) -> dict[str, Any]:
    """Return the section ``quantization_config`` of config.json for W8A8 in ``scheme``.

    Args:
        ignore: linear layers that are not quantised.

    >>> config = quantization_config(Scheme("channel", "tensor", static=True))
    >>> group = config["config_groups"]["group_0"]
    >>> group["weights"]["strategy"], group["input_activations"]["dynamic"], config["format"]
    ('channel', False, 'int-quantized')
    """
    eight = {"num_bits": 8, "type": "int", "symmetric": True}
    weights = {**eight, "strategy": scheme.weights, "dynamic": False, "observer": "minmax"}
    inputs: dict[str, Any] = {**eight, "strategy": scheme.inputs, "dynamic": not scheme.static}
    inputs["observer"] = "minmax" if scheme.static else None
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": list(ignore),
        "kv_cache_scheme": None,
        "version": _VERSION,
    }


def save_compressed(model: Any, tokenizer: Any, folder: str | Path) -> dict[str, int]:
    """Write a model of :func:`rocm_guide.quantize.smoothquant.linear.quantize_model` as a compressed-tensors folder.

    Returns:
        The files written, with their bytes.

    Raises:
        QuantizationError: no W8A8 layers, layers of several schemes, a scheme that vLLM does not serve, or a folder
            that is not empty. Nothing is written then.
    """
    layers = {n: m for n, m in model.named_modules() if isinstance(m, W8A8Linear)}
    schemes = {m.scheme for m in layers.values()}
    if len(schemes) != 1:
        what = "has no W8A8 layers" if not schemes else f"has layers of {len(schemes)} schemes"
        raise QuantizationError(f"{type(model).__name__}: {what}; quantise it with quantize_model first")
    scheme = schemes.pop()
    if not scheme.static and scheme.inputs == "tensor":
        raise QuantizationError("inputs='tensor' with static=False: vLLM takes one static scale, or one for each token")
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise QuantizationError(f"{target.name}: is there and not empty; name a new folder")
    ignored = tuple(n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear))
    own_folder(target)
    config = model.config.to_dict() | {"quantization_config": quantization_config(scheme, ignored)}
    config["architectures"], config["dtype"] = [type(model).__name__], str(model.dtype).removeprefix("torch.")
    save_packed(model, target)
    model.generation_config.save_pretrained(target)
    tokenizer.save_pretrained(target)
    # Last, because a folder without it is no model: an interrupted call leaves nothing that loads.
    write_text(target / "config.json", json.dumps(config, indent=2, default=str) + "\n")
    return {p.name: p.stat().st_size for p in sorted(target.iterdir())}


def load_compressed(folder: str | Path, *, device: str = "cpu", dtype: torch.dtype | None = None) -> Any:
    """Load the folder as transformers does, with the compressed-tensors library: weights come back from their codes.

    Raises:
        QuantizationError: the library is not installed, or the folder holds no compressed-tensors model.
    """
    file = Path(folder) / "config.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8")).get("quantization_config", {})
    except (OSError, ValueError, AttributeError) as e:
        raise QuantizationError(f"{file}: cannot be read; name the folder that save_compressed wrote") from e
    if not isinstance(found, dict) or found.get("quant_method") != "compressed-tensors":
        raise QuantizationError(f"{file}: no compressed-tensors model; name the folder that save_compressed wrote")
    refuse_remote_code(folder)
    add_libraries("compressed_tensors")
    from transformers import AutoModelForCausalLM

    with quiet():
        model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=dtype or "auto", trust_remote_code=False)
        model = model.to(device).eval()
        with torch.inference_mode():
            model(torch.zeros(1, 1, dtype=torch.long, device=device))  # restores the weights from their codes
    return model
