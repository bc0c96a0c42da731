package bundle

import (
	"fmt"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// The values of [Dense.Activation].
const (
	// ActivationIdentity changes nothing.
	ActivationIdentity = "identity"
	// ActivationTanh is the hyperbolic tangent of each element.
	ActivationTanh = "tanh"
)

// activations are the valid ones.
var activations = []string{ActivationIdentity, ActivationTanh}

// Dense is a layer through which a text's vector goes after the pooling: activation(weight · vector + bias). It is
// sentence-transformers' module of that name.
type Dense struct {
	// File has the weights in safetensors, relative to the bundle: linear.weight, and linear.bias if there is one.
	File string `yaml:"file"`
	// Activation is [ActivationIdentity], the default, or [ActivationTanh].
	Activation string `yaml:"activation,omitempty"`
}

// maxDense is the maximum number of layers.
const maxDense = 8

// validateDense fills in the defaults of the field text.dense and checks it.
func (t *Text) validateDense() error {
	if len(t.Dense) > 0 && t.Task != TaskEmbed {
		return fmt.Errorf("%w: text.dense is for embeddings; remove it", ErrManifest)
	}
	if len(t.Dense) > maxDense {
		return fmt.Errorf("%w: text.dense has %d layers; the maximum is %d", ErrManifest, len(t.Dense), maxDense)
	}
	for i := range t.Dense {
		d := &t.Dense[i]
		if d.Activation == "" {
			d.Activation = ActivationIdentity
		}
		switch {
		case d.File == "":
			return fmt.Errorf("%w: text.dense: layer %d has no file; name the one with its weights, as "+
				"\"2_Dense/model.safetensors\"", ErrManifest, i)
		case !slices.Contains(activations, d.Activation):
			return fmt.Errorf("%w: text.dense: layer %d has the activation %q; it must be %s", ErrManifest, i, d.Activation,
				strings.Join(activations, " or "))
		}
	}
	return nil
}

// Layer is a [Dense] with its weights.
type Layer struct {
	// Weight has Out rows of In columns. Bias has Out elements, or none.
	Weight, Bias []float32
	In, Out      int
	Tanh         bool
}

// Layers reads the layers of text.dense. read returns the content of a file of the bundle. The error begins with
// the field.
func (t *Text) Layers(read func(name string) ([]byte, error)) (layers []Layer, err error) {
	for i, d := range t.Dense {
		file, err := read(d.File)
		if err != nil {
			return nil, fmt.Errorf("text.dense: %w", err)
		}
		l, err := readLayer(file)
		if err != nil {
			return nil, fmt.Errorf("text.dense: %s: %w", d.File, err)
		}
		if i > 0 && l.In != layers[i-1].Out {
			return nil, fmt.Errorf("text.dense: %s takes vectors of %d elements, and the layer before makes some of %d; put the "+
				"layers in the order of the model's modules", d.File, l.In, layers[i-1].Out)
		}
		l.Tanh = d.Activation == ActivationTanh
		layers = append(layers, l)
	}
	return layers, nil
}

// ReadLayers is [Text.Layers] for the bundle in a directory. It follows no link out of that.
func (t *Text) ReadLayers(dir string) ([]Layer, error) {
	return t.Layers(func(name string) ([]byte, error) { return readInside(dir, name) })
}

func readLayer(file []byte) (l Layer, err error) {
	tensors, err := tensor.ReadSafetensors(file)
	if err != nil {
		return l, err
	}
	weight, bias := tensors["linear.weight"], tensors["linear.bias"]
	switch {
	case len(weight.Shape) != 2 || !weight.Type.Float() || len(weight.Data) == 0:
		return l, fmt.Errorf("it has no matrix linear.weight of floating-point numbers, as sentence-transformers writes it")
	case len(bias.Shape) > 0 && (!bias.Type.Float() || len(bias.Shape) != 1 || bias.Shape[0] != weight.Shape[0]):
		return l, fmt.Errorf("its linear.bias has the shape %v; for linear.weight of %v it must be [%d]", bias.Shape, weight.Shape,
			weight.Shape[0])
	}
	if len(bias.Data) > 0 {
		l.Bias = bias.Type.AppendFloats(nil, bias.Data)
	}
	l.Out, l.In = int(weight.Shape[0]), int(weight.Shape[1])
	l.Weight = weight.Type.AppendFloats(nil, weight.Data)
	return l, nil
}
