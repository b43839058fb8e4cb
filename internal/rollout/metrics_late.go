package rollout

// Late is how many requests of this step were found in later dumps so far; see [Attribute].
func (m *Metrics) Late() int { return m.late }
