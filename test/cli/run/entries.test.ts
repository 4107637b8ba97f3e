/** Where entries come from, what placeholders make of them, and that they never become code. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { openCliBroker } from "../support/cli.js";
import { openPlace, type Place, type Said } from "./place.js";

function runWith(place: Place, input: string | Uint8Array, ...words: readonly string[]): Promise<Said> {
  const { child, said } = place.begin(["run", ...words]);
  child.stdin?.end(input);
  return said;
}

/** The long options of sbatch 22.05 that laboro submit does not have. */
const SBATCH_OPTIONS = `
  --account --bb --bbf --begin --chdir --cluster-constraint --clusters --comment --constraint --container
  --contiguous --core-spec --cores-per-socket --cpu-freq --cpus-per-gpu --cpus-per-task --deadline
  --delay-boot --dependency --distribution --error --exclude --exclusive --export --export-file
  --get-user-env --gid --gpu-bind --gpu-freq --gpus --gpus-per-node --gpus-per-socket --gpus-per-task
  --gres --gres-flags --ignore-pbs --input --job-name --licenses --mail-type --mail-user --mcs-label --mem
  --mem-per-cpu --mem-per-gpu --mincpus --no-kill --no-requeue --nodefile --nodelist --nodes --ntasks
  --ntasks-per-core --ntasks-per-node --ntasks-per-socket --overcommit --oversubscribe --parsable
  --partition --power --propagate --qos --quiet --reboot --requeue --reservation --signal
  --sockets-per-node --spread-job --switches --thread-spec --threads-per-core --time --time-min --tmp --uid
  --use-min-nodes --wait --wckey --wrap
`
  .trim()
  .split(/\s+/);

describe("standard input of laboro run", () => {
  it("is the list of entries where a placeholder needs one and no list is named", async () => {
    const place = openPlace();
    expect((await runWith(place, "1\n2\n3\n", "-k", "echo n{}")).stdout).toBe("n1\nn2\nn3\n");
    expect((await runWith(place, "a.c\n", "echo", "{1/.}")).stdout).toBe("a\n");
    expect((await runWith(place, "a,b\n", "--colsep", ",", "echo {2}")).stdout).toBe("b\n");
    expect((await runWith(place, "a b\0c\0", "-k", "-0", "echo {}")).stdout).toBe("a b\nc\n");
    expect((await runWith(place, "a,b", "-k", "-d", ",", "echo", "{}")).stdout).toBe("a\nb\n");
  });

  it("is a list of commands where there is none", async () => {
    const place = openPlace();
    expect((await runWith(place, "echo a | tr a b\necho 'c d'\n", "-k")).stdout).toBe("b\nc d\n");
    expect((await runWith(place, "echo a | tr a b\n", "--dry-run")).stdout).toBe("echo a | tr a b\n");
  });

  it("is read where a list is -, and once only", async () => {
    const place = openPlace();
    expect((await runWith(place, "1\n2\n", "-k", "echo {2}{1}", ":::", "a", "::::", "-")).stdout).toBe("1a\n2a\n");
    expect((await runWith(place, "1\n", "--each-line", "-", "echo", "x")).stdout).toBe("x 1\n");
    const twice = await runWith(place, "1\n", "--stdin", "-", "cat {}");
    expect(twice).toMatchObject({ code: 2 });
    expect(twice.stderr).toContain("standard input is given twice");
  });

  it("is not read for a command that needs no entry", async () => {
    const place = openPlace();
    expect((await runWith(place, "1\n2\n", "echo once {#}")).stdout).toBe("once 1\n");
    expect((await runWith(place, "1\n2\n", `echo "\${1}" 'a{2}'`)).stdout).toBe(" a{2}\n");
  });

  it("that is empty is nothing to do, and so is any empty list", async () => {
    const place = openPlace();
    const nothing = { code: 0, stdout: "", stderr: "the list of entries is empty: nothing to do\n" };
    for (const words of [["echo {}"], ["echo {}", ":::"], ["echo", "::::", "/dev/null"], []])
      expect(await runWith(place, "", ...words)).toMatchObject(nothing);
    expect(await place.laboro("submit", "echo {}", ":::")).toMatchObject(nothing);
  });

  it("that is a terminal is not waited for: a task's number never stands for a missing entry", async () => {
    const { begin } = openPlace();
    const { said } = begin(["run", "--", "find", ".", "-maxdepth", "0", "-exec", "echo", "rm", "{}", ";"], true);
    const { stdout, code } = await said;
    expect(stdout).toContain("{} stands for an entry, and there is no list of entries; give one with :::");
    expect(stdout).not.toContain("rm 0");
    expect(code).toBe(2);
  });
});

