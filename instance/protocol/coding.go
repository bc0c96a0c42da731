package protocol

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
)

// The codings.
const (
	Gzip    = "gzip"
	Deflate = "deflate" // zlib's format, as HTTP has it
)

// acceptedCodings lists the codings for an Accept-Encoding header.
const acceptedCodings = Gzip + ", " + Deflate

var (
	// errCoding is for a coding that is not offered.
	errCoding = errors.New("only gzip and deflate are taken")
	// errInflated is for a body that is larger than it may be once it is
	// decompressed.
	errInflated = errors.New("the body is too large once it is decompressed")
)

// Decompress returns what a body is that came with the given Content-Encoding: at
// most limit bytes, or [errInflated]. More memory than that is never taken.
func Decompress(coding string, body []byte, limit int64) ([]byte, error) {
	var r io.ReadCloser
	var err error
	switch name := strings.ToLower(strings.TrimSpace(coding)); name {
	case "", "identity":
		return body, nil
	case Gzip, "x-gzip":
		r, err = gzip.NewReader(bytes.NewReader(body))
	case Deflate:
		r, err = zlib.NewReader(bytes.NewReader(body))
	default:
		return nil, fmt.Errorf("Content-Encoding is %.40q: %w", coding, errCoding)
	}
	if err != nil {
		return nil, fmt.Errorf("the body is not %s, as Content-Encoding says: %w", coding, err)
	}
	defer r.Close()
	var out bytes.Buffer
	// Text grows a few times; a bomb a thousand times, which the buffer then has
	// to follow step by step.
	out.Grow(int(min(limit, 4*int64(len(body))+bytes.MinRead)))
	n, err := out.ReadFrom(io.LimitReader(r, limit+1))
	switch {
	case n > limit:
		return nil, fmt.Errorf("%w: the limit is %d bytes", errInflated, limit)
	case err != nil:
		return nil, fmt.Errorf("the body is not %s, as Content-Encoding says: %w", coding, err)
	}
	return out.Bytes(), nil
}

// chooseCoding returns the coding that a client prefers by its Accept-Encoding, "" for
// none.
func chooseCoding(accept string) string {
	best, most := "", 0.0
	for part := range strings.SplitSeq(accept, ",") {
		name, parameters, _ := strings.Cut(part, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "*" {
			name = Gzip
		}
		if name != Gzip && name != Deflate {
			continue
		}
		weight := 1.0
		if q, ok := strings.CutPrefix(strings.ReplaceAll(parameters, " ", ""), "q="); ok {
			var err error
			if weight, err = strconv.ParseFloat(q, 64); err != nil {
				weight = 0
			}
		}
		if weight > most || weight == most && weight > 0 && name == Gzip {
			best, most = name, weight
		}
	}
	return best
}

// writers keep a compressor's tables, which are several hundred KB.
var writers = map[string]*sync.Pool{
	Gzip: {New: func() any {
		w, err := gzip.NewWriterLevel(io.Discard, flate.BestSpeed)
		if err != nil { // The level is one.
			panic(err)
		}
		return compressor(w)
	}},
	Deflate: {New: func() any {
		w, err := zlib.NewWriterLevel(io.Discard, flate.BestSpeed)
		if err != nil {
			panic(err)
		}
		return compressor(w)
	}},
}

type compressor interface {
	io.WriteCloser
	Reset(io.Writer)
}

// Compress compresses a body quickly rather than well. ok is false where the coding
// is not known or nothing is gained.
func Compress(coding string, body []byte) (out []byte, ok bool) {
	pool := writers[coding]
	if pool == nil {
		return nil, false
	}
	var to bytes.Buffer
	to.Grow(len(body)/3 + bytes.MinRead)
	w := pool.Get().(compressor)
	defer pool.Put(w)
	w.Reset(&to)
	if _, err := w.Write(body); err != nil {
		return nil, false
	}
	if err := w.Close(); err != nil {
		return nil, false
	}
	return to.Bytes(), to.Len() < len(body)
}
