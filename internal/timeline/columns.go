package timeline

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"

	"github.com/rollscope/rollscope/internal/request"
)

// Format and Version name the container that [Columns.Encode] writes; see FORMAT.md.
const (
	Format  = "rollscope-timeline"
	Version = 1
)

// Head is what a container says of itself before its columns.
type Head struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Tool    string `json:"tool"` // version of the program that wrote it
	Dump    Dump   `json:"dump"`
	// Detail is "full", or "levels" when Note says what was left out.
	Detail string `json:"detail"`
	Note   string `json:"note"`
	T0     int64  `json:"t0,string"` // ns since 1970 (UTC) of time 0 of the columns
	UnitNS int64  `json:"unit_ns"`
	Counts Counts `json:"counts"`
	// Extent is the first start and the last end of all rows, in units; nil when no row has items.
	Extent *[2]int64 `json:"extent"`
	Dicts  Dicts     `json:"dicts"`
	// Step is where the time went, as walltime.go writes it; null when nobody said.
	Step    json.RawMessage `json:"step"`
	Columns []ColumnInfo    `json:"columns"`
	Blobs   []BlobInfo      `json:"blobs"`
	Attrs   []Block         `json:"attrs"`
	Details []Block         `json:"details"`
	Texts   []TextBlock     `json:"texts"`
}

// Dump names the file that a timeline was made of.
type Dump struct {
	Name        string `json:"name"`
	Bytes       int64  `json:"bytes"`
	Fingerprint string `json:"fingerprint"` // see [Fingerprint]
	Kind        string `json:"kind"`        // train, eval
	RolloutID   *int64 `json:"rollout_id"`
	Shape       string `json:"shape"`
}

// Counts are sizes of the dump; Rows is that of the container's rows, which are fewer in a window.
type Counts struct {
	Samples  int `json:"samples"`
	Rows     int `json:"rows"`
	Items    int `json:"items"`
	Requests int `json:"requests"`
	Events   int `json:"events"`  // entries of all events lists
	Skipped  int `json:"skipped"` // of them, those that are no usable event
}

// Dicts are the strings that columns refer to by number. Entry 0 is "", except in Class.
type Dicts struct {
	Name   []string `json:"name"`
	Status []string `json:"status"`
	Source []string `json:"source"`
	Label  []string `json:"label"`
	Why    []string `json:"why"`
	Finish []string `json:"finish"`
	Clip   []string `json:"clip"`
	Class  []string `json:"class"`
}

// ColumnInfo says where a column stands.
type ColumnInfo struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	Enc    string `json:"enc"`
	Count  int    `json:"count"`
	Blob   int    `json:"blob"`
	Offset int    `json:"offset"`
	Bytes  int    `json:"bytes"`
}

// BlobInfo says where a blob stands, from the end of the head.
type BlobInfo struct {
	Offset int    `json:"offset"`
	Bytes  int    `json:"bytes"`
	Raw    int    `json:"raw"`
	Enc    string `json:"enc"` // none, deflate
}

// Block is a stretch of rows whose attributes or details stand in one blob.
type Block struct {
	From int `json:"from"`
	Rows int `json:"rows"`
	Blob int `json:"blob"`
}

// TextBlock holds prompts and responses of the rows (ordinals) it names.
type TextBlock struct {
	Rows []int `json:"rows"`
	Blob int   `json:"blob"`
}

// Flags of rows (row.flags).
const (
	RowCarried  = 1 << iota // has items from before the step
	RowShared               // shares its trace with a row before
	RowHeld                 // the step waited for it
	RowError                // an item ended with an error, or the sample failed
	RowAborted              // an attempt was thrown away, or the sample aborted
	RowMerged               // small items were merged
	RowCritical             // on the critical path
	RowProblem              // the reader found something odd
)

// Flags of items beyond those of [Flags] (item.flags).
const (
	ItemMerged   = 256
	ItemCritical = 512
)

// classNames are the entries of Dicts.Class.
func classNames() []string {
	return []string{"other", "group", "generate", "queue", "reward", "tool", "sync", "wait", "prefill", "decode", "event",
		"prefill_bootstrap_queue", "prefill_bootstrap", "prefill_alloc_wait", "prefill_forward", "prefill_transfer_queue",
		"decode_prealloc", "decode_bootstrap", "decode_alloc_wait", "decode_transfer", "decode_forward"}
}

const (
	unitNS  = 1000
	missing = math.MinInt64 // of optional integers in memory
	maxSafe = 1<<53 - 1     // largest integer that every reader has exactly
)

// Columns is one dump's timeline: a slice for each property of rows, items, segments and requests.
// It is appended to row by row ([Columns.Add]), written by [Columns.Encode], read by [Decode] and
// queried through [NewIndex]. One goroutine at a time may use it.
//
// About 41 bytes an item and 190 a request stay in memory; attributes are compressed as they come.
type Columns struct {
	Head Head

	rows  rowColumns
	items itemColumns
	segs  segColumns
	reqs  reqColumns
	rowID *vec[uint32] // of a window

	names, statuses, sources, labels, whys, finishes, clips *dict

	base    int64 // units since 1970 of time 0 of the columns
	hasBase bool
	lo, hi  int64 // extent, in units from base

	attrs, details blockWriter
	texts          textWriter
	blobs          blobs // of attrs, details and texts

	req2item []int32 // scratch
}

