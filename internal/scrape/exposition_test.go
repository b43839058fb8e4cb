package scrape

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/signal"
)

// captures are recorded expositions that are not part of the repository.
const captures = "../../../shared/fixtures/captures"

// typeIn finds the Content-Type that a capture begins with.
var typeIn = regexp.MustCompile(`^# \(Content-Type: (.*)\)`)

// roughFamilies reads the families of a text another way than Inspect does: by lines and suffixes.
func roughFamilies(text string) []string {
	typed := map[string]string{}
	names := map[string]bool{}
	hasBuckets := map[string]bool{}
	sample := regexp.MustCompile(`^([A-Za-z_:][A-Za-z0-9_:]*)(\{[^}]*\})?\s+\S+`)
	for _, l := range strings.Split(text, "\n") {
		if f := strings.Fields(l); len(f) >= 3 && f[0] == "#" && (f[1] == "TYPE" || f[1] == "HELP") {
			n := signal.Canonical(f[2])
			if f[1] == "TYPE" {
				typed[n] = f[3]
			} else if typed[n] == "" {
				typed[n] = "?"
			}
		} else if m := sample.FindStringSubmatch(l); m != nil {
			n := signal.Canonical(m[1])
			names[n] = true
			if b, ok := strings.CutSuffix(n, "_bucket"); ok && strings.Contains(m[2], `le="`) {
				hasBuckets[b] = true
			}
		}
	}
	out := map[string]bool{}
	for n := range typed {
		if typed[n] == "counter" && names[n+"_total"] {
			n += "_total"
		}
		out[n] = true
	}
	for n := range names {
		if typed[n] != "" {
			continue
		}
		base := n
		for _, s := range []string{"_bucket", "_sum", "_count"} {
			if b, ok := strings.CutSuffix(n, s); ok && (hasBuckets[b] || typed[b] == "histogram" || typed[b] == "summary") {
				base = b
			}
		}
		out[base] = true
	}
	return sortedKeys(out)
}

