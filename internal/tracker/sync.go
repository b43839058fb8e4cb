package tracker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// SyncConfig says how runs are uploaded.
type SyncConfig struct {
	// Dir holds the offline runs.
	Dir string
	// Program is the W&B client, "wandb" when empty, looked up in PATH. Its credentials and server are
	// its own business (WANDB_API_KEY, ~/.netrc, WANDB_BASE_URL): nothing is read or passed here.
	Program string
	// Timeout bounds one run's upload, 10 minutes when 0. Parallel bounds how many run at once, 2 when 0.
	Timeout  time.Duration
	Parallel int
	// Logger gets what the program prints, and how each upload ended.
	Logger *slog.Logger
}

// Syncer uploads offline runs with the `wandb sync` of an installed W&B client. It is the only part of
// this package that leads to a network, and exists only where the configuration asks for it.
type Syncer struct {
	cfg     SyncConfig
	program string
	mu      sync.Mutex
	done    map[string]int64 // bytes of each run that were uploaded
}

// NewSyncer returns a Syncer, or an error that wraps exec.ErrNotFound where the program does not exist.
// Nothing is started.
func NewSyncer(cfg SyncConfig) (*Syncer, error) {
	if cfg.Program == "" {
		cfg.Program = "wandb"
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Minute
	}
	if cfg.Parallel <= 0 {
		cfg.Parallel = 2
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Logger = cfg.Logger.With("component", "wandb-sync")
	program, err := exec.LookPath(cfg.Program)
	if err != nil {
		return nil, fmt.Errorf("tracker: runs are not uploaded: %w: install the W&B client, or copy the runs (or a bundle of them) to a machine that has it", err)
	}
	return &Syncer{cfg: cfg, program: program, done: map[string]int64{}}, nil
}

// Run uploads at each tick until ctx ends. A tick while an upload runs is not queued.
func (s *Syncer) Run(ctx context.Context, tick <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			if _, err := s.Sync(ctx); err != nil && ctx.Err() == nil {
				s.cfg.Logger.Warn("upload failed; it is tried again", "error", err)
			}
		}
	}
}

// Sync uploads the runs that grew since they were last uploaded, and returns how many were. A run that is
// still written to is uploaded from a copy that is ended as "not complete", so that W&B shows it as
// running. When ctx ends, the programs are killed with all their children.
func (s *Syncer) Sync(ctx context.Context) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	paths, err := runFiles(s.cfg.Dir)
	if err != nil {
		return 0, fmt.Errorf("tracker: sync: %w", err)
	}
	type result struct {
		path string
		size int64
		err  error
	}
	results := make(chan result)
	slots := make(chan struct{}, s.cfg.Parallel)
	started := 0
	var errs []error
	for _, path := range paths {
		run, err := readRun(path, false)
		if err != nil || !run.ours || run.next == 0 {
			continue // not ours to upload
		}
		size := run.end
		if run.whole {
			size = -size // ended: once more, even with no new row
		}
		// The client's mark says nothing of a run that went on while the client was at it: what was uploaded here counts.
		if done, here := s.done[path]; here && done == size || !here && run.whole && newer(path+syncedSuffix, path) {
			continue
		}
		started++
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results <- result{path, size, s.upload(ctx, path, run)}
		}()
	}
	n := 0
	for range started {
		r := <-results
		if r.err != nil {
			errs = append(errs, r.err)
			continue
		}
		s.done[r.path] = r.size
		n++
	}
	return n, errors.Join(errs...)
}

// newer says that a exists and is not older than b.
func newer(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && !x.ModTime().Before(y.ModTime())
}

const snapshotDir = ".rollscope-sync"

func (s *Syncer) upload(ctx context.Context, path string, run *storedRun) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if !run.whole {
		// The copy has the directory name of the run: the client takes only offline-* for offline runs.
		dir = filepath.Join(s.cfg.Dir, snapshotDir, filepath.Base(dir))
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return advise(err)
		}
		src, _, err := run.complete(path)
		if err != nil {
			return err
		}
		defer src.Close()
		if err := replace(filepath.Join(dir, filepath.Base(path)), func(w io.Writer) error {
			_, err := io.Copy(w, src)
			return err
		}); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.program, "sync", "--include-synced", dir)
	// Its own process group, since the client starts a service of its own that must end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	log := s.cfg.Logger.With("run", filepath.Base(dir))
	out := &lineLogger{log: log}
	cmd.Stdout, cmd.Stderr = out, out
	began := time.Now()
	err := cmd.Run()
	out.flush()
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("tracker: wandb sync of %s: stopped after %s: %w", filepath.Base(dir), time.Since(began).Round(time.Second), ctx.Err())
	case err != nil:
		err = fmt.Errorf("tracker: wandb sync of %s: %w: see what it printed", filepath.Base(dir), err)
	default:
		log.Info("uploaded", "rows", run.next)
	}
	return err
}

// lineLogger logs each line that a program prints, cut at 1 KiB.
type lineLogger struct {
	mu  sync.Mutex
	log *slog.Logger
	buf []byte
}

const maxLine = 1 << 10

func (l *lineLogger) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range b {
		switch {
		case c == '\n' || c == '\r': // a progress bar is a line for each state
			l.emit()
		case len(l.buf) < maxLine:
			l.buf = append(l.buf, c)
		}
	}
	return len(b), nil
}

func (l *lineLogger) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.emit()
}

func (l *lineLogger) emit() {
	if text := strings.TrimSpace(string(l.buf)); text != "" {
		l.log.Info(text)
	}
	l.buf = l.buf[:0]
}
