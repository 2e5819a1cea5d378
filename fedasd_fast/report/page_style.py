"""Style sheet of the report page: system fonts, light and dark, one column on a phone."""

from __future__ import annotations

PAGE_CSS = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1f2328; --muted: #59636e; --grid: #e4e4e4;
        --line: #d1d9e0; --soft: #f6f8fa; --link: #0550ae; --warn: #9a3b00; --shadow: #0003; --dot: #08519c; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #15181d; --ink: #e6e8eb; --muted: #a3abb5; --grid: #343a42;
          --line: #3a414a; --soft: #1d2127; --link: #79b8ff; --warn: #ffb17a; --shadow: #fff4; --dot: #79b8ff; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main, header, footer { max-width: 66rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 1.5rem; }
footer { padding-bottom: 2rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .25rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
h1, h2, h3, p, li, dd, summary, figcaption { overflow-wrap: anywhere; }
p { margin: .5rem 0; max-width: 46rem; }
a { color: var(--link); }
.muted, figcaption, caption { color: var(--muted); font-size: .9rem; }
.badge { border: 1px solid var(--warn); border-radius: .6rem; color: var(--warn); font-size: .85rem;
         padding: 0 .5rem; white-space: nowrap; }
.note { border-left: .25rem solid var(--warn); background: var(--soft); padding: .5rem 1rem; margin: 1rem 0; }
.note p, .note ul { margin: .25rem 0; }
ul { padding-left: 1.25rem; }
/* A shadow at the edge where there is more to scroll to; the first two layers move along and hide it at the ends. */
.scroll { overflow-x: auto; max-width: 100%; width: fit-content; margin: .75rem 0;
  background: linear-gradient(to right, var(--paper) 40%, transparent) left / 2.5rem 100% no-repeat local,
    linear-gradient(to left, var(--paper) 40%, transparent) right / 2.5rem 100% no-repeat local,
    linear-gradient(to right, var(--shadow), transparent) left / .8rem 100% no-repeat scroll,
    linear-gradient(to left, var(--shadow), transparent) right / .8rem 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .35rem; caption-side: top;
  position: sticky; left: 0; max-width: calc(100vw - 2rem); }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child { text-align: left; }
thead th { color: var(--muted); font-weight: 600; }
tbody th { font-weight: 600; }
.figures { display: grid; gap: 1.5rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 1rem 0; max-width: 46rem; min-width: 0; }
figure.wide { max-width: 100%; grid-column: 1 / -1; }
figcaption { margin-top: .35rem; max-width: 46rem; }
.plot { overflow-x: auto; }
.plot svg { display: block; width: 100%; height: auto; fill: currentColor; }
.plot svg * { stroke-linejoin: round; stroke-linecap: butt; }
.wide .plot svg { min-width: 38rem; }
.card { background: #ffffff; color: #000000; border-radius: .4rem; padding: .25rem; }
/* Light and dark change places in heat maps and their colour bars, hues stay: white becomes the page's background. */
@media (prefers-color-scheme: dark) {
  .card { background: #161616; }
  .card svg { filter: invert(.915) hue-rotate(180deg); }
}
details { border: 1px solid var(--line); border-radius: .4rem; margin: .5rem 0; padding: 0 .8rem; }
summary { cursor: pointer; padding: .5rem 0; }
pre { background: var(--soft); padding: .6rem .8rem; overflow-x: auto; font-size: .85rem; line-height: 1.4; }
code { font-family: ui-monospace, monospace; }
pre.command { white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 40rem) { h1 { font-size: 1.4rem; } th, td { padding: .3rem .5rem; } }
@media print { details { border: 0; } .figures { display: block; } figure { break-inside: avoid; } }
"""
