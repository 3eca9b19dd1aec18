# SPDX-License-Identifier: MIT
"""Logs of the driver and the runtime: every fault of every device, and nothing that is none."""

from __future__ import annotations

import random

import pytest

from rocm_guide.observe.debugging.faults.dmesg import scan_log

HEADS = (
    "[  100.000001] ",
    "[Fri Nov 27 10:00:00 2026] ",
    "kern  :err   : [  100.000001] ",
    "Nov 27 10:00:00 node7 kernel: ",
    "Nov 27 10:00:00 node7 kernel: [  100.000001] ",
    "[  100.000001][ T1234] ",
    "<3>[  100.000001] ",
    "3,1234,100000001,-;",
    "2026-11-27T10:00:00,000001+00:00 ",
    "",
)


def shape(log: str) -> list[tuple[object, ...]]:
    return [(f.kind, f.device, f.address, f.write, f.pid) for f in scan_log(log.splitlines())]


def page_fault(device: str, address: int, write: bool, pid: int, head: str = "") -> list[str]:
    """The driver's lines for one fault, as gmc_v9_0.c prints them."""
    lines = [
        f"[gfxhub0] no-retry page fault (src_id:0 ring:0 vmid:3 pasid:{32768 + pid % 100})",
        f" for process python3 pid {pid} thread python3 pid {pid})",
        f"  in page starting at address 0x{address:016x} from IH client 0x1b (UTCL2)",
        f"VM_L2_PROTECTION_FAULT_STATUS:0x{0x00300051 | write << 18:08x}",
        "\t Faulty UTCL2 client ID: TCP (0x8)",
        "\t MORE_FAULTS: 0x1",
        "\t WALKER_ERROR: 0x0",
        "\t PERMISSION_FAULTS: 0x5",
        "\t MAPPING_ERROR: 0x0",
        f"\t RW: 0x{int(write)}",
    ]
    return [f"{head}amdgpu {device}: amdgpu: {line}" for line in lines]


def training(rng: random.Random, count: int) -> list[str]:
    """Lines of a training run, with the words that a fault's lines have, too."""
    said = (
        "step {n} loss 2.{n} lr 1e-4",
        "INFO data: {n} poisoned samples were removed from the training set",
        "WARNING: ring {n} timeout in the gossip test, retried",
        "[rank{n}]: uncorrectable hardware error rate of the cluster: 0.{n}",
        "{n}%|###     | {n}/9999 [00:0{n}<01:00, 3.2it/s]",
        "RW: 0x1, Process {n} of 8 pid {n}",
        "watchdog: GPU reset begin! is what we look for; MES failed to respond is another",
        "    in page starting at address book entry {n}",
        "eval: page fault count {n}, [gfxhub] is healthy",
        "Reason: Page not present in the PDF, sample {n}",
        "grid=[{n}, 1, 1], workgroup=[64, 1, 1]",
    )
    return [rng.choice(said).format(n=rng.randrange(10)) for _ in range(count)]


# ---- known logs


def test_two_devices_in_one_millisecond():
    a, b = (
        page_fault("0000:0c:00.0", 0x7F0C00001000, True, 111),
        page_fault("0000:9f:00.0", 0x7F9F00002000, False, 222),
    )
    log = "\n".join(line for pair in zip(a, b, strict=True) for line in pair)
    assert shape(log) == [
        ("page fault", "0000:0c:00.0", 0x7F0C00001000, True, 111),
        ("page fault", "0000:9f:00.0", 0x7F9F00002000, False, 222),
    ]


@pytest.mark.parametrize("first", range(1, 10))
def test_a_log_that_is_cut_at_its_top_still_has_its_fault(first):
    kept = page_fault("0000:0c:00.0", 0x7F0C00001000, True, 111, HEADS[0])[first:]
    ((kind, device, address, write, pid),) = shape("\n".join(kept))
    assert (kind, device, write) == ("page fault", "0000:0c:00.0", True)
    assert pid == (111 if first < 2 else None) and address == (0x7F0C00001000 if first < 3 else None)


@pytest.mark.parametrize("head", HEADS)
def test_every_way_in_which_a_kernel_log_is_printed(head):
    assert shape("\n".join(page_fault("0000:0c:00.0", 0x1000, False, 7, head))) == [
        ("page fault", "0000:0c:00.0", 0x1000, False, 7)
    ]


def test_a_second_fault_of_one_device_whose_first_line_was_dropped():
    """The driver limits the rate of its first lines; another address or process is another fault."""
    lines = page_fault("0000:0c:00.0", 0x1000, False, 7) + page_fault("0000:0c:00.0", 0x2000, True, 8)[1:]
    assert [(f.address, f.write, f.pid) for f in scan_log(lines)] == [(0x1000, False, 7), (0x2000, True, 8)]


