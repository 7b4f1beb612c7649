// The uniform policy as plain functions: `cc -std=c11 -I ../../sdk/c test_policy.c -lm && ./a.out`.

#include "policy.c"

#include "made.h"

static void samples_once_then_trains_on_all(void) {
  const allot_run run = made_run();
  allot_view view = made_view(10);
  allot_plan plan = made_plan(&run, &view);
  expect(made_samples(&plan) && made_requests(plan).len == 4);
  expect(made_requests(plan).ptr[3].prompt == 3 && made_requests(plan).ptr[3].count == 8);

  view.round = 1;
  allot_push(&view.groups, made_group(3, "10"));
  allot_push(&view.groups, made_group(5, "00"));
  plan = made_plan(&run, &view);
  expect(!made_samples(&plan) && made_picks(plan).len == 2);
  expect(made_picks(plan).ptr[1].prompt == 5 && made_picks(plan).ptr[1].weight == 1);
}

static void a_setting_overrides_the_run(void) {
  allot_run run = made_run();
  const allot_view view = made_view(1);
  made_setting(&run, "rollouts", allot_integer(3));
  const allot_plan plan = made_plan(&run, &view);
  expect(made_samples(&plan) && made_requests(plan).ptr[0].count == 3);
}

static void trains_where_nothing_can_be_sampled(void) {
  const allot_run run = made_run();
  allot_view view = made_view(4);
  view.budget.rounds = 0;
  allot_plan plan = made_plan(&run, &view);
  expect(!made_samples(&plan) && made_picks(plan).len == 0);
  view = made_view(0);
  plan = made_plan(&run, &view);
  expect(!made_samples(&plan) && made_picks(plan).len == 0);
}

static void refuses_a_bad_setting(void) {
  allot_run run = made_run();
  allot_bytes state = {NULL, 0};
  allot_error error;
  made_setting(&run, "rollouts", allot_integer(-12));
  expect(!begin(&run, &state, &error));
  expect(allot_is(error.val.setting.reason, "-12 is not a whole number, 0 or more"));
  made_setting(&run, "rollouts", allot_flag(true));
  expect(!begin(&run, &state, &error));
  expect(allot_is(error.val.setting.reason, "expected a whole number, 0 or more"));
}

static void refuses_one_rollout_of_a_prompt(void) {
  allot_run run = made_run();
  allot_bytes state = {NULL, 0};
  allot_error error;
  made_setting(&run, "rollouts", allot_integer(1));
  expect(!begin(&run, &state, &error));
  made_setting(&run, "rollouts", allot_integer(0));
  expect(begin(&run, &state, &error));
  run.rollouts = 1;
  expect(!begin(&run, &state, &error));
  made_setting(&run, "rollouts", allot_integer(2));
  expect(begin(&run, &state, &error));
}

int main(void) {
  samples_once_then_trains_on_all();
  a_setting_overrides_the_run();
  trains_where_nothing_can_be_sampled();
  refuses_a_bad_setting();
  refuses_one_rollout_of_a_prompt();
  puts("5 tests passed");
}
