package partition

import (
	"fmt"
	"testing"
)

// BenchmarkPlan plans models of 36 to 50 layers with about ten options a group. The aims
// are 1000 ms for the latency and 5000 ms for the cost.
func BenchmarkPlan(b *testing.B) {
	for _, m := range []struct {
		name string
		net  func(*Platform) Model
	}{
		{"vgg-16", func(p *Platform) Model { return vgg(16, p, wideShapes) }},
		{"wide-34-3", func(p *Platform) Model { return wide(34, 3, p, wideShapes) }},
		{"wide-34-5", func(p *Platform) Model { return wide(34, 5, p, wideShapes) }},
		{"wide-50-3", func(p *Platform) Model { return wide(50, 3, p, wideShapes) }},
		{"wide-50-5", func(p *Platform) Model { return wide(50, 5, p, wideShapes) }},
	} {
		for _, platform := range []string{"lambda", "knix", "google"} {
			p := platformNamed(platform)
			model := m.net(p)
			b.Run(m.name+"/"+platform+"/space", func(b *testing.B) {
				for b.Loop() {
					if _, err := NewSpace(model, p, Limits{}); err != nil {
						b.Fatal(err)
					}
				}
			})
			s, err := NewSpace(model, p, Limits{})
			if err != nil {
				b.Fatal(err)
			}
			fastest, err := s.Fastest(0)
			if err != nil {
				b.Fatal(err)
			}
			for _, percentile := range []float64{0, 99} {
				b.Run(fmt.Sprintf("%s/%s/latency/%g", m.name, platform, percentile), func(b *testing.B) {
					for b.Loop() {
						if _, err := s.Fastest(percentile); err != nil {
							b.Fatal(err)
						}
					}
				})
				for _, factor := range []float64{1.1, 1.3} {
					b.Run(fmt.Sprintf("%s/%s/cost/%g/%g", m.name, platform, percentile, factor), func(b *testing.B) {
						for b.Loop() {
							if _, err := s.Cheapest(SLO{fastest.Time.At(percentile) * factor, percentile}); err != nil {
								b.Fatal(err)
							}
						}
					})
				}
			}
		}
	}
}
