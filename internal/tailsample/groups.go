package tailsample

import "github.com/rollscope/rollscope/internal/span"

// group is the undecided traces that one session, bootstrap room or linked trace ties together.
type group struct {
	key     uint64
	members []uint32 // slots
}

// maxMembers bounds a group; traces beyond it are decided on their own.
const maxMembers = 4096

// linkKey is the group of all that link to a trace.
func linkKey(id span.TraceID) uint64 { return max(mix(hashTrace(id)+1), 1) }

// tie notes what a span says its trace belongs to.
func (s *Sampler) tie(now int64, slot uint32, in *seen) {
	t := s.at(slot)
	x := s.extras[slot]
	if x == nil {
		x = &extra{}
		s.extras[slot] = x
		t.extra = true
	}
	if in.state != "" {
		if u := readOT(in.state); u.said != 0 && x.up.said == 0 {
			x.up = u
		}
	}
	if !s.c.native || !s.c.Linked {
		return
	}
	if in.session != "" && x.session == 0 {
		x.session = hashText('s', in.session)
		s.join(now, slot, x, x.session)
	}
	if in.room != "" && x.room == 0 {
		x.room = hashText('r', in.room)
		s.join(now, slot, x, x.room)
	}
	for _, l := range in.links {
		known := len(x.links) >= maxLinks
		for _, k := range x.links {
			known = known || k == l
		}
		if !known {
			x.links = append(x.links, l)
			s.linksSeen = true
			s.join(now, slot, x, linkKey(l))
			// The trace that is linked to may have been kept before.
			if to, ok := s.held[l]; ok && s.at(to).rule != noRule {
				s.tied = append(s.tied, slot)
			} else if m, ok := s.memory.get(now, l); ok && m.kept && m.rule != ruleRatio && m.rule != ruleEvicted {
				s.tied = append(s.tied, slot)
			}
		}
	}
}

// join adds a trace to a group. A group of which a trace was kept for a reason keeps this one too.
func (s *Sampler) join(now int64, slot uint32, x *extra, key uint64) {
	g := s.groups[key]
	if g == nil {
		g = &group{key: key}
		s.groups[key] = g
	}
	if len(g.members) >= maxMembers {
		s.stats.groupsFull++
		return
	}
	g.members = append(g.members, slot)
	x.groups = append(x.groups, g)
	for _, m := range g.members {
		if r := s.at(m).rule; r != noRule {
			s.tied = append(s.tied, slot)
			return
		}
	}
	if m, ok := s.memory.get(now, groupID(key)); ok && m.kept {
		s.tied = append(s.tied, slot)
	}
}

// ungroup takes a trace out of its groups.
func (s *Sampler) ungroup(slot uint32) {
	for _, g := range s.extras[slot].groups {
		for i, m := range g.members {
			if m == slot {
				g.members = append(g.members[:i], g.members[i+1:]...)
				break
			}
		}
		if len(g.members) == 0 {
			delete(s.groups, g.key)
		}
	}
}

// promote keeps a trace for a reason, now, and with it what is tied to it and not decided yet.
func (s *Sampler) promote(now int64, slot uint32, rule uint8) {
	s.keepEarly(now, slot, rule)
	s.spread(now, slot)
}

// spread keeps what is tied to a trace that is kept.
func (s *Sampler) spread(now int64, slot uint32) {
	if !s.c.native || !s.c.Linked {
		return
	}
	work := append(s.work[:0], slot)
	for len(work) > 0 {
		slot := work[len(work)-1]
		work = work[:len(work)-1]
		t := s.at(slot)
		visit := func(m uint32) {
			if s.at(m).undecided() {
				s.keepEarly(now, m, ruleLinked)
				work = append(work, m)
			}
		}
		if s.linksSeen {
			if g := s.groups[linkKey(t.id)]; g != nil {
				for _, m := range g.members {
					visit(m)
				}
			}
		}
		x := s.extras[slot]
		if x == nil {
			continue
		}
		for _, l := range x.links {
			if m, ok := s.held[l]; ok {
				visit(m)
			}
		}
		for _, g := range x.groups {
			s.memory.put(now, groupID(g.key), true, ruleLinked)
			for _, m := range g.members {
				visit(m)
			}
		}
	}
	s.work = work[:0]
}

// ratioKey is what the share of the rest is decided by: the session, else the bootstrap room, else the
// trace that is linked to, else the trace itself. So what belongs together gets the same answer, in every
// process that sees the same ids.
func (s *Sampler) ratioKey(slot uint32) uint64 {
	t := s.at(slot)
	x := s.extras[slot]
	if x == nil || !s.c.native || !s.c.Linked {
		return hashTrace(t.id)
	}
	id := t.id
	for range maxLinks { // along a chain of links, as far as it is held
		switch {
		case x == nil:
			return hashTrace(id)
		case x.session != 0:
			return x.session
		case x.room != 0:
			return x.room
		case len(x.links) == 0:
			return hashTrace(id)
		}
		id = x.leader()
		m, ok := s.held[id]
		if !ok {
			return hashTrace(id)
		}
		x = s.extras[m]
	}
	return hashTrace(id)
}

// leader is the linked trace that the share of the rest is decided by: the one with the smallest id.
func (x *extra) leader() span.TraceID {
	id := x.links[0]
	for _, l := range x.links[1:] {
		if string(l[:]) < string(id[:]) {
			id = l
		}
	}
	return id
}
