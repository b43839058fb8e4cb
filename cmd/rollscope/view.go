package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/app"
)

func addView(a *kingpin.Application, e *env) {
	o := &app.ViewOptions{}
	var listen string
	cmd := a.Command("view", "A rollout dump as a page: the timeline of every sample, and where the step's time went.").HelpLong(`
  rollscope view rollout_7.pt                  writes rollout_7.trace_timeline_viewer.html beside it, and serves it
  rollscope view dumps/ --no-serve --out pages/
`)
	cmd.Arg("file", "Dumps, or directories of dumps.").Required().StringsVar(&o.Files)
	cmd.Flag("no-serve", "Only write the files.").BoolVar(&o.NoServe)
	cmd.Flag("listen", "Address to serve on; the next free port is taken when this one is busy.").Default("127.0.0.1:8765").StringVar(&listen)
	cmd.Flag("out", "Directory for the files, instead of the dump's.").PlaceHolder("DIR").StringVar(&o.OutDir)
	cmd.Flag("no-cache", "Do not write NAME.trace_timeline_cache.json, which other programs read.").BoolVar(&o.NoCache)
	cmd.Flag("no-texts", "No prompts and responses in the page; it may still hold other texts of the dump. Use with --rebuild.").BoolVar(&o.NoTexts)
	cmd.Flag("rebuild", "Write the files again although they are of this dump and this version.").BoolVar(&o.Rebuild)
	cmd.Flag("salvage", "Of a file that was cut, show what is there.").BoolVar(&o.Salvage)
	cmd.Flag("gpus", "GPUs that generate (slime's --rollout-num-gpus).").IntVar(&o.Metrics.GPUs)
	cmd.Flag("reward-key", "Entry of a dict reward that counts (slime's --reward-key).").StringVar(&o.Metrics.RewardKey)
	cmd.Action(func(*kingpin.ParseContext) error {
		var err error
		if o.Files, err = app.DumpFiles(o.Files); err != nil {
			return badInput("%w", err)
		}
		if o.OutDir != "" {
			if err := os.MkdirAll(o.OutDir, 0o755); err != nil {
				return badInput("--out: %w", err)
			}
		}
		o.Web.Listen = []string{listen}
		o.Logger, o.Version, o.Out = e.logger(), e.version, e.out
		if bar := newBar(e.err); bar != nil {
			o.Progress = bar.show
		}
		return app.View(e.ctx, *o)
	})
}

// bar is a line that says how far long work is. It is drawn on a terminal only, once the work has
// taken a second.
type bar struct {
	mu    sync.Mutex
	w     io.Writer
	began time.Time
	last  time.Time
	file  string
	drawn int // width of what stands there
}

// newBar returns nil when w is no terminal.
func newBar(w io.Writer) *bar {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return &bar{w: w}
}

func (b *bar) show(p app.ViewProgress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if p.File != b.file {
		b.file, b.began = p.File, now
	}
	if p.Done {
		if b.drawn > 0 {
			fmt.Fprintf(b.w, "\r%s\r", strings.Repeat(" ", b.drawn))
			b.drawn = 0
		}
		return
	}
	if now.Sub(b.began) < time.Second || now.Sub(b.last) < 100*time.Millisecond {
		return
	}
	b.last = now
	line := fmt.Sprintf("%s: ", p.File)
	if p.Total > 0 {
		const width = 30
		full := int(float64(width) * float64(p.Bytes) / float64(p.Total))
		line += fmt.Sprintf("[%s%s] %3.0f %% ", strings.Repeat("#", full), strings.Repeat(".", width-full), 100*float64(p.Bytes)/float64(p.Total))
	}
	line += fmt.Sprintf("%d samples, %.0f s", p.Samples, now.Sub(b.began).Seconds())
	pad := max(0, b.drawn-len(line))
	fmt.Fprintf(b.w, "\r%s%s", line, strings.Repeat(" ", pad))
	b.drawn = len(line)
}
