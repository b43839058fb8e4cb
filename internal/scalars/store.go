package scalars

import (
	"cmp"
	"slices"
	"strings"
)

// point is a value and the file that it came from.
type point struct {
	step  int64
	wall  float64
	value float64
	file  int32
}

// reach is the steps of a tag that a file holds.
type reach struct {
	file     int32
	min, max int64
}

// curve is the points of a tag, ascending by step.
type curve struct {
	axis    string
	group   string
	points  []point
	reach   []reach
	thinned int64
	stride  int64
}

// cut says that file replaced steps from step on, of the tags of a group (all when everywhere is set), as
// far as others logged them before a time.
type cut struct {
	file       int32
	group      string
	everywhere bool
	step       int64
	before     float64
}

func (c *cut) hits(p *point, group string) bool {
	return p.file != c.file && p.step >= c.step && p.wall < c.before && (c.everywhere || c.group == group)
}

// pair is two files that write tags of a group at the same time.
type pair struct {
	older, newer int32
	group        string
}

type store struct {
	maxPoints, maxTags int
	curves             map[string]*curve
	cuts               []cut
	parallel           map[pair]bool
	taken              int64
	dropped            map[string]int64
}

func newStore(maxPoints, maxTags int) *store {
	return &store{maxPoints: maxPoints, maxTags: maxTags, curves: map[string]*curve{}, parallel: map[pair]bool{}, dropped: map[string]int64{}}
}

// groupOf is what restarts together: the tags of an axis, or of a prefix where the axis is not known.
func groupOf(tag, axis string) string {
	if axis != "" {
		return axis
	}
	if i := strings.IndexByte(tag, '/'); i >= 0 {
		return tag[:i+1]
	}
	return ""
}

// add takes a point of files[p.file]. axisOf is asked when the tag is new.
func (s *store) add(tag string, axisOf func(tag string) string, p point, files []*source) {
	c := s.curves[tag]
	if c == nil {
		if len(s.curves) >= s.maxTags {
			s.dropped[DroppedTags]++
			return
		}
		axis := axisOf(tag)
		c = &curve{axis: axis, group: groupOf(tag, axis), stride: 1}
		s.curves[tag] = c
	}
	for i := range s.cuts {
		if s.cuts[i].hits(&p, c.group) {
			s.dropped[DroppedSuperseded]++
			return
		}
	}
	for _, r := range c.reach {
		other := files[r.file]
		if r.file == p.file {
			continue
		}
		if other.Began > p.wall && r.min <= p.step && !s.parallel[pair{p.file, r.file, c.group}] {
			// It was logged before a later writer took this step over, and read only now.
			s.dropped[DroppedSuperseded]++
			return
		}
		if other.Began < files[p.file].Began && r.max >= p.step && !s.parallel[pair{r.file, p.file, c.group}] {
			s.restart(c, p, r.file, files[p.file].Began)
			break // the cut, if there was one, is of all earlier files, and has measured c anew
		}
	}
	s.taken++
	s.insert(c, p)
	s.thin(c)
}

// restart cuts the group where p's file takes over, if points that were logged before that file began are
// in the way. Points that the older file logged since say that both are written at once.
func (s *store) restart(c *curve, p point, older int32, began float64) {
	from, _ := slices.BinarySearchFunc(c.points, p.step, func(q point, step int64) int { return cmp.Compare(q.step, step) })
	k := cut{file: p.file, group: c.group, step: p.step, before: began}
	both := false
	for i := range c.points[from:] {
		q := &c.points[from+i]
		if k.hits(q, c.group) {
			s.cut(k)
			return
		}
		both = both || q.file == older
	}
	if both {
		s.parallel[pair{older, p.file, c.group}] = true
	} else {
		c.measure() // thinning took what was there
	}
}

// cut drops what a cut hits now, and has it drop what comes later. One cut for each file and group is
// kept, from the lowest step on.
func (s *store) cut(k cut) {
	for _, c := range s.curves {
		n := len(c.points)
		c.points = slices.DeleteFunc(c.points, func(p point) bool { return k.hits(&p, c.group) })
		if n != len(c.points) {
			s.dropped[DroppedSuperseded] += int64(n - len(c.points))
			c.measure()
		}
	}
	for i := range s.cuts {
		if o := &s.cuts[i]; o.file == k.file && o.group == k.group && o.everywhere == k.everywhere {
			o.step, o.before = min(o.step, k.step), max(o.before, k.before)
			return
		}
	}
	s.cuts = append(s.cuts, k)
}

// measure finds the reach of each file again.
func (c *curve) measure() {
	c.reach = c.reach[:0]
	for _, p := range c.points {
		c.note(p)
	}
}

func (c *curve) note(p point) {
	for i := range c.reach {
		if r := &c.reach[i]; r.file == p.file {
			r.min, r.max = min(r.min, p.step), max(r.max, p.step)
			return
		}
	}
	c.reach = append(c.reach, reach{p.file, p.step, p.step})
}

// insert puts p at its step; a step that is there is replaced, since the later record of a step counts.
func (s *store) insert(c *curve, p point) {
	c.note(p)
	n := len(c.points)
	if n == 0 || c.points[n-1].step < p.step {
		c.points = append(c.points, p)
		return
	}
	i, found := slices.BinarySearchFunc(c.points, p.step, func(q point, step int64) int { return cmp.Compare(q.step, step) })
	if found {
		c.points[i] = p
		return
	}
	c.points = slices.Insert(c.points, i, p)
}

// thin drops every second point of a curve that is too long; the first and the last stay.
func (s *store) thin(c *curve) {
	n := len(c.points)
	if n <= s.maxPoints {
		return
	}
	kept := c.points[:0]
	for i, p := range c.points {
		if i%2 == 0 || i == n-1 {
			kept = append(kept, p)
		}
	}
	c.points = kept
	c.stride *= 2
	c.thinned += int64(n - len(kept))
	s.dropped[DroppedThinned] += int64(n - len(kept))
}

// forget drops all points and cuts of a file.
func (s *store) forget(file int32) {
	for _, c := range s.curves {
		n := len(c.points)
		c.points = slices.DeleteFunc(c.points, func(p point) bool { return p.file == file })
		s.dropped[DroppedRewritten] += int64(n - len(c.points))
		c.measure()
	}
	s.cuts = slices.DeleteFunc(s.cuts, func(k cut) bool { return k.file == file })
}
