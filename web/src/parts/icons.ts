/** Line drawings of 16 by 16, in the colour of the surrounding text. */
import { svg } from "../dom.js";

const PATHS: Readonly<Record<string, string>> = {
  overview: "M2 13V3m0 10h12M5 10l3-4 2.5 2.5L14 4",
  jobs: "M2.5 4h11M2.5 8h11M2.5 12h7",
  schedules: "M8 2a6 6 0 1 0 0 12a6 6 0 1 0 0-12M8 5v3l2.5 1.5",
  workers: "M2.5 3.5h11v6h-11zM6 12.5h4M8 9.5v3",
  allocators: "M2.5 11h5v2.5h-5zM8.5 11h5v2.5h-5zM5.5 7h5v2.5h-5zM8 1.5v4M6 3.5l2-2 2 2",
  services: "M8 2.5v3M8 10.5v3M2.5 8h3M10.5 8h3M8 5.5a2.5 2.5 0 1 0 0 5a2.5 2.5 0 1 0 0-5",
  limits: "M2.5 12a5.5 5.5 0 1 1 11 0M8 12l3-4",
  brokers: "M8 2l5 3v6l-5 3-5-3V5zM8 8v6M8 8l5-3M8 8L3 5",
  config: "M3 4.5h6M12 4.5h1M3 11.5h1M7 11.5h6M10.5 3v3M5.5 10v3",
  connections: "M3 2.5v11M13 2.5v11M3 5.5h8.5l-2-2m2 2l-2 2M13 10.5H4.5l2-2m-2 2l2 2",
  light:
    "M8 5.2a2.8 2.8 0 1 0 0 5.6a2.8 2.8 0 1 0 0-5.6M8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1",
  dark: "M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5",
  system: "M2.5 3h11v7.5h-11zM6 13.5h4",
  close: "M4 4l8 8M12 4l-8 8",
  check: "M3 8.5l3 3 7-7",
  next: "M6 3.5L10.5 8 6 12.5",
};

export function icon(name: string): SVGElement {
  return svg(
    "svg",
    { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true", class: "icon" },
    svg("path", { d: PATHS[name] ?? "", fill: "none", stroke: "currentColor", "stroke-width": 1.4 }),
  );
}
