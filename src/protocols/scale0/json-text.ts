/** JSON values that are given back as they were written: a number keeps all its digits. */

/** A value in its own JSON text. */
export class JsonText {
  constructor(readonly text: string) {}
}

export function stringifyObject(object: Readonly<Record<string, unknown>>): string {
  if (!Object.values(object).some((value) => value instanceof JsonText)) return JSON.stringify(object);
  const members = Object.entries(object)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => [JSON.stringify(name), value instanceof JsonText ? value.text : JSON.stringify(value)]);
  return `{${members.map((member) => member.join(":")).join(",")}}`;
}

const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/** A member of a JSON object that is text, a number, true, false or null. The object must be valid. */
export function memberText(json: string, name: string): JsonText | undefined {
  let depth = 0;
  let key: string | undefined;
  let before = "";
  let found: JsonText | undefined;
  for (const [token] of json.matchAll(TOKEN)) {
    if (token === "{" || token === "[") depth++;
    else if (token === "}" || token === "]") depth--;
    else if (depth === 1 && (before === "{" || before === ",")) key = String(JSON.parse(token));
    else if (depth === 1 && before === ":" && key === name) found = new JsonText(token);
    before = token;
  }
  return found;
}