describe("placeholders of laboro run", () => {
  it("keep the bytes of an entry that is not UTF-8; elsewhere such bytes are refused", async () => {
    const { shell } = openPlace();
    const name = "$'a\\xff.x'";
    const line = `laboro run 'echo {} | od -An -tx1' ::: ${name}; echo hi >${name}; laboro run cat {1} ::: ${name} :::+ x`;
    const { stdout, code } = await shell(line).said;
    expect(stdout).toBe(" 61 ff 2e 78 0a\nhi\n");
    expect(code).toBe(0);
    for (const words of [`echo ${name}`, `--output ${name} echo ::: a`, `echo :::: ${name}`])
      expect((await shell(`laboro run ${words}`).said).code).toBe(2);
  });

  it("stand for the slot, from 1", async () => {
    const { run } = openPlace();
    expect((await run("-j", "1", "-k", "echo {%}{#}", ":::", "a", "b")).stdout).toBe("11\n12\n");
  });

  it("stand for the lines of several files, each with each", async () => {
    const { run, file } = openPlace();
    writeFileSync(file("x"), "a\nb\n");
    writeFileSync(file("y"), "1\n2\n");
    expect((await run("-k", "echo {1}{2}", "::::", "x", "y")).stdout).toBe("a1\na2\nb1\nb2\n");
    expect((await run("-k", "echo {1}{2}", "::::", "x", "::::+", "y")).stdout).toBe("a1\nb2\n");
  });

  it("never become code, and arrive as they are", async () => {
    const place = openPlace();
    const hostile = ["a; touch PWN", "$(touch PWN)", "`touch PWN`", "' ; touch PWN '", '"; touch PWN; "', "*"];
    const line = `echo "$(printf %s {})" '{}' "{}" {} # it's\ncat <<E\n{} it's\nE\nprintf '%s\\n' {} "$LABORO_ENTRY"`;
    const { stdout, code } = await place.run("-k", line, ":::", ...hostile);
    expect(code).toBe(0);
    const lines = (entry: string): string => `${entry} ${entry} ${entry} ${entry}\n${entry} it's\n${entry}\n${entry}\n`;
    expect(stdout).toBe(hostile.map(lines).join(""));
    expect(existsSync(place.file("PWN"))).toBe(false);
    const bytes = Buffer.from("\xff;touch PWN\n", "latin1");
    await runWith(place, bytes, "printf %s\\\\n {} > out");
    expect(readFileSync(place.file("out"))).toEqual(bytes);
  });

  it("are refused at submission where no value is safe, by run, submit, SDK and REST alike", async () => {
    const { laboro, client, broker } = await openCliBroker();
    const refused = "{} at character 11 of the line stands inside backquotes";
    for (const verb of ["run", "submit"]) {
      const { code, stderr } = await laboro([verb, "echo `cat {}`", ":::", "a"]);
      expect(code).toBe(2);
      expect(stderr).toContain(refused);
    }
    const recipe = { kind: "command", argv: ["echo `cat {}`"], shell: true, placeholders: true } as const;
    await expect(client.submit({ recipe, entries: ["a"] })).rejects.toMatchObject({ code: "LABORO_BAD_INPUT" });
    const echo = { ...recipe, argv: ["echo {}"] };
    await expect(client.submit({ recipe: echo, count: 3 })).rejects.toThrow("{} stands for an entry");
    const words = { kind: "command", argv: ["echo", "{}"], placeholders: true } as const;
    await expect(client.submit({ recipe: words })).rejects.toThrow("{} stands for an entry");
    const array = [
      { first: 1, last: 5, step: 1 },
      { first: 3, last: 3, step: 1 },
    ];
    await expect(client.submit({ recipe: { ...echo, array } })).rejects.toThrow("3 is named twice");
    const response = await fetch(`${broker.url}/api/v1/jobs`, {
      method: "POST",
      headers: { authorization: `Bearer ${broker.token}`, "content-type": "application/json" },
      body: JSON.stringify({ recipe, entries: ["a"] }),
    });
    expect(response.status).toBe(400);
    expect(await response.text()).toContain(refused);
  });

  it("name an output file in a folder that is made", async () => {
    const { run, lines } = openPlace();
    await run("--output", "res/{//}/{/.}.out", "echo {}", ":::", "x/a.c", "y/b.c");
    await run("--output", "words/{/}", "--", "echo", "{}", ":::", "x/a");
    expect([lines("res/x/a.out"), lines("res/y/b.out"), lines("words/a")]).toEqual([["x/a.c"], ["y/b.c"], ["x/a"]]);
  });

  it("take an array as a set", async () => {
    const { run } = openPlace();
    const { code, stderr } = await run("--array", "1-9:2,4,5", "echo {}");
    expect(code).toBe(2);
    expect(stderr).toContain("5 is named twice");
  });

  it("need a place of their own after a comment", async () => {
    const { run } = openPlace();
    expect((await run("echo a # b", ":::", "x")).stderr).toContain("write {} where the entry belongs");
  });
});

