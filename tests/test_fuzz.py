# SPDX-License-Identifier: MIT
"""A few damaged inputs to every reader (tests/fuzz_all.py runs as many as you like)."""

import sys

import pytest

from rocm_guide.common.base import GuideError
from tests.fuzz_all import PROGRAMS, TARGETS, campaign, commands_of, mutate

COUNT = 60
#: What profilers, TunableOp and compilers write is read most often: a thousand of each; ten thousand were read once.
OFTEN = {"rocprof-csv", "rocpd", "tunable-csv", "assembly", "quantised"}
#: Samples that are refused as they are, and why: arguments go no further than the compiler, a family has heads that
#: its own rotary sections do not divide, a server answers with an error.
REFUSED = {"inspect-arguments": "left out", "model-config": "not counted here", "bench-stream": "'message': 'no'"}


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_input_gives_a_result_or_a_named_error(name):
    count = 1000 if name in OFTEN else COUNT
    found = campaign(name, count)
    assert not found["wrong"], found["wrong"][:3]
    least = TARGETS[name][2]
    assert found["refused"] >= count * least / 2, "the mutator hardly ever breaks anything"


@pytest.mark.parametrize("name", [n for n in TARGETS if not n.startswith("fault-uri")])
def test_the_samples_themselves_are_read(name, tmp_path):
    samples, read, _ = TARGETS[name]
    for data in samples():
        try:
            read(data, tmp_path)
        except GuideError as e:
            assert name in REFUSED and REFUSED[name] in str(e), e


def test_damage_to_assembly_shows_in_the_report(tmp_path):
    """Assembly is seldom refused; so that the target says something, what it reports has to follow the text."""
    import random

    samples, read, _ = TARGETS["assembly"]
    before = {data: read(data, tmp_path) for data in samples()}
    rng, followed = random.Random(7), 0
    for _ in range(COUNT):
        data = rng.choice(list(before))
        try:
            followed += read(mutate(data, rng), tmp_path) != before[data]
        except GuideError:
            followed += 1
    assert followed >= COUNT / 3, "most of what is damaged is read as if it were whole"


def test_a_reader_that_lets_an_error_through_is_found(monkeypatch):
    def read(data, _):
        data.decode()

    monkeypatch.setitem(TARGETS, "broken", (lambda: [b"text" * 20], read, 0))
    found = campaign("broken", 200)
    assert found["unnamed"] and "UnicodeDecodeError" in found["wrong"][0][1]


def test_nearly_every_option_of_every_command_is_among_the_lines():
    """All but those whose command asks for something else beside (the machines of a launch, a GPU)."""
    lines = [line.decode().split("\t") for line in TARGETS["options"][0]()]
    for program in PROGRAMS:
        for words, command in commands_of(program).items():
            start = words.split("\t")
            tried = {w for line in lines if line[: len(start)] == start for w in line}
            options = {max(p.opts, key=len) for p in command.params if p.param_type_name == "option"}
            assert options - tried <= {"--nodes", "--gpus", "--time", "--out", "--cache-tokens", "--runs"}, words


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("raise ValueError('of the program')", "ValueError: of the program"),
        ("open('t.csv', 'w').write('')", "these files are lost or changed"),
        ("open('half', 'w').write('x'); print('no', file=sys.stderr); sys.exit(2)", "refused, and wrote"),
        ("print('one\\ntwo', file=sys.stderr); sys.exit(2)", "more than a line"),
        ("sys.exit(3)", "exit code 3"),
    ],
)
def test_a_command_that_misbehaves_is_found(monkeypatch, tmp_path, does, said):
    (tmp_path / "misbehaves.py").write_text(f"import sys\n\n\ndef main():\n    {does}\n    sys.exit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "misbehaves", raising=False)
    monkeypatch.setitem(PROGRAMS, "guide", "misbehaves")
    found = campaign("command-line", 4)
    assert found["unnamed"] and said in found["wrong"][0][1]


def test_the_same_seed_gives_the_same_inputs():
    import random

    assert [mutate(b"abc" * 9, random.Random(3)) for _ in range(2)] == [mutate(b"abc" * 9, random.Random(3))] * 2


def test_assembly_whose_kernel_is_not_in_it_is_refused():
    from cdna.inspection import inspect_assembly
    from tests.fuzz_all import ISA

    text = (ISA / "nested_t39.amdgcn").read_text()
    assert [one.name for one in inspect_assembly(text)] == ["nested"]
    damaged = text.replace(".amdhsa_kernel nested", ".amdhsa_kernel other").replace(
        ".name:           nested", ".name:           other"
    )
    with pytest.raises(GuideError, match="names as its kernels"):
        inspect_assembly(damaged)
