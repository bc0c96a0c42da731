package frame

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// PartsHeader is the request header that says which members take their answers in parts: their
// positions, separated by commas. An instance that does not know it answers as a whole. In a
// response its value is "1": the body is then parts, and a last one that holds the frame.
//
//	body = { part } last
//	part = headLength:u32 bodyLength:u64 "part " position "\n" body
//	last = headLength:u32 bodyLength:u64 "end\n" { name ": " value "\n" } frame
//
// The headers of the last part are those that a response without parts has in its own head.
const PartsHeader = "X-Faas-Infer-Parts"

// partLine begins the head of a part, and lastLine is the first line of the last one.
const partLine, lastLine = "part ", "end"

// MaxPart is the maximum size of a part's body in bytes, except of the last one.
const MaxPart = 16 << 20

// Part is a part of a member's answer, or the end of all answers.
type Part struct {
	// Member is the position of the member, -1 at the end.
	Member int
	// Header is nil except at the end.
	Header http.Header
	// Body is the part. At the end it is the frame of all answers.
	Body []byte
}

// AppendPart appends a part. It does not write the Header of a part that is not the end.
func AppendPart(to []byte, p Part) []byte {
	start := len(to)
	to = append(to, make([]byte, memberLength)...)
	if p.Member >= 0 {
		to = append(strconv.AppendInt(append(to, partLine...), int64(p.Member), 10), '\n')
	} else {
		to = appendHeader(append(to, lastLine+"\n"...), p.Header)
	}
	binary.LittleEndian.PutUint32(to[start:], uint32(len(to)-start-memberLength))
	binary.LittleEndian.PutUint64(to[start+4:], uint64(len(p.Body)))
	return append(to, p.Body...)
}

// ReadPart reads a part. The body of the last one has at most limit bytes, that of the others MaxPart. It takes memory
// only for what has come.
func ReadPart(r io.Reader, limit int64) (Part, error) {
	var lengths [memberLength]byte
	if _, err := io.ReadFull(r, lengths[:]); err != nil {
		return Part{}, err
	}
	headLength, bodyLength := binary.LittleEndian.Uint32(lengths[:]), binary.LittleEndian.Uint64(lengths[4:])
	if headLength > MaxHead || bodyLength > uint64(limit) {
		return Part{}, fmt.Errorf("%w: a part has a head of %d bytes and a body of %d", ErrFrame, headLength, bodyLength)
	}
	var content bytes.Buffer
	if _, err := io.CopyN(&content, r, int64(headLength)); err != nil {
		return Part{}, fmt.Errorf("read a part: %w", err)
	}
	line, header, err := decodeHead(content.String())
	if err != nil {
		return Part{}, err
	}
	part := Part{Member: -1, Header: header}
	if line != lastLine {
		position, found := strings.CutPrefix(line, partLine)
		at, err := strconv.Atoi(position)
		if !found || err != nil || at < 0 || at >= MaxMembers || len(header) > 0 || bodyLength > MaxPart {
			return Part{}, fmt.Errorf("%w: the head of a part with %d bytes is %q", ErrFrame, bodyLength, line)
		}
		part = Part{Member: at}
	}
	content.Reset()
	if _, err := io.CopyN(&content, r, int64(bodyLength)); err != nil {
		return Part{}, fmt.Errorf("read a part: %w", err)
	}
	part.Body = content.Bytes()
	return part, nil
}

// FormatParts returns the value of [PartsHeader] for a batch, "" if all its members take their answers as a whole.
func FormatParts(requests []Request) string {
	var value []byte
	for i := range requests {
		if requests[i].Parts == nil {
			continue
		}
		if value != nil {
			value = append(value, ',')
		}
		value = strconv.AppendInt(value, int64(i), 10)
	}
	return string(value)
}

// ParseParts reads [PartsHeader] for a batch of count members.
func ParseParts(value string, count int) (positions []int, err error) {
	if value == "" {
		return nil, nil
	}
	for field := range strings.SplitSeq(value, ",") {
		at, err := strconv.Atoi(field)
		if err != nil || at < 0 || at >= count || slices.Contains(positions, at) {
			return nil, fmt.Errorf("%s is %q; it must be positions of the %d members", PartsHeader, value, count)
		}
		positions = append(positions, at)
	}
	return positions, nil
}
