/* SPDX-License-Identifier: Apache-2.0 */
/* clattn embed and clattn view from outside, on made-up models.  The program is CLATTN_PROGRAM of the environment, else
 * of the build. */
#define _XOPEN_SOURCE 700 /* mkdtemp, realpath */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_program.h"
#include "tiny_bert.h"

enum { CLS = 2, SEP = 3, UNKNOWN = 1 }; /* lines of the vocabulary */

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

/* "Tom chases Jerry." and two others, of unequal lengths. */
static const char three[] = "'Tom chases Jerry.' 'the CAT' 'the dog is running to the house'";
static const int32_t tom[] = {CLS, 5, 6, 7, 8, 14, SEP}, cat[] = {CLS, 9, 10, SEP},
                     dog[] = {CLS, 9, 17, 24, UNKNOWN, 20, 9, 21, SEP};

static void expect_three(const char *path) {
  double want[3 * TINY_HIDDEN];
  tiny_run(7, tom, want, NULL);
  tiny_run(4, cat, want + TINY_HIDDEN, NULL);
  tiny_run(9, dog, want + 2 * TINY_HIDDEN, NULL);
  expect(path, 2, (const int64_t[]){3, TINY_HIDDEN}, want);
}

static void vectors(void **state) {
  (void)state;
  char arguments[512];
  double want[2 * TINY_HIDDEN], cosine = 0;
  tiny_write("m", &(tiny_form){.dtype = CLATTN_F32});
  snprintf(arguments, sizeof arguments, "embed --model m --out v.npy %s", three);
  good(arguments);
  expect_three("v.npy");
  says("  1  Tom chases Jerry.\n");
  says("vectors of 8 numbers");
  says("cosine similarity");
  tiny_run(7, tom, want, NULL);
  tiny_run(4, cat, want + TINY_HIDDEN, NULL);
  for (int i = 0; i < TINY_HIDDEN; i++)
    cosine += want[i] * want[TINY_HIDDEN + i]; /* both have length 1 */
  snprintf(arguments, sizeof arguments, "  1     1.000%8.3f", cosine);
  says(arguments);
  /* Options anywhere, and a sentence that looks like one. */
  good("embed 'the cat' --out=one.npy --model=m");
  expect("one.npy", 2, (const int64_t[]){1, TINY_HIDDEN}, want + TINY_HIDDEN);
  assert_null(strstr(out, "cosine"));
  good("embed --model m --out one.npy -- '--the cat'");
  const int32_t dashes[] = {CLS, 22, 22, 9, 10, SEP};
  tiny_run(6, dashes, want, NULL);
  expect("one.npy", 2, (const int64_t[]){1, TINY_HIDDEN}, want);
  /* What a terminal would obey is not printed. */
  good("embed --model m \"$(printf 'the\\033[2Jcat')\"");
  says("the?[2Jcat");
}

/* Half precision, other names, another activation and pooling. */
static void other_forms(void **state) {
  (void)state;
  static const tiny_form forms[] = {{.dtype = CLATTN_BF16, .prefix = "bert.", .old_names = 1, .first_pooling = 1},
                                    {.dtype = CLATTN_F16, .activation = CLATTN_NN_RELU},
                                    {.activation = CLATTN_NN_GELU_TANH}};
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
    char arguments[512];
    tiny_write("other", &forms[i]);
    snprintf(arguments, sizeof arguments, "embed %s --model other --out v.npy", three);
    good(arguments);
    expect_three("v.npy");
  }
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Rows of `tokens` weights of the heads from `layer` and `head` on, without `hide` tokens at either end. */
static void expect_weights(const char *path, int layer, int layers, int head, int heads, int hide) {
  double all[TINY_LAYERS * TINY_HEADS * 7 * 7], want[TINY_LAYERS * TINY_HEADS * 7 * 7], vector[TINY_HIDDEN];
  const int tokens = 7 - 2 * hide;
  int count = 0;
  tiny_run(7, tom, vector, all);
  for (int n = layer; n < layer + layers; n++)
    for (int h = head; h < head + heads; h++)
      for (int i = 0; i < tokens; i++)
        for (int j = 0; j < tokens; j++)
          want[count++] = all[((n * TINY_HEADS + h) * 7 + i + hide) * 7 + j + hide];
  expect(path, 4, (const int64_t[]){layers, heads, tokens, tokens}, want);
}

