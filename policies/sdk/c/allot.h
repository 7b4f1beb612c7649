// What a C author needs to write an allocation policy.
//
// A policy is three functions in one file: `describe`, `begin` and `decide`. They are declared
// below. It is a pure function: all it knows is in its arguments, and all it may remember is in
// the state that it returns.
//
// Each call has a memory of its own, which goes when the call ends. So nothing is ever freed.
//
// Compiled for the machine at hand the three are plain functions that a test calls (see `made.h`);
// compiled for Wasm they are a component of the contract `rollout:allocation@0.3.0`.
#ifndef ALLOT_H
#define ALLOT_H

#include "gen/policy.h"

// The contract's types, by their own names. What each field means is told in `gen/policy.h`.
typedef rollout_allocation_types_action_t allot_action;
typedef rollout_allocation_types_advantage_t allot_advantage;
typedef rollout_allocation_types_budget_t allot_budget;
typedef rollout_allocation_types_description_t allot_description;
typedef rollout_allocation_types_enough_t allot_enough;
typedef rollout_allocation_types_error_t allot_error;
typedef rollout_allocation_types_group_t allot_group;
typedef rollout_allocation_types_hold_t allot_hold_of;
typedef rollout_allocation_types_origin_t allot_origin;
typedef rollout_allocation_types_past_t allot_past;
typedef rollout_allocation_types_pick_t allot_pick;
typedef rollout_allocation_types_plan_t allot_plan;
typedef rollout_allocation_types_prompt_t allot_prompt;
typedef rollout_allocation_types_prompt_id_t allot_prompt_id;
typedef rollout_allocation_types_request_t allot_request;
typedef rollout_allocation_types_run_t allot_run;
typedef rollout_allocation_types_sampling_t allot_sampling_of;
typedef rollout_allocation_types_setting_t allot_setting;
typedef rollout_allocation_types_start_t allot_start_of;
typedef rollout_allocation_types_stopped_t allot_stopped;
typedef rollout_allocation_types_tally_t allot_tally;
typedef rollout_allocation_types_turn_t allot_turn;
typedef rollout_allocation_types_update_t allot_update_of;
typedef rollout_allocation_types_value_t allot_value;
typedef rollout_allocation_types_view_t allot_view;
typedef policy_list_u8_t allot_bytes;
typedef policy_list_u32_t allot_counts;
typedef policy_list_f32_t allot_numbers;
typedef policy_string_t allot_text;

// ── What a policy's file defines ───────────────────────────────────────────────────────────

// They keep their names in a component, whatever the compiler would merge them into: a trap then
// tells which of them it was in.
#define ALLOT_EXPORT __attribute__((noinline))

// Says what the policy is and what can be set.
ALLOT_EXPORT void describe(allot_description *self);

// Checks the run's settings and gives the first state. Where it returns false, `error` says why.
// May be left out: then all is well, and the state is empty.
ALLOT_EXPORT bool begin(const allot_run *run, allot_bytes *state, allot_error *error);

// Says what to do next. Where it returns false, `error` says why.
ALLOT_EXPORT bool decide(const allot_run *run, const allot_bytes *state, const allot_view *view,
                         allot_plan *plan, allot_error *error);

// ── The log, text, lists, errors and settings ──────────────────────────────────────────────

#define allot_write rollout_allocation_log_write
#define ALLOT_TYPE(name) ROLLOUT_ALLOCATION_TYPES_##name
typedef allot_run allot_settings;

#include "settings.h"

// The state is none that this version of the policy has written. Gives false.
static inline bool allot_bad_state(allot_error *error, const char *reason) {
  error->tag = ROLLOUT_ALLOCATION_TYPES_ERROR_STATE;
  error->val.state = allot_words(reason, NULL);
  return false;
}

// ── Description ────────────────────────────────────────────────────────────────────────────

// A signal to show beside each rollout.
static inline void allot_signal(allot_description *self, const char *name) {
  allot_push(&self->signals, allot_words(name, NULL));
}

