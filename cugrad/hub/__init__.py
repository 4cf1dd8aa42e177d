"""torch.hub: weights by their address, and what the hubconf.py of a folder makes.

This file is all of it, and imports the functions that read files. Begin with `load`: programs are
not downloaded, it and its like take a folder, with source="local".
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from ..serialization import load as load_file

__all__ = [
    "HASH_REGEX", "download_url_to_file", "get_dir", "help", "list", "load",
    "load_state_dict_from_url", "set_dir",
]  # fmt: skip

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # bfd8deac of resnet18-bfd8deac.pth
CHUNK = 128 << 10  # bytes


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


def download_url_to_file(
    url: str, dst: str, hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Writes what is at an address to a file, which is there once it is whole.

    RuntimeError if its SHA-256 does not begin with `hash_prefix`. `progress` is shown on stderr.
    """
    from urllib.request import Request, urlopen

    dst, digest = os.path.expanduser(dst), hashlib.sha256()
    handle, part = tempfile.mkstemp(".partial", os.path.basename(dst) + ".", os.path.dirname(dst))
    try:
        request = Request(url, headers={"User-Agent": "torch.hub"})
        with os.fdopen(handle, "wb") as file, urlopen(request) as source:
            size, done = int(source.headers.get("Content-Length") or 0), 0
            while chunk := source.read(CHUNK):
                file.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                if progress:
                    share = f"{100 * done / size:.1f}%" if size else f"{done} bytes"
                    sys.stderr.write(f"\r{share}")
        if progress:
            sys.stderr.write("\n")
        digits = digest.hexdigest()
        if hash_prefix is not None and not digits.startswith(hash_prefix):
            raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digits}")')
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(part, 0o666 & ~mask)  # as of any other new file
        os.replace(part, dst)
    finally:
        Path(part).unlink(missing_ok=True)


def load_state_dict_from_url(
    url: str, model_dir: str | None = None, map_location: Any = None, progress: bool = True,
    check_hash: bool = False, file_name: str | None = None, weights_only: bool = False,
) -> Any:  # fmt: skip
    """What the file at an address holds; it is downloaded once, to `checkpoints` in `get_dir()`.

    With `check_hash` its name ends in a hyphen and the first digits of its SHA-256. A zip archive
    of one file is unpacked. `map_location` and `weights_only` are those of `torch.load`.
    """
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, file_name or os.path.basename(urlparse(url).path))
    if not os.path.exists(path):
        sys.stdout.write(f'Downloading: "{url}" to {path}\n')
        digits = HASH_REGEX.search(os.path.basename(path)) if check_hash else None
        download_url_to_file(url, path, digits and digits.group(1), progress)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len(names) == 1 and not names[0].endswith("/"):
                _warn_of_archives()
                path = archive.extract(names[0], folder)  # leaves out what leads elsewhere
    return load_file(path, map_location=map_location, weights_only=weights_only)


def _warn_of_archives() -> None:
    warnings.warn(
        "Falling back to the old format < 1.6. This support will be deprecated in favor of "
        "default zipfile format introduced in 1.6. Please redo torch.save() to save it in the new "
        "zipfile format.",
        FutureWarning,
        stacklevel=3,
    )


def _entries(repo_or_dir: str, source: str, function: str) -> Any:
    """The module hubconf.py of a folder."""
    if source.lower() not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source.lower() != "local":
        raise RuntimeError(
            f"torch.hub.{function} downloads no programs: fetch {repo_or_dir} yourself, and give "
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


def _entry(module: Any, model: str) -> Any:
    if not isinstance(model, str):
        raise ValueError("Invalid input: model should be a string of function name")
    needed = getattr(module, "dependencies", None) or ()
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    function = getattr(module, model, None)
    if not callable(function):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return function


def load(repo_or_dir: str, model: str, *args: Any, source: str = "github", **kwargs: Any) -> Any:
    """What the function `model` of the folder's hubconf.py makes of the other arguments.

    RuntimeError without source="local", for a function that is not there, and for packages that
    hubconf.py names in `dependencies` and that are not installed.
    """
    for name in ("trust_repo", "force_reload", "verbose", "skip_validation"):
        kwargs.pop(name, None)  # of downloads
    module = _entries(repo_or_dir, source, "load")
    sys.path.insert(0, str(repo_or_dir))
    try:
        return _entry(module, model)(*args, **kwargs)
    finally:
        sys.path.remove(str(repo_or_dir))


def list(
    github: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = None,
    verbose: bool = True, *, source: str = "github",
) -> Any:  # fmt: skip
    """The functions of a folder's hubconf.py; RuntimeError without source="local".

    The other arguments are PyTorch's for downloads, of which there are none.
    """
    names = vars(_entries(github, source, "list"))
    return sorted([name for name, value in names.items() if callable(value) and name[:1] != "_"])


def help(
    github: str, model: str, force_reload: bool = False, skip_validation: bool = False,
    trust_repo: Any = None, *, source: str = "github",
) -> Any:  # fmt: skip
    """The docstring of a function of a folder's hubconf.py; other arguments as of `list`."""
    return _entry(_entries(github, source, "help"), model).__doc__
