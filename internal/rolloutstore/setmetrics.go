package rolloutstore

// SetMetrics replaces the metrics of a step: a later dump may bring requests that ran in it. No key may
// occur twice.
func (s *Store) SetMetrics(id ID, metrics []Metric) error {
	return s.update(id, func(st *Step) { st.Metrics = metrics })
}
