// The contract's types, wit/0.1/allocation.wit, as JavaScript sees them: names in camelCase, lists of
// numbers as typed arrays, an absent value as undefined.

import type { Plan } from "./plan.js";
import type { Setting } from "./settings.js";

/** A prompt's position in the data set: the same in every run over it. */
export type PromptId = number;

/** The run's constants. */
export interface Run {
  /** Every setting the policy described, with the value in force. `decide` gets them read. */
  settings: [string, Value][];
  /** Prompts in the data set. */
  prompts: number;
  /** Steps planned. */
  steps: number;
  /** Groups to train on in each update, as a uniform policy would. */
  groups: number;
  /** Rollouts in each group, as a uniform policy would. */
  rollouts: number;
  /** Prompts on offer in each view, at most. */
  pool: number;
  /** The oldest age at which the host still keeps a rollout, in model updates. */
  maxAge: number;
}

/** The step so far: all that a decision may rest on. */
export interface View {
  /** Steps finished so far in the run. */
  step: number;
  /** Rounds of sampling done so far in this step. 0 opens a step. */
  round: number;
  /** Random bits, fresh for each call: a policy's only source of chance. */
  seed: number;
  /** What is left to spend. */
  budget: Budget;
  /** Prompts on offer, in the run's order. */
  pool: Prompt[];
  /** Rollouts on hand, by prompt: those sampled in this step, after those held. */
  groups: Group[];
}

/** What is left to spend. The largest value of its type stands for "no limit". */
export interface Budget {
  /** Rounds of sampling in this step. At 0 only `train` is taken. */
  rounds: number;
  /** Rollouts in this step. At 0 only `train` is taken. */
  stepRollouts: number;
  /** Rollouts in the run. At 0 a `sample` ends the run: train first. */
  runRollouts: number;
  /** Generated tokens in the run. */
  runTokens: bigint;
}

/** A prompt on offer. It has no rollouts on hand. */
export interface Prompt {
  id: PromptId;
  /** Passes over the data set finished before this one. */
  epoch: number;
  /** The prompt's own length, in tokens. */
  tokens: number;
  /** The last visit, a step in which the prompt was sampled; undefined before the first. */
  past: Past | undefined;
}

/** The outcome of a prompt's last visit. */
export interface Past {
  /** The step it was in. */
  step: number;
  /** Visits so far, this one included. */
  visits: number;
  /** Rollouts sampled in it and scored. */
  rollouts: number;
  /** How many of them were correct. */
  correct: number;
  /** Mean reward. */
  mean: number;
  /** Standard deviation of the rewards (of the population: divided by n). */
  deviation: number;
  /** Mean length, in generated tokens. */
  tokens: number;
  /** Visits in a row, ending with this one, that taught nothing in the same way. */
  streak: number;
  /** Rollouts in all visits together. */
  totalRollouts: number;
  /** How many of those were correct. */
  totalCorrect: number;
}

/** The rollouts on hand for one prompt. Position `i` of each list tells of rollout `i`. */
export interface Group {
  prompt: PromptId;
  rewards: Float32Array;
  /** Whether the answer was right, whatever else the reward counts. */
  correct: boolean[];
  /** Length, in generated tokens. */
  tokens: Uint32Array;
  /** Model updates made since the rollout was sampled. 0 is on-policy. */
  ages: Uint32Array;
  /** Whether the rollout met the length limit before it came to an end. */
  truncated: boolean[];
  /** A list for each of the policy's `signals`, in that order. */
  signals: Float32Array[];
}

/** Some rollouts of one prompt, to add to those on hand. */
export interface Request {
  prompt: PromptId;
  /** At least 1. */
  count: number;
}

/** The rollouts of one group to train on. */
export interface Pick {
  prompt: PromptId;
  /** Their positions in the group's lists, or undefined for all. */
  rollouts: number[] | Uint32Array | undefined;
  advantage: { tag: "picked" } | { tag: "group" } | { tag: "given"; val: number[] | Float32Array };
  weight: number;
}

/** What to train on. */
export interface Batch {
  picks: Pick[];
  /** Prompts whose rollouts, but for those picked, stay on hand for the next step. */
  hold: PromptId[];
}

/** What to do next. */
export type Action = { tag: "sample"; val: Request[] } | { tag: "train"; val: Batch };

/** A policy's answer to a view, as the contract has it. `Plan` makes one. */
export interface PlanRecord {
  action: Action;
  skip: PromptId[];
  evict: PromptId[];
  state: Uint8Array;
  metrics: [string, number][];
}

/** How a pick's rewards become advantages, and what they count. */
export interface PickOptions {
  /**
   * Measured against the rollouts picked, against all of the prompt's on hand, or the policy's own,
   * one for each rollout picked. `"picked"` if not given.
   */
  advantage?: "picked" | "group" | number[] | Float32Array;
  /** Scales the advantages: 0 to 1,000,000. 1 if not given. */
  weight?: number;
}

/** The value of a setting. */
export type Value =
  | { tag: "flag"; val: boolean }
  | { tag: "integer"; val: number }
  | { tag: "number"; val: number }
  | { tag: "text"; val: string };

/** What a policy says of itself. */
export interface Description {
  name: string;
  version: string;
  summary: string;
  settings: { name: string; default: Value; summary: string }[];
  signals: string[];
}

/** Why a policy can't go on, as the contract carries it. */
export type Refused =
  | { tag: "setting"; val: { name: string; reason: string } }
  | { tag: "state"; val: string }
  | { tag: "other"; val: string };

/** What a policy's module exports. */
export interface Policy {
  /** Short and lower-case, as in a config: `pilot-commit`. */
  name: string;
  version: string;
  /** One line for people. */
  summary: string;
  /** Signals to show beside each rollout, by name. */
  signals?: readonly string[];
  settings?: Record<string, Setting<any>>;
  begin?(settings: any, run: Run): unknown;
  decide(settings: any, run: Run, state: any, view: View): Plan;
}

/** The values in force of a policy's `settings`: `Values<typeof settings>`. */
export type Values<S> = { [K in keyof S]: S[K] extends Setting<infer T> ? T : never };

/** The type of a policy's `begin`. */
export type Begin<S = {}, State = undefined> = (settings: Values<S>, run: Run) => State;

/** The type of a policy's `decide`. */
export type Decide<S = {}, State = undefined> = (
  settings: Values<S>,
  run: Run,
  state: State,
  view: View,
) => Plan;
