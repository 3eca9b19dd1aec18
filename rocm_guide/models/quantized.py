# SPDX-License-Identifier: MIT
"""The bytes that a checkpoint stores for a matrix, from the ``quantization_config`` of its config.json.

Counted are the codes, and the scales and zeros beside them. Every key is either one that changes the bytes and is
counted, or one that is known to change none; any other is named, in an error or, where it is off, beside the format's
name. Sources: the layers that GPTQModel, AutoAWQ, bitsandbytes, compressed-tensors, Quark and torchao put in the place
of a linear layer, and transformers' ``utils/quantization_config.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from rocm_guide.common.base import shown
from rocm_guide.models.layer import Layer, SizesError

__all__ = ["METHODS", "NF4_BYTES", "reader", "stored", "torchao_recipe"]

#: Bytes of one NF4 weight with double quantisation: 4 bits, an 8-bit scale for each 64, an fp32 scale for each 256 of
#: those. Source: Dettmers et al., "QLoRA", arXiv:2305.14314, section 3 (0.127 bits for the scales).
NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)

_Bytes = Callable[[int, int], float]  # (inputs, outputs) of a matrix -> bytes
_HEAD = "lm_head"
#: Keys that say how a checkpoint was made, or how it is to be run, and nothing about its bytes.
_SILENT = {
    "gptq": "desc_act static_groups sym true_sequential damp_percent damp_auto_increment dataset tokenizer meta "
    "version model_name_or_path model_file_base_name is_marlin_format use_cuda_fp16 use_exllama exllama_config "
    "max_input_length cache_block_outputs batch_size pad_token_id block_name_to_quantize "
    "module_name_preceding_first_block model_seqlen "
    "backend checkpoint_format format quantizer pack_dtype mse act_group_aware hyb_act quant_log",
    "awq": "version zero_point backend do_fuse fuse_max_seq_len modules_to_fuse exllama_config sym desc_act format "
    "checkpoint_format dataset tokenizer meta pack_dtype",
    "bitsandbytes": "bnb_4bit_compute_dtype bnb_4bit_quant_type bnb_4bit_quant_storage llm_int8_threshold "
    "llm_int8_enable_fp32_cpu_offload bnb_4bit_use_double_quant",
    "compressed-tensors": "global_compression_ratio version run_compressed use_optimized_inference quantization_status",
    "fp8": "activation_scheme fmt scale_fmt version",
    "fbgemm_fp8": "activation_scale_ub",
    "mxfp4": "",
    "quark": "algo_config quant_mode version export softmax_quant_spec custom_mode log_severity_level",
    "torchao": "untie_embedding_weights version",
}
METHODS = tuple(_SILENT)


@dataclass
class _Recipe:
    """How one checkpoint stores its matrices.

    Attributes:
        label: name of the format.
        choose: full name of a matrix -> its bytes; None where it stays in 16 bits.
        counted: keys of the configuration that were read.
        keeps_head: the output layer is left as it is unless the configuration says otherwise.
    """

    label: str
    choose: Callable[[str], _Bytes | None]
    counted: tuple[str, ...]
    skipped: list[str] = field(default_factory=list)
    keeps_head: bool = True


@dataclass(frozen=True)
class Stored:
    """The matrices of a checkpoint as they are stored.

    Attributes:
        label: "bf16", or the format.
        inside, outside: bytes of the matrices and experts of the layers, and of the matrices outside them.
        kv_bytes: bytes of one number in the cache, as the checkpoint asks for it.
    """

    label: str
    inside: int
    outside: int
    kv_bytes: int = 2


def stored(
    fields: Mapping[str, Any],
    layers: Sequence[Layer],
    at: str = "model.layers",
    outside: Mapping[str, Any] | None = None,
) -> Stored:
    """Return the bytes of all matrices and experts of ``layers``, which the model holds under the name ``at``, and of
    the matrices ``outside`` them, name -> (inputs, outputs).

    Raises:
        SizesError: a method or a key that is not counted here, or a number that means nothing.

    >>> layer = Layer({"q_proj": (128, 64)}, 0, 0, 64, 64, 64, 128, 0)
    >>> stored({}, [layer])
    Stored(label='bf16', inside=16384, outside=0, kv_bytes=2)
    >>> stored({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}, [layer]).inside
    4256
    """
    label, of, kv_bytes = reader(fields)
    inside = 0.0
    for i, layer in enumerate(layers):
        inside += sum((of(f"{at}.{i}.{name}") or _plain)(*size) for name, size in layer.matrices.items())
        for name, size in layer.expert.items() if layer.experts else ():
            names = expert_names(f"{at}.{i}.{layer.experts_at}", name, layer.experts)
            inside += sum((of(full) or _plain)(*size) for full in names)
    beside = sum((of(name) or _plain)(*size) for name, size in (outside or {}).items())
    return Stored(label, round(inside), round(beside), kv_bytes)


def expert_names(base: str, matrix: str, experts: int) -> Iterator[str]:
    """Yield the names that a checkpoint gives one matrix of each expert; gate and up, one tensor, go by gate's."""
    leaf = matrix.replace("gate_up_proj", "gate_proj")
    return (f"{base}.{e}.{leaf}" for e in range(experts))


