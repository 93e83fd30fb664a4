/* SPDX-License-Identifier: Apache-2.0 */
/* The page's style and script, line by line.  Single quotes only.
 *
 * Colours of runs and variants follow Okabe and Ito (Color Universal Design, 2008), which colour-blind readers tell
 * apart; on a light ground the pale ones, on a dark one the dark ones are shifted until they stand out from it. */
#include <stddef.h>

#include "report_page.h"

const report_theme report_themes[2] = {
    {"#ffffff",
     "#1c2128",
     "#57606a",
     "#8c959f",
     "#f3f4f6",
     "#0a5c91",
     "#b42318",
     {"#0072b2", "#d55e00", "#008f68", "#b05a8a", "#b07a00", "#24292f", "#3d97cf", "#857c00"}},
    {"#16181d",
     "#e6e9ed",
     "#a0a8b2",
     "#5f6772",
     "#23262d",
     "#7cc4f5",
     "#ff8a7a",
     {"#56b4e9", "#ee7733", "#1fb58c", "#d98bb8", "#e69f00", "#e6e9ed", "#2f86cc", "#f0e442"}}};

static const char *const style[] = {
    "* { box-sizing: border-box; }",
    "body { margin: 0 auto; max-width: 1600px; padding: 16px 20px 28px; background: var(--ground);",
    "  color: var(--text); font: 14px/1.45 system-ui, sans-serif; }",
    "h1 { margin: 0; font-size: 21px; line-height: 1.25; overflow-wrap: anywhere; }",
    "h2 { margin: 26px 0 8px; padding-bottom: 3px; border-bottom: 1px solid var(--line); font-size: 16px; }",
    "h3 { margin: 10px 0 4px; font-size: 14px; overflow-wrap: anywhere; }",
    "p { margin: 4px 0; color: var(--muted); overflow-wrap: anywhere; }", "a { color: var(--accent); }",
    "small { display: block; font-size: 11px; }", "figure { margin: 0; min-width: 0; }", "section { min-width: 0; }",
    ".hidden { position: absolute; }",
    ".banner { margin: 8px 0; padding: 7px 12px; border: 1px solid var(--line); border-left: 5px solid var(--bad);",
    "  background: var(--soft); color: var(--text); }", ".scroll { overflow-x: auto; }",
    ".beside, .charts { display: grid; grid-template-columns: minmax(0, 1fr); gap: 0 26px; align-items: start; }",
    ".charts { gap: 12px 26px; }", "@media (min-width: 1400px) {",
    "  .beside, .charts { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); }", "}",
    /* Charts are drawn for the width that a column has at 800 and at 1600 pixels, so that their text keeps its size. */
    ".chart { display: block; width: 100%; min-width: 640px; max-width: 800px; }",
    "svg text { font-family: Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif;",
    "  font-variant-numeric: tabular-nums; }",
    ".t { fill: var(--text); } .m { fill: var(--muted); } .strong { font-weight: 600; }",
    "svg .bad { fill: var(--bad); } .bad { color: var(--bad); font-weight: 600; }",
    ".halo { paint-order: stroke; stroke: var(--ground); stroke-width: 3px; stroke-linejoin: round; }",
    ".grid, .axis, .roof, .hatch { fill: none; stroke: var(--line); stroke-width: 1; }",
    ".grid { stroke-opacity: 0.45; } .minor { stroke-opacity: 0.18; }",
    ".roof { stroke: var(--text); stroke-width: 1.8; }",
    ".fp16 { stroke-dasharray: 9 4; } .matrix { stroke-dasharray: 9 3 2 3; } .cache { stroke-dasharray: 2 3; }",
    ".point { stroke: var(--ground); stroke-width: 1; }",
    ".point:hover, .bar:hover { stroke: var(--text); stroke-width: 1.5; }", ".plain { fill: var(--muted); }",
    ".hatch { stroke: var(--bad); stroke-width: 2; } .wrong { stroke: var(--bad); stroke-width: 1; }",
    ".key { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 8px 0; padding: 0; list-style: none;",
    "  font-size: 12.5px; color: var(--muted); }",
    ".key li { display: inline-flex; align-items: center; gap: 6px; min-width: 0; overflow-wrap: anywhere; }",
    ".sign { flex: none; }",
    ".swatch { display: inline-block; flex: none; width: 11px; height: 11px; margin-right: 5px; }",
    ".left-out { margin: 6px 0; padding-left: 20px; font-size: 12.5px; overflow-wrap: anywhere; }",
    "table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 12.5px; }",
    "th { font-weight: normal; color: var(--muted); text-align: left; }", ".facts { width: 100%; }",
    ".facts th, .facts td { padding: 3px 10px 3px 0; vertical-align: top; text-align: left;",
    "  border-bottom: 1px solid var(--soft); }",
    ".facts td, .facts thead th { overflow-wrap: anywhere; min-width: 120px; }",
    ".facts tbody th { white-space: nowrap; }",
    ".facts .part { padding-top: 12px; color: var(--text); font-weight: 600; }",
    ".differs { color: var(--bad); font-weight: 600; white-space: nowrap; }",
    ".facts .differs { white-space: normal; }",
    ".numbers th, .numbers td { padding: 3px 8px; text-align: right; white-space: nowrap; vertical-align: top; }",
    ".numbers thead th { border-bottom: 1px solid var(--line); vertical-align: bottom; }",
    ".numbers tbody tr:nth-child(even) > * { background: var(--soft); }",
    ".numbers th[scope=row], .numbers th:first-child { position: sticky; left: 0; text-align: left;",
    "  background: var(--ground); max-width: 240px; overflow: hidden; text-overflow: ellipsis; }",
    ".numbers .word { text-align: left; } .numbers tfoot th { white-space: normal; max-width: none; }",
    ".numbers tfoot > tr > * { border-top: 1px solid var(--line); color: var(--text); font-weight: 600; }",
    ".numbers tr:target > *, .problems li:target { outline: 2px solid var(--accent); }",
    ".wide th, .wide td { padding: 3px 5px; }",
    ".quiet { color: var(--muted); } .faster { color: var(--accent); } .slower { color: var(--bad); }",
    "th button { font: inherit; color: inherit; padding: 0; border: 0; background: none; cursor: pointer;",
    "  text-align: inherit; }", "th button:hover { color: var(--text); text-decoration: underline; }",
    "th[aria-sort] button { color: var(--text); font-weight: 600; }",
    "th[aria-sort=ascending] button::after { content: ' \\2191'; }",
    "th[aria-sort=descending] button::after { content: ' \\2193'; }",
    ".problems { margin: 0; padding: 0; list-style: none; }",
    ".problems li { padding: 5px 0; overflow-wrap: anywhere; }",
    ".problems span { color: var(--muted); margin-left: 8px; }",
    ".command { user-select: all; font: 12.5px/1.5 ui-monospace, 'DejaVu Sans Mono', monospace; padding: 1px 5px;",
    "  background: var(--soft); border-radius: 3px; }",
    ".copy { margin-left: 8px; padding: 0 7px; font: 12px/1.5 system-ui, sans-serif; color: var(--text);",
    "  background: var(--soft); border: 1px solid var(--line); border-radius: 4px; cursor: pointer; }",
    ":focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }",
    "#tip { position: absolute; z-index: 1; max-width: 360px; padding: 5px 9px; border: 1px solid var(--line);",
    "  border-radius: 5px; background: var(--ground); box-shadow: 0 2px 8px #0003; pointer-events: none;",
    "  white-space: pre-line; overflow-wrap: anywhere; font-size: 12.5px; }", "[hidden] { display: none !important; }",
    "@media print {", "  @page { size: A4 landscape; margin: 10mm; }", "  body { padding: 0; max-width: none; }",
    "  .scroll { overflow: visible; }", "  .copy { display: none; }",
    "  .bar, .point, .swatch, .command, .banner { print-color-adjust: exact; -webkit-print-color-adjust: exact; }",
    "  .wide { font-size: 6.5pt; } .wide th, .wide td { padding: 1px 2px; }",
    "  .wide th[scope=row] { max-width: 90px; } small { font-size: 6pt; }",
    "  figure, tr, li { break-inside: avoid; } h2, h3 { break-after: avoid; }", "}", NULL};

