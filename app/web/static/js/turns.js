// One turn of a conversation as a pure fold of what the relay says about it. No function changes its argument.
// `parts` is the answer, in order: parts.js.
import {
  addAside, addText, editTool, joined, placeAsk, replaceLast, rethink, settle, toTool, toTools, weave, withLost,
} from "./parts.js";

export const LIVE = new Set(["sending", "queued", "running"]);

/** @param {object} about id (null until accepted), key (client_msg_id of our own), said, session, conv, at, … */
export function newTurn(about) {
  return {
    id: null,
    key: null,
    session: null,
    conv: null,
    said: null, // the owner's words; null: not known here
    status: "running", // sending, queued, running; then completed, stopped, interrupted, failed, uncertain
    position: 0,
    n: 0,
    whole: false, // nothing of it was missed, as far as this page knows
    awaiting: false, // events were missed: those that follow wait for a snapshot
    parts: [],
    held: null, // {code, message}: why the agent has not begun
    stopping: false, // the owner has asked for that
    startedAt: null,
    usage: null,
    error: null,
    past: false, // a failure that a later turn has overtaken
    ...about,
  };
}

export const isLive = (turn) => LIVE.has(turn.status);
export const isFailed = (turn) => turn.status === "failed" || turn.status === "uncertain";

/**
 * @param {object} event payload of `stream.event`
 * @returns {{turn: object, gap: boolean}} gap: ask for a snapshot with `chat.watch`
 */
export function applyEvent(turn, event) {
  const n = event.seq;
  if (!isLive(turn) || turn.awaiting || n <= turn.n) return { turn, gap: false };
  if (n > turn.n + 1) return { turn: { ...turn, awaiting: true }, gap: true };
  const next = { ...turn, n, whole: true, status: "running", session: event.session_id ?? turn.session };
  next.startedAt ??= event.ts ?? null;
  return { turn: { ...next, ...change(next, event.event, event.payload ?? {}) }, gap: false };
}

/** What a snapshot says replaces what is here; only order, of which it says less, is kept from here. */
export function applySnapshot(turn, snapshot) {
  if (!isLive(turn)) return turn;
  const { text = "", reasoning = "", tools = [], started_at = null, gap = false } = snapshot.state ?? {};
  const known = toTools(tools ?? [], text ?? "");
  // A relay that has just restarted knows less than the page does: tools, thoughts and the end of the text come back later.
  const had = answerText(turn);
  const woven = weave(turn.parts, gap && had.startsWith(text ?? "") ? had : text ?? "", gap ? withLost(turn.parts, known) : known);
  return {
    ...turn,
    id: snapshot.turn_id,
    session: snapshot.session_id ?? turn.session,
    n: snapshot.n,
    // One that waits has a snapshot, too: an empty one.
    status: turn.status === "queued" && snapshot.n === 0 ? "queued" : "running",
    whole: true,
    awaiting: false,
    parts: rethink(woven, reasoning ?? "", gap),
    startedAt: started_at ?? turn.startedAt,
  };
}

/** @param {object} end payload of `turn.completed` or `turn.failed`; a second end changes nothing */
export function applyEnd(turn, type, end) {
  if (!isLive(turn)) return turn;
  const failed = type === "turn.failed";
  const parts = settle(turn.parts, end.text ?? "", Boolean(end.truncated));
  return {
    ...turn,
    id: end.turn_id,
    session: end.session_id ?? turn.session,
    status: end.finish ?? (failed ? "failed" : "completed"),
    awaiting: false,
    parts: end.reasoning ? rethink(parts, end.reasoning) : parts, // what was cut out to fit a frame is still here
    held: null,
    usage: end.usage ?? null,
    error: end.error ?? null,
    truncated: Boolean(end.truncated),
  };
}

/** The text of an answer as the relay counts it. */
export function answerText(turn) {
  return joined(turn.parts);
}

/** The turn with the place of a question in it: behind so many tools, or at the present end (null). */
export function applyAsk(turn, ask, tools) {
  const parts = placeAsk(turn.parts, ask.id, tools);
  return parts === turn.parts ? turn : { ...turn, parts };
}

function change(turn, event, payload) {
  switch (event) {
    case "run.started":
      return { said: turn.said ?? contentText(payload.user_message?.content) };
    case "run.waiting":
      return { held: { code: payload.code, message: payload.message } };
    case "assistant.delta":
      return { parts: addText(turn.parts, said(payload)), held: null };
    case "assistant.commentary":
      return { parts: addAside(turn.parts, payload.text ?? payload.delta ?? ""), held: null };
    case "reasoning.delta":
      return { parts: addText(turn.parts, said(payload), "thought"), held: null };
    case "assistant.completed":
      return typeof payload.content === "string" ? { parts: replaceLast(turn.parts, payload.content) } : {};
    case "tool.started":
      return { parts: [...turn.parts, toTool({ ...payload, state: "running" })], held: null };
    case "tool.progress":
      return payload.tool_id && payload.preview ? { parts: editTool(turn.parts, payload, "running") } : {};
    case "tool.completed":
    case "tool.failed":
      return { parts: editTool(turn.parts, payload, event === "tool.failed" ? "failed" : "completed") };
    default:
      return {}; // newer relays and agents say more than this page knows
  }
}

const said = (payload) => payload.delta ?? payload.text ?? "";

/** Text of a message's content, which is a string or a list of parts. */
export function contentText(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return null;
  const texts = content.map((part) => (part.type === "text" ? part.text : "[picture]"));
  return texts.join("\n\n");
}