static void weights(void **state) {
  (void)state;
  tiny_write("m", &(tiny_form){.dtype = CLATTN_F32});
  good("view --model m 'Tom chases Jerry.' --save w.npy");
  expect_weights("w.npy", 0, TINY_LAYERS, 0, TINY_HEADS, 0);
  says("layer 0, head 0");
  says("[CLS]");
  says("##s");
  good("view 'Tom chases Jerry.' --layer 1 --model m --head 1 --save w.npy");
  expect_weights("w.npy", 1, 1, 1, 1, 0);
  says("layer 1, head 1");
  good("view --model m --head 1 'Tom chases Jerry.' --hide-special --save w.npy");
  expect_weights("w.npy", 0, TINY_LAYERS, 1, 1, 1);
  says("layer 0, head 1");
  says("jerry");
  assert_null(strstr(out, "[CLS]"));
  assert_null(strstr(out, "[SEP]"));
}

static void pictures(void **state) {
  (void)state;
  static char text[1 << 20];
  tiny_write("m", &(tiny_form){.dtype = CLATTN_F32});
  good("view --model m 'Tom chases Jerry.' --layer 1 --heatmap p.svg --save w.npy");
  expect_weights("w.npy", 1, 1, 0, TINY_HEADS, 0);
  assert_true(read_text("p.svg", text, sizeof text) > 0);
  assert_non_null(strstr(text, "<svg"));
  assert_non_null(strstr(text, "jerry"));
  assert_null(strstr(out, "layer 1, head 0")); /* the heat map of the terminal */
  good("view --model m 'Tom chases Jerry.' --heatmap=p.html --hide-special");
  assert_true(read_text("p.html", text, sizeof text) > 0);
  assert_non_null(strstr(text, "jerry"));
  assert_null(strstr(text, "[SEP]"));
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void usage(void **state) {
  (void)state;
  tiny_write("m", &(tiny_form){.dtype = CLATTN_F32});
  bad("embed 'the cat' --out kept.npy", 2, "--model is needed");
  bad("view 'the cat' --save kept.npy", 2, "--model is needed");
  bad("embed --model m --out kept.npy", 2, "a sentence is needed");
  bad("view --model m --save kept.npy", 2, "a sentence is needed");
  bad("view --model m 'the cat' 'the dog' --save kept.npy", 2, "there are 2");
  bad("view --model m the cat sat --save kept.npy", 2, "there are 3");
  bad("embed --model m 'the cat' --out kept.npy --layer 1", 2, "layer");
  bad("embed --model m 'the cat' --out", 2, "out");
  bad("view --model m 'the cat' --save kept.npy --layer 2", 2, "--layer: '2' is not one of 0 to 1");
  bad("view --model m 'the cat' --save kept.npy --layer -1", 2, "--layer: '-1' is not one of 0 to 1");
  bad("view --model m 'the cat' --save kept.npy --head 2", 2, "--head: '2' is not one of 0 to 1");
  bad("view --model m 'the cat' --save kept.npy --head 1.5", 2, "--head: '1.5' is not one of 0 to 1");
  bad("view --model m 'the cat' --save kept.npy --head ''", 2, "--head: '' is not one of 0 to 1");
  bad("view --model m 'the cat' --save kept.npy --heatmap p.gif", 2, ".svg, .png or .html");
  bad("view --model m 'the cat' --heatmap kept.npy", 2, ".svg, .png or .html");
  bad("view --model m 'the cat' --save kept.npy --heatmap no/p.svg", 1, "--heatmap: ");
  bad("embed --model m 'the cat' --out no/v.npy", 1, "--out: ");
  bad("embed --model m 'the cat' --out kept.npy --device none", 3, "none");
  assert_int_equal(access("p.gif", F_OK), -1);
  /* Nor are the model's own files outputs. */
  bad("embed --model m 'the cat' --out m/model.safetensors", 2, "would overwrite an input");
  bad("view --model m 'the cat' --heatmap p.svg --save m/../m/vocab.txt", 2, "would overwrite an input");
  good("embed --model m 'the cat'");
  /* Wrong usage is found before devices and models. */
  assert_int_equal(mkdir("drivers", 0777), 0);
  bad_with("unset OPENCL_VENDOR_PATH; OCL_ICD_VENDORS=drivers ", "embed --model m 'the cat' --out kept.npy", 3, "");
  bad_with("unset OPENCL_VENDOR_PATH; OCL_ICD_VENDORS=drivers ", "embed --model m --out kept.npy", 2, "a sentence");
  bad_with("unset OPENCL_VENDOR_PATH; OCL_ICD_VENDORS=drivers ", "view --model m the cat --save kept.npy", 2,
           "there are 2");
}

static void sentences(void **state) {
  (void)state;
  double want[TINY_HIDDEN];
  const int32_t cut[TINY_POSITIONS] = {CLS, 9, 10, 9, 10, 9, 10, 9, 10, 9, 10, SEP};
  tiny_write("m", &(tiny_form){.dtype = CLATTN_F32});
  bad("embed --model m 'the cat' '' --out kept.npy", 2, "sentence 2 is empty");
  bad("embed --model m '  ' --out kept.npy", 2, "sentence 1 is empty");
  bad("view --model m '' --save kept.npy", 2, "sentence 1 is empty");
  bad("embed --model m 'the cat' \"$(printf 'the \\377')\" --out kept.npy", 2, "sentence 2: ");
  bad("view --model m \"$(printf 'the \\303')\" --save kept.npy", 2, "UTF-8");
  bad("embed --model m 'the cat the cat the cat the cat the cat the' --out kept.npy", 2, "12");
  bad("view --model m 'the cat the cat the cat the cat the cat the' --save kept.npy", 2, "12");
  good("embed --model m 'the cat the cat the cat the cat the cat the' --truncate --out v.npy");
  tiny_run(TINY_POSITIONS, cut, want, NULL);
  expect("v.npy", 2, (const int64_t[]){1, TINY_HIDDEN}, want);
  good("view --model m 'the cat the cat the cat the cat the cat the' --truncate --save w.npy");
  says("[SEP]");
}

/* A model that can't be used is wrong input, and the sentence names file and fault. */
static void models(void **state) {
  (void)state;
  static const struct {
    tiny_form form;
    const char *file, *fault;
  } list[] = {
      {{.left_out = "encoder.layer.1.output.dense.bias"}, "model.safetensors", "encoder.layer.1.output.dense.bias"},
      {{.left_out = "embeddings.LayerNorm.weight"}, "model.safetensors", "embeddings.LayerNorm.weight"},
      {{.turned = "encoder.layer.0.intermediate.dense.weight"},
       "model.safetensors",
       "encoder.layer.0.intermediate.dense.weight"},
      {{.turned = "embeddings.word_embeddings.weight"}, "model.safetensors", "embeddings.word_embeddings.weight"},
      {{.cut = 1}, "model.safetensors", ""},
      {{.cut = 4000}, "model.safetensors", ""},
      {{.line = "[UNK]", .other_line = "unknown"}, "vocab.txt", "[UNK]"},
      {{.line = "[SEP]", .other_line = ""}, "vocab.txt", "[SEP]"},
      {{.line = "dog", .other_line = "dog\nhen"}, "vocab.txt", "30"},
      {{.config =
            "{\"model_type\": \"bert\", \"hidden_size\": 8, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
            "\"intermediate_size\": 20, \"max_position_embeddings\": 12, \"vocab_size\": 30, "
            "\"hidden_act\": \"mish\"}"},
       "config.json",
       "mish"},
      {{.config =
            "{\"model_type\": \"bert\", \"hidden_size\": 8, \"num_hidden_layers\": 2, \"num_attention_heads\": 3, "
            "\"intermediate_size\": 20, \"max_position_embeddings\": 12, \"vocab_size\": 30}"},
       "config.json",
       "num_attention_heads"},
      {{.config =
            "{\"model_type\": \"bert\", \"hidden_size\": 8, \"num_hidden_layers\": 3, \"num_attention_heads\": 2, "
            "\"intermediate_size\": 20, \"max_position_embeddings\": 12, \"vocab_size\": 30}"},
       "model.safetensors",
       "encoder.layer.2."},
      {{.config =
            "{\"model_type\": \"bert\", \"hidden_size\": 8, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
            "\"intermediate_size\": 20, \"max_position_embeddings\": 12, \"vocab_size\": 30}"},
       "config.json",
       "says 1 layers, but model.safetensors has more"},
      {{.config = "{\"model_type\": \"roberta\"}"}, "config.json", "roberta"},
      {{.config = "{"}, "config.json", ""},
  };
  for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
    tiny_write("bad", &list[i].form);
    bad("embed --model bad 'the cat' --out kept.npy", 2, list[i].file);
    assert_non_null(strstr(err, list[i].fault));
    bad("view --model bad 'the cat' --save kept.npy", 2, list[i].file);
  }
  tiny_write("bad", &(tiny_form){.dtype = CLATTN_F32});
  good("embed --model bad 'the cat'");
  static const char *const files[] = {"bad/model.safetensors", "bad/vocab.txt", "bad/config.json"};
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    assert_int_equal(remove(files[i]), 0);
    bad("embed --model bad 'the cat' --out kept.npy", 2, files[i]);
  }
  bad("embed --model nowhere 'the cat' --out kept.npy", 2, "nowhere/config.json");
  bad("embed --model kept.npy 'the cat' --out kept.npy", 2, "kept.npy/config.json");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(vectors), cmocka_unit_test(other_forms), cmocka_unit_test(weights), cmocka_unit_test(pictures),
      cmocka_unit_test(usage),   cmocka_unit_test(sentences),   cmocka_unit_test(models)};
  return cmocka_run_group_tests(tests, enter_group, leave_group);
}
