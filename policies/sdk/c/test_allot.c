// Tests of allot.h: `cc -std=c11 test_allot.c -o test && ./test`.

#include "made.h"

void describe(allot_description *self) {
  allot_describe(self, "tested", "0.1.0", "what the tests need");
  allot_set(self, "by", allot_string("size"), "One of two.");
  allot_set(self, "share", allot_number(0.5), "A number.");
  allot_set(self, "pilot", allot_integer(8), "A count.");
  allot_column(self, "level");
  allot_needs(self, ALLOT_REPLAY | ALLOT_STOPPING);
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

static void a_number_outside_of_its_bounds_is_refused(void) {
  allot_run run = made_run();
  allot_error error;
  uint32_t pilot;
  int32_t integer;
  double share;
  expect(allot_get_count_within(&run, "pilot", 2, 64, &pilot, &error) && pilot == 8);
  made_setting(&run, "pilot", allot_integer(65));
  expect(!allot_get_count_within(&run, "pilot", 2, 64, &pilot, &error));
  expect(allot_is(error.val.setting.reason, "65 is not a whole number from 2 to 64"));
  expect(!allot_get_integer_within(&run, "pilot", -INFINITY, 64, &integer, &error));
  expect(allot_is(error.val.setting.reason, "65 is not a whole number, 64 or less"));
  expect(allot_get_integer_within(&run, "pilot", 2, INFINITY, &integer, &error) && integer == 65);
  made_setting(&run, "pilot", allot_integer(-1));
  expect(!allot_get_count_within(&run, "pilot", 2, INFINITY, &pilot, &error));
  expect(allot_is(error.val.setting.reason, "-1 is not a whole number, 2 or more"));
  expect(!allot_get_count(&run, "pilot", &pilot, &error));
  expect(allot_is(error.val.setting.reason, "-1 is not a whole number, 0 or more"));
  made_setting(&run, "pilot", allot_string("many"));
  expect(!allot_get_count_within(&run, "pilot", 2, 64, &pilot, &error));
  expect(allot_is(error.val.setting.reason, "expected a whole number from 2 to 64"));
  made_setting(&run, "share", allot_number(1.25));
  expect(!allot_get_number_within(&run, "share", 0, 1, &share, &error));
  expect(allot_is(error.val.setting.reason, "1.25 is not a number from 0 to 1"));
  expect(!allot_get_number_within(&run, "share", 2000000, INFINITY, &share, &error));
  expect(allot_is(error.val.setting.reason, "1.25 is not a number, 2000000 or more"));
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
  expect(plan.action.val.train.hold.len == 100 && plan.action.val.train.hold.ptr[99].prompt == 99);
  expect(!plan.action.val.train.hold.ptr[99].rollouts.is_some && !plan.action.val.train.update.is_some);
  expect(plan.skip.ptr[0] == 6 && plan.evict.ptr[0] == 7 && allot_is(plan.metrics.ptr[0].f0, "half"));
}

static void what_only_some_need_is_put_together(void) {
  const uint32_t positions[] = {0, 2};
  allot_plan plan = allot_sample();
  allot_request *request = allot_ask(&plan, 3, 8);
  expect(!request->until.is_some && !request->sampling.is_some);
  allot_until(request, 1, 0, 4);
  allot_sampling(request, 0.5f, 64, 2);
  allot_defer(&plan, 5);
  expect(made_requests(plan).ptr[0].until.val.portion == 4 && made_requests(plan).ptr[0].sampling.val.max_tokens == 64);
  expect(made_requests(plan).ptr[0].sampling.val.max_turns == 2 && made_requests(plan).ptr[0].starts.len == 0);
  expect(plan.defer.len == 1 && plan.defer.ptr[0] == 5);

  plan = allot_train();
  allot_among(allot_pick_all(&plan, 4), positions, 2);
  allot_hold_some(&plan, 4, positions, 2);
  allot_update(&plan, 16, 2);
  expect(made_picks(plan).ptr[0].advantage.val.among.ptr[1] == 2);
  expect(plan.action.val.train.hold.ptr[0].rollouts.val.ptr[1] == 2);
  expect(plan.action.val.train.update.val.mini_batch == 16 && plan.action.val.train.update.val.passes == 2);

  allot_description self;
  describe(&self);
  expect(self.needs == (ALLOT_REPLAY | ALLOT_STOPPING) && allot_is(self.columns.ptr[0], "level"));
  expect(made_run().columns.len == 1 && made_run().columns.ptr[0].width == 1);
  expect(made_run().sampling.default_.max_turns == 1);
}

static void episodes_are_looked_at(void) {
  const allot_group group = made_episodes(7, "101", (uint32_t[]){2, 0, 1});
  expect(group.turns.len == 3 && group.turns.ptr[0].len == 2 && group.turns.ptr[1].len == 0);
  const allot_turn *turn = group.turns.ptr[0].ptr;
  expect(turn[0].read == 0 && turn[1].read == 3 && turn[0].tokens + turn[1].tokens == group.lengths.ptr[0]);
  expect(group.stopped.len == 3 && group.stopped.ptr[2] == ALLOT_STOPPED_DONE);
  expect(group.origins.len == 3 && !group.origins.ptr[0].is_some && allot_solved(&group) == 2);
  const allot_group answers = made_group(7, "10");
  expect(answers.turns.len == 0 && answers.stopped.len == 0 && answers.origins.len == 0);
}

static void plans_for_episodes_are_put_together(void) {
  allot_plan plan = allot_sample();
  allot_request *request = allot_ask(&plan, 3, 4);
  allot_start(request, 1, 5, 2);
  allot_start(request, 3, 0, 1);
  allot_ask(&plan, 4, 4);
  const rollout_allocation_types_list_option_start_t starts = made_requests(plan).ptr[0].starts;
  expect(starts.len == 4 && !starts.ptr[0].is_some && !starts.ptr[2].is_some);
  expect(starts.ptr[1].is_some && starts.ptr[1].val.rollout == 5 && starts.ptr[1].val.turn == 2);
  expect(starts.ptr[3].is_some && starts.ptr[3].val.rollout == 0 && starts.ptr[3].val.turn == 1);
  expect(made_requests(plan).ptr[1].starts.len == 0);

  plan = allot_train();
  allot_pick *pick = allot_pick_all(&plan, 7);
  allot_given(pick, (float[]){1, 2}, 2);
  allot_by_turn(pick, (float[]){0.5f, -1}, 2);
  allot_by_turn(pick, NULL, 0);
  allot_by_turn(pick, (float[]){2}, 1);
  expect(pick->advantage.tag == ROLLOUT_ALLOCATION_TYPES_ADVANTAGE_BY_TURN);
  const policy_list_list_f32_t own = pick->advantage.val.by_turn;
  expect(own.len == 3 && own.ptr[0].len == 2 && own.ptr[1].len == 0 && own.ptr[2].len == 1);
  expect(own.ptr[0].ptr[0] == 0.5f && own.ptr[0].ptr[1] == -1 && own.ptr[2].ptr[0] == 2);

  allot_description self;
  describe(&self);
  allot_needs(&self, ALLOT_TURNS | ALLOT_STARTING);
  expect(self.needs == (ALLOT_REPLAY | ALLOT_STOPPING | ALLOT_TURNS | ALLOT_STARTING));
}

static void facts_are_those_that_were_made(void) {
  static const float places[] = {0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5};
  allot_prompt_id two[] = {3, 1};
  made_facts(4);
  made_visited(1, made_past(2, 4).val);
  made_visited(3, made_past(4, 4).val);
  made_column("place", places, 2);
  made_costs(1, 2, 3);
  const allot_counts correct = allot_fact_counts(ALLOT_CORRECT, allot_all());
  expect(correct.len == 4 && correct.ptr[0] == 0 && correct.ptr[1] == 2 && correct.ptr[3] == 4);
  const allot_counts streak = allot_fact_counts(ALLOT_STREAK, allot_between(1, 4));
  expect(streak.len == 3 && streak.ptr[0] == 0 && streak.ptr[2] == 1);
  const allot_numbers lengths = allot_fact_measures(ALLOT_MEAN_LENGTH, allot_listed(two, 2));
  expect(lengths.len == 2 && lengths.ptr[0] == 10);
  const allot_numbers place = allot_fact_column("place", allot_listed(two, 2));
  expect(place.len == 4 && place.ptr[0] == 3 && place.ptr[3] == 1.5);
  expect(allot_fact_costs().learning == 3 && allot_fact_counts(ALLOT_VISITS, allot_listed(NULL, 0)).len == 0);
  // Of 1, 1, 0 and 0: the sample's, and the population's.
  const allot_past past = made_past(2, 4).val;
  expect(fabsf(past.std - 0.57735f) < 1e-5f && fabsf(allot_deviation(&past) - 0.5f) < 1e-5f);
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
  a_number_outside_of_its_bounds_is_refused();
  groups_are_looked_at();
  plans_are_put_together();
  what_only_some_need_is_put_together();
  episodes_are_looked_at();
  plans_for_episodes_are_put_together();
  facts_are_those_that_were_made();
  state_comes_back();
  puts("11 tests passed");
}
