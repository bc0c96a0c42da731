package build

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/web"
)

// uploadedModel is the name of a model's file in the bundle that is made of it.
const uploadedModel = "model.onnx"

// maxDirectory bounds what is read of a zip archive's directory, in bytes: it is held in memory.
const maxDirectory = 16 << 20

// Uploaded is the answer to an upload.
type Uploaded struct {
	// Image is the name with which a function can be deployed. Its tag names the content.
	Image string `json:"image"`
	// Check is what "model check" says, for a program only that it is one. Log says what was done.
	Check json.RawMessage `json:"check"`
	Log   []string        `json:"log,omitempty"`
}

// Upload answers POST /system/upload?name=IMAGE[&slo=DURATION], whose body is an ONNX file, or a zip or tar archive of
// a bundle. It stores the body on the disk within the bounds of builds, makes a bundle as a build does under the name
// of [contentImage], and answers [Uploaded]. A refusal is {"error": …} with a status of 400 or more. The caller has checked the credentials.
func (h *Handler) Upload(w http.ResponseWriter, r *http.Request) error {
	out, err := h.upload(w, r)
	if err == nil {
		h.options.Logger.Info().Str("image", out.Image).Msg("made a bundle of an upload")
		web.WriteJSON(w, out)
		return nil
	}
	code := http.StatusBadRequest
	if why := new(refusal); errors.As(err, &why) {
		code = why.code
	} else if r.Context().Err() != nil {
		code = web.StatusHungUp
	}
	h.options.Logger.Warn().Str("from", r.RemoteAddr).Int("code", code).Err(err).Msg("upload refused")
	text, failed := json.Marshal(map[string]string{"error": web.Conceal(err.Error())})
	if failed != nil {
		return failed
	}
	if code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "10")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	web.CloseAfter(w, r) // The rest of the body is not read.
	w.WriteHeader(code)
	_, _ = w.Write(text) // It fails if the client is gone.
	return nil
}

func (h *Handler) upload(w http.ResponseWriter, r *http.Request) (*Uploaded, error) {
	query := r.URL.Query()
	image := query.Get("name")
	if image == "" {
		return nil, refuse(http.StatusBadRequest, "name is not set: the query must name the image to make, for example ?name=mnist")
	}
	if _, err := h.locate(image); err != nil {
		return nil, err
	}
	var err error
	slo := time.Duration(0)
	if text := query.Get("slo"); text != "" {
		if slo, err = time.ParseDuration(text); err != nil || slo <= 0 || slo > annotation.LongestSLO {
			return nil, refuse(http.StatusBadRequest, "slo is %q: it must be a time up to %v, for example slo=200ms", web.Clip(text), annotation.LongestSLO)
		}
	}
	body, err := h.store(w, r, nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	image = contentImage(image, body.sum)
	location, err := h.locate(image)
	if err != nil {
		return nil, err
	}
	if err := h.take(r.Context()); err != nil {
		return nil, err
	}
	defer h.release()
	staged, err := bundle.NewStaged(h.options.Root)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := staged.Discard(); err != nil {
			h.options.Logger.Warn().Err(err).Msg("an upload's files could not be removed")
		}
	}()
	said := &answer{}
	if err := h.unpackUpload(r.Context(), body.File, staged.Dir); err != nil {
		return nil, err
	}
	if err := h.prepare(r.Context(), staged.Dir, location, said); err != nil {
		return nil, err
	}
	out := &Uploaded{Image: image}
	if out.Check, err = h.verdict(r.Context(), staged.Dir, slo); err != nil {
		return nil, err
	}
	err = h.finish(r.Context(), image, staged, said)
	for _, line := range said.lines {
		out.Log = append(out.Log, web.Conceal(line))
	}
	return out, err
}

// contentImage names an upload by its content: NAME:TAG becomes NAME:TAG-DIGEST, and NAME becomes NAME:DIGEST. So an
// upload never changes the bundle of a function, not even before it is deployed. sum is the body's hash.
func contentImage(image, sum string) string {
	const digits = 12
	separator := ":"
	if strings.LastIndexByte(image, ':') > strings.LastIndexByte(image, '/') {
		separator = "-"
	}
	return image + separator + sum[:digits]
}

// verdict returns the verdict on the bundle in a directory.
func (h *Handler) verdict(ctx context.Context, dir string, slo time.Duration) (json.RawMessage, error) {
	b, err := bundle.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	plain := func(sentence string) (json.RawMessage, error) {
		return json.Marshal(map[string]any{"name": b.Name, "ok": true, "sentences": []string{sentence}, "inputs": []any{}, "outputs": []any{}})
	}
	switch {
	case b.IsProgram():
		return plain("It is a program, which has no objective.")
	case h.options.Verdict == nil:
		return plain("The model can be read.")
	}
	file := b.ModelPath()
	if !b.Whole() {
		file = filepath.Join(b.Dir, b.Registered()[0].Model)
	}
	return h.options.Verdict(ctx, file, slo)
}

