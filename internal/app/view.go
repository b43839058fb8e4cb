package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/dumps"
	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/rolloutstore"
	"github.com/rollscope/rollscope/internal/timeline"
	"github.com/rollscope/rollscope/internal/web"
	"github.com/rollscope/rollscope/torchfile"
)

// ViewOptions configure [View].
type ViewOptions struct {
	Files    []string
	OutDir   string // for page and cache; "" writes them beside the dump
	NoCache  bool   // no *.trace_timeline_cache.json
	Rebuild  bool   // also where page and cache are of this dump and this version
	NoServe  bool
	Salvage  bool
	NoTexts  bool // no prompts and responses in the page
	Metrics  rollout.MetricOptions
	Web      WebOptions
	Logger   *slog.Logger
	Version  string
	Out      io.Writer // what was written, and the address
	Progress func(ViewProgress)

	started func(url string)
}

// ViewProgress is how far long work is.
type ViewProgress struct {
	File         string
	Samples      int
	Bytes, Total int64 // of the file
	Done         bool
}

// View writes a page and the reference viewer's cache for each dump, and serves the dumps until ctx
// ends. One bad dump does not stop the others: its error is returned at the end.
func View(ctx context.Context, o ViewOptions) error {
	ui, err := web.New()
	if err != nil {
		return err
	}
	if len(ui.Viewer()) == 0 {
		return errors.New("this binary was built without its pages: build it with `make build`")
	}
	v := &viewer{ViewOptions: o, template: ui.Viewer(), bad: map[string]error{}, pages: map[string]string{}}
	if o.NoServe {
		for _, path := range o.Files {
			_, err := v.write(ctx, path, false)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				v.bad[path] = err
			}
		}
		return v.failure()
	}
	return v.serve(ctx, ui)
}

type viewer struct {
	ViewOptions
	template []byte
	bad      map[string]error
	pages    map[string]string // the dump that each page is of
}

// failure joins what went wrong, in the order of the files.
func (v *viewer) failure() error {
	var errs []error
	for _, path := range v.Files {
		if err := v.bad[path]; err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// outputs are the files beside a dump, named as the reference viewer names them.
func (v *viewer) outputs(dump string) (page, cache string) {
	dir := v.OutDir
	if dir == "" {
		dir = filepath.Dir(dump)
	}
	base := filepath.Join(dir, dumpName(dump))
	return base + ".trace_timeline_viewer.html", base + ".trace_timeline_cache.json"
}

// write makes page and cache of a dump unless they are of it already. With need the step is read in any
// case and returned.
func (v *viewer) write(ctx context.Context, path string, need bool) (*dumps.Step, error) {
	if ctx.Err() != nil { // a small dump would be read to its end
		return nil, context.Cause(ctx)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if page, _ := v.outputs(path); v.pages[page] == "" {
		v.pages[page] = path
	} else if v.pages[page] != path {
		return nil, fmt.Errorf("%s: its page would have the name of that of %s: write them to directories of their own with --out", path, v.pages[page])
	}
	f, opts, err := openDump(path, v.Salvage)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	page, cache := v.outputs(path)
	fresh := !v.Rebuild && f.Incomplete() == nil && v.fresh(f, page, cache)
	if fresh {
		fmt.Fprintf(v.Out, "%s is of this dump already\n", page)
		if !need {
			return nil, nil
		}
	}
	ro := dumps.ReadOptions{
		Metrics: v.Metrics, Tool: v.Version, Salvage: v.Salvage, Texts: v.texts(), NoMetrics: !need,
		Progress: func(n int, at int64) { v.progress(ViewProgress{File: path, Samples: n, Bytes: at, Total: info.Size()}) },
	}
	var (
		c    *cacheFile
		mark *timeline.CacheMark
	)
	if !v.NoCache && !fresh {
		if c, err = newCacheFile(f, path, cache); err != nil {
			return nil, err
		}
		ro.Entry = c.out.Add
	}
	st, err := dumps.ReadFile(ctx, f, opts, path, info, ro)
	v.progress(ViewProgress{File: path, Done: true})
	if c != nil {
		mark, err = c.close(err, err == nil && !st.Header.Streamed, v.Salvage)
	}
	if err != nil {
		return nil, err
	}
	if st.Partial != nil {
		fmt.Fprintf(v.Out, "%s: %v\n", path, st.Partial)
		v.bad[path] = st.Partial // what is there is shown, and the exit code says that it is not all
	}
	if fresh {
		return st, nil
	}
	columns, err := timeline.Levels(st.Columns, timeline.LevelOptions{})
	if err != nil {
		return nil, err
	}
	if err := replaceFile(page, func(w io.Writer) error {
		return timeline.WritePage(w, v.template, columns, timeline.PageOptions{Title: filepath.Base(path), Cache: mark})
	}); err != nil {
		return nil, fmt.Errorf("the page of %s: %w (another directory: --out)", path, err)
	}
	fmt.Fprintln(v.Out, page)
	if mark != nil {
		fmt.Fprintln(v.Out, cache)
	}
	return st, nil
}

func (v *viewer) texts() int {
	if v.NoTexts {
		return 0
	}
	return textSamples
}

// textSamples is of how many of the samples that ended last a page holds prompt and response.
const textSamples = 24

func (v *viewer) progress(p ViewProgress) {
	if v.Progress != nil {
		v.Progress(p)
	}
}

// fresh tells whether page and cache were made of this content by this version.
func (v *viewer) fresh(f *torchfile.File, page, cache string) bool {
	in, err := os.Open(page)
	if err != nil {
		return false
	}
	mark, err := timeline.ReadPageMark(in)
	if closeErr := in.Close(); err != nil || closeErr != nil {
		return false
	}
	print, err := timeline.Fingerprint(f)
	if err != nil || !mark.Fits(v.Version, print) {
		return false
	}
	if v.NoCache {
		return true
	}
	return mark.Cache != nil && sameFile(cache, *mark.Cache)
}

// sameFile tells whether a file has the size and the content of a mark.
func sameFile(path string, mark timeline.CacheMark) bool {
	info, err := os.Stat(path)
	if err != nil || info.Size() != mark.Bytes {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	h := sha256.New()
	for _, part := range [...]*io.SectionReader{io.NewSectionReader(f, mark.Head, mark.Bytes-mark.Head), io.NewSectionReader(f, 0, mark.Head)} {
		if _, err := io.Copy(h, part); err != nil {
			return false
		}
	}
	return hex.EncodeToString(h.Sum(nil)) == mark.SHA256
}

// cacheFile is the reference viewer's cache in the making, in a temporary file beside its place.
type cacheFile struct {
	dump, path string
	tmp        *os.File
	digest     hash.Hash
	out        *timeline.Compat
}

func newCacheFile(f *torchfile.File, dump, path string) (*cacheFile, error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, fmt.Errorf("the cache of %s: %w (another directory: --out, none: --no-cache)", dump, err)
	}
	c := &cacheFile{dump: dump, path: path, tmp: tmp, digest: sha256.New()}
	c.out = timeline.NewCompat(tmp, f, timeline.CompatOptions{PtPath: dump, GeneratedAt: time.Now(), Digest: c.digest})
	return c, nil
}

// close moves the file to its place, or removes it when the dump could not be read. rest says that the
// entries that were added are not all; with salvage a dump that is cut has a cache of what is there.
func (c *cacheFile) close(readErr error, rest, salvage bool) (*timeline.CacheMark, error) {
	var err error
	if rest {
		if err = c.out.Read(); salvage && errors.Is(err, torchfile.ErrIncomplete) {
			err = nil // the dump's reader says what is missing
		}
	}
	st, closeErr := c.out.Close()
	if err = errors.Join(err, closeErr, c.tmp.Chmod(0o644), c.tmp.Close()); err != nil {
		err = fmt.Errorf("the cache of %s: %w", c.dump, err)
	}
	if closeErr == nil && readErr != nil {
		err = readErr
	}
	if err == nil {
		err = os.Rename(c.tmp.Name(), c.path)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(c.tmp.Name()))
	}
	return &timeline.CacheMark{Bytes: st.Bytes, Head: st.Head, SHA256: hex.EncodeToString(c.digest.Sum(nil))}, nil
}

// writeAll writes bytes that are there.
func writeAll(b []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}
}

// replaceFile writes a file that appears whole or not at all.
func replaceFile(path string, write func(io.Writer) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	err = errors.Join(write(tmp), tmp.Chmod(0o644), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(tmp.Name()))
	}
	return err
}

