// From the agent's rows and the turns this page knows to what is shown. Pure.
import { isOpen } from "./asks.js";
import { answerText, contentText, isFailed, isLive } from "./turns.js";

/**
 * @param {object[]} rows Hermes' message rows, oldest first
 * @returns exchanges: {id, said, parts, answered}; `answered`: the agent finished it
 */
export function exchanges(rows) {
  const list = [];
  for (const row of rows) {
    if (row.role === "user") {
      list.push({ id: `row-${row.id}`, said: contentText(row.content) ?? "", parts: [], answered: false });
    } else if (row.role === "assistant" || row.role === "tool") {
      // The oldest page may begin in the middle of an answer.
      if (!list.length) list.push({ id: `row-${row.id}`, said: null, parts: [], answered: false });
      if (row.role === "assistant") assistant(list.at(-1), row);
      else result(list.at(-1), row);
    }
  }
  return list;
}

function assistant(exchange, row) {
  const thought = row.reasoning || row.reasoning_content;
  if (thought) exchange.parts.push({ kind: "thought", text: thought });
  const text = contentText(row.content) ?? "";
  if (text !== "") exchange.parts.push({ kind: "text", text });
  for (const call of calls(row.tool_calls)) {
    exchange.parts.push({
      kind: "tool",
      id: call.id ?? call.call_id,
      name: call.function?.name ?? "tool",
      preview: null,
      args: parsed(call.function?.arguments),
      state: "ended",
      result: null,
      duration: null,
      error: null,
    });
  }
  exchange.answered = row.finish_reason === "stop";
}

function result(exchange, row) {
  const tool = exchange.parts.find((part) => part.kind === "tool" && part.id === row.tool_call_id);
  if (!tool) return;
  tool.state = "completed";
  tool.result = parsed(contentText(row.content));
}

const calls = (value) => (Array.isArray(value) ? value : Array.isArray(parsed(value)) ? parsed(value) : []);

function parsed(text) {
  if (typeof text !== "string") return text ?? null;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/**
 * What to show: the exchanges of the history, then the turns of this page. The last exchange of the history may be
 * the beginning of the first of these turns: then it is shown once, as the turn.
 */
export function transcript(history, turns) {
  const last = history.at(-1);
  const at = last ? turns.findIndex((turn) => isSame(last, turn)) : -1;
  if (at < 0) return [...history, ...turns];
  const turn = turns[at].said === null ? { ...turns[at], said: last.said } : turns[at];
  return [...history.slice(0, -1), ...turns.with(at, turn)];
}

/**
 * Which of the approvals and questions belong to which item: those of a turn by its id, older ones by the owner's words.
 * @returns {{of: object[][], loose: object[]}} of: per item; loose: open ones of a turn that is not shown
 */
export function askedIn(items, asks) {
  const of = items.map((item) => asks.filter((ask) => ask.turn === item.id));
  const loose = [];
  for (const ask of asks.filter(({ turn }) => !items.some(({ id }) => id === turn))) {
    const at = items.findLastIndex((item) => item.answered !== undefined && ask.said !== null && item.said === ask.said);
    if (at >= 0) of[at].push(ask);
    else if (isOpen(ask)) loose.push(ask);
  }
  return { of, loose };
}

function isSame(exchange, turn) {
  if (turn.said === null) return !exchange.answered;
  // Hermes puts the words of a failed turn before those of the next one.
  const said = exchange.said === turn.said || exchange.said?.endsWith(`\n\n${turn.said}`);
  if (!said) return false;
  if (!exchange.answered) return true;
  const [stored, shown] = [answerText(exchange), answerText(turn)];
  return shown !== "" && (stored.startsWith(shown) || shown.startsWith(stored));
}

/** The turns that stay when a history arrives that was asked for while `liveThen` (their ids or keys) were not over. */
export function afterHistory(turns, liveThen) {
  const open = (turn) => isLive(turn) || (isFailed(turn) && !turn.past);
  return turns.filter((turn) => open(turn) || liveThen.has(turn.id) || liveThen.has(turn.key));
}
