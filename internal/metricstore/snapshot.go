package metricstore

import "context"

func (s *Store) snapshotLoop(ctx context.Context) {}