// serve shows the dumps on loopback: the same pages as the recorder's, over an index in a temporary
// directory.
func (v *viewer) serve(ctx context.Context, ui *web.UI) (err error) {
	sockets, err := listen(v.Web, true)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "rollscope-view-")
	if err != nil {
		sockets.close()
		return fmt.Errorf("a directory for the index: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store, err := rolloutstore.Open(dir, rolloutstore.Options{Logger: v.Logger})
	if err != nil {
		sockets.close()
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	files, err := newViewFiles(v.Files)
	if err != nil {
		sockets.close()
		return err
	}
	source := newRollouts(store, nil)
	source.watched = files.of
	a, err := api.New(api.Options{
		Mode: api.ModeView, Version: v.Version, Dir: filepath.Dir(v.Files[0]), Logger: v.Logger,
		Hosts: sockets.hosts(), Access: sockets.access(), Rollouts: source, Timelines: source, UI: ui,
	})
	if err != nil {
		sockets.close()
		return err
	}
	g := &group{logger: v.Logger, grace: time.Minute}
	g.add(actor{name: "dumps", run: func(ctx context.Context) error {
		v.readAll(ctx, store, files, a)
		<-ctx.Done()
		return nil
	}, why: "after the pages that show them"})
	g.add(actor{name: "api", run: func(ctx context.Context) error { return sockets.serve(ctx, a, nil) }, why: "first: nobody asks a server that is going down"})
	fmt.Fprintf(v.Out, "%s/rollouts\n", sockets.url())
	if v.started != nil {
		v.started(sockets.url())
	}
	if err := g.run(ctx); err != nil {
		return err
	}
	return v.failure()
}

// readAll reads the dumps one after the other into the index.
func (v *viewer) readAll(ctx context.Context, store *rolloutstore.Store, files *viewFiles, a *api.API) {
	in := &ingest{store: store, logger: v.Logger, version: v.Version}
	for i, path := range v.Files {
		if ctx.Err() != nil {
			return
		}
		files.set(path, "processing", "")
		st, err := v.write(ctx, path, true)
		if err == nil {
			if !st.Header.RolloutID.OK { // a file of any name: its place on the command line tells it apart
				st.Header.RolloutID = rollout.Int{N: int64(i), OK: true}
			}
			_, err = in.put(ctx, files.run(path), st)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			v.bad[path] = err
			files.set(path, "failed", err.Error())
			v.Logger.Error("a dump could not be read", "file", path, "err", err)
		default:
			files.set(path, "", "")
		}
		a.Evaluated()
	}
}
