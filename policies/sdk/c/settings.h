// What a policy or a grader says of itself, and its settings: `allot.h` and `allot_grader.h` include it, once the
// contract's types have their short names. `allot_settings` has the settings in force, and ALLOT_TYPE(X) is the contract's
// constant X.
#ifndef ALLOT_SETTINGS_H
#define ALLOT_SETTINGS_H

#include "words.h"

// ── Errors ─────────────────────────────────────────────────────────────────────────────────

// A setting has a value that can't be worked with. Gives false, so that `begin` can return it.
static inline bool allot_bad_setting(allot_error *error, const char *name, const char *reason) {
  error->tag = ALLOT_TYPE(ERROR_SETTING);
  error->val.setting.name = allot_words(name, NULL);
  error->val.setting.reason = allot_words(reason, NULL);
  return false;
}

// It can't go on for any other reason. Gives false.
static inline bool allot_give_up(allot_error *error, const char *reason) {
  error->tag = ALLOT_TYPE(ERROR_OTHER);
  error->val.other = allot_words(reason, NULL);
  return false;
}

// ── Description and settings ───────────────────────────────────────────────────────────────

// Its name, its version, and one line for people.
static inline void allot_describe(allot_description *self, const char *name, const char *version,
                                  const char *summary) {
  memset(self, 0, sizeof *self);
  self->name = allot_words(name, NULL);
  self->version = allot_words(version, NULL);
  self->summary = allot_words(summary, NULL);
}

static inline allot_value allot_flag(bool flag) {
  return (allot_value){ALLOT_TYPE(VALUE_FLAG), {.flag = flag}};
}

static inline allot_value allot_integer(int32_t integer) {
  return (allot_value){ALLOT_TYPE(VALUE_INTEGER), {.integer = integer}};
}

static inline allot_value allot_number(double number) {
  return (allot_value){ALLOT_TYPE(VALUE_NUMBER), {.number = number}};
}

static inline allot_value allot_string(const char *text) {
  return (allot_value){ALLOT_TYPE(VALUE_TEXT), {.text = allot_words(text, NULL)}};
}

// A setting, with its default and one line for people. The default also fixes its type.
static inline void allot_set(allot_description *self, const char *name, allot_value value,
                             const char *summary) {
  allot_setting setting = {allot_words(name, NULL), value, allot_words(summary, NULL)};
  allot_push(&self->settings, setting);
}

// The value of a setting, or NULL and the error where it has another type.
static inline const allot_value *allot_get(const allot_settings *given, const char *name, uint8_t tag,
                                           const char *expected, allot_error *error) {
  for (size_t i = 0; i < given->settings.len; i++) {
    if (!allot_is(given->settings.ptr[i].f0, name)) continue;
    if (given->settings.ptr[i].f1.tag == tag) return &given->settings.ptr[i].f1;
    allot_bad_setting(error, name, allot_c(allot_words("expected ", expected, NULL)));
    return NULL;
  }
  allot_bad_setting(error, name, "the host did not give it");
  return NULL;
}

// Each of these reads a setting by its name. Where it returns false, the error is filled in.
static inline bool allot_get_flag(const allot_settings *given, const char *name, bool *flag, allot_error *error) {
  const allot_value *value = allot_get(given, name, ALLOT_TYPE(VALUE_FLAG), "true or false", error);
  if (value) *flag = value->val.flag;
  return value;
}

// A number in the fewest digits that give it back.
static inline const char *allot_digits(double number) {
  char *text = allot_new(32, 1);
  const bool whole = number > -1e15 && number < 1e15 && number == (double)(int64_t)number;
  if (whole) snprintf(text, 32, "%.0f", number);
  for (int digits = 1; digits <= 17 && !whole; digits++) {
    snprintf(text, 32, "%.*g", digits, number);
    if (strtod(text, NULL) == number) break;
  }
  return text;
}

// What a number is to be, with its bounds, infinite ones left out: the words of the SDKs of other languages.
static inline const char *allot_expected(const char *kind, double least, double most) {
  if (least > -INFINITY && most < INFINITY)
    return allot_c(allot_words(kind, " from ", allot_digits(least), " to ", allot_digits(most), NULL));
  if (least > -INFINITY) return allot_c(allot_words(kind, ", ", allot_digits(least), " or more", NULL));
  if (most < INFINITY) return allot_c(allot_words(kind, ", ", allot_digits(most), " or less", NULL));
  return kind;
}

