package latency

import (
	"math"
	"math/cmplx"

	"gonum.org/v1/gonum/dsp/fourier"
)

// The kernels describe the time from a batch's departure to the departure of the c-th
// batch after it, less a c-th of the execution times of the batches between. That time
// has the Laplace transform
//
//	M(s)^{c−1}·Y(s)·[e^{−sT}·N_{k−1}(T) | V(s)].
//
// The bracket depends on whether the last batch, of size k, does not fill or does.
// Y(s) = (sI − D0)⁻¹D1 is the time to the next request, which is a batch's first. V(s)
// is the time in which a batch fills,
//
//	V(s) = Y^{B−1} − e^{−sT}·Σ_{l=0}^{B−2} N_l(T)·Y^{B−1−l},
//
// that is the time of B − 1 requests without the part beyond T. M is one whole batch:
// M(s) = Y·[e^{−sT}·Σ_k N_{k−1}(T)·φ_k(s) + V(s)·φ_B(s)] with φ_k(s) = E e^{sS_k/c}. An
// execution time with spread counts as Gamma distributed: φ = (1 − s·v·S/c)^{−1/v}.

// kernels has these times on the grid, by the phases before and after:
// kernel.at[i·m+j][d] is the part that is d − offset steps long. next reaches to the
// first request of the last batch. open reaches to the departure of a last batch that
// does not fill, without the factor for its size. full reaches to the departure of a
// last batch that fills. fill is V alone; it begins a few steps before 0. total is what
// each kernel would sum to on a grid without end.
type kernels struct {
	offset                 int
	next, open, full, fill kernel
}

type kernel struct {
	at    [][]float64
	total []float64
}

// transforms are those of the four kernels at one s.
type transforms struct{ next, open, full, fill []complex128 }

const (
	// damping is the power of e by which values beyond the grid's period shrink when the
	// periodic transform wraps them around. Errors at high frequencies grow by half of
	// that power, because at most half a period is used.
	damping = 12
	// before is the number of steps of fill before 0, where no batch fills.
	before = 2
)

// kernels inverts the transforms. Each value is an integral over the cubic B-spline
// about its step. That keeps masses and means, and the spectrum falls off fast: adding
// its first image, beyond half of the rate of steps, is enough.
func (p Pool) kernels(g poolGrid) kernels {
	m := p.Arrivals.Order()
	k := kernels{offset: p.up(g)}
	most := 2 * max(float64(g.levels+k.offset+2), p.Timeout/g.step+2+before, damping*p.variance()*p.longest()/float64(p.Instances)/g.step)
	period := 256
	for float64(period) < most {
		period *= 2
	}
	var spectra [4][][]complex128
	for n := range spectra {
		spectra[n] = make([][]complex128, m*m)
		for i := range spectra[n] {
			spectra[n][i] = make([]complex128, period/2+1)
		}
	}
	t, down := p.transformer(), damping/(float64(period)*g.step)
	add := func(n, image int) {
		s := complex(down, 2*math.Pi*float64(image)/(float64(period)*g.step))
		one := t.at(s)
		spline := cmplx.Sinh(s*complex(g.step/2, 0)) / (s * complex(g.step/2, 0))
		spline *= spline * spline * spline
		shifted := spline * cmplx.Exp(-s*complex(float64(k.offset)*g.step, 0))
		fill := spline * cmplx.Exp(-s*complex(before*g.step, 0))
		for i := range m * m {
			spectra[0][i][n] += one.next[i] * shifted
			spectra[1][i][n] += one.open[i] * shifted
			spectra[2][i][n] += one.full[i] * shifted
			spectra[3][i][n] += one.fill[i] * fill
		}
	}
	for n := range period/2 + 1 {
		add(n, n)
		add(n, n-period)
	}
	whole := t.at(0)
	fft := fourier.NewFFT(period)
	for n, to := range []*kernel{&k.next, &k.open, &k.full, &k.fill} {
		totals := [][]complex128{whole.next, whole.open, whole.full, whole.fill}[n]
		for i := range m * m {
			to.total = append(to.total, max(0, real(totals[i])))
			to.at = append(to.at, undamp(fft.Sequence(nil, spectra[n][i]), damping/float64(period)))
		}
	}
	return k
}

