// @ts-check
// Pilot-Commit (arXiv 2605.26606): tries each prompt with a few rollouts, the pilots, and commits the
// rest to prompts that pilots solve sometimes. Pilots and commits share a call: a round tries the next
// prompts and commits to those that earlier rounds, or steps, tried.
//
// The twin of ../src/lib.rs, plan for plan; what departs from upstream is told there.

import { BadSetting, Chance, choice, integer, log, number, orElse } from "../../sdk/js/allot.js";
import { age, isOpen, offer, passRate, size, solved } from "../../sdk/js/allot.js";
import { all, request, sample, some, train } from "../../sdk/js/allot.js";
/** @import { Begin, Decide, Group, Run, Values, View } from "../../sdk/js/allot.js" */

export const name = "pilot-commit";
export const version = "0.1.0";
export const summary = "tries each prompt with a few rollouts and commits the rest where it pays";

/** The defaults are those of upstream's README and scripts, not of the yaml. */
export const settings = {
  pilot: integer(8, "Rollouts to try a prompt with.", { min: 1 }),
  commit: integer(24, "Rollouts to add where the pilots were promising.", { min: 1 }),
  prompts: integer(0, "Prompts to try in each round; 0 for three times the groups in an update.", { min: 0 }),
  solvedAtLeast: number(0.125, "Commit only where at least this share of the pilots is correct."),
  failedAtLeast: number(0.25, "Commit only where at least this share of the pilots is wrong."),
  evictAt: number(
    1,
    "Never offer a prompt again when this share of its pilots is correct; above 1 for never.",
  ),
  sampling: choice(
    ["random", "max-variance", "most-recent"],
    "random",
    "Which to commit to first: random, max-variance or most-recent.",
  ),
  maxOff: integer(
    4,
    "Pilots are held for further steps up to this age, in updates. They are a step older when used.",
    { min: 0 },
  ),
  pilotKept: integer(
    0,
    "Pilots of a committed prompt to train on, half of them correct if possible; 0 for all.",
    { min: 0 },
  ),
  epochEnd: choice(
    ["keep", "discard"],
    "keep",
    "What becomes of rollouts on hand at the end of an epoch: keep or discard.",
  ),
  ranks: integer(
    1,
    "Commits of a round are cut until its rollouts are a multiple of this: upstream's number of GPUs.",
    { min: 1 },
  ),
};

/**
 * @typedef {object} State
 * @property {[number, number][]} committed Prompts committed to in this step, in order of choice, each
 * with its pilots on hand: as many as were asked for, unless the budget ended or some could not be judged.
 * @property {number[]} fresh Prompts tried in the last round.
 * @property {number} epoch The epoch that prompts are tried from; -1 before it is known.
 *
 * @typedef {Values<typeof settings>} Settings
 * @typedef {{ group: Group, pilots: number }} Committed
 */

/** @type {Begin<typeof settings, State>} */
export function begin(settings, run) {
  survivable(settings);
  if (settings.pilotKept > settings.pilot) throw new BadSetting("pilotKept", "there are not as many pilots");
  const prompts = promptsOf(settings, run);
  if (run.pool < prompts) {
    const reason = `the pool has ${run.pool} prompts on offer, not ${prompts}`;
    if (settings.epochEnd === "discard") throw new BadSetting("prompts", reason);
    log.warn(reason);
  }
  if (run.maxAge <= settings.maxOff) log.warn("the host's max-age lets pilots go before max-off does");
  return { committed: [], fresh: [], epoch: -1 };
}

/** Numbers of pilots that are looked at for one that can survive. */
const LOOKED_AT = 1000;

/**
 * Refuses settings by which no prompt would ever be committed to.
 * @param {Settings} settings
 */
