package objects

import (
	"context"
	"testing"

	"k8s.io/client-go/kubernetes/fake"
)

// A reading on a busy machine replaces no shorter one.
func TestTheLeastYardstickStays(t *testing.T) {
	client := fake.NewClientset()
	for _, reading := range []struct{ took, want float64 }{{64, 64}, {40, 40}, {64, 40}, {39.9, 40}, {30, 30}} {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := OpenHistoryStore(ctx, client, "openfaas", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.PutYardstick("m5.large", reading.took); err != nil {
			t.Fatal(err)
		}
		cancel()
		s.Close()
		ctx, cancel = context.WithCancel(t.Context())
		if s, err = OpenHistoryStore(ctx, client, "openfaas", nil); err != nil {
			t.Fatal(err)
		}
		if got := s.Yardstick("m5.large"); got != reading.want {
			t.Errorf("after a reading of %v µs: %v, want %v", reading.took, got, reading.want)
		}
		cancel()
		s.Close()
	}
}
