"""Payloads by which a device answers what the agent asks."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from app.wire.payloads import Id, Payload

MAX_ANSWER = 65_536  # characters, as of a message


class ApprovalRespond(Payload):
    approval_id: Id
    choice: Annotated[str, StringConstraints(min_length=1, max_length=1024)]


class QuestionAnswer(Payload):
    """One of the question's choices, or any other text."""

    question_id: Id
    answer: Annotated[str, StringConstraints(min_length=1, max_length=MAX_ANSWER)]
