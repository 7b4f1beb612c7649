// @ts-check
// Names of contract 0.1 that later ones have not: who reads one is told the new name. An `undefined` would pass for
// a number that is missing, and end up in a plan.

/** @import { View } from "./types.js" */

const GROUP = told("a group", { tokens: "`lengths`" });
const PROMPT = told("a prompt", { tokens: "`length`" });
const PAST = told("a past", {
  tokens: "`meanLength`",
  deviation: "`std`, of the sample; the SDK's `deviation(past)` is what 0.1 had",
});

/**
 * The view itself, whose groups, prompts and pasts tell of old names.
 * @param {View} view
 */
export function renamed(view) {
  for (const group of view.groups) Object.setPrototypeOf(group, GROUP);
  for (const prompt of view.pool) {
    Object.setPrototypeOf(prompt, PROMPT);
    if (prompt.past) Object.setPrototypeOf(prompt.past, PAST);
  }
  return view;
}

/**
 * @param {string} what
 * @param {Record<string, string>} names What each of the old names is now.
 */
function told(what, names) {
  const prototype = {};
  for (const [old, name] of Object.entries(names)) {
    Object.defineProperty(prototype, old, {
      get() {
        throw new TypeError(`${what} of contract 0.3 has no \`${old}\`: it has ${name}`);
      },
    });
  }
  return prototype;
}