// A column of the data set to ask `allot_fact_column` for.
static inline void allot_column(allot_description *self, const char *name) {
  allot_push(&self->columns, allot_words(name, NULL));
}

// What not every run can give.
enum {
  ALLOT_ANY_PROMPT = ROLLOUT_ALLOCATION_TYPES_NEEDS_ANY_PROMPT,
  ALLOT_REPLAY = ROLLOUT_ALLOCATION_TYPES_NEEDS_REPLAY,
  ALLOT_SAMPLING = ROLLOUT_ALLOCATION_TYPES_NEEDS_SAMPLING,
  ALLOT_STOPPING = ROLLOUT_ALLOCATION_TYPES_NEEDS_STOPPING,
  ALLOT_UPDATING = ROLLOUT_ALLOCATION_TYPES_NEEDS_UPDATING,
  ALLOT_PARTS = ROLLOUT_ALLOCATION_TYPES_NEEDS_PARTS,
  ALLOT_TURNS = ROLLOUT_ALLOCATION_TYPES_NEEDS_TURNS,
  ALLOT_STARTING = ROLLOUT_ALLOCATION_TYPES_NEEDS_STARTING,
};

// What else the policy makes use of: `allot_needs(self, ALLOT_REPLAY | ALLOT_STOPPING)`.
static inline void allot_needs(allot_description *self, int needs) { self->needs |= (uint8_t)needs; }

// ── Views ──────────────────────────────────────────────────────────────────────────────────

// Whether the host would serve another round of sampling.
static inline bool allot_open(const allot_budget *budget) {
  return budget->rounds && budget->step_rollouts && budget->run_rollouts && budget->run_tokens;
}

// Whether there are prompts on offer and a budget to sample them with.
static inline bool allot_can_sample(const allot_view *view) {
  return allot_open(&view->budget) && view->pool.len > 0;
}

// How many prompts there are when the first `n` of the pool are taken: `n`, or all that are there.
static inline size_t allot_offer(const allot_view *view, uint32_t n) {
  return view->pool.len < n ? view->pool.len : n;
}

// The buffered rollouts of a prompt, or NULL. Looks through all groups.
static inline const allot_group *allot_group_of(const allot_view *view, allot_prompt_id prompt) {
  for (size_t i = 0; i < view->groups.len; i++)
    if (view->groups.ptr[i].prompt == prompt) return &view->groups.ptr[i];
  return NULL;
}

// Buffered rollouts.
static inline size_t allot_len(const allot_group *group) { return group->rewards.len; }

// How many of them are correct.
static inline size_t allot_solved(const allot_group *group) {
  size_t solved = 0;
  for (size_t i = 0; i < group->correct.len; i++) solved += group->correct.ptr[i];
  return solved;
}

// Share of correct rollouts.
static inline double allot_pass_rate(const allot_group *group) {
  return (double)allot_solved(group) / (double)allot_len(group);
}

// Whether all rewards are one and the same: nothing to learn here. `max == min`, never `std > 0`,
// whose rounding error keeps groups of a constant such as 0.1.
static inline bool allot_flat(const allot_group *group) {
  for (size_t i = 1; i < group->rewards.len; i++)
    if (group->rewards.ptr[i] != group->rewards.ptr[0]) return false;
  return true;
}

// Mean reward.
static inline double allot_mean(const allot_group *group) {
  double sum = 0;
  for (size_t i = 0; i < group->rewards.len; i++) sum += (double)group->rewards.ptr[i];
  return sum / (double)allot_len(group);
}

// The age of the oldest rollout, in model updates.
static inline uint32_t allot_age(const allot_group *group) {
  uint32_t oldest = 0;
  for (size_t i = 0; i < group->ages.len; i++)
    if (group->ages.ptr[i] > oldest) oldest = group->ages.ptr[i];
  return oldest;
}

