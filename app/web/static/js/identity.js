// Whether the relay that answers is the one that made the code: it proves the key whose fingerprint the link holds.
const CONTEXT = "talaria-identity-v1";
const CHALLENGE = 32; // bytes
const FINGERPRINT = 16; // bytes of the SHA-256 of the public key

export const SAME = "same";
export const OTHER = "other"; // it is another relay, or something that is none
export const AWAY = "away"; // nothing answered
export const UNABLE = "unable"; // this browser cannot check such a signature
export const UNTOLD = "untold"; // no fingerprint came with the code, or without TLS: there the answer would prove nothing

/** @param {string | null} fingerprint base64url */
export async function recognise(fingerprint, origin = location.origin) {
  if (!fingerprint || !origin.startsWith("https:")) return UNTOLD;
  const challenge = crypto.getRandomValues(new Uint8Array(CHALLENGE));
  let said;
  try {
    const answer = await fetch(`/identity?challenge=${base64url(challenge)}`, { cache: "no-store", redirect: "error" });
    if (!answer.ok) return answer.status >= 500 ? AWAY : OTHER;
    said = await answer.json();
  } catch (error) {
    return error instanceof SyntaxError ? OTHER : AWAY;
  }
  try {
    return (await isProven(said, fingerprint, origin, challenge)) ? SAME : OTHER;
  } catch (error) {
    return error.name === "NotSupportedError" ? UNABLE : OTHER;
  }
}

async function isProven(said, fingerprint, origin, challenge) {
  const key = bytes(said.public_key);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", key));
  if (said.origin !== origin || base64url(digest.slice(0, FINGERPRINT)) !== fingerprint) return false;
  const text = new TextEncoder().encode(`${CONTEXT}\0${origin}\0`);
  const signed = new Uint8Array([...text, ...challenge]);
  const verifier = await crypto.subtle.importKey("raw", key, { name: "Ed25519" }, false, ["verify"]);
  return crypto.subtle.verify({ name: "Ed25519" }, verifier, bytes(said.signature), signed);
}

function base64url(raw) {
  return btoa(String.fromCharCode(...raw)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function bytes(text) {
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
}
