"""Trains a network on handwritten digits in several processes, with one script for all of them.

mpiexec -n 4 python examples/train_ddp.py            # on this machine
srun python examples/train_ddp.py                    # under Slurm
python -m cugrad.distributed.run --nproc-per-node 4 examples/train_ddp.py    # as torchrun would
RANK=0 WORLD_SIZE=1 python examples/train_ddp.py     # in one process
"""

from __future__ import annotations

import argparse

from sklearn.datasets import load_digits

import cugrad as torch
import cugrad.distributed as dist
from cugrad import nn, optim
from cugrad.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    """Prints, on rank 0, the loss of all ranks after each epoch, and the accuracy at the end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64, help="samples of all ranks in a step")
    options = parser.parse_args()

    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    device = f"cuda:{dist.get_node_local_rank(0)}" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)

    digits = load_digits()
    pixels = torch.tensor(digits.data / 16, dtype=torch.float32, device="cpu")
    labels = torch.tensor(digits.target, device="cpu")
    data, held_out = TensorDataset(pixels[:1500], labels[:1500]), (pixels[1500:], labels[1500:])
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=options.batch // size, sampler=sampler)

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(2, device=device)
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.stack([loss.detach() * len(x), torch.tensor(float(len(x)))]).to(device)
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {total[0].item() / total[1].item():.3f}")
    with torch.no_grad():
        right = (model(held_out[0].to(device)).argmax(1) == held_out[1].to(device)).float().mean()
    if rank == 0:
        print(f"{size} ranks, accuracy on digits not seen: {right.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
