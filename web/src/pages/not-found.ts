import { h } from "../dom.js";
import type { PageFactory } from "../page-context.js";
import { address } from "../route.js";

export const notFoundPage: PageFactory = () => ({
  title: "Not found",
  element: h(
    "div",
    {},
    h("h1", {}, "There is nothing here"),
    h("p", {}, h("a", { href: address([]) }, "To the overview")),
  ),
  refresh: async () => {},
  refreshMs: 3_600_000,
});
