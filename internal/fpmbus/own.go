package fpmbus

import "sync"

// Own knows the publisher ids of the relays of this process. A source that shares it with a relay does not
// take in what the relay sent: messages would go round for ever. The zero value is ready.
type Own struct{ ids sync.Map }

func (o *Own) add(id uint64) {
	if o != nil {
		o.ids.Store(id, true)
	}
}

func (o *Own) has(id uint64) bool {
	if o == nil {
		return false
	}
	_, ok := o.ids.Load(id)
	return ok
}