def reader(fields: Mapping[str, Any]) -> tuple[str, Callable[[str], _Bytes | None], int]:
    """Return (name of the format, full name of a matrix -> its bytes or None for 16 bits, bytes of a cached number).

    Raises:
        SizesError: see :func:`stored`.
    """
    config = fields.get("quantization_config") or fields.get("compression_config")
    if not config:
        return "bf16", lambda name: None, 2
    config = config.to_dict() if hasattr(config, "to_dict") else config
    if not isinstance(config, Mapping):
        raise SizesError(f"quantization_config={config!r:.60}: no JSON object; take it as save_pretrained wrote it")
    config = {key: value for key, value in config.items() if value is not None}
    method = str(getattr(config.get("quant_method"), "value", config.get("quant_method", "compressed-tensors")))
    method = {"bitsandbytes_4bit": "bitsandbytes", "bitsandbytes_8bit": "bitsandbytes"}.get(method, method)
    if method not in _READERS:
        raise SizesError(f"quantisation {method!r}: its bytes are not counted here; known are {', '.join(METHODS)}")
    recipe = _READERS[method](config)
    known = ("quant_method", *recipe.counted, *_SILENT[method].split())
    off = {key: value for key, value in config.items() if key not in known and _is_off(key, value)}
    _refuse_unknown(config, (*known, *off), method)
    skipped, choose = _Names(recipe.skipped), recipe.choose
    made: dict[str, _Bytes | None] = {}

    def of(name: str) -> _Bytes | None:
        kept = recipe.keeps_head and name.split(".")[-1] == _HEAD
        if name not in made:
            made[name] = None if kept or name in skipped else choose(name)
        return made[name]

    said = ", ".join(f"{shown(key, 60)}={value!r}" for key, value in off.items())
    return recipe.label + (f" (unknown and off: {said})" if off else ""), of, _kv_bytes(config)


#: A key whose name has one of these words may say how weights are stored by being off, 0 or empty, too.
_STORAGE = re.compile(
    r"bit|byte|dtype|type|format|scale|zero|group|block|pack|size|skip|ignore|exclu|modules|head|embed"
)


def _is_off(key: str, value: Any) -> bool:
    """Return whether an unknown key is off or empty and not about storage: the format's name says such a one."""
    empty = value is False or (isinstance(value, Mapping | list | tuple | str) and not value)
    return empty and not key.startswith("_") and not _STORAGE.search(key.lower())


def _refuse_unknown(config: Mapping[str, Any], known: Iterable[str], what: str) -> None:
    known = set(known)
    for key, value in config.items():
        if key not in known and not key.startswith("_"):
            fix = "if it does not change how weights are stored, take it out of a copy of config.json"
            raise SizesError(f"{shown(key, 60)}={value!r:.60}: this key of {what} is not counted here; {fix}")


def _plain(inputs: int, outputs: int) -> float:
    return 2 * inputs * outputs


