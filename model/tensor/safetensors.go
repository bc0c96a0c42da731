package tensor

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
)

// maxSafetensorsHeader is the maximum size in bytes of the description in a safetensors file, as the format has it.
const maxSafetensorsHeader = 100_000_000

// safetensorsTypes are the format's names of types.
var safetensorsTypes = map[string]Type{
	"BOOL": Bool, "U8": Uint8, "I8": Int8, "I16": Int16, "U16": Uint16, "I32": Int32, "U32": Uint32, "I64": Int64,
	"U64": Uint64, "F16": FP16, "BF16": BF16, "F32": FP32, "F64": FP64,
}

// ReadSafetensors reads the tensors of a safetensors file: the length of a description in JSON, the description, and
// the elements. The tensors' data are parts of the file.
func ReadSafetensors(file []byte) (map[string]Tensor, error) {
	if len(file) < 8 {
		return nil, fmt.Errorf("it has %d bytes; a safetensors file begins with a length of 8 bytes", len(file))
	}
	n, rest := binary.LittleEndian.Uint64(file), file[8:]
	if n > uint64(len(rest)) || n > maxSafetensorsHeader {
		return nil, fmt.Errorf("its description has %d bytes, and the file %d; it is no safetensors file", n, len(file))
	}
	var described map[string]json.RawMessage
	if err := json.Unmarshal(rest[:n], &described); err != nil {
		return nil, fmt.Errorf("its description: %w", err)
	}
	data, tensors := rest[n:], map[string]Tensor{}
	for name, raw := range described {
		if strings.HasPrefix(name, "__") { // __metadata__
			continue
		}
		var d struct {
			Type    string    `json:"dtype"`
			Shape   []int64   `json:"shape"`
			Offsets [2]uint64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(raw, &d); err != nil {
			return nil, fmt.Errorf("its tensor %s: %w", name, err)
		}
		t := Tensor{Name: name, Type: safetensorsTypes[d.Type], Shape: d.Shape}
		if t.Type == "" {
			return nil, fmt.Errorf("its tensor %s has the type %q, which is not known", name, d.Type)
		}
		elements, err := Elements(d.Shape)
		if err != nil {
			return nil, fmt.Errorf("its tensor %s: %w", name, err)
		}
		from, to := d.Offsets[0], d.Offsets[1]
		if from > to || to > uint64(len(data)) || to-from != uint64(elements)*uint64(t.Type.Size()) {
			return nil, fmt.Errorf("its tensor %s has the bytes %d to %d of %d; they do not fit its shape %v", name, from, to,
				len(data), d.Shape)
		}
		t.Data = data[from:to]
		tensors[name] = t
	}
	return tensors, nil
}
