/* SPDX-License-Identifier: Apache-2.0 */
/* clattn run: attention on arrays from files, text or a seed. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "convert.h"
#include "dump.h"
#include "heatmap.h"
#include "outputs.h"
#include "pass.h"
#include "picture.h"
#include "report.h"
#include "request.h"
#include "setup.h"
#include "verify.h"

/* Four parts: compilers need not take longer literals. */
static const char help[] =
    "usage: clattn run --q F --k F --v F [options]\n"
    "       clattn run --problem LINE [--seed N] [options]\n"
    "\n"
    "Computes attention through OpenCL.  Without --out it prints a summary and, for up to 32 queries and keys, a heat\n"
    "map of the weights of one head.\n"
    "\n"
    "inputs\n"
    "  --q, --k, --v F     arrays of rank 2 to 4: (batch, heads, rows, dim), missing leading axes are 1.  F is an "
    ".npy\n"
    "                      file (C or Fortran order; f4, f2, and others as below), a .csv or .txt file, or text such "
    "as\n"
    "                      \"1 0; 0 1\"\n"
    "  --layout L          bhsd (default), or bshd: (batch, rows, heads, dim) for q, k, v and the output, from rank 3 "
    "on\n"
    "  --cu-seqlens-q F, --cu-seqlens-k F   packed sequences: sequence b is row F[b] to row F[b+1]-1 of q (rows, "
    "heads,\n"
    "                      dim), or of k and v; i4 or i8, from 0 to the number of rows.  The output is packed as q "
    "is,\n"
    "                      lse (heads, rows); bias, masks and scores are of the longest sequence's size\n"
    "  --page-table F --page-size N   k and v are pages, (pages, page size, heads, dim): key j of batch entry b is "
    "row\n"
    "                      j % N of page F[b][j / N].  Needs --k-lengths; the longest one counts as the number of "
    "keys\n"
    "  --q-lengths F, --k-lengths F   i4 or i8, one number of valid queries or keys per batch entry\n"
    "  --problem LINE      a problem line, as --explain prints it; tensors that are not given are drawn\n"
    "  --seed N            for what is drawn (default 0)\n"
    "\n"
    "scores\n"
    "  --similarity S      dot (default), cosine, or additive: the sum of w * tanh(q + k), with --add-w\n"
    "  --add-w F           f4, (dim) or (heads, dim): w of the additive similarity\n"
    "  --scale X           default 1/sqrt(dim) for dot, else 1\n"
    "  --head-scale F      f4, (heads): multiplies the scores of a head, as --scale does those of all\n"
    "  --softcap X         scores become X tanh(score / X)\n"
    "  --bias F            f4, f2 or u2, rank 1 to 4, added to the scores; broadcasts to (batch, heads, queries, "
    "keys)\n"
    "  --alibi A           signed adds slope * (key - position), symmetric -slope * |key - position|\n"
    "  --alibi-slopes F    f4, (heads) or (batch, heads); default: the standard slopes for this number of heads\n"
    "  --sink F            f4, (heads): a score per head that takes part in the softmax and has no value\n"
    "\n"
    "rules: a key counts if all let it through\n"
    "  --causal [A]        key j <= position of the query; A is top-left or bottom-right.  Without A there must be as\n"
    "                      many queries as keys, or a --query-offset\n"
    "  --query-offset N    position of query 0 on the key axis, with or without --causal\n"
    "  --prefix N|F        with --causal: keys before N are seen by all; F has a number per batch entry (i4 or i8)\n"
    "  --window L,R        keys from L before to R behind the position; inf = unlimited\n"
    "  --chunk C           keys of the position's own chunk of C\n";
static const char help_types[] =
    "  --keep-mask F       b1 or u1, rank 1 to 4, non-zero = attend; broadcasts as the bias does\n"
    "  --drop-mask F       the opposite: non-zero = ignore\n"
    "  --block-mask F --block-size Q,K   b1 or u1, rank 1 to 4, non-zero = attend, for blocks of Q queries and K "
    "keys;\n"
    "                      broadcasts to (batch, heads, query blocks, key blocks)\n"
    "  --hook FILE.cl      OpenCL C that defines float clattn_score(float s, const clattn_at *at), bool\n"
    "                      clattn_keep(const clattn_at *at), or both; clattn.h says what they see.  --verify can't run "
    "it,\n"
    "                      --verify=device can\n"
    "  --hook-arg A        buffer=F gives it an array (.npy, any type, C order; or text): at->buffer[0], the next one\n"
    "                      at->buffer[1] and so on.  scalar=X a number: at->scalar[0] and so on.  Up to four of each\n"
    "\n"
    "types (default: as the file has them: f4 is f32, f2 is f16, i1 is i8)\n"
    "  --q-dtype, --k-dtype, --v-dtype, --bias-dtype T   f32, f16 or bf16: rounded to nearest even where the file has\n"
    "                      another; a file of u2 holds the bits of bf16 and needs T = bf16.  For k and v also i8 and "
    "i4:\n"
    "                      x = scale * code.  A file of f4 or f2 is quantised here, every row (i8) or 32 elements of "
    "it\n"
    "                      (i4) with the scale max |x| / 127 or / 7; a file of codes needs its scales: i1 for i8, u1 "
    "for\n"
    "                      i4, two elements a byte, the low four bits first, x = scale * (bits - 8)\n"
    "  --k-scale, --v-scale F   f4 or f2, of the shape of k or v, but the last axis is 1, for i4 one per 32 elements\n"
    "  --v-dim N           elements in a row of v in u1; default two per byte (a row of k has as many as q's)\n"
    "  --out-dtype T       f32, f16 (written as f2) or bf16 (as u2); default: q's type\n"
    "  --math M            exact (default); half or tf32 permit products that are rounded so, for speed\n";
