package processing

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// A message is the length of its head as four bytes, little endian, the head as JSON,
// and the elements of its tensors one after another, little endian as well.
const (
	// maxHead is the longest head in bytes, maxData the most that its tensors may have
	// together.
	maxHead = 1 << 20
	maxData = 1 << 30
)

// The kinds of requests to a program.
const (
	pre  = "pre"
	post = "post"
)

// head is that of a call, with Call, Rows and Tensors, or of an answer, with Tensors or
// Error.
type head struct {
	Call    string    `json:"call,omitempty"`
	Rows    int       `json:"rows,omitempty"`
	Tensors []element `json:"tensors,omitempty"`
	Error   string    `json:"error,omitempty"`
}

// element tells a tensor of a message: Size is that of its data in bytes. An answer
// needs no shape.
type element struct {
	Name  string      `json:"name"`
	Type  tensor.Type `json:"datatype"`
	Shape []int64     `json:"shape,omitempty"`
	Size  int         `json:"size"`
}

// signature is a program's first message, which has nothing but a head: what requests
// have and what answers have, with the shapes of one row. Those that are missing are the
// model's.
type signature struct {
	Inputs  []tensor.Info `json:"inputs"`
	Outputs []tensor.Info `json:"outputs"`
}

// send writes a call.
func send(to io.Writer, call string, rows int, tensors []tensor.Tensor) error {
	h := head{Call: call, Rows: rows}
	buffers := net.Buffers{nil}
	for _, t := range tensors {
		h.Tensors = append(h.Tensors, element{Name: t.Name, Type: t.Type, Shape: t.Shape, Size: len(t.Data)})
		buffers = append(buffers, t.Data)
	}
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	buffers[0] = append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)
	_, err = buffers.WriteTo(to)
	return err
}

// receiveHead reads a head into what it is written from. Why a head cannot be one is an
// error that wraps errNonsense.
func receiveHead(from io.Reader, into any) error {
	var length [4]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n > maxHead {
		return fmt.Errorf("%w: a head of %d bytes", errNonsense, n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(from, text); err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%w: %w", errNonsense, err)
	}
	return nil
}

// receive reads an answer: its head, and its tensors' data in the head's order.
func receive(from io.Reader) (head, [][]byte, error) {
	var h head
	if err := receiveHead(from, &h); err != nil {
		return h, nil, err
	}
	left := maxData
	for _, e := range h.Tensors {
		if e.Size < 0 || e.Size > left {
			return h, nil, fmt.Errorf("%w: %q of %d bytes, at most %d may follow", errNonsense, e.Name, e.Size, left)
		}
		left -= e.Size
	}
	data := make([][]byte, len(h.Tensors))
	for i, e := range h.Tensors {
		var err error
		if data[i], err = readBytes(from, e.Size); err != nil {
			return h, nil, err
		}
	}
	return h, data, nil
}

// readBytes reads so many bytes; memory is taken as they come, not because they are
// announced.
func readBytes(from io.Reader, n int) ([]byte, error) {
	const step = 16 << 20
	data := make([]byte, min(n, step))
	for read := 0; ; {
		if _, err := io.ReadFull(from, data[read:]); err != nil {
			return nil, err
		}
		if read = len(data); read == n {
			return data, nil
		}
		data = append(data, make([]byte, min(n-read, read))...)
	}
}

// fit makes of an answer's tensors those that are wanted, in that order, for so many
// rows. A dimension that is open follows from the size.
func fit(wanted []tensor.Info, rows int, h head, data [][]byte) ([]tensor.Tensor, error) {
	out := make([]tensor.Tensor, 0, len(wanted))
	for _, want := range wanted {
		at := slices.IndexFunc(h.Tensors, func(e element) bool { return e.Name == want.Name })
		if at < 0 {
			return nil, fmt.Errorf("it gave no %q", want.Name)
		}
		e := h.Tensors[at]
		if e.Type != want.Type && !(want.Type == tensor.FP16 && e.Type == tensor.Uint16) {
			return nil, fmt.Errorf("it gave %q as %s, and %s is wanted", e.Name, e.Type, want.Type)
		}
		shape, err := shapeOf(want, rows, e.Size)
		if err != nil {
			return nil, fmt.Errorf("it gave %q %w", e.Name, err)
		}
		out = append(out, tensor.Tensor{Name: want.Name, Type: want.Type, Shape: shape, Data: data[at]})
	}
	return out, nil
}

// shapeOf is the shape that so many bytes have for so many rows.
func shapeOf(want tensor.Info, rows, size int) ([]int64, error) {
	shape := slices.Clone(want.Shape)
	shape[0] = int64(rows)
	elements, rest := int64(size/want.Type.Size()), size%want.Type.Size()
	known, open := int64(1), -1
	for i, d := range shape {
		if d < 0 {
			open = i
			continue
		}
		known *= d
	}
	switch {
	case rest == 0 && open < 0 && known == elements:
		return shape, nil
	case rest == 0 && open >= 0 && known > 0 && elements > 0 && elements%known == 0:
		shape[open] = elements / known
		return shape, nil
	}
	return nil, fmt.Errorf("with %d elements, which are not %d rows of the shape %v", elements, rows, want.Shape[1:])
}

// checkOpen refuses tensors of which the shape does not follow from their size.
func checkOpen(infos []tensor.Info) error {
	for _, info := range infos {
		open := 0
		for _, d := range info.Shape[1:] {
			if d < 0 {
				open++
			}
		}
		if open > 1 {
			return fmt.Errorf("%q has the shape %v: at most one dimension beside the batch may be open where a handler gives it", info.Name, info.Shape)
		}
	}
	return nil
}
