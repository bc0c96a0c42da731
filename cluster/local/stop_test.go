package local

import (
	"context"
	"testing"
	"time"
)

// An instance that is stopped while it starts leaves in order and soon: the
// first process of a namespace does not see the signals that come too early.
func TestStoppedWhileItStarts(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		b := open(t, options(t.TempDir(), bare))
		for range 5 {
			begin(t, b, function(t, "one", "classic", "cat"))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			began := time.Now()
			if err := b.Stop(ctx, "one"); err != nil {
				t.Fatal(err)
			}
			cancel()
			if took := time.Since(began); took > 20*time.Second {
				t.Fatalf("it took %v to stop", took)
			}
			nothingLeft(t, b)
		}
	})
}
