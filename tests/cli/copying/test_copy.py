# SPDX-License-Identifier: MIT
"""Every public helper, copied into a file, works where rocm_guide cannot be imported."""

import ast
import functools
import json
import re
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest
from typer.testing import CliRunner

from rocm_guide.cli.copying.scan import names_used, public_helpers, toolkit_folder
from rocm_guide.cli.copying.writer import copy_source, find_helper
from rocm_guide.cli.main import app
from rocm_guide.common.base import GuideError, package_folder

RUNNER = Path(__file__).parent / "copy_runner.py"
HELPERS = public_helpers()
PURE = set(sys.stdlib_module_names)
TRAIN = {"accelerate", "datasets", "huggingface_hub", "peft", "tokenizers", "transformers", "trl"}
KERNELS = {"flash_attn", "numpy", "psutil", "safetensors", "torch", "tqdm", "triton", "xformers"}
# One process for all copies that need no more than these, so that torch is imported three times and not 900 times.
ENVIRONMENTS = {"python": set(), "kernels": KERNELS, "training": KERNELS | TRAIN, "everything": None}


def run_copies(folder, needs=()):
    """What went wrong with the copies in ``folder``, by file name."""
    done = subprocess.run([sys.executable, "-B", str(RUNNER), str(folder), *needs], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def stated(text):
    """The libraries that a copy imports, at its top, in its functions or in its example."""
    # Most of a copy is what other copies have too: each definition is read once. Where blank lines within a text of
    # three quotes leave a piece that cannot be read, the next one belongs to it.
    found, piece = set(), ""
    for more in re.split(r"\n\n\n(?=\S)", text):
        piece += more + "\n\n\n"
        try:
            found |= stated_in(piece)
            piece = ""
        except SyntaxError:
            continue
    return found | stated_in(piece)


@functools.cache
def stated_in(text):
    found = set(re.findall(r"^ *>>> (?:from|import) (\w+)", text, re.M))
    waiting = list(ast.parse(text).body)
    while waiting:  # statements only: ast.walk would also visit every part of every expression
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module.split(".")[0])
        for part in ("body", "orelse", "handlers", "finalbody", "cases"):
            waiting += getattr(node, part, [])
    return frozenset(found - PURE)


# They import libraries by a name that is a value, or check for the whole set: no text states what they need.
BY_NAME = {
    "quantize.libraries.add_libraries",
    "quantize.libraries.add_reader",
    "quantize.libraries.kernels",
    "observe.doctor.diagnosis.preflight",
}


@pytest.mark.slow
def test_every_public_helper_stands_alone(tmp_path):
    """Each in the smallest environment that has what it states; nearly all are short enough to be read."""
    lengths = {}
    needs = {e: set() for e in ENVIRONMENTS}
    for name in HELPERS:
        text = copy_source(name)
        assert text.startswith("# SPDX-License-Identifier: MIT\n")
        lengths[name] = text.count("\n")
        needed = stated(text)
        fits = (e for e, has in ENVIRONMENTS.items() if has is None or needed <= has)
        place = "everything" if name in BY_NAME else next(fits)
        needs[place] |= needed
        path = tmp_path / place / f"{name.replace('.', '__')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    needs["everything"].add("requests")  # GPTQModel imports it, and lies in a folder that names no requirements
    assert all(len(list((tmp_path / e).iterdir())) > 10 for e in ENVIRONMENTS) and "IPython" not in needs["training"]
    assert len(HELPERS) <= 400 and median(lengths.values()) <= 120
    assert sum(lines > 700 for lines in lengths.values()) <= 30, "what stands on too much is no helper: names.py"
    wrong = {k: v for e in ENVIRONMENTS for k, v in run_copies(tmp_path / e, sorted(needs[e])).items()}
    assert not wrong, "\n\n".join(f"{k}:\n{v}" for k, v in wrong.items())


TRAINING = """
import sys
sys.path.insert(0, RUNNER)
from copy_runner import only
only(NEEDS)
from importlib.util import find_spec
assert find_spec("IPython") is find_spec("matplotlib") is None and find_spec("trl")
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from finetune__sft__fine_tune import fine_tune
from finetune__sft__sft_settings import sft_settings

words = {w: i for i, w in enumerate(["<pad>", "<eos>", "one", "two", "three", "four"])}
inner = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")
shape = dict(vocab_size=8, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
model = LlamaForCausalLM(LlamaConfig(**shape, num_key_value_heads=2, pad_token_id=0, eos_token_id=1))
rows = Dataset.from_list([{"prompt": "one two ", "completion": "three four"}] * 8)
settings = sft_settings("out", device="cpu", max_steps=3, max_length=8, learning_rate=0.05)
done = fine_tune(model, tokenizer, rows, settings)
assert len(done.losses) == 3 and done.losses[-1] < done.losses[0], done
print("trained")
"""


