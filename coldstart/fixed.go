package coldstart

import "time"

// DefaultKeepAlive is the keep-alive of functions that set none: 300 s, which
// is also what INFless compares with.
const DefaultKeepAlive = 300 * time.Second

// Fixed is the policy that keeps every function for the same time, unless it
// was given its own. It learns nothing.
type Fixed struct {
	keepAlive time.Duration
	own       map[string]time.Duration
}

var _ Policy = (*Fixed)(nil)

// NewFixed keeps functions for keepAlive after their last request.
func NewFixed(keepAlive time.Duration) *Fixed {
	return &Fixed{keepAlive: keepAlive, own: map[string]time.Duration{}}
}

// Set gives a function a keep-alive of its own until it is forgotten.
func (f *Fixed) Set(function string, keepAlive time.Duration) { f.own[function] = keepAlive }

// Observe does nothing: a fixed time is not learned.
func (f *Fixed) Observe(time.Time, string, time.Duration) {}

// Windows has no pre-warming window.
func (f *Fixed) Windows(_ time.Time, function string) Windows {
	if own, ok := f.own[function]; ok {
		return Windows{KeepAlive: own}
	}
	return Windows{KeepAlive: f.keepAlive}
}

// Forget drops the function's own keep-alive.
func (f *Fixed) Forget(function string) { delete(f.own, function) }
