/** What a process has used so far, from /proc. */
import { readdirSync, readFileSync } from "node:fs";

/** CPU time of all threads of a process that still live, in microseconds. */
export function cpuMicros(pid) {
  let nanos = 0;
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    try {
      nanos += Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "utf8").split(" ")[0]);
    } catch (cause) {
      // The thread ended between the two reads.
      if (cause.code !== "ENOENT" && cause.code !== "ESRCH") throw cause;
    }
  }
  return nanos / 1_000;
}

/** Resident memory in bytes. */
export function residentBytes(pid) {
  const found = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"));
  return Number(found?.[1]) * 1_024;
}

/** Samples until it is stopped or the process has ended; gives the largest. */
export function watchResident(pid, everyMs = 50) {
  let largest = 0;
  const sample = () => {
    try {
      largest = Math.max(largest, residentBytes(pid) || 0);
    } catch (cause) {
      if (cause.code !== "ENOENT" && cause.code !== "ESRCH") throw cause;
      clearInterval(timer);
    }
  };
  const timer = setInterval(sample, everyMs);
  sample();
  return () => {
    clearInterval(timer);
    return largest;
  };
}

/** Runs `work` and says how long it took and what each process used for it. */
export async function metered(processes, work) {
  const before = Object.entries(processes).map(([name, { pid }]) => [name, pid, cpuMicros(pid)]);
  const begin = performance.now();
  await work();
  const seconds = (performance.now() - begin) / 1_000;
  const cpu = Object.fromEntries(before.map(([name, pid, micros]) => [name, cpuMicros(pid) - micros]));
  return { seconds, cpu };
}
