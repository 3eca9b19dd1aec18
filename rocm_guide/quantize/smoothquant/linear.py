# SPDX-License-Identifier: MIT
"""W8A8: linear layers whose weights and activations are both int8, with the scales that they share or have each.

A matrix product of codes can be scaled back only by factors that move out of the sum over the input channels: one for
each token and one for each output channel, but none for an input channel. That is why an outlier *channel* of the
activations hurts, and why smoothing moves it into the weights beforehand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from rocm_guide.common.base import own_folder, write_text
from rocm_guide.kernels.int8_gemm import exact_product, to_int8
from rocm_guide.models.hub import refuse_remote_code
from rocm_guide.quantize.calibration import linear_layers
from rocm_guide.quantize.grid import QuantizationError
from rocm_guide.quantize.libraries import add_libraries, quiet
from rocm_guide.quantize.packing import save_packed

__all__ = [
    "SCHEMES",
    "Scheme",
    "W8A8Linear",
    "alpha_errors",
    "load_compressed",
    "quantization_config",
    "quantize_model",
    "quantize_weight",
    "save_compressed",
]


@dataclass(frozen=True)
class Scheme:
    """The sharing of the scales of a W8A8 layer.

    Attributes:
        weights: "tensor", one scale for the matrix, or "channel", one for each output channel.
        inputs: "tensor", one scale for all tokens, or "token", one for each.
        static: the inputs' scale comes from calibration data, instead of from each call.
    """

    weights: Literal["tensor", "channel"] = "channel"
    inputs: Literal["tensor", "token"] = "tensor"
    static: bool = True

    def __post_init__(self) -> None:
        if self.weights not in ("tensor", "channel") or self.inputs not in ("tensor", "token"):
            raise QuantizationError(
                f"weights={self.weights!r}, inputs={self.inputs!r}: a scale of weights belongs to a 'tensor' or "
                "'channel', one of inputs to a 'tensor' or 'token'"
            )
        if self.static and self.inputs == "token":
            raise QuantizationError("inputs='token' with static=True: tokens are new at every call; give static=False")


#: The ones that the course compares, by what their table calls them.
SCHEMES = {
    "per tensor, static": Scheme("tensor", "tensor", True),
    "per tensor, dynamic": Scheme("tensor", "tensor", False),
    "per token, per channel": Scheme("channel", "token", False),
    "per channel, static": Scheme("channel", "tensor", True),
}


def scale_of(largest: torch.Tensor, steps: float = 127.0) -> torch.Tensor:
    """Return the scale with which a largest magnitude becomes the code ``steps``, in float32; never 0.

    >>> scale_of(torch.tensor([254.0, 0.0])).tolist()[0]
    2.0
    """
    return largest.float().clamp(min=1e-12) / steps


def quantize_weight(
    weight: torch.Tensor, scheme: str = "channel", steps: float = 127.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (int8 codes, float32 scale) of (out, in) weights; the scale is (out, 1) for "channel", (1,) for "tensor".

    Args:
        steps: the code of the largest magnitude. 127 is SmoothQuant's; compressed-tensors and torchao take 127.5, half
            of the 255 steps from -128 to 127, so that the largest positive weight is limited by half a step.

    >>> codes, scale = quantize_weight(torch.tensor([[1.0, -0.5], [4.0, 1.0]]))
    >>> codes.tolist(), scale.shape
    ([[127, -64], [127, 32]], torch.Size([2, 1]))
    """
    weight = weight.detach().float()
    scale = scale_of(
        weight.abs().amax(1, keepdim=True) if scheme == "channel" else weight.abs().amax().reshape(1), steps
    )
    return to_int8(weight / scale), scale


