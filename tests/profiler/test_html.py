"""Drives the pages that the profiler writes in a real browser: they work, and load nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cugrad
from cugrad import nn
from cugrad.profiler import MemoryTimeline
from cugrad.profiler.__main__ import main
from cugrad.profiler.html import memory_page
from tests.profiler.browser import Browser, Page, installed
from tests.profiler.profiler_files import Step, training_step, write_nsys

pytestmark = pytest.mark.host_only

Open = Callable[[Path], Page]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if installed() is None:
        pytest.skip("no browser is installed (Debian's package is chromium)")
    found = Browser(tmp_path_factory.mktemp("browser"))
    try:
        found.call("Browser.getVersion")
    except (AssertionError, OSError) as error:
        found.close()
        pytest.skip(f"{installed()} does not start here: {error}")
    yield found
    found.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens a file; at the end nothing may have gone wrong in it."""
    pages: list[Page] = []

    def opened(path: Path) -> Page:
        pages.append(Page(browser, path))
        return pages[-1]

    yield opened
    for page in pages:
        assert page.faults() == []
        page.close()


def timeline_of_a_step() -> MemoryTimeline:
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    with MemoryTimeline("cpu") as timeline:
        x = cugrad.randn(512, 64)
        model(x).sum().backward()
    return timeline


@pytest.fixture(scope="module")
def timeline() -> MemoryTimeline:
    return timeline_of_a_step()


def cells(page: Page, selector: str) -> list[str]:
    found = page.evaluate(
        f"[...document.querySelectorAll({selector!r})].map((each) => each.textContent)"
    )
    assert isinstance(found, list)
    return found


# Memory ----------------------------------------------------------------------------------------


def test_the_memory_page(timeline: MemoryTimeline, open_page: Open, tmp_path: Path) -> None:
    timeline.to_html(tmp_path / "memory.html", "A step & <its> memory")
    page = open_page(tmp_path / "memory.html")
    assert cells(page, "h1") == ["A step & <its> memory"]
    assert page.evaluate("document.querySelectorAll('#stack path').length") == 7
    peak = timeline.as_dict()["alive_at_peak"]
    assert len(cells(page, "#alive tbody tr")) == len(peak)
    assert cells(page, "#alive tbody td:first-child")[0] == peak[0]["op"]
    assert f"{Path(__file__).name}:" in cells(page, "#alive tbody td.code")[0]


def test_the_mouse_shows_what_an_op_left(
    timeline: MemoryTimeline, open_page: Open, tmp_path: Path
) -> None:
    timeline.to_html(tmp_path / "memory.html")
    page = open_page(tmp_path / "memory.html")
    assert page.evaluate("getComputedStyle(document.querySelector('.tip')).visibility") == "hidden"
    page.move(*page.middle("#stack"))
    assert page.evaluate("getComputedStyle(document.querySelector('.tip')).visibility") == "visible"
    shown = cells(page, ".tip b")[0].partition(" ")[0]
    assert shown in {each.name for each in timeline.samples}
    page.click("#to-peak")
    top = max(timeline.samples, key=lambda sample: sample.bytes)
    assert cells(page, ".tip b")[0].startswith(f"{top.name} ({top.phase}")


def test_axes_and_categories(timeline: MemoryTimeline, open_page: Open, tmp_path: Path) -> None:
    timeline.to_html(tmp_path / "memory.html")
    page = open_page(tmp_path / "memory.html")
    before = page.evaluate("document.querySelector('#stack path[data-category=saved]').outerHTML")
    page.click("button[data-axis=time]")
    after = page.evaluate("document.querySelector('#stack path[data-category=saved]').outerHTML")
    assert before != after
    assert any(text.endswith(" ms") for text in cells(page, "#stack text"))
    page.click("button[data-key=other]")
    assert page.evaluate("document.querySelectorAll('#stack path').length") == 6
    page.click("button[data-key=other]")
    assert page.evaluate("document.querySelectorAll('#stack path').length") == 7


def test_the_areas_add_up(timeline: MemoryTimeline, open_page: Open, tmp_path: Path) -> None:
    """The top of the stack is the memory in use, at every sample."""
    timeline.to_html(tmp_path / "memory.html")
    page = open_page(tmp_path / "memory.html")
    sums = page.evaluate("samples.map((s) => HERE.reduce((sum, [key]) => sum + s[key], 0))")
    for total, sample in zip(sums, timeline.samples, strict=True):
        assert total == pytest.approx(sample.bytes, rel=0.02, abs=4096)