// Why an episode ended: `group->stopped`, for a policy that needs ALLOT_TURNS.
enum {
  ALLOT_STOPPED_DONE = ROLLOUT_ALLOCATION_TYPES_STOPPED_DONE,
  ALLOT_STOPPED_MAX_TURNS = ROLLOUT_ALLOCATION_TYPES_STOPPED_MAX_TURNS,
  ALLOT_STOPPED_MAX_TOKENS = ROLLOUT_ALLOCATION_TYPES_STOPPED_MAX_TOKENS,
  ALLOT_STOPPED_MAX_READ_TOKENS = ROLLOUT_ALLOCATION_TYPES_STOPPED_MAX_READ_TOKENS,
  ALLOT_STOPPED_MAX_TOOL_CALLS = ROLLOUT_ALLOCATION_TYPES_STOPPED_MAX_TOOL_CALLS,
  ALLOT_STOPPED_MAX_SECONDS = ROLLOUT_ALLOCATION_TYPES_STOPPED_MAX_SECONDS,
};

// Standard deviation of a visit's rewards as contract 0.1 had it: of the population, divided by n.
static inline float allot_deviation(const allot_past *past) {
  const double n = past->rollouts ? past->rollouts : 1;
  return (float)((double)past->std * __builtin_sqrt((n - 1) / n));
}

// ── Facts ──────────────────────────────────────────────────────────────────────────────────

// What the host knows of the data set's prompts, on offer or not: a list with an entry for each prompt
// asked about. To be asked within `decide`. A policy that asks about a prompt that the data set does not
// have, or for a column that it does not describe, ends the run. Natively the answers are those that a
// test makes, see `made_facts`.

typedef rollout_allocation_facts_prompts_t allot_prompts;
typedef rollout_allocation_facts_token_costs_t allot_costs;

// Counts of past visits, as in `allot_past`.
enum {
  ALLOT_VISITS = ROLLOUT_ALLOCATION_FACTS_COUNT_VISITS,
  ALLOT_STEP = ROLLOUT_ALLOCATION_FACTS_COUNT_STEP,
  ALLOT_ROLLOUTS = ROLLOUT_ALLOCATION_FACTS_COUNT_ROLLOUTS,
  ALLOT_CORRECT = ROLLOUT_ALLOCATION_FACTS_COUNT_CORRECT,
  ALLOT_STREAK = ROLLOUT_ALLOCATION_FACTS_COUNT_STREAK,
  ALLOT_TOTAL_ROLLOUTS = ROLLOUT_ALLOCATION_FACTS_COUNT_TOTAL_ROLLOUTS,
  ALLOT_TOTAL_CORRECT = ROLLOUT_ALLOCATION_FACTS_COUNT_TOTAL_CORRECT,
};

// Means of the last visit, as in `allot_past`.
enum {
  ALLOT_MEAN = ROLLOUT_ALLOCATION_FACTS_MEASURE_MEAN,
  ALLOT_STD = ROLLOUT_ALLOCATION_FACTS_MEASURE_STD,
  ALLOT_MEAN_LENGTH = ROLLOUT_ALLOCATION_FACTS_MEASURE_MEAN_LENGTH,
};

// All prompts, in the order of the data set.
static inline allot_prompts allot_all(void) {
  return (allot_prompts){.tag = ROLLOUT_ALLOCATION_FACTS_PROMPTS_ALL};
}

// Those from the first up to the end, without it.
static inline allot_prompts allot_between(allot_prompt_id first, allot_prompt_id end) {
  return (allot_prompts){ROLLOUT_ALLOCATION_FACTS_PROMPTS_BETWEEN, {.between = {first, end}}};
}

// These, in this order.
static inline allot_prompts allot_listed(allot_prompt_id *prompts, size_t n) {
  return (allot_prompts){ROLLOUT_ALLOCATION_FACTS_PROMPTS_LISTED, {.listed = {n ? prompts : allot_new(1, 4), n}}};
}

