/** Escape sequences in what tasks and peers write, on a terminal, in a pipe, and in names, reasons and errors. */
import { execFileSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import { atEnd } from "../support/at-end.js";
import { LABORO } from "../support/launched.js";
import { until } from "../support/wait.js";
import { openPlace } from "./run/place.js";
import { openCliBroker, sh } from "./support/cli.js";

/** Sets the title and the clipboard, clears the screen, asks where the cursor is; then a red word. */
const HOSTILE = "\\033]0;hacked\\007\\033]52;c;aGFja2Vk\\007\\033[2J\\033[H\\033[6n\\033[31mred\\033[0m";
const hostile = (stream = "1") => `printf 'first\\n${HOSTILE} last\\n' >&${stream}`;
const RED = "\u001b[31mred\u001b[0m last\n";
const RAW = `first\n\u001b]0;hacked\u0007\u001b]52;c;aGFja2Vk\u0007\u001b[2J\u001b[H\u001b[6n${RED}`;

describe("escape sequences in the output of a task", () => {
  it("pass to a terminal where they are styles, with logs --raw all of them; to a pipe always", async () => {
    const setup = await openCliBroker();
    setup.worker();
    await (await setup.client.submit({ recipe: sh(hostile()) })).wait();
    await (await setup.client.submit({ recipe: sh(hostile("2")) })).wait();
    for (const words of [
      ["logs", "1"],
      ["logs", "2"],
      ["logs", "-f", "1"],
    ])
      expect([words, (await setup.laboro(words, { columns: 80 })).stdout]).toEqual([words, `first\n${RED}`]);
    const tagged = await setup.laboro(["logs", "1-2", "--tag"], { columns: 80 });
    expect(tagged.stdout).toBe(`1.1\tfirst\n1.1\t${RED}2.1\tfirst\n2.1\t${RED}`);
    expect((await setup.laboro(["logs", "1", "--raw"], { columns: 80 })).stdout).toBe(RAW);
    expect((await setup.laboro(["logs", "1"])).stdout).toBe(RAW);
    expect((await setup.laboro(["logs", "2"])).stderr).toBe(RAW);
  });

  it("pass from laboro run and from a service in the same way", async () => {
    const place = openPlace();
    const shown = await place.begin(["run", hostile()], true).said;
    expect(shown.stdout.replaceAll("\r\n", "\n")).toContain(`first\n${RED}`);
    expect(shown.stdout).not.toMatch(/hacked|aGFja2Vk|\[6n|\[2J/);
    const several = await place.begin(["run", "-k", `${hostile()}; true`, ":::", "a", "b"], true).said;
    expect(several.stdout.replaceAll("\r\n", "\n").split(`first\n${RED}`).length).toBe(3);
    expect((await place.run(hostile())).stdout).toBe(RAW);
    const setup = await openCliBroker();
    setup.worker({ services: { hostile: () => RAW } });
    expect((await setup.laboro(["request", "hostile"], { columns: 80 })).stdout).toBe(`first\n${RED}`);
    expect((await setup.laboro(["request", "hostile"])).stdout).toBe(RAW);
  });
});

describe("escape sequences in names, reasons and errors", () => {
  it("are written out, by every verb that shows them", async () => {
    const setup = await openCliBroker();
    const odd = "\u001b]0;hacked\u0007\u009b2Jname";
    setup.worker({ name: odd, tags: [odd], services: { fails: () => Promise.reject(new Error(odd)) } });
    const job = await setup.client.submit({ name: odd, recipe: { kind: "command", argv: [odd] }, pool: odd });
    await setup.client.submit({ name: odd, recipe: { kind: "command", argv: [odd] } }).then((one) => one.wait());
    await setup.client.ask("cancel", { job: job.id, reason: odd });
    const waiting = await setup.client.submit({ name: odd, recipe: sh("true"), tags: [`${odd}2`], pool: odd });
    const verbs = ["status --all", "status 1", "status 2", "status --json", "workers", "wait 1 2", "request fails"];
    verbs.push(`explain ${waiting.id}.1`);
    for (const verb of verbs) {
      const { stdout } = await setup.laboro(verb.split(" "), { columns: 200 });
      expect(stdout.length, verb).toBeGreaterThan(0);
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it looks for
      expect(stdout.replaceAll(/\u001b\[[\d;]*m/g, ""), verb).not.toMatch(/[\u0007\u001b\u007f-\u009f]/);
      expect((await setup.laboro(verb.split(" "))).stderr, verb).not.toContain("\u001b");
    }
  });
});

const run = (...words: readonly string[]): string => execFileSync("tmux", words, { encoding: "utf8" });

function hasTmux(): boolean {
  try {
    return run("-V") !== "";
  } catch {
    console.log("skipped: tmux is not installed");
    return false;
  }
}

describe.skipIf(!hasTmux())("in a real terminal (needs tmux)", () => {
  it("a task clears nothing, sets no title and types nothing, unless all is asked for", async () => {
    const setup = await openCliBroker();
    setup.worker();
    await (await setup.client.submit({ recipe: sh(hostile()) })).wait();
    const tmux = (...words: readonly string[]): string => run("-S", `${setup.dir}/tmux`, "-f", "/dev/null", ...words);
    const env = ["-e", `LABORO_DATA=${setup.data}`, "-e", "PS1=> ", "-e", "LANG=C.UTF-8"];
    tmux("new-session", "-d", "-x", "100", "-y", "24", ...env, "sh");
    atEnd(() => void tmux("kill-server"));
    const type = (line: string): string => tmux("send-keys", line, "Enter");
    const screen = (): string => tmux("capture-pane", "-p", "-e");
    const title = (): string => tmux("display-message", "-p", "#{pane_title}").trim();
    await until("the shell asks", () => screen().trim() !== "");
    const before = title();
    const laboro = `${process.execPath} ${LABORO}`;
    type(`echo above; ${laboro} logs 1; echo done $((6 * 7))`);
    await until("it is printed", () => screen().includes("done 42"));
    expect(screen()).toContain("\nabove\nfirst\n\u001b[31mred\u001b[39m last\ndone 42\n");
    expect(title()).toBe(before);
    type("echo still $((1 + 1))");
    await until("the shell has read it", () => screen().includes("still 2"));
    expect(screen()).not.toMatch(/;1R|not found/);
    type(`${laboro} logs 1 --raw; echo done $((6 * 8))`);
    await until("it is printed raw", () => screen().includes("done 48"));
    expect([screen().includes("above"), title()]).toEqual([false, "hacked"]);
  });
});
