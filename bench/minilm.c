/* SPDX-License-Identifier: Apache-2.0 */
/* Passes of a sentence encoder, token ids in and embeddings out, as a percent of the FMA peak measured beside them, and
 * where their time goes. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef CLATTN_WITH_MODELS

#include <clattn_nn.h>

#include "bert.h"

enum { LINEAR, ATTENTION, NORMS, ENDS, PARTS };
static const char *const part_names[PARTS] = {"linear layers", "attention", "norms", "embedding and pooling"};

typedef struct options {
  const char *model;
  int64_t batch, tokens;
  int serve;
} options;

/* A model of random numbers whose kinds of calls run apart. */
typedef struct parts {
  const bench *b;
  const model_config *config;
  int64_t batch, tokens, rows;
  clattn_nn *nn;
  clattn_nn_weight **weights; /* qkv, o, up and down of each layer */
  clattn_plan *plan;
  cl_mem hidden, wide, qkv, inner, words, vector, out, ids, lengths, workspace;
} parts;

/* ---- passes ---- */

typedef struct passes {
  model_bert *bert;
  model_batch batch;
  float *embeddings;
  int32_t *ids, *lengths;
} passes;

/* Full sentences of any tokens. */
static void make_batch(passes *p, const options *o) {
  const model_vocab *vocab = model_bert_vocab(p->bert);
  const model_config *config = model_bert_config(p->bert);
  p->ids = memory((size_t)(o->batch * o->tokens) * sizeof(*p->ids));
  p->lengths = memory((size_t)o->batch * sizeof(*p->lengths));
  p->embeddings = memory((size_t)(o->batch * config->hidden_size) * sizeof(*p->embeddings));
  for (int64_t i = 0; i < o->batch * o->tokens; ++i)
    p->ids[i] = i % o->tokens == 0               ? model_vocab_special(vocab, MODEL_CLS)
                : i % o->tokens == o->tokens - 1 ? model_vocab_special(vocab, MODEL_SEP)
                                                 : (int32_t)(1 + i * 7919 % (config->vocab_size - 1));
  for (int64_t i = 0; i < o->batch; ++i)
    p->lengths[i] = (int32_t)o->tokens;
  p->batch = (model_batch){o->batch, o->tokens, p->ids, p->lengths};
}

static void run_pass(const passes *p) {
  const model_results results = {.embeddings = p->embeddings};
  model_error error;
  if (model_bert_run(p->bert, &p->batch, &results, NULL, &error) == 0)
    return;
  fprintf(stderr, "%s\n", error.message);
  exit(1);
}

static double time_pass(const passes *p) {
  const double start = now();
  run_pass(p);
  return now() - start;
}

/* The embeddings, then for each line of the input a pass and its seconds: for a program that measures another in turns
 * with this one. */
static void serve(const passes *p) {
  const int64_t columns = model_bert_config(p->bert)->hidden_size;
  char line[16];
  run_pass(p);
  printf("%lld %lld\n", (long long)p->batch.batch, (long long)columns);
  for (int64_t i = 0; i < p->batch.batch * columns; ++i)
    printf("%.9g%c", (double)p->embeddings[i], i % columns == columns - 1 ? '\n' : ' ');
  fflush(stdout);
  while (fgets(line, sizeof(line), stdin) != NULL) {
    printf("%.9g\n", time_pass(p));
    fflush(stdout);
  }
}

/* ---- parts ---- */

static cl_mem numbers(const parts *p, int64_t count) {
  unsigned seed = (unsigned)count;
  float *host = memory((size_t)count * sizeof(*host));
  fill(host, (size_t)count, &seed);
  cl_mem buffer = buffer_of(p->b, (size_t)count * sizeof(*host), host);
  free(host);
  return buffer;
}

static clattn_nn_weight *make_weight(const parts *p, int64_t in, int64_t out) {
  clattn_nn_weight *weight = NULL;
  clattn_nn_fill_args args;
  unsigned seed = (unsigned)(in + out);
  float *host = memory((size_t)((in + 1) * out) * sizeof(*host));
  fill(host, (size_t)((in + 1) * out), &seed);
  for (int64_t i = 0; i < (in + 1) * out; ++i)
    host[i] *= 0.05f; /* as large as those of a trained model */
  must(clattn_nn_weight_create(p->nn, in, out, CLATTN_F32, 1, &weight, NULL), "clattn_nn_weight_create");
  clattn_nn_fill_args_init(&args);
  args.weight = weight;
  args.host = host;
  args.host_bias = host + in * out;
  must(clattn_nn_weight_fill(p->b->queue, &args, 0, NULL, NULL), "clattn_nn_weight_fill");
  free(host);
  return weight;
}

