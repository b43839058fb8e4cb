package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/sim/rolls"
	"github.com/rollscope/rollscope/internal/timeline"
)

const ours = "/api/rollscope/v1"

// smallStep is a step of few samples and short answers.
func smallStep(id int, seed uint64) rolls.Options {
	return rolls.Options{RolloutID: id, Seed: seed, Samples: 8, GroupSize: 4, Response: rolls.Lengths{Median: 40, Sigma: 0.5, Max: 200}}
}

func writeStep(t *testing.T, path string, o rolls.Options) {
	t.Helper()
	if _, err := rolls.WriteFile(path, o); err != nil {
		t.Fatal(err)
	}
}

// steps lists the steps of a run; a run that is not there has none.
func steps(t *testing.T, p *process, run string) []api.Step {
	t.Helper()
	var e api.Envelope[api.Steps]
	get(t, p.url, ours+"/rollouts/"+url.PathEscape(run)+"/steps", nil, &e)
	return e.Data.Steps
}

// waitingFiles are the dumps of a run that are not in the index.
func waitingFiles(t *testing.T, p *process, run string) []api.Dump {
	t.Helper()
	var e api.Envelope[api.Runs]
	get(t, p.url, ours+"/rollouts", nil, &e)
	for _, r := range e.Data.Runs {
		if r.Name == run {
			return r.Files
		}
	}
	return nil
}

// files is every file below a directory with its bytes.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			return err
		}
		b, err := os.ReadFile(path)
		out[path] = string(b)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// A dump that grows is published when it is whole, one that is replaced is another attempt, a restart
// publishes nothing twice, and a configuration that is read again watches what it names now.
func TestServeRollouts(t *testing.T) {
	dumps, more, tb, data := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "tb"), t.TempDir()
	config := filepath.Join(t.TempDir(), "rollscope.yml")
	configure := func(second bool) {
		t.Helper()
		text := fmt.Sprintf("rollscope:\n  rollouts:\n    - {run: math, path: '%s/rollout_{rollout_id}.pt', gpus: 8}\n", dumps)
		if second {
			text += fmt.Sprintf("    - {run: code, path: '%s/rollout_{rollout_id}.pt'}\n", more)
		}
		text += fmt.Sprintf("  trackers: {tensorboard: '%s'}\n", tb)
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	configure(false)
	args := []string{"serve", "--config.file", config, "--storage.tsdb.path", data, "--web.listen-address", "127.0.0.1:0"}
	p := start(t, args...)

	// Step 0 lies there whole, step 1 is still being written.
	zero, one := filepath.Join(dumps, "rollout_0.pt"), filepath.Join(dumps, "rollout_1.pt")
	whole := filepath.Join(t.TempDir(), "rollout_1.pt")
	writeStep(t, whole, smallStep(1, 3))
	b, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(one, b[:len(b)*2/3], 0o644); err != nil {
		t.Fatal(err)
	}
	writeStep(t, zero, smallStep(0, 3))
	eventually(t, "step 0 is there and step 1 is incomplete", func() bool {
		f := waitingFiles(t, p, "math")
		return len(steps(t, p, "math")) == 1 && len(f) == 1 && f[0].State == "incomplete"
	})
	if s := steps(t, p, "math"); s[0].ID != 0 || s[0].Samples != 8 {
		t.Fatalf("%+v", s)
	}
	grow, err := os.OpenFile(one, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := grow.Write(b[len(b)*2/3:]); err != nil {
		t.Fatal(err)
	}
	if err := grow.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "step 1 is whole", func() bool { return len(steps(t, p, "math")) == 2 })

	// Step 1 runs once more.
	again := smallStep(1, 4)
	again.Start = hourAfter(t, steps(t, p, "math")[1])
	writeStep(t, one, again)
	eventually(t, "step 1 has a second attempt", func() bool { s := steps(t, p, "math"); return len(s) == 2 && s[1].Attempt == 1 })
	first := api.Envelope[api.StepDetail]{}
	if code := get(t, p.url, ours+"/rollouts/math/steps/train/1", url.Values{"attempt": {"0"}}, &first); code != 200 || first.Data.Step.Attempts != 2 {
		t.Errorf("the first attempt: %d, %+v", code, first.Data.Step)
	}
	// Its texts are gone with the file; those of the second are there.
	var text api.Envelope[api.SampleText]
	if code := get(t, p.url, ours+"/timelines/"+url.PathEscape("math/train-1.1")+"/rows/0/text", nil, &text); code != 200 || text.Data.Prompt == "" {
		t.Errorf("text of the second attempt: %d, %+v", code, text.Data)
	}
	if code := get(t, p.url, ours+"/timelines/"+url.PathEscape("math/train-1.0")+"/rows/0/text", nil, nil); code != 404 {
		t.Errorf("text of the first attempt: %d", code)
	}
	p.stop()
	published := files(t, tb)
	if len(published) != 2 { // the run, and the attempt before
		t.Errorf("event files %d", len(published))
	}

	p = start(t, args...)
	if s := steps(t, p, "math"); len(s) != 2 || s[1].Attempt != 1 {
		t.Errorf("after a restart: %+v", s)
	}
	// A new dump is read after the old ones were looked at.
	configure(true)
	writeStep(t, filepath.Join(more, "rollout_5.pt"), smallStep(5, 5))
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the run that was added is watched", func() bool { s := steps(t, p, "code"); return len(s) == 1 && s[0].ID == 5 })
	if log := p.err.String(); strings.Contains(log, "not taken over") {
		t.Errorf("a reload with a tracker in use fails:\n%s", log)
	}
	if s := steps(t, p, "math"); len(s) != 2 || s[1].Attempt != 1 {
		t.Errorf("after a reload: %+v", s)
	}
	p.stop()
	now := files(t, tb)
	for path, was := range published {
		if now[path] != was {
			t.Errorf("%s changed over a restart", path)
		}
	}
	if len(now) != len(published)+1 {
		t.Errorf("%d event files, want one more than %d", len(now), len(published))
	}
}