@pytest.mark.parametrize(
    ("line", "kind", "words"),
    [
        ("amdgpu: qcm fence wait loop timeout expired", "hang", "taken off"),
        ("qcm fence wait loop timeout expired", "hang", "taken off"),
        ("kfd: unmapping queues failed.", "hang", "taken off"),
        ("amdgpu: Failed to evict queue 3", "hang", "taken off"),
        ("amdgpu 0000:c5:00.0: amdgpu: MES failed to respond to msg=REMOVE_QUEUE", "hang", "MES"),
        ("amdgpu 0000:c5:00.0: amdgpu: failed to remove hardware queue from MES, doorbell=0x1002", "hang", "MES"),
        ("[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring comp_1.0.0 timeout, signaled seq=1", "hang", "end in time"),
        ("amdgpu 0000:c5:00.0: amdgpu: ring sdma0 timeout, signaled seq=10, emitted seq=12", "hang", "end in time"),
        ("amdgpu 0000:c5:00.0: amdgpu: GPU reset(2) succeeded!", "reset", "restarts"),
        (
            "amdgpu 0000:c5:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block",
            "memory error",
            "memory",
        ),
        (
            "amdgpu 0000:c5:00.0: amdgpu: die: 0, 1 new deferred hardware errors detected in umc",
            "memory error",
            "memory",
        ),
        (
            "amdgpu 0000:c5:00.0: amdgpu: 4 uncorrectable hardware errors detected in gfx block",
            "hardware error",
            "another block",
        ),
        (
            "amdgpu 0000:dd:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
            "hardware error",
            "another block",
        ),
        (
            "amdgpu 0000:dd:00.0: amdgpu: {3}poison is consumed by client 27, kick off gpu reset",
            "memory error",
            "memory",
        ),
        ("[drm:gfx_v9_4_3_bad_op_irq [amdgpu]] *ERROR* Illegal opcode in command stream", "queue error", "processor"),
        ("HW Exception by GPU node-1 (Agent handle: 0x55) reason :GPU Hang", "hardware exception", "dmesg"),
        ("Queue 0x7bb0 Aborting with error : HSA_STATUS_ERROR_INVALID_ALLOCATION: The", "queue error", "LDS"),
    ],
)
def test_every_typical_line_opens_a_fault(line, kind, words):
    for head in HEADS if not line.startswith(("HW", "Queue")) else ("", "[rank3]: "):
        (fault,) = scan_log([head + line])
        assert fault.kind == kind and words in fault.meaning, head


@pytest.mark.parametrize(
    "line",
    [
        "amdgpu 0000:c1:00.0: amdgpu: socket: 4, die: 0 1 correctable hardware errors detected in total in gfx block",
        "amdgpu 0000:c1:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block",
        "amdgpu 0000:c1:00.0: amdgpu: RAS: poison mode is enabled",
        "amdgpu 0000:c1:00.0: amdgpu: Started evicting pasid 0x8000",
        "[drm] ring gfx uses VM inv eng 0",
        "mce: 3 uncorrectable hardware errors detected in total in mc0 block on CPU1",
    ],
)
def test_good_news_of_the_driver_is_no_fault(line):
    assert all(scan_log([head + line]) == [] for head in HEADS)


def test_one_hang_is_one_fault_and_the_next_one_after_a_reset_another():
    lines = [
        "[ 8123.1] amdgpu: qcm fence wait loop timeout expired",
        "[ 8123.2] amdgpu: The cp might be in an unrecoverable state due to an unsuccessful queues preemption",
        "[ 8123.3] amdgpu: Failed to evict process queues",
        "[ 8124.0] amdgpu 0000:67:00.0: amdgpu: GPU reset begin!",
        "[ 8125.0] amdgpu 0000:67:00.0: amdgpu: GPU reset(1) succeeded!",
    ]
    found = scan_log([*lines, *(line.replace("[ 8", "[ 9") for line in lines)])
    assert [(f.kind, f.details["lines"]) for f in found] == [("hang", "3"), ("reset", "2")] * 2


def test_a_ring_that_hangs_names_its_process():
    (fault,) = scan_log(
        [
            "[  720.0] [drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout, signaled seq=10, emitted seq=12",
            "[  720.1] [drm:amdgpu_job_timedout [amdgpu]] *ERROR* Process information: process VLLM::Worker pid 9"
            " thread python3 pid 9",
        ]
    )
    assert (fault.kind, fault.process, fault.pid) == ("hang", "VLLM::Worker", 9)


def test_a_copy_engine_has_no_kernel_to_look_for():
    lines = page_fault("0000:0c:00.0", 0x1000, False, 7)
    for old, new in (("0x1b (UTCL2)", "0xc (SDMA0)"), ("TCP (0x8)", "SDMA1 (0x5)")):
        (fault,) = scan_log([line.replace(old, new) for line in lines])
        assert "no kernel to look for" in fault.meaning and fault.address == 0x1000
    assert "kernel" not in scan_log(lines)[0].meaning


