# SPDX-License-Identifier: MIT
"""A part of ours for torchtune: in a configuration, `_component_` may name anything that can be imported."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rocm_guide.common.base import GuideError
from rocm_guide.models.course_data import chat

__all__ = ["ChatTokenizer"]


class ChatTokenizer:
    """torchtune's view of a Hugging Face ``tokenizer.json``, with the Llama-2 chat format.

    torchtune's own Llama-2 tokenizer reads a SentencePiece file; the course's tiny model has a ``tokenizer.json``.
    A recipe asks a tokenizer for three things: ``pad_id``, :meth:`tokenize_messages`, and to be callable on a sample.

    Raises:
        GuideError: the folder has no tokenizer.json.

    >>> from types import SimpleNamespace as Message
    >>> from rocm_guide.models.tiny import tiny_folder
    >>> tokenizer = ChatTokenizer(tiny_folder())
    >>> ask = Message(role="user", text_content="What is LDS?", masked=True)
    >>> reply = Message(role="assistant", text_content="Local data share.", masked=False)
    >>> tokens, masked = tokenizer.tokenize_messages([ask, reply])
    >>> tokenizer.decode(tokens)
    '<s>[INST] What is LDS? [/INST] Local data share. </s>'
    >>> masked.index(False) > 5 and not masked[-1]
    True
    """

    def __init__(self, path: str | Path, max_seq_len: int | None = None) -> None:
        from tokenizers import Tokenizer

        folder = Path(path)
        if not (folder / "tokenizer.json").is_file():
            raise GuideError(f"{folder}: no tokenizer.json there; name the folder that save_pretrained wrote")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        names = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        ids = {k: self._tokenizer.token_to_id(str(names.get(k))) for k in ("bos_token", "eos_token", "pad_token")}
        self.bos_id, self.eos_id = ids["bos_token"], ids["eos_token"]
        self.pad_id = self.eos_id if ids["pad_token"] is None else ids["pad_token"]
        self.max_seq_len = max_seq_len

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return int(self._tokenizer.get_vocab_size())

    def encode(self, text: str, add_bos: bool = True, add_eos: bool = True) -> list[int]:
        """Return the token ids of ``text``, between begin and end tokens if wanted."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [self.bos_id] * add_bos + ids + [self.eos_id] * add_eos

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of token ids, special tokens shown."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=False))

    def tokenize_messages(self, messages: Sequence[Any], add_end_tokens: bool = True) -> tuple[list[int], list[bool]]:
        """Return the ids of a conversation, and for each whether the loss ignores it.

        Args:
            messages: objects with ``role`` (user, assistant), ``text_content`` and ``masked``: torchtune's ``Message``.
            add_end_tokens: whether an answer is closed with the end token; False for a prompt to go on from.

        Raises:
            GuideError: a role that the format has no place for.
        """
        tokens, masked = [self.bos_id], [True]
        for message in messages:
            if message.role == "user":
                piece = self.encode(chat(message.text_content)[0], add_bos=False, add_eos=False)
            elif message.role == "assistant":
                # The space before the end token is part of the format that the model was trained on.
                text = f" {message.text_content}" + (" " if add_end_tokens else "")
                piece = self.encode(text, add_bos=False, add_eos=add_end_tokens)
            else:
                raise GuideError(f"role {message.role!r}: this chat format knows user and assistant")
            tokens += piece
            masked += [bool(message.masked)] * len(piece)
        return tokens[: self.max_seq_len], masked[: self.max_seq_len]

    def __call__(self, sample: Mapping[str, Any], inference: bool = False) -> dict[str, Any]:
        """Turn a sample's ``messages`` into ``tokens`` and ``mask``."""
        rest = {k: v for k, v in sample.items() if k != "messages"}
        tokens, mask = self.tokenize_messages(sample["messages"], add_end_tokens=not inference)
        return {**rest, "tokens": tokens, "mask": mask}
