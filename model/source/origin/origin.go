// Package origin asks servers for what models' URIs name: which files, how large, in which state, and their
// bytes from any
// offset on. It connects only to where it may. It stores nothing, which package fetch does. Begin reading at
// [Client.Look].
package origin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strings"
	"sync"
	"sync/atomic"
)

// Finding is what a URI names at its server.
type Finding struct {
	// Tag identifies the state of the content, "" if the server does not say.
	Tag string
	// Objects are the files. One without a name is the model itself, or an archive.
	Objects []*Object
}

// Single reports whether the URI names one file.
func (f *Finding) Single() bool { return len(f.Objects) == 1 && f.Objects[0].Name == "" }

// Size is the size of all files in bytes, -1 if it is not known.
func (f *Finding) Size() (bytes int64) {
	for _, o := range f.Objects {
		if o.Size < 0 {
			return -1
		}
		bytes += o.Size
	}
	return bytes
}

// Close closes the answers that nobody has read.
func (f *Finding) Close() {
	for _, o := range f.Objects {
		if o.First != nil {
			_ = o.First.Close()
		}
	}
}

// Object is one file at a server.
type Object struct {
	// Name is the file's path in the bundle, "" for the only file. Original is its name at the server.
	Name, Original string
	// Size is in bytes, -1 if it is not known.
	Size int64
	// Tag is its ETag, "" if it has none. Sum is its SHA-256 and MD5 its MD5, "" if they are not known.
	Tag, Sum, MD5 string
	// keyed says that the tag is no MD5. Connections that find this out forget MD5 under forgetting; it is read when
	// they are closed.
	keyed      bool
	forgetting sync.Mutex
	// single says that its server has answered a range with the whole.
	single atomic.Bool
	// Packed says that it is an archive whose content belongs into the bundle.
	Packed bool
	// First is an answer with the whole content that has begun already, nil if there is none.
	First io.ReadCloser
	// Open opens the content at an offset. It returns at which offset the answer begins: 0 if the server cannot do
	// otherwise, or if the content is no longer that of the tag.
	Open func(ctx context.Context, offset int64) (body io.ReadCloser, from int64, err error)
}

// Fatal is an error after which no further attempt helps.
type Fatal struct{ Err error }

// Error implements error.
func (f Fatal) Error() string { return f.Err.Error() }

// Unwrap returns the error.
func (f Fatal) Unwrap() error { return f.Err }

// isDigest reports whether a text is a hash of so many hexadecimal digits.
func isDigest(text string, digits int) bool {
	return len(text) == digits && strings.Trim(text, "0123456789abcdef") == ""
}

// Hash is a name for texts.
func Hash(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:])
}
