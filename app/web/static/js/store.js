// What this browser remembers.
//
// The session token is in localStorage, readable by any script of this origin: there is none but ours, since the
// content policy admits scripts from this origin only, no inline code and no eval. A cookie would be sent with
// every request, also with those that another site provokes; the token is said once, in the first frame.
const PREFIX = "talaria.";

/** JSON values in a Storage. Where storage is full or forbidden the page works until it is closed. */
class Shelf {
  #storage;
  #fallback = new Map();

  constructor(name) {
    try {
      this.#storage = window[name];
    } catch {
      this.#storage = null;
    }
  }

  get(key) {
    if (this.#fallback.has(key)) return this.#fallback.get(key);
    try {
      return JSON.parse(this.#storage.getItem(PREFIX + key)) ?? undefined;
    } catch {
      return undefined;
    }
  }

  /** @returns {boolean} whether it outlives the page */
  set(key, value) {
    try {
      this.#storage.setItem(PREFIX + key, JSON.stringify(value));
      this.#fallback.delete(key);
      return true;
    } catch {
      this.#fallback.set(key, value);
      return false;
    }
  }

  /** Names that begin with `prefix`. */
  names(prefix) {
    const stored = this.#storage ? Object.keys(this.#storage) : [];
    const ours = stored.filter((name) => name.startsWith(PREFIX)).map((name) => name.slice(PREFIX.length));
    return [...new Set([...ours, ...this.#fallback.keys()])].filter((name) => name.startsWith(prefix));
  }

  remove(key) {
    this.#fallback.delete(key);
    try {
      this.#storage.removeItem(PREFIX + key);
    } catch {
      // Nothing was stored.
    }
  }
}

export const device = new Shelf("localStorage"); // shared by all windows of this browser
export const tab = new Shelf("sessionStorage"); // this window's own; survives a reload
