package requeststore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/request"
)

// Points are requests in a plane, in the order of their starts.
type Points struct {
	Points []Point
	Total  int64 // of the filter
	// Unplaced are those of Total that lack x or y.
	Unplaced int64
	// Thin says in words what was left out, "" when nothing was.
	Thin string
}

// Point is one request.
type Point struct {
	ID    string
	Start int64   // ns since 1970
	X, Y  float64 // seconds since 1970 where the axis is start
	Color string
	keep  bool // slow or failed: it stays
}

// Colors are what points can be coloured by.
var Colors = Groups

// Points returns the requests that fit by two of start and the numeric fields, and the word of color for
// each. Above limit it leaves some out, evenly over time; failed ones and the highest of y stay. An error
// may be a *[FilterError], *[FieldError] or *[TooManyError].
func (s *Store) Points(ctx context.Context, q Query, x, y, color string, limit int) (Points, error) {
	var axes [2]string
	for i, name := range []string{x, y} {
		if name == "start" {
			continue
		}
		n, ok := numberField(name)
		if !ok {
			return Points{}, &FieldError{name, append([]string{"start"}, NumberFields()...)}
		}
		axes[i] = request.Numbers[n].Name
	}
	if color != "" && !slices.Contains(Colors, color) {
		return Points{}, &FieldError{color, Colors}
	}
	var stored string
	names := []string{"outcome", "engine", "prefill_engine", "flags"}
	if f, ok := findField(color); ok {
		stored = f.stored
		names = append(names, stored)
	}
	for _, a := range axes {
		if a != "" {
			names = append(names, a)
		}
	}
	slices.Sort(names)
	var all []entry
	var points []Point
	err := s.scan(ctx, q, slices.Compact(names), func(fields []event.Field) error {
		var e entry
		var has [2]bool
		p := Point{}
		engine, prefill, flags := "", "", ""
		for _, f := range fields {
			switch f.Name {
			case "id":
				e.id, e.hash = strings.Clone(f.Value), hash(f.Value)
				p.ID = e.id
			case "revision":
				e.rev, _ = strconv.Atoi(f.Value)
			case "_time":
				p.Start = parseTime(f.Value)
			case "outcome":
				p.keep = f.Value == string(request.ErrorOutcome) || f.Value == string(request.AbortedRequest)
			case "engine":
				engine = f.Value
			case "prefill_engine":
				prefill = f.Value
			case "flags":
				flags = f.Value
			}
			if f.Name == stored {
				p.Color = strings.Clone(f.Value)
			}
			for i, a := range axes {
				if a == f.Name {
					v, ok := request.ParseStored(f.Value)
					has[i] = ok
					if i == 0 {
						p.X = v
					} else {
						p.Y = v
					}
				}
			}
		}
		if color == "role" {
			p.Color = role(engine, prefill, flags)
		}
		if axes[0] == "" {
			p.X, has[0] = float64(p.Start)/1e9, true
		}
		if axes[1] == "" {
			p.Y, has[1] = float64(p.Start)/1e9, true
		}
		e.has = has[0] && has[1]
		e.time = int64(len(points)) // where the point is
		all, points = append(all, e), append(points, p)
		return nil
	})
	if err != nil {
		return Points{}, err
	}
	if all, err = s.newest(ctx, q, all); err != nil {
		return Points{}, err
	}
	out := Points{Total: int64(len(all))}
	for _, e := range all {
		if e.has {
			out.Points = append(out.Points, points[e.time])
		} else {
			out.Unplaced++
		}
	}
	out.thin(limit, y)
	return out, nil
}

// thin leaves points out until limit are left: half of the room is for failed requests and the highest of
// y, the rest is even in the order of starts.
func (p *Points) thin(limit int, y string) {
	byStart := func(a, b Point) int { return cmp.Or(cmp.Compare(a.Start, b.Start), strings.Compare(a.ID, b.ID)) }
	slices.SortFunc(p.Points, byStart)
	total := len(p.Points)
	if total <= limit {
		return
	}
	special := make([]int, total)
	for i := range special {
		special[i] = i
	}
	slices.SortStableFunc(special, func(a, b int) int {
		x, y := p.Points[a], p.Points[b]
		if x.keep != y.keep {
			if x.keep {
				return -1
			}
			return 1
		}
		return -cmp.Compare(x.Y, y.Y)
	})
	taken := make([]bool, total)
	failed := 0
	for _, i := range special[:(limit+1)/2] {
		taken[i] = true
		if p.Points[i].keep {
			failed++
		}
	}
	left := limit - (limit+1)/2
	rest := total - (limit+1)/2
	n, picked := 0, 0
	out := make([]Point, 0, limit)
	for i, pt := range p.Points {
		if !taken[i] {
			n++
			if picked*rest >= n*left { // this one is not yet due
				continue
			}
			picked++
		}
		out = append(out, pt)
	}
	p.Points = out
	p.Thin = fmt.Sprintf("%d of %d requests are shown: %d failed ones, the %d with the highest %s of the others, and %d spread evenly over time",
		len(out), total, failed, (limit+1)/2-failed, y, picked)
}
