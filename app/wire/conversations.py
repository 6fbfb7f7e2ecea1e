"""Payloads about conversations as a whole."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from app.wire.payloads import Id, Payload

# Hermes says itself what it does not take; this only bounds what it is asked.
Title = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)]
Profile = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class _OfProfile(Payload):
    profile: Profile | None = None


class ChatSessionsList(_OfProfile):
    limit: int = Field(50, ge=1, le=200)
    offset: int = Field(0, ge=0)


class ChatSessionsMessages(_OfProfile):
    session_id: Id
    limit: int = Field(50, ge=1, le=200)
    offset: int | None = Field(None, ge=0)


class ChatSessionsCreate(_OfProfile):
    title: Title | None = None
    model: Id | None = None


class ChatSessionsGet(_OfProfile):
    session_id: Id


class ChatSessionsRename(_OfProfile):
    session_id: Id
    title: Title


class ChatSessionsDelete(_OfProfile):
    session_id: Id


class ChatSessionsFork(_OfProfile):
    session_id: Id
    title: Title | None = None
