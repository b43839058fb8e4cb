package span

import "strconv"

// Shortcut is what the field of that name would hold in the span's row: rid, request_id, x_request_id,
// bootstrap_room (decimal), model, session; "" when no attribute fills it.
func (s *Span) Shortcut(field string) string {
	for i := range shortcuts {
		if shortcuts[i].field != field {
			continue
		}
		for _, key := range shortcuts[i].keys {
			v, ok := find(s.Attrs, key)
			if !ok || v.Str == "" || v.Type == JSON {
				continue
			}
			if field != "bootstrap_room" {
				return v.Str
			}
			if room, ok := Room(v.Str); ok {
				return strconv.FormatUint(room, 10)
			}
			return ""
		}
	}
	return ""
}
