package span

// DecodeKeyValue reads OTLP's KeyValue message. Keys, and values of type Text, alias b.
func DecodeKeyValue(b []byte) (key string, v Value, err error) {
	key, value, err := keyValue(b)
	if err != nil {
		return "", Value{}, err
	}
	v, _, err = decodeValue(value, nil)
	return clean(key), v, err
}

// DecodeAny reads OTLP's AnyValue message. A Text aliases b.
func DecodeAny(b []byte) (Value, error) {
	v, _, err := decodeValue(b, nil)
	return v, err
}
