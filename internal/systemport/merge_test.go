package systemport

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

var update = flag.Bool("update", false, "write the golden files")

// onePlace has loopback and 10.0.0.1 for this machine's addresses.
func onePlace(instance string) (string, bool) {
	host, port, _ := strings.Cut(instance, ":")
	if host == "127.0.0.1" || host == "10.0.0.1" {
		return "local:" + port, true
	}
	return instance, false
}

func input(port, body string) Input {
	return Input{Instance: "127.0.0.1:" + port, WorkerAddr: "http://127.0.0.1:" + port, Body: []byte(body)}
}

func openMetrics(port, body string) Input {
	in := input(port, body)
	in.OpenMetrics = true
	return in
}

// readAll reads a text with the parser of the text format's own project, and with Prometheus's.
func readAll(text []byte) (map[string]*dto.MetricFamily, []string, error) {
	strict := expfmt.NewTextParser(model.LegacyValidation)
	families, err := strict.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, nil, fmt.Errorf("the text format's parser: %w", err)
	}
	var series []string
	p := textparse.NewPromParser(text, labels.NewSymbolTable(), false)
	for {
		kind, err := p.Next()
		if errors.Is(err, io.EOF) {
			return families, series, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("Prometheus's parser: %w", err)
		}
		if kind == textparse.EntrySeries {
			var l labels.Labels
			p.Labels(&l)
			_, _, v := p.Series()
			series = append(series, fmt.Sprint(l, " ", v))
		}
	}
}

// check holds what is true of every merged text.
func check(m Merged) error {
	_, series, err := readAll(m.Text)
	if err != nil {
		return err
	}
	if len(series) != m.Read {
		return fmt.Errorf("%d samples, and %d are said", len(series), m.Read)
	}
	seen := map[string]bool{}
	for _, s := range series {
		s = s[:strings.LastIndexByte(s, ' ')]
		if seen[s] {
			return fmt.Errorf("%s stands twice", s)
		}
		seen[s] = true
	}
	return nil
}

