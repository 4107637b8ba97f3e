/**
 * Collects garbage after a test file that made much of it. A process that starts another one pays for its own memory, 25 µs per MB, and
 * the files that share this process start thousands.
 */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterAll } from "vitest";

const MUCH = 150e6;

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

afterAll(() => {
  if (process.memoryUsage().heapUsed > MUCH) collect();
});
