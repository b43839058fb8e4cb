package app

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/planner"
)

// planHistory is which settings of the planner held from when on, and which mode each namespace had: a file
// beside the recording, so that who opens it later advises as the recorder did. It is YAML:
//
//	version: 1
//	settings:           # oldest first; each holds until the next
//	  - from: 2026-01-02T03:04:05.6Z
//	    given: true     # the configuration had a planner section
//	    mode_given: false
//	    planner: {...}  # every setting under Dynamo's name for it
//	    pools: {...}    # forward_passes.pools
//	modes:              # oldest first; each holds for its namespace until the next
//	  - {from: ..., namespace: dynamo, mode: disagg, why: ...}
//
// It is replaced as a whole when something changes, which is seldom. Its methods are not for several
// goroutines at once. A nil one keeps nothing.
type planHistory struct {
	path    string
	list    planHistoryFile
	changed bool
}

type planHistoryFile struct {
	Version  int            `yaml:"version"`
	Settings []planSettings `yaml:"settings"`
	Modes    []planMode     `yaml:"modes,omitempty"`
}

type planSettings struct {
	From      time.Time                  `yaml:"from"`
	Given     bool                       `yaml:"given"`
	ModeGiven bool                       `yaml:"mode_given"`
	Planner   yaml.Node                  `yaml:"planner"`
	Pools     map[string]config.PassPool `yaml:"pools,omitempty"`
}

type planMode struct {
	From      time.Time `yaml:"from"`
	Namespace string    `yaml:"namespace"`
	Mode      string    `yaml:"mode"`
	Why       string    `yaml:"why"`
}

const (
	planHistoryVersion = 1
	// What is kept of each list, the newest.
	maxPlanSettings = 256
	maxPlanModes    = 1024
	// maxPlanHistory is more than that takes, in bytes.
	maxPlanHistory = 4 << 20
)

func newPlanHistory(path string) *planHistory {
	return &planHistory{path: path, list: planHistoryFile{Version: planHistoryVersion}}
}

func planHistoryIn(home string) string { return filepath.Join(home, "state", "planner.yaml") }

// openPlanHistory reads a history, of which there may be nothing yet.
func openPlanHistory(path string) (*planHistory, error) {
	h := newPlanHistory(path)
	text, err := readState(path, maxPlanHistory)
	if err != nil {
		return nil, err
	}
	if text == nil {
		return h, nil
	}
	if err := yaml.Unmarshal(text, &h.list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if h.list.Version != planHistoryVersion {
		return nil, fmt.Errorf("%s: version %d is not known here, only %d; a newer rollscope may have written it", path, h.list.Version, planHistoryVersion)
	}
	for i := range h.list.Settings {
		if _, err := h.list.Settings[i].config(path); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// config are the settings of an entry.
func (s *planSettings) config(path string) (planner.Config, error) {
	c, _, err := planner.ParseNode(path, &s.Planner)
	return c, err
}

// use notes settings that are in force from now on; the same ones again change nothing.
func (h *planHistory) use(now time.Time, cfg planner.Config, given, modeGiven bool, pools map[string]config.PassPool) error {
	if h == nil {
		return nil
	}
	s := planSettings{From: now.UTC(), Given: given, ModeGiven: modeGiven, Pools: pools}
	if err := s.Planner.Encode(cfg.Settings()); err != nil {
		return err
	}
	if n := len(h.list.Settings); n > 0 {
		last := h.list.Settings[n-1]
		last.From = s.From
		a, err1 := yaml.Marshal(last)
		b, err2 := yaml.Marshal(s)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if bytes.Equal(a, b) {
			return nil
		}
	}
	h.list.Settings = append(h.list.Settings, s)
	h.list.Settings = h.list.Settings[max(len(h.list.Settings)-maxPlanSettings, 0):]
	h.changed = true
	return nil
}

// mode notes the mode of a namespace.
func (h *planHistory) mode(now time.Time, namespace string, mode planner.Mode, why string) {
	if h == nil {
		return
	}
	m := planMode{From: now.UTC(), Namespace: namespace, Mode: string(mode), Why: why}
	for _, last := range slices.Backward(h.list.Modes) {
		if last.Namespace == namespace {
			if last.Mode == m.Mode && last.Why == m.Why {
				return
			}
			break
		}
	}
	h.list.Modes = append(h.list.Modes, m)
	h.list.Modes = h.list.Modes[max(len(h.list.Modes)-maxPlanModes, 0):]
	h.changed = true
}

// save writes what changed since the last time.
func (h *planHistory) save() error {
	if h == nil || !h.changed {
		return nil
	}
	text, err := yaml.Marshal(h.list)
	if err == nil {
		err = writeState(h.path, text)
	}
	h.changed = err != nil
	return err
}

// at are the settings that held at a time and the modes that namespaces had. nil when the history begins later.
func (h *planHistory) at(t time.Time) (s *planSettings, modes map[string]planMode) {
	if h == nil {
		return nil, nil
	}
	for i := range h.list.Settings {
		if !h.list.Settings[i].From.After(t) {
			s = &h.list.Settings[i]
		}
	}
	modes = map[string]planMode{}
	for _, m := range h.list.Modes {
		if !m.From.After(t) {
			modes[m.Namespace] = m
		}
	}
	return s, modes
}
