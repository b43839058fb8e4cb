package requeststore

import (
	"context"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/logsql"
	"github.com/rollscope/rollscope/internal/request"
)

// The rows of settled requests and of observations; the field row is part of every row's stream.
const (
	requestRows     = `{row="request"}`
	observationRows = `{row="observation"}`
)

// receivedSince is the filter of rows that came in at or after t.
func receivedSince(t time.Time) string {
	return ` received:string_range(` + logsql.Quote(t.UTC().Format("2006-01-02T15:04:05")) + `, ":")`
}

// in is the filter of rows whose field is one of some values.
func in(field string, values []string) string {
	var b strings.Builder
	b.WriteString(logsql.Quote(field) + ":in(")
	for i, v := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(logsql.Quote(v))
	}
	b.WriteByte(')')
	return b.String()
}

// chunks calls fn with parts of a list, each short enough to stand in a query, times times.
func (s *Store) chunks(list []string, times int, fn func([]string) error) error {
	const others = 512 // what a query has beside the list
	room := s.events.MaxQueryBytes() - others
	for len(list) > 0 {
		k, size := 0, 0
		for k < len(list) && k < perQuery && (k == 0 || size < room) {
			size += times * (len(logsql.Quote(list[k])) + 1)
			k++
		}
		if k > 1 && size >= room {
			k--
		}
		if err := fn(list[:k]); err != nil {
			return err
		}
		list = list[k:]
	}
	return nil
}

// perQuery is how many values one query names at most.
const perQuery = 1000

// plainNames are the aliases whose name does not tell their kind, nameFields how many fields may hold one.
var plainNames = [...]request.AliasKind{request.RID, request.TraceID, request.XRequestID, request.DynamoID}

const nameFields = len(plainNames)

// names splits the names of a settler by the fields that may hold them.
func nameFilter(names []string) string {
	var plain, rooms, samples []string
	for _, n := range names {
		if room, ok := strings.CutPrefix(n, string(request.BootstrapRoom)+":"); ok {
			rooms = append(rooms, room)
		} else if sample, ok := strings.CutPrefix(n, string(request.SampleSpan)+":"); ok {
			samples = append(samples, sample)
		} else {
			plain = append(plain, n)
		}
	}
	var any []string
	if len(plain) > 0 {
		for _, k := range plainNames {
			any = append(any, in(string(k), plain))
		}
	}
	if len(rooms) > 0 {
		any = append(any, in(string(request.BootstrapRoom), rooms))
	}
	if len(samples) > 0 {
		any = append(any, in(string(request.SampleSpan), samples))
	}
	return " (" + strings.Join(any, " or ") + ")"
}

// earlier finds the stored rows that hold one of the names of what is due, with their observations.
func (s *Store) earlier(ctx context.Context, due []request.Due) ([][]request.Earlier, error) {
	var names []string
	from, to := int64(1<<62), int64(0)
	for _, d := range due {
		if len(d.Names) > 0 {
			names = append(names, d.Names...)
			from, to = min(from, d.From), max(to, d.To)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	newest := map[string]request.Settled{}
	err := s.chunks(names, nameFields, func(part []string) error {
		return s.events.Query(ctx, eventstore.Query{LogsQL: requestRows + nameFilter(part), From: max(from, 0), To: to}, func(fields []event.Field) error {
			r, err := request.FromRow(fields)
			if err != nil {
				s.drop("unreadable_row", 1)
				return nil
			}
			if r.Revision > newest[r.ID].Revision {
				newest[r.ID] = r
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	// A row that ended as a part of another has no names any more, so its last revision is not among those
	// that were found.
	ids := make([]string, 0, len(newest))
	for id := range newest {
		ids = append(ids, id)
	}
	last, err := s.revisions(ctx, ids, from, to)
	if err != nil {
		return nil, err
	}
	var keys []string
	rows := make([]request.Settled, 0, len(ids))
	slices.Sort(ids)
	for _, id := range ids {
		if r := newest[id]; r.Into == "" && r.Revision == last[hash(id)] {
			rows = append(rows, r)
			keys = append(keys, r.Keys...)
		}
	}
	obs, err := s.observations(ctx, keys, 0, 0)
	if err != nil {
		return nil, err
	}
	out := make([][]request.Earlier, len(due))
	for i, d := range due {
		for _, r := range rows {
			if r.Time < d.From || r.Time > d.To || !named(&r, d.Names) {
				continue
			}
			e := request.Earlier{Row: r}
			for _, k := range r.Keys {
				if o, ok := obs[k]; ok {
					e.Observations = append(e.Observations, o)
				}
			}
			out[i] = append(out[i], e)
		}
	}
	return out, nil
}

// named says whether one of a row's aliases is among names, which are a settler's.
func named(r *request.Settled, names []string) bool {
	for _, a := range r.Aliases {
		name := a.ID
		switch a.Kind {
		case request.SpanID:
			continue
		case request.BootstrapRoom, request.SampleSpan:
			name = string(a.Kind) + ":" + a.ID
		}
		if _, found := slices.BinarySearch(names, name); found {
			return true
		}
	}
	return false
}

// observations reads observations by their keys. Those that are gone are left out.
func (s *Store) observations(ctx context.Context, keys []string, from, to int64) (map[string]request.Observation, error) {
	out := make(map[string]request.Observation, len(keys))
	slices.Sort(keys)
	err := s.chunks(slices.Compact(keys), 1, func(part []string) error {
		return s.events.Query(ctx, eventstore.Query{LogsQL: observationRows + " " + in("key", part), From: from, To: to}, func(fields []event.Field) error {
			o, err := request.ObservationFromRow(fields)
			if err != nil {
				s.drop("unreadable_observation", 1)
				return nil
			}
			for _, f := range fields {
				if f.Name == "key" {
					out[strings.Clone(f.Value)] = o
				}
			}
			return nil
		})
	})
	return out, err
}

// revisions finds the last revision of some requests, which lie in a range of time.
func (s *Store) revisions(ctx context.Context, ids []string, from, to int64) (map[uint64]int, error) {
	out := make(map[uint64]int, len(ids))
	err := s.chunks(ids, 1, func(part []string) error {
		return s.lastRevisions(ctx, " "+in("id", part), from, to, out)
	})
	return out, err
}

// superseded finds the last revision of every request that has more than one.
func (s *Store) superseded(ctx context.Context, from, to int64) (map[uint64]int, error) {
	out := map[uint64]int{}
	return out, s.lastRevisions(ctx, " revision:>1", from, to, out)
}

func (s *Store) lastRevisions(ctx context.Context, filter string, from, to int64, out map[uint64]int) error {
	return s.events.Query(ctx, eventstore.Query{LogsQL: requestRows + filter + " | fields id, revision", From: max(from, 0), To: to}, func(fields []event.Field) error {
		id, revision := idOf(fields)
		if revision > out[id] {
			out[id] = revision
		}
		return nil
	})
}

// seed makes hashes of ids differ between processes, so that nobody can choose ids that meet.
var seed = maphash.MakeSeed()

// hash stands for an id: of two million ids, two meet with a chance of one in ten million.
func hash(id string) uint64 { return maphash.String(seed, id) }

func idOf(fields []event.Field) (id uint64, revision int) {
	for _, f := range fields {
		switch f.Name {
		case "id":
			id = hash(f.Value)
		case "revision":
			revision, _ = strconv.Atoi(f.Value) // a row without one is never the newest
		}
	}
	return id, revision
}
