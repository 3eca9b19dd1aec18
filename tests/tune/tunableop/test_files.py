# SPDX-License-Identifier: MIT
"""Results and untuned files: every release's form, damaged files, killed writes, merging."""

import contextlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocm_guide.tune.tunableop.files import (
    TuningFile,
    explain_validators,
    merge,
    missing,
    parse_text,
    read_file,
    write_file,
)
from rocm_guide.tune.tunableop.gemm import DTYPE_NAMES, KINDS, Gemm, TunableFileError, parse_gemm

SAMPLES = Path(__file__).parents[2] / "samples" / "tunableop"
FILES = sorted(SAMPLES.glob("*.csv"))
FUZZ = int(os.environ.get("ROCM_GUIDE_FUZZ", "1000"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_form_survives_a_round_trip(path):
    assert len(FILES) == 4
    file = read_file(path)
    assert file.text() == path.read_text()
    assert not file.problems


def test_fields_of_each_form():
    old = read_file(SAMPLES / "results_torch2.3.csv").gemms
    assert old["GemmTunableOp_float_NN", "nn_1024_512_2048"].ld is None
    assert old["GemmStridedBatchedTunableOp_Half_TN", "tn_128_32_64_B_16"].batch == 16
    assert old["GemmTunableOp_c10::complex<float>_NN", "nn_64_64_64"].time_ms is None
    new = list(read_file(SAMPLES / "results_torch2.6.csv").gemms.values())
    assert new[0].ld == (4096, 4096, 4096)
    assert (new[3].dtypes, new[3].rowwise, new[3].bias) == (
        ("Float8_e4m3fnuz", "Float8_e4m3fnuz", "BFloat16"),
        False,
        "None",
    )
    logged = list(read_file(SAMPLES / "results_torch2.11_blaslog.csv").gemms.values())
    assert logged[0].blas_params.startswith("- { function: matmul, M: 256,")
    assert logged[1].rowwise is True
    untuned = list(read_file(SAMPLES / "untuned_torch2.11.csv").gemms.values())
    assert not any(g.tuned for g in untuned)
    assert untuned[3].ld == (64, 0, 264)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("GemmTunableOp_float_NN", "1 columns"),
        ("GemmTunableOp_int_NN,nn_1_1_1", "not a TunableOp operator"),
        ("GemmTunableOp_float_NN,nn_1_1", "parameters look like"),
        ("GemmTunableOp_float_NN,nt_1_1_1", "disagree"),
        ("GemmTunableOp_float_NN,nn_0_1_1", "m=0"),
        ("GemmTunableOp_float_NN,nn_1_99999999999999999999_1", "n=99999999999999999999"),
        ("GemmTunableOp_float_NN,nn_1_1_1_ld_1_1_99999999999999999999", "ldc=9999"),
        ("GemmTunableOp_float_NN,nn_1_1_1_B_2", "belongs to GemmStridedBatched"),
        ("GemmStridedBatchedTunableOp_float_NN,nn_1_1_1", "belongs to GemmStridedBatched"),
        ("ScaledGemmTunableOp_Half_TN,tn_1_1_1", "3 element types"),
        ("GemmTunableOp_float_NN,nn_1_1_1,,0.1", "solution is empty"),
        ("GemmTunableOp_float_NN,nn_1_1_1,Default,fast", "time='fast'"),
        ("GemmTunableOp_float_NN,nn_1_1_1,Default,-1", "time='-1'"),
        ("GemmTunableOp_float_NN,nn_1_1_1,Default,nan", "time='nan'"),
        ("GemmTunableOp_float_NN,nn_1_1_1,Default,1,2", "5 columns"),
    ],
)
def test_bad_lines_are_named(line, words):
    with pytest.raises(TunableFileError, match=words):
        parse_gemm(line)


