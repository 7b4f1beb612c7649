// @ts-check
// An answer is right if it is a gold answer.
//
// Change `grade` to your own rule. A grader is a pure function: a verdict rests on the settings and the question alone.

import { correct, flag, unscorable } from "./sdk/grader/grader.js";
/** @import { Grade } from "./sdk/grader/grader.js" */

export const name = "{{name}}";
export const version = "0.1.0";
export const summary = "right is what is a gold answer";

/** What a run may set. */
export const settings = {
  caseless: flag(false, "Whether capital letters are the same as small ones."),
};

/** @type {Grade<typeof settings>} */
export function grade({ caseless }, { gold, answer }) {
  // A text without what makes no difference.
  const plain = (/** @type {string} */ text) => (caseless ? text.trim().toLowerCase() : text.trim());
  if (gold.length === 0) return unscorable("there is no gold answer");
  return correct(gold.some((one) => plain(one) === plain(answer)));
}