func TestMerge(t *testing.T) {
	const gauge = "# HELP sglang:num_running_reqs Running.\n# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs{model_name=\"m\"} 3.0\n"
	const histogram = "# TYPE sglang:x histogram\nsglang:x_bucket{le=\"1\"} 1\nsglang:x_bucket{le=\"+Inf\"} 2\nsglang:x_sum 3\nsglang:x_count 2\n"
	tests := []struct {
		name   string
		inputs []Input
		left   string // "instance reason count" of the lines that are left out
	}{
		{"equal_series", []Input{input("1", gauge), input("2", gauge)}, ""},
		{"all_prefixes", []Input{
			input("1", "# TYPE sglang:b gauge\nsglang:b 1\n# TYPE vllm:a gauge\nvllm:a 1\nother 7\nsglang 3\nsglang_ 4\nprocess_cpu_seconds_total 1\n"),
			input("2", "# HELP dynamo_component_requests_total Requests.\n# TYPE dynamo_component_requests_total counter\ndynamo_component_requests_total{dynamo_endpoint=\"generate\"} 5\nsglang:my_own{who=\"me\"} 6\n"),
		}, ""},
		{"interleaved", []Input{input("1", "sglang:a{x=\"1\"} 1\nsglang:b 2\nsglang:a{x=\"2\"} 3\n# TYPE sglang:a gauge\n")}, ""},
		{"histograms", []Input{input("1", histogram), input("2", histogram)}, ""},
		{"spellings", []Input{
			input("1", "# TYPE sglang_num_running_reqs gauge\nsglang_num_running_reqs 1\nsglang:num_running_reqs 1\nray_sglang_other 2\n"),
			input("2", "{\"sglang:num_running_reqs\",model_name=\"m\"} 4\n"),
		}, "127.0.0.1:1 duplicate 1"},
		{"openmetrics", []Input{
			openMetrics("1", "# HELP sglang:prompt_tokens Tokens \\\"in\\\".\n# TYPE sglang:prompt_tokens counter\n# UNIT sglang:prompt_tokens tokens\n"+
				"sglang:prompt_tokens_total{model_name=\"m\"} 8128902.0 1700000000.5 # {trace_id=\"a\"} 1.0\nsglang:prompt_tokens_created{model_name=\"m\"} 1.7e9\n"+
				"# TYPE sglang:lat histogram\nsglang:lat_bucket{le=\"+Inf\"} 1 # {trace_id=\"b\"} 0.5 1700000000.1\nsglang:lat_count 1\nsglang:lat_sum 0.5\n"+
				"# TYPE sglang:engine info\nsglang:engine_info{version=\"1\"} 1\n# EOF\nsglang:behind_the_end 1\n"),
			input("2", "# TYPE sglang:prompt_tokens_total counter\nsglang:prompt_tokens_total{model_name=\"m\"} 5\n"),
		}, ""},
		{"router", []Input{
			input("1", gauge),
			input("9", "# TYPE sglang_num_running_reqs gauge\n"+
				"sglang_num_running_reqs{worker_addr=\"http://127.0.0.1:1\"} 3\n"+ // it has answered itself
				"sglang_num_running_reqs{worker_addr=\"http://10.0.0.1:1@2\"} 3\n"+ // the same under its other address
				"sglang_num_running_reqs{worker_addr=\"http://127.0.0.1:2\"} 4\n"+ // it has not
				"sglang_num_running_reqs{worker_addr=\"http://10.0.0.2:1\"} 5\n"), // of another machine
		}, "127.0.0.1:9 not_local 1, 127.0.0.1:9 through_router 2"},
		{"own_label_kept", []Input{input("1", "sglang:a{worker_addr=\"grpc://10.0.0.1:1\"} 1\nsglang:b{worker_addr=\"\"} 2\n")}, ""},
		{"types_disagree", []Input{
			input("1", histogram), input("2", "# TYPE sglang:x gauge\nsglang:x 9\n"),
			input("3", "# TYPE sglang:x_count counter\nsglang:x_count{a=\"b\"} 1\n"), input("4", "sglang:y 1\n"), input("5", "# TYPE sglang:y counter\nsglang:y 2\n"),
		}, ""},
		{"names_meet", []Input{input("1", histogram), input("2", "# TYPE sglang:x_sum gauge\nsglang:x_sum 9\n")}, ""},
		{"hostile", []Input{input("1", "sglang:a{x=\"a\\\\b\\\"c\\nd\",y=\"}{,=\"} 1\n"+
			"sglang:a{x=\"\\q\"} 1\nsglang:a{x=\"1\",x=\"2\"} 1\nsglang:a{__name__=\"z\"} 1\nsglang:a{x=\"\xff\"} 1\nsglang:a 1 2 3\nsglang:a x\nsglang:a\nsglang:a{x=\"1\" 1\nsglang:a 1_0\n"+
			"sglang:a{ z = \"1\" , } NaN\nsglang:a{z=\"2\"} +Inf 1700000000000\r\nsglang:a{z=\"3\"}1\n<html>\n# TYPE sglang:a gauge\n# HELP sglang:a back\\\\slash\xff\n")}, "127.0.0.1:1 bad_line 9"},
		{"no_bound", []Input{input("1", "# TYPE sglang:x histogram\nsglang:x_bucket 1\nsglang:x_bucket{le=\"high\"} 1\nsglang:x_bucket{le=\"+Inf\"} 1\nsglang:x_count 1\nsglang:x_sum 1\n# TYPE sglang:s summary\nsglang:s{quantile=\"x\"} 1\nsglang:s{quantile=\"0.5\"} 1\n")}, "127.0.0.1:1 bad_line 3"},
		{"nothing", nil, ""},
	}
	promtool, noTool := exec.LookPath("promtool")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := Merge(tt.inputs, onePlace, nil)
			var left []string
			for _, instance := range sorted(m.Left) {
				for _, reason := range sorted(m.Left[instance]) {
					left = append(left, fmt.Sprint(instance, " ", reason, " ", m.Left[instance][reason]))
				}
			}
			if got := strings.Join(left, ", "); got != tt.left {
				t.Errorf("left out: %q, want %q", got, tt.left)
			}
			golden := filepath.Join("testdata", tt.name+".txt")
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(golden, m.Text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(m.Text, want) {
				t.Errorf("got\n%s\nwant\n%s", m.Text, want)
			}
			if err := check(m); err != nil {
				t.Error(err)
			}
			if noTool == nil {
				promCheck(t, promtool, m.Text)
			}
		})
	}
	if noTool != nil {
		t.Log("promtool is not installed (Debian: prometheus): its judgement is missing")
	}
}

