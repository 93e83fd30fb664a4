/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4). */
#ifndef CLATTN_HASH_H
#define CLATTN_HASH_H

#include <stddef.h>
#include <stdint.h>

enum { CLATTNI_HASH_BYTES = 32, CLATTNI_HASH_TEXT = 65 /* hexadecimal digits and a 0 */ };

typedef struct clattni_hash {
  uint32_t state[8];
  uint64_t bytes; /* taken so far */
  unsigned char block[64];
} clattni_hash;

void clattni_hash_begin(clattni_hash *hash);
void clattni_hash_add(clattni_hash *hash, const void *data, size_t bytes);
void clattni_hash_end(clattni_hash *hash, unsigned char digest[CLATTNI_HASH_BYTES]);
void clattni_hash_text(const unsigned char digest[CLATTNI_HASH_BYTES], char text[CLATTNI_HASH_TEXT]);

#endif
