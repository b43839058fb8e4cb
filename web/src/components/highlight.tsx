// PromQL in colours: kinds of words, and a wavy line under what the server did not understand.
import { lex } from "../promql/lex";

export interface Mark {
  from: number;
  to: number;
}

export function Highlight({ text, mark }: { text: string; mark?: Mark | null }) {
  return (
    <>
      {lex(text).map((t) => {
        const hit = mark && t.from < mark.to && t.to > mark.from;
        return (
          <span key={t.from} class={`tok tok-${t.kind}${hit ? " tok-error" : ""}`}>
            {t.text}
          </span>
        );
      })}
    </>
  );
}
