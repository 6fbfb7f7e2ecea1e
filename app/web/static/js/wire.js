// The socket: one link to the relay, kept alive and made again. Knows the protocol's `system` channel and nothing
// of conversations.
import { delay } from "./backoff.js";
import { meaning } from "./closing.js";
import { uuid } from "./ids.js";

const OPEN_MS = 15_000; // to connect and authenticate, on a bad mobile network
const PONG_MS = 20_000; // a relay may stall for 20 s and live
const PROBE_MS = 5_000; // after waking up the socket is more often dead than slow
const ACK_MS = 400; // acknowledgements gather this long; the relay allows a second
const STABLE_MS = 10_000; // a link that lived this long has earned a fresh start of the backoff
const REQUEST_MS = 30_000;

/**
 * An answer that did not come, or came as an error. `code`, `layer` and `retryable` as the relay says them; ours are
 * `unsent` (there was no link), `lost` (the link went before the answer) and `timeout`.
 */
export class Refused extends Error {
  constructor({ code, message, layer = "relay", retryable = false }) {
    super(message ?? code);
    Object.assign(this, { code, layer, retryable });
  }
}

/** Whether there is no link, rather than anything wrong with the request. */
export const isOffline = ({ code }) => code === "unsent" || code === "lost";

export class Wire {
  #socket = null;
  #timers = {};
  #attempt = 0;
  #floor = 0; // ms, what the relay asked us to wait
  #denied = null; // the code that `auth.fail` gave
  #waiting = new Map(); // id → {resolve, reject, timer}

