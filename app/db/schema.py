"""The whole schema on one screen. Times are Unix seconds; JSON columns hold text written by the stores.

Migrations create and change it (`migrations/`); a test compares the two.
"""

from __future__ import annotations

from sqlalchemy import Column, Float, ForeignKey, Index, Integer, LargeBinary, MetaData, Table, Text

metadata = MetaData()


def _device(*, primary_key: bool = False) -> Column[str]:
    owner = ForeignKey("devices.device_id", ondelete="CASCADE")
    return Column("device_id", Text, owner, nullable=False, primary_key=primary_key)


meta = Table("meta", metadata, Column("key", Text, primary_key=True), Column("value", LargeBinary, nullable=False))

devices = Table(
    "devices", metadata,
    Column("device_id", Text, primary_key=True), Column("name", Text, nullable=False),
    Column("about", Text, nullable=False),  # JSON: model, platform, surface, form factor, as the client said
    Column("created_at", Float, nullable=False), Column("last_seen_at", Float),
)  # fmt: skip

sessions = Table(
    "sessions", metadata,
    Column("session_id", Text, primary_key=True), _device(),
    Column("grants", Text, nullable=False),  # JSON: name -> expiry, or null for never
    Column("created_at", Float, nullable=False), Column("expires_at", Float),
    Column("last_seen_at", Float), Column("revoked_at", Float), Column("revoked_reason", Text),
    Column("transport_hint", Text),  # wss, ws or unknown, where the operator said so
    Column("api_hash", Text),  # of the token that opens the Hermes API in its name
    Column("kid", Text),  # the keys that signed its tokens, a space between; NULL: not known
    # JSON: {ttl, grants} in seconds, what a renewal gives; null = it cannot be renewed.
    Column("renewal", Text),
    Column("term", Integer, nullable=False, server_default="0"),  # tokens of an earlier one ended with it
    # The newest refresh token: seen (its predecessor is dead), sent, or revived (sent with a token of a new term).
    Column("refresh_number", Integer, nullable=False, server_default="0"),
    Column("refresh_state", Text, nullable=False, server_default="seen"),
)  # fmt: skip
Index("sessions_of_device", sessions.c.device_id)
Index("sessions_by_api", sessions.c.api_hash, unique=True)

refresh_tokens = Table(
    "refresh_tokens", metadata,
    Column("token_hash", Text, primary_key=True),
    Column("session_id", Text, ForeignKey("sessions.session_id", ondelete="CASCADE"), nullable=False),
    Column("number", Integer, nullable=False),  # in its session; a used one stays, so that a second use is noticed
    Column("created_at", Float, nullable=False), Column("expires_at", Float, nullable=False),
)  # fmt: skip
Index("refresh_tokens_of_session", refresh_tokens.c.session_id, refresh_tokens.c.number)

tickets = Table(
    "tickets", metadata,
    Column("token_hash", Text, primary_key=True),
    Column("session_id", Text, ForeignKey("sessions.session_id", ondelete="CASCADE"), nullable=False),
    Column("origin", Text),  # of the page that may use it; null: no page
    Column("expires_at", Float, nullable=False),
)  # fmt: skip
Index("tickets_by_end", tickets.c.expires_at)

offers = Table(
    "offers", metadata,
    Column("code_hash", Text, primary_key=True),
    Column("offer_id", Text, nullable=False, unique=True),  # names it in answers and in the audit, where no code stands
    Column("name", Text),
    Column("grants", Text),  # JSON: name -> seconds or null for never; null = the defaults
    Column("ttl_seconds", Integer),  # null = never ends
    Column("created_at", Float, nullable=False), Column("expires_at", Float, nullable=False),
    Column("consumed_at", Float), Column("device_id", Text), Column("transport_hint", Text),
    Column("api_hash", Text),  # handed to the session: until then it opens nothing
    Column("approval", Text),  # what still has to happen: null nothing, before = approve the offer, redeem = each phone
    # Who redeemed it and waits for the operator: a hash of what was said, JSON for people, and the six digits.
    Column("claim", Text), Column("claimant", Text), Column("confirm", Text), Column("confirm_until", Float),
    Column("allowed", Integer),
)  # fmt: skip
Index("offers_by_confirm", offers.c.confirm)

