/** The picture in the README, made again by `npm run screenshot`: a broker in the middle of a day. */
import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Browser } from "playwright-core";
import { it } from "vitest";
import type { HistoryPoint } from "../../../src/broker/stats/history.js";
import { REPOSITORY } from "../../support/launched.js";
import { TRUE } from "../../support/recipes.js";
import { until } from "../../support/wait.js";
import { DashboardPage, PATIENCE_MS } from "../dashboard-page.js";
import { joins, profile, quick } from "../generated-workers.js";
import { Scene } from "../scene.js";

const WANTED = process.env.LABORO_SCREENSHOT;
const POINTS = 720;
const STEP_MS = 5_000;
const SLOTS = 24;

export function describeScreenshot(browser: () => Browser): void {
  it.runIf(WANTED !== undefined)("the README has a picture of a day (needs LABORO_SCREENSHOT)", async () => {
    const scene = await Scene.open();
    await inTheMiddleOfADay(scene);
    const dashboard = await DashboardPage.open(browser(), scene.broker, { width: 1360, height: 850 });
    await dashboard.sees("render frames");
    await dashboard.page.waitForTimeout(1_500);
    const path = join(REPOSITORY, WANTED ?? "");
    mkdirSync(dirname(path), { recursive: true });
    await dashboard.page.screenshot({ path });
    await dashboard.close();
    await scene.close();
  });
}

async function inTheMiddleOfADay(scene: Scene): Promise<void> {
  const { client, broker } = scene;
  const submit = (name: string, count: number, tag: string) =>
    client.submit({ name, recipe: TRUE, count, tags: [tag] });
  const crowd = async (tag: string, failEvery: number, until: number): Promise<void> => {
    for (const place of ["a", "b"]) {
      const name = `node-${tag}${place}`;
      const worker = profile(name, { pool: "default", tags: [tag], total: { slots: SLOTS } });
      await joins(scene, worker, quick(scene, name, { failEvery, until }));
    }
  };
  const jobs = [
    await submit("nightly regression", 3_200, "1"),
    await submit("render frames", 48_000, "2"),
    await submit("fit models, grid 7", 12_000, "3"),
    await client.submit({ name: "publish report", recipe: TRUE, held: true }),
    await client.submit({ name: "train on gpu", recipe: TRUE, count: 8, needs: { gpu: 1 } }),
  ];
  await crowd("1", 900, 2_750);
  await crowd("2", 1e9, 31_000);
  await crowd("3", 1e9, 1_900);
  const settled = async (): Promise<boolean> => {
    const counters = await Promise.all(jobs.slice(0, 3).map(async (job) => (await job.info()).counters));
    return counters.every(({ running }) => running === 2 * SLOTS);
  };
  await until("every slot is in use", settled, PATIENCE_MS);
  const points = broker.core.history.recent() as HistoryPoint[];
  points.splice(0, points.length, ...Array.from({ length: POINTS }, (_, at) => pointAt(at)));
}

/** Neither quite even nor quite random, and the same each time. */
const noise = (at: number): number => (Math.sin(at * 12.9898) * 43758.5453) % 1;

function pointAt(at: number): HistoryPoint {
  const wave = 0.62 + 0.22 * Math.sin(at / 70) + 0.08 * Math.sin(at / 17) + 0.04 * noise(at);
  const slots = at < 260 ? 96 : 144;
  const used = Math.min(slots, Math.round(slots * (wave + 0.25)));
  const rate = Math.round(used * 3.1 * (1 + 0.1 * noise(at + 7)));
  return {
    at: Date.now() - (POINTS - at) * STEP_MS,
    succeeded: rate,
    failed: at % 97 === 0 ? 9 : at % 31 === 0 ? 3 : 0,
    cancelled: 0,
    assigned: rate,
    requestsCompleted: Math.round(140 + 60 * Math.sin(at / 50) + 14 * noise(at + 3)),
    requestsFailed: 0,
    waitP50: 40 + 60 * wave,
    waitP95: 180 + 320 * wave + 40 * noise(at),
    oldestWait: 500 + 900 * wave,
    latencyP50: 2,
    latencyP95: 9,
    slots,
    slotsUsed: used,
    tasksWaiting: 0,
    tasksRunning: used,
    workers: slots / SLOTS,
  };
}
