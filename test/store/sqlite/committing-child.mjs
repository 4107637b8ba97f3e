// Commits batches until it is killed. Each is one claim, output and the results of its tasks; what is acknowledged is
// printed as `job first last`, synchronously, so that the line is out before anything else happens.
import { writeSync } from "node:fs";
import { openSqliteStore } from "../../../dist/store/sqlite/index.js";

const [dir, size] = [process.argv[2], Number(process.argv[3])];
const store = openSqliteStore({ dir });
const { epoch } = await store.open(Date.now());
let taskRanges = epoch * 1_000_000;

const request = {
  name: "child",
  recipe: { kind: "command", argv: ["true"] },
  requirement: { pool: "default", tags: [], needs: { slots: 1 } },
  count: 1_000_000,
  priority: 0,
  limits: { retries: 0, crashLimit: 5, outputCap: 1024 },
  after: [],
  held: false,
};
const submit = { op: "submit", job: request, lease: request.count, rangeId: ++taskRanges };
const [{ job, taskRange }] = await store.commit([submit], Date.now());

async function commitOne(first) {
  const last = first + size - 1;
  const claimed = ++taskRanges;
  const results = [];
  const chunks = [];
  for (let index = first; index <= last; index++) {
    const text = Buffer.from(`output of ${index}`);
    chunks.push({ job: job.id, index, attempt: 1, stream: "stdout", offset: 0, bytes: text });
    results.push({
      index,
      attempt: 1,
      state: "succeeded",
      worker: "w",
      code: 0,
      started: 1,
      ended: 2,
      outputBytes: text.length,
    });
  }
  await store.commit(
    [
      { op: "claim", from: taskRange.id, rangeId: claimed, first, last, attempt: 1, worker: "w" },
      { op: "output", chunks },
      { op: "settle", job: job.id, rangeId: claimed, results, empty: true },
    ],
    Date.now(),
  );
  writeSync(1, `${job.id} ${first} ${last}\n`);
}

// Two batches on their way at any time, so that a kill finds one being written.
let next = 0;
const lane = async () => {
  for (;;) {
    const first = next;
    next += size;
    await commitOne(first);
  }
};
await Promise.all([lane(), lane()]);
