// @ts-check
// Plans, put together a line at a time: `train(picks).hold(prompts).metric("survivors", 3)`.
//
// Numbers are checked here, with the author's line in the stack: the step to the contract would turn
// a count of -1 or 1.5 into some other number and say nothing.

/** @import { Action, Pick, PickOptions, PlanRecord, PromptId, Request } from "./types.js" */

/** What to do next. `sample` and `train` make one. */
export class Plan {
  #action;
  #skip = /** @type {PromptId[]} */ ([]);
  #evict = /** @type {PromptId[]} */ ([]);
  #metrics = /** @type {[string, number][]} */ ([]);

  /** @param {Action} action */
  constructor(action) {
    this.#action = action;
  }

  /**
   * Keep the rollouts of these prompts on hand for the next step. Only a plan that trains lets go of any.
   * @param {Iterable<PromptId>} prompts
   */
  hold(prompts) {
    if (this.#action.tag !== "train") {
      throw new Error("`hold` on a plan that samples; such a plan lets nothing go");
    }
    append(this.#action.val.hold, prompts);
    return this;
  }

  /**
   * Pass over these prompts of the pool until the next epoch.
   * @param {Iterable<PromptId>} prompts
   */
  skip(prompts) {
    append(this.#skip, prompts);
    return this;
  }

  /**
   * Never offer these prompts again in this run.
   * @param {Iterable<PromptId>} prompts
   */
  evict(prompts) {
    append(this.#evict, prompts);
    return this;
  }

  /**
   * Log a number beside the run's own.
   * @param {string} name
   * @param {number} value
   */
  metric(name, value) {
    if (typeof value !== "number") throw new TypeError(`the metric \`${name}\` is ${value}, not a number`);
    this.#metrics.push([name, value]);
    return this;
  }

  /**
   * The contract's record of it, with the state to remember.
   * @param {Uint8Array} state
   * @returns {PlanRecord}
   */
  record(state) {
    return { action: this.#action, skip: this.#skip, evict: this.#evict, state, metrics: this.#metrics };
  }
}

/**
 * Sample these, then ask again.
 * @param {Iterable<Request>} requests
 */
export function sample(requests) {
  const val = [];
  for (const { prompt, count } of requests) {
    val.push({ prompt: whole(prompt, "prompt"), count: whole(count, "count") });
  }
  return new Plan({ tag: "sample", val });
}

/**
 * Train on these, and end the step.
 * @param {Iterable<Pick>} picks
 */
export function train(picks) {
  const val = { picks: [...picks], hold: [] };
  if (!val.picks.every((pick) => pick?.advantage?.tag)) {
    throw new TypeError("a pick is made by `all` or `some`");
  }
  return new Plan({ tag: "train", val });
}

/**
 * `count` more rollouts of a prompt.
 * @param {PromptId} prompt
 * @param {number} count
 * @returns {Request}
 */
export function request(prompt, count) {
  return { prompt, count };
}

/**
 * All rollouts of a prompt.
 * @param {PromptId} prompt
 * @param {PickOptions} [options]
 * @returns {Pick}
 */
export function all(prompt, options) {
  return pick(prompt, undefined, options);
}

/**
 * Some rollouts of a prompt, by their positions in its group.
 * @param {PromptId} prompt
 * @param {number[] | Uint32Array} positions
 * @param {PickOptions} [options]
 * @returns {Pick}
 */
export function some(prompt, positions, options) {
  for (let i = 0; i < positions.length; i++) whole(positions[i], "position");
  return pick(prompt, positions, options);
}

/**
 * @param {PromptId} prompt
 * @param {number[] | Uint32Array | undefined} rollouts
 * @param {PickOptions} options
 * @returns {Pick}
 */
function pick(prompt, rollouts, { advantage = "picked", weight = 1 } = {}) {
  whole(prompt, "prompt");
  if (typeof weight !== "number") throw new TypeError(`the weight of prompt ${prompt} is ${weight}`);
  if (typeof advantage !== "string") {
    return { prompt, rollouts, advantage: { tag: "given", val: advantage }, weight };
  }
  if (advantage !== "picked" && advantage !== "group") {
    throw new TypeError(`the advantage of prompt ${prompt} is "${advantage}", not "picked" or "group"`);
  }
  return { prompt, rollouts, advantage: { tag: advantage }, weight };
}

/**
 * @param {PromptId[]} list
 * @param {Iterable<PromptId>} prompts
 */
function append(list, prompts) {
  for (const prompt of prompts) list.push(whole(prompt, "prompt"));
}

/**
 * @param {number} value
 * @param {string} what
 */
function whole(value, what) {
  if (value >>> 0 !== value) throw new RangeError(`the ${what} ${value} is not a whole number, 0 or more`);
  return value;
}
