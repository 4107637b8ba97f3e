/** The worker settings, their history, and an editor. */
import { type Answer, ask } from "../api.js";
import { h, set, setChildren, setText, updateRows } from "../dom.js";
import { ago, moment } from "../format.js";
import { isAllowed, type PageContext, type PageFactory, runAction } from "../page-context.js";
import { confirmDialog } from "../parts/confirm-dialog.js";

type Version = Answer<"config">;

const toJson = (settings: unknown): string => JSON.stringify(settings, null, 2);

export const configPage: PageFactory = (_route, context) => {
  const current = h("pre", { class: "settings", tabindex: 0, "aria-label": "Settings" });
  const about = h("span", { class: "muted" });
  const edit = h("button", { class: "button", hidden: !isAllowed(context, "configSet") }, "Change");
  const editor = new ConfigEditor(context);
  const past = h("ol", { class: "versions" });
  const none = h("p", { class: "empty", hidden: true }, "It has not been changed yet.");
  let now: Version | undefined;
  edit.addEventListener("click", () => now !== undefined && editor.open(now));
  return {
    title: "Config",
    element: h(
      "div",
      { class: "config" },
      h("div", { class: "title" }, h("h1", {}, "Config"), about, h("span", { class: "gap" }), edit),
      h(
        "section",
        { class: "panel", "aria-label": "Worker settings" },
        h("h2", {}, "Worker settings"),
        current,
        editor.element,
      ),
      h("section", { class: "panel", "aria-label": "History" }, h("h2", {}, "History"), past, none),
    ),
    refresh: async (signal) => {
      now = await ask("config", {}, { signal, shared: true });
      const { versions } = await ask("configHistory", {}, { signal, shared: true });
      setText(current, toJson(now.settings));
      setText(about, now.version === 0 ? "not set" : `version ${now.version}, ${ago(now.changed)}`);
      set(none, "hidden", versions.length > 0);
      updateRows(
        past,
        versions,
        ({ version }) => version,
        (one) => versionRow(one, before(versions, one)),
        (row, one) => {
          const time = row.querySelector("time");
          if (time !== null) setText(time, ago(one.changed));
        },
      );
    },
  };
};

const before = (versions: readonly Version[], { version }: Version): Version | undefined =>
  versions.find((one) => one.version === version - 1);

function versionRow(version: Version, earlier: Version | undefined): HTMLLIElement {
  const lines = h("pre", { class: "diff" });
  for (const { sign, text } of difference(earlier?.settings ?? {}, version.settings)) {
    lines.append(
      h("span", { class: sign === "+" ? "added" : sign === "-" ? "removed" : undefined }, `${sign} ${text}\n`),
    );
  }
  return h(
    "li",
    {},
    h(
      "div",
      { class: "title" },
      h("b", {}, `version ${version.version}`),
      h("time", { title: moment(version.changed) }),
    ),
    lines,
  );
}

/** Member by member, without those that are equal. */
function difference(a: object, b: object): { sign: "+" | "-" | " "; text: string }[] {
  const [old, fresh] = [new Map(Object.entries(a)), new Map(Object.entries(b))];
  const found: { sign: "+" | "-" | " "; text: string }[] = [];
  for (const name of [...new Set([...old.keys(), ...fresh.keys()])].sort()) {
    const [was, is] = [old.get(name), fresh.get(name)].map((value) =>
      value === undefined ? undefined : JSON.stringify(value),
    );
    if (was === is) continue;
    if (was !== undefined) found.push({ sign: "-", text: `${name}: ${was}` });
    if (is !== undefined) found.push({ sign: "+", text: `${name}: ${is}` });
  }
  return found.length === 0 ? [{ sign: " ", text: "no difference" }] : found;
}

class ConfigEditor {
  readonly element = h("form", { class: "editor", hidden: true });
  readonly #context: PageContext;
  readonly #text = h("textarea", { rows: 12, spellcheck: "false", "aria-label": "Settings as JSON" });
  readonly #wrong = h("p", { class: "bad", role: "alert" });
  #expectedVersion = 0;

  constructor(context: PageContext) {
    this.#context = context;
    const back = h("button", { type: "button", class: "button", onclick: () => this.#close() }, "Back");
    this.element.append(
      this.#text,
      this.#wrong,
      h("div", { class: "answers" }, back, h("button", { class: "button main" }, "Set")),
    );
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#set();
    });
  }

  open({ version, settings }: Version): void {
    this.#expectedVersion = version;
    this.#text.value = toJson(settings);
    setChildren(this.#wrong);
    this.element.hidden = false;
    this.#text.focus();
  }

  #close(): void {
    this.element.hidden = true;
  }

  async #set(): Promise<void> {
    let settings: unknown;
    try {
      settings = JSON.parse(this.#text.value);
    } catch (cause) {
      setText(this.#wrong, `This is not JSON: ${cause instanceof Error ? cause.message : cause}`);
      return;
    }
    const answer = await confirmDialog({
      title: "Apply these settings?",
      text: "Connected workers get them at once, others when they join.",
      confirmLabel: "Set",
    });
    if (answer === undefined) return;
    const input = { settings: settings as Version["settings"], expectedVersion: this.#expectedVersion };
    if (await runAction(this.#context, "configSet", input, ({ version }) => `version ${version} is set`)) this.#close();
  }
}
