// What `allot_fact_…` answer where a policy runs natively: what a test made, by `made_facts` and what
// follows it. Included by `allot.h`.
#ifndef ALLOT_TOLD_H
#define ALLOT_TOLD_H

typedef struct allot_told_column {
  const char *name;
  const float *numbers;
  uint32_t width;
} allot_told_column;

// The facts of a test.
static struct {
  uint32_t prompts;
  allot_past *past; // visits of 0 stand for none
  struct {
    allot_told_column *ptr;
    size_t len;
  } columns;
  allot_costs costs;
} allot_told;

static inline size_t allot_told_len(allot_prompts of) {
  if (of.tag == ROLLOUT_ALLOCATION_FACTS_PROMPTS_LISTED) return of.val.listed.len;
  if (of.tag == ROLLOUT_ALLOCATION_FACTS_PROMPTS_ALL) return allot_told.prompts;
  allot_assert(of.val.between.f0 <= of.val.between.f1);
  return of.val.between.f1 - of.val.between.f0;
}

// The prompt at a position of those asked about.
static inline allot_prompt_id allot_told_id(allot_prompts of, size_t i) {
  allot_prompt_id id = (allot_prompt_id)i;
  if (of.tag == ROLLOUT_ALLOCATION_FACTS_PROMPTS_LISTED) id = of.val.listed.ptr[i];
  if (of.tag == ROLLOUT_ALLOCATION_FACTS_PROMPTS_BETWEEN) id += of.val.between.f0;
  if (id >= allot_told.prompts) allot_panic("asked about a prompt that the made facts don't have");
  return id;
}

static inline allot_counts allot_fact_counts(int what, allot_prompts of) {
  allot_counts counts = {NULL, 0};
  for (size_t i = 0; i < allot_told_len(of); i++) {
    const allot_past *past = &allot_told.past[allot_told_id(of, i)];
    const uint32_t all[] = {past->visits, past->step,           past->rollouts,     past->correct,
                            past->streak, past->total_rollouts, past->total_correct};
    allot_push(&counts, all[what]);
  }
  return counts;
}

static inline allot_numbers allot_fact_measures(int what, allot_prompts of) {
  allot_numbers numbers = {NULL, 0};
  for (size_t i = 0; i < allot_told_len(of); i++) {
    const allot_past *past = &allot_told.past[allot_told_id(of, i)];
    const float all[] = {past->mean, past->std, past->mean_length};
    allot_push(&numbers, all[what]);
  }
  return numbers;
}

static inline allot_numbers allot_fact_column(const char *name, allot_prompts of) {
  allot_numbers numbers = {NULL, 0};
  for (size_t c = 0; c < allot_told.columns.len; c++) {
    const allot_told_column *column = &allot_told.columns.ptr[c];
    if (strcmp(column->name, name) != 0) continue;
    for (size_t i = 0; i < allot_told_len(of); i++) {
      const float *first = column->numbers + (size_t)allot_told_id(of, i) * column->width;
      for (uint32_t k = 0; k < column->width; k++) allot_push(&numbers, first[k]);
    }
    return numbers;
  }
  allot_panic("asked for a column that the made facts don't have");
}

static inline allot_costs allot_fact_costs(void) { return allot_told.costs; }

#endif
