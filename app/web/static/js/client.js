// What the page knows and can do. Views read it and call its methods; whatever changes ends in `changed()`.
import { Conversation } from "./conversation.js";
import { deviceId, formFactor } from "./device.js";
import { Inbox, wholeText } from "./inbox.js";
import { Mailbox } from "./mailbox.js";
import { device } from "./store.js";
import { TurnList } from "./turnlist.js";
import { isFailed, isLive } from "./turns.js";
import { Wire } from "./wire.js";

const SUPPORTS = { delivery: 1, turns: 1, typed_stream_events: true, event_schema_version: 1 };
const LISTED = 50; // sessions at a time
const ENVELOPE = 1024; // bytes of a frame that are not the message
const AGAIN_MS = 2000;
// Refusals that say nothing about the message: it is sent again, with the same key.
const LATER = new Set(["still_pending", "draining"]);
const TOO_LONG = { code: "message_too_long", layer: "device", message: "This message is too long to be sent." };
const FORGOTTEN = { code: "turn_unknown", layer: "relay", message: "The relay does not know this turn any more." };

export class Client {
  #sent = new Set(); // keys that went out on this link
  #token; // what this link was opened with

  constructor({ url, instance, changed }) {
    this.changed = changed;
    this.instance = instance;
    this.link = { name: "idle" };
    this.hello = null; // the last auth.ok
    this.code = null; // a pairing code that came with the address and was not used yet
    this.offer = null; // {code, name} while pairing
    this.refusal = null; // why this page has to be paired (again)
    this.news = null; // a line to show once
    this.sessions = { items: [], more: false, loading: false, error: null };
    this.turns = new TurnList(device);
    this.inbox = new Inbox({ shelf: device, fetchWhole: (id) => wholeText(id, device.get("token")), changed });
    this.wire = new Wire({
      url,
      mailbox: new Mailbox(device),
      auth: () => this.#auth(),
      frame: (frame) => this.#frame(frame),
      phase: (phase) => this.#phase(phase),
    });
    this.talk = new Conversation({ wire: this.wire, turns: this.turns, changed });
    // Another window paired this browser, or forgot it.
    addEventListener("storage", (event) => event.key === "talaria.token" && this.#tokenChanged());
  }

  get paired() {
    return Boolean(device.get("token"));
  }

  // what the owner does

  start() {
    if (this.paired) this.wire.start();
  }

  pair(code, name) {
    this.offer = { code, name };
    this.refusal = null;
    this.wire.start();
  }

  /** Stay with the pairing there is. */
  keepPairing() {
    this.code = this.offer = this.refusal = null;
    this.changed();
  }

  say(text) {
    this.news = null;
    this.talk.named(text.split("\n", 1)[0].slice(0, 80));
    this.turns.say(text, this.talk.conv);
    this.#flush();
    this.changed();
  }

  /** Say the same again as a new turn, which takes the place of the failed one. */
  retry(turn) {
    this.turns.remove(turn);
    this.say(turn.said);
  }

  dismiss(turn) {
    this.turns.remove(turn);
    this.changed();
  }

  async stop(turn) {
    try {
      const { payload } = await this.wire.request("chat", "chat.stop", { turn_id: turn.id });
      if (!payload.stopped) this.news = payload.reason ?? "This turn cannot be stopped.";
    } catch (error) {
      this.news = error.message;
    }
    this.changed();
  }

  begin() {
    this.inbox.close();
    this.talk.open(null);
    this.changed();
  }

  open(listed) {
    this.inbox.close();
    if (listed.id !== this.talk.session) this.talk.open(listed);
    this.changed();
  }

  reconnect() {
    this.wire.start();
  }

  async list({ more = false } = {}) {
    if (!this.wire.open) return;
    const was = this.sessions;
    this.sessions = { ...was, loading: true, error: null };
    try {
      const page = { limit: LISTED, offset: more ? was.items.length : 0 };
      const { payload } = await this.wire.request("chat", "chat.sessions.list", page);
      const items = (payload.sessions ?? []).map(listed);
      this.sessions = { items: more ? [...was.items, ...items] : items, more: Boolean(payload.has_more) };
    } catch (error) {
      this.sessions = { ...was, loading: false, error: error.code === "offline" ? null : error };
    }
    this.changed();
  }

  /** The line of news was read. */
  heard() {
    this.news = null;
    this.changed();
  }

  // the link

  #auth() {
    const about = { supports: SUPPORTS, instance: this.instance, device_id: deviceId(), client_surface: "web" };
    if (this.offer) {
      const { code, name } = this.offer;
      return { ...about, pairing_code: code, device_name: name, device_form_factor: formFactor() };
    }
    this.#token = device.get("token");
    return this.#token ? { ...about, session_token: this.#token } : null;
  }

