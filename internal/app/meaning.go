package app

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/metricstore"
)

// A configuration says what recorded series mean: which engine is called what and has which role, which
// signals there are beside the built-in ones, and on which boards. That part of it is kept beside the
// recording, so that who opens it later sees what its recorder showed. It is YAML and a configuration by
// itself:
//
//	rollscope:
//	  signals: [...]
//	  engines: [...]   # also those that were named earlier and are no longer
//	  boards: [...]
//
// It is replaced as a whole when it changes.

type meaning struct {
	Rollscope meaningParts `yaml:"rollscope"`
}

type meaningParts struct {
	Signals []config.Signal `yaml:"signals,omitempty"`
	Engines []config.Engine `yaml:"engines,omitempty"`
	Boards  []config.Board  `yaml:"boards,omitempty"`
}

const (
	maxMeaning = 4 << 20 // bytes
	// maxNamedEngines bounds what is kept of engines that are no longer in the configuration.
	maxNamedEngines = 10_000
)

// keepMeaning writes that part of a configuration beside the recording in dir. What was kept and cannot be
// read, as of a newer rollscope, is set aside.
func keepMeaning(dir string, cfg *config.Config, logger *slog.Logger) error {
	path := metricstore.MeaningFile(dir)
	m := meaning{meaningParts{cfg.Rollscope.Signals, slices.Clone(cfg.Rollscope.Engines), cfg.Rollscope.Boards}}
	before, err := readMeaning(path)
	if err != nil {
		aside := path + ".damaged"
		logger.Error("the engines that were named earlier cannot be read; the list begins anew, and what there was lies beside it", "err", errors.Join(err, os.Rename(path, aside)), "aside", aside)
		before, err = nil, nil
	} else if before != nil {
		for _, e := range before.Rollscope.Engines {
			again := slices.ContainsFunc(m.Rollscope.Engines, func(x config.Engine) bool { return x.Instance == e.Instance })
			if !again && len(m.Rollscope.Engines) < maxNamedEngines {
				m.Rollscope.Engines = append(m.Rollscope.Engines, e)
			}
		}
	}
	if before == nil && len(m.Rollscope.Signals)+len(m.Rollscope.Engines)+len(m.Rollscope.Boards) == 0 {
		return nil
	}
	text, err := yaml.Marshal(m)
	if err != nil {
		return err
	}
	if before != nil && bytes.Equal(before.Text, text) {
		return nil
	}
	return writeState(path, text)
}

// readMeaning reads it; nil where none was kept.
func readMeaning(path string) (*config.Config, error) {
	text, err := readState(path, maxMeaning)
	if err != nil || text == nil {
		return nil, err
	}
	return config.Load(text, path)
}

// recall has faces show the recording in dir as its recorder does. What was kept and cannot be used is an
// error, and what was shown before stays.
func (f *faces) recall(dir string) error {
	cfg, err := readMeaning(metricstore.MeaningFile(dir))
	if cfg == nil || err != nil || bytes.Equal(cfg.Text, f.recalled) {
		return err
	}
	cat, boards, err := shownBy(cfg)
	if err != nil {
		return err
	}
	f.use(cat, boards, cfg.Rollscope.Engines)
	f.recalled = cfg.Text
	return nil
}
