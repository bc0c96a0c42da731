package peer

import (
	"testing"

	"github.com/faas-infer/faas-infer/provider"
)

// BenchmarkHandOn is what it costs to hand a request on to another replica, beside
// what dispatching it here does.
func BenchmarkHandOn(b *testing.B) {
	where, all := several(b, 2)
	owner := where.owner(all)
	for what, at := range map[string]*one{"here": owner, "there": all[0]} {
		if what == "there" && at == owner {
			at = all[1]
		}
		b.Run(what, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := at.ask(b.Context(), 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

var _ provider.PatientDispatcher = (*answering)(nil)
