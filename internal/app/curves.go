package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/scalars"
)

// The trainer's curves are kept as DIR/rollscope/state/curves/RUN.json, RUN path-escaped, so that they are
// there after the job, and so that its files are not read again from their start:
// {"run": NAME, "path": WHERE THEY WERE READ, "cursor": OF THE FOLLOWER, in base64}.
type keptCurves struct {
	Run    string `json:"run"`
	Path   string `json:"path"`
	Cursor []byte `json:"cursor"`
}

func curvesDir(dir string) string { return filepath.Join(dir, "rollscope", "state", "curves") }

func curvesFile(dir, run string) string {
	return filepath.Join(curvesDir(dir), url.PathEscape(run)+".json")
}

// savedCurves is the cursor that was kept of a run whose curves are read from the same place, else nil.
func (p *rolloutPart) savedCurves(r config.Rollout) []byte {
	k, err := readCurves(curvesFile(p.dir, r.Run))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			p.logger.Warn("curves that were kept cannot be read", "run", r.Run, "err", err)
		}
		return nil
	}
	if k.Run != r.Run || k.Path != r.Scalars {
		return nil
	}
	return k.Cursor
}

func readCurves(path string) (keptCurves, error) {
	var k keptCurves
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	return k, err
}

// keepCurves writes a run's curves when they have grown; points is how many they were the last time.
func (p *rolloutPart) keepCurves(run string, f *scalars.Follower, points *int64) {
	n := f.Stats().Points
	if n == *points {
		return
	}
	where := ""
	for _, r := range p.current().rollouts {
		if r.Run == run {
			where = r.Scalars
		}
	}
	if where == "" {
		return
	}
	cursor, err := f.Cursor()
	if err == nil {
		var b []byte
		if b, err = json.Marshal(keptCurves{run, where, cursor}); err == nil {
			if err = os.MkdirAll(curvesDir(p.dir), 0o755); err == nil {
				err = replaceFile(curvesFile(p.dir, run), writeAll(b))
			}
		}
	}
	if err != nil {
		p.logger.Warn("the trainer's curves could not be kept", "run", run, "err", err)
		return
	}
	*points = n
}

// openKept are the curves of all runs of an archive, as they were kept.
func openKept(dir string, logger *slog.Logger) func(run string) curveSource {
	out := map[string]curveSource{}
	list, err := os.ReadDir(curvesDir(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		logger.Warn("the trainer's curves cannot be read", "err", err)
	}
	for _, e := range list {
		if !strings.HasSuffix(e.Name(), ".json") || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		k, err := readCurves(filepath.Join(curvesDir(dir), e.Name()))
		var f *scalars.Follower
		if err == nil {
			f, err = scalars.Open(k.Path, scalars.Options{Resume: k.Cursor})
		}
		if err != nil {
			logger.Warn("the trainer's curves cannot be read", "file", e.Name(), "err", fmt.Errorf("%s: %w", e.Name(), err))
			continue
		}
		out[k.Run] = trainerCurves{f}
	}
	return func(run string) curveSource { return out[run] }
}
