# SPDX-License-Identifier: MIT
"""The sizes of a model from its configuration alone: parameters, the KV cache, the matrices that LoRA can adapt.

Reads a transformers configuration or the fields of a config.json. For the types that people use most there are
formulae (:mod:`rocm_guide.models.families`), so that a plan needs neither torch nor transformers; every other type is
built without weights and described (:mod:`rocm_guide.models.described`). How a quantised checkpoint stores its weights
stands in :mod:`rocm_guide.models.quantized`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rocm_guide.models.families import has_formula, read
from rocm_guide.models.layer import Layer, SizesError
from rocm_guide.models.quantized import stored

__all__ = ["LORA_TARGETS", "Sizes", "lora_parameters", "sizes_of"]

#: The matrices of a Llama layer, in the order in which they are used: what LoRA adapts by default.
LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class Sizes:
    """The sizes that memory and arithmetic depend on; make one with :func:`sizes_of`.

    Attributes:
        family: the configuration's ``model_type``.
        heads, kv_heads: number of attention heads, and of heads in the KV cache (1 for a compressed cache).
        groups: (layer, how many follow one another) from the first to the last.
        embedding: elements of the token embedding; ``output``: of the output layer, 0 if it is the embedding itself.
        beside: everything else outside the layers (positions, the last norm, an image encoder).
        outside_bytes: bytes of everything outside the layers as the checkpoint stores it.
        layers_at: the name of the list of layers in the model.
        kv_bytes: bytes of a number in a server's cache, as the checkpoint asks for it.
        linear_bytes: bytes of all matrices and experts of the layers as the checkpoint stores them.
        stored_as: "bf16", or the format of a quantised checkpoint.
        positions: rows of a learned table of positions (GPT-2, OPT), which end a text there; None for rotary ones,
            where the limit is one of quality.
    """

    family: str
    hidden: int
    heads: int
    kv_heads: int
    vocab: int
    groups: tuple[tuple[Layer, int], ...]
    embedding: int
    output: int
    beside: int
    linear_bytes: int
    stored_as: str
    outside_bytes: int
    layers_at: str = "model.layers"
    kv_bytes: int = 2
    positions: int | None = None

    @property
    def layers(self) -> int:
        return sum(count for _, count in self.groups)

    @property
    def tied(self) -> bool:
        """Return whether the output layer is the embedding."""
        return self.output == 0

    def over_layers(self, of: Callable[[Layer], float]) -> int:
        """Return the sum of ``of(layer)`` over all layers, as a whole number."""
        return round(sum(of(layer) * count for layer, count in self.groups))

    def most(self, of: Callable[[Layer], float]) -> int:
        """Return the largest ``of(layer)``."""
        return round(max(of(layer) for layer, _ in self.groups))

    @property
    def largest_layer(self) -> int:
        return self.most(lambda layer: layer.parameters)

    @property
    def outside(self) -> int:
        return self.embedding + self.output + self.beside

    @property
    def parameters(self) -> int:
        """All parameters.

        >>> sizes_of({"model_type": "gpt2"}).parameters
        124439808
        """
        return self.over_layers(lambda layer: layer.parameters) + self.outside

    @property
    def active(self) -> int:
        """Parameters that one token meets; fewer than all of them in a mixture of experts."""
        return self.over_layers(lambda layer: layer.active) + self.outside

    @property
    def linear(self) -> int:
        """Elements of all matrices and experts of the layers: what a quantised checkpoint stores in fewer bits."""
        return self.over_layers(lambda layer: layer.linear + layer.experts * layer.expert_linear)

    @property
    def stored_bytes(self) -> int:
        """Bytes of all weights as the checkpoint holds them, in bf16 where it is not quantised."""
        return self.linear_bytes + 2 * (self.parameters - self.outside - self.linear) + self.outside_bytes

    @property
    def quantised(self) -> bool:
        """Return whether the checkpoint stores its matrices in fewer bits."""
        return self.stored_as != "bf16"

    def kv_cache_bytes(self, tokens: int, *, batch: int = 1, bytes_per_number: int = 2) -> int:
        """Return the bytes of the KV cache for ``batch`` rows of ``tokens`` tokens; a window bounds its layer.

        >>> sizes_of({"model_type": "gpt2"}).kv_cache_bytes(1024)
        37748736
        """
        rows = self.over_layers(lambda layer: layer.cached * min(tokens, layer.window or tokens))
        return batch * (rows * bytes_per_number + self.over_layers(lambda layer: layer.state))

    def lora_targets(self) -> tuple[str, ...]:
        """Return the linear layers that LoRA adapts: all of them; in a mixture of experts those of the attention.

        Experts are one tensor of many matrices, which PEFT adapts in other ways; they are not counted.

        >>> sizes_of({"model_type": "gpt2"}).lora_targets()
        ('c_attn', 'c_proj', 'c_fc')
        """
        names = dict.fromkeys(name.split(".")[-1] for layer, _ in self.groups for name in layer.matrices)
        mixture = any(layer.experts for layer, _ in self.groups)
        return tuple(name for name in names if not (mixture and name in LORA_TARGETS[4:]))

    def lora_widths(self, layer: Layer, targets: Iterable[str]) -> list[tuple[int, int]]:
        """Return (inputs, outputs) of the matrices of ``layer`` that carry one of these names."""
        return [size for name, size in layer.matrices.items() if name.split(".")[-1] in tuple(targets)]

    def lora_parameters(self, targets: Iterable[str], r: int) -> int:
        """Return how many parameters LoRA adds: r (inputs + outputs) for each targeted matrix of each layer.

        Raises:
            SizesError: a target that no layer has.
        """
        targets = tuple(targets)
        if unknown := [t for t in targets if t not in self.lora_targets()]:
            raise SizesError(f"targets={unknown}: choose from {', '.join(self.lora_targets())}")
        return r * self.over_layers(lambda layer: sum(a + b for a, b in self.lora_widths(layer, targets)))


def fields_of(config: Any) -> dict[str, Any]:
    """Return the fields of a transformers configuration, or of a config.json that was read into a dictionary.

    Raises:
        SizesError: neither of the two.
    """
    if isinstance(config, Mapping):
        return dict(config)
    if hasattr(config, "to_dict"):
        return dict(config.to_dict())
    raise SizesError(f"{type(config).__name__}: give a transformers configuration or the fields of a config.json")


def sizes_of(config: Any) -> Sizes:
    """Return the sizes of a transformers configuration or of the fields of a config.json.

    Raises:
        SizesError: a family whose layers hold other tensors than are counted here, a missing or impossible size, or a
            quantisation that is not known.

    >>> from rocm_guide.models.shapes import SHAPES
    >>> sizes_of(SHAPES["llama-2-7b"]).parameters, sizes_of(SHAPES["mixtral-8x7b"]).active
    (6738415616, 12879925248)
    """
    fields = fields_of(config)
    if has_formula(fields):
        family, outer, layers, outside = read(fields)
    else:
        from rocm_guide.models.described import describe

        family, outer, layers, outside = describe(fields)
    groups = tuple((layer, len(list(same))) for layer, same in groupby(layers))
    matrices = outside.pop("matrices")
    found = stored(fields, layers, outer["layers_at"], matrices)
    rest = sum(outside.values()) - sum(a * b for a, b in matrices.values())
    kept = {"linear_bytes": found.inside, "outside_bytes": found.outside + 2 * rest, "stored_as": found.label}
    return Sizes(family, groups=groups, kv_bytes=found.kv_bytes, **kept, **outer, **outside)


def lora_parameters(config: Any, targets: tuple[str, ...], r: int) -> int:
    """Return how many parameters LoRA adds to a model: r (inputs + outputs) for each targeted matrix of each layer.

    Raises:
        SizesError: a target that no layer has, or a family that is not known.

    >>> from rocm_guide.models.shapes import SHAPES
    >>> lora_parameters(SHAPES["llama-2-7b"], ("q_proj", "v_proj"), 64)
    33554432
    """
    return sizes_of(config).lora_parameters(targets, r)
