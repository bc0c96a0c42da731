package graphs

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// The tolerance for float noise. A number may differ from ONNX Runtime's by a part of itself,
// by a part of the tensor's largest number, and by what a millionth in the inputs changes.
const (
	ofItself  = 1e-3
	ofLargest = 1e-4
	ofMoved   = 4
	ofHalf    = 4e-3 // of a float16, which has 10 bits
)

// Want is one output as ONNX Runtime gives it.
type Want struct {
	Name  string      `json:"name"`
	Type  tensor.Type `json:"type"`
	Shape []int64     `json:"shape"`
	Data  []byte      `json:"data"`
	// Moved is the output for inputs whose floats differ by a millionth. It is empty for
	// strings.
	Moved []byte `json:"moved"`
	// Unstable says that the shape depends on such a difference.
	Unstable bool `json:"unstable"`
}

// Compare returns an error that names the first output that is not ONNX Runtime's. Whole
// numbers, truth values and strings are the same, except where a difference of a millionth in
// the inputs changes them, as the number of the larger of two equal scores. An output whose
// shape is decided by so little is not compared.
func Compare(got []tensor.Tensor, want []Want) error {
	for _, w := range want {
		at := slices.IndexFunc(got, func(t tensor.Tensor) bool { return t.Name == w.Name })
		if at < 0 {
			return fmt.Errorf("the output %q is missing", w.Name)
		}
		if err := compareOne(got[at], w); err != nil {
			return fmt.Errorf("output %q: %w", w.Name, err)
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d outputs and not %d", len(got), len(want))
	}
	return nil
}

func compareOne(got tensor.Tensor, want Want) error {
	switch {
	case want.Unstable:
		return nil
	case got.Type != want.Type:
		return fmt.Errorf("the type is %s and not %s", got.Type, want.Type)
	case !slices.Equal(got.Shape, want.Shape):
		return fmt.Errorf("the shape is %v and not %v", got.Shape, want.Shape)
	case want.Type == tensor.Bytes:
		return compareStrings(got.Data, want.Data)
	case len(got.Data) != len(want.Data):
		return fmt.Errorf("%d bytes and not %d", len(got.Data), len(want.Data))
	}
	size := want.Type.Size()
	near := tolerance(want)
	for at := 0; at < len(want.Data); at += size {
		g, w, m := got.Data[at:at+size], want.Data[at:at+size], want.Moved[at:at+size]
		if bytes.Equal(g, w) {
			continue
		}
		if float := near > 0; float && close(want.Type.Number(g), want.Type.Number(w), want.Type.Number(m), near, want.Type) {
			continue
		} else if !float && !bytes.Equal(w, m) {
			continue
		}
		return fmt.Errorf("number %d is %v and not %v", at/size, want.Type.Number(g), want.Type.Number(w))
	}
	return nil
}

// tolerance is what each number of an output of floats may differ by, 0 for other types.
func tolerance(want Want) float64 {
	if want.Type != tensor.FP16 && want.Type != tensor.FP32 && want.Type != tensor.FP64 {
		return 0
	}
	largest := math.SmallestNonzeroFloat64
	for at := 0; at < len(want.Data); at += want.Type.Size() {
		if v := math.Abs(want.Type.Number(want.Data[at:])); !math.IsInf(v, 0) && v > largest {
			largest = v
		}
	}
	return max(ofLargest*largest, math.SmallestNonzeroFloat64)
}

func close(got, want, moved, near float64, of tensor.Type) bool {
	if math.IsNaN(want) || math.IsInf(want, 0) {
		return math.IsNaN(want) && math.IsNaN(got) || got == want
	}
	part := ofItself
	if of == tensor.FP16 {
		part = ofHalf
	}
	noise := math.Abs(moved - want)
	if math.IsNaN(noise) || math.IsInf(noise, 0) {
		return true
	}
	return math.Abs(got-want) <= part*math.Abs(want)+near+ofMoved*noise
}

func compareStrings(got, want []byte) error {
	for i := 0; len(want) > 0; i++ {
		var g, w string
		var ok bool
		if w, want, ok = CutString(want); !ok {
			return fmt.Errorf("the reference's string %d is cut off", i)
		}
		if g, got, ok = CutString(got); !ok {
			return fmt.Errorf("string %d is cut off", i)
		}
		if g != w {
			return fmt.Errorf("string %d is %q and not %q", i, g, w)
		}
	}
	if len(got) > 0 {
		return fmt.Errorf("%d more bytes than ONNX Runtime's strings", len(got))
	}
	return nil
}

// CutString cuts the first element off data of the type BYTES.
func CutString(data []byte) (s string, rest []byte, ok bool) {
	if len(data) < 4 {
		return "", nil, false
	}
	end := 4 + uint64(binary.LittleEndian.Uint32(data))
	if uint64(len(data)) < end {
		return "", nil, false
	}
	return string(data[4:end]), data[end:], true
}

// DecodeBinary reads an answer of v2 whose outputs are binary. length is the answer's header
// of that name: how many bytes of JSON come first.
func DecodeBinary(answer []byte, length string) ([]tensor.Tensor, error) {
	at, err := strconv.Atoi(length)
	if err != nil || at < 0 || at > len(answer) {
		return nil, fmt.Errorf("the answer of %d bytes has the header length %q", len(answer), length)
	}
	var header struct {
		Outputs []struct {
			Name       string      `json:"name"`
			Type       tensor.Type `json:"datatype"`
			Shape      []int64     `json:"shape"`
			Parameters struct {
				Size int `json:"binary_data_size"`
			} `json:"parameters"`
		} `json:"outputs"`
	}
	if err := json.Unmarshal(answer[:at], &header); err != nil {
		return nil, fmt.Errorf("the answer's header: %w", err)
	}
	data := answer[at:]
	var out []tensor.Tensor
	for _, o := range header.Outputs {
		if o.Parameters.Size < 0 || o.Parameters.Size > len(data) {
			return nil, fmt.Errorf("the output %q says that it has %d bytes, of %d that are left", o.Name, o.Parameters.Size, len(data))
		}
		out = append(out, tensor.Tensor{Name: o.Name, Type: o.Type, Shape: o.Shape, Data: data[:o.Parameters.Size]})
		data = data[o.Parameters.Size:]
	}
	if len(data) > 0 {
		return nil, fmt.Errorf("%d bytes of the answer are no output's", len(data))
	}
	return out, nil
}
