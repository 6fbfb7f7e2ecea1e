// Messages that were sent to this device: kept in the browser before they are confirmed, so that none is lost with
// the page.
const PREFIX = "message.";
const GONE = "messages.gone";
const MOST = 200; // messages; the oldest go first
const GONE_MOST = 1000; // ids of what went, which a mailbox that starts over would bring again as new
const ROOM = 1_500_000; // characters of all texts: browsers give an origin about 5 million
const LEAST_ROOM = 50_000;
const BEGINNING = 2000; // what stays of a long text where there is no room; the relay has the whole
const TITLE = 200;

export class Inbox {
  /**
   * @param parts shelf: shared by all windows of the browser; fetchWhole: (id) → Promise of the text;
   *   changed: () → void; isSeen: () → whether the page is in the foreground
   */
  constructor({ shelf, fetchWhole, changed, isSeen = () => document.visibilityState === "visible" }) {
    Object.assign(this, { shelf, fetchWhole, changed, isSeen });
    this.shown = false;
    this.news = null; // what arrived just now, to be told once
    this.#load();
    addEventListener("storage", (event) => event.key?.startsWith(`talaria.${PREFIX}`) && this.#loadSoon());
    document.addEventListener("visibilitychange", () => this.shown && this.isSeen() && this.open());
  }

  get unread() {
    return this.all.filter((message) => !message.read).length;
  }

  /** @returns {boolean} whether it will be here after a reload */
  take({ message_id: id, title, text, source, sent_at: sent, truncated = false }) {
    if ((this.shelf.get(GONE) ?? []).includes(id)) return true;
    let message = this.#find(id);
    if (!message) {
      // Another window may have stored it, and its owner may have read it there.
      message = this.shelf.get(PREFIX + id) ?? {
        id, title: title ? String(title).slice(0, TITLE) : null, text: String(text ?? ""), source, truncated,
        at: Number.isFinite(sent) ? sent * 1000 : Date.now(), n: (this.all.at(-1)?.n ?? 0) + 1, read: false,
      };
      this.all.push(message);
      this.#told(message);
    }
    this.#trim(ROOM, id);
    const isStored = this.#store(message);
    this.changed();
    return isStored;
  }

  /** The owner looks at the messages. */
  open() {
    const fresh = this.all.filter((message) => !message.read);
    this.shown = true;
    this.news = null;
    for (const message of fresh) this.#update(message.id, { read: true });
    for (const message of fresh.reverse()) if (message.truncated) this.complete(message.id);
    this.changed();
  }

  close() {
    this.shown = false;
  }

  /** The notice was read, or was there long enough. */
  heard() {
    this.news = null;
    this.changed();
  }

  /** Fetch the whole of what did not fit into a frame. */
  async complete(id) {
    this.#update(id, { fetching: true, error: null });
    this.changed();
    try {
      this.#update(id, { text: await this.fetchWhole(id), truncated: false, fetching: false });
      this.#trim(ROOM, id);
    } catch (error) {
      this.#update(id, { fetching: false, error: error.message });
    }
    this.changed();
  }

  #told(message) {
    if (message.read) return;
    if (!this.isSeen()) return;
    if (this.shown) message.read = true;
    else this.news = message;
    if (message.read && message.truncated) queueMicrotask(() => this.complete(message.id));
  }

  #find(id) {
    return this.all.find((message) => message.id === id);
  }

  #update(id, fields) {
    const at = this.all.findIndex((message) => message.id === id);
    if (at < 0) return;
    this.all[at] = { ...this.all[at], ...fields };
    this.#store(this.all[at]);
  }

  /** Where the browser refuses, older texts make room. */
  #store({ fetching: _, error: __, ...message }) {
    for (let room = ROOM / 2; !this.shelf.set(PREFIX + message.id, message); room /= 2) {
      if (room < LEAST_ROOM) return false;
      this.#trim(room, message.id);
    }
    return true;
  }

  #trim(room, spared) {
    const over = this.all.splice(0, Math.max(0, this.all.length - MOST)).map((message) => message.id);
    if (over.length) this.shelf.set(GONE, [...(this.shelf.get(GONE) ?? []), ...over].slice(-GONE_MOST));
    for (const id of over) this.shelf.remove(PREFIX + id);
    let size = this.all.reduce((sum, message) => sum + message.text.length, 0);
    for (const { id, text } of [...this.all]) {
      if (size <= room) return;
      if (id === spared || text.length <= BEGINNING) continue;
      size -= text.length - BEGINNING;
      this.#cut(id, text);
    }
  }

  #cut(id, text) {
    const at = this.all.findIndex((message) => message.id === id);
    const { fetching: _, error: __, ...message } = this.all[at];
    this.all[at] = { ...message, text: text.slice(0, BEGINNING), truncated: true };
    this.shelf.set(PREFIX + id, this.all[at]);
  }

  #load() {
    const kept = this.shelf.names(PREFIX).map((name) => this.shelf.get(name)).filter(Boolean);
    this.all = kept.sort((one, other) => one.n - other.n || one.at - other.at);
  }

  /** Another window stored something. */
  #loadSoon() {
    this.due ??= setTimeout(() => {
      this.due = undefined;
      this.#load();
      if (this.news && this.#find(this.news.id)?.read) this.news = null;
      if (this.shown && this.isSeen()) this.open();
      this.changed();
    }, 50);
  }
}

/** The whole text of a message, from the relay. */
export async function wholeText(id, token) {
  const headers = { Authorization: `Bearer ${token}` };
  const answer = await fetch(`/messages/${encodeURIComponent(id)}`, { headers, cache: "no-store" });
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(found.error?.message ?? `The relay answered ${answer.status}.`);
  return found.message.text;
}
