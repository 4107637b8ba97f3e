/** Runners written from the protocol text: they say exactly what they are told to, over real sockets. */
import { spawnSync } from "node:child_process";
import { connect } from "node:net";
import { resStatusOf } from "../../../src/protocols/runexp/res-text.js";
import { until } from "../../support/wait.js";
import { LiteralPeer } from "./literal-peer.js";

export class LiteralRunner extends LiteralPeer {
  static async connect(port: number): Promise<LiteralRunner> {
    const socket = connect({ port, host: "127.0.0.1" });
    await new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("error", reject);
    });
    return new LiteralRunner(socket);
  }

  /** Up to JES. */
  static async join(port: number, host: string, group = "__defaulte__"): Promise<LiteralRunner> {
    const runner = await LiteralRunner.connect(port);
    runner.say(`SALUTON; MI ${host}`);
    await runner.hears("VERSIO 1.3");
    runner.say("KOMPRENAS");
    await runner.hears(`ALIGI ${group}`);
    runner.say("JES");
    return runner;
  }

  /** Asks, and takes the job that comes. */
  async takes(): Promise<{ readonly name: string; readonly kind: string; readonly script: Buffer }> {
    this.say("PETO");
    return this.takesAnswer();
  }

  async takesAnswer(): Promise<{ readonly name: string; readonly kind: string; readonly script: Buffer }> {
    const [all, name = "", kind = "", size] = await until(
      () => `a job comes, and not ${JSON.stringify(this.unread)}`,
      () => /^LABORO (.+) (\.\S+) (\d+)$/s.exec(this.unread) ?? undefined,
      30_000,
    );
    await this.hears(all);
    this.say("PRETA");
    return { name, kind, script: await this.hearsBytes(Number(size)) };
  }

  async delivers(name: string, status: string, output: string | Buffer): Promise<void> {
    const bytes = Buffer.from(output);
    this.say(Buffer.from(`REZULTO ${name} ${status} ${bytes.length}`, "latin1"));
    await this.hears("PRETA");
    this.say(bytes);
    await this.hears("RICEVIS");
  }

  /** As the original would: bash, the header before it, the rule for a success. */
  async runs({ name, script }: { readonly name: string; readonly script: Buffer }): Promise<string> {
    const { text, status } = resultOf(name, script);
    await this.delivers(name, status, text);
    return status;
  }

  async leaves(): Promise<void> {
    this.say("FINO ANKAU");
    this.hangUp();
    await this.isClosed();
  }
}

export function resultOf(name: string, script: Buffer): { readonly text: Buffer; readonly status: string } {
  const ran = spawnSync("bash", ["-c", script.toString()]);
  const status = resStatusOf(ran.stdout);
  const date = "Sun Nov 15 19:30:13 UTC 2026";
  const head =
    `runexp summary: ${status}\n\n${date} -- [lit] Running ${name}\n> bash '/tmp/runexp/runexp_x.sh'\n` +
    `${date} -- Finished running\nProgram exited with status ${(ran.status ?? 1) * 256}\nProgram output follows\n\n`;
  return { text: Buffer.concat([Buffer.from(head, "latin1"), ran.stdout]), status };
}
