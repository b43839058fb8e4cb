package span

import "bytes"

// Decode reads a span in full. h must be of sc. into's slices are used again, and what it holds aliases
// the body that Scan read and into itself: it is valid until either changes; see [Span.Clone]. The error
// is a *[WireError], and then into means nothing. A length of an id that is wrong is left to [CheckIDs].
func Decode(sc *Scope, h *Header, into *Span) error {
	into.reset()
	into.Header = *h
	into.Name = clean(h.Name)
	if err := into.readSpan(h.Raw); err != nil {
		return err
	}
	if err := into.readResource(sc.Resource); err != nil {
		return err
	}
	into.Service = clean(sc.Service)
	return into.readScope(sc.Scope)
}

// reset empties s and keeps its memory and its resource.
func (s *Span) reset() {
	*s = Span{
		Attrs: s.Attrs[:0], Events: s.Events[:0], Links: s.Links[:0], ScopeAttrs: s.ScopeAttrs[:0],
		Resource: s.Resource, ResourceLimit: s.ResourceLimit, owned: s.owned,
		text: s.text[:0], row: s.row[:0], typed: s.typed[:0],
	}
}

func (s *Span) readSpan(b []byte) error {
	f := fields{b: b}
	for f.next() {
		var err error
		switch {
		case f.is(3, wireBytes):
			s.TraceState = clean(alias(f.data))
		case f.is(9, wireBytes):
			s.Attrs, err = s.attr(s.Attrs, f.data)
		case f.is(10, wireVarint):
			s.DroppedAttrs = count(f.u)
		case f.is(11, wireBytes):
			err = s.readEvent(f.data)
		case f.is(12, wireVarint):
			s.DroppedEvents = count(f.u)
		case f.is(13, wireBytes):
			err = s.readLink(f.data)
		case f.is(14, wireVarint):
			s.DroppedLinks = count(f.u)
		case f.is(15, wireBytes):
			in := fields{b: f.data}
			for in.next() {
				if in.is(2, wireBytes) {
					s.StatusMessage = clean(alias(in.data))
				}
			}
			err = in.err("Status")
		}
		if err != nil {
			return err
		}
	}
	return f.err("Span")
}

// attr appends a KeyValue.
func (s *Span) attr(to []Attr, b []byte) ([]Attr, error) {
	key, value, err := keyValue(b)
	if err != nil {
		return to, err
	}
	v, text, err := decodeValue(value, s.text)
	s.text = text
	return append(to, Attr{clean(key), v}), err
}

func (s *Span) readEvent(b []byte) error {
	if len(s.Events) < cap(s.Events) {
		s.Events = s.Events[:len(s.Events)+1]
		e := &s.Events[len(s.Events)-1]
		*e = Event{Attrs: e.Attrs[:0]}
	} else {
		s.Events = append(s.Events, Event{})
	}
	e := &s.Events[len(s.Events)-1]
	f := fields{b: b}
	for f.next() {
		switch {
		case f.is(1, wireFixed8):
			e.Time = nanos(f.u)
		case f.is(2, wireBytes):
			e.Name = clean(alias(f.data))
		case f.is(3, wireBytes):
			var err error
			if e.Attrs, err = s.attr(e.Attrs, f.data); err != nil {
				return err
			}
		case f.is(4, wireVarint):
			e.Dropped = count(f.u)
		}
	}
	return f.err("Event")
}

func (s *Span) readLink(b []byte) error {
	if len(s.Links) < cap(s.Links) {
		s.Links = s.Links[:len(s.Links)+1]
		l := &s.Links[len(s.Links)-1]
		*l = Link{Attrs: l.Attrs[:0]}
	} else {
		s.Links = append(s.Links, Link{})
	}
	l := &s.Links[len(s.Links)-1]
	f := fields{b: b}
	for f.next() {
		switch {
		case f.is(1, wireBytes):
			copyID(l.Trace[:], f.data)
		case f.is(2, wireBytes):
			copyID(l.ID[:], f.data)
		case f.is(3, wireBytes):
			l.TraceState = clean(alias(f.data))
		case f.is(4, wireBytes):
			var err error
			if l.Attrs, err = s.attr(l.Attrs, f.data); err != nil {
				return err
			}
		case f.is(5, wireVarint):
			l.Dropped = count(f.u)
		case f.is(6, wireFixed4):
			l.Flags = uint32(f.u)
		}
	}
	return f.err("Link")
}

