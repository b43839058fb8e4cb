package request

import (
	"encoding/binary"

	"github.com/rollscope/rollscope/internal/event"
)

// pack writes observations in little memory; unpack reads what it wrote. The form never leaves the
// process.
func pack(list []keyed) []byte {
	var buf []byte
	add := func(s string) {
		buf = binary.AppendUvarint(buf, uint64(len(s)))
		buf = append(buf, s...)
	}
	var r event.Row
	for _, k := range list {
		r.Fields = r.Fields[:0]
		k.o.fields(&r)
		add(k.key)
		buf = binary.AppendVarint(buf, k.o.Start)
		add(k.o.Service)
		add(k.o.Engine)
		buf = binary.AppendUvarint(buf, uint64(len(r.Fields)))
		for _, f := range r.Fields {
			add(f.Name)
			add(f.Value)
		}
	}
	return append([]byte(nil), buf...)
}

func unpack(buf []byte) (list []keyed) {
	next := func() string {
		n, w := binary.Uvarint(buf)
		s := string(buf[w : w+int(n)])
		buf = buf[w+int(n):]
		return s
	}
	var fields []event.Field
	for len(buf) > 0 {
		k := keyed{key: next()}
		start, w := binary.Varint(buf)
		buf = buf[w:]
		fields = append(fields[:0], event.Field{Name: "service", Value: next()}, event.Field{Name: "engine", Value: next()})
		n, w := binary.Uvarint(buf)
		buf = buf[w:]
		for range n {
			name := next()
			fields = append(fields, event.Field{Name: name, Value: next()})
		}
		o, err := ObservationFromRow(fields)
		if err != nil { // it wrote them itself
			continue
		}
		o.Start = start
		k.o = &o
		list = append(list, k)
	}
	return list
}
