"""torch.hub: weights that are fetched once, and what a folder's hubconf.py makes."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path

import pytest

import cugrad
from cugrad import hub


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(hub.Chosen, "folder", None)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    return tmp_path


def test_weights_are_fetched_once(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hub.get_dir() == str(home / "home" / "hub")
    source = home / "w.pt"
    cugrad.save({"w": cugrad.ones(2)}, source)
    for _ in range(2):
        weights = hub.load_state_dict_from_url(source.as_uri(), weights_only=True)
        assert weights["w"].tolist() == [1.0, 1.0]
        source.unlink(missing_ok=True)  # the second time there is nothing to fetch
    shown = capsys.readouterr()
    assert shown.out.count("Downloading") == 1 and "100.0%" in shown.err
    assert [p.name for p in (home / "home" / "hub" / "checkpoints").iterdir()] == ["w.pt"]


@pytest.mark.parametrize("right", [True, False])
def test_names_with_digits_are_checked(home: Path, right: bool) -> None:
    cugrad.save({"w": cugrad.ones(2)}, home / "w.pt")
    digits = hashlib.sha256((home / "w.pt").read_bytes()).hexdigest()[:8] if right else "0123abcd"
    source = (home / "w.pt").rename(home / f"w-{digits}.pt")
    how = {"model_dir": str(home / "there"), "check_hash": True, "progress": False}
    if right:
        assert hub.load_state_dict_from_url(source.as_uri(), **how)["w"].sum() == 2
    else:
        with pytest.raises(RuntimeError, match=r'invalid hash value \(expected "0123abcd", got '):
            hub.load_state_dict_from_url(source.as_uri(), **how)
        assert not list((home / "there").iterdir())  # nor a part of it


def test_an_archive_of_one_file_is_unpacked(home: Path) -> None:
    cugrad.save([1.5], home / "inner.pt")
    with zipfile.ZipFile(home / "outer.zip", "w") as archive:
        archive.write(home / "inner.pt", "inner.pt")
    with pytest.warns(FutureWarning, match="old format"):
        assert hub.load_state_dict_from_url((home / "outer.zip").as_uri(), progress=False) == [1.5]


def test_functions_of_a_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "beside", None)  # to be forgotten afterwards
    del sys.modules["beside"]
    (home / "beside.py").write_text("TWO = 2\n")
    (home / "hubconf.py").write_text(
        "dependencies = ['numpy']\n"
        "def two(times=1):\n    'Two.'\n    from beside import TWO\n    return TWO * times\n"
    )
    where = str(home)
    assert hub.load(where, "two", source="local", times=3) == 6
    assert hub.list(where, source="local") == ["two"]
    assert hub.help(where, "two", source="local") == "Two."
    with pytest.raises(RuntimeError, match="Cannot find callable three in hubconf"):
        hub.load(where, "three", source="local")
    with pytest.raises(RuntimeError, match="source='local'"):
        hub.load("user/models", "two")
    with pytest.raises(ValueError, match='Unknown source: "gitlab"'):
        hub.load("user/models", "two", source="gitlab")
    (home / "hubconf.py").write_text("dependencies = ['no_such_package']\ndef two(): pass\n")
    with pytest.raises(RuntimeError, match="Missing dependencies: no_such_package"):
        hub.load(where, "two", source="local")
