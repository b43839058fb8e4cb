// A field for a filter in words: applied on Enter and after a pause, with what is wrong under it and a
// help that says what can be written.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Popover } from "./popover";

export interface FilterBoxProps {
  value: string;
  label: string;
  placeholder: string;
  /** "push" makes a step for the back button */
  onApply: (text: string, how: "push" | "replace") => void;
  /** what the server did not understand, "" nothing */
  error: string;
  help: ComponentChildren;
}

const PAUSE_MS = 700;

export function FilterBox(p: FilterBoxProps) {
  const text = useSignal(p.value);
  const help = useSignal(false);
  const input = useRef<HTMLInputElement>(null);
  const wait = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => {
    if (text.peek().trim() !== p.value) text.value = p.value;
    clearTimeout(wait.current);
  }, [p.value]);
  useEffect(() => () => clearTimeout(wait.current), []);
  const apply = (how: "push" | "replace") => {
    clearTimeout(wait.current);
    const t = text.value.trim();
    if (t !== p.value) p.onApply(t, how);
  };
  return (
    <span class="fbox anchor">
      <input
        ref={input} type="text" class="mono" spellcheck={false} autocomplete="off" autocapitalize="off" aria-label={p.label} aria-invalid={p.error !== ""} placeholder={p.placeholder} value={text.value}
        onInput={(e) => {
          text.value = e.currentTarget.value;
          clearTimeout(wait.current);
          wait.current = setTimeout(() => apply("replace"), PAUSE_MS);
        }}
        onKeyDown={(e) => {
          if (e.key === "Enter") {
            e.preventDefault();
            apply("push");
          } else if (e.key === "Escape" && text.value !== "") {
            e.preventDefault();
            e.stopPropagation();
            text.value = "";
            apply("push");
          }
        }}
      />
      {text.value !== "" && (
        <button type="button" class="quiet fbox-clear" aria-label="clear the filter" title="clear (Esc)" onClick={() => {
          text.value = "";
          apply("push");
          input.current?.focus();
        }}>×</button>
      )}
      <button type="button" class="btn icon" aria-label="what can be written" title="what can be written" aria-expanded={help.value} onClick={() => (help.value = !help.value)}>?</button>
      {p.error && <span class="fbox-error" role="alert">{p.error}</span>}
      {help.value && <Popover label="what can be written" class="tl-help pop-filter" onClose={() => (help.value = false)}>{p.help}</Popover>}
    </span>
  );
}
