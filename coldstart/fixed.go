package coldstart

import (
	"errors"
	"time"
)

// DefaultKeepAlive is the keep-alive of functions that set none. INFless also compares
// with 300 s.
const DefaultKeepAlive = 300 * time.Second

// Fixed is the policy that keeps every function for the same time. It learns
// nothing.
type Fixed struct {
	keepAlive time.Duration
}

var _ Policy = (*Fixed)(nil)

// NewFixed returns a policy that keeps functions for keepAlive after their last
// request.
func NewFixed(keepAlive time.Duration) *Fixed { return &Fixed{keepAlive: keepAlive} }

// Observe does nothing: a fixed policy does not learn.
func (f *Fixed) Observe(time.Time, string, time.Duration) {}

// Windows returns the fixed keep-alive without pre-warming.
func (f *Fixed) Windows(time.Time, string) Windows { return Windows{KeepAlive: f.keepAlive} }

// Forget does nothing: a fixed policy has no state.
func (f *Fixed) Forget(string) {}

// Marshal returns nil.
func (f *Fixed) Marshal(string) []byte { return nil }

// Restore refuses any state, because it is another policy's.
func (f *Fixed) Restore(_ string, state []byte) error {
	if len(state) > 0 {
		return errors.New("a fixed keep-alive has no state to restore")
	}
	return nil
}
