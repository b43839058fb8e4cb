package metricstore

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

func FuzzMounts(f *testing.F) {
	f.Add("36 25 0:32 / /shared rw,relatime shared:1 - nfs4 fs1.example:/export rw,vers=4.2,hard\n", "/shared/x")
	f.Add("1 2 3 / /a\\040b rw - ext4 /dev/sda1 rw\n", "/a b/c")
	f.Add(" - - - ", "")
	f.Fuzz(func(t *testing.T, table, dir string) {
		n, ok := FilesystemNotice(dir, table, func(string) string { return "" })
		if ok == (n.Message == "") {
			t.Errorf("found %v, message %q", ok, n.Message)
		}
	})
}

// FuzzLogSegment gives the repair of a copied log arbitrary bytes: what is left must be readable.
func FuzzLogSegment(f *testing.F) {
	dir := f.TempDir()
	w, err := wlog.NewSize(nil, nil, dir, 1<<20, compression.Snappy)
	if err != nil {
		f.Fatal(err)
	}
	for _, rec := range []string{"a", "", string(make([]byte, 70_000)), "b"} {
		if err := w.Log([]byte(rec)); err != nil {
			f.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(wlog.SegmentName(dir, 0))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole[:300]) // a page is padded with zeros, which the reader supplies itself
	f.Add(whole[:100])
	f.Add([]byte{1, 0, 1, 0, 0, 0, 0, 9})
	f.Fuzz(func(t *testing.T, segment []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "00000000"), segment, 0o644); err != nil {
			t.Fatal(err)
		}
		a := &Archive{log: slog.New(slog.DiscardHandler), bad: map[string]string{}, damaged: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, []string{"kind"})}
		if err := a.repairLog(dir, "wal"); err != nil {
			t.Fatal(err)
		}
		if _, err := readSegment(wlog.SegmentName(dir, 0), func([]byte) error { return nil }); err != nil {
			t.Errorf("after the repair: %v", err)
		}
	})
}