static const char help_rope[] =
    "\n"
    "rotary embedding: q and k are rotated before they meet; keys in a cache stay as they are\n"
    "  --rope R            half: pairs of elements (d, d + dim/2), or interleaved: (2d, 2d + 1).  A query is rotated "
    "by\n"
    "                      its position, as the rules above have it, a key by its number\n"
    "  --rope-dim N        elements that are rotated, the first ones; even (default: all)\n"
    "  --rope-base X       for the tables that this program makes: position * X^(-2d/dim) (default 10000)\n"
    "  --rope-cos F --rope-sin F   f4, (positions, dim/2) or (batch, positions, dim/2): other tables\n"
    "  --positions-q F --positions-k F   i4 or i8, (rows) or (batch, rows): positions in the tables instead; causal,\n"
    "                      windows and the like keep theirs.  Of packed sequences, one for each of all rows\n";
static const char help_rest[] =
    "\n"
    "outputs (.npy; all are written, or none)\n"
    "  --out F             the output, of q's rank and layout\n"
    "  --weights F         after softmax: (batch, heads, queries, keys), of q's rank\n"
    "  --scores F          before softmax; --scores-stage raw (scaled), softcap, or masked (default: final, excluded "
    "keys\n"
    "                      are -inf).  Together with --weights the work is done twice\n"
    "  --lse F             log-sum-exp of every row: (batch, heads, queries)\n"
    "  --max-logit F       largest raw score of the keys that count: (batch, heads)\n"
    "\n"
    "how\n"
    "  --device ID         an id or number of 'clattn devices'; default: GPUs before accelerators before CPUs\n"
    "  --cache FOLDER      keep built kernels there for the next time, and take those of 'clattn warm'; default: none\n"
    "                      (from_cache of --json says whether they were there)\n"
    "  --variant NAME      kernels to use, instead of the best that fits\n"
    "  --tuning FILE       tiles of kernels that 'clattn tune' measured on this device\n"
    "  --config TEXT       config_text of the library's context, \"forbid=fused;width=4\": see clattn.h\n"
    "  --workspace-cap N   scratch memory at most, in bytes or with K, M, G\n"
    "  --batch-invariant   a row's bits do not depend on the batch, or the other rows, around it\n"
    "\n"
    "what is shown\n"
    "  --q-labels, --k-labels A,B,...|@FILE   names of queries and keys in the heat map (file: one per line)\n"
    "  --heat B,H          the heat map is of this batch entry and head (default 0,0; in a file: all of them)\n"
    "  --heatmap [F]       a heat map of the weights: in the terminal, or as F.svg, F.png or F.html (a page with\n"
    "                      selectors); any number of queries and keys, long ones are binned\n"
    "  --explain           problem line, variant, tile, workspace, why, peak memory\n"
    "  --verify            compare with the double-precision reference (sampled rows when large); exit 1 on a "
    "difference\n"
    "  --verify=device     compare with another variant on the same device, the three-step pipeline, in all rows\n"
    "  --dump DIR          the kernels that ran as files, with all they were given and what they should compute: for a "
    "bug\n"
    "                      report.  A new or empty folder; README.txt in it says what is what; 'clattn replay DIR' "
    "runs "
    "it\n"
    "  --json              one JSON object instead of text\n"
    "  --help              this text\n"
    "\n"
    "Exit codes: 0 done; 1 the work failed; 2 wrong usage or input; 3 no device; 130, 143 and 129 ended by SIGINT,\n"
    "SIGTERM and SIGHUP.\n"
    "\n"
    "examples:\n"
    "  clattn run --q '1 0; 0 1' --k '1 0; 0 1; 1 1' --v '1; 2; 3' --k-labels a,b,c\n"
    "  clattn run --q q.npy --k k.npy --v v.npy --causal --out o.npy --weights w.npy --verify\n"
    "  clattn run --q q.npy --k k.npy --v v.npy --causal bottom-right --window 128,0 --lse lse.npy --explain\n"
    "  clattn run --problem 'hq=8 sq=1152 sk=1152 d=64' --seed 1 --verify --json\n"
    "  clattn run --q q.npy --k k.npy --v v.npy --q-labels @words.txt --k-labels @words.txt --heatmap heads.html\n"
    "and one rule or more behind 'clattn run --q q.npy --k k.npy --v v.npy --out o.npy':\n"
    "  --alibi symmetric                              --alibi signed --alibi-slopes slopes.npy\n"
    "  --sink sink.npy                                --sink '0.5 0.5 1 1' (four heads)\n"
    "  --causal top-left --chunk 8192                 --causal --prefix 32\n"
    "  --causal bottom-right --prefix prefix.npy      --q-lengths '5 3' --k-lengths '7 0' (a batch of two)\n"
    "  --cu-seqlens-q '0 3 10' --cu-seqlens-k '0 3 10' --causal\n"
    "  --page-table table.npy --page-size 16 --k-lengths lengths.npy\n"
    "  --block-mask blocks.npy --block-size 64,64     --drop-mask padding.npy\n"
    "  --max-logit logits.npy                         --batch-invariant --verify=device\n"
    "  --q-dtype f16 --k-dtype i8 --v-dtype i8        --k-dtype i4 --k-scale k_scale.npy (k.npy of u1)\n"
    "  --similarity cosine --head-scale '5 5 8 8'     --similarity additive --add-w w.npy --math half\n"
    "  --rope half --rope-base 500000 --causal        --rope interleaved --rope-dim 64 --causal bottom-right\n"
    "  --rope half --rope-cos cos.npy --rope-sin sin.npy --positions-q pq.npy --positions-k pk.npy\n"
    "  --hook bias.cl --hook-arg buffer=table.npy --hook-arg scalar=0.5 --hook-arg scalar=32\n";

