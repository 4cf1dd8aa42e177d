"""torch.distributed.checkpoint: what many ranks have, in files that any number of ranks reads.

`saving.py` and `loading.py` have `save` and `load`: begin with them. `plan.py` says what of a
tensor a rank has, `files.py` how it lies in files, `state_dict.py` brings models and optimizers
into the form that is written.
"""

from ...absent import explain
from .files import CheckpointException as CheckpointException
from .files import FileSystemReader as FileSystemReader
from .files import FileSystemWriter as FileSystemWriter
from .files import Metadata as Metadata
from .loading import load as load
from .saving import save as save

__all__ = [
    "CheckpointException", "FileSystemReader", "FileSystemWriter", "Metadata", "load", "save",
]  # fmt: skip

explain(__name__)
