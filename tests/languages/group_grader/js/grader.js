// @ts-check
// What each language's grader of groups does here: it compares answers, and a fault.

import { number, reward, unscorable } from "../../../../policies/sdk/js/grader/grader.js";
/** @import { GradeGroup } from "../../../../policies/sdk/js/grader/grader.js" */

export const name = "podium";
export const version = "0.1.0";
export const summary = "the shortest right answers of a group";
export const settings = { best: number(1, "What the shortest right answer is worth.") };

/** @type {GradeGroup<typeof settings>} */
export function gradeGroup({ best }, questions) {
  if (questions.some(({ answer }) => answer === "!")) throw new RangeError("no answer begins so");
  if (questions.length === 1) return [unscorable("it is alone")];
  const isRight = questions.map(({ gold, answer }) => gold.includes(answer));
  const least = Math.min(...questions.filter((_, i) => isRight[i]).map(({ answer }) => answer.length));
  return questions.map(({ answer }, i) => reward(isRight[i] && answer.length === least ? best : 0, isRight[i]));
}
