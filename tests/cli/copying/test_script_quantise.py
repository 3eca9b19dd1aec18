# SPDX-License-Identifier: MIT
"""Scripts 10, 11, 12, 14 and 18, and the way of a model through 02, 03, 08, 10 and 18, where the course is not."""

import ast
import json
import re
import runpy
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from rocm_guide.cli.copying import script_of
from rocm_guide.models import load_tokenizer
from rocm_guide.models.course_data import question_answer_splits
from rocm_guide.models.sizes import sizes_of
from rocm_guide.models.tiny import tiny_folder
from rocm_guide.observe.doctor.own_folders import OWN_FOLDERS
from tests.cli.copying import alone
from tests.own_data import families, layouts, write_layouts

LIBRARIES = OWN_FOLDERS["quantization"]
needs_libraries = pytest.mark.skipif(
    LIBRARIES.check().status != "OK", reason=f"{LIBRARIES.check().found} -> {LIBRARIES.fix}"
)
SCRIPTS = ("02", "03", "08", "10", "11", "12", "14", "18")
#: Script -> the libraries that its reader installs.
IMPORTED = {
    "10": {"datasets", "gptqmodel", "torch", "transformers"},
    "11": {"datasets", "gptqmodel", "torch", "transformers"},
    "12": {"datasets", "peft", "torch", "transformers", "trl"},
    "14": {"compressed_tensors", "datasets", "torch", "transformers"},
    "18": {"httpx"},
}
FEW = ["--samples=8", "--length=64", "--group=32"]


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """A folder with the scripts and rows of each layout, where importing the course fails."""
    folder = tmp_path_factory.mktemp("elsewhere")
    for number in SCRIPTS:
        (folder / f"s{number}.py").write_text(script_of(number))
    for name in ("rocm_guide", "cdna"):
        (folder / f"{name}.py").write_text("raise ImportError('the course is not here')\n")
    rows = [{"prompt": r["prompt"], "completion": r["completion"]} for r in question_answer_splits()[0][:200]]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    write_layouts(folder)
    return folder


def run(folder, number, *words):
    libraries = [] if number == "18" else ["trl.trainer.sft_trainer", "peft"]
    code, out, err = alone.run(folder, [f"s{number}.py", *words], libraries, LIBRARIES.path)
    return code, out + err


def perplexities(said):
    return {
        name: float(value) for name, value in re.findall(r"^(.+?): perplexity ([\d.]+) on \d+ held-out", said, re.M)
    }


