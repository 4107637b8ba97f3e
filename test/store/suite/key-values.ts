import { expect, it } from "vitest";
import { Broker, type MakeStore, NOW } from "./kit.js";

export function describeKept(make: MakeStore): void {
  it("keeps texts by area and key, with a version that rises, over an end", async () => {
    const harness = await make();
    try {
      let broker = await Broker.at(harness.handle());
      const keep = (key: string, value: string | null, version?: number) =>
        broker.write({ op: "put", bucket: "hats", key, value, ...(version === undefined ? {} : { version }) });
      expect(await keep("b", "one")).toEqual({ op: "put", stored: true, version: 1 });
      expect(await keep("b", "two")).toEqual({ op: "put", stored: true, version: 2 });
      expect(await keep("B", "größer 'quoted' \n")).toEqual({ op: "put", stored: true, version: 1 });
      expect(await broker.write({ op: "put", bucket: "caps", key: "b", value: "" })).toMatchObject({ version: 1 });
      await broker.store.close();
      broker = await Broker.at(harness.handle());
      expect(await broker.store.keyValues("hats")).toEqual([
        { key: "B", value: "größer 'quoted' \n", version: 1, updatedAt: NOW },
        { key: "b", value: "two", version: 2, updatedAt: NOW },
      ]);
      expect(await broker.store.keyValues("caps")).toMatchObject([{ key: "b", value: "" }]);
      expect(await broker.store.keyValues("none")).toEqual([]);
      await broker.store.close();
    } finally {
      await harness.dispose();
    }
  });

  it("changes nothing where another version is expected", async () => {
    const harness = await make();
    try {
      const broker = await Broker.at(harness.handle());
      const keep = (value: string | null, version: number) =>
        broker.write({ op: "put", bucket: "a", key: "k", value, version });
      expect(await keep("x", 3)).toEqual({ op: "put", stored: false, version: 0 });
      expect(await keep("x", 0)).toEqual({ op: "put", stored: true, version: 1 });
      expect(await keep("y", 0)).toEqual({ op: "put", stored: false, version: 1 });
      expect(await keep(null, 2)).toEqual({ op: "put", stored: false, version: 1 });
      expect(await broker.store.keyValues("a")).toMatchObject([{ value: "x", version: 1 }]);
      expect(await keep(null, 1)).toEqual({ op: "put", stored: true, version: 0 });
      expect(await broker.store.keyValues("a")).toEqual([]);
      await broker.store.close();
    } finally {
      await harness.dispose();
    }
  });
}
