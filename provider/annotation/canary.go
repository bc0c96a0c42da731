package annotation

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Canary is how a later revision takes the place of the present one. The zero value is at once.
type Canary struct {
	// Gradual says that InferCanary is set. Steps are its percentages, "" for "header"; see [Canary.Shares].
	Gradual bool
	Steps   string
	// Mirror is InferCanaryMirror in percent, 0 for none.
	Mirror int
	// Margin and Different are InferCanaryMargin and InferCanaryDifferent in percent, and Timeout is InferCanaryTimeout.
	Margin, Different float64
	Timeout           time.Duration
}

// Defaults and limits of a gradual rollout.
const (
	DefaultCanaryMargin    = 2.0
	DefaultCanaryDifferent = 1.0
	DefaultCanaryTimeout   = 5 * time.Minute
	LongestCanaryTimeout   = 24 * time.Hour
	// maxSteps is the maximum number of steps.
	maxSteps = 20
)

// CanaryHeader is the value of InferCanary for requests that ask for the later revision.
const CanaryHeader = "header"

// set reads one key.
func (c *Canary) set(key, value string) (err error) {
	switch key {
	case InferCanary:
		c.Gradual = true
		c.Steps, err = steps(value)
	case InferCanaryMirror:
		c.Mirror, err = integer(key, value, 1, 100, "10")
	case InferCanaryTimeout:
		c.Timeout, err = duration(key, value, LongestCanaryTimeout, "5m")
	case InferCanaryMargin:
		c.Margin, err = points(key, value, "2")
	default:
		c.Different, err = points(key, value, "1")
	}
	return err
}

// Shares lists the percentages of the requests that the later revision gets one after the other, rising.
func (c Canary) Shares() []int {
	var all []int
	for text := range strings.SplitSeq(c.Steps, ",") {
		if n, err := strconv.Atoi(strings.TrimSpace(text)); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// steps checks the percentages of InferCanary.
func steps(value string) (string, error) {
	if value == CanaryHeader {
		return "", nil
	}
	wrong := func(why string) (string, error) {
		return "", &Error{Key: InferCanary, Value: value, Why: why, Example: "5,25,50"}
	}
	var all []int
	for text := range strings.SplitSeq(value, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 || n > 100 {
			return wrong(`it must be whole percentages from 1 to 100 with commas between them, or "header"`)
		}
		if len(all) > 0 && n <= all[len(all)-1] {
			return wrong(fmt.Sprintf("the percentages must rise, and %d comes after %d", n, all[len(all)-1]))
		}
		all = append(all, n)
	}
	if len(all) > maxSteps {
		return wrong(fmt.Sprintf("it must have at most %d percentages", maxSteps))
	}
	return value, nil
}

// points reads a number of percentage points above 0 and at most 100.
func points(key, value, example string) (float64, error) {
	p, ok := ParseDecimal(value)
	if !ok || p <= 0 || p > 100 {
		return 0, &Error{Key: key, Value: value, Why: "it must be a number above 0 and at most 100", Example: example}
	}
	return p, nil
}

// Completed returns c with the defaults in place of what the deployment does not say.
func (c Canary) Completed() Canary {
	if c.Margin == 0 {
		c.Margin = DefaultCanaryMargin
	}
	if c.Different == 0 {
		c.Different = DefaultCanaryDifferent
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultCanaryTimeout
	}
	return c
}

// CanarySettings reports whether a key says only how a revision takes over, and nothing of what it runs.
func CanarySettings(key string) bool { return strings.HasPrefix(key, InferCanary) }

// complete refuses settings that would change nothing.
func (c Canary) complete(values map[string]string, model bool) error {
	for _, key := range []string{InferCanaryMirror, InferCanaryDifferent, InferCanaryMargin, InferCanaryTimeout} {
		if value, set := values[key]; set && !c.Gradual {
			return &Error{Key: key, Value: value, Why: "it is of use only with " + InferCanary + "; set that, or leave it out"}
		}
	}
	if c.Mirror > 0 && !model {
		return &Error{Key: InferCanaryMirror, Value: values[InferCanaryMirror], Why: "only requests of models are mirrored, as a program may change things; leave it out"}
	}
	return nil
}
