# SPDX-License-Identifier: MIT
"""Look at everything that makes an MI300X machine slow or unsteady; needs no root and changes nothing."""

from __future__ import annotations

import re

from cdna.checks import Check
from rocm_guide.observe.system.machine import ClockLimit, Gpu, Machine, whole_number

__all__ = ["affinity_hints", "check_numa", "check_system"]


def check_numa(machine: Machine | None = None) -> Check:
    """Check automatic NUMA balancing, which moves pages while GPUs use them; AMD advises 0 (off) with MI300X.

    It also helps some programs on the processor, so the advice is to measure both.

    Source: "AMD Instinct MI300X system optimization",
    https://instinct.docs.amd.com/projects/amdgpu-docs/en/latest/system-optimization/mi300x.html.
    """
    m = machine or Machine()
    value = m.read("proc/sys/kernel/numa_balancing")
    if value is None:
        return Check("OK", "numa", "this kernel has no automatic NUMA balancing: nothing to switch off")
    if value == "0":
        return Check("OK", "numa", "automatic NUMA balancing is off (numa_balancing = 0)")
    on = f"automatic NUMA balancing is on (numa_balancing = {value})"
    if not m.gpus():
        return Check("OK", "numa", f"{on}; it only matters with an AMD GPU")
    fix = "rocm-guide system set; keep it only if your own run gets faster"
    return Check("WARN", "numa", on, fix)


def _kernel_arguments(m: Machine) -> list[Check]:
    value = m.variables().get("HIP_FORCE_DEV_KERNARG")
    if value == "0":
        fix = "unset HIP_FORCE_DEV_KERNARG (1 is the default since ROCm 6.2)"
        return [Check("WARN", "kernargs", "HIP_FORCE_DEV_KERNARG=0: kernel arguments stay in host memory", fix)]
    found = re.match(r"(\d{1,9})\.(\d{1,9})", m.read("opt/rocm/.info/version") or "")
    version = (int(found[1]), int(found[2])) if found else None
    why = "HIP_FORCE_DEV_KERNARG=1" if value == "1" else ""
    if not why and version and version >= (6, 2):
        why = f"the default of ROCm {version[0]}.{version[1]}"
    if why:
        return [Check("OK", "kernargs", f"kernel arguments in device memory ({why})")]
    if version is None:
        return [Check("OK", "kernargs", "no ROCm found; since 6.2 it puts kernel arguments in device memory itself")]
    return [Check("WARN", "kernargs", f"ROCm {version[0]}.{version[1]} needs it", "export HIP_FORCE_DEV_KERNARG=1")]


def _boot(m: Machine) -> list[Check]:
    words = (m.read("proc/cmdline") or "").split()
    rows = []
    if not m.gpus():
        rows.append(Check("OK", "iommu", "no AMD GPU here: iommu=pt is not needed"))
    elif "iommu=pt" in words:
        rows.append(Check("OK", "iommu", "iommu=pt: the GPUs' memory traffic is not translated"))
    else:
        fix = "add iommu=pt to GRUB_CMDLINE_LINUX (with an Intel CPU also intel_iommu=on), update GRUB, restart"
        rows.append(Check("WARN", "iommu", "iommu=pt is not on the kernel's command line", fix))
    if m.gpus() and "pci=realloc=off" not in words:
        fix = "only if GPUs are missing from amd-smi list: add pci=realloc=off to GRUB_CMDLINE_LINUX"
        rows.append(Check("OK", "pci", "pci=realloc=off is not set", fix))
    return rows


def _hugepages(m: Machine) -> list[Check]:
    text = m.read("sys/kernel/mm/transparent_hugepage/enabled")
    if text is None:
        return [Check("OK", "hugepages", "this kernel has no transparent huge pages")]
    found = re.search(r"\[(\w+)\]", text)
    value = found[1] if found else text
    if value in ("always", "madvise"):
        return [Check("OK", "hugepages", f"transparent huge pages: {value}")]
    return [Check("WARN", "hugepages", f"transparent huge pages: {value}", "rocm-guide system set --hugepages always")]


