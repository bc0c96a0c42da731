package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/shared"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Handler computes a shadow's jobs, one at a time.
type Handler interface {
	// Run computes rows of a segment and writes the outputs to into, whose sizes must be
	// theirs. When ctx ends nobody needs the answer.
	Run(ctx context.Context, segment, rows int, inputs []tensor.Tensor, into [][]byte) error
}

const (
	// greetTime bounds the exchange of identities.
	greetTime = 2 * time.Second
	// maxQueue is the number of jobs that wait; a body with more is not read from.
	maxQueue = 8
	// maxMemories is the number of memory files of a body that are kept: jobs of the one
	// before may still come.
	maxMemories = 2
)

// Serve answers the bodies that connect at a listener until ctx ends. It closes the listener.
func Serve(ctx context.Context, l net.Listener, mine Identity, h Handler, log zerolog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{mine: mine, handler: h, log: log, jobs: make(chan *job, maxQueue)}
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	work.Go(func() { s.compute(ctx) })
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return errors.Join(err, l.Close())
		}
		work.Go(func() {
			if err := s.serve(ctx, conn); err != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				log.Warn().Err(err).Msg("a body's connection ended")
			}
		})
	}
}

type server struct {
	mine    Identity
	handler Handler
	log     zerolog.Logger
	jobs    chan *job
}

// body is the other side of a connection.
type body struct {
	conn net.Conn
	in   *bufio.Reader
	fds  *descriptors
	// ctx ends with the connection.
	ctx      context.Context
	writing  sync.Mutex
	memories []kept

	mu      sync.Mutex
	dropped map[uint64]context.CancelFunc
}

// kept is a body's memory file.
type kept struct {
	number uint32
	*shared.Memory
}

// job is an order with its tensors.
type job struct {
	order
	from   *body
	came   time.Time
	ctx    context.Context
	inputs []tensor.Tensor
	into   [][]byte
	free   []func()
}

func (j *job) release() {
	for _, f := range j.free {
		f()
	}
	j.from.mu.Lock()
	defer j.from.mu.Unlock()
	if cancel := j.from.dropped[j.id]; cancel != nil {
		cancel()
		delete(j.from.dropped, j.id)
	}
}

// serve reads a body's messages until its connection ends.
func (s *server) serve(ctx context.Context, conn net.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { cut(conn) })
	defer stop()
	defer cancel()
	b := &body{conn: conn, ctx: ctx, dropped: make(map[uint64]context.CancelFunc)}
	b.fds = &descriptors{}
	b.in = bufio.NewReaderSize(conn, 64<<10)
	if u, ok := conn.(*net.UnixConn); ok {
		b.fds.conn = u
		b.in = bufio.NewReaderSize(b.fds, 64<<10)
	}
	defer b.close()
	if err := s.greet(b); err != nil {
		return err
	}
	for {
		m, err := read(b.in)
		if err != nil {
			return err
		}
		switch m.kind {
		case memory:
			err = b.keep(m)
		case run:
			err = s.queue(b, m)
		case drop:
			err = b.drop(m)
		default:
			err = fmt.Errorf("a message of the kind %d from a body", m.kind)
		}
		if err != nil {
			return err
		}
	}
}

// greet answers the body's identity with this side's, or with a refusal.
func (s *server) greet(b *body) error {
	if err := b.conn.SetDeadline(time.Now().Add(greetTime)); err != nil {
		return err
	}
	m, err := read(b.in)
	if err == nil && m.kind != hello {
		err = fmt.Errorf("it begins with a message of the kind %d", m.kind)
	}
	var other Identity
	if err == nil {
		other, err = decodeIdentity(m.body)
	}
	if err == nil {
		err = s.mine.Differs(other)
	}
	answer := message{kind: hello, body: s.mine.encode()}
	if err != nil {
		answer = message{kind: refusal, body: []byte(err.Error())}
	}
	_, failed := b.conn.Write(answer.append(nil))
	return errors.Join(err, failed, b.conn.SetDeadline(time.Time{}))
}

// keep maps a memory file.
func (b *body) keep(m message) error {
	c := cursor{left: m.body}
	_, _, _, _, number := c.u64(), c.u32(), c.u32(), c.u64(), c.u32()
	if c.err != nil {
		return c.err
	}
	file, err := b.fds.next()
	if err != nil {
		return err
	}
	opened, err := shared.Open(file)
	if err != nil {
		return err
	}
	b.memories = append(b.memories, kept{number, opened})
	if len(b.memories) > maxMemories {
		_ = b.memories[0].Close() // Jobs that use it keep what they use.
		b.memories = b.memories[1:]
	}
	return nil
}

func (b *body) drop(m message) error {
	c := cursor{left: m.body}
	id := c.u64()
	b.mu.Lock()
	defer b.mu.Unlock()
	if cancel := b.dropped[id]; cancel != nil {
		cancel()
	}
	return c.err
}

