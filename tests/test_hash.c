/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "hash.h"

/* FIPS 180-4's examples, and a length for each way in which the padding can fall. */
static void sha256(void **state) {
  (void)state;
  static const struct {
    const char *text, *digest;
  } known[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqr"
       "stu",
       "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
  };
  for (size_t i = 0; i < sizeof(known) / sizeof(*known); ++i) {
    clattni_hash hash;
    unsigned char digest[CLATTNI_HASH_BYTES];
    char text[CLATTNI_HASH_TEXT];
    clattni_hash_begin(&hash);
    for (const char *c = known[i].text; *c != 0; ++c)
      clattni_hash_add(&hash, c, 1);
    clattni_hash_end(&hash, digest);
    clattni_hash_text(digest, text);
    assert_string_equal(text, known[i].digest);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sha256)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