@pytest.mark.parametrize("number", IMPORTED)
def test_the_script_is_plain_and_short(number):
    text = script_of(number)
    tree = ast.parse(text)
    assert not re.search(r"rocm_guide|cdna", text)
    named = {a.name.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    named |= {n.module.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert named - sys.stdlib_module_names == IMPORTED[number]
    assert 40 <= sum(bool(line.strip()) for line in text.splitlines()) <= 100
    assert max(map(len, text.splitlines())) <= 120
    assert "tiny" not in text.partition("args =")[0]
    assert number == "18" or '"--model", required=True' in text


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return families(tmp_path_factory.mktemp("families"), "qwen2", "gemma3")


@pytest.mark.parametrize("layout", ["messages", "system", "prompt_messages", "text"])
@pytest.mark.parametrize("family", ["qwen2", "gemma3"])
def test_rows_of_every_layout_become_the_same_tokens(family, layout, room, models):
    """Whole conversations, as the chat template writes them, after one first token; a tenth is held out."""
    head, _, body = script_of("12").partition("parser = ")
    body = body.partition("\n\n")[2]
    (room / "head.py").write_text(head + body[: body.index("on_gpu = ")])
    knobs = {"MODEL": str(models[family]), "DATASET": str(room / f"{layout}.jsonl")}
    bound = runpy.run_path(str(room / "head.py"), knobs)
    words, rows = bound["words"], [row for split in bound["splits"].values() for row in split]
    assert len(rows) == len(layouts()[layout]) and len(bound["splits"]["test"]) == len(rows) // 10
    for row in rows:
        ids = bound["tokens_of"](row)
        turns = row.get("messages") or row.get("prompt", "") + row.get("completion", row.get("text"))
        last = turns if isinstance(turns, str) else turns[-1]["content"]
        assert last.removeprefix("<s>").strip() in words.decode(ids)
        assert words.bos_token_id is None or ids.count(words.bos_token_id) == 1


def test_unknown_columns_and_a_group_that_does_not_fit_are_one_line(room):
    for words, reason in (
        (("--dataset=alpaca.jsonl",), r"alpaca.jsonl: rename \['instruction'.*\] to messages, text, or prompt and"),
        (("--dataset=rows.jsonl", "--group=128"), "GROUP=128: does not divide the rows of .*; take 64 or 32"),
    ):
        code, said = run(room, "10", f"--model={tiny_folder()}", "--out=refused", *words)
        assert code == 1 and re.match(reason, said.strip().splitlines()[-1]), said[-2000:]
    assert not (room / "refused").exists()


class Served(BaseHTTPRequestHandler):
    """A server that streams three pieces of an answer, and refuses one question."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, asked))
        if "refuse" in json.dumps(asked):
            self.answer('{"detail": "no"}', 422)
            return
        chat = self.path == "/v1/chat/completions"
        pieces = [{"delta": {"content": p}} if chat else {"text": p} for p in ("", "HB", "M3", ".")]
        events = [{"choices": [piece]} for piece in pieces] + [{"choices": []}]  # the last one counts tokens
        self.answer("".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n")

    def answer(self, text, code=200):
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@contextmanager
def serving():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Served)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("chat", [True, False])
def test_it_reads_a_stream_and_counts_its_pieces(chat, room):
    with serving() as server:
        url = f"--url=http://127.0.0.1:{server.server_port}"
        more = ["--name=mine", "--question=Which memory?", "--users", "1", "2", "--load=4", *["--no-chat"] * (not chat)]
        code, said = run(room, "18", url, *more)
        assert code == 0, said[-2000:]
        assert said.splitlines()[0] == "HBM3." and re.findall(r"^(\d) users: \d+ pieces", said, re.M) == ["1", "2"]
        path, asked = server.asked[0]
        assert len(server.asked) == 2 + 2 * 4 and asked["model"] == "mine" and asked["stream"]
        assert path == ("/v1/chat/completions" if chat else "/v1/completions") and ("messages" in asked) == chat
        code, said = run(room, "18", url, "--name=mine", "--question=refuse")
        assert code == 1 and re.fullmatch(r'http://\S+: 422, \{"detail": "no"\}', said.strip()), said


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_where_nobody_answers_it_says_how_to_start_a_server(room):
    url = f"http://127.0.0.1:{free_port()}"
    code, said = run(room, "18", f"--url={url}", "--name=my-model")
    right = f"{url}: nobody answers; start a server: vllm serve my-model, or transformers serve my-model"
    assert code == 1 and said.count("\n") == 1 and said.startswith(right), said


@pytest.mark.slow
@needs_libraries
def test_awq_quantises_where_the_course_is_not(room):
    """The tiny model's values have 96 rows, of which the library takes multiples of 64; this one's are 64."""
    words = load_tokenizer()
    shape = {"hidden_size": 128, "intermediate_size": 192, "num_attention_heads": 2, "num_key_value_heads": 1}
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=len(words), num_hidden_layers=1, head_dim=64, bos_token_id=1, **shape)
    LlamaForCausalLM(config).save_pretrained(room / "small")
    words.save_pretrained(room / "small")
    code, said = run(room, "11", "--model=small", "--dataset=rows.jsonl", "--out=made", *FEW)
    assert code == 0, said[-3000:]
    before, after = perplexities(said).values()
    assert after == pytest.approx(before, rel=0.05)
    stored = json.loads((room / "made/awq-4bit/config.json").read_text())["quantization_config"]
    assert (stored["quant_method"], stored["bits"], stored["group_size"]) == ("awq", 4, 32)


@pytest.mark.slow
@needs_libraries
def test_bitsandbytes_and_qlora_where_the_course_is_not(room):
    few = ["--steps=12", "--rank=4", "--rate=5e-3", "--length=64"]
    code, said = run(room, "12", f"--model={tiny_folder()}", "--dataset=rows.jsonl", "--out=small-ones", *few)
    assert code == 0, said[-3000:]
    found = perplexities(said)
    assert found["int8"] == pytest.approx(found["as it was"], rel=0.02)
    assert found["nf4"] == pytest.approx(found["as it was"], rel=0.3)
    losses = [float(loss) for loss in re.findall(r"'loss': '?([\d.]+)", said)]
    assert losses[-1] < losses[0]
    kept = {p.name for p in (room / "small-ones/qlora-adapter").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= kept
    for name, bits in (("int8", "8"), ("nf4", "4")):
        assert bits in sizes_of(json.loads((room / "small-ones" / name / "config.json").read_text())).stored_as
    code, said = run(room, "12", f"--model={tiny_folder()}", "--dataset=rows.jsonl", "--out=no-adapter", "--no-qlora")
    assert code == 0 and not (room / "no-adapter/qlora-adapter").exists()


@pytest.mark.slow
@needs_libraries
def test_w8a8_where_the_course_is_not(room, models):
    code, said = run(room, "14", f"--model={tiny_folder()}", "--dataset=rows.jsonl", "--out=eight", "--samples=8")
    assert code == 0, said[-3000:]
    before, after = perplexities(said).values()
    assert after == pytest.approx(before, rel=0.02) and before != after
    config = json.loads((room / "eight/w8a8/config.json").read_text())
    (group,) = config["quantization_config"]["config_groups"].values()
    assert group["weights"]["num_bits"] == group["input_activations"]["num_bits"] == 8
    code, said = run(room, "14", f"--model={models['gemma3']}", "--dataset=messages.jsonl", "--out=gemma")
    assert code == 1 and "smoothing changed the model by" in said.strip().splitlines()[-1], said[-2000:]
    assert not (room / "gemma").exists()


@contextmanager
def served(folder, name):
    """What somebody types: `transformers serve`, in the folder above the model's."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("transformers")), "serve", name, "--port", str(port)]
    command += ["--device", "cpu", "--continuous-batching", "--cb-num-blocks", "64", "--cb-block-size", "32"]
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(
            command, cwd=folder, env=alone.environment(folder, folder, LIBRARIES.path), stdout=log, stderr=log
        )
    try:
        for _ in range(1200):
            assert server.poll() is None, (folder / "server.log").read_text()[-3000:]
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
                break
            except OSError:
                time.sleep(0.25)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


@pytest.mark.slow
@needs_libraries
def test_one_model_goes_through_all_scripts(room):
    """Trained, asked, merged, quantised, served, asked: from one folder to the next, with nothing but the scripts."""
    base = [f"--model={tiny_folder()}"]
    data = ["--dataset=rows.jsonl", "--out=my-model"]
    few = ["--rank=8", "--alpha=16", "--rate=5e-3", "--batch=8", "--length=64", "--steps=24", "--save=0.5"]
    for number, *words in (
        ("02", *base, *data, *few),
        ("03", *base, "--adapter=my-model/adapter", "--answer=8"),
        ("08", *base, *data, "--adapter=my-model/adapter", "--rows=8", "--new_tokens=8"),
        ("10", "--model=my-model/merged", *data, *FEW),
    ):
        code, said = run(room, number, *words)
        assert code == 0, f"{number}: {said[-3000:]}"
    before, after = perplexities(said).values()
    assert after == pytest.approx(before, rel=0.2)
    merged = AutoModelForCausalLM.from_pretrained(room / "my-model/merged")
    assert merged.config.hidden_size == 192
    with served(room / "my-model", "gptq-4bit") as url:
        code, said = run(room, "18", f"--url={url}", "--name=gptq-4bit", "--users", "1", "2", "--load=4", "--answer=8")
    assert code == 0 and said.splitlines()[0].strip(), said[-2000:]
    assert len(re.findall(r"^\d users: [1-9]\d* pieces of text a second", said, re.M)) == 2
