// Tests of allot.h: `cc -std=c11 test_allot.c -o test && ./test`.

#include "made.h"

void describe(allot_description *self) {
  allot_describe(self, "tested", "0.1.0", "what the tests need");
  allot_set(self, "by", allot_string("size"), "One of two.");
  allot_set(self, "share", allot_number(0.5), "A number.");
}

// The first two outputs of SplitMix64 from seed 0.
static void chance_is_known(void) {
  allot_chance chance = allot_chance_of(0);
  expect(allot_bits(&chance) == 0xE220A8397B1DCDAFu && allot_bits(&chance) == 0x6E789E6AA1B965F4u);
  const double unit = allot_unit(&chance);
  expect(unit >= 0 && unit < 1);
}

static void draws_are_distinct_and_even(void) {
  uint32_t counts[5] = {0};
  for (uint32_t seed = 0; seed < 5000; seed++) {
    allot_chance chance = allot_chance_of(seed);
    const uint32_t *drawn = allot_draw(&chance, 5, 2);
    expect(drawn[0] != drawn[1]);
    counts[drawn[0]]++, counts[drawn[1]]++;
  }
  // 2000 each in expectation, with a standard deviation of 35.
  for (int i = 0; i < 5; i++) expect(counts[i] > 1825 && counts[i] < 2175);
}

static void settings_are_read_by_name(void) {
  static const char *const names[] = {"age", "size"};
  allot_run run = made_run();
  allot_error error;
  size_t by;
  double share;
  expect(allot_get_choice(&run, "by", names, 2, &by, &error) && by == 1);
  expect(allot_get_number(&run, "share", &share, &error) && share == 0.5);
  expect(!allot_get_number(&run, "by", &share, &error));
  expect(allot_is(error.val.setting.reason, "expected a number"));
  made_setting(&run, "by", allot_string("luck"));
  expect(!allot_get_choice(&run, "by", names, 2, &by, &error));
  expect(allot_is(error.val.setting.reason, "`luck` is unknown; expected one of age, size"));
}

static void groups_are_looked_at(void) {
  allot_view view = made_view(3);
  allot_push(&view.groups, made_group(7, "1011"));
  allot_push(&view.groups, made_group(8, "000"));
  const allot_group *group = allot_group_of(&view, 7);
  expect(allot_solved(group) == 3 && allot_pass_rate(group) == 0.75 && allot_mean(group) == 0.75);
  expect(!allot_flat(group) && allot_flat(allot_group_of(&view, 8)) && !allot_group_of(&view, 9));
  expect(allot_offer(&view, 2) == 2 && allot_offer(&view, 9) == 3 && allot_can_sample(&view));
  view.budget.run_tokens = 0;
  expect(!allot_can_sample(&view));
}

static void plans_are_put_together(void) {
  const uint32_t positions[] = {2, 0};
  const float advantages[] = {1, -1};
  allot_plan plan = allot_train();
  allot_given(allot_pick_some(&plan, 4, positions, 2), advantages, 2);
  allot_against_group(allot_pick_all(&plan, 5));
  for (uint32_t id = 0; id < 100; id++) allot_hold(&plan, id);
  allot_skip(&plan, 6);
  allot_evict(&plan, 7);
  allot_metric(&plan, "half", 0.5);
  const allot_pick *pick = made_picks(plan).ptr;
  expect(pick->rollouts.is_some && pick->rollouts.val.ptr[1] == 0 && pick->advantage.val.given.ptr[1] == -1);
  expect(pick[1].advantage.tag == ROLLOUT_ALLOCATION_TYPES_ADVANTAGE_GROUP && !pick[1].rollouts.is_some);
  expect(plan.action.val.train.hold.len == 100 && plan.action.val.train.hold.ptr[99] == 99);
  expect(plan.skip.ptr[0] == 6 && plan.evict.ptr[0] == 7 && allot_is(plan.metrics.ptr[0].f0, "half"));
}

static void state_comes_back(void) {
  struct memory {
    uint32_t version, seen;
    double mean;
  } was = {1, 12, 0.5}, is = {0, 0, 0};
  allot_bytes state;
  allot_error error;
  allot_remember(&state, &was, sizeof was);
  expect(allot_recall(&state, &is, sizeof is, &error) && is.seen == 12 && is.mean == 0.5);
  state.len--;
  expect(!allot_recall(&state, &is, sizeof is, &error));
  expect(error.tag == ROLLOUT_ALLOCATION_TYPES_ERROR_STATE);
}

int main(void) {
  chance_is_known();
  draws_are_distinct_and_even();
  settings_are_read_by_name();
  groups_are_looked_at();
  plans_are_put_together();
  state_comes_back();
  puts("6 tests passed");
}
