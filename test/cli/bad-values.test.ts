import { describe, expect, it } from "vitest";
import { makeProgram } from "../../src/cli/lib/program.js";
import { openCliBroker } from "./support/cli.js";

/** Values that an option refuses. */
type BadValues = Readonly<Record<string, readonly string[]>>;

const FILES = ["--each-line", "--from-json", "--stdin", "--script", "--file"];

const SUBMISSION: BadValues = {
  "--array": ["x", "9-1", "1,1"],
  "--each-line": ["missing"],
  "--delimiter": [""],
  "--colsep": ["["],
  "--from-json": ["missing"],
  "--name": [""],
  "--dir": [""],
  "--env": ["", "1=2", "NOT_SET"],
  "--stdin": ["missing"],
  "--slots": ["x", "0", "1.5", "99999999"],
  "--resource": ["gpu", "gpu=0", "gpu=x", "slots=1.5"],
  "--priority": ["x", "5000", "1.5"],
  "--time-limit": ["soon", "0"],
  "--time-request": ["soon", "0"],
  "--retries": ["x", "-1", "1001"],
  "--crash-limit": ["x", "1001"],
  "--max-fails": ["x", "-1"],
  "--max-running": ["x", "0"],
  "--limit": ["", "a b"],
  "--after": ["", "any:"],
  "--pool": [""],
  "--tag": ["", "echo {}"],
  "--script": ["missing"],
  "--service": [""],
  "--log": [""],
  "--output-cap": ["x"],
  "--output": [""],
  "--stdout": [""],
  "--stderr": [""],
  "--retry-wait": ["soon", "999999d"],
  "--retry-factor": ["x", "0", "101"],
  "--retry-max": ["soon"],
  "--retry-jitter": ["x", "2"],
  "--retry-on": ["", "300"],
  "--never-on": ["", "0"],
  "--keep": ["soon", "999999d"],
  "--keep-failed": ["soon"],
  "--max-args": ["x"],
  "--max-replace-args": ["-1"],
  "--max-lines": ["x"],
  "--header": ["x"],
  "--halt": ["x", "soon,fail=0", "soon,fail=101%"],
  "--timeout": ["soon", "50%", "0"],
  "--nice": ["x", "30"],
  "--shell": ["zsh"],
  "--send": ["/etc/passwd", ""],
  "--return": ["", "../x"],
};

const REFUSED: Readonly<Record<string, { readonly words?: readonly string[]; readonly values: BadValues }>> = {
  run: {
    words: ["echo"],
    values: {
      ...SUBMISSION,
      "--jobs": ["x", ""],
      "--results": ["{}", "a.csv"],
      "--delay": ["soon"],
      "--load": ["x"],
      "--memfree": ["x"],
      "--ssh": ["", "host/x"],
      "--archive": ["x.tar.gz"],
      "--joblog": [""],
    },
  },
  submit: {
    words: ["echo"],
    values: {
      ...SUBMISSION,
      "--in": ["soon", "999999d"],
      "--at": ["soon"],
      "--key": ["", "a b"],
      "--key-for": ["soon"],
      "--if-exists": ["x"],
      "--file": ["missing"],
      "--job": ["x"],
    },
  },
  edit: {
    words: ["last"],
    values: {
      "--priority": ["x", "5000"],
      "--max-running": ["x", "0"],
      "--time-limit": ["soon", "0"],
      "--name": [""],
    },
  },
  tasks: {
    words: ["last"],
    values: { "--state": ["x"], "--worker": [""], "--sort": ["x"], "--limit": ["x", "-1", "0"], "--entry": [""] },
  },
  pause: { values: { "--pool": [""] } },
  resume: { values: { "--pool": [""] } },
};

/** The first two are of every verb; a reason is any text. */
const ANY_TEXT = ["--broker", "--data", "--reason"];

describe.each(Object.entries(REFUSED))("laboro %s", (verb, { words = [], values }) => {
  it("has bad values of every option here", async () => {
    const command = (await makeProgram([verb])).commands.find((one) => one.name() === verb);
    const options = command?.options.filter(({ required, hidden }) => required && !hidden) ?? [];
    const names = options.map(({ long }) => long ?? "").filter((name) => !ANY_TEXT.includes(name));
    expect(names.sort()).toEqual(Object.keys(values).sort());
  });

  it("refuses bad values with the option, the value and an example", async () => {
    const setup = await openCliBroker();
    await setup.laboro(["submit", "true"]);
    const unclear: string[] = [];
    for (const [option, bad] of Object.entries(values))
      for (const value of bad) {
        const more = option === "--file" ? [] : words;
        const { code, stderr } = await setup.laboro([verb, option, value, ...more], { cwd: setup.dir });
        const text = stderr.replaceAll("\n", " ");
        const example = FILES.includes(option) ? "there is no such file" : "such as|Allowed choices are|; there are ";
        if (code !== 2 || !text.includes(option) || !text.includes(value) || !new RegExp(example).test(text))
          unclear.push(`${option} ${JSON.stringify(value)}: ${code} ${text}`);
      }
    expect(unclear).toEqual([]);
  });
});
