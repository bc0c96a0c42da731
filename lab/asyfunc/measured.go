package asyfunc

import (
	"context"
	"fmt"

	"github.com/faas-infer/faas-infer/papers/asyfunc/layers"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

// Measured profiles models' blocks on this machine, as "profile layers" does. A machine with
// fewer than C_max cores has no times for more: each block's are then extended by the part of it
// that its threads share (Amdahl), from one thread and the most. Load times are the machine's, too,
// with what each part takes in [shadow.Model].Open, so [Law].LoadFixed does not count.
func Measured(ctx context.Context, names []string, own int64) ([]*shadow.Model, error) {
	var models []*shadow.Model
	for _, name := range names {
		o := layers.LayerOptions{Batches: []int{2, 3, 4, 6, 8, 12, maxRows}}
		l, err := o.Layers(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		l.Model.Own = own
		extend(l.Model, maxCores)
		models = append(models, l.Model)
	}
	return models, nil
}

// extend adds times of up to so many threads. With t₁ on one thread and t_n on the n that were
// measured, the shared part is (1 − t_n/t₁)/(1 − 1/n): of t₁ = 10 ms and t₂ = 6 ms it is 0.8, and
// 4 threads take 10·(0.2 + 0.8/4) = 4 ms.
func extend(m *shadow.Model, most int) {
	last := len(m.Threads) - 1
	n := m.Threads[last]
	from := len(m.Threads)
	for t := n + 1; t <= most; t++ {
		m.Threads = append(m.Threads, t)
	}
	for i := range m.Blocks {
		b := &m.Blocks[i]
		for _, threads := range m.Threads[from:] {
			row := make([]float64, len(m.Rows))
			for j := range row {
				one, many := b.Ms[0][j], b.Ms[last][j]
				part := 0.0
				if n > 1 && one > 0 {
					part = min(1, max(0, (1-many/one)/(1-1/float64(n))))
				}
				row[j] = one * (1 - part + part/float64(threads))
			}
			b.Ms = append(b.Ms, row)
		}
	}
}
