/** Values of environment variables of jobs and workers: who may see them, on every way to a view. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { ROLES, type Role } from "../../src/broker/access/tokens.js";
import { OPERATIONS } from "../../src/broker/operations/index.js";
import { connect } from "../../src/entries/client.js";
import { until } from "../support/wait.js";
import { ask, openTestBroker } from "./kit.js";

const VALUE = "correct-horse-battery";
const SHARED = { "laboro-cache": "shared" };

it("are shown to the roles that may submit jobs, and by no answer to another one", async () => {
  const { broker, client, worker, dir } = await openTestBroker();
  worker({ name: "one" });
  await client.ask("configSet", {
    settings: { environment: { TOKEN: VALUE }, pools: { fast: { environment: { TOKEN: VALUE } } }, slots: 2 },
  });
  const seen = join(dir, "seen");
  const recipe = { kind: "command", argv: [`echo $SECRET > ${seen}; exit 1`], shell: true, env: { SECRET: VALUE } };
  const job = await client.submit({ recipe } as Parameters<typeof client.submit>[0]);
  await client.submit({ recipe, pool: "nobody" } as Parameters<typeof client.submit>[0]);
  await until("it has failed", async () => (await job.wait()) === "failed");
  expect(readFileSync(seen, "utf8")).toBe(`${VALUE}\n`);

  // Admins first: what they got must not be in a response that is shared with others.
  const showing: Record<Role, string[]> = { admin: [], client: [], fuq: [], read: [], worker: [] };
  for (const role of [...ROLES].sort()) {
    const token = broker.tokenOf(role) ?? "";
    const link = await connect({ broker: broker.url, token });
    for (const [name, { method, path }] of Object.entries(OPERATIONS)) {
      if (method !== "GET" || name === "wait") continue;
      const filled = path
        .replace("{job}", String(job.id))
        .replace("{index}", "0")
        .replace(/\{\w+\}/, "1");
      const query = name === "job" ? "?content=true" : name === "events" ? "?after=0" : "";
      const url = `${broker.url}/api/v1${filled}${query}`;
      const input = { job: job.id, index: 0, id: 1, after: 0, content: true };
      const known = Object.fromEntries(
        Object.entries(input).filter(([field]) => field in OPERATIONS[name as "job"].input.shape),
      );
      const answers = [
        (await ask(url, { token })).text,
        (await ask(url, { token, headers: SHARED })).text,
        JSON.stringify(await link.ask(name as "status", known as object).catch(() => "")),
      ];
      if (answers.some((text) => text.includes(VALUE))) showing[role].push(name);
    }
    for (const path of ["/plain", "/metrics"])
      expect((await ask(`${broker.url}${path}`, { token })).text).not.toContain(VALUE);
    link.close();
  }
  const all = ["jobs", "job", "config", "configHistory"];
  expect(showing).toEqual({ admin: all, client: all, fuq: all, read: [], worker: [] });

  const view = await ask(`${broker.url}/api/v1/jobs/${job.id}`, { token: broker.tokenOf("read") });
  expect(view.json).toMatchObject({ recipe: { envNames: ["SECRET"], argv: recipe.argv } });
  const config = await ask(`${broker.url}/api/v1/config`, { token: broker.tokenOf("read") });
  const environment = { TOKEN: "(hidden)" };
  expect(config.json).toMatchObject({ settings: { environment, pools: { fast: { environment } }, slots: 2 } });
});
