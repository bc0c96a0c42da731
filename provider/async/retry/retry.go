// Package retry decides what happens to a queued invocation after each try: it is done,
// tried again at a certain time, or given up. It takes the result of the try and the time
// and returns an [Action]; it has no clock and executes nothing. Begin reading at
// [Settings.After].
//
// The annotations are OpenFaaS's own:
//
//	com.openfaas.retry.attempts   total number of tries, 1 to 1000; 10 if absent
//	com.openfaas.retry.min_wait   wait after the first try; 1s if absent
//	com.openfaas.retry.max_wait   the longest wait; 120s if absent
//	com.openfaas.retry.codes      status codes after which there is another try;
//	                              408,429,500,502,503,504 if absent
//
// The wait doubles with each try. OpenFaaS waits 10s at first. Here the first wait is
// shorter, because most failures come from a cold or busy function, which answers a
// second later.
package retry

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
)

// The annotations that Parse reads.
const (
	Attempts = "com.openfaas.retry.attempts"
	MinWait  = "com.openfaas.retry.min_wait"
	MaxWait  = "com.openfaas.retry.max_wait"
	Codes    = "com.openfaas.retry.codes"
)

// The largest values that are accepted.
const (
	MaxAttempts = 1000
	LongestWait = 24 * time.Hour
)

const prefix = "com.openfaas.retry."

// Settings says how often, when and after which status codes an invocation is
// tried again.
type Settings struct {
	// Attempts is the total number of tries, at least 1.
	Attempts int
	// MinWait is the wait after the first try. The wait doubles with each try, up to
	// MaxWait.
	MinWait, MaxWait time.Duration
	// Codes are the HTTP status codes after which there is another try.
	Codes []int
}

// Default returns the settings of a function without these annotations.
func Default() Settings {
	return Settings{Attempts: 10, MinWait: time.Second, MaxWait: 2 * time.Minute, Codes: []int{408, 429, 500, 502, 503, 504}}
}

// Error is an annotation that cannot be read.
type Error struct {
	// Key is the annotation, Value its value.
	Key, Value string
	// Why says what is allowed. Example is a value that would be accepted.
	Why, Example string
}

// Error returns one sentence that names the annotation.
func (e *Error) Error() string {
	text := fmt.Sprintf("annotation %s is %q: %s", e.Key, shorten(e.Value), e.Why)
	if e.Example != "" {
		text += fmt.Sprintf(", for example %q", e.Example)
	}
	return text
}

// HTTPStatus returns 400: the deployment is at fault.
func (*Error) HTTPStatus() int { return 400 }

// shorten cuts a value to 80 bytes, so a hostile one cannot fill the answer.
func shorten(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}

// Parse returns Default with a function's annotations applied. It refuses an unknown
// annotation below com.openfaas.retry., because that is a misspelling that would change
// nothing. The error is an *Error.
func Parse(annotations map[string]string) (Settings, error) {
	s := Default()
	var keys []string
	for key := range annotations {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		if err := s.set(key, strings.TrimSpace(annotations[key])); err != nil {
			return Default(), err
		}
	}
	if s.MinWait > s.MaxWait {
		if _, given := annotations[MaxWait]; given {
			return Default(), &Error{Key: MaxWait, Value: annotations[MaxWait],
				Why: fmt.Sprintf("it must not be below %s, which is %v", MinWait, s.MinWait)}
		}
		s.MaxWait = s.MinWait
	}
	return s, nil
}

func (s *Settings) set(key, value string) (err error) {
	switch key {
	case Attempts:
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > MaxAttempts {
			return &Error{Key: key, Value: value, Why: fmt.Sprintf("it must be a whole number from 1 to %d", MaxAttempts), Example: "5"}
		}
		s.Attempts = n
	case MinWait:
		s.MinWait, err = wait(key, value)
	case MaxWait:
		s.MaxWait, err = wait(key, value)
	case Codes:
		s.Codes, err = codes(value)
	default:
		return &Error{Key: key, Value: value, Why: fmt.Sprintf("there is no such annotation; it must be one of %s, %s, %s, %s", Attempts, Codes, MaxWait, MinWait)}
	}
	return err
}

func wait(key, value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 || d > LongestWait {
		return 0, &Error{Key: key, Value: value, Why: fmt.Sprintf("it must be a duration above 0 and at most %v", LongestWait), Example: "10s"}
	}
	return d, nil
}

func codes(value string) ([]int, error) {
	var out []int
	for text := range strings.SplitSeq(value, ",") {
		code, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || code < 100 || code > 599 {
			return nil, &Error{Key: Codes, Value: value, Why: "it must be HTTP status codes separated by commas", Example: "408,429,503"}
		}
		if !slices.Contains(out, code) {
			out = append(out, code)
		}
	}
	return out, nil
}

// Wait returns how long to wait after try number tries, counted from 1.
func (s Settings) Wait(tries int) time.Duration {
	return backoff.Pause(tries, max(s.MinWait, time.Millisecond), max(s.MaxWait, time.Millisecond))
}

// spread makes a wait shorter by up to a quarter, as luck in [0, 1) says: messages that failed together
// would otherwise come back together, again and again.
func spread(wait time.Duration, luck float64) time.Duration {
	return wait - time.Duration(luck*float64(wait)/4)
}
