/**
 * The address of a shared store: `--store`, or else LABORO_STORE. Both are the URL of a PostgreSQL database, or
 * `@FILE`, a file that contains it. The password may be in that file, in the environment (LABORO_STORE, PGPASSWORD) or
 * in ~/.pgpass. It must not be in an argument, because every user of the machine can see arguments.
 */
import { readFileSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { badInput, type LaboroError, whyUnreadable } from "../../base/errors.js";

const FORM = "postgres://USER@HOST:PORT/DATABASE, or @FILE that holds it";

/** Undefined for a store in the data directory. Throws LABORO_BAD_INPUT; the message never has the password. */
export function resolveStoreUrl(given: string | undefined, env: NodeJS.ProcessEnv = process.env): string | undefined {
  if (given !== undefined) {
    if (passwordIn(given)) {
      throw badStoreUrl(
        "--store",
        "has a password in an argument, where everyone can see it: use @FILE, LABORO_STORE, PGPASSWORD or ~/.pgpass",
      );
    }
    return addPassword(read(given, "--store"), "--store", env);
  }
  const { LABORO_STORE: named } = env;
  return named === undefined || named === ""
    ? undefined
    : addPassword(read(named, "LABORO_STORE"), "LABORO_STORE", env);
}

function read(text: string, source: string): string {
  if (!text.startsWith("@")) return text;
  const file = text.slice(1);
  try {
    return readFileSync(file, "utf8").trim();
  } catch (cause) {
    throw badStoreUrl(source, `names the file ${file}, which cannot be read: ${whyUnreadable(cause)}`);
  }
}

function addPassword(url: string, source: string, env: NodeJS.ProcessEnv): string {
  if (!/^postgres(ql)?:\/\//.test(url)) throw badStoreUrl(source, `is not the address of a database, expected ${FORM}`);
  // Node cannot parse a URL with several hosts. Then the password has to be in the URL or in PGPASSWORD.
  if (!URL.canParse(url)) return url;
  const parsed = new URL(url);
  if (parsed.password !== "") return url;
  const password = env.PGPASSWORD ?? passwordFromPgpass(parsed, env);
  if (password !== undefined) parsed.password = encodeURIComponent(password);
  return parsed.href;
}

const passwordIn = (text: string): boolean => /^[a-z]+:\/\/[^@/]*:[^@/]+@/i.test(text);

/** The first line of ~/.pgpass that matches. A line is host:port:database:user:password, where `*` matches anything. */
function passwordFromPgpass({ hostname, port, pathname, username }: URL, env: NodeJS.ProcessEnv): string | undefined {
  const file = env.PGPASSFILE ?? join(homedir(), ".pgpass");
  let text: string;
  try {
    // As libpq does: a password file that others can read is ignored.
    if ((statSync(file).mode & 0o077) !== 0) return undefined;
    text = readFileSync(file, "utf8");
  } catch {
    return undefined;
  }
  const user = decodeURIComponent(username);
  const wanted = [hostname, port || "5432", decodeURIComponent(pathname.slice(1)) || user, user];
  for (const line of text.split("\n")) {
    if (line.startsWith("#")) continue;
    const fields = line.split(/(?<!\\):/).map((field) => field.replaceAll(/\\(.)/g, "$1"));
    if (fields.length === 5 && wanted.every((one, i) => fields[i] === "*" || fields[i] === one)) return fields[4];
  }
  return undefined;
}

const badStoreUrl = (source: string, text: string): LaboroError => badInput(`${source} ${text}`);
