// Package lambda has what BATCH (SC 2020) published about AWS Lambda: the times of three
// models by memory and batch size, as the polynomials of its release, and the sizes that a
// function could have. It is for simulation and for comparing latency models; it has no
// times of this machine. AWS has changed its sizes since. Begin with Service.
//
// Source: https://github.com/rickypinci/BATCH, the regressions of its profiler
// (BATCH §III-A), in seconds, with the batch size k and the memory m in MB.
package lambda

import (
	"fmt"
	"slices"
	"strings"
)

// MaxBatch is the largest measured batch.
const MaxBatch = 20

// The memory sizes of a function in MB: from the smallest that holds ResNet-v2 with one
// request (BATCH §II-D: 1280 MB), in steps of 64, up to Lambda's largest at that time.
// These are 1 + (3008 − 1280)/64 = 28 sizes.
const (
	smallest = 1280
	largest  = 3008
	step     = 64
)

// vCPU is the memory in MB for which Lambda gives a function one whole core. CPU is
// proportional to memory.
const vCPU = 1769

// polynomial has the coefficients of 1, k, m, k², km, m², k³, mk², km², m³ and, if there
// are 15, of k⁴, mk³, k²m², km³, m⁴.
type polynomial struct {
	model string
	terms []float64
}

var polynomials = []polynomial{
	{"inception-v4", []float64{
		4.98785373866948, 2.21290624531453, -0.006302148424865, 0.01220707314674, -0.001078252966917,
		2.93842054489054e-06, -0.000136439880153, -2.38944435771044e-06, 1.6826351295629e-07, -4.44821512957105e-10,
	}},
	{"resnet-50", []float64{
		4.159625107884683, 2.6042179469237112, -0.010825805019675406, 0.009138187816342925, -0.0028596859100282783,
		9.69154925319072e-06, -0.0010892145857441117, 1.7781522992577246e-06, 1.226979037160046e-06, -3.604767989748986e-09,
		5.2168371220458194e-05, -3.0873547472152034e-07, 1.335682942382537e-09, -1.7570492803764548e-10, 4.756195437494171e-13,
	}},
	{"resnet-v2", []float64{
		4.10287326093357, 2.44209348386686, -0.003744827715921, 0.00146578966951, -0.001200716327886,
		1.54147156981117e-06, 0.000169790388555, -1.69402238148543e-06, 1.93096097179588e-07, -2.14320561298109e-10,
	}},
}

// Models lists the models: Inception-v4 and ResNet-v2 in TensorFlow, ResNet-50 in
// MXNet.
func Models() []string {
	var names []string
	for _, p := range polynomials {
		names = append(names, p.model)
	}
	return names
}

// Memories lists the sizes in MB, ascending.
func Memories() []int {
	var all []int
	for m := smallest; m <= largest; m += step {
		all = append(all, m)
	}
	return all
}

// Millicores returns the CPU that Lambda gives a function with this memory in MB.
func Millicores(memory int) int { return 1000 * memory / vCPU }

// Service lists the times in seconds of batches of 1, 2, … [MaxBatch] of a model with this
// memory in MB. The regression is good between the smallest and the largest of [Memories].
// A memory outside of them is an error, and so is an unknown model.
func Service(model string, memory int) ([]float64, error) {
	i := slices.IndexFunc(polynomials, func(p polynomial) bool { return p.model == model })
	if i < 0 {
		return nil, fmt.Errorf("there are no Lambda times of model %q: it must be one of %s", model, strings.Join(Models(), ", "))
	}
	if memory < smallest || memory > largest {
		return nil, fmt.Errorf("memory of %d MB: it must be from %d to %d MB", memory, smallest, largest)
	}
	times := make([]float64, MaxBatch)
	for k := range times {
		times[k] = polynomials[i].at(float64(k+1), float64(memory))
	}
	return times, nil
}

func (p polynomial) at(k, m float64) float64 {
	sum := 0.0
	powers := []float64{1, k, m, k * k, k * m, m * m, k * k * k, m * k * k, k * m * m, m * m * m, k * k * k * k, m * k * k * k, k * k * m * m, k * m * m * m, m * m * m * m}
	for i, c := range p.terms {
		sum += c * powers[i]
	}
	return sum
}
