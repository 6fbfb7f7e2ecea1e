"""What each link is attached to, by the names that it uses itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from app.delivery.peer import Peer
from app.terminal.errors import TerminalNotAttached
from app.terminal.view import View


class Attached:
    """`left` is called for each view of a link that has closed."""

    def __init__(self, left: Callable[[View], None]) -> None:
        self._left = left
        self._links: dict[int, dict[str, View]] = {}  # of a link: the last attached comes last

    def add(self, view: View) -> None:
        link_id = view.peer.link_id
        if link_id not in self._links:
            self._links[link_id] = {}
            view.peer.when_closed(lambda clean: self._closed(link_id))
        self._links[link_id].pop(view.name, None)
        self._links[link_id][view.name] = view

    def remove(self, view: View) -> None:
        views = self._links.get(view.peer.link_id, {})
        if views.get(view.name) is view:
            del views[view.name]

    def rename(self, view: View, name: str) -> None:
        """Its place stays. What the link called so before, for it was never told of a new name, it leaves."""
        views = self._links.get(view.peer.link_id, {})
        if (other := views.get(name)) is not None and other is not view:
            self._left(other)
            del views[name]
        self._links[view.peer.link_id] = {name if one is view else key: one for key, one in views.items()}
        view.name = name

    def of(self, peer: Peer) -> dict[str, View]:
        return self._links.get(peer.link_id, {})

    def find(self, peer: Peer, name: str | None) -> View | None:
        """Without a name: the last attached."""
        views = self.of(peer)
        return views.get(name) if name else next(reversed(views.values()), None)

    def get(self, peer: Peer, name: str | None) -> View:
        """Raises TerminalNotAttached."""
        view = self.find(peer, name)
        if view is None:
            raise TerminalNotAttached()
        return view

    def __iter__(self) -> Iterator[View]:
        for views in list(self._links.values()):
            yield from list(views.values())

    def _closed(self, link_id: int) -> None:
        for view in list(self._links.pop(link_id, {}).values()):
            self._left(view)