// Every recorded exposition keeps every family; what is none is called what it is.
func TestCaptures(t *testing.T) {
	if _, err := os.Stat(captures); err != nil {
		t.Skip("the recorded expositions are not here: they are not part of the repository")
	}
	kinds := map[string]Kind{
		"07_smg_issue805_500_body.txt":           KindText,
		"08_smg_issue1993_dp_aware_http.txt":     KindHTTP,
		"13_rl_insight_pr160_headers.txt":        KindText,
		"16_miles_pr2012_dp_imbalance.txt":       KindText,
		"03_issue26248_collapse_abbreviated.log": KindText,
	}
	backends := map[string]engine.Backend{
		"06_smg_pr813_engine_metrics_real.prom": engine.EngineMetrics,
		"17_v1_loads_format_prometheus.prom":    engine.SGLangLoads,
		"metrics_frontend.prom":                 engine.DynamoFrontend,
		"metrics_sglang_worker.prom":            engine.DynamoWorker,
		"09a_gateway_fixture_worker_in.prom":    engine.SGLang,
		"01_sglang_docs_example.prom":           engine.SGLang,
	}
	n := 0
	for _, dir := range []string{"sglang/metrics", "dynamo"} {
		err := filepath.WalkDir(filepath.Join(captures, dir), func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			file := filepath.Base(p)
			want, odd := kinds[file]
			if !odd && filepath.Ext(p) != ".prom" && !strings.HasPrefix(file, "90_") {
				return nil
			}
			n++
			text := read(t, p)
			ct := ""
			if m := typeIn.FindStringSubmatch(text); m != nil {
				// The line is its collector's note; OpenMetrics has no free comments.
				ct, text = m[1], text[strings.IndexByte(text, '\n')+1:]
			}
			e := Inspect([]byte(text), ct)
			if odd {
				if e.Kind != want || len(e.Families) != 0 {
					t.Errorf("%s is taken for %s with %d families, want %s", file, e.Kind, len(e.Families), want)
				}
				return nil
			}
			if e.Kind != KindExposition {
				t.Errorf("%s is taken for %s", file, e.Kind)
				return nil
			}
			var rough []string
			if e.Backend == engine.SGLangLoads {
				for _, f := range e.Families {
					if strings.Contains(f.Name, ":") {
						t.Errorf("%s: %s was renamed although the load report means something else", file, f.Name)
					}
				}
				return nil
			}
			rough = roughFamilies(text)
			got := e.Names()
			slices.Sort(got)
			if !slices.Equal(got, rough) {
				t.Errorf("%s: families\n%v\nwant\n%v", file, got, rough)
			}
			if b, ok := backends[file]; ok && e.Backend != b {
				t.Errorf("%s is taken for %q, want %q", file, e.Backend, b)
			}
			if e.BadLines > 0 {
				t.Errorf("%s: %d bad lines: %+v", file, e.BadLines, e.Findings)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n < 20 {
		t.Errorf("only %d captures were read", n)
	}
}

func TestCaptureLogsAreNoExpositions(t *testing.T) {
	logs, err := filepath.Glob(filepath.Join(captures, "sglang/logs/*.log"))
	if err != nil || len(logs) == 0 {
		t.Skip("the recorded logs are not here: they are not part of the repository")
	}
	for _, p := range logs {
		if e := Inspect([]byte(read(t, p)), "text/plain"); e.Kind != KindText {
			t.Errorf("%s is taken for %s", filepath.Base(p), e.Kind)
		}
	}
}

func TestKinds(t *testing.T) {
	for _, tt := range []struct {
		name, body, ctype string
		want              Kind
	}{
		{"nothing", "", "text/plain", KindEmpty},
		{"blank", "\n \n", "text/plain", KindEmpty},
		{"comment", "# hello\n", "text/plain", KindEmpty},
		{"only EOF", "# EOF\n", "application/openmetrics-text; version=1.0.0", KindEmpty},
		{"headers only", "# HELP a b\n# TYPE a gauge\n", "text/plain", KindEmpty},
		{"html", "<html>login</html>", "text/html", KindHTML},
		{"html as text", "<!doctype html>\n<p>x", "text/plain", KindHTML},
		{"json", `{"detail":"Not Found"}`, "application/json", KindJSON},
		{"json as text", `{"status":"ready"}`, "text/plain", KindJSON},
		{"list", `[1,2]`, "", KindJSON},
		{"words", "OK\n", "text/plain", KindText},
		{"error", "All backend requests failed", "text/plain", KindText},
		{"binary", "\x1f\x8b\x08\x00\x00", "text/plain", KindBinary},
		{"one sample", "up 1\n", "text/plain", KindExposition},
		{"no newline", "up 1", "text/plain", KindExposition},
		{"mostly bad", "up 1\nso sad\nso bad\n", "text/plain", KindText},
		{"bad with a type", "# TYPE up gauge\nup 1\nso sad\nso bad\n", "text/plain", KindExposition},
		{"html at the path of openmetrics", "<html>", "application/openmetrics-text", KindHTML},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if e := Inspect([]byte(tt.body), tt.ctype); e.Kind != tt.want {
				t.Errorf("kind %s, want %s (%+v)", e.Kind, tt.want, e)
			}
		})
	}
}

// codes lists finding codes with lines.
func codes(e Exposition) []string {
	var out []string
	for _, f := range e.Findings {
		out = append(out, fmt.Sprintf("%s:%d", f.Code, f.Line))
	}
	return out
}

func TestFindings(t *testing.T) {
	const om = "application/openmetrics-text; version=1.0.0; charset=utf-8"
	for _, tt := range []struct {
		name, body, ctype string
		want              []string
	}{
		{"clean", "# TYPE a gauge\na 1\n", "text/plain", nil},
		{"bad line", "# TYPE a gauge\na 1\nb c d\na{x=\"1\"} 2\n", "text/plain", []string{"bad_line:3"}},
		{"unclosed quote", "# TYPE a gauge\na{x=\"1} 1\na{x=\"2\"} 2\n", "text/plain", []string{"bad_line:2"}},
		{"bad type", "# TYPE a guage\na 1\n", "text/plain", []string{"bad_line:1", "no_type:2"}},
		{"type conflict", "# TYPE a gauge\na 1\n# TYPE a counter\na{x=\"1\"} 2\n", "text/plain", []string{"type_conflict:3"}},
		{"mixed names", "# HELP sglang:token_usage u\n# TYPE sglang:token_usage gauge\nsglang_token_usage 42\n", "text/plain", []string{"mixed_names:1"}},
		{"mixed counter", "# TYPE sglang:x counter\nsglang_x_total 1\n# EOF\n", om, []string{"mixed_names:1"}},
		{"plain OpenMetrics counter", "# TYPE x counter\nx_total 1\n# EOF\n", om, nil},
		{"cut off", "# TYPE x gauge\nx 1\n", om, []string{"no_eof:2"}},
		{"le", "# TYPE a histogram\na_bucket{le=\"1\"} 1\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n", "text/plain", []string{"le_spelling:2"}},
		{"quantile", "# TYPE a summary\na{quantile=\"0.50\"} 1\na_sum 1\na_count 1\n", "text/plain", []string{"quantile_spelling:2"}},
		{"one bucket twice", "# TYPE a histogram\na_bucket{le=\"1\"} 1\na_bucket{le=\"1.0\"} 2\na_bucket{le=\"+Inf\"} 2\na_count 2\n", "text/plain", []string{"le_spelling:2", "duplicate_series:3"}},
		{"not monotone", "# TYPE a histogram\na_bucket{le=\"1.0\"} 5\na_bucket{le=\"2.0\"} 3\na_bucket{le=\"+Inf\"} 5\na_count 5\n", "text/plain", []string{"not_monotone:2"}},
		{"no inf", "# TYPE a histogram\na_bucket{le=\"1.0\"} 5\na_count 5\n", "text/plain", []string{"no_inf_bucket:2"}},
		{"count differs", "# TYPE a histogram\na_bucket{le=\"+Inf\"} 5\na_count 6\n", "text/plain", []string{"count_differs:2"}},
		{"two layouts", "# TYPE a histogram\na_bucket{m=\"1\",le=\"1.0\"} 5\na_bucket{m=\"1\",le=\"+Inf\"} 5\na_bucket{m=\"2\",le=\"2.0\"} 5\na_bucket{m=\"2\",le=\"+Inf\"} 5\n", "text/plain", []string{"bucket_layouts:4"}},
		{"bad bound", "# TYPE a histogram\na_bucket{le=\"one\"} 5\na_bucket{le=\"+Inf\"} 5\n", "text/plain", []string{"bad_bound:2"}},
		{"nan", "# TYPE a gauge\na NaN\n", "text/plain", []string{"nan:2"}},
		{"heat map", "# TYPE a gauge\na{gt=\"1\",le=\"2\"} 1\n", "text/plain", []string{"gt_le_gauge:2"}},
		{"pid", "# TYPE sglang:a gauge\nsglang:a{pid=\"7\"} 1\n", "text/plain", []string{"pid_label:2"}},
		{"own time", "# TYPE a gauge\na 1 1780000000000\n", "text/plain", []string{"timestamps:2"}},
		{"two spellings", "# TYPE sglang:a gauge\nsglang:a 1\nsglang_b 2\n", "text/plain", []string{"mixed_spelling:0", "no_type:3"}},
		{"idle rank", "# TYPE sglang:gen_throughput gauge\nsglang:gen_throughput{dp_rank=\"0\"} 9\nsglang:gen_throughput{dp_rank=\"1\"} 0\n", "text/plain", []string{"idle_ranks:3"}},
		{"histogram without buckets", "# TYPE a histogram\na_sum 1\na_count 1\n", "text/plain", []string{"type_mismatch:1"}},
		{"gauge with buckets", "# TYPE a gauge\na 1\na_bucket{le=\"1.0\"} 1\na_bucket{le=\"+Inf\"} 1\n", "text/plain", []string{"type_mismatch:1", "no_type:3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := Inspect([]byte(tt.body), tt.ctype)
			if got := codes(e); !slices.Equal(got, tt.want) {
				t.Errorf("findings %v, want %v\n%+v", got, tt.want, e.Findings)
			}
		})
	}
}

// Case M19.
func TestDuplicateNamesBothValues(t *testing.T) {
	e := Inspect([]byte(read(t, "testdata/cases/M19/dup.prom")), "text/plain")
	if len(e.Findings) != 1 {
		t.Fatalf("findings %+v", e.Findings)
	}
	f := e.Findings[0]
	for _, want := range []string{`sglang:num_queue_reqs`, `line 2 with 4`, `line 3 with 9`, "first is kept"} {
		if !strings.Contains(strings.ReplaceAll(f.Message, "__name__=", ""), want) {
			t.Errorf("%q does not say %q", f.Message, want)
		}
	}
}

// Cases M03, M06, M09, M12, M18 as far as one exposition tells.
func TestCases(t *testing.T) {
	get := func(p, ct string) Exposition { return Inspect([]byte(read(t, "testdata/cases/"+p)), ct) }
	if e := get("M03/router.prom", ""); e.Backend != engine.EngineMetrics || !slices.Equal(e.WorkerAddrs, []string{"http://10.0.0.11:30000"}) || e.Spelling != SpellingUnderscore {
		t.Errorf("M03 router: %+v", e)
	}
	if e := get("M03/engine.prom", ""); !slices.Equal(e.Models, []string{"acme/chat-7b:v2"}) || e.Spelling != SpellingColon {
		t.Errorf("M03 engine: %+v", e)
	}
	if e := get("M06/labelled.prom", ""); len(e.DPRanks) != 4 {
		t.Errorf("M06: ranks %v", e.DPRanks)
	}
	if e := get("M09/pd.prom", ""); !slices.Equal(e.EngineTypes, []string{"decode", "unified"}) {
		t.Errorf("M09: %v", e.EngineTypes)
	}
	e := get("M12/ray.prom", "")
	if got := e.Names(); !slices.Equal(got, []string{"vllm:num_requests_running", "sglang:num_running_reqs"}) || e.Spelling != SpellingRay {
		t.Errorf("M12: %v %v", got, e.Spelling)
	}
	total := 0.0
	for _, s := range e.Samples {
		total += s.Value
	}
	if total != 9 {
		t.Errorf("M12: total %v", total)
	}
	a, b := get("M18/a.prom", ""), get("M18/b.prom", "")
	for i := range a.Samples {
		if !labels.Equal(a.Samples[i].Labels, b.Samples[i].Labels) {
			t.Errorf("M18: %v and %v differ", a.Samples[i].Labels, b.Samples[i].Labels)
		}
	}
}

func TestMixedOpenMetricsKeepsTypes(t *testing.T) {
	body := "# HELP sglang:prompt_tokens Number of prefill tokens processed.\n# TYPE sglang:prompt_tokens counter\nsglang_prompt_tokens_total{a=\"b\"} 8\n" +
		"# HELP sglang:q Q\n# TYPE sglang:q histogram\nsglang_q_bucket{le=\"1\"} 1\nsglang_q_bucket{le=\"+Inf\"} 1\nsglang_q_sum 1\nsglang_q_count 1\n# EOF\n"
	e := Inspect([]byte(body), "application/openmetrics-text; version=1.0.0; escaping=underscores")
	f, ok := e.Family("sglang_prompt_tokens_total")
	if !ok || f.Type != model.MetricTypeCounter || f.Help == "" || f.Name != "sglang:prompt_tokens_total" {
		t.Errorf("counter %+v", f)
	}
	f, ok = e.Family("sglang:q_bucket")
	if !ok || f.Type != model.MetricTypeHistogram || f.Samples != 4 {
		t.Errorf("histogram %+v", f)
	}
}

func TestManyFindingsAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, "a 1\nbad line %d\n", i)
	}
	e := Inspect([]byte(b.String()), "text/plain")
	if len(e.Findings) > 3*maxPerCode {
		t.Errorf("%d findings", len(e.Findings))
	}
	if e.BadLines != 5000 || e.Total != 5000 {
		t.Errorf("%d bad lines, %d samples", e.BadLines, e.Total)
	}
	n := 0
	for _, f := range e.Findings {
		if f.Code == "bad_line" {
			n += max(f.Count, 1)
		}
	}
	if n != 5000 {
		t.Errorf("the findings account for %d bad lines", n)
	}
}

