import {
  chmodSync,
  existsSync,
  lchownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { atEnd } from "../../support/at-end.js";
import { until } from "../../support/wait.js";
import { noOtherUser, OTHER_UID, openOtherUser } from "./other-user.js";
import { openPlace, type Place } from "./place.js";

const modeOf = (path: string): number => statSync(path).mode & 0o777;

/** The data of a run that could not be in its directory, from what the run says. */
function dataElsewhere(stderr: string): string {
  const [, dir = ""] = /the data of this run is in (\S+)/.exec(stderr) ?? [];
  if (dir !== "") atEnd(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

function sharedPlace(): Place {
  const place = openPlace();
  chmodSync(place.dir, 0o777);
  return place;
}

describe.skipIf(noOtherUser !== undefined)(
  `in a directory with a .laboro of another user (${noOtherUser ?? "root"})`,
  () => {
    it("a run does not run the other user's tasks, uses data of its own elsewhere, and says so", async () => {
      const place = sharedPlace();
      const line = "id -u >> ran-{}; sleep 0.5";
      await openOtherUser().laboro(place.dir, ["run", "-j", "1", line, ":::", "a", "b", "c"], () =>
        existsSync(place.file("ran-a")),
      );
      expect(statSync(place.file(".laboro")).uid).toBe(OTHER_UID);
      const { code, stdout, stderr } = await place.run("-j", "1", "echo {}", ":::", "x", "y");
      expect(code).toBe(0);
      expect(stdout.trimEnd().split("\n").sort()).toEqual(["x", "y"]);
      expect(stderr).toContain(`belongs to another user (uid ${OTHER_UID}; this is uid 0)`);
      const dir = dataElsewhere(stderr);
      expect(dir).toMatch(/^\/var\/tmp\/laboro-0\/laboro-run-/);
      expect(modeOf(dir)).toBe(0o700);
      const ran = readdirSync(place.dir).filter((name) => name.startsWith("ran-"));
      expect(ran.flatMap((name) => place.lines(name))).not.toContain("0");
      // The verbs after it look at the same data, not at the other user's.
      expect((await place.laboro("logs", "last")).stdout.trimEnd().split("\n").sort()).toEqual(["x", "y"]);
      expect(await place.laboro("status", "--data", ".laboro")).toMatchObject({
        code: 1,
        stderr: expect.stringContaining("LABORO_DATA_UNUSABLE"),
      });
    });

    it("a run passes over a .laboro that others can write, and one with a file of another user", async () => {
      const place = openPlace();
      mkdirSync(place.file(".laboro"));
      chmodSync(place.file(".laboro"), 0o777);
      const open = await place.run("echo ran");
      expect(open).toMatchObject({ code: 0, stdout: "ran\n" });
      expect(open.stderr).toContain("others can write to it (mode 0777)");
      expect(dataElsewhere(open.stderr)).not.toBe("");
      chmodSync(place.file(".laboro"), 0o700);
      writeFileSync(place.file(".laboro/tokens.json"), '[{"role":"admin","token":"a-token-that-was-planted"}]\n');
      lchownSync(place.file(".laboro/tokens.json"), OTHER_UID, OTHER_UID);
      expect((await place.run("echo ran")).stderr).toContain("it contains tokens.json, which belongs to another user");
    });

    it("a run in a directory that cannot be written keeps its data elsewhere, and says so", async () => {
      const place = openPlace();
      chmodSync(place.dir, 0o755);
      const { code, stdout, stderr } = await openOtherUser().laboro(place.dir, ["run", "echo ran"]);
      expect({ code, stdout }).toEqual({ code: 0, stdout: "ran\n" });
      expect(stderr).toContain(`${place.dir} cannot be written (EACCES)`);
      expect(dataElsewhere(stderr)).toMatch(new RegExp(`^/var/tmp/laboro-${OTHER_UID}/`));
    });

    it("a worker does not use a directory of another user", async () => {
      const place = openPlace();
      mkdirSync(place.file("theirs"));
      lchownSync(place.file("theirs"), OTHER_UID, OTHER_UID);
      writeFileSync(place.file("broker.url"), "http://some-token@127.0.0.1:9");
      const { child, said } = place.begin(["worker", "--dir", "theirs", "--broker", "@broker.url"]);
      child.stdin?.end();
      expect(await said).toMatchObject({ code: 1, stderr: expect.stringContaining("LABORO_DATA_UNUSABLE") });
    });
  },
);

describe("laboro serve --data", () => {
  it("refuses a directory that others can write, with the tokens that they may have put there", async () => {
    const place = openPlace();
    mkdirSync(place.file("data"));
    chmodSync(place.file("data"), 0o777);
    writeFileSync(place.file("data/tokens.json"), '[{"role":"admin","token":"a-token-that-was-planted"}]\n');
    const { child, said } = place.begin(["serve", "--data", "data", "--listen", "127.0.0.1:0"]);
    child.stdin?.end();
    const { code, stdout, stderr } = await said;
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toMatch(/others can write to it \(mode 0777\).*chmod 700.*LABORO_DATA_UNUSABLE/);
  });

  it("tightens a directory that others can read, and keeps its files for its owner", async () => {
    const place = openPlace();
    mkdirSync(place.file("data"));
    writeFileSync(place.file("data/join.url"), "old\n");
    for (const [name, mode] of [
      ["data", 0o755],
      ["data/join.url", 0o644],
    ] as const)
      chmodSync(place.file(name), mode);
    const { child, said, output } = place.begin(["serve", "--data", "data", "--listen", "127.0.0.1:0"]);
    await until("it listens", () => output().includes("listening on"));
    expect(modeOf(place.file("data"))).toBe(0o700);
    const files = readdirSync(place.file("data")).filter((name) => statSync(place.file(`data/${name}`)).isFile());
    expect(files).toEqual(expect.arrayContaining(["store.db", "store.db-wal", "access.json", "tokens.json"]));
    for (const name of files) expect([name, modeOf(place.file(join("data", name)))]).toEqual([name, 0o600]);
    child.kill("SIGTERM");
    await said;
  });
});

describe.skipIf(noOtherUser !== undefined)(`a user whose HOME is another user's (${noOtherUser ?? "root"})`, () => {
  it("is told that the data directory there cannot be read", async () => {
    // As after sudo or setpriv.
    const { code, stderr } = await openOtherUser().laboro("/", ["status"]);
    expect([code, stderr]).toEqual([
      1,
      expect.stringMatching(
        /^laboro: the directory .* is not used, because it cannot be read \(EACCES\).*DATA_UNUSABLE/,
      ),
    ]);
  });

  it("learns from doctor that no data directory can be created where only others may write", async () => {
    const { dir } = openPlace();
    chmodSync(dir, 0o755);
    const { code, stdout } = await openOtherUser().laboro("/", ["doctor", "--data", join(dir, "a", "b")]);
    expect([code, stdout]).toEqual([
      1,
      expect.stringContaining(`FAIL  the data directory ${dir}/a/b cannot be created: ${dir} `),
    ]);
  });
});

describe("the data of a run", () => {
  it("is for its user alone, file by file, and ignored by version control", async () => {
    const place = openPlace();
    await place.run("head -c 200000 /dev/zero; echo {}", ":::", "a");
    const found = readdirSync(place.file(".laboro"), { recursive: true, withFileTypes: true });
    expect(found.some(({ parentPath }) => parentPath.includes("/output"))).toBe(true);
    for (const entry of found) {
      const path = join(entry.parentPath, entry.name);
      expect([path, modeOf(path) & 0o077]).toEqual([path, 0]);
    }
    expect(readFileSync(place.file(".laboro/.gitignore"), "utf8")).toBe("*\n");
  });
});