// A dump of long ago is a step like any other; its requests are older than events are kept. They are counted
// once, and whoever looks for them is told why they are not there.
func TestOldDump(t *testing.T) {
	dumps := t.TempDir()
	o := smallStep(0, 3)
	o.Start = time.Date(2010, 5, 1, 12, 0, 0, 0, time.UTC)
	writeStep(t, filepath.Join(dumps, "rollout_0.pt"), o)
	p := start(t, "serve", "--rollouts", filepath.Join(dumps, "rollout_{rollout_id}.pt"), "--storage.tsdb.path", t.TempDir(), "--web.listen-address", "127.0.0.1:0")
	var step api.Step
	eventually(t, "the step is there", func() bool {
		var e api.Envelope[api.Runs]
		get(t, p.url, ours+"/rollouts", nil, &e)
		for _, r := range e.Data.Runs {
			for _, step = range steps(t, p, r.Name) {
				return true
			}
		}
		return false
	})
	var e api.Envelope[api.Status]
	get(t, p.url, ours+"/status", nil, &e)
	if len(e.Data.Drops) != 1 || e.Data.Drops[0] != (api.Drop{Source: "events", Reason: "too_old", Count: int64(step.Requests)}) {
		t.Errorf("dropped %+v, want each of %d requests once", e.Data.Drops, step.Requests)
	}
	at := slices.IndexFunc(e.Data.Notices, func(w api.Warning) bool { return w.Code == "events_too_old" })
	if at < 0 || !strings.Contains(e.Data.Notices[at].Message, "older than the 30d that events are kept") || !strings.Contains(e.Data.Notices[at].Hint, "--events.retention") {
		t.Errorf("notices %+v", e.Data.Notices)
	}
}

// hourAfter is an hour after a step ended.
func hourAfter(t *testing.T, s api.Step) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, *s.End)
	if err != nil {
		t.Fatal(err)
	}
	return at.Add(time.Hour)
}