describe("an option of sbatch", () => {
  it("is answered with laboro's own", async () => {
    const { run } = openPlace();
    expect((await run("--time=10", "true")).stderr).toContain("use --time-limit; a bare number is seconds");
    expect((await run("--cpus-per-task", "4", "true")).stderr).toContain("use --slots N");
    expect((await run("--array", "1-9%2", "true")).stderr).toContain("use --max-running N");
  });

  it("comes before one of GNU parallel with the same letter at submit, not at run", async () => {
    const { run, laboro } = openPlace();
    const submitted = async (...words: string[]) => (await laboro("submit", ...words, "true")).stderr;
    for (const [option, remedy] of [
      ["-Jsweep", "use --name NAME"],
      ["-t10", "use --time-limit"],
      ["-p", "use --pool NAME"],
      ["-a1-9", "use --array NUMBERS"],
      ["-o", "use --output PATH"],
      ["-c4", "use --slots N"],
      ["--wrap=true", "give the line as one word"],
      ["--ntasks=4", "a task is one process"],
      ["--qos", "laboro has nothing like it"],
    ] as const)
      expect(await submitted(option)).toContain(`unknown option '${option}'; ${remedy}`);
    for (const option of SBATCH_OPTIONS)
      expect(await submitted(option)).toMatch(/^laboro: unknown option '[\w-]+'; (use|give|leave|a task|laboro has) /);
    expect((await run("-t", "true")).stderr).toContain("-t is an option of GNU parallel; use --dry-run");
    expect((await run("-c4", "true")).stderr).toContain("use --slots N");
  });
});

describe("a mistake in the command", () => {
  it("is named as what it is", async () => {
    const { run, shell } = openPlace();
    const said = async (...words: string[]): Promise<string> => (await run(...words, ":::", "a")).stderr;
    expect(await said("echo it's {}")).toContain(
      "{} at character 11 of the line stands in a line that is not complete: '",
    );
    expect(await said('echo "{}')).toContain('is not complete: " without its end (LABORO_BAD_INPUT)');
    expect(await said("echo $(echo {}")).toContain("is not complete: $( without )");
    expect(await said("echo [{}]")).toContain('not "a"; use [ … ] or expr, or quote the word if it names no array');
    expect(await run('echo "[{}]"', ":::", "a")).toMatchObject({ code: 0, stdout: "[a]\n" });
    expect((await run("--each-line", ".", "echo")).stderr).toContain("cannot read --each-line .: it is a directory");
    expect(await said("--send", "{}", "cat")).toContain("--send a: it cannot be read: there is no such file");
    expect((await shell("printf 'a\\0b\\n' | laboro run echo {}").said).stderr).toContain(
      "standard input: an entry contains a NUL byte",
    );
  });
});

