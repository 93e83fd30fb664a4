/* SPDX-License-Identifier: Apache-2.0 */
/* Words in a chart, and whether they leave each other room. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "picture_unicode.h"
#include "report_page.h"

/* A rectangle turned round its centre. */
typedef struct turned {
  double x, y, half_width, half_height, cosine, sine;
} turned;

static turned room_of(const report_label *label) {
  const double angle = label->angle * 3.14159265358979323846 / 180, cosine = cos(angle), sine = sin(angle);
  const double right = label->anchor == CLI_ANCHOR_BEGIN ? 0.5 : label->anchor == CLI_ANCHOR_END ? -0.5 : 0;
  const double x = right * label->width, y = -0.34 * label->size; /* of the centre, before it is turned */
  const turned room = {label->x + x * cosine - y * sine,
                       label->y + x * sine + y * cosine,
                       label->width / 2,
                       0.56 * label->size,
                       cosine,
                       sine};
  return room;
}

/* Whether a line at right angles to one of a's sides keeps them apart. */
static int apart(const turned *a, const turned *b) {
  const double x = b->x - a->x, y = b->y - a->y;
  const double cosine = fabs(a->cosine * b->cosine + a->sine * b->sine);
  const double sine = fabs(a->cosine * b->sine - a->sine * b->cosine);
  const double along = fabs(x * a->cosine + y * a->sine), across = fabs(y * a->cosine - x * a->sine);
  return along >= a->half_width + b->half_width * cosine + b->half_height * sine ||
         across >= a->half_height + b->half_width * sine + b->half_height * cosine;
}

int report_labels_touch(const report_label *a, const report_label *b) {
  const turned first = room_of(a), second = room_of(b);
  return !apart(&first, &second) && !apart(&second, &first);
}

int report_label_covers(const report_label *label, double x, double y, double radius) {
  const double reach = label->width + label->size + radius; /* most points are far away */
  if (fabs(x - label->x) > reach || fabs(y - label->y) > reach)
    return 0;
  const turned room = room_of(label), point = {x, y, radius, radius, 1, 0};
  return !apart(&room, &point) && !apart(&point, &room);
}

/* Keeps the part of [*begin, *end] in which from + t * by is within +-most. */
static void clip(double from, double by, double most, double *begin, double *end) {
  if (by == 0) {
    *end = fabs(from) < most ? *end : -1;
    return;
  }
  const double first = (-most - from) / by, second = (most - from) / by;
  *begin = fmax(*begin, fmin(first, second));
  *end = fmin(*end, fmax(first, second));
}

int report_label_crossed(const report_label *label, double x1, double y1, double x2, double y2) {
  const turned room = room_of(label);
  const double dx = x2 - x1, dy = y2 - y1, x = x1 - room.x, y = y1 - room.y;
  double begin = 0, end = 1;
  clip(x * room.cosine + y * room.sine, dx * room.cosine + dy * room.sine, room.half_width, &begin, &end);
  clip(y * room.cosine - x * room.sine, dy * room.cosine - dx * room.sine, room.half_height, &begin, &end);
  return begin < end;
}

int report_labels_blocked(const report_labels *labels, const report_label *label) {
  for (size_t i = 0; i < labels->count; i++) {
    if (report_labels_touch(&labels->label[i], label))
      return 1;
  }
  return 0;
}

void report_labels_add(report_labels *labels, const report_label *label, const char *text, double most) {
  if (labels->failed)
    return;
  if (labels->count == labels->room) {
    const size_t room = labels->room == 0 ? 64 : 2 * labels->room;
    report_label *grown = realloc(labels->label, room * sizeof *grown);
    if (grown == NULL) {
      labels->failed = 1;
      return;
    }
    labels->label = grown;
    labels->room = room;
  }
  report_label *added = &labels->label[labels->count];
  *added = *label;
  added->text = cli_text_shorten(text, most > 0 ? most / label->size : HUGE_VAL);
  if (added->text == NULL) {
    labels->failed = 1;
    return;
  }
  added->width = cli_text_width(added->text) * label->size;
  labels->count++;
}

void report_labels_write(const report_labels *labels, cli_bytes *out) {
  static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
  for (size_t i = 0; i < labels->count; i++) {
    const report_label *label = &labels->label[i];
    cli_bytes_format(out, "<text class=\"%s\" font-size=\"%.4g\" x=\"%.1f\" y=\"%.1f\"%s", label->look, label->size,
                     label->x, label->y, anchors[label->anchor]);
    if (label->angle != 0)
      cli_bytes_format(out, " transform=\"rotate(%.2f %.1f %.1f)\"", label->angle, label->x, label->y);
    cli_bytes_text(out, ">");
    cli_bytes_xml(out, label->text);
    cli_bytes_text(out, "</text>\n");
  }
  out->failed |= labels->failed;
}

void report_labels_release(report_labels *labels) {
  for (size_t i = 0; i < labels->count; i++)
    free(labels->label[i].text);
  free(labels->label);
  memset(labels, 0, sizeof *labels);
}