// promCheck lets promtool judge. Its exit code 3 is about taste in names, which are the engines'.
func promCheck(t *testing.T, promtool string, text []byte) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState.ExitCode() != 3 || bytes.Contains(out, []byte("error while linting")) {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// Whatever engines say, the answer can be read, and no series stands in it twice.
func FuzzMerge(f *testing.F) {
	f.Add("sglang:a{x=\"1\"} 1\n", "# TYPE sglang:a histogram\nsglang:a_bucket{le=\"1\"} 1\nsglang:a_count 1\n", false)
	f.Add("# TYPE sglang:a counter\nsglang:a_total 1 1.5 # {t=\"\"} 1\nsglang:a_created 1\n# EOF", "# TYPE sglang:a_total summary\nsglang:a_total{quantile=\"1\"} 2\nsglang:a_total_sum 1\n", true)
	f.Add("# TYPE dynamo_x gauge\n# HELP dynamo_x \\n\\\\\ndynamo_x{worker_addr=\"http://10.0.0.2:1\"} NaN -5\n", "{\"sglang:a\",b=\"c\"} +Inf\nsglang_a{b=\"c\"} 0\n", false)
	f.Fuzz(func(t *testing.T, a, b string, om bool) {
		one, two := input("1", a), input("2", b)
		one.OpenMetrics = om
		m := Merge([]Input{one, two}, onePlace, nil)
		if err := check(m); err != nil {
			t.Fatalf("%v\n%s", err, m.Text)
		}
		again := Merge([]Input{one, two}, onePlace, nil)
		if !bytes.Equal(m.Text, again.Text) {
			t.Fatal("the same inputs gave another text")
		}
		// As one engine, by the configuration or as known from before, nothing is there twice or more often.
		as := Merge([]Input{one, two}, onePlace, map[string]string{one.Instance: two.Instance})
		one.Engine, two.Engine = "e", "e"
		for _, m2 := range []Merged{as, Merge([]Input{one, two}, onePlace, nil)} {
			if err := check(m2); err != nil {
				t.Fatalf("%v\n%s", err, m2.Text)
			}
			if m2.Read > m.Read {
				t.Fatalf("%d samples of one engine, %d of two", m2.Read, m.Read)
			}
		}
	})
}

// Numbers are those of the language's own reader that the text format allows.
func TestNumber(t *testing.T) {
	for _, s := range []string{"", "+", "-", ".", "0", "1", "-1", "+1", "1.", ".5", "1.5", "-1.5e3", "1e", "1e+", "1e+5", "1E-05", "e5", ".e5", "1.5.5", "1e5e5", "NaN", "nan", "+NaN", "-NaN", "Inf", "inf", "+Inf", "-inf", "Infinity", "-infinity", "infin", "1x", "0x1", "0x1p1", "1_0", "1e999", " 1", "1 ", "٣"} {
		_, err := strconv.ParseFloat(s, 64)
		want := (err == nil || errors.Is(err, strconv.ErrRange)) && !strings.ContainsAny(s, "pPxX_")
		if got := number([]byte(s)); got != want {
			t.Errorf("%q: %t, want %t", s, got, want)
		}
	}
}

// BenchmarkMerge joins the answers of the engines of one large node. Those of real workers have their own line.
func BenchmarkMerge(b *testing.B) {
	var body bytes.Buffer
	for family := range 100 {
		fmt.Fprintf(&body, "# HELP sglang:family_%d Help.\n# TYPE sglang:family_%d gauge\n", family, family)
		for i := range 10 {
			fmt.Fprintf(&body, "sglang:family_%d{model_name=\"m\",tp_rank=\"%d\",pp_rank=\"0\"} %d.5\n", family, i, i)
		}
	}
	run := func(b *testing.B, body []byte, engines int) {
		var inputs []Input
		for i := range engines {
			inputs = append(inputs, input(fmt.Sprint(30000+i), string(body)))
		}
		samples := 0
		b.SetBytes(int64(engines * len(body)))
		b.ReportAllocs()
		for b.Loop() {
			samples = Merge(inputs, onePlace, nil).Read
		}
		if samples == 0 || samples%engines != 0 {
			b.Fatalf("%d samples", samples)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(samples), "ns/sample")
	}
	b.Run("8", func(b *testing.B) { run(b, body.Bytes(), 8) })
	b.Run("64", func(b *testing.B) { run(b, body.Bytes(), 64) })
	b.Run("64captured", func(b *testing.B) { run(b, captured(b), 64) })
	b.Run("32engines32workers", func(b *testing.B) {
		var inputs []Input
		size := 0
		for i := range 32 {
			e := engineSays{"m", 7 + i, 0.31415926535 + float64(i)/7, i}
			own, passed := e.text()+body.String(), e.passedOn(injectedA)+body.String()
			size += len(own) + len(passed)
			inputs = append(inputs, input(fmt.Sprint(30000+i), own), input(fmt.Sprint(8100+i), strings.ReplaceAll(passed, "694d", fmt.Sprintf("%04x", i))))
		}
		b.SetBytes(int64(size))
		b.ReportAllocs()
		for b.Loop() {
			if m := Merge(inputs, onePlace, nil); len(m.Same) != 32 {
				b.Fatalf("%d are the same", len(m.Same))
			}
		}
	})
}