class W8A8Linear(torch.nn.Module):
    """A linear layer on int8 codes; its tensors have the names and shapes of a compressed-tensors checkpoint.

    Attributes:
        weight: (out, in) int8.
        weight_scale: (out, 1) or (1,) float32.
        input_scale: (1,) float32 if the scheme is static, else None.
        bias: (out,) or None.

    On a GPU the product is the course's Triton kernel. On a CPU it is an exact product in torch: the same codes.
    """

    def __init__(self, linear: torch.nn.Linear, scheme: Scheme, largest: torch.Tensor | None = None) -> None:
        """
        Args:
            linear: what to quantise; it is not changed.
            largest: (in,) largest magnitude of every input channel; needed if the scheme is static.

        Raises:
            QuantizationError: a static scheme without ``largest``.
        """
        super().__init__()
        if scheme.static and largest is None:
            raise QuantizationError("a static scheme needs calibration: give the layer's part of input_ranges(…)")
        self.scheme, (self.out_features, self.in_features) = scheme, linear.weight.shape
        codes, scale = quantize_weight(linear.weight, scheme.weights)
        self.register_buffer("weight", codes)
        self.register_buffer("weight_scale", scale)
        static = scale_of(largest.amax().reshape(1)).to(codes.device) if scheme.static and largest is not None else None
        self.register_buffer("input_scale", static)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())

    def quantize_inputs(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (tokens, in) int8 codes and their scale, (tokens,) or (1,), of (tokens, in) inputs."""
        scale = self.input_scale
        if scale is None:
            sizes = x.abs().float()
            scale = scale_of(sizes.amax(1) if self.scheme.inputs == "token" else sizes.amax().reshape(1))
        return to_int8(x.float() / scale[:, None]), scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (…, in) to (…, out) in the type of ``x``."""
        codes, scale = self.quantize_inputs(x.flatten(0, -2))
        columns = self.weight_scale.flatten()
        if codes.is_cuda:
            from rocm_guide.kernels.int8_gemm import linear_scaled

            out = linear_scaled(codes, self.weight.T, scale, columns, self.bias, out_dtype=x.dtype)
        else:
            out = exact_product(codes, self.weight.T).float() * scale[:, None] * columns
            out = out if self.bias is None else out + self.bias.float()
        return out.to(x.dtype).unflatten(0, x.shape[:-1])

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move to another device, but keep the types of codes and scales."""
        kept = {name: b.dtype for name, b in self.named_buffers() if name != "bias"}
        super()._apply(fn, recurse)
        for name, dtype in kept.items():
            setattr(self, name, getattr(self, name).to(dtype))
        return self

    def extra_repr(self) -> str:
        """Return what print shows."""
        return f"in={self.in_features}, out={self.out_features}, {self.scheme}"


def quantize_model(model: Any, scheme: Scheme, ranges: Mapping[str, torch.Tensor] | None = None) -> Any:
    """Replace every linear layer inside the decoder layers by a :class:`W8A8Linear`, in place; returns the model.

    Embeddings, norms, attention's own products and the output head stay as they are.

    Raises:
        QuantizationError: no linear layers (the model is quantised already), or a layer without calibration. The model
            is then left as it was.
    """
    names = list(linear_layers(model))
    missing = [name for name in names if scheme.static and name not in (ranges or {})]
    if missing:
        raise QuantizationError(
            f"{missing[0]}: not calibrated, and the scheme is static; give input_ranges(model, samples), or a scheme "
            "with static=False"
        )
    for name in names:
        largest = ranges[name] if ranges and name in ranges else None
        model.set_submodule(name, W8A8Linear(model.get_submodule(name), scheme, largest))
    return model


def alpha_errors(inputs: torch.Tensor, weight: torch.Tensor, alphas: Any) -> tuple[float, dict[float, float]]:
    """Return the relative error |Y' - Y| / |Y| of one layer's output in W8A8: without smoothing, and for each alpha.

    Args:
        inputs, weight: (tokens, in) and (out, in).
        alphas: numbers from 0 to 1.

    Raises:
        QuantizationError: an alpha outside 0 to 1.
    """
    from rocm_guide.quantize.int8 import smoothing_scales

    scheme = SCHEMES["per tensor, static"]  # one scale for each tensor, which smoothing has to make do
    exact = inputs.float() @ weight.float().T

    def error(x: torch.Tensor, w: torch.Tensor) -> float:
        linear = torch.nn.Linear(w.shape[1], w.shape[0], bias=False, device="meta")
        linear.weight = torch.nn.Parameter(w, requires_grad=False)
        got = W8A8Linear(linear, scheme, x.abs().amax(0))(x)
        return float((got - exact).norm() / exact.norm())

    x, w = inputs.float(), weight.detach().float()
    scales = {alpha: smoothing_scales(x.abs().amax(0), w.abs().amax(0), alpha) for alpha in alphas}
    return error(x, w), {alpha: error(x / s, w * s) for alpha, s in scales.items()}


#: Version of the format, as the library that wrote it calls itself; readers do not compare it.
_VERSION = "0.20.0"


def quantization_config(scheme: Scheme, ignore: tuple[str, ...] = ("lm_head",)) -> dict[str, Any]:
    """Return the section ``quantization_config`` of config.json for W8A8 in ``scheme``.

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
    except (OSError, ValueError, AttributeError, RecursionError) as e:
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
