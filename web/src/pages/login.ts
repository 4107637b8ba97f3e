/** Shown instead of the dashboard to a browser without a session. */
import { h } from "../dom.js";

export function loginPage(message: string): HTMLElement {
  return h(
    "main",
    { class: "login" },
    h("h1", {}, "Log in"),
    h("p", { role: "alert" }, message),
    h("p", {}, "On the machine of the broker, or wherever its address and token are set, run"),
    h("pre", {}, "laboro open"),
    h(
      "p",
      {},
      "and open the link that it prints: it logs this browser in, once, with the role of the token that was used.",
    ),
  );
}
