// Package frame encodes and decodes a whole batch for the way between dispatcher and
// instance. One HTTP request carries every member with its own method, path, headers
// and body. One HTTP response carries the answers in the members' order. The package
// does not look into the bodies. Begin with [EncodeRequests] and [DecodeRequests].
//
// # Wire format, version 1
//
//	POST /v1/batch HTTP/1.1
//	Content-Type: application/vnd.faas-infer.batch; version=1
//	Content-Length: …
//
//	body    = "FIB1" count:u32 { member }
//	member  = headLength:u32 bodyLength:u64 head body
//	head    = line { name ": " value "\n" }
//	line    = method " " path ["?" query] "\n"     in a request
//	line    = status "\n"                          in a response
//
// Integers are little endian. A member's failure is in its own status: the HTTP
// response has status 200 if the instance could read the frame. The response header
// [ExecHeader] holds the engine's time. Answers may also come in parts: see [PartsHeader].
package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// Path is the instance's route for batches.
	Path = "/v1/batch"
	// ContentType marks a frame of this version.
	ContentType = "application/vnd.faas-infer.batch; version=1"
	// ExecHeader is the response header with the engine's time for the batch
	// in µs.
	ExecHeader = "X-Faas-Infer-Exec-Us"
	// BesideHeader is the response header with the CPU time that the instance has used
	// outside the engine since the previous batch, in µs.
	BesideHeader = "X-Faas-Infer-Beside-Us"
	// WaitHeader is the response header with the time that the batch waited while
	// other batches had the engine, in µs.
	WaitHeader = "X-Faas-Infer-Wait-Us"
	// ElementsHeader is the response header with the mean number of elements of a request's row,
	// all inputs together. It is absent if the rows of the model have one size.
	ElementsHeader = "X-Faas-Infer-Elements"
	// RowsHeader is the response header with the mean number of rows of a request, a decimal number. Only models
	// whose rows of different lengths run together have it.
	RowsHeader = "X-Faas-Infer-Rows"
	// WithinHeader is the request header with the time in which each member must be
	// answered, in µs since the batch was sent: one number per member, in order, separated
	// by commas; 0 is no bound. An instance does not run a member whose time is over.
	WithinHeader = "X-Faas-Infer-Within-Us"
	// OnceHeader is the request header that says that no member may run twice: its value is then
	// "1". A batch that fails then does not run again member by member.
	OnceHeader = "X-Faas-Infer-Once"
	// ModelHeader is the header of a member that names a model or a variant of its function.
	// Answers then call the model by that name instead of the function's.
	ModelHeader = "X-Infer-Model"
	// MaxMembers is the maximum number of members in a frame.
	MaxMembers = 4096
	// MaxHead is the maximum length in bytes of a member's first line and headers.
	MaxHead = 64 << 10

	// maxWithin bounds the times of WithinHeader.
	maxWithin = 24 * time.Hour

	magic        = "FIB1"
	prefixLength = 8
	memberLength = 12
)

// ErrFrame is wrapped by every error of DecodeRequests and DecodeResponses.
var ErrFrame = errors.New("not a batch frame of version 1")

