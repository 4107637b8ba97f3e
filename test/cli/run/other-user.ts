/** The command line as another user, which only root can start. */
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { atEnd } from "../../support/at-end.js";
import { LABORO } from "../../support/launched.js";
import type { Said } from "./place.js";

export const OTHER_UID = 65_534;
const AS_OTHER = ["--reuid", String(OTHER_UID), "--regid", String(OTHER_UID), "--clear-groups"];

/** Why there can be no second user here; undefined if there can be. */
export const noOtherUser: string | undefined = (() => {
  if (process.getuid?.() !== 0) return "only root can start a process as another user";
  const probe = spawnSync("setpriv", [...AS_OTHER, process.execPath, LABORO, "--version"]);
  return probe.status === 0 ? undefined : "another user cannot start laboro here";
})();

export interface OtherUser {
  /** Runs to the end, or until `isEnough`, when it is killed. */
  laboro(cwd: string, words: readonly string[], isEnough?: () => boolean): Promise<Said>;
}

export function openOtherUser(): OtherUser {
  const home = mkdtempSync(join(tmpdir(), "laboro-other-"));
  atEnd(() => rmSync(home, { recursive: true, force: true }));
  const env = { PATH: process.env.PATH, HOME: home, LANG: "C.UTF-8", SHELL: "/bin/sh" };
  return {
    laboro: (cwd, words, isEnough) =>
      new Promise((resolve, reject) => {
        const child = spawn("setpriv", [...AS_OTHER, process.execPath, LABORO, ...words], { cwd, env });
        let [stdout, stderr] = ["", ""];
        child.stdout.setEncoding("utf8").on("data", (text: string) => {
          stdout += text;
        });
        child.stderr.setEncoding("utf8").on("data", (text: string) => {
          stderr += text;
        });
        child.stdin.end();
        const poll = setInterval(() => isEnough?.() === true && child.kill("SIGKILL"), 5);
        child.on("error", reject);
        child.on("close", (code, signal) => {
          clearInterval(poll);
          resolve({ code, signal, stdout, stderr });
        });
      }),
  };
}