def test_what_is_elsewhere_has_a_picture(open_page: Open, tmp_path: Path) -> None:
    data = timeline_of_a_step().as_dict()
    for i, each in enumerate(data["samples"]):
        each.update(offloaded=1000 * i, pinned=5000, in_flight=0, disk=0)
    path = tmp_path / "memory.html"
    path.write_text(memory_page(data))
    page = open_page(path)
    assert page.evaluate("document.querySelectorAll('#elsewhere path').length") == 2


def test_nothing_ran(open_page: Open, tmp_path: Path) -> None:
    with MemoryTimeline("cpu") as empty:
        pass
    empty.to_html(tmp_path / "memory.html")
    page = open_page(tmp_path / "memory.html")
    assert "No op ran" in cells(page, "main")[0]


def test_ten_thousand_ops(open_page: Open, tmp_path: Path) -> None:
    """A long run is thinned to what a picture can show, its peak included."""
    data = timeline_of_a_step().as_dict()
    data["samples"] = [{**data["samples"][0], "t": i / 1e3, "bytes": 10**6, "saved": 10**5}
                       for i in range(10_000)]  # fmt: skip
    data["samples"][7777]["bytes"] = data["peak"] = 5 * 10**6
    data["peak_sample"] = 7777
    path = tmp_path / "memory.html"
    path.write_text(memory_page(data))
    page = open_page(path)
    assert page.evaluate("document.querySelector('#stack').outerHTML.length") < 2_000_000
    page.click("#to-peak")
    assert "4.768 MiB in use" in cells(page, ".tip span")[0]


# Reports ---------------------------------------------------------------------------------------


@pytest.fixture
def report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "report.html"
    assert main(["report", str(write_nsys(tmp_path / "a.sqlite", training_step())),
                 "--html", str(path)]) == 0  # fmt: skip
    return path


def column(page: Page, title: str) -> list[str]:
    index = cells(page, "#ops th").index(title) + 1
    return cells(page, f"#ops tbody td:nth-child({index})")


def test_the_report(report: Path, open_page: Open) -> None:
    page = open_page(report)
    assert cells(page, "#ops th")[:8] == ["forward op", "calls", "kernels", "backward", "kernels",
                                          "double backward", "kernels", "copies"]  # fmt: skip
    names = column(page, "forward op")
    assert names[0] == "(outside ranges)" and {"mul", "sum", "optimizer.step"} < set(names)
    row = dict(zip(names, column(page, "stalls")))
    assert row["sum"] == "1 / 10.0 µs"


def test_a_click_sorts_and_a_word_filters(report: Path, open_page: Open) -> None:
    page = open_page(report)
    page.click("#ops th:first-child")
    names = column(page, "forward op")
    assert names == sorted(names)
    page.click("#ops th:first-child")
    assert column(page, "forward op") == names[::-1]
    page.type("#ops input", "MulBackward")
    assert column(page, "forward op") == ["mul"]
    assert cells(page, "#ops .count") == ["1 rows"]


def test_names_are_text_and_no_markup(
    open_page: Open, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A range may have any name: none of it runs, none of it breaks the page."""
    evil = "</script><img src=x onerror='document.title=1'><script>alert(1)</script>"
    step = Step()
    step.range(0, 50, f"{evil}, seq=1")
    step.launch("driver", 10, 60, 5, evil)
    path = tmp_path / "report.html"
    trace = write_nsys(tmp_path / "a.sqlite", step)
    assert main(["report", str(trace), "--html", str(path)]) == 0
    page = open_page(path)
    assert column(page, "forward op") == [evil]
    assert page.evaluate("document.querySelectorAll('img').length") == 0


# Pictures --------------------------------------------------------------------------------------


def test_the_png(timeline: MemoryTimeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure_module = pytest.importorskip("matplotlib.figure")
    drawn, save = [], figure_module.Figure.savefig

    def saved(figure: Any, *args: Any, **options: Any) -> None:
        drawn.append(figure)
        save(figure, *args, **options)

    monkeypatch.setattr(figure_module.Figure, "savefig", saved)
    path = tmp_path / "memory.png"
    timeline.to_png(path)
    texts = [text.get_text() for axis in drawn[0].axes for text in axis.texts]
    assert "backward" in texts, "where backward begins is marked"
    assert all(":" in [line.get_linestyle() for line in axis.lines] for axis in drawn[0].axes)
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000


def test_the_png_without_matplotlib(
    timeline: MemoryTimeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    modules: dict[str, Any] = {"matplotlib": None, "matplotlib.figure": None}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        timeline.to_png(tmp_path / "memory.png")
