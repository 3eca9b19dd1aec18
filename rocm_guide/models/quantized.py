# SPDX-License-Identifier: MIT
"""The bytes that a checkpoint stores for a matrix, from the ``quantization_config`` of its config.json.

Counted are GPTQ, AWQ, bitsandbytes, compressed-tensors, FP8 (DeepSeek's blocks and FBGEMM's rows) and MXFP4: the codes,
and the scales and zeros beside them. Sources: the layers that GPTQModel, AutoAWQ, bitsandbytes and compressed-tensors
put in the place of a linear layer, and transformers' ``utils/quantization_config.py``. Embeddings and the output layer
stay as they are, which is what all of these do unless told otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from rocm_guide.models.layer import Layer, SizesError

__all__ = ["NF4_BYTES"]

METHODS = ("gptq", "awq", "bitsandbytes", "compressed-tensors", "fp8", "fbgemm_fp8", "mxfp4")
#: Bytes of one NF4 weight with double quantisation: 4 bits, an 8-bit scale for each 64, an fp32 scale for each 256 of
#: those. Source: Dettmers et al., "QLoRA", arXiv:2305.14314, section 3 (0.127 bits for the scales).
NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)

_Bytes = Callable[[int, int], float]  # (inputs, outputs) of a matrix -> bytes


def linear_bytes(fields: Mapping[str, Any], layers: Sequence[Layer]) -> tuple[int, str]:
    """Return the bytes of all matrices and experts of ``layers``,
    and the name of their format ("bf16" if not quantised).

    Raises:
        SizesError: a method that is not counted here, or a number of bits that means nothing.

    >>> layer = Layer({"q_proj": (128, 64)}, 0, 0, 64, 64, 64, 128, 0)
    >>> linear_bytes({}, [layer])
    (16384, 'bf16')
    >>> linear_bytes({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}, [layer])
    (4256, 'awq, 4 bits')
    """
    config = fields.get("quantization_config") or fields.get("compression_config")
    if not config:
        return sum(_matrices(layer, lambda _: _plain) for layer in layers), "bf16"
    config = config.to_dict() if hasattr(config, "to_dict") else config
    if not isinstance(config, Mapping):
        raise SizesError(f"quantization_config={config!r:.60}: no JSON object; take it as save_pretrained wrote it")
    method = str(getattr(config.get("quant_method"), "value", config.get("quant_method", "compressed-tensors")))
    skipped = [w for key in ("modules_to_not_convert", "llm_int8_skip_modules", "ignore") for w in _words(config, key)]
    choose, label = _format(config, method)

    def chosen(i: int, name: str) -> _Bytes:
        return _plain if _named(skipped, i, name) else choose(i, name)

    total = 0.0
    for i, layer in enumerate(layers):
        total += _matrices(layer, partial(chosen, i))
    return round(total), label


def _plain(inputs: int, outputs: int) -> float:
    return 2 * inputs * outputs


def _matrices(layer: Layer, bytes_of: Callable[[str], _Bytes]) -> int:
    """Return the sum over a layer's matrices and experts; an expert is three matrices."""
    total = sum(bytes_of(name)(a, b) for name, (a, b) in layer.matrices.items())
    if layer.experts:
        inner, hidden = layer.expert_inner, layer.expert // (3 * layer.expert_inner)
        of = bytes_of("experts")
        total += layer.experts * (2 * of(hidden, inner) + of(inner, hidden))
    return round(total)


def _words(config: Mapping[str, Any], key: str) -> Iterable[str]:
    found = config.get(key) or ()
    if not isinstance(found, list | tuple):
        raise SizesError(f"{key}={found!r:.60} in a quantization_config: give a list of names")
    return [str(word) for word in found]


def _named(patterns: Iterable[str], layer: int, name: str) -> bool:
    """Return whether a quantiser's patterns mean this matrix: a part of its full name, or ``re:`` and an expression."""
    part = "self_attn" if re.search("q_|kv|k_proj|v_proj|o_proj|out_proj|attn", name) else "mlp"
    full = f"model.layers.{layer}.{part}.{name}"
    for pattern in patterns:
        if pattern.startswith("re:"):
            try:
                if re.match(pattern[3:], full):
                    return True
            except re.error as e:
                raise SizesError(f"{pattern!r}: no regular expression ({e}); mend the configuration") from e
        elif f".{pattern}." in f".{full}.":
            return True
    return False


