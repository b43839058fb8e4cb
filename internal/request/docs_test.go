package request

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of docs/requests.md")

// The tables of the page are those of the program.
func TestDocs(t *testing.T) {
	const path = "../../docs/requests.md"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for name, want := range map[string]string{"joins": joinTable(), "fields": fieldTable()} {
		open, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
		from, to := strings.Index(text, open)+len(open), strings.Index(text, end)
		if from < len(open) || to < from {
			t.Fatalf("%s has no place for %s", path, name)
		}
		if text[from:to] != want && !*update {
			t.Errorf("the table %s of %s is not the program's (go test -update writes it)", name, path)
		}
		text = text[:from] + want + text[to:]
	}
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, flag := range []string{FlagSkew, FlagQueue, FlagCached, FlagHalf, FlagDisagree, FlagNoTime, FlagInvalid, FlagAmbiguous, FlagEarlierLost, FlagHeadSampled} {
		if !strings.Contains(text, "| `"+flag+"` |") {
			t.Errorf("%s says nothing of %s", path, flag)
		}
	}
}

func joinTable() string {
	var b strings.Builder
	b.WriteString("| equal | proves it with | why |\n|---|---|---|\n")
	for _, r := range JoinRules {
		b.WriteString("| `" + string(r.Kind) + "` | " + r.Needs + " | " + r.Why + " |\n")
	}
	return b.String()
}

func fieldTable() string {
	var b strings.Builder
	b.WriteString("| field | unit | whose word, best first | half | why |\n|---|---|---|---|---|\n")
	line := func(r *FieldRule) {
		half := r.Half.String()
		if half == "either" {
			half = ""
		}
		b.WriteString("| `" + r.Name + "` | " + r.Unit + " | " + strings.Join(r.Order, ", ") + " | " + half + " | " + r.Why + " |\n")
	}
	line(&StartRule)
	for i := range Words {
		line(&Words[i])
	}
	for i := range Numbers {
		line(&Numbers[i])
	}
	return strings.ReplaceAll(b.String(), "trace/,", "trace (no role),")
}