class _Names:
    """A quantiser's patterns: names or parts of one, ``re:`` and an expression, or a form with ``*``.

    What stands before "layers.N" is not compared, because a checkpoint may call it otherwise than the model does
    ("language_model.model.layers.0", "model.layers.0").
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self.words: set[str] = set()
        self.expressions: list[re.Pattern[str]] = []
        self.globs: list[str] = []
        for pattern in patterns:
            if pattern.startswith("re:"):
                self.expressions.append(expression(pattern[3:]))
            elif re.search(r"[\\^$|(+]|\.\*", pattern):
                self.expressions.append(expression(pattern))
            elif "*" in pattern or "?" in pattern:
                self.globs.append(pattern)
            else:
                self.words.add(_from_layers(pattern.removesuffix(".weight")))

    def __contains__(self, name: str) -> bool:
        parts = _from_layers(name).split(".")
        n = len(parts)
        if any(".".join(parts[i:j]) in self.words for i in range(n) for j in range(i + 1, n + 1)):
            return True
        forms = other_names(name)
        if any(e.match(form) for e in self.expressions for form in forms):
            return True
        return any(fnmatchcase(form, glob) or fnmatchcase(form, f"{glob}.*") for glob in self.globs for form in forms)


def expression(text: str) -> re.Pattern[str]:
    """Return the compiled expression of a pattern."""
    try:
        return re.compile(text)
    except re.error as e:
        raise SizesError(f"{text!r}: no regular expression ({e}); mend the configuration") from e


def _from_layers(name: str) -> str:
    found = re.search(r"(?:^|\.)(?:layers|h|blocks)\.\d+(?:\.|$)", name)
    return name[found.start() :].lstrip(".") if found else name


def other_names(name: str) -> list[str]:
    """Return the names under which a checkpoint may hold the matrix, the model's own first.

    >>> other_names("model.layers.0.mlp.up_proj")[1:]
    ['language_model.model.layers.0.mlp.up_proj', 'model.language_model.layers.0.mlp.up_proj']
    """
    tail = _from_layers(name)
    fronts = ("model.", "language_model.model.", "model.language_model.") if tail != name else ()
    return list(dict.fromkeys([name, *(f"{front}{tail}" for front in fronts)]))


def _words(config: Mapping[str, Any], key: str) -> list[str]:
    found = config.get(key) or ()
    if not isinstance(found, list | tuple):
        raise SizesError(f"{key}={found!r:.60} in a quantization_config: give a list of names")
    return [str(word) for word in found]


def _object(value: Any, key: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SizesError(f"{key}={value!r:.60} in a quantization_config: give a JSON object")
    return value


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


def _grouped(bits: int, group: int, *, scale: float = 2, zeros: bool = False, order: bool = False) -> _Bytes:
    """Count codes, a scale and a zero as wide as a code for each group of inputs, and their order (4 bytes each)."""

    def size(inputs: int, outputs: int) -> float:
        groups = 1 if group < 1 else -(-inputs // group)
        scales = groups * outputs * (scale + (bits / 8 if zeros else 0))
        return inputs * outputs * bits / 8 + scales + (4 * inputs if order else 0)

    return size


def _blocks(bits: int, rows: int, columns: int, scale: int) -> _Bytes:
    return lambda a, b: a * b * bits / 8 + scale * -(-a // columns) * -(-b // rows)


def _needed(config: Mapping[str, Any], *keys: str) -> None:
    """Refuse a configuration that has none of these keys.

    Quantisers differ in what they take then: without ``group_size`` AutoGPTQ whole columns, GPTQModel 128.
    """
    if not any(key in config for key in keys):
        raise SizesError(f"{keys[0]} is missing in a quantization_config; write into a copy what the quantiser took")


def _gptq(config: Mapping[str, Any]) -> _Recipe:
    """Read GPTQModel's and AutoGPTQ's configuration; ``dynamic`` has an expression for each exception, first come."""
    _needed(config, "bits")
    _needed(config, "group_size")

    def one(given: Mapping[str, Any]) -> _Bytes:
        return _grouped(_number(given, "bits", 4), _group(given, -1), zeros=True, order=True)

    rules: list[tuple[re.Pattern[str], _Bytes | None]] = []
    widths = {_number(config, "bits", 4)}
    for key, given in _object(config.get("dynamic") or {}, "dynamic").items():
        if key.startswith("-:"):
            rules.append((expression(key[2:]), None))
            continue
        given = _object(given, f"dynamic[{key!r}]")
        _refuse_unknown(given, ("bits", "group_size", *_SILENT["gptq"].split()), "GPTQ's dynamic")
        merged = {**config, **given}
        widths.add(_number(merged, "bits", 4))
        rules.append((expression(key.removeprefix("+:")), one(merged)))
    default = one(config)
    blocks = config.get("modules_in_block_to_quantize") or []
    if not isinstance(blocks, list):
        raise SizesError(f"modules_in_block_to_quantize={blocks!r:.60}: give a list of names, or of lists of them")
    only = _Names(str(n) for group in blocks for n in (group if isinstance(group, list) else [group]))

    def choose(name: str) -> _Bytes | None:
        for pattern, size in rules:
            if any(pattern.match(form) for form in other_names(name)):
                return size
        inside = re.search(r"\.\d+\.", name) is not None
        return default if name.split(".")[-1] == _HEAD or (inside and (not blocks or name in only)) else None

    counted = ("bits", "group_size", "dynamic", _HEAD, "modules_in_block_to_quantize", "modules_to_not_convert")
    label = f"gptq, {' and '.join(map(str, sorted(widths)))} bits"
    return _Recipe(label, choose, counted, _words(config, "modules_to_not_convert"), not config.get(_HEAD))


def _awq(config: Mapping[str, Any]) -> _Recipe:
    _needed(config, "bits", "w_bit")
    _needed(config, "group_size", "q_group_size")
    bits = _number(config, "bits" if "bits" in config else "w_bit", 4)
    group = _group({"group_size": config.get("group_size") or config.get("q_group_size")}, -1)
    size = _grouped(bits, group, zeros=True)
    counted = ("bits", "w_bit", "group_size", "q_group_size", _HEAD, "modules_to_not_convert")
    skipped = _words(config, "modules_to_not_convert")
    return _Recipe(f"awq, {bits} bits", lambda name: size, counted, skipped, not config.get(_HEAD))


def _bitsandbytes(config: Mapping[str, Any]) -> _Recipe:
    """Read bitsandbytes' configuration. A list of its own replaces the default, which leaves out the output layer."""
    skipped = _words(config, "llm_int8_skip_modules")
    eight, four = (config.get(f"load_in_{n}bit") or config.get(f"_load_in_{n}bit") for n in (8, 4))
    counted = ("load_in_8bit", "load_in_4bit", "llm_int8_skip_modules", "llm_int8_has_fp16_weight")
    if (eight and four) or not (eight or four):
        raise SizesError(f"load_in_8bit={eight!r}, load_in_4bit={four!r} of bitsandbytes: one of them is true")
    if eight:
        wide = config.get("llm_int8_has_fp16_weight")
        size: _Bytes = _plain if wide else _grouped(8, -1, scale=4)
        return _Recipe("bitsandbytes, 8 bits", lambda name: size, counted, skipped, not skipped)
    each = NF4_BYTES if config.get("bnb_4bit_use_double_quant") else 0.5 + 4 / 64
    return _Recipe("bitsandbytes, 4 bits", lambda name: lambda a, b: each * a * b, counted, skipped, not skipped)


