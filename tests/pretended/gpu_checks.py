# SPDX-License-Identifier: MIT
"""The pretended MI300X says what a real one says; each kind of fault of a notebook on a GPU is found by it.

test_gpu.py runs this file in a process of its own.
"""

from __future__ import annotations

import copy
import io
import pickle
import threading

import pytest
import torch
import triton
import triton.language as tl

from rocm_guide.common.device import accelerator, peak_memory, pick_dtype, time_call
from rocm_guide.observe.doctor.own_folders import LibraryMissingError
from tests.pretended.gpu import pretended_gpu
from tests.pretended.in_torch import IN_TORCH

TWO_DEVICES = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"


@pytest.fixture
def gpu():
    with pretended_gpu():
        yield


@triton.jit
def add_one(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)


def test_it_is_an_mi300x(gpu):
    found = accelerator()
    assert (found.kind, found.name, found.arch, found.count) == ("rocm", "AMD Instinct MI300X", "gfx942", 1)
    assert torch.cuda.get_device_properties(0).multi_processor_count == 304
    assert found.memory_bytes == 192 * 2**30 == torch.cuda.mem_get_info()[1]
    assert pick_dtype() is torch.bfloat16
    assert isinstance(torch.cuda.device, type)
    with torch.cuda.device(0), torch.cuda.stream(torch.cuda.Stream()):
        assert time_call(lambda: torch.ones(4, device="cuda") + 1, runs=2).median > 0


def test_afterwards_there_is_none():
    with pretended_gpu():
        pass
    assert accelerator().kind == "cpu"
    with pytest.raises((AssertionError, RuntimeError)):
        torch.ones(2).to("cuda")
    with pytest.raises(RuntimeError, match="driver"):
        add_one[(1,)](torch.ones(4), torch.ones(4), 4, BLOCK=4)


# ------------------------------------------------------------------------- the faults of notebooks on a GPU


def test_two_devices(gpu):
    on_gpu, on_cpu = torch.ones(2, 2, device="cuda"), torch.ones(2, 2)
    for meet in (lambda: on_gpu + on_cpu, lambda: on_cpu.add_(on_gpu), lambda: torch.where(on_gpu > 0, on_gpu, on_cpu)):
        with pytest.raises(RuntimeError, match=TWO_DEVICES):
            meet()
    with pytest.raises(
        RuntimeError, match=r"got mat2 is on cpu, different from other tensors on cuda:0 .*wrapper_CUDA_mm"
    ):
        on_gpu @ on_cpu
    with pytest.raises(RuntimeError, match="on the same device, but got indices is on cpu"):
        torch.nn.functional.embedding(torch.tensor([1]), on_gpu)
    with pytest.raises(RuntimeError, match="on the same device"):
        torch.allclose(on_gpu, on_cpu)
    with pytest.raises(RuntimeError, match="on the same device"):
        torch.cat([on_gpu, on_cpu])
    with pytest.raises(RuntimeError, match=r"indices should be either on cpu or on the same device .*\(cpu\)"):
        on_cpu[torch.tensor([0], device="cuda")]
    with pytest.raises(RuntimeError, match="'cuda' device type for generator but found 'cpu'"):
        torch.randn(2, device="cuda", generator=torch.Generator())


def test_what_may_meet(gpu):
    x = torch.arange(4.0, device="cuda")
    number = torch.tensor(2.0)  # of the CPU, without dimensions
    assert (x * number).device == (number * x).device == torch.device("cuda", 0)
    assert x[torch.tensor([0])].is_cuda
    assert torch.ones(4).copy_(x).device.type == "cpu"
    with pytest.raises(RuntimeError, match=TWO_DEVICES):
        number.add_(x.sum())
    assert torch.randn(2, device="cuda", generator=torch.Generator("cuda").manual_seed(0)).is_cuda


@triton.jit
def bits_of(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.inline_asm_elementwise("v_not_b32 $0, $1", "=v,v", [x], tl.int32, True, 1))


def test_a_kernel_with_instructions_of_the_gpu_is_executed_as_machine_code(gpu):
    x, y = torch.arange(64, dtype=torch.int32, device="cuda"), torch.zeros(64, dtype=torch.int32, device="cuda")
    bits_of[(1,)](x, y, BLOCK=64, num_warps=1)
    assert torch.equal(y, ~x)


