// @ts-check
// What each language's grader does here: all that a verdict can be, and a fault.

import { BadSetting, GiveUp, correct, inParts, reward, unscorable } from "../../../../policies/sdk/js/grader/grader.js";
import { flag, integer, number, text } from "../../../../policies/sdk/js/grader/grader.js";
/** @import { Grade } from "../../../../policies/sdk/js/grader/grader.js" */

export const name = "yardstick";
export const version = "0.1.0";
export const summary = "all that a verdict can be";
export const parts = ["answer", "length"];
export const settings = {
  word: text("pass", "The answer that can't be judged."),
  perLetter: number(0.125, "What each letter is worth."),
  open: flag(true, "Whether anything is."),
  longest: integer(100, "The longest answer."),
};

/** @param {{ perLetter: number, open: boolean }} settings */
export function begin({ perLetter, open }) {
  if (perLetter < 0) throw new BadSetting("perLetter", "a letter costs nothing");
  if (!open) throw new GiveUp("it is closed");
}

/** @type {Grade<typeof settings>} */
export function grade({ word, perLetter }, { prompt, source, gold, answer }) {
  const right = gold.includes(answer);
  if (answer === "!") throw new RangeError("no answer begins so");
  if (answer === "=") return correct(right);
  if (answer === "+") return reward(0.75, right);
  if (answer === "?") return reward(0.25);
  if (answer === word) return unscorable(`${source} to ${prompt}`);
  return inParts({ length: answer.length * perLetter, answer: Number(right) }, right);
}
