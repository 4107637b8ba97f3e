/** Tasks that do nothing, durable from end to end: what laboro itself costs. */
import { median } from "../lib/figures.mjs";
import { startLaboro } from "../lib/laboro.mjs";
import { metered } from "../lib/usage.mjs";

const RECIPE = { kind: "noop" };
const SINGLE = "one task, idle broker";

export const noop = {
  name: "noop",
  title: "Durable no-op tasks",
  note: "Broker, worker and client are three processes; from submit to the end of the job, every claim and result on disk. The worker runs nothing for a no-op and takes no slot for it: this is what queue, store and link cost.",
  targets: [
    { figure: "tasks/s", least: 40_000 },
    { about: SINGLE, figure: "ms", most: 2 },
  ],
  async contestants({ scale }) {
    const laboro = await startLaboro();
    const worker = await laboro.worker(2);
    const processes = { broker: laboro.broker, worker };
    await laboro.run({ recipe: RECIPE, count: scale(50_000) });
    for (let i = 0; i < scale(500); i++) await laboro.run({ recipe: RECIPE });
    const batch = (count) => ({
      about: `${count.toLocaleString("en")} tasks`,
      who: "laboro",
      measure: async () => {
        let job;
        const { seconds, cpu } = await metered(processes, async () => {
          job = await laboro.run({ recipe: RECIPE, count });
        });
        await laboro.verify(job, count);
        return {
          "tasks/s": count / seconds,
          "broker CPU µs": cpu.broker / count,
          "worker CPU µs": cpu.worker / count,
        };
      },
    });
    const single = {
      about: SINGLE,
      who: "laboro",
      measure: async () => {
        const times = [];
        for (let i = 0; i < scale(200); i++) {
          const begin = performance.now();
          await laboro.run({ recipe: RECIPE });
          times.push(performance.now() - begin);
        }
        return { ms: median(times) };
      },
    };
    return { list: [batch(scale(20_000)), batch(scale(200_000)), single], stop: () => laboro.stop() };
  },
};
