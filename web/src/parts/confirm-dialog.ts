/** A dialog before an action: what will happen, and two buttons. */
import { h } from "../dom.js";

interface ConfirmOptions {
  readonly title: string;
  readonly text: string;
  /** The label of the button that confirms: a verb. */
  readonly confirmLabel: string;
  readonly destructive?: boolean;
  /** Asks for a line of text as well. */
  readonly reasonLabel?: string;
}

/** The text that was entered, empty if none was requested; undefined if the user went back. */
export function confirmDialog({
  title,
  text,
  confirmLabel,
  destructive = false,
  reasonLabel,
}: ConfirmOptions): Promise<string | undefined> {
  return new Promise((resolve) => {
    const input = reasonLabel === undefined ? undefined : h("input", { type: "text", class: "wide", maxlength: 500 });
    // The only submit button, so that Enter in the line of text presses it.
    const dialog = h(
      "dialog",
      { class: "question", "aria-labelledby": "question-title", "aria-describedby": "question-text" },
      h(
        "form",
        { method: "dialog" },
        h("h2", { id: "question-title" }, title),
        h("p", { id: "question-text" }, text),
        input !== undefined && h("label", { class: "field" }, h("span", {}, reasonLabel ?? ""), input),
        h(
          "div",
          { class: "answers" },
          h("button", { type: "button", class: "button", autofocus: true, onclick: () => dialog.close("no") }, "Back"),
          h(
            "button",
            { type: "submit", value: "yes", class: `button ${destructive ? "destructive" : "main"}` },
            confirmLabel,
          ),
        ),
      ),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes" ? (input?.value.trim() ?? "") : undefined);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
