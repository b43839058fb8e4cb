// Package child is the one place that links VictoriaLogs' server: it runs in a process of its own, which
// package eventstore starts and watches. Its entry point is [Main].
//
// The library keeps its options in flag.CommandLine, ends the process on a damaged part or a full disk,
// and has one storage for each process; none of that may happen to the process that records metrics.
package child

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/VictoriaMetrics/VictoriaLogs/app/vlinsert"
	"github.com/VictoriaMetrics/VictoriaLogs/app/vlinsert/insertutil"
	"github.com/VictoriaMetrics/VictoriaLogs/app/vlselect"
	"github.com/VictoriaMetrics/VictoriaLogs/app/vlstorage"
	"github.com/VictoriaMetrics/VictoriaMetrics/lib/logger"
	"github.com/VictoriaMetrics/metrics"

	"github.com/rollscope/rollscope/internal/eventstore/wire"
)

// Main runs the child until its stdin says [wire.Stop] or ends, and returns the exit code. It takes its
// listening socket as file descriptor [wire.ListenFD]. Signals that a terminal or a service manager sends to all
// processes of a group are ignored: the parent decides, and when the parent is gone stdin ends.
func Main(args []string) int {
	fs := flag.NewFlagSet("events-child", flag.ContinueOnError)
	dir := fs.String("dir", "", "directory of the store")
	retention := fs.Duration("retention", 30*24*time.Hour, "rows older than this are removed, by the day")
	future := fs.Duration("future", 3*24*time.Hour, "rows further in the future than this are refused")
	minFree := fs.Int64("min-free-bytes", 32<<20, "free disk below which nothing is accepted")
	memory := fs.Int64("memory-bytes", 256<<20, "bound of the caches")
	flush := fs.Duration("flush-interval", time.Second, "how long rows may stay in memory only, at least 1s")
	longest := fs.Duration("max-query-duration", 5*time.Minute, "how long a query may take")
	anew := fs.String("reindex", "", "days (YYYYMMDD,...) whose index lost a part")
	search := fs.Bool("probe", false, "read the index of streams of each day and say so before, to find one that ends the process")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	if *dir == "" || fs.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "events-child: -dir is missing, or there are arguments; this command is for rollscope itself")
		return 2
	}
	listener, err := inherited()
	if err != nil {
		fmt.Fprintln(os.Stderr, "events-child:", err)
		return 2
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)

	stop := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			if lines.Text() == wire.Stop {
				stop <- true
				return
			}
		}
		// The parent is gone and the store must be free for the next one at once: what is in memory
		// only is in the spool too.
		os.Exit(3)
	}()

	if err := configure(map[string]string{
		"loggerLevel":                   "WARN",
		"loggerMaxArgLen":               "500",
		"storageDataPath":               *dir,
		"retentionPeriod":               hours(*retention),
		"futureRetention":               hours(*future),
		"inmemoryDataFlushInterval":     flush.String(),
		"storage.minFreeDiskSpaceBytes": strconv.FormatInt(*minFree, 10),
		"memory.allowedBytes":           strconv.FormatInt(*memory, 10),
		"insert.maxLineSizeBytes":       strconv.Itoa(4 << 20), // a row is at most 2 MB, its JSON may be longer
		"insert.maxFieldsPerLine":       "2000",
		"defaultMsgValue":               "",
		"search.maxQueryDuration":       longest.String(),
		"search.logSlowQueryDuration":   "0",
		"delete.enable":                 "true", // only who has our socket reaches it
		"search.maxQueryLen":            strconv.Itoa(wire.QueryBytes),
	}); err != nil {
		fmt.Fprintln(os.Stderr, "events-child:", err)
		return 2
	}
	if err := compressAll(); err != nil {
		fmt.Fprintln(os.Stderr, "events-child:", err)
		return 2
	}
	logger.InitNoLogFlags()

	vlstorage.Init()
	vlselect.Init()
	insertutil.SetLogRowsStorage(&vlstorage.Storage{})
	vlinsert.Init()

	if *anew != "" {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		for _, day := range strings.Split(*anew, ",") {
			if err := reindex(ctx, day); err != nil {
				logger.Warnf("%s", err)
			}
		}
		cancel()
	}

	if *search {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		if err := probe(ctx, *dir, os.Stderr); err != nil {
			logger.Warnf("%s", err)
		}
		cancel()
	}

	var s settler
	server := &http.Server{Handler: s.handler()}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	code := 0
	select {
	case <-stop:
	case err := <-failed:
		fmt.Fprintln(os.Stderr, "events-child: cannot serve:", err)
		code = 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close()
	}
	vlinsert.Stop()
	vlselect.Stop()
	vlstorage.Stop()
	return code
}

// inherited is the listening socket that the parent made.
func inherited() (net.Listener, error) {
	f := os.NewFile(wire.ListenFD, "listener")
	if f == nil {
		return nil, errors.New("file descriptor 3 is not open; this command is for rollscope itself")
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("file descriptor 3 is no listening socket: %w; this command is for rollscope itself", err)
	}
	return l, f.Close()
}

// configure sets options of VictoriaLogs; they live in flag.CommandLine, which nothing else in this
// process uses.
func configure(options map[string]string) error {
	if err := flag.CommandLine.Parse(nil); err != nil {
		return err
	}
	for name, value := range options {
		if err := flag.Set(name, value); err != nil {
			return fmt.Errorf("option %s of the storage: %w", name, err)
		}
	}
	return nil
}

// hours writes a duration as the storage reads it: it has no unit below an hour for retentions that
// means what it says.
func hours(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Hour-1)/time.Hour), 10) + "h"
}

// handler answers what the parent and, through it, a user may ask.
func (s *settler) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case wire.ReadyPath:
			w.WriteHeader(http.StatusOK)
		case wire.SettlePath:
			s.serve(w, r)
		case wire.InsertPath:
			insert(w, r)
		case "/metrics":
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			metrics.WritePrometheus(w, true)
		default:
			// The two that the retention of passes needs; others reach only what the parent's proxy lets through.
			allowed := r.URL.Path == "/delete/active_tasks" || r.URL.Path == "/delete/run_task"
			if strings.HasPrefix(r.URL.Path, "/delete/") && !allowed || strings.HasPrefix(r.URL.Path, "/internal/delete/") {
				http.Error(w, "rows of the event store are not deleted one by one", http.StatusForbidden)
				return
			}
			if vlinsert.RequestHandler(w, r) || vlselect.RequestHandler(w, r) || vlstorage.RequestHandler(w, r) {
				return
			}
			http.NotFound(w, r)
		}
	})
}
