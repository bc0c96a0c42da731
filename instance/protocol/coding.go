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

// The supported values of Content-Encoding.
const (
	Gzip    = "gzip"
	Deflate = "deflate" // zlib's format, as HTTP defines it
)

// acceptedCodings lists the codings for an Accept-Encoding header.
const acceptedCodings = Gzip + ", " + Deflate

var (
	// errCoding refuses an unsupported coding.
	errCoding = errors.New("only gzip and deflate are supported")
	// errInflated refuses a body that exceeds the limit after decompression.
	errInflated = errors.New("the decompressed body is too large")
)

// decompress decodes a body with the given Content-Encoding. It returns at most limit
// bytes, otherwise [errInflated], and never allocates more memory than that.
func decompress(coding string, body []byte, limit int64) ([]byte, error) {
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
	// Text grows about four times. For a bomb, which grows a thousand times, the buffer
	// grows step by step.
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

// chooseCoding returns the coding that a client's Accept-Encoding prefers, "" for none.
func chooseCoding(accept string) string {
	best, highest := "", 0.0
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
		if weight > highest || weight == highest && weight > 0 && name == Gzip {
			best, highest = name, weight
		}
	}
	return best
}

// writers pools the compressors, whose tables take several hundred KB each.
var writers = map[string]*sync.Pool{
	Gzip: {New: func() any {
		w, err := gzip.NewWriterLevel(io.Discard, flate.BestSpeed)
		if err != nil { // It fails only for an invalid level.
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

// Compress compresses a body at the fastest level. ok is false if the coding is unknown
// or the result is not smaller.
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
