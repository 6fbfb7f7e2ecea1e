// One turn of a conversation as a pure fold of what the relay says about it. No function changes its argument.
//
// parts: what the answer consists of, in order:
//   {kind: "text", text}
//   {kind: "tool", id, name, preview, args, state: running | completed | failed | ended, result, duration, error}

export const LIVE = new Set(["sending", "queued", "running"]);
const BREAK = "\n\n";

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
    reasoning: "",
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

/** What a snapshot says replaces what is here; only the order of text and tools, which it lacks, is kept from here. */
export function applySnapshot(turn, snapshot) {
  if (!isLive(turn)) return turn;
  const { text = "", reasoning = "", tools = [], started_at = null } = snapshot.state ?? {};
  return {
    ...turn,
    id: snapshot.turn_id,
    session: snapshot.session_id ?? turn.session,
    n: snapshot.n,
    // One that waits has a snapshot, too: an empty one.
    status: turn.status === "queued" && snapshot.n === 0 ? "queued" : "running",
    whole: true,
    awaiting: false,
    parts: weave(turn.parts, text ?? "", (tools ?? []).map(toTool)),
    reasoning: reasoning ?? "",
    startedAt: started_at ?? turn.startedAt,
  };
}

/** @param {object} end payload of `turn.completed` or `turn.failed`; a second end changes nothing */
export function applyEnd(turn, type, end) {
  if (!isLive(turn)) return turn;
  const failed = type === "turn.failed";
  return {
    ...turn,
    id: end.turn_id,
    session: end.session_id ?? turn.session,
    status: end.finish ?? (failed ? "failed" : "completed"),
    awaiting: false,
    parts: settle(turn.parts, end.text ?? "", Boolean(end.truncated)),
    reasoning: end.reasoning || turn.reasoning,
    usage: end.usage ?? null,
    error: end.error ?? null,
    truncated: Boolean(end.truncated),
  };
}

/** All text segments in order, joined by a blank line: the text that the relay calls `text`. */
export function answerText(turn) {
  return joined(turn.parts);
}

/** A leading blank line is how the agent separates the text after a tool; it is not part of the text. */
export function segment(text) {
  return text.startsWith(BREAK) ? text.slice(BREAK.length) : text;
}

function joined(parts) {
  const texts = parts.filter((part) => part.kind === "text").map((part) => segment(part.text));
  return texts.filter((text) => text !== "").join(BREAK);
}

function change(turn, event, payload) {
  switch (event) {
    case "run.started":
      return { said: turn.said ?? contentText(payload.user_message?.content) };
    case "assistant.delta":
      return { parts: addText(turn.parts, payload.delta ?? payload.text ?? "") };
    case "assistant.commentary":
      return { parts: addText(closeText(turn.parts), payload.text ?? payload.delta ?? "") };
    case "reasoning.delta":
      return { reasoning: turn.reasoning + (payload.delta ?? payload.text ?? "") };
    case "assistant.completed":
      return typeof payload.content === "string" ? { parts: replaceLast(turn.parts, payload.content) } : {};
    case "tool.started":
      return { parts: [...turn.parts, toTool({ ...payload, state: "running" })] };
    case "tool.progress":
      return payload.tool_id && payload.preview ? { parts: editTool(turn.parts, payload, "running") } : {};
    case "tool.completed":
    case "tool.failed":
      return { parts: editTool(turn.parts, payload, event === "tool.failed" ? "failed" : "completed") };
    default:
      return {}; // newer relays and agents say more than this page knows
  }
}

function toTool(tool) {
  return {
    kind: "tool",
    id: tool.tool_id,
    name: tool.tool_name ?? "tool",
    preview: tool.preview ?? null,
    args: tool.args ?? null,
    state: tool.state ?? "running",
    result: tool.result ?? null,
    duration: tool.duration_s ?? null,
    error: tool.error ?? null,
  };
}

function editTool(parts, payload, state) {
  const at = parts.findIndex((part) => part.kind === "tool" && part.id === payload.tool_id);
  if (at < 0) return [...parts, toTool({ ...payload, state })];
  const was = parts[at];
  const tool = {
    ...was,
    state,
    preview: payload.preview ?? was.preview,
    args: payload.args ?? was.args,
    result: payload.result ?? was.result,
    duration: payload.duration_s ?? was.duration,
    error: payload.error ?? was.error,
  };
  return parts.with(at, tool);
}

function addText(parts, text) {
  if (text === "") return parts;
  const last = parts.at(-1);
  if (last?.kind !== "text" || last.closed) return [...parts, { kind: "text", text }];
  return parts.with(-1, { ...last, text: last.text + text });
}

function closeText(parts) {
  return parts.at(-1)?.kind === "text" ? parts.with(-1, { ...parts.at(-1), closed: true }) : parts;
}

/** The agent's own wording of the last segment wins over its deltas, of which some may have been lost. */
function replaceLast(parts, content) {
  const at = parts.findLastIndex((part) => part.kind === "text");
  const open = at >= 0 && at === parts.length - 1;
  if (open) return parts.with(at, { kind: "text", text: content });
  return content === "" ? parts : [...parts, { kind: "text", text: content }];
}

function weave(parts, text, tools) {
  const byId = new Map(tools.map((tool) => [tool.id, tool]));
  const had = joined(parts);
  const same = parts.every((part) => part.kind === "text" || byId.has(part.id)) && text.startsWith(had);
  if (!parts.length || !same) return addText(tools, text);
  const known = parts.map((part) => (part.kind === "tool" ? byId.get(part.id) : part));
  const ids = new Set(known.map((part) => part.id));
  const fresh = tools.filter((tool) => !ids.has(tool.id));
  const rest = text.slice(had.length);
  if (!fresh.length) return addText(known, rest);
  // New tools came somewhere in the new text; the first blank line is the likeliest place.
  const cut = rest.indexOf(BREAK);
  const [before, after] = cut < 0 ? [rest, ""] : [rest.slice(0, cut), rest.slice(cut)];
  return addText([...addText(known, before), ...fresh], after);
}

function settle(parts, text, truncated) {
  const done = parts.map((part) => (part.state === "running" ? { ...part, state: "ended" } : part));
  const had = joined(done);
  if (had === text || (truncated && had.startsWith(text))) return done;
  return weave(
    done,
    text,
    done.filter((part) => part.kind === "tool").map((tool) => ({ ...tool })),
  );
}

/** Text of a message's content, which is a string or a list of parts. */
export function contentText(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return null;
  const texts = content.map((part) => (part.type === "text" ? part.text : "[picture]"));
  return texts.join(BREAK);
}
