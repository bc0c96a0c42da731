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

// A message consists of the length of its head in four bytes, little endian, the head as
// JSON, and the elements of its tensors one after another, also little endian.
const (
	// maxHead is the maximum length of a head, maxData that of its tensors' data
	// together, both in bytes.
	maxHead = 1 << 20
	maxData = 1 << 30
)

// The calls of a program.
const (
	pre  = "pre"
	post = "post"
)

// head is the head of a call (Call, Rows and Tensors) or of an answer (Tensors or Error).
type head struct {
	Call    string    `json:"call,omitempty"`
	Rows    int       `json:"rows,omitempty"`
	Tensors []element `json:"tensors,omitempty"`
	Error   string    `json:"error,omitempty"`
}

// element describes a tensor of a message. Size is the size of its data in bytes. Answers
// may leave out Shape.
type element struct {
	Name  string      `json:"name"`
	Type  tensor.Type `json:"datatype"`
	Shape []int64     `json:"shape,omitempty"`
	Size  int         `json:"size"`
}

// signature is the head of a program's first message, which has no data: the tensors of
// requests and of answers, with the shapes of one row. If a list is missing, the model's
// applies.
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

// receiveHead reads a head into a value of its type. The error for an invalid head wraps
// errNonsense.
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
			return h, nil, fmt.Errorf("%w: %q has %d bytes, but at most %d may follow", errNonsense, e.Name, e.Size, left)
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

// readBytes reads n bytes. It allocates memory as the bytes come, not all n at once: a
// program may announce more than it sends.
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

// fit returns the wanted tensors of an answer, in that order. It checks that each has
// rows rows, and calculates a dynamic dimension from the size.
func fit(wanted []tensor.Info, rows int, h head, data [][]byte) ([]tensor.Tensor, error) {
	out := make([]tensor.Tensor, 0, len(wanted))
	for _, want := range wanted {
		at := slices.IndexFunc(h.Tensors, func(e element) bool { return e.Name == want.Name })
		if at < 0 {
			return nil, fmt.Errorf("it returned no %q", want.Name)
		}
		e := h.Tensors[at]
		if e.Type != want.Type && !(want.Type == tensor.FP16 && e.Type == tensor.Uint16) {
			return nil, fmt.Errorf("it returned %q as %s; return %s", e.Name, e.Type, want.Type)
		}
		shape, err := shapeOf(want, rows, e.Size)
		if err != nil {
			return nil, fmt.Errorf("it returned %q %w", e.Name, err)
		}
		out = append(out, tensor.Tensor{Name: want.Name, Type: want.Type, Shape: shape, Data: data[at]})
	}
	return out, nil
}

// shapeOf returns the shape of a tensor with this number of rows and size in bytes.
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

// checkOpen refuses tensors whose shape does not follow from their size: more than one
// dimension other than the batch is dynamic, or the elements are strings.
func checkOpen(infos []tensor.Info) error {
	for _, info := range infos {
		if info.Type.Size() == 0 {
			return fmt.Errorf("%q has elements of %s, which this kind of handler cannot exchange; use numbers, or a handler in Python",
				info.Name, info.Type)
		}
		open := 0
		for _, d := range info.Shape[1:] {
			if d < 0 {
				open++
			}
		}
		if open > 1 {
			return fmt.Errorf("%q has the shape %v: a handler's tensor may have at most one dynamic dimension (-1) other than the batch", info.Name, info.Shape)
		}
	}
	return nil
}
