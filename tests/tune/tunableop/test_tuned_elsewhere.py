# SPDX-License-Identifier: MIT
"""Files of hipBLASLt, vLLM and AITER: which line a model's products get, and what is odd is named with its line."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rocm_guide.common.base import GuideError
from rocm_guide.tune.tunableop import covers, plan, read_tuned, write_file
from rocm_guide.tune.tunableop.coverage import hipblaslt_key, padded_tokens
from rocm_guide.tune.tunableop.gemm import parse_gemm

SAMPLES = Path(__file__).parents[2] / "samples/tunableop/elsewhere"
GEMMS, EXPERTS = SAMPLES / "a8w8_tuned_gemm.csv", SAMPLES / "tuned_fmoe.csv"
LOG, TUNED = SAMPLES / "hipblaslt.log", SAMPLES / "hipblaslt_tuning.csv"
TILES = SAMPLES / "E=128,N=768,device_name=AMD_Instinct_MI300X.json"


def lines_of(path, model, **how):
    """The line of each product, None where it has none, by what is asked."""
    return {one.what: one.row and one.row.line for one in covers(read_tuned(path), model, **how).asked}


def changed(tmp_path, path, *edits):
    """A copy of a sample with words replaced, each in a line of its own: (line, old, new)."""
    lines = path.read_text().split("\n")
    for line, old, new in edits:
        assert old in lines[line - 1]
        lines[line - 1] = lines[line - 1].replace(old, new, 1)
    copy = tmp_path / path.name
    copy.write_text("\n".join(lines))
    return copy


def test_aiter_looks_up_what_an_engine_multiplies():
    found = lines_of(GEMMS, "llama-3-8b", prompt=[120])
    assert found["M=1 N=6144 K=4096  self_attn.qkv_proj"] == 2, "q, k and v are one product"
    assert found["M=120 N=6144 K=4096  self_attn.qkv_proj"] == 3, "padded to 128 rows"
    assert found["M=120 N=4096 K=4096  self_attn.o_proj"] is None, "line 5 is for another GPU"
    assert sum(line is not None for line in found.values()) == 2 and len(found) == 8
    report = covers(read_tuned(GEMMS), "llama-3-8b", prompt=[120])
    assert report.asked[0].row.line == 3 and report.asked[0].note.startswith("as 128 tokens; q_dtype_w=")
    assert report.said == ["line 5: for gfx950 with 256 compute units; a MI300X is gfx942 with 304"]
    other = lines_of(GEMMS, "llama-3-8b", prompt=[120], gpu_name="MI355X")
    assert [k for k, line in other.items() if line] == ["M=120 N=4096 K=4096  self_attn.o_proj"]


def test_a_type_that_stands_among_few_columns_is_compared(tmp_path):
    """bf16_tuned_gemm.csv has columns that others have not; which of them are there, the header says."""
    head = "gfx,cu_num,M,N,K,bias,dtype,us,kernelName"
    (tmp_path / "t.csv").write_text(f"{head}\ngfx942,304,1,6144,4096,False,torch.bfloat16,9,kernel_8\n")
    found = read_tuned(tmp_path / "t.csv")
    row, other = (covers(found, "llama-3-8b", prompt=[1], dtype=d).asked[0] for d in ("bfloat16", "float16"))
    assert row.row.line == 2 and row.note == "bias=False, dtype=torch.bfloat16"
    assert other.row is None and other.note == "line 2: of another type (bias=False, dtype=torch.bfloat16)"


def test_rows_are_padded_as_aiter_pads_them():
    fine = {1: 16, 256: 256, 257: 288, 1024: 1024, 1025: 1088, 4096: 4096, 4097: 4224}
    assert all(padded_tokens(m, 4096)[1 if m != f else 0] == f for m, f in fine.items())
    assert padded_tokens(9000, 4096)[-1] == 16384 and padded_tokens(9000, 4097)[-1] == 8192


def test_tensor_parallel_cuts_the_products():
    found = lines_of(GEMMS, "llama-3-8b", tensor_parallel=4, new_tokens=1)
    assert [what.split("  ")[0] for what in found] == [
        "M=128 N=1536 K=4096",
        "M=128 N=4096 K=1024",
        "M=128 N=7168 K=4096",
        "M=128 N=4096 K=3584",
    ]
    with pytest.raises(GuideError, match=r"tensor_parallel=3.*4096 of self_attn\.q_proj"):
        lines_of(GEMMS, "llama-3-8b", tensor_parallel=3)


def test_experts_are_looked_up_by_padded_tokens():
    found = covers(read_tuned(EXPERTS), "qwen3-30b-a3b", prompt=[100])
    assert [(a.row.line, a.row.choice, a.row.us) for a in found.asked] == [
        (3, "stage1_b + stage2_b", 320.5),
        (2, "stage1_a + stage2_a", 50.75),
    ]
    assert found.asked[0].note.startswith("as 128 tokens; act_type=ActivationType.Silu")
    assert found.said == ["line 4: for gfx942 with 80 compute units; a MI300X is gfx942 with 304"]
    assert covers(read_tuned(EXPERTS), "qwen3-30b-a3b", tensor_parallel=2).covered == 0
    halved = covers(read_tuned(EXPERTS), "qwen3-30b-a3b", dtype="float16").asked[0]
    assert halved.row is None and "line 3: of another type" in halved.note
    with pytest.raises(GuideError, match="no experts"):
        covers(read_tuned(EXPERTS), "llama-3-8b")


def test_vllm_takes_the_nearest_number_of_tokens_of_exactly_its_file(tmp_path):
    found = covers(read_tuned(TILES), "qwen3-30b-a3b", prompt=[33])
    assert [(a.row.line, a.row.choice) for a in found.asked] == [
        (6, "64x128x64 SPLIT_K=1 num_warps=8 num_stages=2"),
        (2, "16x64x128 num_warps=4 num_stages=2"),
    ]
    assert found.asked[0].note == "the nearest, of 64 tokens"
    for options, wanted in (
        ({"tensor_parallel": 2}, "E=128,N=384,device_name=AMD_Instinct_MI300X.json"),
        ({"gpu_name": "MI355X"}, "E=128,N=768,device_name=AMD_Instinct_MI355X.json"),
    ):
        missed = covers(read_tuned(TILES), "qwen3-30b-a3b", **options).asked[0]
        assert missed.row is None and missed.note == f"vLLM looks for {wanted}"
    copy = tmp_path / TILES.name.replace(".json", ",dtype=fp8_w8a8,block_shape=[128,128].json")
    shutil.copy(TILES, copy)
    assert covers(read_tuned(copy), "qwen3-30b-a3b").covered == 0
    fields = {"model_type": "qwen3_moe", "hidden_size": 2048, "num_experts": 128, "num_experts_per_tok": 8}
    fields |= {"moe_intermediate_size": 768, "intermediate_size": 6144, "num_hidden_layers": 2, "head_dim": 128}
    fields |= {"num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 1024}
    fields |= {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    assert covers(read_tuned(copy), str(tmp_path)).covered == 2
    assert covers(read_tuned(TILES), str(tmp_path)).covered == 0


def test_hipblaslt_compares_sizes_letters_and_types():
    log, tuned = (lines_of(path, "llama-3-8b") for path in (LOG, TUNED))
    assert [line for line in log.values() if line] == [2, 3] and [line for line in tuned.values() if line] == [2, 3]
    assert read_tuned(LOG).rows[1].times == 2 and read_tuned(LOG).about["other lines"] == 1
    assert not [line for line in lines_of(TUNED, "llama-3-8b", dtype="float16").values() if line]
    said = covers(read_tuned(TUNED), "llama-3-8b", prompt=[64]).said
    assert "line 2: this workload never asks for it" in said
    scaled = parse_gemm(
        "ScaledGemmTunableOp_Float8_e4m3fnuz_Float8_e4m3fnuz_BFloat16_TN,tn_48_1_64_ld_64_64_48_rw_1_bias_None"
    )
    assert hipblaslt_key(scaled)[6:] == ("f8_fnuz_r", "f8_fnuz_r", "bf16_r", "f32_r")
    assert hipblaslt_key(parse_gemm("GemmTunableOp_c10::complex<float>_NN,nn_1_1_1")) is None
    with pytest.raises(GuideError, match="tensor_parallel=2"):
        covers(read_tuned(LOG), "llama-3-8b", tensor_parallel=2)


def test_tunableop_results_cover_the_plan_that_they_were_tuned_for(tmp_path):
    gemms = [e.gemm for e in plan("llama-3-8b", new_tokens=2).gemms.values()]
    write_file(tmp_path / "results.csv", [replace(g, solution="Default", time_ms=0.5) for g in gemms[:-1]])
    found = covers(read_tuned(tmp_path / "results.csv"), "llama-3-8b", new_tokens=2)
    assert found.covered == len(gemms) - 1 and found.asked[-1].row is None
    assert [a.row.line for a in found.asked[:-1]] == list(range(1, len(gemms))) and found.asked[0].row.us == 500


@pytest.mark.parametrize(
    ("path", "edits", "said"),
    [
        (GEMMS, [(1, "M,N,K", "M,K")], "1: the header has no column N"),
        (GEMMS, [(1, "M,N,K", "M,N,N")], "1: the header has no column K"),
        (GEMMS, [(1, "K,q", "K,K,q")], "1: the header has the column K twice"),
        (GEMMS, [(1, "errRatio", "error")], "1: column error"),
        (GEMMS, [(1, "gfx,cu_num,M", "gfx,cu_num,B,M")], "1: column B"),
        (GEMMS, [(2, "gfx942,304", "304,gfx942")], "2: cu_num=gfx942"),
        (GEMMS, [(2, "gfx942", "MI300X")], "2: gfx=MI300X"),
        (GEMMS, [(3, ",0.0", "")], "3: 13 columns where the header has 14"),
        (GEMMS, [(3, "128,6144", "-128,6144")], "3: M=-128"),
        (GEMMS, [(3, "21.5", "fast")], "3: us=fast"),
        (GEMMS, [(3, "21.5", "nan")], "3: us=nan"),
        (GEMMS, [(3, "rows_128x128x128", "")], "3: kernelName is empty"),
        (GEMMS, [(3, "asm", "12")], "3: libtype=12"),
        (EXPERTS, [(2, "304,1", "305,1")], "2: cu_num=305: no architecture"),
        (EXPERTS, [(1, "topk", "top_k")], "1: the header has no column topk"),
        (LOG, [(2, "--transA T", "--transA X")], "2: transA=X"),
        (LOG, [(3, "-k 4096 ", "")], "3: the command has no -k"),
        (LOG, [(2, "-m 4096", "-m")], "2: -m has no value"),
        (LOG, [(2, "bf16_r", "bf17_r")], "2: a_type=bf17_r"),
        (LOG, [(2, "--transB N", "--transA N")], "2: --transA stands twice"),
        (LOG, [(2, "--api_method c", "api c")], "2: api where an option"),
        (TUNED, [(1, "compute_type", "computeType")], "1: the header has no column compute_type"),
        (TUNED, [(2, "T,N,0,1", "T,N,0")], "2: 35 columns where the header has 36"),
        (TUNED, [(2, "4096,128,4096", "bf16_r,128,4096")], "2: m=bf16_r"),
        (TUNED, [(3, ",411,", ",-1,")], "3: solution_index=-1"),
        (TILES, [(3, '"BLOCK_SIZE_M": 16', '"BLOCK_SIZE_M": 24')], "2: BLOCK_SIZE_M=24: Triton takes powers of two"),
        (TILES, [(3, '"BLOCK_SIZE_M": 16', '"BLOCK_SIZE_M": true')], "2: BLOCK_SIZE_M=True"),
        (TILES, [(3, '"BLOCK_SIZE_M": 16, ', "")], "2: the tiles for 1 tokens have no BLOCK_SIZE_M"),
        (TILES, [(6, '"64"', '"many"')], "6: tokens=many"),
        (TILES, [(6, '"64"', '"1"')], "'1' stands twice"),
        (TILES, [(6, '"64"', '"01"')], "6: 1 tokens stand twice"),
        (TILES, [(8, "2", "2,")], ":9: is no JSON"),
    ],
)
def test_what_a_tuner_would_not_write_is_named_with_its_line(tmp_path, path, edits, said):
    with pytest.raises(GuideError) as error:
        read_tuned(changed(tmp_path, path, *edits))
    assert said in str(error.value) and path.name in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("path", "edits", "said"),
    [
        (GEMMS, [(3, "128,6144", "1,6144")], ":3: for the same as line 2: AITER does not load"),
        (EXPERTS, [(3, "304,128", "304,1")], ":3: for the same as line 2: AITER takes the first"),
        (TUNED, [(3, "4096,1,4096", "4096,128,4096")], ":3: for the same as line 2: hipBLASLt keeps both"),
        (TUNED, [(1, "rotating_buffer", "schema")], ":1: column schema: not known here"),
        (TUNED, [(1, "kernel_name", "scaleE")], "an index alone counts only in the build"),
        (LOG, [(2, "--rotating 0", "--turning 0")], ":2: --turning: an option that is not known"),
        (TILES, [(4, '"kpack": 2', '"num_ctas": 2')], ":2: num_ctas=2: a number that is not known"),
    ],
)
def test_what_is_odd_is_said_and_the_rest_is_read(tmp_path, path, edits, said):
    found = read_tuned(changed(tmp_path, path, *edits))
    assert any(said in line for line in found.problems), found.problems
    assert found.rows and not read_tuned(path).problems


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.csv", "", "t.csv:1: begins with nothing"),
        ("t.csv", "M,N,K\n1,2,3\n", "it names no kernel"),
        ("t.csv", "a,b\n", "begins with a,b; known are"),
        ("t.csv", "T,N,0,1,8,8,8\n", "begins with T,N"),
        ("tiles.json", "{}", "vLLM looks for E="),
        ("E=8,N=8,device_name=X,block_shape=[128, 128].json", "{}", "vLLM looks for E="),
        ("E=8,N=8,device_name=X.json", "{}", "tokens and their tiles"),
        ("E=8,N=8,device_name=X.json", '{"1": 5}', ":1: 1: 5: give the tiles"),
    ],
)
def test_a_file_of_no_known_kind_is_refused(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(GuideError) as error:
        read_tuned(tmp_path / name)
    assert said in str(error.value)


def test_the_command_prints_lines_and_gaps(capsys, monkeypatch):
    from rocm_guide.cli import main as cli

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["rocm-guide", "tunable", "plan", *words])
        with pytest.raises(SystemExit) as left:
            cli.main()
        assert not left.value.code
        return capsys.readouterr().out

    text = run("llama-3-8b", "--covers", str(GEMMS))
    assert "line 3  M=128 N=6144 K=4096  self_attn.qkv_proj  rows_128x128x128, 21.5 us" in text
    assert (
        "missing  M=1 N=4096 K=14336  mlp.down_proj" in text and "2 of 8 that llama-3-8b asks for have a line" in text
    )
    data = json.loads(run("llama-3-8b", "--covers", str(GEMMS), "--json"))
    assert (data["kind"], data["covered"], data["products"]) == ("aiter gemm", 2, 8)
    assert data["asked"][0]["line"] == 3 and data["said"]
