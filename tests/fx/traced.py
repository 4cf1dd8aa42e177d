"""Modules and functions to trace, written once for `torch` and for the library: see `of`."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any


def of(torch: ModuleType) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """By name: what is traced, and arguments to run it with."""
    nn, F = torch.nn, torch.nn.functional
    x = torch.linspace(-2, 2, 12).reshape(3, 4)
    images = torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.scale = nn.Parameter(torch.full((4,), 0.5))
            self.register_buffer("shift", torch.arange(4.0))
            self.constant = torch.ones(4) * 3

        def forward(self, x: torch.Tensor, twice: bool = True) -> torch.Tensor:
            y = self.linear(x) * self.scale + self.shift
            return F.relu(y) + self.scale.sum() + self.constant

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([Block(), Block()])
            self.head = nn.Sequential(nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 2))

        def forward(self, x: Any) -> Any:
            for block in self.blocks:
                x = x + block(x, twice=False)
            return {"scores": self.head(x), "sizes": [x.size(0), x.shape[-1]]}

    class Convolved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, padding=1)
            self.norm = nn.BatchNorm2d(4)

        def forward(self, x: Any) -> Any:
            x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
            x = F.avg_pool2d(F.dropout(x, 0.5, self.training), 2)
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = F.adaptive_avg_pool2d(F.pad(x, (1, 1)), (1, 1))
            return torch.flatten(x, 1)

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: Any, mask: Any = None) -> Any:
            scores = self.q(x) @ self.k(x).transpose(-2, -1) / math.sqrt(4)
            return F.softmax(scores, dim=-1) @ self.v(x), scores.argmax(dim=1)

    def operators(x: Any, y: Any) -> Any:
        return (
            (-x + 1 - 2 * y) ** 2 / (3 + abs(x)) // 0.5 % 7,
            x > y,
            ~(x == y),
            1 - x,
            2 / (x * x + 1),
        )

    def indexing(x: Any) -> Any:
        a, b, c = x.unbind(0)
        return x[0], x[:, 1:3], x[..., None], x[[0, 2]], a + b + c, x.T

    def starred(x: Any, *rest: Any, key: Any = None, **more: Any) -> Any:
        return x + rest[0] * rest[1]

    def inplace(x: Any) -> Any:
        y = x.clone()
        y += 1
        y.mul_(2).clamp_(min=0, max=5)
        return y

    def functions(x: Any) -> Any:
        y = torch.cat([x, torch.sigmoid(x)], dim=1)
        y = torch.einsum("ij,kj->ik", y, y)
        z = torch.where(y > 0, y, torch.zeros_like(y))
        top = torch.topk(z, 2, dim=1)
        return z.sum(dim=(0, 1), keepdim=True), top[0], torch.stack((z, y)).permute(0, 2, 1)

    def losses(x: Any, labels: Any) -> Any:
        loss = F.cross_entropy(x, labels, label_smoothing=0.1) + F.mse_loss(x, x * 2)
        return loss + F.nll_loss(F.log_softmax(x, 1), labels) + F.normalize(x, dim=1).sum()

    def attributes(x: Any) -> Any:
        rows, columns = x.shape
        return x.view(columns, rows), x.reshape(-1), x.new_zeros(x.size()), x.dtype, x.float()

    def constants(x: Any) -> Any:
        return x + torch.ones(4), torch.arange(4.0) * x, torch.full((2,), 3.0)

    def annotated(x: torch.Tensor, n: int = 2, name: str = "it") -> torch.Tensor:
        return x * n

    def defaults(
        x: Any, scale: float = float("inf"), device: Any = None, how: Any = (1, [2])
    ) -> Any:
        return x.clamp(max=scale).to(torch.float64)

    def unused(x: Any, y: Any) -> Any:
        x.sin()
        z = x.cos()
        torch.relu(z)
        return x

    def called(x: Any) -> Any:
        return F.conv1d(x[None], torch.ones(1, 3, 2)), F.linear(x, torch.ones(2, 4)), F.gelu(x)

    def of_sizes(x: Any) -> Any:
        rows, n = x.shape[0], x.size(1)
        kind = {"dtype": x.dtype, "device": x.device}
        y = torch.zeros((rows, n), **kind) + torch.eye(rows, n) + torch.full([rows, n], 0.5)
        ones = torch.ones(x.shape) * torch.ones((rows, 1))
        return torch.arange(n, **kind) + torch.arange(0, n) + y, ones, torch.linspace(0, 1, n)

    labels = torch.tensor([0, 3, 1])
    classes = {"block": Block(), "outer": Outer(), "convolved": Convolved().eval(),
               "attention": Attention(),
               "sequential": nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True))}  # fmt: skip
    return {
        **{n: (module, (images if n == "convolved" else x,)) for n, module in classes.items()},
        "operators": (operators, (x, x.flip(0))), "indexing": (indexing, (x,)),
        "starred": (starred, (x, (x, x), None, {})), "inplace": (inplace, (x,)),
        "functions": (functions, (x,)), "losses": (losses, (x, labels)),
        "attributes": (attributes, (x,)), "constants": (constants, (x,)),
        "annotated": (annotated, (x,)), "defaults": (defaults, (x,)), "unused": (unused, (x, x)),
        "called": (called, (x,)), "of_sizes": (of_sizes, (x,)),
    }  # fmt: skip


def same_weights(torch: ModuleType, module: Any) -> Any:
    """The module with parameters that depend on their sizes alone; what is no module, as it is."""
    if not hasattr(module, "parameters"):
        return module
    with torch.no_grad():
        for parameter in module.parameters():
            values = torch.linspace(-0.5, 0.5, parameter.numel())
            parameter.copy_(values.reshape(parameter.shape))
    return module
