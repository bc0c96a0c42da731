package coldstart

import (
	"errors"
	"time"
)

// DefaultKeepAlive is the keep-alive of functions that set none: 300 s, which
// is also what INFless compares with.
const DefaultKeepAlive = 300 * time.Second

// Fixed is the policy that keeps every function for the same time. It learns
// nothing.
type Fixed struct {
	keepAlive time.Duration
}

var _ Policy = (*Fixed)(nil)

// NewFixed keeps functions for keepAlive after their last request.
func NewFixed(keepAlive time.Duration) *Fixed { return &Fixed{keepAlive: keepAlive} }

// Observe does nothing: a fixed time is not learned.
func (f *Fixed) Observe(time.Time, string, time.Duration) {}

// Windows has no pre-warming window.
func (f *Fixed) Windows(time.Time, string) Windows { return Windows{KeepAlive: f.keepAlive} }

// Forget does nothing: there is nothing to forget.
func (f *Fixed) Forget(string) {}

// Marshal is always nil.
func (f *Fixed) Marshal(string) []byte { return nil }

// Restore refuses whatever there is, as it is another policy's.
func (f *Fixed) Restore(_ string, state []byte) error {
	if len(state) > 0 {
		return errors.New("a fixed keep-alive has no state to be restored")
	}
	return nil
}
