/* SPDX-License-Identifier: Apache-2.0 */
/* Caps scores smoothly to the open interval (-cap, cap).  The field `softcap` of the problem does the same before bias and
 * ALiBi are added; a hook comes after them.
 *
 *     scalar[0]  cap, > 0
 */
float clattn_score(float s, const clattn_at *at) {
  const float cap = at->scalar[0];
  return cap * tanh(s / cap);
}
