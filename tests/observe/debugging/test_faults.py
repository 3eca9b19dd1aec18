# SPDX-License-Identifier: MIT
"""Debug agent reports, code objects, lanes, logs and the environment of a hunt."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
from array import array
from pathlib import Path

import pytest

from rocm_guide.common.base import GuideError
from rocm_guide.observe.debugging.faults.agent_log import (
    AgentReport,
    CodeLine,
    Disassembly,
    FaultError,
    Wave,
    parse_report,
    read_report,
)
from rocm_guide.observe.debugging.faults.code_objects import (
    disassemble,
    extract_code,
    find_objdump,
    parse_uri,
    saved_name,
)
from rocm_guide.observe.debugging.faults.dmesg import read_log, scan_log
from rocm_guide.observe.debugging.faults.hunting_env import HUNT, hunt_environment, hunting, shell_lines
from rocm_guide.observe.debugging.faults.verdict import explain_report, lane_addresses, suspects

SAMPLES = Path(__file__).parents[2] / "samples" / "debugging"
DATA = Path(__file__).parents[3] / "rocm_guide" / "data"
REPORT, CODE = DATA / "fault_report.txt", Path(__file__).parents[2] / "samples/debugging/fault_code.co"
needs_objdump = pytest.mark.skipif(
    find_objdump() is None, reason="needs llvm-objdump 17 or newer (apt install llvm-19)"
)


@pytest.fixture(params=[pytest.param("objdump", marks=needs_objdump), "listing"])
def saved(tmp_path, request, monkeypatch):
    """The folder that --save-code-objects would have written; the code is read by llvm-objdump, or from its listing."""
    uri = read_report(REPORT).faulting[0].disassembly.uri
    shutil.copy(CODE, tmp_path / saved_name(uri))
    if request.param == "listing":
        shutil.copy(DATA / "fault_code.s", tmp_path / f"{saved_name(uri)}.s")
        monkeypatch.setattr("rocm_guide.observe.debugging.faults.code_objects.find_objdump", lambda arch="gfx942": None)
    return tmp_path


# ---- reports that are changed in their meaning


def random_report(rng, first=1, base=0x7F0000000000):
    """Lines of a report, each with what it says: (wave, what, name, value), drawn first; and the waves' numbers."""
    lines = []
    for n in range(first, first + rng.randrange(1, 4)):
        pc, kernargs = base + 4 * rng.randrange(1 << 20), base + (1 << 24)
        head = f"wave_{n}: pc=0x{pc:x} (kernel_code_entry=0x{base:x} <k>, kernargs=0x{kernargs:x}) (running)"
        lines += [("-" * 56, []), (head, [(n, "pc", "", pc)]), ("scalar registers:", [])]
        for row in range(3):
            said = [(n, "scalar", f"s{4 * row + i}", rng.getrandbits(32)) for i in range(4)]
            lines.append(("  ".join(f"{name:>12}: {v:08x}" for *_, name, v in said), said))
        lines.append(("vector registers:", []))
        for row in range(3):
            lanes = [rng.getrandbits(32) for _ in range(64)]
            text = " ".join(f"[{i}] {v:08x}" for i, v in enumerate(lanes))
            lines.append((f"            v{row}: {text}", [(n, "vector", f"v{row}", tuple(lanes))]))
        lines.append(("Global memory (kernarg segment, 96 bytes):", []))
        for row in range(3):
            words = [rng.getrandbits(32) for _ in range(8)]
            said = [(n, "kernarg", 8 * row + i, w) for i, w in enumerate(words)]
            lines.append((f"    0x{kernargs + 32 * row:x}: {' '.join(f'{w:08x}' for w in words)}", said))
        lines.append(("Disassembly for function k:", []))
        for row in range(3):
            at = base + 8 * row
            lines.append((f"    0x{at:x} <+{8 * row}>:    s_nop {row}", [(n, "code", at, f"s_nop {row}")]))
        lines += [("End of disassembly.", []), ("", [])]
    return lines