// undamp reverses the damping. Negative values are the transform's truncation and
// become 0.
func undamp(v []float64, by float64) []float64 {
	for i := range v {
		v[i] = max(0, v[i]*math.Exp(by*float64(i))/float64(len(v)))
	}
	return v
}

// transformer calculates transforms, one at a time. Its slices are scratch space.
type transformer struct {
	Pool
	order          int
	d0, d1         []float64
	a, b, c, spare []complex128
}

func (p Pool) transformer() *transformer {
	m := p.Arrivals.Order()
	t := &transformer{Pool: p, order: m}
	for i := range m {
		for j := range m {
			t.d0 = append(t.d0, p.Arrivals.D0.At(i, j))
			t.d1 = append(t.d1, p.Arrivals.D1.At(i, j))
		}
	}
	for _, to := range []*[]complex128{&t.a, &t.b, &t.c, &t.spare} {
		*to = make([]complex128, m*m)
	}
	return t
}

// at returns the transforms at s.
func (t *transformer) at(s complex128) transforms {
	n := t.order * t.order
	y := t.gap(s)
	fill := t.power(y, t.Batch-1)
	late, sizes, beyond := cmplx.Exp(-s*complex(t.Timeout, 0)), make([]complex128, n), make([]complex128, n)
	for k := range t.Batch - 1 {
		phi := t.executed(s, k)
		product(t.spare, beyond, y, t.order)
		for i, v := range t.Formed[k] {
			beyond[i] = t.spare[i] + complex(v, 0)
			sizes[i] += complex(v, 0) * phi
		}
	}
	product(t.spare, beyond, y, t.order)
	last := t.executed(s, t.Batch-1)
	for i := range n {
		fill[i] -= late * t.spare[i]
		sizes[i] = late*sizes[i] + fill[i]*last
	}
	batch := make([]complex128, n)
	product(batch, y, sizes, t.order)
	out := transforms{fill: fill, next: make([]complex128, n), open: make([]complex128, n), full: make([]complex128, n)}
	product(out.next, t.power(batch, t.Instances-1), y, t.order)
	product(out.full, out.next, fill, t.order)
	for i, v := range out.next {
		out.open[i] = v * late
	}
	return out
}

// executed is φ of a batch of k + 1.
func (t *transformer) executed(s complex128, k int) complex128 {
	part := s * complex(t.Service[k]/float64(t.Instances), 0)
	v := t.variance()
	if v < 1e-6 {
		return cmplx.Exp(part)
	}
	return cmplx.Exp(cmplx.Log(1-part*complex(v, 0)) * complex(-1/v, 0))
}

// gap returns Y(s) by elimination without pivots: sI − D0 has a dominant diagonal.
func (t *transformer) gap(s complex128) []complex128 {
	m := t.order
	y := make([]complex128, m*m)
	a := t.a
	for i := range m * m {
		a[i], y[i] = complex(-t.d0[i], 0), complex(t.d1[i], 0)
	}
	for i := range m {
		a[i*m+i] += s
	}
	for i := range m {
		for r := range m {
			if r == i || a[r*m+i] == 0 {
				continue
			}
			f := a[r*m+i] / a[i*m+i]
			for j := range m {
				a[r*m+j] -= f * a[i*m+j]
				y[r*m+j] -= f * y[i*m+j]
			}
		}
	}
	for i := range m {
		for j := range m {
			y[i*m+j] /= a[i*m+i]
		}
	}
	return y
}

// power returns aⁿ.
func (t *transformer) power(a []complex128, n int) []complex128 {
	m := t.order
	out := make([]complex128, m*m)
	for i := range m {
		out[i*m+i] = 1
	}
	copy(t.b, a)
	for ; n > 0; n /= 2 {
		if n%2 == 1 {
			product(t.c, out, t.b, m)
			copy(out, t.c)
		}
		product(t.c, t.b, t.b, m)
		copy(t.b, t.c)
	}
	return out
}

// product sets dst to a·b, matrices of m rows. dst must not be a or b.
func product(dst, a, b []complex128, m int) {
	clear(dst)
	for i := range m {
		for k := range m {
			v := a[i*m+k]
			for j := range m {
				dst[i*m+j] += v * b[k*m+j]
			}
		}
	}
}
