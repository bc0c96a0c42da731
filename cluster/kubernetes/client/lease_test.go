package client

import (
	"testing"
	"time"
)

// The lease has client-go's times by default. One of 3 s is renewed every 400 ms.
func TestTimesOfALease(t *testing.T) {
	for lease, want := range map[time.Duration][2]time.Duration{
		DefaultLease:    {10 * time.Second, 2 * time.Second},
		3 * time.Second: {2 * time.Second, 400 * time.Millisecond},
	} {
		if deadline, retry := times(lease); deadline != want[0] || retry != want[1] {
			t.Errorf("%v: %v and %v", lease, deadline, retry)
		}
	}
	if n := Renewals(DefaultLease); n != 30 {
		t.Errorf("%v writes a minute", n)
	}
}
