"""Checkpoints of several files and an index, as large public models have them.

The index, `model.safetensors.index.json` or `pytorch_model.bin.index.json`, says which file has
which tensor.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..tensor import Tensor
from .archive import written
from .safetensors import _aliases, load_file, save

__all__ = ["load_checkpoint", "load_sharded_checkpoint", "save_sharded"]

SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"
INDEX = ".index.json"
UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def _one(path: Path, device: Any) -> dict[str, Tensor]:
    """The tensors of one file, of either kind."""
    from . import load

    if path.suffix == ".safetensors":
        return load_file(path, "cpu" if device is None else device)
    state = load(path, map_location="cpu" if device is None else device, mmap=_is_zip(path))
    if not isinstance(state, Mapping):
        raise ValueError(f"{path}: got {type(state).__name__}, want a state dict")
    return dict(state)


def _is_zip(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"PK"


def _index(path: Path) -> dict[str, list[str]]:
    """The files of an index, and the names of the tensors in each."""
    try:
        places = json.loads(path.read_bytes())["weight_map"]
        files: dict[str, list[str]] = {}
        for name, file in places.items():
            files.setdefault(file, []).append(name)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: no index of a sharded checkpoint: {error!r}") from None
    for file in files:
        if not isinstance(file, str) or os.path.basename(file) != file or file in ("", ".", ".."):
            raise ValueError(f"{path}: names the file {file!r}, want one of its own folder")
    return files


def _home(path: Any, prefer_safe: bool = True) -> Path:
    """The file, or the index, that is meant by a path: itself, or what is in a folder."""
    path = Path(path)
    if not path.is_dir():
        if not path.exists():
            raise FileNotFoundError(f"No such file or directory: {str(path)!r}")
        return path
    kinds = (SAFE, PICKLED) if prefer_safe else (PICKLED, SAFE)
    names = [name + end for name in kinds for end in (INDEX, "")]
    for name in names:
        if (path / name).exists():
            return path / name
    raise ValueError(f"Can't find a checkpoint index ({' or '.join(names)}) in {path}.")


def _parts(home: Path, device: Any) -> Iterator[dict[str, Tensor]]:
    """The tensors of a checkpoint, file by file; KeyError where a file lacks what it should."""
    if not home.name.endswith(INDEX):
        yield _one(home, device)
        return
    for file, names in _index(home).items():
        state = _one(home.parent / file, device)
        missing = [name for name in names if name not in state]
        if missing:
            raise KeyError(f"{file}: lacks {missing[:3]}, which {home.name} says it has")
        yield {name: state[name] for name in names}


def load_checkpoint(path: Any, device: Any = None) -> dict[str, Tensor]:
    """The tensors of a model by name: of a `.safetensors` file, of a file that `save` wrote, of an
    index of several, or of a folder that has one of these.

    On the CPU they are mapped. `device` is where they go instead.

    Raises FileNotFoundError for what is not there, ValueError for an index that is none.
    """
    state: dict[str, Tensor] = {}
    for part in _parts(_home(path), device):
        state.update(part)
    return state


def load_sharded_checkpoint(
    model: Any, folder: Any, strict: bool = True, prefer_safe: bool = True
) -> Any:
    """Loads a checkpoint into a module, file by file, so that one file is in memory at a time.

    `prefer_safe` takes safetensors where a folder has both kinds. The result, and RuntimeError
    where `strict`, are those of `load_state_dict`.
    """
    home = _home(folder, prefer_safe)
    state = model.state_dict()
    alias = _aliases(state)
    names: set[str] = set()
    unexpected: list[str] = []
    for part in _parts(home, None):
        result = model.load_state_dict(part, strict=False)
        names.update(part)
        unexpected += result.unexpected_keys
    names.update(name for name, keep in alias.items() if keep in names)
    names.update(keep for name, keep in alias.items() if name in names)
    missing = [name for name in state if name not in names]
    if strict and (missing or unexpected):
        text = f"Error(s) in loading state_dict for {type(model).__name__}"
        if missing:
            text += f"\nMissing key(s): {', '.join(map(repr, missing))}."
        if unexpected:
            text += f"\nUnexpected key(s): {', '.join(map(repr, unexpected))}."
        raise RuntimeError(text)
    return type(model.load_state_dict({}, strict=False))(missing, unexpected)


def save_sharded(
    state_dict: Mapping[str, Tensor], folder: Any, max_shard_size: int | str = "5GB"
) -> None:
    """Writes a state dict to files of at most so many bytes, or "5GB", and an index of them.

    One file alone gets no index. Of tensors that are one, the files hold one. Where the folder has
    a checkpoint already, the files get names of their own, such as "model-2-00001-of-00003", and
    the index takes its place in one step when all are written: what is loaded at any time, also
    after a crash, is the old checkpoint or the new one. Then the old one's files are removed.

    >>> import cugrad as torch, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> torch.serialization.save_sharded(torch.nn.Linear(4, 4).state_dict(), folder, 64)
    >>> sorted(torch.serialization.load_checkpoint(folder))
    ['bias', 'weight']
    """
    limit = _bytes(max_shard_size)
    alias = _aliases(state_dict)
    shards: list[dict[str, Tensor]] = [{}]
    for name, tensor in state_dict.items():
        if name in alias:
            continue
        if shards[-1] and sum(t.nbytes for t in shards[-1].values()) + tensor.nbytes > limit:
            shards.append({})
        shards[-1][name] = tensor.detach().contiguous()
    count, home = len(shards), Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    older = _files_of(home)
    files = [SAFE] if count == 1 else _free_names(home, count)
    with ExitStack() as drafts:  # which get their names at its end
        if count > 1:
            places = {name: f for f, shard in zip(files, shards, strict=True) for name in shard}
            total = sum(t.nbytes for shard in shards for t in shard.values())
            text = {"metadata": {"total_size": total}, "weight_map": places}
            file, _ = drafts.enter_context(written(home / (SAFE + INDEX)))
            file.write((json.dumps(text, indent=2, sort_keys=True) + "\n").encode())
        for name, shard in zip(files, shards, strict=True):
            file, _ = drafts.enter_context(written(home / name))
            file.write(save(shard, {"format": "pt"}))
    if count == 1:
        (home / (SAFE + INDEX)).unlink(missing_ok=True)
    for name in older.difference(files):
        (home / name).unlink(missing_ok=True)


def _files_of(home: Path) -> set[str]:
    """The files of the checkpoint that is in a folder."""
    try:
        return {SAFE, *_index(home / (SAFE + INDEX))}
    except (FileNotFoundError, ValueError):
        return {SAFE}


def _free_names(home: Path, count: int) -> list[str]:
    """Names for so many files, none of which is there."""
    stem, end = os.path.splitext(SAFE)
    for attempt in itertools.count(1):
        start = stem if attempt == 1 else f"{stem}-{attempt}"
        names = [f"{start}-{number:05d}-of-{count:05d}{end}" for number in range(1, count + 1)]
        if not any((home / name).exists() for name in names):
            break
    return names


def _bytes(size: int | str) -> int:
    """A number of bytes, maybe with a unit."""
    text = str(size).strip().upper()
    unit = next((unit for unit in UNITS if text.endswith(unit)), "")
    number = text.removesuffix(unit).strip()
    if not number.isdigit() or not int(number):
        raise ValueError(f"max_shard_size: got {size!r}, want a number of bytes, or '5GB'")
    return int(number) * UNITS.get(unit, 1)
