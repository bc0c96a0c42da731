package protocol

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/tensorjson"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// signatureName is the name of a model's only signature.
const signatureName = "serving_default"

// tensorFlow answers the routes below /v1, those of TensorFlow Serving.
func (m *Model) tensorFlow(r frame.Request, parts []string) (*Call, frame.Response) {
	if len(parts) < 2 || parts[0] != "models" {
		return nil, Failure(http.StatusNotFound, fmt.Errorf("the TensorFlow Serving API has no route %s", r.Path))
	}
	// The verb follows the last part: models/mnist:predict.
	last := len(parts) - 1
	end, verb, _ := strings.Cut(parts[last], ":")
	parts[last] = end
	if !m.known(parts[1]) {
		return nil, m.unknown(r, parts[1])
	}
	rest := parts[2:]
	if len(rest) >= 2 && rest[0] == "versions" {
		if rest[1] != modelVersion {
			return nil, Failure(http.StatusNotFound, fmt.Errorf("model %q has only the version %s", m.calledBy(r), modelVersion))
		}
		rest = rest[2:]
	}
	switch {
	case len(rest) == 0 && verb == "predict":
		return m.decodePost(r, m.decodePredict)
	case len(rest) == 0 && verb == "":
		return nil, servedStatus(m, r)
	case len(rest) == 1 && rest[0] == "metadata" && verb == "":
		return nil, m.signatureDef(m.calledBy(r))
	}
	return nil, Failure(http.StatusNotFound, fmt.Errorf("the TensorFlow Serving API has no route %s for this model", r.Path))
}

// decodePredict decodes a predict request, by rows ("instances") or by columns
// ("inputs").
func (m *Model) decodePredict(q frame.Request) (*Call, error) {
	if m.hasFiles(q.Body) {
		return m.decodeFiles(q)
	}
	columns := make([]*tensorjson.Values, len(m.Inputs))
	format, err := readPredict(q.Body, func(r *tensorjson.Reader, format string) error {
		if format == "instances" {
			return m.readInstances(r, columns)
		}
		return m.readColumns(r, columns)
	})
	if err != nil {
		return nil, err
	}
	var given []tensor.Tensor
	for i, v := range columns {
		if v != nil {
			given = append(given, tensor.Tensor{Name: m.Inputs[i].Name, Type: v.Type, Shape: v.Shape, Data: v.Data})
		}
	}
	return m.predict(format, given)
}

// readPredict reads a predict request. read reads the value of its "instances" or "inputs",
// which is the request's format.
func readPredict(body []byte, read func(r *tensorjson.Reader, format string) error) (format string, err error) {
	r := tensorjson.NewReader(body)
	err = r.Object(func(key string) error {
		switch key {
		case "signature_name":
			return readSignatureName(r)
		case "instances", "inputs":
			if format != "" {
				return errors.New(`the body has more than one of "instances" and "inputs"`)
			}
			format = key
			return read(r, format)
		}
		return r.Skip()
	})
	if err == nil {
		err = r.End()
	}
	if err == nil && format == "" {
		err = errors.New(`the body has neither "instances" nor "inputs"`)
	}
	return format, err
}

// predict makes the call of a predict request in a format, in which it is answered.
func (m *Model) predict(format string, given []tensor.Tensor) (*Call, error) {
	call, err := m.assemble(given)
	if err != nil {
		return nil, err
	}
	call.answerJSON(m.Outputs, encodeRows)
	if format == "inputs" {
		call.encode = encodeColumns
	}
	return call, nil
}

func readSignatureName(r *tensorjson.Reader) error {
	var name string
	if err := r.Into("signature_name", &name); err != nil {
		return err
	}
	if name != "" && name != signatureName {
		return fmt.Errorf("the model has no signature %q; it has %q", name, signatureName)
	}
	return nil
}

// readInstances reads rows. Each is an object of inputs by name, or the value itself if
// the model has one input.
func (m *Model) readInstances(r *tensorjson.Reader, columns []*tensorjson.Values) error {
	var rows int64
	err := r.Array(func() error {
		rows++
		if err := m.checkRows(rows); err != nil {
			return err
		}
		if isValueNext(m.Inputs, r) {
			return m.readOnly(r, columns, 1)
		}
		return m.readNamed(r, columns, 1, rows)
	})
	if err != nil {
		return fmt.Errorf("instance %d: %w", max(rows-1, 0), err)
	}
	if rows == 0 {
		return errors.New(`"instances" is empty`)
	}
	for i, v := range columns {
		if v != nil {
			if err := v.Length(0, rows); err != nil {
				return fmt.Errorf("input %q: %w", m.Inputs[i].Name, err)
			}
		}
	}
	return nil
}

// readColumns reads whole inputs: an object of inputs by name, or the value itself if the
// model has one input.
func (m *Model) readColumns(r *tensorjson.Reader, columns []*tensorjson.Values) error {
	if isValueNext(m.Inputs, r) {
		return m.readOnly(r, columns, 0)
	}
	return m.readNamed(r, columns, 0, 1)
}

// isValueNext reports whether the value of the only input comes next, and not an object of
// inputs by name. An object with the key b64 is the value of a model that takes strings.
func isValueNext(inputs []tensor.Info, r *tensorjson.Reader) bool {
	if r.Peek() != '{' {
		return true
	}
	if len(inputs) != 1 || inputs[0].Type != tensor.Bytes || inputs[0].Name == base64Key {
		return false
	}
	ahead, found := *r, false
	// Errors do not matter here: the object is read again in full.
	_ = ahead.Object(func(key string) error {
		found = key == base64Key
		return errDecided
	})
	return found
}

