// @ts-check
// What the host knows of the data set's prompts, on offer or not: a typed array with an entry for each
// prompt asked about.
//
//     const visits = facts.counts("visits"); // of all prompts
//     const levels = facts.column("level", facts.between(10, 20)); // of a range
//     const means = facts.measures("mean", [7, 3]); // of these
//
// To be asked within `decide`. A policy that asks about a prompt that the data set does not have, or for a
// column that it does not name in `columns`, ends the run. In node the answers are those of `made.facts`.

import { kebab } from "./refusal.js";
/** @import { PromptId } from "./types.js" */

/** @typedef {"visits" | "step" | "rollouts" | "correct" | "streak" | "totalRollouts" | "totalCorrect"} Count As in `past`. */
/** @typedef {"mean" | "std" | "meanLength"} Measure As in `past`. */
/** @typedef {{ tag: "all" } | { tag: "between", val: [PromptId, PromptId] } | { tag: "listed", val: Uint32Array }} Prompts */
/** @typedef {{ reading: number, generating: number, learning: number }} TokenCosts In floating-point operations. */
/**
 * @typedef {object} Answers
 * @property {(what: string, of: Prompts) => Uint32Array} counts
 * @property {(what: string, of: Prompts) => Float32Array} measures
 * @property {(name: string, of: Prompts) => Float32Array} column
 * @property {() => TokenCosts} costs
 */

/** @returns {never} */
const nothing = () => {
  throw new Error("a policy asked for facts: a test tells them by `made.facts(…)`");
};

/** @type {Answers} */
let answers = { counts: nothing, measures: nothing, column: nothing, costs: nothing };

/**
 * Counts of past visits. 0 for a prompt without any.
 * @param {Count} what
 * @param {Prompts | ArrayLike<PromptId>} [of] All, if not given.
 */
export function counts(what, of) {
  return answers.counts(kebab(what), prompts(of));
}

/**
 * Means of the last visit. 0 for a prompt without any.
 * @param {Measure} what
 * @param {Prompts | ArrayLike<PromptId>} [of] All, if not given.
 */
export function measures(what, of) {
  return answers.measures(kebab(what), prompts(of));
}

/**
 * A column that the policy names, as many numbers for each prompt as `run.columns` says.
 * @param {string} name
 * @param {Prompts | ArrayLike<PromptId>} [of] All, if not given.
 */
export function column(name, of) {
  return answers.column(name, prompts(of));
}

/** What a token takes: of reading a prompt, of generating an answer, of learning from it. */
export function costs() {
  return answers.costs();
}

/**
 * The prompts from the first up to the second, without it.
 * @param {PromptId} first
 * @param {PromptId} end
 * @returns {Prompts}
 */
export function between(first, end) {
  return { tag: "between", val: [first, end] };
}

/**
 * Has all questions answered in another way from now on. For the component, and for tests.
 * @param {Answers} known
 */
export function answer(known) {
  answers = known;
}

/**
 * @param {Prompts | ArrayLike<PromptId> | undefined} of
 * @returns {Prompts}
 */
function prompts(of) {
  if (of === undefined) return { tag: "all" };
  if ("tag" in of) return of;
  return { tag: "listed", val: of instanceof Uint32Array ? of : Uint32Array.from(of) };
}
