package systemport

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// engineSays is the exposition of an engine: times that were added up, counts, and gauges.
type engineSays struct {
	model    string
	requests int
	clock    float64 // seconds that one request took
	running  int
}

func (e engineSays) text() string {
	var b strings.Builder
	labels := fmt.Sprintf(`model_name=%q`, e.model)
	for i, name := range []string{"sglang:e2e_request_latency_seconds", "sglang:queue_time_seconds"} {
		fmt.Fprintf(&b, "# HELP %[1]s Time.\n# TYPE %[1]s histogram\n", name)
		sum := float64(e.requests) * e.clock / float64(i*i*7+1)
		fmt.Fprintf(&b, "%[1]s_sum{%[2]s} %.16g\n%[1]s_bucket{le=\"+Inf\",%[2]s} %[4]d\n%[1]s_count{%[2]s} %[4]d\n", name, labels, sum, e.requests)
	}
	fmt.Fprintf(&b, "# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs{%s,tp_rank=\"0\"} %d\n", labels, e.running)
	fmt.Fprintf(&b, "# TYPE sglang:max_total_num_tokens gauge\nsglang:max_total_num_tokens{%s,tp_rank=\"0\"} 92962\n", labels)
	return b.String()
}

const engineLines = 8 // samples of an engineSays

// passedOn is the exposition of a Dynamo worker that has this engine. labels are put on the engine's lines, at
// their end.
func (e engineSays) passedOn(labels string) string {
	var b strings.Builder
	b.WriteString("# TYPE dynamo_component_requests_total counter\ndynamo_component_requests_total{dynamo_component=\"backend\",worker_id=\"a\"} 5\n")
	for line := range strings.Lines(e.text()) {
		if labels != "" && line[0] != '#' {
			line = strings.Replace(line, "} ", ","+labels+"} ", 1)
		}
		b.WriteString(line)
	}
	return b.String()
}

const (
	injectedA = `dynamo_namespace="ns",dynamo_component="backend",dynamo_endpoint="generate",worker_id="694d98147d54be25"`
	injectedB = `dynamo_namespace="ns",dynamo_component="backend",dynamo_endpoint="generate",worker_id="1f00000000000001"`
	noID      = `dynamo_namespace="ns",dynamo_component="backend",dynamo_endpoint="generate",worker_id=""`
)

// An engine that is scraped itself, and is passed on by a Dynamo worker that is scraped too, is there once: as
// far as it is proven that it is one.
func TestSameEngine(t *testing.T) {
	a := engineSays{"m", 7, 0.31415926535, 3}
	b := engineSays{"m", 7, 0.27182818284, 4}
	idle := engineSays{"m", 0, 0, 0}
	later := a
	later.requests++
	named := func(in Input, engine string) Input { in.Engine = engine; return in }
	tests := []struct {
		name   string
		inputs []Input
		known  map[string]string
		same   string // "input=engine evidence"
		alike  string
		left   int // lines that were said before
	}{
		{"labels injected", []Input{input("1", a.text()), input("2", a.passedOn(injectedA))}, nil, "1=0 values", "", engineLines},
		{"labels on some lines", []Input{input("1", a.text()+"sglang:x 1\n"), input("2", a.passedOn(injectedA)+"sglang:x 1\n")}, nil, "1=0 values", "", engineLines + 1},
		{"a further label on all lines", []Input{input("1", a.text()), input("2", a.passedOn(injectedA+`,pod="p-1"`))}, nil, "1=0 values", "", engineLines},
		{"no labels", []Input{input("1", a.passedOn("")), input("2", a.text())}, nil, "0=1 values", "", engineLines},
		{"two of one model", []Input{input("1", a.text()), input("2", b.text()), input("3", b.passedOn(injectedB)), input("4", a.passedOn(injectedA))}, nil, "2=1 values,3=0 values", "", 2 * engineLines},
		{"only one of two", []Input{input("1", a.text()), input("2", b.text()), input("3", b.passedOn(injectedB))}, nil, "2=1 values", "", engineLines},
		{"another model", []Input{input("1", engineSays{"n", 7, 0.31415926535, 3}.text()), input("2", a.passedOn(injectedA))}, nil, "", "", 0},
		{"another engine", []Input{input("1", engineSays{"m", 9000, 0.1, 3}.text()), input("2", a.passedOn(injectedA))}, nil, "", "", 0},
		{"nothing to prove it", []Input{input("1", idle.text()), input("2", idle.passedOn(injectedA))}, nil, "", "1", 0},
		{"twins", []Input{input("1", a.text()), input("2", a.text()), input("3", a.passedOn(injectedA))}, nil, "", "2", 0},
		{"it went on", []Input{input("1", a.text()), input("2", later.passedOn(injectedA))}, nil, "", "1", 0},
		{"it went on, and is known", []Input{input("1", a.text()), input("2", later.passedOn(injectedA))}, map[string]string{"127.0.0.1:2": "127.0.0.1:1"}, "1=0 values", "", engineLines},
		{"known, and refuted", []Input{input("1", engineSays{"m", 9000, 0.1, 3}.text()), input("2", a.passedOn(injectedA))}, map[string]string{"127.0.0.1:2": "127.0.0.1:1"}, "", "", 0},
		{"known, and away", []Input{input("2", a.passedOn(injectedA))}, map[string]string{"127.0.0.1:2": "127.0.0.1:1"}, "", "", 0},
		{"configured", []Input{named(input("1", idle.text()), "e:1"), named(input("2", idle.passedOn(injectedA)), "e:1")}, nil, "1=0 configured", "", engineLines},
		{"configured as two", []Input{named(input("1", idle.text()), "e:1"), named(input("2", idle.passedOn(injectedA)), "e:2")}, nil, "", "1", 0},
		{"two addresses", []Input{named(input("1", idle.text()), "e:1"), named(input("2", idle.text()), "e:1")}, nil, "1=0 configured", "", engineLines},
		{"one worker twice", []Input{input("1", idle.passedOn(injectedA)), input("2", idle.passedOn(injectedA))}, nil, "1=0 worker_id", "", engineLines},
		{"two workers", []Input{input("1", idle.passedOn(injectedA)), input("2", idle.passedOn(injectedB))}, nil, "", "", 0},
		{"workers without ids", []Input{input("1", idle.passedOn(noID)), input("2", idle.passedOn(noID))}, nil, "", "", 0},
		{"one worker twice, and its engine", []Input{input("1", a.passedOn(injectedA)), input("2", a.passedOn(injectedA)), input("3", a.text())}, nil, "0=2 values,1=2 worker_id", "", 2 * engineLines},
		{"two engines without workers", []Input{input("1", a.text()), input("2", a.text())}, nil, "", "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := Merge(tt.inputs, onePlace, tt.known)
			var same, alike []string
			for _, s := range m.Same {
				same = append(same, fmt.Sprintf("%d=%d %s", s.Input, s.Engine, s.Evidence))
			}
			for _, i := range m.Alike {
				alike = append(alike, fmt.Sprint(i))
			}
			left, all := 0, 0
			for i, in := range tt.inputs {
				left += m.Left[in.Instance][SkipSameEngine]
				all += m.Parsed[i]
				for reason, n := range m.Left[in.Instance] {
					if reason != SkipSameEngine {
						t.Errorf("%s: %d lines left out: %s", in.Instance, n, reason)
					}
				}
			}
			if got := strings.Join(same, ","); got != tt.same {
				t.Errorf("same %q, want %q", got, tt.same)
			}
			if got := strings.Join(alike, ","); got != tt.alike {
				t.Errorf("alike %q, want %q", got, tt.alike)
			}
			if left != tt.left || m.Read != all-left {
				t.Errorf("%d lines left out, want %d; %d samples of %d", left, tt.left, m.Read, all)
			}
			if err := check(m); err != nil {
				t.Error(err)
			}
		})
	}
}

