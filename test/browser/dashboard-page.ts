/** Somebody who looks at the dashboard in a real browser. Whatever the page complains of, or asks of another host, fails the test. */
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import type { Browser, BrowserContext, Page } from "playwright-core";
import type { RunningBroker } from "../../src/broker/options.js";
import { REPOSITORY } from "../support/launched.js";
import { until } from "../support/wait.js";

export const PATIENCE_MS = 60_000;
const SHOTS = join(REPOSITORY, "test", "output", "browser");

export interface Visit {
  readonly role?: "admin" | "client" | "read";
  readonly scheme?: "light" | "dark";
  readonly width?: number;
  readonly height?: number;
}

export class DashboardPage {
  readonly page: Page;
  readonly context: BrowserContext;
  /** Questions to the API, as `METHOD path`. */
  readonly asked: string[] = [];
  readonly #broker: RunningBroker;
  readonly #complaints: string[] = [];

  private constructor(page: Page, context: BrowserContext, broker: RunningBroker) {
    this.page = page;
    this.context = context;
    this.#broker = broker;
  }

  static async open(browser: Browser, broker: RunningBroker, visit: Visit = {}): Promise<DashboardPage> {
    const { role = "admin", scheme = "light", width = 1440, height = 900 } = visit;
    const context = await browser.newContext({ colorScheme: scheme, viewport: { width, height } });
    const page = await context.newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    const dashboard = new DashboardPage(page, context, broker);
    dashboard.#listen();
    await page.goto(broker.newLoginLink(role).url);
    await page.getByRole("heading", { name: "Overview" }).waitFor();
    return dashboard;
  }

  /** Another address of the dashboard, as if it were typed. */
  async go(path: string): Promise<void> {
    await this.page.goto(this.#broker.url + path);
  }

  async sees(text: string | RegExp): Promise<void> {
    await this.page.getByText(text).first().waitFor();
  }

  async seesNot(text: string | RegExp): Promise<void> {
    await until(`${text} is not seen`, async () => (await this.page.getByText(text).count()) === 0, PATIENCE_MS);
  }

  /** What stands in the place of this name, once it is as wanted. */
  async reads(selector: string, wanted: (text: string) => boolean): Promise<string> {
    return until(
      `${selector} is as wanted`,
      async () => {
        const text = await this.page.locator(selector).first().textContent();
        return text !== null && wanted(text) ? text : undefined;
      },
      PATIENCE_MS,
    );
  }

  async press(...keys: readonly string[]): Promise<void> {
    for (const key of keys) await this.page.keyboard.press(key);
  }

  /** With LABORO_PICTURES, for those who want to look at the page. */
  async shoot(name: string): Promise<void> {
    if (process.env.LABORO_PICTURES === undefined) return;
    mkdirSync(SHOTS, { recursive: true });
    await this.page.screenshot({ path: join(SHOTS, `${name}.png`) });
  }

  /** What axe has against the page as it is. `colours` are the rules that another colour scheme can break. */
  async faults(rules: "all" | "colours" = "all"): Promise<string[]> {
    if (!(await this.page.evaluate("'axe' in window"))) await this.page.evaluate(axeSource());
    const only = rules === "all" ? "" : "runOnly: ['color-contrast', 'link-in-text-block'],";
    const found = (await this.page.evaluate(`axe.run(document, { ${only} resultTypes: ['violations'] })`)) as AxeResult;
    return found.violations.map(
      ({ id, nodes }) =>
        `${id}: ${nodes
          .slice(0, 3)
          .map(({ html }) => html.slice(0, 120))
          .join(" | ")}`,
    );
  }

  /** Ends the visit. Throws where the page had anything to complain of. */
  async close(): Promise<void> {
    await this.context.close();
    if (this.#complaints.length > 0) throw new Error(`the page complained:\n${this.#complaints.join("\n")}`);
  }

  /** What was complained of so far is forgiven: the broker went away, and the like. */
  forgive(): void {
    this.#complaints.length = 0;
  }

  #listen(): void {
    const { host } = new URL(this.#broker.url);
    this.page.on("pageerror", (error) => this.#complaints.push(`error: ${error.message}`));
    this.page.on("console", (message) => {
      if (message.type() === "error" || message.type() === "warning") this.#complaints.push(message.text());
    });
    this.page.on("request", (request) => {
      const url = new URL(request.url());
      if (url.host !== host && url.protocol !== "blob:") this.#complaints.push(`asked ${request.url()}`);
      if (url.pathname.startsWith("/api/")) this.asked.push(`${request.method()} ${url.pathname}`);
    });
  }
}

interface AxeResult {
  readonly violations: readonly { readonly id: string; readonly nodes: readonly { readonly html: string }[] }[];
}

let axe: string | undefined;

function axeSource(): string {
  axe ??= readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  return axe;
}