// Whether a number is within its bounds; the error where it is not what was expected.
static inline bool allot_within(double number, double least, double most, const char *name, const char *expected,
                                allot_error *error) {
  if (number >= least && number <= most) return true;
  return allot_bad_setting(error, name, allot_c(allot_words(allot_digits(number), " is not ", expected, NULL)));
}

static inline bool allot_get_integer(const allot_settings *given, const char *name, int32_t *integer,
                                     allot_error *error) {
  const allot_value *value =
      allot_get(given, name, ALLOT_TYPE(VALUE_INTEGER), "a whole number", error);
  if (value) *integer = value->val.integer;
  return value;
}

// The same within bounds. INFINITY and -INFINITY stand for none.
static inline bool allot_get_integer_within(const allot_settings *given, const char *name, double least, double most,
                                            int32_t *integer, allot_error *error) {
  const char *expected = allot_expected("a whole number", least, most);
  const allot_value *value = allot_get(given, name, ALLOT_TYPE(VALUE_INTEGER), expected, error);
  if (value) *integer = value->val.integer;
  return value && allot_within(*integer, least, most, name, expected, error);
}

// A whole number, 0 or more.
static inline bool allot_get_count(const allot_settings *given, const char *name, uint32_t *count,
                                   allot_error *error) {
  const char *expected = "a whole number, 0 or more";
  const allot_value *value = allot_get(given, name, ALLOT_TYPE(VALUE_INTEGER), expected, error);
  if (!value) return false;
  *count = (uint32_t)value->val.integer;
  if (value->val.integer >= 0) return true;
  char digits[12] = "", *first = digits + 11;
  for (uint32_t left = 0u - *count; left; left /= 10) *--first = (char)('0' + left % 10);
  return allot_bad_setting(error, name, allot_c(allot_words("-", first, " is not ", expected, NULL)));
}

// The same within bounds, of which the least is 0 or more.
static inline bool allot_get_count_within(const allot_settings *given, const char *name, double least, double most,
                                          uint32_t *count, allot_error *error) {
  int32_t integer;
  if (!allot_get_integer_within(given, name, least, most, &integer, error)) return false;
  *count = (uint32_t)integer;
  return true;
}

static inline bool allot_get_number(const allot_settings *given, const char *name, double *number,
                                    allot_error *error) {
  const allot_value *value = allot_get(given, name, ALLOT_TYPE(VALUE_NUMBER), "a number", error);
  if (value) *number = value->val.number;
  return value;
}

// The same within bounds. INFINITY and -INFINITY stand for none.
static inline bool allot_get_number_within(const allot_settings *given, const char *name, double least, double most,
                                           double *number, allot_error *error) {
  const char *expected = allot_expected("a number", least, most);
  const allot_value *value = allot_get(given, name, ALLOT_TYPE(VALUE_NUMBER), expected, error);
  if (value) *number = value->val.number;
  return value && allot_within(*number, least, most, name, expected, error);
}

static inline bool allot_get_text(const allot_settings *given, const char *name, allot_text *text,
                                  allot_error *error) {
  const allot_value *value = allot_get(given, name, ALLOT_TYPE(VALUE_TEXT), "text", error);
  if (value) *text = value->val.text;
  return value;
}

// One of some texts: its position among the `n` names.
static inline bool allot_get_choice(const allot_settings *given, const char *name, const char *const *names,
                                    size_t n, size_t *choice, allot_error *error) {
  allot_text text, all = {NULL, 0};
  if (!allot_get_text(given, name, &text, error)) return false;
  for (*choice = 0; *choice < n; *choice += 1)
    if (allot_is(text, names[*choice])) return true;
  for (size_t i = 0; i < n; i++) all = allot_words(i ? allot_c(all) : "", i ? ", " : "", names[i], NULL);
  const allot_text reason =
      allot_words("`", allot_c(text), "` is unknown; expected one of ", allot_c(all), NULL);
  return allot_bad_setting(error, name, allot_c(reason));
}

// A count that a run may leave to something else by setting it to 0.
static inline uint32_t allot_or_else(uint32_t count, uint32_t otherwise) {
  return count ? count : otherwise;
}

#endif