def _clock(m: Machine, gpu: Gpu) -> Check:
    level, _, limit = ClockLimit("", gpu, "").current(m).partition(" ")
    if level == "determinism":
        return Check("OK", f"clock {gpu.index}", f"determinism, at most {limit or '?'} MHz ({gpu.bdf})")
    if level == "auto":
        fix = "for comparable timings: rocm-guide system set --clock 1900"
        return Check("OK", f"clock {gpu.index}", f"automatic ({gpu.bdf})", fix)
    fix = f"amd-smi set --gpu {gpu.bdf} --perf-level AUTO"
    return Check("WARN", f"clock {gpu.index}", f"performance level {level} ({gpu.bdf})", fix)


def _power(m: Machine, gpu: Gpu) -> list[Check]:
    file = m.power_cap(gpu)
    now = whole_number(m.read(file)) if file else None
    if now is None:
        return []
    watts = now // 1_000_000
    default = whole_number(m.read(f"{file}_default") or m.read(f"{file}_max"))
    if default is None or now >= default:
        return [Check("OK", f"power {gpu.index}", f"cap {watts} W")]
    usual = default // 1_000_000
    fix = f"amd-smi set --gpu {gpu.bdf} --power-cap {usual}"
    return [Check("WARN", f"power {gpu.index}", f"capped at {watts} W, the default is {usual} W", fix)]


def _partition(m: Machine, gpu: Gpu) -> list[Check]:
    compute = m.read(f"{gpu.folder}/current_compute_partition")
    memory = m.read(f"{gpu.folder}/current_memory_partition")
    if compute is None:
        return []
    text = f"{compute}/{memory or '?'}"
    if compute == "SPX":
        return [Check("OK", f"mode {gpu.index}", f"{text}: one device with all compute units")]
    fix = "if you expected one large GPU: rocm-guide system set --partition SPX (no program may use it)"
    return [Check("OK", f"mode {gpu.index}", f"{text}: split into devices that share the compute units", fix)]


def affinity_hints(m: Machine) -> list[Check]:
    """Return for every GPU the NUMA node it hangs on, and how to bind a process to it.

    Source: "Prerequisite system validation before running AI workloads", ROCm documentation
    (https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/system-setup/prerequisite-system-validation.html).
    """
    rows = []
    for gpu in m.gpus():
        node = m.read(f"{gpu.folder}/numa_node")
        cpus = m.read(f"{gpu.folder}/local_cpulist")
        if node is None or not re.fullmatch(r"\d+", node):
            rows.append(Check("OK", f"numa {gpu.index}", f"no NUMA node known for {gpu.bdf}: nothing to bind"))
            continue
        command = f"numactl --cpunodebind={node} --membind={node} python …"
        rows.append(Check("OK", f"numa {gpu.index}", f"node {node}, CPUs {cpus or '?'} ({gpu.bdf})", command))
    if len(rows) > 1:
        fix = "mpirun --bind-to numa, or torchrun --numa-binding node; check with rccl-tests' all_reduce_perf -g 1"
        rows.append(Check("OK", "rccl", "one process per GPU, each bound to its GPU's node", fix))
    return rows


def check_system(machine: Machine | None = None) -> list[Check]:
    """Run every check of a machine, this one by default, in the order in which they matter.

    Source: "AMD Instinct MI300X system optimization",
    https://instinct.docs.amd.com/projects/amdgpu-docs/en/latest/system-optimization/mi300x.html.
    """
    m = machine or Machine()
    rows = [check_numa(m), *_kernel_arguments(m), *_boot(m), *_hugepages(m)]
    gpus = m.gpus()
    if not gpus:
        rows.append(Check("OK", "gpu", "no AMD GPU here: clocks, power and partitions were not looked at"))
    for gpu in gpus:
        rows.append(_clock(m, gpu))
        rows += _power(m, gpu) + _partition(m, gpu)
    if gpus and not (m.find("amd-smi") or m.find("rocm-smi")):
        fix = "install ROCm, or add /opt/rocm/bin to PATH"
        rows.append(Check("FAIL", "tools", "neither amd-smi nor rocm-smi is installed", fix))
    elif gpus and not m.find("amd-smi"):
        old = "rocm-smi only; it has been in maintenance since ROCm 7.0"
        rows.append(Check("WARN", "tools", old, "install amd-smi-lib"))
    return rows + affinity_hints(m)
