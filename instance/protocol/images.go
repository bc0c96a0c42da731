package protocol

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/tensorjson"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// base64Key marks a file in JSON, as in TensorFlow Serving: {"b64": "…"}.
const base64Key = "b64"

// errNoImages refuses an image for a function that declares no images.
var errNoImages = &refusal{http.StatusUnsupportedMediaType, errors.New(
	"the function takes no images; deploy it with the annotation com.openfaas.infer.image, for example 224x224")}

// images collects the rows of a model's only input, one for each image.
type images struct {
	model *Model
	rows  int64
	data  []byte
}

// add decodes an image and appends it.
func (i *images) add(file []byte) (err error) {
	if i.model.Images == nil {
		return errNoImages
	}
	i.rows++
	if err := i.model.checkRows(i.rows); err != nil {
		return err
	}
	// The limit on bodies is not enough: an image file is much smaller than its input.
	if size := i.rows * int64(i.model.Images.Row()); i.rows > 1 && size > i.model.maxBody() {
		return &refusal{http.StatusRequestEntityTooLarge, fmt.Errorf("%d images take %d bytes as an input; at most %d in one request", i.rows, size, i.model.maxBody())}
	}
	i.data, err = i.model.Images.Append(i.data, file)
	return err
}

// tensor returns the input made of the images.
func (i *images) tensor() tensor.Tensor {
	in := i.model.Inputs[0]
	return tensor.Tensor{Name: in.Name, Type: in.Type, Shape: i.model.Images.Shape(in, int(i.rows)), Data: i.data}
}

// image decodes a body that is one image.
func (m *Model) image(body []byte) (tensor.Tensor, error) {
	rows := images{model: m}
	if err := rows.add(body); err != nil {
		return tensor.Tensor{}, err
	}
	return rows.tensor(), nil
}

// hasFiles reports whether the first row of a predict request is a file rather than
// numbers.
func (m *Model) hasFiles(body []byte) bool {
	if m.Images == nil {
		return false
	}
	found := false
	r := tensorjson.NewReader(body)
	// Errors do not matter here: the body is read again in full.
	_ = r.Object(func(key string) error {
		if key != "instances" && key != "inputs" {
			return r.Skip()
		}
		if r.Peek() == '[' {
			r.Take('[')
		}
		found = m.isFileNext(r)
		return errDecided
	})
	return found
}

// isFileNext reports whether {"b64": …} comes next, with or without the input's name
// around it.
func (m *Model) isFileNext(r *tensorjson.Reader) (found bool) {
	if r.Peek() != '{' {
		return false
	}
	_ = r.Object(func(key string) error {
		if found = key == base64Key; !found && key == m.Inputs[0].Name {
			if r.Peek() == '[' {
				r.Take('[')
			}
			found = m.isFileNext(r)
		}
		return errDecided
	})
	return found
}

// decodeFiles decodes a predict request whose rows are images.
func (m *Model) decodeFiles(q frame.Request) (*Call, error) {
	rows := images{model: m}
	format, err := readPredict(q.Body, func(r *tensorjson.Reader, format string) error {
		if err := rows.read(r, true); err != nil {
			return fmt.Errorf("%s: image %d: %w", format, max(rows.rows-1, 0), err)
		}
		return nil
	})
	if err == nil && rows.rows == 0 {
		err = fmt.Errorf("%q is empty", format)
	}
	if err != nil {
		return nil, err
	}
	return m.predict(format, []tensor.Tensor{rows.tensor()})
}

// read reads a file, a list of files, or an object with either under the input's name.
func (i *images) read(r *tensorjson.Reader, outermost bool) error {
	if outermost && r.Peek() == '[' {
		return r.Array(func() error { return i.read(r, false) })
	}
	members := 0
	err := r.Object(func(key string) error {
		if members++; members > 1 {
			return errors.New(`an image is {"b64": "…"} with no other key`)
		}
		switch key {
		case base64Key:
			return i.readBase64(r)
		case i.model.Inputs[0].Name:
			return i.read(r, outermost)
		}
		return i.model.noInput(key)
	})
	if err == nil && members == 0 {
		err = errors.New(`an image is {"b64": "…"}`)
	}
	return err
}

// readBase64 reads a file from a JSON string in base64.
func (i *images) readBase64(r *tensorjson.Reader) error {
	file, err := r.Base64()
	if err != nil {
		return err
	}
	return i.add(file)
}

// files reads an input of type BYTES whose elements are images. In the binary part each
// image follows its length; in JSON it is base64. rest is the unread rest of the binary
// part.
func (in *inferInput) files(m *Model, binary []byte) (t tensor.Tensor, rest []byte, err error) {
	rows := images{model: m}
	size := in.Parameters.BinaryDataSize
	switch {
	case size != nil && in.data != nil:
		err = errors.New("it has both data and binary_data_size")
	case size != nil && (*size < 0 || *size > int64(len(binary))):
		err = fmt.Errorf("it has a binary_data_size of %d, but the body has %d bytes", *size, len(binary))
	case size != nil:
		err = rows.readBinary(binary[:*size])
		rest = binary[*size:]
	case in.data != nil:
		r := tensorjson.NewReader(in.data)
		rest = binary
		err = r.Array(func() error { return rows.readBase64(r) })
	default:
		err = errors.New("it has no data")
	}
	if err == nil && rows.rows != in.elements {
		err = fmt.Errorf("it has %d images, but its shape %s needs %d", rows.rows, describeShape(in.Shape), in.elements)
	}
	if err != nil {
		return t, nil, fmt.Errorf("input %q: %w", in.Name, err)
	}
	return rows.tensor(), rest, nil
}

// readBinary reads files, each after its length in four bytes.
func (i *images) readBinary(data []byte) error {
	for len(data) > 0 {
		at := i.rows
		file, rest, err := tensor.CutString(data)
		if err == nil {
			err = i.add(file)
		}
		if err != nil {
			return fmt.Errorf("image %d: %w", at, err)
		}
		data = rest
	}
	return nil
}

// checkFiles checks an input of type BYTES against the model.
func (in *inferInput) checkFiles(m *Model) (err error) {
	if m.Images == nil {
		return fmt.Errorf("input %q has the datatype %q, which holds images: %w", in.Name, in.Datatype, errNoImages.err)
	}
	if one := len(in.Shape) == 1 || len(in.Shape) == 2 && in.Shape[1] == 1; !one || in.Shape[0] < 1 {
		return fmt.Errorf("input %q has the shape %s; N images have the shape [N] or [N,1]", in.Name, describeShape(in.Shape))
	}
	in.elements = in.Shape[0]
	if err := m.checkRows(in.elements); err != nil {
		return fmt.Errorf("input %q: %w", in.Name, err)
	}
	return nil
}