// What the Python sender posts is a step, and is still one when the directory is opened as an archive.
func TestPythonSender(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		missing(t, "no python3")
	}
	data := t.TempDir()
	p := start(t, "serve", "--storage.tsdb.path", data, "--web.listen-address", "127.0.0.1:0")
	cmd := exec.CommandContext(t.Context(), python, "-c", `
import sys
import rollscope_trace as rt

class Sample:
    def __init__(self, i):
        self.index, self.group_index, self.status, self.reward = i, i // 2, "completed", i / 4
        self.prompt, self.response, self.response_length = "question %d" % i, "answer <b>%d</b> ü" % i, 3

samples = [Sample(i) for i in range(5)]
for s in samples:
    with rt.trace_span(s, "generate_and_rm"):
        with rt.trace_span(s, "sglang_generate") as span:
            span.update(rt.build_sglang_meta_trace_attrs({"prompt_tokens": 6, "completion_tokens": 3, "e2e_latency": 1.5, "queue_time": 0.5, "finish_reason": {"type": "stop"}}))
with rt.Sender(sys.argv[1], run="posted", batch=2) as sender:
    sender.send_samples(samples, rollout_id=3)
print(sender.stats())
`, p.url)
	cmd.Env = append(os.Environ(), "PYTHONPATH=../../clients/python", "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, "the posted step is there", func() bool { return len(steps(t, p, "posted")) == 1 })
	check := func(p *process) {
		t.Helper()
		s := steps(t, p, "posted")
		if len(s) != 1 || s[0].ID != 3 || s[0].Samples != 5 || s[0].Requests != 5 || s[0].Reward.Value == nil || *s[0].Reward.Value != 0.5 || s[0].Problems != 0 {
			t.Errorf("%+v", s)
		}
		var d api.Envelope[api.StepDetail]
		get(t, p.url, ours+"/rollouts/posted/steps/train/3", nil, &d)
		found := false
		for _, m := range d.Data.Metrics {
			if m.Key == "perf/request/e2e_latency/mean" && m.Value.Value != nil && *m.Value.Value == 1.5 {
				found = true
			}
		}
		if !found {
			t.Error("the latency that was recorded is not the step's")
		}
		var text api.Envelope[api.SampleText]
		if code := get(t, p.url, ours+"/timelines/"+url.PathEscape(s[0].Timeline)+"/rows/4/text", nil, &text); code != 200 || text.Data.Response != "answer <b>4</b> ü" {
			t.Errorf("text: %d %+v", code, text.Data)
		}
	}
	check(p)
	p.stop()
	p = start(t, "replay", data, "--web.listen-address", "127.0.0.1:0")
	check(p)
	if code, _ := post(t, p.url+ours+"/rollouts", "{}"); code != 404 && code != 403 {
		t.Errorf("an archive answers a batch with %d", code)
	}
	p.stop()
}

func post(t *testing.T, to, body string) (code int, answer []byte) {
	t.Helper()
	resp, err := http.Post(to, "application/x-ndjson", strings.NewReader(body))
	if err != nil {
		return 0, nil // the server went: nothing was acknowledged
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil
	}
	return resp.StatusCode, answer
}

// What was acknowledged before a kill is in the step that comes out, once.
func TestKillBetweenBatches(t *testing.T) {
	rounds := 3
	if s := os.Getenv("ROLLSCOPE_KILL_ROUNDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		rounds = n
	}
	args := []string{"serve", "--storage.tsdb.path", t.TempDir(), "--web.listen-address", "127.0.0.1:0"}
	batch := func(part int, final bool) string {
		head := fmt.Sprintf(`{"version":1,"run":"killed","kind":"train","rollout_id":1,"part":%d,"final":%t,"batch_id":"b%d","upload":"u"}`, part, final, part)
		if final {
			return head + "\n"
		}
		return fmt.Sprintf("%s\n{\"index\":%d,\"group_index\":0,\"prompt\":\"p\",\"response\":\"r%d\",\"response_length\":1,\"reward\":1,\"status\":\"completed\",\"metadata\":{}}\n", head, part, part)
	}
	part := 0
	for range rounds {
		p := start(t, args...)
		for range 5 {
			code, answer := post(t, p.url+ours+"/rollouts", batch(part, false))
			if code != 200 {
				t.Fatalf("part %d is answered with %d: %s", part, code, answer)
			}
			part++
		}
		// The last answer is lost: it comes again after the kill, and counts once.
		p.kill()
		part--
	}
	p := start(t, args...)
	var got api.Envelope[api.Received]
	for _, n := range []int{part, part + 1} {
		code, answer := post(t, p.url+ours+"/rollouts", batch(n, n > part))
		if err := json.Unmarshal(answer, &got); code != 200 || err != nil {
			t.Fatalf("part %d is answered with %d: %s", n, code, answer)
		}
	}
	eventually(t, "the step is there", func() bool { return len(steps(t, p, "killed")) == 1 })
	if s := steps(t, p, "killed")[0]; s.Samples != part+1 || s.Attempts != 1 || s.Problems != 0 {
		t.Errorf("%d samples were acknowledged; the step has %d, attempt %d, %d problems", part+1, s.Samples, s.Attempt, s.Problems)
	}
	for row := range part + 1 {
		var text api.Envelope[api.SampleText]
		get(t, p.url, ours+"/timelines/"+url.PathEscape(steps(t, p, "killed")[0].Timeline)+"/rows/"+strconv.Itoa(row)+"/text", nil, &text)
		if text.Data.Response != fmt.Sprintf("r%d", row) {
			t.Errorf("row %d says %q", row, text.Data.Response)
		}
	}
	p.stop()
}

