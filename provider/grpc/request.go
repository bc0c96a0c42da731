package grpc

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/faas-infer/faas-infer/provider/web"
)

const (
	// maxParts is the most inputs, outputs, tensors and parameters together of one message: an empty one
	// takes two bytes of a message and a hundred here.
	maxParts = 4096
	// maxDimensions is the most dimensions of a tensor.
	maxDimensions = 64
	// maxNames is the most bytes of names, ids and parameters of one message.
	maxNames = 1 << 20
	// maxName is the most bytes of the name or version of a model: they are part of a path, twice and escaped.
	maxName = 253
)

// request is a ModelInferRequest. Strings are its own; contents and tensors alias the message.
type request struct {
	model, version, id string
	parameters         []parameter
	inputs             []input
	outputs            []output
	raw                [][]byte
	// parts and names count towards maxParts and maxNames.
	parts, names int
}

type input struct {
	name, datatype string
	shape          []int64
	parameters     []parameter
	// contents is an InferTensorContents, nil if there is none.
	contents []byte
	// size is the number of bytes of its elements.
	size int
}

type output struct {
	name       string
	parameters []parameter
}

// parseRequest reads a ModelInferRequest. The error is a [web.Error].
func parseRequest(m []byte) (*request, error) {
	q := &request{}
	err := eachField(m, func(f field) (err error) {
		if f.kind != protowire.BytesType {
			return nil
		}
		if f.number >= 4 {
			if q.parts++; q.parts > maxParts {
				return web.Refuse(http.StatusBadRequest, "the request has more than %d inputs, outputs and parameters", maxParts)
			}
		}
		switch f.number {
		case 1:
			q.model, err = q.take(f.bytes)
		case 2:
			q.version, err = q.take(f.bytes)
		case 3:
			q.id, err = q.take(f.bytes)
		case 4:
			q.parameters, err = readParameter(q.parameters, f.bytes, q.take)
		case 5:
			q.inputs = append(q.inputs, input{})
			err = q.inputs[len(q.inputs)-1].parse(q, f.bytes)
		case 6:
			q.outputs = append(q.outputs, output{})
			err = q.outputs[len(q.outputs)-1].parse(q, f.bytes)
		case 7:
			q.raw = append(q.raw, f.bytes)
		}
		return err
	})
	if err != nil {
		return q, err
	}
	return q, q.check()
}

// take copies a string of the message within maxNames.
func (q *request) take(s []byte) (string, error) {
	if q.names += len(s); q.names > maxNames {
		return "", web.Refuse(http.StatusBadRequest, "names, id and parameters of the request take more than %d bytes", maxNames)
	}
	return string(s), nil
}

// addParameter is readParameter within maxParts.
func (q *request) addParameter(to []parameter, entry []byte) ([]parameter, error) {
	if q.parts++; q.parts > maxParts {
		return nil, web.Refuse(http.StatusBadRequest, "the request has more than %d inputs, outputs and parameters", maxParts)
	}
	return readParameter(to, entry, q.take)
}

func (in *input) parse(q *request, m []byte) error {
	return eachField(m, func(f field) (err error) {
		switch {
		case f.number == 3:
			return f.eachVarint(func(v uint64) error {
				if len(in.shape) == maxDimensions {
					return web.Refuse(http.StatusBadRequest, "an input has more than %d dimensions", maxDimensions)
				}
				in.shape = append(in.shape, int64(v))
				return nil
			})
		case f.kind != protowire.BytesType:
		case f.number == 1:
			in.name, err = q.take(f.bytes)
		case f.number == 2:
			in.datatype, err = q.take(f.bytes)
		case f.number == 4:
			in.parameters, err = q.addParameter(in.parameters, f.bytes)
		case f.number == 5:
			if in.contents != nil {
				return web.Refuse(http.StatusBadRequest, "an input's contents are given twice")
			}
			in.contents = f.bytes
		}
		return err
	})
}

func (o *output) parse(q *request, m []byte) error {
	return eachField(m, func(f field) (err error) {
		switch {
		case f.kind != protowire.BytesType:
		case f.number == 1:
			o.name, err = q.take(f.bytes)
		case f.number == 2:
			o.parameters, err = q.addParameter(o.parameters, f.bytes)
		}
		return err
	})
}

var errModel = web.BadRequest(errors.New("model_name is empty; it must be a function's NAME or NAME.NAMESPACE"))

