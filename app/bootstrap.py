"""The composition root: opens every room in order and closes them in reverse. Importing a module does nothing."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.approvals.service import Approvals
from app.backup.drafts import sweep
from app.backup.restore import finish
from app.bridge.link import CommandsByLink
from app.bridge.service import Bridge, open_bridge
from app.channels.asks import Asks
from app.channels.base import Dispatch
from app.channels.bridge import BridgeChannel
from app.channels.chat import Chat
from app.channels.conversations import Conversations
from app.channels.messages import GatewayMessages
from app.channels.notifications import Notifications
from app.channels.proactive import Proactive
from app.channels.service import PhoneNotifications
from app.channels.system import System
from app.channels.terminal import Terminal
from app.channels.tui import Tui
from app.clock import Clock
from app.data_dir import held
from app.db import Database, open_database
from app.db.files import sqlite_path
from app.db.meta import relay_id
from app.delivery.acks import Acks
from app.delivery.calls import Calls
from app.delivery.drafts import Draft
from app.delivery.hub import Hub
from app.delivery.messages import OPERATOR, Messages, Quota
from app.delivery.news import News
from app.delivery.peer import Grants, granted
from app.delivery.replies import Replies
from app.delivery.sweep import Sweep
from app.doctor.doctor import Doctor
from app.doctor.terminal import look as look_at_terminal
from app.errors import GrantMissing, RelayError
from app.gateway.auth import Authenticator, Facts
from app.gateway.gateway import Gateway
from app.gateway.limits import Limits
from app.hermes.dashboard.dashboard import Dashboard
from app.hermes.hermes import Hermes
from app.hermes.link.line import AgentLink
from app.hermes.passing.service import PassThrough
from app.media.service import Media, open_media
from app.metrics import Metrics
from app.once.outward import Outward
from app.outbox.retention import Retention
from app.pairing.payload import QrSecret
from app.pairing.service import Pairing
from app.push.service import Push, open_push
from app.sessions.errors import SessionRevoked
from app.sessions.guessing.attempts import Attempts
from app.sessions.identity import Identity
from app.sessions.keys import SessionKeys
from app.sessions.operator import LinkToken, OperatorToken
from app.sessions.renewals import Renewals
from app.sessions.service import Sessions
from app.sessions.tickets import Tickets
from app.settings import Settings
from app.tasks import Supervisor
from app.terminal.opening import open_terminals
from app.terminal.service import Terminals
from app.threads.service import Threads
from app.turns.runner import Turns

log = logging.getLogger("talaria")

WRONG_CODES = Draft(
    "A hundred wrong pairing codes came within ten minutes: somebody guesses. Open codes were voided; `talaria pair` "
    "makes a new one, and TALARIA_PAIRING_CONFIRM=1 lets no code do without your word.",
    title="Talaria",
)


@dataclass(frozen=True, slots=True)
class Relay:
    """An open relay: what the edges may use."""

    settings: Settings
    started: float  # monotonic
    clock: Clock
    db: Database
    tasks: Supervisor
    hub: Hub
    acks: Acks
    operator: OperatorToken
    link: LinkToken
    attempts: Attempts
    identity: Identity
    sessions: Sessions
    renewals: Renewals
    tickets: Tickets
    pairing: Pairing
    qr_secret: QrSecret
    authenticator: Authenticator
    gateway: Gateway
    hermes: Hermes
    passing: PassThrough
    agent_link: AgentLink
    approvals: Approvals
    turns: Turns
    threads: Threads
    messages: Messages
    replies: Replies
    push: Push
    media: Media
    doctor: Doctor
    bridge: Bridge
    notifications: PhoneNotifications
    metrics: Metrics
    terminals: Terminals

    def upstream(self) -> dict[str, Any]:
        return self.hermes.states() | {"gateway": self.agent_link.state()}

    async def drain(self) -> None:
        self.replies.close()
        self.bridge.drain()
        self.passing.running.drain()
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
        data_dir = stack.enter_context(held(settings.server.data_dir))
        finish(data_dir, sqlite_path(settings.server.sqlite_url()))
        sweep(data_dir)
        db = await stack.enter_async_context(open_database(settings.server.sqlite_url()))
        tasks = await stack.enter_async_context(Supervisor())
        hub = Hub()
        acks = Acks(db, tasks)
        stack.push_async_callback(acks.close)
        quota = Quota(clock)
        messages = Messages(db, clock, hub, acks, quota, settings.mailbox)
        replies = Replies(db, clock, quota)
        attempts = Attempts(db, clock)

        def revoked(session_id: str, reason: str) -> None:
            hub.end_session(session_id, reason)
            passing.running.end_session(session_id, SessionRevoked())

        def regranted(session_id: str, grants: Grants) -> None:
            hub.regrant_session(session_id, grants)
            if not granted(grants, "chat", clock.now()):
                passing.running.end_session(session_id, GrantMissing())

        keys = SessionKeys.load(data_dir)
        sessions = Sessions(
            db, clock, keys, attempts, settings.sessions,
            on_revoked=revoked, on_changed=regranted,
        )  # fmt: skip
        renewals = Renewals(db, clock, sessions, keys, attempts)
        tickets = Tickets(db, clock, sessions, attempts)

        async def tell_of_wrong_codes() -> None:
            with suppress(RelayError):  # no device, or no room: the log and the audit have it
                await messages.send(WRONG_CODES, sender=OPERATOR)

        def flooded() -> None:
            tasks.start(tell_of_wrong_codes(), "tell of wrong codes")

        pairing = Pairing(
            db, clock, sessions, attempts, data_dir,
            confirms=settings.sessions.pairing_confirm,
            on_flood=flooded,
        )  # fmt: skip
        news = News(hub, clock)

        def upstream() -> dict[str, Any]:
            return hermes.states() | {"gateway": agent_link.state()}

        def changed() -> None:
            news.upstream(upstream())

        own_id = await db.write(relay_id)
        agent_link = AgentLink(own_id, tasks, changed=changed)
        dashboard = Dashboard(settings.hermes, tasks, titled=news.titled, changed=changed, clock=clock)
        hermes = Hermes(settings.hermes, tasks, dashboard, changed=changed, clock=clock)
        await stack.enter_async_context(dashboard)
        await stack.enter_async_context(hermes)
        passing = PassThrough(hermes.api, tasks, answer_s=settings.hermes.hermes_answer_timeout)
        stack.push_async_callback(passing.close)
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
        calls = Calls(clock, push.wake)
        bridge = await stack.enter_async_context(
            open_bridge(settings.bridge, db=db, clock=clock, tasks=tasks, calls=calls, approvals=approvals)
        )
        notifications = PhoneNotifications(settings.notifications, db=db, clock=clock, tasks=tasks)
        stack.push_async_callback(notifications.close)
        terminals = await stack.enter_async_context(
            open_terminals(settings.terminal, settings.ssh, db=db, clock=clock, tasks=tasks)
        )
        shells = partial(look_at_terminal, settings.terminal, settings.ssh, terminals.keeps)
        doctor = Doctor(
            settings, db=db, clock=clock, tasks=tasks, hermes=hermes, link=agent_link, push=push,
            more={"terminal": shells},
        )  # fmt: skip
        agent_link.command = CommandsByLink(bridge)
        facts = Facts(own_id, upstream, hermes.profiles, turns.running, approvals.open, push.facts)
        authenticator = Authenticator(
            db=db, clock=clock, attempts=attempts, sessions=sessions, renewals=renewals, tickets=tickets,
            pairing=pairing, acks=acks, limits=limits, facts=facts,
        )  # fmt: skip
        channels = [
            System(clock, push, tasks, renewals), Chat(turns, tasks), Asks(approvals, tasks),
            Conversations(hermes, outward, news, tasks, turns.busy), Proactive(messages, replies, clock),
            GatewayMessages(threads), Terminal(terminals, outward, tasks), BridgeChannel(bridge),
            Notifications(notifications), Tui(),
        ]  # fmt: skip
        gateway = Gateway(
            db=db, clock=clock, tasks=tasks, hub=hub, acks=acks, sessions=sessions,
            dispatch=Dispatch(channels, clock),
            authenticator=authenticator, limits=limits, calls=calls, attach=(turns.attach, threads.attach),
        )  # fmt: skip
        await approvals.recover()
        bridge.recover()
        await turns.recover()
        await threads.recover()
        await notifications.recover()
        kept = Retention(settings.mailbox.mailbox_max_age, settings.mailbox.mailbox_max_count)
        tasks.start(
            Sweep(db, clock, kept, first=media.sweep, also=[threads.sweep, notifications.sweep]).forever(), "sweep"
        )
        tasks.start(gateway.recheck_forever(), "recheck")
        yield Relay(
            settings=settings, identity=Identity.load(data_dir), started=clock.monotonic(), clock=clock, db=db,
            tasks=tasks, hub=hub, acks=acks,
            operator=OperatorToken.load(data_dir), link=LinkToken.load(data_dir), attempts=attempts, sessions=sessions,
            renewals=renewals, tickets=tickets, qr_secret=QrSecret.load(data_dir), pairing=pairing,
            authenticator=authenticator, gateway=gateway, hermes=hermes, passing=passing, agent_link=agent_link,
            approvals=approvals, turns=turns, threads=threads, messages=messages, replies=replies, push=push,
            media=media, doctor=doctor, bridge=bridge, notifications=notifications, terminals=terminals,
            metrics=Metrics(),
        )  # fmt: skip
