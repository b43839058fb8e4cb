package api

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/timeline"
)

// containerHead checks a container's frame and returns its head.
func containerHead(t *testing.T, w *httptest.ResponseRecorder) (head struct {
	Format  string
	Counts  struct{ Rows, Items int }
	Columns []struct {
		Name  string
		Count int
	}
}) {
	t.Helper()
	if got := w.Header().Get("Content-Type"); w.Code != 200 || got != timelineType {
		t.Fatalf("status %d, content type %q: %s", w.Code, got, w.Body)
	}
	b := w.Body.Bytes()
	if len(b) < 8 || string(b[:4]) != "RTC1" {
		t.Fatalf("no container: %.40q", b)
	}
	n := int(binary.LittleEndian.Uint32(b[4:]))
	if n > len(b)-8 {
		t.Fatalf("a head of %d bytes in %d", n, len(b))
	}
	if err := json.Unmarshal(b[8:8+n], &head); err != nil {
		t.Fatal(err)
	}
	if head.Format != timeline.Format {
		t.Errorf("format %q", head.Format)
	}
	return head
}

func TestTimelineContainers(t *testing.T) {
	a := newAPI(t)
	ix := timelineOf(t)
	names := func(w *httptest.ResponseRecorder) (out []string) {
		for _, c := range containerHead(t, w).Columns {
			out = append(out, c.Name)
		}
		return out
	}
	w := ask(a, "GET", fakeTimelinePath, "")
	if n := names(w); len(n) != 0 {
		t.Errorf("the head has columns: %v", n)
	}
	if w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("a head may be cached: %v", w.Header())
	}
	w = ask(a, "GET", fakeTimelinePath+"/order", "")
	if n := names(w); !slices.Equal(n, []string{"order.row"}) || containerHead(t, w).Columns[0].Count != ix.Rows() {
		t.Errorf("order: %v", n)
	}
	one := ask(a, "GET", fakeTimelinePath+"/order?filter="+url.QueryEscape("row=0"), "")
	if n := containerHead(t, one).Counts.Rows; n != 1 {
		t.Errorf("a filter of one row keeps %d", n)
	}
	window, err := timeline.Decode(ask(a, "GET", fakeTimelinePath+"/window?from=1&count=2&px=4000&open=1,2", "").Body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if window.Rows() != min(2, ix.Rows()-1) || window.Items() == 0 {
		t.Errorf("a window of two rows has %d with %d items", window.Rows(), window.Items())
	}
	cut, err := timeline.Decode(ask(a, "GET", fakeTimelinePath+"/window?count=100&t0=0&t1=1", "").Body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	all, err := timeline.Decode(ask(a, "GET", fakeTimelinePath+"/window?count=100", "").Body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if cut.Items() >= all.Items() {
		t.Errorf("one unit of time has %d items, all of it %d", cut.Items(), all.Items())
	}
	pictures := map[string]bool{}
	for _, by := range []string{"", "&by=class", "&by=name", "&by=attempt", "&by=status"} {
		pictures[ask(a, "GET", fakeTimelinePath+"/raster?w=30&h=7"+by, "").Body.String()] = true
	}
	if len(pictures) != 4 { // class is what it is without by
		t.Errorf("four ways to colour and none give %d pictures", len(pictures))
	}
	h := containerHead(t, ask(a, "GET", fakeTimelinePath+"/raster?w=30&h=7", ""))
	for _, c := range h.Columns {
		if c.Count != 30*7 {
			t.Errorf("%s has %d pixels, want 210", c.Name, c.Count)
		}
	}
	if len(h.Columns) != 2 {
		t.Errorf("raster: %+v", h.Columns)
	}
}

// A window for Perfetto can be read without the rest: whatever begins ends.
func TestTimelinePerfetto(t *testing.T) {
	a := newAPI(t)
	t0, t1 := timelineOf(t).Extent()
	mid := t0 + (t1-t0)/3
	w := ask(a, "GET", fakeTimelinePath+"/perfetto?t0="+itoa(mid)+"&t1="+itoa(mid+(t1-t0)/3), "")
	if w.Code != 200 || !strings.Contains(w.Header().Get("Content-Disposition"), "attachment") {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	var trace struct {
		TraceEvents []struct {
			Ph  string
			TS  float64
			Dur float64
		} `json:"traceEvents"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &trace); err != nil {
		t.Fatal(err)
	}
	spans := 0
	low, high := float64(mid), float64(mid+(t1-t0)/3)
	for _, e := range trace.TraceEvents {
		if e.Ph != "X" && e.Ph != "i" {
			continue
		}
		spans++
		if e.TS < low-1 || e.TS+e.Dur > high+1 { // units are microseconds here
			t.Errorf("an event from %g to %g in the window %g to %g", e.TS, e.TS+e.Dur, low, high)
		}
	}
	if spans == 0 {
		t.Error("the window has nothing")
	}
}

func itoa(n int64) string { b, _ := json.Marshal(n); return string(b) }

func TestRolloutErrors(t *testing.T) {
	a := newAPI(t)
	none := newAPI(t, func(o *Options) { o.Rollouts, o.Timelines = nil, nil })
	for _, c := range []struct {
		a                   *API
		target, code, where string
		status              int
		says                string
	}{
		{a, ours + "/rollouts/nothing/steps", "not_found", "", 404, "lists them"},
		{a, ours + "/rollouts/nothing/steps/train/7", "not_found", "", 404, "lists them"},
		{a, ours + "/rollouts/math-7b/steps/train/8", "not_found", "", 404, "step 8"},
		{a, ours + "/rollouts/math-7b/steps/train/7?attempt=1", "not_found", "", 404, "attempt 1"},
		{a, ours + "/rollouts/math-7b/steps/train/7?attempt=-1", "bad_parameter", "attempt", 400, "from 0"},
		{a, ours + "/rollouts/math-7b/steps/test/7", "bad_parameter", "kind", 400, "train, eval"},
		{a, ours + "/rollouts/math-7b/steps/train/last", "bad_parameter", "step", 400, "whole number"},
		{a, ours + "/rollouts/math-7b/steps?kind=test", "bad_parameter", "kind", 400, "train, eval"},
		{a, ours + "/rollouts/math-7b/steps?metrics=" + strings.Repeat("a,", 41), "bad_parameter", "metrics", 400, "at most 40"},
		{a, ours + "/rollouts/math-7b/steps?from=monday", "bad_parameter", "from", 400, "RFC 3339"},
		{a, ours + "/rollouts?after=nothing", "bad_parameter", "after", 400, "leave it out"},
		{a, ours + "/rollouts?what=1", "bad_parameter", "what", 400, "after, limit"},
		{a, ours + "/timelines/nothing", "not_found", "", 404, "nothing"},
		{a, ours + "/timelines/nothing/window", "not_found", "", 404, "nothing"},
		{a, ours + "/timelines/nothing/rows/0/text", "not_found", "", 404, "nothing"},
		{a, ours + "/timelines/nothing/perfetto", "not_found", "", 404, "nothing"},
		{a, fakeTimelinePath + "?filter=x", "bad_parameter", "filter", 400, "not known"},
		{a, fakeTimelinePath + "/order?filter=dur%3E%3E1", "bad_query", "filter", 400, "character 5"},
		{a, fakeTimelinePath + "/window?filter=status%3Cx", "bad_query", "filter", 400, "character 7"},
		{a, fakeTimelinePath + "/raster?filter=%2F(%2F", "bad_query", "filter", 400, ""},
		{a, fakeTimelinePath + "/stats?filter=flag%3Dgreen", "bad_query", "filter", 400, "carried"},
		{a, fakeTimelinePath + "/find?text=dur%3E", "bad_query", "filter", 400, "character 5"},
		{a, fakeTimelinePath + "/perfetto?filter=dur%3E", "bad_query", "filter", 400, "character 5"},
		{a, fakeTimelinePath + "/order?sort=beauty", "bad_query", "query", 400, "beauty"},
		{a, fakeTimelinePath + "/order?desc=perhaps", "bad_parameter", "desc", 400, "true"},
		{a, fakeTimelinePath + "/order?attempt=x", "bad_parameter", "attempt", 400, "whole number"},
		{a, fakeTimelinePath + "/window?count=1000000", "bad_parameter", "count", 400, "65536"},
		{a, fakeTimelinePath + "/window?t0=5&t1=5", "bad_parameter", "t1", 400, "after t0"},
		{a, fakeTimelinePath + "/window?open=1,x", "bad_parameter", "open", 400, "commas"},
		{a, fakeTimelinePath + "/raster?by=beauty", "bad_query", "query", 400, "attempt"},
		{a, fakeTimelinePath + "/summary?filter=flag%3Dgreen", "bad_query", "filter", 400, "carried"},
		{a, fakeTimelinePath + "/summary?t0=1", "bad_parameter", "t0", 400, "not known"},
		{a, ours + "/timelines/nothing/summary", "not_found", "", 404, "nothing"},
		{a, fakeTimelinePath + "/raster?w=0", "bad_parameter", "w", 400, "8192"},
		{a, fakeTimelinePath + "/raster?w=100000", "bad_parameter", "w", 400, "8192"},
		{a, fakeTimelinePath + "/rows/-1", "bad_parameter", "row", 400, "from 0"},
		{a, fakeTimelinePath + "/rows/10000", "not_found", "", 404, "has"},
		{a, fakeTimelinePath + "/rows/1/text", "not_found", "", 404, "no sample 1"},
		{none, ours + "/rollouts/math-7b/steps", "not_enabled", "", 404, "--rollouts"},
		{none, ours + "/rollouts/math-7b/steps/train/7", "not_enabled", "", 404, "--rollouts"},
		{none, fakeTimelinePath + "/window", "not_enabled", "", 404, "no timelines"},
		{none, fakeTimelinePath + "/rows/0/text", "not_enabled", "", 404, "no timelines"},
	} {
		t.Run(c.target[len(ours):], func(t *testing.T) {
			w := ask(c.a, "GET", c.target, "")
			body := decode[ErrorBody](t, w)
			if w.Code != c.status || body.Error.Code != c.code || c.where != "" && body.Error.Where != c.where {
				t.Errorf("status %d, %+v", w.Code, body.Error)
			}
			if text := body.Error.Message + " " + body.Error.Hint; !strings.Contains(text, c.says) {
				t.Errorf("%q does not say %q", text, c.says)
			}
		})
	}
	// A page that asks without knowing gets empty lists.
	if runs := decode[Envelope[Runs]](t, ask(none, "GET", ours+"/rollouts", "")).Data; len(runs.Runs) != 0 || runs.Watching {
		t.Errorf("without rollouts: %+v", runs)
	}
	if list := decode[Envelope[Timelines]](t, ask(none, "GET", ours+"/timelines", "")).Data; list.Timelines == nil {
		t.Error("the list of timelines is null")
	}
}

// The range keeps steps that any part of lies in it, and those without times.
func TestStepsInARange(t *testing.T) {
	a := newAPI(t)
	for query, want := range map[string]string{
		"":                          "train-6 train-7 eval-7 eval-9",
		"from=2026-01-02T14:10:01Z": "train-7 eval-7 eval-9",
		"to=2026-01-02T14:05:00Z":   "train-6 eval-9",
		"from=2026-01-02T14:12:00Z&to=2026-01-02T14:13:00Z&kind=train": "train-7",
		"limit=2":                   "train-6 train-7",
		"limit=2&after=train-7":     "eval-7 eval-9",
		"kind=eval&from=now&to=now": "eval-9",
	} {
		var got []string
		for _, s := range decode[Envelope[Steps]](t, ask(a, "GET", ours+"/rollouts/math-7b/steps?"+query, "")).Data.Steps {
			got = append(got, stepKey(s))
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%q: %s, want %s", query, s, want)
		}
	}
}

func TestReceive(t *testing.T) {
	a := newAPI(t)
	w := ask(a, "POST", ours+"/rollouts", `{"run":"math-7b","kind":"train","id":7,"samples":16}`)
	if got := decode[Envelope[Received]](t, w).Data; w.Code != 200 || got != (Received{Run: "math-7b", Kind: "train", ID: 7, Samples: 16, Total: 17}) {
		t.Errorf("%d %+v", w.Code, got)
	}
	for _, c := range []struct {
		code       string
		status     int
		retryAfter bool
	}{
		{"malformed", 400, false}, {"interrupted", 408, false}, {"conflict", 409, false}, {"late", 409, false}, {"too_large", 413, false},
		{"inbox_full", 503, true}, {"busy", 503, true}, {"disk_full", 507, true}, {"failed", 500, false}, {"not_enabled", 404, false},
	} {
		t.Run(c.code, func(t *testing.T) {
			a := newAPI(t, func(o *Options) { o.Rollouts = fakeRollouts{receiveErr: &Error{Code: c.code, Message: "why"}} })
			w := ask(a, "POST", ours+"/rollouts", "x")
			if e := decode[ErrorBody](t, w).Error; w.Code != c.status || e.Code != c.code || e.Message != "why" {
				t.Errorf("status %d, %+v; want %d", w.Code, e, c.status)
			}
			if got := w.Header().Get("Retry-After") != ""; got != c.retryAfter {
				t.Errorf("Retry-After %q", w.Header().Get("Retry-After"))
			}
		})
	}
	if w := ask(newAPI(t, func(o *Options) { o.Rollouts = fakeRollouts{receiveErr: errors.New("out of luck")} }), "POST", ours+"/rollouts", ""); w.Code != 500 {
		t.Errorf("an error without a word: %d", w.Code)
	}
	if w := ask(newAPI(t, func(o *Options) { o.Rollouts = nil }), "POST", ours+"/rollouts", ""); w.Code != 404 {
		t.Errorf("without rollouts: %d", w.Code)
	}
}

// Dumps alone: what answers from metrics is not there, the rest and the page are.
func TestViewMode(t *testing.T) {
	a := newAPI(t, func(o *Options) {
		o.Mode, o.Reader, o.Catalog, o.Prometheus, o.Targets, o.Rules, o.Boards = ModeView, nil, nil, Prometheus{}, nil, nil, nil
		o.Gatherer, o.ConfigView, o.Reload = nil, nil, nil
	})
	status := decode[Envelope[Status]](t, ask(a, "GET", ours+"/status", "")).Data
	if status.Mode != "view" || status.From != nil || status.To != nil {
		t.Errorf("%+v", status)
	}
	for path, want := range map[string]int{
		ours + "/rollouts": 200, ours + "/drops": 200, fakeTimelinePath: 200, fakeTimelinePath + "/order": 200, "/": 200, "/-/healthy": 200, "/metrics": 404,
		ours + "/overview": 404, ours + "/engines": 404, ours + "/signals": 404, ours + "/alerts": 404, ours + "/config": 404,
		"/api/v1/query?query=1": 404, "/federate": 404, "/api/search": 404,
	} {
		if w := ask(a, "GET", path, ""); w.Code != want {
			t.Errorf("%s: %d, want %d: %.200s", path, w.Code, want, w.Body)
		}
	}
	if w := ask(withCanceled(a, true), "GET", ours+"/live", ""); w.Code != 200 || !strings.Contains(w.Body.String(), "event: tick") {
		t.Errorf("live: %d %s", w.Code, w.Body)
	}
}
