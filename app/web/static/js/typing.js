// Whether the owner is writing just now: then nothing may take the focus away.

const PAUSE_MS = 2000;
let last = -Infinity;

addEventListener("keydown", () => (last = performance.now()), { capture: true, passive: true });
addEventListener("input", () => (last = performance.now()), { capture: true, passive: true });

export function isTyping() {
  const { activeElement } = document;
  const isField = activeElement?.matches("input, textarea") && activeElement.value !== "";
  return Boolean(isField) || performance.now() - last < PAUSE_MS;
}
