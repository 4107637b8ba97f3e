/**
 * A task's output as raw bytes: the stored pieces one after the other, without offsets. A Range header counts these bytes. The output is
 * measured first and then sent piece by piece, so it need not fit into memory.
 */
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Fields } from "../../model/input.js";
import type { Core } from "../core.js";
import { authorizeAndRead } from "../operations/index.js";
import type { OperationContext } from "../operations/operation.js";
import { output } from "../operations/output.js";

export async function sendRawOutput(
  core: Core,
  request: FastifyRequest,
  reply: FastifyReply,
  input: Fields,
  context: OperationContext,
): Promise<FastifyReply> {
  const given = authorizeAndRead(output, { ...input, limit: undefined, waitMs: undefined }, context.role);
  const first = await output.perform(core, { ...given, limit: 1 }, context);
  const attempt = given.attempt ?? first.attempt;
  const query = { ...given, ...(attempt === undefined ? {} : { attempt }) };
  let total = 0;
  for await (const bytes of piecesOf(core, query, context)) total += bytes.length;
  const range = parseRange(request.headers.range, total);
  reply.type("application/octet-stream").header("accept-ranges", "bytes");
  if (attempt !== undefined) reply.header("laboro-attempt", String(attempt));
  if (range === "outside") {
    const error = { code: "LABORO_BAD_INPUT", message: `range: there are ${total} bytes` };
    return reply
      .code(416)
      .header("content-range", `bytes */${total}`)
      .type("application/json")
      .send(JSON.stringify({ error }));
  }
  const { first: from, last } = range ?? { first: 0, last: total - 1 };
  if (range !== undefined) reply.code(206).header("content-range", `bytes ${from}-${last}/${total}`);
  reply.header("content-length", String(last - from + 1));
  if (last < from) return reply.send("");
  return reply.send(cut(piecesOf(core, query, context), { first: from, last }));
}

type OutputQuery = Parameters<typeof output.perform>[1];

async function* piecesOf(core: Core, query: OutputQuery, context: OperationContext): AsyncGenerator<Uint8Array> {
  let from: number | undefined = query.from;
  while (from !== undefined && !context.signal.aborted) {
    const page: Awaited<ReturnType<typeof output.perform>> = await output.perform(core, { ...query, from }, context);
    for (const { bytes } of page.pieces) yield bytes;
    from = page.next;
  }
}

function cut(pieces: AsyncGenerator<Uint8Array>, { first, last }: ByteRange): ReadableStream<Uint8Array> {
  let at = 0;
  return new ReadableStream<Uint8Array>({
    pull: async (controller) => {
      for (;;) {
        const { value, done } = at > last ? { value: undefined, done: true } : await pieces.next();
        if (done === true || value === undefined) {
          controller.close();
          return;
        }
        const start = Math.max(0, first - at);
        const end = Math.min(value.length, last + 1 - at);
        at += value.length;
        if (end <= start) continue;
        controller.enqueue(value.subarray(start, end));
        return;
      }
    },
    cancel: () => void pieces.return(undefined),
  });
}

/** The header `Range: bytes=…`, as far as one range goes. */
interface ByteRange {
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
