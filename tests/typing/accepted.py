"""Programs as users write them: a type checker has nothing to say of any line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import cugrad as torch
import cugrad.nn.functional as F
from cugrad import Tensor, nn, optim
from cugrad.nn.parameter import Parameter
from cugrad.utils.data import DataLoader, Dataset, TensorDataset, random_split


class Digits(Dataset[tuple[Tensor, int]]):
    def __init__(self, images: Tensor, labels: list[int]) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], self.labels[index]


class Scale(nn.Module):
    bias: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = Parameter(torch.ones(width))
        self.register_buffer("bias", torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias


class Net(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.scale = Scale(width)
        self.layers = nn.Sequential(nn.Linear(8 * 16, width), nn.ReLU(), nn.Dropout(0.1))
        self.blocks = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.head = nn.Linear(width, 10, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        x = self.scale(self.layers(x.flatten(1)))
        for block in self.blocks:
            x = x + F.gelu(block(x))
        logits: Tensor = self.head(x)
        return logits


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        product: Tensor = 3 * grad * x**2
        return product


def train(device: torch.device, epochs: int = 2) -> list[float]:
    torch.manual_seed(0)
    images, labels = torch.rand(64, 1, 8, 8), torch.randint(0, 10, (64,))
    model = Net().to(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    scaler = torch.amp.GradScaler(enabled=False)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    training, rest = random_split(TensorDataset(images, labels), [48, 16])
    loader = DataLoader(training, batch_size=16, shuffle=True, drop_last=True)
    losses: list[float] = []
    model.train()
    for _ in range(epochs):
        total = 0.0
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=False):
                loss = criterion(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            total += loss.item()
        scheduler.step()
        losses.append(total / max(len(loader), 1))
    torch.save({"model": model.state_dict(), "losses": losses}, "model.pt")
    model.load_state_dict(torch.load("model.pt", map_location="cpu", weights_only=True)["model"])
    return losses


@torch.no_grad()
def accuracy(model: nn.Module, batches: Iterator[tuple[Tensor, Tensor]]) -> float:
    model.eval()
    right = count = 0
    for x, y in batches:
        right += int((model(x).argmax(dim=1) == y).sum().item())
        count += y.numel()
    return right / count


def tensors() -> None:
    x = torch.rand(3, 4, requires_grad=True, device="cpu", dtype=torch.float32)
    rows, columns = x.shape
    size: torch.Size = x.size()
    width: int = x.size(-1) + x.shape[0] + x.dim() + x.ndim + rows + columns + size.numel()
    y = 2 * x + 1 - x / 3 + (-x) ** 2 - 1 / (x + 1) + x @ x.T @ x + abs(x) + x % 2 + x // 2
    mask = (x > 0.5) & (y <= 1) | ~(x == 0)
    z = torch.where(mask, x, y).masked_fill(mask, 0.0)[0, ..., 1:][None]
    z = z.view(-1, 1).reshape((3, 1)).permute(1, 0).expand(2, 3).contiguous().unsqueeze(0)
    best, index = x.max(dim=1)
    top = torch.topk(x, k=2, dim=-1)
    pair: Tensor = top.values + top.indices + best.sum() + index.float().mean(0, keepdim=True)
    x[0] = 1.0
    x[mask] = 0
    x.data[:, 1:3] = torch.zeros(3, 2)
    x.add_(y, alpha=2).clamp_(min=0, max=1).mul_(0.5).zero_()
    if x.grad is not None:
        x.grad.zero_()
    x.grad = None
    (grad,) = torch.autograd.grad(y.sum(), [x], create_graph=True)
    grad.norm().backward(retain_graph=True)
    slopes: dict[str, Tensor] = torch.autograd.grad(y.sum(), {"x": x})
    print(slopes["x"].norm())
    handle = y.register_hook(lambda g: g * 2)
    handle.remove()
    array: np.ndarray[Any, Any] = y.detach().cpu().numpy()
    again: Tensor = torch.from_numpy(array) + torch.tensor(array) + torch.tensor([[1, 2.0], [3, 4]])
    numbers = [float(v) for v in x.flatten().tolist()] + [v.item() for v in pair]
    print(torch.cat([x, y], dim=0).split(2), torch.stack((x, y)).chunk(2), torch.arange(0, 10, 2))
    print(torch.einsum("ij,kj->ik", x, y), torch.linalg.norm(x, dim=1), torch.fft.rfft(x).abs())
    print(torch.full((2, 3), 7), torch.zeros([2, 3]), torch.zeros(width), torch.ones_like(x))
    if bool((x < y).any()) and x.dtype == torch.float32 and x.is_cuda and len(numbers) > 1:
        print(f"{x.mean().item():.3f}", x.device.type, x.layout, again.T, z.H, Cube.apply(x))


def odds(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        nn.init.xavier_uniform_(parameter, gain=2.0)
        print(name, parameter.shape, parameter.requires_grad)
    hessian = torch.func.hessian(lambda v: (v**3).sum())(torch.ones(3))
    batched = torch.vmap(torch.dot)(torch.rand(5, 3), torch.rand(5, 3))
    normal = torch.distributions.Normal(torch.zeros(3), torch.ones(3))
    print(hessian, batched, normal.log_prob(normal.sample()), torch.special.expit(batched))
    with torch.memory.offload(), torch.inference_mode(), torch.device("cpu"):
        torch.utils.checkpoint.checkpoint(model, torch.rand(2), use_reentrant=False)
    with torch.autograd.graph.save_on_cpu(pin_memory=True), torch.autograd.profiler.emit_nvtx():
        F.cross_entropy(torch.rand(2, 3), torch.tensor([0, 1]), reduction="sum").backward()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        print(torch.cuda.max_memory_allocated() / 2**20, torch.cuda.Event(enable_timing=True))
    torch.backends.cudnn.benchmark = True
    compiled = torch.compile(model)
    print(compiled, torch.finfo(torch.float16).max, torch.iinfo(torch.int64).min, torch.pi)
    print(torch.bool, torch.int, torch.float, torch.get_default_dtype(), torch.channels_last)
    losses: list[Tensor] = [F.mse_loss(torch.rand(2), torch.rand(2)) for _ in range(3)]
    print(torch.stack(losses).mean(), sum(losses), torch.LongTensor([1, 2]).to(torch.int32))


def recurrent(x: Tensor) -> Tensor:
    print(torch.__version__.split("."))
    outputs, (h, c) = nn.LSTM(2, 3, 2, batch_first=True, bidirectional=True, proj_size=1)(x)
    outputs, h = nn.GRU(2, 3, dropout=0.1, device="cpu")(outputs)
    outputs, h = nn.RNN(2, 3, 1, "relu", bias=False)(outputs)
    result: Tensor = outputs + h + c
    return result


def graph_network(edges: Tensor, weights: Tensor, x: Tensor, w: nn.Parameter) -> Tensor:
    adjacency = torch.sparse_coo_tensor(edges, weights, (4, 4)).coalesce()
    rows, columns = adjacency.indices().unbind(0)
    degree = torch.zeros(4).index_add(0, rows, adjacency.values())
    normal = torch.sparse_coo_tensor(
        adjacency.indices(), adjacency.values() / degree[columns], adjacency.shape
    )
    assert normal.is_coalesced() or normal.sparse_dim() == 2 or normal.dense_dim() == 0
    print(normal._nnz(), normal._indices(), normal._values(), normal.to_dense())
    hidden: Tensor = torch.sparse.mm(normal, x @ w).relu()
    return normal @ hidden
