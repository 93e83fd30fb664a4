/* SPDX-License-Identifier: Apache-2.0 */
/* What went wrong while a model folder was read: one sentence that begins with the file's path. */
#ifndef CLATTN_MODEL_ERROR_H
#define CLATTN_MODEL_ERROR_H

enum { MODEL_ERROR_MOST = 500 };

typedef struct model_error {
  char message[MODEL_ERROR_MOST + 1]; /* always 0-terminated after model_fail; a longer sentence is cut, with "..." */
} model_error;

/* Writes the sentence (`error` NULL: nothing to write) and returns -1, which callers hand on. */
int model_fail(model_error *error, const char *format, ...);

/* Text from a file or the command line as it may stand in a sentence: control characters are shown as '?', and what is
 * too long is cut, of names the end, of paths the beginning.  For use within one expression:
 * model_fail(error, "%s: no tensor '%s'", model_show_path(path).text, model_show(name).text). */
typedef struct model_shown {
  char text[160];
} model_shown;
model_shown model_show(const char *name);
model_shown model_show_path(const char *path);

#endif
