// A policy that does wrong in the way that its setting `how` names, to see how each is told.

import { all, BadSetting, canSample, GiveUp, log, offer } from "../../../policies/sdk/js/allot.js";
import { integer, request, sample, text, train } from "../../../policies/sdk/js/allot.js";

export const name = "faulty";
export const version = "0.1.0";
export const summary = "does wrong in the way it is told to";
const few = integer(4, "A number with bounds.", { min: 2, max: 64 });
export const settings = { how: text("fine", "What to do wrong."), few };

export function begin({ how }) {
  if (!(how in WAYS)) throw new BadSetting("how", `there is no \`${how}\``);
}

export function decide({ how }, run, _state, view) {
  return WAYS[how](view, run);
}

/** The same for each prompt: nothing wrong at all. */
function fine(view, run) {
  if (view.round === 0 && canSample(view)) {
    return sample(offer(view, run.groups).map((p) => request(p.id, run.rollouts)));
  }
  return train(view.groups.map((g) => all(g.prompt)));
}

const WAYS = {
  fine,
  throw: (view) => rewardBefore(view, -1),
  "throw-text": () => {
    throw "no more of this";
  },
  loop: () => {
    for (;;);
  },
  grow: () => {
    const kept = [];
    for (;;) kept.push(new Float64Array(1 << 17).fill(1));
  },
  recurse: function deeper(view) {
    return [deeper(view)];
  },
  print: (view, run) => {
    console.log("a line for standard output");
    console.error("a line for standard error");
    log.info("a line for the log");
    log.warn("a warning for the log");
    return fine(view, run);
  },
  "wrong-type": () => undefined,
  "wrong-field": () => ({ train: [] }),
  "wrong-count": (view) => sample(view.pool.map((p) => request(p.id, 1.5))),
  "give-up": () => {
    throw new GiveUp("there is nothing to be learned here");
  },
  clock: (view, run) =>
    fine(view, run)
      .metric("now", Date.now())
      .metric("since", performance.now())
      .metric("random", Math.random())
      .metric("again", Math.random()),
  timer: (view, run) => setTimeout(() => fine(view, run), 10),
  promise: async (view, run) => fine(view, run),
  needless: (view) => sample(view.pool.map((p) => request(p.id, 8, { until: { correct: 1, wrong: 1, portion: 2 } }))),
};

function rewardBefore(view, id) {
  return meanOf(view.pool.find((p) => p.id === id));
}

function meanOf(prompt) {
  return prompt.past.mean;
}