enum { FILE_OUT, FILE_WEIGHTS, FILE_SCORES, FILE_LSE, FILE_MAX_LOGIT, FILE_HEATMAP };

enum { VERIFY_NOTHING, VERIFY_REFERENCE, VERIFY_DEVICE };

typedef struct run_options {
  cli_request_options request;
  cli_files files;
  cli_setup setup;
  const char *stage, *device, *cache, *variant, *cap, *q_labels, *k_labels, *heat, *verify_with, *dump;
  int explain, verify, json, heatmap; /* heatmap: in the terminal */
  /* From the texts above. */
  clattn_stage scores_stage;
  uint64_t workspace_cap;
  int64_t heat_batch, heat_head;
} run_options;

enum {
  OPT_Q = 256,
  OPT_K,
  OPT_V,
  OPT_BIAS,
  OPT_KEEP_MASK,
  OPT_BLOCK_MASK,
  OPT_ALIBI_SLOPES,
  OPT_SINK,
  OPT_PAGE_TABLE,
  OPT_HEAD_SCALE,
  OPT_ADD_W,
  OPT_K_SCALE,
  OPT_V_SCALE,
  OPT_ROPE_COS,
  OPT_ROPE_SIN,
  OPT_POSITIONS_Q,
  OPT_POSITIONS_K, /* up to here as CLI_Q and so on */
  OPT_OUT,
  OPT_WEIGHTS,
  OPT_SCORES,
  OPT_LSE,
  OPT_MAX_LOGIT,
  OPT_HEATMAP, /* from OPT_OUT on as FILE_OUT and so on */
  OPT_Q_LENGTHS,
  OPT_K_LENGTHS,
  OPT_PREFIX,
  OPT_CU_SEQLENS_Q,
  OPT_CU_SEQLENS_K, /* from OPT_Q_LENGTHS on as CLI_Q_LENGTHS and so on */
  OPT_DROP_MASK,
  OPT_PAGE_SIZE,
  OPT_BLOCK_SIZE,
  OPT_Q_DTYPE,
  OPT_K_DTYPE,
  OPT_V_DTYPE,
  OPT_BIAS_DTYPE, /* from OPT_Q_DTYPE on as CLI_Q to CLI_BIAS */
  OPT_OUT_DTYPE,
  OPT_V_DIM,
  OPT_SIMILARITY,
  OPT_MATH,
  OPT_HOOK,
  OPT_ROPE,
  OPT_ROPE_DIM,
  OPT_ROPE_BASE,
  OPT_ALIBI,
  OPT_CHUNK,
  OPT_BATCH_INVARIANT,
  OPT_STAGE,
  OPT_CAUSAL,
  OPT_OFFSET,
  OPT_WINDOW,
  OPT_SCALE,
  OPT_SOFTCAP,
  OPT_LAYOUT,
  OPT_DEVICE,
  OPT_CACHE,
  OPT_VARIANT,
  OPT_TUNING,
  OPT_CONFIG,
  OPT_CAP,
  OPT_Q_LABELS,
  OPT_K_LABELS,
  OPT_HEAT,
  OPT_PROBLEM,
  OPT_SEED,
  OPT_EXPLAIN,
  OPT_VERIFY,
  OPT_DUMP,
  OPT_JSON,
  OPT_HELP,
  OPT_HOOK_ARG = CLI_REPEATABLE
};

