package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/timeline"
)

// TimelineSource has the timelines of steps. An error about one that is not there is an *Error with code
// "not_found".
type TimelineSource interface {
	Timelines(ctx context.Context) ([]TimelineInfo, error)
	// Timeline returns one for reading. It may be kept in memory between calls.
	Timeline(ctx context.Context, id string) (*timeline.Index, error)
	// Text reads prompt and response of a sample out of the dump; the dump may be gone ("not_found").
	Text(ctx context.Context, id string, row int) (SampleText, error)
}

// timelineType is the media type of a container.
const timelineType = "application/vnd.rollscope.timeline"

// noTimelines is the error of every route while there is no source.
func (a *API) noTimelines(r *http.Request) error {
	if a.Timelines != nil {
		return nil
	}
	return &Error{Code: "not_enabled", Message: "this process has no timelines", Where: r.URL.Path}
}

func (a *API) timelineOf(r *http.Request) (*timeline.Index, error) {
	if ix, ok, err := a.traceTimelineOf(r, r.PathValue("id")); ok {
		return ix, err
	}
	if err := a.noTimelines(r); err != nil {
		return nil, err
	}
	return a.Timelines.Timeline(r.Context(), r.PathValue("id"))
}

func (a *API) getTimelines(r *http.Request) (any, error) {
	p := a.params(r, "limit", "after")
	var answer Timelines
	if a.Timelines == nil {
		return envelope(a, answer), nil
	}
	list, err := a.Timelines.Timelines(r.Context())
	if err != nil {
		return nil, err
	}
	var next string
	answer.Timelines, next = page(p, list, func(t TimelineInfo) string { return t.ID })
	if p.err != nil {
		return nil, p.err
	}
	e := envelope(a, answer)
	e.Next = next
	return e, nil
}

// container answers with a container, compressed inside where that pays.
func (a *API) container(ask func(r *http.Request) (func(io.Writer) error, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e := a.notReady(); e != nil {
			refuse(w, faceOurs, e)
			return
		}
		write, err := ask(r)
		if err != nil {
			refuse(w, faceOurs, failure(r, queryFailure(err)))
			return
		}
		h := w.Header()
		h.Set("Content-Type", timelineType)
		h.Set("Cache-Control", "no-store")
		if err := write(w); err != nil && r.Context().Err() == nil {
			a.log.Error("a timeline could not be sent", "path", r.URL.Path, "err", err)
			panic(http.ErrAbortHandler) // part of it is out: a cut connection is no short timeline
		}
	})
}

// queryFailure makes a query that cannot be understood the client's mistake.
func queryFailure(err error) error {
	var q *timeline.QueryError
	if errors.As(err, &q) {
		where := "filter"
		if q.At < 0 { // its message says which part it is about
			where = "query"
		}
		return &Error{Code: "bad_query", Message: q.Error(), Where: where, Hint: "docs/rollouts.md says what a filter may hold"}
	}
	return err
}

// timelineQuery are the names of the parameters that choose and order rows.
var timelineQuery = []string{"filter", "sort", "desc", "group", "attempt"}

func (a *API) timelineParams(r *http.Request, more ...string) *params {
	return a.params(r, append(append([]string(nil), timelineQuery...), more...)...)
}

func (p *params) query() timeline.Query {
	q := timeline.Query{Filter: p.text("filter"), Sort: p.text("sort"), Desc: p.flag("desc"), Group: p.flag("group")}
	if v := p.text("attempt"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 {
			p.fail(badParameter("attempt", v, "is no attempt", "a whole number from 0"))
		}
		q.Attempt = rollout.Int{N: n, OK: true}
	}
	return q
}

func (p *params) flag(name string) bool {
	switch v := p.text(name); v {
	case "", "0", "false":
		return false
	case "1", "true":
		return true
	default:
		p.fail(badParameter(name, v, "is neither yes nor no", "1, 0, true, false"))
		return false
	}
}

