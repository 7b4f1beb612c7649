// The contract's types, wit/0.3/allocation.wit, as JavaScript sees them: names in camelCase, lists of
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
  /** Model updates that may be under way while rollouts are sampled. 0 where they take turns. */
  lag: number;
  /** The policy's `columns`, in that order. */
  columns: Column[];
  /** Names of the parts that rewards are made of. With "parts" among `needs`. */
  parts: string[];
  /** How rollouts are sampled. */
  sampling: SamplingRange;
  /** How updates are made where a plan says nothing else. Its passes are also the most that one may ask for. */
  update: Update;
}

/** A column of the data set: some numbers for each prompt. All are finite. */
export interface Column {
  name: string;
  /** Numbers for each prompt: 1, or the size of a vector. */
  width: number;
  /** Where the column has words instead of numbers: its numbers are positions in this list. */
  categories: string[];
}

/** How rollouts are sampled, and what a request may change of it. */
export interface SamplingRange {
  /** Where a request says nothing else. */
  default: Sampling;
  /** What a request may go down to. */
  least: Sampling;
  /** What a request may go up to. */
  most: Sampling;
}

/** Settings of the sampler. */
export interface Sampling {
  temperature: number;
  /** The length limit, in generated tokens. At least 1. */
  maxTokens: number;
  /**
   * The limit of an episode's turns, those that it keeps of another rollout included. At least 1; 1 where
   * rollouts are single answers.
   */
  maxTurns: number;
}

/** The geometry of an update. */
export interface Update {
  /** Rollouts in each optimizer step. At least 1; the last step takes what remains. */
  miniBatch: number;
  /** Passes over the batch. At least 1. */
  passes: number;
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
  /** Buffered rollouts, by prompt: those sampled in this step, after those held. */
  groups: Group[];
  /** Rollouts of this step that could not be scored. They are paid for and in no group. */
  unscored: Tally[];
  /** Rollouts granted that are not there yet. Empty where `run.lag` is 0. */
  underWay: Tally[];
}

/** Some rollouts of one prompt, by number alone. */
export interface Tally {
  prompt: PromptId;
  rollouts: number;
}

/** What is left to spend. The largest value of its type stands for "no limit". */
export interface Budget {
  /** Rounds of sampling in this step. At 0 only `train` is taken. */
  rounds: number;
  /** Rollouts in this step. At 0 only `train` is taken. */
  stepRollouts: number;
  /** Rollouts that the run still grants. At 0 a `sample` ends the run: train first. */
  runRollouts: number;
  /** Generated tokens in the run. */
  runTokens: bigint;
  /** Floating-point operations in the run, less those of learning from all that is buffered. */
  runFlops: number;
}

/** A prompt on offer. */
export interface Prompt {
  id: PromptId;
  /** Passes over the data set finished before this one. */
  epoch: number;
  /** The prompt's own length, in tokens. */
  length: number;
  /** The last visit, a step in which the prompt was sampled from its beginning; undefined before the first. */
  past: Past | undefined;
}

/** The outcome of a prompt's last visit. Only rollouts that were scored and that began with the prompt count. */
export interface Past {
  /** The step it was in. */
  step: number;
  /** Visits so far, this one included. */
  visits: number;
  /** Rollouts sampled in it. */
  rollouts: number;
  /** How many of them were correct. */
  correct: number;
  /** Mean reward. */
  mean: number;
  /** Standard deviation of the rewards: of the sample, divided by n - 1, as in advantages. */
  std: number;
  /** Mean length of the answers, in tokens. */
  meanLength: number;
  /** Visits in a row, ending with this one, that taught nothing in the same way. */
  streak: number;
  /** Rollouts in all visits together. */
  totalRollouts: number;
  /** How many of those were correct. */
  totalCorrect: number;
}

/**
 * The buffered rollouts of one prompt. Position `i` of each list tells of rollout `i`. A list that is
 * filled only for policies that need it is empty for all others.
 */
export interface Group {
  prompt: PromptId;
  /** The epoch in which the prompt was on offer. */
  epoch: number;
  rewards: Float32Array;
  /** Whether the answer was right, whatever else the reward counts. */
  correct: boolean[];
  /** Length of the answer, in tokens. */
  lengths: Uint32Array;
  /** Model updates made since the rollout was sampled. 0 is on-policy. */
  ages: Uint32Array;
  /** Whether the answer met its length limit before it came to an end. */
  truncated: boolean[];
  /** A list for each of the policy's `signals`, in that order. */
  signals: Float32Array[];
  /** A list for each of `run.parts`, in that order. With "parts" among `needs`. */
  parts: Float32Array[];
  /** Updates that were made on the rollout. With "replay" among `needs`. */
  trained: Uint32Array;
  /** How the rollout was sampled. With "sampling" among `needs`. */
  sampling: Sampling[];
  /**
   * The turns of the rollout, in order. Their tokens add up to its length. None if its environment ended it
   * before the first. With "turns" among `needs`.
   */
  turns: Turn[][];
  /** Why the rollout ended. With "turns" among `needs`. */
  stopped: Stopped[];
  /** What the rollout continues; undefined if it began with the prompt. With "starting" among `needs`. */
  origins: (Origin | undefined)[];
}