@pytest.mark.slow
def test_the_copy_of_fine_tune_trains_without_ipython_notebook_or_terminal(tmp_path):
    needs = set()
    for name in ("finetune.sft.fine_tune", "finetune.sft.sft_settings"):
        text = copy_source(name)
        needs |= stated(text)
        (tmp_path / f"{name.replace('.', '__')}.py").write_text(text, encoding="utf-8")
    assert "IPython" not in needs and "trl" in needs
    code = TRAINING.replace("RUNNER", repr(str(RUNNER.parent))).replace("NEEDS", repr(sorted(needs)))
    (tmp_path / "train.py").write_text(code)
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.endswith("trained\n"), done.stderr[-3000:]


def test_every_module_is_covered():
    """A module without ``__all__`` would escape the test above."""
    for path in (*package_folder().rglob("*.py"), *toolkit_folder().rglob("*.py")):
        if "cli" in path.parts or path.name.startswith("__"):
            continue
        names = {
            n.targets[0].id
            for n in ast.parse(path.read_text()).body
            if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
        }
        assert "__all__" in names, f"{path} has no __all__"


@pytest.fixture
def package(tmp_path):
    """``package({"a": "source"})`` writes modules of a package and returns its folder."""

    def write(modules):
        for name, text in modules.items():
            path = tmp_path / "rocm_guide" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path / "rocm_guide"

    return write


def alone(tmp_path, name, root):
    """The copy of ``name``, loaded from a file."""
    text = copy_source(name, root)
    assert not re.search(r"\b(rocm_guide|cdna)\.", text.split("from __future__")[1])
    scope = {}
    exec(compile(text, "<copy>", "exec"), scope)  # noqa: S102  (that is the test)
    return text, scope


def test_inlines_what_is_needed_and_nothing_else(tmp_path, package):
    root = package(
        {
            "low": "__all__ = ['base']\nimport os\nimport math\nFACTOR = 3\n"
            "def base(x):\n    return x * FACTOR + math.floor(0.5)\n"
            "def unused():\n    return os.name\n",
            "high": "__all__ = ['top']\nfrom rocm_guide.low import base\n"
            "# why it is so\n@staticmethod\ndef _twice(x): return 2 * base(x)\n"
            "def top(x: int = 1) -> int:\n    return _twice(x)\n",
        }
    )
    text, scope = alone(tmp_path, "high.top", root)
    assert scope["top"](2) == 12
    assert "unused" not in text and "import os" not in text and "# why it is so" in text
    assert text.index("FACTOR = 3") < text.index("def base") < text.index("def top")


def test_imports_inside_functions_are_inlined(tmp_path, package):
    root = package(
        {
            "low": "__all__ = []\ndef one(): return 1\ndef two(): return 2\n",
            "high": "__all__ = ['top']\ndef top():\n    from rocm_guide.low import one\n"
            "    from rocm_guide.low import (\n        two as zwei,\n    )\n"
            "    return one() + zwei()\n",
        }
    )
    assert alone(tmp_path, "high.top", root)[1]["top"]() == 3


def test_an_import_that_is_alone_in_its_block_leaves_a_pass(tmp_path, package):
    root = package(
        {
            "low": "__all__ = []\ndef one(): return 1\n",
            "high": "__all__ = ['top']\ndef top(x=True):\n    if x:\n"
            "        from rocm_guide.low import one\n    return one()\n",
        }
    )
    assert alone(tmp_path, "high.top", root)[1]["top"]() == 1


def test_clashing_private_names_are_kept_apart(tmp_path, package):
    root = package(
        {
            "left": "__all__ = ['f']\ndef _help(): return 'left'\ndef f(): return _help()\n",
            "right": "__all__ = ['g']\ndef _help(): return 'right _help'\ndef g(): return _help()\n",
            "top": "__all__ = ['both']\nfrom rocm_guide.left import f\nfrom rocm_guide.right import g\n"
            "def both(): return f(), g()\n",
        }
    )
    assert alone(tmp_path, "top.both", root)[1]["both"]() == ("left", "right _help")


def test_clashing_private_names_of_files_of_one_name_are_kept_apart(tmp_path, package):
    room = {f"{r}/same": f"__all__ = ['{r}']\ndef _help(): return '{r}'\ndef {r}(): return _help()\n" for r in "abc"}
    root = package(
        {
            **room,
            "top": "__all__ = ['all_']\n"
            + "".join(f"from rocm_guide.{r}.same import {r}\n" for r in "abc")
            + "def all_(): return a(), b(), c()\n",
        }
    )
    text, scope = alone(tmp_path, "top.all_", root)
    assert scope["all_"]() == ("a", "b", "c") and "def _help_of_b_same" in text


