package dashboard

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/scrape"
	"github.com/rollscope/rollscope/internal/signal"
)

// captures are expositions of real systems, read where they lie; they are not part of this repository.
const captures = "../../../shared/fixtures/captures"

func capture(t *testing.T, name string) scrape.Exposition {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(captures, name))
	if os.IsNotExist(err) {
		t.Skipf("the real captures are not on this machine (%s)", captures)
	}
	if err != nil {
		t.Fatal(err)
	}
	return scrape.Inspect(data, "")
}

// Every panel is asked of every real capture: none fails, none gives a NaN, and those whose series the
// capture holds show them.
func TestPanelsOnRealCaptures(t *testing.T) {
	boards := Boards(signal.Default())
	for _, tc := range []struct {
		file  string
		shows string // "board/panel" ids, space separated
	}{
		{"dynamo/metrics_sglang_worker.prom", "golden/ttft golden/itl golden/throughput golden/cache_hit_rate golden/queue_depth golden/running golden/kv_usage_by_engine " +
			"dynamo-sglang/e2e dynamo-sglang/throughput dynamo-sglang/request_rate dynamo-sglang/running_queued_requests dynamo-sglang/kv_usage_by_engine " +
			"dynamo/component_requests_by_engine dynamo/component_duration_by_engine scheduler/tokens_by_kind scheduler/queue_time pd/time_per_stage"},
		{"dynamo/metrics_frontend.prom", "golden/ttft golden/itl golden/e2e dynamo/frontend_ttft dynamo/frontend_request_rate dynamo/outcomes dynamo/frontend_output_tokens dynamo/in_flight"},
		{"sglang/metrics/01_sglang_docs_example.prom", "golden/ttft golden/e2e golden/throughput golden/queue_depth sglang/running_queue"},
		{"sglang/metrics/06_smg_pr813_engine_metrics_real.prom", "golden/cache_hit_rate scheduler/tokens_by_kind scheduler/forward_passes_by_kind"},
		{"sglang/metrics/90_generated_prom2_accept.txt", "golden/ttft golden/running"},
		{"sglang/metrics/90_generated_plain_004.txt", "golden/ttft golden/running"},
		{"sglang/metrics/05_issue13485_v0.5.1_unified.prom", ""},
		{"sglang/metrics/11_pr7597_dp_rank.prom", ""},
	} {
		t.Run(filepath.Base(tc.file), func(t *testing.T) {
			f := record(t, scraped{"any", "10.0.0.1:30000", capture(t, tc.file)})
			for _, b := range boards {
				for _, s := range b.Sections {
					for _, p := range s.Panels {
						some := false
						for _, target := range p.Targets {
							for _, point := range f.ask(t, target.Expr) {
								some = true
								if math.IsNaN(point.F) || math.IsInf(point.F, 0) {
									t.Errorf("%s/%s: %v", b.ID, p.ID, point)
								}
							}
						}
						if want := strings.Contains(" "+tc.shows+" ", " "+b.ID+"/"+p.ID+" "); want && !some {
							t.Errorf("%s/%s shows nothing", b.ID, p.ID)
						}
					}
				}
			}
			for _, id := range strings.Fields(tc.shows) {
				board, panel, _ := strings.Cut(id, "/")
				if !hasPanel(boards, board, panel) {
					t.Errorf("there is no panel %s", id)
				}
			}
		})
	}
}

func hasPanel(boards []Board, board, panel string) bool {
	b, _ := Find(boards, board)
	for _, s := range b.Sections {
		for _, p := range s.Panels {
			if p.ID == panel {
				return true
			}
		}
	}
	return false
}
