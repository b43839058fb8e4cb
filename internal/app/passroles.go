package app

import (
	"strings"

	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/planner"
)

// poolNames says which pool of engines a component of Dynamo's is: the configuration's word, else by its name.
type poolNames struct {
	configured map[string]fpm.Role
	prefills   map[string]bool // namespaces in which a component prefills only
}

func newPoolNames(pools map[string]config.PassPool) poolNames {
	n := poolNames{configured: map[string]fpm.Role{}, prefills: map[string]bool{}}
	for pool, p := range pools {
		role := fpm.Decode
		if pool == string(planner.PrefillPool) {
			role = fpm.Prefill
		}
		for _, c := range p.Components {
			n.configured[c] = role
		}
	}
	return n
}

// saw takes note of a component; it returns true when the roles of others in the namespace changed by it.
func (n *poolNames) saw(namespace, component string) bool {
	if n.prefills[namespace] || n.role(namespace, component) != fpm.Prefill {
		return false
	}
	n.prefills[namespace] = true
	return true
}

// role is what the engines of a component do. Dynamo calls the engines that decode, or do all, "backend"
// (its workers for vLLM and SGLang) or "tensorrt_llm"; they decode where another component prefills.
func (n *poolNames) role(namespace, component string) fpm.Role {
	if r, ok := n.configured[component]; ok {
		return r
	}
	name := strings.ToLower(component)
	switch {
	case strings.Contains(name, "prefill"):
		return fpm.Prefill
	case strings.Contains(name, "decode"), n.prefills[namespace]:
		return fpm.Decode
	}
	return fpm.Unified
}
