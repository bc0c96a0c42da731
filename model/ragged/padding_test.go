package ragged

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/tensor"
)

func info(name string, kind tensor.Type, shape ...int64) tensor.Info {
	return tensor.Info{Name: name, Type: kind, Shape: shape}
}

func TestMaskOf(t *testing.T) {
	ids, mask := info("input_ids", tensor.Int64, -1, -1), info("attention_mask", tensor.Int64, -1, -1)
	for _, c := range []struct {
		inputs []tensor.Info
		mask   int
		why    string
	}{
		{[]tensor.Info{ids, mask}, 1, ""},
		{[]tensor.Info{mask, ids, info("token_type_ids", tensor.Int32, -1, -1)}, 0, ""},
		{nil, -1, ""},
		{[]tensor.Info{info("x", tensor.FP32, -1, -1)}, -1, ""},
		{[]tensor.Info{info("input_ids", tensor.Int64, -1, 128), mask}, -1, ""},
		{[]tensor.Info{ids}, -1, "no input is a mask"},
		{[]tensor.Info{mask}, -1, "no input is a mask"},
		{[]tensor.Info{ids, mask, info("x", tensor.FP32, -1, 3)}, -1, `input "x"`},
		{[]tensor.Info{ids, mask, info("decoder_mask", tensor.Int64, -1, -1)}, -1, "both"},
		{[]tensor.Info{ids, {Name: "attention_mask", Type: tensor.Int64, Shape: []int64{-1, -1}, Edge: &tensor.Edge{}}}, -1, "attention_mask"},
	} {
		mask, why := MaskOf(c.inputs)
		if mask != c.mask || (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%v: %d %q, want %d %q", c.inputs, mask, why, c.mask, c.why)
		}
	}
}

func numbers(name string, shape []int64, values ...uint32) tensor.Tensor {
	t := tensor.Tensor{Name: name, Type: tensor.Int32, Shape: shape}
	for _, v := range values {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, v)
	}
	return t
}

// Rows whose mask leaves nothing to see somewhere, or that is no mask, are not padded.
func TestLength(t *testing.T) {
	p := Padding{Mask: 1}
	for _, c := range []struct {
		rows int64
		mask []uint32
		want int
	}{
		{1, []uint32{1, 1, 1}, 3}, {1, []uint32{1, 0, 1}, 3}, {1, []uint32{0, 1, 1}, 0}, {1, []uint32{1, 2, 1}, 0},
		{2, []uint32{1, 1, 1, 0}, 2}, {2, []uint32{1, 1, 0, 1}, 0}, {1, nil, 0},
	} {
		shape := []int64{c.rows, int64(len(c.mask)) / c.rows}
		inputs := []tensor.Tensor{numbers("ids", shape, c.mask...), numbers("mask", shape, c.mask...)}
		if got := p.Length(inputs); got != c.want {
			t.Errorf("%v in %d rows: %d, want %d", c.mask, c.rows, got, c.want)
		}
	}
	if p.Length([]tensor.Tensor{numbers("ids", []int64{1, 2}, 1, 1), numbers("mask", []int64{1, 1}, 1)}) != 0 {
		t.Error("inputs of different lengths are padded")
	}
}

// Every row of a run gets back what it had in each output, whatever was behind its end.
func FuzzPadding(f *testing.F) {
	f.Add([]byte{3, 1, 5}, uint8(2))
	f.Fuzz(func(t *testing.T, lengths []byte, width uint8) {
		lengths, w := lengths[:min(len(lengths), 6)], 1+int(width%3)
		var rows []Row
		for at, n := range lengths {
			lengths[at] = 1 + n%9
			values := make([]uint32, 2*lengths[at])
			for i := range values {
				values[i] = uint32(100*at + i + 1)
			}
			rows = append(rows, Row{[]tensor.Tensor{numbers("x", []int64{2, int64(lengths[at])}, values...)}, at % 2})
		}
		if len(rows) == 0 {
			return
		}
		dirty := func(size int) []byte { return slices.Repeat([]byte{0xff}, size) }
		in := Join(rows, dirty)[0]
		n, longest := len(rows), int(in.Shape[1])
		own := func(row, at int) uint32 { return binary.LittleEndian.Uint32(in.Data[4*(row*longest+at):]) }
		tokens, pairs, whole := make([]uint32, 0), make([]uint32, 0), make([]uint32, 0)
		for row := range n {
			for i := range longest {
				if i >= int(lengths[row]) && own(row, i) != 0 {
					t.Fatalf("row %d is filled up with %d", row, own(row, i))
				}
				tokens = append(tokens, slices.Repeat([]uint32{own(row, i)}, w)...)
				for k := range longest {
					pairs = append(pairs, own(row, i)<<16|own(row, k))
				}
			}
			whole = append(whole, uint32(row))
		}
		outputs := []tensor.Tensor{
			numbers("tokens", []int64{int64(n), int64(longest), int64(w)}, tokens...),
			numbers("pairs", []int64{int64(n), int64(longest), int64(longest)}, pairs...),
			numbers("whole", []int64{int64(n)}, whole...),
		}
		p := Padding{Axes: [][]int{{1}, {1, 2}, {}}}
		for row, r := range rows {
			length := r.Length()
			got, err := p.Row(outputs, row, length)
			if err != nil {
				t.Fatal(err)
			}
			var wantTokens, wantPairs []uint32
			for i := range length {
				wantTokens = append(wantTokens, slices.Repeat([]uint32{own(row, i)}, w)...)
				for k := range length {
					wantPairs = append(wantPairs, own(row, i)<<16|own(row, k))
				}
			}
			for i, want := range []tensor.Tensor{
				numbers("tokens", []int64{1, int64(length), int64(w)}, wantTokens...),
				numbers("pairs", []int64{1, int64(length), int64(length)}, wantPairs...),
				numbers("whole", []int64{1}, uint32(row)),
			} {
				if !slices.Equal(got[i].Shape, want.Shape) || !slices.Equal(got[i].Data, want.Data) {
					t.Fatalf("row %d: %+v, want %+v", row, got[i], want)
				}
			}
		}
	})
}

// The rows of a request come one after another. Joining them leaves the run's outputs as they are.
func TestExtend(t *testing.T) {
	p, run := Padding{Axes: [][]int{{1}}}, numbers("y", []int64{3, 2}, 1, 2, 3, 4, 5, 6)
	before := slices.Clone(run.Data)
	var all []tensor.Tensor
	for at := range 2 {
		row, err := p.Row([]tensor.Tensor{run}, at, 1)
		if err != nil {
			t.Fatal(err)
		}
		all = Extend(all, row)
	}
	want := numbers("y", []int64{2, 1}, 1, 3)
	if !slices.Equal(all[0].Shape, want.Shape) || !slices.Equal(all[0].Data, want.Data) || !slices.Equal(run.Data, before) {
		t.Errorf("%+v of %v, want %+v", all[0], run.Data, want)
	}
	if _, err := p.Row([]tensor.Tensor{run}, 0, 3); err == nil {
		t.Error("an output shorter than the row is cut")
	}
}
