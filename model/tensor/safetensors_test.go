package tensor

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// safetensors is a file with a description and data.
func safetensors(described, data string) []byte {
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(described))), described...), data...)
}

func TestReadSafetensors(t *testing.T) {
	file := safetensors(`{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[2,10]},"b":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}`,
		"\x80\x3f\x00\x00\x80\x3f\x00\x00\x00\x40")
	all, err := ReadSafetensors(file)
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	w, b := all["w"], all["b"]
	if got := w.Type.AppendFloats(nil, w.Data); !slices.Equal(got, []float32{1, 2}) || !slices.Equal(w.Shape, []int64{1, 2}) {
		t.Errorf("w is %v of %v", got, w.Shape)
	}
	if got := b.Type.AppendFloats(nil, b.Data); !slices.Equal(got, []float32{1}) {
		t.Errorf("b is %v", got)
	}
	for why, file := range map[string][]byte{
		"it has 3 bytes":           []byte("abc"),
		"it is no safetensors":     []byte("PK\x03\x04 something else"),
		"its description":          safetensors("{", ""),
		`type "F4"`:                safetensors(`{"w":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}}`, "x"),
		"do not fit its shape [2]": safetensors(`{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, "xxxx"),
		"the bytes 0 to 4 of 3":    safetensors(`{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, "xxx"),
		"negative":                 safetensors(`{"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, "xxxx"),
	} {
		if _, err := ReadSafetensors(file); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v does not say %q", err, why)
		}
	}
}

func FuzzReadSafetensors(f *testing.F) {
	f.Add(safetensors(`{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, "xxxx"))
	f.Fuzz(func(t *testing.T, file []byte) {
		all, err := ReadSafetensors(file)
		for name, x := range all {
			if n, failed := Elements(x.Shape); err != nil || failed != nil || int(n)*x.Type.Size() != len(x.Data) {
				t.Errorf("%s: %v of %d bytes, %v", name, x.Shape, len(x.Data), failed)
			}
		}
	})
}
