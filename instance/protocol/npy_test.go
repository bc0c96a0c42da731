package protocol

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// file is a .npy file of version 1 with any header.
func file(header, data string) []byte {
	return []byte(magic + "\x01\x00" + string([]byte{byte(len(header)), byte(len(header) >> 8)}) + header + data)
}

func TestDecode(t *testing.T) {
	for header, want := range map[string]tensor.Tensor{
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }\n": {Type: tensor.FP32, Shape: []int64{1, 2}},
		"{'descr': '<i8', 'fortran_order': True, 'shape': (1,), }":      {Type: tensor.Int64, Shape: []int64{1}},
		"{'descr': '<f8', 'fortran_order': False, 'shape': (), }":       {Type: tensor.FP64, Shape: []int64{}},
		`{"shape": (2,2,2), "fortran_order": False, "descr": "|u1"}`:    {Type: tensor.Uint8, Shape: []int64{2, 2, 2}},
		"{'descr': '|b1', 'fortran_order': False, 'shape': (8L,), }":    {Type: tensor.Bool, Shape: []int64{8}},
		"{'descr': '>i1', 'fortran_order': False, 'shape': (8,), }":     {Type: tensor.Int8, Shape: []int64{8}},
	} {
		want.Data = []byte("12345678")
		if got, err := DecodeNPY(file(header, "12345678")); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v; want %+v", header, got, err, want)
		}
	}
}

func TestDecodeNPYRefuses(t *testing.T) {
	head := func(descr, fortran, shape string) []byte {
		return file("{'descr': '"+descr+"', 'fortran_order': "+fortran+", 'shape': ("+shape+"), }", "12345678")
	}
	for name, c := range map[string]struct {
		file []byte
		why  string
	}{
		"nothing":       {nil, "not a .npy file"},
		"only magic":    {[]byte(magic), "not a .npy file"},
		"version":       {[]byte(magic + "\x04\x00abcdefgh"), "version 4"},
		"long header":   {[]byte(magic + "\x02\x00\xff\xff\xff\xff"), "header says that it has"},
		"cut header":    {file("{'descr'", "")[:12], "header says that it has"},
		"no descr":      {file("{'fortran_order': False, 'shape': (8,), }", "12345678"), "must have descr"},
		"records":       {file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "12345678"), "arrays of records"},
		"big endian":    {head(">f4", "False", "2,"), `save array.astype("<f4")`},
		"strings":       {head("<U2", "False", "1,"), "which no model takes"},
		"objects":       {head("|O", "False", "1,"), "which no model takes"},
		"column order":  {head("<f4", "True", "1, 2"), "numpy.ascontiguousarray"},
		"too short":     {head("<f4", "False", "3,"), "takes 12 bytes, but 8 follow"},
		"too long":      {head("<f4", "False", "1,"), "takes 4 bytes, but 8 follow"},
		"negative":      {head("<f4", "False", "-2,"), "which is invalid"},
		"overflow":      {head("<f8", "False", "4611686018427387904, 4"), "too large"},
		"no number":     {head("<f4", "False", "two"), "which is invalid"},
		"empty descr":   {head("", "False", "2,"), "empty descr"},
		"unknown order": {head("xf4", "False", "2,"), "which no model takes"},
	} {
		if _, err := DecodeNPY(c.file); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.why)
		}
	}
}

func TestAppendRoundTrips(t *testing.T) {
	for _, kind := range kinds {
		for _, shape := range [][]int64{{}, {3}, {2, 3}, {1, 2, 3, 4}, {0, 5}} {
			n, err := tensor.Elements(shape)
			if err != nil {
				t.Fatal(err)
			}
			want := tensor.Tensor{Type: kind, Shape: shape, Data: bytes.Repeat([]byte{7}, int(n)*kind.Size())}
			out, err := AppendNPY([]byte{}, want)
			if err != nil {
				t.Fatal(err)
			}
			got, err := DecodeNPY(out)
			if err != nil || got.Type != want.Type || !reflect.DeepEqual(got.Shape, want.Shape) || !bytes.Equal(got.Data, want.Data) {
				t.Errorf("%s %v: got %+v, %v", kind, shape, got, err)
			}
			if (len(out)-len(want.Data))%alignment != 0 {
				t.Errorf("%s %v: the elements begin at byte %d", kind, shape, len(out)-len(want.Data))
			}
		}
	}
	if _, err := AppendNPY(nil, tensor.Tensor{Type: "BYTES"}); err == nil {
		t.Error("BYTES are written")
	}
}

func FuzzDecodeNPY(f *testing.F) {
	f.Add(file("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }\n", "12345678"))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := DecodeNPY(body)
		if err != nil {
			return
		}
		if n, err := tensor.Elements(got.Shape); err != nil || n*int64(got.Type.Size()) != int64(len(got.Data)) {
			t.Errorf("%v of %s with %d bytes", got.Shape, got.Type, len(got.Data))
		}
	})
}
