package logsql

import (
	"errors"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/VictoriaLogs/lib/logstorage"
)

func TestFromLogQL(t *testing.T) {
	for in, want := range map[string]string{
		`{namespace="llm",app="sglang-7b"} |~ "preempt|OOM|abort|hang"`: `"row":="log" "namespace":="llm" ("app":="sglang-7b" or "service":="sglang-7b") "_msg":~"preempt|OOM|abort|hang"`,
		`{}`:                                          `"row":="log"`,
		`{a=~"b.*", c!="d", e!~"f",}`:                 `"row":="log" "a":~"^(?:b.*)$" !("c":="d") !("e":~"^(?:f)$")`,
		`{a="b"} |= "x[1]" != "y" !~ "z"`:             `"row":="log" "a":="b" "_msg":~"x\\[1\\]" !("_msg":~"y") !("_msg":~"z")`,
		`{a="b"} |= "x" or "y"`:                       `"row":="log" "a":="b" ("_msg":~"x" or "_msg":~"y")`,
		"{a=\"b\"} |= `q\"uote`":                      `"row":="log" "a":="b" "_msg":~"q\"uote"`,
		`{a="b"} | json | level="error" |= "x"`:       `"row":="log" "a":="b" | unpack_json | filter "level":="error" | filter "_msg":~"x"`,
		`{a="b"} | logfmt | took > 5s and n!=3`:       `"row":="log" "a":="b" | unpack_logfmt | filter ("took":>5s and !("n":="3"))`,
		`{a="b"} | level=~"err.*" or x="y"`:           `"row":="log" "a":="b" ("level":~"^(?:err.*)$" or "x":="y")`,
		`{a="b"} | keep rid, level`:                   `"row":="log" "a":="b" | fields _time, _msg, "rid", "level"`,
		`count_over_time({a="b"} |= "x" [5m])`:        `"row":="log" "a":="b" "_msg":~"x" | stats by (_time:5m) count() as value | sort by (_time)`,
		`sum by (engine) (rate({a="b"}[1m]))`:         `"row":="log" "a":="b" | stats by (_time:1m, "engine") rate() as value | sort by (_time)`,
		`topk(3, sum(count_over_time({a="b"}[1h])) )`: `"row":="log" "a":="b" | stats by (_time:1h) count() as value | sort by (value desc) limit 3`,
	} {
		got, err := FromLogQL(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
		if _, err := logstorage.ParseQuery(got); err != nil {
			t.Errorf("%s: the store does not understand the translation %s: %v", in, got, err)
		}
	}
}

func TestFromLogQLRefuses(t *testing.T) {
	for in, want := range map[string]string{
		``:                                    "a selector in braces",
		`{a=b}`:                               "a text in quotes",
		`{a="b"`:                              "a comma or }",
		`{="b"}`:                              "the name of a label",
		`{a "b"}`:                             "one of = != =~ !~",
		`{a="b"} | pattern "<_>"`:             "pattern is not translated",
		`{a="b"} | line_format "{{.x}}"`:      "line_format is not translated",
		`{a="b"} |> "<_> x"`:                  "pattern filters",
		`{a="b"} extra`:                       "this is not translated",
		`quantile_over_time(0.9, {a="b"})`:    "quantile_over_time is not translated",
		`rate({a="b"})`:                       "a range in brackets",
		`sum without (x) (rate({a="b"}[1m]))`: "name the labels with by",
	} {
		_, err := FromLogQL(in)
		var e *SyntaxError
		if !errors.As(err, &e) || !strings.Contains(e.Error(), want) {
			t.Errorf("%s: %v does not say %q", in, err, want)
		}
	}
}

func TestLooksLikeLogQL(t *testing.T) {
	for q, want := range map[string]bool{
		`{app="x"} |~ "y"`: true, `{app="x"} |= "y"`: true, `rate({app="x"}[5m])`: true,
		`{app="x"}`: false, `{app="x"} error | stats count()`: false, `error`: false, `"{a}"`: false, `_time:5m`: false,
	} {
		if got := LooksLikeLogQL(q); got != want {
			t.Errorf("%s: %v", q, got)
		}
	}
}

// Whatever stands in a name or a value, it stays one literal.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{``, `a" or row:*`, "x\x00\xff\n", `\`, "`", `*`, `a:b`, `|`, "\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, q := range []string{Equal(s+"x", s), Equal("a", s), Not(Contains("_msg", s))} {
			parsed, err := logstorage.ParseQuery(q + ` | delete z`)
			if err != nil {
				t.Fatalf("%q: %v", q, err)
			}
			if !strings.HasSuffix(parsed.String(), "| delete z") || strings.Count(parsed.String(), " | ") != strings.Count(q, " | ")+1 {
				t.Fatalf("%q became %s", q, parsed)
			}
		}
	})
}

func FuzzLogQL(f *testing.F) {
	f.Add(`{namespace="llm",app="sglang-7b"} |~ "preempt|OOM|abort|hang" | json | a>5 or b="c"`)
	f.Add(`topk(3, sum by (a) (rate({a=~"b"} != "c" [5m])))`)
	f.Fuzz(func(t *testing.T, q string) {
		out, err := FromLogQL(q)
		if err != nil {
			return
		}
		if _, err := logstorage.ParseQuery(out); err != nil && !strings.Contains(err.Error(), "regexp") {
			t.Fatalf("%q became %q, which the store does not understand: %v", q, out, err)
		}
	})
}
