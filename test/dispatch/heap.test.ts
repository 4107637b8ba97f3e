import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Fifo, IndexedHeap } from "../../src/dispatch/queues.js";

interface Item {
  key: number;
}

const operation = fc.record({
  kind: fc.constantFrom("add" as const, "change" as const, "remove" as const, "pop" as const),
  which: fc.nat(30),
  key: fc.nat(20),
});

describe("the indexed heap", () => {
  it("has the first on top and the second as runner-up, whatever is added, moved and removed", () => {
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 120 }), (operations) => {
        const heap = new IndexedHeap<Item>((a, b) => a.key < b.key);
        let plain: Item[] = [];
        for (const { kind, which, key } of operations) {
          const item = plain[which % Math.max(1, plain.length)];
          if (kind === "add" || item === undefined) {
            const added = { key };
            plain.push(added);
            heap.upsert(added);
          } else if (kind === "change") {
            item.key = key;
            heap.upsert(item);
          } else {
            const gone = kind === "pop" ? heap.pop() : item;
            if (kind === "remove") expect(heap.remove(item)).toBe(true);
            else expect(gone?.key).toBe(Math.min(...plain.map((one) => one.key)));
            plain = plain.filter((one) => one !== gone);
          }
          const sorted = plain.map((one) => one.key).sort((a, b) => a - b);
          expect(heap.size).toBe(plain.length);
          expect(heap.peek()?.key).toBe(sorted[0]);
          expect(heap.peekSecond()?.key).toBe(sorted[1]);
          expect([...heap].every((one) => heap.has(one) && plain.includes(one))).toBe(true);
        }
      }),
      { numRuns: 500 },
    );
  });

  it("does not know what was never in it", () => {
    const heap = new IndexedHeap<Item>((a, b) => a.key < b.key);
    expect(heap.remove({ key: 1 })).toBe(false);
    expect(heap.pop()).toBeUndefined();
  });
});

describe("the line of what waits", () => {
  it("gives back in the order it was given, however long it gets", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom("add", "shift", "rotate"), { maxLength: 600 }), (steps) => {
        const fifo = new Fifo<number>();
        const plain: number[] = [];
        steps.forEach((step, i) => {
          if (step === "add") {
            fifo.add(i);
            plain.push(i);
          } else if (step === "shift") {
            expect(fifo.shift()).toBe(plain.shift());
          } else {
            fifo.rotate();
            const first = plain.shift();
            if (first !== undefined) plain.push(first);
          }
          expect(fifo.front).toBe(plain[0]);
        });
        expect([...fifo]).toEqual(plain);
        expect(fifo.length).toBe(plain.length);
      }),
    );
  });
});
