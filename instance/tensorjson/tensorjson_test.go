package tensorjson

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
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

// slowly reads a document element by element, as numbers does what is unusual.
func slowly(kind tensor.Type, document []byte) (data []byte, err error) {
	v := NewValues(kind)
	v.leaf = 1
	r := &Reader{data: document}
	err = r.Array(func() error { return v.element(r) })
	return v.Data, err
}

// FuzzNumbers checks that arrays read in one pass have exactly the bits that strconv gives.
func FuzzNumbers(f *testing.F) {
	for _, document := range []string{
		`[1,2,3]`, `[ 0.1 , -0.25e-3,1E5 ]`, `[-0]`, `[16777217]`, `[0.12345678359270096,1.17549435e-38,3.4028236e38]`, `[00]`, `[1.]`, `[-]`, `[1e]`, `[1 2]`,
		`[12345678]`, `[123456789012345678901]`, `[0.000000000000000000000012345678901234567890]`, `[255,256,-129]`, `[1,"2"]`, `[1,[2]]`, `[1,`, `[9223372036854775808]`,
		`[0.12345678901234567, -1.1234567890123456,9.123456789012345678,-0.1234567890123456789]`, `[-0.5, 0.25,x,0.1234567890123456789]`,
		`[-0.0,00.5,0.5.5,0.5e3,-.5,0.,1.25]                             `, `[9.99999999999999999,9.999999999999999999,0.999999999999999999]      `,
	} {
		f.Add([]byte(document))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		for _, kind := range []tensor.Type{tensor.FP32, tensor.FP64, tensor.Int64, tensor.Int8, tensor.Uint32, tensor.Uint64} {
			if r := NewReader(document); r.Peek() != '[' || !NewValues(kind).flat(r) {
				return
			}
			want, wrong := slowly(kind, document)
			v := NewValues(kind)
			err := v.Read(NewReader(document), 0)
			if (err == nil) != (wrong == nil) || err == nil && string(v.Data) != string(want) {
				t.Errorf("%s as %s: %x, %v; want %x, %v", document, kind, v.Data, err, want, wrong)
			}
		}
	})
}

// TestNumbersAreExact covers numbers of all sizes, as encoders write them, and those near the
// midpoint of two float32.
func TestNumbersAreExact(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var texts []string
	for range 200_000 {
		f := math.Float32frombits(random.Uint32())
		if f != f || math.IsInf(float64(f), 0) {
			continue
		}
		middle := (float64(f) + float64(math.Nextafter32(f, 0))) / 2
		texts = append(texts, strconv.FormatFloat(float64(f), 'g', -1, 64), strconv.FormatFloat(float64(f), 'f', 8, 64),
			strconv.FormatFloat(random.Float64(), 'g', 17, 64), strconv.FormatFloat(middle, 'g', -1, 64), strconv.FormatFloat(math.Nextafter(middle, 2), 'e', 18, 64))
	}
	document := "[" + strings.Join(texts, ",") + "]"
	for _, kind := range []tensor.Type{tensor.FP32, tensor.FP64} {
		v := NewValues(kind)
		if err := v.Read(NewReader([]byte(document)), 0); err != nil {
			t.Fatal(err)
		}
		size := kind.Size()
		for i, text := range texts {
			want, _ := slowly(kind, []byte("["+text+"]"))
			if got := v.Data[i*size : (i+1)*size]; string(got) != string(want) {
				t.Fatalf("%s as %s: %x, not %x", text, kind, got, want)
			}
		}
	}
}