def told(report):
    """What was read, in the same form."""
    found = set()
    for w in report.waves:
        found |= {(w.number, "pc", "", w.pc)}
        found |= {(w.number, "scalar", name, v) for name, v in w.scalars.items()}
        found |= {(w.number, "vector", name, tuple(v)) for name, v in w.vectors.items()}
        found |= {(w.number, "kernarg", i, v) for i, v in enumerate(w.kernargs)}
        if w.disassembly:
            found |= {(w.number, "code", c.address, c.text) for c in w.disassembly.instructions}
    return found


@pytest.mark.parametrize("seed", range(200))
def test_a_report_whose_lines_were_changed_is_named_or_read_as_it_stands(seed):
    """A line dropped, doubled or exchanged with another; a second process: what is read is what the lines say."""
    rng = random.Random(seed)
    lines = random_report(rng)
    kind = rng.choice(("drop", "double", "exchange", "another process", "surrounded"))
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    if kind == "drop":
        del lines[at]
    elif kind == "double":
        lines.insert(at, lines[at])
    elif kind == "exchange":
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == "another process":
        lines += random_report(rng, first=9, base=0x7E0000000000)
    else:
        lines.insert(at, ("loading weights: 100%|##########| 32/32", []))
    said = {fact for _, facts in lines for fact in facts}
    try:
        found = told(parse_report([line for line, _ in lines]))
    except FaultError as e:
        assert kind not in ("another process", "surrounded"), e
        assert "\n" not in str(e)
        return
    # A program prints lines like those of scalars, too: outside their table they are not read. Nothing else is missing.
    assert found <= said and {fact[1] for fact in said - found} <= {"scalar"}
    assert found == said or kind != "double"


# ---- reports


def test_memory_fault_report():
    report = read_report(REPORT)
    assert report.page == 0x7F1E40019000 and report.kernel == "scale_rows"
    assert [w.number for w in report.waves] == [1, 2, 3] and [w.number for w in report.faulting] == [3]
    wave = report.faulting[0]
    assert wave.reasons == ("MEMORY_VIOLATION",) and wave.entry == 0x7F1E5A001600
    assert wave.scalars["s7"] == 200 and wave.scalars["exec"] == (1 << 64) - 1 and len(wave.active_lanes) == 64
    assert list(wave.vectors["v0"]) == list(range(192, 256))
    assert wave.kernargs[:2].tolist() == [0x40000000, 0x7F1E] and len(wave.kernargs) == 10
    assert wave.instruction.text == "s_add_u32 s0, s4, s8" and wave.instruction.offset == 336
    assert wave.disassembly.loaded == (0x7F1E5A000000, 0x7F1E5A003000)


def test_every_register_counted_a_second_time():
    """A plain search over the text finds as many registers as the reader."""
    text = REPORT.read_text()
    report = read_report(REPORT)
    names = re.findall(r"\b([a-z_]+\d*): (?=[0-9a-f]{8}\b|[0-9a-f]{16}\b|\[0\])", text)
    assert len(names) == sum(len(w.scalars) + len(w.vectors) for w in report.waves)
    lanes = re.findall(r"\[\d+\] [0-9a-f]{8}", text)
    assert len(lanes) == sum(len(v) for w in report.waves for v in w.vectors.values())


def test_report_with_source_lines_and_lds_and_program_output_around_it():
    report = read_report(SAMPLES / "assert_trap.txt")
    assert report.events == [
        "Queue error (HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception.)"
    ]
    wave = report.waves[0]
    assert wave.reasons == ("ASSERT_TRAP",) and report.page is None
    assert report.kernel == "check_rows(float const*, int*, int)"
    assert wave.instruction.text == "s_trap 2"
    assert wave.disassembly.source[0] == ("/src/app/check_rows.cpp", 41, "    if (!(x[i] < limit))")
    assert wave.disassembly.source[-1][1] == 42
    assert len(wave.local_memory) == 16 and wave.local_memory[0] == 0x22222222
    assert wave.scalars["vcc"] == 0 and wave.active_lanes == [0]
    assert parse_uri(wave.disassembly.uri).offset == 14312