// Request is one member of a batch as its client sent it.
type Request struct {
	// Method is the HTTP method, Path the path below the function (it starts
	// with "/"), Query the raw query without "?".
	Method string
	Path   string
	Query  string
	Header http.Header
	Body   []byte
	// Due is the time from which an answer is no longer useful, zero for none. The receiver
	// sets it from [WithinHeader]; the frame does not have it.
	Due time.Time
	// Once: the request must not run twice. The receiver sets it from [OnceHeader]; the frame does
	// not have it.
	Once bool
	// Waited is how long the request has waited in the provider before a dispatcher got it,
	// for its function after a restart or for another replica. It counts towards the time
	// that the request may take. The frame does not have it.
	Waited time.Duration
	// Class says which instances may answer (batching.Request.Class). Objective is the
	// request's own latency objective, 0 for the function's. The frame has neither.
	Class     uint8
	Objective time.Duration
	// Beyond says that Objective is shorter than what capacity may be planned for, so that a
	// miss says nothing about capacity. The frame does not have it.
	Beyond bool
	// Sink, if not nil, may take the body of the answer as it comes. [Response.Body] then has
	// what it has not taken. The frame does not have it.
	Sink io.Writer
	// Parts, if not nil, takes the parts of the answer as they come, each a JSON text, if the function answers in
	// parts. It is called by one goroutine at a time and keeps the part. It does not block, and fails if no more
	// parts are needed. The response is the end of the answer: after parts and with status 200 it has no body.
	// The receiver sets it from [PartsHeader]; the frame does not have it.
	Parts func(part []byte) error
	// Trace collects the times of a sampled request, nil for the others. The frame does not have it.
	Trace *Trace
	// Owner is the function that the request belongs to if several share its dispatcher, otherwise nil.
	// The frame does not have it.
	Owner *Owner
}

// Owner is one of the functions that share a dispatcher. Only the dispatcher changes the counters.
type Owner struct {
	// Name is the function's name without its namespace. Clients call the model by it.
	Name string
	// Queued, if not nil, gets how long a request waited for its batch, and the request's trace. Dropped, if not
	// nil, gets the reason when a request is answered without being executed. Nothing else counts these.
	Queued  func(d time.Duration, t *Trace)
	Dropped func(reason string)
	// Waiting is the number of its requests that no instance has yet.
	Waiting atomic.Int64
}

// Response is one member's answer.
type Response struct {
	// Status is the HTTP status code of this member.
	Status int
	Header http.Header
	Body   []byte
	// Instance and Variant are the instance and the artefact that gave the answer. The
	// dispatcher sets them; the frame has neither.
	Instance, Variant string
	// Revision is the number of the function's revision that gave it. The dispatcher sets it, too.
	Revision uint64
	// Late: the answer came after the request's objective. The dispatcher sets it, too.
	Late bool
	// Used is the request's part of its batch's execution: the time divided by the requests. The dispatcher
	// sets it, too.
	Used time.Duration
}

// Overhead returns the maximum number of bytes that a frame needs in addition to its members'
// bodies.
func Overhead(members int) int64 {
	return prefixLength + int64(members)*(memberLength+MaxHead)
}

// EncodeRequests returns the frame of a batch as buffers for one vectored
// write, and their total length in bytes. Bodies are not copied.
func EncodeRequests(requests []Request) (net.Buffers, int64) {
	return encode(len(requests), func(i int, head []byte) ([]byte, []byte) {
		r := &requests[i]
		head = append(head, r.Method...)
		head = append(head, ' ')
		head = append(head, r.Path...)
		if r.Query != "" {
			head = append(head, '?')
			head = append(head, r.Query...)
		}
		head = append(head, '\n')
		return appendHeader(head, r.Header), r.Body
	})
}

// EncodeResponses returns the frame of a batch's answers, like EncodeRequests.
func EncodeResponses(responses []Response) (net.Buffers, int64) {
	return encode(len(responses), func(i int, head []byte) ([]byte, []byte) {
		r := &responses[i]
		head = strconv.AppendInt(head, int64(r.Status), 10)
		head = append(head, '\n')
		return appendHeader(head, r.Header), r.Body
	})
}

// smallBody is the size in bytes up to which encode copies a body into the run of
// heads. Up to there a copy costs less than one more element of a vectored write.
const smallBody = 2048

