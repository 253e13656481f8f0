"""A real browser for the tests of the pages: its console must stay quiet, and every page is asked by axe.

Screenshots are kept in `test-artifacts/pages`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

SCREENSHOTS = Path(__file__).parents[3] / "test-artifacts" / "pages"
PHONE = {"width": 375, "height": 800}
TELL_VIOLATIONS = (
    "document.addEventListener('securitypolicyviolation', (e) => console.error(`policy: ${e.violatedDirective}`))"
)


@pytest.fixture
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


class Watched:
    """A page whose console must stay quiet."""

    def __init__(self, browser: Any, url: str, **how: Any) -> None:
        self.context = browser.new_context(base_url=url, **how)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.context.add_init_script(TELL_VIOLATIONS)
        self.page = self.context.new_page()
        self.page.set_default_timeout(120_000)
        self.noise: list[str] = []
        self.page.on("console", lambda m: self.noise.append(m.text) if m.type in {"error", "warning"} else None)
        self.page.on("pageerror", lambda error: self.noise.append(str(error)))

    def shoot(self, name: str) -> None:
        """Keep a picture of the whole page."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)

    def copied(self, button: Any) -> str:
        """Press a copy button and return what is in the clipboard then."""
        button.click()
        self.page.get_by_role("button", name="Copied").wait_for()
        return str(self.page.evaluate("navigator.clipboard.readText()"))


def complaints(page: Any) -> list[str]:
    """What axe finds wrong with a page: rule, element and its text."""
    found = Axe().run(page).response
    assert found["passes"], "axe checked nothing"
    return [
        f"{v['id']} ({v['impact']}): {n['target']} {n['html'][:120]}" for v in found["violations"] for n in v["nodes"]
    ]
