package app

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/planner"
)

// Each time of a recording has the settings that were in force then, and each namespace its mode.
func TestPlanHistory(t *testing.T) {
	path := planHistoryIn(t.TempDir())
	day := func(n int) time.Time { return time.Date(2026, 1, n, 12, 0, 0, 5, time.UTC) }
	sla := planner.Defaults()
	sla.Target, sla.TTFT, sla.EnableLoad = planner.TargetSLA, 0.25, true
	pools := map[string]config.PassPool{"prefill": {Components: []string{"first"}, MaxBatchedTokens: 8192}}
	standard, _, err := planner.Parse("", nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(do func(h *planHistory) error) {
		t.Helper()
		h, err := openPlanHistory(path)
		if err == nil {
			err = do(h)
		}
		if err == nil {
			err = h.save()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(func(h *planHistory) error { return h.use(day(2), standard, false, false, nil) })
	write(func(h *planHistory) error {
		h.mode(day(3), "n", planner.ModeAgg, "one")
		h.mode(day(4), "n", planner.ModeAgg, "one") // nothing new
		h.mode(day(5), "n", planner.ModeDisagg, "two")
		h.mode(day(6), "m", planner.ModeAgg, "one")
		return h.use(day(4), standard, false, false, nil) // nothing new
	})
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	write(func(h *planHistory) error { return h.use(day(6), sla, true, true, pools) })
	h, err := openPlanHistory(path)
	if err != nil || len(h.list.Settings) != 2 || len(h.list.Modes) != 3 {
		t.Fatalf("%+v %v", h, err)
	}
	if s, modes := h.at(day(1)); s != nil || len(modes) != 0 {
		t.Errorf("before the recording: %+v %v", s, modes)
	}
	for _, c := range []struct {
		at    time.Time
		from  int
		want  planner.Config
		given bool
		n     string
	}{{day(2), 2, standard, false, ""}, {day(4), 2, standard, false, "agg"}, {day(5), 2, standard, false, "disagg"}, {day(9), 6, sla, true, "disagg"}} {
		s, modes := h.at(c.at)
		if s == nil {
			t.Fatalf("nothing of %v", c.at)
		}
		got, err := s.config(path)
		if err != nil || !s.From.Equal(day(c.from)) || !reflect.DeepEqual(got, c.want) || s.Given != c.given || modes["n"].Mode != c.n {
			t.Errorf("%v: %+v %+v %v, %v", c.at, s, got, modes, err)
		}
		if want := c.from == 6; want != reflect.DeepEqual(s.Pools, pools) {
			t.Errorf("%v: pools %+v", c.at, s.Pools)
		}
	}
	write(func(h *planHistory) error {
		for i := range 400 {
			sla.MinDecode = i + 1
			if err := h.use(day(7), sla, true, true, pools); err != nil {
				return err
			}
		}
		return nil
	})
	h, err = openPlanHistory(path)
	if info, statErr := os.Stat(path); err != nil || statErr != nil || len(h.list.Settings) != maxPlanSettings || info.Size() > maxPlanHistory/4 || before.Size() > 2<<10 {
		t.Errorf("it grows without bound: %v %v", err, statErr)
	}
}

// A history that cannot be read is told, counted and laid aside; the next one begins.
func TestPlanHistoryDamaged(t *testing.T) {
	r := newPlanRig(t, "")
	for name, text := range map[string]string{
		"no yaml": "a: [", "another version": "version: 2\n", "settings": "version: 1\nsettings: [{from: 2026-01-01T00:00:00Z, planner: {mode: sideways}}]\n",
		"large": strings.Repeat("#", maxPlanHistory+1), "a time": "version: 1\nmodes: [{from: yesterday}]\n",
	} {
		home := t.TempDir()
		path := planHistoryIn(home)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
		if _, err := openPlanHistory(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
		r.plan = newPlanning(r.plan.metrics, quiet)
		r.plan.remember(home)
		if err := r.plan.apply(planConfig(t, "  planner: {ttft_ms: 250}\n")); err != nil {
			t.Fatal(err)
		}
		r.say("n", "backend", fpm.Pass{WorkerID: "7", Wall: 0.01, Scheduled: fpm.Scheduled{DecodeRequests: 1, DecodeKV: 10}})
		r.refresh()
		if aside, err := os.ReadFile(path + ".damaged"); err != nil || string(aside) != text {
			t.Errorf("%s: it is not laid aside: %v", name, err)
		}
		drops := map[string]int64{}
		for _, d := range r.plan.drops() {
			drops[d.Source+"/"+d.Reason] = d.Count
		}
		if h, err := openPlanHistory(path); err != nil || len(h.list.Settings) != 1 || len(h.list.Modes) != 1 || drops["planner/damaged_settings"] != 1 {
			t.Errorf("%s: %+v %v, drops %v", name, h, err, drops)
		}
	}
}

// A planning that recalls what another one wrote down answers with its settings and mode, and says so.
func TestPlanHistoryRecalled(t *testing.T) {
	home := t.TempDir()
	r := newPlanRig(t, "")
	r.plan.remember(home)
	if err := r.plan.apply(planConfig(t, "  planner: {optimization_target: sla, ttft_ms: 250, itl_ms: 20}\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(planHistoryIn(home)); err == nil {
		t.Error("without passes there is nothing to write down")
	}
	decode := fpm.Pass{WorkerID: "7", Wall: 0.01, Scheduled: fpm.Scheduled{DecodeRequests: 1, DecodeKV: 10}}
	r.say("n", "backend", decode)
	r.say("n", "prefill", fpm.Pass{WorkerID: "8", Wall: 0.01, Scheduled: fpm.Scheduled{PrefillRequests: 1, PrefillTokens: 10}})
	r.refresh()
	live := r.advice("n")
	if live.SettingsFrom != "the configuration" || live.Mode != "disagg" {
		t.Fatalf("%+v", live)
	}

	h, err := openPlanHistory(planHistoryIn(home))
	if err != nil {
		t.Fatal(err)
	}
	late := newPlanRig(t, "")
	if err := late.plan.recall(h, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	late.say("n", "backend", decode) // alone, which would be another mode
	late.refresh()
	d := late.advice("n")
	if d.Mode != "disagg" || d.ModeFrom != live.ModeFrom || d.Target != "sla" || d.TTFT != 0.25 || d.ITL != 0.02 || !strings.HasPrefix(d.SettingsFrom, "the recording: the configuration, in force since 20") {
		t.Errorf("recalled: %+v", d)
	}
	if c := late.capacity(api.CapacityQuery{}); c.SettingsFrom != d.SettingsFrom || c.TTFT != 0.25 {
		t.Errorf("capacity: %+v", c)
	}

	early := newPlanRig(t, "")
	if err := early.plan.recall(h, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	early.say("n", "backend", decode)
	early.refresh()
	if d := early.advice("n"); d.Mode != "agg" || d.SettingsFrom != "Dynamo's defaults" {
		t.Errorf("before anything was written down: %+v", d)
	}
}

// An answer about capacity names its namespace, why it is that one, and the others.
func TestCapacityNamesItsNamespace(t *testing.T) {
	pass := fpm.Pass{WorkerID: "7", Wall: 0.01, Scheduled: fpm.Scheduled{DecodeRequests: 1, DecodeKV: 10}}
	r := newPlanRig(t, "")
	if c := r.capacity(api.CapacityQuery{}); c.Namespace != "" || c.NamespaceFrom != "" || len(c.Namespaces) != 0 || c.Reason == "" {
		t.Errorf("without passes: %+v", c)
	}
	r.say("b", "backend", pass)
	if c := r.capacity(api.CapacityQuery{}); c.Namespace != "b" || c.NamespaceFrom != "it is the only one" || !reflect.DeepEqual(c.Namespaces, []string{"b"}) {
		t.Errorf("one: %+v", c)
	}
	for range 20 {
		r.say("a", "backend", pass)
	}
	r.say("c", "backend", pass)
	both := []string{"a", "b", "c"}
	if c := r.capacity(api.CapacityQuery{}); c.Namespace != "a" || !strings.Contains(c.NamespaceFrom, "most passes came of it") || !reflect.DeepEqual(c.Namespaces, both) {
		t.Errorf("the busiest: %+v", c)
	}
	if c := r.capacity(api.CapacityQuery{Namespace: "c"}); c.Namespace != "c" || c.NamespaceFrom != "the question" || !reflect.DeepEqual(c.Namespaces, both) {
		t.Errorf("a named one: %+v", c)
	}
	r.say("", "backend", pass) // of an engine's own socket
	if c := r.capacity(api.CapacityQuery{Namespace: api.NoNamespace}); c.Namespace != "" || c.NamespaceFrom != "the question" || len(c.Namespaces) != 4 {
		t.Errorf("that without a name: %+v", c)
	}
}
