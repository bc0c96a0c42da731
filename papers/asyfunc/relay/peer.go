package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/shared"
)

// Peer is a shadow, as its body sees it. It is safe for concurrent use.
type Peer struct {
	conn  net.Conn
	other Identity
	ended chan struct{} // closed when nothing is read any more

	writing sync.Mutex
	sent    uint32 // the number of the last memory that was sent

	mu      sync.Mutex
	pending map[uint64]*call
	next    uint64
	err     error // why it ended
}

// call is a job whose answer is still to come.
type call struct {
	into   [][]byte
	answer chan error
	found  Answer
}

// Dial connects a body to the shadow at a network, "unix", "tcp" or [mutual.Network], and address
// with dial. Both compare their identities; the error wraps [ErrRefused] if they do not fit. ctx
// bounds that, and not the connection.
func Dial(ctx context.Context, dial mutual.Dial, network, address string, mine Identity) (*Peer, error) {
	conn, err := dial(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("the shadow: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	other, in, err := greet(conn, mine)
	if !stop() || err != nil {
		return nil, errors.Join(fmt.Errorf("the shadow at %s: %w", address, errors.Join(err, ctx.Err())), conn.Close())
	}
	p := &Peer{conn: conn, other: other, ended: make(chan struct{}), pending: make(map[uint64]*call)}
	go p.receive(in)
	return p, nil
}

// greet exchanges identities.
func greet(conn net.Conn, mine Identity) (other Identity, in *bufio.Reader, err error) {
	if _, err := conn.Write(message{kind: hello, body: mine.encode()}.append(nil)); err != nil {
		return other, nil, err
	}
	in = bufio.NewReaderSize(conn, 64<<10)
	m, err := read(in)
	switch {
	case err != nil:
		return other, nil, err
	case m.kind == refusal:
		return other, nil, fmt.Errorf("%w: %.300s", ErrRefused, m.body)
	case m.kind != hello:
		return other, nil, fmt.Errorf("it answers with a message of the kind %d", m.kind)
	}
	if other, err = decodeIdentity(m.body); err == nil {
		err = mine.Differs(other)
	}
	return other, in, err
}

// MaxRows is the largest job that the shadow takes in rows.
func (p *Peer) MaxRows() int { return p.other.MaxRows }

// Shares reports whether tensors go through shared memory.
func (p *Peer) Shares() bool { return p.conn.LocalAddr().Network() == "unix" }

// Ended is closed when the connection is.
func (p *Peer) Ended() <-chan struct{} { return p.ended }

// Run sends a job and waits for its answer. After an error that wraps [ErrLate] or [ErrLost] the
// connection is closed, and the job's memory must be retired: the shadow may still write to it.
// Any other error is the shadow's. ctx drops a job that nobody needs, but Run still waits until
// the shadow has answered.
func (p *Peer) Run(ctx context.Context, j Job) (Answer, error) {
	c := &call{into: j.Into, answer: make(chan error, 1)}
	id, err := p.register(c)
	if err != nil {
		return Answer{}, err
	}
	if err := p.send(id, j); err != nil {
		p.end(err)
		<-p.ended
		return Answer{}, <-c.answer
	}
	timer := time.After(j.Within)
	dropped := ctx.Done()
	for {
		select {
		case err := <-c.answer:
			return c.found, err
		case <-dropped:
			dropped = nil
			p.drop(id)
		case <-timer:
			p.end(fmt.Errorf("%w: %v passed", ErrLate, j.Within))
			<-p.ended // Nothing is read into the outputs any more.
			err := <-c.answer
			return c.found, err
		}
	}
}

// dropTime bounds the sending of a drop.
const dropTime = time.Second

// drop says that nobody needs a job's answer.
func (p *Peer) drop(id uint64) {
	p.writing.Lock()
	defer p.writing.Unlock()
	// The limit of a job that was sent later may have passed.
	err := p.conn.SetWriteDeadline(time.Now().Add(dropTime))
	if err == nil {
		_, err = p.conn.Write(message{kind: drop, body: order{id: id, rows: 1}.encode()}.append(nil))
	}
	if err != nil { // A part of it may have been sent, and TLS takes no more after an error.
		p.end(err)
	}
}

func (p *Peer) register(c *call) (id uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	p.next++
	p.pending[p.next] = c
	return p.next, nil
}

// send writes a job. Tensors that are not in the memory go as data.
func (p *Peer) send(id uint64, j Job) error {
	o := order{id: id, segment: uint32(j.Segment), rows: uint32(j.Rows), within: j.Within}
	if !p.Shares() {
		j.Memory = nil
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	if err := p.conn.SetWriteDeadline(time.Now().Add(j.Within)); err != nil {
		return err
	}
	has, err := p.bring(j.Memory)
	if err != nil {
		return err
	}
	if !has {
		j.Memory = nil
	}
	var data net.Buffers
	for _, t := range j.Inputs {
		at := placed{typ: t.Type, shape: t.Shape, at: inline, size: uint64(len(t.Data))}
		if found, ok := j.Memory.place(t.Data); ok {
			at.at = found
		} else if len(t.Data) > 0 {
			data = append(data, t.Data)
		}
		o.inputs = append(o.inputs, at)
	}
	for _, into := range j.Into {
		at := placed{at: inline, size: uint64(len(into))}
		if found, ok := j.Memory.place(into); ok {
			at.at = found
		}
		o.outputs = append(o.outputs, at)
	}
	if j.Memory != nil {
		o.memory = j.Memory.number
	}
	m := message{kind: run, body: o.encode(), data: inlined(o.inputs)}
	all := append(net.Buffers{m.append(nil)}, data...)
	_, err = all.WriteTo(p.conn)
	return err
}

// bring passes a memory's file to the other side, unless it has it. has is false if the file is closed:
// another job may retire the memory at any time. The file stays open while it is passed, otherwise its
// descriptor could be another file's by then.
func (p *Peer) bring(m *Memory) (has bool, err error) {
	if m == nil || p.sent == m.number {
		return m != nil, nil
	}
	raw, err := m.File().SyscallConn()
	if err != nil {
		return false, err
	}
	b := message{kind: memory, body: order{memory: m.number, rows: 1}.encode()}.append(nil)
	closed := raw.Control(func(fd uintptr) { err = shared.Pass(p.conn.(*net.UnixConn), b, int(fd)) })
	if closed != nil || err != nil {
		return false, err
	}
	p.sent = m.number
	return true, nil
}

// receive reads answers until the connection ends.
func (p *Peer) receive(in *bufio.Reader) {
	var err error
	for err == nil {
		var m message
		var r report
		if m, err = read(in); err != nil {
			break
		}
		if m.kind != done {
			err = fmt.Errorf("a message of the kind %d from a shadow", m.kind)
			break
		}
		if r, err = decodeReport(m); err == nil {
			err = p.answer(in, r)
		}
	}
	p.end(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, c := range p.pending {
		c.answer <- p.err
		delete(p.pending, id)
	}
	close(p.ended)
}

// answer hands an answer out. Data of an answer that nobody waits for are skipped.
func (p *Peer) answer(in *bufio.Reader, r report) error {
	p.mu.Lock()
	c := p.pending[r.id]
	p.mu.Unlock()
	if c == nil {
		return fmt.Errorf("an answer to the job %d, which waits for none", r.id)
	}
	if r.failed == "" && len(r.outputs) != len(c.into) {
		return fmt.Errorf("%d outputs of a job with %d", len(r.outputs), len(c.into))
	}
	for i, o := range r.outputs {
		if o.size != uint64(len(c.into[i])) {
			return fmt.Errorf("output %d has %d bytes, not %d", i, o.size, len(c.into[i]))
		}
		if o.at == inline {
			if _, err := io.ReadFull(in, c.into[i]); err != nil {
				return err
			}
		}
	}
	c.found.Computed, c.found.Waited = r.computed, r.waited
	p.mu.Lock()
	delete(p.pending, r.id)
	p.mu.Unlock()
	if r.failed != "" {
		c.answer <- fmt.Errorf("the shadow: %s", r.failed)
	} else {
		c.answer <- nil
	}
	return nil
}

// end closes the connection for a reason, which the first call gives.
func (p *Peer) end(why error) {
	p.mu.Lock()
	if p.err == nil {
		if !errors.Is(why, ErrLate) {
			why = fmt.Errorf("%w: %w", ErrLost, why)
		}
		p.err = why
	}
	p.mu.Unlock()
	cut(p.conn)
}

// Close ends the connection. Jobs without an answer fail.
func (p *Peer) Close() error {
	p.end(net.ErrClosed)
	<-p.ended
	return nil
}
