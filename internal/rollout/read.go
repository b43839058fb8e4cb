package rollout

import (
	"errors"

	"github.com/rollscope/rollscope/torchfile"
)

// Options are the choices of [Read].
type Options struct {
	// RewardKey names the entry of a dict reward that counts (slime's --reward-key).
	RewardKey string
	// NoTrace leaves Trace.Events and Requests empty, NoMask leaves EffectiveLength missing; both save time.
	NoTrace, NoMask bool
	// Only, when not nil, tells which ordinals the visitor wants; others are counted, not decoded.
	Only func(ordinal int) bool
}

// Header is what a dump says about itself.
type Header struct {
	Kind      Kind
	RolloutID Int
	Samples   int    // entries, samples without a trace and entries that are no samples included
	Shape     string // what the file holds: "dict of samples", "list", "train dict", ...
	// Opaque lists the classes of the file that nobody here has, each once, sorted.
	Opaque []string
}

// Read visits the samples of a dump in the order of the file. An error of the visitor ends it and is
// returned; a sample that cannot be decoded is visited with its Problems. An error of the file is
// returned after the samples before it have been visited, together with a Header of those.
func Read(f *torchfile.File, opts Options, visit func(*Sample) error) (*Header, error) {
	return nil, errors.New("not written yet")
}