describe("an entry that is too long for an argument", () => {
  it("fails its task alone, which says what to do", async () => {
    const place = openPlace();
    writeFileSync(place.file("list"), `short\n${"x".repeat(200_000)}\n`);
    for (const words of [["echo"], ["echo {}"]]) {
      const { code, stdout, stderr } = await place.run(...words, "::::", "list");
      expect([code, stdout]).toEqual([1, "short\n"]);
      expect(stderr).toMatch(
        /task 2 \(x+…\): cannot start ".*": the argument list is too long: one word has 195 KiB; give the name of a file/,
      );
    }
  });
});

describe("perl of GNU parallel", () => {
  it("is refused: it would be a file name", async () => {
    const { run, laboro } = openPlace();
    for (const words of [["mv", "{}", "{= s/a/b/ =}"], ["echo {2=$_++=}"]])
      expect(await run(...words, ":::", "a")).toMatchObject({
        code: 2,
        stderr: expect.stringMatching(/^laboro: \{2?=.*=\} is perl for GNU parallel/),
      });
    expect((await laboro("submit", "echo", "{=uq=}", ":::", "a")).stderr).toContain("{=uq=} is perl");
  });
});

describe("lines that end with a carriage return", () => {
  it("are named, because their entries fit no file", async () => {
    const place = openPlace();
    writeFileSync(place.file("windows"), "a\r\nb\r\nc");
    const notice = /^laboro: each entry ends with a carriage return/;
    const { stdout, stderr } = await place.run("-k", "echo {}", "::::", "windows");
    expect([stdout, stderr]).toEqual(["a\r\nb\r\nc\n", expect.stringMatching(notice)]);
    expect((await place.run("-k", "--each-line", "windows", "true", "{}")).stderr).toMatch(notice);
    writeFileSync(place.file("mixed"), "a\r\nb\nc");
    expect((await place.run("-k", "echo {}", "::::", "mixed")).stderr).not.toMatch(notice);
  });

  it("need no care with --colsep", async () => {
    const place = openPlace();
    writeFileSync(place.file("windows.csv"), "depth,seed\r\n1, \u00e0 \r\n2,y\r\n");
    const words = ["-k", "--header", ":", "--colsep", ",", "echo {depth}-{seed}.", "::::", "windows.csv"];
    const { stdout, stderr } = await place.run(...words);
    expect([stdout, stderr]).toEqual(["1-\u00e0.\n2-y.\n", expect.stringMatching(/^2 tasks/)]);
  });
});

describe("an option of GNU parallel", () => {
  it("is answered with laboro's own", async () => {
    const { run, laboro } = openPlace();
    const said = async (...words: string[]): Promise<string> => (await run(...words, "echo {}", ":::", "a")).stderr;
    expect(await said("--xargs")).toMatch(/^laboro: --xargs is an option of GNU parallel; use -X/);
    expect(await said("-a", "list")).toContain("use --each-line FILE");
    expect(await said("-m")).toContain("use -X");
    expect(await said("-i")).toContain("the placeholder is always {}");
    expect(await said("--semaphore")).toContain("laboro limit set NAME");
    for (const option of ["--tag", "--ctag"]) expect(await said(option)).toContain("--tag-output");
    for (const option of ["--csv", "--skip-first-line", "--group-by", "--tmux"])
      expect(await said(option)).toMatch(/is an option of GNU parallel; (use|group) /);
    const submitted = async (...words: string[]) => (await laboro("submit", ...words, "true")).stderr;
    expect(await submitted("--delay", "2")).toContain("laboro limit set NAME --rate 1/2s");
    expect(await submitted("-j4")).toContain("--max-running N");
    expect(await submitted("--load", "2")).toContain("--max-load");
    expect(await said("--tmpdir", "/tmp")).toContain("laboro has nothing like it");
    expect((await run("--tag", "echo", "{}", ":::", "a")).stderr).toContain("--tag-output");
    expect((await laboro("submit", "--files", "echo", ":::", "a")).stderr).toContain("laboro logs JOB.TASK");
    expect(await said("--keep-ordre")).toContain("Did you mean --keep-order?");
  });
});
