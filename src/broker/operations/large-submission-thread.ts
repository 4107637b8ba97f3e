/** The thread that reads one large submission and answers with the job and its entries in the form of the store. */
import { parentPort, workerData } from "node:worker_threads";
import { Unpackr } from "msgpackr";
import { asLaboroError, badInput } from "../../base/errors.js";
import { readSubmission } from "../../model/job-input.js";
import { chunkEntries } from "../../store/rows.js";
import type { ReadSubmission, SubmissionBytes } from "./large-submission.js";

const { bytes, format } = workerData as SubmissionBytes;

function unpack(): unknown {
  if (format === "msgpack") return new Unpackr({ useRecords: false, int64AsType: "number" }).unpack(bytes);
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    throw badInput("body: expected JSON");
  }
}

function read(): ReadSubmission {
  try {
    const { spec, entries } = readSubmission(unpack());
    return entries === undefined ? { spec } : { spec, entries: { chunks: chunkEntries(entries) } };
  } catch (cause) {
    const { code, message } = asLaboroError(cause);
    return { error: { code, message } };
  }
}

const answer = read();
const chunks = ("entries" in answer && answer.entries?.chunks) || [];
parentPort?.postMessage(
  answer,
  chunks.map((chunk) => chunk.bytes.buffer as ArrayBuffer),
);
