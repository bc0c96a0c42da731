package cuda

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// A batch runs on the sizes that are ready: a size is at least half full, and all rows are in
// one of the runs.
func TestParts(t *testing.T) {
	for _, c := range []struct {
		ready []int
		rows  int
		want  []int
	}{
		{[]int{1}, 3, []int{1, 1, 1}},
		{[]int{1, 8}, 8, []int{8}},
		{[]int{1, 8}, 4, []int{8}},
		{[]int{1, 8}, 3, []int{1, 1, 1}},
		{[]int{1, 2, 4, 8}, 3, []int{4}},
		{[]int{1, 2, 4}, 7, []int{4, 4}},
		{[]int{1, 4, 32}, 9, []int{4, 4, 1}},
		{[]int{8}, 3, []int{8}},
		{[]int{8}, 9, []int{8, 8}},
	} {
		if got := parts(c.ready, c.rows); !slices.Equal(got, c.want) {
			t.Errorf("%d rows with %v: %v, want %v", c.rows, c.ready, got, c.want)
		}
	}
	for rows := 1; rows <= 64; rows++ {
		room := 0
		for _, size := range parts([]int{1, 2, 16, 32, 64}, rows) {
			if room >= rows {
				t.Errorf("%d rows: a run without rows", rows)
			}
			room += size
		}
		if room < rows {
			t.Errorf("%d rows in runs of %d", rows, room)
		}
	}
}

// The parts of a batch, put together, are the batch.
func TestRowsOf(t *testing.T) {
	whole := []tensor.Tensor{
		{Name: "a", Type: tensor.Uint8, Shape: []int64{3, 2}, Data: []byte{1, 2, 3, 4, 5, 6}},
		{Name: "b", Type: tensor.Uint16, Shape: []int64{3}, Data: []byte{1, 0, 2, 0, 3, 0}},
	}
	var all []tensor.Tensor
	for _, part := range [][2]int{{0, 2}, {2, 1}} {
		some := rowsOf(whole, part[0], part[1])
		for i := range some {
			some[i].Data = bytes.Clone(some[i].Data) // As an engine's outputs.
		}
		all = joined(all, some)
	}
	for i, want := range whole {
		if got := all[i]; !slices.Equal(got.Shape, want.Shape) || !bytes.Equal(got.Data, want.Data) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	if whole[0].Shape[0] != 3 {
		t.Error("the batch itself changed")
	}
}

// Places are aligned and do not overlap. join pads a batch with zeros.
func TestLayout(t *testing.T) {
	l := place([]int{300, 4, 256})
	if !slices.Equal(l.offsets, []int{0, 512, 768}) || l.size != 1024 {
		t.Errorf("%+v", l)
	}
	region := bytes.Repeat([]byte{9}, 1024)
	join(region, l, []tensor.Tensor{{Data: []byte{1, 2}}, {Data: []byte{3, 4, 5, 6}}, {Data: bytes.Repeat([]byte{7}, 256)}})
	if !bytes.Equal(region[:4], []byte{1, 2, 0, 0}) || region[299] != 0 || region[300] != 9 || !bytes.Equal(region[512:516], []byte{3, 4, 5, 6}) || region[1023] != 7 {
		t.Errorf("%v", region)
	}
	if got := Buckets(6); !slices.Equal(got, []int{1, 2, 4, 6}) || bucketFor(got, 5) != 6 || bucketFor(got, 2) != 2 {
		t.Errorf("buckets %v", got)
	}
	if got := Buckets(1); !slices.Equal(got, []int{1}) {
		t.Errorf("buckets %v", got)
	}
}

// Only models with convolutions have plans of one batch size. A file that cannot be read has
// them, too.
func TestPlans(t *testing.T) {
	for name, want := range map[string]bool{"mnist": true, "mobilenet": true, "bert-small": false, "lstm-2365": false} {
		file, _ := zooFile(t, name)
		if plans(file) != want {
			t.Errorf("%s has plans: %t", name, !want)
		}
	}
	if !plans(filepath.Join(t.TempDir(), "none.onnx")) {
		t.Error("a missing file has no plans")
	}
}
