# SPDX-License-Identifier: MIT
"""Calibration data: checked samples, what every linear layer sees of them, and the error that a change makes there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rocm_guide.common.base import write_text
from rocm_guide.quantize.grid import QuantizationError, output_error
from rocm_guide.quantize.packing import PackedLinear

__all__ = ["calibration_set", "joined_samples", "layer_inputs", "linear_errors", "linear_layers", "write_texts"]


def calibration_samples(samples: Sequence[Mapping[str, Any]]) -> list[dict[str, torch.Tensor]]:
    """Return samples as (1, length) tensors, checked.

    Args:
        samples: mappings with ``input_ids`` and, if wanted, ``attention_mask``; lists or tensors.

    Raises:
        QuantizationError: no samples, other keys, or a sample without tokens.

    >>> calibration_samples([{"input_ids": [1, 5, 7]}])[0]["input_ids"].shape
    torch.Size([1, 3])
    >>> try:
    ...     calibration_samples([{"text": "a"}])
    ... except QuantizationError as e:
    ...     print(e)
    calibration sample 0 has the keys text; give input_ids and attention_mask, no others
    """
    if not len(samples):
        raise QuantizationError("the calibration set is empty; give at least one sample")
    checked = []
    for i, sample in enumerate(samples):
        keys = set(sample) if isinstance(sample, Mapping) else {type(sample).__name__}
        if "input_ids" not in keys or keys - {"input_ids", "attention_mask"}:
            names = ", ".join(sorted(keys))
            raise QuantizationError(
                f"calibration sample {i} has the keys {names}; give input_ids and attention_mask, no others"
            )
        tensors = {k: torch.as_tensor(v).reshape(1, -1) for k, v in sample.items()}
        if not tensors["input_ids"].numel():
            raise QuantizationError(f"calibration sample {i} has no tokens; leave it out")
        checked.append(tensors)
    return checked


def joined_samples(samples: Sequence[Mapping[str, Any]], length: int) -> list[dict[str, list[int]]]:
    """Return all tokens end to end, cut into samples of ``length`` tokens; what is left over at the end is dropped.

    Samples of one length cost no padding, and some libraries need them: GPTQModel's AWQ keeps the inputs of one batch
    only when it cannot stack them.

    Raises:
        QuantizationError: as :func:`calibration_samples`, or fewer than ``length`` tokens in all.

    >>> [s["input_ids"] for s in joined_samples([{"input_ids": [1, 2, 3]}, {"input_ids": [4, 5]}], 2)]
    [[1, 2], [3, 4]]
    """
    tokens = torch.cat([s["input_ids"][0] for s in calibration_samples(samples)]).tolist()
    if length < 1 or len(tokens) < length:
        raise QuantizationError(f"length={length}: the calibration set has {len(tokens)} tokens; give 1 to that many")
    starts = range(0, len(tokens) - length + 1, length)
    return [{"input_ids": tokens[i : i + length], "attention_mask": [1] * length} for i in starts]


def calibration_set(rows: Any, tokenizer: Any, count: int, length: int) -> tuple[list[str], list[dict[str, list[int]]]]:
    """Return texts of a data set, and ``count`` samples of ``length`` tokens cut from them.

    Rows are taken evenly from the whole set, as many as are needed; a set that is too small gives fewer samples, and
    one with fewer than ``length`` tokens in all gives one sample of those.

    Args:
        rows: training rows, or held-out ones to judge by, with columns that
            :func:`rocm_guide.models.columns.training_rows` knows.
        count, length: 128 samples of 2,048 tokens are usual for large models. GPTQ needs more tokens in all than a
            layer has columns.

    Raises:
        QuantizationError: rows without a token, or numbers that are not positive.
    """
    from rocm_guide.models.columns import held_out_pair, training_rows

    if count < 1 or length < 1:
        raise QuantizationError(f"count={count}, length={length}: give positive numbers, for example 128 and 2048")
    rows = training_rows(rows, tokenizer)
    step = max(1, len(rows) // count)
    texts: list[str] = []
    encoded: list[dict[str, list[int]]] = []
    tokens = 0
    # Every step-th row first, then the ones between them: a spread of the whole set, however many are needed.
    for i in (i for first in range(step) for i in range(first, len(rows), step)):
        texts.append("".join(held_out_pair(rows[i], tokenizer)))
        ids = tokenizer(texts[-1]).input_ids
        encoded.append({"input_ids": ids, "attention_mask": [1] * len(ids)})
        tokens += len(ids)
        if tokens >= count * length:
            break
    encoded = [sample for sample in encoded if sample["input_ids"]]
    return texts, joined_samples(encoded, min(length, tokens))[:count]


def write_texts(folder: str | Path, **splits: Iterable[str]) -> None:
    """Write each split's texts as ``folder/NAME.jsonl``, a row ``{"text": …}`` each: what `load_dataset` reads.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_texts(f"{folder}/rows", train=["One.", "Two."])
    ...     Path(folder, "rows", "train.jsonl").read_text()
    '{"text": "One."}\\n{"text": "Two."}\\n'
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, texts in splits.items():
        write_text(Path(folder, f"{name}.jsonl"), "".join(json.dumps({"text": text}) + "\n" for text in texts))