// check checks what the form with binary tensors cannot say, and sets the sizes of inputs.
func (q *request) check() error {
	if q.model == "" {
		return errModel
	}
	if err := checkNames(q.model, q.version); err != nil {
		return err
	}
	if len(q.raw) > 0 && len(q.raw) != len(q.inputs) {
		return web.Refuse(http.StatusBadRequest, "the request has %d inputs and %d raw_input_contents; send one for each input",
			len(q.inputs), len(q.raw))
	}
	for i := range q.inputs {
		in := &q.inputs[i]
		if len(q.raw) > 0 {
			if len(in.contents) > 0 {
				return web.Refuse(http.StatusBadRequest, "input %q has contents beside raw_input_contents; send one of them", web.Clip(in.name))
			}
			in.size = len(q.raw[i])
			continue
		}
		var err error
		if in.size, err = contentsSize(in.datatype, in.contents); err != nil {
			return web.BadRequest(fmt.Errorf("input %q: %w", web.Clip(in.name), err))
		}
	}
	return nil
}

// checkNames refuses a name or version that no model has.
func checkNames(all ...string) error {
	for _, name := range all {
		if len(name) > maxName {
			return web.Refuse(http.StatusBadRequest, "the model's name or version %q has %d bytes, the limit is %d",
				web.Clip(name), len(name), maxName)
		}
	}
	return nil
}

// typed reports whether the outputs must be typed: Triton answers raw tensors with raw ones.
func (q *request) typed() bool { return len(q.raw) == 0 && len(q.inputs) > 0 }

// path is the request's path in the provider's routes.
func (q *request) path() string {
	version := ""
	if q.version != "" {
		version = "/versions/" + url.PathEscape(q.version)
	}
	return modelPath(q.model, version+"/infer")
}

// modelPath is the path below a function, NAME or NAME.NAMESPACE, for its model, with an escaped end. The function's
// model knows NAME only.
func modelPath(function, end string) string {
	model, _, _ := strings.Cut(function, ".")
	return "/function/" + url.PathEscape(function) + "/v2/models/" + url.PathEscape(model) + end
}

// head returns the request's JSON part. Tensors in binary form follow it.
func (q *request) head() []byte {
	to := make([]byte, 0, 128+128*len(q.inputs)+2*q.names)
	to = append(to, `{"id":`...)
	to = appendQuoted(to, q.id)
	to = appendParameters(to, q.parameters, `"binary_data_output":true`)
	to = append(to, `,"inputs":[`...)
	for i, in := range q.inputs {
		if i > 0 {
			to = append(to, ',')
		}
		to = appendQuoted(append(to, `{"name":`...), in.name)
		to = appendQuoted(append(to, `,"datatype":`...), in.datatype)
		to = append(to, `,"shape":[`...)
		for at, size := range in.shape {
			if at > 0 {
				to = append(to, ',')
			}
			to = strconv.AppendInt(to, size, 10)
		}
		to = appendParameters(append(to, ']'), in.parameters, `"binary_data_size":`+strconv.Itoa(in.size))
		to = append(to, '}')
	}
	if to = append(to, ']'); len(q.outputs) > 0 {
		to = append(to, `,"outputs":[`...)
		for i, out := range q.outputs {
			if i > 0 {
				to = append(to, ',')
			}
			to = appendQuoted(append(to, `{"name":`...), out.name)
			to = append(appendParameters(to, out.parameters, ""), '}')
		}
		to = append(to, ']')
	}
	return append(to, '}')
}

// body returns the request in the form with binary tensors, and the length of its JSON part. message is the
// request's message in buffer, after [room]. If possible the body is a part of the buffer: raw tensors are
// the end of a message, so the JSON part goes in front of the first, which stays where it is, and the
// others move up to it. Otherwise the body is of new memory, which hold counts.
func (q *request) body(buffer []byte, hold func(n int64) error, limit int64) (body []byte, head int, err error) {
	text := q.head()
	if len(q.raw) > 0 && len(q.raw[0]) > 0 {
		start := cap(buffer) - cap(q.raw[0]) // Both end with the same memory.
		if start >= len(text) {
			copy(buffer[start-len(text):], text)
			end := start + len(q.raw[0])
			for _, raw := range q.raw[1:] {
				end += copy(buffer[end:], raw)
			}
			return buffer[start-len(text) : end : end], len(text), nil
		}
	}
	size := int64(len(text))
	for _, in := range q.inputs {
		size += int64(in.size)
	}
	if size > limit {
		return nil, 0, web.Refuse(http.StatusRequestEntityTooLarge, "the request's tensors take more than %d bytes, the limit of a body", limit)
	}
	if err := hold(size); err != nil {
		return nil, 0, err
	}
	body = append(make([]byte, 0, size), text...)
	for i, in := range q.inputs {
		if len(q.raw) > 0 {
			body = append(body, q.raw[i]...)
		} else if body, err = appendElements(body, in.datatype, in.contents); err != nil {
			return nil, 0, web.BadRequest(fmt.Errorf("input %q: %w", web.Clip(in.name), err))
		}
	}
	return body, len(text), nil
}
