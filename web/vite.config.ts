/** The dashboard becomes a few files in dist/web, which the broker serves below /ui/. */
import { defineConfig } from "vite";

export default defineConfig({
  base: "/ui/",
  logLevel: "warn",
  build: {
    outDir: "../dist/web",
    emptyOutDir: true,
    target: "es2023",
    // Those that know light-dark(): older ones would get every colour twice.
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    modulePreload: { polyfill: false },
    // The policy allows no data: addresses.
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    // The licences of bundled packages ask to be shipped with their code.
    license: { fileName: "THIRD-PARTY-NOTICES.md" },
  },
});
