package span

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/request"
)

var update = flag.Bool("update", false, "write the golden files anew")

// parseTree reads a trace written for people. A line is a span, indented by two blanks below its parent:
//
//	start duration service: name || key=value key=value
//
// in ms. Names with blanks at their ends stand in quotes. After the bars: "x40" repeats the span so often,
// one after the other; "error=..." fails it; "event:name@ms", "link=n" (the span of line n), "host=...",
// "trace=n", "id=n", "parent=n" (n may be a span that is not there), "dropped=n"; "key:int=", "key:float=",
// "key:bool=" and "key:json=" are typed attributes, "~" in a value is a blank. Lines with # are comments.
func parseTree(t testing.TB, text []byte) []Span {
	t.Helper()
	const base = 1780000000000000000
	var out []Span
	var path []ID
	next := uint64(1)
	sc := bufio.NewScanner(bytes.NewReader(text))
	for line := 1; sc.Scan(); line++ {
		row := strings.TrimLeft(sc.Text(), " ")
		if row == "" || row[0] == '#' {
			continue
		}
		depth := (len(sc.Text()) - len(row)) / 2
		row, extra, _ := strings.Cut(row, " || ")
		parts := strings.SplitN(strings.TrimSpace(row), " ", 3)
		if len(parts) < 3 {
			t.Fatalf("line %d: %q", line, sc.Text())
		}
		start, err1 := strconv.ParseFloat(parts[0], 64)
		dur, err2 := strconv.ParseFloat(parts[1], 64)
		service, name, ok := strings.Cut(parts[2], ": ")
		if err1 != nil || err2 != nil || !ok {
			t.Fatalf("line %d: %q", line, sc.Text())
		}
		if name[0] == '"' {
			name, _ = strconv.Unquote(name)
		}
		s := Span{Header: Header{Name: name, Start: base + int64(start*1e6), End: base + int64((start+dur)*1e6), Kind: 1}, Service: service, ScopeName: "made"}
		s.Trace = TraceID{15: 0xa1}
		binary.BigEndian.PutUint64(s.ID[:], next)
		next++
		s.Resource = []Attr{{"service.name", Value{Text, service}}}
		if depth > len(path) {
			t.Fatalf("line %d: too deep", line)
		}
		if path = path[:depth]; depth > 0 {
			s.Parent = path[depth-1]
		}
		repeat := 1
		for _, w := range strings.Fields(extra) {
			key, v, _ := strings.Cut(w, "=")
			v = strings.ReplaceAll(v, "~", " ")
			n, _ := strconv.ParseUint(v, 10, 64)
			switch {
			case w[0] == 'x' && v == "":
				repeat, _ = strconv.Atoi(w[1:])
			case key == "error":
				s.Status, s.StatusMessage = Failed, v
			case strings.HasPrefix(w, "event:"):
				what, at, _ := strings.Cut(w[6:], "@")
				ms, _ := strconv.ParseFloat(at, 64)
				s.Events = append(s.Events, Event{Time: base + int64(ms*1e6), Name: what})
			case key == "link":
				l := Link{Trace: s.Trace}
				binary.BigEndian.PutUint64(l.ID[:], n)
				s.Links = append(s.Links, l)
			case key == "host":
				s.Resource = append(s.Resource, Attr{"host.name", Value{Text, v}})
			case key == "trace":
				s.Trace = TraceID{15: byte(n)}
			case key == "id":
				binary.BigEndian.PutUint64(s.ID[:], n)
			case key == "parent":
				binary.BigEndian.PutUint64(s.Parent[:], n)
			case key == "dropped":
				s.DroppedAttrs = uint32(n)
			default:
				key, kind, _ := strings.Cut(key, ":")
				typ := map[string]Type{"": Text, "bool": Bool, "int": Int, "float": Float, "json": JSON}[kind]
				s.Attrs = append(s.Attrs, Attr{key, Value{typ, v}})
			}
		}
		path = append(path, s.ID)
		out = append(out, s)
		for i := 1; i < repeat; i++ {
			s.Start, s.End = s.End, s.End+s.End-s.Start
			binary.BigEndian.PutUint64(s.ID[:], next)
			next++
			out = append(out, s)
		}
	}
	return out
}

func ms(ns int64) string { return strconv.FormatFloat(float64(ns)/1e6, 'f', -1, 64) }

