# SPDX-License-Identifier: MIT
"""The content of a folder that somebody wants to serve: a model, a quantised one, or an adapter with its base."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocm_guide.common.base import GuideError, read_regular, shown, write_text
from rocm_guide.models.hub import LARGEST_CONFIG, refuse_remote_code
from rocm_guide.models.real import REAL, real_folder
from rocm_guide.models.sources import with_ready_kernel

__all__ = ["Checkpoint", "ServingError", "merge_adapter", "read_checkpoint"]

_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
#: A run of the course (room runs) has a passport, and its merged model lies below it.
_PASSPORT, _MERGED = "passport.json", "merged"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")


class ServingError(GuideError):
    """A folder that cannot be served, a server that does not start, or one that does not answer as it should."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder that a server can load.

    Attributes:
        folder: absolute path.
        base: folder or hub id of the base, for an adapter; empty for a model.
        quantised: its ``quant_method`` (gptq, awq, bitsandbytes, compressed-tensors, …); empty in 16 or 32 bits.
        length: tokens of prompt and answer together that the configuration allows; 0 if it does not say.
        chat: whether its tokenizer has a chat template, which the chat end point needs.
        rank: the largest of the adapter's matrices; 0 for a model.
        merge: why vLLM does not take the adapter as it is, in words; empty where it does.
        tokenizer: whether a tokenizer lies in the folder; ``template`` a chat template in a file of its own.
    """

    folder: Path
    base: str = ""
    quantised: str = ""
    length: int = 0
    chat: bool = False
    rank: int = 0
    merge: str = ""
    tokenizer: bool = False
    template: bool = False

    @property
    def name(self) -> str:
        """Return what a client asks for: the last part of the folder."""
        return self.folder.name


def _fields(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file; refuse anything else."""
    try:
        found = json.loads(read_regular(file, LARGEST_CONFIG))
    except (OSError, ValueError, RecursionError) as e:
        reason = (e.strerror or str(e)) if isinstance(e, OSError) else "not valid JSON"
        raise ServingError(f"{shown(file)}: cannot be read ({reason}); save the model again") from e
    if not isinstance(found, dict):
        raise ServingError(f"{shown(file)}: holds no JSON object; save the model again")
    return found


def _one(fields: dict[str, Any], name: str, kind: type, file: str) -> Any:
    """Return a field of this kind, or what stands for "not said"."""
    value = fields.get(name)
    if value is None:
        return kind()
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ServingError(f"{file}: {name}={shown(value, 60)}: not of the kind that belongs there; save it again")
    return value


def read_checkpoint(folder: str | Path) -> Checkpoint:
    """Look at a folder before a server loads it: only small text files are read, no weights and no code.

    Of a run of the course (``runs/my-model``) the merged model is taken; ``smollm2`` is the real model of that name.

    Raises:
        ServingError: nothing there that a server could load; the message says what is missing and how to save it.
        GuideError: it names Python code of its own (see :func:`rocm_guide.models.hub.refuse_remote_code`).
    """
    path = real_folder(str(folder)) if str(folder) in REAL else Path(folder).expanduser()
    if not str(folder).strip() or not path.is_dir():
        fix = "name the folder that save_pretrained wrote (notebook 03 saves an adapter and a merged model)"
        raise ServingError(f"{shown(folder) or repr('')}: no such folder; {fix}")
    path = path.resolve()
    if (path / _PASSPORT).is_file() and not (path / "config.json").exists():
        if not (path / _MERGED).is_dir():
            raise ServingError(f"{shown(path)}: a run without a merged model; notebook 03 makes it from the adapter")
        path /= _MERGED
    refuse_remote_code(path)
    tokenizer = any((path / name).exists() for name in _TOKENIZERS)
    chat = (path / "chat_template.jinja").exists()
    if (path / "tokenizer_config.json").exists():
        chat = chat or bool(_fields(path / "tokenizer_config.json").get("chat_template"))
    adapter = path / "adapter_config.json"
    if adapter.exists():
        fields = _fields(adapter)
        base = _one(fields, "base_model_name_or_path", str, shown(adapter))
        if fields.get("peft_type") != "LORA" or not base:
            raise ServingError(f"{shown(adapter)}: names no base of a LoRA adapter; only LoRA adapters are served")
        if ("/" not in base or base.startswith(("/", ".", "~"))) and not Path(base).expanduser().is_dir():
            fix = "put it back, or write its folder into base_model_name_or_path"
            raise ServingError(f"{shown(path)}: its base {shown(base)} is not there; {fix}")
        _weights(path)
        rank, template = _rank(fields, shown(adapter)), (path / "chat_template.jinja").exists()
        return Checkpoint(path, base, "", 0, chat, rank, _merged_for(fields), tokenizer, template)
    config = path / "config.json"
    if not config.exists():
        fix = "save_pretrained writes one"
        raise ServingError(f"{shown(path)}: holds neither config.json nor adapter_config.json; {fix}")
    fields = _fields(config)
    names = _one(fields, "architectures", list, shown(config))
    writes = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
    if names and not any(str(name).endswith(writes) for name in names):
        raise ServingError(f"{shown(path)}: {shown(names[0], 60)} writes no text; serve a causal language model")
    _weights(path)
    if not tokenizer:
        raise ServingError(f"{shown(path)}: no tokenizer beside the weights; tokenizer.save_pretrained(folder) adds it")
    recipe = _one(fields, "quantization_config", dict, shown(config))
    length = _one(fields, "max_position_embeddings", int, shown(config))
    return Checkpoint(path, quantised=shown(recipe.get("quant_method", ""), 40), length=length, chat=chat)


