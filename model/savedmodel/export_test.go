package savedmodel

// FromBytes is Read for a file's bytes, without the check of variables.
func FromBytes(b []byte, signature string) (*Model, error) {
	saved, err := decode(b)
	if err != nil {
		return nil, err
	}
	return fromProto(saved, "bytes", signature)
}