def test_clashing_names_imported_inside_functions(tmp_path, package):
    root = package(
        {
            "left": "__all__ = ['f']\ndef f(): return 'left'\n",
            "right": "__all__ = ['f']\ndef f(): return 'right'\n",
            "top": "__all__ = ['both']\nfrom rocm_guide.left import f\n"
            "def both():\n    from rocm_guide.right import f as g\n    return f(), g(), other()\n"
            "def other():\n    from rocm_guide.right import f\n    return f()\n",
        }
    )
    assert alone(tmp_path, "top.both", root)[1]["both"]() == ("left", "right", "right")


def test_names_under_another_name(tmp_path, package):
    root = package(
        {
            "low": "__all__ = []\ndef one(): return 1\n",
            "high": "__all__ = ['top']\nfrom rocm_guide.low import one as first\ndef top(): return first() + first()\n",
        }
    )
    assert alone(tmp_path, "high.top", root)[1]["top"]() == 2


def test_a_constant_built_in_two_steps(tmp_path, package):
    root = package({"m": "__all__ = ['get']\nT = {1: 'a'}\nT |= {2: 'b'}\ndef get(k): return T[k]\n"})
    assert alone(tmp_path, "m.get", root)[1]["get"](2) == "b"


def test_a_table_filled_item_by_item(tmp_path, package):
    root = package({"m": "__all__ = ['get']\nT = {}\nfor k in 'ab':\n    T[k] = k * 2\ndef get(k): return T[k]\n"})
    assert alone(tmp_path, "m.get", root)[1]["get"]("b") == "bb"


def test_an_alias_stays_where_an_argument_has_the_name_that_it_stands_for(tmp_path, package):
    root = package(
        {
            "low": "__all__ = []\ndef gpu(name): return name.upper()\n",
            "high": "__all__ = ['top']\nfrom rocm_guide.low import gpu as spec_of\ndef top(gpu): return spec_of(gpu)\n",
        }
    )
    assert alone(tmp_path, "high.top", root)[1]["top"]("x") == "X"


def test_what_a_face_shows_comes_before_a_class_that_needs_it(tmp_path, package):
    root = package(
        {
            "inner/__init__": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
            "    from rocm_guide.inner.parts import Part\n"
            "__all__ = ['Part']\n",
            "inner/parts": "__all__ = ['Part']\nclass Part: pass\n",
            "a": "__all__ = ['Whole']\nfrom rocm_guide.inner import Part\nclass Whole:\n    part = Part()\n",
        }
    )
    assert alone(tmp_path, "a.Whole", root)[1]["Whole"].part


def test_type_only_imports_stay_type_only(tmp_path, package):
    root = package(
        {
            "m": "from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    import not_installed\n"
            "__all__ = ['f']\ndef f(x: not_installed.Thing): return x\n",
        }
    )
    text, scope = alone(tmp_path, "m.f", root)
    assert scope["f"](5) == 5 and "if TYPE_CHECKING:\n    import not_installed" in text


def test_submodules_of_one_package(tmp_path, package):
    root = package(
        {
            "low": "__all__ = []\nimport os.path\nimport xml.dom\ndef one(): return os.path.sep, xml.dom.__name__\n",
            "high": "__all__ = ['top']\nimport xml.sax\nimport os\nfrom rocm_guide.low import one\n"
            "def top(): return xml.sax.__name__, os.sep, one()\n",
        }
    )
    assert alone(tmp_path, "high.top", root)[1]["top"]() == ("xml.sax", "/", ("/", "xml.dom"))


def test_one_name_for_two_things_is_refused(tmp_path, package):
    root = package(
        {
            "low": "__all__ = []\nfrom time import time\ndef one(): return time()\n",
            "high": "__all__ = ['top']\nimport time\nfrom rocm_guide.low import one\n"
            "def top(): return time.time(), one()\n",
        }
    )
    with pytest.raises(GuideError, match=r"time: stands for both '.*import time'; rename"):
        copy_source("high.top", root)


def test_data_files_travel_along(tmp_path, package):
    code = "from importlib.resources import files\n__all__ = ['f']\n"
    code += 'def f():\n    return files("rocm_guide").joinpath("data", "t.txt").read_text(encoding="utf-8")\n'
    root = package({"m": code})
    (root / "data").mkdir()
    data = 'one\n"""two""" \\n\n'
    (root / "data" / "t.txt").write_text(data)
    assert alone(tmp_path, "m.f", root)[1]["f"]() == data


