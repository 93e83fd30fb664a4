/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 as it is drawn: what must not be cut apart, and how much room it takes. */
#ifndef CLATTN_CLI_PICTURE_UNICODE_H
#define CLATTN_CLI_PICTURE_UNICODE_H

#include <stdint.h>

enum { CLI_NO_CHARACTER = 0xfffd }; /* stands for bytes that are no UTF-8 */

/* The code point at *text, which moves behind it; 0 at the end, where it stays. */
uint32_t cli_utf8_next(const char **text);
/* Behind the first character as a reader counts: with its accents, joined emoji, a flag's two letters. */
const char *cli_character_end(const char *text);
/* Terminal columns of the character at text: 0, 1 or, for East Asian wide ones and most emoji, 2. */
int cli_character_columns(const char *text);
/* Width of a code point and of a text in a sans-serif font, in units of its size: no common one is wider. */
double cli_code_width(uint32_t code);
double cli_text_width(const char *text);
/* The text, if it is wider than this its beginning and an ellipsis; malloc'ed, NULL without memory.  Bytes that are no
 * UTF-8 and control characters are replaced. */
char *cli_text_shorten(const char *text, double width);

#endif
