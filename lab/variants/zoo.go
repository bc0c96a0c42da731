package variants

import (
	"math/rand/v2"
	"time"

	"github.com/faas-infer/faas-infer/papers/infaas/registration"
	"github.com/faas-infer/faas-infer/variant"
)

// architecture is one of the 22 of INFaaS' §6: its GFLOPs for one inference, the size of its
// weights in MB, its accuracy in percent, and its part of its family's variants in Table 6.
type architecture struct {
	name                      string
	gflops, weights, accuracy float64
	variants                  int
}

// architectures have the families' numbers of variants of Table 6. The sizes are those of the
// published models; accuracies are top-1 on ImageNet, for gnmt its BLEU on WMT16.
var architectures = []architecture{
	{"mobilenetv1", 0.57, 17, 70.9, 7}, {"mobilenetv2", 0.48, 14, 71.8, 6},
	{"alexnet", 0.72, 244, 56.6, 9},
	{"densenet121", 2.87, 32, 74.9, 8}, {"densenet169", 3.4, 57, 76.2, 7}, {"densenet201", 4.34, 80, 77.3, 7},
	{"resnet50", 3.9, 102, 76.1, 11}, {"resnet101", 7.6, 178, 77.4, 10}, {"resnet152", 11.3, 240, 78.3, 10},
	{"resnet50v2", 4.1, 102, 75.6, 10}, {"resnet101v2", 7.8, 178, 77, 10}, {"resnet152v2", 11.5, 240, 77.8, 10},
	{"vgg11", 7.6, 531, 69, 8}, {"vgg13", 11.3, 532, 69.9, 7}, {"vgg16", 15.5, 553, 71.6, 8}, {"vgg19", 19.6, 575, 72.4, 7},
	{"inceptionv3", 5.7, 95, 77.3, 9}, {"inceptionv4", 12.3, 171, 80.2, 8}, {"inceptionresnetv2", 13.2, 224, 80.4, 8},
	{"nasnetmobile", 0.56, 21, 74, 3}, {"nasnetlarge", 24, 356, 82.5, 3},
	{"gnmt", 6, 800, 24.3, 9},
}

// build is one way to optimise an architecture for a kind of hardware, with units of it: vCPUs, or
// cores of Inferentia.
type build struct {
	name, hardware string
	batch, units   int
}

// builds are in the order in which architectures get them: the first three are one for each kind of
// hardware.
var builds = []build{
	{"tensorflow-2cpu", "cpu", 1, 2}, {"tensorrt-8", "gpu", 8, 1}, {"neuron-1", "inferentia", 1, 1},
	{"tensorrt-1", "gpu", 1, 1}, {"tensorflow-4cpu", "cpu", 1, 4}, {"tensorrt-4", "gpu", 4, 1}, {"neuron-4", "inferentia", 4, 1},
	{"tensorrt-16", "gpu", 16, 1}, {"pytorch-4cpu", "cpu", 1, 4}, {"tensorrt-2", "gpu", 2, 1}, {"tensorrt-32", "gpu", 32, 1},
}

// The machines of §6 with their prices on EC2 in cents/h. An instance costs the part of its machine
// that it takes: of 8 vCPUs, of 4 cores of Inferentia, or of a V100's memory of 16 GB.
const (
	cpuPrice, gpuPrice, inferentiaPrice = 38.4, 306, 58.4
	gpuMemory                           = 16_000
)

// Zoo returns 175 variants of 22 architectures. INFaaS' were never published: these have Table 6's
// numbers and lie within the ranges of §1. Times follow from GFLOPs so that ResNet-50's are about
// those of Table 2, within a fifth at random, the same for a seed.
func Zoo(seed uint64) []registration.Placed {
	r := rand.New(rand.NewPCG(seed, 175))
	var all []registration.Placed
	for _, a := range architectures {
		for _, b := range builds[:a.variants] {
			all = append(all, registration.Placed{Variant: a.built(b, 0.8+0.4*r.Float64())})
		}
	}
	return all
}

// built is a variant, with times multiplied by a factor.
func (a architecture) built(b build, factor float64) variant.Variant {
	memory := 450 + 2*a.weights + float64(b.batch)*(5+2*a.gflops)
	size := float64(b.batch)
	var ms, load, cost, parallel float64
	switch b.hardware {
	case "cpu": // ResNet-50 takes 200 ms on 4 vCPUs.
		ms, load, cost, parallel = 51.3*a.gflops*4/float64(b.units), 590+2*a.weights, cpuPrice*float64(b.units)/8, 1
	case "gpu": // ResNet-50 takes 3.5 ms, and 15 ms for 12.
		ms, load, cost, parallel = 1+0.36*a.gflops+0.27*a.gflops*size, 2000+5*a.weights, gpuPrice*memory/gpuMemory, size
	default: // ResNet-50 takes 20 ms, for two requests at once.
		ms, load, cost, parallel = (2+4.6*a.gflops)*(0.4+0.6*size), 3000+8*a.weights, inferentiaPrice*float64(b.units)/4, 2*size
	}
	ms *= factor
	return variant.Variant{
		Model: a.name, Name: a.name + "-" + b.name, Hardware: b.hardware, Accuracy: a.accuracy,
		Latency: time.Duration(ms * float64(time.Millisecond)), RPS: parallel / ms * 1000,
		Load: time.Duration(load * float64(time.Millisecond)), Memory: memory, Cost: cost,
	}
}
