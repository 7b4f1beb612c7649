// The log, text and lists, for policies and for graders: `allot.h` and `allot_grader.h` include it, once they have said
// what a text is (`allot_text`) and how the host is told a line (`allot_write`).
#ifndef ALLOT_WORDS_H
#define ALLOT_WORDS_H

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ── The log, and the end ───────────────────────────────────────────────────────────────────

enum { ALLOT_DEBUG, ALLOT_INFO, ALLOT_WARN, ALLOT_ERROR };

// Writes a line to the run's log; to standard error where it runs natively.
static inline void allot_log(int level, const char *line) {
#ifdef __wasm__
  allot_text text = {(uint8_t *)line, strlen(line)};
  allot_write((uint8_t)level, &text);
#else
  static const char *const names[] = {"Debug", "Info", "Warn", "Error"};
  fprintf(stderr, "%s: %s\n", names[level], line);
#endif
}

// The same with values in the line, as in printf.
__attribute__((format(printf, 2, 3))) static inline void allot_logf(int level, const char *format, ...) {
  char line[1024];
  va_list values;
  va_start(values, format);
  vsnprintf(line, sizeof line, format, values);
  va_end(values);
  allot_log(level, line);
}

_Noreturn static inline void allot_stop(const char *line) {
  allot_log(ALLOT_ERROR, line);
#ifdef __wasm__
  __builtin_trap();
#else
  abort();
#endif
}

#define ALLOT_TEXT_OF(x) #x
#define ALLOT_LINE(line) ALLOT_TEXT_OF(line)

// Stops the call. The message, a literal, goes to the log with its file and line: without it the
// author would see a bare trap.
#define allot_panic(message) allot_stop(__FILE__ ":" ALLOT_LINE(__LINE__) ": " message)

// Stops the call where a condition does not hold. Much smaller than `assert`, which brings the
// whole of standard output along.
#define allot_assert(condition) \
  ((condition) ? (void)0 : allot_panic("`" #condition "` does not hold"))

// ── Text and lists ─────────────────────────────────────────────────────────────────────────

// Zeroed memory for `n` things of a size. There is always some, or the call stops.
static inline void *allot_new(size_t n, size_t size) {
  void *memory = calloc(n ? n : 1, size);
  if (!memory) allot_panic("out of memory");
  return memory;
}

// The list with room for one more: it has `len` things of a size. Grows twofold, whenever `len` is
// a power of two.
static inline void *allot_grow(void *list, size_t len, size_t size) {
  if (len & (len - 1)) return list;
  list = realloc(list, (len ? 2 * len : 1) * size);
  if (!list) allot_panic("out of memory");
  return list;
}

// Appends a thing to one of the contract's lists.
#define allot_push(list, thing)                                                        \
  ((list)->ptr = allot_grow((list)->ptr, (list)->len, sizeof *(list)->ptr),            \
   (list)->ptr[(list)->len] = (thing), (list)->len += 1, (void)0)

static inline allot_text allot_copy(const char *text, size_t len) {
  allot_text copy = {allot_new(len, 1), len};
  memcpy(copy.ptr, text, len);
  return copy;
}

// One text of several. The last argument is NULL.
static inline allot_text allot_words(const char *first, ...) {
  allot_text all = {NULL, 0};
  va_list rest;
  va_start(rest, first);
  for (const char *part = first; part; part = va_arg(rest, const char *))
    for (; *part; part++) allot_push(&all, (uint8_t)*part);
  va_end(rest);
  return all;
}

// Whether the text is this one.
static inline bool allot_is(allot_text text, const char *other) {
  return text.len == strlen(other) && memcmp(text.ptr, other, text.len) == 0;
}

// The text with a 0 at its end, as C wants it.
static inline char *allot_c(allot_text text) {
  char *copy = allot_new(text.len + 1, 1);
  if (text.len) memcpy(copy, text.ptr, text.len);
  return copy;
}

#endif
