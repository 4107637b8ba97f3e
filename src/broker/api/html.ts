/** HTML templates that escape every value except markup made here. */
import { createHash } from "node:crypto";

export class Markup {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

type Content = string | number | Markup | readonly Markup[];

export function html(parts: TemplateStringsArray, ...values: readonly Content[]): Markup {
  return new Markup(parts.reduce((text, part, i) => text + render(values[i - 1] ?? "") + part));
}

function render(value: Content): string {
  if (value instanceof Markup) return value.text;
  return typeof value === "object" ? value.map(({ text }) => text).join("") : escaped(String(value));
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

const escaped = (text: string): string => text.replace(/[&<>"']/g, (one) => ENTITIES[one] ?? one);

const STYLE = new Markup(
  ":root{color-scheme:light dark}body{font:15px/1.6 system-ui,sans-serif;margin:3rem auto;max-width:72rem;padding:0 1.25rem}" +
    "h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}" +
    "th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid #8885}th{font-weight:600}" +
    "pre{border:1px solid #8885;border-radius:6px;padding:.7rem 1rem;font-size:1.05rem}",
);

/** The hash of the style sheet for the content security policy: no other style is applied. */
export const STYLE_HASH = `sha256-${createHash("sha256").update(STYLE.text).digest("base64")}`;

export function page(title: string, content: Markup): Markup {
  return html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1"><title>${title}</title>
<style>${STYLE}</style></head><body><h1>${title}</h1>
${content}
</body></html>
`;
}

export function table(heads: readonly string[], rows: readonly (readonly (string | number)[])[]): Markup {
  if (rows.length === 0) return html`<p>None.</p>`;
  return html`<table><tr>${heads.map((head) => html`<th>${head}</th>`)}</tr>
${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${cell}</td>`)}</tr>\n`)}</table>`;
}