@contextmanager
def recorded_inputs(modules: Mapping[str, torch.nn.Module]) -> Iterator[dict[str, list[torch.Tensor]]]:
    """Collect the inputs of modules while the block runs: name -> one (tokens, in) tensor for each call.

    >>> layer = torch.nn.Linear(2, 1)
    >>> with recorded_inputs({"it": layer}) as seen:
    ...     _ = layer(torch.ones(1, 3, 2))
    >>> [tuple(x.shape) for x in seen["it"]]
    [(3, 2)]
    """
    seen: dict[str, list[torch.Tensor]] = {name: [] for name in modules}

    def hook(name: str) -> Callable[..., None]:
        return lambda _module, args, _kwargs: seen[name].append(args[0].detach().reshape(-1, args[0].shape[-1]))

    handles = [m.register_forward_pre_hook(hook(name), with_kwargs=True) for name, m in modules.items()]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def layer_inputs(
    model: Any, samples: Sequence[Mapping[str, Any]], names: Iterable[str] | None = None
) -> dict[str, torch.Tensor]:
    """Return (tokens, in) for linear layers of the decoder, by name, from one pass over the samples.

    Args:
        names: of the layers; all when None. A 7B model's inputs of all layers take 2.3 MB for each token in 16 bits.
    """
    if names is None:
        names = linear_layers(model)
    with recorded_inputs({n: model.get_submodule(n) for n in names}) as seen, torch.inference_mode():
        for sample in calibration_samples(samples):
            model(**{k: v.to(model.device) for k, v in sample.items()}, use_cache=False)
    return {name: torch.cat(parts) for name, parts in seen.items()}


def linear_layers(model: Any) -> dict[str, torch.nn.Linear]:
    """Return the linear layers inside a model's decoder layers, by name, in the order of the model.

    Embeddings and the output head are not among them.

    Raises:
        QuantizationError: there are none, as in a model that is quantised already, and in GPT-2, whose layers are
            convolutions of width 1.
    """
    found = {n: m for n, m in model.named_modules() if ".layers." in n and isinstance(m, torch.nn.Linear)}
    if not found:
        fix = "load the unquantised model afresh, or a Llama-like one"
        raise QuantizationError(f"{type(model).__name__}: no linear layer to quantise; {fix}")
    return found


def linear_errors(model: Any, changed: Any, inputs: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Return the relative output error of every linear layer of ``changed``, on the inputs that ``model`` gives it.

    Args:
        model: the unquantised model.
        changed: the same model after quantisation; its layers are :class:`PackedLinear` or linear.
        inputs: from :func:`layer_inputs` of the unquantised model.
    """
    errors = {}
    for name, x in inputs.items():
        layer = changed.get_submodule(name)
        weight = layer.unpacked().dequantize() if isinstance(layer, PackedLinear) else layer.weight
        errors[name] = output_error(model.get_submodule(name).weight, weight, x)
    return errors