static const struct option longs[] = {{"q", required_argument, NULL, OPT_Q},
                                      {"k", required_argument, NULL, OPT_K},
                                      {"v", required_argument, NULL, OPT_V},
                                      {"bias", required_argument, NULL, OPT_BIAS},
                                      {"keep-mask", required_argument, NULL, OPT_KEEP_MASK},
                                      {"out", required_argument, NULL, OPT_OUT},
                                      {"weights", required_argument, NULL, OPT_WEIGHTS},
                                      {"scores", required_argument, NULL, OPT_SCORES},
                                      {"scores-stage", required_argument, NULL, OPT_STAGE},
                                      {"lse", required_argument, NULL, OPT_LSE},
                                      {"max-logit", required_argument, NULL, OPT_MAX_LOGIT},
                                      {"q-lengths", required_argument, NULL, OPT_Q_LENGTHS},
                                      {"k-lengths", required_argument, NULL, OPT_K_LENGTHS},
                                      {"cu-seqlens-q", required_argument, NULL, OPT_CU_SEQLENS_Q},
                                      {"cu-seqlens-k", required_argument, NULL, OPT_CU_SEQLENS_K},
                                      {"page-table", required_argument, NULL, OPT_PAGE_TABLE},
                                      {"page-size", required_argument, NULL, OPT_PAGE_SIZE},
                                      {"block-mask", required_argument, NULL, OPT_BLOCK_MASK},
                                      {"block-size", required_argument, NULL, OPT_BLOCK_SIZE},
                                      {"drop-mask", required_argument, NULL, OPT_DROP_MASK},
                                      {"alibi", required_argument, NULL, OPT_ALIBI},
                                      {"alibi-slopes", required_argument, NULL, OPT_ALIBI_SLOPES},
                                      {"sink", required_argument, NULL, OPT_SINK},
                                      {"head-scale", required_argument, NULL, OPT_HEAD_SCALE},
                                      {"similarity", required_argument, NULL, OPT_SIMILARITY},
                                      {"add-w", required_argument, NULL, OPT_ADD_W},
                                      {"math", required_argument, NULL, OPT_MATH},
                                      {"q-dtype", required_argument, NULL, OPT_Q_DTYPE},
                                      {"k-dtype", required_argument, NULL, OPT_K_DTYPE},
                                      {"v-dtype", required_argument, NULL, OPT_V_DTYPE},
                                      {"bias-dtype", required_argument, NULL, OPT_BIAS_DTYPE},
                                      {"out-dtype", required_argument, NULL, OPT_OUT_DTYPE},
                                      {"k-scale", required_argument, NULL, OPT_K_SCALE},
                                      {"v-scale", required_argument, NULL, OPT_V_SCALE},
                                      {"v-dim", required_argument, NULL, OPT_V_DIM},
                                      {"rope", required_argument, NULL, OPT_ROPE},
                                      {"rope-dim", required_argument, NULL, OPT_ROPE_DIM},
                                      {"rope-base", required_argument, NULL, OPT_ROPE_BASE},
                                      {"rope-cos", required_argument, NULL, OPT_ROPE_COS},
                                      {"rope-sin", required_argument, NULL, OPT_ROPE_SIN},
                                      {"positions-q", required_argument, NULL, OPT_POSITIONS_Q},
                                      {"positions-k", required_argument, NULL, OPT_POSITIONS_K},
                                      {"hook", required_argument, NULL, OPT_HOOK},
                                      {"hook-arg", required_argument, NULL, OPT_HOOK_ARG},
                                      {"chunk", required_argument, NULL, OPT_CHUNK},
                                      {"prefix", required_argument, NULL, OPT_PREFIX},
                                      {"batch-invariant", no_argument, NULL, OPT_BATCH_INVARIANT},
                                      {"causal", optional_argument, NULL, OPT_CAUSAL},
                                      {"query-offset", required_argument, NULL, OPT_OFFSET},
                                      {"window", required_argument, NULL, OPT_WINDOW},
                                      {"scale", required_argument, NULL, OPT_SCALE},
                                      {"softcap", required_argument, NULL, OPT_SOFTCAP},
                                      {"layout", required_argument, NULL, OPT_LAYOUT},
                                      {"device", required_argument, NULL, OPT_DEVICE},
                                      {"cache", required_argument, NULL, OPT_CACHE},
                                      {"variant", required_argument, NULL, OPT_VARIANT},
                                      {"tuning", required_argument, NULL, OPT_TUNING},
                                      {"config", required_argument, NULL, OPT_CONFIG},
                                      {"workspace-cap", required_argument, NULL, OPT_CAP},
                                      {"q-labels", required_argument, NULL, OPT_Q_LABELS},
                                      {"k-labels", required_argument, NULL, OPT_K_LABELS},
                                      {"heat", required_argument, NULL, OPT_HEAT},
                                      {"heatmap", optional_argument, NULL, OPT_HEATMAP},
                                      {"problem", required_argument, NULL, OPT_PROBLEM},
                                      {"seed", required_argument, NULL, OPT_SEED},
                                      {"explain", no_argument, NULL, OPT_EXPLAIN},
                                      {"verify", optional_argument, NULL, OPT_VERIFY},
                                      {"dump", required_argument, NULL, OPT_DUMP},
                                      {"json", no_argument, NULL, OPT_JSON},
                                      {"help", no_argument, NULL, OPT_HELP},
                                      {NULL, 0, NULL, 0}};

