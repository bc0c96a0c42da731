package model

import (
	"archive/zip"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
)

// Format is a file format that is not ONNX.
type Format string

// The formats that `faas-infer model convert` takes or finds beside a model. Any other format
// of [Recognise] has no constant.
const (
	FormatKeras        Format = "keras"
	FormatTorch        Format = "pytorch"
	FormatPickle       Format = "pickle"
	FormatXGBoost      Format = "xgboost"
	FormatLightGBM     Format = "lightgbm"
	FormatCatBoost     Format = "catboost"
	FormatSavedModelPB Format = "savedmodel.pb"

	formatJSON Format = "json"
	formatXML  Format = "xml"
)

// Foreign is a file that is no ONNX model.
type Foreign struct {
	// Format is the file's format.
	Format Format
	// What names the format for people, and Way the command or template that serves it.
	What, Way string
}

// Error implements error: what the file is, and the way out.
func (f Foreign) Error() string { return "it is " + f.What + "; " + f.Way }

// IsModel is false for text that models have beside them, such as config.json.
func (f Foreign) IsModel() bool { return f.Format != formatJSON && f.Format != formatXML }

const (
	// headBytes is how much of a file's begin is read.
	headBytes = 64 << 10
	// maxDirectory bounds what is read of an archive's directory, which lies at its end.
	maxDirectory = 8 << 20
	// maxNested is how many compressions within each other are looked into.
	maxNested = 2
)

// Recognise says what a file is that is no ONNX model, by its content. It reads the head, and
// an archive's directory, so it takes a moment for a file of any size. It is false for an
// ONNX model, whole or truncated, and for bytes that it does not know.
func Recognise(file io.ReaderAt, size int64) (Foreign, bool) {
	begin := make([]byte, min(size, headBytes))
	n, err := file.ReadAt(begin, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Foreign{}, false
	}
	h := &head{begin: begin[:n], size: size}
	if bytes.HasPrefix(h.begin, []byte("PK")) {
		h.names, h.whole = archived(file, size, h.begin)
	}
	return h.recognise(maxNested)
}

// RecogniseFile is [Recognise] for the file at a path. The error is that of opening it. A
// directory is not recognised.
func RecogniseFile(path string) (Foreign, bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return Foreign{}, false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return Foreign{}, false, err
	}
	if !info.Mode().IsRegular() {
		return Foreign{}, false, nil // The reader says why.
	}
	foreign, ok := Recognise(file, info.Size())
	return foreign, ok, nil
}

// unknownWay is what to do with a file that nobody recognises.
const unknownWay = "`faas-infer model convert` makes ONNX of models of Keras, TensorFlow, PyTorch, scikit-learn, XGBoost, LightGBM and CatBoost, and the template python-infer serves any model that Python loads"

func (h *head) recognise(nested int) (Foreign, bool) {
	for _, f := range formats {
		if f.is(h) {
			return f.Foreign, true
		}
	}
	for _, c := range compressions {
		if !bytes.HasPrefix(h.begin, []byte(c.magic)) {
			continue
		}
		inside, ok := c.inside(h, nested)
		if ok || !c.weak {
			return inside, true
		}
	}
	return Foreign{}, false
}

// head is what is known of a file.
type head struct {
	begin []byte
	size  int64
	// names are the names in a zip archive. whole is false if it lacks its directory; names
	// then has only the first one.
	names []string
	whole bool
}

func (h *head) prefix(magic ...string) bool {
	for _, m := range magic {
		if bytes.HasPrefix(h.begin, []byte(m)) {
			return true
		}
	}
	return false
}

// at reports whether text is at an offset.
func (h *head) at(offset int, text string) bool {
	return len(h.begin) >= offset+len(text) && string(h.begin[offset:offset+len(text)]) == text
}

// text reports whether the file begins, after space, with one of the words, in any case.
func (h *head) text(words ...string) bool {
	begin := strings.ToLower(string(trimmed(h.begin[:min(len(h.begin), 1024)])))
	for _, w := range words {
		if strings.HasPrefix(begin, w) {
			return true
		}
	}
	return false
}

