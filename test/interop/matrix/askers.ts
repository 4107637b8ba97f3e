/** Every kind of asker. Each gives one batch of work, and says which worker did each piece of it. */
import { chmodSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { RoundRobinClient } from "../../../src/protocols/round-robin/worker/worker.js";
import { Scale0Client } from "../../../src/protocols/scale0/worker/client.js";
import type { CliBroker } from "../../cli/support/cli.js";
import { resultsOf } from "../../support/test-broker.js";
import type { Asker, Work } from "./definition.js";
import { portOf, reversed } from "./running-workers.js";

export const TASKS = 24;

export interface OpenAskers {
  /** Commands or scripts; gives the names of the workers that did them. */
  work(asker: Asker, work: Exclude<Work, "requests">): Promise<readonly string[]>;
  /** A request of this service is answered as it should be. */
  request(asker: Asker, service: string): Promise<void>;
  close(): Promise<void>;
}

export async function openAskers(setup: CliBroker): Promise<OpenAskers> {
  const { dir, broker, client } = setup;
  const script = join(dir, "script.sh");
  writeFileSync(script, "sleep 0.05\necho RES:done\n");
  const content = readFileSync(script);
  const authorization = `Bearer ${broker.token}`;
  const roundRobin = await RoundRobinClient.open({ url: `tcp://127.0.0.1:${portOf(broker, "round-robin")}` });
  const scale0 = new Scale0Client({ broker: `tcp://127.0.0.1:${portOf(broker, "scale0", 0)}` });
  let batches = 0;

  /** A command that notes its number in a file of the batch's own. */
  const numbered = (): { readonly command: string; readonly ran: () => readonly number[] } => {
    const command = join(dir, `batch-${++batches}.sh`);
    const notes = `${command}.notes`;
    writeFileSync(command, `#!/bin/sh\nsleep 0.05\necho "$1" >> '${notes}'\n`);
    chmodSync(command, 0o755);
    return {
      command,
      ran: () =>
        readFileSync(notes, "utf8")
          .trim()
          .split("\n")
          .map(Number)
          .sort((a, b) => a - b),
    };
  };

  const doneBy = async (id: number): Promise<readonly string[]> => {
    const job = client.job(id);
    expect(await job.wait()).toBe("succeeded");
    return (await resultsOf(job)).map(({ worker }) => worker);
  };

  const post = async (path: string, body: object): Promise<Record<string, unknown>> => {
    const headers = { authorization, "content-type": "application/json" };
    const answer = await fetch(`${broker.url}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
    expect(answer.status, `${path}: ${answer.statusText}`).toBeLessThan(300);
    return (await answer.json()) as Record<string, unknown>;
  };

  const commands: Partial<Record<Asker, (command: string) => Promise<number>>> = {
    SDK: async (command) => {
      const recipe = { kind: "command", argv: [command, "{#}"], placeholders: true, dir } as const;
      return (await client.submit({ recipe, count: TASKS })).id;
    },
    REST: async (command) => {
      const recipe = { kind: "command", argv: [command, "{#}"], placeholders: true, dir };
      return Number((await post("/api/v1/jobs", { recipe, count: TASKS })).job);
    },
    "command line": async (command) => {
      const args = ["submit", "--array", `1-${TASKS}`, "--dir", dir, "--", command, "{#}"];
      const { code, stdout, stderr } = await setup.laboro(args);
      expect([code, stderr]).toEqual([0, ""]);
      return Number(/\d+/.exec(stdout)?.[0]);
    },
    "fuq client": async (command) => {
      const auth = { password: broker.tokenOf("fuq"), client: "matrix" };
      const msg = { name: "matrix", num_tasks: TASKS, working_dir: dir, logging_dir: dir, command };
      return Number((await post("/client/job/new", { auth, msg })).job_id);
    },
  };

  const scripts: Partial<Record<Asker, () => Promise<readonly string[]>>> = {
    SDK: async () =>
      doneBy((await client.submit({ recipe: { kind: "script", content, type: ".sh" }, count: TASKS })).id),
    REST: async () => {
      const recipe = { kind: "script", content: content.toString(), type: ".sh" };
      return doneBy(Number((await post("/api/v1/jobs", { recipe, count: TASKS })).job));
    },
    "command line": async () => {
      const { code, stdout, stderr } = await setup.laboro(["submit", "--script", script, "--array", `1-${TASKS}`]);
      expect([code, stderr]).toEqual([0, ""]);
      return doneBy(Number(/\d+/.exec(stdout)?.[0]));
    },
    "experiments folder": async () => {
      const base = join(dir, `study-${++batches}`);
      mkdirSync(join(base, "runs"), { recursive: true });
      for (let i = 0; i < TASKS; i++) writeFileSync(join(base, "runs", `e${i}.sh`), content);
      const { code, stderr } = await setup.laboro(["experiments", base, "--broker", "-q"]);
      expect([code, stderr]).toEqual([0, ""]);
      const texts = readdirSync(join(base, "outputs")).filter((name) => name.endsWith(".res"));
      expect(texts).toHaveLength(TASKS);
      return texts.map(
        (name) => /-- \[(.+)\] Running/.exec(readFileSync(join(base, "outputs", name), "utf8"))?.[1] ?? "",
      );
    },
  };

  const requests: Partial<Record<Asker, (service: string, body: string) => Promise<string>>> = {
    SDK: async (service, body) => Buffer.from(await client.request(service, body)).toString(),
    REST: async (service, body) => {
      const answer = await fetch(`${broker.url}/api/v1/services/${service}`, {
        method: "POST",
        headers: { authorization },
        body,
      });
      return answer.text();
    },
    "command line": async (service, body) => {
      const { code, stdout, stderr } = await setup.laboro(["request", service, body]);
      expect([code, stderr]).toEqual([0, ""]);
      return stdout.trimEnd();
    },
    "round-robin client": async (service, body) => {
      const command = service.replace(/^rr\./, "");
      const { args } = await roundRobin.trackexec(Buffer.from(command), Buffer.from(body));
      return args.map(String).join();
    },
    "Scale0 client": async (service, body) => Buffer.concat(await scale0.request(service, body)).toString(),
  };

  return {
    work: async (asker, work) => {
      if (work === "scripts") return (await scripts[asker]?.()) ?? [];
      const { command, ran } = numbered();
      const give = commands[asker];
      if (give === undefined) throw new Error(`${asker} gives no commands`);
      const by = await doneBy(await give(command));
      expect(ran(), `what ${asker} asked for`).toEqual(Array.from({ length: TASKS }, (_, i) => i + 1));
      return by;
    },
    request: async (asker, service) => {
      const ask = requests[asker];
      if (ask === undefined) throw new Error(`${asker} asks no services`);
      expect(await ask(service, "drawer"), `${asker} asks ${service}`).toBe(reversed("drawer"));
    },
    close: async () => {
      await roundRobin.close();
      await scale0.close();
    },
  };
}