function survivable(settings) {
  const { pilot, solvedAtLeast, failedAtLeast } = settings;
  /** @param {number} pilot */
  const survives = (pilot) => {
    const first = Math.max(Math.ceil(solvedAtLeast * pilot), 0);
    // Rounding may be off by one.
    return [first - 1, first, first + 1].some((k) => k >= 0 && k <= pilot && passes(settings, k / pilot));
  };
  let least = 1;
  while (least <= LOOKED_AT && !survives(least)) least++;
  if (pilot > LOOKED_AT || least <= pilot) return;
  const shares =
    `can't be solved at least ${solvedAtLeast} and failed at least ${failedAtLeast} of the time, ` +
    "so no prompt would ever be committed to";
  if (least > LOOKED_AT) throw new BadSetting("solvedAtLeast", `pilots ${shares}`);
  const pilots = pilot === 1 ? "1 pilot" : `${pilot} pilots`;
  throw new BadSetting("pilot", `${pilots} ${shares}; set ${least} or more`);
}

/** @type {Decide<typeof settings, State>} */
export function decide(settings, run, state, view) {
  const { pilot, commit, evictAt } = settings;
  const chance = new Chance(view.seed);
  if (view.round === 0) {
    state.committed = [];
    state.fresh = [];
  }
  const groups = new Map(view.groups.map((g) => [g.prompt, g]));
  // A commit of which nothing came is a survivor again; of which a part came, done.
  const committed = state.committed.flatMap(([p, pilots]) => {
    const group = groups.get(p);
    return group && size(group) > pilots ? [{ group, pilots }] : [];
  });
  state.committed = committed.map(({ group, pilots }) => [group.prompt, pilots]);
  const done = new Set(committed.map(({ group }) => group.prompt));
  const survivors = view.groups.filter((g) => !done.has(g.prompt) && passes(settings, passRate(g)));
  const tried = new Set(state.fresh);
  const fresh = view.groups.filter((g) => tried.has(g.prompt));
  // The budget may have cut the last one's pilots short: too few to evict it for good.
  if (fresh.length > 0 && size(fresh[fresh.length - 1]) < pilot) fresh.pop();
  const evict = fresh.filter((g) => passRate(g) >= evictAt).map((g) => g.prompt);

  const over = epochOver(settings, run, state, view);
  if (committed.length >= run.groups || !isOpen(view.budget)) {
    const plan = learn(settings, run, committed, survivors, over === undefined, chance);
    return plan.skip(over ?? []).evict(evict);
  }
  if (over !== undefined) {
    const nothing = view.groups.length === 0 && over.length > 0;
    return (nothing ? sample([]) : train([])).skip(over).evict(evict);
  }

  const offered = offer(view, promptsOf(settings, run)).map((p) => p.id);
  const most = Math.min(survivors.length, run.groups - committed.length);
  const count = gpuCut(most, offered.length * pilot, commit, settings.ranks);
  const chosen = choose(settings.sampling, survivors, count, chance);
  if (offered.length === 0 && chosen.length === 0) {
    return learn(settings, run, committed, survivors, true, chance).evict(evict);
  }
  for (const g of chosen) state.committed.push([g.prompt, size(g)]);
  state.fresh = offered;
  const pilots = offered.map((p) => request(p, pilot));
  const commits = chosen.map((g) => request(g.prompt, commit));
  return sample([...pilots, ...commits])
    .evict(evict)
    .metric("survivors", survivors.length)
    .metric("commits", chosen.length);
}

/**
 * @param {Settings} settings
 * @param {Run} run
 */
function promptsOf(settings, run) {
  return orElse(settings.prompts, Math.min(3 * run.groups, 2 ** 32 - 1));
}

/**
 * Whether pilots of this pass rate are promising: both ends count in.
 * @param {Settings} settings
 * @param {number} rate
 */
function passes({ solvedAtLeast, failedAtLeast }, rate) {
  return rate >= solvedAtLeast && rate <= 1 - failedAtLeast;
}

/**
 * Trains on the committed groups, pilots and commits together, in order of choice.
 * @param {Settings} settings
 * @param {Run} run
 * @param {Committed[]} committed
 * @param {Group[]} survivors
 * @param {boolean} holds
 * @param {Chance} chance
 */
function learn(settings, run, committed, survivors, holds, chance) {
  const picks = committed.slice(0, run.groups).map((c) => pick(settings, c, chance));
  // Nothing committed and nothing left to sample: pilots are better than no update.
  const spent = picks.length === 0 ? survivors.slice(0, run.groups) : [];
  const held = holds ? survivors.slice(spent.length).filter((g) => age(g) <= settings.maxOff) : [];
  return train([...picks, ...spent.map((g) => all(g.prompt))])
    .hold(held.map((g) => g.prompt))
    .metric("survivors", survivors.length);
}

