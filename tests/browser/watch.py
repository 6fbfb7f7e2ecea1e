"""What must never happen in a page, whatever the test is about."""

from __future__ import annotations

from dataclasses import dataclass, field

from playwright.async_api import ConsoleMessage, Page

REPORT_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) =>
    console.error("policy violation:", event.violatedDirective, event.blockedURI));
"""
# The browser itself says this when the network is cut: no page can prevent it.
UNPLUGGED = ("WebSocket connection to", "net::ERR_")


@dataclass(slots=True)
class Watch:
    """Collects errors, violations of the content policy, and requests to other origins."""

    origin: str
    unplugged: bool = False  # set where the test cuts the network
    errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    async def over(self, page: Page) -> None:
        await page.add_init_script(REPORT_VIOLATIONS)
        page.on("console", lambda message: self._console(message))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self._address(request.url))
        page.on("websocket", lambda socket: self._address(socket.url.replace("ws", "http", 1)))

    def verdict(self) -> None:
        assert self.errors == []
        assert self.strangers == []

    def _console(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        if not (self.unplugged and any(words in message.text for words in UNPLUGGED)):
            self.errors.append(message.text)

    def _address(self, url: str) -> None:
        if not url.startswith((self.origin + "/", "data:", "blob:")):
            self.strangers.append(url)
        if any(secret in url for secret in ("code=", "token")):
            self.errors.append(f"a secret in an address: {url}")
