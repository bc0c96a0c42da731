package kubernetes

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// The yardstick is read several times over some minutes, since the node may be busy at the start.
func TestYardstickIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, n := time.Now(), 0
		everyReading(t.Context(), func() { n++ })
		if took := time.Since(began); n < 5 || took < 3*time.Minute || took > 10*time.Minute {
			t.Errorf("%d readings in %v", n, took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		n = 0
		everyReading(ctx, func() { n++; cancel() })
		if n != 1 {
			t.Errorf("%d readings after the end", n)
		}
	})
}
