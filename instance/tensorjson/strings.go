package tensorjson

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// base64Key is the key of the object that holds a string in base64, as in TensorFlow Serving.
const base64Key = "b64"

// text consumes one string. A string of JSON is UTF-8; any other bytes need base64 or binary data.
func (v *Values) text(r *Reader) error {
	if v.Extended && r.Peek() == '{' {
		return v.base64(r)
	}
	if r.Peek() != '"' {
		text, err := r.Raw()
		if err != nil {
			return err
		}
		return fmt.Errorf("%.40q is not a string", text)
	}
	quoted, plain, err := r.quoted()
	if err != nil {
		return err
	}
	if plain {
		v.Data = tensor.AppendString(v.Data, quoted[1:len(quoted)-1])
		return nil
	}
	if !utf8.Valid(quoted) {
		return errors.New("a string is not valid UTF-8; send such strings as binary data or in base64")
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return fmt.Errorf("%w: %w", errSyntax, err)
	}
	v.Data = tensor.AppendString(v.Data, s)
	return nil
}

// base64 consumes {"b64": "…"}.
func (v *Values) base64(r *Reader) error {
	found := false
	err := r.Object(func(key string) error {
		if key != base64Key || found {
			return fmt.Errorf("a string in base64 is {%q: \"…\"} with no other key, not %.40q", base64Key, key)
		}
		found = true
		text, err := r.Base64()
		v.Data = tensor.AppendString(v.Data, text)
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("{} is not a string; one in base64 is {%q: \"…\"}", base64Key)
	}
	return err
}

// Base64 consumes a string and returns the bytes that it holds in base64.
func (r *Reader) Base64() ([]byte, error) {
	if r.Peek() != '"' {
		return nil, fmt.Errorf("%s is not a string", base64Key)
	}
	text, err := r.Raw()
	if err != nil {
		return nil, err
	}
	text = text[1 : len(text)-1]
	decoded := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(decoded, text)
	if err != nil {
		return nil, fmt.Errorf("%s is not base64: %w", base64Key, err)
	}
	return decoded[:n], nil
}

// special consumes NaN or an infinity for a floating-point element, if one comes next.
func (v *Values) special(r *Reader) bool {
	if v.Type != tensor.FP32 && v.Type != tensor.FP64 {
		return false
	}
	for _, s := range []struct {
		word  string
		value float64
	}{
		{"NaN", math.NaN()}, {"Infinity", math.Inf(1)}, {"-Infinity", math.Inf(-1)}, {"Inf", math.Inf(1)}, {"-Inf", math.Inf(-1)},
	} {
		if r.literal(s.word) {
			v.Data = v.Type.Append(v.Data, s.value)
			return true
		}
	}
	return false
}