attempts = Table(
    "attempts", metadata,
    Column("id", Integer, primary_key=True), Column("kind", Text, nullable=False),
    Column("address", Text, nullable=False), Column("at", Float, nullable=False),
)  # fmt: skip
Index("attempts_of_address", attempts.c.kind, attempts.c.address, attempts.c.at)
Index("attempts_by_age", attempts.c.at)

blocks = Table(
    "blocks", metadata,
    Column("kind", Text, primary_key=True), Column("address", Text, primary_key=True),
    Column("until", Float, nullable=False),
)  # fmt: skip

mailboxes = Table(
    "mailboxes", metadata,
    _device(primary_key=True), Column("epoch", Text, nullable=False),
    Column("audience", Text, nullable=False),  # none, messages or all: which kinds are kept for it
    # Numbers: the last given, the last confirmed, the last written to a socket, the last that retention dropped.
    Column("head", Integer, nullable=False), Column("acked", Integer, nullable=False),
    Column("sent", Integer, nullable=False, server_default="0"),
    Column("floor", Integer, nullable=False, server_default="0"),
    # The highest number that is to wake the device and when it was stored; when a push is due; the last pushed about.
    Column("wake_seq", Integer, nullable=False, server_default="0"), Column("wake_stored_at", Float),
    Column("wake_at", Float), Column("woken", Integer, nullable=False, server_default="0"),
    Column("lease_until", Float), Column("tries", Integer, nullable=False, server_default="0"),
    Column("foreground_until", Float),
)  # fmt: skip
Index("mailboxes_by_wake", mailboxes.c.wake_at)

payloads = Table(
    "payloads", metadata,
    Column("payload_id", Text, primary_key=True),  # also the envelope's id
    Column("channel", Text, nullable=False), Column("type", Text, nullable=False),
    Column("kind", Text, nullable=False), Column("body", LargeBinary, nullable=False),
    Column("whole", LargeBinary),  # the payload as it was sent, where the kept one was cut
    Column("wakes", Integer, nullable=False, server_default="0"), Column("sender", Text),
    Column("created_at", Float, nullable=False), Column("expires_at", Float),
)  # fmt: skip
Index("payloads_by_age", payloads.c.created_at)

outbox = Table(
    "outbox", metadata,
    _device(primary_key=True), Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("payload_id", Text, ForeignKey("payloads.payload_id"), nullable=False),
    Column("void", Text),  # why it may no longer be shown; its number stays
    sqlite_with_rowid=False,
)  # fmt: skip
Index("outbox_of_payload", outbox.c.payload_id)

replies = Table(
    "replies", metadata,
    Column("id", Integer, primary_key=True), _device(),
    Column("body", LargeBinary, nullable=False),  # JSON, as /phone/replies gives it
    Column("created_at", Float, nullable=False),
)  # fmt: skip
Index("replies_of_device", replies.c.device_id)

links = Table(
    "links", metadata,
    _device(primary_key=True), Column("instance", Text, primary_key=True),
    Column("generation", Integer, nullable=False),
)  # fmt: skip

push_targets = Table(
    "push_targets", metadata,
    Column("target_id", Text, primary_key=True), _device(),
    Column("provider", Text, nullable=False),
    Column("endpoint", Text, nullable=False),  # a URL, a topic or a token: a secret
    Column("keys", Text, nullable=False),  # JSON: what the endpoint's messages are encrypted with
    Column("created_at", Float, nullable=False), Column("seen_at", Float, nullable=False),
    # The last number of the mailbox that needs no push here any more; before when the provider wants none.
    Column("settled", Integer, nullable=False), Column("not_before", Float),
    Column("ok_at", Float), Column("failed_at", Float), Column("failure", Text),  # null once a push was taken again
    Column("retired_at", Float), Column("retired", Text),  # why it is no longer used
)  # fmt: skip
Index("push_target_once", push_targets.c.device_id, push_targets.c.provider, push_targets.c.endpoint, unique=True)
Index("push_targets_by_endpoint", push_targets.c.endpoint)

