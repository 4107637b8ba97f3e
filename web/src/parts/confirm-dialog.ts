/** A question before something is done that cannot be undone by itself: what will happen, in words, and two answers. */
import { h } from "../dom.js";

export interface ConfirmOptions {
  readonly title: string;
  readonly text: string;
  /** What the answer that does it says: a verb. */
  readonly confirmLabel: string;
  readonly destructive?: boolean;
  /** Asks for a line of text as well. */
  readonly reasonLabel?: string;
}

/** The text that was given, empty if none was asked for; undefined where the answer was no. */
export function confirmDialog({ title, text, confirmLabel: yes, destructive: grave = false, reasonLabel: reason }: ConfirmOptions): Promise<string | undefined> {
  return new Promise((resolve) => {
    const input = reason === undefined ? undefined : h("input", { type: "text", class: "wide", maxlength: 500 });
    // The only submit button, so that Enter in the line of text means it.
    const dialog = h(
      "dialog",
      { class: "question", "aria-labelledby": "question-title", "aria-describedby": "question-text" },
      h(
        "form",
        { method: "dialog" },
        h("h2", { id: "question-title" }, title),
        h("p", { id: "question-text" }, text),
        input !== undefined && h("label", { class: "field" }, h("span", {}, reason ?? ""), input),
        h(
          "div",
          { class: "answers" },
          h(
            "button",
            { type: "button", class: "button", autofocus: true, onclick: () => dialog.close("no") },
            "Leave it",
          ),
          h("button", { type: "submit", value: "yes", class: `button ${grave ? "grave" : "main"}` }, yes),
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