// What a worker says of an engine beyond the engine's own words stands under the engine's address, and the
// worker's own metrics under the worker's.
func TestSameEngineRest(t *testing.T) {
	a := engineSays{"m", 7, 0.31415926535, 3}
	m := Merge([]Input{input("1", a.text()), input("2", a.passedOn(injectedA)+`sglang:custom{x="1",`+injectedA+"} 9\n")}, onePlace, nil)
	for _, want := range []string{
		`sglang:custom{x="1",` + injectedA + `,worker_addr="http://127.0.0.1:1"} 9`,
		`dynamo_component_requests_total{dynamo_component="backend",worker_id="a",worker_addr="http://127.0.0.1:2"} 5`,
		`sglang:num_running_reqs{model_name="m",tp_rank="0",worker_addr="http://127.0.0.1:1"} 3`,
	} {
		if strings.Count(string(m.Text), want+"\n") != 1 {
			t.Errorf("%s does not stand once in\n%s", want, m.Text)
		}
	}
	if n := strings.Count(string(m.Text), "sglang:num_running_reqs{"); n != 1 {
		t.Errorf("an engine counts %d times", n)
	}
}

// captured is what a real Dynamo worker said; it is no part of this repository.
func captured(t testing.TB) []byte {
	body, err := os.ReadFile("../../../shared/fixtures/captures/dynamo/metrics_sglang_worker.prom")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the captures are not here")
	}
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// The metrics that a real worker passed on, which carry no label of Dynamo's, beside the same from its engine.
func TestSameEngineCaptured(t *testing.T) {
	body := captured(t)
	var own bytes.Buffer
	lines := 0
	for line := range bytes.Lines(body) {
		if bytes.Contains(line, []byte("sglang:")) {
			own.Write(line)
			if line[0] != '#' {
				lines++
			}
		}
	}
	worker := input("8081", string(body))
	m := Merge([]Input{worker, input("30000", own.String())}, onePlace, nil)
	if len(m.Same) != 1 || m.Same[0] != (Same{0, 1, Values}) {
		t.Errorf("same %v", m.Same)
	}
	alone := Merge([]Input{worker}, onePlace, nil)
	if m.Read != alone.Read || m.Left[worker.Instance][SkipSameEngine] != lines || lines < 100 {
		t.Errorf("%d samples, of the worker alone %d; %d of %d lines left out", m.Read, alone.Read, m.Left[worker.Instance][SkipSameEngine], lines)
	}
	if err := check(m); err != nil {
		t.Error(err)
	}
}