/** A turn of the model. */
export interface Turn {
  /**
   * Tokens read before it: what the environment said. In the first turn of a rollout that continues another,
   * all that was kept of that one comes before.
   */
  read: number;
  /** Tokens generated in it. */
  tokens: number;
}

/** Why an episode ended: the environment ended it, or a limit did. */
export type Stopped = "done" | "max-turns" | "max-tokens" | "max-read-tokens" | "max-tool-calls" | "max-seconds";

/** What a rollout continues. */
export interface Origin {
  /**
   * The position in the group's lists of the rollout that it continues; undefined if that one is no longer
   * buffered.
   */
  rollout: number | undefined;
  /** The last turn that was kept of it, from 0. */
  turn: number;
}

/** Some rollouts of one prompt, to add to those buffered. */
export interface Request extends RequestOptions {
  prompt: PromptId;
  /** At least 1. */
  count: number;
}

/** What else a request may say. */
export interface RequestOptions {
  /**
   * When fewer are enough: after the portion by which so many are correct and so many wrong. With
   * "stopping" among `needs`.
   */
  until?: { correct: number; wrong: number; portion: number };
  /** How to sample them, within `run.sampling`. With "sampling" among `needs`. */
  sampling?: Sampling;
  /**
   * What the rollouts continue: one entry for each of `count`, in order, undefined or null for a rollout that
   * begins with the prompt. All of them do if not given, or empty. With "starting" among `needs`.
   */
  starts?: readonly (Start | null | undefined)[];
}

/**
 * A buffered rollout of the request's prompt, and where a new rollout leaves it. What is kept is read and not
 * generated.
 */
export interface Start {
  /** Its position in the group's lists. */
  rollout: number;
  /**
   * The last of its turns that is kept, from 0. Its last turn of all ended the episode, so another one follows
   * the turn that is kept.
   */
  turn: number;
}

/** The rollouts of one group to train on. */
export interface Pick {
  prompt: PromptId;
  /** Their positions in the group's lists, or undefined for all. */
  rollouts: number[] | Uint32Array | undefined;
  advantage:
    | { tag: "picked" }
    | { tag: "group" }
    | { tag: "among"; val: number[] | Uint32Array }
    | { tag: "given"; val: number[] | Float32Array }
    | { tag: "by-turn"; val: (number[] | Float32Array)[] };
  weight: number;
}

/** What to train on. */
export interface Batch {
  picks: Pick[];
  /** What stays buffered for the next step: of a prompt all that is not picked, or some. */
  hold: (PromptId | Hold)[];
  /** How the update is made; the run's own way if not given. */
  update?: Update;
}

/** Rollouts of one prompt that stay buffered, by their positions in its group. */
export interface Hold {
  prompt: PromptId;
  rollouts: number[] | Uint32Array;
}

/** What to do next. */
export type Action = { tag: "sample"; val: Request[] } | { tag: "train"; val: Batch };

/** A policy's answer to a view, as the contract has it. `Plan` makes one. */
export interface PlanRecord {
  action: Action;
  skip: PromptId[];
  defer: PromptId[];
  evict: PromptId[];
  state: Uint8Array;
  metrics: [string, number][];
}

/** How a pick's rewards become advantages, and what they count. */
export interface PickOptions {
  /**
   * Measured against the rollouts picked, against all of the prompt's buffered ones, against those at some
   * positions, or the policy's own, one for each rollout picked, or by turn: for each rollout picked one for
   * each of its turns, with "turns" among `needs`. `"picked"` if not given.
   */
  advantage?:
    | "picked"
    | "group"
    | { among: number[] | Uint32Array }
    | number[]
    | Float32Array
    | { byTurn: (number[] | Float32Array)[] };
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
  columns: string[];
  needs: Need[];
}

/** What not every run can give. */
export type Need = "any-prompt" | "replay" | "sampling" | "stopping" | "updating" | "parts" | "turns" | "starting";

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
  /** Columns of the data set to ask `facts` for, by name. */
  columns?: readonly string[];
  /** What else the policy makes use of. */
  needs?: readonly Need[];
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
