package learned

import "math"

// process is a Gaussian process with a Matérn kernel of smoothness 5/2. Its mean is that of
// the samples.
type process struct {
	points [][]int
	length float64
	// mean and amplitude are those of the samples. lower is the Cholesky factor of the
	// kernel's matrix, and solved is that matrix' inverse times the centred samples.
	mean, amplitude float64
	lower           [][]float64
	solved          []float64
}

// noise is added to the kernel's diagonal, so that equal points do not make it singular.
const noise = 1e-6

// lengths are the kernel's length scales that fit tries.
var lengths = []float64{0.5, 1, 2, 4, 8, 16, 32, 64}

// matern returns the correlation of two points.
func matern(a, b []int, length float64) float64 {
	square := 0.0
	for i := range a {
		d := float64(a[i] - b[i])
		square += d * d
	}
	d := math.Sqrt(5*square) / length
	return (1 + d + d*d/3) * math.Exp(-d)
}

// fit returns the process whose length and amplitude make the samples most likely.
func fit(points [][]int, values []float64) *process {
	var best *process
	likelihood := math.Inf(-1)
	for _, length := range lengths {
		p := &process{points: points, length: length}
		for _, v := range values {
			p.mean += v / float64(len(values))
		}
		p.factor()
		centred := make([]float64, len(values))
		for i, v := range values {
			centred[i] = v - p.mean
		}
		half := p.forward(centred)
		square, logs := 0.0, 0.0
		for i, h := range half {
			square += h * h
			logs += math.Log(p.lower[i][i])
		}
		p.amplitude = max(square/float64(len(values)), 1e-12)
		p.solved = p.backward(half)
		if l := -float64(len(values))/2*math.Log(p.amplitude) - logs; l > likelihood {
			best, likelihood = p, l
		}
	}
	return best
}

// factor finds the Cholesky factor.
func (p *process) factor() {
	p.lower = make([][]float64, len(p.points))
	for i := range p.points {
		row := make([]float64, i+1)
		p.lower[i] = row
		for j := range row {
			sum := matern(p.points[i], p.points[j], p.length)
			if i == j {
				sum += noise
			}
			for k := range j {
				sum -= row[k] * p.lower[j][k]
			}
			if i == j {
				row[j] = math.Sqrt(max(sum, noise*noise))
			} else {
				row[j] = sum / p.lower[j][j]
			}
		}
	}
}

// forward solves lower·x = b.
func (p *process) forward(b []float64) []float64 {
	x := make([]float64, len(b))
	for i, row := range p.lower {
		sum := b[i]
		for j := range i {
			sum -= row[j] * x[j]
		}
		x[i] = sum / row[i]
	}
	return x
}

// backward solves lowerᵀ·x = b.
func (p *process) backward(b []float64) []float64 {
	x := make([]float64, len(b))
	for i := len(b) - 1; i >= 0; i-- {
		sum := b[i]
		for j := i + 1; j < len(b); j++ {
			sum -= p.lower[j][i] * x[j]
		}
		x[i] = sum / p.lower[i][i]
	}
	return x
}

// at returns the mean and the standard deviation at a point.
func (p *process) at(point []int) (mean, deviation float64) {
	k := make([]float64, len(p.points))
	mean = p.mean
	for i, other := range p.points {
		k[i] = matern(point, other, p.length)
		mean += k[i] * p.solved[i]
	}
	left := 1.0
	for _, h := range p.forward(k) {
		left -= h * h
	}
	return mean, math.Sqrt(p.amplitude * max(left, 0))
}
