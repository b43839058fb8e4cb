package timeline

import "slices"

// Marks is the result as flags of rows and items.
func (r *WallTimeResult) Marks() Marks {
	m := Marks{Carried: r.Carried}
	for _, h := range r.Held {
		m.Held = append(m.Held, h.Ordinal)
	}
	if r.CriticalRow >= 0 && len(r.Critical) > 0 {
		row := MarkedRow{Row: r.CriticalRow}
		for _, s := range r.Critical {
			if s.Item >= 0 {
				row.Items = append(row.Items, s.Item)
			}
		}
		slices.Sort(row.Items)
		row.Items = slices.Compact(row.Items)
		m.Critical, m.Items = []int{r.CriticalRow}, []MarkedRow{row}
	}
	return m
}
