// Command bench measures what the project promises about speed and size and prints one row a figure:
// measured, aim, and the peer measured in the same run where there is one. It asserts nothing: a
// figure depends on the machine. `make bench` runs it.
//
//	go run ./tools/bench BINARY [PART...]
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// row is one figure.
type row struct{ what, measured, aim, peer string }

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: bench BINARY [PART...]; parts: "+strings.Join(names(), " "))
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// parts are what is measured, in order.
var parts = []struct {
	name    string
	measure func(binary, dir string) ([]row, error)
}{
	{"size", size}, {"idle", idle}, {"memory", memory}, {"startup", startup}, {"scrape", scrape}, {"queries", queries}, {"rules", rules},
	{"fleet", fleet}, {"rollouts", rollouts}, {"d10", d10}, {"requests", requests}, {"otlp", otlpTraces}, {"sampling", sampling}, {"logs", logs}, {"fpm", fpm}, {"passes", passPage}, {"events", events},
}

func names() []string {
	var out []string
	for _, p := range parts {
		out = append(out, p.name)
	}
	return out
}

// run measures the parts that only names, or all.
func run(binary string, only []string) error {
	for _, o := range only {
		if !slices.Contains(names(), o) {
			return fmt.Errorf("there is no part %q; there are %s", o, strings.Join(names(), " "))
		}
	}
	dir, err := os.MkdirTemp("", "rollscope-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var rows []row
	for _, p := range parts {
		if len(only) > 0 && !slices.Contains(only, p.name) {
			continue
		}
		r, err := p.measure(binary, dir)
		if err != nil {
			return err
		}
		rows = append(rows, r...)
	}
	fmt.Printf("\n%-58s %16s  %-22s %s\n", "FIGURE", "MEASURED", "AIM", "PEER IN THE SAME RUN")
	for _, r := range rows {
		fmt.Printf("%-58s %16s  %-22s %s\n", r.what, r.measured, r.aim, r.peer)
	}
	return nil
}

func size(binary, _ string) ([]row, error) {
	info, err := os.Stat(binary)
	if err != nil {
		return nil, err
	}
	return []row{{"binary", fmt.Sprintf("%.1f MB", float64(info.Size())/1e6), "60 MB", ""}}, nil
}

// serve starts the recorder on dir and returns how long it took to be ready, and its pid.
func serve(binary, dir string, args ...string) (ready time.Duration, pid int, stop func(), err error) {
	began := time.Now()
	cmd := exec.Command(binary, append([]string{"serve", "--storage.tsdb.path", dir, "--storage.tsdb.retention.time", "10y", "--web.listen-address", "127.0.0.1:0", "--log.level", "error"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return 0, 0, nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return 0, 0, nil, fmt.Errorf("serve did not say where it answers: %w", err)
	}
	fields := strings.Fields(line)
	url := fields[len(fields)-1] + "/-/ready"
	for time.Since(began) < 5*time.Minute {
		if resp, err := http.Get(url); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return time.Since(began), cmd.Process.Pid, stop, nil
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	return 0, 0, nil, fmt.Errorf("%s is not ready after five minutes", url)
}

func rss(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(v)[0], 64)
			return kb * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("no VmRSS of process %d", pid)
}

func idle(binary, dir string) ([]row, error) {
	_, pid, stop, err := serve(binary, filepath.Join(dir, "idle"))
	if err != nil {
		return nil, err
	}
	defer stop()
	time.Sleep(20 * time.Second) // past the first evaluation of every rule
	mb, err := rss(pid)
	return []row{{"idle resident memory", fmt.Sprintf("%.0f MB", mb), "80 MB", ""}}, err
}

// memory is what scraping 64 engines needs, without rules, beside Debian's prometheus on the same fleet.
func memory(binary, dir string) ([]row, error) {
	config := filepath.Join(dir, "fleet.yml")
	fleet := exec.Command(binary, "sim", "engines", "--fleet", "uniform:64", "--config-out", config, "--for", "5m", "--log.level", "error")
	if err := fleet.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = fleet.Process.Signal(syscall.SIGTERM)
		_ = fleet.Wait()
	}()
	for range 100 {
		if _, err := os.Stat(config); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	_, pid, stop, err := serve(binary, filepath.Join(dir, "memory"), "--config.file", config, "--no-rules.builtin")
	if err != nil {
		return nil, err
	}
	time.Sleep(30 * time.Second)
	mb, err := rss(pid)
	stop()
	if err != nil {
		return nil, err
	}
	peer := "prometheus is not installed"
	if path, err := exec.LookPath("prometheus"); err == nil {
		cmd := exec.Command(path, "--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "peer"), "--web.listen-address", "127.0.0.1:0", "--log.level", "error")
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		time.Sleep(30 * time.Second)
		theirs, err := rss(cmd.Process.Pid)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if err != nil {
			return nil, err
		}
		peer = fmt.Sprintf("Debian's prometheus %.0f MB", theirs)
	}
	return []row{{"resident memory, 64 engines scraped every 5 s for 30 s", fmt.Sprintf("%.0f MB", mb), "", peer}}, nil
}

// startup opens a day of a 64-engine fleet, its last hours in the log.
func startup(binary, dir string) ([]row, error) {
	day := filepath.Join(dir, "day")
	began := time.Now()
	cmd := exec.Command(binary, "sim", "record", day, "--fleet", "uniform:64", "--for", "24h", "--no-rules", "--log.level", "error")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("sim record: %w", err)
	}
	var samples float64
	if _, after, ok := strings.Cut(string(out), ": "); ok {
		samples, _ = strconv.ParseFloat(strings.Fields(after)[0], 64)
	}
	wrote := time.Since(began)
	ready, pid, stop, err := serve(binary, day)
	if err != nil {
		return nil, err
	}
	defer stop()
	mb, err := rss(pid)
	return []row{
		{"start-up on one day of 64 engines", fmt.Sprintf("%.1f s", ready.Seconds()), "10 s", ""},
		{"its resident memory once ready", fmt.Sprintf("%.0f MB", mb), "", ""},
		{"one day of 64 engines simulated and written", fmt.Sprintf("%.0f k samples/s", samples/wrote.Seconds()/1e3), "", ""},
	}, err
}

// bench runs a Go benchmark and returns its metrics by "name unit".
func bench(pkg, name string, args ...string) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 45*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-run", "^$", "-bench", "^" + name + "$", pkg}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, os.Stderr), os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go test -bench %s %s: %w", name, pkg, err)
	}
	found := map[string]float64{}
	for line := range strings.Lines(out.String()) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		bare, _, _ := strings.Cut(strings.TrimPrefix(f[0], "Benchmark"), "-")
		for i := 2; i+1 < len(f); i += 2 {
			if v, err := strconv.ParseFloat(f[i], 64); err == nil {
				found[bare+" "+f[i+1]] = v
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("go test -bench %s %s printed no figure", name, pkg)
	}
	return found, nil
}

func scrape(string, string) ([]row, error) {
	m, err := bench("./internal/scrape/", "BenchmarkScrape", "-benchtime", "1x")
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, kind := range []string{"engine", "router"} {
		rows = append(rows, row{
			"scrape+append, 64 targets x 400 series, " + kind + "'s spelling",
			fmt.Sprintf("%.0f k/cpu-s", m["Scrape/"+kind+" samples/cpu-s"]/1e3), "0.95 of the peer",
			fmt.Sprintf("Prometheus's library %.0f k/cpu-s, ratio %.2f", m["Scrape/"+kind+" plain-samples/cpu-s"]/1e3, m["Scrape/"+kind+" ratio"]),
		})
	}
	return rows, nil
}

func queries(string, string) ([]row, error) {
	m, err := bench("./internal/metricstore/", "BenchmarkGoldenQueries", "-benchtime", "20x")
	if err != nil {
		return nil, err
	}
	const what = "ten golden queries, 7 days x 64 engines, 5 min steps, "
	return []row{
		{what + "p50", fmt.Sprintf("%.0f ms", m["GoldenQueries p50-ms"]), "", ""},
		{what + "p99", fmt.Sprintf("%.0f ms", m["GoldenQueries p99-ms"]), "300 ms", ""},
	}, nil
}

func rules(string, string) ([]row, error) {
	m, err := bench("./internal/signal/", "BenchmarkRules", "-benchtime", "3x")
	if err != nil {
		return nil, err
	}
	return []row{{"one evaluation of all built-in rules, 64 engines", fmt.Sprintf("%.0f ms", m["Rules ns/op"]/1e6), "", "every 15 s"}}, nil
}

func fleet(string, string) ([]row, error) {
	m, err := bench("./internal/sim/", "BenchmarkReplay64", "-benchtime", "1x")
	if err != nil {
		return nil, err
	}
	return []row{{"sim: ten minutes of 64 engines, 40 scrapes as text", fmt.Sprintf("%.2f s", m["Replay64 ns/op"]/1e9), "3 s", ""}}, nil
}