static void take_option(int option, run_options *o) {
  cli_request_options *r = &o->request;
  const struct {
    int option;
    const char **place;
  } places[] = {{OPT_DROP_MASK, &r->drop_mask},
                {OPT_PAGE_SIZE, &r->page_size},
                {OPT_BLOCK_SIZE, &r->block_size},
                {OPT_OUT_DTYPE, &r->out_dtype},
                {OPT_V_DIM, &r->v_dim},
                {OPT_SIMILARITY, &r->rules.similarity},
                {OPT_MATH, &r->rules.math},
                {OPT_HOOK, &r->hook},
                {OPT_ALIBI, &r->rules.alibi},
                {OPT_ROPE, &r->rope},
                {OPT_ROPE_DIM, &r->rope_dim},
                {OPT_ROPE_BASE, &r->rope_base},
                {OPT_CHUNK, &r->rules.chunk},
                {OPT_OFFSET, &r->rules.offset},
                {OPT_WINDOW, &r->rules.window},
                {OPT_SCALE, &r->rules.scale},
                {OPT_SOFTCAP, &r->rules.softcap},
                {OPT_LAYOUT, &r->layout},
                {OPT_PROBLEM, &r->line},
                {OPT_SEED, &r->seed},
                {OPT_STAGE, &o->stage},
                {OPT_DEVICE, &o->device},
                {OPT_CACHE, &o->cache},
                {OPT_VARIANT, &o->variant},
                {OPT_TUNING, &o->setup.tuning},
                {OPT_CONFIG, &o->setup.config},
                {OPT_CAP, &o->cap},
                {OPT_Q_LABELS, &o->q_labels},
                {OPT_K_LABELS, &o->k_labels},
                {OPT_HEAT, &o->heat},
                {OPT_VERIFY, &o->verify_with},
                {OPT_DUMP, &o->dump},
                {OPT_CAUSAL, &r->rules.alignment}};
  if (option >= OPT_Q && option <= OPT_POSITIONS_K)
    r->input[option - OPT_Q] = optarg;
  if (option >= OPT_OUT && option <= OPT_HEATMAP)
    o->files.file[option - OPT_OUT].path = optarg;
  if (option >= OPT_Q_DTYPE && option <= OPT_BIAS_DTYPE)
    r->dtype[option - OPT_Q_DTYPE] = optarg;
  if (option == OPT_HOOK_ARG && r->hook_args < CLI_MOST_HOOK_ARGS)
    r->hook_arg[r->hook_args++] = optarg;
  if (option >= OPT_Q_LENGTHS && option <= OPT_CU_SEQLENS_K)
    r->ints[option - OPT_Q_LENGTHS] = optarg;
  for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
    if (places[i].option == option)
      *places[i].place = optarg;
  }
  r->rules.causal |= option == OPT_CAUSAL;
  r->rules.batch_invariant |= option == OPT_BATCH_INVARIANT;
  o->explain |= option == OPT_EXPLAIN;
  if (option == OPT_VERIFY)
    o->verify = VERIFY_REFERENCE;
  o->json |= option == OPT_JSON;
  o->heatmap |= option == OPT_HEATMAP && optarg == NULL;
}

/* Texts that can be judged without the arrays. */
static int check_options(run_options *o) {
  static const char *const stages[] = {"raw", "softcap", "masked"};
  o->scores_stage = CLATTN_STAGE_MASKED;
  if (o->stage != NULL) {
    if (o->files.file[FILE_SCORES].path == NULL)
      return cli_fail(CLI_USAGE, "--scores-stage needs --scores");
    for (o->scores_stage = 0; o->scores_stage < 3; o->scores_stage++) {
      if (strcmp(o->stage, stages[o->scores_stage]) == 0)
        break;
    }
    if (o->scores_stage == 3)
      return cli_fail(CLI_USAGE, "--scores-stage takes raw, softcap or masked, not '%s'%s", o->stage,
                      strcmp(o->stage, "weights") == 0 ? "; weights are --weights" : "");
  }
  if (o->verify_with != NULL) {
    o->verify = strcmp(o->verify_with, "device") == 0 ? VERIFY_DEVICE : VERIFY_REFERENCE;
    if (o->verify == VERIFY_REFERENCE && strcmp(o->verify_with, "reference") != 0)
      return cli_fail(CLI_USAGE, "--verify takes =device or =reference (the default), not '%s'", o->verify_with);
  }
  if (o->verify == VERIFY_REFERENCE && o->request.hook != NULL)
    return cli_fail(CLI_USAGE,
                    "--verify: the reference can't run the OpenCL C of --hook; --verify=device compares with "
                    "another variant on the device, which can");
  if (o->cap != NULL && (!cli_parse_bytes(o->cap, &o->workspace_cap) || o->workspace_cap == 0))
    return cli_fail(CLI_USAGE, "--workspace-cap: '%s' is not a number of bytes above 0, such as 1048576 or 64M",
                    o->cap);
  if (o->heat != NULL) {
    char batch[24] = "";
    const char *comma = strchr(o->heat, ',');
    if (comma != NULL && comma - o->heat < (ptrdiff_t)sizeof batch)
      memcpy(batch, o->heat, (size_t)(comma - o->heat));
    if (comma == NULL || !cli_parse_int64(batch, &o->heat_batch) || !cli_parse_int64(comma + 1, &o->heat_head))
      return cli_fail(CLI_USAGE, "--heat takes a batch entry and a head, as in 0,3; not '%s'", o->heat);
    o->heatmap |= o->files.file[FILE_HEATMAP].path == NULL;
  }
  if (o->dump != NULL && o->files.file[FILE_SCORES].path != NULL &&
      (o->files.file[FILE_WEIGHTS].path != NULL || o->heatmap || o->files.file[FILE_HEATMAP].path != NULL))
    return cli_fail(CLI_USAGE, "--dump: scores and weights are two runs; ask for one of them");
  if (o->heatmap && o->json)
    return cli_fail(CLI_USAGE, "--%s and --json exclude each other", o->heat != NULL ? "heat" : "heatmap");
  return CLI_OK;
}

