// What has to be so before anything else is read.

// A page that is wanted dark is never light, not even for a moment.
try {
  const theme = localStorage.getItem("laboro-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the system's own choice holds.
}

// Some systems make browsers name a language that their own number formats refuse; the charts ask for it as they load.
try {
  new Intl.NumberFormat(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en" });
}
