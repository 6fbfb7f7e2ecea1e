// The list of conversations, and what the owner does with one of them.
import { uuid } from "./ids.js";
import { isOffline } from "./wire.js";

const LISTED = 50; // at a time
const MOST = 200; // that the relay lists at a time
const UNSURE = new Set(["lost", "timeout"]); // it may have happened: asked again under the same id, it happens once

export class Sessions {
  #unsure = null; // {asked, id}

  constructor({ wire, changed }) {
    Object.assign(this, { wire, changed, items: [], more: false, loading: false, error: null });
  }

  find(id) {
    return this.items.find((session) => session.id === id) ?? null;
  }

  async list({ more = false } = {}) {
    if (!this.wire.open) return;
    Object.assign(this, { loading: true, error: null });
    try {
      // Looked at anew, it is as long as it was.
      const limit = more ? LISTED : Math.min(MOST, Math.max(LISTED, this.items.length));
      const page = { limit, offset: more ? this.items.length : 0 };
      const { payload } = await this.wire.request("chat", "chat.sessions.list", page);
      const items = (payload.sessions ?? []).map(listed);
      // One that is newer has pushed some onto the next page, which are here already.
      this.items = more ? [...this.items, ...items.filter(({ id }) => !this.find(id))] : items;
      this.more = Boolean(payload.has_more);
    } catch (error) {
      this.error = isOffline(error) ? null : error;
    }
    this.loading = false;
    this.changed();
  }

  // Each rejects with Refused, and has changed nothing then, as far as anybody knows.

  /** @returns the new conversation, as listed */
  async create(title) {
    return this.#added(await this.#write("create", { title }), title);
  }

  /** @returns a copy of the conversation so far, as listed */
  async fork({ id, title }) {
    return this.#added(await this.#write("fork", { session_id: id }), title);
  }

  async rename({ id }, title) {
    const { session } = await this.#write("rename", { session_id: id, title });
    this.renamed(id, session?.title ?? title);
  }

  async delete({ id }) {
    await this.#write("delete", { session_id: id });
    this.removed(id);
  }

  // what is heard of them

  renamed(id, title) {
    this.items = this.items.map((session) => (session.id === id ? { ...session, title } : session));
    this.changed();
  }

  removed(id) {
    this.items = this.items.filter((session) => session.id !== id);
    this.changed();
  }

  moved(from, to) {
    this.items = this.items.map((session) => (session.id === from ? { ...session, id: to } : session));
  }

  #added({ session }, title) {
    const made = listed({ title, ...session });
    this.items = [made, ...this.items.filter(({ id }) => id !== made.id)];
    this.changed();
    return made;
  }

  async #write(what, payload) {
    const asked = JSON.stringify([what, payload]);
    const id = this.#unsure?.asked === asked ? this.#unsure.id : uuid();
    this.#unsure = null;
    try {
      return (await this.wire.request("chat", `chat.sessions.${what}`, payload, id)).payload;
    } catch (error) {
      if (UNSURE.has(error.code)) this.#unsure = { asked, id };
      throw error;
    }
  }
}

function listed(session) {
  const id = session.id ?? session.session_id;
  const title = session.title || session.preview || "Conversation";
  return { id, title, at: session.last_active ?? session.started_at ?? null };
}
