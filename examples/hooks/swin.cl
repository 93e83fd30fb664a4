/* SPDX-License-Identifier: Apache-2.0 */
/* Shifted windows (Z. Liu et al., Swin Transformer, 2021).  Each batch entry is a window of w x w pixels; windows of an image
 * follow each other, and images too.  After the cyclic shift a window may hold pixels of regions that are no neighbours: those
 * don't see each other.  A learned number per head and relative place is added.
 *
 *     buffer[0]  float table[(2 w - 1)^2][heads], as checkpoints hold it (relative_position_bias_table)
 *     buffer[1]  int region[windows][w * w]: a number per pixel (without a shift all are 0)
 *     scalar[0]  w
 *     scalar[1]  heads
 *     scalar[2]  windows of an image
 */
float clattn_score(float s, const clattn_at *at) {
  __global const float *table = (__global const float *)at->buffer[0];
  const int w = (int)at->scalar[0], heads = (int)at->scalar[1];
  const int dy = at->i / w - at->j / w + w - 1, dx = at->i % w - at->j % w + w - 1;
  return s + table[(dy * (2 * w - 1) + dx) * heads + at->h];
}

bool clattn_keep(const clattn_at *at) {
  const int w = (int)at->scalar[0], window = at->b % (int)at->scalar[2];
  __global const int *region = (__global const int *)at->buffer[1] + window * w * w;
  return region[at->i] == region[at->j];
}
