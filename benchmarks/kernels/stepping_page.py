# SPDX-License-Identifier: MIT
"""How long does the stepping page of 2,000 instructions take to open in headless Chromium, and how large is it?

    python -m benchmarks.kernels.stepping_page [--runs 7]

The page of the test with the least compressible registers, that of a softmax of the course, and an empty one, which
shows what Chromium itself takes. A fresh Chromium opens each page from a server of this process; the page reports the
milliseconds from the start of its navigation until its first state is drawn and shown in a frame. Prints them and
writes results/stepping_page.json with the machine, which must be quiet: these are seconds on the clock.
"""

from __future__ import annotations

import argparse
import http.server
import json
import re
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

from benchmarks.kernels.executed_gfx942 import _normal, launches
from cdna.step.page import page
from cdna.step.record import record
from cdna.step.state import Recording
from rocm_guide.common.base import write_text
from rocm_guide.common.host import describe_cpu, host_facts
from rocm_guide.kernels.softmax import softmax_forward
from tests.step.test_page import LOOP

ROOT = Path(__file__).resolve().parents[2]
AIM_MS, AIM_BYTES = 1000, 3_000_000
REPORT = """<script>addEventListener("load",async()=>{
while(!document.documentElement.dataset.ready&&!document.getElementById("error").textContent)
  await new Promise(r=>setTimeout(r,1));
requestAnimationFrame(()=>requestAnimationFrame(()=>{location.href="/shown?"+performance.now()}))
})</script></body>"""

#: What Chromium itself takes for.
EMPTY = '<html data-ready="1"><body><p id="error"></p>' + REPORT


def loop() -> Recording:
    """2,000 instructions whose values do not pack."""
    setup = "\n".join(f"  v_mul_f32_e32 v{r}, {r}.0, v1" for r in range(16, 32))
    return record(LOOP.replace("SETUP", setup).replace("ROUNDS", "222"), 1, [])


def softmax() -> Recording:
    """One wave of a softmax of the course."""
    ((compiled, grid, arguments),) = launches(lambda: softmax_forward(_normal(1, 30000)))
    return record(compiled, grid, arguments)


def opened(chromium: str, text: str) -> float:
    """Milliseconds until the page shows its first state."""
    told: list[float] = []
    done = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/shown?"):
                told.append(float(self.path.partition("?")[2]))
                done.set()
            body = text.encode() if self.path == "/" else b""
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Nothing: the figures are what is printed."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        command = [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={folder}",
            "--remote-debugging-port=0",
            f"http://127.0.0.1:{server.server_address[1]}/",
        ]
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            if not done.wait(120):
                raise SystemExit("the page did not open within two minutes")
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()
    return told[0]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/stepping_page.json")
    given = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        parser.error("no Chromium on the PATH")
    rows = {}
    for name, made in (("an empty page", None), ("registers that do not pack", loop()), ("softmax", softmax())):
        text = page(made).replace("</body>", REPORT) if made else EMPTY
        times = sorted(opened(chromium, text) for _ in range(given.runs))
        size, middle = len(text.encode()), times[len(times) // 2]
        rows[name] = {"instructions": len(made.steps) if made else 0, "bytes": size, "opened_ms": times}
        print(
            f"{name}: {rows[name]['instructions']:,} instructions, {size / 1e6:.2f} MB, opened in {times[0]:.0f} to "
            f"{times[-1]:.0f} ms, median {middle:.0f}",
            flush=True,
        )
    print(f"at most {AIM_BYTES / 1e6:.0f} MB and {AIM_MS:,} ms")
    shown = subprocess.run([chromium, "--version"], capture_output=True, text=True).stdout
    stamp = {"hardware": describe_cpu(), "host": host_facts(), "browser": re.sub(r"\s+", " ", shown).strip()}
    what = "milliseconds from the start of the navigation until the first state is shown; sorted runs"
    found = {"question": what, **stamp, "aims": {"ms": AIM_MS, "bytes": AIM_BYTES}, "cases": rows}
    write_text(given.out, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
