/* SPDX-License-Identifier: Apache-2.0 */
/* Several documents in one row of tokens: a position sees its own document only.  With the field `causal` beside it, this is
 * what training on packed documents needs.
 *
 *     buffer[0]  int document[batch][stride]: a number per position
 *     scalar[0]  stride, the row length of that array
 */
bool clattn_keep(const clattn_at *at) {
  __global const int *document = (__global const int *)at->buffer[0] + (long)at->b * (long)at->scalar[0];
  return at->p >= 0 && at->p < at->k_len && document[at->p] == document[at->j];
}
