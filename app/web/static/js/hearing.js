// What the relay says of conversations, handed to those whose part it is.
import { isFailed, isLive } from "./turns.js";

const FORGOTTEN = { code: "turn_unknown", layer: "relay", message: "The relay does not know this turn any more." };

export class Hearing {
  /** @param client its parts, `hello` and `changed`; `news` is set */
  constructor(client) {
    this.client = client;
  }

  opened(hello) {
    this.client.asks.opened(hello);
    for (const { turn_id, session_id } of hello.turns ?? []) this.#placed(turn_id, session_id);
  }

  /** @returns {boolean | undefined} false: it has to come again, since it could not be stored */
  frame({ channel, type, payload = {} }) {
    const { asks, changed, inbox, outgoing, talk, turns, wire } = this.client;
    // What another device of the owner has said is no news to its owner.
    if (channel === "messages") return type === "message" && payload.source !== "device" ? inbox.take(payload) : undefined;
    switch (type) {
      case "chat.accepted":
        talk.placed(turns.accepted(payload), payload.session_id);
        break;
      case "chat.session":
        this.#session(payload);
        break;
      case "chat.session.moved":
        this.#moved(payload);
        break;
      case "stream.event":
        if (turns.event(payload)) wire.send("chat", "chat.watch", { turn_id: payload.turn_id });
        break;
      case "turn.snapshot":
        this.#snapshot(payload);
        break;
      case "turn.completed":
      case "turn.failed":
        this.#ended(type, payload);
        break;
      case "approval.request":
      case "question.ask":
        turns.asked(asks.take(payload, turns.find(payload.turn_id)));
        break;
      case "approval.resolved":
      case "question.closed":
        asks.closed(payload);
        break;
      case "synced":
        this.#caughtUp();
        break;
      case "reset":
        talk.readSoon();
        break;
      case "upstream":
        this.client.hello = { ...this.client.hello, upstream: payload };
        break;
      case "error":
        outgoing.refused(payload.ref, payload);
        break;
      default:
        return; // of a newer relay
    }
    changed();
  }

  /** A conversation was deleted, here or elsewhere. */
  deleted(id) {
    const { asks, sessions, talk } = this.client;
    sessions.removed(id);
    asks.forget(id);
    if (talk.session !== id) return;
    talk.open(null);
    this.client.news = "The conversation was deleted.";
  }

  /** A conversation is new, has another name, or is gone. */
  #session({ turn_id: turnId, session_id: id, title, deleted }) {
    const { sessions, talk } = this.client;
    if (deleted) return this.deleted(id);
    if (turnId) this.#placed(turnId, id);
    if (title) talk.titled(id, title);
    if (title && sessions.find(id)) sessions.renamed(id, title);
    else sessions.list();
  }

  #moved({ from, to }) {
    for (const part of ["turns", "talk", "sessions", "asks"]) this.client[part].moved(from, to);
  }

  #snapshot(payload) {
    const { asks, turns } = this.client;
    const { turn_id, session_id, state } = payload;
    turns.snapshot(payload);
    for (const asked of state?.approvals ?? []) asks.take({ turn_id, session_id, ...asked });
    for (const ask of asks.ofTurn(turn_id)) turns.asked(ask, ask.after);
  }

  #placed(turnId, session) {
    const { outgoing, talk, turns } = this.client;
    talk.placed(turns.placed(turnId, session), session);
    outgoing.flush(); // what was said after it waited for the session
  }

  #ended(type, payload) {
    const { asks, outgoing, sessions, talk, turns } = this.client;
    const { turn, whole } = turns.end(type, payload);
    asks.ended(payload.turn_id);
    talk.placed(turn, payload.session_id);
    const here = payload.session_id && payload.session_id === talk.session;
    // Not watched while it ran, or cut to fit the mailbox: the history has all of it.
    if (here && (!turn || !whole || payload.truncated)) talk.readSoon();
    if (turn && !isFailed(turn) && !turns.of(talk.conv).includes(turn)) turns.remove(turn);
    outgoing.flush();
    if (turn) sessions.list();
  }

  /** All ends that were missed have been handled: the history, read now, agrees with them. */
  #caughtUp() {
    const { asks, hello, talk, turns } = this.client;
    asks.caughtUp();
    const running = new Set((hello.turns ?? []).map((turn) => turn.turn_id));
    const lost = turns.all.filter((turn) => isLive(turn) && turn.id && !running.has(turn.id));
    for (const turn of lost) this.#findOut(turn);
    if (!talk.history.read) talk.read();
  }

  /** What became of a turn that neither runs nor ended in the mailbox. */
  async #findOut(turn) {
    try {
      this.frame(await this.client.wire.request("chat", "chat.watch", { turn_id: turn.id }));
    } catch (error) {
      if (error.retryable) return; // the next link asks again
      this.#ended("turn.failed", { turn_id: turn.id, session_id: turn.session, finish: "uncertain", error: FORGOTTEN });
      this.client.changed();
    }
  }
}
