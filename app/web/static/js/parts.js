// What an answer consists of, in order. No function changes its argument.
//   {kind: "text", text}
//   {kind: "text", text, aside: true}  words on the way, which the relay's `text` may lack
//   {kind: "thought", text}
//   {kind: "tool", id, name, preview, args, state: running | completed | failed | ended, result, duration, error, at}
//     at: length of the text when it began, in UTF-16 units; null: the relay has not said it
//   {kind: "ask", id}  where the agent asked for an approval or an answer

const BREAK = "\n\n";

/** A leading blank line is how the agent separates the text after a tool; it is not part of the text. */
export function segment(text) {
  return text.startsWith(BREAK) ? text.slice(BREAK.length) : text;
}

/** All text segments in order, joined by a blank line: the text that the relay calls `text`. */
export function joined(parts, asides = true) {
  const texts = [""];
  for (const part of parts) {
    if (part.kind === "tool") texts.push("");
    if (part.kind !== "text") continue; // a thought or a question in the middle of a segment does not end it
    if (!part.aside) texts.push(texts.pop() + part.text);
    else if (asides) texts.push(part.text, "");
  }
  return texts.map(segment).filter((text) => text !== "").join(BREAK);
}

export function thoughts(parts) {
  return parts.filter((part) => part.kind === "thought").map((part) => part.text).join("");
}

export function toTool(tool, at = null) {
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
    at,
  };
}

/** Those of a snapshot, which counts in characters. */
export function toTools(tools, text) {
  const characters = tools.some((tool) => Number.isInteger(tool.at)) ? [...text] : [];
  const units = (at) => characters.slice(0, at).join("").length;
  return tools.map((tool) => toTool(tool, Number.isInteger(tool.at) ? units(tool.at) : null));
}

export function editTool(parts, payload, state) {
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

export function addText(parts, text, kind = "text") {
  if (text === "") return parts;
  const last = parts.at(-1);
  if (last?.kind !== kind || last.aside) return [...parts, { kind, text }];
  return parts.with(-1, { ...last, text: last.text + text });
}

export function addAside(parts, text) {
  return text === "" ? parts : [...parts, { kind: "text", text, aside: true }];
}

/** The agent's own wording of the last segment wins over its deltas, of which some may have been lost. */
export function replaceLast(parts, content) {
  const from = parts.findLastIndex((part) => part.kind === "tool" || part.aside) + 1;
  const at = parts.findLastIndex((part) => part.kind === "text");
  if (at < from) return addText(parts, content);
  // A segment that a thought has cut in two is one again, where it ended.
  return parts
    .with(at, { kind: "text", text: content })
    .filter((part, n) => n < from || n === at || part.kind !== "text");
}

/** Where the agent asked: behind so many of its tools, or where it is now (null). Once, but tools may be known late. */
export function placeAsk(parts, id, tools) {
  const was = parts.findIndex((part) => part.kind === "ask" && part.id === id);
  if (was >= 0) {
    if (!tools || toolCount(parts) < tools || toolCount(parts.slice(0, was)) === tools) return parts;
    parts = parts.toSpliced(was, 1);
  }
  const isThere = (part, n) => part.kind === "tool" && toolCount(parts.slice(0, n + 1)) === tools;
  let at = tools ? parts.findIndex(isThere) + 1 : 0;
  while (at > 0 && parts[at]?.kind === "ask") at += 1;
  return parts.toSpliced(at || parts.length, 0, { kind: "ask", id });
}

export const toolCount = (parts) => parts.filter((part) => part.kind === "tool").length;

/** The relay's whole text and tools take the place of what is here; order that is known stays. */
export function weave(parts, text, tools) {
  const byId = new Map(tools.map((tool) => [tool.id, tool]));
  const had = [joined(parts), joined(parts, false)].find((it) => text.startsWith(it));
  const same = had !== undefined && parts.every((part) => part.kind !== "tool" || byId.has(part.id));
  if (!parts.length || !same) return rebuilt(parts, text, tools);
  const known = parts.map((part) => (part.kind === "tool" ? located(byId.get(part.id), part) : part));
  const ids = new Set(known.map((part) => part.id));
  return interleave(known, text, had.length, tools.filter((tool) => !ids.has(tool.id)));
}

const located = (tool, was) => ({ ...tool, at: tool.at ?? was.at });

/** New tools came somewhere in the new text; where it is not said, the first blank line is the likeliest place. */
function interleave(parts, text, from, tools) {
  const cut = text.indexOf(BREAK, from);
  for (const tool of tools) {
    const at = Math.max(from, Math.min(tool.at ?? (cut < 0 ? text.length : cut), text.length));
    parts = [...addText(parts, text.slice(from, at)), tool];
    from = at;
  }
  return addText(parts, text.slice(from));
}

/** From the relay's words alone; thoughts, asides and questions stay behind the tool that they followed. */
function rebuilt(parts, text, tools) {
  const isCounted = (aside) => text.includes(aside.text);
  const at = (tool) => {
    const n = parts.findIndex((part) => part.kind === "tool" && part.id === tool.id);
    return tool.at ?? joined(parts.slice(0, Math.max(n, 0)).filter((part) => !part.aside || isCounted(part))).length;
  };
  const loose = parts.flatMap((part, n) => {
    const stays = part.kind === "thought" || part.kind === "ask" || (part.aside && !isCounted(part));
    const after = toolCount(parts.slice(0, n));
    return stays ? [{ part, after: after > tools.length ? null : after }] : []; // null: behind a tool that is missing now
  });
  const behind = (count) => loose.filter(({ after }) => after === count).map(({ part }) => part);
  let out = behind(0);
  let from = 0;
  tools.forEach((tool, n) => {
    const to = Math.max(from, Math.min(at(tool), text.length));
    out = [...addText(out, text.slice(from, to)), tool, ...behind(n + 1)];
    from = to;
  });
  return [...addText(out, text.slice(from)), ...behind(null)];
}

/** The tools of a snapshot that lacks those before a break. */
export function withLost(parts, tools) {
  const ids = new Set(tools.map((tool) => tool.id));
  return [...parts.filter((part) => part.kind === "tool" && !ids.has(part.id)), ...tools];
}

/**
 * `all` is everything the agent thought, or with a `gap` what it thought since; where it stood is kept if this goes on
 * from what is here.
 */
export function rethink(parts, all, gap = false) {
  const had = thoughts(parts);
  if (squeezed(had) === squeezed(all) || (gap && squeezed(had).includes(squeezed(all)))) return parts;
  if (had !== "" && all.startsWith(had)) {
    const at = parts.findLastIndex((part) => part.kind === "thought");
    return parts.with(at, { kind: "thought", text: parts[at].text + all.slice(had.length) });
  }
  const others = parts.filter((part) => part.kind !== "thought");
  return all === "" ? others : [{ kind: "thought", text: all }, ...others];
}

const squeezed = (text) => text.replace(/\s+/g, "");

/** At the end nothing runs any more. `truncated`: the text was cut to fit a frame. */
export function settle(parts, text, truncated) {
  const done = parts.map((part) => (part.state === "running" ? { ...part, state: "ended" } : part));
  if (truncated && joined(done).startsWith(text)) return done;
  if (joined(done) === text || joined(done, false) === text) return done;
  return weave(done, text, done.filter((part) => part.kind === "tool"));
}
