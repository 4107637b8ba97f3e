import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { laboro } from "./support/cli.js";

const VECTORS = JSON.parse(readFileSync(new URL("../fixtures/fuq/v2-vectors.json", import.meta.url), "utf8")) as {
  readonly name: string;
  readonly type: string;
  readonly hex: string;
}[];
const hexOf = (name: string): string => VECTORS.find((vector) => vector.name === name)?.hex ?? "";

let dir = "";
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "laboro-decode-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

describe("laboro decode", () => {
  it("names the messages of lines of hex, with or without a direction", async () => {
    const input = [
      "# a capture",
      hexOf("hello_2_free_none_running"),
      `F>W ${hexOf("ok_2_0_seq0")}`,
      `F>W ${hexOf("job_1")}`,
      `W>F ${hexOf("error_noprocs_0_2")}`,
      `W>F ${hexOf("update_failure")}`,
      `F>W ${hexOf("stop_immediate")}`,
      "",
    ].join("\n");
    expect(await laboro(["decode", "fuq"], { process: true, input })).toMatchInlineSnapshot(`
      {
        "code": 0,
        "stderr": "",
        "stdout": "HELLO seq=0 NumProcs=2 Running=[]
      F>W OK seq=0 nproc=2 nrun=0
      F>W JOB seq=3 tasks=[{"Task":1,"JobId":1,"Name":"demo","NumTasks":5,"WorkingDir":"/data/dir","LoggingDir":"/log/dir","Command":"/bin/echo","Status":"running"}]
      W>F ERROR seq=397 code=no_procs nproc=0 nrun=2
      W>F UPDATE seq=10 JobId=2 Task=1 Success=false Status="error encountered: exit status 3" NewJob=null
      F>W STOP seq=29 n="at once"
      ",
      }
    `);
  });

  it("joins what a stream has cut, each direction by itself, and takes several words as one message", async () => {
    const hello = hexOf("hello_0_free_2_running");
    const ok = hexOf("ok_0_2_seq3");
    const input = `A ${hello.slice(0, 40)}\nB ${ok.slice(0, 10)} ${ok.slice(10)}\nA ${hello.slice(40)}\n`;
    const { code, stdout } = await laboro(["decode", "fuq"], { input });
    expect(code).toBe(0);
    expect(stdout.split("\n").map((line) => line.slice(0, 12))).toEqual(["B OK seq=3 n", "A HELLO seq=", ""]);
  });

  it("reads JSON lines with hex, text or frames, and passes over those without bytes", async () => {
    const lines = [
      { t: 0, dir: "r>m", ev: "connect" },
      { dir: "C->S", hex: hexOf("reset") },
      { who: "server", frames: [hexOf("cancel_two_pairs").slice(0, 32), hexOf("cancel_two_pairs").slice(32)] },
      { dir: "m>r", ev: "forwarded", hex: hexOf("reset") },
      { dir: "x", text: "no message" },
    ];
    const file = join(dir, "capture.jsonl");
    writeFileSync(file, lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
    const { code, stdout } = await laboro(["decode", "fuq", file, "--json"]);
    expect(JSON.parse(stdout)).toEqual([
      { direction: "C->S", name: "RESET", fields: { seq: 4294967294, lastReply: 4294967293 } },
      {
        direction: "server",
        name: "CANCEL",
        fields: {
          seq: 21,
          tasks: [
            { JobId: 3, Task: 2 },
            { JobId: 4, Task: -1 },
          ],
        },
      },
      { direction: "", name: "?", fields: {}, note: "10 bytes are not a whole message" },
    ]);
    expect(code).toBe(1);
  });

  it("reads the bytes of a stream, all golden vectors in a row", async () => {
    const input = Buffer.from(VECTORS.map(({ hex }) => hex).join(""), "hex");
    const { code, stdout } = await laboro(["decode", "fuq", "--binary", "--json"], { input });
    expect(code).toBe(0);
    const names = (JSON.parse(stdout) as { name: string }[]).map(({ name }) => name);
    expect(names).toEqual(VECTORS.map(({ type }) => type.toUpperCase()));
  });

  it("says what it cannot read, goes on behind it, and exits 1", async () => {
    const input = `${"00".repeat(16)}\n${hexOf("stop_1")}\n47c00400\n`;
    const { code, stdout } = await laboro(["decode", "fuq"], { input });
    expect(code).toBe(1);
    expect(stdout).toBe(
      "? (it begins with 0x0, expected 0xc047)\nSTOP seq=25 n=1\n? (4 bytes are not a whole message)\n",
    );
  });

  it("knows version 1", async () => {
    const input = "47c001000000000004000000\n47c007000000000000000000\n47c008000000000005000000\n";
    expect((await laboro(["decode", "fuq1"], { input })).stdout).toBe(
      "OK nproc=4\nSTOP n=0\nERROR code=cannot_run_job\n",
    );
  });

  it("suggests the protocol that was meant, and refuses lines that are nothing", async () => {
    expect(await laboro(["decode", "fuqq"], { input: "" })).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/there is no protocol fuqq; did you mean fuq/),
    });
    expect(await laboro(["decode", "fuq"], { input: "47c0\nnot hex\n" })).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/line 2: hex is not hex/),
    });
    expect(await laboro(["decode", "fuq", join(dir, "nowhere")])).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/cannot read .*nowhere: there is no such file/),
    });
  });
});