// readResource reads a Resource, unless it is the one that s has. Spans come in runs of one resource, so
// s keeps a copy of it, which its attributes alias.
func (s *Span) readResource(b []byte) error {
	if s.owned != nil && bytes.Equal(b, s.owned) {
		return nil
	}
	s.Resource, s.ResourceLimit = s.Resource[:0], 0
	s.owned = nil
	own := append(make([]byte, 0, len(b)), b...)
	f := fields{b: own}
	for f.next() {
		switch {
		case f.is(1, wireBytes):
			key, value, err := keyValue(f.data)
			if err != nil {
				return err
			}
			v, _, err := decodeValue(value, nil)
			if err != nil {
				return err
			}
			s.Resource = append(s.Resource, Attr{clean(key), v})
		case f.is(2, wireVarint):
			s.ResourceLimit = count(f.u)
		}
	}
	s.owned = own
	return f.err("Resource")
}

func (s *Span) readScope(b []byte) error {
	f := fields{b: b}
	for f.next() {
		switch {
		case f.is(1, wireBytes):
			s.ScopeName = clean(alias(f.data))
		case f.is(2, wireBytes):
			s.ScopeVersion = clean(alias(f.data))
		case f.is(3, wireBytes):
			var err error
			if s.ScopeAttrs, err = s.attr(s.ScopeAttrs, f.data); err != nil {
				return err
			}
		case f.is(4, wireVarint):
			s.ScopeLimit = count(f.u)
		}
	}
	return f.err("InstrumentationScope")
}

// Clone is a span that aliases nothing. Raw is left out.
func (s *Span) Clone() Span {
	c := *s
	c.Raw, c.text, c.row, c.typed, c.owned = nil, nil, nil, nil, nil
	c.Attrs = append([]Attr(nil), s.Attrs...)
	c.Resource = append([]Attr(nil), s.Resource...)
	c.ScopeAttrs = append([]Attr(nil), s.ScopeAttrs...)
	c.Events = append([]Event(nil), s.Events...)
	for i := range c.Events {
		c.Events[i].Attrs = append([]Attr(nil), c.Events[i].Attrs...)
	}
	c.Links = append([]Link(nil), s.Links...)
	for i := range c.Links {
		c.Links[i].Attrs = append([]Attr(nil), c.Links[i].Attrs...)
	}
	c.own()
	return c
}

// own copies every text of s into one piece of memory.
func (s *Span) own() {
	n := 0
	s.texts(func(t *string) { n += len(*t) })
	buf := make([]byte, 0, n)
	s.texts(func(t *string) {
		from := len(buf)
		buf = append(buf, *t...)
		*t = alias(buf[from:])
	})
}

// texts calls fn with every text of s.
func (s *Span) texts(fn func(*string)) {
	attrs := func(a []Attr) {
		for i := range a {
			fn(&a[i].Key)
			fn(&a[i].Value.Str)
		}
	}
	for _, t := range [...]*string{&s.Name, &s.TraceState, &s.StatusMessage, &s.Service, &s.ScopeName, &s.ScopeVersion} {
		fn(t)
	}
	attrs(s.Attrs)
	attrs(s.Resource)
	attrs(s.ScopeAttrs)
	for i := range s.Events {
		fn(&s.Events[i].Name)
		attrs(s.Events[i].Attrs)
	}
	for i := range s.Links {
		fn(&s.Links[i].TraceState)
		attrs(s.Links[i].Attrs)
	}
}

// Attr returns the value of an attribute, false when the span has none of that key.
func (s *Span) Attr(key string) (Value, bool) { return find(s.Attrs, key) }

func find(attrs []Attr, key string) (Value, bool) {
	for i := range attrs {
		if attrs[i].Key == key {
			return attrs[i].Value, true
		}
	}
	return Value{}, false
}
