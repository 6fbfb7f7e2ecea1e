// What this browser remembers.
//
// The session token is in localStorage, readable by any script of this origin: there is none but ours, since the
// content policy admits scripts from this origin only, no inline code and no eval. A cookie would be sent with
// every request, also with those that another site provokes; the token is said once, in the first frame.
import { uuid } from "./ids.js";

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

  set(key, value) {
    try {
      this.#storage.setItem(PREFIX + key, JSON.stringify(value));
      this.#fallback.delete(key);
    } catch {
      this.#fallback.set(key, value);
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

export function deviceId() {
  let id = device.get("device_id");
  if (!id) device.set("device_id", (id = uuid()));
  return id;
}

/**
 * This window's name to the relay, which keeps one socket for each. A duplicated tab copies its storage: whoever
 * finds the name in use by a living window takes a new one, instead of both pushing each other out.
 */
export async function instanceId() {
  const kept = tab.get("instance");
  if (kept && (await claim(kept))) return kept;
  const fresh = uuid();
  tab.set("instance", fresh);
  await claim(fresh);
  return fresh;
}

function claim(id) {
  if (!navigator.locks) return true;
  return new Promise((resolve) => {
    const held = (lock) => {
      resolve(lock !== null);
      return lock && new Promise(() => {}); // held as long as this document lives
    };
    navigator.locks.request(`talaria.instance.${id}`, { ifAvailable: true }, held).catch(() => resolve(true));
  });
}
