// The device's side of its mailbox: frames with a `seq` arrive once, in order, and are acknowledged.

export class Mailbox {
  /** @param {{get: Function, set: Function}} shelf where {epoch, seq} is kept over a reload */
  constructor(shelf) {
    this.shelf = shelf;
    const kept = shelf.get("mailbox") ?? {};
    this.epoch = kept.epoch ?? null;
    this.seq = kept.seq ?? null; // of the last frame that was handled; null: never had one
    this.acked = null;
    this.asked = null; // the number whose absence was already asked about
  }

  /** For `system/auth`. Without an epoch the relay goes on after the last ack. */
  resume() {
    return this.epoch !== null && this.seq !== null ? { epoch: this.epoch, after: this.seq } : undefined;
  }

  /** The relay said where the mailbox is. Another epoch than ours is followed by a reset, which moves us. */
  opened(epoch) {
    this.acked = null;
    this.asked = null;
    if (this.epoch === null) this.epoch = epoch ?? null;
  }

  /** @returns {"new" | "seen" | "gap"} gap: ask again with `system/sync {after: this.seq}` */
  look(seq) {
    if (this.seq !== null && seq <= this.seq) return "seen";
    if (this.seq !== null && seq > this.seq + 1 && this.asked !== this.seq) {
      this.asked = this.seq; // once: if the relay insists, it knows better than we do
      return "gap";
    }
    return "new";
  }

  /** What was numbered up to here has been handled. */
  handled(seq) {
    if (this.seq !== null && seq <= this.seq) return;
    this.seq = seq;
    this.#keep();
  }

  reset({ epoch, after }) {
    this.epoch = epoch;
    this.seq = after;
    this.acked = null;
    this.#keep();
  }

  /** @returns the payload of the next `system/ack`, or null when all is acknowledged */
  ack() {
    if (this.epoch === null || this.seq === null || this.seq === this.acked) return null;
    this.acked = this.seq;
    return { epoch: this.epoch, seq: this.seq };
  }

  #keep() {
    this.shelf.set("mailbox", { epoch: this.epoch, seq: this.seq });
  }
}
