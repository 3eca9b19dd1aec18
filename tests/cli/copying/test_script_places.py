# SPDX-License-Identifier: MIT
"""`rocm-guide script 04`: a model that is dealt out over what a reader allows, where the course cannot be imported."""

import ast
import re
import sys

import pytest

from rocm_guide.cli.copying import script_of
from rocm_guide.models.tiny import tiny_folder
from tests.cli.copying import alone


def run(folder, *words):
    (folder / "place.py").write_text(script_of("04"))
    for name in ("rocm_guide", "cdna"):
        (folder / f"{name}.py").write_text("raise ImportError('the course is not here')\n")
    words = ["place.py", f"--model={tiny_folder()}", "--answer=4", *words]
    return alone.run(folder, words, ["transformers.models.llama.modeling_llama"])


def test_the_script_is_plain_and_short():
    text = script_of("04")
    tree = ast.parse(text)
    assert not re.search(r"rocm_guide|cdna", text)
    named = {n.module.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert named - sys.stdlib_module_names == {"transformers"}
    assert 40 <= sum(bool(line.strip()) for line in text.splitlines()) <= 60
    assert max(map(len, text.splitlines())) <= 120 and "tiny" not in text.partition("args =")[0]


@pytest.mark.slow
def test_a_limit_sends_layers_to_the_disk_and_the_answer_is_the_same(tmp_path):
    code, whole, said = run(tmp_path)
    assert code == 0 and whole.startswith("cpu: the whole model\n"), said[-2000:]
    code, split, said = run(tmp_path, "--memory", "3MB")
    assert code == 0, said[-2000:]
    assert re.search(r"^cpu: .*^disk: ", split, re.M | re.S) and "'meta'" in split and "'meta'" not in whole
    answers = [out.splitlines()[-2] for out in (whole, split)]
    assert answers[0] == answers[1] and answers[0]
    code, _, said = run(tmp_path, "--memory", "1GB", "1GB")
    assert code == 1 and said.strip() == "MEMORY=['1GB', '1GB']: a limit for each of 0 GPUs, and one for the CPU"
