"""A headless Chromium that tests drive as a person does: by mouse, finger and keyboard.

It speaks the DevTools protocol over a pipe: JSON messages that end in a zero byte. No driver and no
other package is needed.
"""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from pages import CHROMIUM

_PATIENCE = 60.0  # seconds for one answer: machines may be busy
_START = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""  # the browser expects the pipe at the numbers 3 and 4
_KEYS = {
    "Delete": 46,
    "Backspace": 8,
    "Tab": 9,
    "Enter": 13,
    "ArrowRight": 39,
    "ArrowLeft": 37,
    "ArrowDown": 40,
}


class Browser:
    """A browser that ends with the ``with`` block."""

    def __init__(self, profile: Path) -> None:
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        options = [
            *("--headless", "--disable-gpu", "--disable-quic", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--remote-debugging-pipe", "--hide-scrollbars", f"--user-data-dir={profile}"),
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
        ]
        ends = [str(to_browser), str(from_browser)]
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", _START, *ends, CHROMIUM, *options, "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._waiting = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.send("Browser.close")
            self._process.wait(timeout=20)
        except (OSError, RuntimeError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        finally:
            os.close(self._to)
            os.close(self._from)

    def send(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """The answer to a command; events that come before it are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        content = json.dumps(message).encode() + b"\0"
        while content:
            content = content[os.write(self._to, content) :]
        deadline = time.monotonic() + _PATIENCE
        while True:
            answer = self._read(deadline)
            if answer.get("id") != self._number:
                self.events.append(answer)
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            result: dict[str, Any] = answer["result"]
            return result

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._waiting:
            ready, _, _ = select.select([self._from], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"Chromium has not answered for {_PATIENCE:.0f} seconds.")
            part = os.read(self._from, 1 << 20)
            if not part:
                raise RuntimeError("Chromium has ended.")
            self._waiting += part
        content, _, self._waiting = self._waiting.partition(b"\0")
        message: dict[str, Any] = json.loads(content)
        return message

    def open(
        self, page: Path, width: int, *, phone: bool = False, dark: bool = False, calm: bool = False
    ) -> Tab:
        """A page in a tab of its own, once its scripts have run."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.send(f"{domain}.enable")
        tab.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=phone,
        )  # fmt: skip
        tab.send("Emulation.setTouchEmulationEnabled", enabled=phone)
        features = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "reduce" if calm else "no-preference",
        }
        tab.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": name, "value": value} for name, value in features.items()],
        )
        tab.send("Page.navigate", url=page.resolve().as_uri())
        tab.wait("document.readyState === 'complete'")
        return tab


class Tab:
    """A page that is open."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.send(method, self._session, **parameters)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page, by way of JSON."""
        found = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"].get("exception", found)))
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until an expression is true."""
        deadline = time.monotonic() + _PATIENCE
        while not self.evaluate(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(f"it never came true: {condition}")
            time.sleep(0.02)

    def _events(self, method: str) -> list[dict[str, Any]]:
        self.evaluate("0")  # whatever was said before is here then
        return [
            event["params"]
            for event in self._browser.events
            if event.get("sessionId") == self._session and event["method"] == method
        ]

    def said(self) -> list[str]:
        """What is in the console: messages, exceptions, and what the browser has to complain of."""
        return [
            *(str(event["args"]) for event in self._events("Runtime.consoleAPICalled")),
            *(
                event["exceptionDetails"].get("exception", {}).get("description", "an exception")
                for event in self._events("Runtime.exceptionThrown")
            ),
            *(event["entry"]["text"] for event in self._events("Log.entryAdded")),
        ]

    def requests(self) -> list[str]:
        """What the page asked for, itself included."""
        return [event["request"]["url"] for event in self._events("Network.requestWillBeSent")]

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        return int(
            self.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
        )

    def text(self, selector: str) -> str:
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).textContent"))

    def middle(self, selector: str) -> tuple[float, float]:
        """Where an element is, once it has been scrolled into view."""
        x, y = self.evaluate(
            f"""(() => {{
                const found = document.querySelector({json.dumps(selector)});
                found.scrollIntoView({{block: "center", behavior: "instant"}});
                const box = found.getBoundingClientRect();
                return [box.x + box.width / 2, box.y + box.height / 2];
            }})()"""
        )
        return x, y

    def click(self, selector: str) -> None:
        self.drag([self.middle(selector)])

    def focus(self, selector: str) -> None:
        """Without scrolling, which may take its time."""
        self.evaluate(
            f"document.querySelector({json.dumps(selector)}).focus({{preventScroll: true}})"
        )

    def drag(self, points: Sequence[tuple[float, float]]) -> None:
        """The mouse: pressed at the first point, moved along the others, and let go."""
        for x, y in points[:1]:
            self._mouse("mouseMoved", x, y, 0)
            self._mouse("mousePressed", x, y, 1)
        for x, y in points[1:]:
            self._mouse("mouseMoved", x, y, 1)
        self._mouse("mouseReleased", *points[-1], 0)

    def _mouse(self, kind: str, x: float, y: float, buttons: int) -> None:
        self.send(
            "Input.dispatchMouseEvent",
            type=kind, x=x, y=y, button="left", buttons=buttons, clickCount=1,
        )  # fmt: skip

    def touch(self, points: Sequence[tuple[float, float]]) -> None:
        """The same with a finger."""
        for number, (x, y) in enumerate(points):
            kind = "touchMove" if number else "touchStart"
            self.send("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": x, "y": y}])
        self.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def press(self, key: str, times: int = 1) -> None:
        """A key: a character, or the name of another one."""
        code = _KEYS.get(key, ord(key[0]))
        more = {"text": key} if len(key) == 1 else {}
        for _ in range(times):
            parameters = {"key": key, "windowsVirtualKeyCode": code}
            self.send("Input.dispatchKeyEvent", type="keyDown", **parameters, **more)
            self.send("Input.dispatchKeyEvent", type="keyUp", **parameters)

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        """All of the page as a PNG file."""
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=True, clip=self._all())
        path.write_bytes(base64.b64decode(shot["data"]))

    def _all(self) -> dict[str, Any]:
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        return {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}

    def close(self) -> None:
        self.send("Page.close")
