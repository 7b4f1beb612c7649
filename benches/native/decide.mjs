// Times a policy's `decide` in plain Node: node decide.mjs FOLDER QUESTION.json prints seconds.

import { readFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { begin, decide, runWith } from "../../policies/sdk/js/calls.js";

const [folder, question] = process.argv.slice(2);
const policy = await import(pathToFileURL(path.join(path.resolve(folder), "policy.js")));
const asked = JSON.parse(readFileSync(question, "utf8"));

/** The same with names as JavaScript has them. */
const camel = (name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
const renamed = (value) => {
  if (Array.isArray(value)) return value.map(renamed);
  if (value === null || typeof value !== "object") return value ?? undefined;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [camel(name), renamed(inner)]));
};
const { settings, terms, ...constants } = renamed(asked.run);
const run = { ...runWith(policy), ...constants };
const view = renamed(asked.view);
view.budget.runTokens = BigInt(view.budget.runTokens);
// A record has some names of contract 0.1, and leaves out what is as nothing.
for (const group of view.groups) Object.assign(group, { lengths: group.tokens, epoch: group.epoch ?? 0 });
for (const prompt of view.pool) {
  prompt.length = prompt.tokens;
  const { past } = prompt;
  if (!past) continue;
  const n = past.rollouts;
  Object.assign(past, { std: past.deviation * Math.sqrt(n / Math.max(n - 1, 1)), meanLength: past.tokens });
}

const state = begin(policy, run);
let best = Infinity;
for (let i = 0; i < 20; i++) {
  const start = performance.now();
  decide(policy, run, state, view);
  best = Math.min(best, performance.now() - start);
}
console.log(best / 1000);