func TestWithoutBad(t *testing.T) {
	for _, tt := range []struct {
		name, in, out string
		om            bool
		bad           int
	}{
		{"one", "a 1\nb c d\nc 3\n", "a 1\nc 3\n", false, 1},
		{"last, no newline", "a 1\nb c d", "a 1\n", false, 1},
		{"clean", "a 1\n", "a 1\n", false, 0},
		{"all bad", "x y z\n", "x y z\n", false, 0},
		{"unclosed quote eats the rest", "a{x=\"1} 1\nb{y=\"2\"} 2\nc 3\n", "b{y=\"2\"} 2\nc 3\n", false, 1},
		{"openmetrics", "a 1\n\nb 2\n# EOF\n", "a 1\nb 2\n# EOF\n", true, 1},
		{"cut off", "a 1\nb 2", "a 1\n# EOF\n", true, 1},
		{"cut off behind a line", "a 1\nb 2\n", "a 1\nb 2\n# EOF\n", true, 1},
		{"data behind the end", "a 1\n# EOF\nb 2\n# EOF\n", "a 1\nb 2\n# EOF\n", true, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, bad := withoutBad([]byte(tt.in), tt.om)
			if string(out) != tt.out || len(bad) != tt.bad {
				t.Errorf("got %q with %d bad lines (%v), want %q with %d", out, len(bad), bad, tt.out, tt.bad)
			}
		})
	}
}

