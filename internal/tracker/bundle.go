package tracker

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rollscope/rollscope/internal/wandbfile"
)

// BundleRun is one run in a bundle.
type BundleRun struct {
	// Path in the bundle, and from the directory of the offline runs.
	Path string `json:"path"`
	Run  string `json:"run"`
	ID   string `json:"id"`
	// Attempt is that of the run's name; Rows are the steps in it, Last the time of the latest.
	Attempt int       `json:"attempt"`
	Rows    int       `json:"rows"`
	Last    time.Time `json:"last"`
}

// BundleIndex is the first file of a bundle, bundle.json.
type BundleIndex struct {
	Since *time.Time  `json:"since,omitempty"`
	Runs  []BundleRun `json:"runs"`
	// Skipped are run files that were left out because they are not ours, or cannot be read.
	Skipped []string `json:"skipped,omitempty"`
}

const bundleIndexName = "bundle.json"

// Bundle writes the offline runs of ours below dir as one .tar.gz, for a machine that has a network. With
// a since that is not zero only runs that got a step at or after it are in; those are whole, since W&B
// takes a run as a whole. Runs that are still written to are in with the steps they have, ended as "not
// complete". The same runs make the same bytes. The directory is only read, and may be in use.
func Bundle(w io.Writer, dir string, since time.Time) (BundleIndex, error) {
	var index BundleIndex
	if !since.IsZero() {
		u := since.UTC()
		index.Since = &u
	}
	found, err := runFiles(dir)
	if err != nil {
		return index, fmt.Errorf("tracker: bundle: %w", err)
	}
	var stored []*storedRun
	var paths []string
	for _, path := range found {
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return index, err
		}
		s, err := readRun(path, false)
		if err != nil || !s.ours {
			index.Skipped = append(index.Skipped, filepath.ToSlash(rel))
			continue
		}
		if len(s.rows) == 0 || !since.IsZero() && s.last < seconds(since) {
			continue
		}
		s.rows = nil
		index.Runs = append(index.Runs, BundleRun{Path: filepath.ToSlash(rel), Run: s.info.Run, ID: s.run.ID, Attempt: s.info.Attempt, Rows: int(s.next), Last: timeOf(s.last)})
		stored, paths = append(stored, s), append(paths, path)
	}
	gz := gzip.NewWriter(w)
	tw := tar.NewWriter(gz)
	head, err := json.MarshalIndent(index, "", " ")
	if err != nil {
		return index, err
	}
	newest := time.Unix(0, 0)
	for _, r := range index.Runs {
		if r.Last.After(newest) {
			newest = r.Last
		}
	}
	err = addFile(tw, bundleIndexName, newest, int64(len(head)), bytes.NewReader(head))
	for i, s := range stored {
		if err != nil {
			break
		}
		err = s.addTo(tw, index.Runs[i], paths[i])
	}
	if err = errors.Join(err, tw.Close(), gz.Close()); err != nil {
		return index, fmt.Errorf("tracker: bundle: %w", advise(err))
	}
	return index, nil
}

// runFiles lists the offline runs' files in dir, sorted.
func runFiles(dir string) ([]string, error) {
	if _, err := os.ReadDir(dir); err != nil {
		return nil, err
	}
	found, err := filepath.Glob(filepath.Join(globEscape(dir), "offline-run-*", "run-*.wandb"))
	slices.Sort(found)
	return found, err
}

func addFile(tw *tar.Writer, name string, mod time.Time, size int64, r io.Reader) error {
	err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, ModTime: mod.Truncate(time.Second), Format: tar.FormatPAX})
	if err == nil {
		_, err = io.CopyN(tw, r, size)
	}
	return err
}

// addTo adds a run with its end, which a run in use does not have.
func (s *storedRun) addTo(tw *tar.Writer, r BundleRun, path string) error {
	src, size, err := s.complete(path)
	if err != nil {
		return err
	}
	defer src.Close()
	return addFile(tw, r.Path, r.Last, size, src)
}

// complete returns the file up to its last whole row, and an end: its own, or that of a run that goes on.
func (s *storedRun) complete(path string) (io.ReadCloser, int64, error) {
	var end bytes.Buffer
	exit, live := int32(0), !s.whole
	if s.archived {
		exit, live = 1, false
	}
	if err := wandbfile.NewWriter(&end, s.end, s.num).Write(s.trailer(s.first, exit, live)...); err != nil {
		return nil, 0, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	if st, err := f.Stat(); err != nil || !os.SameFile(st, s.stat) {
		f.Close()
		return nil, 0, errors.Join(err, fmt.Errorf("%s was written anew while it was read: try again", path))
	}
	size := s.end + int64(end.Len())
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(f, s.end), &end), f}, size, nil
}
