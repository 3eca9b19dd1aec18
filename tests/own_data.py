# SPDX-License-Identifier: MIT
"""A reader's own data and models, small: every layout of rows that the course takes, and folders of other families."""

import json
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rocm_guide.models import load_tokenizer
from rocm_guide.models.course_data import chat, question_answer_splits

ROWS = 30
#: Layouts of rows for notebook 07.
PREFERENCES = ("texts", "turns", "whole", "prompt_whole")
RULES = "Answer in a few words."
#: As SmolLM2 has it: the first token of every turn is the tokenizer's bos_token, which it does not add by itself.
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_COMMON = {"vocab_size": 1088, "max_position_embeddings": 2048, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_LLAMA = {"model_type": "llama", "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3}
_LLAMA |= {"intermediate_size": 1536, "num_hidden_layers": 2, "tie_word_embeddings": True}
_SMALL = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
#: name -> the fields of its configuration.
FAMILIES = {
    "qwen2": {"model_type": "qwen2", **_SMALL, "num_attention_heads": 4, "num_key_value_heads": 2},
    "llama576": _LLAMA,
    "gemma3": {
        "model_type": "gemma3_text",
        **_SMALL,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "chatml": {**_LLAMA, "hidden_size": 192, "intermediate_size": 512, "num_attention_heads": 3},
}
#: Made only when it is named: a Llama 2 as torchtune's recipe takes it.
LLAMA2 = {"model_type": "llama", **_SMALL, "num_attention_heads": 4, "num_key_value_heads": 2}


def layouts():
    """Return rows by the name of their layout: 30 in each, as json files of the hub have them."""
    facts = [(s["question"], s["answer"]) for s in question_answer_splits()[0][: 2 * ROWS]]
    pairs, later = facts[:ROWS], facts[ROWS:]

    def turns(q, a):
        return [{"role": "user", "content": q}, {"role": "assistant", "content": a}]

    def spoken(conversation):
        names = {"user": "human", "assistant": "gpt"}
        return [{"from": names[t["role"]], "value": t["content"]} for t in conversation if t["role"] in names]

    system = {"role": "system", "content": RULES}
    several = [[system, *turns(*one), *turns(*two)] for one, two in zip(pairs, later, strict=True)]
    return {
        "messages": [{"messages": turns(q, a)} for q, a in pairs],
        "system": [{"messages": conversation} for conversation in several],
        "prompt_messages": [{"prompt": q, "prompt_id": a, "messages": turns(q, a)} for q, a in pairs],
        "text": [{"text": "<s>" + "".join(chat(q, a))} for q, a in pairs],
        "alpaca": [{"instruction": q, "input": "", "output": a, "text": f"### {q}\n### {a}"} for q, a in pairs],
        "sharegpt": [{"conversations": spoken(conversation)} for conversation in several],
    }


def preferences():
    """Return preference rows by the name of their layout: texts, turns, whole conversations, those beside a prompt."""
    made = {name: [] for name in PREFERENCES}
    for row in question_answer_splits()[0][:ROWS]:
        answer = {"answer": row["answer"]}
        said = {"chosen": f"Answer: {row['answer']}", "rejected": f"I think it is {row['answer']}."}
        turns = {name: [{"role": "assistant", "content": text}] for name, text in said.items()}
        asked = [{"role": "user", "content": row["question"]}]
        whole = {name: asked + turn for name, turn in turns.items()}
        texts = {name: f" {text} </s>" for name, text in said.items()}
        made["texts"].append({"prompt": "<s>" + chat(row["question"])[0], **texts, **answer})
        made["turns"].append({"prompt": asked, **turns, **answer})
        made["whole"].append({**whole, "score_chosen": 1.0})  # nothing that a program could check
        made["prompt_whole"].append({"prompt": row["question"], **whole, **answer})
    return made


def write_layouts(folder):
    """Write each layout as a jsonl file into ``folder``; return the files by name."""
    files = {}
    for name, rows in (layouts() | preferences()).items():
        files[name] = Path(folder) / f"{name}.jsonl"
        files[name].write_text("\n".join(map(json.dumps, rows)))
    return files


def families(folder, *names):
    """Write a small random model of each family (or of those named), in bfloat16, with a tokenizer that works.

    Returns the folders by name: ``qwen2`` 128 wide, ``llama576`` 576 wide with 9 heads of 3 KV heads, ``gemma3`` with
    one layer that sees a window and one that sees all, ``chatml`` whose template begins with a bos_token that its
    tokenizer does not add; and, only where it is named, ``llama2``, 128 wide.
    """
    made = {}
    for name in names or FAMILIES:
        made[name] = Path(folder) / name
        fields = {**_COMMON, **(LLAMA2 if name == "llama2" else FAMILIES[name])}
        tokenizer = _chatml() if name == "chatml" else load_tokenizer("tiny")
        tokenizer.model_max_length = fields["max_position_embeddings"]
        fields |= {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            config = AutoConfig.for_model(fields.pop("model_type"), **fields)
            model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model.save_pretrained(made[name])
        tokenizer.save_pretrained(made[name])
    return made


def _chatml():
    tokenizer = load_tokenizer("tiny")
    tokenizer.add_special_tokens({"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"})
    tokenizer.backend_tokenizer.post_processor = None
    tokenizer.chat_template = CHATML
    return tokenizer
