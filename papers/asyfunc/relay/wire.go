package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// A message is a head of 24 bytes, a body and data, all little-endian:
//
//	0 "FIRL"  4 version u16  6 kind u16  8 body's length u32  12 0 u32  16 data's length u64
//
// Data are the tensors that are not in shared memory, one after the other.
const (
	magic   = "FIRL"
	version = 1
	head    = 24
)

// kind is a kind of message.
type kind uint16

const (
	// hello has an identity: the body's first, and the shadow's as the answer to it.
	hello kind = iota + 1
	// refusal is the other answer to it: the reason, as text.
	refusal
	// memory brings a memory file with its number; its descriptor comes with the message.
	memory
	// run is a job, done its answer. drop says that nobody needs it any more.
	run
	done
	drop
)

// Bounds of a message.
const (
	maxBody    = 64 << 10
	maxData    = 1 << 30
	maxRows    = 1 << 16
	maxTensors = 256
	maxDims    = 16
)

// message is one message without its data.
type message struct {
	kind kind
	body []byte
	data int64
}

// appendHead appends a message without its data.
func (m message) append(to []byte) []byte {
	to = append(to, magic...)
	to = binary.LittleEndian.AppendUint16(to, version)
	to = binary.LittleEndian.AppendUint16(to, uint16(m.kind))
	to = binary.LittleEndian.AppendUint32(to, uint32(len(m.body)))
	to = binary.LittleEndian.AppendUint32(to, 0)
	to = binary.LittleEndian.AppendUint64(to, uint64(m.data))
	return append(to, m.body...)
}

// read reads a message up to its data.
func read(in io.Reader) (m message, err error) {
	var h [head]byte
	if _, err := io.ReadFull(in, h[:]); err != nil {
		return m, err
	}
	if string(h[:4]) != magic {
		return m, fmt.Errorf("a message begins with %x: the other side speaks another protocol", h[:4])
	}
	if v := binary.LittleEndian.Uint16(h[4:]); v != version {
		return m, fmt.Errorf("a message of version %d: this side has version %d", v, version)
	}
	m.kind = kind(binary.LittleEndian.Uint16(h[6:]))
	size, data := binary.LittleEndian.Uint32(h[8:]), binary.LittleEndian.Uint64(h[16:])
	switch {
	case m.kind < hello || m.kind > drop:
		return m, fmt.Errorf("a message of the kind %d", m.kind)
	case size > maxBody:
		return m, fmt.Errorf("a message of %d bytes; the maximum is %d", size, maxBody)
	case data > maxData:
		return m, fmt.Errorf("a message with %d bytes of tensors; the maximum is %d", data, maxData)
	case data > 0 && m.kind != run && m.kind != done:
		return m, fmt.Errorf("a message of the kind %d with %d bytes of tensors", m.kind, data)
	}
	m.data, m.body = int64(data), make([]byte, size)
	_, err = io.ReadFull(in, m.body)
	return m, err
}

// inline is the place of a tensor that comes as data.
const inline = ^uint64(0)

// placed is a tensor in shared memory, or in the data. Only its size counts where the shape is
// not known yet.
type placed struct {
	typ   tensor.Type
	shape []int64
	at    uint64
	size  uint64
}

// order is a job as it is sent.
type order struct {
	id            uint64
	segment, rows uint32
	within        time.Duration
	// memory is the number of the memory file, 0 for none.
	memory          uint32
	inputs, outputs []placed
}

// report is an answer as it is sent.
type report struct {
	id               uint64
	computed, waited time.Duration
	failed           string
	outputs          []placed
}

var typeCodes = []tensor.Type{
	"", tensor.Bool, tensor.Uint8, tensor.Int8, tensor.Uint16, tensor.Int16, tensor.Uint32, tensor.Int32,
	tensor.Uint64, tensor.Int64, tensor.FP16, tensor.FP32, tensor.FP64, tensor.BF16,
}

func codeOf(t tensor.Type) byte {
	for i, o := range typeCodes {
		if t == o {
			return byte(i)
		}
	}
	return 0
}

func appendPlaced(to []byte, all []placed) []byte {
	to = binary.LittleEndian.AppendUint16(to, uint16(len(all)))
	for _, p := range all {
		to = append(to, codeOf(p.typ), byte(len(p.shape)))
		to = binary.LittleEndian.AppendUint64(to, p.at)
		to = binary.LittleEndian.AppendUint64(to, p.size)
		for _, d := range p.shape {
			to = binary.LittleEndian.AppendUint64(to, uint64(d))
		}
	}
	return to
}

func (o order) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, o.id)
	b = binary.LittleEndian.AppendUint32(b, o.segment)
	b = binary.LittleEndian.AppendUint32(b, o.rows)
	b = binary.LittleEndian.AppendUint64(b, uint64(o.within.Microseconds()))
	b = binary.LittleEndian.AppendUint32(b, o.memory)
	return appendPlaced(appendPlaced(b, o.inputs), o.outputs)
}