#ifdef __wasm__

// Counts of past visits. 0 for a prompt without any.
static inline allot_counts allot_fact_counts(int what, allot_prompts of) {
  allot_counts counts;
  rollout_allocation_facts_counts((rollout_allocation_facts_count_t)what, &of, &counts);
  return counts;
}

// Means of the last visit. 0 for a prompt without any.
static inline allot_numbers allot_fact_measures(int what, allot_prompts of) {
  allot_numbers numbers;
  rollout_allocation_facts_measures((rollout_allocation_facts_measure_t)what, &of, &numbers);
  return numbers;
}

// A column that the policy describes, as many numbers for each prompt as `run->columns` says.
static inline allot_numbers allot_fact_column(const char *name, allot_prompts of) {
  allot_text text = allot_words(name, NULL);
  allot_numbers numbers;
  rollout_allocation_facts_column(&text, &of, &numbers);
  return numbers;
}

// What a token takes.
static inline allot_costs allot_fact_costs(void) {
  allot_costs costs;
  rollout_allocation_facts_costs(&costs);
  return costs;
}

#else
#include "told.h"
#endif

// ── Plans ──────────────────────────────────────────────────────────────────────────────────

// A plan that samples, and asks again. Goes on with `allot_ask`.
static inline allot_plan allot_sample(void) {
  allot_plan plan;
  memset(&plan, 0, sizeof plan);
  plan.action.tag = ROLLOUT_ALLOCATION_TYPES_ACTION_SAMPLE;
  return plan;
}

// A plan that trains, and ends the step. Goes on with `allot_pick_all` or `allot_pick_some`.
static inline allot_plan allot_train(void) {
  allot_plan plan = allot_sample();
  plan.action.tag = ROLLOUT_ALLOCATION_TYPES_ACTION_TRAIN;
  return plan;
}

// `count` more rollouts of a prompt. The request may be changed until the next one is made.
static inline allot_request *allot_ask(allot_plan *plan, allot_prompt_id prompt, uint32_t count) {
  allot_assert(plan->action.tag == ROLLOUT_ALLOCATION_TYPES_ACTION_SAMPLE);
  allot_request request;
  memset(&request, 0, sizeof request);
  request.prompt = prompt;
  request.count = count;
  allot_push(&plan->action.val.sample, request);
  return &plan->action.val.sample.ptr[plan->action.val.sample.len - 1];
}

// Ends a request early: after the `portion` by which so many of its rollouts are correct and so many wrong.
// The policy needs ALLOT_STOPPING.
static inline void allot_until(allot_request *request, uint32_t correct, uint32_t wrong, uint32_t portion) {
  request->until.is_some = true;
  request->until.val = (allot_enough){correct, wrong, portion};
}

// Samples a request in another way, within `run->sampling`: what is to stay as it is comes from
// `run->sampling.default_`. The policy needs ALLOT_SAMPLING.
static inline void allot_sampling(allot_request *request, float temperature, uint32_t max_tokens,
                                  uint32_t max_turns) {
  request->sampling.is_some = true;
  request->sampling.val = (allot_sampling_of){temperature, max_tokens, max_turns};
}

// Lets rollout `i` of a request's `count`, from 0, continue a buffered rollout of the prompt, by its position in
// the group, after its turn `turn`, from 0. Those that are not told to continue any begin with the prompt. The
// policy needs ALLOT_STARTING.
static inline void allot_start(allot_request *request, uint32_t i, uint32_t rollout, uint32_t turn) {
  allot_assert(i < request->count);
  if (!request->starts.len) {
    request->starts.ptr = allot_new(request->count, sizeof *request->starts.ptr);
    request->starts.len = request->count;
  }
  request->starts.ptr[i].is_some = true;
  request->starts.ptr[i].val = (allot_start_of){rollout, turn};
}