func encode(count int, member func(i int, head []byte) (headed, body []byte)) (net.Buffers, int64) {
	run := make([]byte, 0, 512+count*256)
	run = append(run, magic...)
	run = binary.LittleEndian.AppendUint32(run, uint32(count))
	var out net.Buffers
	var total int64
	for i := range count {
		start := len(run)
		run = append(run, make([]byte, memberLength)...)
		var body []byte
		run, body = member(i, run)
		binary.LittleEndian.PutUint32(run[start:], uint32(len(run)-start-memberLength))
		binary.LittleEndian.PutUint64(run[start+4:], uint64(len(body)))
		if len(body) <= smallBody {
			run = append(run, body...)
			continue
		}
		total += int64(len(run) + len(body))
		out = append(out, run, body)
		// The next members' heads use the rest of the run's capacity.
		run = run[len(run):]
	}
	if len(run) > 0 {
		total += int64(len(run))
		out = append(out, run)
	}
	return out, total
}

func appendHeader(head []byte, h http.Header) []byte {
	for name, values := range h {
		for _, v := range values {
			head = append(head, name...)
			head = append(head, ": "...)
			// A line break in a value would start another header.
			if strings.ContainsAny(v, "\r\n") {
				v = strings.NewReplacer("\r", " ", "\n", " ").Replace(v)
			}
			head = append(head, v...)
			head = append(head, '\n')
		}
	}
	return head
}

