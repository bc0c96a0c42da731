// Command handler calls a function's Pre and Post for the instance that runs its ONNX
// model. The instance starts it with a socket as descriptor 3, sends calls through the
// socket, and closes the socket to stop the program.
//
// This file is the template's; write yours in the folder function.
package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"handler/function"
)

// head is the head of a message, which is a call or an answer.
type head struct {
	Call    string    `json:"call,omitempty"`
	Rows    int       `json:"rows,omitempty"`
	Tensors []element `json:"tensors,omitempty"`
	Error   string    `json:"error,omitempty"`
}

// element describes a tensor of a message. The tensor's data follows the head; Size is in
// bytes.
type element struct {
	Name string `json:"name"`
	Type string `json:"datatype"`
	Size int    `json:"size"`
}

func main() {
	socket := os.NewFile(3, "instance")
	if err := serve(socket); err != nil && !errors.Is(err, io.EOF) {
		fmt.Fprintln(os.Stderr, "the handler:", err)
		os.Exit(1)
	}
}

// serve sends the function's inputs and outputs, then answers calls until the socket closes.
func serve(socket io.ReadWriter) error {
	inputs, err := infos("Inputs", function.Inputs)
	if err != nil {
		return err
	}
	outputs, err := infos("Outputs", function.Outputs)
	if err != nil {
		return err
	}
	if err := write(socket, map[string][]info{"inputs": inputs, "outputs": outputs}, nil); err != nil {
		return fmt.Errorf("%w; an instance of faas-infer starts this program", err)
	}
	for {
		call, tensors, err := read(socket)
		if err != nil {
			return err
		}
		answer, data := do(call, tensors)
		if err := write(socket, answer, data); err != nil {
			return err
		}
	}
}

// do runs one call of the function. A panic of the function is an error of this call.
func do(call head, tensors map[string]any) (answer head, data [][]byte) {
	name, handle := "Pre", function.Pre
	if call.Call == "post" {
		name, handle = "Post", function.Post
	}
	given, err := guarded(handle, call.Rows, tensors)
	if err != nil {
		return head{Error: name + ": " + err.Error()}, nil
	}
	for tensor, values := range given {
		datatype, bytes, err := encode(values)
		if err != nil {
			return head{Error: fmt.Sprintf("%s gave %q %v", name, tensor, err)}, nil
		}
		answer.Tensors = append(answer.Tensors, element{tensor, datatype, len(bytes)})
		data = append(data, bytes)
	}
	return answer, data
}

// guarded turns a panic of handle into an error that says where it happened. It prints the
// panic with its stack.
func guarded(handle func(int, map[string]any) (map[string]any, error), rows int, tensors map[string]any) (given map[string]any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			fmt.Fprintf(os.Stderr, "panic: %v\n\n%s", cause, debug.Stack())
			err = fmt.Errorf("%v%s", cause, where())
		}
	}()
	return handle(rows, tensors)
}

// where returns the file and line in the function's own code at which it panicked.
func where() string {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		if strings.HasPrefix(frame.Function, "handler/function.") {
			return fmt.Sprintf(" (%s:%d)", frame.File[strings.LastIndex(frame.File, "/")+1:], frame.Line)
		}
	}
	return ""
}

// read reads a call and its tensors.
func read(from io.Reader) (head, map[string]any, error) {
	var h head
	var length [4]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return h, nil, err
	}
	text := make([]byte, binary.LittleEndian.Uint32(length[:]))
	if _, err := io.ReadFull(from, text); err != nil {
		return h, nil, err
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return h, nil, err
	}
	tensors := make(map[string]any, len(h.Tensors))
	for _, e := range h.Tensors {
		data := make([]byte, e.Size)
		if _, err := io.ReadFull(from, data); err != nil {
			return h, nil, err
		}
		values, err := decode(e.Type, data)
		if err != nil {
			return h, nil, err
		}
		tensors[e.Name] = values
	}
	return h, tensors, nil
}

// write writes a head and the data of its tensors.
func write(to io.Writer, head any, data [][]byte) error {
	text, err := json.Marshal(head)
	if err != nil {
		return err
	}
	message := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
	for _, part := range append([][]byte{append(message, text...)}, data...) {
		if _, err := to.Write(part); err != nil {
			return err
		}
	}
	return nil
}
