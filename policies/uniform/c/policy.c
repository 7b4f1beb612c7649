// Uniform allocation, as in GRPO (arXiv 2402.03300): the same number of rollouts for every prompt,
// and training on all of them. The twin of ../src/lib.rs.

#include "allot.h"

void describe(allot_description *self) {
  allot_describe(self, "uniform", "0.1.0",
                 "the same number of rollouts for every prompt, and training on all of them");
  allot_set(self, "rollouts", allot_integer(0), "Rollouts of each prompt; 0 for the run's own number.");
}

bool begin(const allot_run *run, allot_bytes *state, allot_error *error) {
  (void)state;
  uint32_t rollouts;
  if (!allot_get_count(run, "rollouts", &rollouts, error)) return false;
  if (allot_or_else(rollouts, run->rollouts) > 1) return true;
#define WHY ", and an advantage is measured against the prompt's other rollouts, so nothing can be learned; set "
  return allot_bad_setting(error, "rollouts",
                           rollouts ? "it is 1" WHY "2 or more"
                                    : "it leaves the number to `run.rollouts`, which is 1" WHY "either to 2 or more");
}

bool decide(const allot_run *run, const allot_bytes *state, const allot_view *view, allot_plan *plan,
            allot_error *error) {
  uint32_t rollouts;
  if (!allot_get_count(run, "rollouts", &rollouts, error)) return false;
  if (state->len) return allot_bad_state(error, "expected no state");

  if (view->round > 0 || !allot_can_sample(view)) {
    *plan = allot_train();
    for (size_t i = 0; i < view->groups.len; i++) allot_pick_all(plan, view->groups.ptr[i].prompt);
    return true;
  }
  *plan = allot_sample();
  for (size_t i = 0; i < allot_offer(view, run->groups); i++)
    allot_ask(plan, view->pool.ptr[i].id, allot_or_else(rollouts, run->rollouts));
  return true;
}