/* Whether a heat map is shown in the terminal, and whether the one that goes to a file can be drawn. */
static int want_heat(const run_options *o, const clattn_problem *problem, int *heat) {
  const int fits =
      problem->q_len > 0 && problem->k_len > 0 && problem->q_len <= CLI_HEAT_MOST && problem->k_len <= CLI_HEAT_MOST;
  const char *path = o->files.file[FILE_HEATMAP].path;
  const int64_t shape[4] = {o->heat != NULL ? 1 : problem->batch, o->heat != NULL ? 1 : problem->q_heads,
                            problem->q_len, problem->k_len};
  *heat = !o->json && fits && (o->heatmap || (path == NULL && o->files.file[FILE_OUT].path == NULL && o->dump == NULL));
  if (o->heatmap && !fits)
    return cli_fail(CLI_USAGE,
                    "--%s: a heat map in the terminal needs 1 to %d queries and keys, here %" PRId64 " and %" PRId64
                    "; --heatmap F.svg, F.png or F.html takes more",
                    o->heat != NULL ? "heat" : "heatmap", CLI_HEAT_MOST, problem->q_len, problem->k_len);
  if (o->heat == NULL)
    return path != NULL ? cli_picture_check("heatmap", path, shape) : CLI_OK;
  if (o->heat_batch < 0 || o->heat_batch >= problem->batch || o->heat_head < 0 || o->heat_head >= problem->q_heads)
    return cli_fail(CLI_USAGE, "--heat %s: there are %" PRId64 " batch entries of %" PRId64 " heads, counted from 0",
                    o->heat, problem->batch, problem->q_heads);
  return path != NULL ? cli_picture_check("heatmap", path, shape) : CLI_OK;
}

/* The last `rank` axes of (batch, head, row, element), head and row swapped for bshd and for what is packed. */
static int put_axes(cli_file *file, const cli_result *result, int rank, int bshd, int without_element) {
  int64_t shape[4], stride[4];
  const int order[4] = {0, bshd ? 2 : 1, bshd ? 1 : 2, 3};
  const int end = without_element ? 3 : 4;
  const int axes = without_element ? rank - 1 : rank;
  if (file->path == NULL || axes > end)
    return CLI_OK;
  for (int i = 0; i < axes; i++) {
    shape[i] = result->shape[order[end - axes + i]];
    stride[i] = result->stride[order[end - axes + i]];
  }
  return cli_files_put(file, cli_dtype_npy(result->dtype), axes, shape, stride, result->stored);
}

/* All heads, or the one that was asked for. */
static int put_heatmap(const run_options *o, const cli_result *weights, const cli_labels *q_labels,
                       const cli_labels *k_labels, cli_file *file) {
  cli_picture picture;
  char title[96];
  cli_picture_init(&picture);
  picture.weights = weights->data;
  memcpy(picture.shape, weights->shape, sizeof picture.shape);
  memcpy(picture.stride, weights->stride, sizeof picture.stride);
  picture.rows = q_labels;
  picture.columns = k_labels;
  picture.layer_name = "batch entry";
  if (o->heat != NULL) {
    snprintf(title, sizeof title, "batch entry %" PRId64 ", head %" PRId64, o->heat_batch, o->heat_head);
    picture.title = title;
    picture.weights += o->heat_batch * weights->stride[0] + o->heat_head * weights->stride[1];
    picture.shape[0] = picture.shape[1] = 1;
    picture.first_layer = o->heat_batch;
    picture.first_head = o->heat_head;
  }
  return cli_picture_put(&picture, file);
}