def _fp8(config: Mapping[str, Any]) -> _Recipe:
    rows, columns = _block(config, "weight_block_size", (0, 0))
    size = _blocks(8, rows, columns, 4) if rows else lambda a, b: a * b + 4
    skipped = _words(config, "modules_to_not_convert") + _words(config, "ignored_layers")
    counted = ("weight_block_size", "modules_to_not_convert", "ignored_layers", "dequantize", "kv_cache_scheme")
    return _Recipe("fp8", lambda name: None if config.get("dequantize") else size, counted, skipped)


def _fbgemm(config: Mapping[str, Any]) -> _Recipe:
    size = _grouped(8, -1, scale=4)
    return _Recipe("fp8", lambda name: size, ("modules_to_not_convert",), _words(config, "modules_to_not_convert"))


def _mxfp4(config: Mapping[str, Any]) -> _Recipe:
    """Two codes a byte and an 8-bit exponent for each 32; only the experts."""
    size = _grouped(4, 32, scale=1)
    whole = config.get("dequantize")
    counted = ("modules_to_not_convert", "dequantize")
    skipped = _words(config, "modules_to_not_convert")
    return _Recipe("mxfp4", lambda name: size if ".experts." in name and not whole else None, counted, skipped)


def _compressed(config: Mapping[str, Any]) -> _Recipe:
    groups = config.get("config_groups") or {}
    named = list(groups.values()) if isinstance(groups, Mapping) else [groups]
    if not all(isinstance(g, Mapping) and isinstance(g.get("weights") or {}, Mapping) for g in named):
        raise SizesError(f"config_groups={groups!r:.60} in a quantization_config: give a JSON object of objects")
    made, widths = [], set()
    for group in named:
        _refuse_unknown(group, ("targets", "weights", "input_activations", "output_activations", "format"), "a group")
        targets = _words(group, "targets")
        for word in targets:
            if word[:1].isupper() and word != "Linear" and "." not in word:
                raise SizesError(f"targets={word!r}: a class of layers that is not counted here; known is Linear")
        weights = group.get("weights")
        if weights:
            form = str(group.get("format") or config.get("format") or "")
            inputs = _object(group.get("input_activations") or {}, "input_activations")
            # NVFP4 that rounds its inputs too has a scale for all inputs of a matrix, in 32 bits.
            more = 4 if inputs.get("strategy") == "tensor_group" else 0
            size = None
            if form != "dense" and not config.get("dequantize"):
                size = _with_more(_compressed_weights(weights, form), more)
            made.append(("Linear" in targets, _Names(t for t in targets if t != "Linear"), size))
            widths.add(_number(weights, "num_bits", 8))
    if not made:
        raise SizesError("compressed-tensors: its configuration has no weights in config_groups; nothing to count")
    sparse = config.get("sparsity_config") or {}
    if _object(sparse, "sparsity_config").get("format", "dense") != "dense":
        fix = "take a dense checkpoint"
        raise SizesError(f"sparsity_config={sparse!r:.60}: sparse weights are not counted here; {fix}")

    def choose(name: str) -> _Bytes | None:
        exact = next((size for _, names, size in made if name in names), "none")
        if not isinstance(exact, str):
            return exact
        return next((size for every, _, size in made if every), None)

    none = () if config.get("transform_config") else ("transform_config",)  # the library writes {} for none
    counted = ("config_groups", "format", "ignore", "sparsity_config", "kv_cache_scheme", "dequantize", *none)
    label = f"compressed-tensors, {' and '.join(map(str, sorted(widths)))} bits"
    return _Recipe(label, choose, counted, _words(config, "ignore"), keeps_head=False)


