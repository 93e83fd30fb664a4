/* SPDX-License-Identifier: Apache-2.0 */
/* NAME [RUNS [SEED [FIRST]]]: runs FIRST (0) to FIRST + RUNS - 1 (RUNS 20000) of a fuzz target.  A run's input depends
 * on SEED (1) and the run's number alone, so a failure is found again by FIRST; with at most 1000 runs each number is
 * printed before the run.  Run n below the number of seeds is the n-th seed as it is. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

enum { MOST = 2 * FUZZ_SEED_MOST, CHANGES_MOST = 6, QUIET_ABOVE = 1000 };

typedef struct input {
  uint8_t bytes[MOST];
  size_t size;
} input;

/* ---- random numbers: SplitMix64 ---- */

static uint64_t state;

static uint64_t next_random(void) {
  state += UINT64_C(0x9e3779b97f4a7c15);
  uint64_t z = state;
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

/* 0 to count - 1; 0 for a count of 0. */
static size_t below(size_t count) {
  return count == 0 ? 0 : (size_t)(next_random() % count);
}

/* ---- changes ---- */

/* Puts `size` bytes in the place of `removed` ones at `at`; what does not fit is left out. */
static void replace(input *in, size_t at, size_t removed, const void *bytes, size_t size) {
  if (removed > in->size - at)
    removed = in->size - at;
  if (in->size - removed + size > MOST)
    return;
  memmove(in->bytes + at + size, in->bytes + at + removed, in->size - at - removed);
  if (size > 0)
    memcpy(in->bytes + at, bytes, size);
  in->size = in->size - removed + size;
}

static void change_byte(input *in) {
  static const uint8_t special[] = {0, 1, ' ', '"', '-', '0', '9', '[', '\\', ']', '{', '}', 0x7f, 0x80, 0xc2, 0xff};
  if (in->size == 0)
    return;
  uint8_t *byte = &in->bytes[below(in->size)];
  switch (below(3)) {
  case 0:
    *byte = (uint8_t)(*byte ^ 1u << below(8));
    break;
  case 1:
    *byte = special[below(sizeof special)];
    break;
  default:
    *byte = (uint8_t)next_random();
  }
}

static void put_word(input *in, size_t words) {
  const char *word = words > 0 ? fuzz_words[below(words)] : "";
  replace(in, below(in->size + 1), below(2) * strlen(word), word, strlen(word));
}

/* Another number in the place of a run of digits, or anywhere. */
static void put_number(input *in) {
  static const char *const numbers[] = {"0",
                                        "1",
                                        "-1",
                                        "2",
                                        "255",
                                        "256",
                                        "0.5",
                                        "1e3",
                                        "1e999",
                                        "2147483647",
                                        "4294967296",
                                        "9007199254740991",
                                        "9007199254740992",
                                        "18446744073709551616"};
  const char *number = numbers[below(sizeof numbers / sizeof numbers[0])];
  size_t at = below(in->size + 1), digits = 0;
  while (at < in->size && (in->bytes[at] < '0' || in->bytes[at] > '9'))
    at++;
  while (at + digits < in->size && in->bytes[at + digits] >= '0' && in->bytes[at + digits] <= '9')
    digits++;
  replace(in, at, digits, number, strlen(number));
}

/* A piece of `from` over or between bytes of `in`; they may be one. */
static void put_piece(input *in, const input *from) {
  uint8_t piece[256];
  const size_t start = below(from->size), left = from->size - start;
  const size_t size = below((left < sizeof piece ? left : sizeof piece) + 1);
  memcpy(piece, from->bytes + start, size);
  replace(in, below(in->size + 1), below(2) * size, piece, size);
}

static void change(input *in, const input *other, size_t words) {
  const size_t at = below(in->size + 1);
  switch (below(8)) {
  case 0:
  case 1:
    change_byte(in);
    break;
  case 2:
    replace(in, at, below(16) == 0 ? in->size : below(32), NULL, 0);
    break;
  case 3:
    put_word(in, words);
    break;
  case 4:
  case 5:
    put_number(in);
    break;
  case 6:
    put_piece(in, in);
    break;
  default:
    put_piece(in, other);
  }
}

/* ---- runs ---- */

static void read_seed(size_t n, input *out) {
  out->size = fuzz_seed(n, out->bytes, FUZZ_SEED_MOST);
}

static int run(uint64_t seed, uint64_t number, size_t seeds, size_t words) {
  input in, other;
  state = seed ^ (number + 1) * UINT64_C(0xd1342543de82ef95);
  read_seed(number < seeds ? (size_t)number : below(seeds), &in);
  read_seed(below(seeds), &other);
  for (size_t n = number < seeds ? 0 : 1 + below(CHANGES_MOST); n > 0; n--)
    change(&in, &other, words);
  /* A copy of just this size, so that a sanitizer sees a read behind it. */
  uint8_t *bytes = malloc(in.size + (in.size == 0));
  if (bytes == NULL) {
    fputs("no memory\n", stderr);
    return -1;
  }
  memcpy(bytes, in.bytes, in.size);
  const int result = LLVMFuzzerTestOneInput(bytes, in.size);
  free(bytes);
  return result;
}

static int read_number(const char *text, uint64_t *out) {
  char *end = NULL;
  if (text[0] < '0' || text[0] > '9')
    return -1;
  *out = strtoull(text, &end, 10);
  return *end == 0 ? 0 : -1;
}

int main(int argc, char **argv) {
  uint64_t numbers[3] = {20000, 1, 0};
  size_t seeds = 0, words = 0;
  input probe;
  for (int i = 1; i < argc; i++) {
    if (i > 3 || read_number(argv[i], &numbers[i - 1]) != 0) {
      fprintf(stderr, "usage: %s [RUNS [SEED [FIRST]]]\n", argv[0]);
      return 2;
    }
  }
  for (read_seed(0, &probe); probe.size > 0; read_seed(++seeds, &probe))
    continue;
  while (fuzz_words[words] != NULL)
    words++;
  if (seeds == 0 || numbers[0] == 0) {
    fputs("no seeds or no runs: nothing would be tested\n", stderr);
    return 2;
  }
  printf("%" PRIu64 " runs from run %" PRIu64 ", seed %" PRIu64 ", of %zu seeds and %zu words\n", numbers[0],
         numbers[2], numbers[1], seeds, words);
  for (uint64_t n = 0; n < numbers[0]; n++) {
    if (numbers[0] <= QUIET_ABOVE || n % QUIET_ABOVE == 0) {
      printf("run %" PRIu64 "\n", numbers[2] + n);
      fflush(stdout);
    }
    if (run(numbers[1], numbers[2] + n, seeds, words) != 0) {
      fprintf(stderr, "run %" PRIu64 " failed\n", numbers[2] + n);
      return 1;
    }
  }
  printf("all runs done\n");
  return 0;
}