static int put_files(run_options *o, const cli_request *request, const cli_pass passes[2], int scores_pass) {
  cli_file *file = o->files.file;
  const int packed = cli_packed_q(&request->problem);
  const int rank = packed ? 3 : request->rank, pair_rank = packed ? 4 : request->rank;
  const int swap = packed || (request->bshd && request->rank >= 3);
  const cli_result *max_logit = &passes[0].result[CLI_MAX_LOGIT];
  int code = put_axes(&file[FILE_OUT], &passes[0].result[CLI_O], rank, swap, 0);
  if (code == CLI_OK)
    code = put_axes(&file[FILE_LSE], &passes[0].result[CLI_LSE], rank, 0, 1);
  if (code == CLI_OK)
    code = put_axes(&file[FILE_WEIGHTS], &passes[0].result[CLI_SCORES], pair_rank, 0, 0);
  if (code == CLI_OK)
    code = put_axes(&file[FILE_SCORES], &passes[scores_pass].result[CLI_SCORES], pair_rank, 0, 0);
  if (code == CLI_OK && file[FILE_MAX_LOGIT].path != NULL)
    code = cli_files_put(&file[FILE_MAX_LOGIT], cli_dtype_npy(max_logit->dtype), 2, max_logit->shape, max_logit->stride,
                         max_logit->stored);
  return code;
}

static void draw_heat(const run_options *o, const cli_pass *pass, const cli_labels *q_labels,
                      const cli_labels *k_labels) {
  const cli_result *weights = &pass->result[CLI_SCORES];
  printf("\nweights of batch entry %" PRId64 ", head %" PRId64 " (rows: queries, columns: keys)\n", o->heat_batch,
         o->heat_head);
  cli_heatmap(weights->data + o->heat_batch * weights->stride[0] + o->heat_head * weights->stride[1], weights->shape[2],
              weights->shape[3], weights->stride[2], weights->stride[3], q_labels->count > 0 ? q_labels : NULL,
              k_labels->count > 0 ? k_labels : NULL);
}

/* A plan returns scores at one stage: weights and scores together are two passes, and the last one has the scores. */
static int plan_passes(const run_options *o, const cli_session *session, const clattn_problem *problem, int heat,
                       cli_pass passes[2], int *count) {
  const int line_scores = (problem->outputs & CLATTN_OUT_SCORES) != 0;
  const int want_scores = o->files.file[FILE_SCORES].path != NULL || line_scores;
  const int want_weights = o->files.file[FILE_WEIGHTS].path != NULL || o->files.file[FILE_HEATMAP].path != NULL || heat;
  const clattn_stage stage = line_scores && o->stage == NULL ? problem->stage : o->scores_stage;
  const int two = want_weights && want_scores && stage != CLATTN_STAGE_WEIGHTS;
  uint32_t outputs = CLATTN_OUT_O | (problem->outputs & CLATTN_OUT_MAX_LOGIT);
  if (o->files.file[FILE_MAX_LOGIT].path != NULL)
    outputs |= CLATTN_OUT_MAX_LOGIT;
  if (o->files.file[FILE_LSE].path != NULL || o->verify != VERIFY_NOTHING || (problem->outputs & CLATTN_OUT_LSE) != 0)
    outputs |= CLATTN_OUT_LSE;
  if (want_weights || want_scores)
    outputs |= CLATTN_OUT_SCORES;
  *count = two ? 2 : 1;
  int code = cli_pass_plan(session, problem, outputs, want_weights ? CLATTN_STAGE_WEIGHTS : stage, o->variant,
                           o->workspace_cap, &passes[0]);
  if (code == CLI_OK && two)
    code = cli_pass_plan(session, problem, CLATTN_OUT_SCORES, stage, o->variant, o->workspace_cap, &passes[1]);
  return code;
}

