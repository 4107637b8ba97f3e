/** HTML in which whatever is put in is text, unless it is HTML made here. */
export class Markup {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

type Content = string | number | Markup | readonly Markup[];

export function html(parts: TemplateStringsArray, ...values: readonly Content[]): Markup {
  return new Markup(parts.reduce((text, part, i) => text + shown(values[i - 1] ?? "") + part));
}

function shown(value: Content): string {
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
  "body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem}table{border-collapse:collapse;width:100%}" +
    "th,td{text-align:left;padding:.2rem .6rem;border-bottom:1px solid #ccc}pre{background:#eee;padding:.6rem}",
);

export function page(title: string, content: Markup): Markup {
  return html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>${title}</title>
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
