// What the page knows and can do. Views read `state` and call methods; whatever changes ends in `changed()`.
import { uuid } from "./ids.js";
import { Mailbox } from "./mailbox.js";
import { device, deviceId, tab } from "./store.js";
import { afterHistory, exchanges, transcript } from "./transcript.js";
import { TurnList } from "./turnlist.js";
import { isLive } from "./turns.js";
import { Refused, Wire } from "./wire.js";

const PAGE = 60; // rows of history at a time
const SUPPORTS = { delivery: 1, turns: 1, typed_stream_events: true, event_schema_version: 1 };
const REFETCH_MS = 300; // ends that arrive together are one reason to read the history again

export class Client {
  #refetch;

  constructor({ url, instance, changed }) {
    this.changed = changed;
    this.instance = instance;
    this.turns = new TurnList(device);
    this.link = { name: "idle" };
    this.hello = null; // the last auth.ok
    this.synced = false;
    this.code = null; // a pairing code that came with the address and was not used yet
    this.offer = null; // {code, name} while pairing
    this.refusal = null; // why this page has to be paired (again)
    this.news = null; // a line to show once
    this.conv = tab.get("conv") ?? device.get("conv") ?? blank();
    this.history = nothingRead();
    this.sessions = { items: [], more: false, loading: false, error: null };
    this.wire = new Wire({
      url,
      mailbox: new Mailbox(device),
      auth: () => this.#auth(),
      frame: (frame) => this.#frame(frame),
      phase: (phase) => this.#phase(phase),
    });
    // Another window paired this browser, or forgot it.
    addEventListener("storage", (event) => event.key === "talaria.token" && this.#tokenChanged());
  }

  get paired() {
    return Boolean(device.get("token"));
  }

  /** What the conversation shows, in order. */
  get items() {
    return transcript(this.history.list, this.turns.of(this.conv));
  }

  /** The turn that runs in this conversation now, if any. */
  get running() {
    return this.turns.of(this.conv).find((turn) => turn.status === "running" && turn.id) ?? null;
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
    const failedBefore = this.turns.of(this.conv).filter((turn) => turn.status === "failed" && !turn.id);
    for (const turn of failedBefore.filter((turn) => turn.said === text)) this.turns.remove(turn);
    this.conv.title ??= text.split("\n", 1)[0].slice(0, 80);
    this.#keepConv();
    this.#send(this.turns.say(text, this.conv));
    this.changed();
  }

  /** Say the same again as a new turn: the failed one makes room for it. */
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

  reconnect() {
    this.wire.start();
  }

  begin() {
    this.#open(blank());
  }

  open(session) {
    if (session.id !== this.conv.session) this.#open({ id: uuid(), session: session.id, title: session.title });
  }

  async earlier() {
    const { offset } = this.history;
    await this.#read({ offset: Math.max(0, offset - PAGE), limit: Math.min(PAGE, offset) });
  }

  async list({ more = false } = {}) {
    if (!this.wire.open) return;
    const was = this.sessions;
    this.sessions = { ...was, loading: true, error: null };
    this.changed();
    try {
      const page = { limit: 50, offset: more ? was.items.length : 0 };
      const { payload } = await this.wire.request("chat", "chat.sessions.list", page);
      const items = (payload.sessions ?? []).map(listed);
      this.sessions = { items: more ? [...was.items, ...items] : items, more: Boolean(payload.has_more) };
    } catch (error) {
      this.sessions = { ...was, loading: false, error };
    }
    this.changed();
  }

  /** A line of news was shown. */
  heard() {
    this.news = null;
    this.changed();
  }

  /** Ask again for what could not be read. */
  reread() {
    this.#read();
  }

  // the link

  #auth() {
    const about = { supports: SUPPORTS, instance: this.instance, device_id: deviceId(), client_surface: "web" };
    if (this.offer) {
      const { code, name } = this.offer;
      return { ...about, pairing_code: code, device_name: name, device_form_factor: formFactor() };
    }
    const token = device.get("token");
    return token ? { ...about, session_token: token } : null;
  }

