/** `laboro doctor HOST…` and workers over ssh for a broker with TLS. */
import * as fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { startBroker } from "../../../src/server.js";
import { NO_MOUNT, smallDisk } from "../../files/scratch.js";
import { atEnd, openOnce } from "../../support/at-end.js";
import { freePort } from "../../support/free-port.js";
import { NO_SSHD, openSshd } from "../../support/sshd.js";
import { laboro, openCliBroker } from "../support/cli.js";

describe.skipIf(NO_SSHD !== undefined)(`laboro doctor HOST${NO_SSHD === undefined ? "" : ` (${NO_SSHD})`}`, () => {
  const sshd = openOnce(async () => {
    const opened = await openSshd();
    await opened.machine("good");
    await opened.machine("closed", ["AllowStreamLocalForwarding no"]);
    opened.alias("dead", "Port 1");
    return opened;
  });
  /** On the machines that are named, with the broker of this data directory. */
  const doctor = async (data: string, ...hosts: string[]): Promise<{ code: number | null; lines: string[] }> => {
    const env = { LABORO_DATA: data, HOME: data, LABORO_SSH: sshd().command };
    const { code, stdout } = await laboro(["doctor", ...hosts], { env });
    const lines = stdout.trimEnd().split("\n");
    return { code, lines: lines.filter((line) => hosts.includes(/^\w+ +(\w+): /.exec(line)?.[1] ?? "")) };
  };
  const brokerWithTls = async (): Promise<string> => {
    const data = join(fs.mkdtempSync(join(sshd().dir, "broker-")), "data");
    const broker = await startBroker({ dir: data, port: await freePort(), tls: "on" });
    atEnd(() => broker.stop());
    return data;
  };

  it("says that a worker could join a broker with TLS, after what it needs for that", async () => {
    const { code, lines } = await doctor(await brokerWithTls(), "good");
    expect(lines).toEqual([
      expect.stringMatching(/^ok +good: ssh logs in, in [\d.]+m?s$/),
      expect.stringMatching(/^(?:ok|warn) +good: .* are free there/),
      expect.stringMatching(/^ok +good: Node [\d.]+ at \/.*, Linux /),
      expect.stringMatching(/^ok +good: the worker is copied to .*\.local\/share\/laboro$/),
      expect.stringMatching(/^(?:ok|warn) +good: \w+ files may be open at once/),
      expect.stringMatching(/^ok +good: its clock agrees with this one$/),
      expect.stringMatching(/^ok +good: the broker answers there through a tunnel, and knows the token$/),
    ]);
    expect(code).toBe(0);
  });

  it("says what is wrong with a machine, and looks at the others", async () => {
    const setup = await openCliBroker();
    const { code, lines } = await doctor(setup.data, "closed", "dead", "good");
    expect(code).toBe(1);
    expect(lines.filter((line) => line.startsWith("FAIL"))).toEqual([
      expect.stringMatching(/closed: its sshd does not forward a Unix socket \(AllowStreamLocalForwarding\)/),
      expect.stringMatching(/dead: nothing listens there \(connection refused\)/),
    ]);
    expect(lines.at(-1)).toMatch(/^ok +good: the broker answers there/);
    // Nothing of the check stays, the token least of all.
    const left = fs.readdirSync(`/tmp/laboro-${process.getuid?.()}`).filter((name) => name.startsWith("doctor-"));
    expect(left).toEqual([]);
  });

  it("says what a machine lacks: Node, free space, open files, the right time", async (context) => {
    const { dir, machine } = sshd();
    const bin = join(dir, "bin");
    fs.mkdirSync(bin);
    for (const name of ["sh", "mkdir", "chmod", "id", "uname", "df", "awk", "head", "tail", "rm"]) {
      const path = ["/usr/bin", "/bin"].map((folder) => join(folder, name)).find((file) => fs.existsSync(file));
      fs.symlinkSync(path ?? name, join(bin, name));
    }
    await machine("bare", [`PATH=${bin}`, "SHELL=/bin/false"]);
    await machine("few", ["ForceCommand ulimit -n 256; exec sh"]);
    const late = join(dir, "late");
    fs.mkdirSync(late);
    fs.writeFileSync(join(late, "clock.cjs"), "const now = Date.now; Date.now = () => now() - 90_000;");
    fs.writeFileSync(join(late, "node"), `#!/bin/sh\nexec '${process.execPath}' -r '${late}/clock.cjs' "$@"\n`);
    fs.chmodSync(join(late, "node"), 0o755);
    await machine("late", [`PATH=${late}:/usr/bin:/bin`]);
    const { code, lines } = await doctor((await openCliBroker()).data, "bare", "few", "late");
    expect(code).toBe(1);
    expect(lines.filter((line) => !line.startsWith("ok"))).toEqual([
      expect.stringMatching(/^FAIL +bare: it has no Node 20 or newer; install one there, or use --archive$/),
      expect.stringMatching(/^warn +few: 256 files may be open at once .*; raise it with ulimit -n 1024/),
      expect.stringMatching(/^warn +late: its clock is 1m\d+s behind this one; set both by NTP/),
    ]);
    const disk = smallDisk(2 ** 26);
    if (disk === undefined) return context.skip(NO_MOUNT);
    await machine("full", [], disk);
    fs.writeFileSync(join(disk, "rest"), Buffer.alloc(2 ** 26 - 2 ** 24));
    const full = await doctor((await openCliBroker()).data, "full");
    expect(full.lines.filter((line) => !line.startsWith("ok"))[0]).toMatch(/^(?:FAIL|warn) +full: .* free there; /);
  });

  it("runs tasks of a broker with TLS through a tunnel", async () => {
    const data = await brokerWithTls();
    const env = { LABORO_DATA: data, HOME: data, LABORO_SSH: sshd().command };
    const said = await laboro(["run", "--ssh", "good", "echo {} $HOME", ":::", "a"], { env });
    expect(said).toMatchObject({ code: 0, stdout: `a ${join(sshd().dir, "good-home")}\n` });
  });
});