def test_several_reasons_and_running_waves():
    report = parse_report(
        ["wave_7: pc=0xabc (stopped, reason: MEMORY_VIOLATION|ADDRESS_ERROR)", "wave_8: pc=0x10 (running)"]
    )
    assert report.waves[0].reasons == ("MEMORY_VIOLATION", "ADDRESS_ERROR")
    assert [w.number for w in report.faulting] == [7]


def test_truncation_anywhere_is_a_report_or_a_named_error():
    text = REPORT.read_text()
    for end in range(0, len(text), 37):
        try:
            parse_report(text[:end].splitlines())
        except FaultError:
            assert end < 80


def test_not_a_report():
    with pytest.raises(FaultError, match="HSA_TOOLS_LIB"):
        parse_report(["hello"], "a.txt")
    with pytest.raises(FaultError, match="cannot be read"):
        read_report("no/such/file")


# ---- code objects


def test_uris():
    assert parse_uri("file:///a%20b/c#offset=0x10&size=32").path == "/a b/c"
    assert parse_uri("FILE:///a?offset=1").size == 0
    for bad in ("", "http://x", "memory://1#offset=1", "memory://1#offset=a&size=1", "file://x#size=99999999999999"):
        with pytest.raises(FaultError, match="uri="):
            parse_uri(bad)


def test_extract_from_a_file_with_offset(tmp_path):
    program = tmp_path / "program"
    program.write_bytes(b"x" * 1000 + CODE.read_bytes() + b"y" * 50)
    uri = f"file://{program}#offset=1000&size={CODE.stat().st_size}"
    assert extract_code(uri) == CODE.read_bytes()
    with pytest.raises(FaultError, match="no ELF"):
        extract_code(uri.replace("1000", "999"))
    with pytest.raises(FaultError, match="the URI says"):
        extract_code(f"file://{program}#offset=1000&size=999999")
    with pytest.raises(FaultError, match="cannot be read"):
        extract_code(f"file://{tmp_path}/gone#offset=1&size=4")


def test_extract_from_memory_of_a_living_process_and_from_a_saved_file(tmp_path, saved):
    uri = read_report(REPORT).faulting[0].disassembly.uri
    assert extract_code(uri, folder=saved) == CODE.read_bytes()
    with pytest.raises(FaultError, match="--save-code-objects"):
        extract_code(uri.replace("4242", "4243"), folder=saved)
    proc = tmp_path / "proc" / "4242"
    proc.mkdir(parents=True)
    (proc / "mem").write_bytes(b"\0" * 4096 + CODE.read_bytes())
    assert (
        extract_code(f"memory://4242#offset=4096&size={CODE.stat().st_size}", proc=tmp_path / "proc")
        == CODE.read_bytes()
    )
    with pytest.raises(FaultError, match=r"mem: cannot be read"):
        extract_code("memory://1/../..#offset=4096&size=10", proc=tmp_path / "nowhere")


@needs_objdump
def test_the_listing_that_ships_is_what_objdump_prints(monkeypatch):
    asked = disassemble(CODE.read_bytes(), pc=0x1750)
    monkeypatch.setattr("rocm_guide.observe.debugging.faults.code_objects.find_objdump", lambda arch="gfx942": None)
    assert disassemble(b"", pc=0x1750, printed=(DATA / "fault_code.s").read_text()) == asked


