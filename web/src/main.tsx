import { render } from "preact";
import { App, startTitle } from "./app";
import { startKeys } from "./state/keys";
import { startLive } from "./state/live";
import { startTheme } from "./state/theme";
import "./tokens.css";
import "./styles/base.css";
import "./styles/shell.css";
import "./styles/panels.css";
import "./styles/pages.css";
import "./styles/events.css";
import "./styles/passes.css";

startTheme();
startTitle();
startKeys();
startLive();
const root = document.getElementById("app");
if (root) render(<App />, root);