static int run(run_options *o) {
  cli_request request;
  cli_session session;
  cli_buffers buffers;
  cli_pass passes[2];
  cli_verification checks[2];
  cli_labels q_labels = {NULL, 0}, k_labels = {NULL, 0};
  cli_folder folder;
  uint32_t dumped = 0;
  int heat = 0, count = 0;
  memset(&folder, 0, sizeof folder);
  memset(&session, 0, sizeof session);
  memset(&buffers, 0, sizeof buffers);
  memset(passes, 0, sizeof passes);
  memset(checks, 0, sizeof checks);
  memset(&request, 0, sizeof request);

  int code = check_options(o);
  if (code == CLI_OK)
    code = cli_request_make(&o->request, &request);
  const clattn_problem *problem = &request.problem;
  if (code == CLI_OK)
    code = want_heat(o, problem, &heat);
  if (code == CLI_OK && o->q_labels != NULL)
    code = cli_labels_load("q-labels", o->q_labels, problem->q_len, &q_labels);
  if (code == CLI_OK && o->k_labels != NULL)
    code = cli_labels_load("k-labels", o->k_labels, problem->k_len, &k_labels);
  if (code == CLI_OK) {
    const char *inputs[CLI_INPUTS + CLI_INTS + CLI_HOOK_SLOTS + 4] = {NULL};
    size_t n = 0;
    for (int i = 0; i < CLI_INPUTS; i++)
      inputs[n++] = request.input[i].path;
    for (int i = 0; i < CLI_INTS; i++)
      inputs[n++] = o->request.ints[i];
    for (int i = 0; i < request.hook.buffers; i++)
      inputs[n++] = request.hook.buffer[i].path;
    inputs[n++] = o->request.hook;
    inputs[n++] = o->setup.tuning;
    inputs[n++] = o->q_labels != NULL && o->q_labels[0] == '@' ? o->q_labels + 1 : NULL;
    inputs[n++] = o->k_labels != NULL && o->k_labels[0] == '@' ? o->k_labels + 1 : NULL;
    code = cli_files_begin(&o->files, inputs, n);
  }
  cli_cache_use(o->cache);
  if (code == CLI_OK && o->dump != NULL)
    code = cli_folder_make("dump", o->dump, &folder);
  int dumping = folder.path != NULL;
  if (code == CLI_OK)
    code = cli_setup_begin(&o->setup);
  if (code == CLI_OK)
    code = cli_session_open(o->device, &session);
  if (code == CLI_OK)
    code = plan_passes(o, &session, problem, heat, passes, &count);
  if (code == CLI_OK)
    code = cli_request_draw(&request, session.info.max_alloc_bytes);
  if (code == CLI_OK)
    code = cli_buffers_make(&session, &request, &buffers);
  if (code == CLI_OK && o->dump != NULL && count > 1)
    code = cli_fail(CLI_USAGE, "--dump: scores and weights are two runs; ask for one of them");
  if (code == CLI_OK && o->dump != NULL) {
    dumping = 0; /* what becomes of the folder is cli_dump's from here on */
    code = cli_dump(&session, &request, &buffers, &passes[0], &folder, &dumped);
  }
  for (int i = 0; i < count && code == CLI_OK; i++)
    code = cli_pass_run(&session, &request, &buffers, &passes[i]);
  for (int i = 0; i < count && code == CLI_OK && o->verify != VERIFY_NOTHING; i++)
    code = o->verify == VERIFY_REFERENCE
               ? cli_verify(&request, &passes[i], &checks[i])
               : cli_verify_device(&session, &request, &buffers, &passes[i], o->workspace_cap, &checks[i]);
  if (code != CLI_OK)
    goto done;

  const int good = cli_verified(&checks[0]) && cli_verified(&checks[1]);
  if (good)
    code = put_files(o, &request, passes, count - 1);
  if (code == CLI_OK && good && o->files.file[FILE_HEATMAP].path != NULL)
    code = put_heatmap(o, &passes[0].result[CLI_SCORES], &q_labels, &k_labels, &o->files.file[FILE_HEATMAP]);
  if (code != CLI_OK)
    goto done;
  const cli_report report = {
      &request, &session, passes, o->verify != VERIFY_NOTHING ? checks : NULL, good ? &o->files : NULL,
      count,    o->dump,  dumped};
  if (o->json) {
    code = cli_report_json(&report);
  } else {
    cli_report_text(&report, o->explain);
    if (heat)
      draw_heat(o, &passes[0], &q_labels, &k_labels);
  }
  /* A report that nobody gets is a failure too, and then the old files stay. */
  code = cli_flush(code);
  if (code == CLI_OK && good)
    code = cli_files_commit(&o->files);
  for (int i = 0; i < count && !good; i++)
    code = cli_verify_fail(&passes[i], &checks[i]);
done:
  if (dumping)
    cli_folder_remove(&folder);
  cli_folder_close(&folder);
  for (int i = 0; i < 2; i++)
    cli_pass_close(&session, &passes[i]);
  cli_buffers_release(&buffers);
  cli_session_close(&session);
  cli_setup_end(&o->setup);
  cli_files_discard(&o->files);
  cli_labels_free(&q_labels);
  cli_labels_free(&k_labels);
  cli_request_close(&request);
  return code;
}

int cli_run(int argc, char **argv) {
  static const char *const names[CLI_MAX_FILES] = {"out", "weights", "scores", "lse", "max-logit", "heatmap"};
  run_options o;
  char *storage = NULL;
  int option, code = CLI_OK;
  memset(&o, 0, sizeof o);
  for (int i = 0; i < CLI_MAX_FILES; i++)
    o.files.file[i].option = names[i];
  char **joined = cli_join_causal(&argc, argv, &storage);
  if (joined == NULL)
    return cli_fail_memory();
  while ((option = cli_next_option(argc, joined, longs)) != -1) {
    if (option == OPT_HELP) {
      code = cli_print_help(help);
      code = code == CLI_OK ? cli_print_help(help_types) : code;
      code = code == CLI_OK ? cli_print_help(help_rope) : code;
      code = code == CLI_OK ? cli_print_help(help_rest) : code;
      goto done;
    }
    if (option == '?') {
      code = CLI_USAGE;
      goto done;
    }
    take_option(option, &o);
  }
  code = run(&o);
done:
  free(joined);
  free(storage);
  return code;
}