@needs_objdump
def test_the_marked_instruction_agrees_with_a_plain_objdump():
    listing = disassemble(CODE.read_bytes(), pc=0x1750)
    text = subprocess.run([find_objdump(), "-d", str(CODE)], capture_output=True, text=True, check=True).stdout
    line = next(row for row in text.splitlines() if "// 000000001750:" in row)
    assert listing.instructions[listing.at].text == line.split("//")[0].strip()
    assert listing.functions == ("scale_rows",)
    assert len(listing.instructions) == text.count("//")
    assert "=>   0x1750" in listing.around()
    with pytest.raises(FaultError, match="no instruction begins there"):
        disassemble(CODE.read_bytes(), pc=0x1752)
    with pytest.raises(FaultError):
        disassemble(b"\x7fELF" + b"garbage" * 100)


def test_without_objdump_one_clear_line(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("rocm_guide.observe.debugging.faults.code_objects.find_objdump", lambda arch="gfx942": None)
    with pytest.raises(FaultError, match="apt install llvm-19"):
        disassemble(CODE.read_bytes())


def test_the_planted_fault_is_found_to_the_lane(saved):
    """128 rows of 200 floats and a block of 256 columns: in the last row, columns 200 and up leave the allocation."""
    found = explain_report(read_report(REPORT), folder=saved)
    (hit,) = found.suspects
    assert hit.instruction.text.startswith("buffer_load_dword v2, v1, s[0:3]")
    assert hit.lanes == tuple(range(200 - 192, 64))
    assert hit.first_address == 0x7F1E40000000 + 128 * 200 * 4 == found.page
    assert found.kernel == "scale_rows" and not found.notes
    assert "lanes 8-63" in found.text()
    assert found.to_dict()["suspects"][0]["instruction"]["offset"] == 328


def test_an_overwritten_address_register_is_no_evidence(saved):
    """Two instructions on, the base register has been written again: even if its value fits, it proves nothing."""
    report = read_report(REPORT)
    report.faulting[0].pc += 0x1758 - 0x1750
    found = explain_report(report, folder=saved)
    assert not found.suspects and any("--precise-memory" in n for n in found.notes)


@pytest.mark.parametrize("place", ["beside", "file"])
def test_a_listing_alone_is_enough(place, tmp_path):
    """What llvm-objdump printed elsewhere, without the code object that it was printed of."""
    report = read_report(REPORT)
    listing = tmp_path / (f"{saved_name(report.faulting[0].disassembly.uri)}.s" if place == "beside" else "printed.txt")
    shutil.copy(DATA / "fault_code.s", listing)
    (hit,) = explain_report(report, folder=tmp_path if place == "beside" else listing).suspects
    assert hit.lanes == tuple(range(8, 64)) and hit.instruction.offset == 328


def test_a_listing_of_another_kernel_is_refused(tmp_path):
    listing = tmp_path / "printed.txt"
    listing.write_text((DATA / "fault_code.s").read_text().replace("scale_rows", "other_rows"))
    found = explain_report(read_report(REPORT), folder=listing)
    assert not found.suspects and "is of other_rows, the report's of scale_rows" in found.notes[0]


def test_explanation_without_the_code_object_says_what_would_help():
    found = explain_report(read_report(REPORT))
    assert not found.suspects and any("--save-code-objects" in n for n in found.notes)


def test_without_code_nothing_is_said_of_registers(tmp_path, monkeypatch):
    """Where no instruction could be read, nobody knows whether an address register was overwritten."""
    monkeypatch.setattr("rocm_guide.observe.debugging.faults.code_objects.find_objdump", lambda arch="gfx942": None)
    shutil.copy(CODE, tmp_path / saved_name(read_report(REPORT).faulting[0].disassembly.uri))
    for folder in (None, tmp_path):
        notes = explain_report(read_report(REPORT), folder=folder).notes
        assert not any("overwritten" in n or "--precise-memory" in n for n in notes)
        assert notes[-1] == "the instructions before the program counter are not known, so no access can be named"


@pytest.mark.parametrize("text", ["", "no code at all", "0000000000001600 <scale_rows>:\n"])
def test_a_listing_without_instructions_is_named(text, monkeypatch):
    monkeypatch.setattr("rocm_guide.observe.debugging.faults.code_objects.find_objdump", lambda arch="gfx942": None)
    with pytest.raises(FaultError, match="no instruction in its listing"):
        disassemble(b"", printed=text)


# ---- lanes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("global_load_dword v9, v[0:1], off", [0x7F0000000010, 0x7F0000000020]),
        ("global_load_dwordx4 v[4:7], v2, s[4:5] offset:-8", [0x1000 + 4 - 8, 0x1000 + 8 - 8]),
        ("global_store_dword v2, v9, s[4:5]", [0x1004, 0x1008]),
        ("global_store_dwordx2 v[0:1], v[4:5], off offset:16", [0x7F0000000020, 0x7F0000000030]),
        ("flat_load_dword v9, v[0:1]", [0x7F0000000010, 0x7F0000000020]),
        ("flat_store_dword v[0:1], v9", [0x7F0000000010, 0x7F0000000020]),
        ("global_atomic_add_f32 v2, v9, s[4:5]", [0x1004, 0x1008]),
        ("global_atomic_add_f32 v9, v2, v8, s[4:5] sc0", [0x1004, 0x1008]),
        ("buffer_load_dword v9, v2, s[4:7], s8 offen offset:32", [0x1004 + 5 + 32, 0x1008 + 5 + 32]),
        ("buffer_store_dword v9, v2, s[4:7], 0 offen", [0x1004, 0x1008]),
        ("s_waitcnt vmcnt(0)", None),
        ("v_add_f32 v0, v1, v2", None),
        ("ds_read_b32 v0, v1", None),
    ],
)
def test_lane_addresses(text, expected):
    wave = Wave(0, 0)
    wave.scalars = {"exec": 0b101, "s4": 0x1000, "s5": 0, "s6": 0xFFFF, "s7": 0x27000, "s8": 5}
    wave.vectors = {
        "v0": array("Q", [0x10, 0, 0x20]),
        "v1": array("Q", [0x7F00, 0, 0x7F00]),
        "v2": array("Q", [4, 0, 8]),
    }
    found = lane_addresses(wave, text)
    assert found == ({0: expected[0], 2: expected[1]} if expected else {})