func (m *Model) readOnly(r *tensorjson.Reader, columns []*tensorjson.Values, depth int) error {
	if len(m.Inputs) != 1 {
		return fmt.Errorf("the model has %d inputs, so send them by name: %s", len(m.Inputs), describeAll(m.Inputs))
	}
	return m.readInto(r, columns, 0, depth)
}

// readNamed reads an object of inputs by name. nth is the object's number, from 1.
func (m *Model) readNamed(r *tensorjson.Reader, columns []*tensorjson.Values, depth int, nth int64) error {
	seen := make([]bool, len(columns))
	err := r.Object(func(name string) error {
		at := m.input(name)
		if at < 0 {
			return m.noInput(name)
		}
		if seen[at] {
			return fmt.Errorf("input %q is given twice", name)
		}
		seen[at] = true
		if columns[at] == nil && nth > 1 {
			return fmt.Errorf("input %q is missing in the earlier instances", name)
		}
		return m.readInto(r, columns, at, depth)
	})
	if err != nil {
		return err
	}
	for at := range seen {
		if !seen[at] {
			return fmt.Errorf("input %q is missing; the model takes %s", m.Inputs[at].Name, describeAll(m.Inputs))
		}
	}
	return nil
}

func (m *Model) readInto(r *tensorjson.Reader, columns []*tensorjson.Values, at, depth int) error {
	v := columns[at]
	if v == nil {
		v = tensorjson.NewValues(m.Inputs[at].Type)
		v.Extended = true
		v.Limit = m.maxElements(m.Inputs[at])
		columns[at] = v
	}
	var err error
	if depth == 0 {
		err = m.readRows(r, v)
	} else {
		err = v.Read(r, depth)
	}
	if err != nil {
		return fmt.Errorf("input %q: %w; the model takes %s", m.Inputs[at].Name, err, describe(m.Inputs[at]))
	}
	return nil
}

// readRows reads a whole input. It stops at the first row above MaxRows.
func (m *Model) readRows(r *tensorjson.Reader, v *tensorjson.Values) error {
	if r.Peek() != '[' {
		return v.Read(r, 0)
	}
	var rows int64
	err := r.Array(func() error {
		rows++
		if err := m.checkRows(rows); err != nil {
			return err
		}
		return v.Read(r, 1)
	})
	if err != nil {
		return err
	}
	return v.Length(0, rows)
}

// checkRows refuses a row above MaxRows. It runs before the row is read, so it does not
// know how many follow.
func (m *Model) checkRows(rows int64) error {
	if m.MaxRows > 0 && rows > int64(m.MaxRows) && !takesWhole(m.Inputs) {
		return fmt.Errorf("too many rows; at most %d in one request", m.MaxRows)
	}
	return nil
}

// maxElements returns the maximum number of an input's elements in one request. It is 0,
// no limit, if the input has further dynamic dimensions or MaxRows is 0, unless it takes strings.
func (m *Model) maxElements(info tensor.Info) int64 {
	row, rows := slices.Clone(info.Shape), int64(1)
	if axis := batchAxis(info); axis >= 0 {
		row[axis], rows = 1, int64(m.MaxRows)
	}
	n, err := tensor.Elements(row)
	if limit := n * rows; err == nil && limit > 0 {
		return limit
	}
	if info.Type == tensor.Bytes {
		return maxStrings
	}
	return 0
}

// servedStatus answers GET /v1/models/NAME, which is a path of OpenAI's API, too. One object says what either's clients read.
func servedStatus(m *Model, r frame.Request) frame.Response {
	type of struct {
		Code    string `json:"error_code"`
		Message string `json:"error_message"`
	}
	type version struct {
		Version string `json:"version"`
		State   string `json:"state"`
		Status  of     `json:"status"`
	}
	return answerJSON(struct {
		Versions []version `json:"model_version_status"`
		listedModel
	}{[]version{{modelVersion, "AVAILABLE", of{Code: "OK"}}}, listed(m, r)})
}

// signatureDef answers GET /v1/models/NAME/metadata.
func (m *Model) signatureDef(name string) frame.Response {
	type object = map[string]any
	tensors := func(infos []tensor.Info) object {
		out := object{}
		for _, info := range infos {
			dims := make([]object, len(info.Shape))
			for i, d := range info.Shape {
				dims[i] = object{"size": strconv.FormatInt(d, 10), "name": ""}
			}
			out[info.Name] = object{
				"name": info.Name, "dtype": dtypes[info.Type],
				"tensor_shape": object{"dim": dims, "unknown_rank": false},
			}
		}
		return out
	}
	return answerJSON(object{
		"model_spec": object{"name": name, "signature_name": "", "version": modelVersion},
		"metadata": object{"signature_def": object{"signature_def": object{signatureName: object{
			"inputs": tensors(m.Inputs), "outputs": tensors(m.Outputs),
			"method_name": "tensorflow/serving/predict",
		}}}},
	})
}

// dtypes maps element types to TensorFlow's names.
var dtypes = map[tensor.Type]string{
	tensor.Bool: "DT_BOOL", tensor.Uint8: "DT_UINT8", tensor.Int8: "DT_INT8",
	tensor.Int16: "DT_INT16", tensor.Uint16: "DT_UINT16", tensor.Int32: "DT_INT32",
	tensor.Uint32: "DT_UINT32", tensor.Int64: "DT_INT64", tensor.Uint64: "DT_UINT64",
	tensor.FP16: "DT_HALF", tensor.BF16: "DT_BFLOAT16", tensor.FP32: "DT_FLOAT", tensor.FP64: "DT_DOUBLE",
	tensor.Bytes: "DT_STRING",
}
