package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// One answer of each route of ours, whole: the contract that the pages are written against.
func TestGolden(t *testing.T) {
	a := newAPI(t)
	engine := ours + "/engines/" + url.PathEscape(EngineID("sglang", fakeFleet[2]))
	for _, c := range []struct{ name, target string }{
		{"status", ours + "/status"},
		{"targets", ours + "/targets"},
		{"engines", ours + "/engines?columns=ttft:p99,queue_depth,pd_queue"},
		{"engine", engine + "?columns=ttft:p99"},
		{"signals", ours + "/signals?limit=2"},
		{"signal", ours + "/signals/ttft?from=2026-01-02T14:00:00Z&to=2026-01-02T15:00:00Z&step=15s"},
		{"signal_by_engine", ours + "/signals/ttft?by=engine&engine=" + url.QueryEscape(EngineID("sglang", fakeFleet[2])) + "&quantiles=0.9"},
		{"metrics-catalog", ours + "/metrics-catalog"},
		{"overview", ours + "/overview?columns=ttft:p99"},
		{"alerts", ours + "/alerts"},
		{"boards", ours + "/boards"},
		{"board", ours + "/boards/golden"},
		{"drops", ours + "/drops"},
		{"config", ours + "/config"},
		{"rollouts", ours + "/rollouts"},
		{"steps", ours + "/rollouts/math-7b/steps?metrics=perf_step/wall_time,train/loss"},
		{"steps_eval", ours + "/rollouts/math-7b/steps?kind=eval"},
		{"step", ours + "/rollouts/math-7b/steps/train/7"},
		{"timelines", ours + "/timelines"},
		{"timeline_stats", fakeTimelinePath + "/stats?filter=status%3Dcompleted"},
		{"timeline_summary", fakeTimelinePath + "/summary?filter=status%3Dcompleted"},
		{"timeline_find", fakeTimelinePath + "/find?text=sglang&limit=2&sort=dur&desc=1"},
		{"timeline_row", fakeTimelinePath + "/rows/0"},
		{"timeline_text", fakeTimelinePath + "/rows/0/text"},
		{"timeline_perfetto", fakeTimelinePath + "/perfetto?filter=row%3D0"},
		{"grafana_search", "/api/search?query=SGLang"},
		{"grafana_dashboard", "/api/dashboards/uid/rollscope-golden"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := ask(a, "GET", c.target, "")
			if w.Code != 200 {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			golden(t, c.name, w.Body.Bytes())
		})
	}
}

// Whatever goes wrong, the answer is the one error object, and it says what to do.
func TestErrors(t *testing.T) {
	a := newAPI(t)
	broken := newAPI(t, func(o *Options) { o.Reader = fakeReader{signalErr: errors.New("open block 01ABC: input/output error")} })
	slow := newAPI(t, func(o *Options) { o.Reader = fakeReader{signalErr: fmt.Errorf("query: %w", context.DeadlineExceeded)} })
	for _, c := range []struct {
		a                   *API
		target, code, where string
		status              int
		says                string
	}{
		{a, "/signals/nothing", "not_found", "", 404, "lists them"},
		{a, "/boards/nothing", "not_found", "", 404, "lists them"},
		{a, "/engines/nothing", "not_found", "", 404, "lists them"},
		{a, "/signals/ttft?from=yesterday", "bad_parameter", "from", 400, "RFC 3339"},
		{a, "/signals/ttft?from=now-1x", "bad_parameter", "from", 400, "now-1h30m"},
		{a, "/signals/ttft?from=now&to=now-1h", "bad_parameter", "from", 400, "is not before"},
		{a, "/signals/ttft?from=NaN", "bad_parameter", "from", 400, "out of range"},
		{a, "/signals/ttft?step=0.1", "bad_parameter", "step", 400, "at least 1s"},
		{a, "/signals/ttft?from=now-30d&step=1", "bad_parameter", "step", 400, "more than 11000 points"},
		{a, "/signals/ttft?by=planet", "bad_parameter", "by", 400, "fleet, engine, role, model"},
		{a, "/signals/ttft?quantiles=0.5,2", "bad_parameter", "quantiles", 400, "0 to 1"},
		{a, "/signals/ttft?qantiles=0.5", "bad_parameter", "qantiles", 400, "quantiles"},
		{a, "/engines?columns=ttft:p99,nothing", "bad_parameter", "columns", 400, "no signal"},
		{a, "/engines?columns=ttft:p101", "bad_parameter", "columns", 400, "p0 to p100"},
		{a, "/engines?columns=queue_depth:p99", "bad_parameter", "columns", 400, "no percentile"},
		{a, "/engines?limit=0", "bad_parameter", "limit", 400, "from 1 to 10000"},
		{a, "/engines?after=gone", "bad_parameter", "after", 400, "leave it out"},
		{broken, "/signals/ttft", "internal", "", 500, "input/output error"},
		{broken, "/overview", "internal", "", 500, "input/output error"},
		{slow, "/signals/ttft", "timeout", "", 503, "shorter range"},
	} {
		t.Run(c.target, func(t *testing.T) {
			w := ask(c.a, "GET", ours+c.target, "")
			body := decode[ErrorBody](t, w)
			if w.Code != c.status || body.Error.Code != c.code || c.where != "" && body.Error.Where != c.where {
				t.Errorf("status %d, %+v", w.Code, body.Error)
			}
			if text := body.Error.Message + " " + body.Error.Hint; !strings.Contains(text, c.says) {
				t.Errorf("%q does not say %q", text, c.says)
			}
		})
	}
	if w := ask(a, "GET", "/api/dashboards/uid/x", ""); w.Code != 404 || !strings.Contains(w.Body.String(), `"message":"Dashboard not found`) {
		t.Errorf("Grafana: %d %s", w.Code, w.Body)
	}
}

