package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/api"
)

// A recording is shown as its recorder showed it: with the names and roles of engines, the signals and the
// boards of a configuration that is no longer there.
func TestReplayRemembersNames(t *testing.T) {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		io.WriteString(w, "# TYPE sglang:num_queue_reqs gauge\nsglang:num_queue_reqs{model_name=\"m\",engine_type=\"unified\",tp_rank=\"0\",pp_rank=\"0\"} 3\n"+
			"# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs{model_name=\"m\",engine_type=\"unified\",tp_rank=\"0\",pp_rank=\"0\"} 5\n")
	}))
	defer engine.Close()
	address := strings.TrimPrefix(engine.URL, "http://")
	config, dir := filepath.Join(t.TempDir(), "rollscope.yml"), t.TempDir()
	if err := os.WriteFile(config, fmt.Appendf(nil, `scrape_configs:
  - {job_name: sglang, scrape_interval: 1s, static_configs: [{targets: ['%s']}]}
rollscope:
  engines: [{instance: '%s', name: prefill-zero, role: prefill}]
  signals: [{id: my_queue, title: My queue, unit: requests, kind: level, meaning: What waits., metric: num_queue_reqs}]
  boards: [{id: mine, title: Mine, sections: [{title: all, panels: [{id: q, signal: my_queue}]}]}]
`, address, address), 0o644); err != nil {
		t.Fatal(err)
	}
	shown := func(p *process) (name, role string, board bool, lines int) {
		var engines api.Envelope[api.Engines]
		get(t, p.url, ours+"/engines", nil, &engines)
		if len(engines.Data.Engines) == 1 {
			name, role = engines.Data.Engines[0].Name, engines.Data.Engines[0].Role
		}
		var boards api.Envelope[[]api.Board]
		get(t, p.url, ours+"/boards", nil, &boards)
		board = slices.ContainsFunc(boards.Data, func(b api.Board) bool { return b.ID == "mine" })
		var data api.Envelope[api.SignalData]
		get(t, p.url, ours+"/signals/my_queue", nil, &data)
		return name, role, board, len(data.Data.Lines)
	}
	p := start(t, "serve", "--config.file", config, "--storage.tsdb.path", dir, "--web.listen-address", "127.0.0.1:0")
	eventually(t, "the engine is there", func() bool {
		name, role, board, lines := shown(p)
		return name == "prefill-zero" && role == "prefill" && board && lines == 1
	})
	p.stop()
	p = start(t, "replay", dir, "--web.listen-address", "127.0.0.1:0")
	if name, role, board, lines := shown(p); name != "prefill-zero" || role != "prefill" || !board || lines != 1 {
		t.Errorf("replayed: engine %q, role %q, the board %v, %d lines of the signal", name, role, board, lines)
	}
}
