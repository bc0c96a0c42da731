package queue

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
)

// Most of a message is its body in base64. Parsing that as JSON takes longer than all
// other work on a message. A scanner therefore finds the body, skipping strings as fast
// as memory can be searched, and only the rest is parsed as JSON. If the scanner is in
// doubt, the whole message is parsed as JSON.

var errNoMessage = errors.New("it is not a queued request in JSON")

// unmarshal does the same as json.Unmarshal for a message, but faster. Without whole it may leave
// out the body.
func unmarshal(data []byte, r *message, whole bool) error {
	body, count := []byte(nil), 0
	ok := members(data, func(key, value []byte) {
		if bytes.EqualFold(key, []byte(`"Body"`)) {
			body = value
			count++
		}
	})
	if !ok || count != 1 || len(body) < 2 || body[0] != '"' || bytes.IndexByte(body, '\\') >= 0 {
		return json.Unmarshal(data, r)
	}
	// body is a part of data: its offset is the difference of the capacities.
	at := cap(data) - cap(body)
	rest := make([]byte, 0, len(data)-len(body)+2)
	rest = append(append(append(rest, data[:at]...), `""`...), data[at+len(body):]...)
	if err := json.Unmarshal(rest, r); err != nil {
		return err
	}
	if !whole {
		return nil
	}
	text := body[1 : len(body)-1]
	out := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(out, text)
	if err != nil {
		return err
	}
	r.Body = out[:n]
	return nil
}

// members calls each with every key and value of a JSON object, including the quotes. It
// returns false if data is not an object. It does not check the values.
func members(data []byte, each func(key, value []byte)) bool {
	i := space(data, 0)
	if i >= len(data) || data[i] != '{' {
		return false
	}
	i = space(data, i+1)
	if i < len(data) && data[i] == '}' {
		return space(data, i+1) == len(data)
	}
	for {
		from := space(data, i)
		end := text(data, from)
		if end < 0 {
			return false
		}
		colon := space(data, end)
		if colon >= len(data) || data[colon] != ':' {
			return false
		}
		begin := space(data, colon+1)
		stop := value(data, begin)
		if stop <= begin {
			return false
		}
		each(data[from:end], data[begin:stop])
		if i = space(data, stop); i >= len(data) {
			return false
		}
		if data[i] == '}' {
			return space(data, i+1) == len(data)
		}
		if data[i] != ',' {
			return false
		}
		i++
	}
}

// space returns the first position from i on that is not white space.
func space(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\t' || data[i] == '\r') {
		i++
	}
	return i
}

// text returns the position behind the string that begins at i, -1 if none does.
func text(data []byte, i int) int {
	if i >= len(data) || data[i] != '"' {
		return -1
	}
	for i++; ; {
		n := bytes.IndexByte(data[i:], '"')
		if n < 0 {
			return -1
		}
		end := i + n
		escapes := 0
		for k := end - 1; k >= i && data[k] == '\\'; k-- {
			escapes++
		}
		if i = end + 1; escapes%2 == 0 {
			return i
		}
	}
}

// value returns the position behind the value that begins at i, -1 if it has no end.
func value(data []byte, i int) int {
	depth := 0
	for i < len(data) {
		switch data[i] {
		case '"':
			if i = text(data, i); i < 0 || depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return -1
}
