"""CUDA graphs, without a GPU on the CuPy that NumPy plays: what is captured is not done, and a
replay does it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cugrad as torch
from tests.support import fake_cuda

ON_DEVICE = fake_cuda.REAL is not None or torch.cuda.is_available()
F: Any = torch.nn.functional

if not ON_DEVICE:

    def test_over_the_fake_cuda() -> None:
        fake_cuda.passed(__file__, fused=True)

    def test_without_cuda_nothing_is_captured() -> None:
        assert not torch.cuda.is_current_stream_capturing()
        assert torch.cuda.graph_pool_handle() != torch.cuda.graph_pool_handle()

else:
    BATCHES = 6

    def network() -> tuple[Any, Callable[[], Any]]:
        torch.manual_seed(3)
        net = torch.nn.Sequential(
            torch.nn.Conv2d(2, 3, 3, padding=1), torch.nn.BatchNorm2d(3), torch.nn.GELU(),
            torch.nn.Flatten(), torch.nn.Linear(48, 8), torch.nn.LayerNorm(8),
            torch.nn.Dropout(0.3), torch.nn.Linear(8, 4),
        )  # fmt: skip
        return net.cuda(), lambda: [*net.parameters(), *net.buffers()]

    def data() -> list[tuple[Any, Any]]:
        rng = np.random.default_rng(0)
        return [
            (torch.tensor(rng.standard_normal((5, 2, 4, 4), np.float32), device="cuda"),
             torch.tensor(rng.integers(0, 4, 5), device="cuda"))
            for _ in range(BATCHES)
        ]  # fmt: skip

    OPTIMIZERS = {
        "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, capturable=True),
    }

    def trained(optimizer: str, capture: bool, clip: bool) -> tuple[list[Any], list[float]]:
        net, state = network()
        steps = OPTIMIZERS[optimizer](net.parameters())

        def step(x: Any, target: Any) -> Any:
            steps.zero_grad()
            loss = F.cross_entropy(net(x), target)
            loss.backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            steps.step()
            return loss

        run = torch.cuda.capture_step(step, warmup=2) if capture else step
        torch.manual_seed(7)
        losses = [run(x, target).item() for x, target in data()]
        if capture:
            assert len(run.graphs) == 1
        return [x.detach().cpu().numpy() for x in state()], losses

    @pytest.mark.parametrize("optimizer, clip", [("SGD", False), ("AdamW", True)])
    def test_a_captured_step_gives_the_values_of_the_plain_step(optimizer: str, clip: bool) -> None:
        """Dropout's numbers, running statistics and an optimizer's states among them."""
        plain, losses = trained(optimizer, False, clip)
        captured, others = trained(optimizer, True, clip)
        np.testing.assert_allclose(others, losses, 1e-5)
        for a, b in zip(plain, captured, strict=True):
            np.testing.assert_allclose(b, a, 1e-4, 1e-5)

    def test_random_numbers_go_on_from_replay_to_replay() -> None:
        static = torch.zeros(100, device="cuda")
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            a, b = torch.rand_like(static), torch.randn_like(static)
        torch.manual_seed(5)
        first, again = [], []
        for _ in range(3):
            g.replay()
            first += [a.cpu(), b.cpu()]
        last = torch.rand(3, device="cuda")
        assert not torch.equal(first[0], first[2]) and not torch.equal(first[1], first[3])
        torch.manual_seed(5)
        for _ in range(3):
            again += [torch.rand(100, device="cuda").cpu(), torch.randn(100, device="cuda").cpu()]
        assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
        assert torch.equal(last, torch.rand(3, device="cuda"))

    def test_a_replay_reads_and_writes_the_same_memory() -> None:
        x = torch.arange(4.0, device="cuda")
        total = torch.zeros(4, device="cuda")
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            assert torch.cuda.is_current_stream_capturing()
            y = x * 2 + 1
            total += y
        assert not torch.cuda.is_current_stream_capturing()
        assert total.sum().item() == 0  # nothing was done
        g.replay()
        assert y.tolist() == [1, 3, 5, 7]
        x.fill_(10)
        g.replay()
        assert y.tolist() == [21] * 4 and total.tolist() == [22, 24, 26, 28]
        h = torch.cuda.CUDAGraph()
        with torch.cuda.graph(h, pool=g.pool()):
            z = y - 1
        h.replay()
        assert z.tolist() == [20] * 4 and h.pool() == g.pool()
        g.reset()
        with pytest.raises(RuntimeError, match="without a preceding successful capture"):
            g.replay()

    CANNOT: dict[str, tuple[Callable[[Any], Any], str]] = {
        "item": (lambda x: x.sum().item(), "item"),
        "a branch": (lambda x: 1 if x.sum() > 0 else 2, "__bool__"),
        "nonzero": (lambda x: x.nonzero(), "nonzero"),
        "a mask": (lambda x: x[x > 0], "__getitem__"),
        "the host": (lambda x: x.cpu(), "cpu"),
        "from the host": (lambda x: x + torch.ones(3).cuda(), "cuda"),
        "poisson": (lambda x: torch.poisson(x), "poisson"),
        "cuSOLVER": (lambda x: torch.linalg.inv(x.diag()), "inv"),
        "the device": (lambda x: torch.cuda.synchronize(), "synchronize"),
        "offload": (lambda x: saved_on_cpu(x), "exp"),
    }

    def saved_on_cpu(x: Any) -> None:
        with torch.autograd.graph.save_on_cpu():
            (x.requires_grad_() * x).exp()

    @pytest.mark.parametrize("what", CANNOT)
    def test_what_cannot_be_captured_is_named(what: str) -> None:
        call, name = CANNOT[what]
        x = torch.ones(3, device="cuda")
        torch.linalg.inv(x.diag())  # the library's handle is there
        g = torch.cuda.CUDAGraph()
        says = rf"cuda graph: {name} \(line[\s\S]*captur"
        with pytest.raises(RuntimeError, match=says), torch.cuda.graph(g):
            call(x)
        assert not torch.cuda.is_current_stream_capturing()
        assert (x.detach() + 1).tolist() == [2, 2, 2]  # the device works on
        with torch.cuda.graph(g):  # and so does the graph
            y = x.detach() * 3
        g.replay()
        assert y.tolist() == [3, 3, 3]

    def test_a_module_is_named_by_its_class() -> None:
        net = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 4, [2]).cuda()
        x, target = torch.ones(2, 8, device="cuda"), torch.tensor([0, 3], device="cuda")
        net(x, target)
        says = r"cuda graph: AdaptiveLogSoftmaxWithLoss \(line"
        with pytest.raises(RuntimeError, match=says), torch.cuda.graph(torch.cuda.CUDAGraph()):
            net(x, target)

    PRODUCTS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
        "mm": (torch.mm, [(3, 4), (4, 5)]),
        "transposed": (lambda a, b: a.T @ b.T, [(4, 3), (5, 4)]),
        "a part": (lambda a, b: a[:, 1:] @ b[1:], [(3, 5), (5, 4)]),
        "gaps": (lambda a, b: a[::2, ::2] @ b, [(6, 8), (4, 5)]),
        "bmm": (torch.bmm, [(2, 3, 4), (2, 4, 5)]),
        "bmm, transposed": (lambda a, b: a.mT @ b.mT, [(2, 4, 3), (2, 5, 4)]),
        "one for all": (torch.matmul, [(2, 3, 4), (4, 5)]),
        "broadcast": (torch.matmul, [(2, 1, 3, 4), (3, 4, 5)]),
        "mv": (torch.mv, [(3, 4), (4,)]),
        "dot": (torch.dot, [(4,), (4,)]),
        "linear": (F.linear, [(2, 3, 4), (5, 4), (5,)]),
        "baddbmm": (torch.baddbmm, [(2, 3, 5), (2, 3, 4), (2, 4, 5)]),
        "einsum": (lambda a, b: torch.einsum("bij,bjk->ik", a, b), [(2, 3, 4), (2, 4, 5)]),
    }  # fmt: skip
    DTYPES = {  # and what another algorithm may make of them
        "float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-5, "float64": 1e-12, "complex64": 1e-5,
        "complex128": 1e-12,
    }  # fmt: skip

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("what", PRODUCTS)
    def test_products_of_every_dtype_are_captured(what: str, dtype: str) -> None:
        """With their gradients, on one stream and on another that it has forked."""
        product, shapes = PRODUCTS[what]
        torch.manual_seed(0)
        draw = lambda shape: torch.randn(shape, dtype=getattr(torch, dtype), device="cuda")
        operands = [draw(shape).requires_grad_() for shape in shapes]
        results = lambda: (y := product(*operands), *torch.autograd.grad(y, operands, slopes))
        slopes = torch.ones_like(product(*operands))
        results()  # kernels are compiled, and launches noted
        graph, other = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.graph(graph):
            first, here = results(), torch.cuda.current_stream()
            other.wait_stream(here)
            with torch.cuda.stream(other), torch.no_grad():
                second = product(*operands)
            here.wait_stream(other)
        with torch.no_grad():
            for x in operands:
                x.copy_(draw(x.shape))
        graph.replay()
        expected, tolerance = results(), DTYPES[dtype]
        for got, want in zip((*first, second), (*expected, expected[0]), strict=True):
            assert torch.allclose(got, want, tolerance, tolerance)

    def test_products_work_in_memory_of_the_pool() -> None:
        """Each stream in its own: graphs of one pool are replayed in turn, all others whenever."""
        if fake_cuda.REAL is None:
            pytest.skip("only the fake says where cuBLAS works")
        from tests.support.fake_cublas import LIBRARY

        x, other = torch.ones(3, 3, device="cuda"), torch.cuda.Stream()
        graphs = [torch.cuda.CUDAGraph() for _ in range(3)]
        places: list[tuple[int, int]] = []
        for graph in graphs:
            before = len(LIBRARY.calls)
            shared = graphs[1].pool() if graph is graphs[2] else None
            with torch.cuda.graph(graph, pool=shared):
                x @ x @ x
                other.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(other):
                    x @ x
                torch.cuda.current_stream().wait_stream(other)
            first, second, forked = [call.workspace for call in LIBRARY.calls[before:]]
            assert first == second != forked
            places.append((first, forked))
        assert places[0] != places[1] == places[2]
        assert len({place for pair in places for place in pair}) == 4
        assert torch.cuda.memory_allocated() >= 4 * 32 << 20
        assert LIBRARY.workspace == (0, 0)  # what is multiplied outside works elsewhere

    def test_products_of_integers_are_cupys() -> None:
        x = torch.arange(9, device="cuda").reshape(3, 3)
        x @ x
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x @ x
        x += 1
        graph.replay()
        assert torch.equal(y, x @ x)

    def test_what_cublas_refuses_is_cupys_error(monkeypatch: pytest.MonkeyPatch) -> None:
        if fake_cuda.REAL is None:
            pytest.skip("only the fake refuses to work in no memory")
        from cugrad.backends.cupy.launches import captured

        x = torch.ones(3, 3, device="cuda")
        monkeypatch.setitem(captured.WORKSPACE, True, 512)
        refused = pytest.raises(RuntimeError, match="CUBLAS_STATUS_INVALID_VALUE")
        with refused, torch.cuda.graph(torch.cuda.CUDAGraph()):
            x @ x

    def test_products_in_a_capture_of_cupys_own() -> None:
        import cupy

        pool, stream = cupy.cuda.MemoryPool(), torch.cuda.Stream()
        x = torch.ones(3, 3, device="cuda")
        x @ x
        with torch.cuda.stream(stream), cupy.cuda.using_allocator(pool.malloc):
            native = cupy.cuda.get_current_stream()
            native.begin_capture()
            try:
                y = x @ x
            finally:
                graph = native.end_capture()
            x.fill_(2)
            graph.launch()
            stream.synchronize()
        assert y.tolist() == [[12.0] * 3] * 3

    def test_what_a_kept_row_calls_is_not_what_the_user_called(
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        from cugrad.backends.cupy import gemm

        def fails(*args: Any) -> None:
            raise NotImplementedError("calling cuBLAS API during stream capture is unsupported")

        x = torch.ones(3, 3, device="cuda")
        for _ in range(3):
            F.linear(x, x)
        monkeypatch.setattr(gemm, "captured_product", fails)
        refused = pytest.raises(RuntimeError, match="cuda graph: linear")
        with refused, torch.cuda.graph(torch.cuda.CUDAGraph()):
            F.linear(x, x)

    def test_attention_of_heads_is_captured() -> None:
        """Of what lies with heads side by side, forward and backward: reshape copies."""
        torch.manual_seed(0)
        x, w = torch.randn(2, 5, 8, device="cuda"), torch.randn(24, 8, device="cuda")
        w.requires_grad_()

        def heads() -> tuple[Any, Any]:
            q, k, v = [y.reshape(2, 5, 2, 4).transpose(1, 2) for y in F.linear(x, w).chunk(3, -1)]
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
            return y, *torch.autograd.grad(y.reshape(2, 5, 8), w, torch.ones_like(x))

        heads()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = heads()
        for _ in range(2):
            x.mul_(1.1)
            graph.replay()
            for got, want in zip(captured, heads(), strict=True):
                assert torch.allclose(got, want, 1e-4, 1e-5)

    @pytest.mark.parametrize("count", [8, 9, 100])
    def test_many_tensors_are_joined(count: int) -> None:
        """CuPy copies addresses from the host where there are more than eight."""
        parts = [torch.randn(2, 3, device="cuda") for _ in range(count)]
        joined = lambda: (torch.cat(parts), torch.cat(parts, 1), torch.stack(parts, -1))
        joined()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = joined()
        for x in parts:
            x.mul_(2)
        graph.replay()
        assert all(torch.equal(x, y) for x, y in zip(captured, joined(), strict=True))

    def test_transforms_are_captured_and_their_plans_kept() -> None:
        signals = [torch.randn(n, device="cuda") for n in range(4, 14)]
        others = [torch.randn(n, device="cuda") for n in range(20, 40)]
        spectra = lambda: [torch.fft.rfft(x) for x in signals]
        spectra()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = spectra()
        for x in signals:
            x.copy_(torch.randn(x.shape, device="cuda"))
        for x in others:  # of which each has a plan
            torch.fft.rfft(x)
        graph.replay()
        for got, want in zip(captured, spectra(), strict=True):
            assert torch.allclose(got, want, 1e-4, 1e-5)
        plans: dict[int, Any] = graph._capture._plans
        assert len(plans) >= len(signals)

    def test_an_optimizer_whose_numbers_are_the_hosts_is_refused() -> None:
        w = torch.ones(3, device="cuda", requires_grad=True)
        optimizer = torch.optim.Adam([w])
        w.grad = torch.ones_like(w)
        refused = pytest.raises(RuntimeError, match="Adam but param_groups' capturable is False")
        with refused, torch.cuda.graph(torch.cuda.CUDAGraph()):
            optimizer.step()

    def test_captures_begin_on_streams_of_their_own() -> None:
        g = torch.cuda.CUDAGraph()
        with pytest.raises(RuntimeError, match="non-default stream"):
            g.capture_begin()
        with pytest.raises(RuntimeError, match="no capture_begin"):
            g.capture_end()
        with pytest.raises(RuntimeError, match="Unknown capture error mode"):
            g.capture_begin(capture_error_mode="none")

    def test_modules_become_graphs_of_forward_and_backward() -> None:
        values = {}
        for graphed in (False, True):
            net, _ = network()
            net[6].p = 0.0
            x = data()[0][0].requires_grad_()
            if graphed:
                sample = torch.randn_like(x).requires_grad_()
                before = [b.clone() for b in net.buffers()]
                torch.cuda.make_graphed_callables(net, (sample,))
                for b, old in zip(net.buffers(), before):
                    b.copy_(old)
            for _ in range(2):
                net.zero_grad()
                x.grad = None
                (net(x) ** 2).sum().backward()
            gradients = [x.grad, *[p.grad for p in net.parameters()], *net.buffers()]
            values[graphed] = [g.cpu().numpy() for g in gradients]
            net.eval()
            assert net(x).shape == (5, 4)  # as it was before
        for a, b in zip(values[False], values[True], strict=True):
            np.testing.assert_allclose(b, a, 1e-4, 1e-5)

    def test_functions_in_order_share_memory() -> None:
        f = lambda x: torch.sin(x) * 2
        h = lambda x: (x.exp(), x.cos())
        x = torch.ones(3, device="cuda", requires_grad=True)
        both = torch.cuda.make_graphed_callables(
            (f, h), ((x,), (x.detach().clone().requires_grad_(),))
        )
        for value in (0.5, 1.5):
            z = torch.full((3,), value, device="cuda", requires_grad=True)
            a, b = both[1](both[0](z))
            (a.sum() + 3 * b.sum()).backward()
            w = torch.full((3,), value, requires_grad=True)
            c, d = h(f(w))
            (c.sum() + 3 * d.sum()).backward()
            assert torch.allclose(a.cpu(), c) and torch.allclose(z.grad.cpu(), w.grad)

    def test_a_snapshot_has_the_memory_of_a_graph_by_its_handle() -> None:
        torch.cuda.graph_pool_handle()  # handles are counted with those that no graph has
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            kept = torch.ones(1 << 19, device="cuda") * 2
        segments = torch.cuda.memory_snapshot(g.pool())
        assert sum(s["allocated_size"] for s in segments) >= 4 << 19
        assert {s["segment_pool_id"] for s in segments} == {g.pool()} != {(0, 0)}
        assert torch.cuda.memory_stats()["reserved_bytes.all.current"] >= 4 << 19
        del kept

    def test_what_counts_blocks_is_a_graphs_own() -> None:
        """A graph may be replayed on any stream, beside other graphs, and beside what the stream
        that it was captured on does by then; and it may fork.
        """
        from cugrad.backends.cupy.fused.reductions import tickets_of_stream

        stream, other = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(stream):
            tickets = [tickets_of_stream()]
        for _ in range(2):
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g, stream=stream):
                tickets.append(tickets_of_stream())
                assert tickets_of_stream() is tickets[-1]
                other.wait_stream(stream)
                with torch.cuda.stream(other):
                    tickets.append(tickets_of_stream())
                stream.wait_stream(other)
            tickets.append(g)  # which keeps them
        with torch.cuda.stream(stream):
            assert tickets_of_stream() is tickets[0]
        places = [x.data.ptr for x in tickets if not isinstance(x, torch.cuda.CUDAGraph)]
        assert len(set(places)) == len(places) == 5

    def test_each_thread_counts_blocks_on_its_own_default_stream() -> None:
        """cudaStreamPerThread is one number, and a stream in each thread."""
        import threading

        import cupy

        from cugrad.backends.cupy.fused import reductions

        seen: list[int] = []

        def look() -> None:
            here = cupy.cuda.get_current_stream()
            before, here.ptr = here.ptr, reductions.PER_THREAD
            try:
                seen.append(reductions.tickets_of_stream().data.ptr)
            finally:
                here.ptr = before

        for _ in range(2):
            look()
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert seen[0] == seen[1] != seen[2]

    def test_a_step_is_captured_again_for_other_shapes() -> None:
        run = torch.cuda.capture_step(lambda x, power: (x**power).sum(), warmup=1)
        for n, power in ((3, 2), (3, 2), (3, 2), (4, 2), (4, 2), (4, 3), (4, 3)):
            x = torch.full((n,), 2.0, device="cuda")
            assert run(x, power).item() == n * 2**power
        assert len(run.graphs) == 3
        with pytest.raises(ValueError, match=r"x\.cuda\(\)"):
            run(torch.ones(3), 2)

    def test_a_graph_keeps_its_memory_and_no_more() -> None:
        x = torch.ones(1000, device="cuda")
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            y = (x + 1) * 2
        del g
        gc.collect()
        assert y.shape == (1000,)