// seeds are expositions of both formats to start from.
func seeds(t testing.TB) (bodies [][]byte, om []bool) {
	paths, err := filepath.Glob("testdata/cases/*/*.prom")
	if err != nil {
		t.Fatal(err)
	}
	add := func(b string, o bool) { bodies, om = append(bodies, []byte(b)), append(om, o) }
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		add(string(b), false)
		add(string(b)+"# EOF\n", true)
	}
	add("# TYPE a counter\na_total 1 # {x=\"y\"} 2 3\n# UNIT a_s s\n# EOF\n", true)
	add("a{x=\"1} 1\nb{y=\"2\"} 2\n", false)
	add("{\"a b\",x=\"1\"} 1\n", false)
	return bodies, om
}

// FuzzInspect holds Inspect and the reading around bad lines against Prometheus's parser.
func FuzzInspect(f *testing.F) {
	bodies, om := seeds(f)
	for i := range bodies {
		f.Add(bodies[i], om[i])
	}
	f.Fuzz(func(t *testing.T, body []byte, om bool) { checkInspect(t, body, om) })
}

// The same with damage of the kinds that happen: fuzzing itself is slow under this many packages.
func TestInspectDamaged(t *testing.T) {
	bodies, om := seeds(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	bits := []string{"\n", "\"", "{", "}", "#", " ", "\\", "\x00", "\xff", "# EOF\n", "# TYPE a histogram\n", ",", "=", "1e9", "NaN", "\r\n", "\n\n", "\t"}
	for n := range 3_000 {
		i := rnd.IntN(len(bodies))
		b := slices.Clone(bodies[i])
		for range 1 + rnd.IntN(4) {
			at := rnd.IntN(len(b) + 1)
			switch rnd.IntN(4) {
			case 0:
				b = b[:at]
			case 1:
				b = slices.Delete(b, at, min(at+1+rnd.IntN(5), len(b)))
			default:
				b = slices.Insert(b, at, []byte(bits[rnd.IntN(len(bits))])...)
			}
		}
		checkInspect(t, b, om[i] != (rnd.IntN(10) == 0))
		if t.Failed() {
			t.Fatalf("round %d: %q", n, b)
		}
	}
}

func checkInspect(t *testing.T, body []byte, om bool) {
	t.Helper()
	ct := "text/plain"
	if om {
		ct = "application/openmetrics-text; version=1.0.0"
	}
	e := Inspect(body, ct)
	samples := 0
	for _, fam := range e.Families {
		samples += fam.Samples
		if fam.Name == "" {
			t.Error("a family without a name")
		}
	}
	if samples != len(e.Samples) || len(e.Samples) > e.Total {
		t.Errorf("%d samples in families, %d kept, %d in all", samples, len(e.Samples), e.Total)
	}
	for i := 1; i < len(e.Findings); i++ {
		if e.Findings[i].Line < e.Findings[i-1].Line {
			t.Error("findings out of order")
		}
	}
	parse := func(b []byte) (n int, err error) {
		p, err := textparse.New(b, ct, nil, textparse.ParserOptions{})
		if p == nil {
			return 0, err
		}
		for {
			et, err := p.Next()
			if err != nil {
				if err.Error() == "EOF" {
					return n, nil
				}
				return n, err
			}
			if et == textparse.EntrySeries {
				n++
				var l labels.Labels
				p.Labels(&l)
				if _, dup := l.HasDuplicateLabelNames(); dup || !l.IsValid(model.UTF8Validation) {
					return n, errors.New("the store refuses it")
				}
			}
		}
	}
	n, perr := parse(slices.Clone(body))
	out, bad := withoutBad(body, om)
	if perr == nil {
		if len(bad) != 0 || string(out) != string(body) {
			t.Errorf("lines of a good body are left out: %v", bad)
		}
		if e.BadLines != 0 && e.Kind == KindExposition {
			t.Errorf("%d bad lines in a body that Prometheus reads", e.BadLines)
		}
		if e.Kind == KindExposition && e.Total != n {
			t.Errorf("%d samples, Prometheus reads %d", e.Total, n)
		}
		return
	}
	if len(bad) > 0 {
		if _, err := parse(slices.Clone(out)); err != nil {
			t.Errorf("what is left cannot be read: %v\n%q", err, out)
		}
	}
}

func TestWalkKeepsTheCallersArray(t *testing.T) {
	b := []byte("a 1XYZ")
	_ = Inspect(b[:3], "text/plain")
	if string(b) != "a 1XYZ" {
		t.Errorf("the body was written to: %q", b)
	}
	if !math.IsNaN(last(nil)) {
		t.Error("last of nothing")
	}
}
