"""torch.utils.data: datasets, the order in which they are read, and loaders of batches.

`dataset` has datasets, `sampler` orders and `distributed` their shares, `dataloader` what iterates
over them; begin there. `iterators` are its iterators, and `_utils` what those are made of. Modules
import names from `cugrad.utils.data`, or by PyTorch's paths.
"""

from ...runtime.absent import explain
from . import dataloader, dataset, distributed, sampler
from ._utils.fetch import _DatasetKind
from .dataloader import DataLoader, default_collate, default_convert, get_worker_info
from .dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from .distributed import DistributedSampler
from .sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler",
    "IterableDataset", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset",
    "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "_DatasetKind", "dataloader",
    "dataset", "default_collate", "default_convert", "distributed", "get_worker_info",
    "random_split", "sampler",
]  # fmt: skip

explain(__name__)
