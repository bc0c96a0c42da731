package forward

import (
	"fmt"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
)

// BenchmarkPick measures taking and giving back an instance while each instance has a few
// requests in flight.
func BenchmarkPick(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := New(Options{})
			for i := range n {
				f.Up(cluster.InstanceID(fmt.Sprint("i-", i)), "unix", "nowhere", 1)
			}
			taken := make([]*instance, 2*n)
			take := func(i int) {
				f.mu.Lock()
				taken[i] = f.pick(nil)
				f.mu.Unlock()
			}
			for i := range taken {
				take(i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				at := i * 7 % len(taken)
				f.release(taken[at], true, false)
				take(at)
			}
			f.Close()
		})
	}
}