// Train on all rollouts of a prompt, measured against each other. The pick may be changed until
// the next one is made.
static inline allot_pick *allot_pick_all(allot_plan *plan, allot_prompt_id prompt) {
  allot_assert(plan->action.tag == ROLLOUT_ALLOCATION_TYPES_ACTION_TRAIN);
  allot_pick pick;
  memset(&pick, 0, sizeof pick);
  pick.prompt = prompt;
  pick.advantage.tag = ROLLOUT_ALLOCATION_TYPES_ADVANTAGE_PICKED;
  pick.weight = 1;
  allot_push(&plan->action.val.train.picks, pick);
  return &plan->action.val.train.picks.ptr[plan->action.val.train.picks.len - 1];
}

// Train on `n` rollouts of a prompt, by their positions in its group, measured against each other.
static inline allot_pick *allot_pick_some(allot_plan *plan, allot_prompt_id prompt,
                                          const uint32_t *positions, size_t n) {
  allot_pick *pick = allot_pick_all(plan, prompt);
  pick->rollouts.is_some = true;
  for (size_t i = 0; i < n; i++) allot_push(&pick->rollouts.val, positions[i]);
  return pick;
}

// Measures a pick against all of the prompt's buffered rollouts.
static inline void allot_against_group(allot_pick *pick) {
  pick->advantage.tag = ROLLOUT_ALLOCATION_TYPES_ADVANTAGE_GROUP;
}

// Measures a pick against the rollouts at `n` positions, picked or not.
static inline void allot_among(allot_pick *pick, const uint32_t *positions, size_t n) {
  memset(&pick->advantage, 0, sizeof pick->advantage);
  pick->advantage.tag = ROLLOUT_ALLOCATION_TYPES_ADVANTAGE_AMONG;
  for (size_t i = 0; i < n; i++) allot_push(&pick->advantage.val.among, positions[i]);
}

// Gives a pick the policy's own advantages, one for each of the `n` rollouts picked.
static inline void allot_given(allot_pick *pick, const float *advantages, size_t n) {
  memset(&pick->advantage, 0, sizeof pick->advantage);
  pick->advantage.tag = ROLLOUT_ALLOCATION_TYPES_ADVANTAGE_GIVEN;
  for (size_t i = 0; i < n; i++) allot_push(&pick->advantage.val.given, advantages[i]);
}

// Gives the next rollout of a pick the policy's own advantages by turn, one for each of its `n` turns: to be called
// for each of the rollouts picked, in that order. The policy needs ALLOT_TURNS.
static inline void allot_by_turn(allot_pick *pick, const float *advantages, size_t n) {
  if (pick->advantage.tag != ROLLOUT_ALLOCATION_TYPES_ADVANTAGE_BY_TURN) {
    memset(&pick->advantage, 0, sizeof pick->advantage);
    pick->advantage.tag = ROLLOUT_ALLOCATION_TYPES_ADVANTAGE_BY_TURN;
  }
  allot_numbers turns = {NULL, 0};
  for (size_t i = 0; i < n; i++) allot_push(&turns, advantages[i]);
  allot_push(&pick->advantage.val.by_turn, turns);
}

// Keeps the rollouts of a prompt buffered for the next step, all that the plan does not pick. Only a plan
// that trains discards any.
static inline void allot_hold(allot_plan *plan, allot_prompt_id prompt) {
  allot_assert(plan->action.tag == ROLLOUT_ALLOCATION_TYPES_ACTION_TRAIN);
  allot_hold_of hold;
  memset(&hold, 0, sizeof hold);
  hold.prompt = prompt;
  allot_push(&plan->action.val.train.hold, hold);
}

// Keeps `n` rollouts of a prompt buffered, by their positions in its group; for a policy that needs
// ALLOT_REPLAY also those that the plan picks.
static inline void allot_hold_some(allot_plan *plan, allot_prompt_id prompt, const uint32_t *positions,
                                   size_t n) {
  allot_hold(plan, prompt);
  allot_hold_of *hold = &plan->action.val.train.hold.ptr[plan->action.val.train.hold.len - 1];
  hold->rollouts.is_some = true;
  for (size_t i = 0; i < n; i++) allot_push(&hold->rollouts.val, positions[i]);
}

