package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// fpm is what forward passes cost: one message, the relay, and a whole recorder of 64 busy ranks.
func fpm(binary, dir string) ([]row, error) {
	decode, err := bench("./internal/fpm/", "Benchmark(Decode|JSON|Observe)", "-benchtime", "1s")
	if err != nil {
		return nil, err
	}
	bus, err := bench("./internal/fpmbus/", "Benchmark(Receive|RelayZMQ|RelayNATS)", "-benchtime", "500000x")
	if err != nil {
		return nil, err
	}
	late, err := bench("./internal/fpmbus/", "BenchmarkLatency", "-benchtime", "25000x")
	if err != nil {
		return nil, err
	}
	model, err := bench("./internal/planner/", "BenchmarkObserve", "-benchtime", "1s")
	if err != nil {
		return nil, err
	}
	var lacking []string
	of := func(m map[string]float64, key string) float64 {
		v, ok := m[key]
		if !ok {
			lacking = append(lacking, key)
		}
		return v
	}
	us := func(m map[string]float64, key string) string { return fmt.Sprintf("%.2f us", of(m, key)/1e3) }
	perCPU := func(key string) string { return fmt.Sprintf("%.0f k/cpu-s", of(bus, key+" msg/cpu-s")/1e3) }
	rows := []row{
		{"forward pass: decode", us(decode, "Decode/pass ns/op"), "1 us", "encoding/json " + us(decode, "JSON ns/op")},
		{"  allocations", fmt.Sprintf("%.0f", of(decode, "Decode/pass allocs/op")), "0", fmt.Sprintf("encoding/json %.0f", of(decode, "JSON allocs/op"))},
		{"  into the tracker of 64 ranks", us(decode, "Observe/64 ns/op"), "", ""},
		{"  into the planner's models", us(model, "Observe/agg ns/op"), "", ""},
		{"  received over ZMQ, tcp", perCPU("Receive/tcp"), "", ""},
		{"  relayed over ZMQ, tcp, sender and subscriber counted too", perCPU("RelayZMQ/tcp"), "50 k/cpu-s", ""},
		{"  relayed over ZMQ, ipc", perCPU("RelayZMQ/unix"), "50 k/cpu-s", ""},
		{"  relayed to NATS in process", perCPU("RelayNATS"), "", ""},
		{"  from the engine to a subscriber at 5,000/s, p99", fmt.Sprintf("%.0f us", of(late, "Latency/relayed=true p99-µs")), "1 ms",
			fmt.Sprintf("without the relay %.0f us", of(late, "Latency/relayed=false p99-µs"))},
	}
	if len(lacking) > 0 {
		return nil, fmt.Errorf("the benchmarks of forward passes do not print %s", strings.Join(lacking, ", "))
	}
	busy, err := busyRanks(binary, filepath.Join(dir, "fpm"))
	if err != nil {
		return rows, fmt.Errorf("a recorder of 64 ranks: %w", err)
	}
	return append(rows, busy...), nil
}

// Of a recorder that takes the passes of 64 ranks.
const (
	busyWarm = 100 * time.Second // then the passes in memory are as many as may be
	busyFor  = 60 * time.Second
)

// busyRanks measures a recorder that receives 64 ranks at 50 passes a second: everything that it does with
// them, all of its processes.
func busyRanks(binary, dir string) ([]row, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	engines := "ipc://" + filepath.Join(dir, "engine")
	sender := exec.Command(binary, "sim", "fpm", "--to", engines, "--ranks", "64", "--rate", "50", "--log.level", "error")
	if err := sender.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = sender.Process.Signal(syscall.SIGTERM)
		_ = sender.Wait()
	}()
	web, err := freeAddress()
	if err != nil {
		return nil, err
	}
	recorder := exec.Command(binary, "serve", "--fpm", engines, "--fpm-ranks", "64", "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", web,
		"--traces.otlp-grpc", "off", "--traces.otlp-http", "off", "--traces.tempo", "off", "--log.level", "error")
	recorder.Stderr = os.Stderr
	if err := recorder.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = recorder.Process.Signal(syscall.SIGTERM)
		_ = recorder.Wait()
	}()
	time.Sleep(busyWarm)
	before, err := costOf(recorder.Process.Pid)
	if err != nil {
		return nil, err
	}
	passes, err := passesOf(web)
	if err != nil {
		return nil, err
	}
	early, err := rss(recorder.Process.Pid)
	if err != nil {
		return nil, err
	}
	time.Sleep(busyFor)
	after, err := costOf(recorder.Process.Pid)
	if err != nil {
		return nil, err
	}
	more, err := passesOf(web)
	if err != nil {
		return nil, err
	}
	late, err := rss(recorder.Process.Pid)
	if err != nil {
		return nil, err
	}
	if more <= passes {
		return nil, errors.New("no pass came while it was measured")
	}
	return []row{
		{"serve: 64 ranks at 50 passes/s, series, rows and models", fmt.Sprintf("%.0f %% of a core", 100*(after.cpu-before.cpu)/busyFor.Seconds()), "50 %", fmt.Sprintf("%.0f passes/s came", (more-passes)/busyFor.Seconds())},
		{"  resident memory of the recorder, the store's process apart", fmt.Sprintf("%.0f MB", late), "flat", fmt.Sprintf("%.0f MB %.0f s before", early, busyFor.Seconds())},
	}, nil
}

// passesOf is how many passes a recorder has counted.
func passesOf(web string) (sum float64, err error) {
	b, err := get("http://" + web + "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && strings.HasPrefix(name, "rollscope_fpm_passes_total{") {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			sum += v
		}
	}
	return sum, nil
}
