package app

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/enginelog"
	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/tracker"
)

// ParseLogsOptions configure [ParseLogs].
type ParseLogsOptions struct {
	Files []string // "-" is Stdin; files that are compressed with gzip are read as well
	Stdin io.Reader
	Out   io.Writer

	Zone    *time.Location // of times without one; nil: what the file's time of change tells
	Written time.Time      // about when the logs were written; zero: the file's time of change
	Engine  string
	JSON    bool
	// Records writes the lines instead of a summary, each as a JSON object as the event store has them.
	// With Classes only the lines of these.
	Records bool
	Classes []enginelog.Class

	// TensorBoard gets the metrics of steps that lines printed; "": nowhere.
	TensorBoard string
	Run         string // of TensorBoard; "": the file's name
	Logger      *slog.Logger
	Version     string
}

// ParsedLog is what a file held.
type ParsedLog struct {
	File    string
	Summary enginelog.Summary
}

// ParsedLogs is the result of [ParseLogs].
type ParsedLogs struct {
	Logs []ParsedLog
	// Tracker is what was written to TensorBoard, and WithoutAxis how many steps were printed under a word
	// that no trainer's axis has, and were not.
	Tracker     tracker.Stats
	WithoutAxis int
}

// ParseLogs reads log files and writes what is in them. With an error there may be results: of the files
// that could be read.
func ParseLogs(ctx context.Context, o ParseLogsOptions) (ParsedLogs, error) {
	var res ParsedLogs
	var steps []tracker.Step
	var errs []error
	for i, path := range o.Files {
		run := o.Run
		if run == "" {
			run = runOfLog(path)
		}
		if o.TensorBoard != "" {
			if err := tracker.ValidateRun(run); err != nil {
				return res, fmt.Errorf("the name of the run: %w; give one with --run", err)
			}
		}
		if i > 0 && !o.JSON && !o.Records {
			fmt.Fprintln(o.Out)
		}
		l := logFile{o: o, run: run}
		s, err := l.read(ctx, path)
		if ctx.Err() != nil {
			return res, context.Cause(ctx)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		res.Logs = append(res.Logs, ParsedLog{path, s})
		res.WithoutAxis += l.noAxis
		steps = append(steps, l.steps...)
	}
	if o.TensorBoard == "" {
		return res, errors.Join(errs...)
	}
	if len(steps) == 0 {
		return res, errors.Join(append(errs, errors.New("no line has metrics of a step (as perf 12: {...}): nothing was written for TensorBoard"))...)
	}
	st, err := ExportSteps(ctx, ExportStepsOptions{What: "tensorboard", Dir: o.TensorBoard, Steps: steps, Logger: o.Logger, Version: o.Version})
	res.Tracker = st
	return res, errors.Join(append(errs, err)...)
}

// runOfLog makes a file's name the name of a run.
func runOfLog(path string) string {
	if path == "-" {
		return "stdin"
	}
	name := filepath.Base(path)
	for _, ext := range []string{".gz", ".log", ".txt", ".out"} {
		name = strings.TrimSuffix(name, ext)
	}
	return name
}

// logFile is one file in reading.
type logFile struct {
	o       ParseLogsOptions
	run     string
	collect enginelog.StepCollector
	steps   []tracker.Step
	noAxis  int
	source  string
}

func (l *logFile) read(ctx context.Context, path string) (enginelog.Summary, error) {
	in, written := l.o.Stdin, l.o.Written
	l.source = "stdin"
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return enginelog.Summary{}, err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return enginelog.Summary{}, err
		}
		if info.IsDir() {
			return enginelog.Summary{}, fmt.Errorf("%s is a directory: name its files, as %s", path, filepath.Join(path, "*.log"))
		}
		if written.IsZero() {
			written = info.ModTime()
		}
		in, l.source = f, path
	}
	head := bufio.NewReaderSize(stopping{ctx, in}, 64<<10)
	in = head
	if magic, err := head.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(head)
		if err != nil {
			return enginelog.Summary{}, fmt.Errorf("%s: %w", path, err)
		}
		defer z.Close()
		in = z
	}
	r := enginelog.ReportOptions{Source: l.source, Zone: l.o.Zone, ModTime: written, Engine: l.o.Engine, JSON: l.o.JSON}
	out := l.o.Out
	var records *bufio.Writer
	if l.o.Records {
		records = bufio.NewWriterSize(l.o.Out, 64<<10)
		out = io.Discard
	}
	if l.o.Records || l.o.TensorBoard != "" {
		r.Each = func(rec *enginelog.Record) error { return l.record(rec, records) }
	}
	s, err := enginelog.Report(out, in, r)
	if records != nil {
		err = errors.Join(err, records.Flush())
	}
	l.add(l.collect.Close())
	return s, err
}

// record passes a line on.
func (l *logFile) record(rec *enginelog.Record, w *bufio.Writer) error {
	if rec.Step != nil && l.o.TensorBoard != "" {
		l.add(l.collect.Add(rec.Step))
	}
	if w == nil || len(l.o.Classes) > 0 && !slices.Contains(l.o.Classes, rec.Class) {
		return nil
	}
	row := rec.Row(enginelog.Options{Source: l.source})
	return writeRow(w, &row)
}

func (l *logFile) add(steps []enginelog.Step) {
	for _, s := range steps {
		if s.Axis == "" {
			l.noAxis++
			continue
		}
		t := tracker.Step{Run: l.run, Axis: tracker.Axis(s.Axis), Step: s.Step, Time: time.Unix(0, s.Time)}
		for _, m := range s.Metrics {
			t.Metrics = append(t.Metrics, tracker.Metric{Key: m.Key, Value: m.Value})
		}
		l.steps = append(l.steps, t)
	}
}

// writeRow writes a row as a JSON object on a line, with the names that the event store gives it.
func writeRow(w io.Writer, row *event.Row) error {
	b := []byte(`{"_time":`)
	put := func(v string) {
		text, err := json.Marshal(v)
		if err != nil { // a string always can be
			text = []byte(`""`)
		}
		b = append(b, text...)
	}
	stamp := ""
	if row.Time != 0 {
		stamp = time.Unix(0, row.Time).UTC().Format(time.RFC3339Nano)
	}
	put(stamp)
	b = append(b, `,"_msg":`...)
	put(row.Message)
	for _, f := range append([]event.Field{{Name: "engine", Value: row.Engine}}, row.Fields...) {
		if f.Value != "" {
			b = append(b, ',')
			put(f.Name)
			b = append(b, ':')
			put(f.Value)
		}
	}
	_, err := w.Write(append(b, "}\n"...))
	return err
}

// stopping ends a reader with ctx.
type stopping struct {
	ctx context.Context
	r   io.Reader
}

// Read implements [io.Reader].
func (s stopping) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(p)
}