type rowColumns struct {
	ordinal               vec[uint32]
	index, group, rollout vec[int64]
	status, why           vec[uint8]
	source                vec[uint16]
	label                 vec[uint32]
	reward                vec[float64]
	start, dur            vec[int64]
	attempts              vec[uint8]
	response, prompt      vec[int64]
	lanes                 vec[uint16]
	items, requests       vec[uint32]
	open, orphans, points vec[uint32]
	flags                 vec[uint16]
	trace                 strs
}

type itemColumns struct {
	start, dur      vec[int64]
	name            vec[uint16]
	class, state    vec[uint8]
	flags           vec[uint16]
	lane, depth     vec[uint16]
	parent, request vec[int32]
	attempt, clip   vec[uint8]
	segs            vec[uint8]
	n               vec[uint32]
}

type segColumns struct {
	class      vec[uint8]
	start, dur vec[int64]
}

type reqColumns struct {
	rid                                strs
	name                               vec[uint16]
	start, dur                         vec[int64]
	attempt, finish                    vec[uint8]
	prompt, completion, cached, retry  vec[int64]
	queue, e2e                         vec[int64]
	phases                             [request.NumPhases]vec[int64]
	throughput, speed, transferredSize vec[float32]
	invalid                            vec[uint32]
	item                               vec[int32]
}

// Bits of req.invalid.
const (
	invalidQueue = iota
	invalidE2E
	invalidThroughput
	invalidPhase0
	invalidSpeed = invalidPhase0 + int(request.NumPhases)
)
const (
	invalidSize = invalidSpeed + 1 + iota
	invalidRetries
	invalidPrompt
	invalidCompletion
	invalidCached
	numInvalid
)

// NewColumns returns an empty timeline of the dump that h names: h.Dump, h.Tool, h.Detail and h.Note
// are kept, the rest is filled by Add and Encode.
func NewColumns(h Head) *Columns {
	c := &Columns{
		names: newDict(1 << 16), statuses: newDict(1 << 8), sources: newDict(1 << 16), labels: newDict(1 << 31),
		whys: newDict(1 << 8), finishes: newDict(1 << 8), clips: newDict(1 << 8),
	}
	c.Head = Head{Tool: h.Tool, Dump: h.Dump, Detail: h.Detail, Note: h.Note, Step: h.Step, UnitNS: unitNS}
	if c.Head.Detail == "" {
		c.Head.Detail = "full"
	}
	return c
}

// Rows is the number of rows.
func (c *Columns) Rows() int { return c.rows.ordinal.len() }

// Items is the number of items of all rows.
func (c *Columns) Items() int { return c.items.start.len() }

// Requests is the number of requests of all rows.
func (c *Columns) Requests() int { return c.reqs.name.len() }

// settle moves time 0 to the first start and fills the head. It may be called again after more rows.
func (c *Columns) settle() {
	if c.hasBase && c.lo != 0 {
		shift := c.lo
		c.base += shift
		c.lo, c.hi = 0, c.hi-shift
		whys := c.rows.why.flat()
		for i, s := range c.rows.start.flat() {
			if whys[i] == 0 {
				c.rows.start.cur[i] = s - shift
			}
		}
		for _, v := range []*vec[int64]{&c.items.start, &c.segs.start, &c.reqs.start} {
			v.each(func(chunk []int64) {
				for i := range chunk {
					chunk[i] -= shift
				}
			})
		}
	}
	h := &c.Head
	h.Format, h.Version = Format, Version
	if c.hasBase {
		h.T0 = c.base * unitNS
		h.Extent = &[2]int64{c.lo, c.hi}
	}
	if c.rowID == nil { // a window has its dump's counts
		h.Counts.Items, h.Counts.Requests = c.Items(), c.Requests()
		h.Counts.Samples = max(h.Counts.Samples, c.Rows())
	}
	h.Counts.Rows = c.Rows()
	h.Dicts = Dicts{c.names.list, c.statuses.list, c.sources.list, c.labels.list, c.whys.list, c.finishes.list, c.clips.list, classNames()}
}

// Marks is what an analysis of the whole step found out about rows and items.
type Marks struct {
	Held, Carried, Critical []int       // ordinals of rows
	Items                   []MarkedRow // items on the critical path
}

// MarkedRow names items of a row (an ordinal) by their places.
type MarkedRow struct {
	Row   int
	Items []int
}

// Mark sets the flags that m is about. Rows and items that there are not are ignored. It must come
// before an [Index] is made.
func (c *Columns) Mark(m Marks) {
	flags := c.rows.flags.flat()
	ordinals := c.rows.ordinal.flat()
	at := func(ordinal int) (int, bool) {
		if ordinal >= 0 && ordinal < len(ordinals) && int(ordinals[ordinal]) == ordinal {
			return ordinal, true
		}
		i, ok := slices.BinarySearchFunc(ordinals, ordinal, func(o uint32, x int) int { return cmp.Compare(int(o), x) })
		return i, ok
	}
	for _, x := range []struct {
		rows []int
		flag uint16
	}{{m.Held, RowHeld}, {m.Carried, RowCarried}, {m.Critical, RowCritical}} {
		for _, r := range x.rows {
			if r, ok := at(r); ok {
				flags[r] |= x.flag
			}
		}
	}
	if len(m.Items) == 0 {
		return
	}
	counts, items := c.rows.items.flat(), c.items.flags.flat()
	first := make([]int, len(counts)+1)
	for i, n := range counts {
		first[i+1] = first[i] + int(n)
	}
	for _, x := range m.Items {
		r, ok := at(x.Row)
		if !ok {
			continue
		}
		flags[r] |= RowCritical
		for _, i := range x.Items {
			if i >= 0 && i < int(counts[r]) {
				items[first[r]+i] |= ItemCritical
			}
		}
	}
}
