/** Tasks that do nothing, durable from end to end: what laboro itself costs. */
import { median } from "../lib/figures.mjs";
import { CALL, startInProcess, startLaboro } from "../lib/laboro.mjs";
import { metered } from "../lib/usage.mjs";

const SLOTS = 2;
const LINK = "laboro, link-level worker";
const SINGLE = "one task, idle broker";
const IN_PROCESS = "one task, one process";

export const noop = {
  name: "noop",
  title: "Durable tasks that do nothing",
  note: "Broker, worker and client are three processes; from submit to the end of the job, every claim and result on disk. The worker of `laboro` is one of the SDK, which calls a function for each task. The link-level worker reports each task as done when it arrives, and runs and keeps nothing: this is what queue, store and link cost, not a rate that a user can have. One task waits for two commits, each with one sync of the disk.",
  targets: [
    { who: LINK, figure: "tasks/s", least: 40_000 },
    { about: SINGLE, who: "laboro", figure: "ms", most: 1.5 },
    { about: IN_PROCESS, who: "laboro", figure: "ms", most: 1 },
  ],
  async contestants({ scale }) {
    const sdk = await stage("laboro", (laboro) => laboro.echoWorker(SLOTS), scale);
    const link = await stage(LINK, (laboro) => laboro.crowd(1, SLOTS), scale);
    const inProcess = { who: "laboro", laboro: await warm(await startInProcess(SLOTS), scale) };
    const sizes = [scale(20_000), scale(200_000)];
    return {
      list: [
        ...sizes.flatMap((count) => [batch(sdk, count), batch(link, count)]),
        single(SINGLE, sdk, scale(200)),
        single(IN_PROCESS, inProcess, scale(200)),
      ],
      stop: () => Promise.all([sdk, link, inProcess].map(({ laboro }) => laboro.stop())),
    };
  },
};

/** A warm broker with one worker. */
async function stage(who, addWorker, scale) {
  const laboro = await startLaboro();
  const worker = await addWorker(laboro);
  await warm(laboro, scale);
  return { who, laboro, processes: { broker: laboro.broker, worker } };
}

async function warm(laboro, scale) {
  await laboro.run({ recipe: CALL, count: scale(50_000) });
  for (let i = 0; i < scale(500); i++) await laboro.run({ recipe: CALL });
  return laboro;
}

const batch = ({ who, laboro, processes }, count) => ({
  about: `${count.toLocaleString("en")} tasks`,
  who,
  measure: async () => {
    let job;
    const { seconds, cpu } = await metered(processes, async () => {
      job = await laboro.run({ recipe: CALL, count });
    });
    await laboro.verify(job, count);
    return {
      "tasks/s": count / seconds,
      "broker CPU µs": cpu.broker / count,
      "worker CPU µs": cpu.worker / count,
    };
  },
});

const single = (about, { who, laboro }, times) => ({
  about,
  who,
  measure: async () => {
    const taken = [];
    for (let i = 0; i < times; i++) {
      const begin = performance.now();
      await laboro.run({ recipe: CALL });
      taken.push(performance.now() - begin);
    }
    return { ms: median(taken) };
  },
});
