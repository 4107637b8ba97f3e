/** What a test has opened is closed when it ends, the last one first. */
import { onTestFinished } from "vitest";

/** Not `afterEach`: that belongs to the file that is loaded first, and files share what they import. */
export const atEnd = (close: () => unknown): void =>
  onTestFinished(async () => {
    await close();
  });
