// What the page knows and can do. Views read it and call its methods; whatever changes ends in `changed()`.
import { AskList } from "./asklist.js";
import { Conversation } from "./conversation.js";
import { deviceId, formFactor } from "./device.js";
import { Hearing } from "./hearing.js";
import { AWAY, OTHER, recognise, UNABLE } from "./identity.js";
import { Inbox, wholeText } from "./inbox.js";
import { Mailbox } from "./mailbox.js";
import { Outgoing } from "./outgoing.js";
import { Sessions } from "./sessions.js";
import { device } from "./store.js";
import { TurnList } from "./turnlist.js";
import { Wire } from "./wire.js";

const SUPPORTS = { delivery: 1, turns: 1, typed_stream_events: true, event_schema_version: 1 };
const UNRECOGNISED = {
  [OTHER]: "This is not the relay that made the code. Nothing was sent to it: scan a new code from your own relay.",
  [AWAY]: "The relay cannot be reached; try again.",
};

export class Client {
  #token; // what this link was opened with

  constructor({ url, instance, changed }) {
    this.changed = changed;
    this.instance = instance;
    this.link = { name: "idle" };
    this.hello = null; // the last auth.ok
    this.code = null; // a pairing code that came with the address and was not used yet
    this.fingerprint = null; // of the relay that made that code
    this.checking = false; // whether this is that relay
    this.offer = null; // {code, name} while pairing
    this.refusal = null; // why this page has to be paired (again)
    this.news = null; // a line to show once
    this.turns = new TurnList(device);
    this.inbox = new Inbox({ shelf: device, fetchWhole: (id) => wholeText(id, device.get("token")), changed });
    this.wire = new Wire({
      url,
      mailbox: new Mailbox(device),
      auth: () => this.#auth(),
      frame: (frame) => this.hearing.frame(frame),
      phase: (phase) => this.#phase(phase),
    });
    this.talk = new Conversation({ wire: this.wire, turns: this.turns, changed });
    this.sessions = new Sessions({ wire: this.wire, changed });
    this.asks = new AskList({ shelf: device, wire: this.wire, changed });
    this.outgoing = new Outgoing({ wire: this.wire, turns: this.turns });
    this.hearing = new Hearing(this);
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

  async pair(code, name) {
    this.checking = true;
    this.refusal = null;
    this.changed();
    const found = await recognise(this.fingerprint);
    this.checking = false;
    if (found === OTHER || found === AWAY) {
      this.refusal = UNRECOGNISED[found];
    } else {
      this.offer = { code, name, unchecked: found === UNABLE };
      this.wire.start();
    }
    this.changed();
  }

  /** Stay with the pairing there is. */
  keepPairing() {
    this.code = this.fingerprint = this.offer = this.refusal = null;
    this.changed();
  }

  say(text) {
    this.news = null;
    this.talk.named(text.split("\n", 1)[0].slice(0, 80));
    this.turns.say(text, this.talk.conv);
    this.outgoing.flush();
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
    this.turns.stopping(turn, true);
    this.changed();
    try {
      const { payload } = await this.wire.request("chat", "chat.stop", { turn_id: turn.id });
      if (!payload.stopped) this.#notStopped(turn, payload.reason ?? "this turn cannot be stopped");
    } catch (error) {
      this.#notStopped(turn, error.message);
    }
  }

  #notStopped(turn, why) {
    this.turns.stopping(turn, false);
    this.news = `Not stopped: ${why}${/[.!?]$/.test(why) ? "" : "."}`;
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

  /** Begin a conversation under a name. Rejects with Refused, as the next ones do. */
  async create(title) {
    this.open(await this.sessions.create(title));
  }

  async fork(session) {
    this.open(await this.sessions.fork(session));
  }

  async rename(session, title) {
    await this.sessions.rename(session, title);
    this.talk.titled(session.id, title);
    this.changed();
  }

  async delete(session) {
    await this.sessions.delete(session);
    this.hearing.deleted(session.id);
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
    const refresh = device.get("refresh"); // begins the session again when it has expired
    return this.#token ? { ...about, session_token: this.#token, ...(refresh && { refresh_token: refresh }) } : null;
  }

  #phase(phase) {
    this.link = phase;
    if (phase.name === "open") this.#opened(phase.hello);
    else this.turns.lost();
    if (phase.name === "stopped" && (this.offer || phase.then === "pair")) {
      if (!this.offer && device.get("token") !== this.#token) return this.wire.start(); // another window has a new one
      if (!this.offer) for (const name of ["token", "refresh"]) device.remove(name);
      this.refusal = phase.text;
      this.offer = null;
    }
    this.changed();
  }

  #opened(hello) {
    if (this.offer) this.news = granted(hello.grants, this.offer.unchecked);
    this.code = this.fingerprint = this.offer = this.refusal = null;
    this.hello = hello;
    this.#token = hello.session_token ?? this.#token;
    device.set("token", this.#token);
    if (hello.refresh_token) device.set("refresh", hello.refresh_token);
    this.outgoing.opened(hello.limits);
    this.hearing.opened(hello);
    this.outgoing.flush();
    this.talk.watch();
    this.sessions.list();
  }

  #tokenChanged() {
    if (this.paired && !this.wire.open) this.wire.start();
    if (!this.paired) this.wire.stop();
    this.changed();
  }
}

/** What the operator's offer gave, in one sentence. */
function granted(grants, unchecked) {
  const names = Object.keys(grants ?? {});
  const may = names.length ? ` This device may use: ${names.join(", ")}.` : "";
  return `Paired.${may}${unchecked ? " This browser could not check that it is the relay that made the code." : ""}`;
}
