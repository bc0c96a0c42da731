package web

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

const (
	// onTrust is the size in bytes of a body's first buffer, before any of the body has
	// come. The stock gateway forwards every body without its length.
	onTrust = 16 << 10
	// A full buffer grows by sizedGrowth if the body's length is known, otherwise by
	// chunkedGrowth. A client therefore gets no more than that many times the memory that
	// it has filled, and fewer than twice the body's bytes are copied.
	sizedGrowth   = 4
	chunkedGrowth = 2
)

// BodyReader reads bodies of at most Max bytes. A client may take Timeout to send one.
type BodyReader struct {
	Max     int64
	Timeout time.Duration
	held    *Budget
}

// NewBodyReader returns a reader whose requests together hold no more than held bytes: what
// has come of their bodies, their heads, and their answers until the clients have taken them.
// held is raised to maximum + MaxHead if it is lower. Requests beyond it get 503. One client or
// one function may hold no more than is left free; requests beyond that get 429. A client that
// takes longer than timeout to send a body gets 408.
func NewBodyReader(maximum int64, timeout time.Duration, held int64) *BodyReader {
	return &BodyReader{Max: maximum, Timeout: timeout, held: NewBudget(BudgetOptions{
		Limit:         max(held, maximum+MaxHead),
		Full:          Unavailable(time.Second, "the requests in progress already take all the memory allowed (--max-held); try again in a moment"),
		ClientShare:   errShare("this client's"),
		FunctionShare: errShare("this function's"),
	})}
}

func errShare(whose string) *Error {
	return &Error{Status: http.StatusTooManyRequests, After: time.Second,
		Text: whose + " requests in progress already take their share of the memory allowed (--max-held); try again when some are answered"}
}

// WithMax returns a reader of bodies of at most maximum bytes that holds its bytes together with s.
func (s *BodyReader) WithMax(maximum int64) *BodyReader {
	return &BodyReader{Max: maximum, Timeout: s.Timeout, held: s.held}
}

// HoldAnswer counts n bytes of a function's answers while they are read, for no client. Only what
// others hold decides, as the answers exist already. Call release when the clients' own charges
// count them. The error is a *Error, 429 or 503.
func (s *BodyReader) HoldAnswer(function string, n int64) (release func(), err error) {
	c := s.held.ChargeFunction(function)
	if err := c.TakeAnswer(n); err != nil {
		return nil, err
	}
	return c.Release, nil
}

// Held returns the number of bytes held now.
func (s *BodyReader) Held() int64 { return s.held.Held() }

// Body is a request's body. Its buffer is nil if the request has no body. Its Charge is
// what the request holds of the memory allowed; release it when the request has ended.
type Body struct {
	*BodyBuffer
	Charge
	// content is the body if that is not the whole buffer.
	content []byte
}

// Content returns the body's bytes, nil if there is no body.
func (b *Body) Content() []byte {
	if b.content != nil || b.BodyBuffer == nil {
		return b.content
	}
	return b.Bytes
}

// uncounted is the size, in bytes, up to which an answer does not count as held: it leaves
// at once, and takes less memory than its connection.
const uncounted = 4 << 10

// TakeAnswer is [Charge.TakeAnswer] for the request's answer of n bytes.
func (b *Body) TakeAnswer(n int64) error {
	if n <= uncounted {
		return nil
	}
	return b.Charge.TakeAnswer(n)
}

// Read reads the whole body of a request for a function within the limits on size, time and
// memory. head is the size of the request's path, query and headers, which are held, too.
// After an error nothing is held.
func (s *BodyReader) Read(w http.ResponseWriter, r *http.Request, function string, head int64) (Body, error) {
	return s.read(w, r, s.Max, function, head)
}

// Assign counts what a body read for no function holds for this one. The error is a *Error, 429 or 503; then the
// body holds nothing.
func (s *BodyReader) Assign(b *Body, r *http.Request, function string) error {
	n := b.Held()
	b.Release()
	b.Charge = s.held.Charge(r, function)
	return b.Take(n)
}

// Hold counts the head of a request whose body is streamed. Release the charge when the request
// has ended.
func (s *BodyReader) Hold(r *http.Request, function string, head int64) (Charge, error) {
	c := s.held.Charge(r, function)
	return c, c.Take(head)
}

// ReadFrame is Read for a body that holds a request with its head, as one replica hands it to
// another. It may be larger than other bodies by overhead.
func (s *BodyReader) ReadFrame(w http.ResponseWriter, r *http.Request, function string, overhead int64) (Body, error) {
	return s.read(w, r, s.Max+overhead, function, 0)
}

// ReadText reads the whole body, of at most limit bytes, of a request to a system route.
func (s *BodyReader) ReadText(w http.ResponseWriter, r *http.Request, limit int64) (Body, error) {
	return s.read(w, r, limit, "", 0)
}

