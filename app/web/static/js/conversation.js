// The conversation that is open: which it is, what the agent's history of it says, and so what is shown.
import { uuid } from "./ids.js";
import { device, tab } from "./store.js";
import { afterHistory, exchanges, transcript } from "./transcript.js";
import { isLive } from "./turns.js";
import { isOffline } from "./wire.js";

const PAGE = 60; // rows of history at a time
const REREAD_MS = 300; // ends that arrive together are one reason to read the history again

export class Conversation {
  #soon;

  /** @param parts wire, turns: TurnList, changed: () → void */
  constructor({ wire, turns, changed }) {
    Object.assign(this, { wire, turns, changed });
    // {id, session, title}. One that is new has no session before its first turn; turns of it know it by `id`.
    this.conv = tab.get("conv") ?? device.get("conv") ?? blank();
    this.history = unread();
  }

  get session() {
    return this.conv.session;
  }

  /** Exchanges and turns, in order. */
  get items() {
    return transcript(this.history.list, this.turns.of(this.conv));
  }

  get running() {
    return this.turns.of(this.conv).find((turn) => turn.status === "running" && turn.id) ?? null;
  }

  /** The turn that was last heard of. */
  get latest() {
    return this.turns.of(this.conv).findLast((turn) => turn.id) ?? null;
  }

  /** @param listed a session of the list; none: a new conversation */
  open(listed) {
    if (this.session !== null) this.wire.send("chat", "chat.unwatch", { session_id: this.session });
    this.turns.prune(this.conv, this.turns.of(this.conv).filter((turn) => turn.key || isLive(turn)));
    this.conv = listed ? { id: uuid(), session: listed.id, title: listed.title } : blank();
    this.history = unread();
    this.#keep();
    this.watch();
    this.read();
  }

  watch() {
    if (this.session !== null) this.wire.send("chat", "chat.watch", { session_id: this.session });
  }

  named(title) {
    if (this.conv.title) return;
    this.conv = { ...this.conv, title };
    this.#keep();
  }

  /** The conversation has another name. */
  titled(session, title) {
    if (this.session !== session || !title) return;
    this.conv = { ...this.conv, title };
    this.#keep();
  }

  /** The relay has found or made the session of the turn that began this conversation. */
  placed(turn, session) {
    if (!turn || !session || turn.conv !== this.conv.id || this.session !== null) return;
    this.conv = { ...this.conv, session };
    this.history = { ...this.history, read: true }; // there is no more of it than what is here
    this.#keep();
    this.watch();
  }

  /** Hermes compressed it into another session. */
  moved(from, to) {
    if (this.session !== from) return;
    this.conv = { ...this.conv, session: to };
    this.#keep();
    this.watch();
  }

  readSoon() {
    clearTimeout(this.#soon);
    this.#soon = setTimeout(() => this.read(), REREAD_MS);
  }

  async earlier() {
    const { offset } = this.history;
    await this.read({ offset: Math.max(0, offset - PAGE), limit: Math.min(PAGE, offset) });
  }

  async read(page = { limit: PAGE }) {
    const { conv } = this;
    if (conv.session === null || !this.wire.open) return;
    const liveThen = new Set(this.turns.of(conv).filter(isLive).map((turn) => turn.id ?? turn.key));
    this.history = { ...this.history, loading: true, error: null };
    this.changed();
    try {
      const asked = { session_id: conv.session, ...page };
      const { payload } = await this.wire.request("chat", "chat.sessions.messages", asked);
      if (this.conv.id === conv.id) this.#took(payload, page, liveThen);
    } catch (error) {
      if (this.conv.id !== conv.id) return;
      // When the link is lost, all is read again once it is back.
      this.history = { ...this.history, loading: false, error: isOffline(error) ? null : error };
    }
    this.changed();
  }

  #took(payload, page, liveThen) {
    const older = page.offset !== undefined;
    const rows = older ? [...payload.messages, ...this.history.rows] : payload.messages;
    this.history = { rows, list: exchanges(rows), offset: payload.offset ?? 0, read: true, loading: false, error: null };
    if (!older) this.turns.prune(this.conv, afterHistory(this.turns.of(this.conv), liveThen));
  }

  #keep() {
    tab.set("conv", this.conv);
    device.set("conv", this.conv);
  }
}

function blank() {
  return { id: uuid(), session: null, title: null };
}

function unread() {
  return { rows: [], list: [], offset: 0, read: false, loading: false, error: null };
}
