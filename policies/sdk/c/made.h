// Made views, groups, pasts and facts, for the tests of policies: plain C, no Wasm.
//
// A test includes its policy's file, `#include "policy.c"`, and so can call all that is in it.
#ifndef ALLOT_MADE_H
#define ALLOT_MADE_H

#include <float.h>
#include <math.h>

#include "allot.h"

// Ends the test where a condition does not hold.
#define expect(condition)                                                         \
  ((condition) ? (void)0                                                          \
               : (fprintf(stderr, "%s:%d: `%s` does not hold\n", __FILE__, __LINE__, #condition), exit(1)))

// A run with the policy's default settings, and its columns with one number for each prompt. Its rollouts are
// episodes if the policy needs that.
static inline allot_run made_run(void) {
  allot_description self;
  allot_run run = {{NULL, 0}, .prompts = 1000, .steps = 100, .groups = 4, .rollouts = 8, .pool = 64, .max_age = 8};
  describe(&self);
  const uint32_t turns = self.needs & (ALLOT_TURNS | ALLOT_STARTING) ? 8 : 1;
  run.sampling.default_ = (allot_sampling_of){1, 1024, turns};
  run.sampling.least = (allot_sampling_of){0, 1, 1};
  run.sampling.most = (allot_sampling_of){2, 1024, turns};
  run.update = (allot_update_of){UINT32_MAX, 4};
  for (size_t i = 0; i < self.columns.len; i++) {
    const rollout_allocation_types_column_t column = {self.columns.ptr[i], 1, {NULL, 0}};
    allot_push(&run.columns, column);
  }
  for (size_t i = 0; i < self.settings.len; i++) {
    rollout_allocation_types_tuple2_string_value_t setting = {self.settings.ptr[i].name,
                                                              self.settings.ptr[i].default_};
    allot_push(&run.settings, setting);
  }
  return run;
}

// Replaces one of its settings.
static inline void made_setting(allot_run *run, const char *name, allot_value value) {
  for (size_t i = 0; i < run->settings.len; i++) {
    if (!allot_is(run->settings.ptr[i].f0, name)) continue;
    run->settings.ptr[i].f1 = value;
    return;
  }
  fprintf(stderr, "the policy has no setting `%s`\n", name);
  exit(1);
}

// A prompt never visited before, of the first epoch.
static inline allot_prompt made_prompt(allot_prompt_id id) {
  return (allot_prompt){.id = id, .epoch = 0, .length = 10};
}

// A view that opens the first step: prompts 0..n on offer, nothing buffered, no limit.
static inline allot_view made_view(uint32_t n) {
  allot_view view = {.step = 0, .round = 0, .seed = 1};
  view.budget = (allot_budget){UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT64_MAX, DBL_MAX};
  for (uint32_t id = 0; id < n; id++) allot_push(&view.pool, made_prompt(id));
  return view;
}

// A fresh group of `n` rewards; a rollout is correct from 1 on. What only policies that need it are shown
// is empty: `allot_push(&group.trained, 1)`.
static inline allot_group made_rewarded(allot_prompt_id prompt, const float *rewards, size_t n) {
  allot_group group = {.prompt = prompt};
  for (size_t i = 0; i < n; i++) {
    allot_push(&group.rewards, rewards[i]);
    allot_push(&group.correct, rewards[i] >= 1);
    allot_push(&group.lengths, 10);
    allot_push(&group.ages, 0);
    allot_push(&group.truncated, false);
  }
  return group;
}

// A fresh group whose rewards are its marks: '1' for a correct rollout, '0' for another.
static inline allot_group made_group(allot_prompt_id prompt, const char *marks) {
  policy_list_f32_t rewards = {NULL, 0};
  for (; *marks; marks++) allot_push(&rewards, *marks == '1');
  return made_rewarded(prompt, rewards.ptr, rewards.len);
}

// The same of episodes, one number of turns for each mark. A turn is of 5 tokens, and between two of them are 3 of
// the environment, which ended them all. All began with the prompt.
static inline allot_group made_episodes(allot_prompt_id prompt, const char *marks, const uint32_t *turns) {
  allot_group group = made_group(prompt, marks);
  for (size_t i = 0; i < allot_len(&group); i++) {
    rollout_allocation_types_list_turn_t own = {NULL, 0};
    for (uint32_t k = 0; k < turns[i]; k++) allot_push(&own, ((allot_turn){k ? 3 : 0, 5}));
    group.lengths.ptr[i] = 5 * turns[i];
    allot_push(&group.turns, own);
    allot_push(&group.stopped, ALLOT_STOPPED_DONE);
    allot_push(&group.origins, (rollout_allocation_types_option_origin_t){0});
  }
  return group;
}

// The only visit of a prompt: so many of `rollouts` correct, rewards as `made_group` makes them.
static inline rollout_allocation_types_option_past_t made_past(uint32_t correct, uint32_t rollouts) {
  const double n = rollouts, p = correct / n;
  allot_past past = {.visits = 1, .rollouts = rollouts, .correct = correct, .mean = (float)p};
  past.std = rollouts < 2 ? 0 : (float)sqrt(p * (1 - p) * n / (n - 1));
  past.mean_length = 10;
  past.streak = correct == 0 || correct == rollouts;
  past.total_rollouts = rollouts;
  past.total_correct = correct;
  return (rollout_allocation_types_option_past_t){true, past};
}

// From now on `allot_fact_…` answer of a data set of so many prompts, never visited, without columns, and
// where nothing costs anything.
static inline void made_facts(uint32_t prompts) {
  memset(&allot_told, 0, sizeof allot_told);
  allot_told.prompts = prompts;
  allot_told.past = allot_new(prompts, sizeof *allot_told.past);
}

// Adds the last visit of a prompt: `made_visited(3, made_past(2, 8).val)`.
static inline void made_visited(allot_prompt_id prompt, allot_past past) {
  expect(prompt < allot_told.prompts);
  allot_told.past[prompt] = past;
}

// Adds a column: `width` numbers for each prompt.
static inline void made_column(const char *name, const float *numbers, uint32_t width) {
  allot_push(&allot_told.columns, ((allot_told_column){name, numbers, width}));
}

// Says what a token takes.
static inline void made_costs(double reading, double generating, double learning) {
  allot_told.costs = (allot_costs){reading, generating, learning};
}

// The plan of a policy. It must have one.
static inline allot_plan made_plan(const allot_run *run, const allot_view *view) {
  allot_bytes state = {NULL, 0};
  allot_plan plan;
  allot_error error;
  expect(begin(run, &state, &error));
  expect(decide(run, &state, view, &plan, &error));
  return plan;
}

// What a plan asks for, or trains on.
#define made_requests(plan) ((plan).action.val.sample)
#define made_picks(plan) ((plan).action.val.train.picks)

static inline bool made_samples(const allot_plan *plan) {
  return plan->action.tag == ROLLOUT_ALLOCATION_TYPES_ACTION_SAMPLE;
}

#endif
