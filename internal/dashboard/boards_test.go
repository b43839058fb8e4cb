package dashboard

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/signal"
)

// backends says which expositions together are the fleet of a backend.
var backends = map[engine.Backend][]string{
	engine.SGLang:         {"sglang-unified", "sglang-prefill", "sglang-decode"},
	engine.VLLM:           {"vllm-old", "vllm-new"},
	engine.Router:         {"router-smg", "router-old", "router-experimental"},
	engine.DynamoFrontend: {"dynamo-frontend", "dynamo-frontend-old"},
	// A worker answers with its runtime's metrics and its engine's in one body.
	engine.DynamoWorker: {"dynamo-worker-prefill", "dynamo-worker-decode", "sglang-prefill", "sglang-decode"},
	engine.DCGM:         {"dcgm"},
}

func fleetOf(t *testing.T, names ...string) *fleet {
	t.Helper()
	all := expositions(t)
	var targets []scraped
	for i, name := range names {
		instance := fmt.Sprintf("10.0.0.%d:30000", i+1)
		if worker, ok := strings.CutPrefix(name, "dynamo-worker-"); ok {
			instance = worker + ":8081"
		}
		targets = append(targets, scraped{"fleet", instance, all[name]})
	}
	return record(t, targets...)
}

// unseen are targets for which no program that we know the text of has a series.
var unseen = []string{"sglang:hicache_active_pin_count"}

func TestEveryPanelShowsSomethingOnEachBackendItClaims(t *testing.T) {
	cat := signal.Default()
	boards := Boards(cat)
	if len(boards) != 12 {
		t.Fatalf("%d boards, want 12", len(boards))
	}
	for backend, names := range backends {
		t.Run(string(backend), func(t *testing.T) {
			f := fleetOf(t, names...)
			panels := 0
			for _, b := range boards {
				for _, s := range b.Sections {
					for _, p := range s.Panels {
						if !slices.Contains(p.Claims, backend) {
							continue
						}
						panels++
						some := false
						for _, target := range p.Targets {
							v := f.ask(t, target.Expr)
							some = some || len(v) > 0
							for _, s := range v {
								if math.IsNaN(s.F) || math.IsInf(s.F, 0) {
									t.Errorf("board %s, panel %q: %s gives %v", b.ID, p.Title, target.Expr, s)
								}
							}
							if len(v) > 0 || target.Signal != "" && len(p.Claims) > 1 {
								continue
							}
							if !slices.ContainsFunc(unseen, func(name string) bool { return strings.Contains(target.Expr, name) }) {
								t.Errorf("board %s, panel %q claims %s, and a target is empty:\n%s", b.ID, p.Title, backend, target.Expr)
							}
						}
						if !some {
							t.Errorf("board %s, panel %q claims %s and shows nothing", b.ID, p.Title, backend)
						}
					}
				}
			}
			if panels == 0 {
				t.Error("no panel claims it")
			}
		})
	}
}

func TestBoardsAreWellFormed(t *testing.T) {
	ids := map[string]bool{}
	for _, b := range Boards(signal.Default()) {
		if ids[b.ID] || b.ID == "" || b.Title == "" || b.Meaning == "" || len(b.Tags) == 0 {
			t.Errorf("board %q: id taken, or something is empty", b.ID)
		}
		ids[b.ID] = true
		panels := map[string]bool{}
		for _, s := range b.Sections {
			if s.Title == "" || len(s.Panels) == 0 {
				t.Errorf("board %s: a section without title or panels", b.ID)
			}
			for _, p := range s.Panels {
				if p.Problem != "" {
					t.Errorf("board %s, panel %q: %s", b.ID, p.Title, p.Problem)
				}
				if p.ID == "" || panels[p.ID] {
					t.Errorf("board %s, panel %q: id %q is empty or taken", b.ID, p.Title, p.ID)
				}
				panels[p.ID] = true
				if p.Title == "" || p.Unit == "" || len(p.Targets) == 0 || len(p.Claims) == 0 {
					t.Errorf("board %s, panel %q lacks a title, unit, targets or claims: %+v", b.ID, p.Title, p)
				}
				for _, target := range p.Targets {
					if target.Expr == "" || target.Legend == "" {
						t.Errorf("board %s, panel %q: a target lacks expr or legend: %+v", b.ID, p.Title, target)
					}
				}
			}
		}
	}
}

// P08: every engine has one role, so that the roles of a board add up to the whole.
func TestRolesAddUpToTheWhole(t *testing.T) {
	cat := signal.Default()
	for _, names := range [][]string{
		{"sglang-unified", "sglang-prefill", "sglang-decode"},
		{"dynamo-worker-prefill", "dynamo-worker-decode", "sglang-prefill", "sglang-decode"},
	} {
		f := fleetOf(t, names...)
		for _, id := range []string{"throughput", "running", "queue_depth", "request_rate", "generation_tokens"} {
			s, ok := cat.Signal(id)
			if !ok {
				t.Fatalf("no signal %s", id)
			}
			ask := func(by signal.By) (sum float64, roles []string) {
				expr, err := signal.Compile(s, signal.Query{By: by})
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range f.ask(t, expr) {
					sum += p.F
					roles = append(roles, p.Metric.Get("role"))
				}
				return sum, roles
			}
			whole, _ := ask(signal.ByFleet)
			parts, roles := ask(signal.ByRole)
			if whole <= 0 || math.Abs(whole-parts) > 1e-9*whole {
				t.Errorf("%s of %v: %v over roles %v, the fleet %v", id, names, parts, roles, whole)
			}
			slices.Sort(roles)
			if len(roles) != len(slices.Compact(slices.Clone(roles))) || slices.Contains(roles, "") {
				t.Errorf("%s of %v: roles %v", id, names, roles)
			}
		}
	}
}
