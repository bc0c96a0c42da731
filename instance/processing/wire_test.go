package processing

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/tensor"
)

func TestShapes(t *testing.T) {
	for _, c := range []struct {
		shape      []int64
		kind       tensor.Type
		rows, size int
		want       []int64
	}{
		{[]int64{-1, 4}, tensor.FP32, 3, 48, []int64{3, 4}},
		{[]int64{-1}, tensor.Int64, 2, 16, []int64{2}},
		{[]int64{-1, -1}, tensor.Uint8, 2, 10, []int64{2, 5}},
		{[]int64{-1, -1, 3}, tensor.FP16, 2, 24, []int64{2, 2, 3}},
		{[]int64{-1, -1}, tensor.Uint8, 2, 9, nil},
		{[]int64{-1, -1}, tensor.Uint8, 2, 0, nil},
		{[]int64{-1, 4}, tensor.FP32, 3, 47, nil},
		{[]int64{-1, 4}, tensor.FP32, 2, 48, nil},
	} {
		got, err := shapeOf(tensor.Info{Name: "x", Type: c.kind, Shape: c.shape}, c.rows, c.size)
		if !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
		if c.shape[0] != -1 {
			t.Errorf("the signature became %v", c.shape)
		}
	}
	two := []tensor.Info{{Name: "x", Type: tensor.FP32, Shape: []int64{-1, -1, -1}}}
	words := []tensor.Info{{Name: "words", Type: tensor.Bytes, Shape: []int64{-1}}}
	if err := checkOpen(words); err == nil || !strings.Contains(err.Error(), `"words" has elements of BYTES`) {
		t.Errorf("strings: %v", err)
	}
	if err := checkOpen(two); err == nil || !strings.Contains(err.Error(), "at most one dynamic dimension") {
		t.Errorf("%v", err)
	}
}

func message(head string, data string) []byte {
	return append(append(binary.LittleEndian.AppendUint32(nil, uint32(len(head))), head...), data...)
}

func TestAnswersThatAreNone(t *testing.T) {
	for _, c := range []struct {
		text []byte
		want error
	}{
		{nil, io.EOF},
		{[]byte{1, 0}, io.ErrUnexpectedEOF},
		{[]byte{255, 255, 255, 255}, errNonsense},
		{message("{", ""), errNonsense},
		{message(`{"tensors":[{"name":"x","datatype":"FP32","size":-1}]}`, ""), errNonsense},
		{message(`{"tensors":[{"name":"x","size":1073741824},{"name":"y","size":1}]}`, ""), errNonsense},
		{message(`{"tensors":[{"name":"x","size":1073741824}]}`, "too little"), io.ErrUnexpectedEOF},
	} {
		if _, _, err := receive(bytes.NewReader(c.text)); !errors.Is(err, c.want) {
			t.Errorf("%q: %v, want %v", c.text, err, c.want)
		}
	}
}

// FuzzReceive checks that everything a program sends becomes an answer or an error, and that
// the tensors of an answer have the size of their shape.
func FuzzReceive(f *testing.F) {
	f.Add(message(`{"tensors":[{"name":"x","datatype":"FP32","size":16}]}`, strings.Repeat("a", 16)))
	f.Add(message(`{"error":"no"}`, ""))
	f.Add(message(`{"tensors":[{"name":"x","datatype":"FP32","size":99}]}`, "a"))
	wanted := []tensor.Info{{Name: "x", Type: tensor.FP32, Shape: []int64{-1, -1}}}
	f.Fuzz(func(t *testing.T, text []byte) {
		h, data, err := receive(bytes.NewReader(text))
		if err != nil {
			return
		}
		out, err := fit(wanted, 2, h, data)
		if err != nil {
			return
		}
		n, err := tensor.Elements(out[0].Shape)
		if err != nil || int(n)*4 != len(out[0].Data) || out[0].Shape[0] != 2 {
			t.Errorf("%v with %d bytes, %v", out[0].Shape, len(out[0].Data), err)
		}
	})
}

// A message of any size is read as it was sent.
func TestSendAndReceive(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 3<<20) // More than is taken at once.
	var wire bytes.Buffer
	if err := send(&wire, pre, 3, []tensor.Tensor{{Name: "x", Type: tensor.Uint8, Shape: []int64{3}, Data: []byte("abc")}, {Name: "y", Type: tensor.Uint8, Data: large}}); err != nil {
		t.Fatal(err)
	}
	h, data, err := receive(&wire)
	if err != nil || h.Call != pre || h.Rows != 3 || string(data[0]) != "abc" || !bytes.Equal(data[1], large) || wire.Len() != 0 {
		t.Errorf("%+v, %v", h, err)
	}
}
