"""torch.hub: models and weights that are on the machine already. Nothing is downloaded."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlparse

from ...serialization import load as load_file

__all__ = [
    "HASH_REGEX", "download_url_to_file", "get_dir", "help", "list", "load",
    "load_state_dict_from_url", "set_dir",
]  # fmt: skip

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")


class Chosen:
    """The folder that `set_dir` has chosen."""

    folder: str | None = None


def _get_torch_home() -> str:
    """TORCH_HOME, or ~/.cache/torch."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir() -> str:
    """The folder of models and weights: `set_dir`'s, or `hub` in TORCH_HOME or ~/.cache/torch."""
    if Chosen.folder is not None:
        return Chosen.folder
    return os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Chooses the folder."""
    Chosen.folder = os.path.expanduser(d)


def download_url_to_file(url: str, dst: str, *how: Any, **more: Any) -> NoReturn:
    """RuntimeError: nothing is downloaded."""
    raise RuntimeError(f"torch.hub downloads nothing here: fetch {url} yourself, as {dst}")


def load_state_dict_from_url(
    url: str, model_dir: str | None = None, map_location: Any = None, progress: bool = True,
    check_hash: bool = False, file_name: str | None = None, weights_only: bool = False,
) -> Any:  # fmt: skip
    """What a file that was fetched before holds; RuntimeError says where it should lie."""
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    path = os.path.join(folder, file_name or os.path.basename(urlparse(url).path))
    if not os.path.exists(path):
        download_url_to_file(url, path)
    return load_file(path, map_location=map_location, weights_only=weights_only)


def _entries(repo_or_dir: str, source: str, function: str) -> Any:
    if source != "local":
        raise RuntimeError(
            f"torch.hub.{function} downloads nothing here: fetch {repo_or_dir} yourself, and give "
            "its folder with source='local'"
        )
    path = Path(repo_or_dir) / "hubconf.py"
    spec = importlib.util.spec_from_file_location("hubconf", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(repo_or_dir))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(repo_or_dir))
    return module


def load(repo_or_dir: str, model: str, *args: Any, source: str = "github", **kwargs: Any) -> Any:
    """What the function `model` of the folder's hubconf.py makes; RuntimeError without "local"."""
    for name in ("trust_repo", "force_reload", "verbose", "skip_validation"):
        kwargs.pop(name, None)
    return getattr(_entries(repo_or_dir, source, "load"), model)(*args, **kwargs)


def list(github: str, *how: Any, source: str = "github", **more: Any) -> Any:
    """The functions of a folder's hubconf.py."""
    names = vars(_entries(github, source, "list"))
    return [name for name, value in names.items() if callable(value) and name[:1] != "_"]


def help(github: str, model: str, *how: Any, source: str = "github", **more: Any) -> Any:
    """The docstring of a function of a folder's hubconf.py."""
    return getattr(_entries(github, source, "help"), model).__doc__