def _with_more(size: _Bytes, more: int) -> _Bytes:
    return lambda a, b: size(a, b) + more


_WEIGHTS = "num_bits type symmetric strategy group_size block_structure dynamic actorder observer observer_kwargs "
_WEIGHTS += "scale_dtype zp_dtype"


def _compressed_weights(weights: Mapping[str, Any], form: str) -> _Bytes:
    _refuse_unknown(weights, _WEIGHTS.split(), "weights in compressed-tensors")
    bits = _number(weights, "num_bits", 8)
    kind = str(weights.get("type") or "int")
    strategy = str(weights.get("strategy") or ("group" if weights.get("group_size") else "tensor"))
    if strategy not in ("tensor", "channel", "group", "tensor_group", "block"):
        raise SizesError(f"strategy={strategy!r} of weights in compressed-tensors: is not counted here")
    if strategy == "block":
        return _blocks(bits, *_block(weights, "block_structure", (128, 128)), 2)
    if strategy == "tensor":
        return lambda a, b: a * b * bits / 8 + 2
    group = _group(weights, 128) if "group" in strategy else -1
    # The scales of the FP4 formats are themselves 8 bits wide: an exponent (MX) or an E4M3 number (NV).
    byte = weights.get("scale_dtype") in ("uint8", "torch.uint8")
    narrow = (kind == "float" and bits == 4) or form.startswith("mx") or byte
    order = weights.get("actorder") == "group"
    size = _grouped(bits, group, scale=1 if narrow else 2, zeros=weights.get("symmetric") is False, order=order)
    # NVFP4 has one more scale for the whole matrix, in 32 bits.
    return _with_more(size, 4) if strategy == "tensor_group" else size


