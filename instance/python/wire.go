package python

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// maxMessage is the longest message in bytes; tensors are not in messages.
const maxMessage = 16 << 20

// hello is what a process forked from a warm one is told first.
type hello struct {
	Env map[string]string `json:"env"`
}

// config says what to serve.
type config struct {
	Engine  string `json:"engine"`
	Dir     string `json:"dir"`
	Model   string `json:"model"`
	Handler string `json:"handler"`
	Threads int    `json:"threads"`
	// Memory is what the process may hold in bytes, 0 for no limit.
	Memory int64 `json:"memory"`
}

// loaded is the answer to config: what the model takes and gives, or why it
// cannot be served. Refused: the process could not get to be the instance's.
type loaded struct {
	Inputs   []tensor.Info `json:"inputs"`
	Outputs  []tensor.Info `json:"outputs"`
	Requests bool          `json:"requests"`
	Load     float64       `json:"load_s"`
	Error    string        `json:"error"`
	Refused  bool          `json:"refused"`
}

// placed is a tensor in shared memory.
type placed struct {
	tensor.Info
	At int64 `json:"at"`
}

// call is one batch: its requests' rows, and the inputs of all of them together,
// which reach up to Size. Taken are the parts of the memory for outputs in which
// somebody still reads those of earlier batches.
type call struct {
	Rows   []int      `json:"rows"`
	Size   int64      `json:"size"`
	Inputs []placed   `json:"inputs"`
	Taken  [][2]int64 `json:"taken"`
}

// reply is the answer to a call: one for each request, or one for all of them where
// no handler tells them apart.
type reply struct {
	Error   string   `json:"error"`
	Answers []answer `json:"answers"`
}

type answer struct {
	Error   string   `json:"error"`
	Outputs []placed `json:"outputs"`
}

// channel carries messages over a socket.
type channel struct{ conn net.Conn }

func (c channel) write(message any) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = c.conn.Write(append(binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...))
	return err
}

// read reads a message. While it waits, it calls tick now and then, and gives up
// with tick's error.
func (c channel) read(message any, tick func() error) error {
	body, err := c.body(tick)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, message)
}

// body is read's, not taken apart.
func (c channel) body(tick func() error) ([]byte, error) {
	head := make([]byte, 4)
	if err := c.fill(head, tick); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(head)
	if size > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes", size)
	}
	body := make([]byte, size)
	return body, c.fill(body, tick)
}

// period is the time between two ticks.
const period = 20 * time.Millisecond

func (c channel) fill(buffer []byte, tick func() error) error {
	for got := 0; got < len(buffer); {
		if err := c.conn.SetReadDeadline(time.Now().Add(period)); err != nil {
			return err
		}
		n, err := c.conn.Read(buffer[got:])
		got += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = tick()
		}
		if err != nil && got < len(buffer) {
			return err
		}
	}
	return nil
}
