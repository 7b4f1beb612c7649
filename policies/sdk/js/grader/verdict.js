// @ts-check
// What a grader says of an answer.

/** @import { VerdictRecord } from "./types.js" */

/** What is said of an answer. `correct`, `reward`, `inParts` and `unscorable` make one. */
export class Verdict {
  /** @param {VerdictRecord} record As the contract carries it. */
  constructor(record) {
    this.record = record;
  }
}

/**
 * The run's reward of a right answer, or of a wrong one.
 * @param {boolean} right
 */
export function correct(right) {
  return judged(truth(right), { tag: "by-correctness" });
}

/**
 * This much, and whether the answer is right. Without it the run says from which reward on it is.
 * @param {number} value
 * @param {boolean} [right]
 */
export function reward(value, right) {
  return judged(right === undefined ? undefined : truth(right), { tag: "number", val: finite(value, "a reward") });
}

/**
 * A reward in parts: each that the module's `parts` names.
 * @param {Record<string, number>} values
 * @param {boolean} [right]
 */
export function inParts(values, right) {
  const parts = Object.entries(values).map(([name, value]) => ({ name, value: finite(value, `the part \`${name}\``) }));
  return judged(right === undefined ? undefined : truth(right), { tag: "parts", val: parts });
}

/**
 * No verdict, and why not, in one line.
 * @param {string} reason
 */
export function unscorable(reason) {
  return new Verdict({ tag: "unscorable", val: String(reason) });
}

/**
 * @param {boolean | undefined} right
 * @param {import("./types.js").Reward} reward
 */
function judged(right, reward) {
  return new Verdict({ tag: "judged", val: { correct: right, reward } });
}

/** @param {boolean} right */
function truth(right) {
  if (typeof right !== "boolean") throw new TypeError(`whether an answer is right is true or false, not ${right}`);
  return right;
}

/**
 * @param {number} value
 * @param {string} what
 */
function finite(value, what) {
  if (!Number.isFinite(value)) throw new TypeError(`${what} is a finite number, not ${value}`);
  return value;
}
