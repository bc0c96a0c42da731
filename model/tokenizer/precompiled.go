package tokenizer

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// charsmap is sentencepiece's map of characters: a double array in the form of darts-clone, whose values are
// places in texts, which end with a zero byte.
type charsmap struct {
	units []uint32
	texts []byte
}

// maxCluster is the length in bytes from which on a grapheme cluster is replaced character by character only.
const maxCluster = 6

func parsePrecompiled(o *object) normalizer {
	var encoded string
	o.required("precompiled_charsmap", &encoded)
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		o.fail("precompiled_charsmap", "%w", err)
		return nil
	}
	if len(data) == 0 { // sentencepiece writes none for the rule "identity".
		return always(func(text []byte) []byte { return text })
	}
	size := uint32(0)
	if len(data) >= 4 {
		size = binary.LittleEndian.Uint32(data)
	}
	if len(data) < 4 || size%4 != 0 || size == 0 || uint64(size) > uint64(len(data)-4) || !utf8.Valid(data[4+size:]) {
		o.fail("precompiled_charsmap", "its %d bytes are no map of characters with an array of %d bytes", len(data), size)
		return nil
	}
	m := &charsmap{units: make([]uint32, size/4), texts: data[4+size:]}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(data[4+4*i:])
	}
	return always(m.normalize)
}

// lookup returns what replaces a text; false if nothing does. As in tokenizers, the shortest beginning of the
// text that the map has counts.
func (m *charsmap) lookup(text []byte) ([]byte, bool) {
	at := offset(m.units[0])
	for _, b := range text {
		at ^= uint32(b)
		if b == 0 || at >= uint32(len(m.units)) || m.units[at]&(1<<31|0xFF) != uint32(b) {
			return nil, false
		}
		unit := m.units[at]
		if at ^= offset(unit); unit&(1<<8) == 0 {
			continue
		}
		if at >= uint32(len(m.units)) {
			return nil, false
		}
		begin := m.units[at] &^ (1 << 31)
		if begin > uint32(len(m.texts)) {
			return nil, false
		}
		result, _, _ := bytes.Cut(m.texts[begin:], []byte{0})
		return result, utf8.Valid(result)
	}
	return nil, false
}

// offset is the distance in a unit of the array.
func offset(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }

// normalize replaces short grapheme clusters as a whole if the map has them, and characters otherwise.
func (m *charsmap) normalize(text []byte) []byte {
	out := make([]byte, 0, len(text)+len(text)/8)
	state := -1
	for len(text) > 0 {
		// An ASCII character before another one is a cluster, except for a carriage return.
		if text[0] < utf8.RuneSelf && text[0] != '\r' && (len(text) == 1 || text[1] < utf8.RuneSelf) {
			out = m.replace(out, text[:1])
			text, state = text[1:], -1
			continue
		}
		var cluster []byte
		cluster, text, _, state = uniseg.FirstGraphemeCluster(text, state)
		if len(cluster) < maxCluster {
			if result, ok := m.lookup(cluster); ok {
				out = append(out, result...)
				continue
			}
		}
		for len(cluster) > 0 {
			_, n := utf8.DecodeRune(cluster)
			out = m.replace(out, cluster[:n])
			cluster = cluster[n:]
		}
	}
	return out
}

// replace appends what replaces one character, or the character.
func (m *charsmap) replace(out, char []byte) []byte {
	if result, ok := m.lookup(char); ok {
		return append(out, result...)
	}
	return append(out, char...)
}
