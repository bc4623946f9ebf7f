"""The GET stream of a session that replicas share. It may move between them: its event ids are places in their log."""

from collections.abc import Collection

from deltamcp.dialects.dialect import SessionDialect
from deltamcp.limits import Limits
from deltamcp.runtime.change_hub import LIST_CHANGED, Change, OwnChange, Position
from deltamcp.transports.quota import HttpQuotas
from deltamcp.transports.sessions.streams import SubscriptionStream
from deltamcp.values import JSON, Kind, Principal

_PREFIX = "changes-"
_WATCH_BYTES = 500
"""The memory of a watched resource beside the characters of its URI, in a gateway also for the subscription that it
has there."""


def watched_bytes(uris: Collection[str]) -> int:
    """Returns what counts for an account that watches resources."""
    return sum(map(len, uris)) + _WATCH_BYTES * len(uris)


class ChangeStream(SubscriptionStream):
    """Sends a session's client the changes after a position in the log; it is a `Listener` of the hub."""

    __slots__ = (
        "_dialect",
        "_kinds",
        "_unsent",
        "_watched",
        "_watched_bytes",
        "_watched_quota",
        "heard",
        "number",
        "position",
        "principal",
    )

    def __init__(
        self,
        limits: Limits,
        quotas: HttpQuotas,
        account: str,
        dialect: SessionDialect,
        kinds: Collection[Kind],
        principal: Principal,
    ) -> None:
        """
        Args:
            kinds: The lists that the server has.
            principal: Whose session it is.
        """
        super().__init__(limits, quotas.responses, account)
        self.id = "changes"
        self.principal = principal
        self.number = 0
        """Which of the session's streams of this kind it is; a client listens to the newest one."""
        self.position: Position = (0, 0)
        """The position of the newest event; what is not after it is not sent."""
        self.heard: Position = (0, 0)
        """The position of the newest event that was sent to a follower."""
        self._unsent: list[tuple[int, Position]] = []
        self._dialect = dialect
        self._kinds = kinds
        self._watched: set[str] = set()
        self._watched_bytes = 0
        self._watched_quota = quotas.watched

    def watch(self, uris: set[str]) -> bool:
        """Sets the resources that the client watches; returns False if they are too many for its account."""
        size = watched_bytes(uris)
        self._release_watched()
        if size and not self._watched_quota.take(self._account, size):
            return False
        self._watched, self._watched_bytes = uris, size
        return True

    def _release_watched(self) -> None:
        if self._watched_bytes:
            self._watched_quota.give_back(self._account, self._watched_bytes)
        self._watched, self._watched_bytes = set(), 0

    def leave(self) -> None:
        """Forgets what was not sent, and gives back what counted for the account."""
        self._note_sent()
        self.forget()
        self._release_watched()

    def wants(self, change: Kind | str) -> bool:
        return change in (self._kinds if isinstance(change, Kind) else self._watched)

    def watched_uris(self) -> Collection[str]:
        return self._watched

    def notify(self, method: str, params: dict[str, JSON], position: Position | None = None) -> None:
        if position is None or position < self.position or (position == self.position and position[1] >= 0):
            return
        self.position = position
        self.append(self._dialect.notify(method, params))
        self._unsent.append((self._count, position))

    def notify_of(self, change: Change, position: Position) -> None:
        """Sends a change, if the client wants it and may hear of it."""
        if isinstance(change, OwnChange):
            if change.owner != self.principal.owner:
                return
            change = change.change
        if self.wants(change):
            if isinstance(change, Kind):
                self.notify(LIST_CHANGED[change], {}, position)
            else:
                self.notify("notifications/resources/updated", {"uri": change}, position)

    def notify_of_all(self, number: int) -> None:
        """Sends everything that the client wants, because changes up to a number may have been missed."""
        self.position = (number, -1)
        for method in dict.fromkeys(LIST_CHANGED[kind] for kind in Kind if kind in self._kinds):
            self.notify(method, {}, (number, -1))
        for uri in sorted(self._watched):
            self.notify("notifications/resources/updated", {"uri": uri}, (number, -1))

    def events_after(self, number: int) -> list[tuple[int, bytes]]:
        self._note_sent()
        return super().events_after(number)

    def _note_sent(self) -> None:
        while self._unsent and self._unsent[0][0] <= self.sent:
            _, self.heard = self._unsent.pop(0)

    def event_id(self, number: int) -> str:
        at, place = self.position
        # Who got one of these may have missed others, so their ids are no positions.
        return f"{_PREFIX}{at}.{place}" if place >= 0 else f"{_PREFIX}{at}.all{number}"


def read_position(event_id: str) -> Position | None:
    """Returns the position that an event id of a `ChangeStream` names."""
    number, _, place = event_id.removeprefix(_PREFIX).partition(".")
    if not event_id.startswith(_PREFIX) or not _is_number(number) or not _is_number(place):
        return None
    return int(number), int(place)


def is_change_event(event_id: str) -> bool:
    return event_id.startswith(_PREFIX)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16