static const char *const script[] = {
    "'use strict';", "const tip = document.getElementById('tip');", "function place(event) {",
    "  const root = document.documentElement, gap = 14;",
    "  const right = event.clientX + gap + tip.offsetWidth < root.clientWidth;",
    "  const below = event.clientY + gap + tip.offsetHeight < root.clientHeight;",
    "  const x = right ? event.pageX + gap : Math.max(0, event.pageX - gap - tip.offsetWidth);",
    "  tip.style.left = x + 'px';",
    "  tip.style.top = (below ? event.pageY + gap : event.pageY - gap - tip.offsetHeight) + 'px';", "}",
    /* The browser's own tips come late and would stand over this one. */
    "for (const title of document.querySelectorAll('svg title')) {",
    "  const mark = title.parentNode, text = title.textContent;", "  title.remove();",
    "  mark.addEventListener('pointerenter', event => { tip.textContent = text; tip.hidden = false; place(event); });",
    "  mark.addEventListener('pointermove', place);",
    "  mark.addEventListener('pointerleave', () => { tip.hidden = true; });", "}",
    "const inOrder = new Intl.Collator('en', { numeric: true }).compare;",
    /* What is not a number stays behind, whichever way. */
    "function compare(a, b, column, sign) {",
    "  const x = a.cells[column], y = b.cells[column], s = Number(x.dataset.v), t = Number(y.dataset.v);",
    "  const hasX = x.dataset.v !== undefined && !isNaN(s), hasY = y.dataset.v !== undefined && !isNaN(t);",
    "  if (hasX && hasY) return sign * (s - t);", "  if (hasX || hasY) return hasX ? -1 : 1;",
    "  return sign * inOrder(x.textContent, y.textContent);", "}", "function sort(table, head) {",
    "  const up = head.getAttribute('aria-sort') !== 'ascending', body = table.tBodies[0];",
    "  const rows = Array.from(body.rows);",
    "  for (const other of head.parentNode.cells) other.removeAttribute('aria-sort');",
    "  head.setAttribute('aria-sort', up ? 'ascending' : 'descending');",
    "  rows.sort((a, b) => compare(a, b, head.cellIndex, up ? 1 : -1));", "  body.append(...rows);", "}",
    "for (const table of document.querySelectorAll('.sortable'))", "  for (const head of table.tHead.rows[0].cells) {",
    "    const button = document.createElement('button');", "    button.append(...head.childNodes);",
    "    head.append(button);", "    button.addEventListener('click', () => sort(table, head));", "  }",
    "function copy(code, button) {", "  const say = text => { button.textContent = text; };",
    "  const done = () => { say('copied'); setTimeout(say, 1500, 'copy'); };", "  const select = () => {",
    "    getSelection().selectAllChildren(code);", "    if (document.execCommand('copy')) done();", "  };",
    "  if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(done, select);",
    "  else select();", "}", "for (const code of document.querySelectorAll('.command')) {",
    "  const button = document.createElement('button');", "  button.className = 'copy';",
    "  button.textContent = 'copy';", "  button.addEventListener('click', () => copy(code, button));",
    "  code.after(button);", "}", NULL};

