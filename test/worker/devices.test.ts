import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type AcquiredSlot, Capacity, Devices, devicesOf } from "../../src/worker/capacity.js";
import { openTestBroker } from "../support/test-broker.js";

const gpusOf = (place: AcquiredSlot): string[] => place.env.LABORO_RESOURCE_GPU?.split(",") ?? [];

describe("devices", () => {
  it("are never handed out beyond what there is, and all are free in the end", () => {
    const need = fc.constantFrom(0, 0.1, 0.25, 0.3, 1 / 3, 0.5, 1, 1.5, 2, 3);
    const step = fc.record({ need, end: fc.nat({ max: 5 }), take: fc.boolean() });
    fc.assert(
      fc.property(fc.constantFrom(1, 2, 2.5, 4), fc.array(step, { maxLength: 60 }), (total, steps) => {
        const room = new Capacity({ slots: 100, gpu: total });
        const open: { place: AcquiredSlot; need: number }[] = [];
        const check = (): void => {
          const used = new Map<string, number>();
          for (const { place, need } of open) {
            const names = gpusOf(place);
            expect(names.length).toBe(Math.ceil(need));
            expect(new Set(names).size).toBe(names.length);
            const rest = need - Math.floor(need);
            // Which of several is the one that is shared does not show; a lone one is known.
            if (need < 1) for (const name of names) used.set(name, (used.get(name) ?? 0) + need);
            else if (rest === 0) for (const name of names) used.set(name, (used.get(name) ?? 0) + 1);
          }
          for (const amount of used.values()) expect(amount).toBeLessThan(1.00001);
          expect(open.reduce((sum, { need }) => sum + need, 0)).toBeLessThan(total + 0.0001);
        };
        for (const { need, end, take } of steps) {
          const needs = { slots: 1, gpu: need };
          if (take && room.fits(needs)) open.push({ place: room.acquire(needs), need });
          else {
            const [ended] = open.splice(end, 1);
            if (ended !== undefined) room.release(ended.place);
          }
          check();
        }
        for (const { place } of open) room.release(place);
        expect(room.fits({ slots: 1, gpu: total })).toBe(true);
      }),
    );
  });

  it("ten tenths are one", () => {
    const room = new Capacity({ slots: 11, gpu: 1 });
    const needs = { slots: 1, gpu: 0.1 };
    for (let i = 0; i < 10; i++) expect([room.fits(needs), gpusOf(room.acquire(needs))]).toEqual([true, ["0"]]);
    expect(room.fits(needs)).toBe(false);
  });

  it("shares go together, so that whole devices stay whole", () => {
    const devices = new Devices(2);
    const half = devices.find(0.5) ?? new Map();
    devices.acquire(half);
    const other = devices.find(0.5) ?? new Map();
    devices.acquire(other);
    expect([devices.nameList(half), devices.nameList(other)]).toEqual(["0", "0"]);
    expect(devices.nameList(devices.find(1) ?? new Map())).toBe("1");
    expect(devices.find(2)).toBeUndefined();
  });

  it("are those that the worker was given itself", () => {
    const gpus = devicesOf({ slots: 1, gpu: 2 }, { CUDA_VISIBLE_DEVICES: "4, 5" }).get("gpu");
    expect(gpus?.names).toEqual(["4", "5"]);
    expect(() => devicesOf({ slots: 1, gpu: 2 }, { CUDA_VISIBLE_DEVICES: "4" })).toThrow(/lets this worker see only 1/);
    expect(devicesOf({ slots: 1, megabytes: 64_000 }, {}).size).toBe(0);
  });

  it("are told to the task, and those of others are hidden from it", async () => {
    const { client, worker } = await openTestBroker();
    worker({ slots: 4, resources: { gpu: 2, "fpga-card": 1 } });
    // Long enough that both run at one time.
    const line = 'echo "$CUDA_VISIBLE_DEVICES $LABORO_RESOURCE_GPU $LABORO_RESOURCE_FPGA_CARD"';
    const both = await client.submit({
      recipe: { kind: "command", shell: true, argv: [`${line}; sleep 0.3`] },
      needs: { gpu: 1 },
      count: 2,
    });
    expect(await both.wait()).toBe("succeeded");
    expect([await both.text(0), await both.text(1)].sort()).toEqual(["0 0 \n", "1 1 \n"]);
    const command = { kind: "command", shell: true, argv: [line] } as const;
    const card = await client.submit({ recipe: command, needs: { "fpga-card": 1 } });
    await card.wait();
    expect(await card.text(0)).toBe("  0\n");
  });
});
