// @ts-check
// The three calls of the contract, made of an author's module. Plain functions, for tests:
//
//     import * as policy from "./policy.js";
//     import { decide, runWith } from "./sdk/calls.js";
//
//     const plan = decide(policy, runWith(policy, { pilot: 2 }), [], made.view(0, 9));

import { Plan } from "./plan.js";
import { kebab } from "./refusal.js";
import { renamed } from "./renamed.js";
import { described, read } from "./settings.js";
import { load, save } from "./state.js";
/** @import { Description, PlanRecord, Policy, Run, View } from "./types.js" */

/** What not every run can give. */
const NEEDS = ["any-prompt", "replay", "sampling", "stopping", "updating", "parts", "turns", "starting"];

/**
 * The contract's `describe` of a policy.
 * @param {Policy} policy
 * @returns {Description}
 */
export function describe(policy) {
  const { name, version, summary, settings = {}, signals = [], columns = [], needs = [] } = policy;
  for (const [key, value] of Object.entries({ name, version, summary })) {
    if (typeof value !== "string") throw new TypeError(`policy.js exports \`${key}\` as ${value}, not as text`);
  }
  const unknown = needs.find((need) => !NEEDS.includes(need));
  if (unknown !== undefined) {
    throw new TypeError(`policy.js has \`${unknown}\` among its needs, which is none of ${NEEDS.join(", ")}`);
  }
  return {
    name,
    version,
    summary,
    settings: described(settings),
    signals: [...signals],
    columns: [...columns],
    needs: [...needs],
  };
}

/**
 * The contract's `begin` of a policy: the bytes of its first state.
 * @param {Policy} policy
 * @param {Run} run
 */
export function begin(policy, run) {
  const settings = read(policy.settings ?? {}, run);
  return save(policy, policy.begin?.(settings, run));
}

/**
 * The contract's `decide` of a policy.
 * @param {Policy} policy
 * @param {Run} run
 * @param {ArrayLike<number>} bytes The state that the call before gave.
 * @param {View} view
 * @returns {PlanRecord}
 */
export function decide(policy, run, bytes, view) {
  const settings = read(policy.settings ?? {}, run);
  const state = load(policy, bytes);
  const plan = policy.decide(settings, run, state, renamed(view));
  if (!(plan instanceof Plan)) {
    throw new TypeError(`decide returned ${shown(plan)}, not a plan; \`sample\` and \`train\` make one`);
  }
  return plan.record(save(policy, state));
}

/**
 * A run for tests: the policy's default settings, some of them replaced by name, and its columns with one
 * number for each prompt.
 * @param {Policy} policy
 * @param {Record<string, unknown>} changes As in `decide`: `{ solvedAtLeast: 0.5 }`.
 * @returns {Run}
 */
export function runWith(policy, changes = {}) {
  const settings = describe(policy).settings.map(({ name, default: value }) => [name, { ...value }]);
  const values = new Map(/** @type {any} */ (settings));
  for (const [key, val] of Object.entries(changes)) {
    const value = values.get(kebab(key));
    if (value === undefined) throw new Error(`\`${policy.name}\` has no setting \`${key}\``);
    value.val = val;
  }
  const plays = (policy.needs ?? []).some((need) => need === "turns" || need === "starting");
  const maxTurns = plays ? 8 : 1;
  return {
    settings: /** @type {any} */ (settings),
    prompts: 1000,
    steps: 100,
    groups: 4,
    rollouts: 8,
    pool: 64,
    maxAge: 8,
    lag: 0,
    columns: (policy.columns ?? []).map((name) => ({ name, width: 1, categories: [] })),
    parts: [],
    sampling: {
      default: { temperature: 1, maxTokens: 1024, maxTurns },
      least: { temperature: 0, maxTokens: 1, maxTurns: 1 },
      most: { temperature: 2, maxTokens: 1024, maxTurns },
    },
    update: { miniBatch: 2 ** 32 - 1, passes: 4 },
  };
}

/** @param {unknown} value */
function shown(value) {
  if (value instanceof Promise) return "a promise (a decision has nothing to wait for: take `async` off)";
  if (typeof value !== "object" || value === null) return String(value);
  if (Array.isArray(value)) return "an array";
  return `an object with the fields ${Object.keys(value).join(", ") || "none"}`;
}