func (s *BodyReader) read(w http.ResponseWriter, r *http.Request, limit int64, function string, head int64) (Body, error) {
	n := r.ContentLength
	if n > limit {
		return Body{}, tooLarge(limit)
	}
	if ready, ok := r.Body.(*ReadBody); ok {
		return ready.hand(s.held.Charge(r, function), head)
	}
	b := Body{Charge: s.held.Charge(r, function)}
	if n == 0 {
		if err := b.Take(head); err != nil {
			return Body{}, err
		}
		return b, nil
	}
	s.Limit(w)
	if err := b.fill(r.Body, n, limit, head); err != nil {
		b.Free()
		b.Release()
		return Body{}, unreadable(err)
	}
	Unlimit(w)
	return b, nil
}

// fill reads a body of n bytes, or of at most limit if n is negative, into ever larger
// buffers. It takes head bytes in addition.
func (b *Body) fill(from io.Reader, n, limit, head int64) error {
	most, growth := limit, int64(chunkedGrowth)
	if n > 0 {
		most, growth = n, sizedGrowth
	}
	used := 0
	for size := min(onTrust, most); ; size = min(growth*size, most) {
		if err := b.Take(size + head - b.held); err != nil {
			return err
		}
		b.BodyBuffer = b.grow(used, int(size))
		for used < len(b.Bytes) {
			read, err := from.Read(b.Bytes[used:])
			used += read
			switch {
			case err == nil:
			case n < 0 && errors.Is(err, io.EOF):
				b.fit(used)
				return nil
			case used < len(b.Bytes) || size < n || !errors.Is(err, io.EOF):
				return err
			}
		}
		switch {
		case size == n:
			return nil
		case size == most:
			return atEnd(from, limit)
		}
	}
}

// atEnd returns nil if there is nothing more to read.
func atEnd(from io.Reader, limit int64) error {
	switch _, err := io.ReadFull(from, make([]byte, 1)); {
	case err == nil:
		return tooLarge(limit)
	case errors.Is(err, io.EOF):
		return nil
	default:
		return err
	}
}

// fit cuts a body down to its used bytes. A body that uses at most a quarter of its
// buffer moves to a smaller one, because many small requests must not hold large buffers.
func (b *Body) fit(used int) {
	unused := len(b.Bytes) - used
	if used > len(b.Bytes)/4 {
		b.Bytes = b.Bytes[:used]
		return
	}
	b.BodyBuffer = b.grow(used, used)
	b.Give(int64(unused))
}

// readDeadliner is a response that can set a deadline for reading its request, as
// those of net/http can.
type readDeadliner interface{ SetReadDeadline(time.Time) error }

// Limit gives the client Timeout to send the rest of its request. Call Unlimit
// afterwards: net/http goes on reading, to notice a client that hangs up.
func (s *BodyReader) Limit(w http.ResponseWriter) {
	if d, ok := w.(readDeadliner); ok {
		_ = d.SetReadDeadline(time.Now().Add(s.Timeout)) // It fails if the connection is gone; then so does reading.
	}
}

// maxRest is how much of a body that a handler has not read is read before the answer. It is net/http's own
// number for HTTP/1.
const maxRest = 256 << 10

// LimitRest, deferred, limits the time for the rest of a body that a handler has not
// read: net/http reads it before it answers. Over HTTP/2 it resets the stream instead, so LimitRest reads it. It leaves
// what is longer than that to [CloseAfter].
func (s *BodyReader) LimitRest(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	s.Limit(w)
	if r.ProtoMajor == 2 {
		if _, err := io.CopyN(io.Discard, r.Body, maxRest); err == nil {
			leaveRest(w)
		}
	}
}

// CloseAfter says that an answer does not wait for the rest of its request's body. Call it before the answer is
// written. The connection closes afterwards, or what comes would be taken for the next request. Over HTTP/2 only the
// stream ends. A GOAWAY would end the connection for other requests, too, and curl 7.88 loses the answers before it.
func CloseAfter(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor < 2 {
		w.Header()["Connection"] = []string{"close"}
		return
	}
	leaveRest(w)
}

// Unlimit takes the time limit away.
func Unlimit(w http.ResponseWriter) {
	if d, ok := w.(readDeadliner); ok {
		_ = d.SetReadDeadline(time.Time{})
	}
}

func tooLarge(limit int64) error {
	return Refuse(http.StatusRequestEntityTooLarge, "the request body is larger than %d bytes, the limit of this route", limit)
}

// unreadable returns the answer to a request whose body could not be read.
func unreadable(err error) error {
	var known HTTPError
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Refuse(http.StatusRequestTimeout, "the request body did not arrive in time")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		err = errors.New("it ended early")
	}
	return Refuse(http.StatusBadRequest, "the request body could not be read: %v", err)
}