func (b *body) close() {
	for _, k := range b.memories {
		_ = k.Close()
	}
	b.fds.close()
	cut(b.conn)
}

// queue reads a job's tensors and hands it to the worker.
func (s *server) queue(b *body, m message) error {
	o, err := decodeOrder(m)
	if err != nil {
		return err
	}
	j := &job{order: o, from: b, came: time.Now()}
	if err := j.place(); err != nil {
		j.release()
		return err
	}
	var cancel context.CancelFunc
	j.ctx, cancel = context.WithTimeout(b.ctx, o.within)
	b.mu.Lock()
	b.dropped[o.id] = cancel
	b.mu.Unlock()
	select {
	case s.jobs <- j:
		return nil
	case <-b.ctx.Done():
		j.release()
		return b.ctx.Err()
	}
}

// place finds the job's tensors, and reads those that came with it.
func (j *job) place() error {
	var from *shared.Memory
	for _, k := range j.from.memories {
		if k.number == j.memory {
			from = k.Memory
		}
	}
	at := func(p placed) ([]byte, error) {
		switch {
		case p.at == inline:
			return make([]byte, p.size), nil
		case from == nil:
			return nil, fmt.Errorf("a tensor in the memory %d, which did not come", j.memory)
		}
		part, err := from.Hold(int64(p.at), int64(p.at+p.size))
		if err != nil {
			return nil, err
		}
		j.free = append(j.free, func() { from.Free(part) })
		return part.Data(), nil
	}
	total := uint64(0)
	for _, p := range append(append([]placed(nil), j.order.inputs...), j.order.outputs...) {
		if total += p.size; total > maxData {
			return fmt.Errorf("a job with more than %d bytes of tensors", maxData)
		}
	}
	for _, p := range j.order.inputs {
		data, err := at(p)
		if err == nil && p.at == inline {
			_, err = io.ReadFull(j.from.in, data)
		}
		if err != nil {
			return err
		}
		j.inputs = append(j.inputs, tensor.Tensor{Type: p.typ, Shape: p.shape, Data: data})
	}
	for _, p := range j.order.outputs {
		data, err := at(p)
		if err != nil {
			return err
		}
		j.into = append(j.into, data)
	}
	return nil
}

// compute runs the jobs one after the other.
func (s *server) compute(ctx context.Context) {
	for {
		select {
		case j := <-s.jobs:
			if err := s.one(j); err != nil {
				cut(j.from.conn) // The body computes the rows itself.
			}
			j.release()
		case <-ctx.Done():
			for {
				select {
				case j := <-s.jobs:
					j.release()
				default:
					return
				}
			}
		}
	}
}

// one computes a job and answers it.
func (s *server) one(j *job) error {
	r := report{id: j.id, waited: time.Since(j.came)}
	began := time.Now()
	err := j.ctx.Err()
	if err == nil {
		err = s.handler.Run(j.ctx, int(j.segment), int(j.rows), j.inputs, j.into)
	}
	r.computed = time.Since(began)
	if gone := j.from.ctx.Err(); gone != nil {
		return gone
	}
	var data net.Buffers
	if err != nil {
		r.failed = err.Error()
	} else {
		for i, o := range j.order.outputs {
			r.outputs = append(r.outputs, placed{at: o.at, size: o.size})
			if o.at == inline {
				data = append(data, j.into[i])
			}
		}
	}
	m := message{kind: done, body: r.encode(), data: inlined(r.outputs)}
	j.from.writing.Lock()
	defer j.from.writing.Unlock()
	if err := j.from.conn.SetWriteDeadline(time.Now().Add(max(time.Second, j.within))); err != nil {
		return err
	}
	all := append(net.Buffers{m.append(nil)}, data...)
	_, err = all.WriteTo(j.from.conn)
	return err
}

// descriptors reads a Unix socket and keeps the descriptors that come.
type descriptors struct {
	conn *net.UnixConn
	fds  []int
}

// Read implements io.Reader.
func (d *descriptors) Read(b []byte) (int, error) {
	n, more, err := shared.Receive(d.conn, b, maxMemories)
	if d.fds = append(d.fds, more...); len(d.fds) > maxMemories {
		err = errors.Join(err, errors.New("more descriptors came than memory files"))
	}
	return n, err
}

// next is the descriptor that came with the last message.
func (d *descriptors) next() (*os.File, error) {
	if len(d.fds) == 0 {
		return nil, errors.New("a memory file came without its descriptor")
	}
	fd := d.fds[0]
	d.fds = d.fds[1:]
	return os.NewFile(uintptr(fd), "relay"), nil
}

func (d *descriptors) close() {
	shared.CloseAll(d.fds)
	d.fds = nil
}
