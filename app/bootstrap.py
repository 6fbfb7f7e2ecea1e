"""The composition root: opens every room in order and closes them in reverse. Importing a module does nothing."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.approvals.service import Approvals
from app.channels.asks import Asks
from app.channels.base import Dispatch
from app.channels.chat import Chat
from app.channels.conversations import Conversations
from app.channels.messages import GatewayMessages
from app.channels.proactive import Proactive
from app.channels.system import System
from app.channels.terminal import Terminal
from app.clock import Clock
from app.db import Database, open_database
from app.db.meta import relay_id
from app.delivery.acks import Acks
from app.delivery.hub import Hub
from app.delivery.messages import Messages, Quota
from app.delivery.news import News
from app.delivery.replies import Replies
from app.delivery.sweep import Sweep
from app.errors import Misconfigured
from app.gateway.auth import Authenticator, Facts
from app.gateway.gateway import Gateway
from app.gateway.limits import Limits
from app.hermes.dashboard.dashboard import Dashboard
from app.hermes.hermes import Hermes
from app.hermes.link.line import AgentLink
from app.media.service import Media, open_media
from app.once.outward import Outward
from app.outbox.retention import Retention
from app.pairing.service import Pairing
from app.push.service import Push, open_push
from app.sessions.attempts import Attempts
from app.sessions.keys import SessionKeys
from app.sessions.operator import LinkToken, OperatorToken
from app.sessions.service import Sessions
from app.settings import Settings
from app.tasks import Supervisor
from app.terminal.service import Terminals, open_terminals
from app.threads.service import Threads
from app.turns.runner import Turns

log = logging.getLogger("talaria")


@dataclass(frozen=True, slots=True)
class Relay:
    """An open relay: what the edges may use."""

    settings: Settings
    clock: Clock
    db: Database
    tasks: Supervisor
    hub: Hub
    acks: Acks
    operator: OperatorToken
    link: LinkToken
    attempts: Attempts
    sessions: Sessions
    pairing: Pairing
    authenticator: Authenticator
    gateway: Gateway
    hermes: Hermes
    agent_link: AgentLink
    approvals: Approvals
    turns: Turns
    threads: Threads
    messages: Messages
    replies: Replies
    push: Push
    media: Media
    terminals: Terminals

    def upstream(self) -> dict[str, Any]:
        return self.hermes.states() | {"gateway": self.agent_link.state()}

    async def drain(self) -> None:
        self.replies.close()
        self.terminals.drain()
        await self.gateway.drain()
        self.pairing.let_go()


@asynccontextmanager
async def open_relay(
    settings: Settings, *, clock: Clock | None = None, limits: Limits | None = None
) -> AsyncIterator[Relay]:
    """The keywords are what tests may replace. Raises Misconfigured."""
    clock, limits = clock or Clock(), limits or Limits()
    async with AsyncExitStack() as stack:
        data_dir = stack.enter_context(_data_dir(settings.server.data_dir))
        db = await stack.enter_async_context(open_database(settings.server.sqlite_url()))
        tasks = await stack.enter_async_context(Supervisor())
        hub = Hub()
        acks = Acks(db, tasks)
        stack.push_async_callback(acks.close)
        quota = Quota(clock)
        messages = Messages(db, clock, hub, acks, quota, settings.mailbox)
        replies = Replies(db, clock, quota)
        attempts = Attempts(db, clock)
        sessions = Sessions(
            db, clock, SessionKeys.load(data_dir), attempts, settings.sessions,
            on_revoked=hub.end_session, on_changed=hub.regrant_session,
        )  # fmt: skip
        pairing = Pairing(db, clock, sessions, attempts, data_dir)
        news = News(hub, clock)

        def upstream() -> dict[str, Any]:
            return hermes.states() | {"gateway": agent_link.state()}

        def changed() -> None:
            news.upstream(upstream())

        own_id = await db.write(relay_id)
        agent_link = AgentLink(own_id, tasks, changed=changed)
        dashboard = Dashboard(settings.hermes, tasks, titled=news.titled, changed=changed)
        hermes = Hermes(settings.hermes, tasks, dashboard, changed=changed)
        await stack.enter_async_context(dashboard)
        await stack.enter_async_context(hermes)
        outward = Outward(db, clock, tasks)
        approvals = Approvals(db=db, clock=clock, tasks=tasks, bell=hub.ring, outward=outward)
        stack.push_async_callback(approvals.close)
        media = await stack.enter_async_context(open_media(settings.media, db=db, clock=clock, data_dir=data_dir))
        turns = Turns(
            db=db, clock=clock, tasks=tasks, hub=hub, hermes=hermes, approvals=approvals, outward=outward,
            pictures=media, approval_s=settings.hermes.hermes_approval_timeout,
        )  # fmt: skip
        stack.push_async_callback(turns.close)
        dashboard.begun = turns.begun
        threads = Threads(
            db=db, clock=clock, tasks=tasks, messages=messages, approvals=approvals, link=agent_link,
            files=media.described,
        )  # fmt: skip
        stack.push_async_callback(threads.close)
        replies.agent = threads
        push = await stack.enter_async_context(
            open_push(
                settings.push, db=db, clock=clock, tasks=tasks, data_dir=data_dir, relay_id=own_id,
                public_url=settings.server.public_url, bell=hub.ring, online=lambda id: bool(hub.of_device(id)),
            )
        )  # fmt: skip
        terminals = await stack.enter_async_context(open_terminals(settings.terminal, db=db, clock=clock))
        facts = Facts(own_id, upstream, hermes.profiles, turns.running, approvals.open, push.facts)
        authenticator = Authenticator(
            db=db, clock=clock, sessions=sessions, pairing=pairing, acks=acks, limits=limits, facts=facts
        )  # fmt: skip
        channels = [
            System(clock, push, tasks), Chat(turns, tasks), Asks(approvals, tasks),
            Conversations(hermes, outward, news, tasks, turns.busy), Proactive(messages, replies, clock),
            GatewayMessages(threads), Terminal(terminals, outward, tasks),
        ]  # fmt: skip
        gateway = Gateway(
            db=db, clock=clock, tasks=tasks, hub=hub, acks=acks, sessions=sessions,
            dispatch=Dispatch(channels, clock),
            authenticator=authenticator, limits=limits, attach=(turns.attach, threads.attach),
        )  # fmt: skip
        await approvals.recover()
        await turns.recover()
        await threads.recover()
        kept = Retention(settings.mailbox.mailbox_max_age, settings.mailbox.mailbox_max_count)
        tasks.start(Sweep(db, clock, kept, first=media.sweep, also=[threads.sweep]).forever(), "sweep")
        tasks.start(gateway.recheck_forever(), "recheck")
        yield Relay(
            settings, clock, db, tasks, hub, acks, OperatorToken.load(data_dir), LinkToken.load(data_dir), attempts,
            sessions, pairing, authenticator, gateway, hermes, agent_link, approvals, turns, threads,
            messages, replies, push, media, terminals,
        )  # fmt: skip


@contextmanager
def _data_dir(path: Path) -> Iterator[Path]:
    """Ours alone: a second relay would end the turns of the first as cut off, and send those that wait again."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise Misconfigured(f"the data directory {path.absolute()} cannot be made: {exc.strerror}") from exc
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise Misconfigured(f"the data directory {path.absolute()} is not writable for uid {os.getuid()}")
    directory = os.open(path, os.O_RDONLY)
    try:
        _lock(directory, path)
        yield path
    finally:
        os.close(directory)


def _lock(directory: int, path: Path) -> None:
    """Until it is closed, or the process ends, however that ends."""
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Misconfigured(f"another Talaria is running on the data directory {path.absolute()}") from None
    except OSError as exc:  # some network file systems have no locks
        log.warning("the data directory cannot be locked", extra={"path": str(path), "reason": exc.strerror})
