// What a JavaScript author needs to write a grader of answers.
//
// A grader is one module, `grader.js`: a name, some settings, and one judgement.
//
//     // @ts-check
//     import { correct, flag } from "./sdk/grader/grader.js";
//     /** @import { Grade } from "./sdk/grader/grader.js" */
//
//     export const name = "contains";
//     export const version = "0.1.0";
//     export const summary = "right is what has a gold answer in it";
//     export const settings = { caseless: flag(false, "Whether capital letters are the same as small ones.") };
//
//     /** @type {Grade<typeof settings>} */
//     export function grade({ caseless }, { gold, answer }) {
//       const plain = (text) => (caseless ? text.toLowerCase() : text);
//       return correct(gold.some((one) => plain(answer).includes(plain(one))));
//     }
//
// `grade` returns `correct(…)`, `reward(…)`, `inParts(…)` or `unscorable(…)`. The module may also export
// `begin(settings)`, which checks settings against each other; what it returns, if anything, is what `grade` gets in
// place of them. And `parts`, a list of names: the parts of its rewards.
//
// A grader whose verdicts compare answers exports `gradeGroup(settings, questions)` in place of `grade`. It gets all
// answers of a group, which differ in `answer` alone, and returns a verdict for each, in their order.
//
// A grader is a pure function: a verdict rests on the settings and the question alone.
//
// In node these are plain functions that tests call (`judge` and `judgeGroup` in `calls.js`); `build.mjs` makes a component of the
// contract `rollout:reward@0.2.0` of them. The SDK knows nothing of any host.

export * from "./types.js";
export { flag, integer, number, text, choice } from "../settings.js";
export { correct, reward, inParts, unscorable } from "./verdict.js";
export { BadSetting, GiveUp } from "../refusal.js";
export * as log from "../log.js";
