/** What a test or a block of tests has opened is closed when it ends, the last one first. */
import { afterAll, beforeAll, onTestFinished } from "vitest";

/** Those of the block that is being opened. */
let ofBlock: (() => unknown)[] | undefined;

/** Not `afterEach`: that belongs to the file that is loaded first, and files share what they import. */
export function atEnd(close: () => unknown): void {
  if (ofBlock !== undefined) ofBlock.push(close);
  else
    onTestFinished(async () => {
      await close();
    });
}

/** Opened once for all tests of the block that calls this. For tests that leave no trace in what they share. */
export function openOnce<T>(open: () => Promise<T>): () => T {
  const closers: (() => unknown)[] = [];
  let opened: { readonly it: T } | undefined;
  beforeAll(async () => {
    ofBlock = closers;
    try {
      opened = { it: await open() };
    } finally {
      ofBlock = undefined;
    }
  });
  afterAll(async () => {
    for (const close of closers.reverse()) await close();
  });
  return () => {
    if (opened === undefined) throw new Error("it is opened before the first test");
    return opened.it;
  };
}