/* As clattn_nn_attention lays it: q, k and v of a row side by side. */
static void make_plan(parts *p) {
  const model_config *c = p->config;
  const int64_t hidden = c->hidden_size;
  clattn_problem problem;
  clattn_plan_info info;
  clattn_problem_init(&problem);
  problem.batch = p->batch;
  problem.q_heads = problem.kv_heads = c->num_attention_heads;
  problem.q_len = problem.k_len = p->tokens;
  problem.qk_dim = problem.v_dim = c->head_dim;
  problem.q = problem.k = problem.v = clattn_strided(CLATTN_F32, p->tokens * 3 * hidden, c->head_dim, 3 * hidden, 1);
  problem.o = clattn_strided(CLATTN_F32, p->tokens * hidden, c->head_dim, hidden, 1);
  must(clattn_plan_create(p->b->context, &problem, NULL, &p->plan, NULL), "clattn_plan_create");
  clattn_plan_info_init(&info);
  must(clattn_plan_get_info(p->plan, &info), "clattn_plan_get_info");
  if (info.workspace_bytes > 0)
    p->workspace = buffer_of(p->b, (size_t)info.workspace_bytes, NULL);
}

static void open_parts(parts *p, const bench *b, const passes *from) {
  const model_config *c = model_bert_config(from->bert);
  const int64_t hidden = c->hidden_size, rows = from->batch.batch * from->batch.length;
  memset(p, 0, sizeof(*p));
  p->b = b;
  p->config = c;
  p->batch = from->batch.batch;
  p->tokens = from->batch.length;
  p->rows = rows;
  must(clattn_nn_create(b->context, NULL, &p->nn, NULL), "clattn_nn_create");
  p->weights = memory((size_t)(4 * c->num_hidden_layers) * sizeof(*p->weights));
  for (int64_t i = 0; i < c->num_hidden_layers; ++i) {
    p->weights[4 * i] = make_weight(p, hidden, 3 * hidden);
    p->weights[4 * i + 1] = make_weight(p, hidden, hidden);
    p->weights[4 * i + 2] = make_weight(p, hidden, c->intermediate_size);
    p->weights[4 * i + 3] = make_weight(p, c->intermediate_size, hidden);
  }
  make_plan(p);
  p->hidden = numbers(p, rows * hidden);
  p->wide = numbers(p, rows * hidden);
  p->qkv = numbers(p, rows * 3 * hidden);
  p->inner = numbers(p, rows * c->intermediate_size);
  p->words = numbers(p, c->vocab_size * hidden);
  p->vector = numbers(p, hidden);
  p->out = numbers(p, p->batch * hidden);
  p->ids = buffer_of(b, (size_t)rows * sizeof(int32_t), from->ids);
  p->lengths = buffer_of(b, (size_t)p->batch * sizeof(int32_t), from->lengths);
  must(clFinish(b->queue), "clFinish");
}

static void close_parts(parts *p) {
  cl_mem buffers[] = {p->hidden, p->wide, p->qkv, p->inner,   p->words,
                      p->vector, p->out,  p->ids, p->lengths, p->workspace};
  for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); ++i)
    if (buffers[i] != NULL)
      clReleaseMemObject(buffers[i]);
  for (int64_t i = 0; i < 4 * p->config->num_hidden_layers; ++i)
    clattn_nn_weight_release(p->weights[i]);
  free(p->weights);
  clattn_plan_release(p->plan);
  clattn_nn_release(p->nn);
}

static void linear(const parts *p, const clattn_nn_weight *weight, cl_mem x, cl_mem y, cl_mem residual,
                   clattn_nn_activation activation) {
  clattn_nn_linear_args args;
  clattn_nn_linear_args_init(&args);
  args.weight = weight;
  args.rows = p->rows;
  args.x = clattn_nn_matrix_f32(x, 0, 0);
  args.y = clattn_nn_matrix_f32(y, 0, 0);
  if (residual != NULL)
    args.residual = clattn_nn_matrix_f32(residual, 0, 0);
  args.activation = activation;
  must(clattn_nn_linear(p->nn, p->b->queue, &args, 0, NULL, NULL), "clattn_nn_linear");
}

static void linears(const parts *p) {
  for (int64_t i = 0; i < p->config->num_hidden_layers; ++i) {
    clattn_nn_weight *const *w = p->weights + 4 * i;
    linear(p, w[0], p->hidden, p->qkv, NULL, CLATTN_NN_NONE);
    linear(p, w[1], p->hidden, p->wide, p->hidden, CLATTN_NN_NONE);
    linear(p, w[2], p->hidden, p->inner, NULL, CLATTN_NN_GELU);
    linear(p, w[3], p->inner, p->wide, p->hidden, CLATTN_NN_NONE);
  }
}

