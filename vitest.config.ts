import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    testTimeout: 30_000,
    hookTimeout: 30_000,
    // Most of what tests do is wait for processes, disks and time-outs, so more of them run at once than there are cores.
    maxWorkers: 4,
  },
});