#: Bits of Quark's types, and bytes of its scales.
_QUARK_BITS = {"fp8_e4m3": 8, "fp8_e5m2": 8, "int8": 8, "uint8": 8, "int4": 4, "uint4": 4, "fp4": 4, "int2": 2}
_QUARK_BITS |= {"fp6_e2m3": 6, "fp6_e3m2": 6}
_QUARK_WEIGHT = (
    "dtype qscheme group_size ch_axis scale_format scale_type is_dynamic symmetric observer_cls round_method "
)
_QUARK_WEIGHT += "scale_calculation_mode qat_spec mx_element_dtype zero_point_type is_scale_quant block_size "
_QUARK_WEIGHT += "enable_buffer_reuse max_input_numel"  # how Quark 0.13 computes, not what it stores


def _quark(config: Mapping[str, Any]) -> _Recipe:
    labels: set[str] = set()

    def one(given: Any, where: str) -> _Bytes | None:
        parts = ("weight", "input_tensors", "output_tensors", "bias", "target_device")
        _refuse_unknown(_object(given, where), parts, f"quark's {where}")
        weight = given.get("weight")
        if weight is None:
            return None
        if not isinstance(weight, Mapping):
            raise SizesError(f"weight={weight!r:.60} of quark's {where}: only one step of quantisation is counted here")
        _refuse_unknown(weight, _QUARK_WEIGHT.split(), "a weight in quark")
        kind = str(weight.get("dtype"))
        if kind not in _QUARK_BITS:
            raise SizesError(f"dtype={kind!r} of quark: is not counted here; known are {', '.join(_QUARK_BITS)}")
        labels.add(kind)
        bits, scheme = _QUARK_BITS[kind], str(weight.get("qscheme", "per_tensor"))
        inputs = _object(given.get("input_tensors") or {}, "input_tensors")
        fixed = 4 if inputs.get("qscheme") == "per_tensor" and inputs.get("is_dynamic") is False else 0
        zeros = kind.startswith(("int", "uint")) and weight.get("symmetric") is False
        if scheme == "per_tensor":
            return lambda a, b: a * b * bits / 8 + 4 + fixed
        if scheme not in ("per_channel", "per_group"):
            raise SizesError(f"qscheme={scheme!r} of quark: known are per_tensor, per_channel and per_group")
        exponent = weight.get("scale_format") == "e8m0"
        scale = 1 if exponent else 2 if scheme == "per_group" else 4
        return _grouped(bits, _group(weight, 32) if scheme == "per_group" else -1, scale=scale, zeros=zeros)

    default = one(config.get("global_quant_config") or {}, "global_quant_config")
    layers = [
        (_Names([n]), one(given, "layer_quant_config"))
        for n, given in _object(config.get("layer_quant_config") or {}, "layer_quant_config").items()
    ]
    for kind, given in _object(config.get("layer_type_quant_config") or {}, "layer_type_quant_config").items():
        if "Linear" not in kind:
            raise SizesError(f"layer_type_quant_config[{kind!r}] of quark: a class that is not counted here")
        default = one(given, "layer_type_quant_config")
    cache = _object(config.get("kv_cache_quant_config") or {}, "kv_cache_quant_config")

    kinds = ("global", "layer", "layer_type", "kv_cache")
    counted = ("exclude", *(f"{kind}_quant_config" for kind in kinds))
    # The same matrices stand among the layers' exceptions again where their outputs go to an 8-bit cache.
    layers = [
        (names, size)
        for (names, size), key in zip(layers, config.get("layer_quant_config") or {}, strict=True)
        if key not in cache or size
    ]
    label = f"quark, {' and '.join(sorted(labels))}"

    def choose(name: str) -> _Bytes | None:
        return next((size for names, size in layers if name in names), default)

    return _Recipe(label, choose, counted, _words(config, "exclude"), keeps_head=False)


