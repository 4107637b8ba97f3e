import { JobId } from "../../../src/model/ids.js";
import type { OutputStream } from "../../../src/model/outcome.js";
import type { OutputChunk } from "../../../src/model/store.js";
import type { OutputPiece } from "../../../src/model/store-reads.js";
import type { AttemptOutput, OutputSegments } from "../../../src/store/output/output-segments.js";
import type { OutputGap } from "../../../src/store/output/read.js";

export const JOB = JobId(7);

export function chunk(
  index: number,
  offset: number,
  text: string,
  stream: OutputStream = "stdout",
  attempt = 1,
): OutputChunk {
  return { job: JOB, index, attempt, stream, offset, bytes: Buffer.from(text) };
}

/** All pages of an attempt's output. */
export function readAll(
  output: OutputSegments,
  of: AttemptOutput,
  limit = 1 << 20,
  stream?: OutputStream,
): { text: string; pieces: OutputPiece[]; gaps: OutputGap[] } {
  const pieces: OutputPiece[] = [];
  const gaps: OutputGap[] = [];
  let from: number | undefined = 0;
  while (from !== undefined) {
    const page = output.read(of, { from, limit, ...(stream !== undefined && { stream }) });
    pieces.push(...page.pieces);
    gaps.push(...page.gaps);
    from = page.next;
  }
  return { text: Buffer.concat(pieces.map(({ bytes }) => bytes)).toString(), pieces, gaps };
}
