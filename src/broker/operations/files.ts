/** Files that are sent with jobs and returned by tasks, a part at a time. */
import { MAX_TASKS } from "../../model/job-input.js";
import { FILE_CHUNK } from "../../model/outcome.js";
import * as s from "../../model/schema.js";
import { MAX_FILES } from "../../model/task-files.js";
import { operation } from "./operation.js";
import { index, job, requireOpenJob } from "./shared-fields.js";
import { requireTask, resultOf } from "./task.js";

const from = s.withDefault(s.count("from this offset on"), 0);

const part = s.mapped(s.bytes(), (given, what) => {
  s.integer(0, FILE_CHUNK).read(given.length, `the length of ${what}`);
  return given;
});

export const sendFile = operation({
  name: "sendFile",
  role: "client",
  method: "POST",
  path: "/jobs/{job}/files/{file}",
  summary: "Send a part of a file that goes with the job; without bytes, ask how much of it is stored",
  input: s.object({
    job,
    file: s.integer(0, MAX_FILES - 1, "its place in recipe.files.sent"),
    from,
    bytes: s.optional(s.described(part, `at most ${FILE_CHUNK} bytes`)),
  }),
  bodyLimit: 2 * FILE_CHUNK,
  output: s.object({ stored: s.count("how much of the file is stored: the next part begins there") }),
  perform: async (core, { job: id, file, from: at, bytes = new Uint8Array(0) }) => ({
    stored: await core.files.writeSent(await requireOpenJob(core, id), file, at, bytes),
  }),
});

export const returnedFiles = operation({
  name: "returnedFiles",
  role: "client",
  method: "GET",
  path: "/jobs/{job}/tasks/{index}/files",
  summary: "Files that a task has returned, as one stream of records",
  input: s.object({
    job,
    index,
    attempt: s.optional(s.integer(1, MAX_TASKS, "that of the result if absent")),
    from,
  }),
  output: s.object({
    bytes: s.bytes(),
    next: s.optional(s.count("where the next part begins; absent on the last")),
  }),
  perform: async (core, given) => {
    await requireTask(core, given);
    const attempt = given.attempt ?? (await resultOf(core, given))?.attempt;
    if (attempt === undefined) return { bytes: new Uint8Array(0) };
    return core.files.readReturned(given.job, given.index, attempt, given.from);
  },
});
