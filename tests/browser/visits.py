"""A real Chromium without a window, and what is wrong on the pages that it visits."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from tests.programs import npm_package, program

NAMES = ("chromium", "chromium-browser", "google-chrome")
_NOTES_VIOLATIONS = """
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) =>
        window.violations.push(`${event.violatedDirective}: ${event.blockedURI}`));
"""
_WAITS = """
    async (most) => {
        for (const start = performance.now(); ; await new Promise((go) => setTimeout(go, 5))) {
            const value = (%s);
            if (value || performance.now() - start > most) return value;
        }
    }
"""
_SETTLED = """
    [...document.querySelectorAll(".extent, #viewer, #chunk-map, #sizes, .preview")]
        .filter((each) => each.getBoundingClientRect().top < innerHeight)
        .every((each) => (each.matches(".extent, #sizes") ? each.textContent : each.dataset.ready))
"""


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Chromium, started; skips the test where there is none."""
    path = program(*NAMES)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # WebGL without a graphics card, and one process for the pages of all tests.
        options = [
            "--no-sandbox",
            "--enable-unsafe-swiftshader",
            "--renderer-process-limit=1",
            "--disable-site-isolation-trials",
        ]
        browser = playwright.chromium.launch(executable_path=path, args=options)
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A tab, and what goes wrong in it.

    Parameters
    ----------
    browser
        Chromium.
    **options
        Of the tab, like ``color_scheme``.
    """

    def __init__(self, browser: Any, **options: Any) -> None:
        self._context = browser.new_context(**options)
        self.page = self._context.new_page()
        self.page.set_default_timeout(15_000)
        self.page.add_init_script(_NOTES_VIOLATIONS)
        self.problems: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text}")

    def wait(self, expression: str, seconds: float = 15) -> Any:
        """Wait until a JavaScript expression is true of the page that is open; gives its value."""
        value = self.page.evaluate(
            _WAITS % expression, 1000 * seconds
        )  # wait_for_function needs eval
        assert value, f"not so after {seconds} s: {expression}"
        return value

    def settle(self) -> None:
        """Wait until all that is in sight, or above, is there; the chunk map comes into sight."""
        self.page.evaluate("document.getElementById('chunk-map')?.scrollIntoView()")
        self.wait(_SETTLED)

    def begin(self) -> None:
        """Forget what was: for the next test in this tab."""
        self.page.unroute_all()
        if self.page.url != "about:blank":
            self.page.goto("about:blank")
        self.page.mouse.move(0, 0)
        self.problems.clear()
        self.asked.clear()

    def violations(self) -> list[str]:
        """What the Content-Security-Policy of the page kept from happening."""
        return self.page.evaluate("window.violations")

    def barriers(self) -> list[str]:
        """What axe-core finds that is serious or worse."""
        source = (npm_package("axe-core") / "axe.min.js").read_text()
        self.page.evaluate(source + "; null")
        found = self.page.evaluate("axe.run().then((result) => result.violations)")
        return [
            json.dumps({"id": each["id"], "nodes": [node["html"] for node in each["nodes"]]})
            for each in found
            if each["impact"] in ("serious", "critical")
        ]

    def close(self) -> None:
        """Close the tab."""
        self._context.close()