static void attention(const parts *p) {
  const uint64_t column = (uint64_t)p->config->hidden_size * sizeof(float);
  clattn_args args;
  clattn_args_init(&args);
  args.q = clattn_buffer(p->qkv, 0);
  args.k = clattn_buffer(p->qkv, column);
  args.v = clattn_buffer(p->qkv, 2 * column);
  args.o = clattn_buffer(p->wide, 0);
  args.workspace = clattn_buffer(p->workspace, 0);
  for (int64_t i = 0; i < p->config->num_hidden_layers; ++i)
    must(clattn_enqueue(p->plan, p->b->queue, &args, 0, NULL, NULL), "clattn_enqueue");
}

static void norms(const parts *p) {
  clattn_nn_norm_args args;
  clattn_nn_norm_args_init(&args);
  args.epsilon = (float)p->config->layer_norm_eps;
  args.rows = p->rows;
  args.columns = p->config->hidden_size;
  args.x = args.y = clattn_nn_matrix_f32(p->wide, 0, 0);
  args.gamma = args.beta = clattn_buffer(p->vector, 0);
  for (int64_t i = 0; i < 2 * p->config->num_hidden_layers + 1; ++i)
    must(clattn_nn_norm(p->nn, p->b->queue, &args, 0, NULL, NULL), "clattn_nn_norm");
}

static void ends(const parts *p) {
  clattn_nn_embed_args args;
  clattn_nn_pool_args pool;
  clattn_nn_embed_args_init(&args);
  args.rows = p->rows;
  args.columns = p->config->hidden_size;
  for (int i = 0; i < 3; ++i) {
    args.table[i].values = clattn_nn_matrix_f32(p->words, 0, 0);
    args.table[i].rows = p->config->vocab_size;
  }
  args.table[0].ids = clattn_buffer(p->ids, 0);
  args.table[1].period = p->tokens;
  args.y = clattn_nn_matrix_f32(p->hidden, 0, 0);
  must(clattn_nn_embed(p->nn, p->b->queue, &args, 0, NULL, NULL), "clattn_nn_embed");
  clattn_nn_pool_args_init(&pool);
  pool.normalise = 1;
  pool.batch = p->batch;
  pool.length = p->tokens;
  pool.columns = p->config->hidden_size;
  pool.x = clattn_nn_matrix_f32(p->hidden, 0, 0);
  pool.y = clattn_nn_matrix_f32(p->out, 0, 0);
  pool.lengths = clattn_buffer(p->lengths, 0);
  must(clattn_nn_pool(p->nn, p->b->queue, &pool, 0, NULL, NULL), "clattn_nn_pool");
}

static double time_part(const parts *p, int part) {
  static void (*const calls[PARTS])(const parts *) = {linears, attention, norms, ends};
  const double start = now();
  calls[part](p);
  must(clFinish(p->b->queue), "clFinish");
  return now() - start;
}

/* The fastest of a few, where each is short; a part, or PARTS for the pass. */
static double time_best(const passes *pass, const parts *apart, int part) {
  const int tries = apart->rows <= 1024 ? 7 : 1;
  double best = 0;
  for (int i = 0; i < tries; ++i) {
    const double took = part == PARTS ? time_pass(pass) : time_part(apart, part);
    best = i == 0 || took < best ? took : best;
  }
  return best;
}

/* ---- the measurement ---- */

static void flops_of(const model_config *c, int64_t batch, int64_t tokens, double flops[PARTS]) {
  const double layers = (double)c->num_hidden_layers, rows = (double)(batch * tokens), hidden = (double)c->hidden_size;
  memset(flops, 0, PARTS * sizeof(*flops));
  flops[LINEAR] = layers * 2 * rows * hidden * (4 * hidden + 2 * (double)c->intermediate_size);
  flops[ATTENTION] = layers * 4 * rows * (double)tokens * hidden;
}