def test_local_names_do_not_pull_in_helpers():
    assert names_used("def f(path):\n    total = path\n    return [total for path in path]") == set()


@pytest.mark.parametrize(
    "name",
    [
        "plan",
        "nothing.here",
        "base",
        "common.plots.nothing",
        "common.plots.os",
        "",
        "..",
        "cli.main.main",
        "tune.ck.check",
    ],
)
def test_unknown_helpers_are_one_line(name):
    with pytest.raises(GuideError) as caught:
        copy_source(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("lora.LoRALinear", "finetune.lora.LoRALinear"),  # an old name whose last word only one helper has
        ("tune.tunableop.plan", "tune.tunableop.planner.plan"),  # as the face of the room shows it
        ("models.draw_fit", "models.memory_planner.draw_fit"),
        ("kernels.rows.softmax.softmax_forward", "kernels.softmax.softmax_forward"),
        ("kernels.gemm.tiled.gemm", "kernels.gemm.gemm"),
        ("kernels.int8.operators.linear_scaled", "kernels.int8_gemm.linear_scaled"),
        ("rocm_guide.common.plots.bars", "common.plots.bars"),
        ("rms_norm", "kernels.rms_norm.rms_norm"),  # a helper and its file; a solution of the dojo has that name too
    ],
)
def test_faces_and_old_names_lead_to_the_helper(name, home):
    assert find_helper(name) == home
    text = copy_source(name)
    assert text == copy_source(home) and f"# Made by: rocm-guide copy {home}\n" in text


def test_an_old_name_that_two_helpers_could_mean_lists_them(package):
    root = package(dict.fromkeys(("left", "right"), "__all__ = ['f']\ndef f(): return 1\n"))
    with pytest.raises(GuideError, match=r"old\.f: no public helper .* did you mean left\.f, right\.f\?"):
        copy_source("old.f", root)


def test_the_command_names_the_new_path_and_the_notebook():
    done = CliRunner().invoke(app, ["copy", "device.seed_all"])
    assert (done.exit_code, done.stderr) == (0, "device.seed_all is common.device.seed_all\n")
    assert "# Introduced in notebook 00 (start_here).\n" in done.stdout
    listed = CliRunner().invoke(app, ["copy", "--list"]).stdout.splitlines()
    assert "tune.tunableop.planner.plan\tnotebook 17 (tunableop)" in listed and len(listed) == len(HELPERS)


def test_what_stands_on_much_of_the_course_says_how_to_import_it():
    for name, reason in (
        (
            "tune.tunableop.planner.plan",
            r"stands on [\d,]{3,5} lines of .*: from rocm_guide\.tune\..* import plan",
        ),
        ("mi300x.occupancy.occupancy", r"cdna is a package of its own; .*: from cdna\.occupancy import occupancy"),
        ("cdna.base.write_text", r"cdna is a package of its own; .*: from cdna\.base import write_text"),
    ):
        with pytest.raises(GuideError, match=reason):
            CliRunner().invoke(app, ["copy", name], catch_exceptions=False)
    kernel = CliRunner().invoke(app, ["copy", "kernels.attention.attention"])
    assert kernel.exit_code == 0 and "\ndef attention(" in kernel.stdout


def test_a_near_miss_is_suggested():
    with pytest.raises(GuideError, match=r"did you mean common\.plots\.bars"):
        copy_source("common.plots.bar")


def test_a_library_that_the_copy_does_not_state_is_not_there(tmp_path):
    """Neither by an import, nor for a library that looks whether it is installed."""
    look = "from importlib.metadata import distributions\nfrom importlib.util import find_spec\nf = 1\n"
    look += "assert find_spec('torch') is None and 'torch' not in {d.metadata['Name'] for d in distributions()}\n"
    (tmp_path / "a__f.py").write_text(look)
    (tmp_path / "b__f.py").write_text("import torch\nf = 1\n")
    (tmp_path / "c__f.py").write_text("import rich.console\nimport pygments\nf = 1\n")
    wrong = run_copies(tmp_path, ["rich"])
    assert set(wrong) == {"b__f.py"} and "No module named 'torch'" in wrong["b__f.py"]


def test_the_runner_would_notice(tmp_path):
    """The test above is only worth something if a copy that leans on the package fails."""
    (tmp_path / "a__f.py").write_text("from rocm_guide.common.base import GuideError\nf = 1\n")
    (tmp_path / "b__g.py").write_text("def g():\n    '''\n    >>> g()\n    2\n    '''\n    return 1\n")
    (tmp_path / "c__h.py").write_text("x = 1\n")
    wrong = run_copies(tmp_path)
    assert set(wrong) == {"a__f.py", "b__g.py", "c__h.py"} and "is blocked" in wrong["a__f.py"]
