/** Addresses of the dashboard: page, selected item, filters. Every view has an address that can be shared. */

export const ROOT = "/ui";

export interface Route {
  /** The parts of the path below the root; none for the overview. */
  readonly path: readonly string[];
  readonly query: URLSearchParams;
}

export function parseRoute(location: Pick<Location, "pathname" | "search">): Route {
  const below = location.pathname.startsWith(`${ROOT}/`) ? location.pathname.slice(ROOT.length) : "/";
  const path = below
    .split("/")
    .filter((part) => part !== "")
    .map((part) => decoded(part));
  return { path, query: new URLSearchParams(location.search) };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

type Query = Readonly<Record<string, string | number | undefined>>;

export function address(path: readonly (string | number)[], query: Query = {}): string {
  const below = path.map((part) => `/${encodeURIComponent(part)}`).join("");
  const given = Object.entries(query).flatMap(([name, value]) =>
    value === undefined || value === "" ? [] : [[name, String(value)]],
  );
  const text = new URLSearchParams(given).toString();
  return `${ROOT}${below === "" ? "/" : below}${text === "" ? "" : `?${text}`}`;
}

/** The same page with some of its query changed. */
export function withQuery({ path, query }: Route, changes: Query): string {
  return address(path, { ...Object.fromEntries(query), ...changes });
}

/** A whole number in a query or a path; undefined for anything else. */
export function numberIn(text: string | null | undefined): number | undefined {
  return text !== null && text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}
