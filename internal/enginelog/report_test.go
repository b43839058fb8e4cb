package enginelog

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what is written now:\n%s", path, got)
	}
}

// TestReport: golden reports of all logs in testdata, as text and as JSON.
func TestReport(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.log")
	if err != nil || len(files) == 0 {
		t.Fatal("no logs in testdata", err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, asJSON := range []bool{false, true} {
			var out bytes.Buffer
			if _, err := Report(&out, bytes.NewReader(b), ReportOptions{Source: filepath.Base(path), Zone: time.UTC, JSON: asJSON}); err != nil {
				t.Fatal(err)
			}
			ext := ".report.txt"
			if asJSON {
				ext = ".report.json"
			}
			golden(t, strings.TrimSuffix(path, ".log")+ext, out.Bytes())
		}
	}
}

func TestReportCases(t *testing.T) {
	sum := func(text string, o ReportOptions) Summary {
		t.Helper()
		s, err := Summarize(strings.NewReader(text), o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	// L01.3: how many lines were folded, and how to switch that off.
	b, err := os.ReadFile("testdata/L01/ray.log")
	if err != nil {
		t.Fatal(err)
	}
	s := sum(string(b), ReportOptions{Zone: time.UTC})
	if s.Folded.Lines != 4 || s.Folded.Into != 2 || !strings.Contains(s.Folded.Hint, "RAY_DEDUP_LOGS=0") || s.Exit() != 0 {
		t.Errorf("folded %+v exit %d", s.Folded, s.Exit())
	}
	// The file's time of change tells the zone.
	s = sum("[2026-09-13 18:06:04] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_token_ratio: 0.1 -> 0.2\n",
		ReportOptions{ModTime: time.Date(2026, 9, 13, 16, 6, 10, 0, time.UTC)})
	if s.From != "2026-09-13T16:06:04Z" || s.Zone != "UTC+02:00" {
		t.Errorf("from %s zone %q", s.From, s.Zone)
	}
	// A time of day gets the date of the file.
	s = sum("[03:51:54] Decode batch, #running-req: 6, #queue-req: 1\n", ReportOptions{Zone: time.UTC, ModTime: time.Date(2026, 5, 2, 4, 0, 0, 0, time.UTC)})
	if s.From != "2026-05-02T03:51:54Z" {
		t.Errorf("from %s", s.From)
	}
	for text, exit := range map[string]int{"": 3, "what is this\n": 3, "[2026-01-01 00:00:00] Prefill out of memory. Try to lower your batch size.\n": 1} {
		if s := sum(text, ReportOptions{Zone: time.UTC}); s.Exit() != exit {
			t.Errorf("%q: exit %d, want %d", text, s.Exit(), exit)
		}
	}
	// A line beyond the limit is cut and its rest is not taken for another line.
	s = sum(strings.Repeat("y", 3*MaxLine)+"\n[2026-01-01 00:00:00] The server is fired up and ready to roll!", ReportOptions{Zone: time.UTC})
	if s.Lines != 2 || s.Classes[5].Events != 1 {
		t.Errorf("%+v", s)
	}
}

// TestCountsLate: what is read long after it was written is counted apart, also lines without a time of
// their own, and no alert sees it.
func TestCountsLate(t *testing.T) {
	const log = "[2026-09-13 16:06:07] Scheduler hit an exception: Traceback (most recent call last):\n" +
		"  File \"x.py\", line 3, in f\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
	written := time.Date(2026, 9, 13, 16, 6, 7, 0, time.UTC)
	for _, c := range []struct {
		after time.Duration
		want  string
	}{{0, "rollscope_log_events_total"}, {9 * time.Minute, "rollscope_log_events_total"}, {time.Hour, "rollscope_log_late_events_total"}} {
		counts := NewCounts()
		for _, r := range readLines([]byte(log), Options{Engine: "e"}) {
			counts.AddAt("x.log", &r, written.Add(c.after).UnixNano())
		}
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(counts)
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "class" && l.GetValue() == string(OOM) && m.GetCounter().GetValue() > 0 {
						got[f.GetName()] = m.GetCounter().GetValue()
					}
				}
			}
		}
		if len(got) != 1 || got[c.want] != 1 {
			t.Errorf("after %s: %v, want one in %s", c.after, got, c.want)
		}
		if counts.Events()[OOM] != 1 {
			t.Errorf("events %v", counts.Events())
		}
	}
}