def test_a_missing_register_is_named():
    with pytest.raises(FaultError, match="v5 is not in the report"):
        lane_addresses(Wave(3, 0, scalars={"exec": 1}), "global_load_dword v0, v5, off")
    with pytest.raises(FaultError, match="no faulting page"):
        suspects(parse_report(["wave_0: pc=0x0 (stopped, reason: ASSERT_TRAP)"]))


@pytest.mark.parametrize(
    ("after", "found"),
    [
        ("ds_write_b32 v0, v2", True),
        ("global_atomic_add v0, v2, s[4:5]", True),
        ("buffer_atomic_add v0, v2, s[8:11], 0 offen", True),
        ("global_load_lds_dword v0, off", True),
        ("ds_add_u32 v0, v2", True),
        ("v_cmp_lt_u32_e32 vcc, v0, v2", True),
        ("s_cmp_eq_u32 s2, s3", True),
        ("global_atomic_add v0, v1, v2, s[4:5] sc0", False),
        ("ds_add_rtn_u32 v0, v1, v2", False),
        ("v_add_co_u32_e64 v9, s[2:3], v1, v2", False),
        ("s_load_dwordx2 s[2:3], s[0:1], 0x0", False),
        ("v_mov_b32_e32 v0, v1", False),
    ],
)
def test_what_writes_no_register_leaves_the_access_before_it_in_evidence(after, found):
    wave = Wave(0, 0x10, reasons=("MEMORY_VIOLATION",), scalars={"exec": 1, "s2": 0x5000, "s3": 0})
    wave.vectors = {"v0": array("Q", [0x10])}
    lines = ["global_load_dword v5, v0, s[2:3]", after, "s_nop 0"]
    wave.disassembly = Disassembly(instructions=[CodeLine(8 * i, 8 * i, t, i == 2) for i, t in enumerate(lines)])
    hits = suspects(AgentReport(page=0x5000, waves=[wave]))
    assert [h.instruction.text for h in hits] == (lines[:1] if found else [])