  #phase(phase) {
    this.link = phase;
    if (phase.name === "open") this.#opened(phase.hello);
    else this.turns.lost();
    if (phase.name === "stopped" && (this.offer || phase.then === "pair")) {
      if (!this.offer && device.get("token") !== this.#token) return this.wire.start(); // another window has a new one
      if (!this.offer) device.remove("token");
      this.refusal = phase.text;
      this.offer = null;
    }
    this.changed();
  }

  #opened(hello) {
    if (this.offer) this.news = granted(hello.grants);
    this.code = this.offer = this.refusal = null;
    this.hello = hello;
    this.#token = hello.session_token ?? this.#token;
    device.set("token", this.#token);
    this.#sent.clear();
    for (const { turn_id, session_id } of hello.turns ?? []) this.#placed(turn_id, session_id);
    this.#flush();
    this.talk.watch();
    this.list();
  }

  #tokenChanged() {
    if (this.paired && !this.wire.open) this.wire.start();
    if (!this.paired) this.wire.stop();
    this.changed();
  }

  #flush() {
    for (const turn of this.turns.unsent()) if (!this.#sent.has(turn.key)) this.#send(turn);
  }

  #send(turn) {
    const payload = { message: turn.said, client_msg_id: turn.key };
    if (turn.session !== null) payload.session_id = turn.session;
    const most = this.hello?.limits?.frame_bytes ?? Infinity;
    if (new Blob([turn.said]).size * 2 + ENVELOPE > most) this.turns.refused(turn.key, TOO_LONG);
    // The frame's id is the key, so that a refusal names the turn.
    else if (this.wire.send("chat", "chat.send", payload, turn.key)) this.#sent.add(turn.key);
  }

  // what the relay says

  /** @returns {boolean | undefined} false: it has to come again, since it could not be stored */
  #frame({ channel, type, payload = {} }) {
    if (channel === "messages") return type === "message" ? this.inbox.take(payload) : undefined;
    switch (type) {
      case "chat.accepted":
        this.talk.placed(this.turns.accepted(payload), payload.session_id);
        break;
      case "chat.session":
        this.#placed(payload.turn_id, payload.session_id);
        this.list();
        break;
      case "stream.event":
        if (this.turns.event(payload)) this.wire.send("chat", "chat.watch", { turn_id: payload.turn_id });
        break;
      case "turn.snapshot":
        this.turns.snapshot(payload);
        break;
      case "turn.completed":
      case "turn.failed":
        this.#ended(type, payload);
        break;
      case "chat.session.moved":
        this.turns.moved(payload.from, payload.to);
        this.talk.moved(payload.from, payload.to);
        break;
      case "synced":
        this.#caughtUp();
        break;
      case "reset":
        this.talk.readSoon();
        break;
      case "error":
        this.#refused(payload.ref, payload);
        break;
      default:
        return; // of a newer relay
    }
    this.changed();
  }

  #refused(key, error) {
    if (!LATER.has(error.code)) {
      this.turns.refused(key, error);
    } else if (this.#sent.delete(key)) {
      setTimeout(() => this.#flush(), AGAIN_MS);
    }
  }

  #placed(turnId, session) {
    this.talk.placed(this.turns.placed(turnId, session), session);
    this.#flush(); // what was said after it waited for the session
  }

  #ended(type, payload) {
    const { turn, whole } = this.turns.end(type, payload);
    this.talk.placed(turn, payload.session_id);
    const here = payload.session_id && payload.session_id === this.talk.session;
    // Not watched while it ran, or cut to fit the mailbox: the history has all of it.
    if (here && (!turn || !whole || payload.truncated)) this.talk.readSoon();
    if (turn && !isFailed(turn) && !this.turns.of(this.talk.conv).includes(turn)) this.turns.remove(turn);
    this.#flush();
    if (turn) this.list();
  }

  /** All ends that were missed have been handled: the history, read now, agrees with them. */
  #caughtUp() {
    const running = new Set((this.hello.turns ?? []).map((turn) => turn.turn_id));
    const lost = this.turns.all.filter((turn) => isLive(turn) && turn.id && !running.has(turn.id));
    for (const turn of lost) this.#findOut(turn);
    if (!this.talk.history.read) this.talk.read();
  }

  /** What became of a turn that neither runs nor ended in the mailbox. */
  async #findOut(turn) {
    try {
      this.#frame(await this.wire.request("chat", "chat.watch", { turn_id: turn.id }));
    } catch (error) {
      if (error.retryable) return; // the next link asks again
      this.#ended("turn.failed", { turn_id: turn.id, session_id: turn.session, finish: "uncertain", error: FORGOTTEN });
      this.changed();
    }
  }
}

function listed(session) {
  const id = session.id ?? session.session_id;
  const title = session.title || session.preview || "Conversation";
  return { id, title, at: session.last_active ?? session.started_at ?? null };
}

/** What the operator's offer gave, in one sentence. */
function granted(grants) {
  const names = Object.keys(grants ?? {});
  return names.length ? `Paired. This device may use: ${names.join(", ")}.` : "Paired.";
}
