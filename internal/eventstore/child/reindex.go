package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/VictoriaMetrics/VictoriaLogs/app/vlstorage"
	"github.com/VictoriaMetrics/VictoriaLogs/lib/logstorage"

	"github.com/rollscope/rollscope/internal/eventstore/wire"
)

// streamFields are the fields that a row's stream is made of, as the client of the store sends them.
var streamFields = []string{"row", "service", "engine"}

// marker is the field of rows that exist only to be removed again.
const marker = "_rollscope_index_made_anew"

// reindex enters the streams of a day into its index again, a part of which was damaged and set aside:
// rows whose stream is in no index are found by no query that asks for _stream. The rows have the fields
// that their streams are made of, and a stream is entered when a row of it is added; the rows added here
// are deleted again.
func reindex(ctx context.Context, day string) error {
	at, err := time.Parse("20060102", day)
	if err != nil {
		return fmt.Errorf("a day to index anew: %w", err)
	}
	tenants := []logstorage.TenantID{{}}
	query := fmt.Sprintf("_time:[%s, %s] | fields row, service, engine | uniq by (row, service, engine)",
		at.Format(time.RFC3339Nano), at.Add(24*time.Hour-1).Format("2006-01-02T15:04:05.000000000Z"))
	q, err := logstorage.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	var mu sync.Mutex // blocks come from several goroutines
	var streams [][]logstorage.Field
	var stats logstorage.QueryStats
	err = vlstorage.RunQuery(logstorage.NewQueryContext(ctx, &stats, tenants, q, false, nil), func(_ uint, b *logstorage.DataBlock) {
		mu.Lock()
		defer mu.Unlock()
		for row := range b.RowsCount() {
			fields := []logstorage.Field{{Name: "_msg", Value: marker}, {Name: marker, Value: "1"}}
			for _, name := range streamFields {
				if c := b.GetColumnByName(name); c != nil && c.Values[row] != "" {
					// The block is reused.
					fields = append(fields, logstorage.Field{Name: name, Value: string([]byte(c.Values[row]))})
				}
			}
			streams = append(streams, fields)
		}
	})
	if err != nil {
		return fmt.Errorf("the streams of %s: %w", day, err)
	}
	if len(streams) == 0 {
		return nil
	}
	rows := logstorage.GetLogRows(streamFields, nil, nil, nil, "")
	defer logstorage.PutLogRows(rows)
	for _, fields := range streams {
		rows.MustAdd(tenants[0], at.UnixNano(), fields, -1)
	}
	(&vlstorage.Storage{}).MustAddRows(rows)
	f, err := logstorage.ParseFilter(marker + ":=1")
	if err != nil {
		return err
	}
	if err := vlstorage.DeleteRunTask(ctx, "reindex-"+day, time.Now().UnixNano(), tenants, f); err != nil {
		return fmt.Errorf("the rows that entered the streams of %s: %w", day, err)
	}
	for {
		tasks, err := vlstorage.DeleteActiveTasks(ctx)
		if err != nil || len(tasks) == 0 {
			return err
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return errors.New("the rows that entered the streams of " + day + " are still being deleted")
		}
	}
}

// probe reads all streams of each day out of its index. A damaged one ends the process; what was written to
// out last tells which.
func probe(ctx context.Context, dir string, out io.Writer) error {
	days, err := os.ReadDir(filepath.Join(dir, "partitions"))
	if err != nil {
		return fmt.Errorf("the days of the event store: %w", err)
	}
	for _, d := range days {
		at, err := time.Parse("20060102", d.Name())
		if err != nil {
			continue
		}
		fmt.Fprintln(out, wire.Probing+d.Name())
		query := fmt.Sprintf("_time:[%s, %s] | uniq by (_stream)", at.Format(time.RFC3339Nano), at.Add(24*time.Hour-1).Format("2006-01-02T15:04:05.000000000Z"))
		q, err := logstorage.ParseQuery(query)
		if err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
		var stats logstorage.QueryStats
		err = vlstorage.RunQuery(logstorage.NewQueryContext(ctx, &stats, []logstorage.TenantID{{}}, q, false, nil), func(uint, *logstorage.DataBlock) {})
		if err != nil {
			return fmt.Errorf("the streams of %s: %w", d.Name(), err)
		}
	}
	return nil
}