static void add_lines(const char *const *lines, cli_bytes *out) {
  for (; *lines != NULL; lines++) {
    cli_bytes_text(out, *lines);
    cli_bytes_text(out, "\n");
  }
}

static void add_theme(const report_theme *theme, cli_bytes *out) {
  cli_bytes_format(out,
                   ":root { --ground: %s; --text: %s; --muted: %s; --line: %s; --soft: %s; --accent: %s; --bad: %s;",
                   theme->ground, theme->text, theme->muted, theme->line, theme->soft, theme->accent, theme->bad);
  for (int i = 0; i < REPORT_COLOURS; i++)
    cli_bytes_format(out, " --c%d: %s;", i, theme->colour[i]);
  cli_bytes_text(out, " }\n");
}

void report_style_write(cli_bytes *out) {
  cli_bytes_text(out, ":root { color-scheme: light dark; }\n");
  add_theme(&report_themes[0], out);
  cli_bytes_text(out, "@media screen and (prefers-color-scheme: dark) {\n");
  add_theme(&report_themes[1], out);
  cli_bytes_text(out, "}\n");
  add_lines(style, out);
  for (int i = 0; i < REPORT_COLOURS; i++)
    cli_bytes_format(
        out, ".s%d, .b%d { fill: var(--c%d); } .swatch.b%d { background: var(--c%d); } .l%d { stroke: var(--c%d); }\n",
        i, i, i, i, i, i, i);
  cli_bytes_text(out, ".hollow { fill: var(--ground); stroke: var(--muted); stroke-width: 2; }\n");
  for (int i = 0; i < REPORT_COLOURS; i++)
    cli_bytes_format(out, ".hollow.s%d { stroke: var(--c%d); }\n", i, i);
}

void report_script_write(cli_bytes *out) {
  add_lines(script, out);
}
