/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "cli.h"

int cli_text_is_inline(const char *text) {
  static const char *const words[] = {"nan", "infinity", "inf"};
  int numbers = 0;
  while (*text != 0) {
    size_t taken = 0;
    if (*text >= '0' && *text <= '9') {
      numbers++;
      taken = 1;
    } else if (strchr("+-.eE,; \t\r\n", *text) != NULL) {
      taken = 1;
    }
    for (size_t i = 0; i < 3 && taken == 0; i++) {
      if (strncasecmp(text, words[i], strlen(words[i])) == 0) {
        numbers++;
        taken = strlen(words[i]);
      }
    }
    if (taken == 0)
      return 0;
    text += taken;
  }
  return numbers > 0;
}

typedef struct values {
  unsigned char *data;
  size_t element, count, capacity;
} values;

static int append(values *v, const void *value) {
  if (v->count == v->capacity) {
    const size_t capacity = v->capacity == 0 ? 64 : v->capacity * 2;
    if (capacity > SIZE_MAX / 2 / v->element)
      return cli_fail_memory();
    unsigned char *data = realloc(v->data, capacity * v->element);
    if (data == NULL)
      return cli_fail_memory();
    v->data = data;
    v->capacity = capacity;
  }
  memcpy(v->data + v->count++ * v->element, value, v->element);
  return CLI_OK;
}

static int is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

static int ends_row(char c, int is_inline) {
  return c == '\n' || (is_inline && c == ';');
}

/* What is parsed, and for messages where it is from. */
typedef struct source {
  const char *option, *path; /* path NULL: inline text */
  cli_numbers numbers;
} source;

static int wrong(const source *from, const char *format, ...) {
  char message[256];
  va_list list;
  va_start(list, format);
  vsnprintf(message, sizeof message, format, list);
  va_end(list);
  if (from->path == NULL)
    return cli_fail(CLI_USAGE, "--%s: %s", from->option, message);
  return cli_fail(CLI_USAGE, "--%s: %s: %s", from->option, from->path, message);
}

/* One number in [at, end); the texts have a 0 behind them, so strtof stops in time. */
static int read_number(const source *from, const char *at, const char *end, int64_t row, int64_t column, values *v,
                       const char **next) {
  const int integers = from->numbers == CLI_INTEGERS;
  char *stop = NULL;
  int64_t integer = 0;
  float value = 0;
  errno = 0;
  if (integers)
    integer = strtoll(at, &stop, 10);
  else
    value = strtof(at, &stop);
  const char *token = at;
  while (token < end && !is_blank(*token) && *token != ',' && *token != ';' && *token != '\n' && *token != '#')
    token++;
  const int shown = (int)(token - at < 40 ? token - at : 40);
  if (stop != token || token == at) {
    if (*at == ';' && from->path != NULL) /* some programs write CSV so; it is never taken for a row's end */
      return wrong(from, "row %" PRId64 ": ';' separates rows in inline text only; use commas or spaces", row);
    if (shown == 0)
      return wrong(from, "row %" PRId64 ", value %" PRId64 " is missing", row, column);
    return wrong(from, "row %" PRId64 ", value %" PRId64 ": '%.*s' is not %s", row, column, shown, at,
                 integers ? "an integer" : "a number");
  }
  if (errno == ERANGE && (integers || isinf(value)))
    return wrong(from, "row %" PRId64 ", value %" PRId64 ": '%.*s' does not fit in %s", row, column, shown, at,
                 integers ? "64 bits" : "a float");
  *next = stop;
  return append(v, integers ? (const void *)&integer : (const void *)&value);
}

static int parse(const source *from, const char *text, size_t length, cli_matrix *out) {
  const int is_inline = from->path == NULL;
  values v = {NULL, from->numbers == CLI_INTEGERS ? sizeof(int64_t) : sizeof(float), 0, 0};
  int64_t rows = 0, columns = 0, row = 1;
  int code = CLI_OK;
  const char *at = text, *const end = text + length;
  if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) /* UTF-8 byte order mark */
    at += 3;
  while (at < end) {
    int64_t count = 0;
    int wants_value = 0; /* after a comma */
    while (at < end && !ends_row(*at, is_inline)) {
      if (is_blank(*at)) {
        at++;
      } else if (*at == '#') {
        while (at < end && *at != '\n')
          at++;
      } else if (*at == ',' && count > 0 && !wants_value) {
        wants_value = 1;
        at++;
      } else {
        code = read_number(from, at, end, row, count + 1, &v, &at);
        if (code != CLI_OK)
          goto failed;
        count++;
        wants_value = 0;
      }
    }
    if (wants_value) {
      code = wrong(from, "row %" PRId64 " ends with a comma", row);
      goto failed;
    }
    if (count > 0) {
      if (rows > 0 && count != columns) {
        code = wrong(from, "ragged matrix: row %" PRId64 " has %" PRId64 " values, row 1 has %" PRId64, rows + 1, count,
                     columns);
        goto failed;
      }
      columns = count;
      rows++;
    }
    row = rows + 1;
    if (at < end)
      at++;
  }
  if (rows == 0) {
    code = wrong(from, "no numbers in it");
    goto failed;
  }
  out->rows = rows;
  out->columns = columns;
  out->data = v.data;
  return CLI_OK;
failed:
  free(v.data);
  return code;
}

int cli_read_file(const char *option, const char *path, char **text, size_t *length) {
  int code = CLI_USAGE;
  struct stat info;
  char *data = NULL;
  FILE *file = NULL;
  if (stat(path, &info) != 0) {
    cli_fail(code, "--%s: %s: can't be opened: %s", option, path, strerror(errno));
    goto done;
  }
  if (!S_ISREG(info.st_mode)) {
    cli_fail(code, "--%s: %s: is not a regular file", option, path);
    goto done;
  }
  if (info.st_size <= 0) {
    cli_fail(code, "--%s: %s: is empty (0 bytes)", option, path);
    goto done;
  }
  file = fopen(path, "rb");
  if (file == NULL) {
    cli_fail(code, "--%s: %s: can't be opened: %s", option, path, strerror(errno));
    goto done;
  }
  data = malloc((size_t)info.st_size + 1);
  if (data == NULL) {
    code = cli_fail_memory();
    goto done;
  }
  const size_t got = fread(data, 1, (size_t)info.st_size, file);
  if (got != (size_t)info.st_size) {
    cli_fail(code, "--%s: %s: can't be read whole", option, path);
    goto done;
  }
  data[got] = 0;
  *text = data;
  *length = got;
  data = NULL;
  code = CLI_OK;
done:
  free(data);
  if (file != NULL)
    fclose(file);
  return code;
}

int cli_text_inline(const char *option, const char *text, cli_numbers numbers, cli_matrix *out) {
  const source from = {option, NULL, numbers};
  return parse(&from, text, strlen(text), out);
}

int cli_text_file(const char *option, const char *path, cli_numbers numbers, cli_matrix *out) {
  const source from = {option, path, numbers};
  char *text = NULL;
  size_t length = 0;
  int code = cli_read_file(option, path, &text, &length);
  if (code == CLI_OK)
    code = parse(&from, text, length, out);
  free(text);
  return code;
}
