package savedmodel

// FromBytes is what Read makes of a file's bytes, without looking for variables.
func FromBytes(b []byte, signature string) (*Model, error) {
	saved, err := decode(b)
	if err != nil {
		return nil, err
	}
	return fromProto(saved, "bytes", signature)
}