push_outcomes = Table(
    "push_outcomes", metadata,
    Column("id", Integer, primary_key=True), _device(),
    Column("target_id", Text, nullable=False), Column("provider", Text, nullable=False),
    Column("at", Float, nullable=False), Column("ms", Integer, nullable=False),
    Column("kind", Text, nullable=False), Column("collapse", Text, nullable=False),
    Column("head", Integer, nullable=False),
    Column("verdict", Text, nullable=False), Column("code", Text, nullable=False), Column("status", Integer),
    Column("detail", Text, nullable=False),
)  # fmt: skip
Index("push_outcomes_of_device", push_outcomes.c.device_id, push_outcomes.c.id)

push_prefs = Table(
    "push_prefs", metadata,
    _device(primary_key=True), Column("prefs", Text, nullable=False),  # JSON
)  # fmt: skip

approvals = Table(
    "approvals", metadata,
    Column("approval_id", Text, primary_key=True),
    Column("kind", Text, nullable=False),  # approval or question
    Column("lane", Text, nullable=False), Column("turn_id", Text), Column("tool_id", Text), Column("ref", Text),
    Column("state", Text, nullable=False),  # waiting, open, answering, closed
    Column("payload", Text, nullable=False),  # JSON: of the request that devices see, without its state
    Column("timeout_s", Float, nullable=False), Column("asked_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("blocks_until", Float, nullable=False),  # so long those behind it cannot be answered, closed or not
    Column("reminded", Integer, nullable=False),
    Column("answer", Text), Column("answered_by", Text), Column("outcome", Text), Column("closed_at", Float),
)  # fmt: skip
Index("approvals_by_age", approvals.c.closed_at)

turns = Table(
    "turns", metadata,
    Column("turn_id", Text, primary_key=True), Column("device_id", Text, nullable=False),
    Column("session_id", Text),  # upstream's; null until a new conversation has one
    Column("state", Text, nullable=False),  # accepted, submitting, running, ended
    Column("message", Text, nullable=False),  # JSON: the chat.send payload
    Column("lease", Text),  # JSON: what the turn is bound to upstream
    Column("progress", Text),  # JSON: the last checkpoint of the folded state
    Column("finish", Text), Column("error", Text),
    Column("created_at", Float, nullable=False), Column("updated_at", Float, nullable=False), Column("ended_at", Float),
)  # fmt: skip
Index("turns_by_state", turns.c.state)

media = Table(
    "media", metadata,
    Column("media_id", Text, primary_key=True),  # hash of the token, and the name of an uploaded file
    Column("path", Text),  # of a file that lies elsewhere on this host; null: uploaded
    Column("name", Text, nullable=False), Column("mime", Text, nullable=False),
    Column("size", Integer, nullable=False), Column("sensitive", Integer, nullable=False),
    Column("sender", Text, nullable=False),
    Column("created_at", Float, nullable=False), Column("expires_at", Float, nullable=False),
)  # fmt: skip
Index("media_by_age", media.c.created_at)
Index("media_by_end", media.c.expires_at)

threads = Table(
    "threads", metadata,
    Column("chat_id", Text, primary_key=True), Column("thread_id", Text, primary_key=True),  # "" = the chat itself
    Column("last_row", Integer, nullable=False),  # of its newest message; 0 = none yet
    Column("created_at", Float, nullable=False),
    sqlite_with_rowid=False,
)  # fmt: skip
Index("threads_by_news", threads.c.last_row)

thread_messages = Table(
    "thread_messages", metadata,
    Column("row", Integer, primary_key=True),  # the order of a thread, and its cursor
    Column("message_id", Text, nullable=False, unique=True),
    Column("chat_id", Text, nullable=False), Column("thread_id", Text, nullable=False),
    Column("source", Text, nullable=False),  # device, or as the frame has it
    Column("payload", LargeBinary, nullable=False),  # JSON: of `message`, whole
    Column("created_at", Float, nullable=False),
    sqlite_autoincrement=True,  # a cursor never meets a number twice
)  # fmt: skip
Index("thread_messages_of", thread_messages.c.chat_id, thread_messages.c.thread_id, thread_messages.c.row)
Index("thread_messages_by_age", thread_messages.c.created_at)

thread_reads = Table(
    "thread_reads", metadata,
    _device(primary_key=True), Column("chat_id", Text, primary_key=True), Column("thread_id", Text, primary_key=True),
    Column("row", Integer, nullable=False),  # of the last message that was read there
)  # fmt: skip

drafts = Table(
    "drafts", metadata,
    Column("message_id", Text, primary_key=True),
    Column("payload", LargeBinary, nullable=False),  # JSON: of `message.update`, at the last checkpoint
    Column("updated_at", Float, nullable=False),
)  # fmt: skip

inbound = Table(
    "inbound", metadata,
    Column("row", Integer, primary_key=True), Column("inbound_id", Text, nullable=False, unique=True),
    Column("chat_id", Text, nullable=False), Column("thread_id", Text, nullable=False),
    Column("state", Text, nullable=False),  # queued, taken; answering: it is tried as the answer to a question
    Column("passes", Integer, nullable=False),  # 1: a command that must not wait for what it is about
    Column("payload", Text, nullable=False),  # JSON: {text, reply_to?, media?}; answering: with ask and by
    Column("created_at", Float, nullable=False),
    sqlite_autoincrement=True,
)  # fmt: skip
Index("inbound_of", inbound.c.chat_id, inbound.c.thread_id, inbound.c.row)

link_spools = Table(
    "link_spools", metadata,
    Column("spool", Text, primary_key=True), Column("received", Integer, nullable=False),
    Column("refused", Text, nullable=False),  # JSON: recent refusals {n, code, message}
    Column("hello", Text, nullable=False),  # JSON: what the plugin said of itself last
    Column("seen_at", Float, nullable=False),
)  # fmt: skip

bridge_devices = Table(
    "bridge_devices", metadata,
    _device(primary_key=True), Column("session_id", Text, nullable=False),  # on which it said so last
    Column("status", LargeBinary, nullable=False),  # JSON: what it says of itself
    Column("at", Float, nullable=False),
    Column("chosen", Integer, nullable=False),  # meant where none is named
)  # fmt: skip

bridge_activity = Table(
    "bridge_activity", metadata,
    Column("id", Integer, primary_key=True), Column("entry", LargeBinary, nullable=False),  # JSON, redacted
)  # fmt: skip
notifications = Table(
    "notifications", metadata,
    Column("row", Integer, primary_key=True),  # grows with each post: their order, and the cursor of pages
    _device(), Column("key", Text, nullable=False), Column("package_name", Text, nullable=False),
    Column("title", Text), Column("text", Text), Column("sub_text", Text),
    Column("posted_at", Integer),  # milliseconds, by the phone's own clock
    Column("received_at", Float, nullable=False), Column("removed_at", Float),
    sqlite_autoincrement=True,
)  # fmt: skip
Index("notification_once", notifications.c.device_id, notifications.c.key, unique=True)
Index("notifications_of_device", notifications.c.device_id)  # in the order of rows
Index("notifications_by_age", notifications.c.received_at)

once = Table(
    "once", metadata,
    Column("principal", Text, primary_key=True), Column("type", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("payload_hash", Text, nullable=False), Column("answer", Text),  # JSON; null while pending
    Column("created_at", Float, nullable=False),
)  # fmt: skip

audit = Table(
    "audit", metadata,
    Column("id", Integer, primary_key=True), Column("at", Float, nullable=False),
    Column("actor", Text, nullable=False), Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False), Column("detail", Text, nullable=False),
)  # fmt: skip
