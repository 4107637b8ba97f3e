/** The login of a browser: which links let it in, what it keeps, and what other servers of this machine get of it. */

import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { BrowserLogin, SESSION_MS } from "../../../src/broker/access/auth.js";
import { connect } from "../../../src/entries/client.js";
import { startBroker } from "../../../src/server.js";
import { atEnd } from "../../support/at-end.js";
import { freePort } from "../../support/free-port.js";
import { TRUE } from "../../support/recipes.js";
import { until } from "../../support/wait.js";
import { DashboardPage, PATIENCE_MS } from "../dashboard-page.js";
import { Scene } from "../scene.js";

const KEY = "laboro-session";
const overview = (page: Page) => page.getByRole("heading", { name: "Overview" });
const logIn = (page: Page) => page.getByRole("heading", { name: "Log in" });
const tokenIn = (page: Page): Promise<string> => page.evaluate(`sessionStorage.getItem("${KEY}") ?? ""`);

/** Another server on 127.0.0.1. Its page tries to get at the broker; everything that it receives is recorded. */
async function openRecorder(brokerUrl: string): Promise<{ url: string; received: string[] }> {
  const received: string[] = [];
  const script = `
    const answers = [];
    const attempt = (what, promise) => promise.then((got) => answers.push(what + ": " + got), () => answers.push(what + ": nothing"));
    const heard = new Promise((resolve, reject) => {
      const channel = new BroadcastChannel("${KEY}");
      channel.onmessage = ({ data }) => resolve(JSON.stringify(data));
      channel.postMessage("token?");
      setTimeout(reject, 500);
    });
    Promise.all([
      attempt("status", fetch("${brokerUrl}/api/v1/status", { credentials: "include" }).then((one) => one.text())),
      attempt("clean", fetch("${brokerUrl}/api/v1/clean", { method: "POST", credentials: "include" }).then((one) => one.text())),
      attempt("channel", heard),
      attempt("storage", Promise.resolve(JSON.stringify([{ ...sessionStorage }, { ...localStorage }, document.cookie]))),
    ]).then(() => fetch("/report", { method: "POST", body: answers.sort().join("\\n") }));
  `;
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (part: Buffer) => (body += part.toString()));
    request.on("end", () => {
      received.push(`${request.method} ${request.url}\n${JSON.stringify(request.headers)}\n${body}`);
      response.setHeader("content-type", "text/html");
      response.end(request.url === "/" ? `<!doctype html><title>other</title><script>${script}</script>` : "");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  atEnd(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, received };
}

export function describeLogin(browser: () => Browser): void {
  let scene: Scene;
  beforeAll(async () => {
    scene = await Scene.open();
  });
  afterAll(() => scene?.close());

  it("takes the code out of the address, and lasts over a reload and in a second tab", async () => {
    const { code, url } = scene.broker.newLoginLink("admin");
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    const { page, context } = dashboard;
    await page.goto("about:blank");
    await page.goto(url);
    await overview(page).waitFor();
    expect(page.url()).toBe(`${scene.broker.url}/`);
    await page.getByRole("link", { name: "Jobs", exact: true }).click();
    await page.goBack();
    expect(page.url()).not.toContain(code);
    await page.reload();
    await overview(page).waitFor();
    const second = await context.newPage();
    await second.goto(`${scene.broker.url}/ui/jobs`);
    await second.getByRole("heading", { name: "Jobs" }).waitFor({ timeout: PATIENCE_MS });
    expect(await tokenIn(second)).toBe(await tokenIn(page));
    expect(await tokenIn(page)).toMatch(/^admin\./);
    expect(await context.cookies()).toEqual([]);
    expect(await page.evaluate("JSON.stringify({ ...localStorage })")).not.toContain("admin.");
    await dashboard.close();
  });

  it("gives another server on this machine nothing, and its pages no way to the broker", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    const token = await tokenIn(dashboard.page);
    const other = await openRecorder(scene.broker.url);
    const { code, url } = scene.broker.newLoginLink("admin");
    // From the dashboard by a link, in a tab of its own, and typed.
    const opened = dashboard.context.waitForEvent("page");
    await dashboard.page.evaluate(
      `Object.assign(document.createElement("a"), { href: "${other.url}", target: "_blank", rel: "opener" }).click()`,
    );
    await (await opened).waitForLoadState();
    const reports = (): string[] => other.received.filter((one) => one.startsWith("POST /report"));
    await until("it has tried", () => reports().length === 1, PATIENCE_MS);
    const typed = await dashboard.context.newPage();
    await typed.goto(url);
    await overview(typed).waitFor();
    await typed.goto(other.url);
    await until("it has tried again", () => reports().length === 2, PATIENCE_MS);
    const answers = ["channel: nothing", "clean: nothing", "status: nothing", 'storage: [{},{},""]'];
    for (const report of reports()) expect(report.split("\n").slice(2)).toEqual(answers);
    const everything = other.received.join("\n");
    for (const secret of [token, code, "cookie", "authorization", "#login"]) expect(everything).not.toContain(secret);
    dashboard.forgive();
    await dashboard.close();
  });

  it("is asked for at every address, and is done by a link that is opened in the same tab", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    const page = await (await browser().newContext()).newPage();
    for (const path of ["/ui/jobs", "/"]) {
      const answer = await page.goto(scene.broker.url + path);
      expect([path, answer?.status()]).toEqual([path, 200]);
      await logIn(page).waitFor({ timeout: PATIENCE_MS });
      await page.getByText("laboro open").waitFor();
    }
    await page.goto(scene.broker.newLoginLink("read").url);
    await overview(page).waitFor({ timeout: PATIENCE_MS });
    await page.context().close();
    await dashboard.close();
  });

  it("fails with a wrong code and with a used one, and says so", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    const { url } = scene.broker.newLoginLink("admin");
    await dashboard.page.goto("about:blank");
    await dashboard.page.goto(url);
    await overview(dashboard.page).waitFor();
    const context = await browser().newContext();
    for (const link of [url, `${scene.broker.url}/#login=wrong`]) {
      const page = await context.newPage();
      await page.goto(link);
      await page.getByText("This link is no longer valid").waitFor({ timeout: PATIENCE_MS });
      expect(page.url()).toBe(`${scene.broker.url}/`);
    }
    await context.close();
    await dashboard.page.goto("about:blank");
    // Who is logged in already stays so.
    await dashboard.page.goto(url);
    await overview(dashboard.page).waitFor();
    dashboard.forgive();
    await dashboard.close();
  });

  it("ends when the session does, under an open page and at the next visit", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    const past = new BrowserLogin(scene.broker.token, () => Date.now() - SESSION_MS - 1);
    const { token: expired = "" } = past.exchange(past.newCode("admin").code) ?? {};
    await dashboard.page.route("**/api/**", (route) =>
      route.continue({ headers: { ...route.request().headers(), authorization: `Bearer ${expired}` } }),
    );
    await logIn(dashboard.page).waitFor();
    await dashboard.sees("The session has ended");
    expect(await tokenIn(dashboard.page)).toBe("");
    await dashboard.page.unroute("**/api/**");
    const asked = dashboard.asked.length;
    await dashboard.page.evaluate(`sessionStorage.setItem("${KEY}", "${expired}")`);
    await dashboard.page.reload();
    await dashboard.sees("The session has ended");
    expect(await tokenIn(dashboard.page)).toBe("");
    expect(dashboard.asked.slice(asked)).toEqual(["GET /api/v1/permissions"]);
    dashboard.forgive();
    await dashboard.close();
  });

  it("looks well, and axe has nothing against it", async () => {
    for (const scheme of ["light", "dark"] as const) {
      const dashboard = await DashboardPage.open(browser(), scene.broker, { scheme });
      await dashboard.page.evaluate("sessionStorage.clear()");
      await dashboard.page.reload();
      await logIn(dashboard.page).waitFor();
      await dashboard.shoot(`login-${scheme}`);
      expect(await dashboard.faults()).toEqual([]);
      await dashboard.close();
    }
  });

  it("lasts over a restart of the broker, after which the page goes on", async () => {
    const dir = mkdtempSync(join(tmpdir(), "laboro-login-"));
    atEnd(() => rmSync(dir, { recursive: true, force: true }));
    const first = await startBroker({ dir, port: await freePort() });
    const dashboard = await DashboardPage.open(browser(), first);
    await dashboard.page.getByRole("link", { name: "Jobs", exact: true }).click();
    await first.stop();
    await dashboard.sees("the broker does not answer");
    const second = await startBroker({ dir, port: Number(new URL(first.url).port) });
    atEnd(() => second.stop());

    const client = await connect({ broker: second.url, token: second.token });
    await client.submit({ name: "after the restart", recipe: TRUE, held: true });
    client.close();
    await dashboard.sees("after the restart");
    dashboard.forgive();
    await dashboard.close();
  });
}
