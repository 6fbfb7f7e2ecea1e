// The device's side of its mailbox: frames with a `seq` arrive once, in order, and are acknowledged.

export class Mailbox {
  /** @param {{get: Function, set: Function}} shelf where {epoch, seq} is kept over a reload */
  constructor(shelf) {
    this.shelf = shelf;
    const kept = shelf.get("mailbox") ?? {};
    this.epoch = kept.epoch ?? null;
    this.seq = kept.seq ?? null; // of the last frame that was handled; null: never had one
    this.sure = this.seq; // the last before one that could not be stored
    this.held = false;
    this.acked = null;
    this.asked = null; // the number whose absence was already asked about
  }

  /** For `system/auth`. Without an epoch the relay goes on after the last ack. */
  resume() {
    return this.epoch !== null && this.sure !== null ? { epoch: this.epoch, after: this.sure } : undefined;
  }

  /** The relay said where the mailbox is. Another epoch than ours is followed by a reset, which moves us. */
  opened(epoch) {
    this.acked = null;
    this.asked = null;
    this.seq = this.sure; // what was held back comes again
    this.held = false;
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

  /** The frame at hand could not be stored: it and what follows are not confirmed on this link. */
  hold() {
    this.held = true;
  }

  /** What was numbered up to here has been handled. */
  handled(seq) {
    if (this.seq !== null && seq <= this.seq) return;
    this.seq = seq;
    if (this.held) return;
    this.sure = seq;
    this.#keep();
  }

  reset({ epoch, after }) {
    this.epoch = epoch;
    this.seq = this.sure = after;
    this.held = false;
    this.acked = null;
    this.#keep();
  }

  /** @returns the payload of the next `system/ack`, or null when all is acknowledged */
  ack() {
    if (this.epoch === null || this.sure === null || this.sure === this.acked) return null;
    this.acked = this.sure;
    return { epoch: this.epoch, seq: this.sure };
  }

  #keep() {
    this.shelf.set("mailbox", { epoch: this.epoch, seq: this.sure });
  }
}