  /**
   * @param {object} parts
   *   url; mailbox: Mailbox; auth: () → payload of `system/auth`, or null when there is nothing to say;
   *   frame: (frame) → false if it has to come again, for what is not ours; phase: ({name, …}) → void
   */
  constructor({ url, mailbox, auth, frame, phase }) {
    Object.assign(this, { url, mailbox, auth, frame, phase });
    this.name = "idle"; // idle, connecting, pending, open, waiting, stopped
    this.heartbeat = 30_000;
    addEventListener("online", () => this.wake());
    addEventListener("pageshow", (event) => event.persisted && this.wake());
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.wake());
    document.addEventListener("resume", () => this.wake()); // after the browser froze the page
  }

  /** Connect now, whatever was before. */
  start() {
    this.#attempt = 0;
    this.#floor = 0;
    this.#connect();
  }

  stop() {
    this.#drop();
    this.#become("idle");
  }

  /** The phone is awake or has a network again: do not wait for the timer, and doubt the old socket. */
  wake() {
    if (this.name === "waiting" && this.#floor === 0) this.start();
    else if (this.name === "open") this.#ping(PROBE_MS);
  }

  get open() {
    return this.name === "open";
  }

  /** @returns {boolean} false: there is no link; nothing is queued here */
  send(channel, type, payload, id = uuid()) {
    if (!this.open) return false;
    this.#socket.send(JSON.stringify({ channel, type, id, payload }));
    return true;
  }

  /** Resolves with the frame that answers. Rejects with Refused, also when the link is lost. */
  request(channel, type, payload, id = uuid()) {
    return new Promise((resolve, reject) => {
      if (!this.send(channel, type, payload, id)) {
        reject(new Refused({ code: "unsent", message: "There is no connection to the relay.", retryable: true }));
        return;
      }
      const late = { code: "timeout", message: "The relay did not answer in time.", retryable: true };
      const timer = setTimeout(() => this.#settle(id)?.reject(new Refused(late)), REQUEST_MS);
      this.#waiting.set(id, { resolve, reject, timer });
    });
  }

  #connect() {
    this.#drop();
    const payload = this.auth();
    if (!payload) return this.#become("idle");
    this.#denied = null;
    this.#become("connecting");
    const socket = (this.#socket = new WebSocket(this.url));
    // A socket that was given up may still speak: it is not listened to.
    const mine = (handle) => (event) => socket === this.#socket && handle(event);
    socket.onopen = mine(() => {
      const resume = this.mailbox.resume();
      const auth = { ...payload, ...(resume && { resume }) };
      socket.send(JSON.stringify({ channel: "system", type: "auth", id: uuid(), payload: auth }));
    });
    socket.onmessage = mine((event) => this.#received(event.data));
    socket.onclose = mine((event) => this.#closed(event.code, event.reason));
    this.#after("open", OPEN_MS, () => this.#closed(1006, ""));
  }

  #received(text) {
    let frame;
    try {
      frame = JSON.parse(text);
    } catch {
      return; // not a frame
    }
    clearTimeout(this.#timers.pong); // whatever arrives proves that the link lives
    this.#timers.pong = undefined;
    if (frame.channel === "system" && this.#system(frame.type, frame.payload ?? {}, frame)) return;
    if (typeof frame.seq === "number") this.#kept(frame);
    else this.#deliver(frame);
  }

  #deliver(frame) {
    const waiting = frame.id && this.#settle(frame.id);
    if (waiting) return waiting.resolve(frame);
    try {
      return this.frame(frame);
    } catch (error) {
      reportError(error); // a frame that we trip over must not come again and again
    }
  }

  /** A frame that must arrive: handled once and in order, then acknowledged. */
  #kept(frame) {
    const found = this.mailbox.look(frame.seq);
    if (found === "gap") {
      this.send("system", "sync", { after: this.mailbox.sure });
      return;
    }
    if (found === "new") {
      if (this.#deliver(frame) === false) this.mailbox.hold();
      this.mailbox.handled(frame.seq);
    }
    this.#ackSoon();
  }

  /** Numbers without a frame. What is missing before them is missing all the same. */
  #void({ from, to }) {
    if (this.mailbox.look(from) === "gap") {
      this.send("system", "sync", { after: this.mailbox.sure });
      return;
    }
    this.mailbox.handled(to);
    this.#ackSoon();
  }

  #ackSoon() {
    this.#timers.ack ??= setTimeout(() => {
      this.#timers.ack = undefined;
      const ack = this.mailbox.ack();
      if (ack && !this.send("system", "ack", ack)) this.mailbox.acked = null;
    }, ACK_MS);
  }

  /** @returns {boolean} whether the frame was for the link itself */
  #system(type, payload, frame) {
    switch (type) {
      case "auth.ok":
        this.#opened(payload);
        return true;
      case "auth.pending":
        clearTimeout(this.#timers.open); // a person has to look at a screen first
        this.#become("pending", { confirm: payload.confirm });
        return true;
      case "auth.fail":
        this.#denied = payload.code ?? "session_unknown";
        return true;
      case "ping":
        this.send("system", "pong", { ts: payload.ts });
        return true;
      case "pong":
      case "ack":
        return true;
      case "void":
        this.#void(payload);
        return true;
      case "reset":
        this.mailbox.reset(payload);
        return false; // the conversation must be read again, too
      case "drain":
        this.#floor = Number(payload.retry_after_ms) || 0;
        return true;
      case "error":
        return this.#refused(payload, frame);
      default:
        return false;
    }
  }

  #refused(payload, frame) {
    const waiting = this.#settle(payload.ref ?? frame.id);
    if (payload.code === "rate_limited") this.#floor = 1000 * (payload.retry_after || 5);
    waiting?.reject(new Refused(payload));
    return Boolean(waiting);
  }

  #opened(payload) {
    clearTimeout(this.#timers.open);
    this.heartbeat = 1000 * (payload.heartbeat_s || 30);
    this.#floor = 0;
    this.mailbox.opened(payload.epoch);
    this.#become("open", { hello: payload });
    this.#after("stable", STABLE_MS, () => (this.#attempt = 0));
    this.#beat();
  }

  #beat() {
    this.#after("beat", this.heartbeat, () => {
      this.#ping(PONG_MS);
      this.#beat();
    });
  }

  #ping(patience) {
    if (!this.send("system", "ping", { ts: Date.now() })) return;
    if (this.#timers.pong === undefined || patience < PONG_MS) this.#after("pong", patience, () => this.#closed(1006, ""));
  }

  #closed(code, reason) {
    this.#drop();
    const why = meaning(code, this.#denied ?? reason);
    if (why.then === "retry") {
      const wait = delay(this.#attempt++, { floor: Math.max(why.floor, this.#floor) });
      this.#become("waiting", { until: Date.now() + wait });
      this.#after("retry", wait, () => this.#connect());
    } else {
      this.#become("stopped", { ...why, code });
    }
  }

  /** Let go of the socket without waiting for its closing handshake: a dead network never ends it. */
  #drop() {
    for (const timer of Object.values(this.#timers)) clearTimeout(timer);
    this.#timers = {};
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    this.name = "idle";
    const lost = { code: "lost", message: "The connection to the relay was lost.", retryable: true };
    for (const id of [...this.#waiting.keys()]) this.#settle(id).reject(new Refused(lost));
  }

  #settle(id) {
    const waiting = this.#waiting.get(id);
    if (!waiting) return null;
    clearTimeout(waiting.timer);
    this.#waiting.delete(id);
    return waiting;
  }

  #after(name, ms, then) {
    clearTimeout(this.#timers[name]);
    this.#timers[name] = setTimeout(() => {
      this.#timers[name] = undefined;
      then();
    }, ms);
  }

  #become(name, about = {}) {
    this.name = name;
    this.phase({ name, ...about });
  }
}
