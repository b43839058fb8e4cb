package child

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/VictoriaMetrics/VictoriaLogs/app/vlstorage"
	"github.com/VictoriaMetrics/metrics"

	"github.com/rollscope/rollscope/internal/eventstore/wire"
)

// settler answers [wire.SettlePath], one request at a time.
type settler struct {
	mu      sync.Mutex
	streams float64 // vl_streams_created_total that the index is known to have in files
}

func (s *settler) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "POST this path", http.StatusMethodNotAllowed)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var days []string
	if d := r.URL.Query().Get("days"); d != "" {
		days = strings.Split(d, ",")
	}
	answer := s.settle(r.Context(), days)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func (s *settler) settle(ctx context.Context, days []string) wire.Settled {
	if _, err := ask("/internal/force_flush"); err != nil {
		return wire.Settled{Reason: err.Error()}
	}
	pause := 10 * time.Millisecond
	for try := 1; ; try++ {
		m := stats()
		if m[`vl_storage_rows{type="storage/inmemory"}`] == 0 && m[`vl_pending_rows{type="storage"}`] == 0 {
			break
		}
		// It writes out all parts that are not being merged; what a merge makes is written the next time.
		if try == 10 {
			days = []string{"2"} // what all days begin with: somebody else's rows
		}
		for _, day := range days {
			if err := snapshot(day); err != nil {
				return wire.Settled{Reason: err.Error()}
			}
		}
		if !sleep(ctx, pause) {
			return wire.Settled{Reason: "canceled"}
		}
		pause = min(2*pause, 500*time.Millisecond)
	}
	m := stats()
	if created := m["vl_streams_created_total"]; created != s.streams {
		if err := settleIndex(ctx, days); err != nil {
			return wire.Settled{Reason: err.Error()}
		}
		s.streams = created
	}
	a := wire.Settled{
		Settled: true,
		Rows:    int64(m[`vl_storage_rows{type="storage/small"}`] + m[`vl_storage_rows{type="storage/big"}`]),
		Bytes:   int64(m[`vl_data_size_bytes{type="storage"}`] + m[`vl_data_size_bytes{type="indexdb"}`]),
	}
	for name, v := range m {
		switch {
		case strings.HasPrefix(name, "vl_free_disk_space_bytes{"):
			a.Free = int64(v)
		case strings.HasPrefix(name, "vl_storage_is_read_only{"):
			a.ReadOnly = v != 0
		}
	}
	return a
}

// settleIndex writes the index of the given days to files.
func settleIndex(ctx context.Context, days []string) error {
	const merges = `vl_merges_total{type="indexdb/inmemory"}`
	for range 20 {
		before := stats()
		if before[`vl_active_merges{type="indexdb/inmemory"}`] == 0 && before[`vl_active_merges{type="indexdb/file"}`] == 0 {
			for _, day := range days {
				if err := snapshot(day); err != nil {
					return err
				}
			}
			if after := stats(); after[merges] == before[merges] {
				return nil
			}
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("the index of streams is merged all the time")
}

// snapshot makes a snapshot of a day and removes it: what remains is that its data were written out.
func snapshot(day string) error {
	body, err := ask("/internal/partition/snapshot/create?partition_prefix=" + url.QueryEscape(day))
	if err != nil {
		return err
	}
	var paths []string
	if err := json.Unmarshal(body, &paths); err != nil {
		return fmt.Errorf("snapshot of %s: %w", day, err)
	}
	for _, p := range paths {
		if _, err := ask("/internal/partition/snapshot/delete?path=" + url.QueryEscape(p)); err != nil {
			return err
		}
	}
	return nil
}

// stats are the storage's numbers by name and labels.
func stats() map[string]float64 {
	var b bytes.Buffer
	metrics.WritePrometheus(&b, false)
	m := map[string]float64{}
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSuffix(line, "\n")
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || !strings.HasPrefix(line, "vl_") {
			continue
		}
		if v, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			m[line[:at]] = v
		}
	}
	return m
}

// ask sends the storage's own handler a request without a network between.
func ask(path string) ([]byte, error) {
	r, err := http.NewRequest(http.MethodPost, path, nil)
	if err != nil {
		return nil, err
	}
	w := &answer{code: http.StatusOK}
	if !vlstorage.RequestHandler(w, r) {
		return nil, fmt.Errorf("the storage does not know %s", r.URL.Path)
	}
	if w.code >= 300 {
		return nil, fmt.Errorf("%s: %s", r.URL.Path, strings.TrimSpace(w.body.String()))
	}
	return w.body.Bytes(), nil
}

// answer keeps what a handler wrote.
type answer struct {
	head http.Header
	code int
	body bytes.Buffer
}

func (a *answer) Header() http.Header {
	if a.head == nil {
		a.head = http.Header{}
	}
	return a.head
}

func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

func (a *answer) WriteHeader(code int) { a.code = code }

// sleep waits and reports whether ctx still holds.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