// renderTree is all that is known of a trace, for golden files.
func renderTree(tr *Tree) string {
	var b strings.Builder
	service := func(i int) string {
		if s := tr.Of(i); s != nil {
			return s.Service
		}
		return ""
	}
	b.WriteString("tree\n")
	for _, r := range tr.Rows(0) {
		n := &tr.Nodes[r.Node]
		line := strings.Repeat("  ", r.Depth+1)
		if sv := service(r.Node); sv != "" && (n.Parent < 0 || service(n.Parent) != sv) {
			line += sv + ": "
		}
		line += strings.TrimSpace(tr.Name(r.Node))
		if f := r.Fold; f != nil {
			line += fmt.Sprintf(" x%d sum %s p50 %s p99 %s max %s from %s to %s", f.Count, ms(f.Sum), ms(f.P50), ms(f.P99), ms(f.Max), ms(f.Start-tr.Start), ms(f.End-tr.Start))
			if f.Critical {
				line += " critical " + ms(f.SumCritical)
			}
		} else {
			line += fmt.Sprintf(" [%s +%s self %s]", ms(n.Start-tr.Start), ms(n.End-n.Start), ms(n.Self))
			if len(n.Flags.Names()) > 0 {
				line += " " + strings.Join(n.Flags.Names(), ",")
			}
		}
		b.WriteString(line + "\n")
	}
	fmt.Fprintf(&b, "trace %s ms, %d nodes, %d roots, flags %v\n", ms(tr.Duration()), len(tr.Nodes), len(tr.Roots), tr.FlagNames())
	for _, p := range tr.Problems {
		fmt.Fprintf(&b, "problem %s: %s\n", p.Code, p.Message)
	}
	b.WriteString("critical path\n")
	for _, s := range tr.Critical {
		if len(tr.Critical) < 30 {
			fmt.Fprintf(&b, "  %s..%s %s\n", ms(s.Start-tr.Start), ms(s.End-tr.Start), strings.TrimSpace(tr.Name(s.Node)))
		}
	}
	names := map[string]int64{}
	for i := range tr.Spans {
		names[tr.Spans[i].Name]++
	}
	if l := LevelOf(names); l.Spans > 0 {
		fmt.Fprintf(&b, "level %d (%s) of %d requests, %d spans %v\n", l.Level, l.Generation, l.Requests, l.Spans, l.ByLevel)
	}
	for _, r := range tr.Roots {
		parts, rest := tr.Parts(r)
		fmt.Fprintf(&b, "parts of %s\n", strings.TrimSpace(tr.Name(r)))
		for _, p := range parts {
			fmt.Fprintf(&b, "  %s%s (%s) %s ms in %d from %s\n", strings.Repeat("  ", p.Depth), p.Name, p.Class, ms(p.Time), p.Count, ms(p.Start-tr.Start))
		}
		fmt.Fprintf(&b, "  rest %s ms\n", ms(rest))
	}
	for _, o := range Observe(tr) {
		b.WriteString(renderObservation(tr, &o))
	}
	if s := tr.Session(); s != "" {
		fmt.Fprintf(&b, "session %s\n", s)
	}
	return b.String()
}

func renderObservation(tr *Tree, o *request.Observation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "request of %s, role %q: %s, finish %q, error %q, %s ms from %s, spans %d, final %v, model %q\n", o.Service, o.Role, o.Outcome, o.FinishReason, o.Error,
		ms(o.Finish-o.Start), ms(o.Start-tr.Start), o.Spans, o.Final, o.Model)
	for _, a := range o.Aliases {
		fmt.Fprintf(&b, "  %s %s\n", a.Kind, a.ID)
	}
	numbers := map[string]request.Value{"ttft": o.TTFT, "itl": o.ITL, "e2e": o.E2E, "queue": o.Queue, "prefill": o.Prefill, "transfer": o.Transfer, "decode": o.Decode,
		"prompt": o.PromptTokens, "completion": o.CompletionTokens, "cached": o.CachedTokens, "throughput": o.DecodeThroughput, "retries": o.Retries, "retractions": o.Retractions}
	for i, p := range o.Phases {
		numbers[fmt.Sprintf("phase %d", i)] = p
	}
	var keys []string
	for k := range numbers {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	b.WriteString(" ")
	for _, k := range keys {
		switch v := numbers[k]; v.State {
		case request.Known:
			fmt.Fprintf(&b, " %s=%.6g", k, v.V)
		case request.Invalid:
			fmt.Fprintf(&b, " %s=invalid(%g)", k, v.V)
		}
	}
	if o.Streaming != nil {
		fmt.Fprintf(&b, " streaming=%v", *o.Streaming)
	}
	if len(o.Flags) > 0 {
		fmt.Fprintf(&b, " flags=%v", o.Flags)
	}
	b.WriteString("\n")
	return b.String()
}

// TestTrees compares all that is made of the traces in testdata/trees with what stands beside them.
func TestTrees(t *testing.T) {
	files, _ := filepath.Glob("testdata/trees/*.txt")
	if len(files) == 0 {
		t.Fatal("no traces")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			spans := parseTree(t, text)
			got := renderTree(NewTree(spans))
			// The order in which spans come changes nothing.
			for i, j := 0, len(spans)-1; i < j; i, j = i+1, j-1 {
				spans[i], spans[j] = spans[j], spans[i]
			}
			if again := renderTree(NewTree(spans)); again != got {
				t.Errorf("another order of spans gives another tree:\n%s\nfirst:\n%s", again, got)
			}
			golden := strings.TrimSuffix(file, ".txt") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s:\n%s\nwant:\n%s", file, got, want)
			}
		})
	}
}
