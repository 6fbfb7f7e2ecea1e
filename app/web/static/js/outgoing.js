// Sends what the owner said, each turn once on a link, as soon as there is one.

const ENVELOPE = 1024; // bytes of a frame that are not the message
const AGAIN_MS = 2000;
// Refusals that say nothing about the message: it is sent again, with the same key.
const LATER = new Set(["still_pending", "draining"]);
const TOO_LONG = { code: "message_too_long", layer: "device", message: "This message is too long to be sent." };

export class Outgoing {
  #sent = new Set(); // keys that went out on this link
  #most = Infinity; // bytes of a frame

  constructor({ wire, turns }) {
    Object.assign(this, { wire, turns });
  }

  opened(limits) {
    this.#sent.clear();
    this.#most = limits?.frame_bytes ?? Infinity;
  }

  flush() {
    for (const turn of this.turns.unsent()) if (!this.#sent.has(turn.key)) this.#send(turn);
  }

  refused(key, error) {
    if (!LATER.has(error.code)) this.turns.refused(key, error);
    else if (this.#sent.delete(key)) setTimeout(() => this.flush(), AGAIN_MS);
  }

  #send(turn) {
    const payload = { message: turn.said, client_msg_id: turn.key };
    if (turn.session !== null) payload.session_id = turn.session;
    if (new Blob([turn.said]).size * 2 + ENVELOPE > this.#most) this.turns.refused(turn.key, TOO_LONG);
    // The frame's id is the key, so that a refusal names the turn.
    else if (this.wire.send("chat", "chat.send", payload, turn.key)) this.#sent.add(turn.key);
  }
}
