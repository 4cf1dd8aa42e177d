"""Drives a page in headless Chromium through a pipe, with the standard library alone."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.patience import eventually, patient

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
OPTIONS = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
           "--hide-scrollbars", "--remote-debugging-pipe", "--disable-background-networking",
           "--disable-extensions", "--force-color-profile=srgb"]  # fmt: skip
LAUNCH = """
import os, sys
for want, got in zip((3, 4), sys.argv[1:3]):
    os.dup2(int(got), want)
os.execv(sys.argv[3], sys.argv[3:])
"""  # a shell may know no descriptors above 9


def installed() -> str | None:
    """The browser to drive, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A browser that runs until `close`; it speaks DevTools over the file descriptors 3 and 4."""

    def __init__(self, profile: Path) -> None:
        command = installed()
        assert command is not None
        options = [*OPTIONS, f"--user-data-dir={profile}"]
        if os.geteuid() == 0:
            options.append("--no-sandbox")  # which root cannot have
        (theirs, self._out), (self._in, other) = os.pipe(), os.pipe()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (theirs, other)]
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", LAUNCH, *map(str, high), command, *options],
            pass_fds=high, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for fd in (theirs, other, *high):
            os.close(fd)
        self._buffer, self._id = b"", 0
        self.events: list[dict[str, Any]] = []

    def close(self) -> None:
        try:
            self.call("Browser.close")
            self._process.wait(patient(10))
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """The answer to a command; AssertionError for an error or none."""
        self._id += 1
        message: dict[str, Any] = {"id": self._id, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._id:
                assert "error" not in answer, f"{method}: {answer['error']}"
                found: dict[str, Any] = answer["result"]
                return found
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], patient())
            assert ready, "the browser does not answer"
            data = os.read(self._in, 1 << 20)
            assert data, "the browser has ended"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found


class Page:
    """A page of a file, loaded, and what went wrong in it."""

    def __init__(self, browser: Browser, file: Path, width: int = 1300, height: int = 900) -> None:
        self._browser = browser
        browser.events.clear()
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session, self._target = attached["sessionId"], target
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                   deviceScaleFactor=1, mobile=False)  # fmt: skip
        self._call("Page.navigate", url=file.as_uri())
        eventually(lambda: self.is_ready() or bool(self.faults()))
        assert self.is_ready() and not self.faults(), f"the page is not ready: {self.faults()}"

    def is_ready(self) -> bool:
        return bool(self.evaluate("document.body && document.body.dataset.ready") == "yes")

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript; AssertionError where it throws."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def move(self, x: float, y: float) -> None:
        """Moves the mouse."""
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        """Clicks in the middle of the first element that a selector finds."""
        x, y = self.middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, selector: str, text: str) -> None:
        """Types into an element."""
        self.click(selector)
        self._call("Input.insertText", text=text)

    def middle(self, selector: str) -> tuple[float, float]:
        """Where the middle of an element is, scrolled into sight."""
        x, y = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            "return [b.left + b.width / 2, b.top + b.height / 2]; })()"
        )
        return x, y

    def picture(self, path: Path) -> None:
        """Writes a PNG of what can be seen."""
        found = self._call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))

    def faults(self) -> list[str]:
        """Exceptions, errors of the console, and requests for anything but the file itself."""
        found = []
        for event in self._browser.events:
            params = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(str(params["entry"]["text"]))
            elif event.get("method") == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith("file:") or params.get("type") != "Document":
                    found.append(f"the page asks for {url}")
        return found
