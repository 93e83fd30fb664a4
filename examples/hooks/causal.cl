/* SPDX-License-Identifier: Apache-2.0 */
/* A causal mask by hand, bit for bit the field `causal` of the problem.  For real work take the field: it also skips
 * the keys that no row of a tile sees. */
bool clattn_keep(const clattn_at *at) {
  return at->j <= at->p;
}
