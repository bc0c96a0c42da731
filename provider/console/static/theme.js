// Sets the chosen colours before the first paint. "auto" follows the system.
(() => {
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch { /* Storage may be off. The page then follows the system. */ }
})();
