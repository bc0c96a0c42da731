package grpc

import (
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/faas-infer/faas-infer/provider/web"
)

const (
	// prefixLength is the length of what comes before each message: whether it is compressed, and its length.
	prefixLength = 5
	// room is how many bytes a message's buffer has in front of it, for the JSON part of its translation.
	room = 2 << 10
	// maxAnswer is the most bytes of an answer that comes in parts, as programs' answers do, and of what is made of an
	// answer beside its raw tensors.
	maxAnswer = 64 << 20
	// maxQuestion is the most bytes of a message that has no tensors.
	maxQuestion = 64 << 10
)

// empty fills the room in front of messages.
var empty [room]byte

// roomReader reads the room and then a message.
type roomReader struct {
	room int
	rest io.Reader
}

// Read implements io.Reader.
func (r *roomReader) Read(p []byte) (int, error) {
	if r.room > 0 {
		n := copy(p[:min(len(p), r.room)], empty[:])
		r.room -= n
		return n, nil
	}
	return r.rest.Read(p)
}

// receive reads the only message of a call, of at most limit bytes. Release and free held after use.
func (c *call) receive(limit int64) (held web.Body, message []byte, err error) {
	c.server.options.Bodies.Limit(c.w)
	held, message, err = c.next(limit)
	if errors.Is(err, io.EOF) {
		err = web.BadRequest(errors.New("the call has no message"))
	}
	return held, message, err
}

// next reads the next message of a call, of at most limit bytes; io.EOF if there is none. It lies in the buffer of held,
// after [room].
func (c *call) next(limit int64) (held web.Body, message []byte, err error) {
	var prefix [prefixLength]byte
	switch _, err := io.ReadFull(c.body, prefix[:]); {
	case errors.Is(err, io.EOF):
		return held, nil, io.EOF
	case err != nil:
		return held, nil, c.broken(err)
	}
	n := int64(binary.BigEndian.Uint32(prefix[1:]))
	bodies := c.server.options.Bodies
	if limit = min(limit, bodies.Max); n > limit {
		return held, nil, web.Refuse(http.StatusRequestEntityTooLarge, "the message has %d bytes, the limit is %d", n, limit)
	}
	source := io.LimitReader(c.body, n)
	r := *c.r
	r.ContentLength, r.Body = room+n, io.NopCloser(&roomReader{room, source})
	switch coding := c.r.Header.Get("Grpc-Encoding"); {
	case prefix[0] == 0:
	case coding == "gzip":
		plain, err := gzip.NewReader(source)
		if err != nil {
			return held, nil, web.BadRequest(fmt.Errorf("the message is not gzip: %w", err))
		}
		r.ContentLength, r.Body = -1, io.NopCloser(&roomReader{room, plain})
	default:
		return held, nil, &status{code: unimplemented, text: fmt.Sprintf("the grpc-encoding %q is not known; send gzip or identity", web.Clip(coding))}
	}
	if held, err = bodies.WithMax(limit+room).Read(c.w, &r, "", 0); err != nil {
		return held, nil, c.broken(err)
	}
	if r.ContentLength < 0 {
		if _, err := io.Copy(io.Discard, source); err != nil { // What gzip does not read of its end.
			held.Free()
			held.Release()
			return held, nil, c.broken(err)
		}
	}
	return held, held.Bytes[room:], nil
}

// broken returns why a message could not be read.
func (c *call) broken(err error) error {
	var known web.HTTPError
	if done := c.r.Context().Err(); done != nil {
		return done
	}
	select {
	case <-c.server.options.Shut:
		if ready := c.server.options.Ready(); ready != nil {
			return ready
		}
	default:
	}
	if errors.As(err, &known) {
		return err
	}
	return web.BadRequest(fmt.Errorf("the message could not be read: %w", err))
}

// ask sends a request about a model to the provider's routes. take gets the answer and its body if its status is 200;
// the body is valid until take returns. Other answers become the error, a *status.
func (c *call) ask(model, method, path string, given http.Header, body *web.ReadBody, length int,
	take func(a *answer, body []byte) error) (err error) {
	r := c.r.WithContext(c.r.Context())
	r.Method, r.RequestURI, r.Header, r.Trailer = method, path, given, nil
	r.URL = &url.URL{Path: path}
	if plain, err := url.PathUnescape(path); err == nil && plain != path {
		r.URL.Path, r.URL.RawPath = plain, path
	}
	r.Body, r.ContentLength = http.NoBody, int64(length)
	if body != nil {
		r.Body = body
		defer body.Close()
	}
	a := &answer{options: &c.server.options, model: model, header: http.Header{}, take: take}
	defer a.release()
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler: // The answer broke off.
			err = &status{code: unavailable, text: "the function's answer broke off"}
		default:
			panic(p)
		}
	}()
	c.server.options.Handler.ServeHTTP(a, r)
	if !a.taken {
		a.finish(a.body)
	}
	return a.err
}

