package requeststore

import (
	"errors"
	"os"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/VictoriaMetrics/VictoriaLogs/lib/logstorage"
)

func TestFilterErrorsSayWhereAndWhat(t *testing.T) {
	for _, c := range []struct {
		filter string
		at     int
		what   string
	}{
		{"ttft>fast", 5, "ms, s, m or h"},
		{"ttft>1k", 5, "ms, s, m or h"},
		{"tokens>1ms", 7, "k or M"},
		{"step:40 ttft~5", 12, "is a number"},
		{"engine>a", 6, "is text"},
		{"step:40 colour:red", 8, `no field "colour"`},
		{`rid:"abc`, 4, "not closed"},
		{"ttft>", 5, "a value is expected"},
		{"step:40 -", 9, `directly after "-"`},
		{"and step:40", 0, `before "and"`},
		{"step:40 and", 11, `after "and"`},
		{"step:40 or step:41", 8, `no "or"`},
		{"model~(", 6, "missing closing"},
		{"ttft>NaN", 5, "a number"},
		{"ttft>inf", 5, "a number"},
		{"ttft>0x10", 5, "a number"},
		{"ttft>1e999", 5, "a number"},
		{"\xff", 0, "UTF-8"},
		{`"😀" colour:red`, 5, "no field"}, // in UTF-16, as a page counts
		{strings.Repeat("a ", 65), 128, "at most 64"},
		{strings.Repeat("a", 5000), 0, "at most 4096"},
	} {
		_, err := Filter(c.filter)
		var f *FilterError
		if !errors.As(err, &f) || f.At != c.at || !strings.Contains(f.What, c.what) {
			t.Errorf("%.40q: %+v, want %d %q", c.filter, err, c.at, c.what)
		}
	}
}

// parses says whether LogsQL takes a filter where a query has it, and as one part of that query: what stands
// behind it must still stand alone.
func parses(t *testing.T, filter string) bool {
	t.Helper()
	q, err := logstorage.ParseQuery(requestRows + " (" + filter + `) "into":="" | fields a, b`)
	if err != nil {
		if strings.Contains(err.Error(), "regexp") { // too large a one; the API says so
			return true
		}
		t.Errorf("%q is not LogsQL: %v", filter, err)
		return false
	}
	if s := q.String(); !strings.HasSuffix(s, "| fields a, b") || strings.Count(s, "| fields a, b") != 1 {
		t.Errorf("%q changed the query: %s", filter, s)
		return false
	}
	return true
}

// FuzzFilter: whatever a person writes is one filter of LogsQL or an error with a place in it.
func FuzzFilter(f *testing.F) {
	for _, s := range []string{
		`ttft>5s step:40 engine:"10.0.0.1:30000" outcome:error -finish:stop rid:abc run=exp1 model~qwen.*chat`,
		`"*" or row:x | delete`, `rid:"\") or (id:*" `, "error:none queue:any e2e>=300ms tokens<1.5k", "phase.decode_forward>1m", "-\"a b\" and 'x'",
		"rid:`x` | fields id", "{row=\"log\"}", "rid:=*", "rid~\"a|b\"", "step:4e1", "_time:5m", "\x00", "rid:\\", "rid:)", "trace:(", "a\u2028b",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out, err := Filter(s)
		if err != nil {
			var e *FilterError
			if !errors.As(err, &e) || e.What == "" || e.At < 0 || e.At > len(utf16.Encode([]rune(s))) {
				t.Errorf("%q: %#v", s, err)
			}
			return
		}
		if out != "" {
			parses(t, out)
		}
	})
}

// The page of the docs has the fields of text that a filter knows.
func TestDocsHaveTheFields(t *testing.T) {
	const path = "../../docs/requests.md"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| field | of rows | |\n|---|---|---|\n")
	for _, f := range words {
		want.WriteString("| `" + f.name + "` | `" + f.stored + "` | " + f.hint + " |\n")
	}
	text := string(b)
	const open, end = "<!-- words -->\n", "<!-- /words -->"
	from, to := strings.Index(text, open)+len(open), strings.Index(text, end)
	if from < len(open) || to < from {
		t.Fatalf("%s has no place for the fields", path)
	}
	if text[from:to] != want.String() {
		if !*update {
			t.Errorf("the fields of %s are not the program's (go test -update writes them)", path)
		} else if err := os.WriteFile(path, []byte(text[:from]+want.String()+text[to:]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range Groups {
		if !strings.Contains(text, "`"+g+"`") {
			t.Errorf("%s does not name the group %s", path, g)
		}
	}
}
