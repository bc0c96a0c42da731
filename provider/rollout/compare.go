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

// Raw numbers are compared as such if both sides have one of at least significant, and none above huge. Others are
// likely whole numbers, or something else.
const (
	significant = 1e-6
	huge        = 1e15
	// leastNormal is the smallest 32-bit floating-point number that is not denormal. Small whole numbers look like those.
	leastNormal = 0x1p-126
)

// Answer is what is compared of an answer.
type Answer struct {
	Status int
	Type   string // the Content-Type
	// Head is the length in bytes of the JSON at the beginning of Body, which raw tensors follow, 0 for none. It is that of the
	// header Inference-Header-Content-Length.
	Head int
	Body []byte
}

// Alike reports whether two answers say the same: equal bytes, JSON with the same members whose numbers are within the
// tolerance, or as many 32-bit floating-point numbers within it. Members of JSON that name a model's version or
// the request are not compared. Raw tensors of other types must have equal bytes.
func Alike(a, b Answer) bool {
	switch {
	case a.Status != b.Status:
		return false
	case bytes.Equal(a.Body, b.Body):
		return true
	case a.Head > 0 || b.Head > 0:
		return alikeTensors(a, b)
	case strings.Contains(a.Type, "json"):
		return alikeJSON(a.Body, b.Body)
	case strings.HasPrefix(a.Type, "text/"):
		return false
	}
	return largest(a.Body) >= significant && largest(b.Body) >= significant && alikeFloats(a.Body, b.Body)
}

func alikeJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && alike(x, y)
}

// alikeTensors compares answers of the Open Inference Protocol with raw tensors after the JSON.
func alikeTensors(a, b Answer) bool {
	if a.Head <= 0 || a.Head > len(a.Body) || b.Head <= 0 || b.Head > len(b.Body) || !alikeJSON(a.Body[:a.Head], b.Body[:b.Head]) {
		return false
	}
	var head struct {
		Outputs []struct {
			Datatype   string `json:"datatype"`
			Parameters struct {
				Size int `json:"binary_data_size"`
			} `json:"parameters"`
		} `json:"outputs"`
	}
	if json.Unmarshal(a.Body[:a.Head], &head) != nil {
		return false
	}
	x, y := a.Body[a.Head:], b.Body[b.Head:]
	for _, o := range head.Outputs {
		n := o.Parameters.Size
		if n < 0 || n > len(x) || n > len(y) {
			return false
		}
		if !bytes.Equal(x[:n], y[:n]) && (o.Datatype != "FP32" || !alikeFloats(x[:n], y[:n])) {
			return false
		}
		x, y = x[n:], y[n:]
	}
	return bytes.Equal(x, y)
}

// alikeFloats compares raw 32-bit floating-point numbers. Different ones that no computation on them is likely to give are not
// alike.
func alikeFloats(a, b []byte) bool {
	if len(a) != len(b) || len(a)%4 != 0 {
		return false
	}
	usual := func(x float64) bool { return x == 0 || math.Abs(x) >= leastNormal && math.Abs(x) <= huge }
	for i := 0; i < len(a); i += 4 {
		x, y := float(a[i:]), float(b[i:])
		if !bytes.Equal(a[i:i+4], b[i:i+4]) && !(usual(x) && usual(y) && near(x, y)) {
			return false
		}
	}
	return true
}

// largest is the largest magnitude of raw 32-bit floating-point numbers, 0 without one.
func largest(raw []byte) (most float64) {
	for ; len(raw) >= 4; raw = raw[4:] {
		if x := math.Abs(float(raw)); x > most {
			most = x
		}
	}
	return most
}

func float(raw []byte) float64 {
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(raw)))
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
