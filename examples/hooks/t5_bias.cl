/* SPDX-License-Identifier: Apache-2.0 */
/* T5's relative position bias (C. Raffel et al., 2020): a learned number per head and bucket of distances.  Half of the
 * buckets hold one small distance each, the others grow with the logarithm up to max_distance.  T5 does not scale its
 * scores: set scale_mode to CLATTN_SCALE_VALUE and scale to 1.
 *
 *     buffer[0]  float table[buckets][heads], as checkpoints hold it (relative_attention_bias.weight)
 *     scalar[0]  buckets (32 in the published models)
 *     scalar[1]  max_distance (128)
 *     scalar[2]  heads
 *     scalar[3]  1: encoder, distances have a sign; 0: decoder, keys ahead share bucket 0
 */
static int bucket_of(int distance, int buckets, float max_distance, bool both_ways) {
  int first = 0;
  if (both_ways) {
    buckets /= 2;
    first = distance > 0 ? buckets : 0;
    distance = (int)abs(distance);
  } else {
    distance = max(-distance, 0);
  }
  const int exact = buckets / 2;
  if (distance < exact)
    return first + distance;
  const float part = log((float)distance / (float)exact) / log(max_distance / (float)exact);
  /* The small number keeps distances on a boundary, whose logarithm may be rounded down, in the upper bucket. */
  const int bucket = exact + (int)(part * (float)(buckets - exact) + 1e-4f);
  return first + min(bucket, buckets - 1);
}

float clattn_score(float s, const clattn_at *at) {
  __global const float *table = (__global const float *)at->buffer[0];
  const int heads = (int)at->scalar[2];
  const int distance = (int)clamp(at->j - at->p, -0x7fffffffL, 0x7fffffffL);
  return s + table[bucket_of(distance, (int)at->scalar[0], at->scalar[1], at->scalar[3] != 0.0f) * heads + at->h];
}
