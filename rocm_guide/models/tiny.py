# SPDX-License-Identifier: MIT
"""The tiny model of the course: a real Llama and its BPE tokenizer, trained on this machine in well under a minute.

Built once, then read from a cache that many processes may share: one builds while the others wait, the folder appears
whole or not at all, and a damaged one is found by its checksums and built again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_guide.common.base import GuideError, cache_folder, check_private, own_folder, write_text
from rocm_guide.models.course_data import chat, pad_right, pretraining_texts, question_answer_splits

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

__all__ = ["tiny_draft", "tiny_folder"]

VOCABULARY = 1024
SHAPE = {
    "hidden_size": 192,
    "num_hidden_layers": 3,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
#: Of a draft for it (speculative decoding): one layer, a third as wide.
DRAFT = {
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
RECIPE: dict[str, Any] = {"epochs": 8, "learning_rate": 2e-3, "batch_size": 16, "warmup_steps": 10, "version": 1}
_PROMPT, _COMPLETION = chat("{{ system.said }}{{ m['content'] }}", "{{ m['content'] }}")
# As in Llama 2, what the system says stands in the first question.
CHAT_TEMPLATE = (
    "{{ bos_token }}{% set system = namespace(said='') %}{% for m in messages %}"
    "{% if m['role'] == 'system' %}{% set system.said = '<<SYS>>\n' + m['content'] + '\n<</SYS>>\n\n' %}"
    "{% elif m['role'] == 'user' %}" + _PROMPT + "{% set system.said = '' %}"
    "{% elif m['role'] == 'assistant' %}" + _COMPLETION + "{% endif %}"
    "{% endfor %}"
)


def tiny_folder(seed: int = 0, *, root: Path | None = None) -> Path:
    """Return the folder of the tiny model for ``seed``, built first if it is missing or damaged.

    The name carries a digest of all that the weights depend on (text, shape, recipe), so a change of the recipe makes
    a new folder and never mixes with an old one. Safe for any number of processes at once.

    Raises:
        GuideError: the cache folder cannot be written, or somebody else can write to it.
    """
    texts = [pretraining_texts(), question_answer_splits()]
    recipe = json.dumps([SHAPE, RECIPE, VOCABULARY, CHAT_TEMPLATE, seed, texts])
    digest = hashlib.sha256(recipe.encode())
    folder = (root or cache_folder()) / f"tiny-seed{seed}-{digest.hexdigest()[:12]}"
    if not is_whole(check_private(folder)):  # before it is written to: a cache may be read-only
        build_once(folder, lambda: build_tiny(folder, seed=seed))
    return folder


def build_once(folder: Path, build: Callable[[], None]) -> None:
    """Build a folder that is not whole, in one process; others wait for it."""
    with folder_lock(folder.parent, folder.name):
        if not is_whole(folder):  # another process may have built it while we waited
            # Whoever holds the lock is the only builder: what lies here half-built was left by one that was killed.
            for leftover in folder.parent.glob(f"{folder.name}.*.tmp"):
                shutil.rmtree(leftover, ignore_errors=True)
            shutil.rmtree(folder, ignore_errors=True)
            build()


def tiny_draft(tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> LlamaForCausalLM:
    """Return a draft model for the tiny one, trained now on the same texts: a tenth of its parameters, in float32.

    A few seconds of work on a CPU; it is not kept.
    """
    return _train_model(tokenizer, seed, DRAFT, {**RECIPE, "epochs": 6, "learning_rate": 4e-3}, "training a draft")


def build_tiny(folder: Path, *, seed: int = 0) -> None:
    """Train tokenizer and model and put them at ``folder`` in one rename.

    Raises:
        GuideError: the folder cannot be written.
    """
    work = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    try:
        work.mkdir(parents=True)
        tokenizer = _train_tokenizer()
        model = _train_model(tokenizer, seed)
        tokenizer.save_pretrained(work)
        model.save_pretrained(work)
        sums = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(work.iterdir())}
        write_text(work / "manifest.json", json.dumps(sums, indent=1))
        work.rename(folder)
    except Exception as e:
        # safetensors and tokenizers are written in Rust: a full disk is an exception of theirs with "(os error 28)".
        if not isinstance(e, OSError) and "(os error " not in str(e):
            raise
        message = f"{folder.parent}: the model cannot be stored there ({getattr(e, 'strerror', None) or e}); "
        raise GuideError(message + "free some space or set ROCM_GUIDE_CACHE to a folder you can write to") from e
    finally:
        shutil.rmtree(work, ignore_errors=True)


def is_whole(folder: Path) -> bool:
    try:
        sums = json.loads((folder / "manifest.json").read_text())
        return bool(sums) and all(hashlib.sha256((folder / n).read_bytes()).hexdigest() == s for n, s in sums.items())
    except (OSError, ValueError, AttributeError):
        return False


@contextlib.contextmanager
def folder_lock(root: Path, name: str) -> Iterator[None]:
    """Hold an advisory lock that the kernel releases when its process ends, however it ends."""
    import fcntl

    try:
        handle = (own_folder(root) / f"{name}.lock").open("a")
    except OSError as e:
        raise GuideError(f"{root}: cannot be written ({e.strerror}); set ROCM_GUIDE_CACHE to a folder you own") from e
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _train_tokenizer() -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer: it can spell any text, and knows this course's words as few tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    train, _ = question_answer_splits()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator([*pretraining_texts(), *(s["prompt"] + s["completion"] for s in train)], trainer)
    bpe.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, padding_side="left", model_max_length=256, **names)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _train_model(
    tokenizer: PreTrainedTokenizerFast,
    seed: int,
    shape: dict[str, int] = SHAPE,
    recipe: dict[str, Any] = RECIPE,
    title: str = "building the tiny model (once)",
) -> LlamaForCausalLM:
    """Train a model on plain statements and small talk: cosine schedule, AdamW, about ten seconds of work."""
    import torch
    from tqdm.auto import tqdm
    from transformers import LlamaConfig, LlamaForCausalLM

    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    samples = [tokenizer(text).input_ids for text in pretraining_texts()]
    rng, size = random.Random(seed), recipe["batch_size"]
    steps = recipe["epochs"] * math.ceil(len(samples) / size)
    # One thread is fastest for a model this small; the caller's random state and thread count stay as they were.
    threads = torch.get_num_threads()
    bar = tqdm(total=steps, desc=title, unit="step", file=sys.stderr, leave=False)
    try:
        torch.set_num_threads(1)
        with torch.random.fork_rng(devices=[]), bar:
            torch.manual_seed(seed)
            model = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, tie_word_embeddings=False, **ids, **shape))
            optimizer = torch.optim.AdamW(model.parameters(), lr=recipe["learning_rate"], weight_decay=0.0)
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _cosine(step, steps))
            for _ in range(recipe["epochs"]):
                rng.shuffle(samples)
                for i in range(0, len(samples), size):
                    model(**_batch(samples[i : i + size])).loss.backward()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
                    schedule.step()
                    bar.update()
    finally:
        torch.set_num_threads(threads)
    model.generation_config.update(max_new_tokens=24, do_sample=False, **ids)
    return model.eval()


def _cosine(step: int, steps: int) -> float:
    warm: float = min(1.0, (step + 1) / RECIPE["warmup_steps"])
    return warm * 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps)))


def _batch(rows: list[list[int]]) -> dict[str, Any]:
    """Return token lists, right-padded, as input ids, mask and labels (-100 where there is nothing to predict)."""
    ids, mask = pad_right(rows), pad_right([[1] * len(row) for row in rows])
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}