// Updates the model in optimizer steps of `mini_batch` rollouts, in so many passes. The policy needs
// ALLOT_UPDATING.
static inline void allot_update(allot_plan *plan, uint32_t mini_batch, uint32_t passes) {
  allot_assert(plan->action.tag == ROLLOUT_ALLOCATION_TYPES_ACTION_TRAIN);
  plan->action.val.train.update.is_some = true;
  plan->action.val.train.update.val = (allot_update_of){mini_batch, passes};
}

// Passes over a prompt of the pool until the next epoch.
static inline void allot_skip(allot_plan *plan, allot_prompt_id prompt) { allot_push(&plan->skip, prompt); }

// Puts a prompt of the pool back: it comes on offer again in this epoch, after all others of it.
static inline void allot_defer(allot_plan *plan, allot_prompt_id prompt) { allot_push(&plan->defer, prompt); }

// Never offers a prompt again in this run.
static inline void allot_evict(allot_plan *plan, allot_prompt_id prompt) { allot_push(&plan->evict, prompt); }

// Logs a number beside the run's own.
static inline void allot_metric(allot_plan *plan, const char *name, double value) {
  policy_tuple2_string_f64_t metric = {allot_words(name, NULL), value};
  allot_push(&plan->metrics, metric);
}

// ── State ──────────────────────────────────────────────────────────────────────────────────

// Remembers a struct without pointers, as `state` of `begin` or `&plan->state` of `decide`. Begin
// it with a number that you change with its fields, and check that number when it comes back.
static inline void allot_remember(allot_bytes *state, const void *memory, size_t size) {
  *state = (allot_bytes){allot_new(size, 1), size};
  memcpy(state->ptr, memory, size);
}

// Gets it back. Where it returns false, the error is filled in.
static inline bool allot_recall(const allot_bytes *state, void *memory, size_t size, allot_error *error) {
  if (state->len != size) return allot_bad_state(error, "it has another size than this version's");
  memcpy(memory, state->ptr, size);
  return true;
}

// ── Chance ─────────────────────────────────────────────────────────────────────────────────

// SplitMix64 (Steele, Lea, Flood 2014), grown from `view->seed`: a policy's only source of chance.
// The same seed gives the same draws on every machine, and in every language of this kit.
typedef struct allot_chance {
  uint64_t state;
} allot_chance;

static inline allot_chance allot_chance_of(uint32_t seed) { return (allot_chance){seed}; }

// 64 random bits.
static inline uint64_t allot_bits(allot_chance *chance) {
  uint64_t z = chance->state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Uniform in [0, 1), with 53 bits.
static inline double allot_unit(allot_chance *chance) {
  return (double)(allot_bits(chance) >> 11) / 9007199254740992.0;
}

// Uniform in 0..n. `n` must not be 0.
static inline uint32_t allot_below(allot_chance *chance, uint32_t n) {
  // The upper half of a product of 64 bits by 32, in two parts.
  const uint64_t bits = allot_bits(chance);
  return (uint32_t)(((bits >> 32) * n + (((bits & 0xFFFFFFFFu) * n) >> 32)) >> 32);
}

// `k` of 0..n without replacement, in the order drawn; all of them, shuffled, if `k >= n`.
static inline uint32_t *allot_draw(allot_chance *chance, uint32_t n, uint32_t k) {
  uint32_t *all = allot_new(n, sizeof *all);
  for (uint32_t i = 0; i < n; i++) all[i] = i;
  for (uint32_t i = 0; i < k && i < n; i++) {
    const uint32_t j = i + allot_below(chance, n - i), drawn = all[j];
    all[j] = all[i];
    all[i] = drawn;
  }
  return all;
}

#endif