/**
 * The rollouts of a committed group to train on; the first `pilots` are its pilots.
 * @param {Settings} settings
 * @param {Committed} committed
 * @param {Chance} chance
 */
function pick({ pilotKept }, { group, pilots }, chance) {
  if (pilotKept === 0) return all(group.prompt);
  const kept = downsample(group.correct.slice(0, pilots), pilotKept, chance);
  for (let i = pilots; i < size(group); i++) kept.push(i);
  return some(group.prompt, kept);
}

/**
 * Where epochs end for good and too few prompts of this one are on offer for a round: those few.
 * Upstream's loader drops them (`drop_last`).
 * @param {Settings} settings
 * @param {Run} run
 * @param {State} state
 * @param {View} view
 * @returns {number[] | undefined}
 */
function epochOver(settings, run, state, view) {
  if (settings.epochEnd === "keep") return undefined;
  const first = view.pool[0];
  if (first && (state.epoch < 0 || (view.groups.length === 0 && first.epoch > state.epoch))) {
    state.epoch = first.epoch;
  }
  const rest = view.pool.filter((p) => p.epoch <= state.epoch).map((p) => p.id);
  return rest.length < promptsOf(settings, run) ? rest : undefined;
}

/**
 * So many of the survivors, in order of choice. All of them, as they stand, if there are no more.
 * @param {"random" | "max-variance" | "most-recent"} sampling
 * @param {Group[]} survivors
 * @param {number} count
 * @param {Chance} chance
 */
export function choose(sampling, survivors, count, chance) {
  if (survivors.length <= count) return survivors;
  if (sampling === "random") return chance.draw(survivors.length, count).map((i) => survivors[i]);
  const ranked = survivors.map((group) => ({
    group,
    variance: sampling === "max-variance" ? variance(group) : 0,
    newest: Math.min(...group.ages),
  }));
  ranked.sort((a, b) => b.variance - a.variance || a.newest - b.newest);
  return ranked.slice(0, count).map(({ group }) => group);
}

/**
 * The variance of right and wrong: k (n - k) / n², rounded once, so that equal ones tie.
 * @param {Group} group
 */
function variance(group) {
  return (solved(group) * (size(group) - solved(group))) / size(group) ** 2;
}

/**
 * Commits of a round, cut so that all its rollouts are a multiple of `ranks`.
 * @param {number} count
 * @param {number} pilots
 * @param {number} commit
 * @param {number} ranks
 */
export function gpuCut(count, pilots, commit, ranks) {
  if ((pilots + count * commit) % ranks === 0) return count;
  // Down to a multiple of lcm(ranks, commit) rollouts, which is this many commits.
  if (pilots % ranks === 0) return count - (count % (ranks / gcd(ranks, commit)));
  let fewer = count - 1;
  while (fewer > 0 && (pilots + fewer * commit) % ranks !== 0) fewer--;
  return Math.max(fewer, 0);
}

/**
 * @param {number} a
 * @param {number} b
 * @returns {number}
 */
function gcd(a, b) {
  return b === 0 ? a : gcd(b, a % b);
}

/**
 * Positions of `m` pilots of largest variance: half of them correct, those first, then the others;
 * where one kind is short the other fills up. Which of a kind is drawn.
 * @param {boolean[]} correct
 * @param {number} m
 * @param {Chance} chance
 */
export function downsample(correct, m, chance) {
  const positions = [...correct.keys()];
  const ones = positions.filter((i) => correct[i]);
  const zeros = positions.filter((i) => !correct[i]);
  const kept = Math.min(m, correct.length);
  const right = Math.max(Math.min(Math.floor(kept / 2), ones.length), kept - zeros.length);
  return [
    ...chance.draw(ones.length, right).map((i) => ones[i]),
    ...chance.draw(zeros.length, kept - right).map((i) => zeros[i]),
  ];
}
