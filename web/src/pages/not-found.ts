import type { MakePage } from "../desk.js";
import { h } from "../dom.js";
import { address } from "../place.js";

export const notFoundPage: MakePage = () => ({
  title: "Not found",
  element: h(
    "div",
    {},
    h("h1", {}, "There is nothing here"),
    h("p", {}, h("a", { href: address([]) }, "To the overview")),
  ),
  look: async () => {},
  everyMs: 3_600_000,
});
