// Tries each prompt with a few rollouts, and spends the rest where the answers vary.
//
// Change `decide` to your own rule. A policy is a pure function: all it knows is in its arguments.

#include "allot.h"

typedef struct settings {
  uint32_t pilot, commit;
} settings;

void describe(allot_description *self) {
  allot_describe(self, "{{name}}", "0.1.0", "tries each prompt, and commits where answers vary");
  allot_set(self, "pilot", allot_integer(4), "Rollouts to try each prompt with.");
  allot_set(self, "commit", allot_integer(12), "Rollouts to add where the first ones vary.");
}

static bool read(const allot_run *run, settings *set, allot_error *error) {
  return allot_get_count(run, "pilot", &set->pilot, error) &&
         allot_get_count(run, "commit", &set->commit, error);
}

bool begin(const allot_run *run, allot_bytes *state, allot_error *error) {
  (void)state; // nothing to remember
  settings set;
  if (!read(run, &set, error)) return false;
  if (set.pilot < 2)
    return allot_bad_setting(error, "pilot", "it takes at least 2 rollouts to see whether answers vary");
  return true;
}

bool decide(const allot_run *run, const allot_bytes *state, const allot_view *view, allot_plan *plan,
            allot_error *error) {
  (void)state;
  settings set;
  if (!read(run, &set, error)) return false;

  *plan = allot_sample();
  if (allot_open(&view->budget) && view->round == 0) {
    for (size_t i = 0; i < allot_offer(view, 2 * run->groups); i++)
      allot_ask(plan, view->pool.ptr[i].id, set.pilot);
  }
  if (allot_open(&view->budget) && view->round == 1) {
    uint32_t open = run->groups;
    for (size_t i = 0; i < view->groups.len && open > 0; i++) {
      const allot_group *group = &view->groups.ptr[i];
      if (allot_flat(group)) continue;
      allot_ask(plan, group->prompt, set.commit ? set.commit : 1);
      open--;
    }
  }
  if (plan->action.val.sample.len > 0) return true;

  *plan = allot_train();
  for (size_t i = 0; i < view->groups.len; i++)
    if (!allot_flat(&view->groups.ptr[i])) allot_pick_all(plan, view->groups.ptr[i].prompt);
  return true;
}
