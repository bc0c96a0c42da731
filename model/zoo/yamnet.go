package zoo

import (
	"math"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// YAMNet's spectrogram has windows of 25 ms every 10 ms of sound at 16 kHz. A
// Fourier transform of 512 points turns each window into 257 frequencies, and
// these become 64 mel bands from 125 to 7500 Hz.
const (
	sampleRate  = 16000
	windowSize  = 400
	windowStep  = 160
	frequencies = 257
	melBands    = 64
)

// yamnet classifies 10.1 s of sound. 20 patches of 0.96 s, each overlapping the
// next by half, go through a MobileNet, and their scores are averaged.
func yamnet(n *network) {
	const patches, half, classes = 20, 48, 521
	const frames = (patches + 1) * half
	sound := n.input("sound", onnxpb.TensorProto_FLOAT, windowSize+(frames-1)*windowStep)
	bands := n.melSpectrogram(sound)
	// Each half of a patch is used twice, except the first and the last.
	halves := n.op("Reshape", []string{bands, n.integers(0, patches+1, half, melBands)})
	part := func(from, to int64) string {
		return n.op("Slice", []string{halves, n.integers(from), n.integers(to), n.integers(1)})
	}
	x := n.op("Concat", []string{part(0, patches), part(1, patches+1)}, attrInt("axis", 2))
	x = n.op("Reshape", []string{x, n.integers(-1, 1, 2*half, melBands)})
	blocks := n.mobileBody(x, 1)
	scores := n.op("Sigmoid", []string{n.averageHead(blocks[len(blocks)-1], 1024, classes)})
	scores = n.op("Reshape", []string{scores, n.integers(-1, patches, classes)})
	n.output("classes", n.op("ReduceMean", []string{scores}, attrInts("axes", 1), attrInt("keepdims", 0)), classes)
}

// melSpectrogram is the logarithm of the mel bands, [batch, frames, bands]. The
// Fourier transform is a convolution with windowed cosines and sines.
func (n *network) melSpectrogram(sound string) string {
	x := n.op("Unsqueeze", []string{sound, n.integers(1)})
	x = n.op("Conv", []string{x, n.initializer(floats("fourier", fourier(), 2*frequencies, 1, windowSize))},
		attrInts("kernel_shape", windowSize), attrInts("strides", windowStep), attrInts("pads", 0, 0))
	parts := n.ops("Split", 2, []string{x}, attrInt("axis", 1))
	square := func(x string) string { return n.op("Mul", []string{x, x}) }
	x = n.op("Sqrt", []string{n.op("Add", []string{square(parts[0]), square(parts[1])})})
	x = n.op("Transpose", []string{x}, attrInts("perm", 0, 2, 1))
	x = n.op("MatMul", []string{x, n.initializer(floats("mel", mel(), frequencies, melBands))})
	return n.op("Log", []string{n.op("Add", []string{x, n.scalar(0.001)})})
}

// fourier holds the cosines of every frequency and then the sines, each times
// Hann's window.
func fourier() []float32 {
	out := make([]float32, 0, 2*frequencies*windowSize)
	for _, wave := range []func(float64) float64{math.Cos, math.Sin} {
		for f := range frequencies {
			for t := range windowSize {
				hann := 0.5 - 0.5*math.Cos(2*math.Pi*float64(t)/windowSize)
				out = append(out, float32(hann*wave(2*math.Pi*float64(f*t%512)/512)))
			}
		}
	}
	return out
}

// mel holds the weight of every frequency in every band. The bands are triangles,
// evenly spaced on the mel scale.
func mel() []float32 {
	scale := func(hertz float64) float64 { return 1127 * math.Log1p(hertz/700) }
	low, high := scale(125), scale(7500)
	step := (high - low) / (melBands + 1)
	out := make([]float32, 0, frequencies*melBands)
	for f := range frequencies {
		at := scale(float64(f) * sampleRate / 2 / (frequencies - 1))
		for band := range melBands {
			centre := low + float64(band+1)*step
			out = append(out, float32(max(0, 1-math.Abs(at-centre)/step)))
		}
	}
	return out
}
