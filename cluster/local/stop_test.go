package local

import (
	"context"
	"testing"
	"time"
)

// An instance that is stopped while it starts exits in order and soon, although the first
// process of a namespace does not get signals that come too early.
func TestStoppedWhileItStarts(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		b := open(t, options(t.TempDir(), bare))
		for range 5 {
			begin(t, b, function(t, "one", "classic", "cat"))
			// One that did not leave would be killed when this is over.
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			if err := b.Stop(ctx, "one"); err != nil || ctx.Err() != nil {
				t.Fatalf("it did not leave: %v, %v", err, ctx.Err())
			}
			cancel()
			nothingLeft(t, b)
		}
	})
}