// DecodeRequests reads a frame. The bodies alias frame.
func DecodeRequests(frame []byte) ([]Request, error) {
	var out []Request
	err := decode(&memory{frame}, func(count int) { out = make([]Request, 0, count) },
		func(line string, h http.Header, body []byte) error {
			method, target, ok := strings.Cut(line, " ")
			if !ok || method == "" || !strings.HasPrefix(target, "/") {
				return fmt.Errorf("%w: request line %q", ErrFrame, line)
			}
			path, query, _ := strings.Cut(target, "?")
			out = append(out, Request{Method: method, Path: path, Query: query, Header: h, Body: body})
			return nil
		})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// DecodeResponses is [ReadResponses] of a frame in memory.
func DecodeResponses(frame []byte) ([]Response, error) {
	return ReadResponses(bytes.NewReader(frame), int64(len(frame)))
}

// ReadResponses reads a frame of answers of length bytes. Every body has its own memory, so
// a client that reads its answer slowly holds no other answer.
func ReadResponses(r io.Reader, length int64) ([]Response, error) {
	var out []Response
	err := decode(&stream{r: r, rest: length}, func(count int) { out = make([]Response, 0, count) },
		func(line string, h http.Header, body []byte) error {
			status, err := strconv.Atoi(line)
			if err != nil || status < 100 || status > 999 {
				return fmt.Errorf("%w: status %q", ErrFrame, line)
			}
			out = append(out, Response{Status: status, Header: h, Body: body})
			return nil
		})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// source is where a frame comes from.
type source interface {
	// left is the number of unread bytes of the frame.
	left() uint64
	// take returns the next n bytes, at most left. head does the same for bytes that are
	// valid only until the next call.
	take(n uint64) ([]byte, error)
	head(n uint64) ([]byte, error)
}

// memory is a frame in memory. Taken bytes alias it.
type memory struct{ rest []byte }

func (m *memory) left() uint64 { return uint64(len(m.rest)) }

func (m *memory) take(n uint64) ([]byte, error) {
	taken := m.rest[:n:n]
	m.rest = m.rest[n:]
	return taken, nil
}

func (m *memory) head(n uint64) ([]byte, error) { return m.take(n) }

// stream is a frame from a reader.
type stream struct {
	r       io.Reader
	rest    int64
	scratch []byte
}

func (s *stream) left() uint64 { return uint64(s.rest) }

func (s *stream) take(n uint64) ([]byte, error) {
	taken := make([]byte, n)
	s.rest -= int64(n)
	_, err := io.ReadFull(s.r, taken)
	return taken, err
}

func (s *stream) head(n uint64) ([]byte, error) {
	if uint64(cap(s.scratch)) < n {
		s.scratch = make([]byte, max(n, 512))
	}
	s.rest -= int64(n)
	_, err := io.ReadFull(s.r, s.scratch[:n])
	return s.scratch[:n], err
}

func decode(from source, begin func(count int), member func(line string, h http.Header, body []byte) error) error {
	count, err := decodePrefix(from)
	if err != nil {
		return err
	}
	begin(count)
	for i := range count {
		if from.left() < memberLength {
			return fmt.Errorf("%w: cut off before member %d", ErrFrame, i)
		}
		lengths, err := from.head(memberLength)
		if err != nil {
			return err
		}
		headLength := uint64(binary.LittleEndian.Uint32(lengths))
		bodyLength := binary.LittleEndian.Uint64(lengths[4:])
		if rest := from.left(); headLength > MaxHead || headLength > rest || bodyLength > rest-headLength {
			return fmt.Errorf("%w: member %d is longer than the frame", ErrFrame, i)
		}
		head, err := from.head(headLength)
		if err != nil {
			return err
		}
		line, header, err := decodeHead(string(head))
		if err != nil {
			return fmt.Errorf("member %d: %w", i, err)
		}
		body, err := from.take(bodyLength)
		if err != nil {
			return err
		}
		if err := member(line, header, body); err != nil {
			return fmt.Errorf("member %d: %w", i, err)
		}
	}
	if rest := from.left(); rest != 0 {
		return fmt.Errorf("%w: %d bytes after the last member", ErrFrame, rest)
	}
	return nil
}

// decodePrefix reads a frame's first bytes and returns the number of members.
func decodePrefix(from source) (count int, err error) {
	var prefix []byte
	if from.left() >= prefixLength {
		if prefix, err = from.head(prefixLength); err != nil {
			return 0, err
		}
	}
	if len(prefix) < prefixLength || string(prefix[:4]) != magic {
		return 0, fmt.Errorf("%w: it does not begin with %q", ErrFrame, magic)
	}
	n := binary.LittleEndian.Uint32(prefix[4:])
	if n > MaxMembers || uint64(n)*memberLength > from.left() {
		return 0, fmt.Errorf("%w: %d members in %d bytes", ErrFrame, n, from.left())
	}
	return int(n), nil
}

func decodeHead(head string) (line string, h http.Header, err error) {
	line, head, ok := strings.Cut(head, "\n")
	if !ok {
		return "", nil, fmt.Errorf("%w: a head has no first line", ErrFrame)
	}
	h = make(http.Header, strings.Count(head, "\n"))
	for head != "" {
		var field string
		field, head, _ = strings.Cut(head, "\n")
		name, value, ok := strings.Cut(field, ": ")
		if !ok || name == "" {
			return "", nil, fmt.Errorf("%w: header line %q", ErrFrame, field)
		}
		name = http.CanonicalHeaderKey(name)
		h[name] = append(h[name], value)
	}
	return line, h, nil
}

// AppendWithin appends the value of [WithinHeader] to a header.
func AppendWithin(to []byte, within []time.Duration) []byte {
	for i, d := range within {
		if i > 0 {
			to = append(to, ',')
		}
		to = strconv.AppendInt(to, d.Microseconds(), 10)
	}
	return to
}

// ParseWithin reads [WithinHeader] for a batch of count members. Without the header there
// is no bound.
func ParseWithin(value string, count int) ([]time.Duration, error) {
	if value == "" {
		return nil, nil
	}
	if n := strings.Count(value, ",") + 1; n != count {
		return nil, fmt.Errorf("%s has %d times for %d members", WithinHeader, n, count)
	}
	within := make([]time.Duration, 0, count)
	for field := range strings.SplitSeq(value, ",") {
		us, err := strconv.ParseInt(field, 10, 64)
		if err != nil || us < 0 || us > int64(maxWithin/time.Microsecond) {
			return nil, fmt.Errorf("%s: %q is no time in µs", WithinHeader, field)
		}
		within = append(within, time.Duration(us)*time.Microsecond)
	}
	return within, nil
}
