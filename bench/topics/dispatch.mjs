/** Decisions of dispatch in virtual time: what does a pick cost as workers grow in number? */
import { VirtualCluster } from "../lib/virtual.mjs";

const SIGNATURES = 200;
const TASKS = 200_000;
const LONG_TASKS = 10_000_000;
const SIZES = [100, 1_000, 10_000];
/** Reported; there is no target. */
const LARGEST = 100_000;
const about = (workers) => `${workers.toLocaleString("en")} workers`;

export const dispatch = {
  name: "dispatch",
  title: "Decisions of dispatch, in virtual time",
  note: "Dispatch alone, no store, no link, no real time: tasks of 1 to 100 s, 200 signatures, 400 open jobs of five priorities, 1 % failures, and for every 50 ends one worker that leaves or dies and one that joins. CPU of the simulation is included. 200,000 tasks end; with `--long` ten million, and there are 100,000 workers, too. A worker's memory includes its running tasks.",
  targets: [1_000, 10_000].map((workers) => ({
    about: about(workers),
    figure: "CPU µs a task",
    beside: about(100),
    most: 2,
  })),
  async contestants({ scale, long }) {
    const measure = (workers) => async () => {
      const before = heapUsed();
      const cluster = new VirtualCluster(workers, SIGNATURES);
      // Until every worker is busy, and tasks end at an even rate.
      cluster.run(5 * workers);
      const { user, system } = process.cpuUsage();
      const tasks = scale(long ? LONG_TASKS : TASKS);
      cluster.run(tasks);
      const used = process.cpuUsage({ user, system });
      const bytes = heapUsed() - before;
      return { "CPU µs a task": (used.user + used.system) / tasks, "kB a worker": bytes / workers / 1_024 };
    };
    const waiting = async () => {
      const before = heapUsed();
      const cluster = new VirtualCluster(0, SIGNATURES);
      return { "bytes a waiting task": (heapUsed() - before) / cluster.waiting };
    };
    const sizes = long ? [...SIZES, LARGEST] : SIZES;
    return {
      list: [
        { about: "no workers", who: "laboro", measure: waiting },
        ...sizes.map((workers) => ({ about: about(workers), who: "laboro", measure: measure(workers) })),
      ],
      stop: async () => undefined,
    };
  },
};

/** After a collection, where the process was started with --expose-gc. */
function heapUsed() {
  globalThis.gc?.();
  return process.memoryUsage().heapUsed;
}
