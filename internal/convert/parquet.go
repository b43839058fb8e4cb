package convert

import (
	"errors"
	"io"
	"strconv"

	"github.com/parquet-go/parquet-go"

	"github.com/rollscope/rollscope/internal/timeline"
)

// batch is how many rows of a table wait before they are handed to the library.
const batch = 1024

// rowGroup bounds what the library holds of a table before it writes it out.
const rowGroup = 64 << 10

// tables writes three Parquet files that join on ordinal.
type tables struct {
	o        Options
	samples  table[sampleRecord]
	requests table[requestRecord]
	spans    table[spanRecord]
}

func newTables(open func(string) (io.Writer, error), o Options) (*tables, error) {
	t := &tables{o: o}
	if err := errors.Join(
		t.samples.open(open, ".samples.parquet", o),
		t.requests.open(open, ".requests.parquet", o),
		t.spans.open(open, ".spans.parquet", o),
	); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *tables) Add(row *timeline.Row) error {
	err := t.samples.add(ofSample(row, t.o.Texts))
	for i := range row.Sample.Requests {
		err = errors.Join(err, t.requests.add(ofRequest(row.Sample, &row.Sample.Requests[i])))
	}
	for i := range row.Items {
		if it := &row.Items[i]; it.Flags&timeline.Virtual == 0 {
			err = errors.Join(err, t.spans.add(ofItem(row, it)))
		}
	}
	return err
}

func (t *tables) Close() error {
	return errors.Join(t.samples.close(), t.requests.close(), t.spans.close())
}

// table is one Parquet file.
type table[R any] struct {
	w    *parquet.GenericWriter[R]
	rows []R
}

func (t *table[R]) open(open func(string) (io.Writer, error), suffix string, o Options) error {
	w, err := open(suffix)
	if err != nil {
		return err
	}
	t.w = parquet.NewGenericWriter[R](w, parquet.Compression(&parquet.Zstd), parquet.MaxRowsPerRowGroup(rowGroup),
		parquet.CreatedBy("rollscope", o.Version, ""))
	t.w.SetKeyValueMetadata("rollscope.kind", o.kind())
	if o.Run != "" {
		t.w.SetKeyValueMetadata("rollscope.run", o.Run)
	}
	if o.RolloutID.OK {
		t.w.SetKeyValueMetadata("rollscope.step", strconv.FormatInt(o.RolloutID.N, 10))
	}
	return nil
}

func (t *table[R]) add(r R) error {
	t.rows = append(t.rows, r)
	if len(t.rows) < batch {
		return nil
	}
	return t.flush()
}

func (t *table[R]) flush() error {
	_, err := t.w.Write(t.rows)
	clear(t.rows) // their strings are not held
	t.rows = t.rows[:0]
	return err
}

func (t *table[R]) close() error { return errors.Join(t.flush(), t.w.Close()) }
