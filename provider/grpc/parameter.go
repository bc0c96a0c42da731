package grpc

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/faas-infer/faas-infer/provider/web"
)

// parameter is a parameter of a request, an input or an output, with its value as JSON.
type parameter struct {
	name string
	json []byte
}

// reserved are the parameters of the form with binary tensors. The package sets them itself.
var reserved = []string{"binary_data", "binary_data_output", "binary_data_size"}

// readParameter appends the parameter of an entry of the map, and takes its strings.
func readParameter(to []parameter, entry []byte, take func([]byte) (string, error)) ([]parameter, error) {
	var p parameter
	err := eachField(entry, func(f field) (err error) {
		switch {
		case f.kind != protowire.BytesType:
		case f.number == 1:
			p.name, err = take(f.bytes)
		case f.number == 2:
			err = eachField(f.bytes, func(choice field) error {
				p.json, err = choice.parameterJSON(p.json, take)
				return err
			})
		}
		return err
	})
	if err != nil || slices.Contains(reserved, p.name) || p.json == nil {
		return to, err
	}
	return append(to, p), nil
}

// parameterJSON returns the value of an InferParameter as JSON, or before if the field has none.
func (f field) parameterJSON(before []byte, take func([]byte) (string, error)) ([]byte, error) {
	switch {
	case f.number == 1 && f.kind == protowire.VarintType:
		return strconv.AppendBool(nil, f.bits != 0), nil
	case f.number == 2 && f.kind == protowire.VarintType:
		return strconv.AppendInt(nil, int64(f.bits), 10), nil
	case f.number == 3 && f.kind == protowire.BytesType:
		text, err := take(f.bytes)
		return appendQuoted(nil, text), err
	case f.number == 4 && f.kind == protowire.Fixed64Type:
		text, err := json.Marshal(math.Float64frombits(f.bits))
		if err != nil {
			return nil, web.Refuse(400, "a parameter is NaN or infinite; send a finite number")
		}
		return text, nil
	case f.number == 5 && f.kind == protowire.VarintType:
		return strconv.AppendUint(nil, f.bits, 10), nil
	}
	return before, nil
}

// appendParameters appends parameters as the member "parameters" of an object, with a last parameter, which
// is JSON, "" for none.
func appendParameters(to []byte, all []parameter, last string) []byte {
	if len(all) == 0 && last == "" {
		return to
	}
	to = append(to, `,"parameters":{`...)
	for _, p := range all {
		to = append(append(appendQuoted(to, p.name), ':'), p.json...)
		to = append(to, ',')
	}
	if last == "" {
		to[len(to)-1] = '}'
		return to
	}
	return append(append(to, last...), '}')
}

// appendParameterMap appends JSON parameters of an answer as a map of InferParameter. It leaves out objects, lists, null
// and reserved ones.
func appendParameterMap(to []byte, number protowire.Number, all map[string]json.RawMessage) []byte {
	for name, text := range all {
		if slices.Contains(reserved, name) {
			continue
		}
		if value := parameterMessage(text); value != nil {
			to = appendBytes(to, number, appendBytes(appendString(nil, 1, name), 2, value))
		}
	}
	return to
}

// parameterMessage returns a JSON value as an InferParameter, nil if it has no such form.
func parameterMessage(text json.RawMessage) []byte {
	var value any
	if json.Unmarshal(text, &value) != nil {
		return nil
	}
	switch v := value.(type) {
	case bool:
		return appendNumber(nil, 1, protowire.EncodeBool(v))
	case string:
		return protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), v)
	case float64:
		if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			return appendNumber(nil, 2, uint64(n))
		}
		return protowire.AppendFixed64(protowire.AppendTag(nil, 4, protowire.Fixed64Type), math.Float64bits(v))
	}
	return nil
}

// appendQuoted appends a string as JSON.
func appendQuoted(to []byte, s string) []byte {
	for _, b := range []byte(s) {
		if b < ' ' || b > '~' || b == '"' || b == '\\' {
			text, _ := json.Marshal(s) // A string always has a JSON form.
			return append(to, text...)
		}
	}
	return append(append(append(to, '"'), s...), '"')
}
