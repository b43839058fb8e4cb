package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rollscope/rollscope/internal/sim/rolls"
)

// d10 is the served page of a step of 20,000 samples with about 40 items each: what the page fetches until it
// shows something, and what a person's first questions take.
func d10(binary, dir string) ([]row, error) {
	dump := filepath.Join(dir, "rollout_0.pt")
	made, err := rolls.WriteFile(dump, rolls.Options{
		Samples: 20000, MultiTurn: 0.15, PD: true,
		Response: rolls.Lengths{Median: 12, Sigma: 0.8, Max: 300}, Prompt: rolls.Lengths{Median: 8, Max: 8},
	})
	if err != nil {
		return nil, err
	}
	defer os.Remove(dump)
	cmd := exec.Command(binary, "view", dump, "--listen", "127.0.0.1:0", "--out", dir, "--log.level", "error")
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
	}()
	lines := bufio.NewScanner(pipe)
	base := ""
	for base == "" && lines.Scan() {
		if line := lines.Text(); strings.HasPrefix(line, "http") {
			base = strings.TrimSuffix(line, "/rollouts")
		}
	}
	if base == "" {
		return nil, errors.New("view does not say where it answers")
	}
	go func() { _, _ = io.Copy(io.Discard, pipe) }()
	payload := 0
	fetch := func(path string) ([]byte, error) {
		resp, err := http.Get(base + path)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s is answered with %s: %.200s", path, resp.Status, b)
		}
		payload += len(b)
		return b, err
	}
	const api = "/api/rollscope/v1/timelines"
	var list struct {
		Data struct{ Timelines []struct{ ID string } }
	}
	for deadline := time.Now().Add(2 * time.Minute); len(list.Data.Timelines) == 0; time.Sleep(10 * time.Millisecond) {
		payload = 0
		b, err := fetch(api)
		if err == nil {
			err = json.Unmarshal(b, &list)
		}
		if err != nil {
			return nil, err
		}
		if time.Now().After(deadline) {
			return nil, errors.New("view has no timeline after two minutes")
		}
	}
	timeline := api + "/" + url.PathEscape(list.Data.Timelines[0].ID)
	for _, path := range []string{"/rollouts", timeline, timeline + "/order", timeline + "/raster?w=1400&h=120", timeline + "/window?from=0&count=60&px=1400"} {
		if _, err := fetch(path); err != nil {
			return nil, err
		}
	}
	first, sent := time.Since(began), payload
	rows := []row{
		{fmt.Sprintf("view, 20,000 samples, %d k events: first view", made.Events/1000), fmt.Sprintf("%.1f s", first.Seconds()), "3 s", ""},
		{"  bytes that the page fetched for it", fmt.Sprintf("%.2f MB", float64(sent)/1e6), "5 MB", ""},
	}
	for _, ask := range []struct{ what, path string }{
		{"  sort by duration", "/order?sort=dur&desc=1"},
		{"  filter by status", "/order?filter=status%3Dtruncated"},
		{"  jump to the slowest sample", "/find?sort=dur&desc=1&limit=1"},
		{"  one window of 60 rows, a tenth of the time", "/window?from=10000&count=60&px=1400&t0=0&t1=10000000"},
	} {
		at := time.Now()
		if _, err := fetch(timeline + ask.path); err != nil {
			return nil, err
		}
		rows = append(rows, row{ask.what, fmt.Sprintf("%.0f ms", float64(time.Since(at).Microseconds())/1e3), "", ""})
	}
	peak, err := peakMemory(cmd.Process.Pid)
	return append(rows, row{"  peak resident memory of the server", fmt.Sprintf("%.0f MiB", peak), "500 MiB", ""}), err
}

// peakMemory is the most that a process had in memory so far, in MiB; of a mapped file the pages that are
// in memory count.
func peakMemory(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")), 64)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("no VmHWM of process %d", pid)
}
