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

// maxMessage is the maximum length of a message in bytes. Messages contain no tensors.
const maxMessage = 16 << 20

// hello is the first message to a process forked from a warm one.
type hello struct {
	Env map[string]string `json:"env"`
}

// config tells a process what to serve.
type config struct {
	Engine  string `json:"engine"`
	Dir     string `json:"dir"`
	Model   string `json:"model"`
	Handler string `json:"handler"`
	Threads int    `json:"threads"`
	// Memory is the limit of the process's memory in bytes, 0 for no limit.
	Memory int64 `json:"memory"`
}

// loaded is the answer to config: the model's inputs and outputs, or the error. Refused
// says that a forked process could not adopt the instance's cores, control group or mounts.
type loaded struct {
	Inputs   []tensor.Info `json:"inputs"`
	Outputs  []tensor.Info `json:"outputs"`
	Requests bool          `json:"requests"`
	Parts    bool          `json:"parts"`
	Load     float64       `json:"load_s"`
	Error    string        `json:"error"`
	Refused  bool          `json:"refused"`
}

// placed is a tensor in shared memory.
type placed struct {
	tensor.Info
	At int64 `json:"at"`
	// Size is its length in bytes. The shape gives that, too, unless the elements are strings.
	Size int64 `json:"size"`
}

// call is one batch: the number of rows of each request, and the concatenated inputs,
// which end at Size. Taken lists the parts of the outputs' memory that hold outputs of
// earlier batches still in use. Parts are the positions of the requests that take their answers in
// parts.
type call struct {
	Rows   []int      `json:"rows"`
	Size   int64      `json:"size"`
	Inputs []placed   `json:"inputs"`
	Taken  [][2]int64 `json:"taken"`
	Parts  []int      `json:"parts,omitempty"`
}

// reply is the answer to a call: one answer for each request, or one for the whole batch
// if the model has no handler. Inputs says that the error is due to the batch's inputs.
// More says that the answers are parts, and that the process waits for goOn before it computes the next ones.
type reply struct {
	Error   string   `json:"error"`
	Inputs  bool     `json:"inputs"`
	More    bool     `json:"more"`
	Answers []answer `json:"answers"`
}

// goOn has the process compute the next parts, except for the requests that are Gone.
type goOn struct {
	Gone []int `json:"gone"`
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

// read reads a message. While it waits it calls tick once every period, and returns tick's
// error if there is one.
func (c channel) read(message any, tick func() error) error {
	body, err := c.body(tick)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, message)
}

// body reads a message like read, but does not decode it.
func (c channel) body(tick func() error) ([]byte, error) {
	head := make([]byte, 4)
	if err := c.fill(head, tick); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(head)
	if size > maxMessage {
		return nil, fmt.Errorf("sent a message of %d bytes; the maximum is %d", size, maxMessage)
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