// answer is the answer to [call.ask].
type answer struct {
	options *Options
	model   string
	header  http.Header
	status  int
	take    func(a *answer, body []byte) error
	// taken: take has had the answer, or it is refused. err is the result.
	taken bool
	err   error
	// body is what has come in parts. counted of it is held until releases are called, and so is what is made of it.
	body     []byte
	counted  int64
	releases []func()
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter. It ignores interim answers.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status = status
	}
}

// Write implements http.ResponseWriter. It passes a whole answer on without a copy.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	switch {
	case a.taken:
		return 0, http.ErrBodyNotAllowed
	case len(a.body) == 0 && a.header.Get("Content-Length") == strconv.Itoa(len(p)):
		a.finish(p)
		return len(p), nil
	}
	if a.err = a.hold(int64(len(a.body) + len(p))); a.err != nil {
		a.taken = true
		return 0, a.err
	}
	a.body = append(a.body, p...)
	return len(p), nil
}

// hold counts a body of n bytes that comes in parts.
func (a *answer) hold(n int64) error {
	if n > maxAnswer {
		return &status{code: resourceExhausted, text: fmt.Sprintf("the function's answer is longer than %d bytes", int64(maxAnswer))}
	}
	if n <= a.counted {
		return nil
	}
	more := max(n-a.counted, a.counted)
	a.counted += more
	return a.count(more)
}

// keep counts n bytes that are about to be made of the answer. A few bytes are gone at once and do not count.
func (a *answer) keep(n int) error {
	if n <= smallTensor {
		return nil
	}
	if n > maxAnswer {
		return &status{code: resourceExhausted, text: fmt.Sprintf(
			"the function's answer is longer than %d bytes in this form; send raw_input_contents to get it raw", int64(maxAnswer))}
	}
	return a.count(int64(n))
}

// count holds n more bytes until the answer is sent.
func (a *answer) count(n int64) error {
	release, err := a.options.Bodies.HoldAnswer(a.options.Charged(a.model), n)
	if err == nil {
		a.releases = append(a.releases, release)
	}
	return err
}

func (a *answer) release() {
	for _, release := range a.releases {
		release()
	}
}

// Flush implements http.Flusher. The answer is sent when it is whole.
func (a *answer) Flush() {}

// finish passes the whole answer on.
func (a *answer) finish(body []byte) {
	a.taken = true
	if a.status != http.StatusOK && a.status != 0 {
		a.err = refusal(a.status, a.header, body)
		return
	}
	a.err = a.take(a, body)
}

// send writes the prefix of a message, and the message. Its parts need not be in one piece of memory.
func (c *call) send(m *response, wrapped bool) error {
	size, own := m.size(), 0
	if wrapped {
		own = protowire.SizeTag(2) + protowire.SizeVarint(uint64(size))
	}
	if uint64(size+own) > 1<<32-1 {
		return &status{code: resourceExhausted, text: "the answer is too long for a message of gRPC"}
	}
	to := make([]byte, prefixLength, prefixLength+own+min(len(m.head), smallTensor)+16)
	binary.BigEndian.PutUint32(to[1:], uint32(size+own))
	if wrapped {
		to = protowire.AppendVarint(protowire.AppendTag(to, 2, protowire.BytesType), uint64(size))
	}
	for i := range 1 + len(m.raw) {
		part := m.head
		if i > 0 {
			part = m.raw[i-1]
			to = protowire.AppendVarint(protowire.AppendTag(to, 6, protowire.BytesType), uint64(len(part)))
		}
		if len(part) <= smallTensor {
			to = append(to, part...)
			continue
		}
		if err := c.write(to); err != nil {
			return err
		}
		if err := c.write(part); err != nil {
			return err
		}
		to = to[:0]
	}
	if len(to) == 0 {
		return nil
	}
	return c.write(to)
}

// smallTensor is up to how many bytes a tensor is copied: a write of its own costs more.
const smallTensor = 4 << 10

// write writes a part of an answer. It fails if the client is gone.
func (c *call) write(p []byte) error {
	if _, err := c.w.Write(p); err != nil {
		return &status{code: canceled, text: err.Error()}
	}
	return nil
}

// reply sends a message of a call.
func (c *call) reply(m []byte) error { return c.send(&response{head: m}, false) }

// copyMetadata gives the client an answer's headers. The message has replaced what some of them say.
func copyMetadata(to, from http.Header) {
	maps.DeleteFunc(from, func(name string, _ []string) bool {
		switch name {
		case "Content-Type", "Content-Length", "Content-Encoding", "Connection", "Trailer", "Transfer-Encoding", lengthHeader:
			return true
		}
		return len(name) > 5 && name[:5] == "Grpc-"
	})
	maps.Copy(to, from)
}
