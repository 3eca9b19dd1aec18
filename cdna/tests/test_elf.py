# SPDX-License-Identifier: MIT
"""The code-object reader against LLVM's readelf, the assembly's directives, and damage."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import zlib

import pytest

from cdna.elf import ElfError, MsgpackError, decode_msgpack, read_code_object, read_code_objects
from cdna.isa.kernel import parse_asm
from tests.mutate import SAMPLES, budget, campaign, mutated

OBJECTS = sorted(p.name for p in SAMPLES.iterdir() if p.suffix in (".hsaco", ".co"))


def raw(name):
    return (SAMPLES / name).read_bytes()


def assembly_of(name):
    stem = name.split(".")[0]
    return (SAMPLES / f"{stem}{'.s' if 'hip' in stem else '.amdgcn'}").read_text()


@pytest.mark.parametrize("name", OBJECTS)
def test_object_and_assembly_state_the_same_resources(name):
    from_asm = {k.name: k.resources for k in parse_asm(assembly_of(name)) if k.is_entry}
    found = read_code_object(raw(name))
    assert found.arch == "gfx942"
    assert {k.name for k in found.kernels} == set(from_asm)
    for kernel in found.kernels:
        a, b = kernel.resources, from_asm[kernel.name]
        for field in (
            "vgprs",
            "agprs",
            "accum_offset",
            "vgprs_allocated",
            "sgprs",
            "sgprs_allocated",
            "lds_static",
            "scratch",
            "vgpr_spills",
            "sgpr_spills",
            "max_workgroup_size",
            "wavefront_size",
            "kernarg_bytes",
            "code_bytes",
        ):
            assert getattr(a, field) == getattr(b, field), (kernel.name, field)


@pytest.mark.skipif(
    not shutil.which("llvm-readelf-19"), reason="llvm-readelf-19 is not installed (apt install llvm-19)"
)
@pytest.mark.parametrize("name", OBJECTS)
def test_llvm_readelf_reads_the_same_note(name):
    command = ["llvm-readelf-19", "--notes", "-h", str(SAMPLES / name)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = read_code_object(raw(name))
    for key in (
        ".vgpr_count",
        ".sgpr_count",
        ".agpr_count",
        ".vgpr_spill_count",
        ".private_segment_fixed_size",
        ".group_segment_fixed_size",
        ".kernarg_segment_size",
        ".max_flat_workgroup_size",
    ):
        numbers = [int(n) for n in re.findall(rf"{re.escape(key)}:\s*(\d+)", out)]
        assert sorted(k.metadata[key] for k in found.kernels) == sorted(numbers)
    assert found.target == re.search(r"amdhsa.target:\s*(\S+)", out)[1].strip("'")
    assert len(found.kernels[0].metadata[".args"]) == len(re.split(r"\.name:", out)[0].split(".value_kind")) - 1


@pytest.mark.skipif(
    not shutil.which("llvm-objdump-19"), reason="llvm-objdump-19 is not installed (apt install llvm-19)"
)
@pytest.mark.parametrize("name", OBJECTS)
def test_llvm_objdump_decodes_the_same_descriptor(name):
    command = ["llvm-objdump-19", "-D", "--section=.rodata", str(SAMPLES / name)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    blocks = dict(re.findall(r"\.amdhsa_kernel (\S+)\n(.*?)\.end_amdhsa_kernel", out, re.DOTALL))
    kernels = read_code_object(raw(name)).kernels
    assert blocks.keys() == {k.name for k in kernels}
    for kernel in kernels:
        d = kernel.descriptor

        def value(key, block=blocks[kernel.name]):
            return int(re.search(rf"\.amdhsa_{key} (\d+)", block)[1])

        assert d.vgprs_allocated == value("next_free_vgpr")
        assert d.accum_offset == value("accum_offset")
        assert d.lds_static == value("group_segment_fixed_size")
        assert d.scratch == value("private_segment_fixed_size")
        assert d.uses_scratch == bool(value("enable_private_segment"))


def bundle(*parts):
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(parts))
    offset = len(head) + sum(24 + len(name) for name, _ in parts)
    table = body = b""
    for name, data in parts:
        table += struct.pack("<QQQ", offset + len(body), len(data), len(name)) + name
        body += data
    return head + table + body


TWO = [
    (b"host-x86_64-unknown-linux-gnu", b""),
    (b"hipv4-amdgcn-amd-amdhsa--gfx942", raw("gemm_t39.hsaco")),
    (b"hipv4-amdgcn-amd-amdhsa--gfx942", raw("hip_clang22.co")),
]


def test_bundles_plain_compressed_and_inside_a_host_program():
    plain = bundle(*TWO)
    assert [len(c.kernels) for c in read_code_objects(plain)] == [1, 3]
    packed = b"CCOB" + struct.pack("<HHIIQ", 2, 0, 0, len(plain), 0) + zlib.compress(plain)
    assert [len(c.kernels) for c in read_code_objects(packed)] == [1, 3]
    host = bytearray(64)
    host[:6] = b"\x7fELF\x02\x01"
    host[18:20] = (62).to_bytes(2, "little")
    assert len(read_code_objects(bytes(host) + plain)) == 2
    with pytest.raises(ElfError, match="gfx950"):
        read_code_object(plain, arch="gfx950")
    with pytest.raises(ElfError, match="no AMD GPU code"):
        read_code_objects(bundle(TWO[0]))
    with pytest.raises(ElfError, match="no-offload-compress"):
        read_code_objects(b"CCOB" + struct.pack("<HHIIQ", 3, 1, 0, 0, 0))


def test_a_stripped_object_is_read_from_its_dynamic_symbols():
    data = bytearray(raw("gemm_t39.hsaco"))
    section_offset, size, count = *struct.unpack_from("<Q", data, 40), *struct.unpack_from("<HH", data, 58)
    for i in range(count):
        if struct.unpack_from("<I", data, section_offset + i * size + 4)[0] == 2:
            struct.pack_into("<I", data, section_offset + i * size + 4, 1)
    assert read_code_object(bytes(data)).kernels == read_code_object(raw("gemm_t39.hsaco")).kernels


@pytest.mark.parametrize(
    "bad", [b"", b"MZ", b"\x7fELF", b"\x7fELF\x01\x01" + bytes(70), b"\x7fELF\x02\x02" + bytes(70)]
)
def test_what_is_no_code_object_is_said(bad):
    with pytest.raises(ElfError, match="hsaco"):
        read_code_object(bad)


def test_truncated_at_every_byte():
    data = raw("gemm_t39.hsaco")
    for end in range(len(data)):
        try:
            read_code_object(data[:end])
        except ElfError:
            continue


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\xc0", None),
        (b"\xcd\x01\x00", 256),
        (b"\xd3" + (-5).to_bytes(8, "big", signed=True), -5),
        (b"\xcb" + struct.pack(">d", 0.5), 0.5),
        (b"\xd9\x02hi", "hi"),
        (b"\xdc\x00\x02\x01\x02", [1, 2]),
        (b"\xde\x00\x01\xa1k\xc2", {"k": False}),
        (b"\xc4\x01\x00rest", b"\x00"),
    ],
)
def test_msgpack_values(data, value):
    assert decode_msgpack(data) == value


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\xdd\xff\xff\xff\xff\x00",
        b"\xdf\x7f\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\x91" * 17,
        b"\xc1",
        b"\xd4\x00\x00",
        b"\x81\x90\x00",
        b"\x92\x01",
    ],
)
def test_hostile_msgpack_is_refused_before_memory_is_taken(bad):
    with pytest.raises(MsgpackError):
        decode_msgpack(bad)


def test_depth_and_length_are_checked_on_their_own():
    assert decode_msgpack(b"\x91" * 16 + b"\x00")
    with pytest.raises(MsgpackError, match="nested"):
        decode_msgpack(b"\x91" * 17 + b"\x00")
    with pytest.raises(MsgpackError, match="4294967295 exceeds max_array_len"):
        decode_msgpack(b"\xdd\xff\xff\xff\xff\x00")
    with pytest.raises(MsgpackError, match="65536"):  # 1,000 nested lists of a million claimed items each
        decode_msgpack(b"\xdd\x00\x0f\x00\x00" * 1000 + bytes(1 << 20))


def test_fuzz():
    samples = [raw(n) for n in OBJECTS] + [bundle(*TWO)]
    campaign(read_code_objects, ElfError, mutated(samples, budget(2000), seed=2))
