package tensorjson

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// TestReaderTakesWhatEncodingJSONTakes covers the grammar's corners; the fuzz
// test below looks for others.
func TestReaderTakesWhatEncodingJSONTakes(t *testing.T) {
	for _, document := range []string{
		`{}`, `[]`, ` { "a" : [ 1 , 2 ] } `, `"\u00e9\n"`, `"é"`, `-0`, `-0.0e+1`, `1E5`, `true`, `null`, `[[],{}]`,
		``, `{`, `[1,]`, `[,1]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `01`, `1.`, `.5`, `+1`, `1e`, `-`, `NaN`,
		`Infinity`, `tru`, `"`, `"\x"`, `"\`, "\"\n\"", `"\u12"`, `[1 2]`, `{} {}`, `1 1`, "\xff", "\"\xff\"", "\x00",
	} {
		same(t, []byte(document))
	}
}

func same(t *testing.T, document []byte) {
	t.Helper()
	r := &Reader{data: document}
	err := r.Skip()
	if err == nil {
		err = r.End()
	}
	if err != nil && strings.Contains(err.Error(), "nested") {
		return // encoding/json lets documents nest deeper.
	}
	if valid := json.Valid(document); valid != (err == nil) {
		t.Errorf("%q: encoding/json says valid=%v, the reader says %v", document, valid, err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(`{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1.5e-3,-0]}]}`))
	f.Add([]byte(`{"instances":[[1,2],[3,4]],"signature_name":"\u0073"}`))
	f.Add([]byte(`[[[[]]],true,false,null,"\"\\"]`))
	f.Fuzz(same)
}

func TestReaderRefusesDeepNesting(t *testing.T) {
	r := &Reader{data: []byte(strings.Repeat("[", 100_000))}
	if err := r.Skip(); err == nil || !strings.Contains(err.Error(), "nested more than 64 deep") {
		t.Errorf("got %v", err)
	}
}

func TestValuesFindTheShape(t *testing.T) {
	for _, c := range []struct {
		document string
		kind     tensor.Type
		shape    []int64
		wrong    string
	}{
		{document: `[1,2,3]`, kind: tensor.FP32, shape: []int64{3}},
		{document: `[[1,2,3],[4,5,6]]`, kind: tensor.FP64, shape: []int64{2, 3}},
		{document: `[[[1],[2]]]`, kind: tensor.Int64, shape: []int64{1, 2, 1}},
		{document: `[[],[]]`, kind: tensor.FP32, shape: []int64{2, 0}},
		{document: `[true,false]`, kind: tensor.Bool, shape: []int64{2}},
		{document: `[255]`, kind: tensor.Uint8, shape: []int64{1}},
		{document: `[-128]`, kind: tensor.Int8, shape: []int64{1}},
		{document: `[65535]`, kind: tensor.Uint16, shape: []int64{1}},
		{document: `[-9223372036854775808]`, kind: tensor.Int64, shape: []int64{1}},
		{document: `[18446744073709551615]`, kind: tensor.Uint64, shape: []int64{1}},
		{document: `[[1,2],[3]]`, kind: tensor.FP32, wrong: "not of one length"},
		{document: `[1,[2]]`, kind: tensor.FP32, wrong: "not of one length"},
		{document: `[[1],2]`, kind: tensor.FP32, wrong: "not of one length"},
		{document: `[[[1]],[2]]`, kind: tensor.FP32, wrong: "not of one length"},
		{document: `[[],[1]]`, kind: tensor.FP32, wrong: "not of one length"},
		{document: `[1e39]`, kind: tensor.FP32, wrong: "1e39 is not in the range of FP32"},
		{document: `[1e309]`, kind: tensor.FP64, wrong: "not in the range of FP64"},
		{document: `[NaN]`, kind: tensor.FP32, wrong: "not valid JSON"},
		{document: `["NaN"]`, kind: tensor.FP32, wrong: "is not a number"},
		{document: `[null]`, kind: tensor.FP32, wrong: `"null" is not a number`},
		{document: `[1.5]`, kind: tensor.Int32, wrong: "1.5 is not in the range of INT32"},
		{document: `[2147483648]`, kind: tensor.Int32, wrong: "not in the range of INT32"},
		{document: `[-1]`, kind: tensor.Uint8, wrong: "not in the range of UINT8"},
		{document: `[1]`, kind: tensor.Bool, wrong: "neither true nor false"},
		{document: `[1]`, kind: tensor.FP16, wrong: "binary extension"},
	} {
		v := NewValues(c.kind)
		err := v.Read(&Reader{data: []byte(c.document)}, 0)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s as %s: got error %v, want one with %q", c.document, c.kind, err, c.wrong)
			}
			continue
		}
		if err != nil || !slices.Equal(v.Shape, c.shape) {
			t.Errorf("%s as %s: got %v, %v, want %v", c.document, c.kind, v.Shape, err, c.shape)
		}
	}
}

// TestValuesStopAtTheLimit: what follows the first element too many is not
// even read.
func TestValuesStopAtTheLimit(t *testing.T) {
	for document, wrong := range map[string]string{`[[1,2],[3,4]]`: "", `[[1,2],[3,4],[5 no JSON`: "more than 4 elements"} {
		v := NewValues(tensor.Int64)
		v.Limit = 4
		v.Reserve(4, len(document))
		switch err := v.Read(&Reader{data: []byte(document)}, 0); {
		case wrong == "" && err != nil, wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)):
			t.Errorf("%s: got %v, want %q", document, err, wrong)
		case cap(v.Data) != 32:
			t.Errorf("%s: room for %d bytes, want 32", document, cap(v.Data))
		}
	}
	v := NewValues(tensor.Int64)
	if v.Reserve(1000, 1000); v.Data != nil {
		t.Errorf("%d bytes for 1000 elements in a text that cannot hold them", cap(v.Data))
	}
}

func TestIntoTakesSmallValuesOnly(t *testing.T) {
	var list []struct{ Name string }
	err := NewReader([]byte("["+strings.Repeat("{},", maxInto/3)+"{}]")).Into("outputs", &list)
	if err == nil || !strings.Contains(err.Error(), "outputs takes 65539 bytes; at most 65536 are taken") || list != nil {
		t.Errorf("got %v and %d elements", err, len(list))
	}
}

// TestElementsSurviveBothWays writes elements as JSON and reads them back.
func TestElementsSurviveBothWays(t *testing.T) {
	for kind, data := range map[tensor.Type][]byte{
		tensor.FP32:   floats(0, -1.5, 0.1, math.MaxFloat32, math.SmallestNonzeroFloat32, 1e21, 16777217),
		tensor.FP64:   binary.LittleEndian.AppendUint64(nil, math.Float64bits(0.1)),
		tensor.Bool:   {0, 1, 1},
		tensor.Uint8:  {0, 255},
		tensor.Int8:   {0x80, 0x7f},
		tensor.Uint16: {0xff, 0xff}, tensor.Int16: {0, 0x80},
		tensor.Uint32: {0xff, 0xff, 0xff, 0xff}, tensor.Int32: {0, 0, 0, 0x80},
		tensor.Uint64: {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		tensor.Int64:  {0, 0, 0, 0, 0, 0, 0, 0x80},
	} {
		text, err := AppendFlat(nil, tensor.Tensor{Type: kind, Data: data})
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		v := NewValues(kind)
		if err := v.Read(&Reader{data: text}, 0); err != nil || string(v.Data) != string(data) {
			t.Errorf("%s: %x became %s and then %x, %v", kind, data, text, v.Data, err)
		}
	}
}

func TestWhatJSONCannotCarry(t *testing.T) {
	for _, x := range []tensor.Tensor{
		{Type: tensor.FP32, Data: floats(float32(math.NaN()))},
		{Type: tensor.FP32, Data: floats(float32(math.Inf(-1)))},
		{Type: tensor.FP16, Data: []byte{0, 0}},
	} {
		if _, err := AppendFlat(nil, x); !errors.Is(err, ErrNotJSON) {
			t.Errorf("%s %x: got %v", x.Type, x.Data, err)
		}
	}
}

func floats(of ...float32) []byte {
	var out []byte
	for _, f := range of {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(f))
	}
	return out
}

func BenchmarkValues(b *testing.B) {
	document := []byte("[" + strings.Repeat("0.12345678,", 224*224*3-1) + "0.5]")
	b.SetBytes(int64(len(document)))
	for b.Loop() {
		v := NewValues(tensor.FP32)
		v.Reserve(224*224*3, len(document))
		if err := v.Read(&Reader{data: document}, 0); err != nil {
			b.Fatal(err)
		}
	}
}
