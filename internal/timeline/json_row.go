package timeline

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/rollscope/rollscope/internal/request"
)

// RowDetail is one sample as its panel shows it. Times are seconds from t0, durations seconds; what is
// missing is null.
type RowDetail struct {
	Row        int             `json:"row"`
	Sample     *int64          `json:"sample"`
	Group      *int64          `json:"group"`
	Rollout    *int64          `json:"rollout"`
	Status     string          `json:"status"`
	Source     string          `json:"source"`
	Label      string          `json:"label"`
	Trace      string          `json:"trace"`
	Why        string          `json:"why"` // why there is nothing to draw
	Reward     *float64        `json:"reward"`
	Start      *float64        `json:"start"`
	Dur        *float64        `json:"dur"`
	StartedAt  string          `json:"started_at"` // ns since 1970, "" when there is nothing
	Tokens     *int64          `json:"tokens"`
	Prompt     *int64          `json:"prompt_tokens"`
	Attempts   int             `json:"attempts"`
	Lanes      int             `json:"lanes"`
	Open       int             `json:"open"`
	Orphans    int             `json:"orphans"`
	Points     int             `json:"points"`
	Flags      []string        `json:"flags"`
	Items      []ItemDetail    `json:"items"`
	Requests   []RequestDetail `json:"requests"`
	Details    json.RawMessage `json:"details"`      // as in the container, null when there are none
	ItemsTotal int             `json:"items_total"`  // Items may be cut
	HasTexts   bool            `json:"texts_inside"` // the container has its prompt and response
}

// ItemDetail is one item with its attributes.
type ItemDetail struct {
	Name    string          `json:"name"`
	Class   string          `json:"class"`
	State   string          `json:"state"` // closed, open, point, orphan_end
	Flags   int             `json:"flags"`
	Start   float64         `json:"start"`
	Dur     float64         `json:"dur"`
	Lane    int             `json:"lane"`
	Depth   int             `json:"depth"`
	Parent  int             `json:"parent"`
	Request int             `json:"request"`
	Attempt int             `json:"attempt"`
	Clip    string          `json:"clip"`
	N       int             `json:"n"`
	Attrs   json.RawMessage `json:"attrs"` // [start, end], null
}

// RequestDetail is one request.
type RequestDetail struct {
	RID        string              `json:"rid"`
	Name       string              `json:"name"`
	Start      float64             `json:"start"`
	Dur        *float64            `json:"dur"`
	Attempt    int                 `json:"attempt"`
	Finish     string              `json:"finish"`
	Prompt     *int64              `json:"prompt_tokens"`
	Completion *int64              `json:"completion_tokens"`
	Cached     *int64              `json:"cached_tokens"`
	Retries    *int64              `json:"retries"`
	Queue      *float64            `json:"queue"`
	E2E        *float64            `json:"e2e"`
	Phases     map[string]*float64 `json:"phases"`     // by class name, only those that were said
	Throughput *float64            `json:"throughput"` // tokens/s
	Speed      *float64            `json:"speed"`      // GB/s
	Size       *float64            `json:"size"`       // MB
	Invalid    []string            `json:"invalid"`    // what was said but cannot be
	Item       int                 `json:"item"`
}

const maxDetailItems = 20_000

var stateNames = [...]string{"closed", "open", "point", "orphan_end"}

// Row returns row r (a place in the columns) with at most 20,000 items.
func (ix *Index) Row(r int) (*RowDetail, error) {
	if r < 0 || r >= ix.Rows() {
		return nil, &QueryError{At: -1, What: "there is no row " + strconv.Itoa(r)}
	}
	d := &ix.head.Dicts
	out := &RowDetail{
		Row: int(ix.ordinal[r]), Sample: intOrNil(ix.sample[r]), Group: intOrNil(ix.group[r]), Rollout: intOrNil(ix.rolloutID[r]),
		Status: d.Status[ix.status[r]], Source: d.Source[ix.source[r]], Label: d.Label[ix.label[r]],
		Trace: string(strAt(ix.traceData, ix.traceEnds, r)), Why: d.Why[ix.why[r]],
		Reward: floatOrNil(ix.reward[r]), Tokens: intOrNil(ix.response[r]), Prompt: intOrNil(ix.prompt[r]),
		Attempts: int(ix.attempts[r]), Lanes: int(ix.lanes[r]), Open: int(ix.open[r]), Orphans: int(ix.orphans[r]),
		Points: int(ix.points[r]), Flags: []string{}, Items: []ItemDetail{}, Requests: []RequestDetail{}, ItemsTotal: int(ix.nItems[r]),
	}
	for i, n := range flagNames {
		if i < len(flagNames)-1 && ix.flags[r]&(1<<i) != 0 {
			out.Flags = append(out.Flags, n)
		}
	}
	if ix.why[r] == 0 {
		out.Start, out.Dur = ix.secs(ix.start[r]), ix.secs(ix.dur[r])
		out.StartedAt = strconv.FormatInt(ix.wall(ix.start[r]), 10)
	}
	var err error
	if out.Details, err = ix.block(ix.head.Details, r); err != nil {
		return nil, err
	}
	for _, b := range ix.head.Texts {
		for _, x := range b.Rows {
			out.HasTexts = out.HasTexts || x == out.Row
		}
	}
	if err := ix.itemDetails(r, out); err != nil {
		return nil, err
	}
	for q := ix.firstReq[r]; q < ix.firstReq[r+1]; q++ {
		out.Requests = append(out.Requests, ix.requestDetail(q))
	}
	return out, nil
}