/* Probe, pass and each part in turns, so that a busy machine slows all of them. */
static void measure(const bench *b, const passes *p) {
  parts apart;
  double pass[REPEATS], percent[REPEATS], part[PARTS][REPEATS], share[PARTS][REPEATS], part_percent[PARTS][REPEATS];
  double flops[PARTS], rest[REPEATS];
  open_parts(&apart, b, p);
  flops_of(apart.config, apart.batch, apart.tokens, flops);
  for (int r = -1; r < REPEATS; ++r) { /* the first round compiles and warms up */
    const int at = r < 0 ? 0 : r;
    const double peak = probe_peak(b);
    pass[at] = time_best(p, &apart, PARTS);
    percent[at] = 100 * (flops[LINEAR] + flops[ATTENTION]) / pass[at] / peak;
    rest[at] = 100;
    for (int i = 0; i < PARTS; ++i) {
      part[i][at] = time_best(p, &apart, i);
      part_percent[i][at] = 100 * flops[i] / part[i][at] / peak;
      share[i][at] = 100 * part[i][at] / pass[at];
      rest[at] -= share[i][at];
    }
  }
  printf("batch %lld, %lld tokens: a pass %.2f ms = %.1f %% of FMA peak\n", (long long)apart.batch,
         (long long)apart.tokens, 1e3 * median(pass, REPEATS), median(percent, REPEATS));
  for (int i = 0; i < PARTS; ++i) {
    printf("  %-22s %8.2f ms %5.1f %% of the pass", part_names[i], 1e3 * median(part[i], REPEATS),
           median(share[i], REPEATS));
    if (flops[i] > 0)
      printf(", %.1f %% of FMA peak", median(part_percent[i], REPEATS));
    printf("\n");
  }
  printf("  %-22s %8s    %5.1f %%\n", "the rest", "", median(rest, REPEATS));
  printf("Parts: each kind of call alone, as many and of the same sizes as in a pass, with one wait at the end.\n");
  close_parts(&apart);
}

/* ---- the command ---- */

static const char usage[] =
    "usage: clattn-bench minilm --model DIR [--batch B] [--tokens T] [--serve]\n"
    "Measures passes of a sentence encoder of the BERT family (default: 32 sentences of 128 tokens) and their parts;\n"
    "of short passes the fastest of 7 counts.  B and T are 1 to 65536, T at most the model's positions.\n"
    "--serve: writes the embeddings, then runs a pass for each line of the input and writes its seconds.\n";

static int take_number(const char *text, int64_t *out) {
  char *end = NULL;
  const long value = strtol(text, &end, 10);
  *out = value;
  return end != text && *end == 0 && value >= 1 && value <= 65536;
}

static int take_options(int count, char **words, options *o) {
  for (int i = 0; i < count; ++i) {
    const char *value = i + 1 < count ? words[i + 1] : NULL;
    if (strcmp(words[i], "--serve") == 0) {
      o->serve = 1;
      continue;
    }
    if (value == NULL)
      return 0;
    if (strcmp(words[i], "--model") == 0)
      o->model = value;
    else if (!(strcmp(words[i], "--batch") == 0 && take_number(value, &o->batch)) &&
             !(strcmp(words[i], "--tokens") == 0 && take_number(value, &o->tokens)))
      return 0;
    ++i;
  }
  return o->model != NULL;
}

int bench_minilm(int count, char **words) {
  options o = {NULL, 32, 128, 0};
  passes p = {NULL, {0, 0, NULL, NULL}, NULL, NULL, NULL};
  model_error error;
  bench b;
  if (!take_options(count, words, &o)) {
    const int help = count == 1 && strcmp(words[0], "--help") == 0;
    fputs(usage, help ? stdout : stderr);
    return help ? 0 : 2;
  }
  open_bench(&b);
  if (model_bert_open(b.context, b.queue, o.model, NULL, &p.bert, NULL, &error) != 0) {
    fprintf(stderr, "%s\n", error.message);
    close_bench(&b);
    return 2;
  }
  if (o.tokens > model_bert_config(p.bert)->max_position_embeddings) {
    fprintf(stderr, "--tokens %lld: the model has %lld positions\n", (long long)o.tokens,
            (long long)model_bert_config(p.bert)->max_position_embeddings);
    model_bert_close(p.bert);
    close_bench(&b);
    return 2;
  }
  make_batch(&p, &o);
  if (o.serve) {
    serve(&p);
  } else {
    printf("%s, driver %s, %u compute units, clattn %s; medians of %d interleaved runs, wall clock\n", b.info.name,
           b.info.driver, b.info.compute_units, clattn_version(), REPEATS);
    measure(&b, &p);
  }
  model_bert_close(p.bert);
  free(p.ids);
  free(p.lengths);
  free(p.embeddings);
  close_bench(&b);
  return 0;
}

#else

int bench_minilm(int count, char **words) {
  (void)count;
  (void)words;
  fprintf(stderr, "this benchmark was built without the reader of models, which comes with the clattn program\n");
  return 2;
}

#endif
