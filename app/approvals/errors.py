"""Why an answer to an approval or a question is refused. A refusal never reaches whoever asked."""

from __future__ import annotations

from app.errors import RelayError


class ApprovalUnknown(RelayError):
    """There is no such approval, or it is no longer known."""

    code = "approval_unknown"
    http_status = 404


class ApprovalWaiting(RelayError):
    """Another approval was asked for before this one: answer that one first."""

    code = "approval_waiting"
    http_status = 409
    retryable = True


class ApprovalExpired(RelayError):
    """The time to answer is over; the agent goes on without this approval."""

    code = "approval_expired"
    http_status = 410


class ApprovalClosed(RelayError):
    """This approval has its outcome already; the kept approval.resolved says which."""

    code = "approval_closed"
    http_status = 409


class ChoiceUnknown(RelayError):
    """That is none of the choices of this approval."""

    code = "choice_unknown"
    http_status = 400


class QuestionUnknown(RelayError):
    """There is no such question, or it is no longer known."""

    code = "question_unknown"
    http_status = 404


class QuestionExpired(RelayError):
    """The time to answer is over; the agent goes on without an answer."""

    code = "question_expired"
    http_status = 410


class QuestionClosed(RelayError):
    """This question has its outcome already; the kept question.closed says which."""

    code = "question_closed"
    http_status = 409
