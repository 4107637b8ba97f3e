/** The folders of tasks with files: what is kept of the files that were sent, and what a task may return. */
import { createHash } from "node:crypto";
import * as fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { JobId } from "../../src/model/ids.js";
import { MAX_FILE_BYTES, MAX_FILES, type SentFile } from "../../src/model/task-files.js";
import { type FileParts, TaskFolders } from "../../src/worker/task-folders.js";
import { scratch } from "../files/scratch.js";

const VALUES = { number: 1 };
const SIZE = 1_000;

const content = (name: string): Buffer => Buffer.alloc(SIZE, name);
const sent = (name: string): SentFile => ({
  ...{ path: name, size: SIZE, sha256: createHash("sha256").update(content(name)).digest("hex") },
});

/** A worker's directory with room for two files of SIZE, and what was fetched for it. */
function open(cacheBytes = 2 * SIZE) {
  const dir = scratch();
  const folders = new TaskFolders(dir, cacheBytes);
  const fetched: string[] = [];
  let index = 0;
  const partsOf = (names: readonly string[]): FileParts => ({
    getFile: async (_job, file) => {
      const name = names[file] ?? "";
      fetched.push(name);
      return content(name);
    },
    putFile: async () => {},
  });
  const make = (...names: string[]): Promise<string> => {
    const task = { job: JobId(1), index: index++, attempt: 1 };
    return folders.make(task, { sent: names.map(sent) }, VALUES, partsOf(names));
  };
  const kept = (): string[] => fs.readdirSync(join(dir, "sent")).sort();
  return { dir, folders, fetched, make, kept };
}

describe("files that were sent", () => {
  it("are fetched once, for a folder that only the user can read", async () => {
    const { fetched, make } = open();
    const [first, second] = [await make("a"), await make("a")];
    expect(fetched).toEqual(["a"]);
    for (const folder of [first, second]) {
      expect(fs.readFileSync(join(folder, "a"))).toEqual(content("a"));
      expect([fs.statSync(folder).mode & 0o777, fs.statSync(join(folder, "a")).mode & 0o777]).toEqual([0o700, 0o600]);
    }
  });

  it("make room for others: the one that was not used for the longest time goes first", async () => {
    const { dir, fetched, make, kept } = open();
    await make("a");
    await make("b");
    for (const [name, seconds] of [
      ["a", 100],
      ["b", 200],
    ] as const)
      fs.utimesSync(join(dir, "sent", sent(name).sha256), seconds, seconds);
    // Used again: now b is the older one.
    await make("a");
    await make("c");
    expect(kept()).toEqual([sent("a").sha256, sent("c").sha256].sort());
    expect(fetched).toEqual(["a", "b", "c"]);
  });

  it("stay while a task copies them, even beyond the bound", async () => {
    const { make } = open(SIZE);
    await make("a");
    const [first, second] = await Promise.all([make("a"), make("b")]);
    expect(fs.readFileSync(join(first, "a"))).toEqual(content("a"));
    expect(fs.readFileSync(join(second, "b"))).toEqual(content("b"));
  });

  it("are refused if they are not what was submitted, and leave nothing", async () => {
    const { dir, folders } = open();
    const parts: FileParts = { getFile: async () => content("x"), putFile: async () => {} };
    const task = { job: JobId(1), index: 7, attempt: 1 };
    await expect(folders.make(task, { sent: [sent("a")] }, VALUES, parts)).rejects.toMatchObject({
      code: "LABORO_FILE_MISSING",
    });
    expect([fs.readdirSync(join(dir, "sent")), fs.readdirSync(join(dir, "tasks"))]).toEqual([[], []]);
  });
});

describe("what a task returns", () => {
  const returned = async (make: (folder: string) => void): Promise<unknown> => {
    const { folders, make: prepare } = open();
    const folder = await prepare();
    make(folder);
    const parts: FileParts = { getFile: async () => Buffer.alloc(0), putFile: async () => {} };
    const task = { job: JobId(1), index: 0, attempt: 1 };
    const how = { parts, signal: new AbortController().signal };
    return folders.returnFiles(task, folder, { returns: ["*"] }, { values: VALUES, succeeded: true }, how);
  };

  it(`is at most ${MAX_FILES} files`, async () => {
    const fill = (count: number) => (folder: string) => {
      for (let i = 0; i < count; i++) fs.closeSync(fs.openSync(join(folder, String(i)), "w"));
    };
    await expect(returned(fill(MAX_FILES + 1))).rejects.toMatchObject({
      message: expect.stringContaining(`more than ${MAX_FILES} files`),
    });
    await expect(returned(fill(3))).resolves.toBeUndefined();
  });

  it("is at most 64 GiB, which is known before a byte is sent", async () => {
    const sparse = (folder: string): void => {
      fs.writeFileSync(join(folder, "large"), "");
      fs.truncateSync(join(folder, "large"), MAX_FILE_BYTES + 1);
    };
    await expect(returned(sparse)).rejects.toMatchObject({
      message: expect.stringContaining(`more than ${MAX_FILE_BYTES} bytes`),
    });
  });
});
