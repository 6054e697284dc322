"""A real browser for the tests of pages: Debian's chromium, without a window and without a network.

``apt-get install chromium chromium-driver`` and the extra ``dev`` are all it needs; where they are
not, tests that ask for it are skipped and say so.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


class Browser:
    """A selenium driver that remembers what pages print to the console and ask the network for."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self._console: list[str] = []
        self._requests: list[str] = []

    def open_page(self, path: Path) -> None:
        """Open a file; what earlier pages printed and asked for is forgotten."""
        self._read_logs()
        self._console, self._requests = [], []
        self.driver.get(path.resolve().as_uri())

    def colour_scheme(self, scheme: str) -> None:
        """What the reader prefers: ``dark`` or ``light``."""
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})

    def width(self, pixels: int) -> None:
        """Narrower than any window that chromium would open, too."""
        size = {"width": pixels, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    @property
    def overflow(self) -> int:
        """By how many pixels the page is wider than what shows it."""
        root = "document.documentElement"
        return int(self.driver.execute_script(f"return {root}.scrollWidth - {root}.clientWidth"))

    @property
    def console(self) -> list[str]:
        """What the page has printed: errors, warnings and words."""
        self._read_logs()
        return self._console

    @property
    def requests(self) -> list[str]:
        """Addresses the page has asked for, apart from itself and what it carries."""
        self._read_logs()
        return self._requests

    def _read_logs(self) -> None:
        self._console += [entry["message"] for entry in self.driver.get_log("browser")]
        page = self.driver.current_url.partition("#")[0]
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                address = message["params"]["request"]["url"].partition("#")[0]
                if not address.startswith(("data:", "blob:")) and address != page:
                    self._requests.append(address)


@contextmanager
def browser(width: int = 1400) -> Iterator[Browser]:
    """A fresh one; the test is skipped where there is none to start."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    absent = [name for name, path in programs.items() if path is None]
    if absent:
        pytest.skip(
            f"{' and '.join(absent)} not found: apt-get install -y chromium chromium-driver"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = programs["chromium"]
    for flag in (
        "--headless=new",
        "--no-sandbox",  # which root may not have
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--hide-scrollbars",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=programs["chromedriver"])
    driver = webdriver.Chrome(options=options, service=service)
    try:
        started = Browser(driver)
        started.width(width)
        yield started
    finally:
        driver.quit()