def _rank(fields: dict[str, Any], file: str) -> int:
    """Return the largest rank; ``rank_pattern`` gives some matrices another one than ``r``."""
    ranks = [_one(fields, "r", int, file), *_one(fields, "rank_pattern", dict, file).values()]
    if not all(type(r) is int and r > 0 for r in ranks):
        raise ServingError(f"{file}: r and rank_pattern={shown(ranks, 60)}: a rank is a whole number; save it again")
    return int(max(ranks))


#: Keys of an adapter_config.json that vLLM refuses or does not read, and why the adapter is merged for it.
_NOT_SERVED = {
    "use_dora": "DoRA",
    "modules_to_save": "layers trained as a whole (modules_to_save)",
    "trainable_token_indices": "trained tokens (trainable_token_indices)",
    "rank_pattern": "several ranks (rank_pattern)",
    "alpha_pattern": "several scales (alpha_pattern)",
    "target_parameters": "adapters of bare parameters (target_parameters)",
    "layer_replication": "repeated layers (layer_replication)",
    "lora_bias": "a bias of its own (lora_bias)",
}


def _merged_for(fields: dict[str, Any]) -> str:
    found = [words for key, words in _NOT_SERVED.items() if fields.get(key)]
    if fields.get("bias", "none") != "none":
        found.append(f"trained biases (bias={shown(fields['bias'], 20)})")
    return ", ".join(found)


def _weights(path: Path) -> None:
    if not any(True for pattern in _WEIGHTS for _ in path.glob(pattern)):
        raise ServingError(f"{shown(path)}: no weights (*.safetensors) in it; save the model again")


def merge_adapter(folder: str | Path, out: str | Path) -> None:
    """Merge a LoRA adapter into its base and save both as one model.

    The tokenizer and the chat template of the adapter's folder go before the base's: the adapter was trained with them.
    A vocabulary that grew in training is that of the embeddings saved with the adapter.

    Raises:
        GuideError: the base cannot be loaded, or the adapter does not fit it.
    """
    from peft import PeftModel
    from transformers import AutoTokenizer

    from rocm_guide.models.load import load_model

    found = read_checkpoint(folder)
    base, tokenizer = load_model(found.base, device="cpu", dtype="auto")
    if found.tokenizer:
        tokenizer = AutoTokenizer.from_pretrained(found.folder, trust_remote_code=False)
    if found.template:
        tokenizer.chat_template = (found.folder / "chat_template.jinja").read_text(encoding="utf-8")
    rows, table = _saved_rows(found.folder), base.get_input_embeddings().weight.shape[0]
    if rows and rows != table:
        base.resize_token_embeddings(rows, mean_resizing=False)
    elif not rows and len(tokenizer) > table:
        grown = f"its tokenizer has {len(tokenizer)} tokens, and the base {shown(found.base)} has {table}"
        fix = "save the embeddings too (modules_to_save=['embed_tokens'])"
        raise ServingError(f"{shown(found.folder)}: {grown}; {fix}")
    try:
        merged = PeftModel.from_pretrained(base, found.folder).merge_and_unload()
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as e:
        said = next((line.strip() for line in reversed(str(e).splitlines()) if line.strip()), type(e).__name__)
        fix = "check that base_model_name_or_path names the base it was trained on"
        raise ServingError(f"{shown(found.folder)}: cannot be merged ({shown(said, 160)}); {fix}") from e
    merged.save_pretrained(out)
    tokenizer.save_pretrained(out)


def _saved_rows(folder: Path) -> int:
    """Return the rows of the embeddings that were saved with the adapter; 0 for none."""
    from safetensors import safe_open

    file = folder / "adapter_model.safetensors"
    if not file.exists():
        return 0
    with safe_open(file, "pt") as weights:
        tables = ("embed_tokens.weight", "lm_head.weight", "wte.weight")
        rows = [weights.get_slice(k).get_shape()[0] for k in list(weights.keys()) if k.endswith(tables)]
        return max(rows, default=0)


@contextmanager
def as_one_model(found: Checkpoint) -> Iterator[Checkpoint]:
    """Give the checkpoint itself; of an adapter a merged copy under the same name, which goes away with the block.

    The merging happens in a process of its own: this one needs no torch, and gets its memory back.
    """
    if not found.base:
        yield found
        return
    from cdna.children import call_in_child

    with tempfile.TemporaryDirectory(prefix="rocm-guide-merged-") as folder:
        out = Path(folder) / found.name
        call_in_child(merge_adapter, folder=str(found.folder), out=str(out))
        yield read_checkpoint(out)


@contextmanager
def as_ready_model(found: Checkpoint) -> Iterator[Checkpoint]:
    """Give the checkpoint itself; one whose kernel would first be compiled, as links beside a changed config.json.

    ``transformers serve`` has no option for it. The links have the same name and go away with the block.
    """
    fields = _fields(found.folder / "config.json")
    recipe = _one(fields, "quantization_config", dict, shown(found.folder / "config.json"))
    ready = with_ready_kernel(recipe)
    if ready == recipe:
        yield found
        return
    with tempfile.TemporaryDirectory(prefix="rocm-guide-ready-") as folder:
        out = Path(folder) / found.name
        out.mkdir()
        for path in found.folder.iterdir():
            if path.name != "config.json":
                (out / path.name).symlink_to(path)
        write_text(out / "config.json", json.dumps({**fields, "quantization_config": ready}, indent=1))
        yield read_checkpoint(out)