def _format(config: Mapping[str, Any], method: str) -> tuple[Callable[[int, str], _Bytes], str]:
    """Return (which bytes a matrix takes, name of the format)."""
    if method in ("gptq", "awq"):
        bits, group = _number(config, "bits", 4), _group(config, -1)
        one = _grouped(bits, group, zeros=True, order=method == "gptq")
        return lambda i, name: one, f"{method}, {bits} bits"
    if method == "bitsandbytes" or method.startswith("bitsandbytes"):
        if config.get("load_in_8bit"):
            return lambda i, name: lambda a, b: a * b + 4 * b, "bitsandbytes, 8 bits"
        four = NF4_BYTES if config.get("bnb_4bit_use_double_quant") else 0.5 + 4 / 64
        return lambda i, name: lambda a, b: four * a * b, "bitsandbytes, 4 bits"
    if method == "fp8":
        rows, columns = _block(config, "weight_block_size", (0, 0))
        size = rows * columns
        return lambda i, name: lambda a, b: a * b + (4 * a * b / size if size else 4), "fp8"
    if method == "fbgemm_fp8":
        return lambda i, name: lambda a, b: a * b + 4 * b, "fp8"
    if method == "mxfp4":  # two codes a byte and an 8-bit exponent for each 32; only the experts
        return lambda i, name: (lambda a, b: a * b * (0.5 + 1 / 32)) if name == "experts" else _plain, "mxfp4"
    if method == "compressed-tensors":
        groups = config.get("config_groups") or {}
        named = list(groups.values()) if isinstance(groups, Mapping) else [groups]
        if not all(isinstance(g, Mapping) and isinstance(g.get("weights") or {}, Mapping) for g in named):
            raise SizesError(f"config_groups={groups!r:.60} in a quantization_config: give a JSON object of objects")
        weights_of = [(_words(g, "targets"), g["weights"]) for g in named if g.get("weights")]
        made = [(targets, _compressed(weights)) for targets, weights in weights_of]
        if not made:
            raise SizesError("compressed-tensors: its configuration has no weights in config_groups; nothing to count")
        widths = sorted({w.get("num_bits") or 8 for _, w in weights_of})

        def choose(layer: int, name: str) -> _Bytes:
            return next((b for targets, b in made if "Linear" in targets or _named(targets, layer, name)), _plain)

        return choose, f"compressed-tensors, {' and '.join(map(str, widths))} bits"
    raise SizesError(f"quantisation {method!r}: its bytes are not counted here; known are {', '.join(METHODS)}")


def _compressed(weights: Mapping[str, Any]) -> _Bytes:
    bits = _number(weights, "num_bits", 8)
    strategy, zeros = str(weights.get("strategy") or "tensor"), weights.get("symmetric") is False
    if strategy == "block":
        rows, columns = _block(weights, "block_structure", (128, 128))
        return lambda a, b: a * b * bits / 8 + 2 * a * b / (rows * columns)
    group = _group(weights, 128) if "group" in strategy else -1
    return _grouped(bits, group, zeros=zeros, order=False)


def _grouped(bits: int, group: int, *, zeros: bool, order: bool) -> _Bytes:
    """Count codes, a 16-bit scale and a zero as wide as a code for each group of inputs,
    and GPTQ's order of the inputs.
    """

    def size(inputs: int, outputs: int) -> float:
        groups = 1 if group < 1 else -(-inputs // group)
        scales = groups * outputs * (2 + (bits / 8 if zeros else 0))
        return inputs * outputs * bits / 8 + scales + (4 * inputs if order else 0)

    return size


def _number(config: Mapping[str, Any], key: str, default: int) -> int:
    bits = config.get(key, default)
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= 16:
        raise SizesError(f"{key}={bits!r} in a quantization_config: give 1 to 16 bits")
    return bits


def _group(config: Mapping[str, Any], default: int) -> int:
    """Return the inputs of a group; -1 means all of them."""
    group = config.get("group_size") or default
    if isinstance(group, bool) or not isinstance(group, int):
        raise SizesError(f"group_size={group!r:.60} in a quantization_config: give a whole number, as 128 or -1")
    return group


def _block(config: Mapping[str, Any], key: str, default: tuple[int, int]) -> tuple[int, int]:
    """Return (rows, columns) of the blocks that have a scale."""
    block = config.get(key) or default
    if not isinstance(block, list | tuple) or len(block) != 2 or not all(type(n) is int for n in block):
        raise SizesError(f"{key}={block!r:.60} in a quantization_config: give two whole numbers, as [128, 128]")
    if block is not default and min(block) < 1:
        raise SizesError(f"{key}={block!r:.60} in a quantization_config: a block has at least one row and column")
    return block[0], block[1]
