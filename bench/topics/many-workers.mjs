/** What a task costs the broker when more workers are connected. */
import { CALL, startLaboro } from "../lib/laboro.mjs";
import { metered } from "../lib/usage.mjs";

const NUMBERS = [10, 100, 1_000];
const CASES = [
  { how: "all tasks at once", count: 100_000, limits: {} },
  // The same number of messages a task whatever the number of workers: what is left is what a pick costs.
  { how: "ten out at a time", count: 5_000, limits: { maxRunning: 10 } },
];
const about = (workers, how) => `${workers.toLocaleString("en")} workers, ${how}`;

export const manyWorkers = {
  name: "many-workers",
  title: "Tasks that do nothing by number of connected workers",
  note: "The workers are link-level: links of one slot each, held by one process that reports each task as done when it arrives.",
  targets: CASES.flatMap(({ how }) =>
    NUMBERS.slice(1).map((workers) => ({
      about: about(workers, how),
      figure: "broker CPU µs",
      beside: about(NUMBERS[0], how),
      most: 1.2,
    })),
  ),
  async contestants({ scale }) {
    const stages = [];
    for (const workers of NUMBERS) {
      const laboro = await startLaboro();
      const crowd = await laboro.crowd(workers);
      stages.push({ laboro, crowd, workers });
      await laboro.run({ recipe: CALL, count: scale(20_000) });
    }
    const list = CASES.flatMap(({ how, count: full, limits }) =>
      stages.map(({ laboro, crowd, workers }) => ({
        about: about(workers, how),
        who: "laboro",
        measure: async () => {
          const count = scale(full);
          const { seconds, cpu } = await metered({ broker: laboro.broker, crowd }, () =>
            laboro.run({ recipe: CALL, count, ...limits }),
          );
          return { "tasks/s": count / seconds, "broker CPU µs": cpu.broker / count, "crowd CPU µs": cpu.crowd / count };
        },
      })),
    );
    return { list, stop: () => Promise.all(stages.map(({ laboro }) => laboro.stop())) };
  },
};