func (ix *Index) itemDetails(r int, out *RowDetail) error {
	d := &ix.head.Dicts
	raw, err := ix.block(ix.head.Attrs, r)
	if err != nil {
		return err
	}
	var attrs []json.RawMessage
	if raw != nil {
		if err := json.Unmarshal(raw, &attrs); err != nil {
			return bad("attributes of row %d: %w", r, err)
		}
	}
	clips := ix.c.items.clip.cur
	for i := ix.firstItem[r]; i < ix.firstItem[r+1] && len(out.Items) < maxDetailItems; i++ {
		it := ItemDetail{
			Name: d.Name[ix.itemName[i]], Class: d.Class[ix.itemClass[i]], State: stateNames[ix.itemState[i]], Flags: int(ix.itemFlags[i]),
			Start: ix.seconds(ix.itemStart[i]), Dur: ix.seconds(ix.itemDur[i]), Lane: int(ix.itemLane[i]), Depth: int(ix.itemDepth[i]),
			Parent: int(ix.itemParent[i]), Request: int(ix.itemReq[i]), Attempt: int(ix.itemAttempt[i]), Clip: d.Clip[clips[i]], N: int(ix.itemN[i]),
		}
		if k := i - ix.firstItem[r]; k < len(attrs) {
			it.Attrs = attrs[k]
		}
		out.Items = append(out.Items, it)
	}
	return nil
}

func (ix *Index) requestDetail(q int) RequestDetail {
	d, a := &ix.head.Dicts, &ix.c.reqs
	out := RequestDetail{
		RID: string(strAt(ix.ridData, ix.ridEnds, q)), Name: d.Name[a.name.cur[q]], Start: ix.seconds(a.start.cur[q]),
		Dur: ix.secsOrNil(a.dur.cur[q]), Attempt: int(a.attempt.cur[q]), Finish: d.Finish[a.finish.cur[q]],
		Prompt: intOrNil(a.prompt.cur[q]), Completion: intOrNil(a.completion.cur[q]), Cached: intOrNil(a.cached.cur[q]),
		Retries: intOrNil(a.retry.cur[q]), Queue: ix.secsOrNil(a.queue.cur[q]), E2E: ix.secsOrNil(a.e2e.cur[q]),
		Phases:     map[string]*float64{},
		Throughput: floatOrNil(float64(a.throughput.cur[q])), Speed: floatOrNil(float64(a.speed.cur[q])), Size: floatOrNil(float64(a.transferredSize.cur[q])),
		Invalid: []string{}, Item: int(a.item.cur[q]),
	}
	names := classNames()
	for p := range a.phases {
		if v := a.phases[p].cur[q]; v != missing {
			out.Phases[names[int(ClassPhase)+p]] = ix.secsOrNil(v)
		}
	}
	for bit, name := range invalidNames() {
		if a.invalid.cur[q]&(1<<bit) != 0 {
			out.Invalid = append(out.Invalid, name)
		}
	}
	return out
}

// invalidNames names the bits of req.invalid.
func invalidNames() []string {
	names := []string{"queue", "e2e", "throughput"}
	names = append(names, classNames()[int(ClassPhase):int(ClassPhase)+int(request.NumPhases)]...)
	return append(names, "speed", "size", "retries", "prompt_tokens", "completion_tokens", "cached_tokens")
}

// wall is the time in nanoseconds since 1970, clamped.
func (ix *Index) wall(units int64) int64 {
	u := float64(ix.head.T0) + float64(units)*float64(ix.head.UnitNS)
	if math.Abs(u) > 9.2e18 {
		return 0
	}
	return ix.head.T0 + units*ix.head.UnitNS
}

func intOrNil(v int64) *int64 {
	if v == missing {
		return nil
	}
	return &v
}

func floatOrNil(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func (ix *Index) secsOrNil(units int64) *float64 {
	if units == missing {
		return nil
	}
	return ix.secs(units)
}