KERNEL = [
    "Kernel Name: _Z10fill_indexPfi",
    "VGPU=0x55 SWq=0x7f7734be000, HWq=0x7bb0d0600000, id=1",
    "\tDispatch Header =0xb02 (type=2, barrier=1, acquire=1, release=1), setup=0",
    "\tgrid=[123008, 1, 1], workgroup=[128, 1, 1]",
    "\trptr=155, wptr=442",
]
ABORT = (
    ":0:rocdevice.cpp            :3587: 95 us:  Callback: Queue {} aborting with error : HSA_STATUS_ERROR_EXCEPTION: x"
)


@pytest.mark.parametrize("order", ["above", "below"])
def test_the_kernel_that_rocm_7_names(order):
    """Above the abort or below it; with a second queue's abort in the same log, by the address of the queue."""
    mine, other = ABORT.format("0x7bb0d0600000"), ABORT.format("0x7000d0600000")
    lines = [*KERNEL, mine, other] if order == "above" else [other, mine, *KERNEL]
    by_queue = {f.details["queue"]: f.details for f in scan_log(lines)}
    assert by_queue["0x7bb0d0600000"]["kernel"] == "_Z10fill_indexPfi"
    assert by_queue["0x7bb0d0600000"]["grid"] == "123008 x 1 x 1"
    assert by_queue["0x7bb0d0600000"]["workgroup"] == "128 x 1 x 1"
    assert "kernel" not in by_queue["0x7000d0600000"]


def test_the_memory_fault_that_rocm_7_says_twice_is_one():
    named = ":0:rocdevice.cpp :3678: 17 us:  Memory Fault Error [host: h, GPU index: 0, "
    named += "faulting addr: 0x7f8773509000, kernel: Cijk_A[x]]"
    plain = "Memory access fault by GPU node-1 (Agent handle: 0x55c) on address 0x7f8773509000."
    reason = "    Reason: Page not present or supervisor privilege."
    for lines in ([named, plain, reason], [plain + reason.strip(" "), named], [plain, reason, named]):
        (fault,) = scan_log(lines)
        assert fault.details == {"kernel": "Cijk_A[x]", "reason": "Page not present or supervisor privilege"}
        assert fault.device == "GPU node-1" and "not mapped" in fault.meaning
    twice = [named, plain, plain.replace("node-1", "node-2")]
    assert [f.device for f in scan_log(twice)] == ["GPU node-1", "GPU node-2"]


# ---- logs that are changed in their meaning


def random_log(rng: random.Random) -> tuple[list[tuple[str, int, bool, int]], list[str]]:
    """Some faults on some devices, in the order of their first lines; each device's own lines keep their order."""
    devices = [f"0000:{n:02x}:00.0" for n in rng.sample(range(1, 255), rng.randrange(1, 9))]
    streams, head = {}, rng.choice(HEADS)
    for device in devices:
        streams[device] = []
        for _ in range(rng.randrange(1, 4)):
            told = device, rng.randrange(1, 1 << 36) << 12, rng.random() < 0.5, rng.randrange(1, 99999)
            lines = page_fault(*told, head)
            middle = lines[4:9]
            rng.shuffle(middle)
            kept = [*lines[:3], lines[3], *middle[: rng.randrange(6)], lines[9]]
            streams[device].append([(line, told) for line in kept])
    truth, log = [], []
    queues = {d: [x for lines in s for x in lines] for d, s in streams.items()}
    while queues:
        device = rng.choice(list(queues))
        line, told = queues[device].pop(0)
        if "page fault" in line:
            truth.append(told)
        log.append(line)
        if not queues[device]:
            del queues[device]
    return truth, log


@pytest.mark.parametrize("seed", range(60))
def test_interleaved_doubled_and_surrounded_the_faults_stay_the_same(seed):
    """The truth is drawn first and the log written from it; the reader has to find it again."""
    rng = random.Random(seed)
    truth, log = random_log(rng)
    for at in sorted(rng.sample(range(len(log)), min(5, len(log))), reverse=True):
        log.insert(at, log[at])  # a line that a pipe or a hand wrote twice
    for line in training(rng, 40):
        log.insert(rng.randrange(len(log) + 1), line)
    assert [(f.device, f.address, f.write, f.pid) for f in scan_log(log)] == truth


@pytest.mark.parametrize("seed", range(20))
def test_a_dropped_line_takes_its_own_value_and_no_other(seed):
    rng = random.Random(seed)
    told = "0000:0c:00.0", 0x7000, True, 4
    lines = page_fault(*told)
    gone = rng.randrange(1, len(lines))
    (fault,) = scan_log(lines[:gone] + lines[gone + 1 :])
    expected = [told[0], None if gone == 2 else told[1], None if gone == 9 else told[2], None if gone == 1 else told[3]]
    assert [fault.device, fault.address, fault.write, fault.pid] == expected


def test_a_hundred_thousand_lines_of_training_change_nothing():
    rng = random.Random(50)
    truth, faults = random_log(rng)
    log = training(rng, 100_000)
    assert scan_log(log) == []
    for n, line in enumerate(faults):
        log.insert(1000 + 3 * n, line)
    assert [(f.device, f.address, f.write, f.pid) for f in scan_log(log)] == truth
