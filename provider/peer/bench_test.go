package peer

import (
	"testing"

	"github.com/faas-infer/faas-infer/provider"
)

// BenchmarkHandOn compares handing a request on to another replica with dispatching it
// here.
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
