// What the agent asks of its owner: approvals and questions, as a pure fold. No function changes its argument.

// Refusals after which there is nothing to answer any more, and what is known by them. What became of it is said by
// the frame that every device gets.
const OVER = {
  approval_expired: "expired",
  approval_closed: "closed",
  approval_unknown: "closed",
  question_expired: "expired",
  question_closed: "closed",
  question_unknown: "closed",
};
// Nobody knows whether the answer arrived. The relay knows it by its frame's id, so the same may be said again.
const UNSURE = new Set(["lost", "timeout"]);

/** Of the payloads of `approval.*` and `question.*`. */
export const kindOf = (payload) => (payload.approval_id ? "approval" : "question");
export const idOf = (payload) => payload.approval_id ?? payload.question_id;

function newAsk(payload) {
  return {
    id: idOf(payload),
    kind: kindOf(payload),
    asked: false, // false: only its end was heard
    turn: null,
    session: null,
    tool: null,
    text: "", // a command or a question
    description: null,
    isCut: false, // what was asked is longer than the text here
    choices: [],
    askedAt: 0,
    expiresAt: null, // in seconds since 1970, by the relay's clock
    skew: 0, // what our clock is ahead of the relay's, as far as we know
    isWaiting: false, // another one must be answered first
    after: null, // tools of the turn that came before it
    said: null, // the owner's words to which this belongs
    outcome: null, // allowed, denied, answered, expired, resolved_elsewhere, uncertain; closed: not known
    answer: null,
    by: null, // a device
    sending: null, // the answer that is on its way
    unsure: null, // {answer, id}: the frame that may have arrived
    error: null,
  };
}

/** @param now when it arrived just now, in seconds; null: it may be older */
export function applyRequest(ask, payload, now = null) {
  const was = ask ?? newAsk(payload);
  const first = !was.asked;
  return {
    ...was,
    asked: true,
    turn: payload.turn_id ?? was.turn,
    session: payload.session_id ?? was.session,
    tool: payload.tool ?? was.tool,
    text: String(payload.summary ?? payload.text ?? was.text),
    description: payload.description || was.description,
    isCut: Boolean(payload.truncated),
    choices: payload.choices ?? was.choices,
    askedAt: payload.asked_at ?? was.askedAt,
    expiresAt: payload.expires_at ?? was.expiresAt,
    isWaiting: payload.state === "waiting",
    skew: first && now !== null && payload.asked_at ? now - payload.asked_at : was.skew,
  };
}

/** The end stays the end, also for a request that comes after it. */
export function applyEnd(ask, payload) {
  const was = ask ?? newAsk(payload);
  return {
    ...was,
    turn: payload.turn_id ?? was.turn,
    outcome: payload.outcome ?? "closed",
    answer: payload.choice ?? payload.answer ?? was.answer,
    by: payload.by ?? was.by,
    sending: null,
    unsure: null,
    error: null,
  };
}

/** The relay does not list it any more: what became of it is said later, or never. */
export const applyGone = (ask) => ({ ...ask, outcome: "closed", sending: null });

export const applySending = (ask, answer) => ({ ...ask, sending: answer, error: null });

export function applyRefusal(ask, error, frameId) {
  if (ask.outcome) return ask;
  const outcome = OVER[error.code];
  if (outcome) return { ...ask, sending: null, unsure: null, outcome };
  const unsure = UNSURE.has(error.code) ? { answer: ask.sending, id: frameId } : null;
  return { ...ask, sending: null, unsure, error: unsure ? unsureWords(error) : error.message };
}

const unsureWords = (error) => `${error.message} Your answer may not have arrived: you can give it again.`;

export const isOpen = (ask) => ask.asked && !ask.outcome;

/** Of no turn and no conversation. */
export const isOutside = (ask) => ask.turn === null && ask.session === null;

/** The frame that answers: {type, payload}. */
export function answering(ask, answer) {
  return ask.kind === "approval"
    ? { type: "approval.respond", payload: { approval_id: ask.id, choice: answer } }
    : { type: "question.answer", payload: { question_id: ask.id, answer } };
}

/** Seconds until the relay gives up, by this browser's clock; null: it does not say. */
export function left(ask, now = Date.now() / 1000) {
  return ask.expiresAt === null ? null : Math.max(0, Math.ceil(ask.expiresAt + ask.skew - now));
}
