/** JSON values that are given back as they were written: a number keeps all its digits. */

/** A value in its own JSON text. */
export class JsonText {
  constructor(readonly text: string) {}

  toString(): string {
    return this.text;
  }

  /** For people, in traces. Messages are written by `stringifyObject`. */
  toJSON(): string {
    return this.text;
  }
}

export function stringifyObject(object: Readonly<Record<string, unknown>>): string {
  if (!Object.values(object).some((value) => value instanceof JsonText)) return JSON.stringify(object);
  const members = Object.entries(object)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => [JSON.stringify(name), value instanceof JsonText ? value.text : JSON.stringify(value)]);
  return `{${members.map((member) => member.join(":")).join(",")}}`;
}

const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/** A member of a JSON object, as it is written there. The object must be valid. */
export function memberText(json: string, name: string): JsonText | undefined {
  let depth = 0;
  let key: string | undefined;
  let before = "";
  let start: number | undefined;
  let found: JsonText | undefined;
  for (const { 0: token, index } of json.matchAll(TOKEN)) {
    if (depth === 1 && before === ":") start = index;
    if (token === "{" || token === "[") depth++;
    else if (token === "}" || token === "]") depth--;
    else if (depth === 1 && (before === "{" || before === ",")) key = String(JSON.parse(token));
    if (depth === 1 && start !== undefined) {
      if (key === name) found = new JsonText(json.slice(start, index + token.length));
      start = undefined;
    }
    before = token;
  }
  return found;
}
