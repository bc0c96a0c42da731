package rollout

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
)

// The tolerance of numbers in answers: a relative part, and an absolute one for numbers near 0.
const (
	relative = 1e-3
	absolute = 1e-5
)

// Answer is what is compared of an answer.
type Answer struct {
	Status int
	Type   string // the Content-Type
	Body   []byte
}

// Alike reports whether two answers say the same: equal bytes, JSON with the same members whose numbers are within the
// tolerance, or as many 32-bit floating-point numbers within it. Members of JSON that name a model's version or
// the request are not compared.
func Alike(a, b Answer) bool {
	if a.Status != b.Status {
		return false
	}
	if bytes.Equal(a.Body, b.Body) {
		return true
	}
	if strings.Contains(a.Type, "json") {
		var x, y any
		return json.Unmarshal(a.Body, &x) == nil && json.Unmarshal(b.Body, &y) == nil && alike(x, y)
	}
	if strings.HasPrefix(a.Type, "text/") || len(a.Body) != len(b.Body) || len(a.Body)%4 != 0 {
		return false
	}
	for i := 0; i < len(a.Body); i += 4 {
		x := math.Float32frombits(binary.LittleEndian.Uint32(a.Body[i:]))
		y := math.Float32frombits(binary.LittleEndian.Uint32(b.Body[i:]))
		if math.Float32bits(x) != math.Float32bits(y) && !near(float64(x), float64(y)) {
			return false
		}
	}
	return true
}

func alike(x, y any) bool {
	switch x := x.(type) {
	case float64:
		y, ok := y.(float64)
		return ok && near(x, y)
	case []any:
		y, ok := y.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !alike(x[i], y[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		y, ok := y.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for key := range x {
			other, ok := y[key]
			if !ok || key != "model_version" && key != "id" && !alike(x[key], other) {
				return false
			}
		}
		return true
	}
	return x == y
}

func near(x, y float64) bool {
	return x == y || math.Abs(x-y) <= absolute+relative*math.Max(math.Abs(x), math.Abs(y))
}
