package scrape

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Fetched is the answer of a target to a request that is no scrape: nothing of it is stored.
type Fetched struct {
	ContentType string
	Body        []byte // nil when Reason says why there is none
	Reason      Reason
	Message     string // one sentence, with Reason
}

// fetchAccept asks for the text format: it says what OpenMetrics does, and needs no exemplars taken out.
const fetchAccept = "text/plain;version=0.0.4;q=0.9,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"

// Fetch asks the target of a job at a URL, both as [Manager.Targets] lists them, with the job's own
// credentials. It ends with ctx at the latest; an answer of more than limit bytes is refused whole.
func (m *Manager) Fetch(ctx context.Context, pool, url string, limit int64) Fetched {
	var t *target
	for _, pt := range m.prom.TargetsActive()[pool] {
		if pt.URL().String() == url {
			t = m.watch.of(pt)
			t.setPool(pool)
			break
		}
	}
	if t == nil {
		return Fetched{Reason: ReasonOther, Message: "the target is gone"}
	}
	failed := func(err error) Fetched {
		f := classifyConnection(err, url)
		if ctx.Err() != nil {
			f = failure{ReasonTimeout, "no answer in time", ""}
		}
		return Fetched{Reason: f.reason, Message: f.message}
	}
	c, done, err := m.prober.client(t)
	if err != nil {
		return failed(err)
	}
	defer done()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return failed(err)
	}
	req.Header.Set("Accept", fetchAccept)
	req.Header.Set("User-Agent", "rollscope")
	if end, ok := ctx.Deadline(); ok {
		req.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", strconv.FormatFloat(time.Until(end).Seconds(), 'f', 3, 64))
	}
	resp, err := c.Do(req)
	if err != nil {
		return failed(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return failed(err)
	case resp.StatusCode != http.StatusOK:
		f := classifyStatus(resp.StatusCode, body, url)
		return Fetched{Reason: f.reason, Message: f.message}
	case int64(len(body)) > limit:
		return Fetched{Reason: ReasonBodySizeLimit, Message: fmt.Sprintf("the answer has more than %d bytes", limit)}
	}
	return Fetched{ContentType: resp.Header.Get("Content-Type"), Body: body}
}

// IsLoadsPath tells whether a path serves SGLang's load report, whose names look like the engine's
// metrics and mean something else.
func IsLoadsPath(path string) bool { return isLoadsPath(path) }