def test_the_file_and_line_are_named(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("Validator,PT_VERSION,2.11.0\nGemmTunableOp_Half_TN,tn_8\n")
    with pytest.raises(TunableFileError, match=r"r\.csv:2: 'tn_8'"):
        read_file(path)
    assert read_file(path, repair=True).problems[0].startswith("r.csv:2: skipped")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(TunableFileError, match="not UTF-8"):
        read_file(path)
    with pytest.raises(TunableFileError, match="cannot be read"):
        read_file(tmp_path / "absent.csv")
    for text, words in (("Validator,A\n", "Validator,NAME,VALUE"), ("Validator,A,1\nValidator,A,2\n", "two values")):
        with pytest.raises(TunableFileError, match=words):
            parse_text(text)


def test_windows_line_ends_blank_lines_and_doubles():
    f = parse_text(
        "\ufeffValidator,A,1\r\n\r\nGemmTunableOp_Half_TN,tn_8_4_2,X,0.5\nGemmTunableOp_Half_TN,tn_8_4_2,Y,0.1"
    )
    assert [g.solution for g in f.tuned] == ["X"]  # PyTorch keeps the first of two lines
    assert len(f.problems) == 1 and "appears again" in f.problems[0]


def test_truncation_at_every_byte():
    text = (SAMPLES / "results_torch2.6.csv").read_text()
    whole = parse_text(text)
    for cut in range(len(text)):
        part = parse_text(text[:cut], repair=True)
        assert list(part.gemms)[:-1] == list(whole.gemms)[: max(len(part.gemms) - 1, 0)]
        with contextlib.suppress(TunableFileError):
            parse_text(text[:cut])


def _mutate(rng, text):
    data = bytearray(text.encode())
    for _ in range(rng.randint(1, 8)):
        where = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0 and data:
            data[where % len(data)] = rng.randrange(256)
        elif kind == 1:
            del data[where : where + rng.randint(1, 12)]
        elif kind == 2:
            data[where:where] = rng.choice(
                [b",", b"_", b"\n", b"nan", b"-1", b"9" * 40, b"\0", "é".encode(), b"_ld_1_2_3"]
            )
        elif kind == 3:
            end = where + rng.randint(1, 40)
            data[where:where] = data[where:end]
        else:
            data[where : where + 1] = bytes([rng.choice(b",_\nnN0123456789.eE+-:<>")])
    return bytes(data)


def test_mutated_files_raise_only_named_errors(tmp_path):
    """`ROCM_GUIDE_FUZZ=100000 pytest tests/test_tunableop_csv.py -k mutated` is the long campaign: as many files."""
    rng = random.Random(6)
    texts = [p.read_text() for p in FILES]
    path = tmp_path / "mutated.csv"
    refused = 0
    for _ in range(FUZZ):
        data = _mutate(rng, rng.choice(texts))
        path.write_bytes(data)
        try:
            file = read_file(path)
        except TunableFileError as e:
            refused += 1
            assert "\n" not in str(e) and "mutated.csv" in str(e)
            file = parse_text(data.decode("utf-8", errors="replace"), repair=True)
            assert file.problems or "not UTF-8" in str(e)
        # What was accepted can be written and read again unchanged (times have six digits, as PyTorch writes them).
        again = parse_text(file.text())
        assert again.text() == file.text()
        assert again.validators == file.validators
        assert [(k, g.solution) for k, g in again.gemms.items()] == [(k, g.solution) for k, g in file.gemms.items()]
    assert FUZZ / 10 < refused < FUZZ


gemms = st.builds(
    Gemm,
    kind=st.sampled_from([k for k in KINDS if k in ("Gemm", "GemmAndBias")]),
    dtypes=st.sampled_from(DTYPE_NAMES).map(lambda d: (d,)),
    transa=st.sampled_from("ntc"),
    transb=st.sampled_from("ntc"),
    m=st.integers(1, 2**63 - 1),
    n=st.integers(1, 9),
    k=st.integers(1, 9),
    ld=st.none() | st.tuples(*[st.integers(0, 10**12)] * 3),
    solution=st.sampled_from(["Default", "Gemm_Rocblas_1", "Gemm_Hipblaslt_-5"]),
    time_ms=st.none() | st.floats(0, 1e6, allow_nan=False).map(lambda x: float(f"{x:g}")),
)


@given(gemms)
def test_any_line_survives_a_round_trip(gemm):
    assert parse_gemm(gemm.line()) == gemm
    assert parse_gemm(gemm.untuned().line()) == gemm.untuned()


# Few different products, so that files disagree about the same one.
few = st.builds(
    Gemm,
    kind=st.just("Gemm"),
    dtypes=st.just(("Half",)),
    transa=st.just("t"),
    transb=st.just("n"),
    m=st.integers(1, 3),
    n=st.just(1),
    k=st.just(1),
    solution=st.sampled_from([None, "Default", "Gemm_Rocblas_1"]),
    time_ms=st.none() | st.sampled_from([0.1, 0.2, 0.3]),
).map(lambda g: g if g.tuned else g.untuned())


@given(st.lists(st.lists(gemms | few, max_size=12), max_size=4))
@settings(max_examples=200)
def test_merge_never_loses_a_tuned_line(parts):
    files = [TuningFile(gemms={g.key: g for g in part}) for part in parts]
    files.append(TuningFile(gemms={g.key: g.untuned() for f in files for g in f.gemms.values()}))
    merged = merge(files)
    for f in files:
        for g in f.tuned:
            kept = merged.gemms[g.key]
            assert kept.tuned
            if g.time_ms is not None:
                assert kept.time_ms is not None and kept.time_ms <= g.time_ms
    tuned = {g.key for f in files for g in f.tuned}
    assert missing(files[-1], merged).gemms.keys() == files[-1].gemms.keys() - tuned


def test_merge_refuses_other_validators_and_takes_untuned_files():
    a = parse_text("Validator,PT_VERSION,2.4.0\nGemmTunableOp_Half_TN,tn_8_4_2,X,0.5\n")
    b = parse_text("Validator,PT_VERSION,2.5.0\nGemmTunableOp_Half_TN,tn_8_4_2,Y,0.4\n")
    with pytest.raises(TunableFileError, match=r"PT_VERSION is 2\.4\.0"):
        merge([a, b])
    merged = merge([parse_text("GemmTunableOp_Half_TN,tn_8_9_2\n"), a])
    assert merged.validators == a.validators and len(merged.gemms) == 2


def test_missing_and_validators():
    a = parse_text("GemmTunableOp_Half_TN,tn_8_4_2,X,0.4\nGemmTunableOp_Half_TN,tn_8_1_2,X,0.3\n")
    b = parse_text("GemmTunableOp_Half_TN,tn_8_4_2,Y,0.2\nGemmTunableOp_Half_TN,tn_8_7_2,Y,0.2\n")
    assert list(missing(a, b).gemms) == [("GemmTunableOp_Half_TN", "tn_8_1_2")]
    assert explain_validators({"A": "1"}, {"A": "1"}) == []
    assert len(explain_validators({"A": "1", "B": "1"}, {"A": "2", "C": "1"})) == 3


KILL = """
import sys
from rocm_guide.tune.tunableop.files import read_file, write_file
old = read_file(sys.argv[1])
print("ready", flush=True)
while True:
    write_file(sys.argv[1], old)
"""


def test_a_killed_write_leaves_a_whole_file(tmp_path):
    path = tmp_path / "r.csv"
    lines = "".join(f"GemmTunableOp_Half_TN,tn_{n}_1_64_ld_64_64_{n},Gemm_Rocblas_{n},0.5\n" for n in range(1, 4000))
    path.write_text(lines)
    for i in range(4):
        process = subprocess.Popen([sys.executable, "-c", KILL, str(path)], stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(0.05 + 0.03 * i)
        process.kill()
        process.wait()
        assert path.read_text() == lines


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = write_file(tmp_path / "r.csv", [parse_gemm("GemmTunableOp_Half_TN,tn_8_4_2")])

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match="No space left"):
        write_file(path, [parse_gemm("GemmTunableOp_Half_TN,tn_8_8_8")])
    assert path.read_text() == "GemmTunableOp_Half_TN,tn_8_4_2\n"
