package app

import (
	"context"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/passstore"
)

// passTable makes columns of rows.
type passTable struct {
	api.PassColumns
	at map[fpm.Key]int // of ranks
}

func newPassTable(n int) *passTable {
	whole := func() []int64 { return make([]int64, 0, n) }
	return &passTable{at: map[fpm.Key]int{}, PassColumns: api.PassColumns{
		Rank: make([]int, 0, n), Time: make([]float64, 0, n), Wall: make([]float64, 0, n), Flags: make([]int, 0, n), Missing: whole(),
		PrefillRequests: whole(), PrefillTokens: whole(), PrefillKV: whole(), DecodeRequests: whole(), DecodeKV: whole(),
		QueuedPrefillRequests: whole(), QueuedPrefillTokens: whole(), QueuedDecodeRequests: whole(), QueuedDecodeKV: whole(),
	}}
}

func (t *passTable) add(r *passstore.Row) {
	i, ok := t.at[r.Key]
	if !ok {
		i = len(t.Ranks)
		t.at[r.Key] = i
		t.Ranks = append(t.Ranks, api.PassRankRef{Engine: r.Engine, Name: firstSet(r.Name, shortName(r.Key)), Rank: int(r.Key.Rank)})
	}
	t.Rank = append(t.Rank, i)
	t.Time = append(t.Time, float64(r.Time)/1e6)
	t.Wall = append(t.Wall, r.Wall*1e3)
	t.Flags = append(t.Flags, int(r.Flags))
	t.Missing = append(t.Missing, int64(r.Missing))
	s, q := &r.Scheduled, &r.Queued
	for _, x := range []struct {
		to *[]int64
		v  uint64
	}{
		{&t.PrefillRequests, s.PrefillRequests}, {&t.PrefillTokens, s.PrefillTokens}, {&t.PrefillKV, s.PrefillKV},
		{&t.DecodeRequests, s.DecodeRequests}, {&t.DecodeKV, s.DecodeKV},
		{&t.QueuedPrefillRequests, q.PrefillRequests}, {&t.QueuedPrefillTokens, q.PrefillTokens},
		{&t.QueuedDecodeRequests, q.DecodeRequests}, {&t.QueuedDecodeKV, q.DecodeKV},
	} {
		*x.to = append(*x.to, int64(x.v))
	}
}

// livePasses are passes out of memory.
func livePasses(s *passstore.Store, after, engine string, limit int) (api.PassColumns, error) {
	got, err := s.After(after, engine, limit)
	if err != nil {
		return api.PassColumns{}, &api.Error{Code: "bad_parameter", Message: err.Error(), Where: "after", Hint: "next of the answer before; leave it out to start with the newest"}
	}
	t := newPassTable(len(got.Rows))
	t.Next, t.Gone, t.More = got.Next, got.Gone, got.More
	for i := range got.Rows {
		t.add(&got.Rows[i])
	}
	return t.PassColumns, nil
}

// storedPasses are passes out of the event store.
func storedPasses(ctx context.Context, s *passstore.Store, q api.PassQuery) (api.PassColumns, error) {
	rows, more, err := s.Query(ctx, q.From.UnixNano(), q.To.UnixNano(), q.Engine, q.Limit)
	if err != nil {
		return api.PassColumns{}, err
	}
	t := newPassTable(len(rows))
	t.More = more
	for i := range rows {
		t.add(&rows[i])
	}
	return t.PassColumns, nil
}