def test_a_triton_kernel_refuses_a_tensor_of_the_cpu(gpu):
    x, y = torch.arange(10.0, device="cuda"), torch.zeros(10, device="cuda")
    add_one[lambda meta: (triton.cdiv(10, meta["BLOCK"]),)](x, y, 10, BLOCK=4)
    assert y.tolist() == [i + 1 for i in range(10)]
    for place, given in enumerate([(x.cpu(), y), (x, y.cpu())]):
        message = rf"Pointer argument \(at {place}\) cannot be accessed from Triton \(cpu tensor\?\)"
        with pytest.raises(ValueError, match=message):
            add_one[(3,)](*given, 10, BLOCK=4)


def test_a_tensor_of_the_gpu_is_no_array(gpu):
    x = torch.ones(3, device="cuda")
    with pytest.raises(TypeError, match=r"can't convert cuda:0 device type tensor to numpy\. Use Tensor\.cpu\(\)"):
        x.numpy()
    import numpy as np

    with pytest.raises(TypeError, match="can't convert cuda:0"):
        np.asarray(x)
    assert x.cpu().numpy().sum() == 3 == x.numpy(force=True).sum()


def test_a_tolerance_of_fp32_is_met_by_bfloat16(gpu):
    """What notebooks 03 and 14 asserted: a model is in bfloat16 there, and its error is that of the type."""
    torch.manual_seed(0)
    x, w = (torch.randn(64, 64, device="cuda", dtype=pick_dtype()) for _ in range(2))
    exact = x.double() @ w.double()
    error = ((x @ w).double() - exact).abs().max() / exact.abs().max()
    assert 1e-5 < error.item() < torch.finfo(torch.bfloat16).eps
    with pytest.raises(RuntimeError, match="Float did not match BFloat16"):
        torch.allclose(exact.float(), x @ w)


# ------------------------------------------------------------------------------------------- where tensors are


def test_made_on_the_gpu(gpu):
    x = torch.ones(2, 3, device="cuda", requires_grad=True)
    made = [
        torch.tensor([1], device="cuda"),
        torch.as_tensor([1], device=0),
        torch.arange(3, device="cuda:0"),
        torch.zeros_like(torch.ones(2), device="cuda"),
        x.new_tensor([1]),
        x.new_zeros(2),
        x.T,
        x.data,
        x[0].detach(),
        x.sum(),
        x.to(torch.float16),
        torch.ones(1).cuda(),
        torch.ones(1).to(x),
        torch.nn.functional.rms_norm(x.bfloat16(), (3,)),
        copy.deepcopy(x),
    ]
    assert [t.device for t in made] == [torch.device("cuda", 0)] * len(made)
    on_cpu = [
        torch.zeros_like(x, device="cpu"),
        x.new_zeros(2, device="cpu"),
        torch.ones(1),
        x.detach().cpu(),
        x.to("cpu"),
    ]
    assert not any(t.is_cuda for t in on_cpu)
    assert torch.device(0) == torch.device("cuda", 0) == x.device and isinstance(x.device, torch.device)
    assert pickle.loads(pickle.dumps(x.device)) == x.device
    assert x.to("cuda") is x and "device='cuda:0'" in repr(x)
    assert torch.nn.Linear(2, 2).to(0).weight.is_cuda and torch.nn.Linear(2, 2).to(device=0).weight.is_cuda
    with torch.device("cuda"):
        assert torch.tensor([1]).is_cuda and torch.zeros(2).is_cuda and torch.nn.Linear(2, 2).weight.is_cuda
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(1).to("cuda:1")