# ---- logs


def test_dmesg_and_runtime_lines():
    found = read_log(SAMPLES / "dmesg.txt")
    kinds = [f.kind for f in found]
    assert kinds == ["page fault", "page fault", "runtime fault", "queue error", "hang", "reset", "memory error"]
    first, second, runtime = found[:3]
    assert (first.address, first.write, first.process, first.pid) == (0x7F1E40019000, False, "python3", 4242)
    assert first.device == "0000:c1:00.0" and first.details["PERMISSION_FAULTS"] == "0x3"
    assert (second.process, second.write) == ("train.py", True)
    assert runtime.address == 0x7F1E40019000 and runtime.device == "GPU node-4"
    assert found[3].details["error"] == "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION"
    assert all(f.meaning for f in found)
    assert scan_log(["all is well"]) == []


# ---- the environment


def test_hunting_restores_everything(monkeypatch):
    monkeypatch.setenv("AMD_SERIALIZE_KERNEL", "1")
    monkeypatch.delenv("HIP_LAUNCH_BLOCKING", raising=False)
    before = dict(os.environ)
    with hunting() as found:
        assert os.environ["AMD_SERIALIZE_KERNEL"] == "3" and set(found) == set(HUNT)
    assert dict(os.environ) == before
    with pytest.raises(RuntimeError), hunting():
        raise RuntimeError
    assert dict(os.environ) == before
    with hunting():
        del os.environ["HIP_LAUNCH_BLOCKING"]
    assert dict(os.environ) == before


def test_children_see_the_environment():
    code = "import os; print(os.environ.get('HSA_DISABLE_FRAGMENT_ALLOCATOR'))"
    with hunting():
        inside = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
    assert inside == "1"


def test_agent_options():
    env = hunt_environment(agent="/opt/x.so", save_code="co", all_waves=True, precise=True)
    assert env["ROCM_DEBUG_AGENT_OPTIONS"] == "--all --save-code-objects=co --precise-memory"
    with pytest.raises(GuideError, match="name its library too, agent="):
        hunt_environment(all_waves=True)
    with pytest.raises(GuideError, match="spaces"):
        hunt_environment(agent="a", save_code="my folder")


def test_shell_lines_run_in_a_shell():
    lines = shell_lines(hunt_environment(agent="lib", all_waves=True, precise=True))
    run = subprocess.run(["sh", "-c", f"{lines}\necho $ROCM_DEBUG_AGENT_OPTIONS"], capture_output=True, text=True)
    assert run.stdout.strip() == "--all --precise-memory"


HOSTILE = {
    "a word that never ends": "9" * 60_000,
    "letters": "a" * 60_000,
    "a name that never comes to its pid": "process" * 9_000,
    "spaces": "RW: 1" + " " * 60_000 + "1\x01",
    "an error that stays away": "aborting with error" + " " * 60_000 + "x",
    "a ring without an end": "ring " + "ring" * 15_000,
    "prefixes": "Memory access fault by GPU node-1 " * 2_000,
    "an arrow that points nowhere": " " * 60_000 + "x",
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE)
def test_a_long_damaged_line_is_read_in_proportion_to_its_length(line):
    """Milliseconds; where the time grows with the square of the length, as it did for most of these, half a minute."""

    def too_long(*_):
        raise TimeoutError("more than 5 s of processor time for one line of 60,000 characters")

    before = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, 5)
    try:
        head = "amdgpu 0000:c1:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:8 pasid:32774)"
        assert scan_log([head, line])[0].kind == "page fault"
        sections = ("system registers:", line, "Disassembly for function f:", line)
        wave = "wave_0: pc=0x7fbe4cc0d0b4 (stopped, reason: MEMORY_VIOLATION)"
        assert len(parse_report([line, wave, *sections]).waves) == 1
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
