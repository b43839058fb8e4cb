// An id that is shown short or whole, and copied by a press.
import { useSignal } from "@preact/signals";
import { Tool, TOOLS } from "./icons";

export function Copy({ text, label }: { text: string; label: string }) {
  const done = useSignal("");
  const go = async () => {
    try {
      await navigator.clipboard.writeText(text);
      done.value = "copied";
    } catch {
      done.value = "the clipboard is not allowed here";
    }
    setTimeout(() => (done.value = ""), 1500);
  };
  return (
    <button type="button" class="quiet copy" title={`copy ${label}`} aria-label={`copy ${label}`} onClick={(e) => {
      e.preventDefault();
      e.stopPropagation();
      void go();
    }}>
      <Tool d={TOOLS.copy} />
      <span role="status">{done.value}</span>
    </button>
  );
}

/** The beginning and the end of a long id. */
export const short = (id: string, most = 14): string => (id.length <= most ? id : `${id.slice(0, most - 5)}…${id.slice(-4)}`);