class Packed(torch.Tensor):
    """A subclass with functions of its own, as quantised weights are."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs)


def test_a_subclass_is_moved(gpu):
    there = torch.ones(2).as_subclass(Packed).to("cuda")
    assert isinstance(there, Packed) and there.device.type == there.to(0).device.type == "cuda"
    assert there.cpu().device.type == "cpu" and not (there.cpu() + 1).is_cuda and (there + 1).is_cuda


def test_a_gradient_goes_back_to_where_its_tensor_was(gpu):
    x = torch.ones(3, requires_grad=True)
    (x.to("cuda", torch.bfloat16) * 2).sum().backward()
    assert (x.grad.device.type, x.grad.dtype, x.grad.tolist()) == ("cpu", torch.float32, [2, 2, 2])


@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}, {"foreach": False}])
def test_a_model_is_moved_and_trained(gpu, options):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    model[1].weight = model[0].weight
    weight = model[0].weight
    optimizer = torch.optim.AdamW(model.parameters(), **options)  # before the move, as PyTorch allows
    model.to("cuda")
    assert model[0].weight is weight is model[1].weight and weight.is_cuda
    with torch.autocast("cuda", dtype=torch.bfloat16):
        y = model(torch.ones(2, 4, device="cuda"))
    assert y.dtype is torch.bfloat16
    y.float().sum().backward()
    before = weight.detach().clone()
    optimizer.step()
    assert weight.grad.is_cuda and optimizer.state[weight]["exp_avg"].is_cuda
    assert not torch.equal(before, weight)
    with pytest.raises(RuntimeError, match="on the same device"):
        model(torch.ones(2, 4))


def test_saved_and_loaded(gpu, tmp_path):
    from safetensors.torch import load_file, save_file

    state = {"a": torch.arange(3.0, device="cuda"), "b": torch.ones(2)}
    file = io.BytesIO()
    torch.save(state, file)
    for where, types in ((None, ["cuda", "cpu"]), ("cpu", ["cpu", "cpu"]), ("cuda", ["cuda", "cuda"])):
        file.seek(0)
        found = torch.load(file, map_location=where)
        assert [t.device.type for t in found.values()] == types and found["a"].tolist() == [0, 1, 2]
    save_file(state, tmp_path / "x.safetensors")
    assert not load_file(tmp_path / "x.safetensors")["a"].is_cuda
    assert load_file(tmp_path / "x.safetensors", device="cuda")["a"].is_cuda


def test_memory_is_counted(gpu):
    with peak_memory() as peak:
        x = torch.empty(1 << 20, device="cuda")
        y = x + 1
        assert torch.cuda.memory_allocated() >= 8 << 20
        view = y[1:]
        del x, y
        assert 4 << 20 <= torch.cuda.memory_allocated() < 8 << 20
        del view
    assert 8 << 20 <= peak.bytes < 9 << 20
    assert torch.cuda.memory_allocated() < 4 << 20


def test_pinned_memory_and_threads(gpu):
    assert torch.ones(2).pin_memory().is_pinned() and not torch.ones(2).is_pinned()
    seen = []
    thread = threading.Thread(target=lambda: seen.append((torch.ones(2, device="cuda") + 1).device.type))
    thread.start()
    thread.join()
    assert seen == ["cuda"]


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"enable_gqa": True}])
def test_attention(gpu, options):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    heads = 2 if "enable_gqa" in options else 4
    q, k, v = (torch.randn(1, h, 5, 8, device="cuda") for h in (4, heads, heads))
    want = torch.nn.functional.scaled_dot_product_attention(q.cpu(), k.cpu(), v.cpu(), **options)
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):  # a backend that the CPU lacks
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
    assert found.is_cuda and torch.allclose(found.cpu(), want, atol=1e-6)


def test_a_dry_run_inside_compiles_as_ever(gpu):
    from cdna.dry_run import dry_run
    from rocm_guide.kernels.rms_norm import rms_norm

    with dry_run() as run:
        rms_norm(torch.empty(8, 64, device="cuda"), torch.empty(64, device="cuda"))
        assert torch.empty(1).is_cuda and torch.empty(1, device="cuda").device == torch.device("cuda", 0)
    assert run.kernels == ["rms_norm_rows"]
    x = torch.randn(8, 64, device="cuda")
    assert torch.allclose(rms_norm(x, torch.ones(64, device="cuda")), torch.nn.functional.rms_norm(x, (64,)), atol=1e-5)


# ------------------------------------------------------------------- what stands for the kernels of libraries


def _step(dtype):
    """Forward and backward through each kernel of Liger and TRL that a Llama is trained with; the INT8 products."""
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction
    from liger_kernel.ops.rope import LigerRopeFunction
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    from rocm_guide.kernels import int8_gemm as operators

    torch.manual_seed(0)

    def leaf(*shape):
        return torch.randn(*shape, dtype=dtype).to("cuda").requires_grad_()

    x, w, a, b = leaf(3, 20), leaf(20), leaf(3, 20), leaf(3, 20)
    q, k, logits = leaf(2, 4, 3, 8), leaf(2, 2, 3, 8), leaf(3, 20)
    angles = torch.rand(1, 3, 4).repeat(1, 1, 2).to("cuda")
    outs = [LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, mode, False) for mode in ("llama", "gemma")]
    outs.append(LigerSiLUMulFunction.apply(a, b))
    outs += LigerRopeFunction.apply(q.clone(), k.clone(), angles.cos().to(dtype), angles.sin().to(dtype))
    target = torch.tensor([4, -100, 7], device="cuda")
    outs.append(LigerCrossEntropyFunction.apply(logits.clone(), target, None, -100)[0])
    from trl.kernels.chunked_logprob import ChunkedLogProbFunction

    hidden, head = leaf(3, 8), leaf(20, 8)
    labels = torch.tensor([4, 19, 7], device="cuda")
    names = ("entropy", "log_sum_sq_probs", "mean_logits", "is_top1")
    outs += ChunkedLogProbFunction.apply(hidden, head, None, labels, 0.7, 12, None, 1.0, names)
    a8, b8 = torch.randint(-128, 128, (2, 2, 5, 9), dtype=torch.int8).to("cuda")
    rows, columns = torch.rand(5, device="cuda"), torch.rand(5, device="cuda")
    products = [
        operators.linear_scaled(a8[0], b8[0].T, rows, columns, x.detach()[0, :5], out_dtype=dtype),
        operators.bmm_ab_i8_e_f32(a8, b8.mT, 0.01),
        operators.linear_relu_abde_i8(a8[0], b8[0].T, a8[1, :, :5], 0.002, 0.5),
    ]
    sum((o.float() * 2).sum() for o in outs).backward()
    return [
        *(o.detach().float() for o in (*outs, *products)),
        *(t.grad.float() for t in (x, w, a, b, q, k, logits, hidden, head)),
    ]


def _gptq_weights(bits):
    """Weights of GPTQModel's layout, through its kernel; a negative group counts from the end."""
    from gptqmodel.nn_modules.triton_utils.dequant import dequant

    torch.manual_seed(0)
    pack = 32 // bits
    words = torch.randint(-(2**31), 2**31, (64 // pack, 32), dtype=torch.int32, device="cuda")
    zeros = torch.randint(-(2**31), 2**31, (2, 32 // pack), dtype=torch.int32, device="cuda")
    row = torch.arange(64, device="cuda")
    group = (row // 32) * torch.where(row < 60, 1, -1)
    scales = torch.rand(2, 32, device="cuda", dtype=torch.bfloat16)
    return dequant(torch.bfloat16, words, scales, zeros, group.int(), bits, 32, 2**bits - 1)


@pytest.fixture
def gptqmodel():
    """The library, imported before a GPU is pretended: it keeps for good whether one was there."""
    from rocm_guide.quantize.libraries import add_libraries

    try:
        add_libraries("gptqmodel")
    except LibraryMissingError as e:
        pytest.skip(str(e))
    from gptqmodel.utils.importer import HAS_CUDA

    assert not HAS_CUDA


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_gptq_in_torch_as_in_the_interpreter(gptqmodel, gpu, bits, monkeypatch):
    name = "gptqmodel.nn_modules.triton_utils.dequant.dequant_kernel"
    done = []
    monkeypatch.setitem(IN_TORCH, name, lambda a, f=IN_TORCH[name]: done.append(f(a)) or done[-1])
    found = _gptq_weights(bits)
    assert done == [True]
    monkeypatch.setattr("tests.pretended.kernels.IN_TORCH", {})
    assert torch.equal(found, _gptq_weights(bits))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_in_torch_as_in_the_interpreter(gpu, dtype, monkeypatch):
    used = set()
    for name, function in list(IN_TORCH.items()):
        monkeypatch.setitem(IN_TORCH, name, lambda a, n=name, f=function: f(a) and (used.add(n) or True))
    found = _step(dtype)
    # two more for more rows than 32,768; GPTQModel lies in a folder of its own
    assert len(used) == len(IN_TORCH) - 3
    monkeypatch.setattr("tests.pretended.kernels.IN_TORCH", {})
    want = _step(dtype)
    for have, true in zip(found, want, strict=True):
        torch.testing.assert_close(have, true, rtol=16 * torch.finfo(dtype).eps, atol=16 * torch.finfo(dtype).eps)