func (r report) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, r.id)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.computed.Microseconds()))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.waited.Microseconds()))
	text := r.failed[:min(len(r.failed), maxBody/2)]
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	return appendPlaced(append(b, text...), r.outputs)
}

// cursor reads fields. After an error, all further ones are 0.
type cursor struct {
	left []byte
	err  error
}

var errShort = errors.New("a message ends early")

func (c *cursor) take(n int) []byte {
	if n < 0 || n > len(c.left) {
		c.left, c.err = nil, errors.Join(c.err, errShort)
		return make([]byte, max(0, min(n, 8)))
	}
	out := c.left[:n]
	c.left = c.left[n:]
	return out
}

func (c *cursor) u16() uint16 { return binary.LittleEndian.Uint16(c.take(2)) }
func (c *cursor) u32() uint32 { return binary.LittleEndian.Uint32(c.take(4)) }
func (c *cursor) u64() uint64 { return binary.LittleEndian.Uint64(c.take(8)) }

// time reads microseconds, at most an hour.
func (c *cursor) time() time.Duration {
	return time.Duration(min(c.u64(), uint64(time.Hour/time.Microsecond))) * time.Microsecond
}

func (c *cursor) fail(format string, values ...any) {
	c.left, c.err = nil, errors.Join(c.err, fmt.Errorf(format, values...))
}

// placed reads a list of tensors. Their sizes are those of their shapes, if they have one.
func (c *cursor) placed() []placed {
	n := int(c.u16())
	if n > maxTensors {
		c.fail("a message with %d tensors; the maximum is %d", n, maxTensors)
		return nil
	}
	all := make([]placed, 0, min(n, len(c.left)/18))
	for range n {
		if c.err != nil {
			return nil
		}
		code := c.take(2)
		p := placed{at: c.u64(), size: c.u64()}
		if int(code[0]) >= len(typeCodes) || code[1] > maxDims {
			c.fail("a tensor of the type %d with %d dimensions", code[0], code[1])
			return nil
		}
		p.typ = typeCodes[code[0]]
		for range code[1] {
			p.shape = append(p.shape, int64(c.u64()))
		}
		if err := p.check(); err != nil {
			c.fail("%w", err)
			return nil
		}
		all = append(all, p)
	}
	return all
}

// maxPlace is more bytes than any machine has.
const maxPlace = 1 << 48

func (p placed) check() error {
	if p.at != inline && (p.at > maxPlace || p.at%64 != 0 && p.at%uint64(max(1, p.typ.Size())) != 0) || p.size > maxData {
		return fmt.Errorf("a tensor of %d bytes at %d", p.size, p.at)
	}
	if len(p.shape) == 0 {
		return nil
	}
	n, err := tensor.Elements(p.shape)
	if err != nil || p.typ.Size() == 0 || n > maxData || uint64(n)*uint64(p.typ.Size()) != p.size {
		return fmt.Errorf("a tensor %s %v of %d bytes", p.typ, p.shape, p.size)
	}
	return nil
}

// inlined is the size of the tensors that come as data.
func inlined(all []placed) (n int64) {
	for _, p := range all {
		if p.at == inline {
			n += int64(p.size)
		}
	}
	return n
}

func decodeOrder(m message) (o order, err error) {
	c := cursor{left: m.body}
	o.id, o.segment, o.rows, o.within, o.memory = c.u64(), c.u32(), c.u32(), c.time(), c.u32()
	o.inputs, o.outputs = c.placed(), c.placed()
	switch {
	case c.err != nil:
	case o.rows < 1 || o.rows > maxRows:
		c.fail("a job of %d rows", o.rows)
	case inlined(o.inputs) != m.data || len(c.left) > 0:
		c.fail("a job with %d bytes of tensors and %d more; its inputs are %d", m.data, len(c.left), inlined(o.inputs))
	}
	for _, p := range o.inputs {
		if c.err == nil && (len(p.shape) == 0 || p.shape[0] != int64(o.rows)) {
			c.fail("an input %v of a job with %d rows", p.shape, o.rows)
		}
	}
	return o, c.err
}

func decodeReport(m message) (r report, err error) {
	c := cursor{left: m.body}
	r.id, r.computed, r.waited = c.u64(), c.time(), c.time()
	r.failed = string(c.take(int(c.u32())))
	r.outputs = c.placed()
	if c.err == nil && (inlined(r.outputs) != m.data || len(c.left) > 0) {
		c.fail("an answer with %d bytes of tensors and %d more; its outputs are %d", m.data, len(c.left), inlined(r.outputs))
	}
	return r, c.err
}

// cut closes a connection, which may be closed, at once. TLS would say so first, for up to 5 s if the
// other side takes nothing.
func cut(c net.Conn) {
	if secure, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secure.NetConn()
	}
	_ = c.Close()
}
