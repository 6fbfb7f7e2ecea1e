// What the end of a socket means for this page.

/** then: retry, pair (the credential is no good any more) or stop (only the owner may go on) */
export function meaning(code, reason) {
  switch (code) {
    case 4401:
      return { then: "pair", text: CREDENTIAL[reason] ?? "The relay does not know this phone any more: pair again." };
    case 4403:
      return { then: "stop", text: "The relay does not allow this phone to connect." };
    case 4409:
      return { then: "stop", text: "Open in another window.", again: "Use here" };
    case 1008:
      return { then: "stop", text: "The relay refused what this page said.", again: "Reload" };
    case 4429:
      return { then: "retry", floor: 5000 };
    default:
      return { then: "retry", floor: 0 };
  }
}

const REVOKED = "Paired device was revoked: pair again.";
const CREDENTIAL = {
  revoked: REVOKED, // the reason of a close; the others are codes of `auth.fail`
  replaced: "This device was paired again elsewhere.",
  session_revoked: REVOKED,
  session_expired: "The pairing of this phone has expired: pair again.",
  session_unknown: "The relay does not know this phone any more: pair again.",
  refresh_reused: "Somebody else used this phone's credential, so it was ended: pair again.",
  pairing_denied: "It was not allowed, or not in time. Make a new code.",
  pairing_code_rejected: "That code is not valid: it may be mistyped, used or expired. Make a new one.",
};
