// A policy that makes use of all that there is. The twin of ../../whole.rs.

#include "allot.h"

void describe(allot_description *self) {
  allot_describe(self, "whole", "0.1.0", "makes use of all that there is");
  allot_set(self, "beyond", allot_string(""),
            "What to use that is not described: nothing, until, sampling or update.");
  allot_needs(self, ALLOT_ANY_PROMPT);
}

static double sum(allot_numbers numbers) {
  double sum = 0;
  for (size_t i = 0; i < numbers.len; i++) sum += (double)numbers.ptr[i];
  return sum;
}

static void ask(const allot_run *run, const allot_view *view, allot_text beyond, allot_plan *plan) {
  const allot_counts visits = allot_fact_counts(ALLOT_VISITS, allot_all());
  allot_prompt_id rarest = 0;
  for (size_t i = 1; i < visits.len; i++)
    if (visits.ptr[i] < visits.ptr[rarest]) rarest = (allot_prompt_id)i;
  *plan = allot_sample();
  allot_request *request = allot_ask(plan, rarest, 3);
  if (allot_is(beyond, "until")) allot_until(request, 1, 0, 2);
  if (allot_is(beyond, "sampling")) allot_sampling(request, 0.5f, run->sampling.default_.max_tokens, run->sampling.default_.max_turns);
  for (size_t i = 0; i < view->pool.len && plan->defer.len < 2; i++)
    if (view->pool.ptr[i].id != rarest) allot_defer(plan, view->pool.ptr[i].id);
}

static void learn(const allot_view *view, allot_text beyond, allot_plan *plan) {
  *plan = allot_train();
  for (size_t i = 0; i < view->groups.len; i++) {
    const allot_group *group = &view->groups.ptr[i];
    const uint32_t first = 0, second = 1, last = (uint32_t)allot_len(group) - 1;
    allot_among(allot_pick_some(plan, group->prompt, &first, 1), &last, 1);
    if (allot_len(group) > 1) allot_hold_some(plan, group->prompt, &second, 1);
  }
  if (allot_is(beyond, "update")) allot_update(plan, 16, 1);
}

bool decide(const allot_run *run, const allot_bytes *state, const allot_view *view, allot_plan *plan,
            allot_error *error) {
  (void)state;
  allot_text beyond;
  if (!allot_get_text(run, "beyond", &beyond, error)) return false;
  if (view->round == 0 && allot_can_sample(view)) ask(run, view, beyond, plan);
  else learn(view, beyond, plan);

  allot_prompt_id listed[3];
  for (size_t i = 0; i < allot_offer(view, 3); i++) listed[i] = view->pool.ptr[i].id;
  const allot_counts right = allot_fact_counts(ALLOT_TOTAL_CORRECT, allot_between(2, 9));
  double correct = 0, unscored = 0, lengths = 0, epochs = 0, past = 0;
  for (size_t i = 0; i < right.len; i++) correct += right.ptr[i];
  for (size_t i = 0; i < view->unscored.len; i++) unscored += view->unscored.ptr[i].rollouts;
  for (size_t i = 0; i < view->groups.len; i++) {
    const allot_group *group = &view->groups.ptr[i];
    for (size_t k = 0; k < group->lengths.len; k++) lengths += group->lengths.ptr[k];
    epochs += group->epoch;
  }
  for (size_t i = 0; i < view->pool.len; i++)
    if (view->pool.ptr[i].past.is_some) past += (double)view->pool.ptr[i].past.val.std;

  allot_metric(plan, "correct", correct);
  allot_metric(plan, "std", sum(allot_fact_measures(ALLOT_STD, allot_listed(listed, allot_offer(view, 3)))));
  allot_metric(plan, "mean-length", sum(allot_fact_measures(ALLOT_MEAN_LENGTH, allot_between(0, 4))));
  allot_metric(plan, "learning", allot_fact_costs().learning);
  allot_metric(plan, "unscored", unscored);
  allot_metric(plan, "lengths", lengths);
  allot_metric(plan, "epochs", epochs);
  allot_metric(plan, "past", past);
  allot_metric(plan, "flops", view->budget.run_flops);
  allot_metric(plan, "temperature", (double)run->sampling.most.temperature);
  allot_metric(plan, "passes", run->update.passes);
  return true;
}
