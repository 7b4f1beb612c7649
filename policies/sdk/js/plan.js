// @ts-check
// Plans, put together a line at a time: `train(picks).hold(prompts).metric("survivors", 3)`.
//
// Numbers are checked here, with the author's line in the stack: the step to the contract would turn
// a count of -1 or 1.5 into some other number and say nothing.

/** @import { Action, Hold, Pick, PickOptions, PlanRecord, PromptId, Request, RequestOptions, Sampling, Start, Update } from "./types.js" */

/** What to do next. `sample` and `train` make one. */
export class Plan {
  #action;
  #skip = /** @type {PromptId[]} */ ([]);
  #defer = /** @type {PromptId[]} */ ([]);
  #evict = /** @type {PromptId[]} */ ([]);
  #metrics = /** @type {[string, number][]} */ ([]);

  /** @param {Action} action */
  constructor(action) {
    this.#action = action;
  }

  /**
   * Keep rollouts of these prompts buffered for the next step: all that the plan does not pick, or those at
   * the positions of `{ prompt, rollouts }`. Only a plan that trains discards any.
   * @param {Iterable<PromptId | Hold>} prompts
   */
  hold(prompts) {
    const { hold } = this.#batch("hold");
    for (const held of prompts) hold.push(typeof held === "object" ? heldSome(held) : whole(held, "prompt"));
    return this;
  }

  /**
   * Update the model in this way. The policy has "updating" among its `needs`.
   * @param {Update} update
   */
  update({ miniBatch, passes }) {
    const update = { miniBatch: whole(miniBatch, "mini-batch"), passes: whole(passes, "number of passes") };
    this.#batch("update").update = update;
    return this;
  }

  /** @param {string} what */
  #batch(what) {
    if (this.#action.tag === "train") return this.#action.val;
    throw new Error(`\`${what}\` on a plan that samples; only one that trains has a batch`);
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
   * Put these prompts of the pool back: they come on offer again in this epoch, after all others of it.
   * @param {Iterable<PromptId>} prompts
   */
  defer(prompts) {
    append(this.#defer, prompts);
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
    return {
      action: this.#action,
      skip: this.#skip,
      defer: this.#defer,
      evict: this.#evict,
      state,
      metrics: this.#metrics,
    };
  }
}

/**
 * Sample these, then ask again.
 * @param {Iterable<Request>} requests
 */
export function sample(requests) {
  /** @type {Request[]} */
  const val = [];
  for (const { prompt, count, until, sampling, starts } of requests) {
    /** @type {Request} */
    const request = { prompt: whole(prompt, "prompt"), count: whole(count, "count") };
    if (until) request.until = enough(until);
    if (sampling) request.sampling = settings(sampling);
    if (starts) request.starts = [...starts].map(left);
    val.push(request);
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
 * @param {RequestOptions} [options] When fewer are enough, how to sample them, and what they continue.
 * @returns {Request}
 */
export function request(prompt, count, options) {
  return { prompt, count, ...options };
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
  if (typeof advantage === "object" && "among" in advantage) {
    const val = advantage.among;
    for (let i = 0; i < val.length; i++) whole(val[i], "position to measure against");
    return { prompt, rollouts, advantage: { tag: "among", val }, weight };
  }
  if (typeof advantage === "object" && "byTurn" in advantage) {
    const val = advantage.byTurn;
    if (!Array.isArray(val)) throw new TypeError(`the advantages by turn of prompt ${prompt} are ${val}, not a list`);
    for (const turns of val) numbers(turns, `a rollout's advantages by turn of prompt ${prompt}`);
    return { prompt, rollouts, advantage: { tag: "by-turn", val }, weight };
  }
  if (typeof advantage !== "string") {
    numbers(advantage, `the advantages of prompt ${prompt}`);
    return { prompt, rollouts, advantage: { tag: "given", val: advantage }, weight };
  }
  if (advantage !== "picked" && advantage !== "group") {
    throw new TypeError(`the advantage of prompt ${prompt} is "${advantage}", not "picked" or "group"`);
  }
  return { prompt, rollouts, advantage: { tag: advantage }, weight };
}

/** @param {{ correct: number, wrong: number, portion: number }} until */
function enough({ correct, wrong, portion }) {
  return {
    correct: whole(correct, "number of correct rollouts"),
    wrong: whole(wrong, "number of wrong rollouts"),
    portion: whole(portion, "portion"),
  };
}

/** @param {Sampling} sampling */
function settings({ temperature, maxTokens, maxTurns }) {
  if (typeof temperature !== "number") throw new TypeError(`the temperature ${temperature} is not a number`);
  return { temperature, maxTokens: whole(maxTokens, "length limit"), maxTurns: whole(maxTurns, "limit of turns") };
}

/** @param {Start | null | undefined} start */
function left(start) {
  if (start === undefined || start === null) return undefined;
  return { rollout: whole(start.rollout, "position to start from"), turn: whole(start.turn, "turn to keep") };
}

/** @param {Hold} hold */
function heldSome({ prompt, rollouts }) {
  for (let i = 0; i < rollouts.length; i++) whole(rollouts[i], "position");
  return { prompt: whole(prompt, "prompt"), rollouts };
}

/**
 * @param {PromptId[]} list
 * @param {Iterable<PromptId>} prompts
 */
function append(list, prompts) {
  for (const prompt of prompts) list.push(whole(prompt, "prompt"));
}

/**
 * @param {ArrayLike<number>} list
 * @param {string} what
 */
function numbers(list, what) {
  if (list instanceof Float32Array) return;
  if (typeof list?.length !== "number") throw new TypeError(`${what} are ${list}, not a list`);
  for (let i = 0; i < list.length; i++) {
    if (typeof list[i] !== "number") throw new TypeError(`${what} have ${list[i]}, not a number`);
  }
}

/**
 * @param {number} value
 * @param {string} what
 */
function whole(value, what) {
  if (value >>> 0 !== value) throw new RangeError(`the ${what} ${value} is not a whole number, 0 or more`);
  return value;
}
