# SPDX-License-Identifier: MIT
"""The stepping page: its data give every state back, it asks for nothing from outside, and it works in a browser."""

import base64
import html
import json
import re
import shutil
import struct
import subprocess
import zlib

import numpy as np
import pytest

from cdna.step.page import MAX_BYTES, inline, page
from cdna.step.record import record
from tests.step.test_record import arrays, swap

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def data_of(text):
    """What the page carries: the JSON, and the words of the vector registers."""
    packed = re.search(r'<script id="data" type="text/plain">([^<]*)</script>', text)[1]
    raw = zlib.decompress(base64.b64decode(packed))
    (n, _) = struct.unpack("<II", raw[:8])
    return json.loads(raw[8 : 8 + n]), np.frombuffer(raw[8 + -(-n // 4) * 4 :], "<u4")


def replay(head, words):
    """States from the page's deltas, read by code that shares nothing with the writer."""
    lanes, at = len(head["lanes"]), 0
    vectors, masks = {}, {}

    def take(n):
        nonlocal at
        for _ in range(n):
            r = int(words[at])
            masks[r] = int(words[at + 1]) | int(words[at + 2]) << 32
            vectors[r] = words[at + 3 : at + 3 + lanes]
            at += 3 + lanes

    start = head["start"]
    take(start["n"])
    scalars, mask, scc, loading = list(start["s"]), start["exec"], start["scc"], start["loading"]
    for step in [*head["steps"], None]:
        yield dict(vectors), dict(masks), list(scalars), mask[0] | mask[1] << 32, scc, loading
        if step is not None:
            take(step[1])
            for n, x in step[2] or ():
                scalars[n] = x
            mask = step[3] or mask
            scc = scc if step[4] < 0 else step[4]
            loading = loading if step[5] < 0 else head["loadings"][step[5]]
    assert at == len(words)


def test_the_data_give_every_state_back():
    r = record(swap(), 1, arrays(), wave=1)
    head, words = data_of(page(r))
    assert head["lanes"] == list(range(64)) and len(head["steps"]) == len(r.steps)
    for n, (vectors, masks, scalars, mask, scc, loading) in enumerate(replay(head, words)):
        now = r.state(n)
        assert scalars == now.scalars and mask == now.exec and scc == now.scc
        assert [x[0] for x in loading] == [f.line for f in now.loading]
        for k, row in now.vectors.items():
            defined = [i for i in range(64) if now.valid[k] >> i & 1]
            assert masks[k] == now.valid[k] and np.array_equal(vectors[k][defined], row[defined])
    write = head["steps"][r.find_op("ds_write")]
    assert head["lds"][write[6]] == [[1, [[64, 64]]]]
    spans = head["timeline"]["spans"]
    mine = [s[1] for s in spans if s[0] == r.wave]
    assert mine == [s.index for s in r.steps], "the page finds a step's place in the timeline by its number"
    assert head["model"].startswith("Model:") and "cycles (model)" in page(r)


def test_the_page_asks_for_nothing_from_outside():
    text = page(record(swap(), 1, arrays()))
    assert "default-src 'none'" in text
    assert not re.search(r"https?://|(?:src|href)\s*=|@import|url\(|@(?:DATA|TITLE|HEIGHT)@", text)


def test_names_from_outside_stay_text():
    evil = swap().replace("swap", "a</script><b>")
    r = record(swap(), 1, arrays())
    r.name, r.error = "a</script><b>", evil
    text = page(r)
    assert "a</script><b>" not in text and data_of(text)[0]["error"] == evil
    frame = inline(r)
    assert frame.startswith("<iframe srcdoc=") and "<b>" not in frame
    assert html.unescape(frame).count("<script>") == 1
    assert r._repr_html_() == frame


LOOP = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
.type loop,@function
loop:
  v_mul_lo_u32 v4, v0, 2654435761
  s_mov_b32 s21, 0x0019660d
  s_mov_b32 s22, 0xbbffbbff
  v_cvt_f32_u32_e32 v1, v0
SETUP
  s_mov_b32 s20, ROUNDS
again:
  v_mul_lo_u32 v4, v4, s21
  v_add_u32_e32 v4, 0x3c6ef35f, v4
  v_and_b32_e32 v0, s22, v4
  v_alignbit_b32 v1, v4, v4, 11
  v_and_b32_e32 v1, s22, v1
  v_mfma_f32_32x32x8_f16 v[16:31], v[0:1], v[0:1], v[16:31]
  s_sub_u32 s20, s20, 1
  s_cmp_lg_u32 s20, 0
  s_cbranch_scc1 again
  s_endpgm
.amdhsa_kernel loop
  .amdhsa_next_free_vgpr 32
  .amdhsa_accum_offset 32
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
.end_amdhsa_kernel
.amdgpu_metadata
amdhsa.kernels:
  - .max_flat_workgroup_size: 64
    .name:           loop
.end_amdgpu_metadata
"""


def test_two_thousand_instructions_fit_three_megabytes():
    setup = "\n".join(f"  v_mul_f32_e32 v{r}, {r}.0, v1" for r in range(16, 32))
    r = record(LOOP.replace("SETUP", setup).replace("ROUNDS", "222"), 1, [])
    assert len(r.steps) >= 2000 and not r.error, r.error
    text = page(r)
    assert MAX_BYTES // 4 < len(text) <= MAX_BYTES, "the values must not pack away"
    head, words = data_of(text)
    *_, (vectors, _, _, _, _, _) = replay(head, words)
    assert np.array_equal(vectors[20], r.state(len(r.steps)).vectors[20][head["lanes"]])


PROBE = """<script>addEventListener("load",async()=>{
while(!document.documentElement.dataset.ready&&!$("error").textContent)await new Promise(r=>setTimeout(r,10));
const out=[],regs=()=>Object.fromEntries(D.registers.map(r=>[r,[...V[r]]]));
const look=()=>out.push([cur,regs(),X,C,F.map(f=>f[0]),S.slice(),heat.reduce((a,b)=>a+b,0)]);
const press=k=>{dispatchEvent(new KeyboardEvent("keydown",{key:k}));look()};
look();while(cur<D.steps.length)press("ArrowRight");while(cur>0)press("ArrowLeft");
press("End");press("Home");toLine(LINE);look();
const p=document.createElement("pre"),now=$("code").querySelector(".now").textContent;p.id="probe";
p.textContent=JSON.stringify([out,now,$("flight").textContent,document.body.textContent.includes("model")]);
document.body.append(p)})</script></body>"""


@pytest.mark.skipif(
    not CHROMIUM,
    reason="no Chromium here (apt install chromium); Python above tests the page's data, `make site-check` opens it",
)
def test_a_browser_plays_it_forwards_and_backwards(tmp_path):
    r = record(swap(), 1, arrays(), wave=1)
    wait = r.find_op("s_waitcnt", after=r.find_op("global_load"))
    line = r.code[r.steps[wait].index].line
    (tmp_path / "page.html").write_text(page(r).replace("</body>", PROBE.replace("LINE", str(line))))
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path}/profile",
        "--virtual-time-budget=20000",
        "--dump-dom",
        (tmp_path / "page.html").as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.S)
    assert found, done.stderr[-2000:]
    looks, now, flight, says_model = json.loads(html.unescape(found[1]))
    n = len(r.steps)
    assert [x[0] for x in looks] == [*range(n + 1), *reversed(range(n)), n, 0, wait]
    for cur, registers, mask, scc, loading, scalars, touched in looks:
        state = r.state(cur)
        assert mask[0] | mask[1] << 32 == state.exec and scc == state.scc and scalars == state.scalars
        assert loading == [f.line for f in state.loading]
        for k, row in state.vectors.items():
            assert all(registers[str(k)][i] == row[i] for i in range(64) if state.valid[k] >> i & 1)
        assert touched == 64 * sum(bool(s.lds) for s in r.steps[:cur])
    assert "s_waitcnt vmcnt(0)" in now and "global_load_dword" in flight and "vmcnt" in flight and says_model
