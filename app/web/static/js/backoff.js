// How long to wait before the next attempt.

const FIRST_MS = 1000;
const LONGEST_MS = 30_000;

/**
 * Full jitter: anything between nothing and a bound that doubles, so that phones which a restart cut off together
 * do not come back together. `floor` is what the relay asked for.
 */
export function delay(attempt, { floor = 0, random = Math.random } = {}) {
  const bound = Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.min(attempt, 10));
  return Math.round(floor + random() * bound);
}