// whole reads a whole number between bounds.
func (p *params) whole(name string, fallback, low, high int64) int64 {
	v := p.text(name)
	if v == "" {
		return fallback
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < low || n > high {
		p.fail(badParameter(name, v, "is out of range", fmt.Sprintf("a whole number from %d to %d", low, high)))
		return fallback
	}
	return n
}

// span reads t0 and t1, units of the timeline from its t0; without them it is all of it.
func (p *params) span(ix *timeline.Index) (t0, t1 int64) {
	const most = 1 << 52
	first, last := ix.Extent()
	t0 = p.whole("t0", first, -most, most)
	t1 = p.whole("t1", max(last, first+1), -most, most)
	if p.err == nil && t1 <= t0 {
		p.fail(badParameter("t1", strconv.FormatInt(t1, 10), "does not come after t0", "units from the timeline's t0"))
	}
	return t0, t1
}

func (a *API) getTimelineHead(r *http.Request) (func(io.Writer) error, error) {
	if p := a.params(r); p.err != nil {
		return nil, p.err
	}
	ix, err := a.timelineOf(r)
	if err != nil {
		return nil, err
	}
	return ix.WriteHead, nil
}

func (a *API) getTimelineOrder(r *http.Request) (func(io.Writer) error, error) {
	ix, err := a.timelineOf(r)
	if err != nil {
		return nil, err
	}
	p := a.timelineParams(r)
	q := p.query()
	if p.err != nil {
		return nil, p.err
	}
	if _, err := ix.Order(q); err != nil { // kept by the index: asking twice costs once
		return nil, err
	}
	return func(w io.Writer) error { return ix.WriteOrder(w, q) }, nil
}

// maxWindow bounds the rows of one window and the sides of a raster in pixels.
const (
	maxWindow = 1 << 16
	maxRaster = 8192
)

func (a *API) getTimelineWindow(r *http.Request) (func(io.Writer) error, error) {
	ix, err := a.timelineOf(r)
	if err != nil {
		return nil, err
	}
	p := a.timelineParams(r, "from", "count", "t0", "t1", "px", "open")
	q := p.query()
	o := timeline.WindowOptions{
		From: int(p.whole("from", 0, 0, 1<<31)), Count: int(p.whole("count", 100, 0, maxWindow)), Pixels: int(p.whole("px", 1600, 0, maxRaster)),
	}
	o.T0, o.T1 = p.span(ix)
	if list := p.text("open"); list != "" {
		o.Open = map[int]bool{}
		for part := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(part)
			if err != nil || n < 0 || len(o.Open) > maxWindow {
				p.fail(badParameter("open", list, "is no list of rows", "numbers of rows with commas, at most "+strconv.Itoa(maxWindow)))
				break
			}
			o.Open[n] = true
		}
	}
	if p.err != nil {
		return nil, p.err
	}
	c, err := ix.Window(q, o)
	if err != nil {
		return nil, err
	}
	return c.Encode, nil
}

func (a *API) getTimelineRaster(r *http.Request) (func(io.Writer) error, error) {
	ix, err := a.timelineOf(r)
	if err != nil {
		return nil, err
	}
	p := a.timelineParams(r, "by", "w", "h", "t0", "t1")
	q, w, h := p.query(), p.whole("w", 1000, 1, maxRaster), p.whole("h", 80, 1, maxRaster)
	t0, t1 := p.span(ix)
	if p.err != nil {
		return nil, p.err
	}
	by, err := timeline.ParseBy(p.text("by"))
	if err != nil {
		return nil, err
	}
	img, err := ix.Raster(q, by, int(w), int(h), t0, t1)
	if err != nil {
		return nil, err
	}
	return func(w io.Writer) error { return ix.WriteRaster(w, img) }, nil
}