// Extent consumes the same bytes as Raw if the document is valid JSON.
func TestExtent(t *testing.T) {
	for _, document := range []string{`[1,2] ,`, ` [[1],[2,[3]]]]`, `[]`, `["]",1]]`, `{"a":[1]}]`, `[[1],"]"]`, `3,`, `[1`, `[[1]`, ``} {
		want, wrong := NewReader([]byte(document)).Raw()
		r := NewReader([]byte(document))
		if got, err := r.Extent(); string(got) != string(want) || (err == nil) != (wrong == nil) {
			t.Errorf("%s: %s, %v; want %s, %v", document, got, err, want, wrong)
		}
	}
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
		{document: `[[1,2],[3]]`, kind: tensor.FP32, wrong: "differ in length or depth"},
		{document: `[1,[2]]`, kind: tensor.FP32, wrong: "differ in length or depth"},
		{document: `[[1],2]`, kind: tensor.FP32, wrong: "differ in length or depth"},
		{document: `[[[1]],[2]]`, kind: tensor.FP32, wrong: "differ in length or depth"},
		{document: `[[],[1]]`, kind: tensor.FP32, wrong: "differ in length or depth"},
		{document: `[1e39]`, kind: tensor.FP32, wrong: "1e39 is not in the range of FP32"},
		{document: `[1e309]`, kind: tensor.FP64, wrong: "not in the range of FP64"},
		{document: `[NaN]`, kind: tensor.FP32, wrong: "not valid JSON"},
		{document: `["NaN"]`, kind: tensor.FP32, wrong: "is not a number"},
		{document: `[null]`, kind: tensor.FP32, wrong: `"null" is not a number`},
		{document: `[1.5]`, kind: tensor.Int32, wrong: "1.5 is not written as an integer, as INT32 needs it"},
		{document: `[1.0]`, kind: tensor.Int64, wrong: "1.0 is not written as an integer, as INT64 needs it"},
		{document: `[1e2]`, kind: tensor.Uint8, wrong: "1e2 is not written as an integer"},
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

// TestValuesStopAtTheLimit checks that nothing after the first element above the limit is
// read.
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
	if err == nil || !strings.Contains(err.Error(), "outputs has 65539 bytes; the maximum is 65536") || list != nil {
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

// Numbers as encoders write them: a float32 in short, one that Python holds as a float64, and
// small whole ones.
func BenchmarkValues(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, next := range map[string]func() string{
		"float32": func() string { return strconv.FormatFloat(float64(random.Float32()), 'g', -1, 32) },
		"float64": func() string { return strconv.FormatFloat(float64(random.Float32()), 'g', -1, 64) },
		"whole":   func() string { return strconv.Itoa(random.IntN(256)) },
		"signed":  func() string { return strconv.FormatFloat(random.NormFloat64(), 'g', 8, 32) },
	} {
		const n = 224 * 224 * 3
		texts := make([]string, n)
		for i := range texts {
			texts[i] = next()
		}
		document := []byte("[" + strings.Join(texts, ",") + "]")
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(document)))
			for b.Loop() {
				v := NewValues(tensor.FP32)
				v.Reserve(n, len(document))
				if err := v.Read(NewReader(document), 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The errors of values are in JSON's words, not in Go's.
func TestIntoSaysWhatBelongsThere(t *testing.T) {
	for document, want := range map[string]string{
		`[1, 1.0]`: "the shape has the number 1.0, where an integer belongs", `"x"`: "the shape has the string, where a list belongs",
		`[[1]]`: "the shape has the array, where an integer belongs", `{}`: "the shape has the object, where a list belongs", `[true]`: "the shape has the bool, where an integer belongs",
	} {
		var shape []int64
		if err := (&Reader{data: []byte(document)}).Into("the shape", &shape); err == nil || err.Error() != want {
			t.Errorf("%s: %v", document, err)
		}
	}
	var parameters map[string]any
	if err := (&Reader{data: []byte("[]")}).Into("parameters", &parameters); err == nil || !strings.Contains(err.Error(), "an object belongs") {
		t.Error(err)
	}
}

// FuzzInto checks that the values that are read without encoding/json become what that makes of them.
func FuzzInto(f *testing.F) {
	for _, document := range []string{`"FP32"`, `"\u0073"`, `"ü"`, `[1,28, 28]`, `[]`, `[-1,0]`, `[1.0]`, `[1e2]`, `[9223372036854775807]`, `[01]`, `[-]`, `null`, `"a`, "\"\x7f\"", "[1,", `[1]]`} {
		f.Add([]byte(document))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		check := func(got, want any) {
			r := NewReader(document)
			err := r.Into("it", got)
			if err == nil {
				err = r.End()
			}
			wrong := json.Unmarshal(document, want)
			if len(document) <= maxInto && (err == nil) != (wrong == nil) || err == nil && !reflect.DeepEqual(got, want) {
				t.Errorf("%q: %v, %v; want %v, %v", document, got, err, want, wrong)
			}
		}
		check(new(string), new(string))
		check(new(tensor.Type), new(tensor.Type))
		check(new([]int64), new([]int64))
	})
}
