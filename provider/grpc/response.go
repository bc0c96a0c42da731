package grpc

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/faas-infer/faas-infer/instance/tensorjson"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// lengthHeader is the header of the binary tensor extension: the length in bytes of the JSON part.
const lengthHeader = "Inference-Header-Content-Length"

// answerHead is the JSON part of an inference answer.
type answerHead struct {
	Model, Version, ID string
	Parameters         map[string]json.RawMessage
	Outputs            []answerOutput
}

// answerOutput is an output in the JSON part. Data is nil if it follows in binary form.
type answerOutput struct {
	Name, Datatype string
	Shape          []int64
	Parameters     map[string]json.RawMessage
	Data           json.RawMessage
}

// parse reads the JSON part of an answer. encoding/json took an eighth of the processor time of a call.
func (a *answerHead) parse(text []byte) error {
	r := tensorjson.NewReader(text)
	err := r.Object(func(key string) (err error) {
		switch key {
		case "model_name":
			a.Model, err = readString(r)
		case "model_version":
			a.Version, err = readString(r)
		case "id":
			a.ID, err = readString(r)
		case "parameters":
			a.Parameters, err = readParameters(r)
		case "outputs":
			err = readList(r, func() error {
				a.Outputs = append(a.Outputs, answerOutput{})
				return a.Outputs[len(a.Outputs)-1].parse(r)
			})
		default:
			err = r.Skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.End()
}

func (o *answerOutput) parse(r *tensorjson.Reader) error {
	return r.Object(func(key string) (err error) {
		switch key {
		case "name":
			o.Name, err = readString(r)
		case "datatype":
			o.Datatype, err = readString(r)
		case "shape":
			err = readList(r, func() error {
				text, err := r.Raw()
				if err != nil {
					return err
				}
				n, err := strconv.ParseInt(string(text), 10, 64)
				o.Shape = append(o.Shape, n)
				return err
			})
		case "parameters":
			o.Parameters, err = readParameters(r)
		case "data":
			o.Data, err = r.Raw()
		default:
			err = r.Skip()
		}
		return err
	})
}

// readString reads a string; null stands for an empty one.
func readString(r *tensorjson.Reader) (s string, err error) {
	text, err := r.Raw()
	if err != nil {
		return "", err
	}
	if plain := bytes.Trim(text, `"`); len(plain) == len(text)-2 && isPlainText(plain) {
		return string(plain), nil
	}
	return s, json.Unmarshal(text, &s)
}

// isPlainText reports whether the text of a JSON string is the string.
func isPlainText(text []byte) bool {
	for _, b := range text {
		if b >= utf8.RuneSelf || b == '\\' {
			return false
		}
	}
	return true
}

// readList reads a list; null stands for an empty one.
func readList(r *tensorjson.Reader, element func() error) error {
	if r.Peek() == 'n' {
		return r.Skip()
	}
	return r.Array(element)
}

// readParameters reads an object; null stands for an empty one.
func readParameters(r *tensorjson.Reader) (map[string]json.RawMessage, error) {
	if r.Peek() == 'n' {
		return nil, r.Skip()
	}
	all := map[string]json.RawMessage{}
	err := r.Object(func(key string) (err error) {
		all[key], err = r.Raw()
		return err
	})
	return all, err
}

// response is a ModelInferResponse: head, and raw tensors after it, which alias the answer.
type response struct {
	head []byte
	raw  [][]byte
}

// size is the length of the message.
func (r *response) size() int {
	size := len(r.head)
	for _, raw := range r.raw {
		size += protowire.SizeTag(6) + protowire.SizeBytes(len(raw))
	}
	return size
}

// parseResponse reads an inference answer over HTTP, which keeps what is made of it. typed: the outputs get typed
// contents, unless one of them has a datatype without. final adds the parameter with which Triton ends the answers to a
// request of a stream.
func parseResponse(a *answer, body []byte, typed, final bool) (*response, error) {
	text := body
	if length := a.header.Get(lengthHeader); length != "" {
		n, err := strconv.Atoi(length)
		if err != nil || n < 0 || n > len(body) {
			return nil, &status{code: internal, text: "the function's answer has a wrong " + lengthHeader}
		}
		text, body = body[:n], body[n:]
	} else {
		body = nil
	}
	if len(text) > smallTensor {
		if err := a.keep(objectsSize(text)); err != nil {
			return nil, err
		}
	}
	var head answerHead
	if err := head.parse(text); err != nil {
		return nil, &status{code: internal, text: fmt.Sprintf("the function's answer is not one of the Open Inference Protocol: %v", err)}
	}
	raw, err := head.tensors(body, a.keep)
	if err != nil {
		return nil, err
	}
	return head.message(raw, typed, final, a.keep)
}

// objectsSize returns about how many bytes a JSON text takes in memory: an output or a parameter of three bytes takes a
// hundred and more.
func objectsSize(text []byte) int {
	return len(text) + 256*bytes.Count(text, []byte{'{'}) + 128*bytes.Count(text, []byte{':'})
}

// tensors returns the raw elements of the outputs. keep counts those of JSON data. The error is a status, or keep's.
func (a *answerHead) tensors(binaryPart []byte, keep func(n int) error) ([][]byte, error) {
	raw := make([][]byte, len(a.Outputs))
	for i, out := range a.Outputs {
		if len(out.Shape) > maxDimensions {
			return nil, wrongOutput(out.Name, fmt.Sprintf("it has more than %d dimensions", maxDimensions))
		}
		size, ok := out.Parameters["binary_data_size"]
		if !ok {
			most := rawSize(out.Datatype, out.Data)
			if err := keep(most); err != nil {
				return nil, err
			}
			var err error
			if raw[i], err = rawElements(make([]byte, 0, most), out.Datatype, out.Data); err != nil {
				return nil, wrongOutput(out.Name, err.Error())
			}
			continue
		}
		n, err := strconv.Atoi(string(size))
		if err != nil || n < 0 || n > len(binaryPart) {
			return nil, wrongOutput(out.Name, "it has a wrong binary_data_size")
		}
		raw[i], binaryPart = binaryPart[:n], binaryPart[n:]
	}
	return raw, nil
}

func wrongOutput(name, why string) error {
	return &status{code: internal, text: fmt.Sprintf("the function's answer: output %q: %s", name, why)}
}

// message returns the answer as a message. keep counts typed contents, which may take ten times the raw elements.
func (a *answerHead) message(raw [][]byte, typed, final bool, keep func(n int) error) (*response, error) {
	sizes, total := make([]int, len(raw)), 0
	for i := 0; typed && i < len(raw); i++ {
		sizes[i], typed = contentsLength(a.Outputs[i].Datatype, raw[i])
		total += sizes[i]
	}
	if !typed {
		total = 0
	}
	if err := keep(total); err != nil {
		return nil, err
	}
	to := appendString(make([]byte, 0, 256+64*len(a.Outputs)+total), 1, a.Model)
	to = appendString(to, 2, a.Version)
	to = appendString(to, 3, a.ID)
	to = appendParameterMap(to, 4, a.Parameters)
	if final {
		to = appendParameterMap(to, 4, map[string]json.RawMessage{finalParameter: json.RawMessage("true")})
	}
	for i, out := range a.Outputs {
		m := appendString(nil, 1, out.Name)
		m = appendString(m, 2, out.Datatype)
		m = appendShape(m, 3, out.Shape)
		m = appendParameterMap(m, 4, out.Parameters)
		if !typed {
			to = appendBytes(to, 5, m)
			continue
		}
		m = protowire.AppendVarint(protowire.AppendTag(m, 5, protowire.BytesType), uint64(sizes[i]))
		to = protowire.AppendVarint(protowire.AppendTag(to, 5, protowire.BytesType), uint64(len(m)+sizes[i]))
		to = appendContents(append(to, m...), out.Datatype, raw[i])
	}
	if typed {
		return &response{head: to}, nil
	}
	return &response{to, raw}, nil
}

// rawSize returns the maximum size of the raw elements of an output's JSON data: a comma is between two of them.
func rawSize(datatype string, data []byte) int {
	elements := 1 + bytes.Count(data, []byte{','})
	if datatype == "BYTES" {
		return 4*elements + len(data)
	}
	return elements * tensor.Type(datatype).Size()
}

// rawElements appends the raw elements of an output's JSON data, flat or nested. Programs answer so that do not know
// the binary tensor extension.
func rawElements(raw []byte, datatype string, data []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	width := tensor.Type(datatype).Size()
	for d.More() || d.InputOffset() < int64(len(data)) {
		token, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("its data cannot be read: %w", err)
		}
		switch v := token.(type) {
		case json.Delim:
			continue
		case string:
			if datatype == "BYTES" {
				raw = append(binary.LittleEndian.AppendUint32(raw, uint32(len(v))), v...)
				continue
			}
		case bool:
			if datatype == "BOOL" {
				raw = append(raw, byte(protowire.EncodeBool(v)))
				continue
			}
		case json.Number:
			if n, ok := numberBits(datatype, v.String()); ok {
				raw = append(raw, binary.LittleEndian.AppendUint64(nil, n)[:width]...)
				continue
			}
		}
		return nil, fmt.Errorf("its data have an element that %s cannot have", datatype)
	}
	return raw, nil
}

// numberBits returns a number's raw element in the low bits.
func numberBits(datatype, text string) (bits uint64, ok bool) {
	width := tensor.Type(datatype).Size()
	var err error
	switch {
	case datatype == "FP32":
		var f float64
		f, err = strconv.ParseFloat(text, 32)
		return uint64(math.Float32bits(float32(f))), err == nil
	case datatype == "FP64":
		var f float64
		f, err = strconv.ParseFloat(text, 64)
		return math.Float64bits(f), err == nil
	case contentsFields[datatype] == 0 || datatype == "BOOL" || datatype == "BYTES":
		return 0, false
	case datatype[0] == 'I':
		var n int64
		n, err = strconv.ParseInt(text, 10, 8*width)
		return uint64(n), err == nil
	}
	bits, err = strconv.ParseUint(text, 10, 8*width)
	return bits, err == nil
}
