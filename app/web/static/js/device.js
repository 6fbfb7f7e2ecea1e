// Who this browser is to the relay.
import { uuid } from "./ids.js";
import { device, tab } from "./store.js";

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

/** phone, tablet or desktop */
export function formFactor() {
  if (!matchMedia("(pointer: coarse)").matches) return "desktop";
  return Math.min(screen.width, screen.height) < 600 ? "phone" : "tablet";
}

/** A name that the owner recognises in a list of devices. */
export function deviceName() {
  const agent = navigator.userAgent;
  const kinds = [
    [/iPhone/, "iPhone"], [/iPad/, "iPad"], [/Android.*Mobile/, "Android phone"], [/Android/, "Android tablet"],
    [/CrOS/, "Chromebook"], [/Macintosh/, "Mac"], [/Windows/, "Windows PC"], [/Linux/, "Linux PC"],
  ];
  const browsers = [[/Firefox|FxiOS/, "Firefox"], [/Edg/, "Edge"], [/Chrome|CriOS/, "Chrome"], [/Safari/, "Safari"]];
  const pick = (list, other) => list.find(([pattern]) => pattern.test(agent))?.[1] ?? other;
  return `${pick(kinds, "Phone")} (${pick(browsers, "browser")})`;
}