func (a *API) getTimelineStats(r *http.Request) (any, error) {
	ix, err := a.timelineOf(r)
	if err != nil {
		return nil, err
	}
	p := a.timelineParams(r, "t0", "t1")
	q := p.query()
	t0, t1 := p.span(ix)
	if p.err != nil {
		return nil, p.err
	}
	s, err := ix.Stats(q, t0, t1)
	if err != nil {
		return nil, queryFailure(err)
	}
	return raw(a, s)
}

func (a *API) getTimelineSummary(r *http.Request) (any, error) {
	ix, err := a.timelineOf(r)
	if err != nil {
		return nil, err
	}
	p := a.timelineParams(r)
	q := p.query()
	if p.err != nil {
		return nil, p.err
	}
	s, err := ix.Summary(q)
	if err != nil {
		return nil, queryFailure(err)
	}
	return raw(a, s)
}

// TimelineHits is the answer of GET /timelines/{id}/find.
type TimelineHits struct {
	Hits  []timeline.Hit `json:"hits"`
	Total int            `json:"total"`
}

func (a *API) getTimelineFind(r *http.Request) (any, error) {
	ix, err := a.timelineOf(r)
	if err != nil {
		return nil, err
	}
	p := a.timelineParams(r, "text", "from", "limit")
	q, from, limit := p.query(), p.whole("from", 0, 0, 1<<31), p.whole("limit", 100, 1, maxWindow)
	if p.err != nil {
		return nil, p.err
	}
	hits, total, err := ix.Find(q, p.text("text"), int(from), int(limit))
	if err != nil {
		return nil, queryFailure(err)
	}
	if hits == nil {
		hits = []timeline.Hit{}
	}
	return raw(a, TimelineHits{hits, total})
}

func rowOf(r *http.Request) (int, error) {
	n, err := strconv.Atoi(r.PathValue("row"))
	if err != nil || n < 0 {
		return 0, badParameter("row", r.PathValue("row"), "is no row", "a whole number from 0")
	}
	return n, nil
}

func (a *API) getTimelineRow(r *http.Request) (any, error) {
	ix, err := a.timelineOf(r)
	if err != nil {
		return nil, err
	}
	n, err := rowOf(r)
	if err != nil {
		return nil, err
	}
	if n >= ix.Rows() {
		return nil, &Error{Code: "not_found", Message: fmt.Sprintf("there is no row %d: the timeline has %d", n, ix.Rows()), Where: r.URL.Path}
	}
	d, err := ix.Row(n)
	if err != nil {
		return nil, queryFailure(err)
	}
	return raw(a, d)
}

func (a *API) getTimelineText(r *http.Request) (any, error) {
	if err := a.noTimelines(r); err != nil {
		return nil, err
	}
	n, err := rowOf(r)
	if err != nil {
		return nil, err
	}
	t, err := a.Timelines.Text(r.Context(), r.PathValue("id"), n)
	if err != nil {
		return nil, err
	}
	return envelope(a, t), nil
}

// raw is an answer that is JSON already: the timeline package writes its own.
func raw(a *API, v any) (any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write the answer as JSON: %w", err)
	}
	return envelope(a, json.RawMessage(b)), nil
}

// perfetto sends a window as a Chrome trace, to be saved.
func (a *API) perfetto() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e := a.notReady(); e != nil {
			refuse(w, faceOurs, e)
			return
		}
		ix, err := a.timelineOf(r)
		if err != nil {
			refuse(w, faceOurs, failure(r, err))
			return
		}
		p := a.timelineParams(r, "t0", "t1")
		q := p.query()
		t0, t1 := p.span(ix)
		if p.err == nil {
			if _, err := ix.Order(q); err != nil {
				p.fail(failure(r, queryFailure(err)))
			}
		}
		if p.err != nil {
			refuse(w, faceOurs, p.err)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Disposition", `attachment; filename="timeline.perfetto.json"`)
		if err := timeline.WritePerfetto(w, ix, q, t0, t1); err != nil && r.Context().Err() == nil {
			a.log.Error("a trace could not be sent", "path", r.URL.Path, "err", err)
			panic(http.ErrAbortHandler)
		}
	})
}
