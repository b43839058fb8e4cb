package scrape

import (
	"context"
	"log/slog"

	promscrape "github.com/prometheus/prometheus/scrape"
)

// tap is the logger of Prometheus's scrape manager. The scrape loop tells only its log why an answer
// was refused and that a series stood twice, so the tap listens; a healthy scrape logs nothing, so
// it costs nothing. What it takes over is logged by us once per target, with the names in it; the
// rest goes on to the real log.
type tap struct {
	m      *Manager
	next   slog.Handler
	pool   string
	target *target
}

// Enabled is true at every level: the loop tells the series of a duplicate at debug level only.
func (h *tap) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs picks up which target a logger belongs to.
func (h *tap) WithAttrs(attrs []slog.Attr) slog.Handler {
	n := *h
	n.next = h.next.WithAttrs(attrs)
	for _, a := range attrs {
		switch v := a.Value.Any().(type) {
		case *promscrape.Target:
			n.target = h.m.watch.of(v)
			if n.pool != "" {
				n.target.setPool(n.pool)
			}
		case string:
			if a.Key == "scrape_pool" {
				n.pool = v
			}
		}
	}
	return &n
}

// WithGroup passes on.
func (h *tap) WithGroup(name string) slog.Handler {
	n := *h
	n.next = h.next.WithGroup(name)
	return &n
}

// Handle sorts what the scrape loop says.
func (h *tap) Handle(ctx context.Context, r slog.Record) error {
	if h.target != nil && h.m.hear(h.target, r) {
		return nil
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// hear takes a log record of a target's scrape loop; true when nobody else needs it.
func (m *Manager) hear(t *target, r slog.Record) bool {
	switch r.Message {
	case "Append failed":
		if err, ok := attr(r, "err").(error); ok && r.Level == slog.LevelDebug {
			t.mu.Lock()
			t.appendErr, t.appended = err, true
			t.mu.Unlock()
			return true
		}
	case "Scrape failed", "Unexpected error":
		return true
	case "Failed to determine correct type of scrape target.":
		return true
	case "Invalid content type on scrape, using fallback setting.":
		m.wrongContentType(t, attr(r, "content_type"))
		return true
	case "Duplicate sample for timestamp":
		if t.expected(expectDuplicate) {
			return true // counted by the appender
		}
		s, _ := attr(r, "series").(string)
		m.duplicate(t, s)
		return true
	case "Out of bounds metric":
		if t.expected(expectOutOfBounds) {
			return true
		}
		s, _ := attr(r, "series").(string)
		m.tooNew(t, s)
		return true
	case "Out of order sample",
		"Error on ingesting out-of-order samples",
		"Error on ingesting samples with different value but same timestamp",
		"Error on ingesting samples that are too old or are too far into the future":
		return true
	}
	return false
}

// attr gives a record's attribute, nil without it.
func attr(r slog.Record, key string) any {
	var v any
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			v = a.Value.Any()
			return false
		}
		return true
	})
	return v
}
