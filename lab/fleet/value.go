package fleet

import (
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// String returns the text under a key, "" if there is none.
func (o *Object) String(key string) string {
	v := o.take(key)
	if v == nil {
		return ""
	}
	if v.Kind != yaml.ScalarNode {
		o.Fail(key, "it must be a single value")
		return ""
	}
	return v.Value
}

// Strings lists the texts under a key, which may be one or a list.
func (o *Object) Strings(key string) []string {
	return each(o, key, "a single value", func(s string) (string, bool) { return s, true })
}

// Bool returns the truth value under a key, or absent if there is none.
func (o *Object) Bool(key string, absent bool) bool {
	v := o.take(key)
	if v == nil {
		return absent
	}
	switch {
	case v.Kind == yaml.ScalarNode && v.Value == "true":
		return true
	case v.Kind == yaml.ScalarNode && v.Value == "false":
		return false
	}
	o.Fail(key, "it must be true or false")
	return absent
}

// Number returns the number under a key, from low to high, or absent if there is none.
func (o *Object) Number(key string, low, high, absent float64) float64 {
	return one(o, key, absent, numbers(low, high))
}

// Numbers lists the numbers under a key, which may be one or a list.
func (o *Object) Numbers(key string, low, high float64) []float64 {
	n := numbers(low, high)
	return each(o, key, n.says, n.parse)
}

// Int returns the whole number under a key, from low to high, or absent if there is none.
func (o *Object) Int(key string, low, high, absent int) int {
	return one(o, key, absent, ints(low, high))
}

// Ints lists the whole numbers under a key, which may be one or a list.
func (o *Object) Ints(key string, low, high int) []int {
	n := ints(low, high)
	return each(o, key, n.says, n.parse)
}

// Duration returns the duration under a key, from low to high, or absent if there is none.
// It has the form that [parseDuration] reads.
func (o *Object) Duration(key string, low, high, absent time.Duration) time.Duration {
	return one(o, key, absent, durations(low, high))
}

// Durations lists the durations under a key, which may be one or a list.
func (o *Object) Durations(key string, low, high time.Duration) []time.Duration {
	d := durations(low, high)
	return each(o, key, d.says, d.parse)
}

// Bytes returns the size under a key in bytes, at least 1, or absent if there is none.
func (o *Object) Bytes(key string, absent int64) int64 {
	return one(o, key, absent, kind[int64]{"a size above 0, such as 512MiB or 11GiB", parseSize})
}

// kind is a kind of value: its description for errors, and its parser.
type kind[T any] struct {
	says  string
	parse func(s string) (T, bool)
}

func numbers(low, high float64) kind[float64] {
	return kind[float64]{"a number from " + short(low) + " to " + short(high), func(s string) (float64, bool) {
		n, err := strconv.ParseFloat(s, 64)
		return n, err == nil && n >= low && n <= high
	}}
}

func ints(low, high int) kind[int] {
	return kind[int]{"a whole number from " + strconv.Itoa(low) + " to " + strconv.Itoa(high), func(s string) (int, bool) {
		n, err := strconv.Atoi(s)
		return n, err == nil && n >= low && n <= high
	}}
}

func durations(low, high time.Duration) kind[time.Duration] {
	return kind[time.Duration]{"a duration such as 200ms, 1.5s, 10m or 7d, from " + low.String() + " to " + high.String(), func(s string) (time.Duration, bool) {
		d, ok := parseDuration(s)
		return d, ok && d >= low && d <= high
	}}
}

func short(n float64) string { return strconv.FormatFloat(n, 'g', 6, 64) }

// parseDuration reads a duration in Go's form, or a number of days such as 7d.
func parseDuration(s string) (time.Duration, bool) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseFloat(days, 64)
		d := n * float64(24*time.Hour)
		if err != nil || !(math.Abs(d) < math.MaxInt64) {
			return 0, false
		}
		return time.Duration(d), true
	}
	d, err := time.ParseDuration(s)
	return d, err == nil
}

var units = []struct {
	suffix string
	bytes  float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}}

// parseSize reads a size above 0 in KiB, MiB, GiB or TiB and returns its bytes.
func parseSize(s string) (int64, bool) {
	for _, u := range units {
		if number, ok := strings.CutSuffix(s, u.suffix); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			bytes := n * u.bytes
			return int64(bytes), err == nil && bytes >= 1 && bytes < 1<<60
		}
	}
	return 0, false
}

func one[T any](o *Object, key string, absent T, k kind[T]) T {
	v := o.take(key)
	if v == nil {
		return absent
	}
	if v.Kind == yaml.ScalarNode {
		if value, ok := k.parse(v.Value); ok {
			return value
		}
		o.Fail(key, "%q is not %s", v.Value, k.says)
		return absent
	}
	o.Fail(key, "it must be %s", k.says)
	return absent
}

func each[T any](o *Object, key, says string, parse func(string) (T, bool)) []T {
	var all []T
	for _, v := range o.scalars(key) {
		value, ok := parse(v.Value)
		if v.Kind != yaml.ScalarNode || !ok {
			o.document.fail(v, o.at(key), "%q is not %s", v.Value, says)
			continue
		}
		all = append(all, value)
	}
	return all
}