  #phase(phase) {
    this.link = phase;
    if (phase.name === "open") this.#opened(phase.hello);
    else this.synced = false;
    if (phase.name === "stopped" && phase.then === "pair") {
      if (!this.offer) device.remove("token");
      this.refusal = phase.text;
      this.offer = null;
    } else if (phase.name === "stopped" && this.offer) {
      this.refusal = phase.text;
      this.offer = null;
    }
    this.changed();
  }

  #opened(hello) {
    if (this.offer) this.news = granted(hello.grants);
    this.code = this.offer = this.refusal = null;
    this.hello = hello;
    if (hello.session_token) device.set("token", hello.session_token);
    for (const turn of this.turns.unsent()) this.#send(turn);
    for (const { turn_id, session_id } of hello.turns ?? []) this.turns.placed(turn_id, session_id);
    this.#watch();
    this.list();
  }

  #tokenChanged() {
    if (this.paired && !this.wire.open) this.wire.start();
    if (!this.paired) this.wire.stop();
    this.changed();
  }

  #send(turn) {
    const payload = { message: turn.said, client_msg_id: turn.key };
    const session = turn.session ?? (turn.conv === this.conv.id ? this.conv.session : null);
    if (session !== null) payload.session_id = session;
    // The frame's id is the key, so that a refusal names the turn.
    this.wire.send("chat", "chat.send", payload, turn.key);
  }

  #watch() {
    if (this.conv.session !== null) this.wire.send("chat", "chat.watch", { session_id: this.conv.session });
  }

  // what the relay says

  #frame({ type, payload = {} }) {
    switch (type) {
      case "chat.accepted":
        this.turns.accepted(payload);
        this.#settleConv(payload.client_msg_id, payload.session_id);
        break;
      case "chat.session":
        this.#placed(payload);
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
        this.#moved(payload);
        break;
      case "synced":
        this.#caughtUp();
        break;
      case "reset":
        this.#readSoon();
        break;
      case "error":
        if (!this.turns.refused(payload.ref, payload) && payload.code !== "unknown_type") return;
        break;
      default:
        return; // of a newer relay
    }
    this.changed();
  }

  #placed({ turn_id, session_id, title }) {
    const turn = this.turns.placed(turn_id, session_id);
    if (turn) this.#settleConv(turn.key, session_id);
    if (this.conv.session === session_id && title && !this.conv.title) this.conv.title = title;
    this.list();
  }

  /** A new conversation has got its session. */
  #settleConv(key, session) {
    const turn = this.turns.all.find((each) => each.key === key);
    if (!session || !turn || turn.conv !== this.conv.id || this.conv.session !== null) return;
    this.conv = { ...this.conv, session };
    this.history = { ...this.history, read: true };
    this.#keepConv();
    this.#watch();
  }

  #ended(type, payload) {
    const { turn, seen } = this.turns.end(type, payload);
    const here = payload.session_id && payload.session_id === this.conv.session;
    // Not watched while it ran, or cut to fit the mailbox: the history has all of it.
    if (here && (!turn || !seen || payload.truncated)) this.#readSoon();
    if (turn && !here && turn.conv !== this.conv.id) this.turns.remove(turn);
    if (turn?.status === "completed") this.list();
  }

  #moved({ from, to }) {
    this.turns.moved(from, to);
    if (this.conv.session !== from) return;
    this.conv = { ...this.conv, session: to };
    this.#keepConv();
    this.#watch();
  }

  /** All ends that were missed have been handled: the history, read now, agrees with them. */
  #caughtUp() {
    this.synced = true;
    const known = new Set((this.hello.turns ?? []).map((turn) => turn.turn_id));
    const lost = this.turns.all.filter((turn) => isLive(turn) && turn.id && !known.has(turn.id));
    for (const turn of lost) this.wire.send("chat", "chat.watch", { turn_id: turn.id });
    if (!this.history.read) this.#read();
  }

  // the conversation

  #open(conv) {
    if (this.conv.session !== null) this.wire.send("chat", "chat.unwatch", { session_id: this.conv.session });
    this.turns.prune(this.conv, this.turns.of(this.conv).filter((turn) => turn.key || isLive(turn)));
    this.conv = conv;
    this.history = nothingRead();
    this.#keepConv();
    this.#watch();
    if (this.synced) this.#read();
    this.changed();
  }

  #keepConv() {
    tab.set("conv", this.conv);
    device.set("conv", this.conv);
  }

  #readSoon() {
    clearTimeout(this.#refetch);
    this.#refetch = setTimeout(() => this.#read(), REFETCH_MS);
  }

  async #read(page = { limit: PAGE }) {
    const { conv } = this;
    if (conv.session === null) return;
    const liveThen = new Set(this.turns.of(conv).filter(isLive).map((turn) => turn.id ?? turn.key));
    this.history = { ...this.history, loading: true, error: null };
    this.changed();
    try {
      const asked = { session_id: conv.session, ...page };
      const { payload } = await this.wire.request("chat", "chat.sessions.messages", asked);
      if (this.conv.id === conv.id) this.#took(payload, page, liveThen);
    } catch (error) {
      if (this.conv.id !== conv.id) return;
      const failure = error instanceof Refused && error.code !== "offline" ? error : null;
      this.history = { ...this.history, loading: false, error: failure };
    }
    this.changed();
  }

  #took(payload, page, liveThen) {
    const older = page.offset !== undefined;
    const rows = older ? [...payload.messages, ...this.history.rows] : payload.messages;
    this.history = { rows, list: exchanges(rows), offset: payload.offset ?? 0, read: true, loading: false, error: null };
    if (!older) this.turns.prune(this.conv, afterHistory(this.turns.of(this.conv), liveThen));
  }
}

function nothingRead() {
  return { rows: [], list: [], offset: 0, read: false, loading: false, error: null };
}

/** A conversation without a session gets one with its first turn. */
function blank() {
  return { id: uuid(), session: null, title: null };
}

function listed(session) {
  const id = session.id ?? session.session_id;
  const title = session.title || session.preview || "Conversation";
  return { id, title, at: session.last_active ?? session.started_at ?? null, source: session.source };
}

function formFactor() {
  return matchMedia("(pointer: coarse)").matches ? (Math.min(screen.width, screen.height) < 600 ? "phone" : "tablet") : "desktop";
}

/** What the operator's offer gave, in one sentence. */
function granted(grants) {
  const names = Object.keys(grants ?? {});
  return names.length ? `Paired. This device may use: ${names.join(", ")}.` : "Paired.";
}
