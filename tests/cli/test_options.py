# SPDX-License-Identifier: MIT
"""Bad options of every command: exit code 2, one line on stderr that names the value, nothing written."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import rocm_guide
from cdna.cli.options import between, out_file, out_folder
from course.command import prepare, resume_line
from rocm_guide.cli.main import COMMANDS, FORMER, main
from rocm_guide.models.shapes import SHAPES

SAMPLES = Path(__file__).parents[1] / "samples"
RECORDED = Path(__file__).parents[2] / "notebooks/recorded"
TRACE = RECORDED / "decode_b32.json.gz"
RESULTS = SAMPLES / "tunableop/results_torch2.11_blaslog.csv"
SOFTMAX = Path(__file__).parents[2] / "cdna/tests/samples/softmax_t39.amdgcn"
COUNTERS = RECORDED / "rocprofv3_results.db"

# What a pasted text looks like: longer than any name in a file system, and more digits than Python reads.
LONG, DIGITS = "pasted" * 800, "9" * 5000
ODD = {
    "word": "gptq",
    "list": ["gptq"],
    "bits": {"quant_method": "gptq", "bits": float("nan")},
    "group": {"quant_method": "awq", "bits": 4, "group_size": "many"},
    "block": {"quant_method": "fp8", "weight_block_size": 7},
    "zero": {"quant_method": "fp8", "weight_block_size": [0, 128]},
    "groups": {"quant_method": "compressed-tensors", "config_groups": [1]},
    "skipped": {"quant_method": "fp8", "modules_to_not_convert": 3},
}

# command line -> what the line must name
BAD = [
    *(
        (f"{command} {shlex.quote(name)}", f"'{name}': no such folder, and no hub id")
        for command in ("fit", "tunable plan")
        for name in ("meta-llama/Llama 3", "org/a--b", "a|b/name", "org/" + "n" * 120)
    ),
    *((f"fit odd_{name}.json --method serve", "in a quantization_config") for name in ODD if name not in "word list"),
    ("fit odd_word.json --method serve", "quantization_config='gptq': no JSON object"),
    ("fit odd_list.json", "quantization_config=['gptq']: no JSON object"),
    *(
        (command.format(LONG), "pastedpasted")
        for command in (
            "fit {}",
            "fit org/{}",
            "fit {}.json",
            "tunable plan {}",
            "tunable check {}",
            "tunable merge {}",
            "tunable plan llama-2-7b --covers {}",
            "tunable tune {} out.csv",
            "serve {}",
            "passport {}",
            "trace summary {}",
            "trace record {}",
            "faults read {}",
            "faults log {}",
            "system check --root {}",
            "list --notebooks {}",
            "run 01 --notebooks {}",
            "run 01 --out {}",
            "lab --notebooks {}",
            "copy {}",
            "copy common.device.seed_all --out {}",
            "launch slurm --out {}/x",
            "bench http://h --out {}",
            "inspect {}",
            "step {}",
            "hub --root {}",
        )
    ),
    ("fit ~nobody-here/model", "~nobody-here/model"),
    ("copy common.device.seed_all --out ~nobody-here/x", "~nobody-here/x: no user"),
    (f"launch slurm --nodes {DIGITS}", "--nodes '999"),
    (f"launch torchrun --nodes 1:{DIGITS}", "--nodes '1:999"),
    (f"launch slurm --time {DIGITS}:00:00", "--time '999"),
    (f"fit llama-2-7b --batch {DIGITS}", "--batch"),
    (f"tunable plan llama-2-7b --prompt {DIGITS}", "--prompt 999"),
    ("fit llama-2-7b --method none", "--method 'none'"),
    ("fit llama-2-7b --map nowhere", "--map 'nowhere'"),
    ("fit llama-2-7b --offloading", "--offloading without checkpointing"),
    ("fit llama-2-7b --gpu MI1", "--gpu MI1"),
    ("step kernel.py --group 99", "--group 99"),
    (f"step {SOFTMAX} --grid 1", "give --lds"),
    ("--show-completion tcsh", "'tcsh'"),
    ("list --notebooks nowhere", "nowhere"),
    ("run 77", "notebook 77"),
    ("run 01 --jobs 0", "0: give a number"),
    ("run 01 --jobs -3", "-3: give a number"),
    ("run 01 --jobs many", "--jobs"),
    ("run 01 --out ''", "no folder named"),
    ("run 01 --out file.txt", "file.txt"),
    ("run 01 --out file.txt/deeper", "is a file"),
    ("run 01 --notebooks nowhere", "nowhere"),
    ("store 77", "notebook 77"),
    ("store 01 --jobs 0", "0: give a number"),
    ("lab --notebooks nowhere", "nowhere"),
    ("hub --running 0", "0.0: give a number"),
    ("hub --running 1 --idle 2", "--running 1, --idle 2"),
    ("hub --root nosuch", "no such folder"),
    ("doctor --timeout 0", "0.0: give a number"),
    ("doctor --timeout nan", "nan: give a number"),
    ("copy", "no helper named"),
    ("copy ../../etc/passwd", "../../etc/passwd"),
    ("copy common.device.nothing", "common.device.nothing"),
    ("copy common.device.seed_all --out ''", "no file named"),
    ("copy common.device.seed_all --out folder", "folder is a folder"),
    ("copy common.device.seed_all --out file.txt/x", "is a file"),
    ("launch pbs", "'pbs'"),
    ("launch slurm --nodes 0", "--nodes '0'"),
    ("launch slurm --nodes 1:2", "--nodes '1:2'"),
    ("launch torchrun --nodes 3:2", "--nodes '3:2'"),
    ("launch torchrun --nodes ٢", "--nodes "),
    ("launch slurm --gpus 0", "0: give a number"),
    ("launch slurm --time 4h", "--time '4h'"),
    ("launch slurm --time 00:00:00", "--time '00:00:00'"),
    ("launch torchrun --time 04:00:00", "only slurm"),
    ("launch slurm -- --lr 1", "start with a script"),
    ("launch slurm -- ''", "an empty word"),
    ("launch slurm --out folder", "folder is a folder"),
    ("inspect nowhere.py", "nowhere.py"),
    ("passport nowhere", "nowhere"),
    ("passport ../..", "../.."),
    ("step nowhere.py", "nowhere.py"),
    ("ck search 12x12", "'12x12': give M, N and K"),
    ("ck search 0x1x1", "M=0"),
    ("ck search 16x16x16 --dtype fp4", "'fp4'"),
    ("ck check mine 16x16x16", "'mine': no such instance"),
    ("ck check one_wave 16x16x16 --set KPerBlock", "--set 'KPerBlock'"),
    ("ck check one_wave 16x16x16 --set Tile=3", "Tile: no template parameter"),
    ("ck source one_wave 17x17x17", "no multiple of"),
    ("step kernel.py --steps -1", "--steps -1"),
    ("step kernel.py --arg x=fp32[4] --arg y=fp32[4] --lanes 99", "--lanes 99"),
    ("inspect kernel.py --arg x", "--arg x"),
    ("inspect kernel.py --arg x=fp99[4] --arg y=fp32[4]", "fp99"),
    ("inspect kernel.py --arg x=fp32[4294967295,4294967295] --arg y=fp32[4]", "4294967295"),
    ("inspect kernel.py --option waves_per_eu=abc", "waves_per_eu=abc"),
    ("inspect kernel.py --option nosuch=1", "nosuch"),
    ("inspect kernel.py --option arch=gfx90a", "arch=gfx90a"),
    ("inspect kernel.py --stages -1", "num_stages=-1"),
    ("inspect kernel.py --arg x=fp32[4] --arg y=fp32[4] --stages -1", "num_stages=-1"),
    ("inspect kernel.py --arg x=fp32[4] --arg y=fp32[4] --warps 3", "num_warps=3"),
    ("inspect kernel.py --arch gfx1", "gfx1"),
    ("inspect kernel.py --html ''", "no file named"),
    ("inspect kernel.py --html folder", "folder is a folder"),
    ("step kernel.py --html file.txt/x", "not a folder"),
    ("inspect kernel.py --arg x=fp32[4] --arg y=fp32[4] --lds 64", "--lds 64"),
    ("inspect file.txt --lds -5", "-5: give a number"),
    ("inspect file.txt --arg n=4 --stages 2", "--arg, --stages: for a .py file"),
    ("table nosuch", "nosuch"),
    ("table softmax --jobs 0", "No such option: --jobs"),
    ("tunable plan random:llama-2-7b --dtype int8", "'int8'"),
    ("tunable plan llama-2-7b --batch 0", "0: give a number"),
    ("tunable plan llama-2-7b --batch 99999999999999", "99,999,999,999,999: give a number"),
    ("tunable plan llama-2-7b --batch 100000 --prompt 10000000", "--batch 100000, --prompt 10000000"),
    ("tunable plan llama-2-7b --batch many", "--batch"),
    ("tunable plan llama-2-7b --prompt 0", "--prompt 0"),
    ("tunable plan llama-2-7b --prompt 1:99999999999", "--prompt 1:99999999999"),
    ("tunable plan llama-2-7b --prompt 5,x", "--prompt 5,x"),
    ("tunable plan llama-2-7b --prompt 5:1", "--prompt 5:1"),
    ("tunable plan llama-2-7b --prompt ''", "--prompt"),
    ("tunable plan llama-2-7b --pad 0", "0: give a number"),
    ("tunable plan llama-2-7b --pad -8", "-8: give a number"),
    ("tunable plan llama-2-7b --new-tokens 0", "0: give a number"),
    ("tunable plan random:llama-2-7b --tensor-parallel 0", "0: give a number"),
    ("tunable plan random:llama-2-7b --gpu MI355X", "--gpu MI355X: only with --covers"),
    ("tunable plan random:llama-2-7b --out folder", "folder is a folder"),
    ("tunable check nowhere.csv", "nowhere.csv"),
    ("tunable merge nowhere.csv", "nowhere.csv"),
    (f"tunable merge {RESULTS} --out ''", "no file named"),
    ("tunable plan llama-2-7b --covers nowhere.csv", "nowhere.csv"),
    ("tunable tune nowhere.csv out.csv", "nowhere.csv"),
    (f"tunable tune {RESULTS} folder", "folder is a folder"),
    (f"tunable tune {RESULTS} out.csv --gpus 0", "0: give a number"),
    ("trace record nowhere.py", "nowhere.py"),
    ("trace record -m no.such.module", "no.such.module"),
    ("trace record --out folder script.py", "folder is a folder"),
    ("trace record --out '' script.py", "no file named"),
    ("trace record --frobnicate script.py", "--frobnicate"),
    ("trace summary nowhere.json", "nowhere.json"),
    (f"trace summary {TRACE} --top 0", "0: give a number"),
    (f"trace compare {TRACE} {TRACE} --by colour", "'colour'"),
    (f"trace kernels {COUNTERS} --gpu MI1", "MI1"),
    (f"trace kernels {COUNTERS} --dtype fp3", "fp3"),
    ("faults read nowhere.txt", "nowhere.txt"),
    ("faults log nowhere.txt", "nowhere.txt"),
    ("system check --root nowhere", "'nowhere'"),
    ("system set --clock -1 --root folder", "-1: give a number"),
    ("system set --hugepages maybe --root folder", "'maybe'"),
    ("system set --partition XYZ --root folder", "'XYZ'"),
    ("system set --power-cap 0 --root folder", "0: give a number"),
    ("system set --state '' --root folder", "no file named"),
    ("system reset --root nowhere", "'nowhere'"),
    ("fit", "model"),
    ("fit llama-2-7b --count zero", "--count"),
    ("fit llama-2-7b --count 0", "--count 0"),
    ("fit llama-2-7b --count 99999999999999999999", "--count 99999999999999999999"),
    ("fit llama-2-7b --batch -1", "--batch -1"),
    ("fit llama-2-7b --batch 99999999999999999999", "--batch 99999999999999999999"),
    ("fit llama-2-7b --seq 0", "--seq 0"),
    ("fit gpt2 --seq 2048", "--seq 2048"),
    ("fit opt-13b --seq 2049 --method serve", "2,048 positions"),
    ("fit llama-2-7b --method lora --rank 0", "--rank 0"),
    ("fit llama-2-7b --method lora --dropout nan", "--dropout nan"),
    ("fit llama-2-7b --method lora --dropout 1", "--dropout 1"),
    ("fit llama-2-7b --accumulation -2", "--accumulation -2"),
    ("fit llama-2-7b --memory nan", "--memory nan"),
    ("fit llama-2-7b --memory -5", "--memory -5"),
    ("fit llama-2-7b --memory 1e300", "--memory 1e+300"),
    ("run 02 -p MODEL llama-2-7b", "random:llama-2-7b"),
    ("passport nowhere", "nowhere: no passport.json there"),
    ("passport folder", "folder: no passport.json there"),
    ("serve", "RUN"),
    ("serve nowhere", "nowhere: no such folder"),
    ("serve ''", "no such folder"),
    ("serve file.txt", "file.txt: no such folder"),
    ("serve folder", "neither config.json nor adapter_config.json"),
    ("serve folder --engine tgi", "'tgi'"),
    ("serve folder --port 0", "0: give a number"),
    ("serve folder --port 70000", "70,000: give a number"),
    ("serve folder --cache-tokens 1", "1: give a number"),
    ("serve folder --host 0.0.0.0", "--host 0.0.0.0: whoever reaches this address could use the server; set a key"),
    ("serve folder --api-key short", "16 to 200 visible ASCII characters"),
    ("serve folder -- --host 0.0.0.0", "stand before the --"),
    ("serve folder --wait nan", "nan: give a number"),
    ("bench", "URL"),
    ("bench here", "'here': no address of a server"),
    ("bench http://127.0.0.1:9", "no server answers"),
    ("bench http://h --users 0", "--users 0"),
    ("bench http://h --users one", "--users one"),
    ("bench http://h --users 1.5", "--users 1.5"),
    ("bench http://h --users ''", "nothing to measure"),
    ("bench http://h --rates -1", "--rates -1"),
    ("bench http://h --rates nan", "--rates nan"),
    ("bench http://h --requests 0", "0: give a number"),
    ("bench http://h --tokens 0", "0: give a number"),
    ("bench http://h --first nan", "nan: give a number"),
    ("bench http://h --client curl", "No such option: --client"),
    ("bench http://h --out folder", "folder is a folder"),
    ("bench http://h --plot picture.txt", "name a .png or .svg"),
]

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def double(x, y):
    i = tl.arange(0, 4)
    tl.store(y + i, 2 * tl.load(x + i))


def example():
    double[(1,)](torch.empty(4), torch.empty(4))
"""