#: torchao's recipes by their class and their older name: (bits, bytes of a scale and zero, default group or -1).
_TORCHAO = {
    "int4weightonly": (4, 4, 128),
    "int8weightonly": (8, 2, -1),
    "int8dynamicactivationint8weight": (8, 2, -1),
    "int8dynamicactivationint4weight": (4, 4, 32),
    "float8weightonly": (8, 4, -1),
    "float8dynamicactivationfloat8weight": (8, 4, -1),
}


def torchao_recipe(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return (key of torchao's recipe, its options) of a quantization_config.

    Raises:
        SizesError: a recipe that is not known.

    >>> torchao_recipe({"quant_type": {"default": {"_type": "Float8WeightOnlyConfig", "_data": {}}}})
    ('float8weightonly', {})
    """
    given = config.get("quant_type")
    if isinstance(given, Mapping):
        _refuse_unknown(given, ("default",), "torchao's quant_type")
        given = _object(given.get("default"), "quant_type['default']")
        kind, options = str(given.get("_type")), _object(given.get("_data") or {}, "_data")
    else:
        kind, options = str(given), _object(config.get("quant_type_kwargs") or {}, "quant_type_kwargs")
    plain = kind.lower().replace("_", "").removesuffix("config")
    if plain not in _TORCHAO:
        raise SizesError(f"quant_type={kind!r} of torchao: is not counted here; known are {', '.join(_TORCHAO)}")
    return plain, options


def _torchao(config: Mapping[str, Any]) -> _Recipe:
    kind, options = torchao_recipe(config)
    bits, scale, group = _TORCHAO[kind]
    silent = (
        "layout use_hqq zero_point_domain set_inductor_config preserve_zero int4_packing_format version mapping_type "
    )
    silent += "int4_choose_qparams_algorithm granularity activation_dtype weight_dtype mm_config kernel_preference "
    silent += "activation_value_lb activation_value_ub act_mapping_type weight_only_decode int4_tile_packed_ntile"
    _refuse_unknown(options, ("group_size", *silent.split()), f"torchao's {kind}")
    if config.get(key := "include_input_output_embeddings"):
        raise SizesError(f"{key}=True of torchao: embeddings in fewer bits are not counted here")
    size = _grouped(bits, _group(options, group), scale=scale)
    counted = ("quant_type", "quant_type_kwargs", "modules_to_not_convert", "include_input_output_embeddings")
    skipped = _words(config, "modules_to_not_convert")
    return _Recipe(f"torchao, {bits} bits", lambda name: size, counted, skipped, not skipped)


_READERS: dict[str, Callable[[Mapping[str, Any]], _Recipe]] = {
    "gptq": _gptq,
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed,
    "fp8": _fp8,
    "fbgemm_fp8": _fbgemm,
    "mxfp4": _mxfp4,
    "quark": _quark,
    "torchao": _torchao,
}


def _kv_bytes(config: Mapping[str, Any]) -> int:
    """Return the bytes of a cached number that the checkpoint asks for: 1 where it brings scales for an 8-bit cache."""
    scheme = config.get("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        return max(1, _number(scheme, "num_bits", 8) // 8)
    asked = scheme or config.get("kv_cache_quant_config")
    if isinstance(asked, str) and asked.upper() not in ("FP8", "INT8"):
        raise SizesError(f"{asked!r}: an 8-bit cache is counted here (FP8), and no other")
    return 1 if asked else 2