func TestReloadFailure(t *testing.T) {
	a := newAPI(t, func(o *Options) {
		o.Reload = func(context.Context) error { return errors.New("rollscope.yaml:3: unknown key scrape_config") }
	})
	w := ask(a, "POST", "/-/reload", "")
	if body := decode[ErrorBody](t, w); w.Code != 500 || body.Error.Code != "bad_config" || !strings.Contains(body.Error.Message, ":3:") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	none := newAPI(t, func(o *Options) { o.Reload = nil })
	if w := ask(none, "POST", "/-/reload", ""); w.Code != 404 {
		t.Errorf("nothing to reload: %d", w.Code)
	}
}

// The list can be walked page by page and comes out whole.
func TestPages(t *testing.T) {
	a := newAPI(t)
	var all []string
	after := ""
	for n := 0; n < 10; n++ {
		w := ask(a, "GET", ours+"/engines?columns=queue_depth&limit=2&after="+url.QueryEscape(after), "")
		e := decode[Envelope[Engines]](t, w)
		for _, x := range e.Data.Engines {
			all = append(all, x.Instance)
		}
		if after = e.Next; after == "" {
			break
		}
	}
	slices.Sort(all) // the worst come first
	if strings.Join(all, " ") != strings.Join(fakeFleet, " ") {
		t.Errorf("got %v", all)
	}
}

// An archive has no targets and no rules; its now is the end of the data.
func TestArchive(t *testing.T) {
	a := newAPI(t, func(o *Options) {
		o.Mode, o.Targets, o.Rules = ModeArchive, nil, nil
		o.Access = Access{}
	})
	status := decode[Envelope[Status]](t, ask(a, "GET", ours+"/status", "")).Data
	if !status.ReadOnly || status.Mode != "archive" || status.To == nil {
		t.Errorf("%+v", status)
	}
	for _, path := range []string{"/overview", "/alerts", "/targets", "/engines"} {
		if w := ask(a, "GET", ours+path, ""); w.Code != 200 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	data := decode[Envelope[SignalData]](t, ask(a, "GET", ours+"/signals/ttft?from=now-30m", "")).Data
	if data.To != stamp(now) || data.From != stamp(now.Add(-30*60e9)) {
		t.Errorf("from %s to %s", data.From, data.To)
	}
}

// Nothing recorded yet: lists are empty, not null.
func TestNothingRecorded(t *testing.T) {
	a := newAPI(t, func(o *Options) { o.Reader = fakeReader{noData: true}; o.Boards = nil; o.ConfigView = nil })
	w := ask(a, "GET", ours+"/status", "")
	var raw map[string]map[string]json.RawMessage
	if err := json.Unmarshal(w.Body.Bytes(), &raw); err != nil {
		_ = err // only data is an object
	}
	s := w.Body.String()
	for _, want := range []string{`"from":null`, `"to":null`, `"gaps":[]`, `"warnings":[]`} {
		if !strings.Contains(s, want) {
			t.Errorf("%s lacks %s", s, want)
		}
	}
	if s := ask(a, "GET", ours+"/boards", "").Body.String(); !strings.Contains(s, `"data":[]`) {
		t.Error(s)
	}
}