// unpackUpload writes an upload into a directory: the only file of a model, or the files of an archive.
func (h *Handler) unpackUpload(ctx context.Context, file *os.File, dir string) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	foreign, known := model.Recognise(file, info.Size())
	begin := make([]byte, 512)
	n, _ := file.ReadAt(begin, 0) // What is missing is no archive.
	switch begin = begin[:n]; {
	case bytes.HasPrefix(begin, []byte("PK\x03\x04")):
		archive, err := h.openZip(file, info.Size())
		if err == nil && hasBundle(archive) {
			return h.extract(ctx, dir, func(u *unpacking) error { return u.unzip(ctx, archive) })
		}
		if err != nil && !known {
			return err
		}
	case len(begin) > 262 && string(begin[257:262]) == "ustar":
		return h.extract(ctx, dir, func(u *unpacking) error { return u.all(ctx, file) })
	}
	if known {
		return refuse(http.StatusUnsupportedMediaType, "the file is no ONNX model: %v", foreign)
	}
	if err := h.room(info.Size()); err != nil {
		return err
	}
	to, err := os.OpenFile(filepath.Join(dir, uploadedModel), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, file)
	if err = errors.Join(err, to.Chmod(0o644), to.Close()); err != nil {
		return noRoom(err)
	}
	return nil
}

// openZip opens a zip archive whose directory is not too large.
func (h *Handler) openZip(file *os.File, size int64) (*zip.Reader, error) {
	bounded := &boundedReader{file: file, left: maxDirectory}
	archive, err := zip.NewReader(bounded, size)
	if err != nil {
		return nil, fmt.Errorf("the zip archive cannot be read: %w", err)
	}
	bounded.left = -1 // The limits of files bound the rest.
	return archive, nil
}

// boundedReader reads at most left bytes of a file, any number if that is negative.
type boundedReader struct {
	file *os.File
	left int64
}

// ReadAt implements io.ReaderAt.
func (b *boundedReader) ReadAt(p []byte, at int64) (int, error) {
	if b.left >= 0 {
		if b.left -= int64(len(p)); b.left < 0 {
			return 0, errors.New("it has too many files")
		}
	}
	return b.file.ReadAt(p, at)
}

// hasBundle reports whether an archive has a manifest, or an ONNX model.
func hasBundle(archive *zip.Reader) bool {
	for _, f := range archive.File {
		if name := filepath.Base(f.Name); name == bundle.ManifestFile || strings.HasSuffix(name, ".onnx") {
			return true
		}
	}
	return false
}

// extract unpacks an archive into a directory, and moves the content of its only folder up.
func (h *Handler) extract(ctx context.Context, dir string, unpack func(*unpacking) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	limits := Limits{Bytes: h.options.MaxUnpacked, Entries: h.options.MaxEntries, Room: h.room}
	u := &unpacking{root: root, local: archivedName, limits: limits, named: true}
	if err := unpack(u); err != nil {
		return err
	}
	if err := errors.Join(Contained(dir), ctx.Err()); err != nil {
		return err
	}
	for _, litter := range []string{"__MACOSX", ".DS_Store"} { // macOS adds them.
		if err := root.RemoveAll(litter); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) == 1 && entries[0].IsDir() {
		err = raise(dir, entries[0].Name())
	}
	return err
}

// archivedName returns the name of an archive's entry below the bundle's directory.
func archivedName(name string) (string, error) {
	clean := filepath.Clean(name)
	if len(name) > maxName || !filepath.IsLocal(clean) || strings.ContainsRune(name, '\\') {
		return "", fmt.Errorf("the name %.40q in the archive leads out of it, or is longer than %d bytes", name, maxName)
	}
	return clean, nil
}

// unzip unpacks all entries of a zip archive, and makes the links.
func (u *unpacking) unzip(ctx context.Context, archive *zip.Reader) error {
	for _, f := range archive.File {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("the client went away: %w", err)
		}
		if err := u.zipped(f); err != nil {
			return err
		}
	}
	return u.makeLinks()
}

// zipped unpacks one entry of a zip archive.
func (u *unpacking) zipped(f *zip.File) (err error) {
	header, err := tar.FileInfoHeader(f.FileInfo(), "")
	if err != nil {
		return fmt.Errorf("%.40q in the archive: %w", f.Name, err)
	}
	data, err := f.Open()
	if err != nil {
		return fmt.Errorf("%.40q in the archive: %w", f.Name, err)
	}
	defer data.Close()
	if header.Name = f.Name; header.Typeflag == tar.TypeSymlink {
		target, err := io.ReadAll(io.LimitReader(data, maxName+1))
		if err != nil {
			return fmt.Errorf("%.40q in the archive: %w", f.Name, err)
		}
		header.Linkname, header.Size = string(target), 0
	}
	if err := u.entry(header, data); err != nil || header.Typeflag != tar.TypeReg {
		return err
	}
	// The checksum is compared at the end of the data, which the entry's size did not reach.
	if _, err := io.Copy(io.Discard, data); err != nil {
		return fmt.Errorf("%.40q in the archive: %w", f.Name, err)
	}
	return nil
}