func trimmed(b []byte) []byte {
	return bytes.TrimLeft(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf")), " \t\r\n")
}

// has reports whether all texts are in the head.
func (h *head) has(texts ...string) bool {
	for _, t := range texts {
		if !bytes.Contains(h.begin, []byte(t)) {
			return false
		}
	}
	return true
}

// object reports whether the file begins as an object in JSON, or in UBJSON, whose keys have
// their length before them.
func (h *head) object() bool { return bytes.HasPrefix(trimmed(h.begin), []byte("{")) }

// entry reports whether a name of the archive matches.
func (h *head) entry(name *regexp.Regexp) bool {
	for _, n := range h.names {
		if name.MatchString(n) {
			return true
		}
	}
	return false
}

// limited reads an archive and fails where that takes more than its directory should.
type limited struct {
	io.ReaderAt
	rest int64
}

// ReadAt implements io.ReaderAt.
func (l *limited) ReadAt(b []byte, at int64) (int, error) {
	if l.rest -= int64(len(b)); l.rest < 0 {
		return 0, errors.New("the archive's directory is too large")
	}
	return l.ReaderAt.ReadAt(b, at)
}

// archived returns the names in a zip archive. Without a directory, as in a truncated file,
// whole is false and there is only the name in its first local header.
func archived(file io.ReaderAt, size int64, begin []byte) (names []string, whole bool) {
	r, err := zip.NewReader(&limited{file, maxDirectory}, size)
	if err == nil || r != nil && errors.Is(err, zip.ErrInsecurePath) {
		for _, f := range r.File {
			names = append(names, f.Name)
		}
		return names, true
	}
	const header = 30
	if len(begin) >= header {
		if n := int(binary.LittleEndian.Uint16(begin[26:])); len(begin) >= header+n {
			names = append(names, string(begin[header:header+n]))
		}
	}
	return names, false
}

// compression is a way to compress a file, or to pack several.
type compression struct {
	magic, name, command string
	// open decompresses, nil where only the magic is known.
	open func(io.Reader) (io.ReadCloser, error)
	// weak: other files may begin with this magic. Nothing is said unless the content is known.
	weak bool
}

var compressions = []compression{
	{"\x1f\x8b", "gzip", "gunzip", func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }, false},
	{"\x78\x01", "zlib", "", zlib.NewReader, true},
	{"\x78\x5e", "zlib", "", zlib.NewReader, true},
	{"\x78\x9c", "zlib", "", zlib.NewReader, true},
	{"\x78\xda", "zlib", "", zlib.NewReader, true},
	{"BZh", "bzip2", "bunzip2", func(r io.Reader) (io.ReadCloser, error) { return io.NopCloser(bzip2.NewReader(r)), nil }, false},
	{"\xfd7zXZ\x00", "xz", "unxz", nil, false},
	{"\x28\xb5\x2f\xfd", "Zstandard", "unzstd", nil, false},
	{"\x04\x22\x4d\x18", "LZ4", "unlz4", nil, false},
	{"7z\xbc\xaf\x27\x1c", "7-Zip", "7z x", nil, false},
	{"Rar!\x1a\x07", "RAR", "unrar x", nil, false},
}

// inside says what a compressed file holds. It decompresses a head.
func (c compression) inside(h *head, nested int) (Foreign, bool) {
	packed := Foreign{Format: "compressed", What: "compressed by " + c.name, Way: "unpack it with `" + c.command + "` and give the model in it"}
	if c.open == nil || nested == 0 {
		return packed, !c.weak
	}
	r, err := c.open(bytes.NewReader(h.begin))
	if err != nil {
		return packed, false
	}
	defer r.Close()
	begin, _ := io.ReadAll(io.LimitReader(r, headBytes)) // The end is missing, so there is an error.
	inner := &head{begin: begin, size: int64(len(begin))}
	if len(begin) == 0 {
		return packed, false
	}
	f, ok := inner.recognise(nested - 1)
	switch {
	case ok && f.Format == FormatPickle: // joblib and pickle.load of a file need no other step.
		f.What += ", compressed by " + c.name
		return f, true
	case ok && !c.weak:
		packed.What = f.What + ", compressed by " + c.name
		return packed, true
	}
	return packed, false
}
