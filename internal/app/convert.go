package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/convert"
	"github.com/rollscope/rollscope/internal/dumps"
	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/timeline"
	"github.com/rollscope/rollscope/torchfile"
)

// ConvertOptions configure [Convert].
type ConvertOptions struct {
	File     string
	To       string // one of ConvertFormats
	Out      string // "" is beside the dump, "-" standard output, a directory, or a file's name
	Texts    bool   // prompts and responses too
	Run      string
	Filter   string  // of perfetto: rows that are wanted
	FromTime float64 // of perfetto: seconds from the step's start
	ToTime   float64 // 0: to the end
	Salvage  bool
	Version  string
	Stdout   io.Writer
}

// ConvertFormats are the names that --to takes.
func ConvertFormats() []string {
	out := append(convert.Formats(), "perfetto", "cache")
	slices.Sort(out)
	return out
}

// Convert writes a dump for another tool and returns the names of the files. With Salvage there may be
// files and an error: it says why not all of the dump is in them.
func Convert(ctx context.Context, o ConvertOptions) ([]string, error) {
	if o.Out == "-" && o.To == "parquet" {
		return nil, errors.New("parquet is three files: name a directory with --out")
	}
	f, opts, err := openDump(o.File, o.Salvage)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	files := &outFiles{o: o}
	var partial error
	switch o.To {
	case "perfetto":
		err = files.write(".perfetto.json", func(w io.Writer) error {
			var err error
			partial, err = perfetto(ctx, o, w)
			return err
		})
	case "cache":
		err = files.write(".trace_timeline_cache.json", func(w io.Writer) error {
			_, err := timeline.WriteCompat(w, f, timeline.CompatOptions{PtPath: o.File, GeneratedAt: time.Now()})
			partial, err = o.salvaged(err)
			return err
		})
	default:
		kind := rollout.Train
		if opts.Eval {
			kind = rollout.Eval
		}
		var w convert.Writer
		w, err = convert.New(o.To, files.open, convert.Options{Texts: o.Texts, Run: o.Run, Kind: kind, RolloutID: opts.RolloutID, Version: o.Version})
		if err != nil {
			break
		}
		b := timeline.NewBuilder(timeline.Options{})
		_, err = rollout.Read(f, opts, func(s *rollout.Sample) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return w.Add(b.Build(s))
		})
		partial, err = o.salvaged(err)
		err = errors.Join(err, w.Close())
	}
	names, err := files.done(err)
	return names, errors.Join(err, partial)
}

// salvaged tells an error that says that a file was cut, where what is there is wanted, from others.
func (o ConvertOptions) salvaged(err error) (partial, other error) {
	if o.Salvage && errors.Is(err, torchfile.ErrIncomplete) {
		return err, nil
	}
	return nil, err
}

func perfetto(ctx context.Context, o ConvertOptions, w io.Writer) (partial, err error) {
	st, err := dumps.Read(ctx, o.File, dumps.ReadOptions{Tool: o.Version, Salvage: o.Salvage, NoMetrics: true})
	if err != nil {
		return nil, err
	}
	ix := timeline.NewIndex(st.Columns)
	t0, t1 := ix.Extent()
	if perSecond := float64(time.Second) / float64(ix.Head().UnitNS); o.FromTime != 0 || o.ToTime != 0 {
		start := t0
		if st.Wall.Known { // not the first event: a carried-over sample brings those of earlier steps
			start = (st.Wall.Start - ix.Head().T0) / ix.Head().UnitNS
		}
		t0 = start + int64(o.FromTime*perSecond)
		if o.ToTime != 0 {
			t1 = start + int64(o.ToTime*perSecond)
		}
		if t1 <= t0 {
			return nil, errors.New("--to-time must come after --from-time")
		}
	}
	return st.Partial, timeline.WritePerfetto(w, ix, timeline.Query{Filter: o.Filter}, t0, t1)
}

// outFiles are the files of one conversion: they appear whole, or not at all.
type outFiles struct {
	o    ConvertOptions
	tmps []*os.File
	ends []string
}

func (f *outFiles) open(suffix string) (io.Writer, error) {
	if f.o.Out == "-" {
		return f.o.Stdout, nil
	}
	path := filepath.Join(filepath.Dir(f.o.File), dumpName(f.o.File)+suffix)
	if f.o.Out != "" {
		info, err := os.Stat(f.o.Out)
		switch {
		case err == nil && info.IsDir(), strings.HasSuffix(f.o.Out, string(filepath.Separator)):
			if err := os.MkdirAll(f.o.Out, 0o755); err != nil {
				return nil, err
			}
			path = filepath.Join(f.o.Out, dumpName(f.o.File)+suffix)
		case f.o.To == "parquet":
			path = f.o.Out + suffix
		default:
			path = f.o.Out
		}
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, fmt.Errorf("%w (another place: --out)", err)
	}
	f.tmps, f.ends = append(f.tmps, tmp), append(f.ends, path)
	return tmp, nil
}

func (f *outFiles) write(suffix string, write func(io.Writer) error) error {
	w, err := f.open(suffix)
	if err != nil {
		return err
	}
	return write(w)
}

// done moves the files to their places, or removes them when something went wrong.
func (f *outFiles) done(err error) ([]string, error) {
	for _, t := range f.tmps {
		err = errors.Join(err, t.Chmod(0o644), t.Close())
	}
	for i, t := range f.tmps {
		if err == nil {
			err = os.Rename(t.Name(), f.ends[i])
			continue
		}
		if e := os.Remove(t.Name()); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return nil, err
	}
	return f.ends, nil
}
