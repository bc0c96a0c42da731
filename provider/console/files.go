package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"path"
	"strings"
	"sync"
)

//go:embed static
var embedded embed.FS

// file is a file as it is sent, plain and compressed.
type file struct {
	kind, tag         string
	plain, compressed []byte
}

// types are the media types of the files by their extensions. The host's own table may differ.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".mjs":  "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
}

// load compresses the files when the first one is asked for: most processes of the program serve none.
var load = sync.OnceValue(func() map[string]file {
	files := map[string]file{}
	err := fs.WalkDir(embedded, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		f := file{kind: types[path.Ext(name)], tag: hex.EncodeToString(sum[:12]), plain: text}
		if f.kind == "" {
			f.kind = "text/plain; charset=utf-8"
		}
		var packed bytes.Buffer
		w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // It fails for an unknown level only.
		_, _ = w.Write(text)                                       // A buffer takes everything.
		_ = w.Close()
		f.compressed = packed.Bytes()
		files[strings.TrimPrefix(name, "static/")] = f
		return nil
	})
	if err != nil {
		panic(err) // The files are part of the program.
	}
	return files
})
