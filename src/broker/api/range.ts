/** The header `Range: bytes=…`, as far as one range goes. */
export interface ByteRange {
  readonly first: number;
  readonly last: number;
}

/** Undefined if the whole is to be sent: without the header, or with one that is not understood. */
export function parseRange(header: string | undefined, total: number): ByteRange | "outside" | undefined {
  const found = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header ?? "");
  if (found === null) return undefined;
  const [, from = "", to = ""] = found;
  if (from === "" && to === "") return undefined;
  if (from === "") {
    const length = Math.min(Number(to), total);
    return length === 0 ? "outside" : { first: total - length, last: total - 1 };
  }
  const first = Number(from);
  const last = to === "" ? total - 1 : Math.min(Number(to), total - 1);
  if (to !== "" && Number(to) < first) return undefined;
  return first >= total ? "outside" : { first, last };
}
