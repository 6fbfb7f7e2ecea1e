// The turns this page knows: those it began, kept in the browser until they are over so that neither a reload nor
// a dropped socket loses or doubles what the owner typed, and those of other devices.
import { uuid } from "./ids.js";
import { applyAsk, applyEnd, applyEvent, applySnapshot, isFailed, isLive, newTurn } from "./turns.js";

// The relay knows a key for 24 h. What waited longer must not send itself: it might have been sent before.
const SENDS_ITSELF_MS = 12 * 3600_000;
const PREFIX = "sent.";
const KEPT_FIELDS = ["id", "key", "session", "conv", "said", "status", "position", "at", "error"];
const STALE = { code: "not_sent", layer: "device", message: "This was never sent.", retryable: true };

export class TurnList {
  /** @param shelf where own turns are kept: shared by all windows of the browser */
  constructor(shelf, now = Date.now) {
    this.shelf = shelf;
    this.now = now;
    const kept = shelf.names(PREFIX).map((name) => newTurn(shelf.get(name)));
    this.all = kept.sort((one, other) => one.at - other.at);
  }

  find(id) {
    return this.all.find((turn) => turn.id === id);
  }

  /** Turns of a conversation, which has no session before its first turn was accepted. */
  of(conv) {
    const here = (turn) => (conv.session !== null && turn.session === conv.session) || turn.conv === conv.id;
    return this.all.filter(here);
  }

  say(text, conv) {
    const turn = newTurn({
      key: uuid(), said: text, session: conv.session, conv: conv.id, status: "sending", at: this.now(),
    });
    this.all = [...this.all, turn];
    this.#keep(turn);
    return turn;
  }

  /**
   * What can be sent now, oldest first. Sending again does no harm: the key makes it happen once. A second turn of
   * a conversation that has no session yet has to wait for it.
   */
  unsent() {
    const old = (turn) => turn.status === "sending" && this.now() - turn.at > SENDS_ITSELF_MS;
    for (const turn of this.all.filter(old)) this.#put(turn, { ...turn, status: "failed", error: STALE });
    const begun = new Set();
    return this.all.filter((turn) => {
      const first = turn.session !== null || !begun.has(turn.conv);
      if (turn.session === null && isLive(turn)) begun.add(turn.conv);
      return turn.status === "sending" && first;
    });
  }

  accepted({ client_msg_id: key, turn_id: id, session_id: session, position = 0 }) {
    const turn = this.#own(key);
    if (!turn || turn.status !== "sending") return null;
    // Events may have overtaken the answer in another window.
    const early = this.find(id);
    if (early) this.all = this.all.filter((other) => other !== early);
    const status = position > 0 ? "queued" : "running";
    const known = early ? { ...early, said: turn.said, key, conv: turn.conv, at: turn.at } : { ...turn, status };
    return this.#put(turn, { ...known, id, session: session ?? turn.session, position });
  }

  refused(key, error) {
    const turn = this.#own(key);
    return turn && turn.status === "sending" ? this.#put(turn, { ...turn, status: "failed", error }) : null;
  }

  /** The relay has found or made the session of a turn, and so of those that wait behind it. */
  placed(id, session) {
    const turn = this.find(id);
    if (!turn || !session) return turn ?? null;
    const behind = (other) => other.conv !== null && other.conv === turn.conv && other.session === null;
    for (const other of this.all.filter(behind)) this.#put(other, { ...other, session });
    const now = this.find(id);
    return now.session === session ? now : this.#put(now, { ...now, session });
  }

  moved(from, to) {
    const there = (turn) => turn.session === from;
    for (const turn of this.all.filter(there)) this.#put(turn, { ...turn, session: to });
  }

  /** @returns {boolean} whether events are missing, so that a snapshot must be asked for */
  event(payload) {
    const was = this.find(payload.turn_id) ?? this.#foreign(payload);
    const { turn, gap } = applyEvent(was, payload);
    if (turn !== was) this.#put(was, turn, was.status !== turn.status || was.session !== turn.session);
    return gap;
  }

  snapshot(payload) {
    const was = this.find(payload.turn_id) ?? this.#foreign(payload);
    this.#put(was, applySnapshot(was, payload));
  }

  /** Just now, or (`tools`) again for what a snapshot has put together anew. */
  asked(ask, tools = null) {
    const turn = ask && this.find(ask.turn);
    const now = turn && applyAsk(turn, ask, tools);
    if (now !== turn) this.#put(turn, now, false);
  }

  stopping(turn, stopping) {
    const now = this.find(turn.id);
    if (now) this.#put(now, { ...now, stopping }, false);
  }

  /** The link is lost: what ends before it is back was not seen whole. */
  lost() {
    this.all = this.all.map((turn) => (isLive(turn) ? { ...turn, whole: false, stopping: false } : turn));
  }

  /** @returns {{turn, whole}} whole: this page has shown all of it */
  end(type, payload) {
    const was = this.find(payload.turn_id);
    if (!was) return { turn: null, whole: false };
    const turn = this.#put(was, applyEnd(was, type, payload));
    this.#advance(turn);
    if (turn.status === "completed") this.#overtake(turn);
    return { turn, whole: was.whole };
  }

  remove(turn) {
    this.all = this.all.filter((other) => other !== turn);
    if (turn.key) this.shelf.remove(PREFIX + turn.key);
  }

  /** Keep only those of a conversation that `wanted` has. */
  prune(conv, wanted) {
    for (const turn of this.of(conv)) if (!wanted.includes(turn)) this.remove(turn);
  }

  #own(key) {
    return this.all.find((turn) => turn.key === key);
  }

  #foreign(payload) {
    const turn = newTurn({ id: payload.turn_id, session: payload.session_id ?? null });
    this.all = [...this.all, turn];
    return turn;
  }

  /** One turn at a time: when one ends, those behind it move up. */
  #advance(ended) {
    const behind = (turn) => turn.status === "queued" && turn.session === ended.session && turn.position > 0;
    this.all = this.all.map((turn) => (behind(turn) ? { ...turn, position: turn.position - 1 } : turn));
  }

  /** Failures before a turn that went well are history. */
  #overtake(done) {
    const before = this.all.slice(0, this.all.indexOf(done));
    const past = (turn) => isFailed(turn) && !turn.past && (turn.conv === done.conv || turn.session === done.session);
    for (const turn of before.filter(past)) this.#put(turn, { ...turn, past: true });
  }

  #put(was, is, keep = true) {
    this.all = this.all.map((turn) => (turn === was ? is : turn));
    if (keep) this.#keep(is);
    return is;
  }

  /** Each under its own name, so that windows do not overwrite each other's. */
  #keep(turn) {
    if (!turn.key) return;
    const kept = Object.fromEntries(KEPT_FIELDS.map((field) => [field, turn[field]]));
    if (isLive(turn) || (isFailed(turn) && !turn.past)) this.shelf.set(PREFIX + turn.key, kept);
    else this.shelf.remove(PREFIX + turn.key);
  }
}
