/** What a task costs the broker when more workers are connected. */
import { CALL, startLaboro } from "../lib/laboro.mjs";
import { metered, residentBytes } from "../lib/usage.mjs";

const NUMBERS = [10, 100, 1_000];
const CASES = [
  { how: "all tasks at once", count: 100_000, limits: {} },
  // The same number of workers at work whatever the number of workers: what is left is what a pick costs.
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
      most: 1.3,
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

const CONNECTED = 10_000;
/** As the broker has it by default. */
const HEARTBEAT_MS = 2_000;
const BEATS = 5;

export const connectedWorkers = {
  name: "connected-workers",
  title: "Ten thousand connected workers",
  note: "Link-level workers of one slot, held by one process, which has its share in the time to join. Memory is the growth of the broker's resident memory. Heartbeats are counted over five intervals without work.",
  targets: [{ figure: "kB each", most: 60 }],
  async contestants({ scale }) {
    const workers = scale(CONNECTED);
    const measure = async () => {
      const laboro = await startLaboro();
      try {
        // A first crowd pays for what every broker loads once.
        const first = await laboro.crowd(100);
        await first.stop();
        const before = residentBytes(laboro.broker.pid);
        const joining = await metered({ broker: laboro.broker }, () => laboro.crowd(workers));
        const bytes = residentBytes(laboro.broker.pid) - before;
        const idle = await metered({ broker: laboro.broker }, () => pause(BEATS * HEARTBEAT_MS));
        const count = scale(100_000);
        const storm = await metered({ broker: laboro.broker }, () => laboro.run({ recipe: CALL, count }));
        const few = scale(2_000);
        const one = await metered({ broker: laboro.broker }, () =>
          laboro.run({ recipe: CALL, count: few, maxRunning: 10 }),
        );
        return {
          "s to join": joining.seconds,
          "broker CPU µs a join": joining.cpu.broker / workers,
          "kB each": bytes / 1_000 / workers,
          "broker CPU µs a heartbeat": idle.cpu.broker / workers / BEATS,
          "broker CPU µs a task, all at once": storm.cpu.broker / count,
          "broker CPU µs a task, ten out at a time": one.cpu.broker / few,
        };
      } finally {
        await laboro.stop();
      }
    };
    return {
      list: [{ about: `${workers.toLocaleString("en")} workers`, who: "laboro", measure }],
      stop: async () => {},
    };
  },
};

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
