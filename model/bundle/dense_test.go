package bundle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// layer is the file of a layer with a matrix of zeros and a bias.
func layer(out, in, bias int) []byte {
	described := fmt.Sprintf(`{"linear.weight":{"dtype":"F32","shape":[%d,%d],"data_offsets":[0,%d]}`, out, in, 4*out*in)
	if bias > 0 {
		described += fmt.Sprintf(`,"linear.bias":{"dtype":"F32","shape":[%d],"data_offsets":[%d,%d]}`, bias, 4*out*in, 4*(out*in+bias))
	}
	described += "}"
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(described))), described...), make([]byte, 4*(out*in+bias))...)
}

func TestLayers(t *testing.T) {
	files := map[string][]byte{"a": layer(3, 4, 3), "b": layer(2, 3, 0), "c": layer(2, 3, 3), "d": []byte("weights"), "e": layer(0, 3, 0)}
	read := func(name string) ([]byte, error) {
		if files[name] == nil {
			return nil, errors.New("it is missing")
		}
		return files[name], nil
	}
	text := Text{Dense: []Dense{{File: "a", Activation: ActivationTanh}, {File: "b"}}}
	layers, err := text.Layers(read)
	if err != nil || len(layers) != 2 || layers[0].In != 4 || layers[0].Out != 3 || !layers[0].Tanh || layers[1].Tanh || layers[1].Bias != nil ||
		!slices.Equal(layers[0].Bias, []float32{0, 0, 0}) || len(layers[1].Weight) != 6 {
		t.Errorf("%+v, %v", layers, err)
	}
	for names, why := range map[string]string{
		"b a": "text.dense: a takes vectors of 4 elements, and the layer before makes some of 2",
		"c":   "text.dense: c: its linear.bias has the shape [3]",
		"d":   "text.dense: d: it has 7 bytes",
		"e":   "text.dense: e: it has no matrix",
		"f":   "text.dense: it is missing",
	} {
		text := Text{}
		for name := range strings.FieldsSeq(names) {
			text.Dense = append(text.Dense, Dense{File: name})
		}
		if _, err := text.Layers(read); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v does not say %q", names, err, why)
		}
	}
}
