// The approvals and questions this page knows. Kept in the browser, so that a page that was away can still say what
// became of them.
import { answering, applyEnd, applyGone, applyRefusal, applyRequest, applySending, idOf, isOpen, isOutside } from "./asks.js";
import { uuid } from "./ids.js";

const PREFIX = "ask.";
const MOST = 40; // the oldest go first

export class AskList {
  /** @param parts shelf: shared by all windows; wire; changed: () → void; now: () → ms */
  constructor({ shelf, wire, changed, now = Date.now }) {
    Object.assign(this, { shelf, wire, changed, now });
    const kept = shelf.names(PREFIX).map((name) => shelf.get(name)).filter(Boolean);
    this.all = kept.map((ask) => ({ ...ask, sending: null, error: null })).sort(byTime);
    this.isCurrent = false; // what was missed has been heard
  }

  get open() {
    return this.all.filter(isOpen);
  }

  /** Open ones that belong to no conversation. */
  get outside() {
    return this.open.filter(isOutside);
  }

  find(id) {
    return this.all.find((ask) => ask.id === id);
  }

  ofTurn(id) {
    return id ? this.all.filter((ask) => ask.asked && ask.turn === id) : [];
  }

  ofSession(id) {
    return id ? this.all.filter((ask) => ask.asked && ask.session === id) : [];
  }

  /** Whether the owner can answer something there. */
  isAskedIn(session) {
    return this.ofSession(session).some((ask) => isOpen(ask) && !ask.isWaiting);
  }

  /** `auth.ok` lists all that are open: those that it lacks are not. */
  opened({ approvals = [], questions = [] }) {
    this.isCurrent = false;
    const listed = [...approvals, ...questions];
    const ids = new Set(listed.map(idOf));
    for (const ask of this.open) if (!ids.has(ask.id)) this.#put(applyGone(ask));
    for (const payload of listed) this.take(payload);
    // There is a link again; only of an answer that may have arrived there is still something to say.
    for (const ask of this.open) if (ask.error && !ask.unsure) this.#put({ ...ask, error: null });
  }

  caughtUp() {
    this.isCurrent = true;
  }

  /** @param turn the one that asks, if this page knows it */
  take(payload, turn = null) {
    if (!idOf(payload)) return null;
    const was = this.find(idOf(payload));
    const ask = applyRequest(was, payload, this.isCurrent && !payload.reminder ? this.now() / 1000 : null);
    const placed = was?.asked ? {} : { after: turn ? turn.parts.filter((part) => part.kind === "tool").length : null };
    return this.#put({ ...ask, ...placed, said: ask.said ?? turn?.said ?? null });
  }

  closed(payload) {
    if (idOf(payload)) this.#put(applyEnd(this.find(idOf(payload)), payload));
  }

  /** Its turn has ended, and nothing that it asked is asked any more. */
  ended(turnId) {
    for (const ask of this.ofTurn(turnId)) if (isOpen(ask)) this.#put(applyGone(ask));
  }

  /** Answer it. Once: while an answer is on its way, and after the end, this does nothing. */
  async answer(id, answer) {
    const ask = this.find(id);
    if (!isOpen(ask) || ask.isWaiting || ask.sending !== null) return;
    const { type, payload } = answering(ask, answer);
    const frameId = ask.unsure?.answer === answer ? ask.unsure.id : uuid();
    this.#put(applySending(ask, answer));
    this.changed();
    try {
      const said = await this.wire.request("chat", type, payload, frameId);
      this.closed(said.payload);
    } catch (error) {
      this.#put(applyRefusal(this.find(id), error, frameId));
    }
    this.changed();
  }

  moved(from, to) {
    for (const ask of this.ofSession(from)) this.#put({ ...ask, session: to });
  }

  forget(session) {
    for (const ask of this.ofSession(session)) this.#remove(ask);
  }

  #put(ask) {
    this.all = [...this.all.filter((other) => other.id !== ask.id), ask].sort(byTime);
    if (ask.asked) this.shelf.set(PREFIX + ask.id, ask);
    for (const old of this.all.filter((other) => !isOpen(other)).slice(0, -MOST)) this.#remove(old);
    return ask;
  }

  #remove(ask) {
    this.all = this.all.filter((other) => other.id !== ask.id);
    this.shelf.remove(PREFIX + ask.id);
  }
}

const byTime = (one, other) => one.askedAt - other.askedAt;
