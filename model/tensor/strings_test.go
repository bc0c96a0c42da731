package tensor

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

func stringsData(elements ...string) []byte {
	var data []byte
	for _, s := range elements {
		data = AppendString(data, s)
	}
	return data
}

func TestSplitStrings(t *testing.T) {
	words := Tensor{Name: "words", Type: Bytes, Shape: []int64{3, 2}, Data: stringsData("a", "", "\xff\xfe", "longer", "e", "\x00")}
	numbers := Tensor{Name: "numbers", Type: Int16, Shape: []int64{3}, Data: []byte{1, 0, 2, 0, 3, 0}}
	parts, err := Split([]Tensor{words, numbers}, []int{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]string{{"a", ""}, {"\xff\xfe", "longer", "e", "\x00"}} {
		var got []string
		for s := range Strings(parts[i][0].Data) {
			got = append(got, string(s))
		}
		if !slices.Equal(got, want) || parts[i][0].Shape[0] != int64(len(want)/2) || parts[i][0].Shape[1] != 2 {
			t.Errorf("part %d: %q of the shape %v, want %q", i, got, parts[i][0].Shape, want)
		}
	}
	if !bytes.Equal(parts[0][1].Data, []byte{1, 0}) || !bytes.Equal(parts[1][1].Data, []byte{2, 0, 3, 0}) {
		t.Errorf("numbers: %v, %v", parts[0][1].Data, parts[1][1].Data)
	}
	_ = append(parts[0][0].Data, 'x')
	if first, _, err := CutString(parts[1][0].Data); string(first) != "\xff\xfe" || err != nil {
		t.Errorf("an append to one part changed the next to %q, %v", first, err)
	}
	for want, broken := range map[string]Tensor{
		"3 rows":         {Name: "t", Type: Int16, Shape: []int64{2}, Data: make([]byte, 4)},
		"not a multiple": {Name: "t", Type: Int16, Shape: []int64{3}, Data: make([]byte, 7)},
		"bytes are left": {Name: "t", Type: Bytes, Shape: []int64{3}, Data: stringsData("a", "b")},
		"more than":      {Name: "t", Type: Bytes, Shape: []int64{3}, Data: stringsData("a", "b", "c", "d")},
	} {
		if _, err := Split([]Tensor{broken}, []int{1, 2}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// CheckStrings accepts exactly what AppendString writes.
func FuzzStrings(f *testing.F) {
	f.Add(stringsData("one", "", "\xff"), int64(3))
	f.Add(binary.LittleEndian.AppendUint32(nil, 1<<32-1), int64(1))
	f.Add([]byte{1, 0, 0}, int64(1))
	f.Add([]byte{}, int64(0))
	f.Fuzz(func(t *testing.T, data []byte, n int64) {
		if err := CheckStrings(data, n); err != nil {
			return
		}
		again, count := []byte{}, int64(0)
		for s := range Strings(data) {
			again = AppendString(again, s)
			count++
		}
		if !bytes.Equal(again, data) || count != max(n, 0) {
			t.Errorf("%d of %d elements of %x became %x", count, n, data, again)
		}
	})
}