// Case D10: a large step is shown window by window; searching, sorting and cutting are the server's work.
func TestD10LargeStep(t *testing.T) {
	needUI(t)
	path := filepath.Join(t.TempDir(), "rollout_0.pt")
	st, err := rolls.WriteFile(path, rolls.Options{Samples: 2000, MultiTurn: 1, PD: true, ToolHangs: 0.2, Response: rolls.Lengths{Median: 12, Sigma: 0.8, Max: 300}, Prompt: rolls.Lengths{Median: 8, Max: 8}})
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, "view", path, "--listen", "127.0.0.1:0", "--out", t.TempDir(), "--no-cache")
	p.url = strings.TrimSuffix(p.url, "/rollouts")
	var list api.Envelope[api.Timelines]
	eventually(t, "the dump is read", func() bool {
		list = api.Envelope[api.Timelines]{}
		get(t, p.url, ours+"/timelines", nil, &list)
		return len(list.Data.Timelines) == 1
	})
	base := ours + "/timelines/" + url.PathEscape(list.Data.Timelines[0].ID)
	total := 0
	fetch := func(path string) []byte {
		t.Helper()
		resp, err := http.Get(p.url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %d %v %.200s", path, resp.StatusCode, err, b)
		}
		total += len(b)
		return b
	}
	window := func(query string) *timeline.Columns {
		t.Helper()
		c, err := timeline.Decode(fetch(base + "/window?" + query))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	// The first view, as the page asks for it.
	fetch("/rollouts")
	fetch(base)
	fetch(base + "/order")
	fetch(base + "/raster?w=1200&h=80")
	if c := window("from=0&count=60&px=1600"); c.Rows() != 60 || c.Items() == 0 || c.Items() > st.Events {
		t.Errorf("60 rows have %d with %d items", c.Rows(), c.Items())
	}
	if total >= 5_000_000 || total == 0 {
		t.Errorf("the first view takes %d bytes", total)
	}
	t.Logf("%d events; the first view takes %d bytes", st.Events, total)

	row := func(n int) (d struct {
		Row int
		Dur float64
	}) {
		t.Helper()
		var hits api.Envelope[api.TimelineHits]
		if err := json.Unmarshal(fetch(fmt.Sprintf("%s/find?sort=dur&desc=1&from=%d&limit=1", base, n)), &hits); err != nil || len(hits.Data.Hits) != 1 {
			t.Fatalf("%v: %+v", err, hits)
		}
		d.Row = hits.Data.Hits[0].Row
		var detail api.Envelope[struct{ Start, Dur float64 }]
		if err := json.Unmarshal(fetch(base+"/rows/"+strconv.Itoa(d.Row)), &detail); err != nil {
			t.Fatal(err)
		}
		d.Dur = detail.Data.Dur
		return d
	}
	if a, b, z := row(0), row(1), row(1999); a.Dur < b.Dur || b.Dur < z.Dur || a.Dur <= z.Dur {
		t.Errorf("sorted by duration: %+v, %+v, ..., %+v", a, b, z)
	}
	for _, filter := range []string{"status=truncated", "status=completed", "attempts>1"} {
		var hits api.Envelope[api.TimelineHits]
		if err := json.Unmarshal(fetch(base+"/find?limit=1&filter="+url.QueryEscape(filter)), &hits); err != nil {
			t.Fatal(err)
		}
		want := st.Completed
		if filter == "status=truncated" {
			want = st.Truncated
		}
		if filter == "attempts>1" {
			if hits.Data.Total == 2000 {
				t.Error("every sample has several attempts")
			}
		} else if hits.Data.Total != want {
			t.Errorf("%s keeps %d, want %d", filter, hits.Data.Total, want)
		}
	}
	// A window cut out of the middle begins and ends what runs over its edges.
	var head struct{ Extent [2]int64 }
	b := fetch(base)
	if err := json.Unmarshal(b[8:8+int(b[4])+int(b[5])<<8+int(b[6])<<16], &head); err != nil {
		t.Fatal(err)
	}
	length := head.Extent[1] - head.Extent[0]
	t0, t1 := head.Extent[0]+length/3, head.Extent[0]+length/2
	var trace struct {
		TraceEvents []struct {
			Ph      string
			TS, Dur float64
		} `json:"traceEvents"`
	}
	if err := json.NewDecoder(bytes.NewReader(fetch(fmt.Sprintf("%s/perfetto?t0=%d&t1=%d", base, t0, t1)))).Decode(&trace); err != nil {
		t.Fatal(err)
	}
	spans, cut := 0, 0
	for _, e := range trace.TraceEvents {
		if e.Ph != "X" {
			continue
		}
		spans++
		if e.TS < float64(t0)-1 || e.TS+e.Dur > float64(t1)+1 {
			t.Fatalf("a span from %g to %g in the window %d to %d", e.TS, e.TS+e.Dur, t0, t1)
		}
		if e.TS < float64(t0)+1 {
			cut++
		}
	}
	if spans == 0 || cut == 0 {
		t.Errorf("%d spans, %d of them begin at the cut", spans, cut)
	}
	p.stop()
}