# All in one process: starting one for each takes a minute.
RUN = """
import contextlib, io, json, shlex, sys
from cdna.cli.main import main as cdna
from course.__main__ import main as course
from hub.__main__ import main as hub
from rocm_guide.cli.main import main as guide
found = []
for words in json.loads(sys.stdin.read()):
    sys.argv = ["rocm-guide", *shlex.split(words)]
    main = {"inspect": cdna, "step": cdna, "store": course, "table": course, "hub": hub}.get(sys.argv[1], guide)
    if main is hub:
        del sys.argv[1]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
            code = 0
        except SystemExit as e:
            code = e.code
        except BaseException as e:
            code = f"{type(e).__name__}: {e}"
    found.append([words, code, out.getvalue(), err.getvalue()])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    (folder / "folder").mkdir()
    (folder / "file.txt").write_text("kept")
    (folder / "script.py").write_text("raise SystemExit('the script must not run')")
    (folder / "kernel.py").write_text(KERNEL)
    for name, recipe in ODD.items():
        fields = {**SHAPES["llama-2-7b"], "quantization_config": recipe}
        (folder / f"odd_{name}.json").write_text(json.dumps(fields))
    before = {p.name for p in folder.iterdir()}
    words = json.dumps([b[0] for b in BAD])
    clone = Path(rocm_guide.__file__).parents[1]
    env = dict(os.environ, PYTHONPATH=f"{clone}:{clone}/cdna")
    command = [sys.executable, "-c", RUN]
    done = subprocess.run(command, input=words, capture_output=True, text=True, cwd=folder, env=env, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    # Python itself keeps what it compiled of an imported file, unless the environment says not to.
    left = {str(p.relative_to(folder)) for p in folder.rglob("*") if "__pycache__" not in p.parts}
    assert (folder / "file.txt").read_text() == "kept"
    return {words: (code, out, err) for words, code, out, err in json.loads(done.stdout)}, left - before


@pytest.mark.parametrize(("words", "named"), BAD, ids=[b[0][:60] for b in BAD])
def test_a_bad_option_is_one_line(refusals, words, named):
    code, out, err = refusals[0][words]
    assert code == 2 and not out, (code, out[:200], err)
    assert err.count("\n") == 1 and named in err and "Traceback" not in err and len(err) < 1800


def test_nothing_was_written(refusals):
    assert refusals[1] == set()


def test_every_command_has_a_bad_option_in_the_table():
    assert {b[0].split()[0] for b in BAD if b[0][0] != "-"} == {*COMMANDS, "inspect", "step", "store", "table", "hub"}


@pytest.mark.parametrize("old", FORMER)
def test_a_former_command_says_the_new_one(old, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["rocm-guide", *old.split(), "--help"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2 and capsys.readouterr().err == f"rocm-guide {old}: is called {FORMER[old]} now\n"


def test_a_number_or_path_in_order_goes_through(tmp_path):
    assert between(1, 8)(1) == 1 and between(1)(None) is None
    assert out_file(str(tmp_path / "new" / "x")) == tmp_path / "new" / "x" and not (tmp_path / "new").exists()
    assert out_folder(str(tmp_path)) == tmp_path
    with pytest.raises(typer.BadParameter, match="is a folder"):
        out_file(tmp_path)


def test_the_resume_line_repeats_the_run():
    """What an interrupted run advises is the same run: read back by the same parser, and quoted for a shell."""
    import shlex

    line = resume_line(
        ["01", "25"], 3, ["MODEL=random:llama-2-7b", "TEXT=a b", "RANK=-1"], Path("my runs"), Path("n b")
    )
    words = prepare(shlex.split(line))
    assert words[:5] == ["rocm-guide", "run", "01", "25", "--resume"]
    pairs = [words[i + 1] for i, w in enumerate(words) if w == "-p"]
    assert pairs == ["MODEL=random:llama-2-7b", "TEXT=a b", "RANK=-1"]
    assert words[words.index("--out") + 1] == "my runs" and words[words.index("--notebooks") + 1] == "n b"
    assert words[words.index("--jobs") + 1] == "3"
    assert resume_line(None, None, None, Path("runs"), None) == "rocm-guide run --resume --out runs"
